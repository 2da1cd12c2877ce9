//! FAT12, FAT16 and FAT32 volumes made by mkfs.fat and filled by mtools, against other readings of the same bytes:
//! `tests/oracle/fat_free.py` for every volume, partclone.vfat for FAT16 and FAT32 (it frees clusters that are marked
//! bad, and misreads FAT12), and the count of used clusters by fsck.fat.
// Small numbers that the test has made itself; a row of the table is a row.
#![allow(clippy::as_conversions, clippy::type_complexity)]

mod common;

use coldtrim_parsers::source::Source;
use coldtrim_parsers::stack::{Content, Layer, Options, WitnessMode};
use coldtrim_parsers::witness::Testimony;
use common::{Rng, carried_image_equals_its_records, coldtrim, full, map_ranges, parse_ranges, seed, tool, tool_ok};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How a volume is filled.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fill {
    Empty,
    /// Files of random sizes, some directories deep, then some deleted and others written into the gaps.
    Fragmented,
    /// Not one cluster left.
    Full,
}

#[derive(Debug, Clone, Copy)]
struct Config {
    bits: u32,
    /// Size of the image in bytes, of any oddity.
    size: u64,
    sector: u64,
    per_cluster: u64,
    copies: u64,
    /// Further options of mkfs.fat.
    more: &'static [&'static str],
    /// How many blocks of 1 KiB are marked bad (mkfs.fat miscounts them for sectors above 1 KiB).
    bad: u64,
    fill: Fill,
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// One row a kind of oddity; sizes are no multiple of anything where that is possible.
#[rustfmt::skip]
const CONFIGS: &[(u32, u64, u64, u64, u64, &[&str], u64, Fill)] = &[
    (12, 360 * KIB,           512, 2,   2, &[],                  0, Fill::Fragmented),
    (12, 1440 * KIB,          512, 1,   2, &[],                  0, Fill::Fragmented),
    (12, 1440 * KIB,          512, 1,   2, &[],                  0, Fill::Full),
    (12, 1440 * KIB,          512, 1,   1, &[],                  9, Fill::Fragmented),
    (12, 333 * KIB + 77,      512, 1,   2, &["-r", "64"],        0, Fill::Fragmented),
    (12, 2 * MIB - 1,         512, 1,   2, &["-a"],              3, Fill::Fragmented),
    (12, 3 * MIB + 513,       512, 2,   1, &["-R", "7"],         0, Fill::Fragmented),
    (12, 7 * MIB + 5 * KIB,   512, 4,   2, &["-r", "1024"],      0, Fill::Full),
    (12, 15 * MIB + 1,        512, 8,   2, &["-a"],              0, Fill::Fragmented),
    (12, 30 * MIB + 999,      512, 16,  2, &[],                  5, Fill::Empty),
    (12, 61 * MIB,            512, 32,  1, &["-a", "-R", "3"],   0, Fill::Fragmented),
    (12, 200 * MIB + 3 * KIB, 512, 128, 2, &[],                  0, Fill::Fragmented),
    (12, 3 * MIB + 11,        1024, 1,  2, &[],                  0, Fill::Fragmented),
    (12, 5 * MIB + 17,        1024, 2,  2, &[],                  0, Fill::Full),
    (12, 8 * MIB - 3 * KIB,   2048, 1,  1, &[],                  0, Fill::Fragmented),
    (12, 30 * MIB + 4 * KIB,  2048, 4,  2, &["-a"],              0, Fill::Empty),
    (12, 15 * MIB + 2 * KIB,  4096, 1,  2, &[],                  0, Fill::Fragmented),
    (12, 100 * MIB + 12,      4096, 8,  1, &["-r", "256"],       0, Fill::Fragmented),
    (12, 64 * KIB,            512, 1,   2, &["-r", "16"],        0, Fill::Empty),
    (12, 40 * KIB,            512, 1,   1, &["-r", "16"],        0, Fill::Full),
    (12, 4060 * KIB,          512, 2,   2, &["-M", "0xF0"],      0, Fill::Fragmented),
    (16, 5 * MIB,             512, 2,   2, &[],                  0, Fill::Fragmented),
    (16, 2 * MIB + 300 * KIB, 512, 1,   2, &["-a"],              0, Fill::Fragmented),
    (16, 16 * MIB + 1,        512, 1,   1, &[],                  0, Fill::Full),
    (16, 31 * MIB - 77,       512, 1,   2, &[],                  0, Fill::Fragmented),
    (16, 32 * MIB + 5 * KIB,  512, 2,   2, &["-r", "4096"],      11, Fill::Fragmented),
    (16, 60 * MIB + 513,      512, 2,   2, &["-a", "-R", "9"],   0, Fill::Full),
    (16, 100 * MIB + 3 * KIB, 512, 4,   1, &[],                  0, Fill::Fragmented),
    (16, 100 * MIB + 3 * KIB, 512, 4,   2, &[],                  0, Fill::Empty),
    (16, 200 * MIB + 1,       512, 8,   2, &["-a"],              2, Fill::Fragmented),
    (16, 400 * MIB - 1,       512, 16,  2, &[],                  0, Fill::Fragmented),
    (16, 800 * MIB + 9 * KIB, 512, 32,  2, &["-r", "32"],        0, Fill::Fragmented),
    (16, 2000 * MIB + 511,    512, 64,  1, &[],                  0, Fill::Fragmented),
    (16, 4000 * MIB + KIB,    512, 128, 2, &[],                  0, Fill::Fragmented),
    (16, 10 * MIB + 1,        1024, 1,  2, &[],                  0, Fill::Fragmented),
    (16, 90 * MIB + 1025,     1024, 2,  1, &["-a"],              0, Fill::Full),
    (16, 60 * MIB + 2 * KIB,  2048, 1,  2, &[],                  0, Fill::Fragmented),
    (16, 120 * MIB + 7,       2048, 2,  2, &[],                  0, Fill::Fragmented),
    (16, 100 * MIB + 3 * KIB, 4096, 1,  2, &[],                  0, Fill::Fragmented),
    (16, 300 * MIB + 5,       4096, 4,  1, &["-a"],              0, Fill::Empty),
    (16, 33 * MIB,            512, 2,   2, &["-h", "63"],        0, Fill::Fragmented),
    (32, 40 * MIB,            512, 1,   2, &[],                  0, Fill::Fragmented),
    (32, 34 * MIB + 3 * KIB,  512, 1,   2, &["-a"],              0, Fill::Full),
    (32, 5 * MIB + 1,         512, 1,   2, &[],                  0, Fill::Fragmented),
    (32, 700 * KIB,           512, 1,   1, &["-R", "12"],        0, Fill::Full),
    (32, 50 * MIB + 77,       512, 1,   1, &[],                  13, Fill::Fragmented),
    (32, 70 * MIB - 1,        512, 2,   2, &[],                  0, Fill::Fragmented),
    (32, 140 * MIB + 513,     512, 4,   2, &["-R", "40"],        0, Fill::Fragmented),
    (32, 300 * MIB + 5 * KIB, 512, 8,   2, &[],                  4, Fill::Empty),
    (32, 600 * MIB + 1,       512, 16,  1, &["-a"],              0, Fill::Fragmented),
    (32, 1100 * MIB + 3,      512, 32,  2, &[],                  0, Fill::Fragmented),
    (32, 3000 * MIB + 999,    512, 64,  2, &[],                  0, Fill::Fragmented),
    (32, 5000 * MIB + KIB,    512, 128, 2, &["-b", "9"],         0, Fill::Fragmented),
    (32, 80 * MIB + 7,        1024, 1,  2, &[],                  0, Fill::Fragmented),
    (32, 30 * MIB + 1025,     1024, 2,  1, &[],                  0, Fill::Full),
    (32, 150 * MIB + 2 * KIB, 2048, 1,  2, &["-a"],              0, Fill::Fragmented),
    (32, 10 * MIB + 9,        2048, 1,  2, &[],                  0, Fill::Full),
    (32, 300 * MIB + 4 * KIB, 4096, 1,  2, &[],                  0, Fill::Fragmented),
    (32, 20 * MIB + 4095,     4096, 1,  1, &[],                  0, Fill::Fragmented),
    (32, 1000 * MIB + 12 * KIB, 4096, 8, 2, &[],                 0, Fill::Fragmented),
    (32, 8000 * MIB + 1,      512, 8,   2, &[],                  0, Fill::Fragmented),
    (32, 3 * MIB + 11 * KIB,  512, 1,   1, &["-a"],              0, Fill::Fragmented),
    (32, 66 * MIB,            512, 2,   2, &[],                  0, Fill::Empty),
];

