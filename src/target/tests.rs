//! A made-up machine: a UAS disk with a mounted partition, swap, LVM and a shared label; a card reader; an NVMe
//! namespace with metadata; a rotating ATA disk; an image behind a loop device; a virtual machine's process.

use super::facts::{Attachment, Kind, Rotation, disk, lookup, partitions};
use super::list::list;
use super::usage::{Use, User, of_disk, of_image, of_partition, unescaped};
use super::*;
use coldtrim_parsers::volume::{Consent, Weight};
use std::os::unix::fs::symlink;

struct Machine {
    folder: tempfile::TempDir,
    roots: Roots,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [sys, proc, dev, udev] = ["sys", "proc", "dev", "udev"].map(|name| folder.path().join(name));
        let roots = Roots { sys, proc, dev, udev };
        for root in [&roots.sys, &roots.proc, &roots.dev, &roots.udev] {
            std::fs::create_dir(root).unwrap();
        }
        let machine = Self { folder, roots };
        machine.write("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n");
        machine.write("proc/self/mountinfo", "");
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn link(&self, name: &str, to: &Path) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
    }

    /// A disk whose device directory is `device`, with all the links that lead to it.
    fn disk(&self, device: &str, name: &str, number: &str, sectors: u64) -> String {
        let block = format!("sys/devices/{device}/block/{name}");
        self.write(&format!("{block}/dev"), number);
        self.write(&format!("{block}/size"), sectors.to_string());
        self.write(&format!("{block}/queue/rotational"), "1\n");
        self.link(&format!("{block}/device"), &self.path(&format!("sys/devices/{device}")));
        self.links(&block, name, number);
        self.link(&format!("sys/block/{name}"), &self.path(&block));
        block
    }

    fn part(&self, disk: &str, name: &str, number: &str, place: (u64, u64)) -> String {
        let directory = format!("{disk}/{name}");
        let index = name.trim_start_matches(|c: char| !c.is_ascii_digit());
        for (attribute, value) in [
            ("partition", index.to_owned()),
            ("dev", number.to_owned()),
            ("start", place.0.to_string()),
            ("size", place.1.to_string()),
        ] {
            self.write(&format!("{directory}/{attribute}"), value);
        }
        self.links(&directory, name, number);
        directory
    }

    fn links(&self, directory: &str, name: &str, number: &str) {
        self.link(&format!("sys/dev/block/{number}"), &self.path(directory));
        self.link(&format!("sys/class/block/{name}"), &self.path(directory));
        self.write(&format!("dev/{name}"), "");
    }

    fn facts(&self, name: &str) -> DiskFacts {
        disk(&self.roots, &self.roots.sys.join("block").join(name)).expect("the disk is there")
    }

    /// sdb: 1 TiB behind a UAS bridge, three partitions.
    fn uas(&self) -> String {
        let usb = "pci0000:00/usb2/2-1";
        for (name, value) in [
            ("idVendor", "152d\n"),
            ("idProduct", "0583\n"),
            ("bcdDevice", "0205\n"),
            ("speed", "10000\n"),
            ("manufacturer", "JMicron\n"),
            ("serial", "DD56\u{1b}[2J\n"),
        ] {
            self.write(&format!("sys/devices/{usb}/{name}"), value);
        }
        self.link(&format!("sys/devices/{usb}/2-1:1.0/driver"), Path::new("../../../../../bus/usb/drivers/uas"));
        let scsi = format!("{usb}/2-1:1.0/host6/target6:0:0/6:0:0:0");
        for (name, value) in [
            ("vendor", "JMicron \n"),
            ("model", "Tech            \n"),
            ("rev", "0205\n"),
            ("state", "running\n"),
            ("scsi_disk/6:0:0:0/provisioning_mode", "full\n"),
            ("scsi_disk/6:0:0:0/thin_provisioning", "0\n"),
            ("vpd_pg80", "\0\u{80}\0\u{8}  SER1234"),
        ] {
            self.write(&format!("sys/devices/{scsi}/{name}"), value);
        }
        let block = self.disk(&scsi, "sdb", "8:16", 1 << 31);
        self.write(&format!("{block}/queue/logical_block_size"), "4096\n");
        self.write(&format!("{block}/queue/discard_max_bytes"), "0\n");
        self.write(&format!("{block}/diskseq"), "17\n");
        self.part(&block, "sdb1", "8:17", (2048, 4096));
        self.part(&block, "sdb2", "8:18", (8192, 4096));
        self.part(&block, "sdb10", "8:26", (16384, 4096));
        block
    }

    fn users_of(&self, partition: &str) -> Vec<User> {
        let disk = self.facts("sdb");
        let part = partitions(&self.roots, &disk).into_iter().find(|part| part.name == partition).unwrap();
        of_partition(&self.roots, &disk, &part)
    }
}

