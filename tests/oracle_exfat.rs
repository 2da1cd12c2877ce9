//! exFAT volumes made by mkfs.exfat and filled by `tests/oracle/exfat_writer.py`, against other readings of the same
//! bytes: `tests/oracle/exfat_free.py` and partclone.exfat for the map, dump.exfat for the count of free clusters.
//! fsck.exfat checks what the writer wrote.
//!
//! These three tools read the bitmap as if its clusters were neighbours: where it is scattered, only the Python reader
//! and the witness are left. partclone also calls everything free that lies outside of the clusters, and the last two
//! clusters in any case: its answer is cut before them.

mod common;

use coldtrim_parsers::source::Source;
use coldtrim_parsers::stack::{Content, Layer, Options, read};
use coldtrim_parsers::witness::Testimony;
use common::{Rng, carried_image_equals_its_records, coldtrim, full, map_ranges, parse_ranges, seed, tool_ok};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// `(size of the image, cluster size, further options of mkfs.exfat, what the writer does)`; `-` is an empty volume.
type Config = (u64, &'static str, &'static [&'static str], &'static str);

#[rustfmt::skip]
const CONFIGS: &[Config] = &[
    (9 * MIB,               "512",  &[],                             ""),
    (9 * MIB + 77,          "512",  &[],                             "bitmap bad"),
    (7 * MIB + 513,         "512",  &[],                             "full bitmap"),
    (5 * MIB + 1,           "512",  &["-b", "64K"],                  "full"),
    (33 * MIB - 1,          "512",  &["-b", "4K"],                   "bad"),
    (12 * MIB,              "512",  &["-b", "512"],                  "-"),
    (9 * MIB + 5 * KIB,     "1K",   &[],                             "bitmap"),
    (20 * MIB + 1025,       "1K",   &[],                             "bad"),
    (6 * MIB + 3,           "1K",   &["-b", "32K"],                  "full bad"),
    (100 * MIB + 7 * KIB,   "2K",   &[],                             ""),
    (64 * MIB - 3 * KIB,    "2K",   &["-b", "128K"],                 "bitmap bad"),
    (8 * MIB + 999,         "2K",   &[],                             "full"),
    (30 * MIB,              "4K",   &[],                             ""),
    (100 * MIB + 1,         "4K",   &[],                             "bad"),
    (511 * MIB + 5 * KIB,   "4K",   &[],                             "bitmap"),
    (17 * MIB + 512,        "4K",   &["-b", "16K"],                  "full bitmap bad"),
    (40 * MIB + 4095,       "4K",   &["--pack-bitmap"],              ""),
    (64 * MIB,              "4K",   &[],                             "-"),
    (50 * MIB + 9 * KIB,    "8K",   &[],                             "bad"),
    (99 * MIB + 77,         "8K",   &["-b", "8K"],                   "full"),
    (300 * MIB + 1,         "8K",   &[],                             ""),
    (33 * MIB + 17 * KIB,   "16K",  &[],                             "bitmap bad"),
    (200 * MIB - 1,         "16K",  &["-b", "2M"],                   ""),
    (66 * MIB,              "16K",  &[],                             "full bad"),
    (300 * MIB + 31 * KIB,  "32K",  &[],                             ""),
    (77 * MIB + 5,          "32K",  &[],                             "full"),
    (1000 * MIB + 33 * KIB, "32K",  &[],                             "bad"),
    (2000 * MIB + 1,        "32K",  &["-b", "4M"],                   "-"),
    (150 * MIB + 63 * KIB,  "64K",  &[],                             "bitmap"),
    (700 * MIB + 65 * KIB,  "64K",  &[],                             "bad"),
    (90 * MIB + 1,          "64K",  &["-b", "64K"],                  "full"),
    (300 * MIB + 127 * KIB, "128K", &[],                             ""),
    (4000 * MIB + 5,        "128K", &[],                             "bitmap bad"),
    (120 * MIB + 3 * KIB,   "128K", &["-b", "1M"],                   "full bad"),
    (200 * MIB + 255 * KIB, "256K", &[],                             "bad"),
    (500 * MIB + 511 * KIB, "512K", &[],                             ""),
    (777 * MIB + 77,        "1M",   &[],                             "bad"),
    (900 * MIB + 1,         "2M",   &["-b", "2M"],                   ""),
    (1500 * MIB + 4097,     "4M",   &[],                             "full"),
    (3000 * MIB + 5 * KIB,  "8M",   &[],                             ""),
    (6000 * MIB + 123,      "16M",  &[],                             "bad"),
    (9000 * MIB + 321,      "32M",  &[],                             ""),
    (3 * MIB,               "512",  &["-b", "512"],                  "full bad bitmap"),
    (16 * MIB - 512,        "4K",   &["-L", "ELF ZEICHEN"],          "bad bitmap"),
];

/// Rows that every run takes: one of every kind.
const ALWAYS: &[usize] = &[1, 3, 5, 12, 15, 16, 23, 29, 33, 41, 43];

/// The volume under test, in a folder of its own.
struct Volume {
    image: PathBuf,
    folder: tempfile::TempDir,
    scattered: bool,
}

impl Volume {
    fn make((size, cluster, more, writer): Config, rng: &mut Rng) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("volume.img");
        std::fs::File::create(&image).and_then(|f| f.set_len(size)).expect("an image");
        let volume = Self { image, folder, scattered: writer.contains("bitmap") };
        let mut args = vec!["-c", cluster];
        args.extend(more);
        args.push(volume.path());
        tool_ok("mkfs.exfat", &args);
        if writer != "-" {
            let seed = rng.next().to_string();
            let mut args = vec!["tests/oracle/exfat_writer.py", volume.path(), &seed];
            args.extend(writer.split_whitespace());
            tool_ok("python3", &args);
        }
        volume
    }

    fn path(&self) -> &str {
        self.image.to_str().expect("a UTF-8 path")
    }

    /// partclone's view: lines `POSITION SIZE STATE`, `?` for free.
    fn partclone(&self) -> Vec<(u64, u64)> {
        let domain = self.folder.path().join("domain");
        let name = domain.to_str().expect("a UTF-8 path");
        tool_ok("partclone.exfat", &["-D", "-s", self.path(), "-O", name, "-L", "/dev/null"]);
        let text = std::fs::read_to_string(&domain).expect("a domain file");
        let hex = |s: &str| u64::from_str_radix(s.trim_start_matches("0x"), 16).expect("a number");
        text.lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|words| words.len() == 3 && words[2] == "?")
            .map(|words| (hex(words[0]), hex(words[1])))
            .collect()
    }

    /// Bytes from the first to behind the last cluster, and a cluster's size, straight from the boot sector.
    fn clusters(&self) -> ((u64, u64), u64) {
        let mut boot = [0; 120];
        std::fs::File::open(&self.image).and_then(|f| f.read_exact_at(&mut boot, 0)).expect("a boot sector");
        let field = |at: usize| u64::from(u32::from_le_bytes(boot[at..at + 4].try_into().expect("four bytes")));
        let start = field(88) << boot[108];
        let cluster = 1 << (boot[108] + boot[109]);
        ((start, start + field(92) * cluster), cluster)
    }
}

