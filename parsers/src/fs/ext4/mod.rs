//! ext2, ext3 and ext4: one bitmap of blocks for each group of blocks.
//!
//! ```text
//! byte 0      1024          block 1 (or 2)                                       blocks_count
//! | boot      | superblock  | group descriptors | reserved | ... group 0 ... | group 1 ... | last group, cut |
//!
//! descriptor -> block bitmap (1 block), inode bitmap (1 block), inode table; with flex_bg anywhere on the volume
//! ```
//! The reading goes: [`superblock`] (numbers that fit together), [`features`] (what is understood), [`state`] (clean or
//! not), [`groups`] (descriptors), [`journal`] (nothing to replay), [`layout`] (metadata that the geometry determines),
//! [`free`] (bitmaps). The backup superblocks are never used: they are stale by design.
//!
//! Sources: Linux `Documentation/filesystems/ext4/`, `fs/ext4`, `fs/jbd2`; e2fsprogs `lib/ext2fs`, `lib/e2p`.

mod checksum;
mod features;
mod free;
mod groups;
mod inode;
mod journal;
mod layout;
mod ondisk;
mod state;
mod superblock;
#[cfg(test)]
mod tests;
mod witness;

use crate::error::ParseError;
use crate::foreign::has_bytes;
use crate::free_map::FreeMap;
use crate::fs::{Format, uuid_text};
use crate::source::Source;
use crate::volume::{Finding, Volume};
use crate::witness::Witness;
use superblock::SuperBlock;

/// What can be wrong with, or unknown about, a volume of this family.
#[derive(Debug, thiserror::Error)]
pub enum Ext4Error {
    #[error("{set} features that coldtrim does not understand: {names}")]
    Features { set: features::Set, names: String },
    #[error("the superblock says revision 0, which has no feature bits, and has feature bits")]
    FeaturesInRevisionZero,
    #[error("superblock of revision {0}; 0 and 1 are known")]
    Revision(u32),
    #[error("metadata checksums of type {0}; only 1 (crc32c) is known")]
    ChecksumType(u8),
    #[error("{0} block groups are more than this program reads")]
    Groups(u64),
    #[error("group {group} is marked as never written, although the volume has no descriptor checksums")]
    UninitWithoutChecksum { group: u64 },
    #[error("unknown features of the journal: incompatible {incompat:#x}, read-only compatible {ro_compat:#x}")]
    JournalFeatures { incompat: u32, ro_compat: u32 },
    #[error("the volume has a journal, but says neither which inode nor which device it is")]
    JournalNowhere,
    #[error("the volume names both inode {inode} and another device as its journal")]
    JournalTwice { inode: u32 },
    #[error("the volume names a journal, but its feature bits say that it has none")]
    JournalUndeclared,
    #[error("group {group} has {found} free clusters in its bitmap, its descriptor says {declared}")]
    FreeCount { group: u64, declared: u64, found: u64 },
}

/// The row in [`FORMATS`](crate::fs::FORMATS).
pub struct Ext4;

const CHECKER: &str = "e2fsck -f DEVICE";

impl Format for Ext4 {
    fn name(&self) -> &'static str {
        "ext4"
    }

    fn variants(&self) -> &'static [&'static str] {
        &["ext2", "ext3", "ext4"]
    }

    fn probe(&self, source: &dyn Source) -> Result<bool, ParseError> {
        has_bytes(source, ondisk::SUPERBLOCK_AT.saturating_add(0x38), &ondisk::MAGIC.to_le_bytes())
    }

    fn read(&self, source: &dyn Source, companions: &[&dyn Source]) -> Result<Volume, ParseError> {
        let raw = superblock::read_raw(source)?;
        let features = superblock::features(&raw)?;
        if features.has_incompat(features::incompat::JOURNAL_DEV) {
            return journal::external_volume(raw, features);
        }
        let superblock = SuperBlock::parse(raw)?;
        let mut findings = state::findings(&superblock);
        let size = superblock.block.to_bytes(superblock.blocks_count)?;
        // A volume that is larger than its device is refused by the caller; one that is in use is not worth reading.
        let free = if size > source.len() || !findings.is_empty() {
            FreeMap::nothing(superblock.grid()?)
        } else {
            read_free(source, &superblock, companions, &mut findings)?
        };
        Ok(Volume {
            format: superblock.features.format_name().to_owned(),
            label: superblock.label.clone(),
            uuid: uuid_text(&superblock.uuid),
            size,
            block_size: superblock.block.bytes().saturating_mul(superblock.cluster_ratio),
            free,
            needs_witness: false,
            findings,
        })
    }

    fn checker(&self) -> &'static str {
        CHECKER
    }

    fn witnesses(&self) -> &'static [&'static dyn Witness] {
        &[&witness::InodeWalk, &witness::Crate]
    }
}

/// Journal, multi-mount protection and descriptors, then the bitmaps unless one of those spoke against it.
fn read_free(
    source: &dyn Source,
    superblock: &SuperBlock,
    companions: &[&dyn Source],
    findings: &mut Vec<Finding>,
) -> Result<FreeMap, ParseError> {
    let groups = groups::read(source, superblock)?;
    let metadata = layout::metadata(superblock, &groups)?;
    findings.extend(state::multi_mount_protection(source, superblock)?);
    let mut claimed = journal::read(source, superblock, &groups, companions, findings)?;
    if !findings.is_empty() {
        return Ok(FreeMap::nothing(superblock.grid()?));
    }
    claimed.extend(inode::blocks(source, superblock, &groups, inode::ROOT, "root directory")?);
    let free = free::map(source, superblock, &groups, &metadata, &claimed)?;
    findings.extend(free_count_warning(superblock, &free));
    Ok(free)
}

/// The sum in the superblock may lag behind the descriptors, which were compared exactly.
fn free_count_warning(superblock: &SuperBlock, free: &FreeMap) -> Option<Finding> {
    let found = superblock.block.whole_blocks(free.bytes());
    // With bigalloc the sum counts the last cluster as whole even if the end of the volume cuts it.
    let whole = superblock.free_blocks.abs_diff(found) < superblock.cluster_ratio;
    (!whole).then(|| {
        Finding::warning(format!(
            "the superblock says {} free blocks, the bitmaps and all group descriptors say {found}",
            superblock.free_blocks
        ))
    })
}
