//! What coldtrim calls free on ext2, ext3 and ext4 against three answers that share no code with it or each other:
//! dumpe2fs, a short reader in Python, and the running kernel's own FITRIM.
#![allow(clippy::as_conversions)]

mod common;
#[path = "common/ext4.rs"]
mod images;
#[path = "common/kernel.rs"]
mod kernel;

use common::{Rng, full, map_ranges, merged, parse_ranges, rounded, seed, tool, tool_ok};
use images::{Fill, KINDS, Kind, dumpe2fs, make};
use kernel::{Loop, Mount, copy_of, holes};
use std::path::Path;

fn python(image: &Path) -> Vec<(u64, u64)> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/ext4_free.py");
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
    assert_eq!(ours, dumpe2fs(&image), "{what}: coldtrim (left) and dumpe2fs (right)");
    assert_eq!(ours, python(&image), "{what}: coldtrim (left) and ext4_free.py (right)");
    match fill {
        Fill::Full => assert!(bytes(&ours) < 70 << 10, "{what}: {} bytes are free", bytes(&ours)),
        _ => assert!(bytes(&ours) > 0, "{what}: nothing is free"),
    }
}

/// Every kind of volume; empty, fragmented and full by turns, all three when everything is asked for.
#[test]
fn every_kind_equals_dumpe2fs_and_python() {
    let mut rng = Rng(seed("every_kind_equals_dumpe2fs_and_python"));
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
fn random_sizes_equal_dumpe2fs_and_python() {
    let mut rng = Rng(seed("random_sizes_equal_dumpe2fs_and_python"));
    for _ in 0..if full() { 60 } else { 4 } {
        let kind = rng.pick(KINDS);
        let kib = kind.kib + rng.between(0, kind.kib / 2);
        let fill = *rng.pick(&[Fill::Empty, Fill::Fragmented, Fill::Fragmented, Fill::Full]);
        compare(kind, kib, fill, &mut rng);
    }
}

/// Volumes that were grown, shrunk or converted after they were made: their layout is not what mke2fs would choose.
#[test]
fn changed_volumes_equal_dumpe2fs_and_python() {
    let mut rng = Rng(seed("changed_volumes_equal_dumpe2fs_and_python"));
    let steps: &[(&str, u64, &str)] = &[
        ("1 KiB blocks", 300_001, "resize2fs IMAGE"),
        ("meta_bg", 500_003, "resize2fs IMAGE"),
        ("crc16, 32-byte descriptors", 200_003, "resize2fs IMAGE"),
        ("no flex_bg", 50_021, "resize2fs IMAGE 41003K"),
        ("sparse_super2", 200_001, "resize2fs IMAGE"),
        ("crc16, 32-byte descriptors", 90_001, "resize2fs -b IMAGE"),
        ("checksum seed", 40_013, "tune2fs -O ^metadata_csum IMAGE"),
        ("32-bit, no checksums", 40_009, "tune2fs -O metadata_csum IMAGE"),
        ("ext2, 1 KiB, 128-byte inodes", 20_011, "tune2fs -I 256 IMAGE"),
        ("ext3, 1 KiB", 30_007, "tune2fs -O ^has_journal IMAGE"),
        ("checksum seed", 40_013, "tune2fs -U random IMAGE"),
        ("bigalloc, 1 KiB blocks", 300_005, "resize2fs -f IMAGE"),
    ];
    let first = if full() { 0 } else { rng.between(0, 3) as usize };
    for (name, kib, step) in steps.iter().skip(first).step_by(if full() { 1 } else { 3 }) {
        let kind = images::by_name(name);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let image = make(folder.path(), kind, kind.kib, Fill::Fragmented, &mut rng);
        let path = image.to_str().expect("a UTF-8 path");
        let file = std::fs::OpenOptions::new().write(true).open(&image).expect("the image");
        file.set_len((kind.kib).max(*kib) * 1024).expect("room for the image");
        tool_ok("e2fsck", &["-f", "-p", path]);
        drop(file);
        let words: Vec<&str> = step.split(' ').map(|word| if word == "IMAGE" { path } else { word }).collect();
        tool_ok(words[0], &words[1..]);
        // resize2fs 1.47 leaves wrong counts behind in bigalloc volumes; coldtrim refuses those, as e2fsck does.
        tool("e2fsck", &["-f", "-y", path]);
        let ours = map_ranges(&image);
        assert_eq!(ours, dumpe2fs(&image), "{name}, {step}: coldtrim (left) and dumpe2fs (right)");
        assert_eq!(ours, python(&image), "{name}, {step}: coldtrim (left) and ext4_free.py (right)");
    }
}

/// The carried image: its map is what dumpe2fs said when it was made, and no extent that the driver named is free.
#[test]
fn the_carried_image_equals_its_records() {
    common::carried_image_equals_its_records("ext4");
}

/// Fills a mounted volume through the kernel's driver and deletes a part again.
fn live(place: &Path, kib: u64, rng: &mut Rng) {
    let most = (kib * 1024 / 2 / 40).max(2);
    for number in 0..40 {
        let size = rng.between(0, most) as usize;
        // A tiny volume may be full, or have no inode left: so much the better.
        let _ = std::fs::write(place.join(format!("f{number}")), vec![number as u8; size]);
    }
    for number in (0..40).filter(|_| rng.next().is_multiple_of(2)).collect::<Vec<_>>() {
        let _ = std::fs::remove_file(place.join(format!("f{number}")));
    }
    for number in 0..10 {
        let size = rng.between(0, most / 4 + 1) as usize;
        let _ = std::fs::write(place.join(format!("g{number}")), vec![number as u8; size]);
    }
}

/// Ranges cut where groups begin: the kernel discards group by group, and the loop device then rounds each part.
fn at_groups(image: &Path, ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let head = std::fs::read(image).expect("the image");
    let number = |at: usize| u64::from(images::u32_at(&head, 1024 + at));
    let block = 1024 << number(0x18);
    let (origin, group) = (number(0x14) * block, number(0x20) * block);
    let mut parts = Vec::new();
    for (start, len) in ranges {
        let mut at = *start;
        while at < start + len {
            let next = (origin + ((at - origin) / group + 1) * group).min(start + len);
            parts.push((at, next - at));
            at = next;
        }
    }
    parts
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
        let _mount = Mount::new("ext4", &device.0, &place, "rw");
        live(&place, kib, rng);
    }
    let copy = folder.path().join("copy");
    copy_of(&image, &copy);
    let ours = map_ranges(&copy);
    assert_eq!(ours, dumpe2fs(&copy), "{}: coldtrim (left) and dumpe2fs (right)", kind.name);
    assert_eq!(holes(&copy), [], "{}: a copy without holes", kind.name);
    {
        let device = Loop::new(&copy);
        let _mount = Mount::new("ext4", &device.0, &place, "ro");
        tool_ok("fstrim", &[place.to_str().expect("a UTF-8 path")]);
    }
    let expected = merged(&rounded(&at_groups(&copy, &ours), 4096));
    assert_eq!(expected, holes(&copy), "{} {kib} KiB: coldtrim (left) and the kernel (right)", kind.name);
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_kernel_discards_the_same_bytes() {
    let mut rng = Rng(seed("root_kernel_discards_the_same_bytes"));
    let mountable: Vec<&Kind> = KINDS.iter().filter(|kind| kind.mounts && !kind.options.contains("mmp")).collect();
    let first = rng.between(0, 3) as usize;
    let step = if full() { 1 } else { 3 };
    for kind in mountable.into_iter().skip(if full() { 0 } else { first }).step_by(step) {
        let kib = kind.kib + rng.between(0, kind.kib / 8 + 1);
        kernel_agrees(kind, kib, &mut rng);
    }
}
