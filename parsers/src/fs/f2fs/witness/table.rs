//! The node address table, by offsets: 455 entries of 9 bytes in a block (version, inode, address). Its blocks have two
//! copies, a segment apart; a bitmap in the checkpoint says which counts; a journal of up to 38 entries overrides.

use crate::error::{Mismatch, ParseError};
use crate::source::{Source, read_vec};
use crate::units::{ByteRange, Overflow, add, from_usize, mul, to_usize};
use std::collections::BTreeMap;

const BLOCK: u64 = 4096;
const SEGMENT: u64 = 512;
const ENTRIES: u64 = 455;
const ENTRY: usize = 9;
/// Blocks of the table that are looked at in one request.
const CHUNK: u64 = 256;

/// Little-endian numbers at an offset.
pub fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Overflow> {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk());
    part.map(|part| u16::from_le_bytes(*part)).ok_or(Overflow("a field outside of its structure"))
}

/// See [`u16_at`].
pub fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Overflow> {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk());
    part.map(|part| u32::from_le_bytes(*part)).ok_or(Overflow("a field outside of its structure"))
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Overflow> {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk());
    part.map(|part| u64::from_le_bytes(*part)).ok_or(Overflow("a field outside of its structure"))
}

/// Where every node of a volume lies.
pub struct Table {
    blocks: u64,
    main: u64,
    pub root: u32,
    /// The size of attributes inside an inode is a field of the inode.
    pub has_flexible_attributes: bool,
    addresses: BTreeMap<u32, u32>,
}

impl Table {
    /// Reads the whole table.
    pub fn read(source: &dyn Source) -> Result<Self, ParseError> {
        let raw = read_vec(source, 1024, 3072)?;
        let address = |at: usize| u32_at(&raw, at).map(u64::from);
        let (checkpoints, nat, main) = (address(76)?, address(84)?, address(92)?);
        let (segments, payload, feature) = (address(60)?, address(1664)?, u32_at(&raw, 2180)?);
        let blocks = u64_at(&raw, 36)?;
        if mul(blocks, BLOCK, "the size of the volume")? > source.len() || main > blocks {
            return Err(ParseError::corrupt(
                1024,
                Mismatch::new("blocks, as f2fs-walk reads them", "a volume", blocks),
            ));
        }
        let pack = Pack::newer(source, checkpoints)?;
        let mut table = Self {
            blocks,
            main,
            root: u32_at(&raw, 96)?,
            has_flexible_attributes: feature & 0x40 != 0,
            addresses: BTreeMap::new(),
        };
        table.copies(source, nat, segments >> 1, &pack.nat_bitmap(source, payload)?)?;
        table.journal(source, &pack)?;
        // The three inodes of the filesystem's own tables: the node and the meta inode have no place.
        for field in [100, 104] {
            table.addresses.remove(&u32_at(&raw, field)?);
        }
        Ok(table)
    }

    /// The tables themselves: everything before the main area.
    pub fn own_areas(&self) -> Result<Vec<(&'static str, ByteRange)>, ParseError> {
        let end = mul(self.main, BLOCK, "the main area")?;
        Ok(ByteRange::new(0, end).map(|range| ("superblock, checkpoints and tables", range)).into_iter().collect())
    }

    /// Number and block of every node, in the order of blocks.
    pub fn nodes(&self) -> Vec<(u32, u32)> {
        let mut nodes: Vec<(u32, u32)> = self.addresses.iter().map(|(number, block)| (*number, *block)).collect();
        nodes.sort_unstable_by_key(|(_, block)| *block);
        nodes
    }

    /// The block of a node.
    pub fn block_of(&self, number: u32) -> Option<u32> {
        self.addresses.get(&number).copied()
    }

    /// `count` blocks of the main area from `block`.
    pub fn bytes(&self, block: u32, count: u64) -> Result<ByteRange, ParseError> {
        let start = u64::from(block);
        let end = add(start, count, "the end of an extent")?;
        if start < self.main || end > self.blocks {
            return Err(Overflow("a block address outside of the main area").into());
        }
        let range = ByteRange::new(mul(start, BLOCK, "a block")?, mul(end, BLOCK, "a block")?);
        Ok(range.ok_or(Overflow("an empty extent"))?)
    }

