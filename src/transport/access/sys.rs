//! Opening a node a second time, past the page cache, and emptying that cache.
#![allow(unsafe_code)]

use nix::libc::O_DIRECT;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// The device behind an open descriptor, whatever its name is by now, around the page cache.
pub fn reopen(file: &File) -> io::Result<File> {
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(name)
}

nix::ioctl_none_bad!(blkflsbuf, nix::request_code_none!(0x12, 97));

/// BLKFLSBUF (linux/fs.h): writes dirty pages of a block device and forgets clean ones.
pub fn forget_pages(file: &File) -> io::Result<()> {
    // SAFETY: the request takes no argument; the descriptor is open for the whole call.
    unsafe { blkflsbuf(file.as_raw_fd()) }.map(|_| ()).map_err(io::Error::from)
}
