//! What must be refused on ext2, ext3 and ext4, each made for real or by one changed field; and flipped bits.
#![allow(clippy::as_conversions, clippy::ptr_arg)] // a `Vec` is a `Source`, a slice behind a reference is not

mod common;
#[path = "common/damage.rs"]
mod damage;
#[path = "common/ext4.rs"]
mod images;
#[path = "common/kernel.rs"]
mod kernel;

use coldtrim_parsers::error::ErrorKind;
use coldtrim_parsers::source::Source;
use coldtrim_parsers::units::ByteRange;
use coldtrim_parsers::volume::Weight;
use coldtrim_parsers::witness::{Recording, Testimony};
use common::{Rng, coldtrim, crc32c, full, seed, tool_ok};
use damage::{assert_refused, assert_sound, cost, flip, format, refusal, terabyte, testimony, volume};
use images::{Fill, make, put_u32, seal_superblock, u32_at};
use kernel::{Loop, Mount};

/// The row under test.
const FORMAT: &str = "ext4";
const SUPERBLOCK: usize = 1024;
const STATE: usize = SUPERBLOCK + 0x3A;
const COMPAT: usize = SUPERBLOCK + 0x5C;
const INCOMPAT: usize = SUPERBLOCK + 0x60;
const RO_COMPAT: usize = SUPERBLOCK + 0x64;

fn image(kind: &str, kib: u64, fill: Fill) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = make(folder.path(), images::by_name(kind), kib, fill, &mut Rng(7));
    std::fs::read(path).expect("the image")
}

/// A sound image with metadata checksums and a journal, 1 KiB blocks.
fn sound() -> Vec<u8> {
    image("checksum seed", 20_003, Fill::Fragmented)
}

/// A sound image without any checksum or journal.
fn bare() -> Vec<u8> {
    image("ext2, 1 KiB, 128-byte inodes", 9_011, Fill::Fragmented)
}

/// Changes the superblock and makes its checksum right again.
fn with_superblock(image: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut changed = image.to_vec();
    change(&mut changed);
    seal_superblock(&mut changed);
    changed
}

fn or_u32(image: &mut [u8], at: usize, bits: u32) {
    let value = u32_at(image, at) | bits;
    put_u32(image, at, value);
}

#[test]
fn states_that_are_not_clean() {
    let sound = sound();
    assert_sound(&sound);
    let state = |value: u8| with_superblock(&sound, |image| image[STATE] = value);
    assert_refused(&state(0), &["not cleanly unmounted", "e2fsck -f DEVICE"]);
    assert_refused(&state(3), &["found errors", "e2fsck -f DEVICE"]);
    assert_refused(&state(5), &["deleted files wait"]);
    assert_refused(&state(0x21), &["unknown bits 0x20"]);
    assert_refused(&with_superblock(&sound, |i| put_u32(i, SUPERBLOCK + 0x194, 3)), &["recorded 3 errors"]);
    assert_refused(&with_superblock(&sound, |i| put_u32(i, SUPERBLOCK + 0xE8, 12)), &["first orphan: inode 12"]);
    assert_refused(&with_superblock(&sound, |i| or_u32(i, INCOMPAT, 4)), &["needs recovery", "e2fsck -f DEVICE"]);
    assert_refused(&with_superblock(&sound, |i| or_u32(i, RO_COMPAT, 0x1_0000)), &["deleted files wait"]);
}

