//! What a group keeps for itself, and the walk over its trees, by the witness's own code.
//!
//! Trees of a group: a head of 16 bytes (56 in version 5), then records in a leaf; in a node keys, and pointers of four
//! bytes behind the room for all keys.

use super::geometry::{Geometry, split, u16_at, u32_at, u64_at};
use super::inodes::Inode;
use crate::error::{Mismatch, ParseError};
use crate::source::{Source, read_vec};
use crate::units::{ByteRange, Overflow, add, from_usize, mul, to_usize};
use std::cell::Cell;

/// Told of a named structure.
pub type Tell<'t> = dyn FnMut(&str, ByteRange) + 't;
/// Told of a record of a leaf.
type Record<'r> = dyn FnMut(&[u8]) -> Result<(), ParseError> + 'r;
/// Told of an owner's number and its extent.
pub type OwnerVisit<'v> = dyn FnMut(u64, ByteRange) -> Result<(), ParseError> + 'v;

/// One kind of tree.
struct Shape {
    name: &'static str,
    magic: &'static [u8; 4],
    record: usize,
    key: usize,
}

const INODES: [Shape; 2] = [
    Shape { name: "the tree of inodes", magic: b"IABT", record: 16, key: 4 },
    Shape { name: "the tree of inodes", magic: b"IAB3", record: 16, key: 4 },
];
const FREE_INODES: Shape = Shape { name: "the tree of free inodes", magic: b"FIB3", record: 16, key: 4 };
/// A node has the lowest and the highest key of each child, of 20 bytes.
const OWNERS: Shape = Shape { name: "the tree of owners", magic: b"RMB3", record: 24, key: 40 };
const SHARED: Shape = Shape { name: "the tree of shared extents", magic: b"R3FC", record: 12, key: 4 };

/// Finds inodes and follows them. A block has one owner, so a sound volume makes it read no more tree blocks than it has
/// blocks; a damaged one, whose trees meet again and again, is given up there.
pub struct Walker<'a> {
    source: &'a dyn Source,
    pub geometry: Geometry,
    tree_blocks_left: Cell<u64>,
}

/// What an owner that is no inode is called (`XFS_RMAP_OWN_*`).
pub fn special_owner(owner: u64) -> Option<&'static str> {
    Some(match 0_u64.wrapping_sub(owner) {
        1 => "an unknown owner",
        2 => "an unknown owner",
        3 => "the headers",
        4 => "the log",
        5 => "the free list or a tree of free extents",
        6 => "a tree of inodes",
        7 => "inodes",
        8 => "the tree of shared extents",
        9 => "staged copies",
        _ => return None,
    })
}

impl<'a> Walker<'a> {
    pub fn new(source: &'a dyn Source, geometry: Geometry) -> Self {
        let tree_blocks_left = Cell::new(geometry.blocks);
        Self { source, geometry, tree_blocks_left }
    }

    /// The bytes of a range.
    pub fn read(&self, range: ByteRange) -> Result<Vec<u8>, ParseError> {
        read_vec(self.source, range.start(), range.len())
    }

    /// One block of a tree, of a group or of a file.
    pub fn tree_block(&self, range: ByteRange) -> Result<Vec<u8>, ParseError> {
        let left = self.tree_blocks_left.get().checked_sub(1);
        self.tree_blocks_left.set(left.ok_or(Overflow("more tree blocks than the volume has blocks"))?);
        self.read(range)
    }

    /// Sector `index` of a group's headers.
    fn header(&self, group: u64, index: u64, magic: &[u8]) -> Result<Vec<u8>, ParseError> {
        let start = self.geometry.bytes(group, 0, 1)?.start();
        let at = add(start, mul(index, self.geometry.sector, "a header")?, "a header")?;
        let bytes = read_vec(self.source, at, self.geometry.sector)?;
        if bytes.starts_with(magic) {
            return Ok(bytes);
        }
        Err(ParseError::corrupt(at, Mismatch::new("a header, as xfs-walk reads it", "its magic", "another")))
    }

    /// Headers, free list, and the blocks of all trees but those of free extents.
    pub fn own_blocks(&self, group: u64, tell: &mut Tell<'_>) -> Result<(), ParseError> {
        let headers = mul(self.geometry.sector, 4, "the headers")?.div_ceil(self.geometry.block);
        tell("the headers", self.geometry.bytes(group, 0, headers)?);
        let space = self.header(group, 1, b"XAGF")?;
        self.free_list(group, &space, tell)?;
        let inodes = self.header(group, 2, b"XAGI")?;
        if self.geometry.has_free_inode_tree {
            let root = (u32_at(&inodes, 0x148)?, u32_at(&inodes, 0x14C)?);
            self.tree(group, &FREE_INODES, root, tell, &mut |_| Ok(()))?;
        }
        if self.geometry.has_owners {
            let root = (u32_at(&space, 0x18)?, u32_at(&space, 0x24)?);
            self.tree(group, &OWNERS, root, tell, &mut |_| Ok(()))?;
        }
        if self.geometry.has_shared_extents {
            self.shared(group, &space, tell)?;
        }
        Ok(())
    }

    fn free_list(&self, group: u64, space: &[u8], tell: &mut Tell<'_>) -> Result<(), ParseError> {
        let (magic, head): (&[u8], usize) = if self.geometry.is_v5 { (b"XAFL", 36) } else { (b"", 0) };
        let list = self.header(group, 3, magic)?;
        let slots = from_usize(list.len().saturating_sub(head)) / 4;
        let (mut slot, count) = (u64::from(u32_at(space, 0x28)?), u64::from(u32_at(space, 0x30)?));
        for _ in 0..count.min(slots) {
            let at = to_usize(slot.saturating_mul(4), "the free list")?.saturating_add(head);
            tell("the free list", self.geometry.bytes(group, u32_at(&list, at)?.into(), 1)?);
            slot = if slot.saturating_add(1) >= slots { 0 } else { slot.saturating_add(1) };
        }
        Ok(())
    }