/// Rows that every run takes: one of every kind.
const ALWAYS: &[usize] = &[0, 3, 5, 7, 14, 21, 22, 25, 35, 36, 41, 42, 44, 45, 54, 58];

fn config(index: usize) -> Config {
    let (bits, size, sector, per_cluster, copies, more, bad, fill) = CONFIGS[index];
    Config { bits, size, sector, per_cluster, copies, more, bad, fill }
}

/// The volume under test, in a folder of its own.
struct Volume {
    image: PathBuf,
    folder: tempfile::TempDir,
}

impl Volume {
    fn path(&self) -> &str {
        self.image.to_str().expect("a UTF-8 path")
    }

    fn format(config: &Config, rng: &mut Rng) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("volume.img");
        std::fs::File::create(&image).and_then(|f| f.set_len(config.size)).expect("an image");
        let volume = Self { image, folder };
        let numbers =
            [config.bits.into(), config.sector, config.per_cluster, config.copies].map(|n: u64| n.to_string());
        let [bits, sector, per_cluster, copies] = numbers.each_ref().map(String::as_str);
        let mut args = vec!["-F", bits, "-S", sector, "-s", per_cluster, "-f", copies, "-n", "ORACLE"];
        args.extend(config.more);
        let list = volume.folder.path().join("bad");
        if config.bad > 0 {
            // Blocks of 1 KiB in the second half, where no table is.
            let blocks: Vec<String> = (0..config.bad)
                .map(|_| (rng.between(config.size / 2, config.size - 64 * KIB) / KIB).to_string())
                .collect();
            std::fs::write(&list, blocks.join("\n") + "\n").expect("a list");
            args.extend(["-l", list.to_str().expect("a UTF-8 path")]);
        }
        args.push(volume.path());
        tool_ok("mkfs.fat", &args);
        volume
    }

    fn mtools(&self, program: &str, args: &[&str]) {
        let mut all = vec!["MTOOLS_SKIP_CHECK=1", program, "-i", self.path()];
        all.extend(args);
        tool_ok("env", &all);
    }

    fn free(&self) -> u64 {
        self.oracle(&[]).iter().map(|(_, len)| len).sum()
    }

    fn oracle(&self, options: &[&str]) -> Vec<(u64, u64)> {
        let mut args = vec!["tests/oracle/fat_free.py"];
        args.extend(options);
        args.push(self.path());
        parse_ranges(&tool_ok("python3", &args))
    }

    /// Copies a tree of random files, about `bytes` in all, as the folder `name`.
    fn copy_tree(&self, name: &str, bytes: u64, rng: &mut Rng) {
        let top = self.folder.path().join(name);
        let deep = top.join("a folder with a long name/b/c");
        std::fs::create_dir_all(&deep).expect("folders");
        for k in 0..12 {
            let place = if k % 3 == 0 { &deep } else { &top };
            let content = vec![0x5A; rng.between(0, bytes / 12 + 1) as usize];
            std::fs::write(place.join(format!("{name}{k}.bin")), content).expect("a file");
        }
        self.mtools("mcopy", &["-s", top.to_str().expect("a UTF-8 path"), "::/"]);
        std::fs::remove_dir_all(&top).expect("folders");
    }

    /// mtools and fatfs take a FAT32 volume with few clusters for FAT12 or FAT16; drivers and mkfs.fat do not.
    fn is_small_fat32(&self, config: &Config) -> bool {
        config.bits == 32 && config.size / (config.sector * config.per_cluster) < 65525
    }

    /// Allocates clusters that no file owns, straight in the table, with noise in the four bits that mean nothing
    /// (not in free entries: partclone.vfat would take them for used).
    fn fill_table(&self, config: &Config, rng: &mut Rng) {
        let file = std::fs::File::options().read(true).write(true).open(&self.image).expect("the image");
        let mut boot = [0; 64];
        file.read_exact_at(&mut boot, 0).expect("a boot sector");
        let field = |at: usize, len: usize| boot[at..at + len].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        let fat_size = field(36, 4) * config.sector;
        let mut table = vec![0; fat_size as usize];
        file.read_exact_at(&mut table, field(14, 2) * config.sector).expect("a table");
        let mut used = false;
        for entry in table.chunks_mut(4).skip(3) {
            used = config.fill == Fill::Full || (used != (rng.between(0, 20) == 0));
            let noise = (rng.next() as u8) << 4;
            entry.copy_from_slice(&[[0; 4], [0xFF, 0xFF, 0xFF, noise | 0x0F]][usize::from(used)]);
        }
        for copy in 0..config.copies {
            file.write_all_at(&table, field(14, 2) * config.sector + copy * fat_size).expect("a table");
        }
    }

    fn fill(&self, config: &Config, rng: &mut Rng) {
        if config.fill == Fill::Empty {
            return;
        }
        if self.is_small_fat32(config) {
            return self.fill_table(config, rng);
        }
        let share = (self.free() / 6).min(3 * MIB);
        // A dozen entries and four folders take up to 20 clusters.
        let room = share > 30 * config.sector * config.per_cluster;
        if room {
            self.copy_tree("first", share, rng);
            self.mtools("mdel", &["::/first/first1.bin", "::/first/first4.bin", "::/first/first7.bin"]);
            self.copy_tree("second", share, rng);
            self.mtools("mdeltree", &["::/first/a folder with a long name"]);
            self.mtools("mdel", &["::/second/second2.bin", "::/second/second10.bin"]);
        }
        if config.fill == Fill::Full {
            let rest = self.folder.path().join("rest");
            std::fs::File::create(&rest).and_then(|f| f.set_len(self.free())).expect("a file");
            self.mtools("mcopy", &[rest.to_str().expect("a UTF-8 path"), "::/"]);
            assert_eq!(self.free(), 0, "{config:?}: the volume should be full");
        }
    }
}

