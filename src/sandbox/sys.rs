//! System calls that have no safe wrapper: capabilities, descriptors that arrive in a message.

#![allow(unsafe_code)] // the one file of this module that may

use nix::errno::Errno;
use nix::libc;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Header of capset(2), version 3 (linux/capability.h).
#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

/// One half of the capability sets of capset(2).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// An unused argument; prctl wants them as longs.
const NONE: libc::c_ulong = 0;

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// Empties the effective, permitted and inheritable sets of the calling thread.
pub(super) fn drop_capabilities() -> nix::Result<()> {
    let header = CapHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let data = [CapData::default(); 2];
    // SAFETY: both pointers are to live values of the layout that version 3 demands (two data halves); the kernel
    // only reads them.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    Errno::result(result).map(drop)
}

/// Removes one capability from the bounding set; `EINVAL` means that the kernel knows no such number.
pub(super) fn drop_from_bounding_set(capability: libc::c_ulong) -> nix::Result<()> {
    // SAFETY: prctl with integer arguments only.
    let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, NONE, NONE, NONE) };
    Errno::result(result).map(drop)
}

/// Empties the ambient set.
pub(super) fn drop_ambient_set() -> nix::Result<()> {
    // SAFETY: prctl with integer arguments only.
    let result = unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, NONE, NONE, NONE) };
    Errno::result(result).map(drop)
}

/// Closes every descriptor from `first` on. Call it only while no Rust object owns one of them.
pub(super) fn close_from(first: i32) -> nix::Result<()> {
    // SAFETY: integer arguments only; the caller promises that no owned descriptor is among them, which at the very
    // start of a process is so.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_int::MAX, 0) };
    match Errno::result(result) {
        Ok(_) => Ok(()),
        // Linux before 5.9. Descriptors beyond the usual limit are not reached, and the system call filter leaves
        // nothing that could use them but reading.
        Err(Errno::ENOSYS) => {
            for descriptor in first..1024 {
                // SAFETY: as above.
                unsafe { libc::close(descriptor) };
            }
            Ok(())
        }
        Err(errno) => Err(errno),
    }
}

/// Takes ownership of descriptors that recvmsg(2) has just created.
pub(super) fn adopt(descriptors: Vec<RawFd>) -> Vec<OwnedFd> {
    // SAFETY: the kernel made these descriptors for this process a moment ago and nothing else knows their numbers.
    descriptors.into_iter().map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) }).collect()
}
