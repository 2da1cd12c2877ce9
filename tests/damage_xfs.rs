//! What must be refused on XFS, each made for real or by one changed field; and flipped bits.
#![allow(clippy::as_conversions, clippy::ptr_arg)] // a `Vec` is a `Source`, a slice behind a reference is not

mod common;
#[path = "common/damage.rs"]
mod damage;
#[path = "common/xfs.rs"]
mod images;
#[path = "common/kernel.rs"]
mod kernel;

use coldtrim_parsers::error::ErrorKind;
use coldtrim_parsers::source::Source;
use coldtrim_parsers::units::ByteRange;
use coldtrim_parsers::volume::Weight;
use coldtrim_parsers::witness::Testimony;
use common::{Rng, coldtrim, full, seed, tool_ok};
use damage::{assert_refused, assert_sound, cost, flip, format, refusal, terabyte, testimony, volume, words_of};
use images::{Fill, log_of, make, put_u32, seal, u32_at};
use kernel::{Loop, Mount, copy_of, live};
use std::path::Path;

/// The row under test.
const FORMAT: &str = "xfs";
const SUPERBLOCK_CRC: usize = 0xE0;
const AGF_CRC: usize = 0xD8;
const NODE_CRC: usize = 0x34;

fn image(kind: &str, kib: u64, fill: Fill) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = make(folder.path(), images::by_name(kind), kib, fill, &mut Rng(7));
    std::fs::read(path).expect("the image")
}

/// A sound volume of version 5 with trees of two levels: 1 KiB blocks, one group.
fn sound() -> Vec<u8> {
    image("1 KiB blocks", 20_001, Fill::Fragmented)
}

/// The same without any checksum.
fn bare() -> Vec<u8> {
    image("v4, 1 KiB blocks, small inodes", 20_001, Fill::Fragmented)
}

/// Changes the superblock and makes its checksum right again.
fn with_superblock(image: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut changed = image.to_vec();
    change(&mut changed);
    let sector = usize::from(u16::from_be_bytes([changed[0x66], changed[0x67]]));
    seal(&mut changed, 0, sector, SUPERBLOCK_CRC);
    changed
}

/// Sets a field of the AGF of group 0 and makes its checksum right again.
fn with_agf(image: &[u8], at: usize, change: impl FnOnce(u32) -> u32) -> Vec<u8> {
    let mut changed = image.to_vec();
    let value = change(u32_at(&changed, 512 + at));
    put_u32(&mut changed, 512 + at, value);
    seal(&mut changed, 512, 512, AGF_CRC);
    changed
}

/// Byte position of a node of group 0: the leftmost leaf of the tree whose root the AGF names at `root`.
fn leaf(image: &[u8], root: usize) -> usize {
    let block = u32_at(image, 4) as usize;
    let head = if image[0x65] & 0xF == 5 { 56 } else { 16 };
    let mut at = u32_at(image, 512 + root) as usize * block;
    while image[at + 5] > 0 {
        at = u32_at(image, at + head + (block - head) / 12 * 8) as usize * block;
    }
    at
}

#[test]
fn states_that_are_not_clean() {
    let sound = sound();
    assert_sound(&sound);
    let repair = with_superblock(&sound, |i| i[0xDB] |= 0x10);
    assert_refused(&repair, &["needsrepair", "xfs_repair DEVICE"]);
    assert_refused(&with_superblock(&sound, |i| i[0x7E] = 1), &["was not finished", "xfs_repair DEVICE"]);
}

