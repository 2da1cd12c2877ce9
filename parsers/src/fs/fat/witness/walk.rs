//! The complete witness: every directory, every chain, cluster by cluster.
//!
//! Each cluster may have one owner; a second one (a cycle, a cross-link) is damage. A chain must be as long as the
//! file's size says: where it is longer or shorter, the cluster size may be another than the boot sector states. What cannot be understood is an error, never skipped, because here nothing else would notice.

use super::directory::{Entry, Slot, entry, name};
use super::shape::{Link, Shape};
use crate::error::ParseError;
use crate::fs::cluster_walk::{Owned, Path, Tree, broken};
use crate::pages::Pages;
use crate::source::Source;
use crate::units::{ByteRange, to_usize};
use crate::witness::{Ledger, Witness};

/// Own reading of every file's chain.
pub struct FatWalk;

/// Directories below each other. The format's path limit of 260 characters allows 130.
const MAX_DEPTH: usize = 512;
/// Bytes of one directory: the format allows 65536 slots of 32 bytes; twice that is still read.
const MAX_DIRECTORY: u64 = 4 << 20;
/// Bytes read at once.
const PIECE: u64 = 64 << 10;

impl Witness for FatWalk {
    fn name(&self) -> &'static str {
        "fat-walk"
    }

    fn walk(&self, source: &dyn Source, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        let pages = Pages::new(source);
        let shape = Shape::read(&pages)?;
        let owned = Owned::new(shape.last)?;
        let mut walk = Walk { source: &pages, shape, owned, tree: Tree::default(), pending: Vec::new() };
        walk.root(ledger)?;
        while let Some(directory) = walk.pending.pop() {
            if ledger.has_clash() {
                break;
            }
            walk.directory(&directory, ledger)?;
        }
        walk.check_not_lost()
    }
}

/// A directory that was found and not yet read.
struct Pending {
    node: Option<usize>,
    first: u32,
    /// Where its entry is.
    at: u64,
}

struct Walk<'a> {
    source: &'a dyn Source,
    shape: Shape,
    owned: Owned,
    tree: Tree,
    pending: Vec<Pending>,
}

/// The name of the entry in a slot, put together only when someone wants to see it.
struct Name<'a> {
    slot: &'a Slot,
    long: &'a [Slot],
}

impl std::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&name(self.slot, self.long))
    }
}

/// Follows a chain, takes its clusters and hands over its contiguous parts. Returns its length in bytes.
fn follow(
    source: &dyn Source,
    shape: &Shape,
    owned: &mut Owned,
    first: u32,
    part: &mut dyn FnMut(ByteRange),
) -> Result<u64, String> {
    let mut cluster = first;
    let mut open: Option<ByteRange> = None;
    let mut len: u64 = 0;
    loop {
        let bytes = shape.bytes(cluster).ok_or(format!("its first cluster {first} does not exist"))?;
        if !owned.take(cluster) {
            open.map(&mut *part);
            return Err(format!("its chain runs into cluster {cluster}, which already has an owner"));
        }
        len = len.saturating_add(shape.cluster_len);
        open = match open {
            Some(run) if run.end() == bytes.start() => ByteRange::new(run.start(), bytes.end()),
            done => {
                done.map(&mut *part);
                Some(bytes)
            }
        };
        let link = shape.link(source, cluster).map_err(|e| e.to_string())?;
        if !matches!(link, Link::Next(_)) {
            open.take().map(&mut *part);
        }
        match link {
            Link::Next(next) => cluster = next,
            Link::End => return Ok(len),
            Link::Broken(what) => return Err(format!("{what} (cluster {cluster})")),
        }
    }
}

