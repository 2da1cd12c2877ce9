//! `coldtrim` on block devices: loop devices of this machine, over images whose bytes the test can see.

mod common;
#[path = "common/images.rs"]
mod images;
#[path = "common/loops.rs"]
mod loops;

use common::{map_ranges, rounded, tool, tool_ok};
use images::backing::Snapshot;
use images::{FIRST, SECOND, Table, check_ext4, check_fat, disk, ext4, fat, said, text};
use loops::{Loop, granule};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

struct Mounted(PathBuf);

impl Mounted {
    fn new(node: &str, folder: &Path) -> Self {
        let at = folder.join("mnt");
        std::fs::create_dir_all(&at).expect("a mount point");
        tool_ok("mount", &[node, text(&at)]);
        Self(at.canonicalize().expect("a mount point"))
    }

    fn at(&self) -> &str {
        text(&self.0)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        tool("umount", &[text(&self.0)]);
    }
}

/// Every verb refuses with these words.
fn refused(target: &str, words: &[&str]) {
    for args in [&["map"][..], &["trim", "-n"], &["trim", "--yes"]] {
        said(&[args, &[target]].concat()).expect(3, words);
    }
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_loop_device_is_trimmed_exactly() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for image in [ext4(folder.path(), "a.img"), fat(folder.path(), "b.img")] {
        let free = map_ranges(&image);
        let before = Snapshot::take(&image);
        let device = Loop::new(&image);
        let planned = rounded(&free, granule(&device));
        said(&["map", &device.0]).expect(0, &["clean"]);
        let dry = said(&["trim", "-n", "--json", &device.0]);
        let dry = dry.expect(0, &[]).json();
        assert_eq!(dry["plan"]["bytes"], planned.iter().map(|(_, len)| len).sum::<u64>());
        assert_eq!(dry["volumes"][0]["route"], "blkdiscard");
        before.assert_untouched();
        said(&["trim", "--yes", &device.0]).expect(0, &["discarded:"]);
        drop(device);
        before.assert_only_discarded(&planned);
        assert!(planned.len() > 10);
    }
    check_ext4(&folder.path().join("a.img"), 0);
    check_fat(&folder.path().join("b.img"), 0);
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_partitioned_disk_is_trimmed_as_a_whole_and_by_partition() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Gpt, &first, &second);
    let before = Snapshot::take(&image);
    let device = Loop::partitioned(&image);
    let planned = rounded(&map_of(&device.0), granule(&device));
    let (one, two): (Vec<_>, Vec<_>) = planned.iter().copied().partition(|(start, _)| *start < SECOND);
    assert!(one.len() > 10 && two.len() > 10);

    let report = said(&["trim", "--yes", "--json", &device.part(2)]);
    let report = report.expect(0, &[]).json();
    assert_eq!(report["targets"][0]["kind"], "partition");
    assert_eq!(report["targets"][0]["disk_offset"], SECOND);
    before.assert_only_discarded(&two);
    said(&["trim", "--yes", &device.0]).expect(0, &["discarded in all:"]);
    drop(device);
    before.assert_only_discarded(&planned);
    check_ext4(&image, FIRST);
    check_fat(&image, SECOND);
}

