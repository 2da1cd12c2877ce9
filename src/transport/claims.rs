//! What a SCSI disk, the bridge in front of it and the drive behind it say about themselves. Asks only: no command here
//! can change a byte. What the answers are worth is judged elsewhere.

use super::error::{ErrorKind, TransportError};
use super::facts::{DeviceFacts, UsbId};
use super::sat::{self, Identity};
use super::scsi::encode::{READ_CAPACITY_10, READ_CAPACITY_16};
use super::scsi::pages::{self, BlockLimits, Capacity, Inquiry, Provisioning};
use super::scsi::{ScsiDevice, ScsiPort, SgIo};
use std::fs::File;

const NAME: &str = "probe";

/// Asking these for VPD page 89h was seen to make the page, and sometimes the bridge, unusable.
const NO_ATA_PAGE: &[(u16, u16)] = &[(0x0bda, 0x9210)];

/// Every claim of one SCSI disk. What is absent was not claimed, or not answered; then `unanswered` says so.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ScsiClaims {
    /// Standard INQUIRY.
    pub inquiry: Inquiry,
    /// Codes on VPD page 00h.
    pub pages: Vec<u8>,
    /// VPD page 80h. On bridges often not unique.
    pub serial: Option<String>,
    /// VPD page 83h: identifiers of the unit in hexadecimal, as given.
    pub identifiers: Vec<String>,
    /// VPD page 89h: IDENTIFY data as the translator keeps it.
    pub ata_page: Option<Identity>,
    /// VPD page B0h.
    pub limits: Option<BlockLimits>,
    /// VPD page B1h: 1 does not rotate, 0401h and more turns a minute, 0 not told.
    pub rotation: Option<u16>,
    /// VPD page B2h.
    pub provisioning: Option<Provisioning>,
    /// READ CAPACITY(10).
    pub capacity_10: Option<Capacity>,
    /// READ CAPACITY(16).
    pub capacity_16: Option<Capacity>,
    /// IDENTIFY DEVICE through ATA PASS-THROUGH(16).
    pub ata: Option<Identity>,
    /// Questions that found no answer, with the reason.
    pub unanswered: Vec<String>,
}

impl ScsiClaims {
    /// Asks the disk behind `file`.
    pub fn read(file: &File, facts: &DeviceFacts) -> Result<Self, TransportError> {
        let port = SgIo::new(file);
        let port = port.map_err(|cause| TransportError::os(NAME, "cannot duplicate the descriptor", cause))?;
        Self::ask(Box::new(port), facts.usb)
    }

    /// The same through any port. An error means that asking had to stop; a question that is turned away is none.
    pub fn ask(port: Box<dyn ScsiPort>, usb: Option<UsbId>) -> Result<Self, TransportError> {
        let mut device = ScsiDevice::new(NAME, port);
        let inquiry = device.inquiry()?;
        device.wake()?;
        let mut claims = Self {
            inquiry,
            pages: Vec::new(),
            serial: None,
            identifiers: Vec::new(),
            ata_page: None,
            limits: None,
            rotation: None,
            provisioning: None,
            capacity_10: None,
            capacity_16: None,
            ata: None,
            unanswered: Vec::new(),
        };
        claims.ask_capacities(&mut device)?;
        claims.ask_pages(&mut device, usb)?;
        let identity = sat::ask_identity(&mut device);
        claims.ata = claims.or_noted("ATA IDENTIFY DEVICE", identity)?;
        Ok(claims)
    }

    fn ask_capacities(&mut self, device: &mut ScsiDevice) -> Result<(), TransportError> {
        let short = device.ask("READ CAPACITY(10)", &READ_CAPACITY_10, 8);
        self.capacity_10 = self.or_noted("READ CAPACITY(10)", short)?.and_then(|data| Capacity::parse_10(&data));
        let long = device.ask("READ CAPACITY(16)", &READ_CAPACITY_16, 32);
        self.capacity_16 = self.or_noted("READ CAPACITY(16)", long)?.and_then(|data| Capacity::parse_16(&data));
        Ok(())
    }

    fn ask_pages(&mut self, device: &mut ScsiDevice, usb: Option<UsbId>) -> Result<(), TransportError> {
        let list = device.page(0x00);
        let list = self.or_noted("VPD page 00h", list)?.flatten().unwrap_or_default();
        self.pages = list.get(4..).unwrap_or_default().to_vec();
        let mut page = |code| match device.listed_page(&list, code) {
            Ok(page) => Ok(page),
            Err(error) if stops(&error) => Err(error),
            Err(error) => {
                self.unanswered.push(error.to_string());
                Ok(None)
            }
        };
        let (serial, identifiers) = (page(0x80)?, page(0x83)?);
        let without_ata = usb.is_some_and(|usb| NO_ATA_PAGE.contains(&(usb.vendor, usb.product)));
        let ata = if without_ata { None } else { page(0x89)? };
        let (limits, rotation, provisioning) = (page(0xB0)?, page(0xB1)?, page(0xB2)?);
        self.serial = serial.map(|page| pages::text_of(&page)).filter(|text| !text.is_empty());
        self.identifiers = identifiers.map(|page| pages::identifiers(&page)).unwrap_or_default();
        self.ata_page = ata.and_then(|page| Identity::parse(page.get(60..572)?).ok());
        self.limits = limits.as_deref().and_then(BlockLimits::parse);
        self.rotation = rotation.as_deref().and_then(pages::rotation);
        self.provisioning = provisioning.as_deref().and_then(Provisioning::parse);
        let unusable = [(0xB0, self.limits.is_none()), (0xB2, self.provisioning.is_none())];
        for (code, _) in unusable.into_iter().filter(|(code, missing)| *missing && self.pages.contains(code)) {
            self.unanswered.push(format!("VPD page {code:02x}h is listed, but is too short or another page came"));
        }
        Ok(())
    }