impl Walk<'_> {
    fn root(&mut self, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        let root = Pending { node: None, first: self.shape.root_cluster.unwrap_or(0), at: 0x2C };
        if self.shape.root_cluster.is_some() {
            return self.directory(&root, ledger);
        }
        ledger.visit();
        let (at, len) = self.shape.root_area;
        let area = ByteRange::with_len(at, len);
        if let Some(area) = area {
            ledger.claim(area, &"the root directory");
        }
        self.slots(&root, &Vec::from_iter(area), ledger)
    }

    /// A fixed root directory has no place in the table that would give away a wrong number in the boot sector:
    /// read in the wrong place it looks empty. Then clusters are left that no one owns.
    fn check_not_lost(&self) -> Result<(), ParseError> {
        let (at, _) = self.shape.root_area;
        if self.shape.root_cluster.is_some() || self.owned.any() {
            return Ok(());
        }
        for cluster in 2..=self.shape.last {
            if !matches!(self.shape.link(self.source, cluster)?, Link::Broken(_)) {
                return Err(broken(
                    at,
                    &"the root directory",
                    format!("names no file, but cluster {cluster} is in use"),
                ));
            }
        }
        Ok(())
    }

    fn directory(&mut self, directory: &Pending, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        ledger.visit();
        let path = self.tree.path(directory.node, None);
        let mut parts = Vec::new();
        let mut claim = |part| {
            ledger.claim(part, &path);
            parts.push(part);
        };
        let len = follow(self.source, &self.shape, &mut self.owned, directory.first, &mut claim)
            .map_err(|what| broken(directory.at, &path, what))?;
        if len > MAX_DIRECTORY {
            return Err(broken(directory.at, &path, format!("a directory of {len} bytes is longer than possible")));
        }
        self.slots(directory, &parts, ledger)
    }

    /// Reads a directory's slots up to its end mark.
    fn slots(&mut self, directory: &Pending, parts: &[ByteRange], ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        let mut reading = Reading { index: 0, long: Vec::new() };
        for part in parts {
            let mut at = part.start();
            while at < part.end() {
                let len = PIECE.min(part.end().saturating_sub(at));
                let mut bytes = vec![0; to_usize(len, "a piece of a directory")?];
                self.source.read_at(at, &mut bytes).map_err(|e| ParseError::io(at, e))?;
                for (slot, offset) in bytes.as_chunks().0.iter().zip((0_u64..).step_by(32)) {
                    if !self.slot(directory, &mut reading, slot, at.saturating_add(offset), ledger)? {
                        return Ok(());
                    }
                }
                at = at.saturating_add(len);
            }
        }
        Ok(())
    }

    /// Takes up one slot at byte `at`. False at the end of the directory.
    fn slot(
        &mut self,
        directory: &Pending,
        reading: &mut Reading,
        slot: &Slot,
        at: u64,
        ledger: &mut Ledger<'_>,
    ) -> Result<bool, ParseError> {
        let found = entry(slot, self.shape.root_cluster.is_some());
        let index = reading.index;
        reading.index = index.saturating_add(1);
        self.check_dots(directory, index, &found, at)?;
        let long = match found {
            Entry::End => return Ok(false),
            Entry::LongName if reading.long.len() < 20 => {
                reading.long.push(*slot);
                return Ok(true);
            }
            _ => std::mem::take(&mut reading.long),
        };
        let leaf = Name { slot, long: &long };
        let path = self.tree.path(directory.node, Some(&leaf));
        match found {
            Entry::Garbage(what) => Err(broken(at, &path, what)),
            Entry::Directory(first) => {
                let name = name(slot, &long);
                self.found_directory(directory, name, first, at).map(|()| true)
            }
            Entry::File { first, size } => {
                ledger.visit();
                file(self.source, &self.shape, &mut self.owned, (first, size), &path, ledger)
                    .map_err(|what| broken(at, &path, what))?;
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    /// A directory begins with `.` and `..`, and `.` knows its cluster. A cluster that was lost or overwritten does
    /// not, and must not pass for an empty directory.
    fn check_dots(&self, directory: &Pending, index: u64, found: &Entry, at: u64) -> Result<(), ParseError> {
        let path = self.tree.path(directory.node, None);
        let good = match (directory.node, index) {
            (None, _) => !matches!(found, Entry::Own(_) | Entry::Parent),
            (Some(_), 0) => matches!(found, Entry::Own(cluster) if *cluster == directory.first),
            (Some(_), 1) => matches!(found, Entry::Parent),
            _ => !matches!(found, Entry::Own(_) | Entry::Parent),
        };
        if good {
            return Ok(());
        }
        Err(broken(at, &path, "its entries . and .. are not those of this directory"))
    }

    fn found_directory(&mut self, parent: &Pending, name: String, first: u32, at: u64) -> Result<(), ParseError> {
        let node = self.tree.add(parent.node, name, MAX_DEPTH);
        let node = node.ok_or_else(|| {
            broken(at, &self.tree.path(parent.node, None), format!("directories are nested deeper than {MAX_DEPTH}"))
        })?;
        self.pending.push(Pending { node: Some(node), first, at });
        Ok(())
    }
}

/// Where the reading of a directory stands.
struct Reading {
    /// Slots before this one.
    index: u64,
    /// The parts of a long name that wait for their entry.
    long: Vec<Slot>,
}

/// Claims a file's chain, which must have just the clusters that the file's size needs. An empty file has none.
fn file(
    source: &dyn Source,
    shape: &Shape,
    owned: &mut Owned,
    (first, size): (u32, u32),
    path: &Path<'_>,
    ledger: &mut Ledger<'_>,
) -> Result<(), String> {
    let len = match first {
        0 => 0,
        _ => follow(source, shape, owned, first, &mut |part| ledger.claim(part, path))?,
    };
    if len < u64::from(size) {
        return Err(format!("its {size} bytes do not fit into the {len} bytes of its chain"));
    }
    let needed = u64::from(size).checked_next_multiple_of(shape.cluster_len);
    if needed != Some(len) {
        return Err(format!("its chain of {len} bytes goes on behind its {size} bytes"));
    }
    Ok(())
}
