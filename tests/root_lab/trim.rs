//! The main job on every front end: a volume of real files is trimmed, and the host sees in the backing file that
//! exactly the planned bytes were discarded; then the kernel mounts it afresh, and every file is as it was written.

use crate::common;
use crate::lab::{Drive, Lab, Output, Snapshot, Status, Volume};
use std::path::Path;

/// coldtrim's path, the same in the guest.
pub const COLDTRIM: &str = env!("CARGO_BIN_EXE_coldtrim");
/// The volumes of every case: format and partition table.
const VOLUMES: &[(&str, &str)] = &[("ext4", "none"), ("fat32", "mbr"), ("ext4", "gpt"), ("fat32", "none")];
/// Where sectors of 4096 bytes leave too few clusters for FAT32.
const VOLUMES_4K: &[(&str, &str)] = &[("ext4", "gpt"), ("fat16", "none"), ("ext4", "none"), ("fat16", "mbr")];

/// What is free according to `map`, in bytes of the disk, rounded inwards to what the device discards at once.
fn expected_plan(map: &str, volume_start: u64, granule: u64) -> Vec<(u64, u64)> {
    let free: Vec<_> =
        common::parse_ranges(map).iter().map(|(start, length)| (start + volume_start, *length)).collect();
    let planned = common::rounded(&free, granule);
    assert!(total(&planned) > 8 << 20, "only {} bytes to discard: the case shows nothing", total(&planned));
    planned
}

pub fn total(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(_, length)| length).sum()
}

/// The report of a run that must have done all of `planned`.
pub fn assert_done(output: &Output, planned: &[(u64, u64)], via: &str) {
    assert!(output.status == Status::Exited(0), "{output}");
    let report: serde_json::Value =
        serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {output}"));
    assert_eq!(report["plan"]["bytes"], total(planned), "planned bytes: {output}");
    assert_eq!(report["outcome"]["bytes"], total(planned), "discarded bytes: {output}");
    assert_eq!(report["outcome"]["errors"], serde_json::json!([]), "{output}");
    let routes: Vec<_> = report["volumes"].as_array().into_iter().flatten().map(|v| &v["route"]).collect();
    assert_eq!(routes, [via], "{output}");
}

/// One case: `node` is what coldtrim is given, at `offset` on the drive.
fn trims_exactly(disk: &Drive<'_>, volume: &Volume, (node, offset): (&str, u64), via: &str, granule: u64) {
    let lab = disk.lab;
    let before = disk.snapshot();
    let map = lab.run_ok(&format!("{COLDTRIM} map --format ranges {node}"));
    before.assert_untouched();
    let planned = expected_plan(&map, offset, granule);
    let output = lab.run(&format!("{COLDTRIM} trim --yes --json --via {via} {node}"));
    assert_done(&output, &planned, via);
    let _ = disk.lab.run_ok("sync");
    before.assert_only_discarded(&planned);
    disk.check(volume);
}

/// The volumes of one case, each with a seed. An ordinary run takes one of the four, by the case's name; over the cases
/// every one of them comes more than once, behind USB bulk-only both formats.
fn volumes(case: &str) -> impl Iterator<Item = (u64, &'static (&'static str, &'static str))> {
    let volumes = if case.ends_with("4k") { VOLUMES_4K } else { VOLUMES };
    let one = case.bytes().map(u64::from).sum::<u64>() % 4 + 1;
    (1..).zip(volumes).filter(move |(seed, _)| common::full() || *seed == one)
}