    /// An answer, or a note that there was none. Anything after which nothing more may be asked stays an error.
    fn or_noted<T>(&mut self, what: &str, answer: Result<T, TransportError>) -> Result<Option<T>, TransportError> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if stops(&error) => Err(error),
            Err(error) => {
                let text = error.to_string();
                self.unanswered.push(if text.contains(what) { text } else { format!("{what}: {text}") });
                Ok(None)
            }
        }
    }

    /// Whether the disk turns, as far as anything behind it says so.
    pub fn rotates(&self) -> Option<bool> {
        let page = self.rotation.and_then(pages::rotates);
        let drive = self.ata.as_ref().or(self.ata_page.as_ref()).and_then(|drive| drive.rotates);
        match (page, drive) {
            // One that says so is enough to be careful.
            (Some(true), _) | (_, Some(true)) => Some(true),
            (page, drive) => page.or(drive),
        }
    }

    /// Removes what tells one unit from another of the same make.
    pub fn make_anonymous(&mut self) {
        self.serial = None;
        self.identifiers.clear();
        for identity in [&mut self.ata_page, &mut self.ata].into_iter().flatten() {
            identity.serial.clear();
        }
    }
}

/// True when the device must be left alone after this.
fn stops(error: &TransportError) -> bool {
    use ErrorKind::{Changed, Failing, Gone, NotReady, Permission, TimedOut};
    matches!(error.kind(), TimedOut | Changed | Gone | NotReady | Failing | Permission)
}

#[cfg(test)]
mod tests {
    use super::super::scsi::encode::{INQUIRY, vital_product_data};
    use super::super::scsi::script::{Script, check_condition};
    use super::*;

    fn inquiry() -> Vec<u8> {
        let mut data = vec![0; 36];
        data[2] = 6;
        data[8..16].copy_from_slice(b"Bridge  ");
        data[16..32].copy_from_slice(b"Model           ");
        data
    }

    fn page(script: Script, code: u8, body: &[u8]) -> Script {
        let mut page = vec![0, code];
        page.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        page.extend(body);
        let length = u16::try_from(page.len()).unwrap();
        script.answers(&vital_product_data(code, 4), &page[..4]).answers(&vital_product_data(code, length), &page)
    }

    fn start() -> Script {
        let capacity = [&99_u32.to_be_bytes()[..], &512_u32.to_be_bytes()].concat();
        Script::default().answers(&INQUIRY, &inquiry()).ok(&[0; 6]).answers(&READ_CAPACITY_10, &capacity).fails(
            &READ_CAPACITY_16,
            &[],
            (5, 0x20, 0),
        )
    }

    #[test]
    fn what_is_not_answered_is_noted_and_asking_goes_on() {
        let mut script = page(start(), 0x00, &[0x00, 0x80, 0xB1]);
        script = page(script, 0x80, b"SECRET  ");
        script = page(script, 0xB1, &[0x1C, 0x20, 0, 0]);
        let identify = sat::identify_command();
        script = script.fails(&identify, &[], (5, 0x20, 0)).fails(&sat::identify_by_transport(), &[], (5, 0x20, 0));
        let mut claims = ScsiClaims::ask(script.port(), None).unwrap();
        script.assert_done();
        assert_eq!(claims.capacity_10.unwrap().blocks, 100);
        assert_eq!((claims.serial.as_deref(), claims.rotates()), (Some("SECRET"), Some(true)));
        assert_eq!(claims.unanswered.len(), 2, "{:?}", claims.unanswered);
        assert!(claims.unanswered[0].contains("READ CAPACITY(16)") && claims.unanswered[1].contains("IDENTIFY"));
        claims.make_anonymous();
        assert!(!serde_json::to_string(&claims).unwrap().contains("SECRET"));
    }

    #[test]
    fn after_a_reset_nothing_more_is_asked() {
        let script = start().line(&vital_product_data(0, 4), &[], &[], check_condition(6, 0x29, 0)).ok(&[0; 6]);
        let error = ScsiClaims::ask(script.port(), None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed);
        script.assert_done();
    }
}
