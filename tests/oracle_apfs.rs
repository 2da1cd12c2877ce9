//! What coldtrim calls free in APFS containers against answers that share no code with it: a short reader in Python,
//! apfsck (which adds up every owner and compares the bitmaps), and the writer of the image itself.
//!
//! mkapfs makes empty volumes of 4 KiB blocks; what else the format allows is written by `oracle/apfs_make.py`.
#![allow(clippy::as_conversions, clippy::arithmetic_side_effects)]

mod common;

use coldtrim_parsers::fs::by_name;
use coldtrim_parsers::source::Source;
use coldtrim_parsers::volume::Volume;
use coldtrim_parsers::witness::{Testimony, hear};
use common::{Rng, coldtrim, full, map_ranges, parse_ranges, seed, tool, tool_ok};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

type Ranges = Vec<(u64, u64)>;

/// What an image is made of: a line for `apfs_make.py`, and whether apfsck knows everything that is in it.
struct Case {
    line: &'static str,
    checked: bool,
}

const fn case(line: &'static str) -> Case {
    Case { line, checked: true }
}

/// apfsck does not know: other block sizes, fragmented areas, address blocks, space managers of several blocks,
/// snapshots made by others, encryption, and queues of many nodes.
const fn beyond_apfsck(line: &'static str) -> Case {
    Case { line, checked: false }
}

/// One of every kind.
const CASES: &[Case] = &[
    case("blocks=40000"),
    case("blocks=40000 files=6 jumpstart=1 queue=20"),
    case("blocks=70001 files=50 depth=8 wrap=1"),
    case("blocks=400001 files=30 volumes=3 queue=9 wrap=1"),
    case("blocks=98305 files=12 last=1"),
    beyond_apfsck("block=8192 blocks=70007 files=20 queue=11 last=1"),
    beyond_apfsck("block=16384 blocks=131073 files=20 volumes=2 wrap=1"),
    beyond_apfsck("block=32768 blocks=9001 files=20 queue=30 snapshots=1"),
    beyond_apfsck("block=65536 blocks=2000000 files=20 queue=9 wrap=1 wide=2"),
    beyond_apfsck("blocks=50021 files=40 fragments=3 wrap=1 queue=40 depth=5"),
    beyond_apfsck("blocks=50021 fragments=5 depth=2 wide=3"),
    beyond_apfsck("blocks=300007 files=9 cabs=1 queue=3"),
    beyond_apfsck("blocks=33001 files=5 snapshots=3 encrypted=1 volumes=2 keybags=1"),
    beyond_apfsck("blocks=3001 files=3 tail=3500 wide=4 wrap=1"),
    beyond_apfsck("blocks=1217 fill=50 files=3 tail=511"),
    beyond_apfsck("blocks=1217 fill=100 files=3 reserve=20"),
    beyond_apfsck("block=8192 blocks=1400 fill=98 per_map=9"),
    beyond_apfsck("blocks=33000 fill=10 bitmaps=1 old=0"),
    beyond_apfsck("blocks=2684354561 cabs=1 files=40 queue=5 last=1"),
];

