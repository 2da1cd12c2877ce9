//! What coldtrim calls free on XFS against three answers that share no code with it or each other: xfs_db, a short reader
//! in Python that looks only at owners, and the running kernel's own FITRIM.
#![allow(clippy::as_conversions)]

mod common;
#[path = "common/xfs.rs"]
mod images;
#[path = "common/kernel.rs"]
mod kernel;

use common::{Rng, coldtrim, full, map_ranges, merged, parse_ranges, rounded, seed, tool, tool_ok};
use images::{Fill, KINDS, Kind, freesp, make, u32_at};
use kernel::{Loop, Mount, copy_of, hashes, holes, live};
use std::path::Path;

fn python(image: &Path) -> Vec<(u64, u64)> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/xfs_free.py");
    parse_ranges(&tool_ok("python3", &[script, image.to_str().expect("a UTF-8 path")]))
}

fn bytes(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(_, len)| len).sum()
}

/// One image, three readings.
fn compare(kind: &Kind, kib: u64, fill: Fill, rng: &mut Rng) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = make(folder.path(), kind, kib, fill, rng);
    let ours = map_ranges(&image);
    let what = format!("{} {kib} KiB {fill:?}", kind.name);
    assert_eq!(ours, freesp(&image), "{what}: coldtrim (left) and xfs_db (right)");
    assert_eq!(ours, python(&image), "{what}: coldtrim (left) and xfs_free.py (right)");
    match fill {
        Fill::Empty => assert!(bytes(&ours) > kib * 256, "{what}: {} bytes are free", bytes(&ours)),
        Fill::Fragmented => assert!(ours.len() > 20, "{what}: {} extents", ours.len()),
        Fill::Full => assert!(bytes(&ours) < kib * 150, "{what}: {} bytes are free", bytes(&ours)),
    }
}

/// Every kind of volume; empty, fragmented and full by turns, all three when everything is asked for.
#[test]
fn every_kind_equals_xfs_db_and_python() {
    let mut rng = Rng(seed("every_kind_equals_xfs_db_and_python"));
    for (index, kind) in KINDS.iter().enumerate() {
        let fills = [Fill::Fragmented, Fill::Empty, Fill::Fragmented, Fill::Full];
        if full() {
            fills[1..].iter().for_each(|fill| compare(kind, kind.kib, *fill, &mut rng));
        } else {
            compare(kind, kind.kib, fills[index % 4], &mut rng);
        }
    }
}

/// Sizes that are no multiple of anything.
#[test]
fn random_sizes_equal_xfs_db_and_python() {
    let mut rng = Rng(seed("random_sizes_equal_xfs_db_and_python"));
    for _ in 0..if full() { 60 } else { 2 } {
        let kind = rng.pick(KINDS);
        let kib = kind.kib + rng.between(0, kind.kib / 2);
        let fill = *rng.pick(&[Fill::Empty, Fill::Fragmented, Fill::Fragmented, Fill::Full]);
        compare(kind, kib, fill, &mut rng);
    }
}

/// Volumes whose identity was changed later: every block still names the old one.
#[test]
fn another_identity_equals_xfs_db_and_python() {
    let mut rng = Rng(5);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = make(folder.path(), images::by_name("1 KiB blocks"), 33_001, Fill::Fragmented, &mut rng);
    let path = image.to_str().expect("a UTF-8 path");
    tool_ok("xfs_db", &["-x", "-f", "-c", "uuid generate", path]);
    assert_ne!(images::head(&image)[0x20..0x30], images::head(&image)[0xF8..0x108], "the identity was not changed");
    let ours = map_ranges(&image);
    assert_eq!(ours, freesp(&image));
    assert_eq!(ours, python(&image));
}

/// Ranges cut where groups begin: the kernel discards group by group, and the loop device then rounds each part.
fn at_groups(image: &Path, ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let head = images::head(image);
    let group = u64::from(u32_at(&head, 4)) * u64::from(u32_at(&head, 0x54));
    let mut parts = Vec::new();
    for (start, len) in ranges {
        let mut at = *start;
        while at < start + len {
            let next = ((at / group + 1) * group).min(start + len);
            parts.push((at, next - at));
            at = next;
        }
    }
    parts
}

/// KiB of the data device by its superblock (sb_blocksize, sb_dblocks), which a realtime or log device makes less than the
/// image: FITRIM behind that is an error.
fn data_kib(image: &Path) -> u64 {
    let head = images::head(image);
    let blocks = u64::from(u32_at(&head, 8)) << 32 | u64::from(u32_at(&head, 12));
    u64::from(u32_at(&head, 4)) * blocks / 1024
}