    /// Each segment of the table is followed by its second copy.
    fn copies(&mut self, source: &dyn Source, nat: u64, segments: u64, bitmap: &[u8]) -> Result<(), ParseError> {
        for segment in 0..segments {
            let base = add(nat, mul(segment, SEGMENT.saturating_mul(2), "the node table")?, "the node table")?;
            for chunk in (0..SEGMENT).step_by(usize::try_from(CHUNK).unwrap_or(1)) {
                let first = add(base, chunk, "the node table")?;
                let halves = [first, add(first, SEGMENT, "the node table")?];
                let index = add(mul(segment, SEGMENT, "the node table")?, chunk, "the node table")?;
                let wanted = |which: bool| (0..CHUNK).any(|k| is_set(bitmap, index.saturating_add(k)) == which);
                for (half, which) in halves.into_iter().zip([false, true]).filter(|(_, which)| wanted(*which)) {
                    let bytes = read_vec(source, mul(half, BLOCK, "the node table")?, CHUNK.saturating_mul(BLOCK))?;
                    for (k, block) in (index..).zip(bytes.chunks_exact(to_usize(BLOCK, "a block")?)) {
                        if is_set(bitmap, k) == which {
                            self.entries(k, block)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn entries(&mut self, index: u64, block: &[u8]) -> Result<(), ParseError> {
        let first = mul(index, ENTRIES, "a node number")?;
        for (number, entry) in (first..).zip(block.chunks_exact(ENTRY).take(to_usize(ENTRIES, "entries")?)) {
            let number = u32::try_from(number).map_err(|_| Overflow("a node number"))?;
            self.set(number, u32_at(entry, 5)?);
        }
        Ok(())
    }

    /// No place, or a place that is not on disk yet, is none.
    fn set(&mut self, number: u32, address: u32) {
        if address == 0 || address == u32::MAX {
            self.addresses.remove(&number);
        } else {
            self.addresses.insert(number, address);
        }
    }

    fn journal(&mut self, source: &dyn Source, pack: &Pack) -> Result<(), ParseError> {
        let (block, offset) = pack.nat_journal()?;
        let bytes = read_vec(source, mul(block, BLOCK, "a summary")?, BLOCK)?;
        let rest = bytes.get(offset..).ok_or(Overflow("a journal"))?;
        let count = u16_at(rest, 0)?;
        if count > 38 {
            return Err(ParseError::inconsistent(Mismatch::new(
                "entries in the journal of the node table",
                "at most 38",
                count,
            )));
        }
        for entry in rest.get(2..).unwrap_or_default().chunks_exact(13).take(count.into()) {
            self.set(u32_at(entry, 0)?, u32_at(entry, 9)?);
        }
        Ok(())
    }
}

fn is_set(bitmap: &[u8], index: u64) -> bool {
    let byte = to_usize(index >> 3, "a bitmap").ok().and_then(|at| bitmap.get(at)).copied().unwrap_or(0);
    let shift = u32::try_from(index & 7).unwrap_or(0);
    byte.checked_shl(shift).unwrap_or(0) & 0x80 != 0
}

/// The newer of the two checkpoints, as this witness reads it.
struct Pack {
    start: u64,
    head: Vec<u8>,
}

impl Pack {
    fn newer(source: &dyn Source, first: u64) -> Result<Self, ParseError> {
        let read = |start: u64| -> Result<Self, ParseError> {
            Ok(Self { start, head: read_vec(source, mul(start, BLOCK, "a checkpoint")?, BLOCK)? })
        };
        let (a, b) = (read(first)?, read(add(first, SEGMENT, "a checkpoint")?)?);
        Ok(if u64_at(&b.head, 0)? > u64_at(&a.head, 0)? { b } else { a })
    }

    fn flags(&self) -> Result<u32, Overflow> {
        u32_at(&self.head, 132)
    }

    /// Behind the head; behind the segment table's bitmap, unless that lies in a payload.
    fn nat_bitmap(&self, source: &dyn Source, payload: u64) -> Result<Vec<u8>, ParseError> {
        const LARGE: u32 = 0x400;
        let (sit, nat) = (u32_at(&self.head, 156)?, u32_at(&self.head, 160)?);
        let before = match (self.flags()? & LARGE != 0, payload) {
            (true, _) => 4,
            (false, 0) => sit,
            (false, _) => 0,
        };
        let at = add(mul(self.start, BLOCK, "a checkpoint")?, add(192, before.into(), "a bitmap")?, "a bitmap")?;
        read_vec(source, at, u64::from(nat).min(BLOCK))
    }

    /// Block and byte of the journal: the start of compact summaries, or the end of the first full one.
    fn nat_journal(&self) -> Result<(u64, usize), ParseError> {
        let start = add(self.start, u32_at(&self.head, 140)?.into(), "the summaries")?;
        Ok((start, if self.flags()? & 4 != 0 { 0 } else { 3584 }))
    }
}

/// Bytes of a range, for nodes.
pub fn read(source: &dyn Source, range: ByteRange) -> Result<Vec<u8>, ParseError> {
    let bytes = read_vec(source, range.start(), range.len())?;
    debug_assert_eq!(from_usize(bytes.len()), range.len(), "a read is exact");
    Ok(bytes)
}
