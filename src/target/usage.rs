//! Who uses a device or an image: everything that the kernel shows about it, by name.
//!
//! None of these lists is complete. The exclusive claim (`claim.rs`) is the lock; this is its explanation, and it
//! sees what a claim cannot: image files, programs that merely opened a node, locks of virtual machines.

mod scan;

#[cfg(test)]
pub(super) use scan::unescaped;
pub(super) use scan::{Mount, leased, lock_owner, unseen};

use super::facts::{DiskFacts, Kind, PartitionFacts, disk, lookup, partitions};
use super::sys;
use super::sysfs::Roots;
use coldtrim_parsers::text::quoted;
use scan::{Backing, Wanted, backing, holders, of_backing_file, of_nodes};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One user of a device or image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct User {
    /// The node or image that is used.
    pub node: PathBuf,
    /// By whom.
    pub by: Use,
}

/// The kinds of use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    /// A mounted filesystem.
    Mount {
        /// Where.
        at: String,
        /// The process in whose mount namespace it is visible, when it is not in ours.
        seen_by: Option<Process>,
    },
    /// Swap space.
    Swap,
    /// A mounted filesystem that spans several devices (btrfs), with its UUID.
    Filesystem(String),
    /// A device made from it: `dm-0` with its name, `md127`, `bcache0`.
    Holder {
        /// Kernel name.
        device: String,
        /// Name in device-mapper.
        name: Option<String>,
    },
    /// A loop device.
    Loop(String),
    /// A program that has it open.
    Open {
        /// Which.
        process: Process,
        /// True when it can write.
        writes: bool,
    },
    /// A lock on it (a virtual machine holds such locks on its disks), and its owner where the kernel tells.
    Locked(Option<Process>),
    /// The kernel refuses an exclusive claim and shows no reason.
    Claimed,
    /// An image that somebody has open whom no list shows.
    Unseen,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// Its short name.
    pub name: String,
}

impl User {
    /// True when nothing may be discarded. A program that only reads a block device is a remark; one that reads an
    /// image may be a virtual machine, and images have no claim that would stop it.
    pub fn forbids(&self, is_image: bool) -> bool {
        is_image || !matches!(self.by, Use::Open { writes: false, .. })
    }

    /// What to type to end the use, where that is a command.
    pub fn remedy(&self) -> String {
        let node = quoted(&self.node.to_string_lossy());
        match &self.by {
            Use::Mount { seen_by: Some(process), at } => format!("nsenter -t {} -m umount {}", process.id, quoted(at)),
            Use::Mount { at, .. } => format!("umount {}   (or: udisksctl unmount -b {node})", quoted(at)),
            Use::Swap => format!("swapoff {node}"),
            Use::Filesystem(_) => format!("umount {node}"),
            Use::Holder { name: Some(name), .. } => format!("dmsetup remove {}", quoted(name)),
            Use::Holder { device, .. } if device.starts_with("md") => format!("mdadm --stop /dev/{device}"),
            Use::Holder { device, .. } => format!("stop /dev/{device}"),
            Use::Loop(device) => format!("losetup -d /dev/{device}"),
            Use::Open { process, .. } | Use::Locked(Some(process)) => {
                format!("end process {} ({})", process.id, process.name)
            }
            Use::Unseen => format!("find out who, as root: fuser -v {node}"),
            Use::Locked(None) | Use::Claimed => format!("find out who: fuser -v {node}; lsblk {node}"),
        }
    }
}

impl std::fmt::Display for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is ", self.node.display())?;
        match &self.by {
            Use::Mount { at, seen_by: None } => write!(f, "mounted at {at}"),
            Use::Mount { at, seen_by: Some(process) } => {
                write!(f, "mounted at {at} in the mount namespace of process {process}")
            }
            Use::Swap => write!(f, "in use as swap space"),
            Use::Filesystem(uuid) => write!(f, "part of the mounted filesystem {uuid}"),
            Use::Holder { device, name: Some(name) } => write!(f, "used by the device \"{name}\" (/dev/{device})"),
            Use::Holder { device, name: None } => write!(f, "used by the device /dev/{device}"),
            Use::Loop(device) => write!(f, "behind the loop device /dev/{device}"),
            Use::Open { process, writes: true } => write!(f, "open for writing in process {process}"),
            Use::Open { process, writes: false } => write!(f, "open in process {process}"),
            Use::Locked(Some(process)) => write!(f, "locked by process {process}"),
            Use::Locked(None) => write!(f, "locked by another program, as virtual machines lock their disks"),
            Use::Unseen => write!(
                f,
                "open in, or wanted by, a program that is not shown: of another user, or in another container"
            ),
            Use::Claimed => write!(f, "claimed by something that the kernel does not name"),
        }
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.id, self.name)
    }
}