/// All volumes on one drive. Without a table, and once with one, coldtrim is given the whole disk.
fn trims_all(drive: &str, via: &str, granule: u64) {
    let disk = Lab::get().drive(drive);
    for (seed, (format, table)) in volumes(drive) {
        println!("{drive} by {via}: {format}, table {table}");
        let volume = disk.make(format, table, seed);
        let whole_disk = *table == "none" || *table == "mbr";
        let target = if whole_disk { (disk.node.as_str(), 0) } else { (volume.node.as_str(), volume.start) };
        trims_exactly(&disk, &volume, target, via, granule);
    }
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_ahci_by_sat16() {
    trims_all("ahci0", "sat16", 512);
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_nvme_by_nvme() {
    trims_all("nvme0", "nvme", 4096);
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_nvme_4k_by_nvme() {
    trims_all("nvme4k", "nvme", 4096);
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_uas_by_unmap() {
    trims_all("uas0", "unmap", 4096);
}

/// The mission's own case: the kernel offers no discard here, fstrim fails, and coldtrim works on the same volume.
#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_bot_by_unmap_where_fstrim_fails() {
    let disk = Lab::get().drive("bot0");
    assert_eq!(disk.sysfs("queue/discard_max_bytes"), "0");
    let volume = disk.make("ext4", "gpt", 9);
    let before = disk.snapshot();
    let fstrim = disk.lab.run(&format!(
        "mkdir -p /run/bot && mount -o ro {0} /run/bot && fstrim -v /run/bot; s=$?; umount /run/bot; exit $s",
        volume.node
    ));
    assert!(matches!(fstrim.status, Status::Exited(1..)) && fstrim.stderr.contains("not supported"), "{fstrim}");
    before.assert_untouched();
    trims_exactly(&disk, &volume, (&volume.node, volume.start), "unmap", 4096);
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_bot_by_unmap() {
    trims_all("bot0", "unmap", 4096);
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_bot_4k_by_unmap() {
    trims_all("bot4k", "unmap", 4096);
}

/// Filled and checked by the kernel's drivers, NTFS by ntfs-3g.
#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_bot_every_other_filesystem() {
    let disk = Lab::get().drive("botbig0");
    for (seed, format) in (21..).zip(["exfat", "ntfs", "hfsplus", "xfs", "btrfs"]) {
        println!("botbig0 by unmap: {format}, table gpt");
        let volume = disk.make(format, "gpt", seed);
        trims_exactly(&disk, &volume, (&volume.node, volume.start), "unmap", 4096);
    }
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_virtio_scsi_by_unmap() {
    trims_all("vscsi0", "unmap", 4096);
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_virtio_scsi_4k_by_blkdiscard() {
    trims_all("vscsi4k", "blkdiscard", 4096);
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_virtio_scsi_by_blkdiscard() {
    trims_all("vscsi1", "blkdiscard", 4096);
}

/// Granules of 64 KiB and at most 1 MiB in a command.
#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_coarse_granules_by_unmap() {
    trims_all("vcoarse0", "unmap", 65536);
}

/// The contents of a drive as an image file of the host, trimmed there, and put back to be checked by the guest.
fn on_the_host(trim: impl Fn(&Path) -> (std::process::Output, Vec<(u64, u64)>), via: &str) {
    let disk = Lab::get().drive("vscsi1");
    for (seed, (format, table)) in volumes(via) {
        println!("image by {via}: {format}, table {table}");
        let volume = disk.make(format, table, seed);
        let image = disk.backing.with_extension("img");
        std::fs::copy(&disk.backing, &image).expect("room for an image");
        let before = Snapshot::take(&image);
        let (done, planned) = trim(&image);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let status = Status::Exited(done.status.code().unwrap_or(-1));
        assert_done(&Output { status, stdout: text(&done.stdout), stderr: text(&done.stderr) }, &planned, via);
        before.assert_only_discarded(&planned);
        disk.replace(&image);
        disk.check(&volume);
    }
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_image_by_punch() {
    on_the_host(
        |image| {
            let path = image.to_str().expect("a UTF-8 path");
            let map = common::tool_ok(COLDTRIM, &["map", "--format", "ranges", path]);
            (common::coldtrim(&["trim", "--yes", "--json", path]), expected_plan(&map, 0, 1))
        },
        "punch",
    );
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_loop_by_blkdiscard() {
    on_the_host(
        |image| {
            let path = image.to_str().expect("a UTF-8 path");
            let node = common::tool_ok("losetup", &["--find", "--show", path]).trim().to_owned();
            let map = common::tool_ok(COLDTRIM, &["map", "--format", "ranges", &node]);
            let done = common::coldtrim(&["trim", "--yes", "--json", &node]);
            let _ = common::tool_ok("losetup", &["--detach", &node]);
            (done, expected_plan(&map, 0, 4096))
        },
        "blkdiscard",
    );
}
