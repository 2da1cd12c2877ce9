//! What the kernel says about a disk and how it is attached, without sending it a command.

use super::sysfs::{DeviceNumber, Roots, ancestor_with, entries, flag, hex, link_name, number, text};
use coldtrim_parsers::units::ByteRange;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// `start` and `size` in sysfs count these, whatever the disk's sector size is (Documentation/ABI/stable/sysfs-block).
const SYSFS_SECTOR: u64 = 512;

/// What kind of thing a target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A regular file.
    Image,
    /// A disk of the SCSI layer: SATA, SAS, USB, virtio-scsi (`sd*`).
    Scsi,
    /// A native NVMe namespace (`nvme*n*`).
    Nvme,
    /// A paravirtual disk (`vd*`).
    Virtio,
    /// An SD card or eMMC (`mmcblk*`).
    Mmc,
    /// A loop device.
    Loop,
    /// A device-mapper node.
    DeviceMapper,
    /// An md array.
    Md,
    /// An optical drive.
    Optical,
    /// Any other block device.
    Other,
}

/// How a disk is attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Attachment {
    /// Behind a USB bridge or as a USB stick.
    Usb(UsbFacts),
    /// A native ATA port.
    Ata,
    /// Native NVMe, with its transport (`pcie`, `tcp`, ...).
    Nvme {
        /// As the kernel names it.
        transport: String,
    },
    /// SAS, Fibre Channel, iSCSI and the like; the name of the host adapter's driver.
    Scsi {
        /// As the kernel names it.
        driver: String,
    },
    /// A virtual machine's paravirtual disk.
    Virtio,
    /// An SD or eMMC host.
    Mmc,
    /// Made by the kernel from something else: loop, device-mapper, md.
    Stacked,
    /// Nothing is known.
    Unknown,
}

/// The USB side of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UsbFacts {
    /// idVendor.
    pub vendor_id: u16,
    /// idProduct.
    pub product_id: u16,
    /// bcdDevice: the bridge firmware's release number.
    pub release: u16,
    /// What the bridge calls its maker.
    pub manufacturer: Option<String>,
    /// What the bridge calls itself.
    pub product: Option<String>,
    /// The serial number that the bridge gives.
    pub serial: Option<String>,
    /// Speed of the link in Mbit/s (480, 5000, ...).
    pub speed: Option<String>,
    /// `uas` or `usb-storage`.
    pub driver: Option<String>,
    /// Its sysfs directory.
    pub sysfs: PathBuf,
}

/// Whether a disk turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rotation {
    /// Solid state.
    Solid,
    /// Platters.
    Rotating,
    /// Not known: the kernel never asked, or the drive does not say. The drive itself must be asked before a run.
    Unknown,
}

/// What the kernel would do with a discard.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct DiscardFacts {
    /// Granularity in bytes; above zero it still does not mean that discard works.
    pub granularity: u64,
    /// Most bytes of one discard, 0 when discard is off.
    pub max_bytes: u64,
    /// The device's own limit in bytes.
    pub max_hw_bytes: u64,
    /// Bytes by which the device's granules are shifted.
    pub alignment: u64,
    /// `full`, `unmap`, `writesame_16`, ...: how sd would discard.
    pub provisioning_mode: Option<String>,
    /// LBPME as far as the kernel asked.
    pub thin_provisioning: Option<bool>,
}