fn script(name: &str) -> String {
    format!("{}/tests/oracle/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

/// Writes an image; gives its path and what the writer left free.
fn make(folder: &Path, line: &str) -> (PathBuf, Ranges) {
    let image = folder.join("apfs.img");
    let script = script("apfs_make.py");
    let arguments: Vec<&str> = [script.as_str(), text(&image)].into_iter().chain(line.split(' ')).collect();
    let truth = parse_ranges(&tool_ok("python3", &arguments));
    (image, truth)
}

fn python(image: &Path) -> Ranges {
    parse_ranges(&tool_ok("python3", &[&script("apfs_free.py"), text(image)]))
}

fn apfsck(image: &Path, what: &str) {
    let output = tool("apfsck", &["-c", "-u", "-w", text(image)]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{what}: apfsck says {said}");
}

/// An image file as the parsers see it.
struct Image {
    file: std::fs::File,
    len: u64,
    read: Mutex<u64>,
}

impl Image {
    fn open(path: &Path) -> Self {
        let file = std::fs::File::open(path).expect("the image");
        let len = file.metadata().expect("its length").len();
        Self { file, len, read: Mutex::new(0) }
    }
}

impl Source for Image {
    fn len(&self) -> u64 {
        self.len
    }
    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        *self.read.lock().expect("no panic") += buf.len() as u64;
        self.file.read_exact_at(buf, at)
    }
}

fn read(source: &dyn Source) -> Result<Volume, String> {
    by_name("apfs").expect("the row").read(source, &[]).map_err(|error| error.to_string())
}

fn ranges(volume: &Volume) -> Ranges {
    volume.free.ranges().iter().map(|range| (range.start(), range.len())).collect()
}

/// What both witnesses say; no clash may be heard, and the first must be able to read.
fn hear_witnesses(source: &dyn Source, volume: &Volume, what: &str) -> (u64, bool) {
    let witnesses = by_name("apfs").expect("the row").witnesses();
    let said: Vec<Testimony> = witnesses.iter().map(|witness| hear(*witness, source, &volume.free)).collect();
    let extents = match &said[0] {
        Testimony::Agrees { extents, .. } => *extents,
        other => panic!("{what}: {other:?}"),
    };
    assert!(!matches!(said[1], Testimony::Clash { .. }), "{what}: {:?}", said[1]);
    (extents, matches!(said[1], Testimony::Agrees { .. }))
}

fn compare(line: &str, checked: bool) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (image, truth) = make(folder.path(), line);
    assert_eq!(map_ranges(&image), truth, "{line}: coldtrim (left) and the writer (right)");
    assert_eq!(python(&image), truth, "{line}: apfs_free.py (left) and the writer (right)");
    if checked {
        apfsck(&image, line);
    }
    let source = Image::open(&image);
    let volume = read(&source).expect("a good container");
    let (extents, crate_reads) = hear_witnesses(&source, &volume, line);
    assert!(extents >= 8, "{line}: the witness saw {extents} extents");
    let within_reach = ["snapshots", "encrypted", "fragments"].iter().all(|word| !line.contains(word));
    assert_eq!(crate_reads, within_reach, "{line}: whether the apfs crate reads it");
}

#[test]
fn every_kind_equals_the_writer_python_and_apfsck() {
    for Case { line, checked } in CASES {
        compare(line, *checked);
    }
}

/// Random mixtures of everything.
#[test]
fn random_containers_equal_the_writer_and_python() {
    let mut rng = Rng(seed("random_containers_equal_the_writer_and_python"));
    for _ in 0..if full() { 60 } else { 4 } {
        let block = 4096_u64 << rng.between(0, 5);
        let mut line = format!("seed={} block={block} blocks={}", rng.between(0, 1 << 30), rng.between(2500, 200_000));
        for (key, most) in [("files", 30), ("queue", 30), ("volumes", 3), ("wide", 4), ("tail", 4000), ("depth", 12)] {
            let least = u64::from(key == "volumes" || key == "wide");
            let value = rng.between(least, most);
            line += &format!(" {key}={}", if key == "depth" && value < 4 { 0 } else { value });
        }
        for key in ["wrap", "cabs", "jumpstart", "keybags", "last", "old", "bitmaps", "snapshots"] {
            line += &format!(" {key}={}", rng.between(0, 2));
        }
        line += &format!(" fragments={}", rng.pick(&[0, 0, 2, 3]));
        compare_random(&line);
    }
}

fn compare_random(line: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (image, truth) = make(folder.path(), line);
    assert_eq!(map_ranges(&image), truth, "{line}: coldtrim (left) and the writer (right)");
    assert_eq!(python(&image), truth, "{line}: apfs_free.py (left) and the writer (right)");
    let source = Image::open(&image);
    hear_witnesses(&source, &read(&source).expect("a good container"), line);
}

/// Containers by mkapfs: sizes that are no multiple of anything; labels and uuids as blkid and mkapfs say.
#[test]
fn mkapfs_equals_python_and_apfsck() {
    let mut rng = Rng(seed("mkapfs_equals_python_and_apfsck"));
    let fixed = [268_435_456, 268_439_552, 1 << 30, (5 << 30) + 4096 * 7 + 13, 40 << 30];
    let random = (0..if full() { 30 } else { 4 }).map(|_| rng.between(134_300_000, 60 << 30)).collect::<Vec<_>>();
    for size in fixed.into_iter().chain(random) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let image = folder.path().join("apfs.img");
        std::fs::File::create(&image).and_then(|file| file.set_len(size)).expect("an image");
        let uuid = "0b4e1c72-93b1-4f0e-a2c7-51d3a86c9f10";
        let flags = *rng.pick(&["", "-s", "-z", "-sz"]);
        let name = ["-L", "Ablage", "-U", uuid, text(&image)];
        let words = [flags].into_iter().chain(name).filter(|word| !word.is_empty());
        tool_ok("mkapfs", &words.collect::<Vec<_>>());
        let ours = map_ranges(&image);
        assert_eq!(ours, python(&image), "{size} bytes: coldtrim (left) and apfs_free.py (right)");
        apfsck(&image, &format!("{size} bytes"));
        let source = Image::open(&image);
        let volume = read(&source).expect("a good container");
        assert_eq!((volume.label.as_deref(), volume.uuid.as_deref()), (Some("Ablage"), Some(uuid)));
        assert!(tool_ok("blkid", &["-p", text(&image)]).contains(uuid), "blkid knows another uuid");
        assert!(tool_ok("fsapfsinfo", &[text(&image)]).contains(uuid), "fsapfsinfo knows another uuid");
        assert_eq!((volume.size, volume.block_size), (size / 4096 * 4096, 4096));
        hear_witnesses(&source, &volume, &format!("{size} bytes"));
    }
}