fn consents(found: &[Finding]) -> Vec<Weight> {
    found.iter().map(|finding| finding.weight).collect()
}

fn nobody_looks(_: &Path) -> Option<Identity> {
    None
}

#[test]
fn a_uas_disk_is_described() {
    let machine = Machine::new();
    machine.uas();
    let (disk, partition) = lookup(&machine.roots, DeviceNumber { major: 8, minor: 18 }).unwrap();
    let Attachment::Usb(usb) = &disk.attachment else { panic!("{disk:?}") };
    assert_eq!((usb.vendor_id, usb.product_id, usb.release), (0x152d, 0x0583, 0x0205));
    assert_eq!((usb.driver.as_deref(), usb.speed.as_deref()), (Some("uas"), Some("10000")));
    assert_eq!(usb.serial.as_deref(), Some("DD56\u{fffd}[2J"), "a serial number must not command the terminal");
    assert_eq!((disk.kind, disk.size, disk.logical_sector, disk.sequence), (Kind::Scsi, 1 << 40, 4096, Some(17)));
    assert_eq!((disk.vendor.as_deref(), disk.model.as_deref()), (Some("JMicron"), Some("Tech")));
    assert_eq!(disk.serial.as_deref(), Some("SER1234"));
    assert_eq!(disk.discard.provisioning_mode.as_deref(), Some("full"));
    assert_eq!(disk.rotation, Rotation::Unknown, "behind a bridge the kernel's flag means nothing");
    let partition = partition.unwrap();
    assert_eq!((partition.range.start(), partition.range.len()), (8192 * 512, 4096 * 512), "512 bytes also on 4Kn");
    let indexes: Vec<u32> = partitions(&machine.roots, &disk).iter().map(|part| part.index).collect();
    assert_eq!(indexes, [1, 2, 10]);
}

#[test]
fn mounts_are_seen_in_every_namespace() {
    let machine = Machine::new();
    machine.uas();
    machine.write("proc/self/mountinfo", "36 35 8:17 / /mnt/a\\040b rw shared:1 - ext4 /dev/sdb1 rw\n");
    machine.link("proc/self/ns/mnt", Path::new("mnt:[1]"));
    machine.write(
        "proc/77/mountinfo",
        "36 35 8:17 / /mnt/a\\040b rw - ext4 /dev/sdb1 rw\n99 35 8:26 / /x rw - xfs /dev/sdb10 rw\n",
    );
    machine.link("proc/77/ns/mnt", Path::new("mnt:[2]"));
    machine.write("proc/77/comm", "lxc-init\n");
    let at = |user: &User| user.to_string().split_once(" is ").unwrap().1.to_owned();
    assert_eq!(machine.users_of("sdb1").iter().map(at).collect::<Vec<_>>(), ["mounted at /mnt/a b"]);
    assert_eq!(
        machine.users_of("sdb1")[0].remedy().lines().next().unwrap().split("   ").next(),
        Some("umount '/mnt/a b'")
    );
    let other = machine.users_of("sdb10");
    assert_eq!(
        other.iter().map(at).collect::<Vec<_>>(),
        ["mounted at /x in the mount namespace of process 77 (lxc-init)"]
    );
    assert_eq!(other[0].remedy(), "nsenter -t 77 -m umount /x");
    assert_eq!(machine.users_of("sdb2"), []);
    assert_eq!(of_disk(&machine.roots, &machine.facts("sdb")).len(), 2);
}

