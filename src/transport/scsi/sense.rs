//! Sense data: why a SCSI device refused a command, in words.
//!
//! ```text
//! fixed (70h current, 71h deferred)            descriptor (72h, 73h)
//!  0     response code, bit 7 VALID             0     response code
//!  2     key (bits 3:0)                         1     key (bits 3:0)
//!  3..7  information (or ATA registers)         2, 3  ASC, ASCQ
//!  7     additional length                      7     additional length
//! 12, 13 ASC, ASCQ                              8..   descriptors: type, length, data
//! ```
//! Source of the layout: SPC-4 section 4.5; ATA status return descriptor: SAT-3 section 12.2.2.

use super::super::error::ErrorKind;

/// Decoded sense data. Any device may use either format for any command.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Sense {
    /// Belongs to an earlier command.
    pub deferred: bool,
    /// Sense key, 0 to 15.
    pub key: u8,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
    /// Usually a block address.
    pub information: Option<u64>,
    /// Registers of the ATA drive behind a translation layer.
    pub ata: Option<AtaRegisters>,
    /// The bytes as received.
    pub raw: Vec<u8>,
}

/// The output registers of an ATA command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct AtaRegisters {
    /// STATUS: bit 7 BSY, 6 DRDY, 5 DF, 3 DRQ, 0 ERR.
    pub status: u8,
    /// ERROR: bit 7 ICRC, 6 UNC, 4 IDNF, 2 ABRT.
    pub error: u8,
}

impl AtaRegisters {
    /// All bits of STATUS that tell of trouble: BSY, DF, DRQ, ERR.
    const TROUBLE: u8 = 0xA9;
    const READY: u8 = 0x40;

    /// True when the registers say that the command succeeded.
    pub fn is_success(self) -> bool {
        self.status & Self::TROUBLE == 0 && self.status & Self::READY != 0
    }

    /// Many bridges return a descriptor of zeros: that is no statement about anything.
    pub fn is_blank(self) -> bool {
        self.status == 0 && self.error == 0
    }

    fn kind(self) -> ErrorKind {
        match (self.status, self.error) {
            (status, _) if status & 0x20 != 0 => ErrorKind::Failing,
            (_, error) if error & 0x10 != 0 => ErrorKind::OutOfRange,
            (_, error) if error & 0x40 != 0 => ErrorKind::Failing,
            _ => ErrorKind::Aborted,
        }
    }

    fn describe(self) -> String {
        let named = [(0x80, "interface CRC"), (0x40, "uncorrectable"), (0x10, "address not found"), (0x04, "aborted")];
        let words: Vec<&str> = named.iter().filter(|(bit, _)| self.error & bit != 0).map(|(_, word)| *word).collect();
        let words = if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) };
        format!("ATA status {:02x}h, error {:02x}h{words}", self.status, self.error)
    }
}

impl Sense {
    /// Decodes what a device returned; none when it is too short or in no known format.
    pub fn parse(raw: &[u8]) -> Option<Self> {
        match raw.first()? & 0x7F {
            code @ (0x70 | 0x71) => Self::fixed(raw, code == 0x71),
            code @ (0x72 | 0x73) => Self::descriptors(raw, code == 0x73),
            _ => None,
        }
    }

    fn fixed(raw: &[u8], deferred: bool) -> Option<Self> {
        let key = raw.get(2)? & 0x0F;
        // Short fixed sense may end before the codes; then they are not given.
        let (asc, ascq) = (raw.get(12).copied().unwrap_or(0), raw.get(13).copied().unwrap_or(0));
        let ata = ((asc, ascq) == (0x00, 0x1D)).then(|| fixed_registers(raw)).flatten();
        let valid = raw.first()? & 0x80 != 0 && ata.is_none();
        let information = raw.get(3..7).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        Some(Self {
            deferred,
            key,
            asc,
            ascq,
            information: information.filter(|_| valid).map(|bytes| u64::from(u32::from_be_bytes(bytes))),
            ata,
            raw: raw.to_vec(),
        })
    }

    fn descriptors(raw: &[u8], deferred: bool) -> Option<Self> {
        let (key, asc, ascq) = (raw.get(1)? & 0x0F, *raw.get(2)?, *raw.get(3)?);
        let mut sense = Self { deferred, key, asc, ascq, information: None, ata: None, raw: raw.to_vec() };
        let length = usize::from(raw.get(7).copied().unwrap_or(0));
        let end = raw.len().min(length.saturating_add(8));
        let mut rest = raw.get(8..end).unwrap_or_default();
        while let [kind, length, ..] = *rest {
            let size = usize::from(length).saturating_add(2);
            let Some(descriptor) = rest.get(..size) else {
                break;
            };
            match kind {
                0x00 => sense.information = information(descriptor),
                0x09 => sense.ata = registers(descriptor),
                _ => {}
            }
            rest = rest.get(size..).unwrap_or_default();
        }
        Some(sense)
    }

    /// Key, code and qualifier together.
    pub fn code(&self) -> (u8, u8, u8) {
        (self.key, self.asc, self.ascq)
    }