#[test]
fn unknown_features_are_named() {
    let sound = sound();
    for (at, bit, words) in [
        (INCOMPAT, 0x1, ["incompatible", "compression"]),
        (INCOMPAT, 0x8_0000, ["incompatible", "unknown bit 0x80000"]),
        (INCOMPAT, 0x20, ["incompatible", "unknown bit 0x20"]),
        (RO_COMPAT, 0x80, ["read-only compatible", "has_snapshot"]),
        (RO_COMPAT, 0x800, ["read-only compatible", "replica"]),
        (RO_COMPAT, 0x4000_0000, ["read-only compatible", "unknown bit 0x40000000"]),
        (COMPAT, 0x100, ["compatible", "exclude_bitmap"]),
        (COMPAT, 0x2000, ["compatible", "unknown bit 0x2000"]),
    ] {
        let changed = with_superblock(&sound, |image| or_u32(image, at, bit));
        assert_refused(&changed, &words);
        assert_eq!(volume(&changed).expect_err("an error").kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn revisions_and_checksum_types() {
    let sound = sound();
    assert_refused(&with_superblock(&sound, |i| put_u32(i, SUPERBLOCK + 0x4C, 0)), &["revision 0"]);
    assert_refused(&with_superblock(&sound, |i| put_u32(i, SUPERBLOCK + 0x4C, 2)), &["revision 2"]);
    assert_refused(&with_superblock(&sound, |i| i[SUPERBLOCK + 0x175] = 2), &["checksums of type 2"]);
}

#[test]
fn sizes_that_do_not_fit_together() {
    let bare = bare();
    assert_sound(&bare);
    for (at, value, words) in [
        (0x18, 7, "block size"),
        (0x14, 0, "first data block"),
        (0x1C, 3, "cluster size"),
        (0x20, 8000, "blocks per group"),
        (0x24, 8190, "clusters per group"),
        (0x28, 0, "inodes per group"),
        (0x28, 9000, "inodes per group"),
        (0x00, 4711, "inode count"),
        (0x04, 1, "block count"),
        (0x58, 100, "inode size"),
        (0x58, 2048, "inode size"),
    ] {
        let mut changed = bare.clone();
        changed[SUPERBLOCK + at..SUPERBLOCK + at + 2].copy_from_slice(&(value as u16).to_le_bytes());
        assert_refused(&changed, &[words]);
    }
}

/// Byte positions of the parts of a sound image with metadata checksums and 64-byte descriptors.
struct Places {
    descriptors: usize,
    block_bitmap: usize,
    inode_table: usize,
}

fn places(image: &[u8]) -> Places {
    let block = 1024 << u32_at(image, SUPERBLOCK + 0x18);
    let descriptors = if block == 1024 { 2048 } else { block };
    Places {
        descriptors,
        block_bitmap: u32_at(image, descriptors) as usize * block,
        inode_table: u32_at(image, descriptors + 8) as usize * block,
    }
}

#[test]
fn every_wrong_checksum_is_named() {
    let sound = sound();
    let places = places(&sound);
    let damaged = |at: usize| {
        let mut image = sound.clone();
        image[at] ^= 0x10;
        image
    };
    assert_refused(&damaged(SUPERBLOCK + 0x88), &["superblock checksum", "at byte 1024"]);
    assert_refused(&damaged(places.descriptors + 64 + 3), &["checksum of the descriptor of group 1"]);
    let bitmap = damaged(places.block_bitmap + 1000);
    assert_refused(&bitmap, &["checksum of the block bitmap of group 0", &format!("at byte {}", places.block_bitmap)]);
    let inode_size = usize::from(u16::from_le_bytes([sound[SUPERBLOCK + 0x58], sound[SUPERBLOCK + 0x59]]));
    assert_refused(&damaged(places.inode_table + 7 * inode_size + 0x10), &["checksum of inode 8"]);
    assert_refused(&damaged(places.inode_table + inode_size + 0x10), &["checksum of inode 2"]);
}

#[test]
fn crc16_of_descriptors_is_checked() {
    for kind in ["crc16, 32-byte descriptors", "crc16, 64-byte descriptors"] {
        let mut image = image(kind, 30_001, Fill::Fragmented);
        assert_sound(&image);
        image[2048 + 13] ^= 1;
        assert_refused(&image, &["checksum of the descriptor of group 0"]);
    }
}

fn journal_at(image: &[u8]) -> usize {
    let magic = [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4];
    (0..image.len()).step_by(1024).find(|at| image[*at..].starts_with(&magic)).expect("a journal superblock")
}

fn seal_journal(image: &mut [u8], at: usize) {
    if image[at + 0x2B] & 0x18 != 0 {
        image[at + 0xFC..at + 0x100].fill(0);
        let sum = crc32c(!0, &image[at..at + 1024]);
        image[at + 0xFC..at + 0x100].copy_from_slice(&sum.to_be_bytes());
    }
}

#[test]
fn the_journal_itself_is_asked() {
    let sound = sound();
    let at = journal_at(&sound);
    let changed = |offset: usize, value: u8| {
        let mut image = sound.clone();
        image[at + offset] = value;
        seal_journal(&mut image, at);
        image
    };
    let begun = ["log begins at block 1", &format!("at byte {at}"), "e2fsck -f DEVICE"];
    assert_refused(&changed(0x1F, 1), &begun);
    assert_refused(&changed(0x23, 5), &["given up after an error", "0x5"]);
    assert_refused(&changed(0x0E, 8), &["block size of the journal"]);
    assert_refused(&changed(0x28, 0x80), &["unknown features of the journal", "0x80000000"]);
    assert_refused(&changed(0x00, 0), &["magic of the journal"]);
    assert_refused(&changed(0x07, 9), &["version of the journal"]);
    let nowhere = with_superblock(&sound, |image| put_u32(image, SUPERBLOCK + 0xE0, 0));
    assert_refused(&nowhere, &["neither which inode nor which device"]);
    let twice = with_superblock(&sound, |image| put_u32(image, SUPERBLOCK + 0xE4, 5));
    assert_refused(&twice, &["both inode 8 and another device"]);
    let undeclared = with_superblock(&sound, |image| image[COMPAT] &= !4);
    assert_refused(&undeclared, &["feature bits say that it has none"]);
}

#[test]
fn a_wrong_checksum_of_the_journal() {
    // mke2fs makes journals without checksums; the kernel turns them on when it mounts. So they are turned on here.
    let mut image = sound();
    let at = journal_at(&image);
    image[at + 0x2B] |= 0x10;
    image[at + 0x50] = 4;
    assert_refused(&image, &["checksum of the journal's superblock"]);
    seal_journal(&mut image, at);
    assert_sound(&image);
}

#[test]
fn multi_mount_protection() {
    let sound = image("mmp", 20_001, Fill::Fragmented);
    assert_sound(&sound);
    let at = u32_at(&sound, SUPERBLOCK + 0x168) as usize * 1024;
    let sequence = |value: u32| {
        let mut image = sound.clone();
        put_u32(&mut image, at + 4, value);
        image[at + 16..at + 27].copy_from_slice(b"blue\x1b[31m\0\0");
        let seed = crc32c(!0, &sound[SUPERBLOCK + 0x68..SUPERBLOCK + 0x78]);
        let sum = crc32c(seed, &image[at..at + 1020]);
        put_u32(&mut image, at + 1020, sum);
        image
    };
    assert_sound(&sequence(0xFF4D_4D50));
    assert_refused(&sequence(0xE24D_4D50), &["a check of the volume runs", "clear_mmp"]);
    assert_refused(&sequence(0x0000_0011), &["in use on host blue?[31m", "0x11"]);
    let mut wrong = sequence(0xFF4D_4D50);
    wrong[at + 8] ^= 1;
    assert_refused(&wrong, &["checksum of the multi-mount protection block"]);
    wrong[at] ^= 1;
    assert_refused(&wrong, &["magic of the multi-mount protection block"]);
    let outside = with_superblock(&sound, |image| put_u32(image, SUPERBLOCK + 0x168, 0x00FF_FFFF));
    assert_refused(&outside, &["multi-mount protection block: expected a block inside"]);
}

#[test]
fn counters_that_disagree() {
    let bare = bare();
    let mut changed = bare.clone();
    changed[2048 + 12] ^= 1;
    assert_refused(&changed, &["group 0 has", "its descriptor says"]);
    // The sum in the superblock may lag: a remark, no refusal.
    let mut lagging = bare.clone();
    let free = u32_at(&bare, SUPERBLOCK + 0x0C) + 3;
    put_u32(&mut lagging, SUPERBLOCK + 0x0C, free);
    let volume = volume(&lagging).expect("readable");
    assert_eq!(volume.free, assert_sound(&bare).free);
    assert!(volume.findings.iter().all(|finding| finding.weight == Weight::Warning) && volume.findings.len() == 1);
}

/// Clears the bit of a block of group 0 and counts it as free, so that only its content can tell.
fn free_block(image: &mut [u8], block: usize) {
    let places = places(image);
    let bit = block - 1;
    assert!(image[places.block_bitmap + bit / 8] & (1 << (bit % 8)) != 0, "block {block} is used");
    image[places.block_bitmap + bit / 8] &= !(1 << (bit % 8));
    let count = u16::from_le_bytes([image[places.descriptors + 12], image[places.descriptors + 13]]) + 1;
    image[places.descriptors + 12..places.descriptors + 14].copy_from_slice(&count.to_le_bytes());
}

#[test]
fn metadata_that_the_bitmap_calls_free() {
    let bare = bare();
    let places = places(&bare);
    let root = {
        let inode = places.inode_table + 128;
        u32_at(&bare, inode + 0x28) as usize
    };
    for (block, what) in [
        (1, "superblock"),
        (2, "group descriptors"),
        (3, "reserved descriptor blocks"),
        (places.block_bitmap / 1024, "block bitmap"),
        (u32_at(&bare, places.descriptors + 4) as usize, "inode bitmap"),
        (places.inode_table / 1024 + 1, "inode table"),
        (root, "root directory"),
    ] {
        let mut changed = bare.clone();
        free_block(&mut changed, block);
        assert_refused(&changed, &[what, "free in the allocation map"]);
    }
}

#[test]
fn descriptors_that_point_elsewhere() {
    let bare = bare();
    let mut outside = bare.clone();
    put_u32(&mut outside, 2048 + 8, 0x00FF_0000);
    assert_refused(&outside, &["inode table of group 0", "expected inside blocks"]);
    let mut twice = bare.clone();
    let bitmap = u32_at(&bare, 2048);
    put_u32(&mut twice, 2048 + 4, bitmap);
    assert_refused(&twice, &["block bitmap as well"]);
    let mut uninit = bare;
    uninit[2048 + 0x12] |= 2;
    assert_refused(&uninit, &["marked as never written"]);
}

#[test]
fn garbage_in_bitmaps_that_were_never_written() {
    for kind in ["crc16, 32-byte descriptors", "metadata_csum, 32-byte descriptors", "meta_bg, crc16, no flex_bg"] {
        let kind_row = images::by_name(kind);
        let sound = image(kind, kind_row.kib, Fill::Empty);
        let expected = assert_sound(&sound);
        let mut garbage = sound.clone();
        let size = if u32_at(&sound, INCOMPAT) & 0x80 != 0 { 64 } else { 32 };
        let mut overwritten = 0;
        // Only the first descriptor block: enough groups, and in its place with and without meta_bg.
        for descriptor in (2048..3072).step_by(size) {
            let bitmap = u32_at(&sound, descriptor) as usize;
            if bitmap != 0 && sound[descriptor + 0x12] & 2 != 0 {
                garbage[bitmap * 1024..(bitmap + 1) * 1024].fill(0xA5);
                overwritten += 1;
            }
        }
        assert!(overwritten > 0, "{kind}: a group whose bitmap was never written");
        assert_eq!(assert_sound(&garbage).free, expected.free, "{kind}");
    }
}

#[test]
fn a_filesystem_that_is_larger_than_its_device() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("image");
    let mut image = sound();
    image.truncate(image.len() - 4096);
    std::fs::write(&path, &image).expect("an image");
    let output = coldtrim(&["map", "--format", "ranges", path.to_str().expect("a UTF-8 path")]);
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.is_empty());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("spans"), "{words}");
}

