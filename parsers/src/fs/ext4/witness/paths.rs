//! The path of an inode, looked up only when a clash must name it: a search through the directories from the root.
//!
//! Source: Linux `Documentation/filesystems/ext4/directory.rst`. Hash trees need no care: their inner blocks look like
//! empty directory blocks.

use super::geometry::{u16_at, u32_at};
use super::inodes::{Inode, Part, Walker};
use crate::error::ParseError;
use crate::text::printable_name;
use crate::units::{ByteRange, Overflow};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Directories that are searched at most, and bytes of one extent that are read at once.
const MOST_DIRECTORIES: usize = 100_000;
const REQUEST: u64 = 1 << 20;
const DIRECTORY: u16 = 4;

/// The owner of blocks, written as a path where one is found.
pub struct Owner<'a> {
    pub walker: &'a Walker<'a>,
    pub number: u32,
}

impl std::fmt::Display for Owner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reserved = match self.number {
            1 => Some("the list of bad blocks"),
            2 => Some("the root directory"),
            3 | 4 => Some("a quota file"),
            7 => Some("the blocks reserved for growth"),
            8 => Some("the journal"),
            _ => None,
        };
        match (reserved, search(self.walker, self.number)) {
            (Some(name), _) => write!(f, "{name} (inode {})", self.number),
            (None, Ok(Some(path))) => write!(f, "{path} (inode {})", self.number),
            (None, _) => write!(f, "inode {}", self.number),
        }
    }
}

/// One name in a directory.
struct Entry {
    inode: u32,
    name: String,
}

fn search(walker: &Walker<'_>, wanted: u32) -> Result<Option<String>, ParseError> {
    let mut seen = HashSet::from([2]);
    let mut waiting = vec![(2, String::new())];
    while let Some((number, path)) = waiting.pop() {
        let Some(directory) = walker.inode(number)?.filter(|inode| inode.kind() == Ok(DIRECTORY)) else {
            continue;
        };
        let mut found = None;
        entries(walker, &directory, &mut |entry| {
            let below = format!("{path}/{}", entry.name);
            if entry.inode == wanted {
                found = Some(below);
                return ControlFlow::Break(());
            }
            if seen.len() < MOST_DIRECTORIES && seen.insert(entry.inode) {
                waiting.push((entry.inode, below));
            }
            ControlFlow::Continue(())
        })?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn entries(
    walker: &Walker<'_>,
    directory: &Inode,
    visit: &mut dyn FnMut(Entry) -> ControlFlow<()>,
) -> Result<(), ParseError> {
    walker.parts(directory, &mut |part, range| {
        let mut at = range.start();
        while part == Part::Data && at < range.end() {
            let end = at.saturating_add(REQUEST).min(range.end());
            let bytes = ByteRange::new(at, end).map(|piece| walker.bytes(piece)).transpose()?.unwrap_or_default();
            for block in bytes.chunks(usize::try_from(walker.geometry.block).unwrap_or(1024).max(1)) {
                if block_entries(block, visit)?.is_break() {
                    return Ok(());
                }
            }
            at = end;
        }
        Ok(())
    })
}

fn block_entries(block: &[u8], visit: &mut dyn FnMut(Entry) -> ControlFlow<()>) -> Result<ControlFlow<()>, ParseError> {
    let mut rest = block;
    while rest.len() >= 8 {
        let (inode, length) = (u32_at(rest, 0)?, usize::from(u16_at(rest, 4)?));
        // A block of 64 KiB does not fit into the field: 0 and 65535 mean all of it.
        let length = if length == 0 || length == 65535 { rest.len() } else { length };
        let name_end = usize::from(rest.get(6).copied().unwrap_or(0)).saturating_add(8);
        let name = rest.get(8..name_end).ok_or(Overflow("a directory entry"))?;
        if inode != 0 && name != b"." && name != b".." && visit(Entry { inode, name: printable_name(name) }).is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
        rest = rest.get(length.max(8)..).unwrap_or_default();
    }
    Ok(ControlFlow::Continue(()))
}
