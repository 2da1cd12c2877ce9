//! The node that commands go to. Usually that is the whole disk, claimed, whatever part of it the user named; with
//! another partition in use it is the partition, and the kernel keeps commands inside it.

use crate::plan::units::{BlockSize, ByteRange};
use crate::target::facts::{Attachment, DiskFacts, Kind};
use crate::target::{Reach, Target, TargetError};
use crate::transport::{DeviceFacts, NodeKind, UsbId};
use std::fs::File;

/// An opened node and where the target lies on it.
pub struct Device {
    /// The claimed node, or a read-only one for a dry run.
    pub file: File,
    /// What a route needs to know.
    pub facts: DeviceFacts,
    /// The target's bytes on the node.
    pub place: ByteRange,
    /// The only route that is allowed, when there is such a limit.
    pub only_route: Option<&'static str>,
}

impl Device {
    /// The node that commands for `target` go to.
    pub fn of(target: &Target) -> Result<Self, TargetError> {
        let partition_only = match target.claim() {
            Some(claim) => matches!(claim.reach(), Reach::PartitionOnly { .. }),
            None => target.partition().is_some() && !target.neighbours().is_empty(),
        };
        let file = match target.claim() {
            Some(_) => target.claimed()?,
            None if partition_only => target.reader()?,
            None => target.disk_reader()?,
        };
        let whole = ByteRange::with_len(0, target.size());
        let place = if partition_only { whole } else { target.range_on_disk() };
        let place = place.ok_or_else(|| TargetError::Empty(target.path().to_owned()))?;
        Ok(Self {
            file,
            facts: facts(target, partition_only),
            place,
            only_route: partition_only.then_some("blkdiscard"),
        })
    }
}

/// Bytes where partitions of the target's disk begin.
pub fn partition_starts(target: &Target) -> Vec<u64> {
    target.disk_partitions().iter().map(|partition| partition.range.start()).collect()
}

fn facts(target: &Target, partition_only: bool) -> DeviceFacts {
    let Some(disk) = target.disk() else {
        let path = target.path().to_owned();
        return DeviceFacts::plain(path, NodeKind::Image, block(target.logical_sector()), target.size());
    };
    match target.partition().filter(|_| partition_only) {
        None => facts_of_disk(disk),
        Some(partition) => DeviceFacts {
            path: partition.node.clone(),
            partition: Some(partition.range),
            partition_sysfs: Some(partition.sysfs.clone()),
            size: partition.range.len(),
            ..facts_of_disk(disk)
        },
    }
}

/// What a route needs to know of a whole disk.
pub fn facts_of_disk(disk: &DiskFacts) -> DeviceFacts {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    DeviceFacts {
        sysfs: Some(disk.sysfs.clone()),
        usb: usb(&disk.attachment),
        vendor: text(&disk.vendor),
        model: text(&disk.model),
        firmware: text(&disk.revision),
        physical_block: block(disk.physical_sector),
        ..DeviceFacts::plain(disk.node.clone(), node_kind(disk.kind), block(disk.logical_sector), disk.size)
    }
}

/// A sector size; one that is no power of two cannot be addressed, and counts as single bytes, which no plan allows.
fn block(bytes: u64) -> BlockSize {
    BlockSize::new(bytes).or(BlockSize::new(1)).unwrap_or_else(|| unreachable!("1 is a power of two"))
}

fn usb(attachment: &Attachment) -> Option<UsbId> {
    match attachment {
        Attachment::Usb(usb) => Some(UsbId { vendor: usb.vendor_id, product: usb.product_id, release: usb.release }),
        _ => None,
    }
}

fn node_kind(kind: Kind) -> NodeKind {
    match kind {
        Kind::Image => NodeKind::Image,
        Kind::Scsi => NodeKind::Scsi,
        Kind::Nvme => NodeKind::Nvme,
        Kind::Loop => NodeKind::Loop,
        Kind::DeviceMapper => NodeKind::DeviceMapper,
        Kind::Md => NodeKind::Md,
        Kind::Virtio | Kind::Mmc | Kind::Optical | Kind::Other => NodeKind::Other,
    }
}

/// How a disk is attached, in words.
pub fn attachment(disk: &DiskFacts) -> Option<String> {
    Some(match &disk.attachment {
        Attachment::Usb(usb) => {
            let driver = usb.driver.as_deref().unwrap_or("no driver");
            format!("USB {:04x}:{:04x} ({driver})", usb.vendor_id, usb.product_id)
        }
        Attachment::Ata => "SATA".to_owned(),
        Attachment::Nvme { transport } if transport.is_empty() => "NVMe".to_owned(),
        Attachment::Nvme { transport } => format!("NVMe over {transport}"),
        Attachment::Scsi { driver } if driver.is_empty() => "SCSI".to_owned(),
        Attachment::Scsi { driver } => format!("SCSI ({driver})"),
        Attachment::Virtio => "virtio".to_owned(),
        Attachment::Mmc => "MMC".to_owned(),
        Attachment::Stacked => match &disk.stands_for {
            Some(name) => format!("made by the kernel from {name}"),
            None => "made by the kernel".to_owned(),
        },
        Attachment::Unknown => return None,
    })
}

/// Vendor and model in one.
pub fn model(disk: &DiskFacts) -> Option<String> {
    let vendor = disk.vendor.as_deref().filter(|vendor| *vendor != "ATA");
    let words: Vec<&str> = vendor.into_iter().chain(disk.model.as_deref()).map(str::trim).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// The kind of a target, as the report names it.
pub fn kind(target: &Target) -> &'static str {
    match (target.kind(), target.partition()) {
        (Kind::Image, _) => "image",
        (_, Some(_)) => "partition",
        (Kind::Loop, None) => "loop",
        (Kind::DeviceMapper, None) => "device_mapper",
        (Kind::Md, None) => "md",
        _ => "disk",
    }
}
