//! What a run works on: a disk, a partition or an image, found by what the user typed, described from sysfs, known to
//! be used by nobody else, and claimed for the whole run.
//!
//! ```text
//! "LABEL=backup" ── resolve ──> node ── facts ──> what it is ── usage ──> who uses it ── claim ──> Target
//! ```
//!
//! Nothing here decides what is discarded. No SCSI, ATA or NVMe command is sent from here.

mod awake;
mod claim;
mod error;
pub mod facts;
mod interrupt;
pub mod list;
mod resolve;
mod suitable;
mod sys;
mod sysfs;
pub mod usage;
mod virtual_disk;

#[cfg(test)]
mod tests;

pub use awake::Awake;
pub use claim::{Claim, Reach};
pub use error::TargetError;
pub use interrupt::interrupt_flag;
pub use resolve::{Identify, Identity};
pub use suitable::findings as disk_findings;
pub use sysfs::{DeviceNumber, Roots};

use coldtrim_parsers::units::ByteRange;
use coldtrim_parsers::volume::Finding;
use facts::{DiskFacts, Kind, PartitionFacts};
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use usage::{Use, User};

/// How long, and how often, a program that has the target open is given time to leave.
const VISIT: Duration = Duration::from_millis(150);
const VISITS: u32 = 4;

/// What is going to happen to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// It is only read. A use by others is a finding.
    Read,
    /// Bytes of it will be discarded. A use by others is an error, and it is claimed.
    Discard,
}

/// What a target is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Thing {
    /// An image file.
    Image,
    /// A block device.
    Device {
        /// The whole disk.
        disk: Box<DiskFacts>,
        /// The partition, when the target is one.
        partition: Option<Box<PartitionFacts>>,
    },
}

/// An opened target.
#[derive(Debug)]
pub struct Target {
    roots: Roots,
    path: PathBuf,
    thing: Thing,
    file: File,
    size: u64,
    logical_sector: u64,
    physical_sector: u64,
    sequence: Option<u64>,
    inode: (u64, u64),
    users: Vec<User>,
    claim: Option<Arc<Claim>>,
}

/// Opens targets, and shares one claim among those that lie on the same disk.
#[derive(Debug, Default)]
pub struct Opener {
    roots: Roots,
    claims: BTreeMap<DeviceNumber, Arc<Claim>>,
}

impl Opener {
    /// An opener that sees the given trees.
    pub fn new(roots: Roots) -> Self {
        Self { roots, claims: BTreeMap::new() }
    }

    /// Opens what `spec` names: a path, or `LABEL=`, `UUID=`, `PARTLABEL=`, `PARTUUID=`.
    pub fn open(&mut self, spec: &str, intent: Intent, identify: Identify<'_>) -> Result<Target, TargetError> {
        let path = resolve::resolve(&self.roots, spec, identify)?;
        let metadata = std::fs::metadata(&path).map_err(|cause| match cause.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => TargetError::NotFound(path.clone()),
            std::io::ErrorKind::PermissionDenied => TargetError::Permission { path: path.clone() },
            _ => TargetError::Io { path: path.clone(), step: "looking at it", cause },
        })?;
        if let Some(error) = resolve::unsuitable(&self.roots, &path, &metadata) {
            return Err(error);
        }
        if metadata.file_type().is_block_device() {
            self.open_device(path, &metadata, intent)
        } else {
            self.open_image(path, intent)
        }
    }

    fn open_device(&mut self, path: PathBuf, metadata: &Metadata, intent: Intent) -> Result<Target, TargetError> {
        let number = DeviceNumber::from_raw(metadata.rdev());
        let file = claim::open_node(&path, number, false, false)?;
        let (disk, partition) =
            facts::lookup(&self.roots, number).ok_or_else(|| TargetError::NotFound(path.clone()))?;
        let mut target = Target::of_device(&self.roots, path, file, disk, partition)?;
        virtual_disk::refuse(&target.path, &target.file, target.size, false)?;
        match intent {
            Intent::Read => target.users = target.settled_users(self.is_ours(&target)),
            Intent::Discard => {
                target.claim = Some(self.claim(&target)?);
                target.users = target.settled_users(true);
                target.must_be_unused()?;
            }
        }
        target.must_be_unchanged()?;
        Ok(target)
    }

    /// True when a claim of our own explains that the node cannot be claimed again.
    fn is_ours(&self, target: &Target) -> bool {
        let Thing::Device { disk, partition } = &target.thing else { return false };
        let numbers = [Some(disk.number), partition.as_ref().map(|partition| partition.number)];
        numbers.into_iter().flatten().any(|number| self.claims.contains_key(&number))
    }

    fn claim(&mut self, target: &Target) -> Result<Arc<Claim>, TargetError> {
        let Thing::Device { disk, partition } = &target.thing else {
            return Err(TargetError::NotFound(target.path.clone()));
        };
        let part_number = partition.as_ref().map(|partition| partition.number);
        let held = [Some(disk.number), part_number].into_iter().flatten().find_map(|number| self.claims.get(&number));
        if let Some(claim) = held {
            return Ok(Arc::clone(claim));
        }
        let parts = facts::partitions(&self.roots, disk);
        let held = parts.iter().find_map(|part| self.claims.get(&part.number)?.quiet().cloned());
        let claim = claim::claim_device(&self.roots, disk, partition.as_deref(), held)
            .map_err(|error| target.explain(error))?;
        let number = match (claim.reach(), partition) {
            (Reach::PartitionOnly { .. }, Some(partition)) => partition.number,
            _ => disk.number,
        };
        let claim = Arc::new(claim);
        self.claims.insert(number, Arc::clone(&claim));
        Ok(claim)
    }

    fn open_image(&self, path: PathBuf, intent: Intent) -> Result<Target, TargetError> {
        let file = claim::open(&path, false, false)?;
        let mut target = Target::of_image(&self.roots, path, file)?;
        virtual_disk::refuse(&target.path, &target.file, target.size, true)?;
        match intent {
            Intent::Read => {
                target.users = target.settled_users(false);
                target.users.extend(claim::foreign_lock(&self.roots, &target.path, &target.file));
            }
            Intent::Discard => {
                let writable = claim::open(&target.path, true, false)?;
                let found = writable.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
                if found.ok() != Some(target.inode) {
                    return Err(target.changed("the name leads to another file"));
                }
                target.users = target.settled_users(false);
                target.must_be_unused()?;
                target.claim = Some(Arc::new(claim::claim_image(&self.roots, &target.path, writable)?));
            }
        }
        target.must_be_unchanged()?;
        Ok(target)
    }
}

