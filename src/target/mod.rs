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
pub mod dm;
mod error;
pub mod facts;
mod interrupt;
pub mod list;
mod opener;
mod resolve;
pub mod suitable;
mod sys;
mod sysfs;
pub mod usage;
mod virtual_disk;
mod visitors;
mod watch;

#[cfg(test)]
mod tests;

pub use awake::Awake;
pub use claim::{Claim, Reach};
pub use error::TargetError;
pub use interrupt::{interrupt_flag, wait_for_input};
pub use opener::Opener;
pub use resolve::{Identify, Identity};
pub use suitable::findings as disk_findings;
pub use sysfs::{DeviceNumber, Roots};
pub use watch::Troubles;

use coldtrim_parsers::units::ByteRange;
use coldtrim_parsers::volume::Finding;
use facts::{DiskFacts, Kind, PartitionFacts};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use usage::User;
use visitors::Visitors;
use watch::Writes;

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
    /// What shows that somebody has written, as it was when the target was read.
    writes: Writes,
    /// Whether a lease tells when somebody opens the image.
    leased: bool,
    /// What tells when somebody opens the device.
    visitors: Option<Visitors>,
    users: Vec<User>,
    claim: Option<Arc<Claim>>,
    /// The mappings that lead from other targets of the run to this one: their use of it is ours.
    mappings: Vec<dm::Stack>,
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
            writes: Writes::Unknown,
            leased: false,
            visitors: None,
            thing: Thing::Device { disk: Box::new(disk), partition: partition.map(Box::new) },
            users: Vec::new(),
            claim: None,
            mappings: Vec::new(),
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
            writes: Writes::Unknown,
            leased: false,
            visitors: None,
            thing: Thing::Image,
            users: Vec::new(),
            claim: None,
            mappings: Vec::new(),
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
            (Some(disk), Some(partition)) => {
                let mut others = claim::others(&self.roots, disk, partition);
                others.retain(|user| !self.is_ours(user));
                others
            }
            _ => Vec::new(),
        }
    }

    /// True for a use by a mapping that leads from another target of the run to this one.
    fn is_ours(&self, user: &User) -> bool {
        dm::is_holder(&self.roots, &self.mappings, user)
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

    /// An error where a run could not open what it has to write to.
    pub fn must_be_writable(&self) -> Result<(), TargetError> {
        claim::check_writable(self.disk().map_or(&self.path, |disk| &disk.node))
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
        let unseen = usage::unseen(&self.roots);
        if unseen > 0 && !self.is_own_image() {
            found.push(Finding::warning(format!(
                "the open files of {unseen} processes of other users cannot be seen, so they may be using it; root sees them"
            )));
        }
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

    /// True for an image of ours, which gets a lease before anything is discarded: it tells of everybody.
    fn is_own_image(&self) -> bool {
        let owner = self.file.metadata().map(|found| found.uid()).ok();
        self.thing == Thing::Image && owner == Some(nix::unistd::geteuid().as_raw())
    }

    fn changed(&self, what: &str) -> TargetError {
        TargetError::Changed { path: self.path.clone(), what: what.to_owned() }
    }

    fn failed(&self, step: &'static str, cause: std::io::Error) -> TargetError {
        TargetError::Io { path: self.path.clone(), step, cause }
    }
}
