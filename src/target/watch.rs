//! A target during the run: who uses it, whether it is still the same, and what the kernel has cached of it.

use super::claim;
use super::error::TargetError;
use super::facts::PartitionFacts;
use super::sysfs::DeviceNumber;
use super::usage::{self, Use, User};
use super::visitors::{News, Visitors};
use super::{Target, Thing, dm, facts, sys};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The kernel's account counts these, whatever the disk's sector size is.
const SECTOR: u64 = 512;
/// How long, and how often, a program that has the target open is given time to leave.
const VISIT: Duration = Duration::from_millis(150);
const VISITS: u32 = 4;

/// When a file was last changed, in seconds and nanoseconds: its contents, and anything of it.
type Times = [(i64, i64); 2];

/// What shows that somebody has written to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writes {
    /// Not looked at yet, or not to be had.
    Unknown,
    /// When an image was last changed.
    Image(Times),
    /// Of a device.
    Device {
        /// Sectors that the kernel has written to it since it came.
        sectors: u64,
        /// The same for its whole disk.
        of_disk: u64,
        /// When the file behind a loop device was last changed.
        behind: Option<Times>,
    },
}

impl Writes {
    /// True unless this shows that nobody has written since it was `before`. What is written to other partitions changes
    /// the file behind a loop device, too.
    fn is_later_than(self, before: Self) -> bool {
        match (before, self) {
            (
                Self::Device { sectors, of_disk, behind },
                Self::Device { sectors: now, of_disk: of_disk_now, behind: behind_now },
            ) => sectors != now || (behind != behind_now && of_disk == of_disk_now),
            (before, now) => before != now,
        }
    }
}

fn times(found: &Metadata) -> Times {
    [(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())]
}

/// What went wrong on a disk since it came (sysfs, SCSI disks only). A reset is among it, also where the kernel has sent
/// the command again without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Troubles {
    pub(super) errors: u64,
    pub(super) timeouts: u64,
}

impl Troubles {
    /// What has been added since then, in words.
    pub fn since(self, before: Self) -> Option<String> {
        let (errors, timeouts) =
            (self.errors.saturating_sub(before.errors), self.timeouts.saturating_sub(before.timeouts));
        (errors + timeouts > 0).then(|| {
            format!(
                "the kernel counted {errors} failed commands and {timeouts} time-outs on the device that were not ours: it \
                 was reset, or answers badly"
            )
        })
    }
}

impl Target {
    /// Notes what shows that somebody writes, before the target is read, and again when what a trial wrote is part of it.
    pub fn note_writes(&mut self) {
        self.writes = self.writes_now();
    }

    fn writes_now(&self) -> Writes {
        let Some(disk) = self.disk() else {
            return self.file.metadata().map_or(Writes::Unknown, |found| Writes::Image(times(&found)));
        };
        let behind = usage::file_behind(&self.roots, disk).and_then(|path| std::fs::metadata(path).ok());
        let (Some(of_disk), Some(sectors)) = (sectors_written(&disk.sysfs), self.sectors_now()) else {
            return Writes::Unknown;
        };
        Writes::Device { sectors, of_disk, behind: behind.as_ref().map(times) }
    }

    /// Sectors written to a device since it came.
    fn sectors_now(&self) -> Option<u64> {
        match self.partition() {
            None => sectors_written(&self.disk()?.sysfs),
            Some(partition) => self.sectors_written_inside(partition),
        }
    }

    /// Sectors written to a partition by its own node or by that of the whole disk, which counts what is written to any
    /// partition. The counters are not read at one moment, so until the others stand still; where they never do, the
    /// partition's own.
    fn sectors_written_inside(&self, partition: &PartitionFacts) -> Option<u64> {
        let disk = self.disk()?;
        let parts = self.disk_partitions();
        let others: Vec<&PartitionFacts> =
            parts.iter().filter(|other| !other.range.overlaps(partition.range)).collect();
        let beside = || others.iter().map(|other| sectors_written(&other.sysfs)).sum::<Option<u64>>();
        for _ in 0..20 {
            let (before, all, after) = (beside()?, sectors_written(&disk.sysfs)?, beside()?);
            if before == after {
                return all.checked_sub(before);
            }
        }
        sectors_written(&partition.sysfs)
    }

