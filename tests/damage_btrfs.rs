//! What must be refused on btrfs, each by one changed field with its checksum made right again; flipped bits; what is
//! read; and filesystems on several devices.
#![allow(clippy::as_conversions, clippy::ptr_arg)] // a `Vec` is a `Source`, a slice behind a reference is not

mod common;
#[path = "common/damage.rs"]
mod damage;
#[path = "common/btrfs.rs"]
mod images;
#[path = "common/kernel.rs"]
mod kernel;

use coldtrim_parsers::source::Source;
use coldtrim_parsers::witness::{Testimony, hear};
use common::{Rng, coldtrim, crc32c, full, parse_ranges, seed, tool_ok};
use damage::{Sparse, assert_refused, assert_sound, cost, format, metadata, refusal, volume};
use images::{Fill, KINDS, Kind, make};
use kernel::Loop;
use std::path::{Path, PathBuf};

/// The row under test.
const FORMAT: &str = "btrfs";
const SUPERBLOCK: usize = 64 << 10;
const SUPERBLOCK_LEN: usize = 4096;
const GENERATION: usize = 0x48;
const HEADER: usize = 101;
const ITEM: usize = 25;

/// Small, with little metadata and one copy of everything.
const SMALL: Kind = Kind { name: "small", options: "-M -m single -d single", kib: 40_000, mounts: true };
/// The same without a second opinion.
const NO_SPACE_TREE: Kind =
    Kind { name: "no tree", options: "-M -m single -d single -R ^free-space-tree", kib: 40_000, mounts: true };

fn image(kind: &Kind, fill: Fill) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::read(make(folder.path(), kind, kind.kib, fill, &mut Rng(7))).expect("the image")
}

/// Makes the checksum of a block right again.
fn seal(block: &mut [u8]) {
    let sum = !crc32c(!0, &block[32..]);
    block[..4].copy_from_slice(&sum.to_le_bytes());
}

fn get(image: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(image[at..at + 8].try_into().expect("8 bytes"))
}