/// partclone's view: lines `POSITION SIZE STATE`, `?` for free.
fn partclone(volume: &Volume) -> Vec<(u64, u64)> {
    let domain = volume.folder.path().join("domain");
    let domain = domain.to_str().expect("a UTF-8 path");
    tool_ok("partclone.vfat", &["-D", "-s", volume.path(), "-O", domain, "-L", "/dev/null"]);
    let text = std::fs::read_to_string(domain).expect("a domain file");
    let hex = |s: &str| u64::from_str_radix(s.trim_start_matches("0x"), 16).expect("a number");
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.len() == 3 && words[2] == "?")
        .map(|words| (hex(words[0]), hex(words[1])))
        .collect()
}

/// `(used, all)` clusters as fsck.fat counts them.
fn fsck(volume: &Volume) -> (u64, u64) {
    let output = tool("fsck.fat", &["-n", "-v", volume.path()]);
    let text = String::from_utf8_lossy(&output.stdout);
    // mkfs.fat forgets bad clusters in FSInfo's hint; nothing else may be wrong.
    assert!(output.status.success() || text.contains("Free cluster summary wrong"), "{text}");
    let last = text.lines().rev().find(|line| line.contains("clusters")).expect("a line with the count");
    let mut counts = last.split(' ').filter_map(|word| word.split_once('/'));
    let (used, all) = counts.next_back().expect("USED/ALL");
    (used.parse().expect("a number"), all.parse().expect("a number"))
}

