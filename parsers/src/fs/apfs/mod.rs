//! APFS: a container whose volumes share one free space.
//!
//! ```text
//! block 0 ─ checkpoint descriptors (ring) ─ checkpoint data (ring) ─ ... volumes, space manager's pool, files ...
//!    │              │                              │
//!    │              newest superblock + maps ──────┴─> space manager -> chunk records -> bitmaps
//!    └ copy of the superblock as of the last clean unmount
//! ```
//! Every object carries a Fletcher-64 and is verified before a field of it is used; bitmaps carry none and are
//! compared with the count in their (verified) chunk record. Encryption leaves all of this readable. Sources: Apple
//! File System Reference (2020-06-22), linux-apfs (apfsck, the kernel module), libfsapfs.

mod btree;
mod checkpoint;
mod error;
mod free;
mod object;
mod ondisk;
mod spaceman;
mod superblock;
#[cfg(test)]
mod tests;
mod volumes;
mod witness;

use super::Format;
use crate::error::ParseError;
use crate::foreign::has_bytes;
use crate::source::Source;
use crate::volume::{Finding, Volume};
use crate::witness::Witness;
use checkpoint::Checkpoint;

/// The row of APFS.
pub struct Apfs;

impl Format for Apfs {
    fn name(&self) -> &'static str {
        "apfs"
    }

    fn variants(&self) -> &'static [&'static str] {
        &["apfs"]
    }

    fn probe(&self, source: &dyn Source) -> Result<bool, ParseError> {
        has_bytes(source, 32, &ondisk::NX_MAGIC)
    }

    fn read(&self, source: &dyn Source, _companions: &[&dyn Source]) -> Result<Volume, ParseError> {
        let checkpoint = Checkpoint::read(source)?;
        let (volumes, object_map) = volumes::read(&checkpoint)?;
        let free = free::read(&checkpoint, &volumes, &object_map)?;
        let mut findings: Vec<Finding> = checkpoint
            .unclean
            .iter()
            .map(|message| {
                Finding::refusal(
                    message.clone(),
                    "mount and unmount it on a Mac: diskutil mount DEVICE; then diskutil unmount DEVICE",
                )
            })
            .collect();
        findings.extend(volumes.iter().flat_map(volumes::ApfsVolume::findings));
        let names: Vec<&str> = volumes.iter().map(|v| v.name.as_str()).filter(|name| !name.is_empty()).collect();
        Ok(Volume {
            format: "apfs".to_owned(),
            label: Some(names.join(", ")).filter(|label| !label.is_empty()),
            uuid: Some(checkpoint.superblock.uuid()),
            size: free.grid().end(),
            block_size: free.grid().block().bytes(),
            free,
            needs_witness: false,
            findings,
        })
    }

    fn checker(&self) -> &'static str {
        "diskutil verifyDisk DEVICE (on a Mac)"
    }

    fn witnesses(&self) -> &'static [&'static dyn Witness] {
        &[&witness::Extents, &witness::Crate]
    }
}