/// A whole disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskFacts {
    /// Kernel name (`sda`).
    pub name: String,
    /// Its device node.
    pub node: PathBuf,
    /// Its sysfs directory, with links resolved.
    pub sysfs: PathBuf,
    /// Its number.
    pub number: DeviceNumber,
    /// What it is.
    pub kind: Kind,
    /// How it is attached.
    pub attachment: Attachment,
    /// Size in bytes.
    pub size: u64,
    /// Logical sector size in bytes.
    pub logical_sector: u64,
    /// Physical sector size in bytes.
    pub physical_sector: u64,
    /// True when the kernel will not write to it.
    pub read_only: bool,
    /// Whether it turns.
    pub rotation: Rotation,
    /// True when the medium can be taken out (the RMB bit).
    pub removable: bool,
    /// `none`, `host-managed` or `host-aware`.
    pub zoned: String,
    /// Bytes of metadata beside each sector (NVMe), 0 where the kernel shows none.
    pub metadata_bytes: u64,
    /// State of a SCSI or NVMe device (`running`, `live`, `offline`).
    pub state: Option<String>,
    /// Changes whenever another device comes to stand behind the name.
    pub sequence: Option<u64>,
    /// INQUIRY vendor (`ATA` behind libata).
    pub vendor: Option<String>,
    /// INQUIRY product or NVMe model.
    pub model: Option<String>,
    /// Firmware revision.
    pub revision: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// `SD` or `MMC` on an MMC host.
    pub card_type: Option<String>,
    /// Name of a device-mapper node or file of a loop device.
    pub stands_for: Option<String>,
    /// Disks that it is made of.
    pub slaves: Vec<String>,
    /// What the kernel would do with a discard.
    pub discard: DiscardFacts,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartitionFacts {
    /// Kernel name (`sda1`).
    pub name: String,
    /// Its device node.
    pub node: PathBuf,
    /// Its sysfs directory, with links resolved.
    pub sysfs: PathBuf,
    /// Its device number.
    pub number: DeviceNumber,
    /// Its number in the table.
    pub index: u32,
    /// Its bytes on the disk.
    pub range: ByteRange,
    /// True when the kernel will not write to it.
    pub read_only: bool,
}

/// What sysfs knows under a device number: the disk, and the partition if it is one. None when there is nothing.
pub fn lookup(roots: &Roots, device: DeviceNumber) -> Option<(DiskFacts, Option<PartitionFacts>)> {
    let directory = roots.sys.join("dev/block").join(device.to_string()).canonicalize().ok()?;
    if directory.join("partition").exists() {
        let partition = partition(roots, &directory)?;
        Some((disk(roots, directory.parent()?)?, Some(partition)))
    } else {
        Some((disk(roots, &directory)?, None))
    }
}

/// The whole disk at a sysfs directory.
pub fn disk(roots: &Roots, directory: &Path) -> Option<DiskFacts> {
    let sysfs = directory.canonicalize().ok()?;
    let name = sysfs.file_name()?.to_str()?.to_owned();
    let kind = kind(&sysfs, &name);
    let attachment = attachment(&sysfs, kind);
    let queue = sysfs.join("queue");
    let logical_sector = number(&queue, "logical_block_size").unwrap_or(SYSFS_SECTOR);
    Some(DiskFacts {
        node: node(roots, &name),
        number: DeviceNumber::parse(&text(&sysfs, "dev")?)?,
        size: number(&sysfs, "size")?.checked_mul(SYSFS_SECTOR)?,
        logical_sector,
        physical_sector: number(&queue, "physical_block_size").unwrap_or(logical_sector),
        read_only: flag(&sysfs, "ro").unwrap_or(false),
        rotation: rotation(roots, &sysfs, kind, &attachment, 0),
        removable: flag(&sysfs, "removable").unwrap_or(false),
        zoned: text(&queue, "zoned").unwrap_or_else(|| "none".to_owned()),
        metadata_bytes: number(&sysfs, "metadata_bytes").unwrap_or(0),
        state: text(&sysfs, "device/state"),
        sequence: number(&sysfs, "diskseq"),
        vendor: text(&sysfs, "device/vendor").filter(|_| kind == Kind::Scsi || kind == Kind::Optical),
        model: first(&sysfs, &["device/model", "device/name"]),
        revision: first(&sysfs, &["device/rev", "device/firmware_rev", "device/fwrev"]),
        serial: first(&sysfs, &["serial", "device/serial"]).or_else(|| unit_serial(&sysfs)),
        card_type: text(&sysfs, "device/type").filter(|_| kind == Kind::Mmc),
        stands_for: first(&sysfs, &["dm/name", "loop/backing_file", "md/metadata_version"]),
        slaves: entries(&sysfs.join("slaves")),
        discard: discard(&sysfs),
        name,
        kind,
        attachment,
        sysfs,
    })
}

