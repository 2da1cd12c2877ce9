//! The metadata that the geometry alone determines, for all groups at once: superblock and descriptor copies, bitmaps
//! and inode tables. In a group whose bitmap was never written they are all that is used; everywhere else the bitmap
//! must call them used, or it was misread.

use super::groups::{self, Group};
use super::superblock::SuperBlock;
use crate::error::{Mismatch, ParseError};
use crate::units::{add, rem};

/// `count` blocks from `first` that hold `what`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metadata {
    pub first: u64,
    pub count: u64,
    pub what: &'static str,
}

impl Metadata {
    /// The block behind the last one.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.count)
    }
}

/// All of it, sorted and disjoint, neighbours of one kind merged. Two structures on one block are an error.
pub fn metadata(superblock: &SuperBlock, groups: &[Group]) -> Result<Vec<Metadata>, ParseError> {
    let mut all = Vec::new();
    if superblock.superblock_block() == 1 {
        // Block 0 of a volume with 1 KiB blocks is for a boot loader. With bigalloc it is in a bitmap, else in none.
        push(&mut all, superblock, 0, 1, "boot block")?;
    }
    let table = superblock.inode_table_blocks()?;
    for (number, group) in (0..).zip(groups) {
        push_copies(&mut all, superblock, number)?;
        push(&mut all, superblock, group.block_bitmap, 1, "block bitmap")?;
        push(&mut all, superblock, group.inode_bitmap, 1, "inode bitmap")?;
        push(&mut all, superblock, group.inode_table, table, "inode table")?;
    }
    all.sort_unstable();
    disjoint(superblock, all)
}

/// Superblock and descriptors in one group: the classic block of them behind a superblock copy, or with meta_bg a
/// single one in the first, second and last group of each meta group.
fn push_copies(all: &mut Vec<Metadata>, superblock: &SuperBlock, group: u64) -> Result<(), ParseError> {
    let start = groups::superblock_copy(superblock, group)?;
    let has_copy = groups::has_superblock(superblock, group);
    let behind = add(start, u64::from(has_copy), "the block behind a superblock")?;
    if has_copy {
        push(all, superblock, start, 1, "superblock")?;
    }
    let per_block = superblock.descriptors_per_block();
    let classic = groups::classic_descriptor_blocks(superblock);
    if group.checked_div(per_block).is_some_and(|index| index < classic) {
        if has_copy {
            push(all, superblock, behind, classic, "group descriptors")?;
            let reserved = add(behind, classic, "the block behind the descriptors")?;
            push(all, superblock, reserved, superblock.reserved_gdt_blocks, "reserved descriptor blocks")?;
        }
        return Ok(());
    }
    let place = rem(group, per_block, "a place in a meta block group")?;
    if place <= 1 || place == per_block.saturating_sub(1) {
        push(all, superblock, behind, 1, "group descriptors")?;
    }
    Ok(())
}

/// Adds blocks, cut at the end of the volume: the copies in a short last group may be cut off.
fn push(
    all: &mut Vec<Metadata>,
    superblock: &SuperBlock,
    first: u64,
    count: u64,
    what: &'static str,
) -> Result<(), ParseError> {
    let end = add(first, count, "the end of metadata")?.min(superblock.blocks_count);
    let count = end.saturating_sub(first);
    match all.last_mut() {
        Some(last) if last.what == what && last.end() == first => last.count = last.count.saturating_add(count),
        _ if count > 0 => all.push(Metadata { first, count, what }),
        _ => {}
    }
    Ok(())
}

fn disjoint(superblock: &SuperBlock, sorted: Vec<Metadata>) -> Result<Vec<Metadata>, ParseError> {
    let mut merged: Vec<Metadata> = Vec::with_capacity(sorted.len());
    for next in sorted {
        match merged.last_mut() {
            Some(last) if next.first < last.end() => {
                let at = superblock.block.to_bytes(next.first)?;
                let found = format!("the {} as well", last.what);
                return Err(ParseError::corrupt(
                    at,
                    Mismatch::new(format!("blocks of the {}", next.what), "nothing else", found),
                ));
            }
            Some(last) if next.first == last.end() && next.what == last.what => {
                last.count = last.count.saturating_add(next.count);
            }
            _ => merged.push(next),
        }
    }
    Ok(merged)
}

/// The parts of `sorted` that touch the blocks `first..end`.
pub fn touching(sorted: &[Metadata], first: u64, end: u64) -> impl Iterator<Item = &Metadata> {
    let from = sorted.partition_point(|metadata| metadata.end() <= first);
    sorted.iter().skip(from).take_while(move |metadata| metadata.first < end)
}
