//! What the witnesses of FAT and exFAT have in common: which clusters have an owner, and the paths of directories.

use crate::error::ParseError;
use crate::units::to_usize;
use std::fmt::Display;

/// A bit a cluster: does someone own it?
pub(super) struct Owned(Vec<u64>);

impl Owned {
    /// No cluster up to number `last` has an owner.
    pub fn new(last: u32) -> Result<Self, ParseError> {
        let words = to_usize(u64::from(last / 64).saturating_add(1), "the number of clusters")?;
        Ok(Self(vec![0; words]))
    }

    /// True when some cluster has an owner.
    pub fn any(&self) -> bool {
        self.0.iter().any(|word| *word != 0)
    }

    /// Takes a cluster; false when it had an owner before, or does not exist.
    pub fn take(&mut self, cluster: u32) -> bool {
        let word = usize::try_from(cluster / 64).ok().and_then(|index| self.0.get_mut(index));
        let bit = 1_u64.wrapping_shl(cluster % 64);
        word.is_some_and(|word| {
            let fresh = *word & bit == 0;
            *word |= bit;
            fresh
        })
    }
}

/// The directories that were found, each with its name and its parent; the root directory has no number.
#[derive(Default)]
pub(super) struct Tree(Vec<Node>);

struct Node {
    parent: Option<usize>,
    name: String,
    depth: usize,
}

impl Tree {
    /// Adds a directory and gives its number; none when it is nested deeper than `max_depth`.
    pub fn add(&mut self, parent: Option<usize>, name: String, max_depth: usize) -> Option<usize> {
        let depth = parent.and_then(|index| self.0.get(index)).map_or(1, |node| node.depth.saturating_add(1));
        (depth <= max_depth).then(|| {
            self.0.push(Node { parent, name, depth });
            self.0.len().saturating_sub(1)
        })
    }

    /// The path of a directory, or of something in it.
    pub fn path<'a>(&'a self, node: Option<usize>, leaf: Option<&'a dyn Display>) -> Path<'a> {
        Path { tree: self, node, leaf }
    }
}

/// A path that is put together only when someone wants to see it.
pub(super) struct Path<'a> {
    tree: &'a Tree,
    node: Option<usize>,
    leaf: Option<&'a dyn Display>,
}

impl Display for Path<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut names = Vec::new();
        let mut next = self.node;
        while let Some(node) = next.and_then(|index| self.tree.0.get(index)) {
            names.push(node.name.as_str());
            next = node.parent;
        }
        for name in names.iter().rev() {
            write!(f, "/{name}")?;
        }
        match self.leaf {
            Some(leaf) => write!(f, "/{leaf}"),
            None if names.is_empty() => f.write_str("the root directory"),
            None => Ok(()),
        }
    }
}

/// Something in a directory or chain that cannot be.
#[derive(Debug, thiserror::Error)]
#[error("{owner}: {what}")]
struct Broken {
    owner: String,
    what: String,
}

/// The error that `owner`, whose entry is at byte `at`, cannot be as it is.
pub(super) fn broken(at: u64, owner: &dyn Display, what: impl Into<String>) -> ParseError {
    ParseError::corrupt(at, Broken { owner: owner.to_string(), what: what.into() })
}
