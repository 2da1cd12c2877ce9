//! Inodes and their blocks, by the witness's own code.
//!
//! Source: Linux `Documentation/filesystems/ext4/inodes.rst`, `ifork.rst` and `attributes.rst`.

use super::geometry::{Geometry, u16_at, u32_at};
use crate::error::ParseError;
use crate::source::{Source, read_vec};
use crate::units::{ByteRange, Overflow, add, from_usize, mul, to_usize};
use std::cell::Cell;

/// Bytes of inode table that are read at once.
const CHUNK: u64 = 256 << 10;
const EXTENTS_FL: u32 = 0x8_0000;
const INLINE_DATA_FL: u32 = 0x1000_0000;

/// Where a group keeps its metadata.
pub struct Places {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
    flags: u16,
}

/// One inode.
pub struct Inode {
    pub number: u32,
    bytes: Vec<u8>,
}

/// What a block of a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Data,
    /// Preallocated: owned, but not yet written.
    Unwritten,
    Index,
    Attributes,
}

/// Told of each part of a file.
pub type Visit<'v> = dyn FnMut(Part, ByteRange) -> Result<(), ParseError> + 'v;

/// Finds inodes and follows them. A block has one owner, so a sound volume makes it read no more index blocks than it
/// has blocks; a damaged one, whose trees meet again and again, is given up there.
pub struct Walker<'a> {
    source: &'a dyn Source,
    pub geometry: Geometry,
    index_blocks_left: Cell<u64>,
}

impl Inode {
    fn field16(&self, at: usize) -> Result<u16, Overflow> {
        u16_at(&self.bytes, at)
    }

    fn field32(&self, at: usize) -> Result<u32, Overflow> {
        u32_at(&self.bytes, at)
    }

    /// The upper four bits of the mode: 4 directory, 8 file, 10 symbolic link; 0 for the list of bad blocks.
    pub fn kind(&self) -> Result<u16, Overflow> {
        Ok(self.field16(0)? >> 12)
    }

    /// Length in bytes.
    pub fn size(&self) -> Result<u64, Overflow> {
        Ok(u64::from(self.field32(4)?) | u64::from(self.field32(0x6C)?) << 32)
    }

    /// Bytes that are allocated, as far as the lower half of the count tells.
    pub fn allocated(&self) -> Result<u64, Overflow> {
        Ok(u64::from(self.field32(0x1C)?).saturating_mul(512))
    }

    fn flags(&self) -> Result<u32, Overflow> {
        self.field32(0x20)
    }

    pub fn has_extents(&self) -> Result<bool, Overflow> {
        Ok(self.flags()? & EXTENTS_FL != 0 && self.has_blocks()?)
    }

    /// False for devices, pipes, sockets, symbolic links that fit into the inode, and content that does.
    fn has_blocks(&self) -> Result<bool, Overflow> {
        if self.flags()? & INLINE_DATA_FL != 0 {
            return Ok(false);
        }
        Ok(match self.kind()? {
            0 | 4 | 8 => true,
            10 => self.flags()? & EXTENTS_FL != 0 || self.size()? >= 60,
            _ => false,
        })
    }
}

impl<'a> Walker<'a> {
    pub fn new(source: &'a dyn Source, geometry: Geometry) -> Self {
        let index_blocks_left = Cell::new(geometry.blocks);
        Self { source, geometry, index_blocks_left }
    }

    /// What the descriptor of a group says.
    pub fn places(&self, group: u64) -> Result<Places, ParseError> {
        let raw = read_vec(self.source, self.geometry.descriptor_at(group)?, self.geometry.descriptor_size)?;
        let is_long = self.geometry.descriptor_size >= 64;
        let place = |at: usize| -> Result<u64, Overflow> {
            let high = if is_long { u32_at(&raw, at.saturating_add(32))? } else { 0 };
            Ok(u64::from(u32_at(&raw, at)?) | u64::from(high) << 32)
        };
        Ok(Places {
            block_bitmap: place(0)?,
            inode_bitmap: place(4)?,
            inode_table: place(8)?,
            flags: u16_at(&raw, 0x12)?,
        })
    }

