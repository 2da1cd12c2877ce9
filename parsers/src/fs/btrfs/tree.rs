//! Reading trees: every block is verified before a byte of it is used.

use super::chunks::ChunkMap;
use super::device::Device;
use super::error::{BtrfsError, equal, head, wrong};
use super::ondisk::{Key, RawHeader, RawItem, RawPointer};
use super::superblock::Superblock;
use crate::error::ParseError;
use crate::source::read_vec;
use crate::units::{ByteRange, add, from_usize, mul, sub, to_usize};
use std::cell::RefCell;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Bytes of the largest read.
const MAX_READ: u64 = 1 << 20;
/// Bytes of tree blocks that are read ahead on each level, sorted by where they lie.
const BATCH: u64 = 4 << 20;
/// A tree has at most this many levels (`BTRFS_MAX_LEVEL`).
const MAX_LEVEL: u8 = 8;
/// Bit 0 of a header's flags: written; the highest byte is the revision of back references.
const HEADER_FLAGS: u64 = 1 | 1 << 56;

/// Where a tree begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TreeRoot {
    /// Number of the tree, and owner of its blocks.
    pub tree: u64,
    pub block: u64,
    pub generation: u64,
    pub level: u8,
}

/// What is known about a block before it is read.
#[derive(Debug, Clone, Copy)]
struct Expected {
    tree: u64,
    block: u64,
    generation: u64,
    level: u8,
    /// Its first key; unknown for a root.
    first: Option<Key>,
    /// Every key in it is less; unknown for the last of a level.
    below: Option<Key>,
}

/// One item of a leaf.
pub(super) struct Item<'a> {
    pub key: Key,
    pub data: &'a [u8],
    /// Byte position of its block on the first device that holds it.
    pub at: u64,
}

impl Item<'_> {
    /// The structure at its start.
    pub fn head<T: FromBytes + KnownLayout + Immutable>(&self, what: &'static str) -> Result<T, ParseError> {
        head(self.data, self.at, what)
    }
}

/// Called with each item in the order of keys.
pub(super) type Visit<'v> = dyn FnMut(&Item<'_>) -> Result<(), ParseError> + 'v;

/// Everything that is needed to read trees.
pub(super) struct Forest<'a> {
    devices: &'a [Device<'a>],
    superblock: &'a Superblock,
    chunks: &'a ChunkMap,
    /// Logical places of all blocks that were read.
    seen: RefCell<Vec<u64>>,
}

/// A block whose header and checksum are right.
struct Block {
    bytes: Vec<u8>,
    at: u64,
}

