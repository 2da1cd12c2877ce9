//! The witness's own view of the superblock, by offsets. It checks only what keeps the walk inside the volume.

use crate::error::{Mismatch, ParseError};
use crate::source::{Source, read_vec};
use crate::units::{ByteRange, Overflow, add, mul};

/// Numbers of one volume.
pub struct Geometry {
    /// Bytes of a block.
    pub block: u64,
    /// Bytes of a sector.
    pub sector: u64,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Blocks of a group.
    pub group_blocks: u64,
    pub groups: u64,
    /// Bits of a block's number inside its group.
    pub group_bits: u32,
    /// Bits of an inode's number inside its block.
    pub inode_bits: u32,
    pub inode_size: u64,
    pub root_inode: u64,
    /// Bytes of a block of a directory.
    pub directory_block: u64,
    pub is_v5: bool,
    pub has_free_inode_tree: bool,
    pub has_owners: bool,
    pub has_shared_extents: bool,
    pub has_sparse_inodes: bool,
    /// Entries of directories say what they point at.
    pub has_file_types: bool,
    /// The internal log.
    pub log: Option<ByteRange>,
}

/// Big-endian numbers at an offset.
pub fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Overflow> {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk());
    part.map(|part| u16::from_be_bytes(*part)).ok_or(Overflow("a field outside of its structure"))
}

/// See [`u16_at`].
pub fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Overflow> {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk());
    part.map(|part| u32::from_be_bytes(*part)).ok_or(Overflow("a field outside of its structure"))
}

/// See [`u16_at`].
pub fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Overflow> {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk());
    part.map(|part| u64::from_be_bytes(*part)).ok_or(Overflow("a field outside of its structure"))
}

/// One byte at an offset.
pub fn u8_at(bytes: &[u8], at: usize) -> Result<u8, Overflow> {
    bytes.get(at).copied().ok_or(Overflow("a field outside of its structure"))
}

impl Geometry {
    /// Reads the superblock.
    pub fn read(source: &dyn Source) -> Result<Self, ParseError> {
        let raw = read_vec(source, 0, 512)?;
        let version = u16_at(&raw, 0x64)?;
        let is_v5 = version & 0xF == 5;
        let set = |at: usize| if is_v5 { u32_at(&raw, at) } else { Ok(0) };
        let (ro_compat, incompat) = (set(0xD4)?, set(0xD8)?);
        let has_more = version & 0x8000 != 0;
        let mut geometry = Self {
            block: u32_at(&raw, 4)?.into(),
            sector: if is_v5 || version & 0x800 != 0 { u16_at(&raw, 0x66)?.into() } else { 512 },
            blocks: u64_at(&raw, 8)?,
            group_blocks: u32_at(&raw, 0x54)?.into(),
            groups: u32_at(&raw, 0x58)?.into(),
            group_bits: u8_at(&raw, 0x7C)?.into(),
            inode_bits: u8_at(&raw, 0x7B)?.into(),
            inode_size: u16_at(&raw, 0x68)?.into(),
            root_inode: u64_at(&raw, 0x38)?,
            directory_block: u64::from(u32_at(&raw, 4)?).checked_shl(u8_at(&raw, 0xC0)?.into()).unwrap_or(0),
            is_v5,
            has_free_inode_tree: ro_compat & 1 != 0,
            has_owners: ro_compat & 2 != 0,
            has_shared_extents: ro_compat & 4 != 0,
            has_sparse_inodes: incompat & 2 != 0,
            has_file_types: if is_v5 { incompat & 1 != 0 } else { has_more && u32_at(&raw, 0xC8)? & 0x200 != 0 },
            log: None,
        };
        geometry.check(source)?;
        let (log, log_blocks) = (u64_at(&raw, 0x30)?, u32_at(&raw, 0x60)?);
        if log != 0 {
            geometry.log = Some(geometry.volume_blocks(log, log_blocks.into())?);
        }
        Ok(geometry)
    }

    fn check(&self, source: &dyn Source) -> Result<(), ParseError> {
        let inodes = self.inode_size.checked_shl(self.inode_bits).unwrap_or(0);
        let holds = [
            self.block.is_power_of_two() && (512..=65_536).contains(&self.block),
            (512..=32_768).contains(&self.sector),
            self.inode_bits < 16 && inodes == self.block,
            (256..=2048).contains(&self.inode_size),
            self.group_bits <= 32 && self.group_blocks > 0,
            mul(self.blocks, self.block, "the size of the volume")? <= source.len(),
            self.groups <= self.blocks,
        ];
        match holds.iter().position(|holds| !holds) {
            Some(index) => {
                Err(ParseError::corrupt(0, Mismatch::new("superblock, as xfs-walk reads it", "sound", index)))
            }
            None => Ok(()),
        }
    }

    /// `count` blocks from `block` of a group.
    pub fn bytes(&self, group: u64, block: u64, count: u64) -> Result<ByteRange, ParseError> {
        let start = add(mul(group, self.group_blocks, "a group")?, block, "a block")?;
        let end = add(start, count, "the end of an extent")?;
        if block >= self.group_blocks || end > self.blocks {
            return Err(Overflow("an extent outside of the volume").into());
        }
        let range = ByteRange::new(mul(start, self.block, "an extent")?, mul(end, self.block, "an extent")?);
        Ok(range.ok_or(Overflow("an empty extent"))?)
    }

    /// The same for a number that holds both group and block.
    pub fn volume_blocks(&self, number: u64, count: u64) -> Result<ByteRange, ParseError> {
        let (group, block) = split(number, self.group_bits);
        self.bytes(group, block, count)
    }

    /// A group's inode number as one of the volume.
    pub fn inode_number(&self, group: u64, within: u64) -> u64 {
        let bits = self.group_bits.saturating_add(self.inode_bits);
        group.checked_shl(bits).unwrap_or(0) | within
    }

    /// Group and number inside of it.
    pub fn inode_place(&self, number: u64) -> (u64, u64) {
        split(number, self.group_bits.saturating_add(self.inode_bits))
    }
}

/// What lies above and below `bits`.
pub fn split(number: u64, bits: u32) -> (u64, u64) {
    let mask = 1_u64.checked_shl(bits).unwrap_or(0).wrapping_sub(1);
    (number.checked_shr(bits).unwrap_or(0), number & mask)
}