/// The map of a device that may be attached by loop: `map` of its backing file would be refused.
fn map_of(node: &str) -> Vec<(u64, u64)> {
    let run = said(&["map", "--format", "ranges", node]);
    run.expect(0, &[]);
    common::parse_ranges(&run.out)
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_mounted_volume_is_refused_with_the_command_that_unmounts_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let device = Loop::new(&image);
    let mounted = Mounted::new(&device.0, folder.path());
    refused(&device.0, &["mounted at", &format!("umount {}", mounted.at()), "udisksctl unmount -b"]);
    refused(mounted.at(), &["is mounted", "fstrim -v", "umount", &device.0]);
    refused(text(&image), &[&format!("behind the loop device {}", device.0), "losetup -d", "umount", mounted.at()]);
    // A repair would destroy what is mounted.
    for target in [device.0.as_str(), text(&image)] {
        let run = said(&["map", target]);
        run.expect(3, &["see to what forbids"]);
        assert!(!format!("{}{}", run.out, run.err).contains("e2fsck"), "{}", run.out);
    }
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_volume_that_is_mounted_through_another_loop_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let (first, second) = (Loop::new(&image), Loop::new(&image));
    let mounted = Mounted::new(&second.0, folder.path());
    said(&["trim", "--yes", &first.0]).expect(3, &[]);
    refused(text(&image), &["loop device"]);
    drop(mounted);
    drop(second);
    said(&["trim", "--yes", &first.0]).expect(0, &["discarded:"]);
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_swap_in_use_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("swap.img");
    images::backing::create(&image, 8 << 20).expect("an image");
    images::backing::fill(&image, 8 << 20);
    let device = Loop::new(&image);
    tool_ok("mkswap", &[&device.0]);
    tool_ok("swapon", &[&device.0]);
    let runs: Vec<_> = [&["map"][..], &["trim", "-n"], &["trim", "--yes"]]
        .iter()
        .map(|args| said(&[args, &[device.0.as_str()][..]].concat()))
        .collect();
    tool_ok("swapoff", &[&device.0]);
    for run in runs {
        run.expect(3, &["swap", &format!("swapoff {}", device.0)]);
    }
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_labels_and_uuids_find_the_volume() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let label = format!("ct{}", std::process::id());
    tool_ok("e2label", &[text(&image), &label]);
    let uuid = tool_ok("blkid", &["-p", "-o", "value", "-s", "UUID", text(&image)]).trim().to_owned();
    let device = Loop::new(&image);
    let (by_label, by_uuid) = (format!("LABEL={label}"), format!("UUID={uuid}"));
    for spec in [&by_label, &by_uuid] {
        let report = said(&["map", "--json", spec]);
        let report = report.expect(0, &[]).json();
        assert_eq!(report["targets"][0]["path"], device.0.as_str());
        assert_eq!(report["targets"][0]["name"], spec.as_str());
    }
    let other = folder.path().join("copy.img");
    std::fs::copy(&image, &other).expect("room");
    let second = Loop::new(&other);
    said(&["map", &by_label]).expect(2, &["several devices", &device.0, &second.0]);
    drop(second);
    said(&["trim", "--yes", &by_label]).expect(0, &["discarded:"]);
}

