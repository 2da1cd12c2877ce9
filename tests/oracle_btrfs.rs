//! What coldtrim calls free on btrfs against a short reader in Python, the running kernel's own FITRIM, and the walk over
//! files; and what it does with a filesystem that was copied while it was in use.
#![allow(clippy::as_conversions)]

mod common;
#[path = "common/btrfs.rs"]
mod images;
#[path = "common/kernel.rs"]
mod kernel;

use common::{Rng, coldtrim, full, map_ranges, parse_ranges, seed, tool, tool_ok};
use images::{Fill, KINDS, Kind, make, mounted};
use kernel::{copy_of, hashes, holes};
use std::path::Path;

fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

fn python(images: &[&Path]) -> Vec<(u64, u64)> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/btrfs_free.py");
    let args: Vec<&str> = [script].into_iter().chain(images.iter().map(|image| text(image))).collect();
    parse_ranges(&tool_ok("python3", &args))
}

fn bytes(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(_, len)| len).sum()
}

/// Parts of `left` that are not in `right`.
fn only_in(left: &[(u64, u64)], right: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut rest = Vec::new();
    for (start, len) in left {
        let (mut at, end) = (*start, start + len);
        for (other, other_len) in right.iter().filter(|(other, other_len)| *other < end && other + other_len > *start) {
            if *other > at {
                rest.push((at, other - at));
            }
            at = at.max(other + other_len);
        }
        if at < end {
            rest.push((at, end - at));
        }
    }
    rest
}

/// One image, three readings.
fn compare(kind: &Kind, kib: u64, fill: Fill, rng: &mut Rng) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = make(folder.path(), kind, kib, fill, rng);
    let what = format!("{} {kib} KiB {fill:?}", kind.name);
    let ours = map_ranges(&image);
    assert_eq!(ours, python(&[&image]), "{what}: coldtrim (left) and btrfs_free.py (right)");
    assert!(bytes(&ours) > 0, "{what}: nothing is free");
    walk_agrees(&image, &what);
}

fn walk_agrees(image: &Path, what: &str) {
    let heard = coldtrim(&["map", "--witness", text(image)]);
    let said = String::from_utf8_lossy(&heard.stdout);
    assert!(
        heard.status.success() && said.contains("btrfs-walk") && said.contains("none of it free"),
        "{what}: {said}"
    );
}

/// Every kind, empty or with files that mkfs.btrfs copies in; both when everything is asked for.
#[test]
fn every_kind_equals_python() {
    let mut rng = Rng(seed("every_kind_equals_python"));
    for (index, kind) in KINDS.iter().enumerate() {
        if full() {
            [Fill::Empty, Fill::Copied].iter().for_each(|fill| compare(kind, kind.kib, *fill, &mut rng));
        } else {
            compare(kind, kind.kib, if index % 4 == 3 { Fill::Empty } else { Fill::Copied }, &mut rng);
        }
    }
}

/// Filled by the kernel's driver: holes, snapshots, clones, compression; full ones.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_live_filesystems_equal_python() {
    let mut rng = Rng(seed("root_live_filesystems_equal_python"));
    let mountable = KINDS.iter().filter(|kind| kind.mounts);
    let first = rng.between(0, 3) as usize;
    for (index, kind) in mountable.enumerate().filter(|(index, _)| full() || index % 3 == first) {
        let kib = kind.kib + rng.between(0, 50_000);
        let fills = [Fill::Live, Fill::Full];
        let fills = if full() { &fills[..] } else { &fills[index % 2..=index % 2] };
        fills.iter().for_each(|fill| compare(kind, kib, *fill, &mut rng));
    }
}

/// A backing file that is copied while a file was just fsynced has a log tree, which only a mount can replay.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_log_tree_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = make(folder.path(), &KINDS[0], KINDS[0].kib, Fill::Empty, &mut Rng(1));
    let copy = folder.path().join("copy");
    {
        let mount = mounted(folder.path(), text(&image), "loop");
        std::fs::write(mount.place().join("one"), [1; 50_000]).expect("room");
        tool_ok("btrfs", &["filesystem", "sync", text(mount.place())]);
        let file = std::fs::File::create(mount.place().join("two")).expect("a file");
        std::io::Write::write_all(&mut &file, &[2; 70_000]).expect("room");
        file.sync_all().expect("an fsync");
        std::fs::copy(&image, &copy).expect("a copy");
    }
    let refused = coldtrim(&["map", text(&copy)]);
    let said = String::from_utf8_lossy(&refused.stdout).into_owned() + &String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    for words in ["log of an fsync", "zero-log", "mount"] {
        assert!(said.contains(words), "{words} is missing: {said}");
    }
    // What it advises helps.
    tool_ok("btrfs", &["rescue", "zero-log", text(&copy)]);
    assert_eq!(map_ranges(&copy), python(&[&copy]));
}