#[test]
fn unknown_features_are_named() {
    let (sound, bare) = (sound(), bare());
    for (at, bit, words) in [
        (0xD8, 0x100, ["incompatible", "metadir, realtime groups"]),
        (0xD8, 0x200, ["incompatible", "zoned"]),
        (0xD8, 0x8000, ["incompatible", "unknown bit 0x8000"]),
        (0xD4, 0x10, ["read-only compatible", "unknown bit 0x10"]),
        (0xD0, 0x1, ["compatible", "unknown bit 0x1"]),
        (0xDC, 0x2, ["log features", "unknown bit 0x2"]),
        (0xC8, 0x10, ["second version", "parent (IRIX)"]),
    ] {
        let changed = with_superblock(&sound, |image| {
            let value = u32_at(image, at) | bit;
            put_u32(image, at, value);
        });
        assert_refused(&changed, &words);
        assert_eq!(volume(&changed).expect_err("an error").kind(), ErrorKind::Unsupported);
    }
    assert_refused(&with_superblock(&bare, |i| i[0x64] |= 2), &["version features", "shared"]);
    assert_refused(&with_superblock(&bare, |i| i[0x65] = i[0x65] & 0xF0 | 6), &["XFS of version 6"]);
    assert_refused(&with_superblock(&sound, |i| i[0x65] = i[0x65] & 0xF0 | 4), &["contradict each other"]);
}

#[test]
fn sizes_that_do_not_fit_together() {
    let bare = bare();
    assert_sound(&bare);
    for (at, value, words) in [
        (0x04, 3000, "block size"),
        (0x04, 2048, "log2 of the block size"),
        (0x54, 3, "blocks of a group"),
        (0x54, 4096, "number of blocks"),
        (0x58, 0, "number of groups"),
        (0x58, 2, "number of blocks"),
        (0x58, 0x0100_0001, "more than this program reads"),
        (0x60, 0, "blocks of the log"),
        (0x60, 0x00FF_FFFF, "start of the log"),
        (0x34, 1, "start of the log"),
    ] {
        let changed = with_superblock(&bare, |image| put_u32(image, at, value));
        assert_refused(&changed, &[words]);
    }
    assert_refused(&with_superblock(&bare, |i| i[0x7C] += 1), &["log2 of the blocks of a group"]);
}

#[test]
fn every_wrong_checksum_is_named() {
    let sound = sound();
    let damaged = |at: usize| {
        let mut image = sound.clone();
        image[at] ^= 0x10;
        image
    };
    assert_refused(&damaged(0x98), &["checksum of the superblock", "at byte 0"]);
    assert_refused(&damaged(512 + 0x60), &["checksum of the AGF of group 0", "at byte 512"]);
    assert_refused(&damaged(1024 + 0x28), &["checksum of the AGI of group 0", "at byte 1024"]);
    assert_refused(&damaged(1536 + 0x100), &["checksum of the AGFL of group 0", "at byte 1536"]);
    for (root, name) in [(0x10, "by block"), (0x14, "by size")] {
        let at = leaf(&sound, root);
        assert_refused(&damaged(at + 60), &["checksum of block", name, &format!("at byte {at}")]);
        let top = u32_at(&sound, 512 + root) as usize * 1024;
        assert_ne!(at, top, "the tree has two levels");
        assert_refused(&damaged(top + 60), &["checksum of block", name, &format!("at byte {top}")]);
    }
}

#[test]
fn counters_that_disagree() {
    for image in [sound(), bare()] {
        for (at, words) in [
            (0x34, "free blocks"),
            (0x38, "longest free extent"),
            (0x3C, "blocks of the trees of free extents"),
            (0x30, "number of blocks in the AGFL"),
            (0x0C, "length in the AGF"),
            (0x08, "number in the AGF"),
            (0x04, "version of the AGF"),
            (0x1C, "level"),
        ] {
            assert_refused(&with_agf(&image, at, |value| value + 1), &[words]);
        }
        assert_refused(&with_agf(&image, 0x10, |_| 0), &["root of the tree of free extents by block"]);
        assert_refused(&with_agf(&image, 0x14, |_| u32::MAX), &["root of the tree of free extents by size"]);
        assert_refused(&with_agf(&image, 0x20, |_| 0), &["levels of the tree of free extents by size"]);
        assert_refused(&with_agf(&image, 0x28, |_| 500), &["first slot of the AGFL"]);
        // The sum in the superblock may lag: a remark, no refusal.
        let lagging = with_superblock(&image, |i| i[0x97] ^= 1);
        let volume = volume(&lagging).expect("readable");
        assert_eq!(volume.free, assert_sound(&image).free);
        assert!(volume.findings.iter().all(|f| f.weight == Weight::Warning) && volume.findings.len() == 1);
    }
}

