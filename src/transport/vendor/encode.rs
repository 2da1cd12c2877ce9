//! The makers' own commands as bytes. Pure functions, and nothing but Identify: there is no function here that can make a
//! command with another meaning. Layouts: smartmontools and opensea-transport, which follow the makers' specifications.

use super::super::scsi::encode::Cdb;

/// Bytes of an Identify page.
pub const PAGE: usize = 4096;
/// Bytes of a JMicron command or result block.
pub const BLOCK: usize = 512;
/// NVMe Identify, an admin command.
const IDENTIFY: u8 = 0x06;
/// How both JMicron blocks begin.
const SIGNATURE: &[u8; 4] = b"NVME";

/// What Identify is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// The namespace (CNS 00h) of number 1.
    Namespace,
    /// The controller (CNS 01h).
    Controller,
}

impl Page {
    /// The field of the NVMe command that chooses the page.
    fn selector(self) -> u8 {
        match self {
            Self::Namespace => 0x00,
            Self::Controller => 0x01,
        }
    }

    fn namespace(self) -> u8 {
        match self {
            Self::Namespace => 1,
            Self::Controller => 0,
        }
    }
}

/// A step of JMicron's sequence. Bit 7 of byte 1 says that an admin command is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Takes a block with the NVMe command.
    Command,
    /// Runs it and gives its data.
    Data,
    /// Gives a block with the outcome.
    Result,
}

/// JMicron `A1h`: `[1]` 80h and the step (0 command, 2 data in, Fh result), `[3..6]` length, big-endian. On a SATA bridge the
/// same bytes are an ATA reset.
pub fn jmicron(step: Step) -> Cdb<12> {
    let (step, [high, low]) = match step {
        Step::Command => (0x80, BLOCK_LENGTH),
        Step::Data => (0x82, PAGE_LENGTH),
        Step::Result => (0x8F, BLOCK_LENGTH),
    };
    [0xA1, step, 0, 0, high, low, 0, 0, 0, 0, 0, 0]
}

const BLOCK_LENGTH: [u8; 2] = 512_u16.to_be_bytes();
const PAGE_LENGTH: [u8; 2] = 4096_u16.to_be_bytes();

/// JMicron's command block: `[0..4]` "NVME", `[8]` opcode, `[12..16]` namespace and `[48..52]` CDW10, little-endian. Byte 72
/// stays 0: other values switch the drive's power off or reset the bridge.
pub fn jmicron_command(page: Page) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..4].copy_from_slice(SIGNATURE);
    (block[8], block[12], block[48]) = (IDENTIFY, page.namespace(), page.selector());
    block
}

/// JMicron's result block: `[0..4]` "NVME", `[22..24]` status. Implementations differ in what its lowest bit is, so
/// only 0 is success. None when it is no result block.
pub fn jmicron_status(block: &[u8; BLOCK]) -> Option<u16> {
    block.starts_with(SIGNATURE).then_some(u16::from_le_bytes([block[22], block[23]]))
}

/// ASMedia `E6h`: `[1]` opcode, `[3]` CDW10 bits 7:0. There is no way to name a namespace.
pub fn asmedia(page: Page) -> Cdb<16> {
    [0xE6, IDENTIFY, 0, page.selector(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// INQUIRY with the length at which an ASMedia bridge in front of an NVMe drive adds [`ASMEDIA_MARK`].
pub const ASMEDIA_INQUIRY: Cdb<6> = [0x12, 0, 0, 0, 38, 0];
/// Bytes 36 and 37 of that.
pub const ASMEDIA_MARK: [u8; 2] = [0x60, 0x23];

/// Realtek `E4h` (data in): `[1..3]` length, little-endian, `[3]` opcode, `[4]` CDW10 bits 7:0.
pub fn realtek(page: Page) -> Cdb<16> {
    let [high, low] = PAGE_LENGTH;
    [0xE4, low, high, IDENTIFY, page.selector(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}
