//! Second readings: who owns what, file by file.
//!
//! [`InodeWalk`] is the complete one: each group's inode tree, every inode that it calls used, both forks of each with all
//! their tree blocks, and what each group needs for itself. [`OwnerWalk`] reads the tree of owners (rmapbt), where a
//! volume has one: it names an owner for every used block. Neither shares code with the reader of the free extents: they
//! have their own view of the superblock, the headers and the trees.

mod forks;
mod geometry;
mod groups;
mod inodes;
mod paths;

use crate::error::ParseError;
use crate::pages::Pages;
use crate::source::Source;
use crate::units::ByteRange;
use crate::witness::{Ledger, Witness};
use forks::Part;
use geometry::Geometry;
use groups::Walker;
use inodes::Inode;
use paths::Owner;

/// Every inode, by own code.
pub struct InodeWalk;

impl Witness for InodeWalk {
    fn name(&self) -> &'static str {
        "xfs-walk"
    }

    fn walk(&self, source: &dyn Source, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        let source = &Pages::new(source);
        let walker = Walker::new(source, Geometry::read(source)?);
        if let Some(log) = walker.geometry.log {
            ledger.visit();
            ledger.claim(log, &"the log");
        }
        for group in 0..walker.geometry.groups {
            ledger.visit();
            walker.own_blocks(group, &mut |what: &str, range: ByteRange| {
                ledger.claim(range, &format_args!("{what} of group {group}"));
            })?;
            walker.inodes(group, &mut |inode| {
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

fn claim_inode(walker: &Walker<'_>, inode: &Inode, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
    let owner = Owner { walker, number: inode.number };
    ledger.visit();
    forks::parts(walker, inode, &mut |_: Part, range: ByteRange| {
        ledger.claim(range, &owner);
        Ok(())
    })
}

/// The tree of owners, where there is one.
pub struct OwnerWalk;

impl Witness for OwnerWalk {
    fn name(&self) -> &'static str {
        "xfs-owners"
    }

    fn walk(&self, source: &dyn Source, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        let source = &Pages::new(source);
        let walker = Walker::new(source, Geometry::read(source)?);
        if !walker.geometry.has_owners {
            return Err(ParseError::unsupported(0, "this volume has no tree of owners (feature rmapbt)"));
        }
        for group in 0..walker.geometry.groups {
            walker.owners(group, &mut |owner, range| {
                ledger.visit();
                let inode = Owner { walker: &walker, number: owner };
                match groups::special_owner(owner) {
                    Some(what) => ledger.claim(range, &format_args!("{what} of group {group}")),
                    None => ledger.claim(range, &inode),
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