/// An image whose journal is another image, joined by hand: mke2fs joins block devices only.
fn with_external_journal() -> (Vec<u8>, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("journal");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(4 << 20).expect("room");
    tool_ok("mke2fs", &["-q", "-F", "-O", "journal_dev", "-b", "1024", path.to_str().expect("a UTF-8 path")]);
    let mut journal = std::fs::read(&path).expect("the journal");
    let mut volume = image("ext2, 1 KiB, 128-byte inodes", 9_011, Fill::Fragmented);
    or_u32(&mut volume, COMPAT, 4);
    let uuid = journal[SUPERBLOCK + 0x68..SUPERBLOCK + 0x78].to_vec();
    volume[SUPERBLOCK + 0xD0..SUPERBLOCK + 0xE0].copy_from_slice(&uuid);
    journal[2048 + 0x43] = 1;
    journal[2048 + 0x100..2048 + 0x110].copy_from_slice(&volume[SUPERBLOCK + 0x68..SUPERBLOCK + 0x78]);
    (volume, journal)
}

#[test]
fn an_external_journal_is_read_or_asked_for() {
    let (image, journal) = with_external_journal();
    assert_refused(&image, &["on another device (UUID ", "name both: DEVICE UUID="]);
    let other = sound();
    let companions: [&dyn Source; 2] = [&other, &journal];
    let both = |image: &Vec<u8>, journal: &Vec<u8>| {
        let companions: [&dyn Source; 2] = [&companions[0], journal];
        format().read(image, &companions).expect("readable")
    };
    let read = both(&image, &journal);
    assert_eq!((read.findings.as_slice(), read.format.as_str()), ([].as_slice(), "ext3"));
    assert!(read.free.bytes() > 0);
    let refused = |at: usize, value: u8, words: &str| {
        let mut changed = journal.clone();
        changed[2048 + at] = value;
        let volume = both(&image, &changed);
        assert!(!volume.is_usable() && volume.free.ranges().is_empty());
        assert!(volume.findings[0].message.contains(words), "{:?}", volume.findings);
    };
    refused(0x1F, 9, "log begins at block 9");
    refused(0x101, journal[2048 + 0x101] ^ 1, "owner of the journal");
    refused(0x00, 0, "magic of the journal");
    let twice: [&dyn Source; 2] = [&journal, &journal];
    assert!(!format().read(&image, &twice).expect("readable").is_usable());
    // The journal device as a target of its own: nothing on it is free, and that is no refusal.
    let alone = format().read(&journal, &[]).expect("readable");
    assert_eq!((alone.format.as_str(), alone.free.ranges()), ("jbd", [].as_slice()));
    assert!(alone.is_usable());
}

