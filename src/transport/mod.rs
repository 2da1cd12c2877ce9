//! How a [`Batch`] reaches a drive.
//!
//! A [`Transport`] takes batches, which only a plan can make, and turns them into one command each. Building a
//! command (`encode.rs`), carrying it ([`scsi::ScsiPort`], [`nvme::NvmePort`], an ioctl in a `sys.rs`) and deciding
//! to send it (the caller) are three things. [`TRANSPORTS`] lists the routes.

pub mod access;
pub mod blkdiscard;
mod carrier;
pub mod claims;
pub mod error;
pub mod facts;
pub mod nvme;
pub mod punch;
pub mod quirks;
pub mod sat;
pub mod scsi;
mod sysfs;
pub mod unmap;
pub mod vendor;
pub mod writesame;

#[cfg(test)]
pub(crate) mod loopback;
#[cfg(test)]
mod tests;

pub use access::{BlockAccess, BlockRead, Direct};
pub use carrier::Data;
pub use error::{ErrorKind, TransportError};
pub use facts::{DeviceFacts, NodeKind, UsbId};

use crate::plan::Batch;
use crate::plan::units::Limits;
use std::fs::File;
use std::time::Duration;

/// A command that the device accepted. Accepted is not carried out: only reading back can tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// How long it took.
    pub took: Duration,
}

/// What a drive promises about reading a discarded block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadAfterDiscard {
    /// Zeros.
    Zeros,
    /// Nothing that can be relied upon.
    Undefined,
}

/// A way to tell a device that blocks are free.
pub trait Transport {
    /// Name of the route, as in `--via`.
    fn name(&self) -> &'static str;

    /// What one command may hold.
    fn limits(&self) -> Limits;

    /// Bytes that the device itself reports through this route.
    fn capacity(&self) -> u64;

    /// What the drive promises about discarded blocks.
    fn read_after_discard(&self) -> ReadAfterDiscard;

    /// Whether the disk turns; none when it does not say.
    fn rotates(&self) -> Option<bool> {
        None
    }

    /// What was found while the route was opened and should be told: contradictions, unread pages, quirks in force.
    fn notes(&self) -> &[String];

    /// Sends one command for `batch`. After an error any part of the batch may have been discarded already.
    fn discard(&mut self, batch: &Batch<'_>) -> Result<Done, TransportError>;

    /// Makes the device write its cache to the medium.
    fn flush(&mut self) -> Result<(), TransportError>;

    /// Whether the device says that all blocks of `batch` are deallocated; none when it cannot tell, as most cannot.
    fn is_deallocated(&mut self, batch: &Batch<'_>) -> Option<bool> {
        let _ = batch;
        None
    }
}

/// Whether a route can be tried on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applies {
    /// It can, and `auto` may choose it for this reason.
    Auto(&'static str),
    /// It can, but only when named, for this reason.
    WhenNamed(&'static str),
    /// It cannot, for this reason.
    No(&'static str),
}

/// A route ready for use, or why not.
pub type Opened = Result<Box<dyn Transport>, TransportError>;

/// Reads that use the addresses of a route; none where the kernel's own path is the route's.
pub type OwnPath = Result<Option<Box<dyn BlockRead>>, TransportError>;

/// A row of [`TRANSPORTS`].
pub struct Route {
    /// As in `--via`.
    pub name: &'static str,
    /// What it is, in a few words for help and reports.
    pub about: &'static str,
    /// Whether it can be tried, from facts alone.
    pub applies: fn(&DeviceFacts) -> Applies,
    /// Asks the device for its limits and checks that the route may be used. Sends no discard.
    pub open: fn(&File, &DeviceFacts) -> Opened,
    /// A reader through the route's own addressing. What it reads must equal what [`Direct`] reads at the same bytes,
    /// or the route means other blocks by its addresses.
    pub own_path: fn(&File, &DeviceFacts) -> OwnPath,
}

/// All routes, in the order in which `auto` tries those that apply. UNMAP stands before ATA commands, because behind
/// a USB bridge it is the better tested one, and libata, where ATA commands are right, does not know UNMAP.
pub static TRANSPORTS: &[Route] = &[
    punch::ROUTE,
    blkdiscard::ROUTE,
    nvme::ROUTE,
    unmap::ROUTE,
    sat::ROUTE_16,
    sat::ROUTE_12,
    writesame::ROUTE_16,
    writesame::ROUTE_10,
];

/// The route of this name.
pub fn route(name: &str) -> Option<&'static Route> {
    TRANSPORTS.iter().find(|route| route.name == name)
}

/// What `auto` may try on a device, best first, each with its reason.
pub fn candidates(facts: &DeviceFacts) -> Vec<(&'static Route, &'static str)> {
    let reason = |route: &'static Route| match (route.applies)(facts) {
        Applies::Auto(reason) => Some((route, reason)),
        _ => None,
    };
    TRANSPORTS.iter().filter_map(reason).collect()
}

/// The last look at a batch: it was made for these limits, and each range ends inside the device.
fn check_batch(route: &'static str, batch: &Batch<'_>, limits: &Limits, capacity: u64) -> Result<(), TransportError> {
    let fault = |kind, what: String| Err(TransportError::new(kind, route, what));
    let ranges = batch.ranges().len();
    if batch.lba_size() != limits.lba_size() {
        let (found, expected) = (batch.lba_size().bytes(), limits.lba_size().bytes());
        return fault(
            ErrorKind::Contradiction,
            format!("the plan counts in blocks of {found} bytes, the device in blocks of {expected}"),
        );
    }
    if batch.bytes() > limits.max_command_bytes() || u64::try_from(ranges).map_or(true, |n| n > limits.max_ranges()) {
        let what = format!("{} bytes in {ranges} ranges are more than one command may hold", batch.bytes());
        return fault(ErrorKind::LimitExceeded, what);
    }
    match batch.byte_ranges().find(|range| range.end() > capacity) {
        Some(range) => fault(ErrorKind::OutOfRange, format!("{range} pass the device's end at byte {capacity}")),
        None => Ok(()),
    }
}
