//! The calls of the io_uring crate that the compiler cannot check, each behind a safe function.
#![allow(unsafe_code)]

use crate::measure::queue::{Direction, Request};
use crate::transport::access::Aligned;
use io_uring::{IoUring, opcode, squeue, types};
use nix::libc::iovec;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// A ring with the memory that its transfers use. Fields are dropped in order: the ring before its memory.
pub struct Uring {
    ring: IoUring,
    /// Where the memory starts; it never moves, because it is on the heap and never grows.
    start: *mut u8,
    slot_bytes: usize,
    memory: Option<Aligned>,
    /// Held open for the registration.
    _file: File,
    /// False where the kernel would not pin the memory.
    is_registered: bool,
}

impl Uring {
    /// A ring over `memory`, which is cut into slots of `slot_bytes`, for transfers to and from `file`.
    pub fn new(file: &File, mut memory: Aligned, slot_bytes: usize) -> io::Result<Self> {
        let file = file.try_clone()?;
        let slots = memory.bytes().chunks_exact_mut(slot_bytes);
        let vectors: Vec<iovec> =
            slots.map(|slot| iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot_bytes }).collect();
        let entries = u32::try_from(vectors.len()).map_err(io::Error::other)?;
        // Newer kernels do less where only one thread uses a ring and asks for what is done; older ones refuse the words.
        let one_thread = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries.max(1));
        let ring = one_thread.or_else(|_| IoUring::new(entries.max(1)))?;
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        // SAFETY: every vector is a part of `memory`, which this struct keeps until the ring is gone: fields are
        // dropped in order, and `leak` keeps the memory for good.
        let is_registered = unsafe { ring.submitter().register_buffers(&vectors) }.is_ok();
        let start = memory.bytes().as_mut_ptr();
        Ok(Self { ring, start, slot_bytes, memory: Some(memory), _file: file, is_registered })
    }

    /// All memory. What is in flight must be left alone, which the caller sees to.
    pub fn memory(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], Aligned::bytes)
    }

    /// Puts a transfer between the device and the bytes from `start` on into the ring.
    pub fn push(&mut self, request: &Request, start: usize) -> io::Result<()> {
        let length = u32::try_from(request.length).map_err(io::Error::other)?;
        let inside = start.checked_add(request.length).is_some_and(|end| end <= self.memory().len());
        let slot = u64::try_from(request.slot).map_err(io::Error::other)?;
        if !inside {
            return Err(io::Error::other("a transfer outside of the memory"));
        }
        let entry = self.entry(request, self.start.wrapping_add(start), length)?.user_data(slot);
        // SAFETY: the memory from `start` on has `length` bytes, as was just looked at, and stays where it is until the
        // ring is gone. The queue above gives a slot out again only when its transfer is done, so nobody else uses it.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| io::Error::other("the ring is full"))
    }

    fn entry(&self, request: &Request, memory: *mut u8, length: u32) -> io::Result<squeue::Entry> {
        let index = u16::try_from(request.slot).map_err(io::Error::other)?;
        let file = types::Fixed(0);
        let within = request.from.checked_add(request.length).is_some_and(|end| end <= self.slot_bytes);
        Ok(match (request.direction, self.is_registered && within) {
            (Direction::Write, true) => opcode::WriteFixed::new(file, memory, length, index).offset(request.at).build(),
            (Direction::Write, false) => opcode::Write::new(file, memory, length).offset(request.at).build(),
            (Direction::Read, true) => opcode::ReadFixed::new(file, memory, length, index).offset(request.at).build(),
            (Direction::Read, false) => opcode::Read::new(file, memory, length).offset(request.at).build(),
        })
    }

    /// Hands everything in the ring to the kernel; with `wait`, until at least one transfer is done. Signals only raise
    /// flags here, so that a call which one has cut short is made again.
    pub fn enter(&mut self, wait: bool) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(usize::from(wait)) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A transfer that is done: its slot, and the bytes moved or the negative error number.
    pub fn pop(&mut self) -> Option<(usize, i32)> {
        let entry = self.ring.completion().next()?;
        usize::try_from(entry.user_data()).ok().map(|slot| (slot, entry.result()))
    }

    /// Lets go of file and memory. A ring is taken apart by the kernel after the call that closes it, even after the end of
    /// the program, and until then everybody else would find the device in use.
    pub fn let_go(&mut self) {
        let _ = self.ring.submitter().unregister_files();
        let _ = self.ring.submitter().unregister_buffers();
    }

    /// Never gives the memory back.
    pub fn leak(&mut self) {
        std::mem::forget(self.memory.take());
    }
}