    /// The last look before the first command: the target is what it was, nobody uses it, and nobody has written to
    /// it since it was read. From here on nobody can open it without being noticed, where the kernel tells. Gives a remark
    /// where that is not so.
    ///
    /// # Errors
    /// The target is another, in use, or was written to; or it may be in use and nobody can tell.
    pub fn seal(&mut self) -> Result<Option<String>, TargetError> {
        self.must_be_unchanged()?;
        let remark = match self.thing {
            Thing::Image => self.take_lease()?,
            Thing::Device { .. } => self.listen(),
        };
        self.must_be_still_unused()?;
        self.drop_caches()?;
        if self.writes_now().is_later_than(self.writes) {
            return Err(self.changed("somebody has written to it since it was read"));
        }
        Ok(remark)
    }

    fn take_lease(&mut self) -> Result<Option<String>, TargetError> {
        let Some(claim) = &self.claim else { return Ok(None) };
        // A lease needs ours to be the only open file description.
        self.file = claim.file().try_clone().map_err(|cause| self.failed("duplicating its descriptor", cause))?;
        match sys::lease(&self.file) {
            Ok(()) => {
                self.leased = true;
                Ok(None)
            }
            Err(error) if error.raw_os_error() == Some(nix::libc::EAGAIN) => Err(self.in_use(vec![self.unseen_user()])),
            // Somebody else's file, or a filesystem without leases.
            Err(_) if usage::unseen(&self.roots) > 0 => Err(TargetError::Unknowable(self.path.clone())),
            Err(_) => Ok(Some(seldom("the kernel gives no lease on this image"))),
        }
    }

    /// Listens for programs that open the device by any of its nodes, or the file behind it.
    fn listen(&mut self) -> Option<String> {
        let mut nodes: Vec<PathBuf> = self.nodes().into_iter().map(|(node, _)| node).collect();
        nodes.extend(self.disk().and_then(|disk| usage::file_behind(&self.roots, disk)));
        match Visitors::of(&nodes) {
            Ok(visitors) => {
                self.visitors = Some(visitors);
                None
            }
            Err(error) => Some(seldom(&format!("the kernel does not tell who opens this device ({error})"))),
        }
    }

    /// An error when the target is not what it was, somebody waits to open the image, or has come to the device. Cheap
    /// enough to be asked before every command. The run itself may have written `own` bytes, or be writing them.
    pub fn must_be_undisturbed(&self, own: u64) -> Result<(), TargetError> {
        self.must_be_unchanged()?;
        if self.leased && !sys::is_leased(&self.file) {
            let users = self.settled_users(true).into_iter().filter(|user| user.forbids(true)).collect::<Vec<_>>();
            return Err(self.in_use(if users.is_empty() { vec![self.unseen_user()] } else { users }));
        }
        loop {
            match self.visitors.as_ref().map_or(News::Nothing, Visitors::news) {
                News::Nothing => break,
                // A visitor who leaves while we look may have written, which is news again.
                News::Opened => self.must_be_still_unused()?,
                News::Wrote(id) => {
                    return Err(self.changed(&format!("process {id} has opened it for writing since the run began")));
                }
            }
        }
        // A run changes the file behind a loop device itself.
        if let Writes::Device { sectors, .. } = self.writes
            && !self.sectors_now().is_some_and(|now| (sectors..=sectors.saturating_add(own / SECTOR)).contains(&now))
        {
            return Err(self.changed("somebody has written to it since the run began"));
        }
        Ok(())
    }