#[test]
fn trees_that_contradict() {
    for image in [sound(), bare()] {
        let head = if image[0x65] & 0xF == 5 { 56 } else { 16 };
        let changed = |root: usize, at: usize, change: fn(u32) -> u32| {
            let mut changed = image.clone();
            let leaf = leaf(&image, root);
            let value = change(u32_at(&changed, leaf + at));
            put_u32(&mut changed, leaf + at, value);
            seal(&mut changed, leaf, 1024, NODE_CRC);
            changed
        };
        // The second record: the first one is repeated by its parent.
        assert_refused(&changed(0x10, head + 8, |first| first - 1), &["free extent"]);
        assert_refused(&changed(0x14, head + 8, |first| first - 1), &["two trees of free extents differ"]);
        assert_refused(&changed(0x10, head + 12, |_| 0), &["a free extent", "not empty"]);
        assert_refused(&changed(0x10, head + 12, |_| 0x00FF_FFFF), &["a free extent"]);
        assert_refused(&changed(0x10, head, |first| first + 1), &["as its parent says"]);
        assert_refused(&changed(0x10, 8, |_| 5), &["left neighbour"]);
        assert_refused(&changed(0x10, 12, |_| 5), &["right neighbour"]);
        assert_refused(&changed(0x10, 4, |word| word & 0xFFFF_0000), &["number of records"]);
        assert_refused(&changed(0x10, 4, |word| word | 0xFFF0), &["number of records"]);
        assert_refused(&changed(0x10, 0, |_| 0x4142_5458), &["magic"]);
        // A free list that names a block which the trees call free.
        let free = u32_at(&image, leaf(&image, 0x10) + head);
        let slot = 1536 + if head == 56 { 36 } else { 0 } + 4 * u32_at(&image, 512 + 0x28) as usize;
        let mut twice = image.clone();
        put_u32(&mut twice, slot, free);
        seal(&mut twice, 1536, 512, 0x20);
        assert_refused(&twice, &["a block of the free list", "free in the allocation map"]);
    }
}

#[test]
fn blocks_of_another_volume() {
    let sound = sound();
    let mut other = sound.clone();
    let at = leaf(&sound, 0x10);
    other[at + 0x20] ^= 1;
    seal(&mut other, at, 1024, NODE_CRC);
    assert_refused(&other, &["belongs to another volume"]);
    other = sound.clone();
    other[512 + 0x40] ^= 1;
    seal(&mut other, 512, 512, AGF_CRC);
    assert_refused(&other, &["the AGF of group 0 belongs to another volume"]);
    let moved = |field: usize| {
        let mut image = sound.clone();
        image[at + field] ^= 1;
        seal(&mut image, at, 1024, NODE_CRC);
        image
    };
    assert_refused(&moved(0x17), &["own place"]);
    assert_refused(&moved(0x33), &["owner"]);
}

#[test]
fn the_log_is_asked() {
    for image in [sound(), bare()] {
        let log = log_of(&image);
        let at = log.start;
        let changed = |offset: usize, value: u8| {
            let mut image = image.clone();
            image[at + offset] = value;
            image
        };
        let place = format!("at byte {at}");
        assert_refused(&changed(512 + 9, 0), &["not that of an unmounted volume", &place, "mount it once"]);
        assert_refused(&changed(0x2B, 2), &["not the one that unmounting writes"]);
        assert_refused(&changed(0x130, image[at + 0x130] ^ 1), &["belongs to another volume"]);
        assert_refused(&changed(0x0E, 8), &["does not end at its head"]);
        // Something newer behind the head: a record that arrived out of order. Where the search for the head meets it,
        // the head seems to lie behind it, and no record ends there.
        let cycle = image[at + 7];
        let mut behind = 0;
        for block in 3..60 {
            let words = refusal(&changed(block * 512 + 3, cycle)).expect("a refusal");
            assert!(words.contains("not that of an unmounted volume"), "{words}");
            behind += u32::from(words.contains("records lie behind its head"));
        }
        assert!(behind > 40, "{behind}");
        let mut empty = image.clone();
        empty[log].fill(0);
        assert_refused(&empty, &["it is empty"]);
    }
}