/// FITRIM, a MiB at a time. Asked for all at once, Linux 6.18 leaves out some short extents of a group that has more
/// than a hundred of them (it walks them by size, a hundred at a time); a part of a group it walks by block.
fn trim_in_pieces(place: &Path, kib: u64) {
    for piece in 0..kib / 1024 {
        let offset = format!("{piece}M");
        tool_ok("fstrim", &["-o", &offset, "-l", "1M", place.to_str().expect("a UTF-8 path")]);
    }
    let offset = format!("{}M", kib / 1024);
    // What is left may be less than a block, which is an error.
    tool("fstrim", &["-o", &offset, "-l", "1M", place.to_str().expect("a UTF-8 path")]);
}

/// The kernel discards on a fully allocated copy; what it discarded are holes then.
fn kernel_agrees(kind: &Kind, kib: u64, rng: &mut Rng) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("mount");
    std::fs::create_dir(&place).expect("a mount point");
    println!("{}, {kib} KiB", kind.name);
    let image = make(folder.path(), kind, kib, Fill::Empty, rng);
    {
        let device = Loop::new(&image);
        let _mount = Mount::new("xfs", &device.0, &place, "rw");
        live(&place, kib * 1024, rng);
    }
    let copy = folder.path().join("copy");
    copy_of(&image, &copy);
    let ours = map_ranges(&copy);
    assert_eq!(ours, freesp(&copy), "{}: coldtrim (left) and xfs_db (right)", kind.name);
    assert_eq!(ours, python(&copy), "{}: coldtrim (left) and xfs_free.py (right)", kind.name);
    assert_eq!(holes(&copy), [], "{}: a copy without holes", kind.name);
    {
        let device = Loop::new(&copy);
        let _mount = Mount::new("xfs", &device.0, &place, "rw");
        trim_in_pieces(&place, data_kib(&copy));
    }
    let expected = merged(&rounded(&at_groups(&copy, &ours), 4096));
    assert_eq!(expected, holes(&copy), "{} {kib} KiB: coldtrim (left) and the kernel (right)", kind.name);
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_kernel_discards_the_same_bytes() {
    let mut rng = Rng(seed("root_kernel_discards_the_same_bytes"));
    let mountable: Vec<&Kind> = KINDS.iter().filter(|kind| kind.mounts).collect();
    let first = rng.between(0, 3) as usize;
    let step = if full() { 1 } else { 3 };
    for kind in mountable.into_iter().skip(if full() { 0 } else { first }).step_by(step) {
        let kib = kind.kib + rng.between(0, kind.kib / 8 + 1);
        kernel_agrees(kind, kib, &mut rng);
    }
}

/// A volume filled by the kernel until nothing is left.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_volume_without_free_space() {
    let mut rng = Rng(seed("root_a_volume_without_free_space"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("mount");
    std::fs::create_dir(&place).expect("a mount point");
    let image = make(folder.path(), images::by_name("1 KiB blocks"), 40_001, Fill::Empty, &mut rng);
    {
        let device = Loop::new(&image);
        let _mount = Mount::new("xfs", &device.0, &place, "rw");
        for size in ["bs=1M", "bs=1k"] {
            let target = format!("of={}/{size}", place.display());
            let full = tool("dd", &["if=/dev/zero", &target, size]);
            assert!(!full.status.success(), "dd ends only when the volume is full");
        }
    }
    let ours = map_ranges(&image);
    assert_eq!(ours, freesp(&image));
    assert_eq!(ours, python(&image));
    assert!(bytes(&ours) < 4 << 20, "{} bytes are free", bytes(&ours));
}

/// Inodes in chunks of which parts were never allocated: where free space is left in pieces of seven blocks only, the
/// kernel cannot place the eight blocks of a whole chunk.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_sparse_inodes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // On a busy machine the kernel writes out in another order, and whole chunks find room.
    let mut tried = Vec::new();
    let image = (1..=6).find_map(|seed| match with_small_gaps(folder.path(), seed) {
        Ok(image) => Some(image),
        Err(chunks) => {
            tried.push(chunks);
            None
        }
    });
    let image = image.unwrap_or_else(|| panic!("no chunk is sparse: {tried:?}"));
    let ours = map_ranges(&image);
    assert_eq!(ours, freesp(&image));
    assert_eq!(ours, python(&image));
}