#[test]
fn a_multi_device_filesystem_is_seen_though_its_mount_names_another_device() {
    let machine = Machine::new();
    let block = machine.uas();
    machine.write("proc/self/mountinfo", "36 35 0:52 / /pool rw - btrfs /dev/sdb1 rw\n");
    machine.link("sys/fs/btrfs/0f-uuid/devices/sdb1", &machine.path(&format!("{block}/sdb1")));
    machine.link("sys/fs/btrfs/0f-uuid/devices/sdb2", &machine.path(&format!("{block}/sdb2")));
    let by = |name: &str| machine.users_of(name).into_iter().map(|user| user.by).collect::<Vec<_>>();
    assert_eq!(
        by("sdb1"),
        [Use::Mount { at: "/pool".to_owned(), seen_by: None }, Use::Filesystem("0f-uuid".to_owned()),]
    );
    assert_eq!(by("sdb2"), [Use::Filesystem("0f-uuid".to_owned())]);
    assert_eq!(by("sdb10"), []);
}

#[test]
fn swap_holders_and_loops_are_seen() {
    let machine = Machine::new();
    let block = machine.uas();
    machine.write("proc/swaps", "Filename Type Size Used Priority\n/dev/sdb2 partition 1 0 -2\n");
    machine.write(&format!("{block}/sdb1/holders/dm-0"), "");
    machine.write("sys/devices/virtual/block/dm-0/dm/name", "vg-root\n");
    machine.link("sys/class/block/dm-0", &machine.path("sys/devices/virtual/block/dm-0"));
    machine.write("sys/devices/virtual/block/loop5/loop/backing_file", "/dev/sdb10\n");
    machine.link("sys/block/loop5", &machine.path("sys/devices/virtual/block/loop5"));
    assert_eq!(
        machine.users_of("sdb1")[0].to_string().split(" is ").last(),
        Some("used by the device \"vg-root\" (/dev/dm-0)")
    );
    assert_eq!(machine.users_of("sdb2")[0].by, Use::Swap);
    assert_eq!(machine.users_of("sdb10")[0].by, Use::Loop("loop5".to_owned()));
    let all = of_disk(&machine.roots, &machine.facts("sdb"));
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|user| user.forbids(false)));
}

/// A stack on the whole disk (kpartx, md) uses every partition of it.
#[test]
fn a_holder_of_the_whole_disk_uses_its_partitions() {
    let machine = Machine::new();
    let block = machine.uas();
    machine.write(&format!("{block}/holders/md127"), "");
    let users = machine.users_of("sdb2");
    assert_eq!(users[0].by, Use::Holder { device: "md127".to_owned(), name: None });
    assert_eq!(users[0].remedy(), "mdadm --stop /dev/md127");
}

#[test]
fn an_image_is_seen_in_other_processes_and_behind_loops() {
    let machine = Machine::new();
    machine.write("disk.img", "x");
    machine.write("other.img", "x");
    let path = machine.path("disk.img").canonicalize().unwrap();
    let metadata = std::fs::metadata(&path).unwrap();
    let users = || of_image(&machine.roots, &path, &metadata).into_iter().map(|user| user.by).collect::<Vec<_>>();
    assert_eq!(users(), []);
    machine.write("proc/4000000/comm", "qemu-system-x86\n");
    machine.link("proc/4000000/fd/9", &path);
    machine.link("proc/4000000/fd/10", &machine.path("other.img"));
    machine.write("proc/4000000/fdinfo/9", format!("pos:\t0\nflags:\t0100002\nmnt_id:\t1\nino:\t{}\n", metadata.ino()));
    let process = usage::Process { id: 4_000_000, name: "qemu-system-x86".to_owned() };
    assert_eq!(users(), [Use::Open { process: process.clone(), writes: true }]);
    machine.write("proc/4000000/fdinfo/9", "flags:\t0100000\n");
    assert_eq!(users(), [Use::Open { process, writes: false }]);
    std::fs::remove_dir_all(machine.path("proc/4000000")).unwrap();
    machine.write("sys/block/loop5/loop/backing_file", format!("{} (deleted)\n", path.display()));
    assert_eq!(users(), [Use::Loop("loop5".to_owned())]);
    machine.write("sys/block/loop5/loop/backing_file", format!("{}\n", machine.path("other.img").display()));
    assert_eq!(users(), []);
}

