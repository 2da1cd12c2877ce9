//! io_uring with a registered file and registered memory, so that nothing is looked up or pinned for each transfer.

mod sys;

use super::{Completion, Queue, Request, whole};
use crate::transport::access::Aligned;
use std::fs::File;
use std::io;
use std::time::Instant;
use sys::Uring;

/// So many transfers may wait to be handed to the kernel while others are still being looked through.
const HELD: usize = 8;

/// One ring over one piece of memory.
pub struct Ring {
    uring: Uring,
    slot_bytes: usize,
    /// What each slot is doing.
    requests: Vec<Option<Request>>,
    in_flight: usize,
    /// Written to the ring, and not handed over yet.
    held: usize,
}

impl Ring {
    pub fn new(file: &File, slots: usize, slot_bytes: usize) -> io::Result<Self> {
        let bytes = slots.checked_mul(slot_bytes).ok_or_else(super::not_idle)?;
        let uring = Uring::new(file, Aligned::new(bytes), slot_bytes)?;
        Ok(Self { uring, slot_bytes, requests: vec![None; slots], in_flight: 0, held: 0 })
    }

    /// The bytes `from..from + length` of a slot, as bytes of all memory.
    fn place(&self, request: &Request) -> Option<usize> {
        let end = request.from.checked_add(request.length)?;
        let inside = end <= self.slot_bytes && matches!(self.requests.get(request.slot), Some(None));
        request.slot.checked_mul(self.slot_bytes)?.checked_add(request.from).filter(|_| inside)
    }

    /// Hands over what is held; with `wait`, until something is done.
    fn hand_over(&mut self, wait: bool) -> io::Result<()> {
        self.uring.enter(wait)?;
        self.held = 0;
        Ok(())
    }
}

impl Queue for Ring {
    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn memory(&mut self, slot: usize) -> Option<&mut [u8]> {
        if self.requests.get(slot)?.is_some() {
            return None;
        }
        let start = slot.checked_mul(self.slot_bytes)?;
        self.uring.memory().get_mut(start..start.checked_add(self.slot_bytes)?)
    }

    fn submit(&mut self, request: &Request) -> io::Result<()> {
        let start = self.place(request).ok_or_else(super::not_idle)?;
        self.uring.push(request, start)?;
        if let Some(slot) = self.requests.get_mut(request.slot) {
            *slot = Some(*request);
        }
        self.in_flight = self.in_flight.saturating_add(1);
        self.held = self.held.saturating_add(1);
        if self.held >= HELD {
            self.hand_over(false)?;
        }
        Ok(())
    }

    fn complete(&mut self) -> io::Result<Completion> {
        if self.in_flight == 0 {
            return Err(super::nothing_in_flight());
        }
        let (slot, result) = loop {
            match self.uring.pop() {
                Some(found) => break found,
                None => self.hand_over(true)?,
            }
        };
        let at = Instant::now();
        self.in_flight = self.in_flight.saturating_sub(1);
        let request = self.requests.get_mut(slot).and_then(Option::take).ok_or_else(super::not_idle)?;
        let moved = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(result.saturating_neg()))?;
        whole(moved, &request)?;
        Ok(Completion { slot, length: request.length, at })
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for Ring {
    /// The kernel must be done with the memory before it is given back, and with the device before it is discarded.
    fn drop(&mut self) {
        while self.in_flight > 0 {
            match self.uring.pop() {
                Some(_) => self.in_flight = self.in_flight.saturating_sub(1),
                // A ring that cannot be asked any more keeps its memory for good.
                None if self.uring.enter(true).is_err() => return self.uring.leak(),
                None => {}
            }
        }
        self.uring.let_go();
    }
}
