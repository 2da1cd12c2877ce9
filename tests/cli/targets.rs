//! What may be named as a target, and what is said about everything else.

use crate::PROGRAM;
use crate::common::{parse_ranges, tool, tool_ok};
use crate::images::backing::Snapshot;
use crate::images::{FIRST, SECOND, Said, Table, dirty_fat, disk, ext4, ext4_of, fat, plan_of, put, said, text};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("the mode can be set");
}

#[test]
fn a_clean_volume_is_trimmed_and_a_dirty_one_is_not() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let clean = ext4(folder.path(), "a.img");
    said(&["map", text(&clean)]).expect(0, &["clean", "free:"]);
    let dirty = dirty_fat(folder.path(), "b.img");
    let before = Snapshot::take(&dirty);
    for args in [&["map"][..], &["trim", "-n"], &["trim", "--yes"]] {
        said(&[args, &[text(&dirty)]].concat()).expect(3, &["refused", "dirty bit", "fsck.fat"]);
    }
    // No word lifts a dirty filesystem.
    let all = ["shadow-copies", "hidden-volume", "rotating", "stale-raid-metadata"];
    let accept: Vec<&str> = all.iter().flat_map(|name| ["--accept", name]).collect();
    said(&[&["trim", "--yes", "--no-witness", "--no-canary"], &accept[..], &[text(&dirty)]].concat()).expect(3, &[]);
    before.assert_untouched();
}

#[test]
fn a_disk_with_a_dirty_volume_is_done_in_part() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), dirty_fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Gpt, &first, &second);
    let plan = plan_of(&image, &[]);
    assert!(plan.iter().all(|(start, len)| *start >= FIRST && start + len <= FIRST + (8 << 20)), "{plan:?}");
    let before = Snapshot::take(&image);
    said(&["map", text(&image)]).expect(5, &[]);
    said(&["trim", "-n", text(&image)]).expect(5, &["plan:"]);
    before.assert_untouched();
    let report = said(&["trim", "--yes", "--json", text(&image)]);
    let report = report.expect(5, &[]).json();
    let states: Vec<_> = report["volumes"].as_array().expect("a list").iter().map(|v| v["state"].clone()).collect();
    assert_eq!(states, ["clean", "refused", "kept"]);
    assert_eq!(report["exit_code"], 5);
    assert_eq!(report["outcome"]["bytes"], plan.iter().map(|(_, len)| len).sum::<u64>());
    before.assert_only_discarded(&plan);
}

#[test]
fn partitions_that_are_kept_are_no_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Gpt, &first, &second);
    said(&["map", text(&image)]).expect(0, &["kept"]);
    let before = Snapshot::take(&image);
    let only = said(&["trim", "--yes", "--json", "--partition", "3", text(&image)]);
    assert_eq!(only.expect(0, &[]).json()["volumes"][0]["state"], "kept");
    before.assert_untouched();
}

#[test]
fn only_the_named_partition_is_trimmed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), dirty_fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Mbr, &first, &second);
    let before = Snapshot::take(&image);
    said(&["trim", "--yes", "--partition", "2", text(&image)]).expect(3, &["dirty bit"]);
    before.assert_untouched();
    let plan = plan_of(&image, &["--partition", "1"]);
    said(&["trim", "--yes", "--partition", "1", text(&image)]).expect(0, &[]);
    before.assert_only_discarded(&plan);
}

#[test]
fn a_volume_inside_the_target_is_found_by_offset_and_size_in_any_unit() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let volume = ext4(folder.path(), "a.img");
    let image = folder.path().join("inside.img");
    let mut bytes = vec![0xA5; 1 << 20];
    bytes.extend(std::fs::read(&volume).expect("the volume"));
    bytes.extend(vec![0xA5; 1 << 20]);
    std::fs::write(&image, bytes).expect("room");
    let shifted: Vec<_> = parse_ranges(&said(&["map", "--format", "ranges", text(&volume)]).out)
        .into_iter()
        .map(|(start, len)| (start + (1 << 20), len))
        .collect();
    for (offset, size) in [("1M", "8M"), ("1MiB", "8MiB"), ("1024K", "8192K"), ("1048576", "8388608"), ("0.5m", "8m")] {
        let run = said(&["map", "--format", "ranges", "--offset", offset, "--size", size, text(&image)]);
        if offset == "0.5m" {
            run.expect(3, &["refused"]);
        } else {
            run.expect(0, &[]);
            assert_eq!(parse_ranges(&run.out), shifted, "{offset}");
        }
    }
    said(&["map", "--offset", "1MB", "--size", "8M", text(&image)]).expect(3, &["refused"]);
    said(&["map", "--offset", "1M", "--size", "7M", text(&image)]).expect(3, &["refused"]);
    let before = Snapshot::take(&image);
    said(&["trim", "--yes", "--offset", "1M", "--size", "8M", text(&image)]).expect(0, &[]);
    before.assert_only_discarded(&shifted);
}