/// What can be known before: a dry run ends as the run would.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_dry_run_ends_like_the_run_where_nothing_can_be_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let both = |name: &str, code: i32, words: &[&str]| {
        for args in [&["trim", "-n"], &["trim", "--yes"]] {
            said(&[&args[..], &[name]].concat()).expect(code, words);
        }
    };
    let protected = Loop(tool_ok("losetup", &["-f", "--show", "--read-only", text(&image)]).trim().to_owned());
    both(&protected.0, 3, &["write-protected"]);
    drop(protected);
    let place = folder.path().join("place");
    std::fs::create_dir(&place).expect("a mount point");
    tool_ok("mount", &["-t", "ramfs", "ramfs", text(&place)]);
    let _ramfs = Mounted(place.clone());
    let there = place.join("a.img");
    std::fs::copy(&image, &there).expect("memory");
    let before = Snapshot::take(&there);
    both(text(&there), 4, &["ramfs", "cannot make holes"]);
    tool_ok("mount", &["-o", "remount,ro", text(&place)]);
    both(text(&there), 1, &["Read-only file system"]);
    tool_ok("mount", &["-o", "remount,rw", text(&place)]);
    before.assert_untouched();
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_the_list_tells_what_a_trim_would_refuse() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Mbr, &first, &second);
    let device = Loop::partitioned(&image);
    said(&["list", &device.0]).expect(0, &[&device.part(1), "ext4"]);
    let other = Loop(tool_ok("losetup", &["-f", "--show", "-o", &FIRST.to_string(), text(&image)]).trim().to_owned());
    let odd = folder.path().join("odd\x1b[2J\u{202E}");
    let _mounted = Mounted::new(&other.0, &odd);
    let list = said(&["list", &other.0]);
    list.expect(0, &["mounted at", "odd\u{FFFD}[2J\u{FFFD}"]);
    assert!(!list.out.contains(['\x1b', '\u{202E}']), "{list:#?}");
    // Whole disk and partition: the mount goes to the same bytes by another way.
    for node in [&device.0, &device.part(1)] {
        said(&["trim", "-n", node]).expect(3, &["behind the loop device", &other.0]);
        let list = said(&["list", node]);
        list.expect(0, &["behind the loop device", &other.0]);
        assert!(!list.out.contains("not in use"), "{list:#?}");
    }
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_the_list_takes_any_name_of_a_disk_and_tells_of_those_that_are_none() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Gpt, &first, &second);
    let device = Loop::new(&image);
    for number in ["1", "2", "3"] {
        tool("delpart", &[&device.0, number]);
    }
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&device.0, &link).expect("a link");
    let relative = format!("/dev/../dev/{}", device.name());
    for name in [&device.0, text(&link), &relative] {
        let list = said(&["list", name]);
        list.expect(0, &[&device.0, "gpt table with 3 partitions"]);
        assert!(!list.out.contains("ext4"), "a disk with a table is no volume: {list:#?}");
    }
    let nothing = ["/dev/nothing", text(&image)].map(|name| format!("{name} is no disk that the kernel knows"));
    let mixed = ["list", "/dev/nothing", &device.0, text(&image)];
    said(&mixed).expect(1, &[&nothing[0], &nothing[1], &device.0]);
    let object = said(&[&mixed[..], &["--json"]].concat()).expect(1, &[]).json();
    assert_eq!(object["errors"].as_array().map(Vec::len), Some(2), "{object}");
    assert_eq!(object["disks"][0]["disk"]["node"], device.0.as_str());
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_label_takes_one_partition_and_never_the_disk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    let label = format!("CT{}", std::process::id());
    tool_ok("e2label", &[text(&first), &label]);
    let image = disk(folder.path(), "disk.img", Table::Mbr, &first, &second);
    let before = Snapshot::take(&image);
    let by_label = format!("LABEL={label}");
    {
        // Until it is told, a kernel that cannot read the table knows no partition; one that can must forget.
        let device = Loop::new(&image);
        for number in ["1", "2"] {
            tool("delpart", &[&device.0, number]);
        }
        let command = format!("--partition 1 {}", device.0);
        for args in [&["map"][..], &["trim", "-n"], &["trim", "--yes"]] {
            said(&[args, &[&by_label]].concat()).expect(2, &["partition 1 of", &command, "partx --add"]);
        }
        before.assert_untouched();
    }
    let device = Loop::partitioned(&image);
    said(&["map", &format!("LABEL={}", label.to_lowercase())]).expect(2, &["no device has"]);
    let planned: Vec<_> = map_of(&device.part(1)).iter().map(|(start, len)| (start + FIRST, *len)).collect();
    let report = said(&["trim", "--yes", "--json", &by_label]);
    let report = report.expect(0, &[]).json();
    assert_eq!(report["targets"][0]["path"], device.part(1).as_str());
    let granule = granule(&device);
    drop(device);
    before.assert_only_discarded(&rounded(&planned, granule));
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_beside_a_mounted_partition_only_blkdiscard_is_used_and_said() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Mbr, &first, &second);
    let device = Loop::partitioned(&image);
    let two = map_of(&device.part(2));
    let mounted = Mounted::new(&device.part(1), folder.path());
    refused(&device.part(1), &["mounted at", "umount"]);
    refused(&device.0, &["mounted at"]);
    let run = said(&["trim", "--yes", &device.part(2)]);
    run.expect(0, &["by blkdiscard", "only blkdiscard", mounted.at()]);
    said(&["trim", "--yes", "--via", "unmap", &device.part(2)]).expect(4, &["Tried:"]);
    drop(mounted);
    let bytes = std::fs::read(&image).expect("the image");
    for (start, length) in rounded(&two, granule(&device)) {
        let (start, length) = (usize::try_from(SECOND + start).unwrap(), usize::try_from(length).unwrap());
        assert!(bytes[start..start + length].iter().all(|byte| *byte == 0), "{start}+{length}");
    }
    drop(device);
    check_ext4(&image, FIRST);
    check_fat(&image, SECOND);
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_device_without_discard_has_no_route() {
    // ramfs cannot punch holes, so a loop device over a file on it offers no discard. Switching discard off by sysfs
    // is no way: the kernel keeps that for the next user of the loop device, and some do not let it be undone.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path().join("mnt");
    std::fs::create_dir(&at).expect("a mount point");
    tool_ok("mount", &["-t", "ramfs", "none", text(&at)]);
    let mounted = Mounted(at);
    let image = mounted.0.join("a.img");
    std::fs::copy(ext4(folder.path(), "a.img"), &image).expect("room");
    let device = Loop::new(&image);
    let before = std::fs::read(&image).expect("the image");
    let tried = ["Tried:", "blkdiscard: the kernel offers no discard", "nvme:", "unmap:", "sat16:"];
    for args in [&["trim", "-n"][..], &["trim", "--yes"]] {
        said(&[args, &[device.0.as_str()]].concat()).expect(4, &tried);
    }
    drop(device);
    assert!(std::fs::read(&image).expect("the image") == before, "nothing was sent");
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_formats_for_other_tools_count_sectors_of_the_whole_disk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Gpt, &first, &second);
    let device = Loop::partitioned(&image);
    let expected: String = map_of(&device.part(2))
        .iter()
        .map(|(start, len)| format!("{} {}\n", (SECOND + start) / 512, len / 512))
        .collect();
    let run = said(&["map", "--format", "lba", &device.part(2)]);
    run.expect(0, &[&device.0, "checks nothing"]);
    let lines: String = run.out.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    assert_eq!(lines, expected);
    let command = |line: &str| {
        let (start, count) = line.split_once(' ').expect("two numbers");
        let bytes = |sectors: &str| sectors.parse::<u64>().expect("a number") * 512;
        format!("blkdiscard --offset {} --length {} {}\n", bytes(start), bytes(count), device.0)
    };
    let expected: String = expected.lines().map(command).collect();
    let run = said(&["map", "--format", "blkdiscard", &device.part(2)]);
    assert!(run.out.ends_with(&expected) && expected.lines().count() > 10, "{run:#?}");
    said(&["map", "--format", "nvme", &device.part(2)]).expect(0, &[&format!("nvme dsm {} --ad", device.0)]);
    said(&["list", "--json"]).expect(0, &[&device.0, "\"loop\""]);
    said(&["list", &device.0]).expect(0, &[&device.0, &device.part(2), "fat16", "blkdiscard"]);
}

