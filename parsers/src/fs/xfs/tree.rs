//! A tree of free extents. Each group has two with the same content: by block, which is the map, and by size, which is
//! read to confirm it.
//!
//! ```text
//! | head 16 (version 5: 56) | leaf: extents of 8 bytes ...                                  |
//! | head                    | node: keys of 8 bytes ... | room | children of 4 bytes ...     |
//!                             the children begin where the largest possible number of keys would end
//! ```
//! A tree is read level by level, each level in the order of positions. The level falls by one with each step, so no
//! chain of pointers can go round.

use super::XfsError;
use super::checksum;
use super::group::Group;
use super::ondisk::{BASIC_BLOCK, NULL_BLOCK, RawExtent, RawNode, RawNodeV5, checksum_at};
use super::superblock::SuperBlock;
use crate::error::{Mismatch, ParseError};
use crate::source::{Source, read_vec};
use crate::units::{add, sub, to_usize};
use zerocopy::FromBytes;

/// Most bytes of one request.
const REQUEST: u64 = 1 << 20;
/// A gap between nodes up to this many bytes is read through: cheaper than another request.
const GAP: u64 = 64 << 10;

/// Where a tree begins, in blocks of its group.
#[derive(Debug, Clone, Copy)]
pub struct Tree {
    pub root: u64,
    /// 1: the root is a leaf.
    pub levels: u32,
}

/// In which order a tree keeps its extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    ByBlock,
    BySize,
}

impl Order {
    fn magic(self, is_v5: bool) -> u32 {
        u32::from_be_bytes(match (self, is_v5) {
            (Self::ByBlock, false) => *b"ABTB",
            (Self::ByBlock, true) => *b"AB3B",
            (Self::BySize, false) => *b"ABTC",
            (Self::BySize, true) => *b"AB3C",
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::ByBlock => "by block",
            Self::BySize => "by size",
        }
    }
}

/// A free extent in blocks of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    pub first: u32,
    pub count: u32,
}

impl From<&RawExtent> for Extent {
    fn from(raw: &RawExtent) -> Self {
        Self { first: raw.ar_startblock.get(), count: raw.ar_blockcount.get() }
    }
}

/// What a whole tree holds.
pub struct Content {
    /// In the order of the tree.
    pub extents: Vec<Extent>,
    /// The tree's own blocks.
    pub nodes: Vec<u64>,
}

/// Reads one of the two trees of a group.
pub fn read(source: &dyn Source, superblock: &SuperBlock, group: &Group, order: Order) -> Result<Content, ParseError> {
    let reader = Reader { source, superblock, group, order };
    let tree = match order {
        Order::ByBlock => group.by_block,
        Order::BySize => group.by_size,
    };
    let mut content = Content { extents: Vec::new(), nodes: Vec::new() };
    let mut level = vec![(tree.root, None)];
    for height in (0..tree.levels).rev() {
        let nodes = reader.level(&level, height)?;
        content.nodes.extend(level.iter().map(|(block, _)| *block));
        level = Vec::new();
        for node in &nodes {
            level.extend(node.children.iter().copied().zip(node.extents.iter().copied().map(Some)));
        }
        reader.check_distinct(&level)?;
        if height == 0 {
            content.extents = nodes.into_iter().flat_map(|node| node.extents).collect();
        }
    }
    Ok(content)
}

/// A node's records: extents in a leaf, else the first extent below each child.
struct Node {
    extents: Vec<Extent>,
    children: Vec<u64>,
    left: u32,
    right: u32,
}

/// A node to read, and what its parent says about its first record.
type Wanted = (u64, Option<Extent>);

struct Reader<'a> {
    source: &'a dyn Source,
    superblock: &'a SuperBlock,
    group: &'a Group,
    order: Order,
}

