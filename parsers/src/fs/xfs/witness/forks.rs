//! From a fork to its extents.
//!
//! An extent fills 16 bytes: a bit for "unwritten", 54 bits place in the file, 52 bits block, 21 bits length. A tree's
//! root in the inode has a head of 4 bytes, its blocks one of 24 (72 in version 5); keys and pointers are 8 bytes each.

use super::geometry::{u16_at, u64_at};
use super::groups::Walker;
use super::inodes::{Fork, Inode, Kept};
use crate::error::{Mismatch, ParseError};
use crate::units::{ByteRange, Overflow, from_usize, to_usize};

/// What a block of a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Data from this block of the file.
    Data(u64),
    Tree,
    Attributes,
}

/// Told of each part of a file.
pub type Visit<'v> = dyn FnMut(Part, ByteRange) -> Result<(), ParseError> + 'v;

/// All blocks that an inode owns on the data device.
pub fn parts(walker: &Walker<'_>, inode: &Inode, visit: &mut Visit<'_>) -> Result<(), ParseError> {
    let [data, attributes] = inode.forks().map_err(|error| ParseError::corrupt(inode.at, error))?;
    let is_realtime = inode.is_realtime()?;
    fork(walker, &data, &mut |part, place| match (part, is_realtime) {
        (Part::Data(_), true) => Ok(()),
        _ => visit(part, extent(walker, place)?),
    })
    .and_then(|()| {
        fork(walker, &attributes, &mut |part, place| {
            visit(if part == Part::Tree { part } else { Part::Attributes }, extent(walker, place)?)
        })
    })
    .map_err(|error| error.located(inode.at))
}

/// First block of an extent, with its group, and how many.
type Place = (u64, u64);
type PlaceVisit<'v> = dyn FnMut(Part, Place) -> Result<(), ParseError> + 'v;

fn extent(walker: &Walker<'_>, (first, count): Place) -> Result<ByteRange, ParseError> {
    walker.geometry.volume_blocks(first, count)
}

fn fork(walker: &Walker<'_>, fork: &Fork<'_>, visit: &mut PlaceVisit<'_>) -> Result<(), ParseError> {
    match fork.kept {
        Kept::Inside => Ok(()),
        Kept::Extents => {
            let count = to_usize(fork.extents, "the extents of an inode")?;
            if count > fork.bytes.len() >> 4 {
                return Err(ParseError::inconsistent(Mismatch::new(
                    "extents of an inode",
                    fork.bytes.len() >> 4,
                    count,
                )));
            }
            records(fork.bytes, count, visit)
        }
        Kept::Tree => {
            let (height, count) = (u16_at(fork.bytes, 0)?, usize::from(u16_at(fork.bytes, 2)?));
            let body = fork.bytes.get(4..).ok_or(Overflow("the root of a tree"))?;
            node(walker, body, height, count, visit)
        }
    }
}

fn records(bytes: &[u8], count: usize, visit: &mut PlaceVisit<'_>) -> Result<(), ParseError> {
    for record in bytes.chunks_exact(16).take(count) {
        let (high, low) = (u64_at(record, 0)?, u64_at(record, 8)?);
        let offset = (high & (u64::MAX >> 1)) >> 9;
        let first = (high & 0x1FF) << 43 | low >> 21;
        visit(Part::Data(offset), (first, low & 0x1F_FFFF))?;
    }
    Ok(())
}

/// What a node says: children `height` levels above the extents.
fn node(
    walker: &Walker<'_>,
    body: &[u8],
    height: u16,
    count: usize,
    visit: &mut PlaceVisit<'_>,
) -> Result<(), ParseError> {
    if height == 0 {
        return records(body, count, visit);
    }
    if height > 16 {
        return Err(ParseError::inconsistent(Mismatch::new("height of a file's tree", "at most 16", height)));
    }
    let most = body.len() >> 4;
    let pointers = body.get(most.saturating_mul(8)..).unwrap_or_default();
    for pointer in pointers.chunks_exact(8).take(count.min(most)) {
        let place = u64_at(pointer, 0)?;
        visit(Part::Tree, (place, 1))?;
        let range = extent(walker, (place, 1))?;
        let block = walker.tree_block(range)?;
        let (magic, head): (&[u8], usize) = if walker.geometry.is_v5 { (b"BMA3", 72) } else { (b"BMAP", 24) };
        let below = height.saturating_sub(1);
        if !block.starts_with(magic) || u16_at(&block, 4)? != below {
            let what = format!("a block of {} bytes in a file's tree", from_usize(block.len()));
            return Err(ParseError::corrupt(range.start(), Mismatch::new(what, "its magic and level", "others")));
        }
        let inner = block.get(head..).ok_or(Overflow("a tree block"))?;
        node(walker, inner, below, u16_at(&block, 6)?.into(), visit)?;
    }
    Ok(())
}
