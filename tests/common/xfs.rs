//! XFS images for the tests, made without root: mkfs.xfs copies files in, xfs_db strikes some of them out, xfs_repair
//! puts the volume straight and builds its trees anew. `LOG` and `REALTIME` in the options stand for further files; kinds
//! that need them, or a kernel of recent years, are called unmountable.
#![allow(dead_code, clippy::as_conversions)] // each test file uses its part

pub use crate::common::kind::Kind;
use crate::common::kind::{self, kind, unmountable};
use crate::common::{Rng, crc32c, merged, tool, tool_ok};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Every feature that changes where something lies, what it is called, or how it is protected.
pub static KINDS: &[Kind] = &[
    kind("default", "", 40_004),
    kind("1 KiB blocks", "-b size=1024", 33_333),
    kind("2 KiB blocks and sectors", "-b size=2048 -s size=2048", 35_001),
    unmountable("8 KiB blocks", "-b size=8192", 66_001),
    unmountable("16 KiB blocks", "-b size=16384", 90_011),
    unmountable("64 KiB blocks", "-b size=65536", 300_003),
    kind("sectors of 4 KiB", "-s size=4096", 36_001),
    kind("owners", "-m rmapbt=1", 37_013),
    kind("owners, nothing shared", "-m rmapbt=1,reflink=0 -b size=1024", 34_007),
    kind("v5 as it was at first", "-m reflink=0,finobt=0,inobtcount=0,bigtime=0 -i sparse=0", 33_007),
    kind("no sparse inodes", "-i sparse=0", 40_009),
    unmountable("large extent counts", "-i nrext64=1", 41_003),
    kind("inodes of 2 KiB", "-i size=2048", 42_001),
    kind("four inodes a block", "-b size=1024 -i size=512 -m rmapbt=1,finobt=1", 33_001),
    unmountable("ascii-ci", "-n version=ci", 38_003),
    kind("directories of 16 KiB blocks", "-n size=16384", 39_001),
    kind("stripes", "-d su=64k,sw=3", 80_002),
    kind("log stripes of 256 KiB", "-l su=256k", 45_001),
    kind("log in the last group", "-d agcount=4 -l agnum=3", 90_001),
    kind("eight groups, the last short", "-d agcount=8", 150_021),
    kind("twenty groups", "-d agcount=20 -b size=1024", 340_001),
    kind("one short group behind", "-d agsize=20m", 44_100),
    kind("the smallest", "-b size=1024", 16_400),
    kind("label", "-L Grüße", 40_033),
    unmountable("v4", "-m crc=0", 36_007),
    unmountable("v4, 512-byte blocks", "-m crc=0 -b size=512", 33_001),
    unmountable("v4, 1 KiB blocks, small inodes", "-m crc=0 -b size=1024 -i size=256", 34_009),
    unmountable("v4, log of version 1", "-m crc=0 -l version=1", 35_003),
    unmountable("v4, exact counters", "-m crc=0 -l lazy-count=0 -i attr=1,projid32bit=0", 37_003),
    unmountable("v4, sectors of 4 KiB", "-m crc=0 -s size=4096", 38_011),
    unmountable("v4, sectors of 1 KiB", "-m crc=0 -s size=1024 -b size=1024", 33_401),
    unmountable("v4, 16 KiB blocks", "-m crc=0 -b size=16384", 50_021),
    unmountable("v4, untyped entries, five groups", "-m crc=0 -n ftype=0 -d agcount=5", 101_003),
    unmountable("realtime device", "-r rtdev=REALTIME", 40_021),
    unmountable("realtime device, nothing shared", "-r rtdev=REALTIME -m reflink=0", 40_023),
];

/// The kind with this name.
pub fn by_name(name: &str) -> &'static Kind {
    kind::by_name(KINDS, name)
}

/// How much is on a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    Empty,
    /// Hundreds of files, half of them deleted.
    Fragmented,
    /// A few blocks left.
    Full,
}

/// Makes an image of `kib` KiB and some bytes.
pub fn make(folder: &Path, kind: &Kind, kib: u64, fill: Fill, rng: &mut Rng) -> PathBuf {
    let image = folder.join("image");
    match fill {
        Fill::Empty => mkfs(folder, &image, kind, kib, None),
        Fill::Fragmented => {
            mkfs(folder, &image, kind, kib, Some(&many_files(folder, kib, rng)));
            strike_out(&image, rng);
        }
        Fill::Full => {
            mkfs(folder, &image, kind, kib, None);
            let list = large_files(folder, &freesp(&image));
            mkfs(folder, &image, kind, kib, Some(&list));
        }
    }
    // The device may be longer than the volume, by less than a block or by more.
    let file = std::fs::OpenOptions::new().write(true).open(&image).expect("the image");
    file.set_len(kib * 1024 + rng.between(0, 3) * 777).expect("room for the image");
    image
}