#[test]
fn readers_of_a_node_are_a_remark_and_writers_a_refusal() {
    let process = usage::Process { id: 1, name: "x".to_owned() };
    let user = |writes| User { node: PathBuf::new(), by: Use::Open { process: process.clone(), writes } };
    assert!(!user(false).forbids(false));
    assert!(user(true).forbids(false));
    assert!(user(false).forbids(true));
}

#[test]
fn not_every_disk_wants_it() {
    let machine = Machine::new();
    let block = machine.uas();
    let found = |name: &str| disk_findings(&machine.facts(name), None);
    assert_eq!(consents(&found("sdb")), [Weight::Warning]);
    machine.write(&format!("{block}/removable"), "1\n");
    assert_eq!(consents(&found("sdb")), [Weight::Warning, Weight::Consent(Consent::RemovableFlash)]);
    machine.write(&format!("{block}/ro"), "1\n");
    assert!(found("sdb").iter().any(|f| f.weight == Weight::Refusal && f.message.contains("write-protected")));

    let ata = machine.disk("pci0000:00/0000:00:17.0/ata3/host2/target2:0:0/2:0:0:0", "sda", "8:0", 1 << 21);
    assert_eq!(machine.facts("sda").attachment, Attachment::Ata);
    assert_eq!(consents(&found("sda")), [Weight::Consent(Consent::Rotating)]);
    machine.write(&format!("{ata}/device/vpd_pgb1"), [0, 0xb1, 0, 60, 0, 1, 0, 0]);
    assert_eq!((machine.facts("sda").rotation, found("sda")), (Rotation::Solid, vec![]));
    machine.write(&format!("{ata}/device/vpd_pgb1"), [0, 0xb1, 0, 60, 0x1c, 0x20, 0, 0]);
    assert_eq!(machine.facts("sda").rotation, Rotation::Rotating, "7200 turns");
    machine.write(&format!("{ata}/queue/zoned"), "host-managed\n");
    machine.write(&format!("{ata}/device/state"), "offline\n");
    let weights = consents(&found("sda"));
    assert_eq!(weights, [Weight::Refusal, Weight::Refusal, Weight::Consent(Consent::Rotating)]);
}

#[test]
fn cards_and_namespaces_with_metadata_are_recognised() {
    let machine = Machine::new();
    let card = machine.disk("platform/mmc0/mmc0:aaaa", "mmcblk0", "179:0", 1 << 21);
    machine.write(&format!("{card}/device/type"), "SD\n");
    assert_eq!(consents(&disk_findings(&machine.facts("mmcblk0"), None)), [Weight::Consent(Consent::RemovableFlash)]);
    machine.write(&format!("{card}/device/type"), "MMC\n");
    assert_eq!(disk_findings(&machine.facts("mmcblk0"), None), []);
    let nvme = machine.disk("pci0000:00/0000:01:00.0/nvme/nvme0", "nvme0n1", "259:0", 1 << 21);
    machine.write(&format!("{nvme}/queue/rotational"), "0\n");
    machine.write(&format!("{nvme}/metadata_bytes"), "8\n");
    let found = disk_findings(&machine.facts("nvme0n1"), None);
    assert!(found.len() == 1 && found[0].message.contains("8 bytes of metadata"), "{found:?}");
}