    /// Extents with several owners, and copies that were staged and not yet used.
    fn shared(&self, group: u64, space: &[u8], tell: &mut Tell<'_>) -> Result<(), ParseError> {
        const STAGED: u32 = 1 << 31;
        let root = (u32_at(space, 0x58)?, u32_at(space, 0x5C)?);
        let mut extents = Vec::new();
        self.tree(group, &SHARED, root, tell, &mut |record| {
            let (start, count) = (u32_at(record, 0)?, u32_at(record, 4)?);
            let what = if start & STAGED == 0 { "a shared extent" } else { "a staged copy" };
            extents.push((what, self.geometry.bytes(group, (start & !STAGED).into(), count.into())?));
            Ok(())
        })?;
        extents.into_iter().for_each(|(what, range)| tell(what, range));
        Ok(())
    }

    /// The records of the tree of owners. Special owners of extents have numbers near the greatest.
    pub fn owners(&self, group: u64, visit: &mut OwnerVisit<'_>) -> Result<(), ParseError> {
        let space = self.header(group, 1, b"XAGF")?;
        let root = (u32_at(&space, 0x18)?, u32_at(&space, 0x24)?);
        self.tree(group, &OWNERS, root, &mut |_, _| {}, &mut |record| {
            let range = self.geometry.bytes(group, u32_at(record, 0)?.into(), u32_at(record, 4)?.into())?;
            visit(u64_at(record, 8)?, range)
        })
    }

    /// Visits every used inode of a group until `visit` says false.
    pub fn inodes(
        &self,
        group: u64,
        visit: &mut dyn FnMut(&Inode) -> Result<bool, ParseError>,
    ) -> Result<(), ParseError> {
        let header = self.header(group, 2, b"XAGI")?;
        let root = (u32_at(&header, 0x14)?, u32_at(&header, 0x18)?);
        let shape = if self.geometry.is_v5 { &INODES[1] } else { &INODES[0] };
        let mut goes_on = true;
        self.tree(group, shape, root, &mut |_, _| {}, &mut |record| {
            if goes_on {
                goes_on = self.chunk(group, record, visit)?;
            }
            Ok(())
        })
    }

    /// 64 inodes, one record: number of the first, which quarters of 16 were never allocated (sparse), which are free.
    fn chunk(
        &self,
        group: u64,
        record: &[u8],
        visit: &mut dyn FnMut(&Inode) -> Result<bool, ParseError>,
    ) -> Result<bool, ParseError> {
        let first = u64::from(u32_at(record, 0)?);
        let holes = if self.geometry.has_sparse_inodes { u16_at(record, 4)? } else { 0 };
        let free = u64_at(record, 8)?;
        for index in 0..64_u32 {
            let is_hole = holes.checked_shr(index >> 2).unwrap_or(0) & 1 == 1;
            let is_free = free.checked_shr(index).unwrap_or(0) & 1 == 1;
            if is_hole || is_free {
                continue;
            }
            let within = add(first, index.into(), "an inode number")?;
            let inode = self.inode(self.geometry.inode_number(group, within))?;
            if !visit(&inode)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One inode by its number.
    pub fn inode(&self, number: u64) -> Result<Inode, ParseError> {
        let (group, within) = self.geometry.inode_place(number);
        let (block, slot) = split(within, self.geometry.inode_bits);
        let range = self.geometry.bytes(group, block, 1)?;
        let at = add(range.start(), mul(slot, self.geometry.inode_size, "an inode")?, "an inode")?;
        let bytes = read_vec(self.source, at, self.geometry.inode_size)?;
        if bytes.starts_with(b"IN") {
            return Ok(Inode { number, at, bytes });
        }
        Err(ParseError::corrupt(
            at,
            Mismatch::new(format!("inode {number}, as xfs-walk reads it"), "IN", "another magic"),
        ))
    }

    /// Walks a tree of a group, told by its root and its levels.
    fn tree(
        &self,
        group: u64,
        shape: &Shape,
        (root, levels): (u32, u32),
        tell: &mut Tell<'_>,
        record: &mut Record<'_>,
    ) -> Result<(), ParseError> {
        let Some(height) = levels.checked_sub(1).filter(|height| *height < 16) else {
            return Err(ParseError::inconsistent(Mismatch::new(shape.name, "1 to 16 levels", levels)));
        };
        let range = self.geometry.bytes(group, root.into(), 1)?;
        tell(shape.name, range);
        let node = self.tree_block(range)?;
        let head: usize = if self.geometry.is_v5 { 56 } else { 16 };
        if !node.starts_with(shape.magic) || u32::from(u16_at(&node, 4)?) != height {
            return Err(ParseError::corrupt(range.start(), Mismatch::new(shape.name, "its magic and level", "others")));
        }
        let body = node.get(head..).ok_or(Overflow("a tree node"))?;
        let count = usize::from(u16_at(&node, 6)?);
        if height == 0 {
            let room = body.chunks_exact(shape.record);
            return room.take(count).try_for_each(record);
        }
        let most = body.len().checked_div(shape.key.saturating_add(4)).unwrap_or(0);
        let pointers = body.get(most.saturating_mul(shape.key)..).unwrap_or_default();
        for pointer in pointers.chunks_exact(4).take(count.min(most)) {
            self.tree(group, shape, (u32_at(pointer, 0)?, height), tell, record)?;
        }
        Ok(())
    }
}
