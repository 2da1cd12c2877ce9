//! Block and loop ioctls, locks and leases, the only such calls outside of the transports. linux/fs.h and linux/loop.h give the numbers.

#![allow(unsafe_code)] // the one file of this module that may

use nix::errno::Errno;
use nix::libc;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

nix::ioctl_none_bad!(blkflsbuf, nix::request_code_none!(0x12, 97));
nix::ioctl_read_bad!(blksszget, nix::request_code_none!(0x12, 104), libc::c_int);
nix::ioctl_read_bad!(blkpbszget, nix::request_code_none!(0x12, 123), libc::c_uint);
// The number is made with size_t, the value is always 64 bits wide.
nix::ioctl_read_bad!(blkgetsize64, nix::request_code_read!(0x12, 114, size_of::<usize>()), u64);
nix::ioctl_read!(blkgetdiskseq, 0x12, 128, u64);
nix::ioctl_read_bad!(loop_get_status64, 0x4C05, LoopInfo);

/// `struct loop_info64` (linux/loop.h), of which the first three fields matter here.
#[repr(C)]
pub(super) struct LoopInfo {
    /// st_dev of the backing file.
    pub device: u64,
    /// st_ino of the backing file.
    pub inode: u64,
    /// st_rdev of the backing file, when that is a device.
    pub rdevice: u64,
    rest: [u64; 26],
}

const _: () = assert!(size_of::<LoopInfo>() == 232);

/// Size of a block node in bytes.
pub(super) fn size(file: &File) -> io::Result<u64> {
    let mut bytes = 0;
    // SAFETY: the kernel writes one u64 to a live u64; the descriptor is open for the whole call.
    unsafe { blkgetsize64(file.as_raw_fd(), &raw mut bytes) }?;
    Ok(bytes)
}

/// Logical sector size of a block node in bytes.
pub(super) fn logical_sector(file: &File) -> io::Result<u64> {
    let mut bytes = 0;
    // SAFETY: the kernel writes one int to a live int; the descriptor is open for the whole call.
    unsafe { blksszget(file.as_raw_fd(), &raw mut bytes) }?;
    u64::try_from(bytes).map_err(io::Error::other)
}

/// Physical sector size of a block node in bytes.
pub(super) fn physical_sector(file: &File) -> io::Result<u64> {
    let mut bytes = 0;
    // SAFETY: the kernel writes one unsigned int to a live one; the descriptor is open for the whole call.
    unsafe { blkpbszget(file.as_raw_fd(), &raw mut bytes) }?;
    Ok(u64::from(bytes))
}

/// Number that changes whenever another device comes to stand behind the same name. None before Linux 5.15.
pub(super) fn disk_sequence(file: &File) -> Option<u64> {
    let mut number = 0;
    // SAFETY: the kernel writes one u64 to a live u64; the descriptor is open for the whole call.
    unsafe { blkgetdiskseq(file.as_raw_fd(), &raw mut number) }.ok()?;
    Some(number)
}

/// Writes back and drops what the kernel has cached of a block node.
pub(super) fn flush_cache(file: &File) -> io::Result<()> {
    // SAFETY: no argument; the descriptor is open for the whole call.
    unsafe { blkflsbuf(file.as_raw_fd()) }?;
    Ok(())
}

/// What a loop device stands on.
pub(super) fn loop_info(file: &File) -> io::Result<LoopInfo> {
    let mut info = LoopInfo { device: 0, inode: 0, rdevice: 0, rest: [0; 26] };
    // SAFETY: the kernel writes one loop_info64 to a live value of its size; the descriptor is open for the call.
    unsafe { loop_get_status64(file.as_raw_fd(), &raw mut info) }?;
    Ok(info)
}

