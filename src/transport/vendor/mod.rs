//! What the NVMe drive behind a USB bridge says about itself, asked by the bridge maker's own commands. Identity only:
//! nothing is known to have discarded anything through such commands, and UNMAP works on all three families.
//!
//! The commands share their first bytes with each other and with other meanings (JMicron's is an ATA reset on a SATA
//! bridge), so each stands behind gates: the bridge is known by its numbers, and its INQUIRY agrees; for JMicron's also
//! nothing may hint at ATA. What comes back is believed only when the drive's size is the one that the bridge shows.

mod encode;

#[cfg(test)]
mod tests;

use super::carrier::Data;
use super::error::{ErrorKind, TransportError};
use super::facts::{DeviceFacts, UsbId};
use super::nvme::{Controller, Namespace};
use super::quirks::SATA_AS_JMS583;
use super::sat;
use super::scsi::device::WORK;
use super::scsi::pages::Inquiry;
use super::scsi::{ScsiDevice, ScsiPort, SgIo};
use encode::{BLOCK, PAGE, Page, Step};
use std::fs::File;

const NAME: &str = "vendor-id";
/// VPD page of ATA information.
const ATA_PAGE: u8 = 0x89;

/// A family of bridges with commands of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Maker {
    /// JMS583.
    JMicron,
    /// ASM2362, ASM2364, ASM2464.
    AsMedia,
    /// RTL9210, RTL9211, RTL9220.
    Realtek,
}

/// idVendor, idProduct. Numbers that SATA bridges of the same maker carry too are not here.
const BRIDGES: &[(u16, u16, Maker)] = &[
    (0x152d, 0x0583, Maker::JMicron),
    (0x152d, 0xa583, Maker::JMicron),
    (0x21c4, 0xb06a, Maker::JMicron),
    (0x30de, 0x1000, Maker::JMicron),
    (0x174c, 0x2362, Maker::AsMedia),
    (0x174c, 0x2364, Maker::AsMedia),
    (0x174c, 0x2463, Maker::AsMedia),
    (0x0b05, 0x1932, Maker::AsMedia),
    (0x0bc2, 0xaa1a, Maker::AsMedia),
    (0x1e91, 0xde79, Maker::AsMedia),
    (0x0bda, 0x9210, Maker::Realtek),
    (0x0bda, 0x9211, Maker::Realtek),
    (0x0bda, 0x9220, Maker::Realtek),
    (0x0dd8, 0x9210, Maker::Realtek),
    (0x1de1, 0xe101, Maker::Realtek),
    (0x2eb9, 0x9211, Maker::Realtek),
];

/// What the drive said.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct VendorIdentity {
    /// Whose commands were used.
    pub maker: Maker,
    /// Identify Controller.
    pub controller: Controller,
    /// Identify Namespace.
    pub namespace: Namespace,
}

/// Asks the drive behind `file`, which must be claimed: the sequences keep state in the bridge.
///
/// # Errors
/// A gate is closed ([`ErrorKind::Unsuitable`]), or what came is not believed.
pub fn identify(file: &File, facts: &DeviceFacts) -> Result<VendorIdentity, TransportError> {
    let port = SgIo::new(file);
    let port = port.map_err(|cause| TransportError::os(NAME, "cannot duplicate the descriptor", cause))?;
    ask(Box::new(port), facts)
}

fn ask(port: Box<dyn ScsiPort>, facts: &DeviceFacts) -> Result<VendorIdentity, TransportError> {
    let maker = known(facts.usb)?;
    let mut device = ScsiDevice::new(NAME, port);
    let inquiry = device.inquiry()?;
    device.wake()?;
    check_inquiry(maker, &inquiry, &mut device)?;
    if maker == Maker::JMicron {
        check_no_ata(&mut device)?;
    }
    let controller = page(maker, &mut device, Page::Controller)?;
    let parsed = Controller::parse(&controller).filter(|_| is_text(controller.get(4..72).unwrap_or_default()));
    let controller = parsed.filter(|controller| !controller.model.is_empty()).ok_or_else(|| {
        let what = "Identify Controller: model and serial number are no text, so this is not what a drive says";
        TransportError::new(ErrorKind::Contradiction, NAME, what)
    })?;
    let namespace = page(maker, &mut device, Page::Namespace)?;
    let namespace = Namespace::parse(&namespace).filter(|namespace| bytes(namespace) == Some(facts.disk_size));
    let namespace = namespace.ok_or_else(|| {
        let size = facts.disk_size;
        let what = format!("Identify Namespace: its size is not the {size} bytes that the bridge shows");
        TransportError::new(ErrorKind::Contradiction, NAME, what)
    })?;
    Ok(VendorIdentity { maker, controller, namespace })
}