/// The kernel's partitions and the table on the disk are two opinions; what one of them calls free may be the other's.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_partitions_that_the_kernel_sees_elsewhere_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Gpt, &first, &second);
    let device = Loop::partitioned(&image);
    said(&["map", &device.0]).expect(0, &[]);
    said(&["map", &device.part(1)]).expect(0, &[]);
    tool_ok("resizepart", &[&device.0, "1", "22528"]);
    let before = Snapshot::take(&image);
    refused(&device.0, &["the kernel sees", "p1", "puts it at", "blockdev --rereadpt"]);
    refused(&device.part(1), &["the kernel sees", "p1", "puts it at", "blockdev --rereadpt"]);
    before.assert_untouched();
    tool_ok("resizepart", &[&device.0, "1", "20480"]);
    said(&["map", &device.part(1)]).expect(0, &[]);
    // A table that cannot be used is no table, and it is said why.
    images::put(&image, (24 << 20) - 512, &[0; 512]);
    tool_ok("blockdev", &["--flushbufs", &device.0]);
    refused(&device.part(1), &["the kernel sees", "p1", "second copy of the GPT"]);
    drop(device);
    // No table at all, and a partition inside what looks like one large volume.
    let plain = Loop::new(&first);
    tool_ok("addpart", &[&plain.0, "1", "2048", "4096"]);
    refused(&plain.0, &["the kernel sees", "ext4, without a partition table"]);
    refused(&format!("{}p1", plain.0), &["the kernel sees", "ext4, without a partition table"]);
    // A loop device keeps its partitions for the next file, too.
    tool_ok("delpart", &[&plain.0, "1"]);
    said(&["map", &plain.0]).expect(0, &[]);
}

