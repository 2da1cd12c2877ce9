//! SCSI WRITE SAME with the UNMAP bit, in its 16- and 10-byte forms.
//!
//! A device that ignores the bit writes zeros for real: harmless to free space, but slow and a strain on the drive.
//! No USB bridge is known that means it, so both routes are used only when named.

#[cfg(test)]
mod tests;

use super::carrier::Data;
use super::scsi::device::DISCARD;
use super::scsi::disk::Disk;
use super::scsi::pages::Provisioning;
use super::scsi::{ScsiPort, SgIo, encode};
use super::{Applies, DeviceFacts, Done, ErrorKind, NodeKind, ReadAfterDiscard, Route, Transport, TransportError};
use crate::plan::Batch;
use crate::plan::units::{Claims, LbaRange, Limits};
use std::fs::File;

/// Most blocks in one command. Some devices use only the lower 16 bits of a count, and a count of 0 may mean the rest
/// of the disk.
const MOST_BLOCKS: u64 = 0xFFFF;

/// Which of the two commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `93h`.
    Sixteen,
    /// `41h`: addresses of 32 bits.
    Ten,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Sixteen => "writesame16",
            Self::Ten => "writesame10",
        }
    }

    fn is_claimed(self, page: Provisioning) -> bool {
        match self {
            Self::Sixteen => page.write_same_16,
            Self::Ten => page.write_same_10,
        }
    }

    fn encode(self, range: LbaRange) -> Option<Vec<u8>> {
        match self {
            Self::Sixteen => encode::write_same_16(range).map(Vec::from),
            Self::Ten => encode::write_same_10(range).map(Vec::from),
        }
    }
}

/// The rows of the table.
pub const ROUTE_16: Route = Route {
    name: "writesame16",
    about: "SCSI WRITE SAME(16) with UNMAP, sent to the disk directly",
    applies,
    open: |file, facts| Ok(Box::new(WriteSame::open(Form::Sixteen, port("writesame16", file)?, facts)?)),
    own_path: |file, facts| Ok(Some(Box::new(Disk::identify("writesame16", port("writesame16", file)?, facts)?))),
};

/// See [`ROUTE_16`].
pub const ROUTE_10: Route = Route {
    name: "writesame10",
    about: "SCSI WRITE SAME(10) with UNMAP, sent to the disk directly",
    applies,
    open: |file, facts| Ok(Box::new(WriteSame::open(Form::Ten, port("writesame10", file)?, facts)?)),
    own_path: |file, facts| Ok(Some(Box::new(Disk::identify("writesame10", port("writesame10", file)?, facts)?))),
};

fn applies(facts: &DeviceFacts) -> Applies {
    match facts.kind {
        NodeKind::Scsi if facts.vendor == "ATA" => {
            Applies::No("the kernel's ATA layer refuses WRITE SAME from programs; sat16 does the same")
        }
        NodeKind::Scsi if facts.partition.is_some() => Applies::No("raw commands address the whole disk"),
        NodeKind::Scsi => Applies::WhenNamed("a device that ignores its UNMAP bit writes zeros for real"),
        _ => Applies::No("not a SCSI disk"),
    }
}

fn port(route: &'static str, file: &File) -> Result<Box<dyn ScsiPort>, TransportError> {
    match SgIo::new(file) {
        Ok(port) => Ok(Box::new(port)),
        Err(cause) => Err(TransportError::os(route, "cannot duplicate the descriptor", cause)),
    }
}

/// A SCSI disk that claims to unmap by WRITE SAME.
pub struct WriteSame {
    form: Form,
    disk: Disk,
    limits: Limits,
    reads: ReadAfterDiscard,
    zeros: Vec<u8>,
}

impl WriteSame {
    /// Identifies the disk; without the claim in VPD page B2h the command would be a plain write.
    pub fn open(form: Form, port: Box<dyn ScsiPort>, facts: &DeviceFacts) -> Result<Self, TransportError> {
        let mut disk = Disk::identify(form.name(), port, facts)?;
        let (stated, provisioning) = disk.claims()?;
        let claimed = provisioning.filter(|page| form.is_claimed(*page)).ok_or_else(|| {
            let what = "the device does not claim to unmap by this command (VPD page B2h)";
            TransportError::rejected(form.name(), what)
        })?;
        let declared = stated.map_or(0, |page| page.max_write_same_blocks);
        let blocks = if declared == 0 { MOST_BLOCKS } else { declared.min(MOST_BLOCKS) };
        let most = blocks.saturating_mul(disk.block.bytes()).min(disk.quirks.max_command_bytes.unwrap_or(u64::MAX));
        let (granularity, alignment) = disk.granule(stated.as_ref());
        let claims = Claims {
            lba_size: disk.block,
            granularity,
            alignment,
            max_ranges: 1,
            max_range_bytes: most,
            max_command_bytes: most,
        };
        let limits = Limits::new(claims).map_err(|cause| TransportError::from((form.name(), cause)))?;
        let reads = if claimed.reads_zeros { ReadAfterDiscard::Zeros } else { ReadAfterDiscard::Undefined };
        let zeros = vec![0; usize::try_from(disk.block.bytes()).unwrap_or(0)];
        Ok(Self { form, disk, limits, reads, zeros })
    }
}

impl Transport for WriteSame {
    fn name(&self) -> &'static str {
        self.form.name()
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
        &[]
    }

    fn rotates(&self) -> Option<bool> {
        self.disk.rotates
    }

    fn discard(&mut self, batch: &Batch<'_>) -> Result<Done, TransportError> {
        super::check_batch(self.name(), batch, &self.limits, self.disk.bytes)?;
        let mut done = Done::default();
        for range in batch.ranges() {
            let cdb = self.form.encode(*range).ok_or_else(|| {
                let what = format!("{} blocks at block {} do not fit into the command", range.count(), range.start());
                TransportError::new(ErrorKind::LimitExceeded, self.name(), what)
            })?;
            let what = format!("WRITE SAME with UNMAP of {} blocks at block {}", range.count(), range.start());
            done.took = done.took.saturating_add(self.disk.device.run(&what, &cdb, Data::Out(&self.zeros), DISCARD)?);
        }
        Ok(done)
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        self.disk.device.flush()
    }
}