/// A stack is as slow as its slowest member; a flag that dm inherited from a bridge says nothing.
#[test]
fn rotation_of_a_stack_is_that_of_its_members() {
    let machine = Machine::new();
    machine.uas();
    machine.disk("pci0000:00/0000:00:17.0/ata3/host2/target2:0:0/2:0:0:0", "sda", "8:0", 1 << 21);
    let md = machine.disk("virtual", "md0", "9:0", 1 << 21);
    std::fs::create_dir_all(machine.path(&format!("{md}/md"))).unwrap();
    machine.link(&format!("{md}/slaves/sdb1"), &machine.path("sys/class/block/sdb1"));
    assert_eq!((machine.facts("md0").kind, machine.facts("md0").rotation), (Kind::Md, Rotation::Unknown));
    machine.link(&format!("{md}/slaves/sda"), &machine.path("sys/class/block/sda"));
    assert_eq!(machine.facts("md0").rotation, Rotation::Rotating);
}

#[test]
fn labels_are_found_in_notes_links_and_by_looking() {
    let machine = Machine::new();
    machine.uas();
    let find = |spec: &str| resolve::resolve(&machine.roots, spec, &nobody_looks);
    assert!(matches!(find("LABEL=My Disk"), Err(TargetError::NoSuchTag(_))));
    machine.write(
        "udev/b8:17",
        "S:disk/by-x\nE:ID_FS_TYPE=exfat\nE:ID_FS_LABEL_ENC=My\\x20Disk\nE:ID_FS_UUID_ENC=AB12-CD34\n",
    );
    assert_eq!(find("LABEL=My Disk").unwrap(), machine.path("dev/sdb1"));
    assert_eq!(find("UUID=ab12-cd34").unwrap(), machine.path("dev/sdb1"));
    assert!(matches!(find("LABEL=my disk"), Err(TargetError::NoSuchTag(_))), "a label in other case is another one");
    machine.link("dev/disk/by-label/My\\x20Disk", Path::new("../../sdb1"));
    assert_eq!(find("LABEL=My Disk").unwrap(), machine.path("dev/sdb1").canonicalize().unwrap());
    machine.write("udev/b8:26", "E:ID_FS_LABEL_ENC=My\\x20Disk\n");
    assert!(matches!(find("LABEL=My Disk"), Err(TargetError::Ambiguous { candidates, .. }) if candidates.len() == 2));
    let looking = |node: &Path| {
        let label = node.ends_with("sdb2").then(|| "found".to_owned());
        Some(Identity { label, ..Identity::default() })
    };
    assert_eq!(resolve::resolve(&machine.roots, "LABEL=found", &looking).unwrap(), machine.path("dev/sdb2"));
    assert!(matches!(resolve::resolve(&machine.roots, "LABEL=Found", &looking), Err(TargetError::NoSuchTag(_))));
}

/// A disk with a table is never what a label names, for it has other volumes: the partition is, if it has a node.
#[test]
fn a_label_names_a_partition_and_not_its_disk() {
    let machine = Machine::new();
    machine.uas();
    let labelled = |label: &str| Identity { label: Some(label.to_owned()), ..Identity::default() };
    let looking = |node: &Path| match node.file_name()?.to_str()? {
        "sdb" => Some(Identity { within: vec![(1, labelled("first")), (7, labelled("lost"))], ..Identity::default() }),
        "sdb1" => Some(labelled("first")),
        _ => None,
    };
    let find = |spec: &str| resolve::resolve(&machine.roots, spec, &looking);
    assert_eq!(find("LABEL=first").unwrap(), machine.path("dev/sdb1"));
    let lost = find("LABEL=lost").unwrap_err();
    assert!(matches!(&lost, TargetError::Within { disk, number: 7, .. } if *disk == machine.path("dev/sdb")));
    let command = format!("--partition 7 {}", machine.path("dev/sdb").display());
    assert!(lost.is_usage() && lost.to_string().contains(&command), "{lost}");
    // What udev wrote down about the disk when it had no table yet.
    machine.write("udev/b8:16", "E:ID_FS_TYPE=ext4\nE:ID_FS_LABEL_ENC=first\n");
    assert_eq!(find("LABEL=first").unwrap(), machine.path("dev/sdb1"));
}

