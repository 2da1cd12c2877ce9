//! The BLKDISCARD ioctl (linux/fs.h: `_IO(0x12, 119)`, argument: start and length in bytes as two 64-bit numbers).
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

nix::ioctl_write_ptr_bad!(blkdiscard, nix::request_code_none!(0x12, 119), [u64; 2]);
nix::ioctl_read!(blkgetsize64, 0x12, 114, usize);

/// Asks the kernel to discard `len` bytes from byte `start` of a block device.
pub fn discard(file: &File, start: u64, len: u64) -> io::Result<()> {
    let range = [start, len];
    // SAFETY: the descriptor is open for the whole call, and the kernel only reads the two numbers behind the pointer.
    unsafe { blkdiscard(file.as_raw_fd(), &range) }.map(|_| ()).map_err(io::Error::from)
}

/// Bytes of a block device. The request is coded with the size of a pointer, but the kernel writes 64 bits.
#[cfg(target_pointer_width = "64")]
pub fn size(file: &File) -> io::Result<u64> {
    let mut bytes = 0_usize;
    // SAFETY: the kernel writes one 64-bit number behind the pointer, and `usize` has 64 bits on this target.
    unsafe { blkgetsize64(file.as_raw_fd(), &mut bytes) }.map_err(io::Error::from)?;
    u64::try_from(bytes).map_err(io::Error::other)
}