impl<'a> Forest<'a> {
    pub fn new(devices: &'a [Device<'a>], superblock: &'a Superblock, chunks: &'a ChunkMap) -> Self {
        Self { devices, superblock, chunks, seen: RefCell::default() }
    }

    /// Logical places of all blocks that were read.
    pub fn seen(&self) -> Vec<u64> {
        self.seen.borrow().clone()
    }

    /// Hands every item from key `from` to key `to` to `visit`, reading only the blocks that can hold some.
    pub fn walk(&self, root: &TreeRoot, from: Key, to: Key, visit: &mut Visit<'_>) -> Result<(), ParseError> {
        if root.level >= MAX_LEVEL {
            return Err(wrong(root.block, "level of a tree", "less than 8", root.level));
        }
        let TreeRoot { tree, block, generation, level } = *root;
        let top = Expected { tree, block, generation, level, first: None, below: None };
        self.descend(&[top], from, to, visit)
    }

    /// `wanted` are blocks of one level in the order of keys.
    fn descend(&self, wanted: &[Expected], from: Key, to: Key, visit: &mut Visit<'_>) -> Result<(), ParseError> {
        let at_once = to_usize(BATCH.checked_div(self.superblock.node_size).unwrap_or(1), "blocks in a batch")?;
        for batch in wanted.chunks(at_once.max(1)) {
            for (block, expected) in self.read(batch)?.iter().zip(batch) {
                if expected.level == 0 {
                    self.leaf(block, expected, from, to, visit)?;
                } else {
                    self.descend(&self.children(block, expected, from, to)?, from, to, visit)?;
                }
            }
        }
        Ok(())
    }

    /// Reads blocks in the order in which they lie, neighbours in one request, and verifies them.
    fn read(&self, wanted: &[Expected]) -> Result<Vec<Block>, ParseError> {
        let mut places = Vec::with_capacity(wanted.len());
        for (expected, index) in wanted.iter().zip(0_usize..) {
            let (device, at) = self.locate(expected.block)?;
            places.push((device, at, index));
        }
        places.sort_unstable();
        let node = self.superblock.node_size;
        let follows =
            |a: &(usize, u64, usize), b: &(usize, u64, usize)| a.0 == b.0 && a.1.checked_add(node) == Some(b.1);
        let most = to_usize(MAX_READ.checked_div(node).unwrap_or(1).max(1), "blocks in a read")?;
        let mut blocks: Vec<(usize, Block)> = Vec::with_capacity(wanted.len());
        for run in places.chunk_by(follows).flat_map(|neighbours| neighbours.chunks(most)) {
            let Some(&(device, at, _)) = run.first() else { continue };
            let source = self.devices.get(device).map(|device| device.source);
            let source = source.ok_or_else(|| wrong(at, "a device", "one of those given", device))?;
            let bytes = read_vec(source, at, mul(from_usize(run.len()), node, "a read of tree blocks")?)?;
            for (&(_, at, index), bytes) in run.iter().zip(bytes.chunks_exact(to_usize(node, "a tree block")?)) {
                let expected = wanted.get(index).ok_or_else(|| wrong(at, "a tree block", "a wanted one", index))?;
                self.verify(bytes, expected, at)?;
                blocks.push((index, Block { bytes: bytes.to_vec(), at }));
            }
        }
        blocks.sort_unstable_by_key(|(index, _)| *index);
        Ok(blocks.into_iter().map(|(_, block)| block).collect())
    }

    /// Device index and byte position of the first copy of the tree block at `logical`.
    fn locate(&self, logical: u64) -> Result<(usize, u64), ParseError> {
        let node = self.superblock.node_size;
        let range = ByteRange::with_len(logical, node);
        let range = range.ok_or_else(|| wrong(logical, "a tree block", "a possible place", logical))?;
        let places = self.chunks.find(range, "a tree block")?.places(range)?;
        let Some((device, place)) = places.first() else {
            return Err(wrong(logical, "a tree block", "a copy of it", "none"));
        };
        equal(place.start(), "bytes of a tree block in one stripe", node, place.len())?;
        let index = self.devices.iter().position(|one| one.id == *device);
        let index =
            index.ok_or_else(|| wrong(place.start(), "device of a tree block", "one of those given", device))?;
        Ok((index, place.start()))
    }

    fn verify(&self, bytes: &[u8], expected: &Expected, at: u64) -> Result<(), ParseError> {
        let header: RawHeader = head(bytes, at, "a tree block")?;
        if !self.superblock.checksum.fits(bytes)? {
            return Err(ParseError::corrupt(at, BtrfsError::Checksum("a tree block")));
        }
        if header.fsid != self.superblock.metadata_id {
            return Err(wrong(at, "filesystem of a tree block", "the UUID of the superblock", "another one"));
        }
        equal(at, "own place of a tree block", expected.block, header.bytenr.get())?;
        equal(at, "generation of a tree block", expected.generation, header.generation.get())?;
        equal(at, "owner of a tree block", expected.tree, header.owner.get())?;
        equal(at, "level of a tree block", expected.level.into(), header.level.into())?;
        equal(at, "flags of a tree block", HEADER_FLAGS, header.flags.get())?;
        self.seen.borrow_mut().push(expected.block);
        Ok(())
    }

    /// The blocks below a node that can hold keys from `from` to `to`.
    fn children(&self, block: &Block, node: &Expected, from: Key, to: Key) -> Result<Vec<Expected>, ParseError> {
        let pointers: Vec<RawPointer> = entries(block, "pointers of a node")?;
        check_keys(node, block.at, pointers.iter().map(|pointer| pointer.key.get()))?;
        let level = node.level.checked_sub(1).ok_or_else(|| wrong(block.at, "level of a node", "more than 0", 0))?;
        let nexts = pointers.iter().skip(1).map(|next| Some(next.key.get())).chain([node.below]);
        let children = pointers.iter().zip(nexts).map(|(pointer, below)| Expected {
            tree: node.tree,
            block: pointer.block.get(),
            generation: pointer.generation.get(),
            level,
            first: Some(pointer.key.get()),
            below,
        });
        let may_hold = |child: &Expected| {
            child.first.is_none_or(|first| first <= to) && child.below.is_none_or(|below| below > from)
        };
        Ok(children.filter(may_hold).collect())
    }

    fn leaf(
        &self,
        block: &Block,
        leaf: &Expected,
        from: Key,
        to: Key,
        visit: &mut Visit<'_>,
    ) -> Result<(), ParseError> {
        let items: Vec<RawItem> = entries(block, "items of a leaf")?;
        check_keys(leaf, block.at, items.iter().map(|item| item.key.get()))?;
        let header = from_usize(size_of::<RawHeader>());
        let table = mul(from_usize(items.len()), from_usize(size_of::<RawItem>()), "the items of a leaf")?;
        // Data is packed from the end of the block towards the items.
        let mut end = sub(self.superblock.node_size, header, "the data of a leaf")?;
        for item in &items {
            let start = u64::from(item.offset.get());
            equal(block.at, "end of an item's data", end, add(start, item.size.get().into(), "an item's data")?)?;
            if start < table {
                return Err(wrong(block.at, "place of an item's data", format_args!("from {table} on"), start));
            }
            let data = ByteRange::new(start, end).and_then(|range| range.shift_up(header));
            let data = data.map_or(Some(&[][..]), |range| slice(&block.bytes, range));
            let data = data.ok_or_else(|| wrong(block.at, "an item's data", "inside the leaf", start))?;
            let key = item.key.get();
            if (from..=to).contains(&key) {
                visit(&Item { key, data, at: block.at })?;
            }
            end = start;
        }
        Ok(())
    }
}

