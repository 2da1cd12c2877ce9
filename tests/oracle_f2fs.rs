//! What coldtrim calls free on F2FS against dump.f2fs and against a short reader in Python that looks only at owners.
//! Volumes that the kernel's driver has filled and thinned out are in `root_lab/f2fs.rs`.
#![allow(clippy::as_conversions)]

mod common;
#[path = "common/f2fs.rs"]
mod images;

use common::{Rng, full, map_ranges, parse_ranges, seed, tool_ok};
use images::{Fill, KINDS, Kind, dumped, make};
use std::os::unix::fs::FileExt;
use std::path::Path;

fn python(image: &Path) -> Vec<(u64, u64)> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/f2fs_free.py");
    parse_ranges(&tool_ok("python3", &[script, image.to_str().expect("a UTF-8 path")]))
}

fn bytes(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(_, len)| len).sum()
}

/// One image, three readings.
fn compare_image(image: &Path, what: &str) -> Vec<(u64, u64)> {
    let ours = map_ranges(image);
    assert_eq!(ours, dumped(image), "{what}: coldtrim (left) and dump.f2fs (right)");
    assert_eq!(ours, python(image), "{what}: coldtrim (left) and f2fs_free.py (right)");
    ours
}

fn compare(kind: &Kind, kib: u64, fill: Fill, rng: &mut Rng) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = make(folder.path(), kind, kib, fill, rng);
    let ours = compare_image(&image, &format!("{} {kib} KiB {fill:?}", kind.name));
    assert!(bytes(&ours) > 1 << 20 && bytes(&ours) < kib * 1024);
}

/// Every kind of volume; empty, with files and full by turns, all three when everything is asked for.
#[test]
fn every_kind_equals_dump_f2fs_and_python() {
    let mut rng = Rng(seed("every_kind_equals_dump_f2fs_and_python"));
    for (index, kind) in KINDS.iter().enumerate() {
        let fills = [Fill::Files, Fill::Empty, Fill::Full];
        if full() {
            fills.iter().for_each(|fill| compare(kind, kind.kib, *fill, &mut rng));
        } else {
            compare(kind, kind.kib, fills[index % 3], &mut rng);
        }
    }
}

/// Sizes that are no multiple of anything.
#[test]
fn random_sizes_equal_dump_f2fs_and_python() {
    let mut rng = Rng(seed("random_sizes_equal_dump_f2fs_and_python"));
    for _ in 0..if full() { 40 } else { 1 } {
        let kind = rng.pick(KINDS);
        let kib = kind.kib + rng.between(0, kind.kib / 2);
        let fill = *rng.pick(&[Fill::Empty, Fill::Files, Fill::Full]);
        compare(kind, kib, fill, &mut rng);
    }
}

/// A volume so large that the bitmap of the segment table fills blocks of its own behind each checkpoint.
#[test]
fn a_bitmap_in_a_payload_equals_dump_f2fs_and_python() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kib: u64 = 3_700_000_003;
    let image = folder.path().join("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(kib * 1024)).expect("a sparse file");
    tool_ok("mkfs.f2fs", &["-q", "-f", "-t", "0", image.to_str().expect("a UTF-8 path")]);
    let mut raw = [0; 4];
    std::fs::File::open(&image).and_then(|file| file.read_exact_at(&mut raw, 1024 + 1664)).expect("a superblock");
    assert_ne!(raw, [0; 4], "the volume has a payload");
    let ours = map_ranges(&image);
    assert_eq!(ours, dumped(&image), "coldtrim (left) and dump.f2fs (right)");
}

#[test]
fn the_carried_image_equals_its_records() {
    common::carried_image_equals_its_records("f2fs");
}