/// Every structure names the place in the log of the change that wrote it last: the log's end at most.
#[test]
fn nothing_is_newer_than_the_log() {
    let sound = sound();
    let (log, node) = (log_of(&sound).start, leaf(&sound, 0x10));
    let cycle = u64::from(u32_at(&sound, log + 4));
    // The one record of this log fills two blocks.
    let end = cycle << 32 | 2;
    for (start, len, at, crc, name) in [
        (0, 512, 0xF0, SUPERBLOCK_CRC, "the superblock"),
        (512, 512, 0xD0, AGF_CRC, "the AGF of group 0"),
        (1024, 512, 0x140, 0x138, "the AGI of group 0"),
        (1536, 512, 0x18, 0x20, "the AGFL of group 0"),
        (node, 1024, 0x18, NODE_CRC, "a node of the free extents by block"),
        (leaf(&sound, 0x14), 1024, 0x18, NODE_CRC, "a node of the free extents by size"),
    ] {
        let written = |place: u64| {
            let mut changed = sound.clone();
            changed[start + at..start + at + 8].copy_from_slice(&place.to_be_bytes());
            seal(&mut changed, start, len, crc);
            changed
        };
        for place in [0, end, u64::MAX] {
            assert_sound(&written(place));
        }
        for (place, words) in [(end + 1, format!("{cycle}:3")), ((cycle + 1) << 32, format!("{}:0", cycle + 1))] {
            let ends = format!("the log ends at {cycle}:2");
            assert_refused(&written(place), &[name, &words, &ends, &format!("at byte {start}")]);
        }
    }
}

#[test]
fn an_external_log_must_be_given() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kind = images::Kind { name: "", options: "-l logdev=LOG,size=12m", kib: 30_001, mounts: false };
    let path = make(folder.path(), &kind, kind.kib, Fill::Empty, &mut Rng(3));
    let (image, log) = (std::fs::read(path).expect("the image"), folder.path().join("log"));
    let log = std::fs::read(log).expect("the log");
    assert_refused(&image, &["on another device, whose state was not seen", "logdev="]);
    let with = |companions: &[&dyn Source]| format().read(&image, companions);
    let clean = with(&[&bare(), &log]).expect("readable");
    assert!(clean.is_usable() && clean.free.bytes() > 1 << 20, "{:?}", clean.findings);
    let two = words_of(with(&[&log, &log])).expect("a refusal");
    assert!(two.contains("2 devices look like"), "{two}");
    let mut dirty = log.clone();
    dirty[512 + 9] = 0;
    let unclean = words_of(with(&[&dirty])).expect("a refusal");
    assert!(unclean.contains("not that of an unmounted volume"), "{unclean}");
    let mut foreign = log.clone();
    foreign[0x130] ^= 1;
    assert!(words_of(with(&[&foreign])).expect("a refusal").contains("was not seen"));
    // The log device itself: recognised, and nothing on it is free.
    assert!(format().probe(&log).expect("readable"));
    let volume = volume(&log).expect("readable");
    assert_eq!((volume.format.as_str(), volume.free.bytes()), ("xfs_external_log", 0));
}

#[test]
fn realtime_devices_are_mentioned() {
    let volume = volume(&image("realtime device", 40_001, Fill::Fragmented)).expect("readable");
    assert!(volume.is_usable() && volume.free.bytes() > 0);
    assert!(volume.findings.iter().any(|finding| finding.message.contains("realtime device")));
}