const CARRIED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/apfs/01-demo");

/// The bytes of the container that the Linux driver filled.
fn carried() -> Vec<u8> {
    tool("gzip", &["-dc", &format!("{CARRIED}/image.gz")]).stdout
}

/// The container that the Linux driver filled: both witnesses read it, and see every extent that the manifest has.
#[test]
fn the_drivers_container_equals_its_fixture() {
    let work = tempfile::tempdir().expect("a temporary folder");
    let image = work.path().join("apfs.img");
    let bytes = carried();
    std::fs::write(&image, &bytes).expect("an image");
    let record = |name| std::fs::read_to_string(format!("{CARRIED}/{name}"));
    let expected = parse_ranges(&record("free.ranges").expect("free.ranges"));
    assert_eq!(map_ranges(&image), expected);
    assert_eq!(python(&image), expected);
    let manifest = record("manifest.json").expect("manifest.json");
    assert_eq!(tool_ok("python3", &[&script("apfs_files.py"), text(&image)]), manifest);
    let (extents, crate_reads) = hear_witnesses(&bytes, &read(&bytes).expect("a good container"), "the fixture");
    assert!(extents > 20 && crate_reads, "{extents} extents");
}

#[test]
fn an_unclean_container_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (image, _) = make(folder.path(), "blocks=3000 unclean=1");
    let output = coldtrim(&["map", "--format", "ranges", text(&image)]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(output.stdout.is_empty() && said.contains("not cleanly unmounted"), "{said}");
}

/// The newest superblock lost, and block 0 an older copy: the checkpoint before looks like a clean end, but what it
/// calls free is not what is free now.
#[test]
fn an_older_checkpoint_is_not_believed() {
    let good = carried();
    let number = |at: usize| u64::from_le_bytes(good[at..at + 8].try_into().expect("8 bytes"));
    let (first, count) = (number(0x70) as usize, good[0x68] as usize);
    let mut superblocks: Vec<(u64, usize)> = (first..first + count)
        .map(|block| block * 4096)
        .filter(|at| good[at + 24..at + 28] == SUPERBLOCK.to_le_bytes())
        .map(|at| (number(at + 16), at))
        .collect();
    superblocks.sort_unstable();
    let [.., (_, older), (newest, lost)] = superblocks[..] else { panic!("{superblocks:?}") };
    assert_eq!(newest, number(16), "the container is clean");
    assert!(read(&good).expect("a good container").is_usable());
    let mut bytes = good.clone();
    bytes.copy_within(older..older + 4096, 0);
    bytes[lost..lost + 4096].fill(0);
    let found = read(&bytes);
    let said = found.map(|volume| (volume.is_usable(), format!("{:?}", volume.findings)));
    assert!(matches!(&said, Ok((false, words)) if words.contains("without its superblock")), "{said:?}");
}

/// Ten TB with hardly anything in it: what is read is the container's own structure and little else.
#[test]
fn a_large_container_costs_its_chunk_records() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (image, _) = make(folder.path(), "blocks=2684354561 cabs=1 files=40 queue=5 last=1");
    let source = Image::open(&image);
    read(&source).expect("a good container");
    let read = *source.read.lock().expect("no panic");
    // 651 chunk-info blocks and 2 address blocks, a bitmap for each chunk in use (under 200), a few dozen more.
    println!("10 TiB: {read} bytes read, of them {} of chunk-info blocks", 653 * 4096);
    assert!(read < (653 + 200 + 100) * 4096, "{read} bytes read");
}