/// Who uses a whole disk or anything on it.
pub fn of_disk(roots: &Roots, disk: &DiskFacts) -> Vec<User> {
    let mut users = of_disks(roots, std::slice::from_ref(disk));
    users.extend(below(roots, disk));
    sorted(users)
}

/// Who uses any of these disks or anything on them; not who uses what loop devices stand on.
pub fn of_disks(roots: &Roots, disks: &[DiskFacts]) -> Vec<User> {
    let mut nodes = BTreeMap::new();
    let mut users = Vec::new();
    for disk in disks {
        nodes.insert(disk.number, disk.node.clone());
        users.extend(holders(roots, &disk.node, &disk.sysfs));
        for part in partitions(roots, disk) {
            users.extend(holders(roots, &part.node, &part.sysfs));
            nodes.insert(part.number, part.node);
        }
    }
    users.extend(of_nodes(roots, &Wanted::Nodes(nodes)));
    sorted(users)
}

/// Who uses a partition, or the disk under it as a whole. Users of other partitions are not among them.
pub fn of_partition(roots: &Roots, disk: &DiskFacts, partition: &PartitionFacts) -> Vec<User> {
    let nodes = [(disk.number, disk.node.clone()), (partition.number, partition.node.clone())];
    let mut users = of_nodes(roots, &Wanted::Nodes(nodes.into_iter().collect()));
    users.extend(below(roots, disk));
    users.extend(holders(roots, &disk.node, &disk.sysfs));
    users.extend(holders(roots, &partition.node, &partition.sysfs));
    sorted(users)
}

/// Who else uses what a loop device stands on: its bytes are the same. The kernel allows no circle of them.
pub(super) fn below(roots: &Roots, disk: &DiskFacts) -> Vec<User> {
    let on = if disk.kind == Kind::Loop { backing(roots, &disk.name, &disk.node) } else { None };
    let mut users = match on {
        None => Vec::new(),
        Some(Backing::File(file)) => of_backing_file(roots, &file),
        Some(Backing::Device(number)) => match lookup(roots, number) {
            None => Vec::new(),
            Some((lower, None)) => of_disk(roots, &lower),
            Some((lower, Some(part))) => of_partition(roots, &lower, &part),
        },
    };
    users.retain(|user| user.by != Use::Loop(disk.name.clone()));
    users
}

/// The file behind a loop device, where its name still leads to it.
pub(super) fn file_behind(roots: &Roots, disk: &DiskFacts) -> Option<PathBuf> {
    match (disk.kind == Kind::Loop).then(|| backing(roots, &disk.name, &disk.node))?? {
        Backing::File(file) => file.at_its_name(),
        Backing::Device(_) => None,
    }
}

/// Who uses an image file, and who uses the loop devices made from it: those uses have to end first.
pub fn of_image(roots: &Roots, path: &Path, metadata: &Metadata) -> Vec<User> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let on_overlay = sys::is_on_overlay(&path).then_some(metadata.len());
    let wanted = Wanted::Image { path, device: metadata.dev(), inode: metadata.ino(), on_overlay };
    let mut users = of_nodes(roots, &wanted);
    let made = |user: &User| match &user.by {
        Use::Loop(name) => disk(roots, &roots.sys.join("class/block").join(name)),
        _ => None,
    };
    let above: Vec<DiskFacts> = users.iter().filter_map(made).collect();
    if !above.is_empty() {
        users.extend(of_disks(roots, &above));
    }
    sorted(users)
}

fn sorted(mut users: Vec<User>) -> Vec<User> {
    users.sort();
    users.dedup();
    users
}
