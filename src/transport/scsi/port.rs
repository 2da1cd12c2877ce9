//! The carrier of SCSI commands. It knows bytes, not meanings; tests put a script in its place.

use super::super::carrier::Data;
use std::time::Duration;

/// How a command ended, as the kernel tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completion {
    /// SCSI status: 00h GOOD, 02h CHECK CONDITION, 08h BUSY, ...
    pub status: u8,
    /// Status of the host adapter: 0 fine, 3 time-out, 8 reset, ... (`DID_*`).
    pub host: u16,
    /// Status of the driver: 0, or 8 when there is sense data.
    pub driver: u16,
    /// Sense data as received, empty when there is none.
    pub sense: Vec<u8>,
    /// Bytes of the data phase that were not transferred.
    pub residue: i64,
    /// How long it took.
    pub took: Duration,
}

/// Carries one SCSI command at a time to one logical unit, and never repeats one.
pub trait ScsiPort {
    /// Sends `cdb` and waits. An error means that the operating system did not carry the command.
    fn execute(&mut self, cdb: &[u8], data: Data<'_>, timeout: Duration) -> std::io::Result<Completion>;
}