/// A good image with some bytes changed.
struct Changed<'a> {
    inner: &'a [u8],
    changes: Vec<(u64, u8)>,
}

impl Source for Changed<'_> {
    fn len(&self) -> u64 {
        Source::len(self.inner)
    }
    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.inner.read_at(at, buf)?;
        for (place, value) in &self.changes {
            if let Some(byte) = place.checked_sub(at).and_then(|offset| buf.get_mut(offset as usize)) {
                *byte = *value;
            }
        }
        Ok(())
    }
}

/// Which blocks of `size` bytes a reading touches.
fn touched(bytes: &[u8], size: u64) -> Vec<u64> {
    let recording = coldtrim_parsers::witness::Recording::new(&bytes, u64::MAX);
    read(&recording).expect("a good container");
    let mut blocks: Vec<u64> = recording.take().iter().flat_map(|r| r.start() / size..r.end().div_ceil(size)).collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

fn is_free(ranges: &Ranges, at: u64) -> bool {
    ranges.iter().any(|(start, len)| (*start..start + len).contains(&at))
}

/// A map that frees what the truth calls used.
fn frees_too_much(found: &Ranges, truth: &Ranges) -> bool {
    !found.iter().all(|(start, len)| truth.iter().any(|(s, l)| s <= start && start + len <= s + l))
}

fn has_header(block: &[u8]) -> bool {
    // Objects have a transaction and a type; the bitmaps of a fresh container start with used blocks.
    let kind = u32::from_le_bytes(block[24..28].try_into().expect("four bytes"));
    let xid = u64::from_le_bytes(block[16..24].try_into().expect("eight bytes"));
    matches!(kind & 0xFFFF, 1..=0x14) && xid < 100 && kind & 0x0FFF_0000 == 0
}

/// No single flipped bit of a block that is read ever puts a used block into the map. In objects the checksum sees
/// it, in bitmaps the count of their chunk, in the pool's bitmap the blocks that the space manager lives in.
#[test]
fn flips() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (image, truth) = make(folder.path(), "blocks=700 files=4 queue=5 volumes=2 jumpstart=1 snapshots=1 wrap=1");
    let bytes = std::fs::read(&image).expect("the image");
    let mut rng = Rng(seed("flips"));
    let (mut refused, mut same, mut bitmap_refused, mut bitmap_same) = (0_u64, 0_u64, 0_u64, 0_u64);
    for block in touched(&bytes, 4096) {
        let start = block as usize * 4096;
        let object = has_header(&bytes[start..start + 4096]);
        // Of a bitmap only the first 700 bits count.
        let most = if object { 32768 } else { 700 };
        let bits: Vec<u64> =
            if full() { (0..32768).collect() } else { (0..40).map(|_| rng.between(0, most)).collect() };
        for bit in bits {
            let at = block * 4096 + bit / 8;
            let changes = vec![(at, bytes[at as usize] ^ 1 << (bit % 8))];
            match read(&Changed { inner: &bytes, changes }) {
                Err(_) if object => refused += 1,
                Err(_) => bitmap_refused += 1,
                Ok(volume) => {
                    let found = ranges(&volume);
                    let unusable = !volume.is_usable();
                    assert!(
                        unusable || !frees_too_much(&found, &truth),
                        "block {block} bit {bit}: a used block is free"
                    );
                    let counter = if object { &mut same } else { &mut bitmap_same };
                    *counter += 1;
                }
            }
        }
    }
    println!(
        "flips in objects: {refused} refused, {same} without effect (old checkpoints); in bitmaps: {bitmap_refused} refused by counts, {bitmap_same} without effect"
    );
    assert!(refused > 0 && bitmap_refused > 0);
}