/// A volume with sparse chunks of inodes; or the chunks, when none came to be sparse.
fn with_small_gaps(folder: &Path, seed: u64) -> Result<std::path::PathBuf, String> {
    let place = folder.join("mount");
    let _ = std::fs::create_dir(&place);
    let image = make(folder, images::by_name("default"), 40_004, Fill::Empty, &mut Rng(seed));
    let mounted = || {
        let device = Loop::new(&image);
        (Mount::new("xfs", &device.0, &place, "rw"), device)
    };
    {
        let _mounted = mounted();
        let full = (0..).find(|number| std::fs::write(place.join(format!("f{number}")), [1; 7 * 4096]).is_err());
        tool_ok("sync", &["-f", place.to_str().expect("a UTF-8 path")]);
        for number in (0..full.expect("an end")).step_by(2) {
            let _ = std::fs::remove_file(place.join(format!("f{number}")));
        }
    }
    // Unmounting waits for what is deleted in the background.
    {
        let _mounted = mounted();
        for number in 0..8_000 {
            let _ = std::fs::File::create(place.join(format!("empty{number}")));
        }
    }
    let path = image.to_str().expect("a UTF-8 path");
    let group = |number: &str| tool_ok("xfs_db", &["-r", "-f", "-c", number, "-c", "addr root", "-c", "p recs", path]);
    let chunks = group("agi 0") + &group("agi 1");
    // [first inode, mask of what is missing, ...]
    if chunks.contains(",0xff,") || chunks.contains(",0xff00,") { Ok(image) } else { Err(chunks) }
}

/// Blocks that are staged for the copy of shared ones are in no file yet and not free. Unmounting gives them back, so the
/// image is taken from a frozen volume, and gets the log of an unmounted one: the one that mkfs wrote, which xfs_db makes
/// newer than everything on the volume.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_staged_copies_are_used() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("mount");
    std::fs::create_dir(&place).expect("a mount point");
    let image = make(folder.path(), images::by_name("owners"), 60_000, Fill::Empty, &mut Rng(1));
    let fresh = std::fs::read(&image).expect("the image");
    let frozen = folder.path().join("frozen");
    {
        let device = Loop::new(&image);
        let _mount = Mount::new("xfs", &device.0, &place, "rw");
        let text = |name: &str| place.join(name).to_str().expect("a UTF-8 path").to_owned();
        std::fs::write(place.join("one"), vec![1; 4 << 20]).expect("room");
        tool_ok("cp", &["--reflink=always", &text("one"), &text("two")]);
        tool_ok("xfs_io", &["-c", "cowextsize 1m", "-c", "pwrite -q 8k 4k", "-c", "fsync", &text("two")]);
        tool_ok("xfs_io", &["-c", "pwrite -q 2m 12k", "-c", "fsync", &text("two")]);
        tool_ok("xfs_freeze", &["-f", place.to_str().expect("a UTF-8 path")]);
        tool_ok("sync", &[image.to_str().expect("a UTF-8 path")]);
        copy_of(&image, &frozen);
        tool_ok("xfs_freeze", &["-u", place.to_str().expect("a UTF-8 path")]);
    }
    let refused = coldtrim(&["map", frozen.to_str().expect("a UTF-8 path")]);
    assert_eq!(refused.status.code(), Some(3), "{}", String::from_utf8_lossy(&refused.stdout));
    let mut bytes = std::fs::read(&frozen).expect("the image");
    let log = images::log_of(&fresh);
    bytes[log.clone()].copy_from_slice(&fresh[log]);
    std::fs::write(&frozen, bytes).expect("room");
    let path = frozen.to_str().expect("a UTF-8 path");
    assert_log_is_older(&frozen);
    tool_ok("xfs_db", &["-x", "-f", "-c", "logformat -c 100", path]);
    let shared = tool_ok("xfs_db", &["-r", "-f", "-c", "agf 0", "-c", "addr refcntroot", "-c", "p recs", path]);
    // [first block, blocks, owners, 1 where they are staged]
    assert!(shared.contains(",1,1]"), "nothing is staged: {shared}");
    let ours = map_ranges(&frozen);
    assert_eq!(ours, freesp(&frozen));
    assert_eq!(ours, python(&frozen));
    let witness = coldtrim(&["map", "--witness", path]);
    assert!(witness.status.success(), "{}", String::from_utf8_lossy(&witness.stdout));
}

#[track_caller]
fn assert_log_is_older(image: &Path) {
    let refused = coldtrim(&["map", image.to_str().expect("a UTF-8 path")]);
    let words = String::from_utf8_lossy(&refused.stdout);
    assert_eq!(refused.status.code(), Some(3), "{words}");
    assert!(words.contains("it is older than the volume"), "{words}");
}

/// Lets the kernel write a file and flush it to the disk, trees and all.
fn one_more_file(place: &Path, name: &str) {
    std::fs::write(place.join(name), vec![7; 3 << 20]).expect("room");
    tool_ok("xfs_freeze", &["-f", place.to_str().expect("a UTF-8 path")]);
    tool_ok("xfs_freeze", &["-u", place.to_str().expect("a UTF-8 path")]);
}