#[test]
fn the_witnesses_agree_on_sound_volumes() {
    let mut rng = Rng(seed("the_witnesses_agree_on_sound_volumes"));
    let mut heard_crate = 0;
    for kind in images::KINDS.iter().filter(|_| full() || rng.next().is_multiple_of(3)) {
        let image = image(kind.name, kind.kib, Fill::Fragmented);
        let words = testimony(&image);
        assert!(
            matches!(&words[0], Testimony::Agrees { witness, owners, extents }
                if witness == "ext4-walk" && *owners > 5 && *extents > 5),
            "{}: {words:?}",
            kind.name
        );
        assert!(!matches!(words[1], Testimony::Clash { .. }), "{}: {words:?}", kind.name);
        heard_crate += usize::from(matches!(words[1], Testimony::Agrees { .. }));
    }
    println!("the crate ext4 could read {heard_crate} of them");
}

/// The first data block of a file, by debugfs.
fn first_block(image: &Vec<u8>, path: &str) -> usize {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("image");
    std::fs::write(&file, image).expect("an image");
    let text = tool_ok("debugfs", &["-R", &format!("blocks {path}"), file.to_str().expect("a UTF-8 path")]);
    text.split_whitespace().next().and_then(|block| block.parse().ok()).expect("a block")
}

