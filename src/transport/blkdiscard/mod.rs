//! The kernel's own discard: the BLKDISCARD ioctl.
//!
//! The kernel splits, checks limits and drops stale pages. Its one trap: when the device rejects the first command,
//! the kernel switches discarding off for the disk and may still report success for the whole call. So the state of
//! the disk in sysfs is read again after every call, and a change is a failure.

mod sys;

#[cfg(test)]
mod tests;

use super::scsi::pages::BlockLimits;
use super::{
    Applies, DeviceFacts, Done, ErrorKind, NodeKind, ReadAfterDiscard, Route, Transport, TransportError, sysfs,
};
use crate::plan::Batch;
use crate::plan::units::{ByteRange, Claims, Limits};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

const NAME: &str = "blkdiscard";

/// Most bytes in one call, so that a run can be interrupted between two; also what the kernel puts into one request.
const MOST_BYTES: u64 = 1 << 32;

/// The row of the table.
pub const ROUTE: Route = Route {
    name: NAME,
    about: "the kernel's own discard (BLKDISCARD)",
    applies: |facts| match (facts.kind, &facts.sysfs) {
        (NodeKind::Image, _) => Applies::No("an image file is not a block device"),
        (_, None) => Applies::No("the device has no entry in sysfs"),
        (_, Some(sysfs)) if !offered(sysfs) => Applies::No("the kernel offers no discard for this device"),
        _ if facts.is_usb() => {
            Applies::WhenNamed("behind USB the kernel may report success for commands that the bridge rejected")
        }
        _ => Applies::Auto("the kernel offers discard for this device"),
    },
    open: |file, facts| Ok(Box::new(BlkDiscard::open(file, facts)?)),
    own_path: |_, _| Ok(None),
};

/// True when the kernel says that the disk can discard at all.
fn offered(sysfs: &Path) -> bool {
    sysfs::number(NAME, sysfs, "queue/discard_max_bytes").is_ok_and(|most| most > 0)
}

/// The part of sysfs that the kernel changes when it gives up on discarding.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    max_bytes: u64,
    provisioning_mode: Option<String>,
}

impl State {
    fn read(sysfs: &Path) -> Result<Self, TransportError> {
        let max_bytes = sysfs::number(NAME, sysfs, "queue/discard_max_bytes")?;
        Ok(Self { max_bytes, provisioning_mode: sysfs::provisioning_mode(sysfs) })
    }

    fn describe(&self) -> String {
        let mode = self.provisioning_mode.as_deref().map(|mode| format!(", provisioning_mode {mode}"));
        format!("discard_max_bytes {}{}", self.max_bytes, mode.unwrap_or_default())
    }
}

/// A block device whose kernel driver offers discard.
pub struct BlkDiscard {
    file: File,
    sysfs: PathBuf,
    state: State,
    limits: Limits,
    size: u64,
}

impl BlkDiscard {
    /// Reads the kernel's limits for the node.
    pub fn open(file: &File, facts: &DeviceFacts) -> Result<Self, TransportError> {
        let sysfs = facts.sysfs.clone().ok_or_else(|| TransportError::rejected(NAME, "not a block device"))?;
        sysfs::refuse_zones(NAME, facts)?;
        let clone = file.try_clone();
        let file = clone.map_err(|cause| TransportError::os(NAME, "cannot duplicate the descriptor", cause))?;
        let state = State::read(&sysfs)?;
        if state.max_bytes == 0 {
            let what = format!("the kernel offers no discard for this device ({})", state.describe());
            return Err(TransportError::rejected(NAME, what));
        }
        let limits = limits(&sysfs, facts, &state)?;
        let size = device_size(&file)?;
        if size != facts.size {
            let what = format!("the device had {} bytes when it was opened and has {size} now", facts.size);
            return Err(TransportError::new(ErrorKind::Changed, NAME, what));
        }
        Ok(Self { file, sysfs, state, limits, size })
    }

    /// The kernel's success is believed only when it did not switch discarding off meanwhile.
    fn check_state(&self) -> Result<(), TransportError> {
        let now = State::read(&self.sysfs)?;
        if now == self.state {
            return Ok(());
        }
        let what = format!(
            "the kernel called the discard a success, but changed {} to {}: the device rejected it",
            self.state.describe(),
            now.describe()
        );
        Err(TransportError::rejected(NAME, what))
    }
}

fn device_size(file: &File) -> Result<u64, TransportError> {
    sys::size(file).map_err(|cause| TransportError::os(NAME, "cannot read the size of the device", cause))
}

fn limits(sysfs: &Path, facts: &DeviceFacts, state: &State) -> Result<Limits, TransportError> {
    let most = state.max_bytes.min(MOST_BYTES);
    let granularity = sysfs::number(NAME, sysfs, "queue/discard_granularity")?;
    let claims = Claims {
        lba_size: facts.logical_block,
        granularity,
        alignment: alignment(sysfs, facts, granularity)?,
        max_ranges: 1,
        max_range_bytes: most,
        max_command_bytes: most,
    };
    Limits::new(claims).map_err(|cause| TransportError::from((NAME, cause)))
}

/// Where the first granule of the node starts. The kernel's `discard_alignment` of a whole disk cannot be relied
/// upon: Linux 6.1 shows 0 for a SCSI disk that states another (seen with scsi_debug). So the kernel's copy of VPD
/// page B0h is asked first.
fn alignment(sysfs: &Path, facts: &DeviceFacts, granularity: u64) -> Result<u64, TransportError> {
    let page = std::fs::read(sysfs.join("device/vpd_pgb0")).ok().and_then(|page| BlockLimits::parse(&page));
    match page.filter(|page| page.unmap_granularity > 1 && granularity > 0) {
        Some(page) => {
            let blocks = u64::from(page.unmap_alignment.unwrap_or(0));
            let start = facts.partition.map_or(0, ByteRange::start) % granularity;
            let on_disk = blocks.saturating_mul(facts.logical_block.bytes()) % granularity;
            Ok((on_disk + granularity - start) % granularity)
        }
        None => sysfs::number(NAME, facts.partition_sysfs.as_deref().unwrap_or(sysfs), "discard_alignment"),
    }
}

impl Transport for BlkDiscard {
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
        // The kernel stopped telling with Linux 4.12: discard_zeroes_data is always 0.
        ReadAfterDiscard::Undefined
    }

    fn notes(&self) -> &[String] {
        &[]
    }

    fn discard(&mut self, batch: &Batch<'_>) -> Result<Done, TransportError> {
        let started = Instant::now();
        let size = device_size(&self.file)?;
        if size != self.size {
            let what = format!("the device had {} bytes when the run began and has {size} now", self.size);
            return Err(TransportError::new(ErrorKind::Changed, NAME, what));
        }
        for range in batch.byte_ranges() {
            sys::discard(&self.file, range.start(), range.len())
                .map_err(|cause| TransportError::os(NAME, format!("the kernel could not discard {range}"), cause))?;
        }
        let took = started.elapsed();
        self.check_state()?;
        Ok(Done { took })
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        self.file.sync_all().map_err(|cause| TransportError::os(NAME, "cannot flush the device", cause))
    }
}
