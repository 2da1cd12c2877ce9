//! fallocate(2).

use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::File;
use std::io;

/// Turns bytes of a file into a hole; they read as zeros afterwards. The length of the file stays.
pub fn punch_hole(file: &File, start: u64, len: u64) -> io::Result<()> {
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let start = i64::try_from(start).map_err(|_| io::ErrorKind::InvalidInput)?;
    let len = i64::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    fallocate(file, flags, start, len).map_err(io::Error::from)
}
