//! What must be refused on F2FS, each by one changed field; and flipped bits.
#![allow(clippy::as_conversions)]

mod common;
#[path = "common/f2fs.rs"]
mod images;

use coldtrim_parsers::error::ParseError;
use coldtrim_parsers::fs::{Format, by_name};
use coldtrim_parsers::units::ByteRange;
use coldtrim_parsers::volume::{Volume, Weight};
use coldtrim_parsers::witness::{Recording, Testimony, hear};
use common::{Rng, full, seed};
use images::{Fill, crc32, make, put_u32, u32_at};

const MAGIC: u32 = 0xF2F5_2010;
const SUPERBLOCKS: [usize; 2] = [1024, 4096 + 1024];

fn format() -> &'static dyn Format {
    by_name("f2fs").expect("the row f2fs")
}

fn sound() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = make(folder.path(), images::by_name("default"), 104_004, Fill::Files, &mut Rng(7));
    std::fs::read(path).expect("the image")
}

fn volume(image: &Vec<u8>) -> Result<Volume, ParseError> {
    format().read(image, &[])
}

/// The refusal's words: of an error, or of the findings that forbid the map. None when the map may be used.
fn refusal(image: &Vec<u8>) -> Option<String> {
    match volume(image) {
        Err(error) => Some(error.to_string()),
        Ok(volume) => {
            let refusals = volume.findings.iter().filter(|finding| finding.weight == Weight::Refusal);
            let words: Vec<String> = refusals.map(|f| format!("{} [{}]", f.message, f.remedy)).collect();
            assert!(words.is_empty() || volume.free.ranges().is_empty(), "a refused volume has free ranges");
            (!words.is_empty()).then(|| words.join("; "))
        }
    }
}

fn assert_refused(image: &Vec<u8>, words: &[&str]) {
    let found = refusal(image).unwrap_or_else(|| panic!("not refused; expected {words:?}"));
    for word in words {
        assert!(found.contains(word), "expected {word:?} in {found:?}");
    }
}

/// The image with a field of both superblocks changed.
fn with_superblock(image: &[u8], at: usize, value: u32) -> Vec<u8> {
    let mut changed = image.to_vec();
    SUPERBLOCKS.iter().for_each(|start| put_u32(&mut changed, start + at, value));
    changed
}

/// The first blocks of both checkpoint packs.
fn packs(image: &[u8]) -> [usize; 2] {
    let first = u32_at(image, 1024 + 76) as usize * 4096;
    [first, first + 512 * 4096]
}

/// The image with a field of every checkpoint changed, and their checksums right again.
fn with_checkpoints(image: &[u8], at: usize, value: u32) -> Vec<u8> {
    let mut changed = image.to_vec();
    for start in packs(image) {
        let last = start + (u32_at(image, start + 136) as usize - 1) * 4096;
        for block in [start, last] {
            put_u32(&mut changed, block + at, value);
            let sum = crc32(MAGIC, &changed[block..block + 4092]);
            put_u32(&mut changed, block + 4092, sum);
        }
    }
    changed
}

#[test]
fn features_and_devices_are_refused_by_name() {
    let sound = sound();
    assert_eq!(refusal(&sound), None);
    for (bit, name) in [(0x2, "zoned"), (0x4000, "read-only image"), (0x8000, "device alias"), (1 << 20, "0x100000")] {
        assert_refused(&with_superblock(&sound, 2180, bit), &["does not understand", name]);
    }
    assert_refused(&with_superblock(&sound, 2201, 0x7665_642F), &["lies on 1 devices"]);
    assert_refused(&with_superblock(&sound, 16, 14), &["2^14"]);
    let mut differs = sound.clone();
    differs[SUPERBLOCKS[1] + 48] ^= 1;
    assert_refused(&differs, &["the superblock and its copy differ"]);
    assert_refused(&with_superblock(&sound, 80, 7), &["address of the segment table"]);
    assert_refused(&with_superblock(&sound, 68, 0x00FF_FFFF), &["superblock"]);
}