struct File(std::fs::File, u64);

impl Source for File {
    fn len(&self) -> u64 {
        self.1
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.0.read_exact_at(buf, at)
    }
}

/// The first `count` witnesses must agree.
fn witnesses_agree(image: &Path, config: &Config, count: usize) {
    let file = std::fs::File::open(image).expect("the image");
    let len = file.metadata().expect("its size").len();
    let source = File(file, len);
    let options = Options { witness: WitnessMode::Always, ..Options::default() };
    let stack = coldtrim_parsers::stack::read(&[Layer { source: &source, sector_size: 512 }], &options);
    let [node] = stack.nodes.as_slice() else { panic!("{config:?}: {:?}", stack.nodes) };
    let Content::Volume { volume, testimony } = &node.content else { panic!("{config:?}: {:?}", node.content) };
    assert_eq!(volume.format, format!("fat{}", config.bits));
    assert_eq!(testimony.len(), 2);
    for words in &testimony[..count] {
        assert!(matches!(words, Testimony::Agrees { .. }), "{config:?}: {words:?}");
    }
}

/// Two lists must be equal; if not, the first difference is shown instead of everything.
fn same(oracle: &str, ours: &[(u64, u64)], theirs: &[(u64, u64)]) {
    let first = ours.iter().zip(theirs).position(|(a, b)| a != b).unwrap_or(ours.len().min(theirs.len()));
    assert!(ours == theirs, "{oracle} differs at extent {first}: {:?} and {:?}", ours.get(first), theirs.get(first));
}