fn mkfs(folder: &Path, image: &Path, kind: &Kind, kib: u64, list: Option<&Path>) {
    let path = |name: &str| folder.join(name).to_str().expect("a UTF-8 path").to_owned();
    for (name, bytes) in [("image", kib * 1024), ("log", 20 << 20), ("realtime", 30 << 20)] {
        let _ = std::fs::remove_file(folder.join(name));
        std::fs::File::create(folder.join(name)).expect("an image file").set_len(bytes).expect("room");
    }
    let mut args: Vec<String> = vec!["--unsupported".into(), "-q".into(), "-f".into()];
    let options = kind.options.replace("LOG", &path("log")).replace("REALTIME", &path("realtime"));
    args.extend(options.split_whitespace().map(str::to_owned));
    if let Some(list) = list {
        args.extend(["-p".into(), list.to_str().expect("a UTF-8 path").to_owned()]);
    }
    args.push(image.to_str().expect("a UTF-8 path").to_owned());
    tool_ok("mkfs.xfs", &args.iter().map(String::as_str).collect::<Vec<_>>());
}

/// A list of files for mkfs: 460 of them in two folders, together about a fifth of the volume: the log may take half.
fn many_files(folder: &Path, kib: u64, rng: &mut Rng) -> PathBuf {
    // One size from each eighth of the range: eight free choices are too large for a small volume every few runs.
    let eighth = (kib * 1024 / 5 / 460).max(8) / 4;
    for number in 0..8 {
        let size = eighth * number + rng.between(0, eighth);
        std::fs::write(folder.join(format!("s{number}")), vec![number as u8 + 1; size as usize]).expect("a file");
    }
    let mut list = String::from("/dev/null\n0 0\nd--755 0 0\n");
    let mut add = |name: &str| {
        let source = folder.join(format!("s{}", rng.between(0, 8)));
        let _ = writeln!(list, "{name} ---644 0 0 {}", source.display());
    };
    (0..400).for_each(|number| add(&format!("file{number}")));
    add("below d--755 0 0\nprecious");
    (0..60).for_each(|number| add(&format!("a_rather_long_name_of_file_number_{number}")));
    list.push_str("link l--777 0 0 below/precious\n$\n$\n");
    let path = folder.join("list");
    std::fs::write(&path, list).expect("a list of files");
    path
}

/// A file for each long free extent, nearly as long as that: mkfs wants the whole of a file in one extent.
fn large_files(folder: &Path, free: &[(u64, u64)]) -> PathBuf {
    let mut list = String::from("/dev/null\n0 0\nd--755 0 0\n");
    for (number, (_, len)) in free.iter().filter(|(_, len)| *len > 1 << 20).enumerate() {
        let source = folder.join(format!("large{number}"));
        std::fs::write(&source, vec![7; (len - len / 16 - (64 << 10)) as usize]).expect("a large file");
        let _ = writeln!(list, "large{number} ---644 0 0 {}", source.display());
    }
    list.push_str("$\n$\n");
    let path = folder.join("list");
    std::fs::write(&path, list).expect("a list of files");
    path
}

/// Makes nearly every second file and a few others no files, and lets xfs_repair draw the consequences: what is free lies in
/// so many pieces that a tree of blocks of 1 KiB has two levels.
fn strike_out(image: &Path, rng: &mut Rng) {
    let path = image.to_str().expect("a UTF-8 path");
    let listed = tool_ok("xfs_db", &["-r", "-f", "-c", "path /", "-c", "ls", path]);
    let mut args: Vec<String> = vec!["-x".into(), "-f".into()];
    for (index, line) in listed.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let chance = if index % 2 == 0 { 92 } else { 5 };
        // By name: a volume without types in its directories lists them as unknown.
        let is_file = words.get(5).is_some_and(|name| name.starts_with("file"));
        if is_file && rng.between(0, 100) < chance {
            args.extend(["-c".into(), format!("inode {}", words[1]), "-c".into(), "write core.mode 0".into()]);
        }
    }
    assert!(args.len() > 100, "xfs_db lists few files: {listed}");
    args.push(path.to_owned());
    tool_ok("xfs_db", &args.iter().map(String::as_str).collect::<Vec<_>>());
    repair(image);
}

