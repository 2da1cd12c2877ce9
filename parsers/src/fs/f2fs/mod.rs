//! F2FS: a log-structured filesystem for flash; segments of 2 MiB, each with a bitmap of its blocks.
//!
//! ```text
//! block 0, 1        two packs       two copies of each table                                  segments
//! | superblock (2) | checkpoints  | segments (SIT) | nodes (NAT) | summaries (SSA) | main area ... | tail |
//! ```
//! The reading goes: [`superblock`] (numbers that fit together), [`checkpoint`] (the newer sound pack, unmounted or not,
//! nothing synced since), [`free`] (SIT and its journal). Volumes of several devices and zoned ones are refused.
//!
//! Sources: Linux `Documentation/filesystems/f2fs.rst`, `include/linux/f2fs_fs.h`, `fs/f2fs`.

mod checkpoint;
mod checksum;
mod free;
mod ondisk;
mod superblock;
#[cfg(test)]
mod tests;
mod witness;

use crate::error::ParseError;
use crate::foreign::has_bytes;
use crate::free_map::FreeMap;
use crate::fs::{Format, grouped};
use crate::source::Source;
use crate::units::mul;
use crate::volume::{Finding, Volume, Weight};
use crate::witness::Witness;
use checkpoint::Checkpoint;
use superblock::SuperBlock;

/// What can be wrong with, or unknown about, a volume of this format.
#[derive(Debug, thiserror::Error)]
pub enum F2fsError {
    #[error("features that coldtrim does not understand: {0}")]
    Features(String),
    #[error("the volume lies on {0} devices; only volumes of one are read. Mount it and use fstrim")]
    Devices(usize),
    #[error("blocks of 2^{0} bytes; only 4096 (2^12) are read")]
    BlockSize(u32),
    #[error("the superblock and its copy differ")]
    Copies,
    #[error("a large node bitmap together with a payload behind the checkpoint")]
    LargeWithPayload,
    #[error("segment {segment} has {found} valid blocks in its bitmap, its count says {declared}")]
    Count { segment: u64, declared: u64, found: u64 },
}

/// The row in [`FORMATS`](crate::fs::FORMATS).
pub struct F2fs;

const CHECKER: &str = "fsck.f2fs -f DEVICE";
const REPLAY: &str = "mount it once and unmount it, or: fsck.f2fs -f DEVICE";

impl Format for F2fs {
    fn name(&self) -> &'static str {
        "f2fs"
    }

    fn variants(&self) -> &'static [&'static str] {
        &["f2fs"]
    }

    fn probe(&self, source: &dyn Source) -> Result<bool, ParseError> {
        let [first, _] = ondisk::SUPERBLOCKS_AT;
        has_bytes(source, first, &ondisk::MAGIC.to_le_bytes())
    }

    fn read(&self, source: &dyn Source, _companions: &[&dyn Source]) -> Result<Volume, ParseError> {
        let superblock = SuperBlock::read(source)?;
        let size = mul(superblock.blocks, ondisk::BLOCK, "the size of the volume")?;
        let mut findings = superblock.findings();
        // A volume that is larger than its device is refused by the caller.
        let free = if size > source.len() {
            FreeMap::nothing(superblock.grid()?)
        } else {
            read_free(source, &superblock, &mut findings)?
        };
        Ok(Volume {
            format: "f2fs".to_owned(),
            label: superblock.label.clone(),
            uuid: Some(grouped(&superblock.uuid)),
            size,
            block_size: ondisk::BLOCK,
            free,
            needs_witness: false,
            findings,
        })
    }

    fn checker(&self) -> &'static str {
        CHECKER
    }

    fn witnesses(&self) -> &'static [&'static dyn Witness] {
        &[&witness::NodeWalk]
    }
}

/// The checkpoint, then the table unless something spoke against it.
fn read_free(source: &dyn Source, superblock: &SuperBlock, findings: &mut Vec<Finding>) -> Result<FreeMap, ParseError> {
    let checkpoint = Checkpoint::read(source, superblock)?;
    findings.extend(checkpoint.findings());
    findings.extend(checkpoint.synced_since(source, superblock)?);
    if findings.iter().any(|finding| finding.weight == Weight::Refusal) {
        return Ok(FreeMap::nothing(superblock.grid()?));
    }
    let found = free::map(source, superblock, &checkpoint)?;
    if found.reserved > 0 {
        findings.push(Finding::warning(format!(
            "{} blocks are promised to files and have no place yet; they will be taken from what is free now",
            found.reserved
        )));
    }
    Ok(found.map)
}
