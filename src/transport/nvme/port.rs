//! The carrier of NVMe commands; tests put a script in its place.

use super::super::carrier::Data;
use std::time::Duration;

/// Which queue a command goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Commands to the controller.
    Admin,
    /// Commands to the namespace.
    Io,
}

/// The fields of a submission queue entry that coldtrim uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    /// Opcode.
    pub opcode: u8,
    /// Namespace identifier; 0 where none is meant.
    pub namespace: u32,
    /// CDW10 to CDW15.
    pub words: [u32; 6],
}

/// Carries one NVMe command at a time, and never repeats one.
pub trait NvmePort {
    /// Identifier of the namespace behind the device node.
    fn namespace(&mut self) -> std::io::Result<u32>;

    /// Sends a command and waits; gives the status field (0 is success).
    fn execute(&mut self, queue: Queue, command: &Command, data: Data<'_>, timeout: Duration) -> std::io::Result<u16>;
}