/// mkfs.fat writes a partition that begins with the disk into the boot sector of a disk without partitions, for Windows,
/// and the kernel shows it.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_partition_that_is_the_whole_disk_contradicts_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("disk.img");
    std::fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("room");
    tool_ok("mkfs.fat", &["-F", "32", "-s", "1", "--mbr=y", text(&image)]);
    let device = Loop::new(&image);
    tool_ok("addpart", &[&device.0, "1", "0", "131072"]);
    said(&["map", &device.0]).expect(0, &["fat32"]);
    said(&["map", &device.part(1)]).expect(0, &["fat32"]);
    tool_ok("delpart", &[&device.0, "1"]);
}

/// What forbids a device forbids the space that no partition owns, too, and is told by the exit code though no volume is
/// there that could be refused.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_the_gaps_of_a_forbidden_device_are_kept() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("disk.img");
    std::fs::write(&image, vec![0x5A; 24 << 20]).expect("room");
    images::put(&image, 0, &[0; 34 * 512]);
    images::put(&image, (24 << 20) - 34 * 512, &[0; 34 * 512]);
    tool_ok("sh", &["-c", "echo 'label: gpt' | sfdisk -q --wipe never \"$1\"", "sh", text(&image)]);
    let device = Loop::new(&image);
    said(&["trim", "-n", "--unallocated", &device.0]).expect(0, &["plan:"]);
    tool_ok("addpart", &[&device.0, "1", "4096", "4096"]);
    let before = Snapshot::take(&image);
    for args in [&["trim", "-n"][..], &["trim", "--yes"]] {
        let run = said(&[args, &["--unallocated", &device.0]].concat());
        run.expect(3, &["the kernel sees", "has no such partition"]);
    }
    before.assert_untouched();
    tool_ok("delpart", &[&device.0, "1"]);
}

/// Of two targets one has no route: what was done and why the rest was not are told where nobody reads along, too.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_target_without_a_route_is_told_in_the_report() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (image, other) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    let device = Loop::new(&other);
    let run = said(&["trim", "--yes", "--json", "--via", "punch", text(&image), &device.0]);
    let errors = run.expect(5, &[]).json()["errors"].to_string();
    assert!(errors.contains(&device.0) && errors.contains("punch"), "{errors}");
}

/// Writes a file into the ext4 volume of an image or device without mounting it, and gives it back as it is there now.
fn debugfs_write(node: &str, file: &Path) {
    tool_ok("debugfs", &["-w", "-R", &format!("write {} {}", text(file), file.file_name().unwrap().display()), node]);
}

fn read_back(node: &str, file: &Path) -> Vec<u8> {
    let name = file.file_name().expect("a name").display();
    tool("debugfs", &["-R", &format!("cat {name}"), node]).stdout
}