fn slice(bytes: &[u8], range: ByteRange) -> Option<&[u8]> {
    bytes.get(usize::try_from(range.start()).ok()?..usize::try_from(range.end()).ok()?)
}

/// What follows the header: as many entries as it says.
fn entries<T: FromBytes + KnownLayout + Immutable>(block: &Block, what: &'static str) -> Result<Vec<T>, ParseError> {
    let header: RawHeader = head(&block.bytes, block.at, what)?;
    let count = to_usize(header.count.get().into(), "entries of a tree block")?;
    let body = block.bytes.get(size_of::<RawHeader>()..).unwrap_or_default();
    let entries = body.chunks_exact(size_of::<T>()).take(count);
    if entries.len() < count {
        return Err(wrong(block.at, what, format_args!("at most {}", entries.len()), count));
    }
    entries.map(|entry| head(entry, block.at, what)).collect()
}

/// Keys must grow, begin with the one that the parent names, and stay below its next.
fn check_keys(block: &Expected, at: u64, keys: impl Iterator<Item = Key>) -> Result<(), ParseError> {
    let mut last: Option<Key> = None;
    for key in keys {
        let is_right = match last {
            Some(last) => last < key,
            None => block.first.is_none_or(|first| first == key),
        };
        if !is_right || block.below.is_some_and(|below| key >= below) {
            return Err(wrong(at, "order of keys in a tree block", "growing ones that its parent announces", key));
        }
        last = Some(key);
    }
    match (last, block.first) {
        (None, Some(first)) => Err(wrong(at, "first key of a tree block", first, "an empty block")),
        _ => Ok(()),
    }
}