fn put(image: &mut [u8], at: usize, number: u64) {
    image[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

/// The image with a changed block of `len` bytes at `at`, its checksum right.
fn with(image: &[u8], at: usize, len: usize, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut image = image.to_vec();
    change(&mut image[at..at + len]);
    seal(&mut image[at..at + len]);
    image
}

fn with_superblock(image: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    with(image, SUPERBLOCK, SUPERBLOCK_LEN, change)
}

/// Place of the first leaf of a tree among what is read of [`SMALL`], whose blocks have 4096 bytes.
fn leaf(image: &Vec<u8>, owner: u64) -> usize {
    let blocks = metadata(image).into_iter().flat_map(|range| (range.start()..range.end()).step_by(4096));
    let mut blocks = blocks.map(|at| at as usize).filter(|at| *at != SUPERBLOCK);
    let found = blocks.find(|at| get(image, at + 0x58) == owner && image[at + 100] == 0);
    found.unwrap_or_else(|| panic!("no leaf of tree {owner} was read"))
}

/// Places of the items of the leaf at `at`.
fn items(image: &[u8], at: usize) -> impl Iterator<Item = usize> {
    let count = u32::from_le_bytes(image[at + 96..at + 100].try_into().expect("4 bytes")) as usize;
    (0..count).map(move |k| at + HEADER + k * ITEM)
}

/// Place of the first item of a kind in the leaf at `at`.
fn item(image: &[u8], at: usize, kind: u8) -> usize {
    items(image, at).find(|item| image[item + 8] == kind).expect("such an item")
}

/// Place of an item's data.
fn data(image: &[u8], leaf: usize, item: usize) -> usize {
    leaf + HEADER + u32::from_le_bytes(image[item + 17..item + 21].try_into().expect("4 bytes")) as usize
}

#[test]
fn features_and_states_are_refused_by_name() {
    let image = image(&SMALL, Fill::Empty);
    assert_sound(&image);
    let rows: &[(usize, u64, &str)] = &[
        (0xBC, 0x1000, "zoned"),
        (0xBC, 0x2000, "extent-tree-v2"),
        (0xBC, 0x4000, "raid-stripe-tree"),
        (0xBC, 0x1_0000, "squota"),
        (0xBC, 1 << 40, "0x10000000000 are not known"),
        (0xB4, 1 << 20, "read-only compatible features: the bits 0x100000 are not known"),
        (0xAC, 1, "compatible features: the bits 0x1 are not known"),
        (0x38, 4, "flag ERROR"),
        (0x38, 1 << 32, "flag SEEDING"),
        (0x38, 1 << 33, "flag METADUMP"),
        (0x38, 1 << 34, "METADUMP_V2"),
        (0x38, 1 << 35, "flag CHANGING_FSID"),
        (0x38, 1 << 36, "CHANGING_FSID_V2"),
        (0x38, 1 << 40, "flags of the superblock: the bits 0x10000000000 are not known"),
        (0x60, 1 << 20, "btrfs rescue zero-log DEVICE"),
        (0x88, 2, "has 3 devices, of which 1 can be seen here: all of them must be given together"),
    ];
    for (at, bits, words) in rows {
        let changed = with_superblock(&image, |block| {
            let old = get(block, *at);
            put(block, *at, old | bits);
        });
        assert_refused(&changed, &[words]);
    }
}

#[test]
fn fields_of_the_superblock_that_cannot_be_right() {
    let image = image(&SMALL, Fill::Copied);
    let rows: &[(usize, u64, &str)] = &[
        (0x30, 1 << 26, "own place of a superblock"),
        (GENERATION, 99, "generation of a tree block"),
        (0x50, 1 << 50, "a tree block: expected a place inside a chunk"),
        (0x78, 4096, "used bytes of the filesystem"),
        (0x90, 3000, "sector size"),
        (0xA4, 99, "generation of a tree block"),
        (0xC4, 0x0101_0000_0000_0009, "checksum kind 9"),
        (0xC9, 7, "device of a tree block"),
        (0xC9 + 8, 30 << 20, "size of a device"),
        (0xC9 + 16, 4096, "used bytes of a device"),
        (0xC9 + 66, 7, "UUID of a device item"),
        (0x20, 7, "filesystem of a tree block"),
        (0x32B + 17, 0, "length of a chunk"),
        (0x32B + 17, 4096, "a tree block: expected a place inside a chunk"),
        (0x32B + 17, 64 << 20, "chunk tree: expected the system chunks of the superblock too"),
        (0x32B + 17 + 24, 0x82, "RAID5"),
        (0x32B + 17 + 24, 0x102, "RAID6"),
        (0x32B + 17 + 24, 0x1_0002, "profile bits 0x10000"),
        (0x32B + 17 + 24, 0x12, "number of stripes"),
        (0x32B + 17 + 16, 4096, "stripe length"),
    ];
    for (at, number, words) in rows {
        assert_refused(&with_superblock(&image, |block| put(block, *at, *number)), &[words]);
    }
}

#[test]
fn copies_of_the_superblock_must_agree() {
    let image = image(&KINDS[0], Fill::Empty);
    assert_sound(&image);
    let copy = 64 << 20;
    let older = with(&image, copy, SUPERBLOCK_LEN, |block| put(block, GENERATION, 3));
    assert_refused(&older, &["a copy of the superblock: expected equal to the first"]);
    let mut torn = image.clone();
    torn[copy + 100] ^= 1;
    assert_refused(&torn, &["its checksum does not fit"]);
    let mut gone = image;
    gone[copy..copy + 4096].fill(0);
    assert_refused(&gone, &["magic number of a superblock"]);
}

#[test]
fn every_part_of_a_header_is_verified_in_every_tree() {
    let image = image(&SMALL, Fill::Copied);
    let rows = [
        (0x20, "filesystem of a tree block"),
        (0x30, "own place of a tree block"),
        (0x38, "flags of a tree block"),
        (0x50, "generation of a tree block"),
        (0x58, "owner of a tree block"),
    ];
    for owner in [3, 4, 10] {
        let at = leaf(&image, owner);
        for (field, words) in rows {
            assert_refused(&with(&image, at, 4096, |block| block[field] ^= 64), &[words]);
        }
        assert_refused(&with(&image, at, 4096, |block| block[100] ^= 1), &["level of a tree block"]);
        let mut torn = image.clone();
        torn[at + 4000] ^= 1;
        assert_refused(&torn, &["a tree block: its checksum does not fit"]);
    }
}

#[test]
fn trees_that_contradict_each_other() {
    let image = image(&SMALL, Fill::Copied);
    let at = leaf(&image, 4);
    let extent = item(&image, at, 204) - at;
    let length = data(&image, at, at + extent) - at + 24;
    let shorter = with(&image, at, 4096, |block| put(block, length, get(block, length) - 4096));
    assert_refused(&shorter, &["device extents: expected exactly the stripes of the chunks"]);

    // Of two that follow each other the second is in a chunk that exists: mkfs.btrfs leaves single ones behind.
    let at = leaf(&image, 10);
    let pairs = items(&image, at).zip(items(&image, at).skip(1));
    let mut pairs = pairs.filter(|(a, b)| image[a + 8] == 199 && image[b + 8] == 199);
    let free = pairs.next().expect("two free ranges in one chunk").1 - at;
    let less = with(&image, at, 4096, |block| put(block, free + 9, get(block, free + 9) - 4096));
    assert_refused(&less, &["free-space tree: expected what the extents leave, found not logical"]);
    let more = with(&image, at, 4096, |block| {
        put(block, free, get(block, free) - 4096);
        put(block, free + 9, get(block, free + 9) + 4096);
    });
    assert_refused(&more, &["free-space tree: expected what the extents leave, found also logical"]);

    let at = leaf(&image, 3);
    let chunk = item(&image, at, 228) - at;
    let flags = data(&image, at, at + chunk) - at + 24;
    assert_refused(&with(&image, at, 4096, |block| put(block, flags, get(block, flags) | 0x80)), &["RAID5"]);
}

/// One extent of a file is a sector too short in the extent tree and in all counters: only the files can tell.
#[test]
fn the_walk_convicts_and_names_the_file() {
    let image = image(&NO_SPACE_TREE, Fill::Copied);
    let truth = assert_sound(&image).free;
    let blocks: Vec<usize> = metadata(&image).iter().map(|range| range.start() as usize).collect();
    let leaves: Vec<usize> =
        blocks.into_iter().filter(|at| get(&image, at + 0x58) == 2 && image[at + 100] == 0).collect();
    let is_data = |data: usize| get(&image, data + 16) == 1;
    let extents = leaves.iter().flat_map(|at| items(&image, *at).map(|item| (*at, item)));
    let mut extents = extents.filter(|(_, item)| image[item + 8] == 168 && get(&image, item + 9) > 8192);
    let (at, extent) = extents.find(|(at, item)| is_data(data(&image, *at, *item))).expect("an extent of a file");
    let start = get(&image, extent);
    let mut changed = with(&image, at, 4096, |block| {
        let length = extent - at + 9;
        put(block, length, get(block, length) - 4096);
    });
    for at in &leaves {
        for item in items(&image, *at).filter(|item| image[item + 8] == 192) {
            if (get(&image, item)..get(&image, item) + get(&image, item + 9)).contains(&start) {
                let used = data(&image, *at, item) - at;
                changed = with(&changed, *at, 4096, |block| put(block, used, get(block, used) - 4096));
            }
        }
    }
    changed = with_superblock(&changed, |block| put(block, 0x78, get(block, 0x78) - 4096));
    let free = assert_sound(&changed).free;
    assert_eq!(free.bytes(), truth.bytes() + 4096, "the map alone cannot tell");
    let words = hear(format().witnesses()[0], &changed, &free);
    assert!(matches!(&words, Testimony::Clash { owner, .. } if owner.contains("the file 'file")), "{words:?}");
    assert!(matches!(hear(format().witnesses()[0], &image, &truth), Testimony::Agrees { owners, .. } if owners > 60));
}

/// Flips bits of everything that is read. Each is refused, or changes nothing in the map.
#[test]
fn flips_never_free_a_used_block() {
    let mut rng = Rng(seed("flips_never_free_a_used_block"));
    let kinds = [&SMALL, &NO_SPACE_TREE];
    for kind in kinds {
        let mut image = image(kind, Fill::Copied);
        let truth = assert_sound(&image).free;
        let (mut refused, mut harmless) = (0, 0);
        let bits = metadata(&image).into_iter().flat_map(|range| range.start() * 8..range.end() * 8);
        for bit in bits.collect::<Vec<u64>>() {
            if !full() && !rng.next().is_multiple_of(400) {
                continue;
            }
            let (byte, mask) = ((bit / 8) as usize, 1 << (bit % 8));
            image[byte] ^= mask;
            match refusal(&image) {
                Some(_) => refused += 1,
                None => {
                    assert_eq!(volume(&image).expect("a map").free.ranges(), truth.ranges(), "bit {bit}");
                    harmless += 1;
                }
            }
            image[byte] ^= mask;
        }
        println!("{}: {refused} flips refused, {harmless} without effect (unused bytes of checksum fields)", kind.name);
        assert!(refused > 300 && harmless < refused / 20, "{refused} refused, {harmless} harmless");
    }
}

/// Reading stays near the minimum: a fresh 1 TiB filesystem has three superblocks and a handful of tree blocks.
#[test]
fn a_terabyte_costs_little() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kind = Kind { name: "large", options: "", kib: 1 << 30, mounts: true };
    let image = make(folder.path(), &kind, kind.kib, Fill::Empty, &mut Rng(1));
    let (volume, read) = cost(&image);
    println!("1 TiB, fresh: {read} bytes read for {} free", volume.free.bytes());
    assert!(read < 256 << 10, "{read} bytes were read");
    assert!(volume.free.bytes() > (1 << 40) / 1000 * 998);
}

/// Profiles, devices, and what mkfs.btrfs is told.
#[rustfmt::skip] // a row a line
const SEVERAL: &[(usize, &str)] = &[
    (2, "-d raid0 -m raid1"),
    (3, "-d raid0 -m raid0"),
    (2, "-d raid1 -m raid1"),
    (3, "-d raid1 -m raid1c3"),
    (4, "-d raid1c3 -m raid1c4"),
    (4, "-d raid10 -m raid10"),
    (5, "-d single -m raid1"),
    (2, "-d single -m dup --csum xxhash"),
];

fn devices(folder: &Path, count: usize, options: &str) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = (0..count).map(|k| folder.join(format!("device{k}"))).collect();
    for (path, k) in paths.iter().zip(0_u64..) {
        let size = (260 << 20) + k * (9 << 20) + 4096 * k + 512;
        std::fs::File::create(path).and_then(|file| file.set_len(size)).expect("a sparse file");
    }
    let mut args = vec!["-q", "-f"];
    args.extend(options.split(' '));
    args.extend(paths.iter().map(|path| path.to_str().expect("a UTF-8 path")));
    tool_ok("mkfs.btrfs", &args);
    paths
}

