//! SCSI UNMAP through SG_IO.
//!
//! The kernel sends UNMAP only to disks that set LBPME in READ CAPACITY(16), and most USB bridges do not set it though
//! they know the command. Here the limits of VPD page B0h decide, and they are obeyed; whether the command does what
//! it should is for a trial to show.

#[cfg(test)]
mod tests;

use super::carrier::Data;
use super::scsi::device::DISCARD;
use super::scsi::disk::Disk;
use super::scsi::pages::{BlockLimits, Provisioning, is_deallocated};
use super::scsi::{ScsiPort, SgIo, encode};
use super::{Applies, DeviceFacts, Done, ErrorKind, NodeKind, ReadAfterDiscard, Route, Transport, TransportError};
use crate::plan::Batch;
use crate::plan::units::{Claims, Limits};
use std::fs::File;

const NAME: &str = "unmap";

/// Most bytes in one command, whatever the device allows: 64 times 65535 blocks of 512 bytes, the largest size that
/// USB bridges state and what a bridge can pass on as one ATA command.
const MOST_BYTES_USB: u64 = 64 * 65535 * 512;
/// The same elsewhere: what the kernel sends.
const MOST_BYTES: u64 = 0x7F_FFFF * 512;
/// Most descriptors, whatever the device allows: the list stays within 4096 bytes.
const MOST_DESCRIPTORS: u32 = 255;

/// The row of the table.
pub const ROUTE: Route = Route {
    name: NAME,
    about: "SCSI UNMAP, sent to the disk directly",
    applies: |facts| match facts.kind {
        NodeKind::Scsi if facts.vendor == "ATA" => {
            Applies::No("the kernel's ATA layer does not know UNMAP; sat16 does the same")
        }
        NodeKind::Scsi if facts.partition.is_some() => Applies::No("raw commands address the whole disk"),
        NodeKind::Scsi => Applies::Auto("a SCSI disk"),
        _ => Applies::No("not a SCSI disk"),
    },
    open: |file, facts| Ok(Box::new(Unmap::open(port(file)?, facts)?)),
    own_path: |file, facts| Ok(Some(Box::new(Disk::identify(NAME, port(file)?, facts)?))),
};

fn port(file: &File) -> Result<Box<dyn ScsiPort>, TransportError> {
    match SgIo::new(file) {
        Ok(port) => Ok(Box::new(port)),
        Err(cause) => Err(TransportError::os(NAME, "cannot duplicate the descriptor", cause)),
    }
}

/// A SCSI disk that states limits for UNMAP.
pub struct Unmap {
    disk: Disk,
    limits: Limits,
    reads: ReadAfterDiscard,
    notes: Vec<String>,
}

impl Unmap {
    /// Identifies the disk and reads its limits.
    pub fn open(port: Box<dyn ScsiPort>, facts: &DeviceFacts) -> Result<Self, TransportError> {
        let mut disk = Disk::identify(NAME, port, facts)?;
        let (stated, provisioning) = disk.claims()?;
        let Some(stated) = stated else {
            let what = "the device has no VPD page B0h with limits for UNMAP, so there is no safe size for a command";
            return Err(TransportError::rejected(NAME, what));
        };
        if stated.max_unmap_blocks == 0 || stated.max_unmap_descriptors == 0 {
            let what = format!(
                "the device says that it does not know UNMAP (VPD page B0h: at most {} blocks in {} ranges)",
                stated.max_unmap_blocks, stated.max_unmap_descriptors
            );
            return Err(TransportError::rejected(NAME, what));
        }
        let limits = limits(&disk, &stated, facts.is_usb())?;
        let notes = contradictions(&disk, provisioning);
        let reads = reads(&disk, provisioning);
        Ok(Self { disk, limits, reads, notes })
    }
}

fn limits(disk: &Disk, stated: &BlockLimits, usb: bool) -> Result<Limits, TransportError> {
    let most = if usb { MOST_BYTES_USB } else { MOST_BYTES };
    let most = most.min(disk.quirks.max_command_bytes.unwrap_or(u64::MAX));
    let stated_bytes = u64::from(stated.max_unmap_blocks).saturating_mul(disk.block.bytes());
    let (granularity, alignment) = disk.granule(Some(stated));
    let most = most.min(stated_bytes);
    let claims = Claims {
        lba_size: disk.block,
        granularity,
        alignment,
        max_ranges: u64::from(stated.max_unmap_descriptors.min(MOST_DESCRIPTORS)),
        max_range_bytes: most,
        max_command_bytes: most,
    };
    Limits::new(claims).map_err(|cause| TransportError::from((NAME, cause)))
}

fn contradictions(disk: &Disk, provisioning: Option<Provisioning>) -> Vec<String> {
    let mut notes = Vec::new();
    if disk.capacity.details.is_some_and(|details| !details.provisioned) {
        notes.push("LBPME is 0 in READ CAPACITY(16), so the kernel does not discard on this disk by itself".to_owned());
    }
    if provisioning.is_some_and(|page| !page.unmap) {
        notes.push("VPD page B2h denies UNMAP (LBPU 0), page B0h states limits for it".to_owned());
    }
    notes.extend(disk.quirks.known.map(str::to_owned));
    notes
}

fn reads(disk: &Disk, provisioning: Option<Provisioning>) -> ReadAfterDiscard {
    let promised = provisioning.is_some_and(|page| page.reads_zeros)
        || disk.capacity.details.is_some_and(|details| details.reads_zeros);
    if promised { ReadAfterDiscard::Zeros } else { ReadAfterDiscard::Undefined }
}

impl Transport for Unmap {
    fn name(&self) -> &'static str {
        NAME
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn capacity(&self) -> u64 {
        self.disk.bytes
    }

    fn read_after_discard(&self) -> ReadAfterDiscard {
        self.reads
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn rotates(&self) -> Option<bool> {
        self.disk.rotates
    }

    fn discard(&mut self, batch: &Batch<'_>) -> Result<Done, TransportError> {
        super::check_batch(NAME, batch, &self.limits, self.disk.bytes)?;
        let (cdb, list) = encode::unmap(batch.ranges()).ok_or_else(|| {
            TransportError::new(ErrorKind::LimitExceeded, NAME, "the ranges do not fit into one UNMAP command")
        })?;
        let what = format!("UNMAP of {} bytes in {} ranges", batch.bytes(), batch.ranges().len());
        let took = self.disk.device.run(&what, &cdb, Data::Out(&list), DISCARD)?;
        Ok(Done { took })
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        self.disk.device.flush()
    }

    fn is_deallocated(&mut self, batch: &Batch<'_>) -> Option<bool> {
        let mut answers = batch.ranges().iter().map(|range| {
            let answer = self.disk.device.ask("GET LBA STATUS", &encode::get_lba_status(range.start()), 24).ok()?;
            is_deallocated(&answer, range.start(), range.count())
        });
        answers.try_fold(true, |all, answer| answer.map(|answer| all && answer))
    }
}