/// The first lock of another open file description that a write lock on the whole file would meet.
pub(super) fn foreign_lock(file: &File) -> io::Result<bool> {
    let mut lock = whole_file();
    nix::fcntl::fcntl(file, nix::fcntl::FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok(libc::c_int::from(lock.l_type) != libc::F_UNLCK)
}

/// Takes a write lock on the whole file, held by this open file description; `EAGAIN` when somebody has one.
pub(super) fn lock_whole(file: &File) -> io::Result<()> {
    nix::fcntl::fcntl(file, nix::fcntl::FcntlArg::F_OFD_SETLK(&whole_file()))?;
    Ok(())
}

/// What a path leads to.
pub(super) struct Seen {
    /// st_dev.
    pub device: u64,
    /// st_ino.
    pub inode: u64,
    /// st_size.
    pub size: u64,
    /// st_rdev of a block device.
    pub block: Option<u64>,
}

/// stat(2) that never waits for a server: what it has cached will do, because devices and inode numbers do not change.
pub(super) fn seen(path: &Path) -> io::Result<Seen> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: statx is a plain C struct of integers, for which zeros are valid.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let (flags, mask) = (libc::AT_STATX_DONT_SYNC, libc::STATX_TYPE | libc::STATX_INO | libc::STATX_SIZE);
    // SAFETY: the path is a live C string, and the kernel writes one statx to a live one.
    let answer = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, mask, &raw mut found) };
    Errno::result(answer)?;
    let is_block = u32::from(found.stx_mode) & libc::S_IFMT == libc::S_IFBLK;
    Ok(Seen {
        device: libc::makedev(found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        size: found.stx_size,
        block: is_block.then(|| libc::makedev(found.stx_rdev_major, found.stx_rdev_minor)),
    })
}

/// Takes a write lease (fcntl(2), "Leases"): it is given only while no other open file description of this file exists,
/// not even one behind a mapping, and whoever opens it then waits until the lease ends.
/// `EAGAIN` when somebody has it open; other errors where leases are not to be had.
pub(super) fn lease(file: &File) -> io::Result<()> {
    set_lease(file, libc::F_WRLCK)
}

/// True when somebody can write to a file that is open here for reading, by a try of a read lease.
pub(super) fn has_writers(file: &File) -> bool {
    let taken = set_lease(file, libc::F_RDLCK);
    if taken.is_ok() {
        let _ = set_lease(file, libc::F_UNLCK);
    }
    taken.is_err_and(|error| error.raw_os_error() == Some(libc::EAGAIN))
}

fn set_lease(file: &File, kind: libc::c_int) -> io::Result<()> {
    // Clients of file servers give a lease only when the server gave them one, and say EAGAIN else, whoever has it open.
    if is_remote(file) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // The signal that announces the end would end the program; SIGURG is ignored unless somebody asks for it.
    // SAFETY: integers only; the descriptor is open for the whole call.
    Errno::result(unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) })?;
    // SAFETY: integers only; the descriptor is open for the whole call.
    Errno::result(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) })?;
    Ok(())
}

/// True while nobody waits for the end of the lease.
pub(super) fn is_leased(file: &File) -> bool {
    // SAFETY: integers only; the descriptor is open for the whole call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) == libc::F_WRLCK }
}

/// linux/magic.h and `fs/smb/client/cifsfs.h`: NFS, SMB 1, SMB 2 and later, Ceph, AFS.
const REMOTE: [u32; 5] = [0x6969, 0xFF53_4D42, 0xFE53_4D42, 0x00C3_6400, 0x5346_414F];

fn is_remote(file: &File) -> bool {
    nix::sys::statfs::fstatfs(file).is_ok_and(|found| REMOTE.contains(&magic(&found)))
}

/// OVERLAYFS_SUPER_MAGIC of linux/magic.h.
const OVERLAY: u32 = 0x794C_7630;

/// True for a file on an overlay filesystem.
pub(super) fn is_on_overlay(path: &Path) -> bool {
    nix::sys::statfs::statfs(path).is_ok_and(|found| magic(&found) == OVERLAY)
}

/// The number of a kind of filesystem; it has 32 bits, whatever the width and sign of the field.
fn magic(found: &nix::sys::statfs::Statfs) -> u32 {
    found.filesystem_type().0.to_le_bytes()[..4].try_into().map_or(0, u32::from_le_bytes)
}

/// linux/fcntl.h (asm-generic/fcntl.h).
const F_SETSIG: libc::c_int = 10;

fn whole_file() -> libc::flock {
    // SAFETY: flock is a plain C struct of integers, for which zeros are valid; its padding differs between machines.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::c_short::try_from(libc::F_WRLCK).unwrap_or(1);
    lock.l_whence = libc::c_short::try_from(libc::SEEK_SET).unwrap_or(0);
    lock
}
