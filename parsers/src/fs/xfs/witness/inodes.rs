//! One inode: a head of 100 bytes (176 in version 5), then the two forks, data and attributes, which share the rest.

use super::geometry::{u8_at, u16_at, u32_at, u64_at};
use crate::units::Overflow;

/// One inode.
pub struct Inode {
    pub number: u64,
    /// Byte position on the volume.
    pub at: u64,
    pub bytes: Vec<u8>,
}

/// How a fork keeps its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// In the inode, or there is none.
    Inside,
    /// Extents in the inode.
    Extents,
    /// Extents in a tree whose root is in the inode.
    Tree,
}

/// One fork of an inode.
pub struct Fork<'a> {
    pub kept: Kept,
    pub bytes: &'a [u8],
    pub extents: u64,
}

impl Inode {
    fn head(&self) -> Result<usize, Overflow> {
        Ok(if u8_at(&self.bytes, 4)? >= 3 { 176 } else { 100 })
    }

    /// The upper four bits of the mode: 4 directory, 8 file, 10 symbolic link.
    pub fn kind(&self) -> Result<u16, Overflow> {
        Ok(u16_at(&self.bytes, 2)? >> 12)
    }

    /// True when the data lies on the realtime device.
    pub fn is_realtime(&self) -> Result<bool, Overflow> {
        Ok(u16_at(&self.bytes, 0x5A)? & 1 != 0)
    }

    /// Data, then attributes.
    pub fn forks(&self) -> Result<[Fork<'_>; 2], Overflow> {
        const LARGE_COUNTS: u64 = 1 << 4;
        let head = self.head()?;
        let rest = self.bytes.get(head..).ok_or(Overflow("an inode"))?;
        let data_len = match usize::from(u8_at(&self.bytes, 0x52)?).saturating_mul(8) {
            0 => rest.len(),
            offset => offset,
        };
        let (data, attributes) = rest.split_at_checked(data_len).ok_or(Overflow("the forks of an inode"))?;
        let is_large = head == 176 && u64_at(&self.bytes, 120)? & LARGE_COUNTS != 0;
        let (count, attribute_count) = if is_large {
            (u64_at(&self.bytes, 24)?, u32_at(&self.bytes, 0x4C)?.into())
        } else {
            (u32_at(&self.bytes, 0x4C)?.into(), u16_at(&self.bytes, 0x50)?.into())
        };
        let attribute_kept = if attributes.is_empty() { Kept::Inside } else { kept(u8_at(&self.bytes, 0x53)?)? };
        Ok([
            Fork { kept: kept(u8_at(&self.bytes, 5)?)?, bytes: data, extents: count },
            Fork { kept: attribute_kept, bytes: attributes, extents: attribute_count },
        ])
    }
}

fn kept(format: u8) -> Result<Kept, Overflow> {
    match format {
        0 | 1 => Ok(Kept::Inside),
        2 => Ok(Kept::Extents),
        3 => Ok(Kept::Tree),
        _ => Err(Overflow("the format of a fork")),
    }
}