/// Two flips in a bitmap leave its count alone. What is then free and owned is found by the comparison with known
/// structures or by the extent witness: all of it, in a container whose every used block has an owner.
#[test]
fn exchanged_bits_of_a_bitmap_are_seen_by_structure_or_witness() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (image, truth) = make(folder.path(), "blocks=900 longest=20 files=9 queue=5 volumes=2 jumpstart=1 keybags=1");
    let bytes = std::fs::read(&image).expect("the image");
    let bitmap = the_bitmap(&bytes);
    let mut rng = Rng(seed("exchanged_bits"));
    let used: Vec<u64> = (0..900).filter(|block| !is_free(&truth, block * 4096)).collect();
    let free: Vec<u64> = (0..900).filter(|block| is_free(&truth, block * 4096)).collect();
    let (mut by_structure, mut by_witness) = (0, 0);
    for freed in &used {
        let changes = exchange(&bytes, bitmap, *freed, *rng.pick(&free));
        let source = Changed { inner: &bytes, changes };
        let Ok(volume) = read(&source) else {
            by_structure += 1;
            continue;
        };
        let witnesses = by_name("apfs").expect("the row").witnesses();
        let said = hear(witnesses[0], &source, &volume.free);
        assert!(matches!(said, Testimony::Clash { .. }), "block {freed} is free and nobody minds: {said:?}");
        by_witness += 1;
    }
    println!(
        "{} used blocks freed in the bitmap: {by_structure} seen by structure, {by_witness} by apfs-extents",
        used.len()
    );
    assert!(by_structure > 0 && by_witness > 0);
}

/// Byte position of the bitmap of the first chunk.
fn the_bitmap(bytes: &[u8]) -> u64 {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let cib = (0..bytes.len() / 4096).find(|block| bytes[block * 4096 + 24..][..4] == [7, 0, 0, 0x40]);
    number(cib.expect("a chunk-info block") * 4096 + 0x28 + 24) * 4096
}

/// Frees the bit of one block and takes that of another.
fn exchange(bytes: &[u8], bitmap: u64, freed: u64, taken: u64) -> Vec<(u64, u8)> {
    let [a, b] = [bitmap + freed / 8, bitmap + taken / 8];
    let [x, y] = [1 << (freed % 8), 1 << (taken % 8)];
    if a == b {
        return vec![(a, bytes[a as usize] & !x | y)];
    }
    vec![(a, bytes[a as usize] & !x), (b, bytes[b as usize] | y)]
}

/// Fletcher-64 as the format defines it, so that changed objects carry a right checksum.
fn seal(object: &mut [u8]) {
    let (mut low, mut high) = (0_u64, 0_u64);
    for word in object[8..].chunks_exact(4) {
        low = (low + u64::from(u32::from_le_bytes(word.try_into().expect("four bytes")))) % 0xFFFF_FFFF;
        high = (high + low) % 0xFFFF_FFFF;
    }
    let first = 0xFFFF_FFFF - (low + high) % 0xFFFF_FFFF;
    let second = 0xFFFF_FFFF - (low + first) % 0xFFFF_FFFF;
    object[..8].copy_from_slice(&(second << 32 | first).to_le_bytes());
}

/// Sets a field of every object of a kind whose transaction is the newest, and seals it again.
fn set(bytes: &mut [u8], kind: u32, at: usize, value: &[u8]) {
    let mut hits = 0;
    for object in bytes.chunks_exact_mut(4096) {
        let newest = object[16..24] == 7_u64.to_le_bytes();
        if newest && object[24..28] == kind.to_le_bytes() {
            object[at..at + value.len()].copy_from_slice(value);
            seal(object);
            hits += 1;
        }
    }
    assert!(hits > 0, "no object of kind {kind:#x}");
}

const SUPERBLOCK: u32 = 0x8000_0001;
const MANAGER: u32 = 0x8000_0005;
const CHUNK_INFO: u32 = 0x4000_0007;
const VOLUME: u32 = 0x0D;
const CHECKPOINT_MAP: u32 = 0x4000_000C;
const QUEUE: u32 = 0x8000_0002;
const JUMPSTART: u32 = 0x4000_0014;

