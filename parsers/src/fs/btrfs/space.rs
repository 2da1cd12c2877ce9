//! Logical space: block groups, and the extents in them that are used.

use super::chunks::ChunkMap;
use super::error::{equal, wrong};
use super::ondisk::{Key, RawBlockGroup, kind};
use super::superblock::Superblock;
use super::tree::{Forest, Item, TreeRoot};
use crate::error::ParseError;
use crate::units::{BlockSize, ByteRange, add, from_usize};

/// What is known about the space of one chunk.
#[derive(Debug, Clone, Default)]
pub(super) struct Space {
    /// Used ranges in logical order, neighbours merged.
    pub used: Vec<ByteRange>,
    /// Sum of the extents in bytes.
    bytes: u64,
    /// What the block group says about that sum.
    declared: Option<u64>,
}

impl Space {
    /// The parts of the chunk's `range` that no extent covers.
    pub fn free(&self, range: ByteRange) -> Vec<ByteRange> {
        without(&[range], &self.used)
    }

    fn add(&mut self, extent: ByteRange, at: u64) -> Result<(), ParseError> {
        self.bytes = add(self.bytes, extent.len(), "used bytes of a block group")?;
        match self.used.last_mut() {
            Some(last) if extent.start() < last.end() => {
                return Err(wrong(at, "extents", "none that share a byte", format_args!("logical {extent} again")));
            }
            Some(last) if extent.start() == last.end() => {
                *last = ByteRange::new(last.start(), extent.end()).unwrap_or(*last);
            }
            _ => self.used.push(extent),
        }
        Ok(())
    }
}

/// `ranges` without `holes`; both sorted and disjoint.
pub(super) fn without(ranges: &[ByteRange], holes: &[ByteRange]) -> Vec<ByteRange> {
    let mut left = Vec::new();
    for range in ranges {
        let first = holes.partition_point(|hole| hole.end() <= range.start());
        let mut at = range.start();
        for hole in holes.iter().skip(first).take_while(|hole| hole.start() < range.end()) {
            left.extend(ByteRange::new(at, hole.start()));
            at = hole.end();
        }
        left.extend(ByteRange::new(at, range.end()));
    }
    left
}

/// Collects [`Space`] for each chunk of a map.
struct Collector<'a> {
    chunks: &'a ChunkMap,
    spaces: Vec<Space>,
    /// Bytes of a tree block, which a skinny extent item leaves out.
    node_size: u64,
    sector: BlockSize,
}

impl Collector<'_> {
    fn item(&mut self, item: &Item<'_>) -> Result<(), ParseError> {
        let Key { object, kind, offset } = item.key;
        match kind {
            kind::EXTENT_ITEM => self.extent(object, offset, item.at),
            kind::METADATA_ITEM => self.extent(object, self.node_size, item.at),
            kind::BLOCK_GROUP => self.group(item),
            kind::EXTENT_REF_V0 => Err(unknown(item)),
            kind::EXTENT_OWNER_REF | kind::FIRST_REFERENCE..=kind::LAST_REFERENCE => Ok(()),
            _ => Err(unknown(item)),
        }
    }

    fn extent(&mut self, start: u64, len: u64, at: u64) -> Result<(), ParseError> {
        let extent = ByteRange::with_len(start, len);
        let extent = extent.filter(|range| range.round_inwards(self.sector.bytes(), 0) == Some(*range));
        let extent = extent.ok_or_else(|| wrong(at, "an extent", "whole sectors", format_args!("{start} + {len}")))?;
        let space = self.chunks.index_of(extent).and_then(|index| self.spaces.get_mut(index));
        let space =
            space.ok_or_else(|| wrong(at, "an extent", "inside one chunk", format_args!("logical {extent}")))?;
        space.add(extent, at)
    }

    fn group(&mut self, item: &Item<'_>) -> Result<(), ParseError> {
        let raw: RawBlockGroup = item.head("a block group")?;
        let range = ByteRange::with_len(item.key.object, item.key.offset);
        let index = range.and_then(|range| self.chunks.index_of(range));
        let chunk = index.and_then(|index| self.chunks.iter().nth(index)).filter(|chunk| Some(chunk.range) == range);
        let chunk = chunk.ok_or_else(|| wrong(item.at, "a block group", "exactly a chunk", item.key))?;
        equal(item.at, "flags of a block group", chunk.flags, raw.flags.get())?;
        if let Some(space) = index.and_then(|index| self.spaces.get_mut(index)) {
            space.declared = Some(raw.used.get());
        }
        Ok(())
    }
}

fn unknown(item: &Item<'_>) -> ParseError {
    wrong(item.at, "kind of an item in the extent tree", "extents, references and block groups", item.key)
}

/// The space of each chunk, in the order of the map. `groups` is the tree of block groups where they have their own.
pub(super) fn read(
    forest: &Forest<'_>,
    chunks: &ChunkMap,
    extents: &TreeRoot,
    groups: Option<&TreeRoot>,
    superblock: &Superblock,
) -> Result<Vec<Space>, ParseError> {
    let mut collector = Collector {
        chunks,
        spaces: vec![Space::default(); chunks.iter().len()],
        node_size: superblock.node_size,
        sector: superblock.sector,
    };
    for root in groups.into_iter().chain([extents]) {
        forest.walk(root, Key::FIRST, Key::LAST, &mut |item| collector.item(item))?;
    }
    check(chunks, &collector.spaces, extents.block, superblock.bytes_used)?;
    Ok(collector.spaces)
}

/// Every chunk has a block group, every group the sum of its extents, the filesystem the sum of its groups.
fn check(chunks: &ChunkMap, spaces: &[Space], block: u64, bytes_used: u64) -> Result<(), ParseError> {
    let mut sum = 0;
    for (chunk, space) in chunks.iter().zip(spaces) {
        let Some(declared) = space.declared else {
            return Err(wrong(
                block,
                "a block group",
                format_args!("one for the chunk at {}", chunk.range.start()),
                "none",
            ));
        };
        equal(block, "used bytes of a block group", declared, space.bytes)?;
        sum = add(sum, space.bytes, "used bytes of the filesystem")?;
    }
    equal(block, "used bytes of the filesystem", bytes_used, sum)
}

/// Every tree block that was read must be in a used extent.
pub(super) fn check_read(chunks: &ChunkMap, spaces: &[Space], node_size: u64, read: &[u64]) -> Result<(), ParseError> {
    for start in read {
        let block = ByteRange::with_len(*start, node_size);
        let space = block.and_then(|block| chunks.index_of(block)).and_then(|index| spaces.get(index));
        let is_used = block.zip(space).is_some_and(|(block, space)| {
            let next = space.used.partition_point(|used| used.end() <= block.start());
            space.used.get(next).is_some_and(|used| used.contains(block))
        });
        if !is_used {
            let count = format_args!("nothing for one of {} tree blocks", from_usize(read.len())).to_string();
            return Err(wrong(*start, "extent of a tree block", "a used one", count));
        }
    }
    Ok(())
}
