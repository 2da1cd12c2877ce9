//! The path of an inode, looked up only when a clash must name it: a search through the directories from the root.
//!
//! A small directory lies in its inode; a larger one in blocks, each a head and then entries and gaps; blocks from 32 GiB
//! on are indexes without names. Source: "XFS Algorithms & Data Structures", chapter Directories.

use super::forks::{Part, parts};
use super::geometry::{u8_at, u16_at, u32_at, u64_at};
use super::groups::Walker;
use super::inodes::{Inode, Kept};
use crate::error::ParseError;
use crate::text::printable_name;
use crate::units::{Overflow, from_usize};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Directories that are searched at most, and bytes of one directory that are read.
const MOST_DIRECTORIES: usize = 100_000;
const MOST_BYTES: u64 = 64 << 20;
const DIRECTORY: u16 = 4;
/// Place in a directory from which there are only indexes.
const INDEXES: u64 = 32 << 30;

/// The owner of blocks, written as a path where one is found.
pub struct Owner<'a> {
    pub walker: &'a Walker<'a>,
    pub number: u64,
}

impl std::fmt::Display for Owner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.number == self.walker.geometry.root_inode {
            return write!(f, "the root directory (inode {})", self.number);
        }
        match search(self.walker, self.number) {
            Ok(Some(path)) => write!(f, "{path} (inode {})", self.number),
            _ => write!(f, "inode {}", self.number),
        }
    }
}

type Entry<'e> = dyn FnMut(u64, &[u8]) -> ControlFlow<()> + 'e;

fn search(walker: &Walker<'_>, wanted: u64) -> Result<Option<String>, ParseError> {
    let root = walker.geometry.root_inode;
    let mut seen = HashSet::from([root]);
    let mut waiting = vec![(root, String::new())];
    while let Some((number, path)) = waiting.pop() {
        let Ok(directory) = walker.inode(number) else { continue };
        if directory.kind() != Ok(DIRECTORY) {
            continue;
        }
        let mut found = None;
        entries(walker, &directory, &mut |inode, name| {
            let below = format!("{path}/{}", printable_name(name));
            if inode == wanted {
                found = Some(below);
                return ControlFlow::Break(());
            }
            if seen.len() < MOST_DIRECTORIES && seen.insert(inode) {
                waiting.push((inode, below));
            }
            ControlFlow::Continue(())
        })?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn entries(walker: &Walker<'_>, directory: &Inode, visit: &mut Entry<'_>) -> Result<(), ParseError> {
    let [data, _] = directory.forks()?;
    if data.kept == Kept::Inside {
        let _ = inside(walker, data.bytes, visit)?;
        return Ok(());
    }
    let mut bytes = Vec::new();
    parts(walker, directory, &mut |part, range| {
        let is_names = matches!(part, Part::Data(offset) if offset.saturating_mul(walker.geometry.block) < INDEXES);
        if is_names && from_usize(bytes.len()).saturating_add(range.len()) <= MOST_BYTES {
            bytes.extend(walker.read(range)?);
        }
        Ok(())
    })?;
    let size = usize::try_from(walker.geometry.directory_block).unwrap_or(4096).max(1);
    for block in bytes.chunks_exact(size) {
        if in_block(walker, block, visit)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// A directory inside its inode: numbers of 4 bytes, or of 8 if one of them needs it.
fn inside(walker: &Walker<'_>, bytes: &[u8], visit: &mut Entry<'_>) -> Result<ControlFlow<()>, ParseError> {
    let (count, is_wide) = (u8_at(bytes, 0)?, u8_at(bytes, 1)? != 0);
    let width: usize = if is_wide { 8 } else { 4 };
    let kind = usize::from(walker.geometry.has_file_types);
    let mut at = width.saturating_add(2);
    for _ in 0..count {
        let name_len = usize::from(u8_at(bytes, at)?);
        let name_at = at.saturating_add(3);
        let number_at = name_at.saturating_add(name_len).saturating_add(kind);
        let name = bytes.get(name_at..name_at.saturating_add(name_len)).ok_or(Overflow("a directory entry"))?;
        let number = if is_wide { u64_at(bytes, number_at)? } else { u32_at(bytes, number_at)?.into() };
        if visit(number, name).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        at = number_at.saturating_add(width);
    }
    Ok(ControlFlow::Continue(()))
}

fn in_block(walker: &Walker<'_>, block: &[u8], visit: &mut Entry<'_>) -> Result<ControlFlow<()>, ParseError> {
    const GAP: u16 = 0xFFFF;
    // A directory of one block ends with its index: entries of 8 bytes, then their number and that of dead ones.
    let has_index = block.starts_with(b"XD2B") || block.starts_with(b"XDB3");
    let index = match block.len().checked_sub(8).filter(|_| has_index) {
        Some(tail) => usize::try_from(u32_at(block, tail)?).unwrap_or(0).saturating_mul(8).saturating_add(8),
        None => 0,
    };
    let end = block.len().saturating_sub(index);
    let kind = usize::from(walker.geometry.has_file_types);
    let mut at: usize = if walker.geometry.is_v5 { 64 } else { 16 };
    while at.saturating_add(11) < end {
        if u16_at(block, at)? == GAP {
            at = at.saturating_add(usize::from(u16_at(block, at.saturating_add(2))?).max(8));
            continue;
        }
        let name_len = usize::from(u8_at(block, at.saturating_add(8))?);
        let name_at = at.saturating_add(9);
        let name = block.get(name_at..name_at.saturating_add(name_len)).ok_or(Overflow("a directory entry"))?;
        if name != b"." && name != b".." && visit(u64_at(block, at)?, name).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        at = name_at.saturating_add(name_len).saturating_add(kind).saturating_add(2).next_multiple_of(8);
    }
    Ok(ControlFlow::Continue(()))
}
