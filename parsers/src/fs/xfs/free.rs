//! The free map: group by group, the tree of free extents by block, confirmed by everything that says the same.
//!
//! What speaks about free space in a group, all kept exact: the tree by block, the tree by size, the sum and the longest
//! extent in the AGF, and the number of the trees' own blocks. The free list is in no tree and stays used; the kernel's
//! own FITRIM does the same. Reserved space, copy-on-write staging and the trees of owners, counts and inodes are outside
//! the trees of free extents already.

use super::XfsError;
use super::group::{self, Group};
use super::lsn::Lsn;
use super::superblock::{LogPlace, SuperBlock};
use super::tree::{self, Content, Extent, Order};
use crate::error::{Mismatch, ParseError};
use crate::free_map::{DeclaredFree, FreeMap, FreeMapBuilder};
use crate::source::Source;
use crate::units::{add, from_usize};

/// The map, and what the superblock's lagging counter should say.
pub struct Found {
    pub map: FreeMap,
    /// Free blocks as the superblock counts them: with free lists and the trees' own blocks.
    pub counted: Option<u64>,
}

/// Reads every group of a volume whose log ends at `log_end`.
pub fn map(source: &dyn Source, superblock: &SuperBlock, log_end: Lsn) -> Result<Found, ParseError> {
    log_end.check(0, || "the superblock".to_owned(), superblock.written)?;
    let mut builder = FreeMapBuilder::new(superblock.grid()?);
    if let LogPlace::Block(first) = superblock.log {
        builder.must_be_used(first, superblock.log_blocks, "the log")?;
    }
    let (mut declared, mut counted) = (0_u64, Some(0_u64));
    for number in 0..superblock.groups {
        let group = group::read(source, superblock, number, log_end)?;
        one_group(source, superblock, &group, &mut builder)?;
        declared = add(declared, group.free_blocks, "the number of free blocks")?;
        counted = group.tree_blocks.and(counted).map(|sum| {
            let more = group
                .all_tree_blocks
                .saturating_add(group.free_blocks)
                .saturating_add(from_usize(group.free_list.len()));
            sum.saturating_add(more)
        });
    }
    Ok(Found { map: builder.finish(DeclaredFree::Exact(declared))?, counted })
}

fn one_group(
    source: &dyn Source,
    superblock: &SuperBlock,
    group: &Group,
    builder: &mut FreeMapBuilder,
) -> Result<(), ParseError> {
    let by_block = tree::read(source, superblock, group, Order::ByBlock)?;
    let by_size = tree::read(source, superblock, group, Order::BySize)?;
    check_extents(superblock, group, &by_block, &by_size).map_err(|error| located(superblock, group, error))?;
    for extent in &by_block.extents {
        builder.free(add(group.start, extent.first.into(), "a free extent")?, extent.count.into())?;
    }
    let mut used = |block: u64, count: u64, what: &'static str| -> Result<(), ParseError> {
        builder.must_be_used(add(group.start, block, "a block of a group")?, count, what)
    };
    used(0, superblock.header_blocks().min(group.blocks), "the headers of a group")?;
    used(group.inode_root, 1, "the root of the tree of inodes")?;
    for block in by_block.nodes.iter().chain(&by_size.nodes) {
        used(*block, 1, "a node of the free extents")?;
    }
    for block in &group.free_list {
        used(*block, 1, "a block of the free list")?;
    }
    Ok(())
}

/// A contradiction inside a group is reported at its AGF.
fn located(superblock: &SuperBlock, group: &Group, error: ParseError) -> ParseError {
    let start = superblock.block.to_bytes(group.start).unwrap_or_default();
    error.located(start.saturating_add(superblock.sector))
}

fn check_extents(
    superblock: &SuperBlock,
    group: &Group,
    by_block: &Content,
    by_size: &Content,
) -> Result<(), ParseError> {
    check_order(group, &by_block.extents)?;
    let is_sorted = by_size.extents.is_sorted_by_key(|extent| (extent.count, extent.first));
    let mut confirmed = by_size.extents.clone();
    confirmed.sort_unstable();
    if !is_sorted || confirmed != by_block.extents {
        return Err(ParseError::inconsistent(XfsError::Trees { group: group.number }));
    }
    let longest = by_block.extents.iter().map(|extent| u64::from(extent.count)).max().unwrap_or(0);
    compare(group, "free blocks", group.free_blocks, tree::sum(&by_block.extents)?)?;
    compare(group, "longest free extent", group.longest, longest)?;
    if let Some(declared) = group.tree_blocks {
        // The roots are not counted.
        let nodes = from_usize(by_block.nodes.len()).saturating_add(from_usize(by_size.nodes.len()));
        compare(group, "blocks of the trees of free extents", declared, nodes.saturating_sub(2))?;
    }
    check_nodes_apart(superblock, group, by_block, by_size)
}

/// Sorted, not touching (the kernel merges neighbours), inside the group.
fn check_order(group: &Group, extents: &[Extent]) -> Result<(), ParseError> {
    let mut least: u64 = 0;
    for extent in extents {
        let (first, count) = (u64::from(extent.first), u64::from(extent.count));
        let end = add(first, count, "the end of a free extent")?;
        if first < least || count == 0 || end > group.blocks {
            let expected = format!("not empty, inside {least}..{}", group.blocks);
            let what = format!("group {}: a free extent", group.number);
            return Err(ParseError::inconsistent(Mismatch::new(what, expected, format!("{first}..{end}"))));
        }
        least = end.saturating_add(1);
    }
    Ok(())
}

fn compare(group: &Group, what: &str, declared: u64, found: u64) -> Result<(), ParseError> {
    if declared == found {
        return Ok(());
    }
    let what = format!("group {}: {what}, AGF against trees", group.number);
    Err(ParseError::inconsistent(Mismatch::new(what, declared, found)))
}

/// Every block of the trees and the free list has one use.
fn check_nodes_apart(
    superblock: &SuperBlock,
    group: &Group,
    by_block: &Content,
    by_size: &Content,
) -> Result<(), ParseError> {
    let mut blocks: Vec<u64> = by_block.nodes.iter().chain(&by_size.nodes).chain(&group.free_list).copied().collect();
    blocks.push(group.inode_root);
    blocks.sort_unstable();
    let is_twice = blocks.windows(2).any(|pair| pair.first() == pair.last());
    let is_header = blocks.first().is_some_and(|block| *block < superblock.header_blocks());
    if is_twice || is_header {
        return Err(ParseError::inconsistent(XfsError::Shared { group: group.number }));
    }
    Ok(())
}