#[test]
fn the_witnesses_agree_on_sound_volumes() {
    let mut rng = Rng(seed("the_witnesses_agree_on_sound_volumes"));
    let mut heard_owners = 0;
    for kind in images::KINDS.iter().filter(|kind| full() || kind.name == "owners" || rng.next().is_multiple_of(4)) {
        let words = testimony(&image(kind.name, kind.kib, Fill::Fragmented));
        assert!(
            matches!(&words[0], Testimony::Agrees { witness, owners, extents }
                if witness == "xfs-walk" && *owners > 60 && *extents > 60),
            "{}: {words:?}",
            kind.name
        );
        match &words[1] {
            Testimony::Agrees { owners, .. } => {
                heard_owners += 1;
                assert!(*owners > 60, "{}: {words:?}", kind.name);
            }
            Testimony::Absent { reason, .. } => assert!(reason.contains("no tree of owners"), "{reason}"),
            clash @ Testimony::Clash { .. } => panic!("{}: {clash:?}", kind.name),
        }
    }
    assert!(heard_owners > 0);
}

/// Makes the longest free extent one block longer at its start, in every place that tells of it.
fn lengthen(image: &mut [u8]) -> usize {
    let head = if image[0x65] & 0xF == 5 { 56 } else { 16 };
    let block = u32_at(image, 4) as usize;
    let longest = u32_at(image, 512 + 0x38);
    let mut first = 0;
    for root in [0x10, 0x14] {
        let leaf = leaf(image, root);
        let records = usize::from(image[leaf + 7]) | usize::from(image[leaf + 6]) << 8;
        let mut found = (0..records).map(|k| leaf + head + 8 * k).filter(|at| u32_at(image, at + 4) == longest);
        let at = found.next().expect("the longest extent in the only leaf");
        first = u32_at(image, at) - 1;
        put_u32(image, at, first);
        put_u32(image, at + 4, longest + 1);
        seal(image, leaf, block, NODE_CRC);
    }
    for field in [0x34, 0x38] {
        let value = u32_at(image, 512 + field) + 1;
        put_u32(image, 512 + field, value);
    }
    seal(image, 512, 512, AGF_CRC);
    first as usize * block
}

#[test]
fn the_witnesses_convict_and_name_the_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let list = folder.path().join("list");
    let (path, source) = (folder.path().join("image"), folder.path().join("source"));
    std::fs::write(&source, [5; 30_000]).expect("a file");
    let name = source.display();
    let text = format!("/dev/null\n0 0\nd--755 0 0\nd d--755 0 0\ne d--755 0 0\nprecious ---644 0 0 {name}\n$\n$\n$\n");
    std::fs::write(&list, text).expect("a list of files");
    for options in ["-m rmapbt=1", "-m crc=0 -b size=1024"] {
        std::fs::File::create(&path).and_then(|file| file.set_len(30 << 20)).expect("an image file");
        let mut args = vec!["--unsupported", "-q", "-f", "-p", list.to_str().expect("UTF-8")];
        args.extend(options.split(' '));
        args.push(path.to_str().expect("UTF-8"));
        tool_ok("mkfs.xfs", &args);
        let mut image = std::fs::read(&path).expect("the image");
        let at = lengthen(&mut image) as u64;
        let range = ByteRange::with_len(at, u32_at(&image, 4).into()).expect("a block");
        assert_eq!(refusal(&image), None, "the map alone cannot tell");
        let words = testimony(&image);
        let convicts = |word: &Testimony| {
            matches!(word, Testimony::Clash { owner, range: found, .. }
                if owner.starts_with("/d/e/precious (inode ") && *found == range)
        };
        assert!(convicts(&words[0]), "{words:?}");
        assert_eq!(convicts(&words[1]), options.contains("rmapbt"), "{words:?}");
    }
}

/// One bit in how many is flipped in a byte. Of the log only the two words that can hold a cycle, and the last record, are
/// looked at; of the rest, 2 MiB, a sample must do.
fn one_in(image: &[u8]) -> impl Fn(u64) -> u64 + use<> {
    let log = log_of(image);
    move |byte| {
        let byte = byte as usize;
        let is_cycle = byte % 512 < 8 || byte < log.start + 1024;
        match (log.contains(&byte), is_cycle, full()) {
            (true, false, true) => 10_000,
            (_, _, true) => 1,
            (true, false, false) => 300_000,
            (true, true, false) => 2_400,
            (false, _, false) => 300,
        }
    }
}

