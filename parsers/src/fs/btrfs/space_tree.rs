//! The free-space tree: the same answer a second time, kept by the kernel for its own use. It is read where it is valid
//! (the cache in files, version 1, never is trusted), and must agree with what the extents leave.

use super::chunks::{Chunk, ChunkMap};
use super::error::{equal, wrong};
use super::ondisk::{Key, RawSpaceInfo, STRIPE, kind};
use super::space::{Space, without};
use super::superblock::stripes;
use super::tree::{Forest, Item, TreeRoot};
use crate::error::ParseError;
use crate::units::{BlockSize, ByteRange, add, from_usize, mul};

/// Compares the tree with what the extents leave in each chunk.
pub(super) fn check(
    forest: &Forest<'_>,
    root: &TreeRoot,
    chunks: &ChunkMap,
    spaces: &[Space],
    sector: BlockSize,
) -> Result<(), ParseError> {
    let mut tree = Collector { chunks, free: vec![None; chunks.iter().len()], sector };
    forest.walk(root, Key::FIRST, Key::LAST, &mut |item| tree.item(item))?;
    for ((chunk, space), free) in chunks.iter().zip(spaces).zip(&tree.free) {
        let Some(free) = free else {
            let expected = format_args!("one for the chunk at {}", chunk.range.start()).to_string();
            return Err(wrong(root.block, "block group in the free-space tree", expected, "none"));
        };
        compare(chunk, &space.free(chunk.range), free, root.block)?;
    }
    Ok(())
}

struct Collector<'a> {
    chunks: &'a ChunkMap,
    /// Free ranges of each chunk that has an entry.
    free: Vec<Option<Vec<ByteRange>>>,
    sector: BlockSize,
}

impl Collector<'_> {
    fn item(&mut self, item: &Item<'_>) -> Result<(), ParseError> {
        let range = ByteRange::with_len(item.key.object, item.key.offset);
        let range =
            range.ok_or_else(|| wrong(item.at, "a key in the free-space tree", "start and length", item.key))?;
        let index = self.chunks.index_of(range);
        let Some(slot) = index.and_then(|index| self.free.get_mut(index)) else {
            return Ok(()); // mkfs.btrfs leaves entries of its first chunks behind, which are gone
        };
        if item.key.kind == kind::SPACE_INFO {
            let _: RawSpaceInfo = item.head("a block group in the free-space tree")?;
            let chunk = index.and_then(|index| self.chunks.iter().nth(index));
            let len = chunk.map_or(0, |chunk| chunk.range.len());
            *slot = Some(Vec::new());
            return equal(item.at, "length of a block group in the free-space tree", len, range.len());
        }
        let free = slot.as_mut().ok_or_else(|| wrong(item.at, "free space", "behind its block group", item.key))?;
        match item.key.kind {
            kind::SPACE_EXTENT => push(free, range, item.at),
            kind::SPACE_BITMAP => bitmap(free, range, item, self.sector),
            _ => Err(wrong(item.at, "kind of an item in the free-space tree", "198 to 200", item.key)),
        }
    }
}

fn bitmap(free: &mut Vec<ByteRange>, range: ByteRange, item: &Item<'_>, sector: BlockSize) -> Result<(), ParseError> {
    let bits = sector.whole_blocks(range.len());
    equal(item.at, "bytes of a bitmap in the free-space tree", bits.div_ceil(8), from_usize(item.data.len()))?;
    let bit = |index: u64| {
        let byte = item.data.get(usize::try_from(index / 8).unwrap_or(usize::MAX)).copied().unwrap_or(0);
        byte.checked_shr(u32::try_from(index % 8).unwrap_or(0)).unwrap_or(0) & 1 == 1
    };
    for index in (0..bits).filter(|index| bit(*index)) {
        let start = add(range.start(), mul(index, sector.bytes(), "a bit")?, "a bit")?;
        if let Some(block) = ByteRange::with_len(start, sector.bytes()) {
            push(free, block, item.at)?;
        }
    }
    Ok(())
}

fn push(free: &mut Vec<ByteRange>, range: ByteRange, at: u64) -> Result<(), ParseError> {
    match free.last_mut() {
        Some(last) if range.start() < last.end() => Err(wrong(at, "free space", "every byte once", "a byte twice")),
        Some(last) if range.start() == last.end() => {
            *last = ByteRange::new(last.start(), range.end()).unwrap_or(*last);
            Ok(())
        }
        _ => {
            free.push(range);
            Ok(())
        }
    }
}

/// The tree may leave out the stripes that hold a copy of the superblock; otherwise both are the same.
fn compare(chunk: &Chunk, left: &[ByteRange], free: &[ByteRange], block: u64) -> Result<(), ParseError> {
    let differ = |what: &str, range: &ByteRange| {
        wrong(block, "free-space tree", "what the extents leave", format_args!("{what} logical {range}"))
    };
    if let Some(more) = without(free, left).first() {
        return Err(differ("also", more));
    }
    for missing in without(left, free) {
        for part in in_steps(missing, chunk.range.start()) {
            if !holds_superblock(chunk, part)? {
                return Err(differ("not", &part));
            }
        }
    }
    Ok(())
}

/// `range` cut into stripes that are counted from `origin`, which lies before it.
fn in_steps(range: ByteRange, origin: u64) -> impl Iterator<Item = ByteRange> {
    let first = range.start().saturating_sub(origin).checked_div(STRIPE).unwrap_or(0);
    let start = move |number: u64| number.checked_mul(STRIPE)?.checked_add(origin);
    let steps = (first..).map_while(move |number| start(number).filter(|start| *start < range.end()));
    steps.filter_map(move |start| ByteRange::with_len(start, STRIPE)?.intersect(range))
}

/// True when a copy of the superblock lies in the stripe that `part` belongs to.
fn holds_superblock(chunk: &Chunk, part: ByteRange) -> Result<bool, ParseError> {
    let inside = part.start().saturating_sub(chunk.range.start());
    let start = part.start().saturating_sub(inside.checked_rem(STRIPE).unwrap_or(0));
    let stripe = ByteRange::with_len(start, STRIPE).and_then(|stripe| stripe.intersect(chunk.range)).unwrap_or(part);
    let places = chunk.places(stripe)?;
    Ok(places.iter().any(|(_, place)| stripes(u64::MAX).any(|superblock| superblock.overlaps(*place))))
}