#[test]
fn the_witness_convicts_and_names_the_file() {
    // Without checksums a bitmap can be made wrong and consistent; only the files can tell.
    let mut image = image("32-bit, no checksums", 8_001, Fill::Empty);
    {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (path, source) = (folder.path().join("image"), folder.path().join("source"));
        std::fs::write(&path, &image).expect("an image");
        std::fs::write(&source, [5; 30_000]).expect("a file");
        let commands = format!("mkdir d\nmkdir d/e\nwrite {} d/e/precious\n", source.display());
        images::debugfs(folder.path(), path.to_str().expect("a UTF-8 path"), &commands);
        image = std::fs::read(&path).expect("the image");
    }
    let block = first_block(&image, "d/e/precious");
    free_block(&mut image, block);
    assert!(refusal(&image).is_none(), "the map alone cannot tell");
    let words = testimony(&image);
    let range = ByteRange::with_len(block as u64 * 1024, 1024).expect("a block");
    assert!(
        matches!(&words[0], Testimony::Clash { owner, range: found, .. }
            if owner.starts_with("/d/e/precious (inode ") && *found == range),
        "{words:?}"
    );
    assert!(matches!(&words[1], Testimony::Clash { range: found, .. } if *found == range), "{words:?}");
}

/// The walk costs the inode tables in use and the index blocks, and no content.
#[test]
fn the_walk_reads_no_content() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tree = folder.path().join("tree");
    for number in 0..4_000 {
        let place = tree.join(format!("{}", number % 40));
        std::fs::create_dir_all(&place).expect("a folder");
        std::fs::write(place.join(format!("f{number}")), vec![1; 9_000 + number]).expect("a file");
    }
    let path = folder.path().join("image");
    let text = path.to_str().expect("a UTF-8 path");
    std::fs::File::create(&path).and_then(|file| file.set_len(120 << 20)).expect("a file");
    tool_ok("mkfs.ext4", &["-q", "-F", "-t", "ext3", "-d", tree.to_str().expect("a UTF-8 path"), text]);
    let image = std::fs::read(&path).expect("the image");
    let free = assert_sound(&image).free;
    let recording = Recording::new(&image, u64::MAX);
    let begun = std::time::Instant::now();
    let words = coldtrim_parsers::witness::hear(format().witnesses()[0], &recording, &free);
    let read: u64 = recording.take().iter().map(|range| range.len()).sum();
    println!("{words:?} by reading {read} bytes in {:?}", begun.elapsed());
    assert!(matches!(words, Testimony::Agrees { owners, extents, .. } if owners > 4_000 && extents > 4_000));
    assert!(read < 4_500 * 256 + (8 << 20), "{read} bytes were read");
}