/// An entry of a partition table as it lies in the first sector of a disk (or of whatever was made one).
fn put_entry(image: &Path, disk: u64, slot: u64, start: u32, count: u32) {
    let entry = [[0; 4], [0x83, 0, 0, 0], start.to_le_bytes(), count.to_le_bytes()].concat();
    put(image, disk + 446 + 16 * (slot - 1), &entry);
    put(image, disk + 510, &[0x55, 0xAA]);
}

#[test]
fn a_table_beside_a_filesystem_is_ambiguous_in_a_partition_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Gpt, &first, &second);
    // Partition 1 became a virtual machine's disk: its own table, and ext4's superblock still there.
    put(&image, FIRST, &[0; 512]);
    put_entry(&image, FIRST, 1, 2048, 4096);
    let before = Snapshot::take(&image);
    said(&["map", "--partition", "1", text(&image)]).expect(3, &["mbr", "ext4", "not clear whose"]);
    said(&["trim", "--yes", "--partition", "1", text(&image)]).expect(3, &["mbr", "ext4"]);
    before.assert_untouched();
    // Nothing but the inner table: no volume of the outer disk.
    put(&image, FIRST + 1024, &[0; 1024]);
    said(&["map", "--partition", "1", text(&image)]).expect(3, &["table lies inside the partition", "losetup"]);
}

#[test]
fn a_boot_sector_with_a_table_of_which_one_entry_is_wrong_is_ambiguous() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = fat(folder.path(), "a.img");
    said(&["map", text(&image)]).expect(0, &[]);
    put_entry(&image, 0, 1, 2048, 4096);
    put_entry(&image, 0, 2, 8192, 1 << 20);
    let before = Snapshot::take(&image);
    said(&["trim", "--yes", text(&image)]).expect(3, &["mbr", "fat", "not clear whose"]);
    before.assert_untouched();
}

/// A protective entry beside a boot sector promises a GPT, though none is there any more: who made it is not known.
#[test]
fn a_boot_sector_that_promises_a_gpt_is_ambiguous() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = fat(folder.path(), "a.img");
    put_entry(&image, 0, 1, 1, 4096);
    put(&image, 450, &[0xEE]);
    let before = Snapshot::take(&image);
    said(&["trim", "--yes", text(&image)]).expect(3, &["gpt", "fat", "not clear whose"]);
    before.assert_untouched();
}

/// The partition was made smaller in the table alone: what lies behind it is still the filesystem's.
#[test]
fn what_a_volume_claims_behind_its_partition_is_no_gap() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let gap = (FIRST + (10 << 20), SECOND);
    let in_gap = |plan: &[(u64, u64)]| plan.iter().any(|(start, len)| *start < gap.1 && start + len > gap.0);
    let second = fat(folder.path(), "b.img");
    let fitting = disk(folder.path(), "fits.img", Table::Gpt, &ext4(folder.path(), "a.img"), &second);
    assert!(in_gap(&plan_of(&fitting, &["--unallocated"])));
    assert!(
        !in_gap(&plan_of(&fitting, &["--unallocated", "--partition", "2"])),
        "who names a partition means it alone"
    );
    let larger = disk(folder.path(), "larger.img", Table::Gpt, &ext4_of(folder.path(), "c.img", 11), &second);
    said(&["map", text(&larger)]).expect(5, &["11534336", "only 10485760"]);
    assert!(!in_gap(&plan_of(&larger, &["--unallocated"])));
    // Nothing is known about the size of what is not known at all.
    put(&fitting, FIRST, &[0x5A; 4096]);
    said(&["map", text(&fitting)]).expect(5, &["no known filesystem"]);
    assert!(!in_gap(&plan_of(&fitting, &["--unallocated"])));
}

/// What lies where a table puts a partition tells whether the table is understood. Where that is not known, gaps are not.
#[test]
fn a_table_over_something_unknown_has_no_gaps() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("disk.img");
    std::fs::write(&image, vec![0x5A; 24 << 20]).expect("room");
    put(&image, 0, &[0; 34 * 512]);
    put(&image, (24 << 20) - 34 * 512, &[0; 34 * 512]);
    tool_ok("sgdisk", &["--set-alignment=1", "--new=1:64:575", "--new=2:24576:40959", text(&image)]);
    put(&image, SECOND, &std::fs::read(fat(folder.path(), "b.img")).expect("the volume"));
    said(&["map", text(&image)]).expect(5, &["no known filesystem"]);
    let plan = plan_of(&image, &["--unallocated"]);
    assert!(plan.iter().all(|(start, len)| *start >= SECOND && start + len <= SECOND + (8 << 20)), "{plan:?}");
    assert_ne!(plan, []);
    said(&["trim", "-n", "--unallocated", text(&image)]).expect(5, &["unallocated space is left alone", "unknown"]);
}

