//! What is known about an opened device before any command is sent: plain data, filled from sysfs and block ioctls.

use crate::plan::units::{BlockSize, ByteRange};
use std::path::PathBuf;

/// What kind of thing was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// A regular file.
    Image,
    /// A disk of the SCSI layer: SATA, SAS, USB, virtio-scsi (`sd*`).
    Scsi,
    /// A native NVMe namespace (`nvme*n*`).
    Nvme,
    /// A loop device.
    Loop,
    /// A device-mapper node.
    DeviceMapper,
    /// An md array.
    Md,
    /// Any other block device (`vd*`, `mmcblk*`, ...).
    Other,
}

/// How a USB device names itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
pub struct UsbId {
    /// idVendor.
    pub vendor: u16,
    /// idProduct.
    pub product: u16,
    /// bcdDevice: the firmware's release number.
    pub release: u16,
}

/// An opened device. The file itself travels beside it.
#[derive(Debug, Clone)]
pub struct DeviceFacts {
    /// Name for messages.
    pub path: PathBuf,
    /// What it is.
    pub kind: NodeKind,
    /// sysfs directory of the *whole disk* (the one with `queue/` and `device/`); none for images.
    pub sysfs: Option<PathBuf>,
    /// When the opened node is a partition: its bytes on the disk. Raw commands address the whole disk.
    pub partition: Option<ByteRange>,
    /// When the opened node is a partition: its own sysfs directory.
    pub partition_sysfs: Option<PathBuf>,
    /// Set when the disk hangs on USB, whatever is behind it.
    pub usb: Option<UsbId>,
    /// INQUIRY vendor, trimmed ("ATA" for disks behind libata).
    pub vendor: String,
    /// INQUIRY product or NVMe model, trimmed.
    pub model: String,
    /// INQUIRY revision or NVMe firmware, trimmed.
    pub firmware: String,
    /// Logical block size in bytes; 512 for images unless a table says otherwise.
    pub logical_block: BlockSize,
    /// Physical block size in bytes, at least the logical one.
    pub physical_block: BlockSize,
    /// Bytes of the opened node according to the kernel; the length of an image.
    pub size: u64,
    /// Bytes of the whole disk according to the kernel.
    pub disk_size: u64,
}

impl DeviceFacts {
    /// A node of `size` bytes in blocks of `block` bytes of which nothing else is known, such as an image.
    pub fn plain(path: PathBuf, kind: NodeKind, block: BlockSize, size: u64) -> Self {
        Self {
            path,
            kind,
            sysfs: None,
            partition: None,
            partition_sysfs: None,
            usb: None,
            vendor: String::new(),
            model: String::new(),
            firmware: String::new(),
            logical_block: block,
            physical_block: block,
            size,
            disk_size: size,
        }
    }

    /// True for a disk whose commands pass through a USB bridge.
    pub fn is_usb(&self) -> bool {
        self.usb.is_some()
    }
}

/// Facts of a device of `size` bytes that has nothing special.
#[cfg(test)]
pub(crate) fn test_facts(kind: NodeKind, size: u64) -> DeviceFacts {
    DeviceFacts::plain(PathBuf::from("test"), kind, BlockSize::new(512).expect("a power of two"), size)
}
