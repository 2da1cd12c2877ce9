//! btrfs, on one device or on all devices of a filesystem given together.
//!
//! ```text
//! device:   0 ... 64 KiB ........ 1 MiB ................ 64 MiB ............ 256 GiB ......
//!           kept  superblock      device extents, or     superblock copy     superblock copy
//!                                 unallocated
//!
//! superblock -> system chunks -> chunk tree -> root tree -> extent tree, device tree, free-space tree, block groups
//! ```
//!
//! Extents lie in logical space. Chunks map it to device extents: one place (single), several copies (DUP, RAID1,
//! RAID1C3, RAID1C4), turns of 64 KiB (RAID0), or both (RAID10). Free is what no device extent covers, and every copy of
//! the logical space that no extent item covers. Every tree block has a checksum, its own place, its owner, level and
//! generation, and all are verified; chunks, device extents, block groups and counters must agree with each other, and
//! the free-space tree, where it is valid, with the result. There is no clean flag: each commit is a whole, and only the
//! log of an fsync waits for the next mount. Sources: Linux `include/uapi/linux/btrfs_tree.h` and `fs/btrfs/`; the btrfs
//! documentation's on-disk format.

mod checksum;
mod chunks;
mod device;
mod error;
mod free;
mod ondisk;
mod space;
mod space_tree;
mod superblock;
mod tree;
mod witness;

use super::{Format, uuid_text};
use crate::error::ParseError;
use crate::foreign::has_bytes;
use crate::free_map::FreeMap;
use crate::source::Source;
use crate::units::from_usize;
use crate::volume::{Finding, Volume};
use crate::witness::Witness;
use device::Device;
use superblock::Superblock;

/// The row of btrfs.
pub struct Btrfs;

impl Format for Btrfs {
    fn name(&self) -> &'static str {
        "btrfs"
    }

    fn variants(&self) -> &'static [&'static str] {
        &["btrfs"]
    }

    fn probe(&self, source: &dyn Source) -> Result<bool, ParseError> {
        // The second is what mkfs.btrfs writes until it has finished.
        let at = ondisk::SUPER_AT[0].saturating_add(64);
        Ok(has_bytes(source, at, &ondisk::MAGIC)? || has_bytes(source, at, b"!BHRfS_M")?)
    }

    fn read(&self, source: &dyn Source, companions: &[&dyn Source]) -> Result<Volume, ParseError> {
        let devices = gather(Device::read(source)?, companions);
        let Some(own) = devices.first().map(|device| &device.superblock) else {
            return Err(ParseError::inconsistent("no device"));
        };
        let findings = findings(own, devices.len());
        let nothing = FreeMap::nothing(free::grid(own)?);
        let free =
            if findings.is_empty() { free::read(&devices)?.into_iter().next().unwrap_or(nothing) } else { nothing };
        Ok(Volume {
            format: "btrfs".to_owned(),
            label: own.label.clone(),
            uuid: uuid_text(&own.fsid),
            size: own.device.total_bytes.get(),
            block_size: own.sector.bytes(),
            free,
            needs_witness: false,
            findings,
        })
    }

    fn checker(&self) -> &'static str {
        error::CHECKER
    }

    fn witnesses(&self) -> &'static [&'static dyn Witness] {
        &[&witness::BtrfsWalk]
    }
}

/// `own`, and those of `companions` that say they belong to the same filesystem. One that cannot be read is missing in
/// the count, which refuses the filesystem.
fn gather<'a>(own: Device<'a>, companions: &[&'a dyn Source]) -> Vec<Device<'a>> {
    let fsid = own.superblock.fsid;
    let others = companions.iter().filter(|companion| Btrfs.probe(*companion).unwrap_or(false));
    let others = others.filter_map(|companion| Device::read(*companion).ok());
    let others: Vec<Device<'_>> = others.filter(|device| device.superblock.fsid == fsid).collect();
    // A companion of a filesystem on one device is a copy of it, which may have gone its own way.
    if own.superblock.num_devices == 1 { vec![own] } else { [own].into_iter().chain(others).collect() }
}

/// What speaks against reading any further.
fn findings(superblock: &Superblock, given: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    if superblock.num_devices != from_usize(given) {
        let message = format!(
            "the filesystem has {} devices, of which {given} can be seen here: all of them must be given together",
            superblock.num_devices
        );
        findings
            .push(Finding::refusal(message, "name them in one command; this lists them: btrfs filesystem show DEVICE"));
    }
    if superblock.log_root != 0 {
        let message = format!(
            "the log of an fsync waits to be replayed: expected none, found one at logical byte {}",
            superblock.log_root
        );
        let remedy = "mount and unmount it: mount DEVICE /mnt && umount /mnt; or drop what the log has: btrfs rescue zero-log DEVICE";
        findings.push(Finding::refusal(message, remedy));
    }
    findings
}
