//! The drives of the lab, and what a test does with one.

use super::backing::{self, Snapshot};
use super::{Lab, Output, Status};
use std::path::PathBuf;
use std::sync::MutexGuard;

const MIB: u64 = 1 << 20;
/// Mebibytes of most drives: enough for FAT32 with clusters of one sector, little to fill and compare.
const SMALL: u64 = 48;
/// Where a route is tried first, at a place of which every wrong address is free too, that needs room, and more of it
/// with large sectors.
const ROOMY: u64 = 256;

/// One drive: a raw file behind one of QEMU's front ends. Its name is also its serial number.
pub struct Spec {
    pub name: &'static str,
    /// Bytes.
    pub size: u64,
    /// A device that this drive alone hangs on, or nothing.
    pub bridge: &'static str,
    pub device: &'static str,
    /// Where the drive is served as a network block device, instead of a raw file.
    pub socket: Option<PathBuf>,
}

/// Host controllers that several drives share.
pub const CONTROLLERS: &[(&str, &str)] =
    &[("-device", "ahci,id=ahci"), ("-device", "qemu-xhci,id=xhci,p2=8,p3=8"), ("-device", "virtio-scsi-pci,id=vscsi")];

const fn drive(name: &'static str, mib: u64, bridge: &'static str, device: &'static str) -> Spec {
    Spec { name, size: mib * MIB, bridge, device, socket: None }
}

/// `rotation_rate=1` means "not rotating", as every SSD says.
pub const DRIVES: &[Spec] = &[
    drive("ahci0", SMALL, "", "ide-hd,bus=ahci.0,rotation_rate=1"),
    drive("nvme0", SMALL, "", "nvme"),
    drive("nvme4k", ROOMY, "", "nvme,logical_block_size=4096,physical_block_size=4096"),
    drive("uas0", ROOMY, "usb-uas,bus=xhci.0,id=uas0", "scsi-hd,bus=uas0.0,rotation_rate=1"),
    // Single sectors can be discarded: room for many extents in little space.
    drive(
        "uasmany0",
        112,
        "usb-uas,bus=xhci.0,id=uasmany0",
        "scsi-hd,bus=uasmany0.0,rotation_rate=1,discard_granularity=512",
    ),
    drive("bot0", ROOMY, "", "usb-storage,bus=xhci.0"),
    // The least that mkfs.xfs takes is 300 MiB.
    drive("botbig0", 320, "", "usb-storage,bus=xhci.0"),
    drive(
        "bot4k",
        ROOMY,
        "usb-bot,bus=xhci.0,id=bot4k,serial=bot4k",
        "scsi-hd,bus=bot4k.0,rotation_rate=1,logical_block_size=4096,physical_block_size=4096",
    ),
    drive("vscsi0", SMALL, "", "scsi-hd,bus=vscsi.0,rotation_rate=1"),
    drive("vscsi1", SMALL, "", "scsi-hd,bus=vscsi.0,rotation_rate=1"),
    drive("vscsi4k", SMALL, "", "scsi-hd,bus=vscsi.0,rotation_rate=1,logical_block_size=4096,physical_block_size=4096"),
    // Coarse granularity and small commands: many batches, much rounding.
    drive(
        "vcoarse0",
        SMALL,
        "",
        "scsi-hd,bus=vscsi.0,rotation_rate=1,discard_granularity=65536,max_unmap_size=1048576",
    ),
    // Room for the formats that refuse less.
    drive("vbig0", 768, "", "scsi-hd,bus=vscsi.0,rotation_rate=1"),
];

/// A drive, claimed by one test.
pub struct Drive<'a> {
    pub lab: &'a Lab,
    pub spec: &'static Spec,
    /// The whole disk's node in the guest.
    pub node: String,
    /// The file of the host behind it.
    pub backing: PathBuf,
    pub(super) _claim: MutexGuard<'a, ()>,
}

/// A volume that `Drive::make` made.
#[derive(Debug, Clone)]
pub struct Volume {
    pub format: String,
    /// The volume's node in the guest: the disk itself, or its partition.
    pub node: String,
    /// Where it begins on the disk, bytes.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    manifest: String,
}

impl Drive<'_> {
    /// A pattern below this drive's folder in `/sys/block/`, such as `queue/discard_max_bytes`.
    pub fn sysfs(&self, file: &str) -> String {
        self.lab.sysfs(&format!("{}/{file}", self.sysfs_folder()))
    }

    /// Whether this driver carries the drive, at any level between the disk and the machine.
    pub fn has_driver(&self, driver: &str) -> bool {
        let mut link = format!("{}/device/", self.sysfs_folder());
        (0..10).any(|_| {
            let found =
                self.lab.has_sysfs(&format!("{link}driver")) && self.lab.sysfs(&format!("{link}driver")) == driver;
            link.push_str("../");
            found
        })
    }

    fn sysfs_folder(&self) -> String {
        self.node.replace("/dev/", "block/")
    }

    /// Fills the whole drive with a pattern that has no zero byte, and lets the guest forget what it knew of it.
    pub fn fill(&self) {
        backing::fill(&self.backing, self.spec.size);
        let _ = self.lab.ask("flush", &self.node);
        // Partitions of an earlier test, too. A drive without any has nothing to forget.
        let _ = self.lab.run(&format!("blockdev --rereadpt {}", self.node));
    }

    /// Gives the drive the contents of an image of its size, from behind its back.
    pub fn replace(&self, image: &std::path::Path) {
        // In place: QEMU has this file open.
        backing::overwrite(&self.backing, image);
        let _ = self.lab.ask("flush", &self.node);
    }

    /// Pattern everywhere, then a volume with random files, fragmented by deletions; unmounted again.
    /// `table`: `none`, `mbr` (begins at sector 63) or `gpt`.
    pub fn make(&self, format: &str, table: &str, seed: u64) -> Volume {
        self.fill();
        self.lab.make_volume(&self.node, self.spec.name, format, table, seed)
    }

    /// Mounts the volume afresh, compares every file with what was written, and runs the format's fsck.
    pub fn check(&self, volume: &Volume) {
        self.lab.check_volume(volume);
    }

    /// What the host sees in the backing file now.
    pub fn snapshot(&self) -> Snapshot {
        let _ = self.lab.ask("flush", &self.node);
        Snapshot::take(&self.backing)
    }
}

impl Lab {
    /// A volume with random files on any disk of the guest; `name` names its manifest.
    pub fn make_volume(&self, node: &str, name: &str, format: &str, table: &str, seed: u64) -> Volume {
        let manifest = format!("/lab/{name}.manifest");
        let answer = self.ask("volume", &format!("make {node} {format} {table} {seed} {manifest}"));
        let fields: Vec<_> = answer.split_whitespace().collect();
        let [node, start, size] = fields[..] else { panic!("volume.py: {answer}") };
        Volume {
            format: format.to_owned(),
            node: node.to_owned(),
            start: start.parse().expect("a start"),
            size: size.parse().expect("a size"),
            manifest,
        }
    }

    /// As [`Drive::check`], for any disk of the guest.
    pub fn check_volume(&self, volume: &Volume) {
        let answer = self.try_check(volume);
        assert!(answer.status == Status::Exited(0), "{}: {answer}\n{}", volume.node, self.log());
    }

    /// As [`Drive::check`], for a volume that may be damaged.
    pub fn try_check(&self, volume: &Volume) -> Output {
        self.try_ask("volume", &format!("check {} {} {}", volume.node, volume.format, volume.manifest))
    }
}

impl Drop for Drive<'_> {
    /// A test that fails shows what the guest's kernel said.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.lab.log());
        }
    }
}