fn compare(index: usize, rng: &mut Rng) {
    let config = config(index);
    println!("row {index}: {config:?}");
    let volume = Volume::format(&config, rng);
    volume.fill(&config, rng);
    let ours = map_ranges(&volume.image);
    same("fat_free.py", &ours, &volume.oracle(&[]));
    if config.bits != 12 {
        same("partclone.vfat", &volume.oracle(&["--bad"]), &partclone(&volume));
    }
    let small = volume.is_small_fat32(&config);
    witnesses_agree(&volume.image, &config, if small { 1 } else { 2 });
    if small {
        return; // fsck.fat would offer to free the clusters that no file owns
    }
    let (used, all) = fsck(&volume);
    let free = ours.iter().map(|(_, len)| len).sum::<u64>() / (config.sector * config.per_cluster);
    assert_eq!(used + free, all, "row {index}, {config:?}: fsck.fat counts differently");
}

fn rows(bits: u32) {
    let mut rng = Rng(seed("oracle_fat"));
    let all: Vec<usize> = (0..CONFIGS.len()).filter(|k| CONFIGS[*k].0 == bits).collect();
    let mut chosen = all.clone();
    if !full() {
        chosen.retain(|k| ALWAYS.contains(k));
        chosen.extend([*rng.pick(&all), *rng.pick(&all)]);
    }
    for index in chosen {
        compare(index, &mut rng);
    }
}

#[test]
fn fat12() {
    rows(12);
}

#[test]
fn fat16() {
    rows(16);
}

#[test]
fn fat32() {
    rows(32);
}