#[test]
fn flips_in_checksummed_metadata_never_free_a_used_block() {
    let mut rng = Rng(seed("flips_in_checksummed_metadata_never_free_a_used_block"));
    let step = |_| if full() { 1 } else { 40 };
    for (kind, kib) in [("tiny", 300), ("metadata_csum, 32-byte descriptors", 2_500), ("checksum seed", 9_001)] {
        let mut image = image(kind, kib, Fill::Fragmented);
        let caught = flip(&mut image, step, &mut rng, false);
        println!("{kind}, {kib} KiB: {caught:?}");
        assert!(caught.by_errors > 20, "{caught:?}");
    }
}

#[test]
fn flips_without_checksums_are_caught_by_counters_or_harmless() {
    let mut rng = Rng(seed("flips_without_checksums_are_caught_by_counters_or_harmless"));
    let step = |_| if full() { 1 } else { 40 };
    for (kind, kib) in [("ext2, 1 KiB, 128-byte inodes", 2_011), ("crc16, 32-byte descriptors", 9_001)] {
        let mut image = image(kind, kib, Fill::Fragmented);
        let caught = flip(&mut image, step, &mut rng, true);
        println!("{kind}, {kib} KiB: {caught:?}");
        assert!(caught.by_errors > 20, "{caught:?}");
    }
}

