//! How a [`Batch`] reaches a drive.
//!
//! A [`Transport`] takes batches, which only a plan can make, and turns them into one command each. Building a
//! command (`encode.rs`), carrying it (an ioctl in a `sys.rs`) and deciding
//! to send it (the caller) are three things. [`TRANSPORTS`] lists the routes.

pub mod blkdiscard;
pub mod error;
pub mod facts;
pub mod punch;
pub mod scsi;
mod sysfs;

pub use error::{ErrorKind, TransportError};
pub use facts::{DeviceFacts, NodeKind, UsbId};

use crate::plan::Batch;
use crate::plan::units::Limits;
use std::fs::File;
use std::time::Duration;

/// A command that the device accepted. Accepted is not carried out: only reading back can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

    /// What was found while the route was opened and should be told: contradictions, unread pages, quirks in force.
    fn notes(&self) -> &[String];

    /// Sends one command for `batch`. After an error any part of the batch may have been discarded already.
    fn discard(&mut self, batch: &Batch<'_>) -> Result<Done, TransportError>;

    /// Makes the device write its cache to the medium.
    fn flush(&mut self) -> Result<(), TransportError>;
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
}

/// All routes, in the order in which `auto` prefers them.
pub const TRANSPORTS: &[Route] = &[punch::ROUTE, blkdiscard::ROUTE];
