//! What must be refused on F2FS, each by one changed field; and flipped bits.
#![allow(clippy::as_conversions)]

mod common;
#[path = "common/damage.rs"]
mod damage;
#[path = "common/f2fs.rs"]
mod images;

use coldtrim_parsers::units::ByteRange;
use coldtrim_parsers::witness::Testimony;
use common::{Rng, full, seed, tool, tool_ok};
use damage::{assert_refused, assert_sound, cost, flip, refusal, terabyte, testimony};
use images::{Fill, crc32, make, put_u32, u32_at};

/// The row under test.
const FORMAT: &str = "f2fs";
const MAGIC: u32 = 0xF2F5_2010;
const SUPERBLOCKS: [usize; 2] = [1024, 4096 + 1024];

/// A sound volume with files, made once.
fn sound() -> Vec<u8> {
    static SOUND: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    let make = || {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = make(folder.path(), images::by_name("default"), 104_004, Fill::Files, &mut Rng(7));
        std::fs::read(path).expect("the image")
    };
    SOUND.get_or_init(make).clone()
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

/// The segment table has no checksum, but each segment's count speaks for its bits; superblocks and checkpoints exist twice.
/// What these let pass must be convicted by the walk over the nodes.
#[test]
fn flips_are_caught_by_counts_copies_and_the_witness() {
    let mut rng = Rng(seed("flips_are_caught_by_counts_copies_and_the_witness"));
    let mut image = sound();
    let one_in = |_| if full() { 1 } else { 400 };
    let caught = flip(&mut image, one_in, &mut rng, true);
    println!("{caught:?}");
    assert!(caught.by_errors > 100, "{caught:?}");
}

/// A bit cleared and the segment's count with it, in a volume whose checkpoint is made to agree: only the nodes can tell.
#[test]
fn the_witness_convicts_and_names_the_file() {
    let sound = sound();
    let free = assert_sound(&sound).free;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("image");
    std::fs::write(&path, &sound).expect("room");
    let block = block_of(&path, "large");
    let table = u32_at(&sound, 1024 + 80) as usize * 4096;
    let main = u32_at(&sound, 1024 + 92) as usize;
    let (segment, bit) = ((block - main) / 512, (block - main) % 512);
    let pack = packs(&sound)[0];
    // sload.f2fs leaves the newest state in the table itself, in its first copy or its second.
    let half = u32_at(&sound, 1024 + 56) as usize / 2 * 512 * 4096;
    let mut convicted = 0;
    for copy in [0, half] {
        let entry = table + copy + segment / 55 * 4096 + segment % 55 * 74;
        let valid = u32_at(&sound, pack + 16) - 1;
        let mut image = with_checkpoints(&sound, 16, valid);
        let count = u16::from_le_bytes([image[entry], image[entry + 1]]).wrapping_sub(1);
        image[entry..entry + 2].copy_from_slice(&count.to_le_bytes());
        image[entry + 2 + bit / 8] &= !(0x80 >> (bit % 8));
        if refusal(&image).is_some() {
            continue;
        }
        let words = testimony(&image);
        let [Testimony::Clash { owner, range, .. }] = &words[..] else { panic!("{words:?}") };
        assert!(owner.starts_with("/large (inode "), "{owner}");
        assert_eq!(*range, ByteRange::with_len(block as u64 * 4096, 4096).expect("a block"));
        assert!(!free.ranges().iter().any(|free| free.contains(*range)));
        convicted += 1;
    }
    assert_eq!(convicted, 1, "one of the two copies counts");
}

/// The first block of a file's data, as dump.f2fs tells it.
fn block_of(image: &std::path::Path, name: &str) -> usize {
    let path = image.to_str().expect("a UTF-8 path");
    // It fails for numbers without an inode.
    let inode = |number: u32| tool("dump.f2fs", &["-i", &format!("{number:x}"), path]).stdout;
    let mut inodes = (4..200).map(|number| String::from_utf8_lossy(&inode(number)).into_owned());
    let found = inodes.find(|text| text.contains(&format!("[{name}]"))).expect("the file among the first inodes");
    let line = found.lines().find(|line| line.starts_with("i_addr[0x0]")).expect("an address");
    let number = line.rsplit(' ').next().and_then(|word| word.trim_end_matches(']').parse().ok());
    number.expect("a block")
}

/// Reading stays near the minimum: of 1 TiB the segment table's 38 MiB, in large requests, and a few blocks more.
#[test]
fn a_terabyte_costs_its_segment_table() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = terabyte(folder.path());
    let _ = tool_ok("mkfs.f2fs", &["-q", "-f", "-t", "0", path.to_str().expect("a UTF-8 path")]);
    let (volume, read) = cost(&path);
    println!("1 TiB, nearly empty: {read} bytes read for {} free", volume.free.bytes());
    // 55 segments of 2 MiB in each block of the table.
    let table = (1 << 40) / (2 << 20) / 55 * 4096;
    assert!(read < table + (64 << 10), "{read} bytes were read");
    assert!(volume.free.bytes() > (1 << 40) / 1000 * 995);
}