#[test]
fn the_list_shows_disks_partitions_and_users_and_leaves_out_what_is_none() {
    let machine = Machine::new();
    machine.uas();
    machine.disk("virtual", "loop0", "7:0", 0);
    machine.disk("virtual", "zram0", "252:0", 4096);
    machine.write("udev/b8:17", "E:ID_FS_TYPE=ext4\nE:ID_FS_LABEL_ENC=data\n");
    machine.write("proc/self/mountinfo", "36 35 8:17 / /mnt rw - ext4 /dev/sdb1 rw\n");
    let looked = std::cell::RefCell::new(Vec::new());
    let identify = |node: &Path| {
        looked.borrow_mut().push(node.to_owned());
        None
    };
    let disks = list(&machine.roots, &identify);
    assert_eq!(disks.iter().map(|listed| listed.disk.name.as_str()).collect::<Vec<_>>(), ["sdb"]);
    let first = &disks[0].partitions[0];
    assert_eq!(first.content.as_ref().and_then(|content| content.label.as_deref()), Some("data"));
    assert_eq!((first.users.len(), disks[0].partitions[1].users.len()), (1, 0));
    assert_eq!(*looked.borrow(), [machine.path("dev/sdb2"), machine.path("dev/sdb10")], "notes spare a look");
    assert!(serde_json::to_string(&disks).unwrap().contains("\"vendor_id\":5421"));
}

