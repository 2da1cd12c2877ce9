//! ext2, ext3 and ext4 images for the tests: made by mke2fs, filled and thinned out by debugfs, put straight by
//! e2fsck, all without root. A kind that is called unmountable has blocks larger than a page, or features that are often
//! not built into kernels.
#![allow(dead_code, clippy::as_conversions)] // each test file uses its part

pub use crate::common::kind::Kind;
use crate::common::kind::{self, kind, unmountable};
use crate::common::{Rng, crc32c, tool, tool_ok};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Every feature that changes where something lies, what it is called, or how it is protected.
pub static KINDS: &[Kind] = &[
    kind("default", "", 40_000),
    kind("1 KiB blocks", "-b 1024", 33_333),
    kind("2 KiB blocks", "-b 2048 -I 512", 50_001),
    unmountable("8 KiB blocks", "-b 8192", 65_537),
    unmountable("16 KiB blocks, mmp", "-b 16384 -O mmp", 80_011),
    unmountable("64 KiB blocks", "-b 65536", 150_003),
    kind("ext2", "-t ext2", 60_001),
    kind("ext2, 1 KiB, 128-byte inodes", "-t ext2 -b 1024 -I 128", 20_011),
    kind("ext2 revision 0", "-t ext2 -r 0 -b 1024", 17_001),
    kind("ext3", "-t ext3", 70_003),
    kind("ext3, 1 KiB", "-t ext3 -b 1024", 30_007),
    kind("no journal", "-O ^has_journal", 50_003),
    kind("32-bit, no checksums", "-O ^64bit,^metadata_csum,^uninit_bg -b 1024", 40_009),
    kind("crc16, 32-byte descriptors", "-O ^64bit,^metadata_csum,uninit_bg -b 1024", 90_001),
    kind("crc16, 64-byte descriptors", "-O 64bit,^metadata_csum,uninit_bg -b 1024", 90_003),
    kind("metadata_csum, 32-byte descriptors", "-O ^64bit,metadata_csum -b 1024", 70_001),
    kind("checksum seed", "-O metadata_csum,metadata_csum_seed -b 1024", 40_013),
    kind("no flex_bg", "-O ^flex_bg -b 1024", 50_021),
    kind("flex_bg of 4", "-G 4 -b 1024", 120_001),
    kind("meta_bg", "-O meta_bg,^resize_inode -b 1024", 300_007),
    kind(
        "meta_bg, 32-byte, no checksums",
        "-O meta_bg,^resize_inode,^64bit,^metadata_csum,^uninit_bg -b 1024",
        300_011,
    ),
    kind("meta_bg, crc16, no flex_bg", "-O meta_bg,^resize_inode,^metadata_csum,uninit_bg,^flex_bg -b 1024", 200_003),
    kind("no sparse_super", "-O ^sparse_super,^sparse_super2,^resize_inode -b 1024", 60_007),
    kind("sparse_super2", "-O sparse_super2,^resize_inode -E packed_meta_blocks=1 -b 1024", 90_007),
    kind("sparse_super2, one backup", "-O sparse_super2,^resize_inode -E num_backup_sb=1 -b 1024", 70_009),
    kind("bigalloc 64 KiB", "-O bigalloc -C 65536", 120_004),
    kind("bigalloc, 1 KiB blocks", "-O bigalloc -b 1024 -C 16384", 90_013),
    kind("bigalloc, small clusters, meta_bg", "-O bigalloc,meta_bg,^resize_inode -b 1024 -C 4096", 90_019),
    kind("bigalloc, crc16", "-O bigalloc,^metadata_csum,uninit_bg -b 2048 -C 16384", 100_014),
    kind("mmp", "-O mmp -b 1024", 30_011),
    kind("orphan file, fast commit", "-O orphan_file,fast_commit -b 1024", 60_013),
    kind("encrypt, verity", "-O encrypt,verity -b 1024", 50_033),
    unmountable("quota, project, casefold", "-O quota,project,casefold -b 1024", 50_035),
    kind("large_dir, ea_inode, inline_data", "-O large_dir,ea_inode,inline_data -b 1024", 40_031),
    kind("small groups", "-b 1024 -g 1024", 50_051),
    kind("one short group behind", "-b 1024 -g 8192 -O ^has_journal", 8_192 + 700),
    kind("tiny", "-b 1024 -O ^has_journal -N 16", 300),
];

/// The kind with this name.
pub fn by_name(name: &str) -> &'static Kind {
    kind::by_name(KINDS, name)
}

/// How much is on a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    Empty,
    /// Files of all sizes, half of them deleted, others written into the gaps.
    Fragmented,
    /// Not one block left that debugfs could use.
    Full,
}