impl Target {
    fn of_device(
        roots: &Roots,
        path: PathBuf,
        file: File,
        disk: DiskFacts,
        partition: Option<PartitionFacts>,
    ) -> Result<Self, TargetError> {
        let failed = |step| {
            let path = path.clone();
            move |cause| TargetError::Io { path, step, cause }
        };
        let size = sys::size(&file).map_err(failed("asking for its size"))?;
        if size == 0 {
            return Err(TargetError::Empty(path));
        }
        Ok(Self {
            roots: roots.clone(),
            size,
            logical_sector: sys::logical_sector(&file).map_err(failed("asking for its sector size"))?,
            physical_sector: sys::physical_sector(&file).map_err(failed("asking for its sector size"))?,
            sequence: sys::disk_sequence(&file),
            inode: (0, 0),
            thing: Thing::Device { disk: Box::new(disk), partition: partition.map(Box::new) },
            users: Vec::new(),
            claim: None,
            path,
            file,
        })
    }

    fn of_image(roots: &Roots, path: PathBuf, file: File) -> Result<Self, TargetError> {
        let metadata =
            file.metadata().map_err(|cause| TargetError::Io { path: path.clone(), step: "looking at it", cause })?;
        if metadata.len() == 0 {
            return Err(TargetError::Empty(path));
        }
        Ok(Self {
            roots: roots.clone(),
            size: metadata.len(),
            logical_sector: 512,
            physical_sector: 512,
            sequence: None,
            inode: (metadata.dev(), metadata.ino()),
            thing: Thing::Image,
            users: Vec::new(),
            claim: None,
            path,
            file,
        })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is.
    pub fn thing(&self) -> &Thing {
        &self.thing
    }

    /// The kind of thing, of the whole disk when it is a partition.
    pub fn kind(&self) -> Kind {
        self.disk().map_or(Kind::Image, |disk| disk.kind)
    }

    /// The whole disk; none for an image.
    pub fn disk(&self) -> Option<&DiskFacts> {
        match &self.thing {
            Thing::Image => None,
            Thing::Device { disk, .. } => Some(disk),
        }
    }

    /// The partition, when the target is one.
    pub fn partition(&self) -> Option<&PartitionFacts> {
        match &self.thing {
            Thing::Image => None,
            Thing::Device { partition, .. } => partition.as_deref(),
        }
    }

    /// Length in bytes, as the kernel has it now.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Logical sector size in bytes; 512 for an image.
    pub fn logical_sector(&self) -> u64 {
        self.logical_sector
    }

    /// Physical sector size in bytes.
    pub fn physical_sector(&self) -> u64 {
        self.physical_sector
    }

    /// The target's bytes on its whole disk; from 0 for disks and images.
    pub fn range_on_disk(&self) -> Option<ByteRange> {
        match self.partition() {
            Some(partition) => Some(partition.range),
            None => ByteRange::with_len(0, self.size),
        }
    }

    /// A read-only descriptor of the target, to be given away.
    pub fn reader(&self) -> Result<File, TargetError> {
        self.file.try_clone().map_err(|cause| self.failed("duplicating its descriptor", cause))
    }

    /// A read-only descriptor of the whole disk; of the image when it is one.
    pub fn disk_reader(&self) -> Result<File, TargetError> {
        match self.disk() {
            None => self.reader(),
            Some(disk) => claim::open_node(&disk.node, disk.number, false, false),
        }
    }

    /// The claimed descriptor, shared; an error when the target is not claimed.
    pub fn claimed(&self) -> Result<File, TargetError> {
        let claim = self.claim.as_ref().ok_or_else(|| self.changed("it is not claimed"))?;
        claim.file().try_clone().map_err(|cause| self.failed("duplicating its descriptor", cause))
    }

    /// The partitions of the target's disk that the kernel knows.
    pub fn disk_partitions(&self) -> Vec<PartitionFacts> {
        self.disk().map(|disk| facts::partitions(&self.roots, disk)).unwrap_or_default()
    }

    /// The node of partition `number` of this disk, for messages; the target itself where there is none.
    pub fn node_of_partition(&self, number: Option<u32>) -> PathBuf {
        let parts = self.disk_partitions();
        let found = parts.into_iter().find(|part| Some(part.index) == number);
        found.map_or_else(|| self.path.clone(), |part| part.node)
    }

    /// Who uses other partitions of the target's disk, so that commands to the whole of it are out of the question.
    pub fn neighbours(&self) -> Vec<User> {
        match (self.disk(), self.partition()) {
            (Some(disk), Some(partition)) => claim::others(&self.roots, disk, partition),
            _ => Vec::new(),
        }
    }

    /// A second, writable, unclaimed descriptor of the target's own node, for commands that the kernel keeps inside
    /// it. Only while the claim is held.
    pub fn writer(&self) -> Result<File, TargetError> {
        match (&self.claim, &self.thing) {
            (None, _) => Err(self.changed("it is not claimed")),
            (Some(claim), Thing::Image) => {
                claim.file().try_clone().map_err(|cause| self.failed("duplicating its descriptor", cause))
            }
            (Some(_), Thing::Device { disk, partition }) => {
                let number = partition.as_ref().map_or(disk.number, |partition| partition.number);
                claim::open_node(&self.path, number, true, false)
            }
        }
    }

    /// The claim, when it was opened for discarding.
    pub fn claim(&self) -> Option<&Claim> {
        self.claim.as_deref()
    }

    /// Who else uses it.
    pub fn users(&self) -> &[User] {
        &self.users
    }

    /// Everything about the target itself that speaks against a discard or is worth saying.
    pub fn findings(&self) -> Vec<Finding> {
        let is_image = self.thing == Thing::Image;
        let mut found: Vec<Finding> = self
            .users
            .iter()
            .map(|user| {
                if user.forbids(is_image) {
                    Finding::refusal(user.to_string(), user.remedy())
                } else {
                    Finding::warning(user.to_string())
                }
            })
            .collect();
        if let Some(disk) = self.disk() {
            found.extend(suitable::findings(disk, self.partition()));
        }
        if let Some(Reach::PartitionOnly { because }) = self.claim().map(Claim::reach) {
            let words: Vec<String> = because.iter().map(ToString::to_string).collect();
            found.push(Finding::warning(format!(
                "another part of the disk is in use ({}), so only this partition is claimed and only blkdiscard is allowed",
                words.join("; ")
            )));
        }
        found
    }

    /// Writes back and drops what the kernel has cached of this node, its whole disk, and the disk's partitions when
    /// the target is the disk: no answer may come from a cache. Words when the kernel does not allow it.
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
            let file = claim::open_node(&node, number, false, false)?;
            sys::flush_cache(&file).map_err(|cause| TargetError::Io {
                path: node,
                step: "dropping its cache",
                cause,
            })?;
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
    fn settled_users(&self, ours: bool) -> Vec<User> {
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
    fn explain(&self, error: TargetError) -> TargetError {
        match error {
            TargetError::InUse { path, users } if users.iter().all(|user| user.by == Use::Claimed) => {
                let named: Vec<User> = self.find_users(true).into_iter().filter(|user| user.forbids(false)).collect();
                TargetError::InUse { path, users: if named.is_empty() { users } else { named } }
            }
            other => other,
        }
    }

    fn must_be_unused(&self) -> Result<(), TargetError> {
        let is_image = self.thing == Thing::Image;
        let users: Vec<User> = self.users.iter().filter(|user| user.forbids(is_image)).cloned().collect();
        if users.is_empty() { Ok(()) } else { Err(TargetError::InUse { path: self.path.clone(), users }) }
    }

    fn changed(&self, what: &str) -> TargetError {
        TargetError::Changed { path: self.path.clone(), what: what.to_owned() }
    }

    fn failed(&self, step: &'static str, cause: std::io::Error) -> TargetError {
        TargetError::Io { path: self.path.clone(), step, cause }
    }
}
