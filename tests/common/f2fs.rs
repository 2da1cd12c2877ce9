//! F2FS images for the tests, made without root: mkfs.f2fs, and sload.f2fs for files. Deletions need the kernel's driver,
//! which is in the lab.
#![allow(dead_code, clippy::as_conversions)] // each test file uses its part

pub use crate::common::kind::Kind;
use crate::common::kind::{self, kind};
use crate::common::{Rng, tool_ok};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every option that changes where something lies or how it is written down.
pub static KINDS: &[Kind] = &[
    kind("default", "", 104_004),
    kind("heap", "-a 1", 110_001),
    kind("no heap", "-a 0", 106_003),
    kind("large node bitmap", "-i", 120_009),
    kind("sections of two segments", "-s 2", 180_001),
    kind("sections of four, zones of two", "-s 4 -z 2", 300_007),
    kind("much set aside", "-o 30", 130_001),
    kind("superblock checksum", "-O extra_attr,inode_checksum,sb_checksum", 115_003),
    kind("extra attributes", "-O extra_attr,flexible_inline_xattr,inode_crtime", 112_001),
    kind("quota", "-O extra_attr,project_quota,quota", 118_005),
    kind("encrypt, verity", "-O encrypt,verity", 109_001),
    kind("casefold", "-O casefold -C utf8", 111_003),
    kind("compression", "-O extra_attr,compression", 113_009),
    kind("lost+found", "-O lost_found", 108_007),
    kind("label", "-l Grüße", 107_011),
    kind("recommended", "-g android", 124_001),
    kind("larger", "", 400_003),
];

/// The kind with this name.
pub fn by_name(name: &str) -> &'static Kind {
    kind::by_name(KINDS, name)
}

/// How much is on a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    Empty,
    /// Some files in two folders.
    Files,
    /// Nearly as much as fits.
    Full,
}

/// Makes an image of `kib` KiB and some bytes.
pub fn make(folder: &Path, kind: &Kind, kib: u64, fill: Fill, rng: &mut Rng) -> PathBuf {
    let image = folder.join("image");
    let path = image.to_str().expect("a UTF-8 path");
    let _ = std::fs::remove_file(&image);
    let file = std::fs::File::create(&image).expect("an image file");
    file.set_len(kib * 1024).expect("room for the image");
    let mut args = vec!["-q", "-f"];
    args.extend(kind.options.split_whitespace());
    args.push(path);
    tool_ok("mkfs.f2fs", &args);
    if fill != Fill::Empty {
        // sload.f2fs takes whole segments for each kind of block and gives up before the last ones are gone.
        let room = spare_segments(&image).saturating_sub(6) * (2 << 20);
        let share = if fill == Fill::Full { room / 10 * 8 } else { room / 3 };
        let tree = folder.join("tree");
        files(&tree, share, rng);
        let output = crate::common::tool("sload.f2fs", &["-f", tree.to_str().expect("a UTF-8 path"), path]);
        // 1 means that its own check had something to correct.
        let is_loaded = matches!(output.status.code(), Some(0 | 1));
        assert!(is_loaded, "{}: sload.f2fs: {}", kind.name, String::from_utf8_lossy(&output.stdout));
        tool_ok("fsck.f2fs", &["--dry-run", path]);
    }
    file.set_len(kib * 1024 + rng.between(0, 3) * 777).expect("room for the image");
    image
}

/// Files of all sizes that take about `bytes` bytes together.
fn files(tree: &Path, bytes: u64, rng: &mut Rng) {
    let _ = std::fs::remove_dir_all(tree);
    std::fs::create_dir_all(tree.join("below/it")).expect("a folder");
    // More blocks than an inode can point at: direct nodes.
    std::fs::write(tree.join("large"), vec![9; (bytes / 3) as usize]).expect("a file");
    let mut left = bytes - bytes / 3;
    for number in 0..60 {
        let most = (left / 4).max(2);
        let size = rng.between(0, most);
        let folder = ["", "below/", "below/it/"][number % 3];
        let name = tree.join(format!("{folder}file number {number}"));
        std::fs::write(name, vec![number as u8 + 1; size as usize]).expect("a file");
        left = left.saturating_sub(size.next_multiple_of(4096) + 8192);
    }
    std::os::unix::fs::symlink("below/it", tree.join("link")).expect("a link");
}

/// Free segments less those that are set aside, as the first checkpoint counts them.
fn spare_segments(image: &Path) -> u64 {
    let bytes = std::fs::read(image).expect("the image");
    let at = u32_at(&bytes, 1024 + 76) as usize * 4096;
    u64::from(u32_at(&bytes, at + 32)) - u64::from(u32_at(&bytes, at + 24))
}

/// What dump.f2fs says about each segment, as free ranges in bytes. A segment's bits are printed only when some are set.
pub fn dumped(image: &Path) -> Vec<(u64, u64)> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = Command::new("/usr/sbin/dump.f2fs")
        .args(["-s", "0~-1", image.to_str().expect("a UTF-8 path")])
        .current_dir(folder.path())
        .output()
        .expect("dump.f2fs; tests/run installs it");
    assert!(output.status.success(), "dump.f2fs: {}", String::from_utf8_lossy(&output.stdout));
    let text = std::fs::read_to_string(folder.path().join("dump_sit")).expect("dump_sit");
    let main = {
        use std::os::unix::fs::FileExt;
        let mut raw = [0; 4];
        std::fs::File::open(image).expect("the image").read_exact_at(&mut raw, 1024 + 92).expect("a superblock");
        u64::from(u32::from_le_bytes(raw))
    };
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for part in text.split("segno:").skip(1) {
        let (head, body) = part.split_once('\n').expect("a line a segment");
        let segment: u64 = head.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a segment");
        // The last segment is followed by a sum.
        let bytes = body.split_whitespace().take_while(|word| word.len() == 2);
        let map: Vec<u8> = bytes.map(|byte| u8::from_str_radix(byte, 16).expect("a byte of the bitmap")).collect();
        assert!(matches!(map.len(), 0 | 64), "segment {segment}: {} bytes", map.len());
        let first = (main + segment * 512) * 4096;
        if map.is_empty() {
            append(&mut ranges, first, 512 * 4096);
        }
        for bit in (0..map.len() * 8).filter(|bit| map[bit / 8] & (0x80 >> (bit % 8)) == 0) {
            append(&mut ranges, first + bit as u64 * 4096, 4096);
        }
    }
    ranges
}

/// Neighbours as one.
fn append(ranges: &mut Vec<(u64, u64)>, start: u64, len: u64) {
    match ranges.last_mut() {
        Some(last) if last.0 + last.1 == start => last.1 += len,
        _ => ranges.push((start, len)),
    }
}

/// Little-endian numbers in an image.
pub fn u32_at(image: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(image[at..at + 4].try_into().expect("four bytes"))
}

/// See [`u32_at`].
pub fn put_u32(image: &mut [u8], at: usize, value: u32) {
    image[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// CRC-32 without inversions, bit by bit.
pub fn crc32(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 })
    })
}