    /// True for "no sense" and "recovered error": the command was carried out.
    pub fn is_success(&self) -> bool {
        matches!(self.key, 0x0 | 0x1) && !self.deferred && self.ata.is_none_or(|ata| ata.is_blank() || ata.is_success())
    }

    /// True for the conditions that a device reports once to the next command, whatever it is.
    pub fn is_unit_attention(&self) -> bool {
        self.key == 0x6
    }

    /// What follows from it.
    pub fn kind(&self) -> ErrorKind {
        if self.deferred {
            return ErrorKind::Io;
        }
        match (self.key, self.asc) {
            (0x0 | 0x1, _) => self.ata.map_or(ErrorKind::Io, AtaRegisters::kind),
            (0x2, _) => ErrorKind::NotReady,
            (0x3 | 0x4, _) => ErrorKind::Failing,
            (0x5, 0x20 | 0x24) => ErrorKind::Rejected,
            (0x5, 0x1A | 0x26 | 0x55) => ErrorKind::LimitExceeded,
            (0x5, 0x21) => ErrorKind::OutOfRange,
            (0x5, 0x25) => ErrorKind::Gone,
            (0x6, _) => ErrorKind::Changed,
            (0x7, _) => ErrorKind::WriteProtected,
            (0xB, _) => ErrorKind::Aborted,
            _ => ErrorKind::Io,
        }
    }
}

fn fixed_registers(raw: &[u8]) -> Option<AtaRegisters> {
    Some(AtaRegisters { error: *raw.get(3)?, status: *raw.get(4)? })
}

fn information(descriptor: &[u8]) -> Option<u64> {
    let valid = descriptor.get(2)? & 0x80 != 0;
    let bytes = <[u8; 8]>::try_from(descriptor.get(4..12)?).ok()?;
    valid.then(|| u64::from_be_bytes(bytes))
}

fn registers(descriptor: &[u8]) -> Option<AtaRegisters> {
    Some(AtaRegisters { error: *descriptor.get(3)?, status: *descriptor.get(13)? })
}

impl std::fmt::Display for Sense {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (key, asc, ascq) = self.code();
        write!(f, "sense {key:X}/{asc:02X}/{ascq:02X}: {}", key_words(key))?;
        if let Some(words) = code_words(asc, ascq) {
            write!(f, ", {words}")?;
        }
        if let Some(information) = self.information {
            write!(f, ", at block {information}")?;
        }
        if let Some(ata) = self.ata.filter(|ata| !ata.is_blank()) {
            write!(f, ", {}", ata.describe())?;
        }
        if self.deferred { write!(f, " (about an earlier command)") } else { Ok(()) }
    }
}

fn key_words(key: u8) -> &'static str {
    match key {
        0x0 => "no sense",
        0x1 => "recovered error",
        0x2 => "not ready",
        0x3 => "medium error",
        0x4 => "hardware error",
        0x5 => "illegal request",
        0x6 => "unit attention",
        0x7 => "data protect",
        0x8 => "blank check",
        0xA => "copy aborted",
        0xB => "aborted command",
        0xD => "volume overflow",
        0xE => "miscompare",
        0xF => "completed",
        _ => "vendor specific",
    }
}

/// The codes that a discard, a read or an identification can meet.
fn code_words(asc: u8, ascq: u8) -> Option<&'static str> {
    let words = match (asc, ascq) {
        (0x00, 0x1D) => "ATA pass-through information available",
        (0x04, 0x01) => "becoming ready",
        (0x04, 0x02) => "needs a start command",
        (0x04, 0x04) => "format in progress",
        (0x04, 0x07) => "operation in progress",
        (0x04, 0x1B) => "sanitize in progress",
        (0x04, _) => "not ready",
        (0x08, _) => "communication failure between bridge and drive",
        (0x0C, _) => "write error",
        (0x11, _) => "unrecovered read error",
        (0x1A, _) => "length of the parameter list is wrong",
        (0x20, 0x02) => "no access rights",
        (0x20, _) => "the device does not know this command",
        (0x21, 0x00) => "block address out of range",
        (0x21, _) => "address invalid",
        (0x24, _) => "a field of the command is not accepted",
        (0x25, _) => "logical unit not supported",
        (0x26, _) => "a field of the parameter list is not accepted",
        (0x27, _) => "write protected",
        (0x28, _) => "the medium may have changed",
        (0x29, _) => "power on or reset occurred",
        (0x2A, 0x09) => "capacity has changed",
        (0x2A, _) => "parameters changed",
        (0x2C, _) => "command sequence error",
        (0x2F, _) => "commands cleared by another host",
        (0x31, _) => "medium format corrupted",
        (0x3A, _) => "no medium",
        (0x3E, _) => "the drive behind it does not answer",
        (0x3F, 0x0E) => "list of logical units has changed",
        (0x3F, _) => "operating conditions have changed",
        (0x44, _) => "internal failure",
        (0x47, _) => "data was damaged on the bus",
        (0x4B, _) => "data phase error",
        (0x55, _) => "system resource failure",
        (0x5D, _) => "the drive predicts its failure",
        (0x74, _) => "locked by its security settings",
        _ => return None,
    };
    Some(words)
}