/// Every device's map, with the others as companions, against the Python reader.
fn compare_devices(paths: &[PathBuf], what: &str) {
    let files: Vec<Sparse> = paths.iter().map(|path| Sparse::open(path)).collect();
    for (index, file) in files.iter().enumerate() {
        let others = files.iter().enumerate().filter(|(other, _)| *other != index);
        let others: Vec<&dyn Source> = others.map(|(_, file)| -> &dyn Source { file }).collect();
        let volume = format().read(file, &others).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(volume.findings, [], "{what}");
        let ours: Vec<(u64, u64)> = volume.free.ranges().iter().map(|range| (range.start(), range.len())).collect();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/btrfs_free.py");
        let order = paths.iter().cycle().skip(index).take(paths.len()).map(|path| path.to_str().expect("a UTF-8 path"));
        let args: Vec<&str> = [script].into_iter().chain(order).collect();
        assert_eq!(ours, parse_ranges(&tool_ok("python3", &args)), "{what}, device {index}");
    }
}

#[test]
fn several_devices_given_together_equal_python() {
    let mut rng = Rng(seed("several_devices_given_together_equal_python"));
    let first = rng.between(0, 3) as usize;
    for (_, (count, options)) in SEVERAL.iter().enumerate().filter(|(index, _)| full() || index % 3 == first) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        compare_devices(&devices(folder.path(), *count, options), options);
    }
}