/// One field changed, checksum right: object, offset, new bytes, what must be said.
const LIES: &[(u32, usize, &[u8], &str)] = &[
    (SUPERBLOCK, 0x20, b"NXSC", "magic"),
    (SUPERBLOCK, 0x24, &[0, 4, 0, 0], "block size"),
    (SUPERBLOCK, 0x28, &[0, 0, 0, 0, 1, 0, 0, 0], "size"),
    (SUPERBLOCK, 0x38, &[1], "read-only compatible features"),
    (SUPERBLOCK, 0x40, &[1], "incompatible features"),
    (SUPERBLOCK, 0x40, &[0], "version"),
    (SUPERBLOCK, 0x40, &[2, 1], "Fusion"),
    (SUPERBLOCK, 0x41, &[0x40], "unknown bits 0x4000"),
    (SUPERBLOCK, 0x60, &[3], "next transaction"),
    (SUPERBLOCK, 0x88, &[200], "index of its first descriptor"),
    (SUPERBLOCK, 0x8C, &[1], "at least a map"),
    (SUPERBLOCK, 0x98, &[0, 9], "space manager"),
    (SUPERBLOCK, 0x4D8, &[9], "resize"),
    (SUPERBLOCK, 0x4E8, &[9], "resize"),
    (SUPERBLOCK, 0x4F1, &[1], "flags"),
    (SUPERBLOCK, 0x500, &[1], "Fusion"),
    (SUPERBLOCK, 0x560, &[1], "Fusion"),
    (SUPERBLOCK, 0x510, &[0xB4, 2, 0, 0, 0, 0, 0, 0, 1], "keybag"),
    (CHECKPOINT_MAP, 0x20, &[0], "checkpoint map: flags"),
    (CHECKPOINT_MAP, 0x24, &[250], "checkpoint map"),
    (MANAGER, 0x20, &[1], "space manager: block size"),
    (MANAGER, 0x24, &[1], "blocks of a chunk"),
    (MANAGER, 0x28, &[1], "chunks of a chunk-info block"),
    (MANAGER, 0x2C, &[1], "addresses of an address block"),
    (MANAGER, 0x30, &[1], "space manager: blocks"),
    (MANAGER, 0x38, &[2], "space manager: chunks"),
    (MANAGER, 0x40, &[2], "space manager: chunk-info blocks"),
    (MANAGER, 0x48, &[1], "number of free blocks"),
    (MANAGER, 0x50, &[7], "address offset"),
    (MANAGER, 0x60, &[7], "Fusion"),
    (MANAGER, 0x90, &[4], "flags"),
    (MANAGER, 0x98, &[0xFF, 2], "internal pool: blocks inside"),
    (MANAGER, 0xC8, &[99], "free queue"),
    (MANAGER, 0xF0, &[99], "free queue"),
    (CHUNK_INFO, 0x20, &[1], "index"),
    (CHUNK_INFO, 0x24, &[2], "entries"),
    (CHUNK_INFO, 0x28, &[99], "transaction"),
    (CHUNK_INFO, 0x30, &[1], "first block"),
    (CHUNK_INFO, 0x38, &[1], "chunk: "),
    (CHUNK_INFO, 0x3C, &[1, 0], "free blocks by its record"),
    (CHUNK_INFO, 0x40, &[0, 0], "without a bitmap"),
    (QUEUE, 0x20, &[1], "flags of a node"),
    (QUEUE, 0x22, &[1], "B-tree"),
    (QUEUE, 0x24, &[1], "keys"),
    (VOLUME, 0x20, b"APSC", "magic"),
    (VOLUME, 0x24, &[7], "index"),
    (VOLUME, 0x30, &[1], "read-only compatible features"),
    (VOLUME, 0x39, &[2], "unknown bits 0x200"),
    (VOLUME, 0x38, &[0x11], "restore"),
    (VOLUME, 0xA0, &[1], "return to a snapshot"),
    (VOLUME, 0x3D0, &[1], "encryption or decryption"),
    (JUMPSTART, 0x20, b"NONE", "magic"),
    (JUMPSTART, 0xB0, &[0xB4, 2], "EFI driver"),
];

#[test]
fn every_lie_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (image, truth) = make(folder.path(), "blocks=700 files=4 queue=5 volumes=2 jumpstart=1 old=0");
    let good = std::fs::read(&image).expect("the image");
    assert!(is_free(&truth, 0x2B4 * 4096) || is_free(&truth, 0x2B6 * 4096), "the test points at a free block");
    for (kind, at, value, expected) in LIES {
        let mut bytes = good.clone();
        set(&mut bytes, *kind, *at, value);
        let said = match read(&bytes) {
            Err(error) => error,
            Ok(volume) => {
                assert!(!volume.is_usable(), "{kind:#x} at {at:#x} = {value:?}: accepted");
                volume.findings.iter().map(|finding| finding.message.clone() + &finding.remedy).collect()
            }
        };
        assert!(said.contains(expected), "{kind:#x} at {at:#x} = {value:?}: expected \"{expected}\" in: {said}");
        assert!(
            said.contains("DEVICE") || said.contains("number of free blocks") || said.contains("marked used"),
            "{said}"
        );
    }
}