    /// How many commands to the disk have failed or were not answered in time, as the kernel counts; none where it does not.
    pub fn troubles(&self) -> Option<Troubles> {
        let count = |name: &str| {
            let text = std::fs::read_to_string(self.disk()?.sysfs.join("device").join(name)).ok()?;
            u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
        };
        Some(Troubles { errors: count("ioerr_cnt")?, timeouts: count("iotmo_cnt").unwrap_or(0) })
    }

    fn unseen_user(&self) -> User {
        User { node: self.path.clone(), by: Use::Unseen }
    }

    fn in_use(&self, users: Vec<User>) -> TargetError {
        TargetError::InUse { path: self.path.clone(), users }
    }

    /// Writes back and drops what the kernel has cached of this node, its whole disk, and the disk's partitions when
    /// the target is the disk: no answer may come from a cache.
    pub fn drop_caches(&self) -> Result<(), TargetError> {
        for (node, number) in self.nodes() {
            let flushed = claim::open_node(&node, number, false, false).and_then(|file| {
                sys::flush_cache(&file).map_err(|cause| match cause.kind() {
                    std::io::ErrorKind::PermissionDenied => TargetError::Permission { path: node.clone() },
                    _ => TargetError::Io { path: node.clone(), step: "dropping its cache", cause },
                })
            });
            match flushed {
                Ok(()) => {}
                // Who may read a disk without being root may look at a map; nothing is discarded without a claim.
                Err(TargetError::Permission { .. }) if self.claim.is_none() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The nodes of a device by which its bytes can be reached: those of mappings that lead to it, its own, that of its whole disk, and those of the disk's
    /// partitions when the target is the disk.
    fn nodes(&self) -> Vec<(PathBuf, DeviceNumber)> {
        let Thing::Device { disk, partition } = &self.thing else { return Vec::new() };
        let parts = match partition {
            Some(partition) => vec![(partition.node.clone(), partition.number)],
            None => self.disk_partitions().into_iter().map(|part| (part.node, part.number)).collect(),
        };
        // What is still to be written goes down from the mappings that lead here.
        let mut nodes = dm::nodes(&self.roots, &self.mappings);
        nodes.push((disk.node.clone(), disk.number));
        nodes.extend(parts);
        nodes
    }

    /// An error unless the target is still what it was when it was opened: same device, same size, still there.
    pub fn must_be_unchanged(&self) -> Result<(), TargetError> {
        if !self.mappings.iter().all(|stack| stack.is_unchanged(&self.roots)) {
            return Err(self.changed("a mapping that leads to it has another table"));
        }
        let Thing::Device { disk, partition } = &self.thing else { return self.image_unchanged() };
        let number = partition.as_ref().map_or(disk.number, |partition| partition.number);
        let (now, part_now) =
            facts::lookup(&self.roots, number).ok_or_else(|| self.changed("the kernel has removed it"))?;
        if now.sysfs != disk.sysfs || now.sequence != disk.sequence || now.serial != disk.serial {
            return Err(self.changed("another disk has taken its place"));
        }
        if now.size != disk.size || part_now.map(|part| part.range) != self.partition().map(|part| part.range) {
            return Err(self.changed("its size or place changed"));
        }
        let size = sys::size(&self.file).map_err(|cause| self.failed("asking for its size", cause))?;
        let expected = partition.as_ref().map_or(disk.size, |partition| partition.range.len());
        if size != self.size || size != expected {
            return Err(self.changed(&format!("expected {} bytes, found {size}", self.size)));
        }
        if sys::disk_sequence(&self.file) != self.sequence
            || (disk.sequence.is_some() && self.sequence != disk.sequence)
        {
            return Err(self.changed("its sequence number changed"));
        }
        Ok(())
    }

    fn image_unchanged(&self) -> Result<(), TargetError> {
        let metadata = std::fs::metadata(&self.path).map_err(|cause| self.failed("looking at it", cause))?;
        if (metadata.dev(), metadata.ino()) != self.inode {
            return Err(self.changed("the name leads to another file"));
        }
        if metadata.len() != self.size {
            return Err(self.changed(&format!("expected {} bytes, found {}", self.size, metadata.len())));
        }
        Ok(())
    }

    /// Who uses it, after a second look when that is a program alone: partitioning tools and udev visit every disk
    /// for a moment.
    pub(super) fn settled_users(&self, ours: bool) -> Vec<User> {
        let is_image = self.thing == Thing::Image;
        let mut users = self.find_users(ours);
        for _ in 0..VISITS {
            let mut forbidding = users.iter().filter(|user| user.forbids(is_image)).peekable();
            if forbidding.peek().is_none() || !forbidding.all(|user| matches!(user.by, Use::Open { .. })) {
                break;
            }
            std::thread::sleep(VISIT);
            users = self.find_users(ours);
        }
        users
    }

    /// Who uses it now. `ours` tells that a claim that the kernel reports is our own.
    fn find_users(&self, ours: bool) -> Vec<User> {
        let Thing::Device { disk, partition } = &self.thing else {
            return match self.file.metadata() {
                Ok(metadata) => usage::of_image(&self.roots, &self.path, &metadata),
                Err(_) => Vec::new(),
            };
        };
        let mut users = match partition {
            Some(partition) => usage::of_partition(&self.roots, disk, partition),
            None => usage::of_disk(&self.roots, disk),
        };
        // flock on a node is udev's business and ours; a record lock is a virtual machine's.
        if sys::foreign_lock(&self.file).unwrap_or(false) {
            users.push(User { node: self.path.clone(), by: Use::Locked(None) });
        }
        if !self.mappings.is_empty() {
            users.retain(|user| !self.is_ours(user));
            users.extend(dm::users(&self.roots, &self.mappings));
            // The kernel reports the claim of a mapping of ours.
            return users;
        }
        let is_explained = users.iter().any(|user| user.forbids(false));
        if !ours && !is_explained && claim::is_claimed(&self.path) {
            users.push(User { node: self.path.clone(), by: Use::Claimed });
        }
        users
    }

    /// The same error with the names of the users, where they can be found.
    pub(super) fn explain(&self, error: TargetError) -> TargetError {
        match error {
            TargetError::InUse { path, users } if users.iter().all(|user| user.by == Use::Claimed) => {
                let named: Vec<User> = self.find_users(true).into_iter().filter(|user| user.forbids(false)).collect();
                TargetError::InUse { path, users: if named.is_empty() { users } else { named } }
            }
            other => other,
        }
    }

    /// An error when somebody has come to use the target since it was opened. A claim keeps mounts and the like away
    /// from a device; nothing keeps a loop device away from an image.
    pub fn must_be_still_unused(&self) -> Result<(), TargetError> {
        let is_image = self.thing == Thing::Image;
        let users = self.settled_users(self.claim.is_some());
        let users: Vec<User> = users.into_iter().filter(|user| user.forbids(is_image)).collect();
        if users.is_empty() { Ok(()) } else { Err(self.in_use(users)) }
    }

    pub(super) fn must_be_unused(&self) -> Result<(), TargetError> {
        let is_image = self.thing == Thing::Image;
        let users: Vec<User> = self.users.iter().filter(|user| user.forbids(is_image)).cloned().collect();
        if users.is_empty() { Ok(()) } else { Err(self.in_use(users)) }
    }
}

fn seldom(why: &str) -> String {
    format!("{why}, so who opens it meanwhile is looked for once a second only")
}

/// Field 7 of a block device's `stat` (Documentation/block/stat.rst). Pass-through commands do not count, discards have
/// fields of their own.
fn sectors_written(sysfs: &Path) -> Option<u64> {
    std::fs::read_to_string(sysfs.join("stat")).ok()?.split_whitespace().nth(6)?.parse().ok()
}