#[test]
fn a_device_that_is_missing_or_there_twice_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let paths = devices(folder.path(), 3, "-d raid1 -m raid1");
    let files: Vec<Sparse> = paths.iter().map(|path| Sparse::open(path)).collect();
    let volume = format().read(&files[0], &[&files[1]]).expect("facts about the volume");
    assert!(volume.free.ranges().is_empty());
    assert!(volume.findings[0].message.contains("has 3 devices, of which 2 can be seen"), "{:?}", volume.findings);
    let twice = format().read(&files[0], &[&files[1], &files[1]]).expect_err("a device twice");
    assert!(twice.to_string().contains("is there twice"), "{twice}");
}

#[test]
fn parity_profiles_are_refused_by_name() {
    for (profile, name) in [("raid5", "RAID5"), ("raid6", "RAID6")] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let paths = devices(folder.path(), 4, &format!("-d {profile} -m raid1"));
        let files: Vec<Sparse> = paths.iter().map(|path| Sparse::open(path)).collect();
        let others: Vec<&dyn Source> = files[1..].iter().map(|file| -> &dyn Source { file }).collect();
        let error = format().read(&files[0], &others).expect_err("a refusal");
        assert!(error.to_string().contains(name), "{error}");
    }
}

/// The same with files, filled by the kernel's driver.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_several_filled_devices_equal_python() {
    let mut rng = Rng(seed("root_several_filled_devices_equal_python"));
    let first = rng.between(0, 4) as usize;
    for (_, (count, options)) in SEVERAL.iter().enumerate().filter(|(index, _)| full() || index % 4 == first) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let paths = devices(folder.path(), *count, options);
        let on_the_mount = |act: &mut dyn FnMut(&Path)| {
            let loops: Vec<Loop> = paths.iter().map(|path| Loop::new(path)).collect();
            let named: Vec<String> = loops.iter().map(|device| format!("device={}", device.0)).collect();
            act(images::mounted(folder.path(), &loops[0].0, &named.join(",")).place());
        };
        on_the_mount(&mut |place| images::live(place, false, &mut rng));
        compare_devices(&paths, options);
        let (mut before, mut after) = (String::new(), String::new());
        on_the_mount(&mut |place| before = kernel::hashes(place));
        trims_together(&paths, options);
        on_the_mount(&mut |place| after = kernel::hashes(place));
        assert!(before.lines().count() > 20 && before == after, "{options}: files changed");
    }
}

/// One device alone is refused; all together are trimmed in one run, each by its own map.
fn trims_together(paths: &[PathBuf], what: &str) {
    let names: Vec<&str> = paths.iter().map(|path| path.to_str().expect("a UTF-8 path")).collect();
    let alone = coldtrim(&["trim", "--yes", names[0]]);
    assert_eq!(alone.status.code(), Some(3), "{what}");
    assert!(
        String::from_utf8_lossy(&alone.stdout).contains(&format!("has {} devices, of which 1", names.len())),
        "{alone:?}"
    );
    let run = coldtrim(&[&["trim", "--yes", "--json"], &names[..]].concat());
    let report: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap_or_else(|e| panic!("{e}: {run:?}"));
    assert_eq!(report["exit_code"], 0, "{what}: {report}");
    assert_eq!(report["outcome"]["bytes"], report["plan"]["bytes"], "{what}");
    let volumes = report["volumes"].as_array().expect("a list");
    assert_eq!(volumes.len(), names.len(), "{what}");
    assert!(volumes.iter().all(|volume| volume["outcome"]["bytes"].as_u64() > Some(100 << 20)), "{what}: {report}");
}
