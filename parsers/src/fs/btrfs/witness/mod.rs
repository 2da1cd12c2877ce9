//! Who owns which bytes, read from the trees of files. Nothing here is shared with the reading of the allocation: own
//! superblock, own chunks, own trees, and neither extent tree nor device extents are looked at for what they say.
//!
//! The blocks of every tree are owned too. What snapshots share is read once. Trees that are being deleted are left out,
//! because a part of what they name may be free already, and so are the trees of a running relocation.

mod volume;

use crate::error::ParseError;
use crate::source::Source;
use crate::units::ByteRange;
use crate::witness::{Ledger, Witness};
use std::collections::HashSet;
use std::fmt;
use volume::{Item, Volume};

/// The witness.
pub(super) struct BtrfsWalk;

const ROOT_TREE: u64 = 1;
const CHUNK_TREE: u64 = 3;
/// The tree of data that is being relocated, which has an ordinary inode.
const DATA_RELOCATION: u64 = u64::MAX - 8;

const INODE_ITEM: u8 = 1;
const INODE_REF: u8 = 12;
const EXTENT_DATA: u8 = 108;
const ROOT_ITEM: u8 = 132;

impl Witness for BtrfsWalk {
    fn name(&self) -> &'static str {
        "btrfs-walk"
    }

    fn walk(&self, source: &dyn Source, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        let volume = Volume::open(source)?;
        let mut walk = Walk { volume: &volume, ledger, seen: HashSet::new(), trees: Vec::new(), file: File::default() };
        walk.tree(CHUNK_TREE, volume.chunk_root)?;
        walk.tree(ROOT_TREE, volume.root)?;
        while let Some((tree, block)) = walk.trees.pop() {
            walk.tree(tree, block)?;
        }
        Ok(())
    }
}

/// The file whose items are being read.
#[derive(Default, Clone)]
struct File {
    tree: u64,
    inode: u64,
    name: Option<String>,
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "the file '{name}' (inode {} of subvolume {})", self.inode, self.tree),
            None => write!(f, "inode {} of subvolume {}", self.inode, self.tree),
        }
    }
}

struct Walk<'a, 'l, 'm> {
    volume: &'a Volume<'a>,
    ledger: &'l mut Ledger<'m>,
    /// Blocks that were read.
    seen: HashSet<u64>,
    /// Trees whose roots were found and that are still to be read.
    trees: Vec<(u64, u64)>,
    file: File,
}

impl Walk<'_, '_, '_> {
    fn tree(&mut self, tree: u64, block: u64) -> Result<(), ParseError> {
        self.file = File { tree, ..File::default() };
        self.ledger.visit();
        self.block(tree, block, None)
    }

    /// `below` is the level of the parent.
    fn block(&mut self, tree: u64, at: u64, below: Option<u8>) -> Result<(), ParseError> {
        if self.ledger.has_clash() || !self.seen.insert(at) {
            return Ok(());
        }
        for copy in self.volume.copies(at, self.volume.node_size)? {
            self.ledger.claim(copy, &format_args!("a block of tree {tree}"));
        }
        let block = self.volume.block(at, below)?;
        for child in block.children()? {
            self.block(tree, child, Some(block.level))?;
        }
        for item in block.items()? {
            self.item(tree, &item)?;
        }
        Ok(())
    }

    fn item(&mut self, tree: u64, item: &Item<'_>) -> Result<(), ParseError> {
        match item.kind {
            INODE_ITEM => {
                self.ledger.visit();
                self.file = File { tree, inode: item.object, name: None };
            }
            INODE_REF if self.file.inode == item.object => self.file.name = item.reference_name(),
            EXTENT_DATA => {
                if self.file.inode != item.object {
                    self.file = File { tree, inode: item.object, name: None };
                }
                if let Some(range) = item.extent()? {
                    self.extent(range)?;
                }
            }
            ROOT_ITEM if tree == ROOT_TREE && is_walked(item.object) => {
                self.trees.extend(item.living_root()?.map(|b| (item.object, b)))
            }
            _ => {}
        }
        Ok(())
    }

    fn extent(&mut self, logical: ByteRange) -> Result<(), ParseError> {
        for copy in self.volume.copies(logical.start(), logical.len())? {
            self.ledger.claim(copy, &self.file);
        }
        Ok(())
    }
}

/// Trees of the filesystem itself and of subvolumes; what has a number from the end is temporary.
fn is_walked(tree: u64) -> bool {
    tree < u64::MAX - 255 || tree == DATA_RELOCATION
}
