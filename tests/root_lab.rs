//! coldtrim on real kernel drivers, in the device lab. One guest serves all tests of this file.

mod common;
#[path = "root_lab/debug_disk.rs"]
mod debug_disk;
#[path = "root_lab/f2fs.rs"]
mod f2fs;
#[path = "common/f2fs.rs"]
mod f2fs_images;
#[path = "root_lab/in_use.rs"]
mod in_use;
#[path = "common/lab/mod.rs"]
mod lab;
#[path = "root_lab/lvm.rs"]
mod lvm;
#[path = "common/lvm_group.rs"]
mod lvm_group;
#[path = "root_lab/many.rs"]
mod many;
#[path = "root_lab/mapping.rs"]
mod mapping;
#[path = "root_lab/md.rs"]
mod md;
#[path = "common/md_array.rs"]
mod md_array;
#[path = "root_lab/mounted.rs"]
mod mounted;
#[path = "root_lab/probe.rs"]
mod probe;
#[path = "root_lab/trim.rs"]
mod trim;

use lab::{Drive, Lab, Status};

/// What the kernel offers behind a front end: `provisioning_mode`, `discard_max_bytes`, the driver in sysfs' path.
fn assert_offers(disk: &Drive<'_>, mode: &str, most: u64, driver: &str) {
    let name = disk.spec.name;
    if !mode.is_empty() {
        assert_eq!(disk.sysfs("device/scsi_disk/*/provisioning_mode"), mode, "{name}: provisioning_mode");
    }
    assert_eq!(disk.sysfs("queue/discard_max_bytes"), most.to_string(), "{name}: discard_max_bytes");
    assert!(disk.has_driver(driver), "{name} is not driven by {driver}");
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_front_ends_are_those_of_the_kernel() {
    let lab = Lab::get();
    assert_offers(&lab.drive("ahci0"), "writesame_16", 2_147_450_880, "ahci");
    assert_offers(&lab.drive("nvme0"), "", 2_147_483_136, "nvme");
    assert_offers(&lab.drive("uas0"), "unmap", 1_073_741_824, "uas");
    assert_offers(&lab.drive("bot0"), "full", 0, "usb-storage");
    assert_offers(&lab.drive("bot4k"), "full", 0, "usb-storage");
    assert_offers(&lab.drive("vscsi0"), "unmap", 1_073_741_824, "virtio_scsi");
    for name in ["nvme4k", "bot4k", "vscsi4k"] {
        assert_eq!(lab.drive(name).sysfs("queue/logical_block_size"), "4096", "{name}");
    }
    assert_eq!(lab.drive("vcoarse0").sysfs("queue/discard_granularity"), "65536");
}

/// The discards of standard tools, before any of ours: does the host see exactly what was sent?
fn assert_seen_exactly(drive: &str, command: impl Fn(&str) -> String, discarded: &[(u64, u64)]) {
    let disk = Lab::get().drive(drive);
    disk.fill();
    let before = disk.snapshot();
    let _ = disk.lab.run_ok(&command(&disk.node));
    before.assert_only_discarded(discarded);
    let wrong = [(discarded[0].0, discarded[0].1 - 512)];
    assert!(before.compare(&wrong).is_err(), "a comparison that cannot fail shows nothing");
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_sees_every_discarded_byte() {
    // LBA 4097, 1000 blocks: no multiple of the host's granule at either end
    let odd = [(4097 * 512, 1000 * 512)];
    let unmap = |node: &str| format!("sg_unmap --lba=4097 --num=1000 --force {node}");
    for drive in ["uas0", "bot0", "vscsi0"] {
        assert_seen_exactly(drive, unmap, &odd);
    }
    let unmap_4k = |node: &str| format!("sg_unmap --lba=1000 --num=7 --force {node}");
    for drive in ["bot4k", "vscsi4k"] {
        assert_seen_exactly(drive, unmap_4k, &[(1000 * 4096, 7 * 4096)]);
    }
    let ata = |node: &str| format!("hdparm --please-destroy-my-drive --trim-sector-ranges 4097:1000 {node}");
    assert_seen_exactly("ahci0", ata, &odd);
    assert_seen_exactly("nvme0", |node| format!("nvme dsm {node} --ad --slbs=4097 --blocks=1000"), &odd);
    for drive in ["ahci0", "nvme0", "uas0", "vscsi0"] {
        let blkdiscard = |node: &str| format!("blkdiscard --offset 1048576 --length 3145728 {node}");
        assert_seen_exactly(drive, blkdiscard, &[(1 << 20, 3 << 20)]);
    }
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_signals_and_limits() {
    let lab = Lab::get();
    let running = lab.start("trap 'echo interrupted; exit 130' INT; echo ready; sleep 60 & wait");
    while running.so_far().is_some_and(|output| !output.stdout.contains("ready")) {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    running.signal(2);
    let output = running.wait();
    assert_eq!((output.status, output.stdout.as_str()), (Status::Exited(130), "ready\ninterrupted\n"));
    let late = lab.run_within("sleep 60", std::time::Duration::from_secs(1));
    assert_eq!(late.status, Status::TimedOut);
    assert_eq!(lab.run("kill -9 $$").status, Status::Signalled(9));
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_check_sees_a_lost_block() {
    let disk = Lab::get().drive("vscsi0");
    let volume = disk.make("fat32", "mbr", 2);
    disk.check(&volume);
    // Behind the tables, where the first files lie.
    let start = volume.size / 8 / 4096 * 4096;
    let _ = disk.lab.run_ok(&format!("blkdiscard --offset {start} --length 4194304 {}", volume.node));
    let answer = disk.lab.try_check(&volume);
    assert!(answer.status != Status::Exited(0) && answer.stderr.contains("files are not as written"), "{answer}");
}