impl Reader<'_> {
    /// All nodes of a level, in the order of the tree.
    fn level(&self, wanted: &[Wanted], height: u32) -> Result<Vec<Node>, ParseError> {
        let mut places: Vec<(u64, usize)> = wanted.iter().map(|(block, _)| *block).zip(0..).collect();
        places.sort_unstable();
        let mut nodes: Vec<Option<Node>> = wanted.iter().map(|_| None).collect();
        for request in self.requests(&places) {
            self.read_request(request, height, &mut nodes)?;
        }
        let nodes: Vec<Node> = nodes.into_iter().flatten().collect();
        for (index, (node, (block, key))) in nodes.iter().zip(wanted).enumerate() {
            let left = index.checked_sub(1).and_then(|index| wanted.get(index)).map(|(block, _)| *block);
            let right = wanted.get(index.saturating_add(1)).map(|(block, _)| *block);
            self.check_neighbours(node, *block, left, right)?;
            self.check_key(node, *block, *key)?;
        }
        Ok(nodes)
    }

    fn requests<'p>(&self, places: &'p [(u64, usize)]) -> impl Iterator<Item = &'p [(u64, usize)]> {
        let block = self.superblock.block;
        let (gap, most) = (block.whole_blocks(GAP).max(1), block.whole_blocks(REQUEST).max(1));
        let mut rest = places;
        std::iter::from_fn(move || {
            let (first, _) = rest.first()?;
            let joins = |pair: &[(u64, usize)]| match pair {
                [(before, _), (next, _)] => next.saturating_sub(*before) <= gap && next.saturating_sub(*first) < most,
                _ => false,
            };
            let count = rest.windows(2).take_while(|pair| joins(pair)).count().saturating_add(1);
            let (request, behind) = rest.split_at_checked(count)?;
            rest = behind;
            Some(request)
        })
    }

    fn read_request(
        &self,
        request: &[(u64, usize)],
        height: u32,
        nodes: &mut [Option<Node>],
    ) -> Result<(), ParseError> {
        let (Some((first, _)), Some((last, _))) = (request.first(), request.last()) else {
            return Ok(());
        };
        let size = to_usize(self.superblock.block.bytes(), "a block")?;
        let count = add(sub(*last, *first, "a run of nodes")?, 1, "a run of nodes")?;
        let bytes = read_vec(self.source, self.position(*first)?, self.superblock.block.to_bytes(count)?)?;
        for (block, index) in request {
            let start = to_usize(self.superblock.block.to_bytes(sub(*block, *first, "a node")?)?, "a node")?;
            let part = bytes.get(start..).and_then(|rest| rest.get(..size)).unwrap_or_default();
            let node = self.node(*block, height, part)?;
            if let Some(slot) = nodes.get_mut(*index) {
                *slot = Some(node);
            }
        }
        Ok(())
    }

    /// Byte position of a block of the group.
    fn position(&self, block: u64) -> Result<u64, ParseError> {
        Ok(self.superblock.block.to_bytes(add(self.group.start, block, "a block of a group")?)?)
    }

    fn describe(&self, block: u64) -> String {
        let name = self.order.name();
        format!("block {block} of group {}, a node of the free extents {name}", self.group.number)
    }

    fn corrupt(&self, block: u64, what: &str, expected: impl ToString, found: impl ToString) -> ParseError {
        let mismatch = Mismatch::new(format!("{}: {what}", self.describe(block)), expected, found);
        ParseError::corrupt(self.position(block).unwrap_or_default(), mismatch)
    }

    fn check(&self, block: u64, what: &str, expected: u64, found: u64) -> Result<(), ParseError> {
        if expected == found {
            return Ok(());
        }
        Err(self.corrupt(block, what, format_args!("{expected:#x}"), format_args!("{found:#x}")))
    }

    fn node(&self, block: u64, height: u32, bytes: &[u8]) -> Result<Node, ParseError> {
        let cut = || ParseError::inconsistent(format!("{} was cut short", self.describe(block)));
        let (raw, rest) = RawNode::ref_from_prefix(bytes).map_err(|_| cut())?;
        let is_v5 = self.superblock.features.is_v5;
        self.check(block, "magic", self.order.magic(is_v5).into(), raw.bb_magic.get().into())?;
        let body = if is_v5 { self.check_v5(block, bytes, rest)? } else { rest };
        self.check(block, "level", height.into(), raw.bb_level.get().into())?;
        let width: usize = if height == 0 { 8 } else { 12 };
        let most = body.len().checked_div(width).unwrap_or(0);
        let count = usize::from(raw.bb_numrecs.get());
        // Only a lone leaf may be empty: a group without any free extent.
        let is_root = (block, height.saturating_add(1)) == (self.root().root, self.root().levels);
        if count > most || count == 0 && !(is_root && height == 0) {
            return Err(self.corrupt(block, "number of records", format!("1 to {most}"), count));
        }
        let (keys, behind) = <[RawExtent]>::ref_from_prefix_with_elems(body, most).map_err(|_| cut())?;
        let children = if height == 0 { Vec::new() } else { self.children(block, behind, count)? };
        Ok(Node {
            extents: keys.iter().take(count).map(Extent::from).collect(),
            children,
            left: raw.bb_leftsib.get(),
            right: raw.bb_rightsib.get(),
        })
    }

    fn root(&self) -> Tree {
        match self.order {
            Order::ByBlock => self.group.by_block,
            Order::BySize => self.group.by_size,
        }
    }

    /// Checksum, identity, age, place and owner; gives what lies behind the longer head.
    fn check_v5<'b>(&self, block: u64, bytes: &[u8], rest: &'b [u8]) -> Result<&'b [u8], ParseError> {
        let at = self.position(block)?;
        checksum::check(at, &self.describe(block), bytes, checksum_at::SHORT_BTREE)?;
        let (raw, body) = RawNodeV5::ref_from_prefix(rest)
            .map_err(|_| ParseError::corrupt(at, format!("{} was cut short", self.describe(block))))?;
        if raw.bb_uuid != self.superblock.meta_uuid {
            return Err(ParseError::corrupt(at, XfsError::Foreign { what: self.describe(block) }));
        }
        self.group.log_end.check(at, || self.describe(block), raw.bb_lsn.get())?;
        self.check(block, "own place", at.checked_div(BASIC_BLOCK).unwrap_or(0), raw.bb_blkno.get())?;
        self.check(block, "owner", self.group.number, raw.bb_owner.get().into())?;
        Ok(body)
    }

    fn children(&self, block: u64, bytes: &[u8], count: usize) -> Result<Vec<u64>, ParseError> {
        let (pointers, _) = bytes.as_chunks::<4>();
        let mut children = Vec::with_capacity(count);
        for pointer in pointers.iter().take(count) {
            let child = u64::from(u32::from_be_bytes(*pointer));
            if child == 0 || child >= self.group.blocks {
                return Err(self.corrupt(block, "a child", format!("inside 1..{}", self.group.blocks), child));
            }
            children.push(child);
        }
        if children.len() == count {
            return Ok(children);
        }
        Err(self.corrupt(block, "number of children", count, children.len()))
    }

    fn check_neighbours(
        &self,
        node: &Node,
        block: u64,
        left: Option<u64>,
        right: Option<u64>,
    ) -> Result<(), ParseError> {
        for (what, expected, found) in [("left neighbour", left, node.left), ("right neighbour", right, node.right)] {
            self.check(block, what, expected.unwrap_or(NULL_BLOCK.into()), found.into())?;
        }
        Ok(())
    }

    /// A parent repeats the first record of each child.
    fn check_key(&self, node: &Node, block: u64, key: Option<Extent>) -> Result<(), ParseError> {
        let first = node.extents.first();
        let (Some(key), Some(first)) = (key, first) else {
            return Ok(());
        };
        let agrees = match self.order {
            Order::ByBlock => key.first == first.first,
            Order::BySize => key == *first,
        };
        if agrees {
            return Ok(());
        }
        Err(self.corrupt(block, "first record", format!("{key:?}, as its parent says"), format!("{first:?}")))
    }

    /// No block is a node twice.
    fn check_distinct(&self, level: &[Wanted]) -> Result<(), ParseError> {
        let mut blocks: Vec<u64> = level.iter().map(|(block, _)| *block).collect();
        blocks.sort_unstable();
        match blocks.windows(2).find_map(|pair| match pair {
            [a, b] if a == b => Some(*a),
            _ => None,
        }) {
            Some(block) => Err(self.corrupt(block, "parents", 1, 2)),
            None => Ok(()),
        }
    }
}

/// Sum of the extents in blocks.
pub fn sum(extents: &[Extent]) -> Result<u64, ParseError> {
    let mut sum = 0;
    for extent in extents {
        sum = add(sum, extent.count.into(), "a sum of free extents")?;
    }
    Ok(sum)
}
