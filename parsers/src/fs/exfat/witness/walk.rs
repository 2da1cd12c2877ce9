//! The complete witness: every directory, every file's clusters.
//!
//! Each cluster may have one owner; a second one (a cycle, a cross-link) is damage. Sets of directory entries carry a
//! checksum, which is checked. What cannot be understood is an error, never skipped.

use super::entry_set::{Allocation, Assembler, EntrySet, Step};
use super::shape::{Link, Shape};
use crate::error::ParseError;
use crate::fs::cluster_walk::{Owned, Tree, broken};
use crate::pages::Pages;
use crate::source::Source;
use crate::units::{ByteRange, to_usize};
use crate::witness::{Ledger, Witness};
use std::fmt::Display;

/// Own reading of every file's clusters.
pub struct ExfatWalk;

/// Directories below each other.
const MAX_DEPTH: usize = 1024;
/// The specification's limit of a directory, in bytes.
const MAX_DIRECTORY: u64 = 256 << 20;
/// Bytes read at once.
const PIECE: u64 = 64 << 10;

impl Witness for ExfatWalk {
    fn name(&self) -> &'static str {
        "exfat-walk"
    }

    fn walk(&self, source: &dyn Source, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        let pages = Pages::new(source);
        let shape = Shape::read(&pages)?;
        let clusters = Clusters { source: &pages, owned: Owned::new(shape.last)?, shape };
        let root = Allocation { first: clusters.shape.root, len: 0, contiguous: false };
        let root = Pending { node: None, place: root, at: 0x60 };
        let mut walk = Walk { clusters, tree: Tree::default(), pending: vec![root] };
        while let Some(directory) = walk.pending.pop() {
            if ledger.has_clash() {
                break;
            }
            walk.directory(&directory, ledger)?;
        }
        Ok(())
    }
}

/// A directory that was found and not yet read.
struct Pending {
    node: Option<usize>,
    place: Allocation,
    /// Where its entry is.
    at: u64,
}

struct Walk<'a> {
    clusters: Clusters<'a>,
    tree: Tree,
    pending: Vec<Pending>,
}

/// The clusters and who has taken them.
struct Clusters<'a> {
    source: &'a dyn Source,
    shape: Shape,
    owned: Owned,
}

impl Clusters<'_> {
    /// Takes all clusters of something and hands over its contiguous parts. Returns its length in bytes.
    fn follow(&mut self, place: Allocation, part: &mut dyn FnMut(ByteRange)) -> Result<u64, String> {
        let needed = place.len.div_ceil(self.shape.cluster_len);
        if place.first == 0 && needed == 0 {
            return Ok(0);
        }
        let mut open: Option<ByteRange> = None;
        let result = self.steps(place, needed, &mut |bytes: ByteRange| {
            open = match open {
                Some(run) if run.end() == bytes.start() => ByteRange::new(run.start(), bytes.end()),
                done => {
                    done.map(&mut *part);
                    Some(bytes)
                }
            };
        });
        open.map(part);
        let count = result?;
        if count < needed {
            return Err(format!("its {} bytes need {needed} clusters, its chain has {count}", place.len));
        }
        // The root directory has no length of its own.
        if place.len > 0 && count > needed {
            return Err(format!("its {} bytes need {needed} clusters, its chain goes on: it has {count}", place.len));
        }
        Ok(count.saturating_mul(self.shape.cluster_len))
    }

    /// One cluster after the other. Returns how many there were.
    fn steps(&mut self, place: Allocation, needed: u64, each: &mut dyn FnMut(ByteRange)) -> Result<u64, String> {
        let mut cluster = place.first;
        let mut count: u64 = 0;
        while !place.contiguous || count < needed {
            let bytes = self.shape.bytes(cluster).ok_or(format!("its cluster {cluster} does not exist"))?;
            if !self.owned.take(cluster) {
                return Err(format!("its cluster {cluster} already has an owner"));
            }
            each(bytes);
            count = count.saturating_add(1);
            if place.contiguous {
                cluster = cluster.saturating_add(1);
                continue;
            }
            match self.shape.link(self.source, cluster).map_err(|e| e.to_string())? {
                Link::Next(next) => cluster = next,
                Link::End => break,
                Link::Broken => return Err(format!("its chain breaks off at cluster {cluster}")),
            }
        }
        Ok(count)
    }
}

impl Walk<'_> {
    fn directory(&mut self, directory: &Pending, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        ledger.visit();
        let path = self.tree.path(directory.node, None);
        let mut parts = Vec::new();
        let mut claim = |part| {
            ledger.claim(part, &path);
            parts.push(part);
        };
        let len =
            self.clusters.follow(directory.place, &mut claim).map_err(|what| broken(directory.at, &path, what))?;
        // The root directory has no entry that states its length: it is as long as its chain.
        let len = if directory.node.is_none() { len } else { directory.place.len };
        if len > MAX_DIRECTORY {
            return Err(broken(directory.at, &path, format!("a directory of {len} bytes is longer than possible")));
        }
        self.entries(directory, &parts, len, ledger)
    }

    /// Reads a directory's entries up to its end mark or its length.
    fn entries(
        &mut self,
        directory: &Pending,
        parts: &[ByteRange],
        len: u64,
        ledger: &mut Ledger<'_>,
    ) -> Result<(), ParseError> {
        let mut assembler = Assembler::default();
        let mut left = len;
        for part in parts {
            let mut at = part.start();
            while at < part.end() && left > 0 {
                let count = PIECE.min(part.end().saturating_sub(at)).min(left);
                let mut bytes = vec![0; to_usize(count, "a piece of a directory")?];
                self.clusters.source.read_at(at, &mut bytes).map_err(|e| ParseError::io(at, e))?;
                for (slot, offset) in bytes.as_chunks().0.iter().zip((0_u64..).step_by(32)) {
                    match assembler.take(slot) {
                        Step::More => {}
                        Step::End => return Ok(()),
                        Step::Complete(set) => self.found(directory, set, at.saturating_add(offset), ledger)?,
                        Step::Broken(what) => {
                            let path = self.tree.path(directory.node, None);
                            return Err(broken(at.saturating_add(offset), &path, what));
                        }
                    }
                }
                at = at.saturating_add(count);
                left = left.saturating_sub(count);
            }
        }
        if assembler.is_between_sets() {
            return Ok(());
        }
        let path = self.tree.path(directory.node, None);
        Err(broken(directory.at, &path, "it ends within a set of entries"))
    }

    /// Takes up a complete set whose last entry is at byte `at`.
    fn found(
        &mut self,
        directory: &Pending,
        set: EntrySet,
        at: u64,
        ledger: &mut Ledger<'_>,
    ) -> Result<(), ParseError> {
        let mut places = set.allocations.into_iter();
        if set.is_directory
            && let Some(place) = places.next()
        {
            let node = self.tree.add(directory.node, set.name.clone(), MAX_DEPTH);
            let deep = || broken(at, &self.tree.path(directory.node, None), "directories are nested too deep");
            let node = node.ok_or_else(deep)?;
            self.pending.push(Pending { node: Some(node), place, at });
        } else {
            ledger.visit();
        }
        let leaf: &dyn Display = &set.name;
        let path = self.tree.path(directory.node, Some(leaf));
        for place in places {
            self.clusters
                .follow(place, &mut |part| ledger.claim(part, &path))
                .map_err(|what| broken(at, &path, what))?;
        }
        Ok(())
    }
}