/// Reading stays near the minimum. A fresh 1 TiB volume has 8192 groups: 0.5 MiB of descriptors, and one bitmap of
/// 4 KiB for each of the 512 flexible groups, whose first group holds the others' metadata.
#[test]
fn a_terabyte_costs_little() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = terabyte(folder.path());
    let text = path.to_str().expect("a UTF-8 path");
    tool_ok("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=1,nodiscard", "-J", "size=4", text]);
    let (volume, read) = cost(&path);
    println!("1 TiB, nearly all groups never written: {read} bytes read for {} free", volume.free.bytes());
    assert!(read < 3 << 20, "{read} bytes were read");
    assert!(volume.free.bytes() > (1 << 40) / 100 * 97);
}

/// A power cut: the backing file is copied while the kernel has the volume mounted and files are safely on it.
fn crash(kind: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = make(folder.path(), images::by_name(kind), 20_000, Fill::Empty, &mut Rng(3));
    let place = folder.path().join("mount");
    std::fs::create_dir(&place).expect("a mount point");
    let device = Loop::new(&path);
    let _mounted = Mount::new("ext4", &device.0, &place, "rw");
    for number in 0..20 {
        let file = std::fs::File::create(place.join(format!("f{number}"))).expect("a file");
        std::io::Write::write_all(&mut &file, &vec![number as u8; 100_000]).expect("room");
        file.sync_all().expect("fsync");
    }
    tool_ok("sync", &["-f", place.to_str().expect("a UTF-8 path")]);
    std::fs::read(&path).expect("the backing file")
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_crashed_volume_looks_clean_and_is_refused() {
    let mut image = crash("default");
    assert_eq!(image[STATE], 1, "the state field says clean");
    assert_refused(&image, &["needs recovery"]);
    // Even if the flag were lost, the journal itself tells.
    let flags = u32_at(&image, INCOMPAT) & !4;
    put_u32(&mut image, INCOMPAT, flags);
    seal_superblock(&mut image);
    assert_refused(&image, &["the journal (at byte", "is not empty"]);
    assert_refused(&crash("ext2"), &["not cleanly unmounted"]);
    assert_refused(&crash("no journal"), &["not cleanly unmounted"]);
    assert_refused(&crash("ext3"), &["needs recovery"]);
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_an_external_journal_made_by_the_tools() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (volume, journal) = (folder.path().join("volume"), folder.path().join("journal"));
    for (path, len) in [(&volume, 40 << 20), (&journal, 8 << 20)] {
        std::fs::File::create(path).and_then(|file| file.set_len(len)).expect("an image");
    }
    {
        let place = folder.path().join("mount");
        std::fs::create_dir(&place).expect("a mount point");
        let (first, second) = (Loop::new(&volume), Loop::new(&journal));
        tool_ok("mke2fs", &["-q", "-F", "-O", "journal_dev", "-b", "4096", &second.0]);
        tool_ok("mkfs.ext4", &["-q", "-F", "-b", "4096", "-J", &format!("device={}", second.0), &first.0]);
        let _mounted = Mount::new("ext4", &first.0, &place, "rw");
        std::fs::write(place.join("file"), [1; 500_000]).expect("room");
        tool_ok("sync", &["-f", place.to_str().expect("a UTF-8 path")]);
        let (volume, journal) = (std::fs::read(&volume).expect("it"), std::fs::read(&journal).expect("it"));
        assert!(!format().read(&volume, &[&journal]).expect("readable").is_usable(), "while it is mounted");
    }
    let (volume, journal) = (std::fs::read(&volume).expect("it"), std::fs::read(&journal).expect("it"));
    assert_refused(&volume, &["on another device"]);
    let read = format().read(&volume, &[&journal]).expect("readable");
    assert_eq!(read.findings, []);
    assert!(read.free.bytes() > 30 << 20);
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_volume_mounted_with_multi_mount_protection() {
    let image = crash("mmp");
    let mut image = image;
    let flags = u32_at(&image, INCOMPAT) & !4;
    put_u32(&mut image, INCOMPAT, flags);
    seal_superblock(&mut image);
    assert_refused(&image, &["multi-mount protection at byte", "in use on host"]);
}