#[test]
fn an_offset_stays_inside_the_partition_that_it_names() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let second = fat(folder.path(), "b.img");
    let image = disk(folder.path(), "disk.img", Table::Gpt, &ext4(folder.path(), "a.img"), &second);
    assert_eq!(plan_of(&image, &["--offset", "1M"]), plan_of(&image, &["--partition", "1"]));
    said(&["map", "--offset", "1M", "--size", "11M", text(&image)]).expect(2, &["partition 1 ends at byte 11534336"]);
    said(&["map", "--offset", "11M", "--size", "2M", text(&image)]).expect(2, &["space before the next partition"]);
    // Where the table cannot be used, nothing but the user tells where the volume ends.
    let torn = disk(folder.path(), "torn.img", Table::Gpt, &ext4(folder.path(), "d.img"), &second);
    put(&torn, (24 << 20) - 512, &[0; 512]);
    said(&["map", "--offset", "1M", text(&torn)]).expect(2, &["--offset names no end", "second copy", "--size"]);
    said(&["map", "--offset", "1M", "--size", "10M", text(&torn)]).expect(0, &["ext4"]);
    let larger = disk(folder.path(), "larger.img", Table::Gpt, &ext4_of(folder.path(), "c.img", 11), &second);
    let before = Snapshot::take(&larger);
    said(&["trim", "--yes", "--offset", "1M", text(&larger)]).expect(3, &["11534336", "only 10485760"]);
    before.assert_untouched();
}

/// An image of a disk with large sectors: read in small ones, every partition is elsewhere.
#[test]
fn a_table_that_counts_in_other_sectors_has_no_gaps() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("disk.img");
    std::fs::write(&image, vec![0x5A; 64 << 20]).expect("room");
    put(&image, 0, &[0; 512]);
    put_entry(&image, 0, 1, 256, 2560);
    put_entry(&image, 0, 2, 4000, 1000);
    // Kept by its type, whatever lies there.
    put(&image, 446 + 16 + 4, &[0x41]);
    put(&image, 256 * 4096, &std::fs::read(ext4(folder.path(), "a.img")).expect("the volume"));
    let before = Snapshot::take(&image);
    said(&["trim", "--yes", "--unallocated", text(&image)]).expect(3, &["no known filesystem"]);
    put(&image, 446 + 4, &[0x41]);
    said(&["trim", "--yes", "--unallocated", text(&image)]).expect(0, &["kept", "may count in other sectors"]);
    put(&image, 446 + 4, &[0x83]);
    before.assert_untouched();
}

/// Whole disks that belong to somebody have free space that only that somebody knows of.
#[test]
fn an_offset_into_something_that_is_whole_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("pv.img");
    std::fs::write(&image, vec![0; 24 << 20]).expect("room");
    put(&image, 1 << 20, &std::fs::read(ext4(folder.path(), "a.img")).expect("the volume"));
    said(&["map", "--offset", "1M", "--size", "10M", text(&image)]).expect(0, &["ext4"]);
    // The label of a physical volume (LVM2, second sector).
    put(&image, 512, b"LABELONE\x01\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0LVM2 001");
    let before = Snapshot::take(&image);
    for size in [&["--size", "10M"][..], &[]] {
        let run = said(&[&["trim", "--yes", "--offset", "1M"], size, &[text(&image)]].concat());
        run.expect(3, &["as a whole is", "LVM2", "without --offset"]);
    }
    before.assert_untouched();
}

#[test]
fn another_filesystem_than_expected_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let before = Snapshot::take(&image);
    said(&["trim", "--yes", "--fs", "fat32", text(&image)]).expect(3, &["ext4", "not fat32"]);
    said(&["map", "--fs", "ext2", text(&image)]).expect(3, &["not ext2"]);
    before.assert_untouched();
    said(&["trim", "--yes", "--fs", "ext4", text(&image)]).expect(0, &[]);
}

#[test]
fn what_is_no_disk_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    let pipe = at.join("pipe");
    tool_ok("mkfifo", &[text(&pipe)]);
    std::fs::write(at.join("empty.img"), []).expect("an empty file");
    for verb in ["map", "trim"] {
        said(&[verb, text(at)]).expect(2, &["directory", "name a disk"]);
        said(&[verb, "/dev/null"]).expect(2, &["character device"]);
        said(&[verb, text(&pipe)]).expect(2, &["a pipe"]);
        said(&[verb, text(&at.join("nothing"))]).expect(1, &["does not exist", "coldtrim list"]);
        said(&[verb, text(&at.join("empty.img"))]).expect(1, &["no size"]);
        said(&[verb, "LABEL=no such label anywhere"]).expect(2, &["no device has LABEL="]);
        said(&[verb, "UUID=00000000-1111-2222-3333-444444444444"]).expect(2, &["no device has UUID="]);
    }
}