/// Runs xfs_repair, which must leave nothing to complain about. Further devices lie beside the image.
pub fn repair(image: &Path) {
    let with = |first: &[&str]| {
        let mut args: Vec<String> = first.iter().map(|arg| (*arg).to_owned()).collect();
        if has_realtime(image) {
            args.extend(["-r".into(), image.with_file_name("realtime").to_str().expect("UTF-8").to_owned()]);
        }
        args.push(image.to_str().expect("a UTF-8 path").to_owned());
        tool("xfs_repair", &args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let repaired = with(&["-f", "-o", "force_geometry"]);
    let checked = with(&["-f", "-n", "-o", "force_geometry"]);
    assert!(
        repaired.status.success() && checked.status.success(),
        "xfs_repair: {}\n{}",
        String::from_utf8_lossy(&repaired.stderr),
        String::from_utf8_lossy(&checked.stderr)
    );
}

fn has_realtime(image: &Path) -> bool {
    let head = head(image);
    head[0x10..0x18] != [0; 8]
}

/// The first sector of an image.
pub fn head(image: &Path) -> Vec<u8> {
    use std::io::Read;
    let mut head = vec![0; 512];
    std::fs::File::open(image).expect("the image").read_exact(&mut head).expect("a superblock");
    head
}

/// Where the internal log of a volume lies, in bytes.
pub fn log_of(image: &[u8]) -> std::ops::Range<usize> {
    let block = u32_at(image, 4) as usize;
    let (start, bits) = (u32_at(image, 0x34) as usize, image[0x7C]);
    let first = (start >> bits) * u32_at(image, 0x54) as usize + (start & ((1 << bits) - 1));
    first * block..(first + u32_at(image, 0x60) as usize) * block
}

/// What xfs_db calls free, in bytes, without the free lists, which it counts as free.
pub fn freesp(image: &Path) -> Vec<(u64, u64)> {
    let head = head(image);
    let block = u64::from(u32_at(&head, 4));
    let (per_group, groups) = (u64::from(u32_at(&head, 0x54)), u32_at(&head, 0x58));
    let path = image.to_str().expect("a UTF-8 path");
    let listed = tool_ok("xfs_db", &["-r", "-f", "-c", "freesp -d", path]);
    let set_aside = free_lists(path, groups);
    let mut ranges = Vec::new();
    for line in listed.lines().skip(1).take_while(|line| !line.contains("from")) {
        let numbers: Vec<u64> = line.split_whitespace().map(|n| n.parse().expect("a number")).collect();
        let [group, first, count] = numbers[..] else { panic!("xfs_db: {line}") };
        for found in first..first + count {
            if set_aside.contains(&(group, found)) {
                continue;
            }
            let at = (group * per_group + found) * block;
            match ranges.last_mut() {
                Some((start, len)) if *start + *len == at => *len += block,
                _ => ranges.push((at, block)),
            }
        }
    }
    ranges.sort_unstable();
    merged(&ranges)
}

/// `(group, block)` of every block in a free list.
fn free_lists(path: &str, groups: u32) -> std::collections::HashSet<(u64, u64)> {
    let mut set_aside = std::collections::HashSet::new();
    for group in 0..groups {
        let (agf, agfl) = (format!("agf {group}"), format!("agfl {group}"));
        let text =
            tool_ok("xfs_db", &["-r", "-f", "-c", &agf, "-c", "p flfirst flcount", "-c", &agfl, "-c", "p bno", path]);
        let number = |name: &str| -> usize {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
            line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("xfs_db tells no {name}: {text}"))
        };
        let slots: Vec<&str> =
            text.split_whitespace().filter_map(|word| word.split_once(':')).map(|(_, block)| block).collect();
        for slot in number("flfirst")..number("flfirst") + number("flcount") {
            set_aside.insert((group.into(), slots[slot % slots.len()].parse().expect("a block")));
        }
    }
    set_aside
}

/// Big-endian numbers in an image.
pub fn u32_at(image: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(image[at..at + 4].try_into().expect("four bytes"))
}

/// See [`u32_at`].
pub fn put_u32(image: &mut [u8], at: usize, value: u32) {
    image[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Makes the checksum at `place` inside of `len` bytes from `start` right again after a change, in a volume of version 5.
pub fn seal(image: &mut [u8], start: usize, len: usize, place: usize) {
    if image[0x65] & 0xF == 5 {
        image[start + place..start + place + 4].fill(0);
        let sum = !crc32c(!0, &image[start..start + len]);
        image[start + place..start + place + 4].copy_from_slice(&sum.to_le_bytes());
    }
}