#[test]
fn the_carried_image_equals_its_records() {
    common::carried_image_equals_its_records("btrfs");
}

/// Block groups in a tree of their own; mkfs.btrfs of Debian 12 does not make them, so the image is carried.
#[test]
fn the_carried_image_with_a_block_group_tree_equals_its_records_and_python() {
    let (files, extents) = common::carried_files_and_extents("btrfs", "02-block-group-tree");
    assert!(extents > files, "{extents} extents of {files} files");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = common::unpacked("btrfs", "02-block-group-tree", folder.path());
    let superblock = tool_ok("btrfs", &["inspect-internal", "dump-super", text(&image)]);
    assert!(superblock.contains("BLOCK_GROUP_TREE"), "{superblock}");
    assert_eq!(map_ranges(&image), python(&[&image]));
    walk_agrees(&image, "a block-group tree");
}

/// Every byte of the image written, so that what is discarded shows as a hole.
fn without_holes(image: &Path) {
    let solid = image.with_extension("solid");
    copy_of(image, &solid);
    std::fs::rename(&solid, image).expect("the same folder");
    tool_ok("sync", &[text(image)]);
    assert_eq!(bytes(&holes(image)), 0);
}

/// What the kernel's own FITRIM discards. Mounting and unmounting moves a few tree blocks, and the kernel spares the
/// stripes of superblock copies in logical space, both copies of DUP: a few hundred KiB on either side.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_equals_the_kernels_fitrim() {
    let mut rng = Rng(seed("root_equals_the_kernels_fitrim"));
    for index in if full() { vec![0, 5, 6, 8, 9, 10] } else { vec![0, 10] } {
        let kind = &KINDS[index];
        let folder = tempfile::tempdir().expect("a temporary folder");
        let image = make(folder.path(), kind, kind.kib, Fill::Live, &mut rng);
        let ours = map_ranges(&image);
        without_holes(&image);
        {
            let mount = mounted(folder.path(), text(&image), "loop,nodiscard");
            tool_ok("fstrim", &[text(mount.place())]);
        }
        let theirs = holes(&image);
        let more = bytes(&only_in(&ours, &theirs));
        let less = bytes(&only_in(&theirs, &ours));
        assert!(more < 1 << 20, "{}: coldtrim calls {more} bytes more free", kind.name);
        assert!(less < 1 << 18, "{}: FITRIM discards {less} bytes more", kind.name);
    }
}

/// Names and sums of all files of an image.
fn sums(image: &Path, folder: &Path) -> String {
    hashes(mounted(folder, text(image), "loop,ro").place())
}

/// After a trim every file is what it was, to a fresh mount, and btrfs check finds nothing.
fn trimmed_without_loss(image: &Path, name: &str) {
    let folder = image.parent().expect("a folder");
    without_holes(image);
    let before = sums(image, folder);
    let ours = map_ranges(image);
    let run = tool(env!("CARGO_BIN_EXE_coldtrim"), &["trim", "--via", "punch", "--yes", text(image)]);
    assert!(run.status.success(), "{name}: {run:?}");
    assert!(before.lines().count() > 60, "{before}");
    let punched = holes(image);
    assert_eq!(only_in(&punched, &ours), [], "{name}: holes where nothing was free");
    assert!(bytes(&punched) > bytes(&ours) / 2, "{name}: {} bytes were freed", bytes(&punched));
    tool_ok("btrfs", &["check", "--readonly", text(image)]);
    assert_eq!(sums(image, folder), before, "{name}");
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_trim_changes_no_file() {
    let mut rng = Rng(seed("root_a_trim_changes_no_file"));
    for index in if full() { (0..13).collect() } else { vec![0, 8, 11] } {
        let kind = &KINDS[index];
        let folder = tempfile::tempdir().expect("a temporary folder");
        trimmed_without_loss(&make(folder.path(), kind, kind.kib, Fill::Live, &mut rng), kind.name);
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let carried = common::unpacked("btrfs", "02-block-group-tree", folder.path());
    trimmed_without_loss(&carried, "a block-group tree");
}