#[test]
fn flips_in_checksummed_metadata_never_free_a_used_block() {
    let mut rng = Rng(seed("flips_in_checksummed_metadata_never_free_a_used_block"));
    for (kind, kib) in [("1 KiB blocks", 20_001), ("owners", 20_001), ("log in the last group", 70_001)] {
        let mut image = image(kind, kib, Fill::Fragmented);
        let step = one_in(&image);
        let caught = flip(&mut image, step, &mut rng, false);
        println!("{kind}, {kib} KiB: {caught:?}");
        assert!(caught.by_errors > 50, "{caught:?}");
    }
}

/// Without checksums the second tree, the counters and the order of records speak.
#[test]
fn flips_without_checksums_are_caught_by_the_second_tree_and_the_counters() {
    let mut rng = Rng(seed("flips_without_checksums_are_caught_by_the_second_tree_and_the_counters"));
    for (kind, kib) in [("v4, 1 KiB blocks, small inodes", 20_001), ("v4, exact counters", 20_001)] {
        let mut image = image(kind, kib, Fill::Fragmented);
        let step = one_in(&image);
        let caught = flip(&mut image, step, &mut rng, false);
        println!("{kind}, {kib} KiB: {caught:?}");
        assert!(caught.by_errors > 20, "{caught:?}");
    }
}

/// Reading stays near the minimum: the headers of each group, its trees, and of the log what lies around its head, of
/// which the 2 MiB behind the head are the largest part.
#[test]
fn a_terabyte_costs_little() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = terabyte(folder.path());
    tool_ok("mkfs.xfs", &["-q", "-K", "-l", "size=64m", path.to_str().expect("a UTF-8 path")]);
    let (volume, read) = cost(&path);
    println!("1 TiB, nearly empty: {read} bytes read for {} free", volume.free.bytes());
    assert!(read < (2 << 20) + (256 << 10), "{read} bytes were read");
    assert!(volume.free.bytes() > (1 << 40) / 1000 * 995);
}

fn refused_by_the_program(image: &Path, what: &str) {
    let output = coldtrim(&["map", image.to_str().expect("a UTF-8 path")]);
    let words = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{what}: {words}");
    assert!(words.contains("not that of an unmounted volume"), "{what}: {words}");
}

/// The backing file copied while the volume is mounted, at several moments: what a crash or a pulled plug leaves.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_volume_copied_while_mounted_is_refused() {
    let mut rng = Rng(seed("root_a_volume_copied_while_mounted_is_refused"));
    for kind in ["default", "owners", "log stripes of 256 KiB"] {
        let kind = images::by_name(kind);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (place, copy) = (folder.path().join("mount"), folder.path().join("copy"));
        std::fs::create_dir(&place).expect("a mount point");
        let image = make(folder.path(), kind, kind.kib, Fill::Empty, &mut rng);
        {
            let device = Loop::new(&image);
            let _mount = Mount::new("xfs", &device.0, &place, "rw");
            let sync = || tool_ok("sync", &["-f", place.to_str().expect("a UTF-8 path")]);
            for (moment, round) in [("after a first round of files", 1), ("after a second one", 2)] {
                live(&place, kind.kib * 1024 / (3 * round), &mut rng);
                sync();
                tool_ok("sync", &[image.to_str().expect("a UTF-8 path")]);
                copy_of(&image, &copy);
                refused_by_the_program(&copy, &format!("{}, {moment}", kind.name));
            }
        }
        // Unmounted, it is sound again; so is the last copy once its log was replayed.
        assert!(coldtrim(&["map", image.to_str().expect("UTF-8")]).status.success(), "{}: unmounted", kind.name);
        {
            let device = Loop::new(&copy);
            let _mount = Mount::new("xfs", &device.0, &place, "rw");
        }
        assert!(coldtrim(&["map", copy.to_str().expect("UTF-8")]).status.success(), "{}: replayed", kind.name);
    }
}