/// A clean log of another time is put into a volume that is mounted: the log says "unmounted", what lies around it is
/// newer. The kernel refuses that as well.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_log_that_is_older_than_its_volume() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("mount");
    std::fs::create_dir(&place).expect("a mount point");
    let image = make(folder.path(), images::by_name("default"), 60_000, Fill::Empty, &mut Rng(1));
    let copies = ["unmounted", "mounted"].map(|name| folder.path().join(name));
    for copy in &copies {
        let device = Loop::new(&image);
        {
            let _mount = Mount::new("xfs", &device.0, &place, "rw");
            one_more_file(&place, copy.file_name().and_then(|name| name.to_str()).expect("a name"));
            copy_of(&image, copy);
        }
        if copy.ends_with("unmounted") {
            drop(device);
            copy_of(&image, copy);
        }
    }
    let [unmounted, mounted] = copies;
    assert!(!map_ranges(&unmounted).is_empty(), "the older copy is a sound volume");
    let old = std::fs::read(&unmounted).expect("the older copy");
    let mut bytes = std::fs::read(&mounted).expect("the copy");
    let log = images::log_of(&old);
    bytes[log.clone()].copy_from_slice(&old[log]);
    std::fs::write(&mounted, bytes).expect("room");
    assert_log_is_older(&mounted);
    assert_kernel_refuses(&mounted, &place, "ro");
}

#[track_caller]
fn assert_kernel_refuses(image: &Path, place: &Path, options: &str) {
    let device = Loop::new(image);
    let mount = tool("mount", &["-t", "xfs", "-o", options, &device.0, place.to_str().expect("a UTF-8 path")]);
    assert!(!mount.status.success(), "the kernel mounts it");
}

/// The same with the log on a device of its own: the one that was in use a while ago.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_an_external_log_that_is_older_than_its_volume() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("mount");
    std::fs::create_dir(&place).expect("a mount point");
    let kind = Kind { name: "", options: "-l logdev=LOG,size=12m", kib: 50_000, mounts: true };
    let image = make(folder.path(), &kind, kind.kib, Fill::Empty, &mut Rng(1));
    let log = folder.path().join("log");
    let old_log = folder.path().join("old");
    copy_of(&log, &old_log);
    let [data, journal] = [Loop::new(&image), Loop::new(&log)];
    {
        let _mount = Mount::new("xfs", &data.0, &place, &format!("rw,logdev={}", journal.0));
        one_more_file(&place, "new");
    }
    drop((data, journal));
    let path = |path: &Path| path.to_str().expect("a UTF-8 path").to_owned();
    let right = coldtrim(&["map", &path(&image), &path(&log)]);
    assert!(right.status.success(), "{}", String::from_utf8_lossy(&right.stdout));
    let wrong = coldtrim(&["map", &path(&image), &path(&old_log)]);
    let words = String::from_utf8_lossy(&wrong.stdout);
    assert!(words.contains("it is older than the volume"), "{words}");
    assert_ne!(wrong.status.code(), Some(0), "{words}");
    let journal = Loop::new(&old_log);
    assert_kernel_refuses(&image, &place, &format!("ro,logdev={}", journal.0));
}

/// The main job on an image: afterwards the kernel finds every file as it was, and xfs_repair nothing to do.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_files_survive_a_trim() {
    let mut rng = Rng(seed("root_files_survive_a_trim"));
    for kind in ["1 KiB blocks", "owners", "eight groups, the last short", "sectors of 4 KiB"] {
        let kind = images::by_name(kind);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = folder.path().join("mount");
        std::fs::create_dir(&place).expect("a mount point");
        let image = make(folder.path(), kind, kind.kib, Fill::Empty, &mut rng);
        let path = image.to_str().expect("a UTF-8 path");
        let before = {
            let device = Loop::new(&image);
            let _mount = Mount::new("xfs", &device.0, &place, "rw");
            live(&place, kind.kib * 1024, &mut rng);
            hashes(&place)
        };
        assert!(before.lines().count() > 100);
        let ours = map_ranges(&image);
        let trimmed = coldtrim(&["trim", "--yes", path]);
        assert!(trimmed.status.success(), "{}: {}", kind.name, String::from_utf8_lossy(&trimmed.stderr));
        let holes = holes(&image);
        for range in rounded(&ours, 4096) {
            let is_hole = holes.iter().any(|hole| hole.0 <= range.0 && range.0 + range.1 <= hole.0 + hole.1);
            assert!(is_hole, "{}: {range:?} still takes space", kind.name);
        }
        tool_ok("xfs_repair", &["-f", "-n", "-o", "force_geometry", path]);
        let device = Loop::new(&image);
        let _mount = Mount::new("xfs", &device.0, &place, "ro");
        assert_eq!(before, hashes(&place), "{}", kind.name);
    }
}

#[test]
fn the_carried_image_equals_its_records() {
    // The driver put every file into one extent.
    let (files, extents) = common::carried_files_and_extents("xfs", "01-demo");
    assert_eq!((files, extents), (88, 87));
}
