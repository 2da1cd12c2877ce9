//! Second readings: who owns what, file by file.
//!
//! [`InodeWalk`] is the complete one: every inode that the inode bitmaps call used, its extent tree or block map with
//! all index blocks, its attribute block, and what each group needs for itself. It shares no code with the reader of
//! the block bitmaps: it has its own view of the superblock, the descriptors and the inodes. [`Crate`] is a partial
//! one, by other authors.

mod geometry;
mod inodes;
mod paths;
mod reader_crate;

use crate::error::ParseError;
use crate::source::Source;
use crate::units::ByteRange;
use crate::witness::{Ledger, Witness};
use geometry::Geometry;
use inodes::{Inode, Part, Walker};
use paths::Owner;
pub use reader_crate::Crate;

/// Every inode, by own code.
pub struct InodeWalk;

impl Witness for InodeWalk {
    fn name(&self) -> &'static str {
        "ext4-walk"
    }

    fn walk(&self, source: &dyn Source, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        let walker = Walker::new(source, Geometry::read(source)?);
        for group in 0..walker.geometry.groups {
            claim_group(&walker, group, ledger)?;
            walker.used_inodes(group, &mut |inode| {
                claim_inode(&walker, inode, ledger)?;
                Ok(!ledger.has_clash())
            })?;
            if ledger.has_clash() {
                break;
            }
        }
        Ok(())
    }
}

fn claim_group(walker: &Walker<'_>, group: u64, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
    let places = walker.places(group)?;
    ledger.visit();
    for (what, first, count) in [
        ("the inode bitmap", places.inode_bitmap, 1),
        ("the block bitmap", places.block_bitmap, 1),
        ("the inode table", places.inode_table, walker.geometry.table_blocks),
    ] {
        ledger.claim(walker.geometry.bytes(first, count)?, &format_args!("{what} of group {group}"));
    }
    Ok(())
}

fn claim_inode(walker: &Walker<'_>, inode: &Inode, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
    let owner = Owner { walker, number: inode.number };
    ledger.visit();
    walker.parts(inode, &mut |_: Part, range: ByteRange| {
        ledger.claim(range, &owner);
        Ok(())
    })
}
