//! The witness's own view of the superblock: only what leads to inodes.
//!
//! Source: Linux `Documentation/filesystems/ext4/super.rst` and `blockgroup.rst`.

use crate::error::{Mismatch, ParseError};
use crate::source::{Source, read_vec};
use crate::units::{ByteRange, Overflow, add, mul};

/// A little-endian number in `bytes`; a structure that is too short is an error.
pub fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Overflow> {
    let part = bytes.get(at..at.saturating_add(2)).and_then(|part| part.try_into().ok());
    part.map(u16::from_le_bytes).ok_or(Overflow("a field behind the end of its structure"))
}

/// See [`u16_at`].
pub fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Overflow> {
    let part = bytes.get(at..at.saturating_add(4)).and_then(|part| part.try_into().ok());
    part.map(u32::from_le_bytes).ok_or(Overflow("a field behind the end of its structure"))
}

/// Sizes and counts of a volume.
pub struct Geometry {
    pub block: u64,
    pub blocks: u64,
    pub first_data: u64,
    pub blocks_per_group: u64,
    pub groups: u64,
    pub inodes_per_group: u64,
    pub inode_size: u64,
    pub table_blocks: u64,
    pub descriptor_size: u64,
    /// First meta block group, with the feature.
    first_meta_bg: Option<u64>,
    copies: Copies,
    /// Descriptors have checksums, so "inode table never written" means something.
    pub has_uninit: bool,
    pub first_inode: u32,
    pub orphan_file: u32,
    /// The upper half of the attribute block's number exists (not on the Hurd).
    pub has_wide_attributes: bool,
}

/// Which groups hold a superblock copy.
enum Copies {
    All,
    Sparse,
    Two([u64; 2]),
}

impl Geometry {
    pub fn read(source: &dyn Source) -> Result<Self, ParseError> {
        let raw = read_vec(source, 1024, 1024)?;
        let number = |at: usize| u32_at(&raw, at);
        let is_old = number(0x4C)? == 0;
        let feature = |at: usize, bit: u32| -> Result<bool, Overflow> { Ok(!is_old && number(at)? & bit != 0) };
        let is_wide = feature(0x60, 0x80)?;
        let log = Some(number(0x18)?).filter(|log| *log <= 6).ok_or(Overflow("the block size"))?;
        let block = 1024_u64.checked_shl(log).ok_or(Overflow("the block size"))?;
        let high = if is_wide { u64::from(number(0x150)?) << 32 } else { 0 };
        let copies = match (feature(0x5C, 0x200)?, feature(0x64, 1)?) {
            (true, _) => Copies::Two([number(0x24C)?.into(), number(0x250)?.into()]),
            (false, true) => Copies::Sparse,
            (false, false) => Copies::All,
        };
        let mut geometry = Self {
            block,
            blocks: high | u64::from(number(4)?),
            first_data: number(0x14)?.into(),
            blocks_per_group: number(0x20)?.into(),
            groups: 0,
            inodes_per_group: number(0x28)?.into(),
            inode_size: if is_old { 128 } else { u16_at(&raw, 0x58)?.into() },
            table_blocks: 0,
            descriptor_size: if is_wide { u16_at(&raw, 0xFE)?.into() } else { 32 },
            first_meta_bg: if feature(0x60, 0x10)? { Some(number(0x104)?.into()) } else { None },
            copies,
            has_uninit: feature(0x64, 0x410)?,
            first_inode: if is_old { 11 } else { number(0x54)? },
            orphan_file: if feature(0x5C, 0x1000)? { number(0x280)? } else { 0 },
            has_wide_attributes: number(0x48)? != 1,
        };
        geometry.derive()?;
        Ok(geometry)
    }

    fn derive(&mut self) -> Result<(), ParseError> {
        let sound = self.blocks_per_group > 0
            && (1..=self.block.saturating_mul(8)).contains(&self.inodes_per_group)
            && (128..=self.block).contains(&self.inode_size)
            && (32..=self.block).contains(&self.descriptor_size);
        if !sound {
            return Err(ParseError::corrupt(1024, "sizes in the superblock that do not fit together"));
        }
        let data = self.blocks.saturating_sub(self.first_data);
        self.groups = data.div_ceil(self.blocks_per_group);
        let table = mul(self.inodes_per_group, self.inode_size, "the size of an inode table")?;
        self.table_blocks = table.div_ceil(self.block);
        Ok(())
    }

    /// Blocks as bytes; blocks outside the volume are an error.
    pub fn bytes(&self, first: u64, count: u64) -> Result<ByteRange, ParseError> {
        let end = add(first, count, "the end of an extent")?;
        let start = mul(first, self.block, "the start of an extent")?;
        let range = ByteRange::with_len(start, mul(count, self.block, "the length of an extent")?);
        range.filter(|_| end <= self.blocks).ok_or_else(|| {
            ParseError::corrupt(start, Mismatch::new("an extent", format!("blocks up to {}", self.blocks), end))
        })
    }

    fn has_copy(&self, group: u64) -> bool {
        match &self.copies {
            _ if group == 0 => true,
            Copies::All => true,
            Copies::Two(two) => two.contains(&group),
            Copies::Sparse => group == 1 || [3, 5, 7].iter().any(|base| power_of(group, *base)),
        }
    }

    /// Byte position of a group's descriptor.
    pub fn descriptor_at(&self, group: u64) -> Result<u64, ParseError> {
        let per_block = self.block.checked_div(self.descriptor_size).unwrap_or(1).max(1);
        let index = group.checked_div(per_block).unwrap_or(0);
        let inside = mul(group.checked_rem(per_block).unwrap_or(0), self.descriptor_size, "a descriptor")?;
        let small = u64::from(self.block == 1024);
        let block = match self.first_meta_bg {
            Some(first) if index >= first => {
                let head = mul(index, per_block, "a meta group")?;
                let start = mul(head, self.blocks_per_group, "a meta group")?;
                let start = add(start, self.first_data, "a meta group")?.max(small);
                add(start, u64::from(self.has_copy(head)), "a descriptor block")?
            }
            _ => add(index, small.saturating_add(1), "a descriptor block")?,
        };
        Ok(add(mul(block, self.block, "a descriptor block")?, inside, "a descriptor")?)
    }
}

/// True for base, base squared and so on.
fn power_of(mut number: u64, base: u64) -> bool {
    while number > 1 && number.checked_rem(base) == Some(0) {
        number = number.checked_div(base).unwrap_or(0);
    }
    number == 1
}
