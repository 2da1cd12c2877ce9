//! The ioctl that tells the table of a device-mapper device (linux/dm-ioctl.h).

#![allow(unsafe_code)] // the one file of this module that may

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `struct dm_ioctl`: three words of version, then data_size, data_start, target_count, open_count, flags, event_nr and
/// padding of 32 bits, the device's number of 64, its name of 128 bytes and its uuid of 129.
const HEAD: usize = 312;
const DATA_SIZE: usize = 12;
const DATA_START: usize = 16;
const TARGET_COUNT: usize = 20;
const FLAGS: usize = 28;
const EVENT: usize = 32;
const DEVICE: usize = 40;
const NAME: usize = 48;
const UUID: usize = 176;
const UUID_END: usize = 305;

/// The table is wanted, not the state.
const STATUS_TABLE: u32 = 1 << 4;
const BUFFER_FULL: u32 = 1 << 8;
/// The kernel wipes its own copies, because of keys.
const SECURE_DATA: u32 = 1 << 15;
/// The device is suspended.
pub(super) const SUSPENDED: u32 = 1 << 1;
/// Another table waits to take the place of the one in use.
pub(super) const INACTIVE_PRESENT: u32 = 1 << 6;

/// Bytes of a first try, and of the last one.
const FIRST: usize = 64 << 10;
const MOST: usize = 16 << 20;

nix::ioctl_readwrite_bad!(dm_table_status, nix::request_code_readwrite!(0xFD, 12, HEAD), u8);

/// Bytes that may hold a key: wiped when they are dropped, never copied, never printed.
struct Secret(Vec<u8>);

impl Drop for Secret {
    fn drop(&mut self) {
        for byte in &mut self.0 {
            // SAFETY: a live, exclusively borrowed byte; volatile, so that the write is not left out as useless.
            unsafe { std::ptr::write_volatile(byte, 0) };
        }
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }
}

/// What the kernel answers. The lines of the table may hold keys.
pub(super) struct Answer {
    buffer: Secret,
    /// Number of lines.
    pub lines: u32,
    /// States of the device.
    pub flags: u32,
    /// Counts its events.
    pub event: u32,
}

impl Answer {
    /// The lines, as the kernel lays them out.
    pub(super) fn data(&self) -> &[u8] {
        let start = word(&self.buffer.0, DATA_START);
        let end = word(&self.buffer.0, DATA_SIZE);
        let place = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
        self.buffer.0.get(place(start)..place(end)).unwrap_or_default()
    }

    /// The name of the device.
    pub(super) fn name(&self) -> String {
        text(self.buffer.0.get(NAME..UUID).unwrap_or_default())
    }

    /// What its maker calls it; the beginning tells who that was.
    pub(super) fn uuid(&self) -> String {
        text(self.buffer.0.get(UUID..UUID_END).unwrap_or_default())
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_ne_bytes)
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The table in use of the device with this number (as `st_rdev` has it).
pub(super) fn table(control: &File, device: u64) -> io::Result<Answer> {
    let mut size = FIRST;
    while size <= MOST {
        // A new one each time: what was there may hold a key, and growing would copy it.
        let mut buffer = Secret(vec![0; size]);
        let mut put = |at: usize, bytes: &[u8]| buffer.0[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &4_u32.to_ne_bytes());
        put(DATA_SIZE, &u32::try_from(size).map_err(io::Error::other)?.to_ne_bytes());
        put(DATA_START, &u32::try_from(HEAD).map_err(io::Error::other)?.to_ne_bytes());
        put(FLAGS, &(STATUS_TABLE | SECURE_DATA).to_ne_bytes());
        put(DEVICE, &device.to_ne_bytes());
        // SAFETY: the buffer is live and as long as it says of itself in data_size, which the kernel keeps to; the
        // descriptor is open for the whole call.
        let answer = unsafe { dm_table_status(control.as_raw_fd(), buffer.0.as_mut_ptr()) };
        answer?;
        let flags = word(&buffer.0, FLAGS);
        if flags & BUFFER_FULL == 0 {
            let (lines, event) = (word(&buffer.0, TARGET_COUNT), word(&buffer.0, EVENT));
            return Ok(Answer { buffer, lines, flags, event });
        }
        size *= 4;
    }
    Err(io::Error::other("the table has no end"))
}
