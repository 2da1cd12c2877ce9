//! ATA commands inside SCSI ones (SAT-3 section 12.2, ACS-3 section 7.5).
//!
//! ```text
//! ATA PASS-THROUGH            (16) 85h   (12) A1h
//! protocol << 1 | EXTEND         1          1 (no EXTEND)
//! CK_COND 20h, from device 08h,
//!   in blocks 04h, T_LENGTH      2          2
//! FEATURES  high/low            3/4         3
//! COUNT     high/low            5/6         4
//! LBA 31:24 / 7:0               7/8         5 (7:0)
//! LBA 39:32 / 15:8              9/10        6 (15:8)
//! LBA 47:40 / 23:16            11/12        7 (23:16)
//! DEVICE                        13          8
//! COMMAND                       14          9
//! ```
//! Only protocols that move data are ever encoded: PIO in (4), DMA (6), UDMA out (11). Others reset the drive.

use crate::plan::units::LbaRange;

/// Which of the two SCSI commands carries the ATA command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// `85h`: all registers of 48-bit commands.
    Sixteen,
    /// `A1h`: registers of 28-bit commands.
    Twelve,
}

/// Where the bridge finds the length of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// In the COUNT register.
    Count,
    /// In the transport's own header.
    Transport,
}

/// How data travels between bridge and drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// PIO data-in.
    PioIn,
    /// DMA, either direction.
    Dma,
    /// Ultra DMA to the drive: some bridges want it by name.
    UdmaOut,
}

/// Size of a payload block in bytes, also on drives with larger sectors.
pub const PAYLOAD_BLOCK: usize = 512;
/// Ranges in a payload block.
pub const RANGES_PER_BLOCK: usize = 64;
/// Most sectors in a range.
pub const MOST_SECTORS: u64 = 0xFFFF;

const IDENTIFY_DEVICE: u8 = 0xEC;
const DATA_SET_MANAGEMENT: u8 = 0x06;
const READ_DMA_EXT: u8 = 0x25;
const READ_DMA: u8 = 0xC8;
const TRIM: u8 = 0x01;
const LBA_MODE: u8 = 0x40;

struct Registers {
    protocol: Protocol,
    extended: bool,
    from_device: bool,
    features: u8,
    count: u16,
    lba: u64,
    device: u8,
    command: u8,
}

impl Registers {
    fn first_bytes(&self, width: Width, length: Length) -> [u8; 2] {
        let protocol = match self.protocol {
            Protocol::PioIn => 4_u8,
            Protocol::Dma => 6,
            Protocol::UdmaOut => 11,
        };
        let extended = u8::from(self.extended && width == Width::Sixteen);
        let length = match length {
            Length::Count => 2,
            Length::Transport => 3,
        };
        let direction = if self.from_device { 0x08 } else { 0 };
        [protocol << 1 | extended, direction | 0x04 | length]
    }

    fn encode(&self, width: Width, length: Length) -> Vec<u8> {
        let [protocol, flags] = self.first_bytes(width, length);
        let [_, _, l5, l4, l3, l2, l1, l0] = self.lba.to_be_bytes();
        let [c1, c0] = self.count.to_be_bytes();
        match width {
            Width::Sixteen => vec![
                0x85,
                protocol,
                flags,
                0,
                self.features,
                c1,
                c0,
                l3,
                l0,
                l4,
                l1,
                l5,
                l2,
                self.device,
                self.command,
                0,
            ],
            Width::Twelve => {
                vec![0xA1, protocol, flags, self.features, c0, l0, l1, l2, self.device, self.command, 0, 0]
            }
        }
    }
}

/// IDENTIFY DEVICE: 512 bytes from the drive.
pub fn identify(width: Width, length: Length) -> Vec<u8> {
    let registers = Registers {
        protocol: Protocol::PioIn,
        extended: false,
        from_device: true,
        features: 0,
        count: 1,
        lba: 0,
        device: 0,
        command: IDENTIFY_DEVICE,
    };
    registers.encode(width, length)
}

/// DATA SET MANAGEMENT with TRIM, `blocks` payload blocks of 512 bytes to the drive.
pub fn trim(width: Width, length: Length, protocol: Protocol, blocks: u8) -> Vec<u8> {
    let registers = Registers {
        protocol,
        extended: true,
        from_device: false,
        features: TRIM,
        count: u16::from(blocks),
        lba: 0,
        device: LBA_MODE,
        command: DATA_SET_MANAGEMENT,
    };
    registers.encode(width, length)
}

/// READ DMA EXT, or READ DMA where only 28-bit registers can travel; none when a number does not fit.
pub fn read(width: Width, length: Length, sectors: LbaRange) -> Option<Vec<u8>> {
    let registers = |count, device, command| Registers {
        protocol: Protocol::Dma,
        extended: true,
        from_device: true,
        features: 0,
        count,
        lba: sectors.start(),
        device,
        command,
    };
    let registers = match width {
        Width::Sixteen if sectors.end() < 1 << 48 => {
            registers(u16::try_from(sectors.count()).ok()?, LBA_MODE, READ_DMA_EXT)
        }
        Width::Twelve if sectors.end() < 1 << 28 => {
            let count = u16::from(u8::try_from(sectors.count()).ok()?);
            let [top, ..] = u32::try_from(sectors.start()).ok()?.to_be_bytes();
            registers(count, LBA_MODE | top, READ_DMA)
        }
        _ => return None,
    };
    Some(registers.encode(width, length))
}

/// The payload of TRIM: little-endian entries of 8 bytes, bits 47:0 first sector, bits 63:48 number of sectors; the
/// rest of the last block stays zero, which means no range. None when a number does not fit.
pub fn payload(ranges: &[LbaRange]) -> Option<Vec<u8>> {
    let blocks = ranges.len().div_ceil(RANGES_PER_BLOCK);
    let mut bytes = Vec::with_capacity(blocks.checked_mul(PAYLOAD_BLOCK)?);
    for range in ranges {
        let count = u64::from(u16::try_from(range.count()).ok()?);
        if range.end() > 1 << 48 {
            return None;
        }
        bytes.extend((range.start() | count << 48).to_le_bytes());
    }
    bytes.resize(blocks.checked_mul(PAYLOAD_BLOCK)?, 0);
    Some(bytes)
}