    /// Visits every used inode of a group until `visit` says false.
    pub fn used_inodes(
        &self,
        group: u64,
        visit: &mut dyn FnMut(&Inode) -> Result<bool, ParseError>,
    ) -> Result<(), ParseError> {
        let places = self.places(group)?;
        if self.geometry.has_uninit && places.flags & 1 != 0 {
            return Ok(());
        }
        let bitmap = self.block(places.inode_bitmap)?;
        let per_chunk = CHUNK.checked_div(self.geometry.inode_size).unwrap_or(1).max(1);
        let mut first = 0;
        while first < self.geometry.inodes_per_group {
            let end = first.saturating_add(per_chunk).min(self.geometry.inodes_per_group);
            let used: Vec<u64> = (first..end).filter(|index| is_set(&bitmap, *index)).collect();
            if let (Some(low), Some(high)) = (used.first(), used.last()) {
                let table = self.table(&places, *low, *high)?;
                for index in &used {
                    let Some(inode) = self.pick(&table, group, *low, *index)? else { continue };
                    if !visit(&inode)? {
                        return Ok(());
                    }
                }
            }
            first = end;
        }
        Ok(())
    }

    /// The inodes `low..=high` of a table.
    fn table(&self, places: &Places, low: u64, high: u64) -> Result<Vec<u8>, ParseError> {
        let size = self.geometry.inode_size;
        let start = mul(places.inode_table, self.geometry.block, "an inode table")?;
        let at = add(start, mul(low, size, "an inode")?, "an inode")?;
        let count = high.saturating_sub(low).saturating_add(1);
        read_vec(self.source, at, mul(count, size, "a part of an inode table")?)
    }

    /// The inode at `index`, unless it is a deleted one: no link, and none of those that have none by design.
    fn pick(&self, table: &[u8], group: u64, low: u64, index: u64) -> Result<Option<Inode>, ParseError> {
        let before = mul(group, self.geometry.inodes_per_group, "an inode number")?;
        let number = add(add(before, index, "an inode number")?, 1, "an inode number")?;
        let number = u32::try_from(number).map_err(|_| Overflow("an inode number"))?;
        let start = to_usize(mul(index.saturating_sub(low), self.geometry.inode_size, "an inode")?, "an inode")?;
        let end = start.saturating_add(to_usize(self.geometry.inode_size, "an inode")?);
        let bytes = table.get(start..end).ok_or(Overflow("an inode"))?.to_vec();
        let inode = Inode { number, bytes };
        let is_linked = inode.field16(0x1A)? > 0;
        let is_special = number < self.geometry.first_inode || number == self.geometry.orphan_file;
        Ok((is_linked || is_special).then_some(inode))
    }

    /// One inode by its number.
    pub fn inode(&self, number: u32) -> Result<Option<Inode>, ParseError> {
        let index = u64::from(number).checked_sub(1).ok_or(Overflow("an inode number"))?;
        let group = index.checked_div(self.geometry.inodes_per_group).unwrap_or(u64::MAX);
        let place = index.checked_rem(self.geometry.inodes_per_group).unwrap_or(0);
        if group >= self.geometry.groups {
            return Err(Overflow("an inode number").into());
        }
        let table = self.table(&self.places(group)?, place, place)?;
        self.pick(&table, group, place, place)
    }

    /// All blocks that an inode owns.
    pub fn parts(&self, inode: &Inode, visit: &mut Visit<'_>) -> Result<(), ParseError> {
        let high = if self.geometry.has_wide_attributes { u64::from(inode.field16(0x76)?) << 32 } else { 0 };
        let attributes = u64::from(inode.field32(0x68)?) | high;
        if attributes != 0 {
            visit(Part::Attributes, self.geometry.bytes(attributes, 1)?)?;
        }
        if !inode.has_blocks()? {
            return Ok(());
        }
        let map = inode.bytes.get(0x28..0x64).ok_or(Overflow("an inode"))?;
        if inode.flags()? & EXTENTS_FL != 0 {
            return self.extents(map, None, visit);
        }
        let (direct, indirect) = map.split_at(48);
        self.pointers(direct, 0, visit)?;
        for (depth, pointer) in (1..).zip(indirect.chunks_exact(4)) {
            self.pointers(pointer, depth, visit)?;
        }
        Ok(())
    }