/// Makes an image of `kib` KiB.
pub fn make(folder: &Path, kind: &Kind, kib: u64, fill: Fill, rng: &mut Rng) -> PathBuf {
    let image = folder.join("image");
    let path = image.to_str().expect("a UTF-8 path");
    let _ = std::fs::remove_file(&image);
    let file = std::fs::File::create(&image).expect("an image file");
    let mut args = vec!["-q", "-F", "-E", "lazy_itable_init=0"];
    args.extend(kind.options.split_whitespace());
    args.push(path);
    let mut kib = kib;
    loop {
        file.set_len(kib * 1024).expect("room for the image");
        let made = tool("mkfs.ext4", &args);
        if made.status.success() {
            break;
        }
        // Some sizes leave a last group with no room for its inodes (bigalloc): the next one does.
        let words = String::from_utf8_lossy(&made.stderr).into_owned();
        assert!(words.contains("requested number of inodes"), "mkfs.ext4 {args:?} of {kib} KiB: {words}");
        kib += 997;
    }
    match fill {
        Fill::Empty => {}
        Fill::Fragmented => fragment(folder, path, kib, rng),
        Fill::Full => fill_up(folder, path, kib),
    }
    image
}

/// Writes files, deletes every second one, writes others into the gaps.
fn fragment(folder: &Path, path: &str, kib: u64, rng: &mut Rng) {
    let files = 24;
    let mut commands = String::from("mkdir d\nmkdir d/e\n");
    let most = (kib / 2 / files).max(2);
    for number in 0..files {
        let size = rng.between(1, most * 1024);
        let source = folder.join(format!("file{number}"));
        std::fs::write(&source, vec![number as u8 + 1; size as usize]).expect("a file to copy in");
        let _ = writeln!(commands, "write {} d/file{number}", source.display());
    }
    for number in (0..files).step_by(2) {
        let _ = writeln!(commands, "rm d/file{number}");
    }
    for number in (0..files).step_by(3) {
        let _ = writeln!(commands, "write {} d/e/again{number}", folder.join(format!("file{number}")).display());
    }
    commands.push_str("rm d/e/again0\nsymlink d/short target\nsymlink d/long ");
    commands.push_str(&"long/".repeat(30));
    commands.push('\n');
    debugfs(folder, path, &commands);
}

/// Fills the volume with one large file and then with small ones.
fn fill_up(folder: &Path, path: &str, kib: u64) {
    let large = folder.join("large");
    std::fs::write(&large, vec![7; (kib * 1024) as usize]).expect("a large file");
    let small = folder.join("small");
    std::fs::write(&small, [8; 100]).expect("a small file");
    let mut commands = format!("write {} large\n", large.display());
    for number in 0..64 {
        let _ = writeln!(commands, "write {} small{number}", small.display());
    }
    debugfs(folder, path, &commands);
}

/// Runs debugfs commands, then lets e2fsck put straight what debugfs leaves behind (it does not know clusters).
pub fn debugfs(folder: &Path, path: &str, commands: &str) {
    let script = folder.join("commands");
    std::fs::write(&script, commands).expect("a script");
    tool("debugfs", &["-w", "-f", script.to_str().expect("a UTF-8 path"), path]);
    let check = tool("e2fsck", &["-f", "-y", path]);
    assert!(
        check.status.code().is_some_and(|code| code & !3 == 0),
        "e2fsck {path}: {}\n{}",
        check.status,
        String::from_utf8_lossy(&check.stdout)
    );
}

/// The volume's free ranges in bytes as dumpe2fs prints them, its fault with bigalloc corrected: of the last cluster
/// of each run it prints only the first block.
pub fn dumpe2fs(image: &Path) -> Vec<(u64, u64)> {
    let text = tool_ok("dumpe2fs", &[image.to_str().expect("a UTF-8 path")]);
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse::<u64>().ok())
    };
    let block = field("Block size:").expect("a block size");
    let blocks = field("Block count:").expect("a block count");
    let ratio = field("Cluster size:").map_or(1, |cluster| cluster / block);
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for list in text.lines().filter_map(|line| line.strip_prefix("  Free blocks: ")) {
        for run in list.split(", ").filter(|run| !run.is_empty()) {
            let (first, last) = run.split_once('-').unwrap_or((run, run));
            let (first, last): (u64, u64) = (first.parse().expect("a block"), last.parse().expect("a block"));
            let end = (last + ratio).min(blocks);
            match runs.last_mut() {
                Some(open) if open.1 == first => open.1 = end,
                _ => runs.push((first, end)),
            }
        }
    }
    runs.into_iter().map(|(first, end)| (first * block, (end - first) * block)).collect()
}

/// Little-endian numbers in an image.
pub fn u32_at(image: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(image[at..at + 4].try_into().expect("four bytes"))
}

/// See [`u32_at`].
pub fn put_u32(image: &mut [u8], at: usize, value: u32) {
    image[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Makes the superblock's checksum right again after a change, where the volume has metadata checksums.
pub fn seal_superblock(image: &mut [u8]) {
    if u32_at(image, 1024 + 0x64) & 0x400 != 0 {
        let sum = crc32c(!0, &image[1024..1024 + 1020]);
        put_u32(image, 1024 + 1020, sum);
    }
}