#[test]
fn names_that_are_no_disk_get_an_answer_that_helps() {
    let machine = Machine::new();
    let mut opener = Opener::new(machine.roots.clone());
    let mut open = |path: &Path| opener.open(path.to_str().unwrap(), Intent::Read, &nobody_looks).unwrap_err();
    assert!(matches!(open(&machine.path("nothing")), TargetError::NotFound(_)));
    assert!(matches!(open(&machine.path("proc")), TargetError::Directory { .. }));
    machine.write(
        "proc/self/mountinfo",
        format!("36 35 8:17 / {} rw - ext4 /dev/sdb1 rw\n", machine.path("dev").canonicalize().unwrap().display()),
    );
    let error = open(&machine.path("dev"));
    let words = error.to_string();
    assert!(
        error.is_refusal() && words.contains("use fstrim") && words.contains("udisksctl unmount -b /dev/sdb1"),
        "{words}"
    );
    assert!(matches!(open(Path::new("/dev/null")), TargetError::CharacterDevice { .. }));
    nix::unistd::mkfifo(&machine.path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(matches!(open(&machine.path("fifo")), TargetError::NotADisk { what: "a pipe", .. }));
    machine.write("empty", "");
    assert!(matches!(open(&machine.path("empty")), TargetError::Empty(_)));
}

#[test]
fn wrapped_disks_are_refused_with_the_command_that_opens_them() {
    let machine = Machine::new();
    let mut end = vec![0; 4096];
    end[4096 - 512..4096 - 504].copy_from_slice(b"conectix");
    let mut dmg = vec![0; 4096];
    dmg[4096 - 512..4096 - 508].copy_from_slice(b"koly");
    let mut vdi = vec![0; 4096];
    vdi[0x40..0x44].copy_from_slice(&0xbeda_107f_u32.to_le_bytes());
    for (bytes, command) in [
        (b"QFI\xfb\0\0\0\x03".to_vec(), "qemu-nbd --discard=unmap -f qcow2"),
        (b"KDMV".to_vec(), "-f vmdk"),
        (b"# Disk DescriptorFile\nversion=1".to_vec(), "-f vmdk"),
        (end, "-f vpc"),
        (b"vhdxfile".to_vec(), "-f vhdx"),
        (vdi, "-f vdi"),
        (dmg, "hdiutil attach"),
        (b"EVF\x09\x0d\x0a\xff\x00".to_vec(), "ewfmount"),
    ] {
        machine.write("wrapped", bytes);
        let path = machine.path("wrapped");
        for intent in [Intent::Read, Intent::Discard] {
            let error =
                Opener::new(machine.roots.clone()).open(path.to_str().unwrap(), intent, &nobody_looks).unwrap_err();
            assert!(error.is_refusal() && error.to_string().contains(command), "{error}");
        }
    }
}

#[test]
fn an_image_is_locked_against_others_and_released() {
    let machine = Machine::new();
    machine.write("disk.img", vec![0; 1 << 16]);
    let path = machine.path("disk.img");
    let name = path.to_str().unwrap();
    let open = |intent| Opener::new(machine.roots.clone()).open(name, intent, &nobody_looks);
    let target = open(Intent::Discard).unwrap();
    assert_eq!((target.size(), target.kind(), target.findings()), (1 << 16, Kind::Image, vec![]));
    assert_eq!(target.claim().map(Claim::reach), Some(&Reach::Image));
    assert!(matches!(open(Intent::Discard), Err(TargetError::InUse { .. })));
    let looked = open(Intent::Read).unwrap();
    assert_eq!(consents(&looked.findings()), [Weight::Refusal]);
    drop(target);
    assert_eq!(open(Intent::Read).unwrap().findings(), []);
    assert!(open(Intent::Discard).is_ok());
}

/// Virtual machines lock bytes of their images (QEMU: byte 100 and on, by open file description).
#[test]
fn a_record_lock_of_somebody_else_is_a_use() {
    let machine = Machine::new();
    machine.write("disk.img", vec![0; 1 << 16]);
    let path = machine.path("disk.img");
    let vm = File::options().read(true).write(true).open(&path).unwrap();
    sys::lock_whole(&vm).unwrap();
    let open = |intent| Opener::new(machine.roots.clone()).open(path.to_str().unwrap(), intent, &nobody_looks);
    assert!(matches!(open(Intent::Discard), Err(TargetError::InUse { .. })));
    assert_eq!(consents(&open(Intent::Read).unwrap().findings()), [Weight::Refusal]);
    drop(vm);
    assert!(open(Intent::Discard).is_ok());
}

#[test]
fn an_image_that_changes_during_the_run_is_noticed() {
    let machine = Machine::new();
    machine.write("disk.img", vec![0; 1 << 16]);
    let path = machine.path("disk.img");
    let target =
        Opener::new(machine.roots.clone()).open(path.to_str().unwrap(), Intent::Discard, &nobody_looks).unwrap();
    target.must_be_unchanged().unwrap();
    File::options().write(true).open(&path).unwrap().set_len(1 << 15).unwrap();
    assert!(matches!(target.must_be_unchanged(), Err(TargetError::Changed { .. })));
    std::fs::remove_file(&path).unwrap();
    machine.write("disk.img", vec![0; 1 << 16]);
    assert!(matches!(target.must_be_unchanged(), Err(TargetError::Changed { .. })));
}

#[test]
fn escapes_of_the_kernel_are_undone() {
    assert_eq!(unescaped("/a\\040b\\134c"), "/a b\\c");
    assert_eq!(unescaped("/a\\xb\\"), "/a\\xb\\");
}

#[test]
fn a_wake_lock_is_taken_and_given_back() {
    let machine = Machine::new();
    assert_eq!(Awake::hold(&machine.roots).describe().unwrap(), "this kernel cannot suspend");
    machine.write("sys/power/state", "mem\n");
    assert!(awake::wake_lock(&machine.roots).is_none(), "no file is made where the kernel has none");
    machine.write("sys/power/wake_lock", "");
    machine.write("sys/power/wake_unlock", "");
    let awake = Awake::by(awake::wake_lock(&machine.roots).unwrap());
    assert!(awake.describe().unwrap().contains("wake lock"));
    assert_eq!(std::fs::read(machine.path("sys/power/wake_lock")).unwrap(), b"coldtrim");
    drop(awake);
    assert_eq!(std::fs::read(machine.path("sys/power/wake_unlock")).unwrap(), b"coldtrim");
}

#[test]
fn what_went_wrong_is_counted_from_a_moment_on() {
    use super::watch::Troubles;
    let counted = |errors, timeouts| Troubles { errors, timeouts };
    assert_eq!(counted(7, 1).since(counted(7, 1)), None);
    assert!(
        counted(8, 1).since(counted(7, 1)).is_some_and(|words| words.contains("1 failed commands and 0 time-outs"))
    );
    assert!(
        counted(7, 3).since(counted(7, 1)).is_some_and(|words| words.contains("0 failed commands and 2 time-outs"))
    );
}