    /// A node of an extent tree: header of 12 bytes, then entries of 12 bytes.
    fn extents(&self, node: &[u8], parent: Option<u16>, visit: &mut Visit<'_>) -> Result<(), ParseError> {
        let (magic, entries, depth) = (u16_at(node, 0)?, u16_at(node, 2)?, u16_at(node, 6)?);
        let fits = parent.map_or(depth <= 5, |parent| depth.saturating_add(1) == parent);
        if magic != 0xF30A || !fits {
            return Err(ParseError::inconsistent("a node of an extent tree has a wrong magic or depth"));
        }
        let mut rest = node.get(12..).unwrap_or_default().chunks_exact(12);
        for _ in 0..entries {
            let entry = rest.next().ok_or(Overflow("an extent tree node"))?;
            if depth > 0 {
                let block = u64::from(u32_at(entry, 4)?) | u64::from(u16_at(entry, 8)?) << 32;
                self.extents(&self.index_block(block, visit)?, Some(depth), visit)?;
                continue;
            }
            let start = u64::from(u32_at(entry, 8)?) | u64::from(u16_at(entry, 6)?) << 32;
            let length = u16_at(entry, 4)?;
            // 32768 itself is a written extent of that length; more is an unwritten one.
            let (part, length) = match length.checked_sub(0x8000) {
                Some(rest) if rest > 0 => (Part::Unwritten, rest),
                _ => (Part::Data, length),
            };
            visit(part, self.geometry.bytes(start, length.into())?)?;
        }
        Ok(())
    }

    /// Block numbers of four bytes each, `depth` index blocks above the data. Neighbours are told as one.
    fn pointers(&self, list: &[u8], depth: u32, visit: &mut Visit<'_>) -> Result<(), ParseError> {
        let mut run: Option<(u64, u64)> = None;
        for pointer in list.chunks_exact(4) {
            let block = u64::from(u32_at(pointer, 0)?);
            if block == 0 {
                continue;
            }
            if depth > 0 {
                let below = self.index_block(block, visit)?;
                self.pointers(&below, depth.saturating_sub(1), visit)?;
                continue;
            }
            run = match run {
                Some((first, count)) if first.saturating_add(count) == block => Some((first, count.saturating_add(1))),
                done => {
                    self.tell(done, visit)?;
                    Some((block, 1))
                }
            };
        }
        self.tell(run, visit)
    }

    fn tell(&self, run: Option<(u64, u64)>, visit: &mut Visit<'_>) -> Result<(), ParseError> {
        match run {
            Some((first, count)) => visit(Part::Data, self.geometry.bytes(first, count)?),
            None => Ok(()),
        }
    }

    fn index_block(&self, block: u64, visit: &mut Visit<'_>) -> Result<Vec<u8>, ParseError> {
        let left = self.index_blocks_left.get().checked_sub(1);
        self.index_blocks_left.set(left.ok_or(Overflow("more index blocks than the volume has blocks"))?);
        visit(Part::Index, self.geometry.bytes(block, 1)?)?;
        self.block(block)
    }

    /// The bytes of a block.
    fn block(&self, block: u64) -> Result<Vec<u8>, ParseError> {
        self.bytes(self.geometry.bytes(block, 1)?)
    }

    /// The bytes of a range.
    pub fn bytes(&self, range: ByteRange) -> Result<Vec<u8>, ParseError> {
        read_vec(self.source, range.start(), range.len())
    }
}

/// Bit `index` of a bitmap, least significant first.
fn is_set(bitmap: &[u8], index: u64) -> bool {
    let byte = to_usize(index >> 3, "a bitmap byte").ok().and_then(|at| bitmap.get(at));
    let mask = u32::try_from(index & 7).ok().and_then(|shift| 1_u8.checked_shl(shift)).unwrap_or(0);
    debug_assert!(from_usize(bitmap.len()) > index >> 3, "an inode bitmap fills a block");
    byte.is_some_and(|byte| byte & mask != 0)
}
