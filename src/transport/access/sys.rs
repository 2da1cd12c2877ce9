//! Opening a node a second time, past the page cache.

use nix::libc::O_DIRECT;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// The file behind an open descriptor, whatever its name is by now.
pub fn reopen(file: &File, direct: bool) -> io::Result<File> {
    let flags = if direct { O_DIRECT } else { 0 };
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