/// The partition at a sysfs directory.
pub fn partition(roots: &Roots, directory: &Path) -> Option<PartitionFacts> {
    let sysfs = directory.canonicalize().ok()?;
    let name = sysfs.file_name()?.to_str()?.to_owned();
    let start = number(&sysfs, "start")?.checked_mul(SYSFS_SECTOR)?;
    let length = number(&sysfs, "size")?.checked_mul(SYSFS_SECTOR)?;
    Some(PartitionFacts {
        node: node(roots, &name),
        number: DeviceNumber::parse(&text(&sysfs, "dev")?)?,
        index: u32::try_from(number(&sysfs, "partition")?).ok()?,
        range: ByteRange::with_len(start, length)?,
        read_only: flag(&sysfs, "ro").unwrap_or(false),
        name,
        sysfs,
    })
}

/// The partitions of a disk, in the order of their numbers.
pub fn partitions(roots: &Roots, disk: &DiskFacts) -> Vec<PartitionFacts> {
    let names = entries(&disk.sysfs);
    let mut found: Vec<PartitionFacts> = names
        .iter()
        .map(|name| disk.sysfs.join(name))
        .filter(|directory| directory.join("partition").exists())
        .filter_map(|directory| partition(roots, &directory))
        .collect();
    found.sort_by_key(|partition| partition.index);
    found
}

/// sysfs writes `!` where a node's name has a slash (`cciss!c0d0`).
fn node(roots: &Roots, name: &str) -> PathBuf {
    roots.dev.join(name.replace('!', "/"))
}

fn first(directory: &Path, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| text(directory, name))
}

fn kind(sysfs: &Path, name: &str) -> Kind {
    match name {
        _ if sysfs.join("dm").is_dir() => Kind::DeviceMapper,
        _ if sysfs.join("md").is_dir() => Kind::Md,
        _ if name.starts_with("loop") => Kind::Loop,
        _ if name.starts_with("nvme") => Kind::Nvme,
        _ if name.starts_with("mmcblk") => Kind::Mmc,
        _ if name.starts_with("vd") => Kind::Virtio,
        _ if name.starts_with("sr") => Kind::Optical,
        _ if name.starts_with("sd") => Kind::Scsi,
        _ => Kind::Other,
    }
}

fn attachment(sysfs: &Path, kind: Kind) -> Attachment {
    if let Some(usb) = usb(sysfs) {
        return Attachment::Usb(usb);
    }
    let has = |prefix: &str| {
        sysfs.components().any(|part| {
            let rest = part.as_os_str().to_str().and_then(|part| part.strip_prefix(prefix));
            rest.is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_digit()))
        })
    };
    match kind {
        Kind::Loop | Kind::DeviceMapper | Kind::Md => Attachment::Stacked,
        Kind::Nvme => Attachment::Nvme { transport: text(sysfs, "device/transport").unwrap_or_default() },
        Kind::Mmc => Attachment::Mmc,
        Kind::Virtio => Attachment::Virtio,
        Kind::Scsi | Kind::Optical if has("ata") => Attachment::Ata,
        Kind::Scsi | Kind::Optical => Attachment::Scsi { driver: scsi_driver(sysfs).unwrap_or_default() },
        Kind::Image | Kind::Other => Attachment::Unknown,
    }
}

fn scsi_driver(sysfs: &Path) -> Option<String> {
    let host = sysfs.ancestors().find(|parent| {
        parent.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("host"))
    })?;
    let name = host.file_name()?.to_str()?;
    text(&host.join("scsi_host").join(name), "proc_name")
}

fn usb(sysfs: &Path) -> Option<UsbFacts> {
    let device = ancestor_with(sysfs, "idVendor")?;
    let interface = sysfs.ancestors().take_while(|parent| *parent != device).last();
    Some(UsbFacts {
        vendor_id: hex(device, "idVendor")?,
        product_id: hex(device, "idProduct")?,
        release: hex(device, "bcdDevice").unwrap_or(0),
        manufacturer: text(device, "manufacturer"),
        product: text(device, "product"),
        serial: text(device, "serial"),
        speed: text(device, "speed"),
        driver: interface.and_then(|interface| link_name(interface, "driver")),
        sysfs: device.to_owned(),
    })
}