/// The volume gets a new file while the question is open, by `write`: the run must end, and the file be whole.
fn survives_a_write_while_asked(target: &str, more: &str, volume: &str, file: &Path, write: impl FnOnce()) {
    let command = format!("{} trim {more} {target}", env!("CARGO_BIN_EXE_coldtrim"));
    let run = images::while_asked(&command, "yes\n", write);
    assert!(run.code == Some(3) && run.out.contains("changed while"), "{target}: {run:#?}");
    tool_ok("blockdev", &["--flushbufs", volume]);
    assert!(read_back(volume, file) == vec![7; 3 << 20], "{target}: the new file is not what was written");
}

/// The second reading must not come from a cache of the node that was named.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_write_by_another_way_while_asked_loses_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("new");
    std::fs::write(&file, vec![7; 3 << 20]).expect("room");
    let fresh = |name: &str| {
        let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
        Loop::partitioned(&disk(folder.path(), name, Table::Gpt, &first, &second))
    };
    let device = fresh("by-disk.img");
    let inside = format!("{}?offset={FIRST}", device.0);
    survives_a_write_while_asked(&device.part(1), "", &device.part(1), &file, || debugfs_write(&inside, &file));
    let device = fresh("by-partition.img");
    let part = device.part(1);
    survives_a_write_while_asked(&device.0, "--partition 1", &part, &file, || debugfs_write(&part, &file));
    let image = ext4(folder.path(), "c.img");
    let device = Loop::new(&image);
    survives_a_write_while_asked(&device.0, "", &device.0, &file, || debugfs_write(&Loop::new(&image).0, &file));
}

/// A program that opens the device in the middle of a run, writes and goes is faster than a look once a second.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_quick_writer_during_the_run_ends_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("a.img");
    std::fs::write(&image, vec![0x5A; 256 << 20]).expect("room");
    tool_ok("mkfs.ext4", &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0", text(&image)]);
    let file = folder.path().join("new");
    std::fs::write(&file, vec![7; 12 << 20]).expect("room");
    let device = Loop::new(&image);
    let log = folder.path().join("log");
    let running = std::process::Command::new(env!("CARGO_BIN_EXE_coldtrim"))
        .args(["trim", "--yes", "--max-rate", "8M", "--log", text(&log), &device.0])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("coldtrim");
    let began = Instant::now();
    while std::fs::read_to_string(&log).unwrap_or_default().lines().count() < 3 {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is discarded");
        std::thread::sleep(Duration::from_millis(20));
    }
    debugfs_write(&device.0, &file);
    let run = images::Said::from(running.wait_with_output().expect("an end"));
    run.expect(5, &["for writing"]);
    assert!(read_back(&device.0, &file) == vec![7; 12 << 20], "the new file is not what was written");
}

/// Partition 1 of a disk, `first`, and what lies around it.
fn named_alone(folder: &Path, table: Table, first: &Path, around: impl FnOnce(&Path)) -> PathBuf {
    let image = disk(folder, "disk.img", table, first, &fat(folder, "b.img"));
    around(&image);
    image
}

/// What forbids a disk forbids its partitions, also when they are named by their own nodes or by where they are.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_partition_named_alone_is_judged_with_its_disk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let volume = ext4(folder.path(), "a.img");
    type Around<'a> = &'a dyn Fn(&Path);
    let cases: [(Table, Around<'_>, &str); 3] = [
        // A suspend image in the swap area beside it.
        (
            Table::Gpt,
            &|image| {
                images::put(image, SECOND, &[0; 8192]);
                images::put(image, SECOND + 4086, b"S1SUSPEND\0");
            },
            "sleeping system",
        ),
        (
            Table::Mbr,
            &|image| images::put(image, (24 << 20) - 1024, b"Intel Raid ISM Cfg Sig. 1.0.00"),
            "stale-raid-metadata",
        ),
        // Windows dynamic disks keep their volumes where they want.
        (
            Table::Gpt,
            &|image| {
                tool_ok("sgdisk", &["--typecode=1:AF9B60A0-1431-4F62-BC68-3311714A69AD", text(image)]);
            },
            "dynamic",
        ),
    ];
    for (table, around, words) in cases {
        let image = named_alone(folder.path(), table, &volume, around);
        let before = Snapshot::take(&image);
        let offset = said(&["trim", "--yes", "--offset", "1M", text(&image)]);
        assert!(offset.code == Some(3) && format!("{offset:?}").contains(words), "{words}: {offset:#?}");
        let device = Loop::partitioned(&image);
        refused(&device.part(1), &[words]);
        before.assert_untouched();
    }
    let device = Loop::partitioned(&named_alone(folder.path(), Table::Mbr, &volume, |_| ()));
    said(&["trim", "--yes", &device.part(1)]).expect(0, &["discarded:"]);
}

