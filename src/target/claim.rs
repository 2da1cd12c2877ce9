//! Keeping everybody else away for the whole run.
//!
//! O_EXCL on a whole disk is refused while any of its partitions is mounted, swap, or part of something; once held,
//! nobody can mount any of them. Two claims of one process conflict too, so there is one per disk, shared.
//! flock(LOCK_EX) on the whole disk asks udev not to probe it meanwhile (systemd: "Locking Block Device Access").

use super::error::TargetError;
use super::facts::{self, DiskFacts, PartitionFacts};
use super::sys;
use super::sysfs::{DeviceNumber, Roots};
use super::usage::{self, Use, User};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How far the claim reaches, and so what may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// The whole disk is claimed: every route may be used.
    WholeDisk,
    /// Another partition of the disk is in use, so only this one is claimed: only `blkdiscard`, which the kernel
    /// keeps inside the partition.
    PartitionOnly {
        /// Who uses the rest of the disk.
        because: Vec<User>,
    },
    /// An image file, locked.
    Image,
}

/// A held claim. Dropping it releases everything.
#[derive(Debug)]
pub struct Claim {
    /// The claimed node: the whole disk, the partition, or the image.
    file: Flock<File>,
    /// The whole disk, locked against udev only, when a partition is what is claimed.
    quiet: Option<Arc<Flock<File>>>,
    reach: Reach,
    /// Other partitions of a disk that is itself held by a mapping of ours: nobody may come to use them meanwhile.
    _fences: Vec<File>,
}

impl Claim {
    /// The claimed node, open for reading, and for writing unless the device is write-protected.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The lock that keeps udev away from the disk of a claimed partition; one per disk, or we would wait for ourselves.
    pub(super) fn quiet(&self) -> Option<&Arc<Flock<File>>> {
        self.quiet.as_ref()
    }

    /// How far it reaches.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }
}

/// Opens without creating, without waiting, and without handing the descriptor to children.
pub(super) fn open(path: &Path, write: bool, exclusive: bool) -> Result<File, TargetError> {
    let mut flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    flags.set(OFlag::O_EXCL, exclusive);
    let opened = OpenOptions::new().read(true).write(write).custom_flags(flags.bits()).open(path);
    opened.map_err(|cause| explained(path, "opening it", cause))
}

/// The error that opening for writing would give, without doing it: a dry run leaves no trace.
pub(super) fn check_writable(path: &Path) -> Result<(), TargetError> {
    let allowed = nix::unistd::eaccess(path, nix::unistd::AccessFlags::W_OK);
    allowed.map_err(|errno| explained(path, "opening it", errno.into()))
}

fn explained(path: &Path, step: &'static str, cause: io::Error) -> TargetError {
    let path = path.to_owned();
    match cause.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ENOTDIR | Errno::ENXIO | Errno::ENODEV) => TargetError::NotFound(path),
        Some(Errno::EACCES | Errno::EPERM) => TargetError::Permission { path },
        Some(Errno::ENOMEDIUM) => TargetError::Empty(path),
        // Somebody holds a lease and has not given it up.
        Some(Errno::EWOULDBLOCK) => {
            let users = vec![User { node: path.clone(), by: Use::Unseen }];
            TargetError::InUse { path, users }
        }
        Some(Errno::EBUSY) => {
            let users = vec![User { node: path.clone(), by: Use::Claimed }];
            TargetError::InUse { path, users }
        }
        _ => TargetError::Io { path, step, cause },
    }
}

/// True for the error that says "somebody holds this exclusively".
fn is_busy(error: &TargetError) -> bool {
    matches!(error, TargetError::InUse { users, .. } if users.iter().all(|user| user.by == Use::Claimed))
}

/// True when the kernel would refuse an exclusive claim of this node at the moment.
pub(super) fn is_claimed(node: &Path) -> bool {
    open(node, false, true).is_err_and(|error| is_busy(&error))
}

/// Opens a node and makes sure that it is the device that was looked up.
pub(super) fn open_node(node: &Path, number: DeviceNumber, write: bool, exclusive: bool) -> Result<File, TargetError> {
    let file = open(node, write, exclusive)?;
    let metadata = file.metadata().map_err(|cause| explained(node, "looking at it", cause))?;
    let found = DeviceNumber::from_raw(metadata.rdev());
    if !metadata.file_type().is_block_device() || found != number {
        let what = format!("expected the block device {number}, found {found}");
        return Err(TargetError::Changed { path: node.into(), what });
    }
    Ok(file)
}