/// `map` must refuse the image with exit code 3 and these words.
fn refused(image: &Path, words: &str) {
    let output = coldtrim(&["map", "--format", "ranges", image.to_str().expect("a UTF-8 path")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{words}: {said}");
    assert!(said.contains(words), "{words}: {said}");
    assert_eq!(output.stdout, b"", "{words}");
}

/// One change of a filled volume each, taken back afterwards: the boot sector's dirty byte, the clean bit in entry 1
/// of both tables, a used entry freed in the second table, then in both, and the end of the volume cut off.
#[test]
fn refusals() {
    let mut rng = Rng(seed("oracle_fat refusals"));
    for (index, state, clean_at) in [(21, 0x25, 3), (41, 0x41, 7)] {
        let config = config(index);
        let volume = Volume::format(&config, &mut rng);
        volume.fill(&config, &mut rng);
        let boot = |at, len| read_number(&volume, at, len);
        let first = boot(14, 2) * 512;
        let second = first + if config.bits == 32 { boot(36, 4) } else { boot(22, 2) } * 512;
        let change = |places: &[u64], value: u8, words: &str| {
            let before: Vec<u64> = places.iter().map(|at| boot(*at, 1)).collect();
            // Closed again before coldtrim looks: an image that is open for writing elsewhere is refused.
            let write = |values: &mut dyn Iterator<Item = u8>| {
                let file = std::fs::File::options().write(true).open(&volume.image).expect("the image");
                places.iter().zip(values).for_each(|(at, value)| file.write_all_at(&[value], *at).expect("a write"));
            };
            write(&mut std::iter::repeat(value));
            refused(&volume.image, words);
            write(&mut before.into_iter().map(|old| old as u8));
        };
        // The last cluster before the first free one is in use, with an entry of low byte other than 0.
        let width = u64::from(config.bits) / 8;
        let used = (volume.oracle(&[])[0].0 - data_start(&volume)) / (config.sector * config.per_cluster) + 1;
        let entry = used * width;
        change(&[state], 1, "dirty bit");
        change(&[first + clean_at, second + clean_at], 0x07, "not cleanly unmounted");
        change(&[second + entry], 0x01, "copies of the FAT differ");
        let all: Vec<u64> = (0..width).flat_map(|k| [first + entry + k, second + entry + k]).collect();
        change(&all, 0, "calls them free");
        map_ranges(&volume.image); // everything is as it was
        let file = std::fs::File::options().write(true).open(&volume.image).expect("the image");
        file.set_len(config.size - 2 * MIB).expect("a cut");
        drop(file);
        refused(&volume.image, "bytes");
    }
}

/// A wrong number of sectors in a cluster moves every file. Where FAT32 has no copy of its boot sector, as in FAT12 and
/// FAT16, only the lengths of the FAT and of the chains tell; no directory is there to tell by its first entry.
#[test]
fn a_wrong_cluster_size_is_refused() {
    for (bits, size, right) in [("12", "4M", 4_u8), ("16", "64M", 4), ("32", "64M", 1)] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (image, file) = (folder.path().join("image"), folder.path().join("file"));
        let (name, from) = (image.to_str().expect("a UTF-8 path"), file.to_str().expect("a UTF-8 path"));
        tool_ok("truncate", &["-s", size, name]);
        let mut make = vec!["-F", bits, "-s", if right == 1 { "1" } else { "4" }, name];
        if bits == "32" {
            make.splice(..0, ["-b", "0"]);
        }
        tool_ok("mkfs.fat", &make);
        for number in 0..9 {
            std::fs::write(&file, vec![0x5A; 3000 + number * 2500]).expect("a file");
            tool_ok("mcopy", &["-i", name, from, &format!("::{number}")]);
        }
        map_ranges(&image);
        for wrong in (0..8).map(|k| 1 << k).filter(|wrong| *wrong != right) {
            let open = || std::fs::File::options().write(true).open(&image).expect("the image");
            open().write_all_at(&[wrong], 13).expect("a write");
            let output = coldtrim(&["map", name]);
            assert_eq!(output.status.code(), Some(3), "FAT{bits}, {wrong} instead of {right}: {output:?}");
            open().write_all_at(&[right], 13).expect("a write");
        }
    }
}

/// The little-endian number of `len` bytes at byte `at` of the image.
fn read_number(volume: &Volume, at: u64, len: usize) -> u64 {
    let mut bytes = vec![0; len];
    std::fs::File::open(&volume.image).and_then(|f| f.read_exact_at(&mut bytes, at)).expect("a read");
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

/// Where cluster 2 begins, straight from the boot sector.
fn data_start(volume: &Volume) -> u64 {
    let field = |at, len| read_number(volume, at, len);
    let fat = if field(22, 2) == 0 { field(36, 4) } else { field(22, 2) };
    (field(14, 2) + field(16, 1) * fat) * field(11, 2) + field(17, 2) * 32
}

#[test]
fn carried_images() {
    carried_image_equals_its_records("fat16");
    carried_image_equals_its_records("fat32");
}
