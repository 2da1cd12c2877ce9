//! What `coldtrim list` shows: every disk, from sysfs and udev's notes. No command is sent to any of them.

use super::facts::{self, DiskFacts, Kind, PartitionFacts};
use super::resolve::{Identify, Identity, noted_identity};
use super::suitable;
use super::sysfs::{DeviceNumber, Roots, entries, flag};
use super::usage::{self, User};
use coldtrim_parsers::volume::Finding;
use serde::Serialize;

/// One disk.
#[derive(Debug, Clone, Serialize)]
pub struct ListedDisk {
    /// The disk.
    pub disk: DiskFacts,
    /// What lies on it when it has no partitions.
    pub content: Option<Identity>,
    /// Who uses it as a whole.
    pub users: Vec<User>,
    /// What speaks against trimming it.
    pub findings: Vec<Finding>,
    /// Its partitions.
    pub partitions: Vec<ListedPartition>,
}

/// One partition.
#[derive(Debug, Clone, Serialize)]
pub struct ListedPartition {
    /// The partition.
    pub partition: PartitionFacts,
    /// What lies on it.
    pub content: Option<Identity>,
    /// Who uses it, or the disk under it as a whole.
    pub users: Vec<User>,
}

impl ListedDisk {
    /// True when the number is that of the disk or of a partition of it.
    pub fn has(&self, number: DeviceNumber) -> bool {
        let mut partitions = self.partitions.iter().map(|listed| listed.partition.number);
        self.disk.number == number || partitions.any(|known| known == number)
    }
}

/// Every disk that could be named as a target. `identify` is asked where udev has no notes.
pub fn list(roots: &Roots, identify: Identify<'_>) -> Vec<ListedDisk> {
    let names = entries(&roots.sys.join("block"));
    let disks: Vec<DiskFacts> = names
        .iter()
        .map(|name| roots.sys.join("block").join(name))
        .filter(|directory| flag(directory, "hidden") != Some(true))
        .filter_map(|directory| facts::disk(roots, &directory))
        .filter(is_worth_listing)
        .collect();
    let users = usage::of_disks(roots, &disks);
    disks.into_iter().map(|disk| listed(roots, disk, &users, identify)).collect()
}

/// Memory disks are none, and a loop or nbd device without a size stands for nothing.
fn is_worth_listing(disk: &DiskFacts) -> bool {
    let is_memory = disk.name.starts_with("ram") || disk.name.starts_with("zram");
    let is_idle = disk.size == 0 && (disk.kind == Kind::Loop || disk.kind == Kind::Other);
    !is_memory && !is_idle
}

fn listed(roots: &Roots, disk: DiskFacts, users: &[User], identify: Identify<'_>) -> ListedDisk {
    let of = |node: &std::path::Path| users.iter().filter(|user| user.node == node).cloned().collect::<Vec<_>>();
    // The same users forbid a trim of the disk and of each of its partitions.
    let of_whole = [of(&disk.node), usage::below(roots, &disk)].concat();
    let partitions: Vec<ListedPartition> = facts::partitions(roots, &disk)
        .into_iter()
        .map(|partition| ListedPartition {
            content: noted_identity(roots, partition.number).or_else(|| identify(&partition.node)),
            users: [of(&partition.node), of_whole.clone()].concat(),
            partition,
        })
        .collect();
    let content = if partitions.is_empty() && disk.size > 0 {
        noted_identity(roots, disk.number).or_else(|| identify(&disk.node))
    } else {
        None
    };
    ListedDisk { content, users: of_whole, findings: suitable::findings(&disk, None), partitions, disk }
}