/// How long a short visit of udev or a partitioning tool is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Locks with flock; a lock that stays is a use.
fn quiet(roots: &Roots, path: &Path, mut file: File) -> Result<Flock<File>, TargetError> {
    let started = Instant::now();
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((back, Errno::EWOULDBLOCK)) if started.elapsed() < PATIENCE => file = back,
            Err((back, Errno::EWOULDBLOCK)) => return Err(locked(roots, path, &back)),
            Err((_, errno)) => return Err(explained(path, "locking it", errno.into())),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn locked(roots: &Roots, path: &Path, file: &File) -> TargetError {
    let owner = file.metadata().ok().and_then(|metadata| usage::lock_owner(roots, &metadata));
    TargetError::InUse { path: path.into(), users: vec![User { node: path.into(), by: Use::Locked(owner) }] }
}

/// Claims a disk for a run on it or on one of its partitions. `held` is the lock against udev that an earlier claim
/// on the same disk holds.
pub(super) fn claim_device(
    roots: &Roots,
    disk: &DiskFacts,
    partition: Option<&PartitionFacts>,
    held: Option<Arc<Flock<File>>>,
) -> Result<Claim, TargetError> {
    let others = partition.map(|partition| others(roots, disk, partition)).unwrap_or_default();
    if let (Some(partition), false) = (partition, others.is_empty()) {
        return claim_partition(roots, disk, partition, (others, true), held);
    }
    match (open_node(&disk.node, disk.number, !disk.read_only, true), partition) {
        (Ok(file), _) => Ok(whole_disk(quiet(roots, &disk.node, file)?, Vec::new())),
        (Err(error), Some(partition)) if is_busy(&error) => {
            let because = vec![User { node: disk.node.clone(), by: Use::Claimed }];
            claim_partition(roots, disk, partition, (because, true), held)
        }
        (Err(error), _) => Err(error),
    }
}

fn whole_disk(file: Flock<File>, fences: Vec<File>) -> Claim {
    Claim { file, quiet: None, reach: Reach::WholeDisk, _fences: fences }
}

/// Claims what a mapping of ours holds, and so nobody can claim again: a disk, or a partition of it. The mapping's own claim
/// keeps others away from it; its neighbours on the disk are claimed here, but for those in `spared`, which mappings of ours
/// hold as well. `others` use the rest of the disk.
pub(super) fn claim_below(
    roots: &Roots,
    disk: &DiskFacts,
    partition: Option<&PartitionFacts>,
    (others, spared): (Vec<User>, &[DeviceNumber]),
    held: Option<Arc<Flock<File>>>,
) -> Result<Claim, TargetError> {
    if let (Some(partition), false) = (partition, others.is_empty()) {
        return claim_partition(roots, disk, partition, (others, false), held);
    }
    let mut fences = Vec::new();
    // A mapping that holds a disk as a whole keeps others away from its partitions, too.
    if let Some(partition) = partition {
        for part in facts::partitions(roots, disk).iter().filter(|part| !spared.contains(&part.number)) {
            match open_node(&part.node, part.number, false, true) {
                Ok(fence) => fences.push(fence),
                Err(error) if is_busy(&error) => {
                    let because = vec![User { node: part.node.clone(), by: Use::Claimed }];
                    return claim_partition(roots, disk, partition, (because, false), held);
                }
                Err(error) => return Err(error),
            }
        }
    }
    let file = open_node(&disk.node, disk.number, !disk.read_only, false)?;
    Ok(whole_disk(quiet(roots, &disk.node, file)?, fences))
}

/// Users of the rest of the disk that rule out commands to the whole of it.
pub(super) fn others(roots: &Roots, disk: &DiskFacts, partition: &PartitionFacts) -> Vec<User> {
    let all = usage::of_disk(roots, disk);
    all.into_iter().filter(|user| user.node != partition.node && user.forbids(false)).collect()
}

/// Claims a partition alone, because of others on its disk; without exclusion where a mapping of ours has that already.
fn claim_partition(
    roots: &Roots,
    disk: &DiskFacts,
    partition: &PartitionFacts,
    (because, exclusive): (Vec<User>, bool),
    held: Option<Arc<Flock<File>>>,
) -> Result<Claim, TargetError> {
    let write = !(disk.read_only || partition.read_only);
    let file = open_node(&partition.node, partition.number, write, exclusive)?;
    let file = quiet(roots, &partition.node, file)?;
    let lock = match held {
        Some(lock) => lock,
        None => Arc::new(quiet(roots, &disk.node, open_node(&disk.node, disk.number, false, false)?)?),
    };
    Ok(Claim { file, quiet: Some(lock), reach: Reach::PartitionOnly { because }, _fences: Vec::new() })
}

/// Locks an image in both of the ways in which other programs lock theirs.
pub(super) fn claim_image(roots: &Roots, path: &Path, file: File) -> Result<Claim, TargetError> {
    let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => lock,
        Err((back, Errno::EWOULDBLOCK)) => return Err(locked(roots, path, &back)),
        Err((_, errno)) => return Err(explained(path, "locking it", errno.into())),
    };
    match sys::lock_whole(&file) {
        Ok(()) => Ok(Claim { file, quiet: None, reach: Reach::Image, _fences: Vec::new() }),
        Err(error) if matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EAGAIN | Errno::EACCES)) => {
            Err(locked(roots, path, &file))
        }
        Err(error) => Err(explained(path, "locking it", error)),
    }
}

/// A lock of somebody else on an image or node, without taking one.
pub(super) fn foreign_lock(roots: &Roots, path: &Path, file: &File) -> Option<User> {
    let meets = sys::foreign_lock(file).unwrap_or(false) || has_flock(file);
    let metadata = file.metadata().ok().filter(|_| meets)?;
    Some(User { node: path.into(), by: Use::Locked(usage::lock_owner(roots, &metadata)) })
}

/// Tries the lock that a claim would take, and gives it back at once.
fn has_flock(file: &File) -> bool {
    let Ok(second) = file.try_clone() else { return false };
    match Flock::lock(second, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => {
            drop(lock.unlock());
            false
        }
        Err((_, errno)) => errno == Errno::EWOULDBLOCK,
    }
}
