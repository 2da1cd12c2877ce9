//! XFS, versions 4 and 5: allocation groups, each with two trees of its free extents.
//!
//! ```text
//! group 0                                                                       group 1         last group, short
//! | superblock | AGF | AGI | AGFL | trees, inodes, files, free space ... log ... | copy | AGF ... | ...
//!   a sector each
//!
//! AGF -> tree of free extents by block (the map), the same by size, sums
//! ```
//! The reading goes: [`superblock`] (numbers that fit together), [`features`] (what is understood), [`log`] (unmounted or
//! not; XFS has no clean flag), [`group`] (headers), [`tree`] and [`free`] (the map).
//!
//! A realtime volume keeps files on a device of its own: only the data device is mapped. An external log is a device of
//! its own too, and must be given with the volume.
//!
//! Sources: "XFS Algorithms & Data Structures" (third edition), Linux `fs/xfs`.

mod checksum;
mod external;
mod features;
mod free;
mod group;
mod log;
mod lsn;
mod ondisk;
mod superblock;
#[cfg(test)]
mod tests;
mod tree;
mod witness;

use crate::error::ParseError;
use crate::foreign::has_bytes;
use crate::free_map::FreeMap;
use crate::fs::{Format, grouped};
use crate::source::{Source, Window};
use crate::units::ByteRange;
use crate::volume::{Finding, Volume};
use crate::witness::Witness;
use features::incompat;
use lsn::Lsn;
use superblock::{LogPlace, SuperBlock};

/// What can be wrong with, or unknown about, a volume of this format.
#[derive(Debug, thiserror::Error)]
pub enum XfsError {
    #[error("XFS of version {0}; 4 and 5 are known")]
    Version(u16),
    #[error("the version number and the checksum feature of the superblock contradict each other")]
    VersionContradicts,
    #[error("{set} features that coldtrim does not understand: {names}")]
    Features { set: &'static str, names: String },
    #[error("{0} allocation groups are more than this program reads")]
    Groups(u64),
    #[error("{what} belongs to another volume")]
    Foreign { what: String },
    #[error(
        "{what} was written at place {written} of the log, but the log ends at {head}: it is older than the volume, and the \
         right one may hold what is not in the trees yet"
    )]
    Newer { what: String, written: String, head: String },
    #[error("group {group}: the two trees of free extents differ")]
    Trees { group: u64 },
    #[error("group {group}: a block has two uses among headers, trees and free list")]
    Shared { group: u64 },
}

/// The row in [`FORMATS`](crate::fs::FORMATS).
pub struct Xfs;

const CHECKER: &str = "xfs_repair DEVICE";
const REPLAY: &str = "mount it once and unmount it; if that fails: xfs_repair DEVICE";

impl Format for Xfs {
    fn name(&self) -> &'static str {
        "xfs"
    }

    fn variants(&self) -> &'static [&'static str] {
        &["xfs"]
    }

    fn probe(&self, source: &dyn Source) -> Result<bool, ParseError> {
        Ok(has_bytes(source, 0, &ondisk::SB_MAGIC.to_be_bytes())? || log::is_log(source)?)
    }

    fn read(&self, source: &dyn Source, companions: &[&dyn Source]) -> Result<Volume, ParseError> {
        if log::is_log(source)? {
            return external::volume(source);
        }
        let superblock = SuperBlock::read(source)?;
        let mut findings = findings(&superblock);
        let size = superblock.block.to_bytes(superblock.blocks)?;
        // A volume that is larger than its device is refused by the caller.
        let is_readable = size <= source.len();
        let mut free = FreeMap::nothing(superblock.grid()?);
        if is_readable && findings.is_empty() {
            match log_end(source, &superblock, companions)? {
                Ok(log_end) => free = read_free(source, &superblock, log_end, &mut findings)?,
                Err(refusal) => findings.push(refusal),
            }
        }
        if superblock.has_realtime {
            findings.push(Finding::warning(
                "files of this volume lie on a realtime device as well; that device is not looked at",
            ));
        }
        Ok(Volume {
            format: "xfs".to_owned(),
            label: superblock.label.clone(),
            uuid: Some(grouped(&superblock.uuid)),
            size,
            block_size: superblock.block.bytes(),
            free,
            needs_witness: false,
            findings,
        })
    }

    fn checker(&self) -> &'static str {
        CHECKER
    }

    fn witnesses(&self) -> &'static [&'static dyn Witness] {
        &[&witness::InodeWalk, &witness::OwnerWalk]
    }
}

/// What the superblock says against its own volume.
fn findings(superblock: &SuperBlock) -> Vec<Finding> {
    let checks = [
        (superblock.is_in_progress, "making or growing the volume was not finished", CHECKER),
        (
            superblock.features.has_incompat(incompat::NEEDS_REPAIR),
            "the volume says itself that it needs a repair (feature needsrepair)",
            CHECKER,
        ),
    ];
    checks
        .into_iter()
        .filter(|(found, _, _)| *found)
        .map(|(_, message, remedy)| Finding::refusal(message, remedy))
        .collect()
}

/// Where the log of an unmounted volume ends, or what speaks against it.
fn log_end(
    source: &dyn Source,
    superblock: &SuperBlock,
    companions: &[&dyn Source],
) -> Result<Result<Lsn, Finding>, ParseError> {
    let LogPlace::Block(first) = superblock.log else {
        return Ok(external::log_end(superblock, companions));
    };
    let (start, len) = (superblock.block.to_bytes(first)?, superblock.block.to_bytes(superblock.log_blocks)?);
    let window = ByteRange::with_len(start, len).and_then(|range| Window::new(source, range));
    let window = window.ok_or_else(|| ParseError::corrupt(start, "the log passes the end of the volume"))?;
    let state =
        log::state(&window, &superblock.uuid, superblock.features.is_v5).map_err(|error| error.located(start))?;
    Ok(end_of(&state, start, "the log"))
}

/// The end of a log that begins at byte `start`, or what it says against the map.
fn end_of(state: &log::State, start: u64, which: &str) -> Result<Lsn, Finding> {
    match state {
        log::State::Clean { end } => Ok(*end),
        log::State::Unclean { at, reason } => {
            let at = start.saturating_add(*at);
            let message = format!("{which} is not that of an unmounted volume: {reason} (at byte {at})");
            Err(Finding::refusal(message, REPLAY))
        }
        log::State::Foreign => {
            Err(Finding::refusal(format!("{which} (at byte {start}) belongs to another volume"), CHECKER))
        }
    }
}

/// The trees, and a remark when the superblock's sum lags behind them.
fn read_free(
    source: &dyn Source,
    superblock: &SuperBlock,
    log_end: Lsn,
    findings: &mut Vec<Finding>,
) -> Result<FreeMap, ParseError> {
    let found = free::map(source, superblock, log_end)?;
    if let Some(counted) = found.counted.filter(|counted| *counted != superblock.free_blocks) {
        findings.push(Finding::warning(format!(
            "the superblock says {} free blocks, all groups together say {counted}",
            superblock.free_blocks
        )));
    }
    Ok(found.map)
}
