//! exFAT.
//!
//! ```text
//! | boot region | backup | FAT | gap | cluster 2 | cluster 3 | ...       | rest |
//! | 12 sectors  |        |           | grid of the free map, in clusters |
//!                                      root directory -> allocation bitmap, up-case table, files
//! ```
//!
//! One bit a cluster says whether it is available. The bitmap is a file that the root directory names; its clusters
//! are a chain in the FAT and need not be neighbours. Otherwise the FAT says nothing about allocation: files without
//! fragments leave old values in it. Only the boot region has a checksum, and nothing is journaled: the witness reads
//! every directory and is heard by default.
//!
//! Used, whatever the bits say: everything before the first and behind the last whole cluster, and bad clusters.

mod free;
mod ondisk;
mod root;
mod superblock;
#[cfg(test)]
mod tests;
mod witness;

use crate::error::ParseError;
use crate::free_map::DeclaredFree;
use crate::fs::Format;
use crate::source::Source;
use crate::volume::{Finding, Volume};
use crate::witness::Witness;
use superblock::Geometry;

/// The row in the table of formats.
pub struct Exfat;

/// What clears a dirty mark and mends a damaged volume.
const CHECKER: &str = "fsck.exfat DEVICE";

/// What only exFAT can have.
#[derive(Debug, thiserror::Error)]
enum ExfatError {
    #[error("exFAT revision {major}.{minor}; only 1.x is understood")]
    Revision { major: u16, minor: u16 },
    #[error("TexFAT (two FATs and bitmaps); only one of each is understood")]
    TexFat,
    #[error("unknown volume flags {0:#06x}")]
    Flags(u16),
    #[error("the boot sector and its backup at byte {at} differ, and both have a valid checksum")]
    BackupDiffers { at: u64 },
    #[error("the chain of {what} leads to cluster {cluster}, which does not exist or is bad")]
    Chain { what: &'static str, cluster: u32 },
    #[error("the chain of {what} has {found} clusters; {needed} are needed")]
    ShortChain { what: &'static str, needed: u64, found: u64 },
    #[error("the root directory must have exactly one entry for the {what}")]
    NotOnce { what: &'static str },
}

impl Format for Exfat {
    fn name(&self) -> &'static str {
        "exfat"
    }

    fn variants(&self) -> &'static [&'static str] {
        &["exfat"]
    }

    fn probe(&self, source: &dyn Source) -> Result<bool, ParseError> {
        superblock::probe(source)
    }

    fn read(&self, source: &dyn Source, _companions: &[&dyn Source]) -> Result<Volume, ParseError> {
        let geometry = superblock::read(source)?;
        let root = root::read(source, &geometry)?;
        let (map, free) = free::read(source, &geometry, &root)?;
        let mut findings = state_findings(&geometry);
        findings.extend(fill_remark(&geometry, free).map(Finding::warning));
        findings.extend(geometry.backup_remark.clone().map(Finding::warning));
        let [low, high] = [geometry.serial & 0xFFFF, geometry.serial >> 16];
        Ok(Volume {
            format: "exfat".to_owned(),
            label: root.label,
            uuid: Some(format!("{high:04X}-{low:04X}")),
            size: geometry.size,
            block_size: geometry.grid.block().bytes(),
            free: map.finish(DeclaredFree::Unknown)?,
            needs_witness: true,
            findings,
        })
    }

    fn checker(&self) -> &'static str {
        CHECKER
    }

    fn witnesses(&self) -> &'static [&'static dyn Witness] {
        &[&witness::ExfatWalk]
    }
}

/// Bit 1: mounted for writing and not unmounted. Bit 2: errors of the drive. Bit 3 asks for the zeroing of the other
/// bits and says nothing about the volume.
fn state_findings(geometry: &Geometry) -> Vec<Finding> {
    let flags = geometry.flags;
    let marks = [
        (2, format!("the volume was not cleanly unmounted (VolumeDirty at byte 106, found {flags:#06x})")),
        (4, format!("the volume tells of errors of the drive (MediaFailure at byte 106, found {flags:#06x})")),
    ];
    marks.into_iter().filter(|(bit, _)| flags & bit != 0).map(|(_, what)| Finding::refusal(what, CHECKER)).collect()
}

/// PercentInUse is rounded down and may be unknown (FFh). Linux leaves the 0 that mkfs.exfat wrote, which says nothing.
fn fill_remark(geometry: &Geometry, free: u64) -> Option<String> {
    let count = geometry.grid.count();
    let used = count.checked_sub(free)?.checked_mul(100)?.checked_div(count)?;
    let stated = u64::from(geometry.percent_in_use);
    ((1..=100).contains(&stated) && stated.abs_diff(used) > 1)
        .then(|| format!("the volume's own hint says {stated} % in use, its allocation bitmap says {used} %"))
}
