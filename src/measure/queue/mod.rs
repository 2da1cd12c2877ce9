//! Reads and writes in flight. The memory belongs to the queue, in slots, so that what the kernel reads from or writes to
//! lives as long as it may; a slot in flight is out of reach.

mod pool;
mod ring;
pub mod stamp;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::time::Instant;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the slot to the device.
    Write,
    /// From the device to the slot.
    Read,
}

/// One transfer. On a device that is open past the page cache all three numbers of bytes are whole blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Which way.
    pub direction: Direction,
    /// The slot whose memory is used.
    pub slot: usize,
    /// First byte in the slot.
    pub from: usize,
    /// Bytes.
    pub length: usize,
    /// First byte on the device.
    pub at: u64,
}

/// A transfer that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Its slot, which is idle again.
    pub slot: usize,
    /// Its bytes.
    pub length: usize,
    /// When it was seen to be done.
    pub at: Instant,
}

/// The most slots that a queue has.
pub const MOST_SLOTS: usize = 64;

/// Transfers in flight on one device.
pub trait Queue {
    /// What it is, for the report.
    fn name(&self) -> &'static str;

    /// The memory of an idle slot; none of one in flight.
    fn memory(&mut self, slot: usize) -> Option<&mut [u8]>;

    /// Begins a transfer. Its slot must be idle.
    fn submit(&mut self, request: &Request) -> io::Result<()>;

    /// Waits for any of the transfers in flight. An error is one of a transfer: its slot is idle again.
    fn complete(&mut self) -> io::Result<Completion>;

    /// How many are in flight.
    fn in_flight(&self) -> usize;
}

/// The best queue that this kernel offers, with `slots` slots of `slot_bytes`. Containers and some sysctls refuse
/// io_uring; threads do the same a little slower.
pub fn open(file: &File, slots: usize, slot_bytes: usize) -> io::Result<Box<dyn Queue>> {
    let slots = slots.clamp(1, MOST_SLOTS);
    match ring::Ring::new(file, slots, slot_bytes) {
        Ok(ring) => Ok(Box::new(ring)),
        Err(_) => Ok(Box::new(pool::Pool::new(file, slots, slot_bytes)?)),
    }
}

/// A transfer that moved fewer bytes than it should has failed.
fn whole(moved: usize, request: &Request) -> io::Result<()> {
    if moved == request.length {
        return Ok(());
    }
    let (wanted, at) = (request.length, request.at);
    Err(io::Error::other(format!("only {moved} of {wanted} bytes were transferred at byte {at}")))
}

fn not_idle() -> io::Error {
    io::Error::other("a transfer needs an idle slot with room for it")
}

fn nothing_in_flight() -> io::Error {
    io::Error::other("nothing is in flight")
}