/// The number behind a line of dump.exfat.
fn dump(volume: &Volume, key: &str) -> u64 {
    let text = tool_ok("dump.exfat", &[volume.path()]);
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_else(|| panic!("{key} in {text}"));
    line.trim_start_matches(':').trim().parse().expect("a number")
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

fn witness_agrees(volume: &Volume) {
    let file = std::fs::File::open(&volume.image).expect("the image");
    let len = file.metadata().expect("its size").len();
    let stack = read(&[Layer { source: &File(file, len), sector_size: 512 }], &Options::default());
    let [node] = stack.nodes.as_slice() else { panic!("{:?}", stack.nodes) };
    let Content::Volume { testimony, volume } = &node.content else { panic!("{:?}", node.content) };
    assert!(matches!(testimony.as_slice(), [Testimony::Agrees { .. }]), "{testimony:?}");
    assert_eq!(volume.findings, []);
}

/// Two lists must be equal; if not, the first difference is shown instead of everything.
fn same(oracle: &str, ours: &[(u64, u64)], theirs: &[(u64, u64)]) {
    let first = ours.iter().zip(theirs).position(|(a, b)| a != b).unwrap_or(ours.len().min(theirs.len()));
    assert!(ours == theirs, "{oracle} differs at extent {first}: {:?} and {:?}", ours.get(first), theirs.get(first));
}

fn compare(index: usize, rng: &mut Rng) {
    println!("row {index}: {:?}", CONFIGS[index]);
    let volume = Volume::make(CONFIGS[index], rng);
    let ours = map_ranges(&volume.image);
    let (clusters, size) = volume.clusters();
    same("exfat_free.py", &ours, &parse_ranges(&tool_ok("python3", &["tests/oracle/exfat_free.py", volume.path()])));
    witness_agrees(&volume);
    if volume.scattered {
        return;
    }
    tool_ok("fsck.exfat", &["-n", volume.path()]);
    let but_two = (clusters.0, clusters.1 - 2 * size);
    same("partclone.exfat", &cut(&ours, but_two), &cut(&volume.partclone(), but_two));
    let free: u64 = ours.iter().map(|(_, len)| len).sum();
    assert_eq!(free / size, dump(&volume, "Free Clusters"), "dump.exfat counts differently");
}

/// The parts of the ranges that lie between `start` and `end`.
fn cut(ranges: &[(u64, u64)], (start, end): (u64, u64)) -> Vec<(u64, u64)> {
    let parts = ranges.iter().map(|(at, len)| (*at.max(&start), end.min(at + len)));
    parts.filter(|(from, to)| from < to).map(|(from, to)| (from, to - from)).collect()
}

#[test]
fn exfat() {
    let mut rng = Rng(seed("oracle_exfat"));
    let all: Vec<usize> = (0..CONFIGS.len()).collect();
    let mut chosen = if full() { all.clone() } else { ALWAYS.to_vec() };
    if !full() {
        chosen.extend((0..3).map(|_| *rng.pick(&all)));
    }
    for index in chosen {
        compare(index, &mut rng);
    }
}

/// One change of a filled volume each, taken back afterwards: VolumeDirty, MediaFailure, a byte of the boot region,
/// a file's clusters freed in the bitmap, a byte of a directory, and the end of the volume cut off.
#[test]
fn refusals() {
    let mut rng = Rng(seed("oracle_exfat refusals"));
    let volume = Volume::make((9 * MIB + 77, "4K", &[], ""), &mut rng);
    let refused = |words: &str| {
        let output = coldtrim(&["map", "--format", "ranges", volume.path()]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{words}: {said}");
        assert!(said.contains(words), "{words}: {said}");
        assert_eq!(output.stdout, b"", "{words}");
    };
    let open = || std::fs::File::options().read(true).write(true).open(&volume.image).expect("the image");
    let change = |at: u64, bytes: &[u8], words: &str| {
        let mut before = vec![0; bytes.len()];
        open().read_exact_at(&mut before, at).expect("a read");
        // Closed again before coldtrim looks: an image that is open for writing elsewhere is refused.
        open().write_all_at(bytes, at).expect("a write");
        refused(words);
        open().write_all_at(&before, at).expect("a write");
    };
    // mkfs.exfat puts the bitmap into cluster 2, the up-case table into 3 and 4, the root directory into 5.
    let ((heap, _), cluster) = volume.clusters();
    change(106, &[2], "not cleanly unmounted");
    change(106, &[4], "errors of the drive");
    change(300, &[1], "checksum of the boot region");
    change(110, &[2], "TexFAT");
    change(heap, &[0], "marked used");
    change(heap + 1, &[0; 200], "calls them free");
    change(heap + 3 * cluster + 3 * 32 + 70, &[0x55], "checksum of a set");
    map_ranges(&volume.image); // everything is as it was
    open().set_len(8 * MIB).expect("a cut");
    refused("bytes");
}

#[test]
fn carried_images() {
    carried_image_equals_its_records("exfat");
}

/// 1 TiB with clusters of 128 KiB, nearly empty: the bitmap is 1 MiB. The FAT, 32 MiB, is read as well where clusters
/// are free, because a cluster that it calls bad is kept; the witness and the probing of every
/// other format add some 2 MiB.
#[test]
fn reads_little_of_a_large_volume() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("volume.img");
    std::fs::File::create(&image).and_then(|f| f.set_len(1 << 40)).expect("an image");
    tool_ok("mkfs.exfat", &["-c", "128K", image.to_str().expect("a UTF-8 path")]);
    let source = File(std::fs::File::open(&image).expect("the image"), 1 << 40);
    let recording = coldtrim_parsers::witness::Recording::new(&source, u64::MAX);
    let stack = read(&[Layer { source: &recording, sector_size: 512 }], &Options::default());
    assert!(matches!(&stack.nodes[0].content, Content::Volume { volume, .. } if volume.is_usable()));
    let ranges = recording.take();
    let bytes: u64 = ranges.iter().map(|range| range.len()).sum();
    println!("{bytes} bytes read in {} places", ranges.len());
    assert!(bytes < 36 * MIB && ranges.len() < 250, "{bytes} bytes in {} places", ranges.len());
}