#[test]
fn a_mount_point_is_sent_to_fstrim() {
    for args in [&["map", "/"][..], &["trim", "-n", "/"], &["trim", "--yes", "/"]] {
        said(args).expect(3, &["/ is mounted", "fstrim -v /", "umount /", "udisksctl unmount -b"]);
    }
}

fn refused_unopened(image: &Path, words: &[&str]) {
    let before = std::fs::read(image).expect("the image");
    for args in [&["map"][..], &["map", "--format", "ranges"], &["trim", "-n"], &["trim", "--yes"]] {
        let run = said(&[args, &[text(image)]].concat());
        run.expect(3, words);
        assert_eq!(run.out, "");
    }
    assert!(std::fs::read(image).expect("the image") == before, "nothing was written to it");
}

#[test]
fn disks_of_virtual_machines_are_refused_with_the_command_that_opens_them() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let raw = ext4(folder.path(), "a.img");
    let formats =
        [("qcow2", "qcow2"), ("vmdk", "VMDK"), ("vhdx", "VHDX"), ("vdi", "VDI"), ("vpc", "VHD"), ("qed", "QED")];
    for (format, name) in formats {
        let image = folder.path().join(format!("disk.{format}"));
        tool_ok("qemu-img", &["convert", "-O", format, text(&raw), text(&image)]);
        refused_unopened(
            &image,
            &[name, &format!("qemu-nbd --discard=unmap -f {format} -c"), "qemu-img convert -O raw"],
        );
    }
    // The flat kind: its descriptor is a text, the disk itself is a raw file beside it.
    let flat = folder.path().join("flat.vmdk");
    tool_ok("qemu-img", &["convert", "-O", "vmdk", "-o", "subformat=monolithicFlat", text(&raw), text(&flat)]);
    refused_unopened(&flat, &["VMDK descriptor", "qemu-nbd"]);
}

#[test]
fn images_of_macos_and_of_evidence_are_refused_with_the_command_that_opens_them() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let raw = ext4(folder.path(), "a.img");
    let signed = |name: &str, at: u64, magic: &[u8]| {
        let image = folder.path().join(name);
        std::fs::copy(&raw, &image).expect("room");
        put(&image, at, magic);
        image
    };
    let end = 8 << 20;
    refused_unopened(&signed("a.dmg", end - 512, b"koly\0\0\0\x04\0\0\x02\0"), &["DMG", "hdiutil attach", "dmg2img"]);
    refused_unopened(&signed("a.E01", 0, b"EVF\x09\x0d\x0a\xff\x00"), &["EWF", "ewfmount"]);
    refused_unopened(&signed("a.Ex01", 0, b"EVF2\x0d\x0a\x81\x00"), &["EWF 2", "ewfmount"]);
    let packed = folder.path().join("a.img.gz");
    tool_ok("sh", &["-c", "gzip -c \"$1\" > \"$2\"", "sh", text(&raw), text(&packed)]);
    refused_unopened(&packed, &["gzip", "gunzip"]);
}

/// Runs as somebody who is not root.
fn as_nobody(folder: &Path, args: &[&str]) -> Said {
    if !nix::unistd::geteuid().is_root() {
        return said(args);
    }
    // The program may lie where only root may look.
    let program = folder.join("coldtrim");
    if !program.exists() {
        std::fs::copy(PROGRAM, &program).expect("room for the program");
    }
    let who = ["--reuid", "65534", "--regid", "65534", "--clear-groups", text(&program)];
    tool("setpriv", &[&who, args].concat()).into()
}

#[test]
fn what_may_not_be_opened_is_a_failure_that_says_so() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    set_mode(folder.path(), 0o755);
    let image = ext4(folder.path(), "a.img");
    let before = Snapshot::take(&image);
    set_mode(&image, 0o444);
    as_nobody(folder.path(), &["map", text(&image)]).expect(0, &["clean"]);
    as_nobody(folder.path(), &["trim", "-n", text(&image)]).expect(1, &["plan:", "no permission", text(&image)]);
    as_nobody(folder.path(), &["trim", "--yes", text(&image)]).expect(1, &["no permission", text(&image)]);
    set_mode(&image, 0);
    for args in [&["map"][..], &["trim", "-n"], &["trim", "--yes"]] {
        let args = [args, &[text(&image)]].concat();
        as_nobody(folder.path(), &args).expect(1, &["no permission", text(&image)]);
    }
    set_mode(&image, 0o600);
    before.assert_untouched();
}