/// The serial number in the unit serial number page that the kernel has read (SPC, VPD page 80h: text from byte 4).
fn unit_serial(sysfs: &Path) -> Option<String> {
    let page = std::fs::read(sysfs.join("device/vpd_pg80")).ok()?;
    let serial = String::from_utf8_lossy(page.get(4..)?);
    let serial: String = serial.chars().filter(|c| !c.is_control()).collect();
    let serial = serial.trim();
    (!serial.is_empty()).then(|| serial.to_owned())
}

fn discard(sysfs: &Path) -> DiscardFacts {
    let queue = sysfs.join("queue");
    let scsi_disk = sysfs.join("device/scsi_disk");
    let scsi = entries(&scsi_disk).first().map(|name| scsi_disk.join(name));
    DiscardFacts {
        granularity: number(&queue, "discard_granularity").unwrap_or(0),
        max_bytes: number(&queue, "discard_max_bytes").unwrap_or(0),
        max_hw_bytes: number(&queue, "discard_max_hw_bytes").unwrap_or(0),
        alignment: number(sysfs, "discard_alignment").unwrap_or(0),
        provisioning_mode: scsi.as_deref().and_then(|scsi| text(scsi, "provisioning_mode")),
        thin_provisioning: scsi.as_deref().and_then(|scsi| flag(scsi, "thin_provisioning")),
    }
}

/// Depth of stacks of dm and md that is followed.
const MAX_DEPTH: u32 = 8;

/// `queue/rotational` starts as 1 and is cleared by a drive that says it is solid state; behind usb-storage nobody
/// asks, and virtual disks do not say. So 0 is believed, and 1 only where somebody asked.
fn rotation(roots: &Roots, sysfs: &Path, kind: Kind, attachment: &Attachment, depth: u32) -> Rotation {
    if flag(&sysfs.join("queue"), "rotational") == Some(false) {
        return Rotation::Solid;
    }
    if let Some(rate) = rotation_rate(sysfs) {
        return match rate {
            0 => Rotation::Unknown,
            1 => Rotation::Solid,
            _ => Rotation::Rotating,
        };
    }
    match (kind, attachment) {
        (Kind::DeviceMapper | Kind::Md, _) => stacked_rotation(roots, sysfs, depth),
        (_, Attachment::Ata | Attachment::Scsi { .. }) => Rotation::Rotating,
        _ => Rotation::Unknown,
    }
}

/// SBC, VPD page B1h: MEDIUM ROTATION RATE in bytes 4 and 5; 0 not reported, 1 solid state, else turns a minute.
fn rotation_rate(sysfs: &Path) -> Option<u16> {
    let page = std::fs::read(sysfs.join("device/vpd_pgb1")).ok()?;
    match page.get(4..6)? {
        [high, low] => Some(u16::from_be_bytes([*high, *low])),
        _ => None,
    }
}

/// What the worst member does.
fn stacked_rotation(roots: &Roots, sysfs: &Path, depth: u32) -> Rotation {
    let members = entries(&sysfs.join("slaves"));
    let states = members.iter().filter(|_| depth < MAX_DEPTH).filter_map(|name| {
        let member = roots.sys.join("class/block").join(name).canonicalize().ok()?;
        let member = if member.join("partition").exists() { member.parent()?.to_owned() } else { member };
        let kind = kind(&member, member.file_name()?.to_str()?);
        Some(rotation(roots, &member, kind, &attachment(&member, kind), depth.saturating_add(1)))
    });
    states.fold(Rotation::Unknown, |worst, state| match (worst, state) {
        (Rotation::Rotating, _) | (_, Rotation::Rotating) => Rotation::Rotating,
        (_, Rotation::Solid) => Rotation::Solid,
        (worst, Rotation::Unknown) => worst,
    })
}