/// A file has two names and two device numbers where an overlay filesystem lies over its folder.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_an_image_that_is_used_below_an_overlay_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["lower", "upper", "work", "over"] {
        std::fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    let place = |name: &str| text(&folder.path().join(name)).to_owned();
    let image = ext4(&folder.path().join("upper"), "a.img");
    let options = format!("lowerdir={},upperdir={},workdir={}", place("lower"), place("upper"), place("work"));
    tool_ok("mount", &["-t", "overlay", "-o", &options, "overlay", &place("over")]);
    let _mounted = Mounted(folder.path().join("over"));
    let before = Snapshot::take(&image);
    let device = Loop::new(&image);
    refused(&format!("{}/a.img", place("over")), &["loop device", device.name()]);
    before.assert_untouched();
}

/// Neither a lease nor the list of open files tells who uses the file of somebody else.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_the_image_of_another_user_is_refused_where_nobody_can_tell_who_uses_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let program = program_for_all(folder.path());
    everybody_may(&image);
    let before = Snapshot::take(&image);
    nobody(&program, &["trim", "--yes", text(&image)]).expect(3, &["nobody can tell", "as root"]);
    before.assert_untouched();
}

fn everybody_may(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("rights");
}

/// A copy of the program, in a folder that everybody may use.
fn program_for_all(folder: &Path) -> PathBuf {
    let program = folder.join("coldtrim");
    std::fs::copy(env!("CARGO_BIN_EXE_coldtrim"), &program).expect("a copy that everybody may run");
    everybody_may(folder);
    everybody_may(&program);
    program
}

/// What the program says to a user who is not root.
fn nobody(program: &Path, args: &[&str]) -> images::Said {
    let user = ["--reuid", "65534", "--clear-groups", text(program)];
    images::Said::from(tool("setpriv", &[&user, args].concat()))
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_the_list_tells_who_is_not_root_what_is_missing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Loop::new(&ext4(folder.path(), "a.img"));
    let program = program_for_all(folder.path());
    nobody(&program, &["list", &device.0]).expect(0, &[&device.0, "root only", "sudo coldtrim list"]);
    let list = said(&["list", &device.0]);
    assert!(!list.out.contains("root only"), "{list:#?}");
}

/// Who is not root does not see the open files of others; the kernel still tells that there are some.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_an_image_that_another_user_has_open_is_refused_without_root() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let program = program_for_all(folder.path());
    std::os::unix::fs::chown(&image, Some(65534), None).expect("another owner");
    let nobody = |args: &[&str]| nobody(&program, &[args, &[text(&image)]].concat());
    let before = Snapshot::take(&image);
    let writer = std::fs::OpenOptions::new().write(true).open(&image).expect("root may");
    for args in [&["map"][..], &["trim", "-n"], &["trim", "--yes"]] {
        nobody(args).expect(3, &["not shown"]);
    }
    before.assert_untouched();
    drop(writer);
    let reader = std::fs::File::open(&image).expect("root may");
    nobody(&["trim", "--yes"]).expect(3, &["not shown"]);
    before.assert_untouched();
    drop(reader);
    nobody(&["trim", "--yes"]).expect(0, &["discarded:"]);
}