#[test]
fn states_that_are_not_clean() {
    let sound = sound();
    let flags = u32_at(&sound, packs(&sound)[0] + 132);
    for (value, words) in [
        (flags & !1, "not unmounted"),
        (flags | 0x8, "met an error"),
        (flags | 0x10, "wants a check"),
        (flags | 0x1000, "checkpoints are switched off"),
        (flags | 0x4000, "was not finished"),
        (flags | 0x10_0000, "does not know"),
    ] {
        assert_refused(&with_checkpoints(&sound, 132, value), &[words]);
    }
    let mut errors = sound.clone();
    errors[SUPERBLOCKS[0] + 2794] = 1;
    assert_refused(&errors, &["records errors"]);
}

/// A file that was synced after the last checkpoint: a node with the checkpoint's version where the next one belongs.
#[test]
fn what_was_synced_since_is_seen() {
    let mut image = sound();
    let pack = packs(&image)[0];
    let segment = u32_at(&image, pack + 36 + 4) as usize;
    let offset = usize::from(u16::from_le_bytes([image[pack + 70], image[pack + 71]]));
    let at = (u32_at(&image, 1024 + 92) as usize + segment * 512 + offset) * 4096;
    let version: [u8; 8] = image[pack..pack + 8].try_into().expect("eight bytes");
    image[at + 4084..at + 4092].copy_from_slice(&version);
    assert_refused(&image, &["synced after the last checkpoint", "mount it once"]);
}

#[test]
fn checksums_and_counts() {
    let sound = sound();
    for pack in packs(&sound) {
        let mut image = sound.clone();
        image[pack + 16] ^= 1;
        assert_refused(&image, &["checkpoint: checksum"]);
    }
    // Fewer blocks in use than the segments say.
    assert_refused(&with_checkpoints(&sound, 16, 1), &["valid blocks"]);
}

/// How flipped bits were caught.
#[derive(Debug, Default)]
struct Caught {
    by_errors: u64,
    by_findings: u64,
    by_witness: u64,
    harmless: u64,
    unseen: u64,
}

/// The segment table has no checksum, but each segment's count speaks for its bits; superblocks and checkpoints exist twice.
#[test]
fn flips_are_caught_by_counts_and_copies() {
    let mut rng = Rng(seed("flips_are_caught_by_counts_and_copies"));
    let mut image = sound();
    let truth = volume(&image).expect("a sound image").free;
    let ranges = {
        let recording = Recording::new(&image, u64::MAX);
        format().read(&recording, &[]).expect("a sound image");
        let mut ranges = recording.take();
        ranges.sort_unstable();
        ranges.dedup();
        ranges
    };
    let mut caught = Caught::default();
    let bits: Vec<u64> = ranges.iter().flat_map(|range| range.start() * 8..range.end() * 8).collect();
    let step = if full() { 1 } else { 200 };
    for bit in bits {
        if step > 1 && !rng.next().is_multiple_of(step) {
            continue;
        }
        let (byte, mask) = ((bit / 8) as usize, 1_u8 << (bit % 8));
        image[byte] ^= mask;
        match volume(&image) {
            Err(_) => caught.by_errors += 1,
            Ok(volume) if !volume.is_usable() => caught.by_findings += 1,
            Ok(volume) => {
                let inside = |free: &ByteRange| truth.ranges().iter().any(|range| range.contains(*free));
                if volume.free.ranges().iter().all(inside) {
                    caught.harmless += 1;
                } else if matches!(hear(format().witnesses()[0], &image, &volume.free), Testimony::Clash { .. }) {
                    caught.by_witness += 1;
                } else {
                    println!("byte {byte}, mask {mask:#x}: a used block becomes free, and nobody sees it");
                    caught.unseen += 1;
                }
            }
        }
        image[byte] ^= mask;
    }
    println!("{caught:?}");
    assert!(caught.by_errors > 100 && caught.unseen == 0, "{caught:?}");
}