fn closed(what: impl Into<String>) -> TransportError {
    TransportError::new(ErrorKind::Unsuitable, NAME, what)
}

/// The maker, where the numbers alone allow to go on.
fn known(usb: Option<UsbId>) -> Result<Maker, TransportError> {
    let usb = usb.ok_or_else(|| closed("it is not behind a USB bridge"))?;
    let row = BRIDGES.iter().find(|(vendor, product, _)| (usb.vendor, usb.product) == (*vendor, *product));
    let Some((_, _, maker)) = row else {
        let what = "the numbers of the bridge are not those of one whose own commands are known and mean nothing else";
        return Err(closed(format!("{what} ({:04x}:{:04x})", usb.vendor, usb.product)));
    };
    if *maker == Maker::JMicron && SATA_AS_JMS583.contains(&usb.release) {
        return Err(closed(format!(
            "SATA adapters carry these numbers with firmware {:04x}, and take the command for a reset",
            usb.release
        )));
    }
    Ok(*maker)
}

/// Numbers can be copied: the bridge must also name itself as one of this maker.
fn check_inquiry(maker: Maker, inquiry: &Inquiry, device: &mut ScsiDevice) -> Result<(), TransportError> {
    let names = format!("{} {}", inquiry.vendor, inquiry.product).to_ascii_lowercase();
    let agrees = match maker {
        Maker::JMicron => names.contains("jmicron") || names.contains("jms58"),
        Maker::Realtek => names.contains("realtek") || names.contains("rtl92"),
        Maker::AsMedia => device.ask("INQUIRY", &encode::ASMEDIA_INQUIRY, 38)?.get(36..) == Some(&encode::ASMEDIA_MARK),
    };
    let what = "INQUIRY does not say that this is a bridge of the maker whose numbers it carries, so its own commands are not used";
    if agrees { Ok(()) } else { Err(closed(format!("{what} ({} {})", inquiry.vendor, inquiry.product))) }
}

/// To a SATA bridge the command is a reset of the drive. One that is none does not know ATA PASS-THROUGH at all.
fn check_no_ata(device: &mut ScsiDevice) -> Result<(), TransportError> {
    let list = device.page(0x00)?.unwrap_or_default();
    if list.get(4..).unwrap_or_default().contains(&ATA_PAGE) {
        return Err(closed("the bridge has a page of ATA information, so it may be a SATA bridge"));
    }
    let mut data = [0; 512];
    let answer = device.run("ATA IDENTIFY DEVICE", &sat::identify_command(), Data::In(&mut data), WORK);
    let is_answer = |error: &TransportError| {
        matches!(
            error.kind(),
            ErrorKind::Rejected | ErrorKind::Aborted | ErrorKind::LimitExceeded | ErrorKind::Incomplete
        )
    };
    let opcode_unknown =
        |error: &TransportError| error.sense().is_some_and(|sense| (sense.key, sense.asc) == (5, 0x20));
    match answer {
        Err(error) if opcode_unknown(&error) => Ok(()),
        Err(error) if !is_answer(&error) => Err(error),
        _ => Err(closed("the bridge does not say that it knows no ATA commands, so it may be a SATA bridge")),
    }
}

/// One page by the maker's own way.
fn page(maker: Maker, device: &mut ScsiDevice, page: Page) -> Result<Vec<u8>, TransportError> {
    let what = format!("Identify ({page:?}) by the maker's own command");
    let mut data = vec![0; PAGE];
    let cdb = match maker {
        Maker::AsMedia => encode::asmedia(page),
        Maker::Realtek => encode::realtek(page),
        Maker::JMicron => {
            device.run(&what, &encode::jmicron(Step::Command), Data::Out(&encode::jmicron_command(page)), WORK)?;
            device.run(&what, &encode::jmicron(Step::Data), Data::In(&mut data), WORK)?;
            let mut result = [0; BLOCK];
            device.run(&what, &encode::jmicron(Step::Result), Data::In(&mut result), WORK)?;
            return match encode::jmicron_status(&result) {
                Some(0) => Ok(data),
                Some(status) => Err(failed(&what, &format!("status {status:04x}h"))),
                None => Err(failed(&what, "what came is no result")),
            };
        }
    };
    device.run(&what, &cdb, Data::In(&mut data), WORK)?;
    Ok(data)
}

fn failed(what: &str, why: &str) -> TransportError {
    TransportError::new(ErrorKind::Contradiction, NAME, format!("{what}: {why}"))
}

/// Printable ASCII, padded with spaces or zeros.
fn is_text(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| matches!(byte, 0 | 0x20..=0x7E))
}

fn bytes(namespace: &Namespace) -> Option<u64> {
    let block = 1_u64.checked_shl(u32::from(namespace.block_log2))?;
    namespace.blocks.checked_mul(block)
}
