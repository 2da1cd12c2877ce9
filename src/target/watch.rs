//! A target during the run: who uses it, whether it is still the same, and what the kernel has cached of it.

use super::claim;
use super::error::TargetError;
use super::usage::{self, Use, User};
use super::{Target, Thing, facts, sys};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// How long, and how often, a program that has the target open is given time to leave.
const VISIT: Duration = Duration::from_millis(150);
const VISITS: u32 = 4;

/// What shows that somebody has written to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writes {
    /// Not looked at yet, or not to be had.
    Unknown,
    /// When an image was last changed, in seconds and nanoseconds: its contents, and anything of it.
    Image([(i64, i64); 2]),
    /// Sectors that the kernel has written to a device since it came.
    Device(u64),
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
    /// Notes what shows that somebody writes, before the target is read.
    pub fn note_writes(&mut self) {
        self.writes = self.writes_now();
    }

    fn writes_now(&self) -> Writes {
        let Thing::Device { disk, partition } = &self.thing else {
            return self.file.metadata().map_or(Writes::Unknown, |found| {
                Writes::Image([(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())])
            });
        };
        let sysfs = partition.as_ref().map_or(&disk.sysfs, |partition| &partition.sysfs);
        sectors_written(sysfs).map_or(Writes::Unknown, Writes::Device)
    }

    /// The last look before the first command: the target is what it was, nobody uses it, and nobody has written to
    /// it since it was read. From here on nobody can open an image without being noticed, where the filesystem that
    /// holds it has leases. Gives a remark where that is not so.
    ///
    /// # Errors
    /// The target is another, in use, or was written to.
    pub fn seal(&mut self) -> Result<Option<&'static str>, TargetError> {
        self.must_be_unchanged()?;
        self.must_be_still_unused()?;
        let mut remark = None;
        if let (Thing::Image, Some(claim)) = (&self.thing, &self.claim) {
            // A lease needs ours to be the only open file description.
            self.file = claim.file().try_clone().map_err(|cause| self.failed("duplicating its descriptor", cause))?;
            match sys::lease(&self.file) {
                Ok(()) => self.leased = true,
                Err(error) if error.raw_os_error() == Some(nix::libc::EAGAIN) => {
                    return Err(self.in_use(vec![User { node: self.path.clone(), by: Use::Unseen }]));
                }
                // Somebody else's file, or a filesystem without leases.
                Err(_) => {
                    remark = Some(
                        "the kernel gives no lease on this image, so who opens it meanwhile is looked for once a second only",
                    );
                }
            }
        }
        if self.writes_now() != self.writes {
            return Err(self.changed("somebody has written to it since it was read"));
        }
        Ok(remark)
    }

    /// An error when the target is not what it was, or somebody waits to open the image. Cheap enough to be asked
    /// before every command.
    pub fn must_be_undisturbed(&self) -> Result<(), TargetError> {
        self.must_be_unchanged()?;
        if self.leased && !sys::is_leased(&self.file) {
            let users = self.settled_users(true).into_iter().filter(|user| user.forbids(true)).collect::<Vec<_>>();
            let unseen = vec![User { node: self.path.clone(), by: Use::Unseen }];
            return Err(self.in_use(if users.is_empty() { unseen } else { users }));
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

    fn in_use(&self, users: Vec<User>) -> TargetError {
        TargetError::InUse { path: self.path.clone(), users }
    }

    /// Writes back and drops what the kernel has cached of this node, its whole disk, and the disk's partitions when
    /// the target is the disk: no answer may come from a cache.
    pub fn drop_caches(&self) -> Result<(), TargetError> {
        let Thing::Device { disk, partition } = &self.thing else { return Ok(()) };
        let mut nodes = vec![(disk.node.clone(), disk.number)];
        match partition {
            Some(partition) => nodes.push((partition.node.clone(), partition.number)),
            None => {
                let parts = facts::partitions(&self.roots, disk);
                nodes.extend(parts.into_iter().map(|part| (part.node, part.number)));
            }
        }
        for (node, number) in nodes {
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

    /// An error unless the target is still what it was when it was opened: same device, same size, still there.
    pub fn must_be_unchanged(&self) -> Result<(), TargetError> {
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

/// Field 7 of a block device's `stat` (Documentation/block/stat.rst). Pass-through commands do not count, discards have
/// fields of their own.
fn sectors_written(sysfs: &Path) -> Option<u64> {
    std::fs::read_to_string(sysfs.join("stat")).ok()?.split_whitespace().nth(6)?.parse().ok()
}
