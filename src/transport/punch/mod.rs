//! Holes in image files: fallocate(2) with PUNCH_HOLE and KEEP_SIZE.
//!
//! Bytes are exact. Blocks of the host's filesystem that lie only partly in a range are zeroed in part and stay
//! allocated, so no rounding is needed to be safe, only whole blocks give space back.

mod sys;

#[cfg(test)]
mod tests;

use super::{Applies, DeviceFacts, Done, ErrorKind, NodeKind, ReadAfterDiscard, Route, Transport, TransportError};
use crate::plan::Batch;
use crate::plan::units::{BlockSize, Claims, Limits};
use std::fs::File;
use std::time::Instant;

const NAME: &str = "punch";

/// Most bytes in one call, so that a run can be interrupted between two.
const MOST_BYTES: u64 = 1 << 40;

/// The row of the table.
pub const ROUTE: Route = Route {
    name: NAME,
    about: "holes in image files",
    applies: |facts| match facts.kind {
        NodeKind::Image => Applies::Auto("an image file gives its free space back as holes"),
        _ => Applies::No("punching a hole into a block device writes zeros and is not a discard"),
    },
    open: |file, facts| Ok(Box::new(Punch::open(file, facts)?)),
    own_path: |_, _| Ok(None),
};

/// Filesystems of Linux without PUNCH_HOLE, by their numbers in `linux/magic.h` and their own sources. Others that cannot
/// do it say so when they are asked.
const WITHOUT_HOLES: &[(u32, &str)] = &[
    (0x4D44, "FAT"),
    (0x2011_BAB0, "exFAT"),
    (0x4244, "HFS"),
    (0x482B, "HFS+"),
    (0x9660, "ISO 9660"),
    (0x1501_3346, "UDF"),
    (0x3153_464A, "JFS"),
    (0x5265_4973, "ReiserFS"),
    (0x3434, "NILFS2"),
    (0x7371_7368, "SquashFS"),
    (0xE0F5_E1E2, "EROFS"),
    (0x8584_58F6, "ramfs"),
];

fn holds_no_holes(file: &File) -> Option<&'static str> {
    let kind = nix::sys::statfs::fstatfs(file).ok()?.filesystem_type().0;
    // The number has 32 bits, whatever the width and sign of the field.
    let number = kind.to_le_bytes()[..4].try_into().map_or(0, u32::from_le_bytes);
    WITHOUT_HOLES.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// An image file.
pub struct Punch {
    file: File,
    limits: Limits,
    size: u64,
}

impl Punch {
    /// Takes a regular file that is open for writing.
    pub fn open(file: &File, facts: &DeviceFacts) -> Result<Self, TransportError> {
        let clone = file.try_clone();
        let file = clone.map_err(|cause| TransportError::os(NAME, "cannot duplicate the descriptor", cause))?;
        if let Some(name) = holds_no_holes(&file) {
            let what = format!("the filesystem on which the image lies ({name}) cannot make holes in files");
            return Err(TransportError::new(ErrorKind::Rejected, NAME, what));
        }
        let size = length(&file)?;
        if size != facts.size {
            let what = format!("the image had {} bytes when it was opened and has {size} now", facts.size);
            return Err(TransportError::new(ErrorKind::Changed, NAME, what));
        }
        let byte = BlockSize::new(1).unwrap_or(facts.logical_block);
        let limits = Limits::new(Claims {
            lba_size: byte,
            granularity: 1,
            alignment: 0,
            max_ranges: 1,
            max_range_bytes: MOST_BYTES,
            max_command_bytes: MOST_BYTES,
        })
        .map_err(|cause| TransportError::from((NAME, cause)))?;
        Ok(Self { file, limits, size })
    }
}

fn length(file: &File) -> Result<u64, TransportError> {
    let metadata = file.metadata();
    metadata.map(|m| m.len()).map_err(|cause| TransportError::os(NAME, "cannot read the length of the image", cause))
}

impl Transport for Punch {
    fn name(&self) -> &'static str {
        NAME
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn capacity(&self) -> u64 {
        self.size
    }

    fn read_after_discard(&self) -> ReadAfterDiscard {
        ReadAfterDiscard::Zeros
    }

    fn notes(&self) -> &[String] {
        &[]
    }

    fn discard(&mut self, batch: &Batch<'_>) -> Result<Done, TransportError> {
        let started = Instant::now();
        let now = length(&self.file)?;
        if now != self.size {
            let what = format!("the image had {} bytes when the run began and has {now} now", self.size);
            return Err(TransportError::new(ErrorKind::Changed, NAME, what));
        }
        for range in batch.byte_ranges() {
            if range.end() > self.size {
                let what = format!("{range} pass the end of the image at byte {}", self.size);
                return Err(TransportError::new(ErrorKind::OutOfRange, NAME, what));
            }
            sys::punch_hole(&self.file, range.start(), range.len())
                .map_err(|cause| TransportError::os(NAME, format!("cannot make a hole of {range}"), cause))?;
        }
        Ok(Done { took: started.elapsed() })
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        self.file.sync_all().map_err(|cause| TransportError::os(NAME, "cannot write the image back", cause))
    }
}
