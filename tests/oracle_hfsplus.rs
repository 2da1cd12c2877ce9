//! HFS+ volumes from a small writer (Debian has no mkfs for them), read by coldtrim and by three others: a short reader in
//! Python, The Sleuth Kit and, where it can, partclone. Damage of every kind that the format shows must be refused.

mod common;

use coldtrim_parsers::source::Source;
use coldtrim_parsers::stack::{Content, Layer, Options, WitnessMode, read};
use coldtrim_parsers::witness::Testimony;
use common::{Rng, carried_image_equals_its_records, coldtrim, full, map_ranges, parse_ranges, seed, tool, tool_ok};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

type Ranges = Vec<(u64, u64)>;

/// Makes an image; gives the free ranges as the writer knows them.
fn make(path: &Path, seed: u64, options: &str) -> Ranges {
    let (seed, image) = (seed.to_string(), path.to_str().expect("UTF-8"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/hfsplus_make.py");
    let mut words = vec![script, image, &seed];
    words.extend(options.split_whitespace());
    parse_ranges(&tool_ok("python3", &words))
}

/// Options of the fixed cases: one of every kind.
const CASES: [&str; 24] = [
    "size=8388608",
    "size=8388608 files=0",
    "size=4198400 block=512 node=512 files=20 pieces=20",
    "size=10000384 block=512 node=1024 files=30 pieces=12 bitmap=3",
    "size=9999872 block=1024 files=30",
    "size=10485760 block=2048 node=8192 files=100 pieces=4",
    "size=20003328 files=40 pieces=30",
    "size=20001280 journal=empty",
    "size=20000768 journal=little files=10",
    "size=20000256 journal=unused",
    "size=20001792 files=60 pieces=40 journal=empty attributes=1",
    "size=20000000 hfsx=1 files=10",
    "size=20004864 hfsx=1 journal=empty block=8192 files=9 pieces=9",
    "size=30000128 block=512 node=512 files=40 pieces=40 bitmap=12",
    "size=40000512 block=512 node=4096 files=20 pieces=60 bitmap=19 bad=3",
    "size=16777216 bad=2 files=5",
    "size=16777216 attributes=1",
    "size=16777216 fill=100 files=30 pieces=20",
    "size=16777216 fill=0 files=3",
    "size=67108864 block=16384 files=12 pieces=10",
    "size=67112960 block=65536 node=8192 files=8",
    "size=20000256 wrapper=1 files=10 pieces=9",
    "size=20000768 wrapper=1 block=512 node=512 files=20 bitmap=9 journal=empty",
    "size=20971520 scatter=1 files=400 pieces=12 node=4096",
];

fn random_case(rng: &mut Rng) -> String {
    let block: u64 = *rng.pick(&[512, 1024, 2048, 4096, 4096, 8192, 32_768]);
    let size = rng.between(6 << 20, 24 << 20) / 512 * 512;
    let node = *rng.pick(&[512, 4096, 8192]);
    let journal = *rng.pick(&["none", "empty", "little", "unused"]);
    let (files, fill, pieces) = (rng.between(0, 80), rng.between(0, 101), rng.between(1, 30));
    let bitmap = if block == 512 { rng.between(1, 6) } else { 1 };
    let (hfsx, wrapper, bad, attributes, scatter) =
        (rng.between(0, 2), rng.between(0, 4) / 3, rng.between(0, 3), rng.between(0, 2), rng.between(0, 2));
    format!(
        "size={size} block={block} node={node} journal={journal} files={files} fill={fill} pieces={pieces} bitmap={bitmap} \
         hfsx={hfsx} wrapper={wrapper} bad={bad} attributes={attributes} scatter={scatter}"
    )
}

fn python(path: &str) -> Ranges {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/hfsplus_free.py");
    parse_ranges(&tool_ok("python3", &[script, path]))
}

/// Free blocks by The Sleuth Kit, which reads no wrapper.
fn sleuthkit(path: &str, block: u64) -> Ranges {
    let text = tool_ok("blkls", &["-f", "hfs", "-l", path]);
    let numbers = text.lines().filter_map(|line| line.strip_suffix("|f")).map(|n| n.parse::<u64>().expect("a number"));
    let mut ranges: Ranges = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((start, len)) if *start + *len == number * block => *len += block,
            _ => ranges.push((number * block, block)),
        }
    }
    ranges
}

/// Free space by partclone, which knows the first eight extents of the bitmap only.
fn partclone(path: &str, folder: &Path) -> Ranges {
    let (domain, log) = (folder.join("domain"), folder.join("log"));
    let (domain, log) = (domain.to_str().expect("UTF-8"), log.to_str().expect("UTF-8"));
    let _ = std::fs::remove_file(domain);
    tool_ok("partclone.hfsp", &["-D", "-s", path, "-o", domain, "-L", log]);
    let text = std::fs::read_to_string(domain).expect("the log");
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).expect("a number");
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1).map(|line| line.split_whitespace());
    lines
        .map(|words| words.collect::<Vec<_>>())
        .filter(|words| words.len() == 3 && words[2] == "?")
        .map(|words| (hex(words[0]), hex(words[1])))
        .collect()
}

fn option(options: &str, name: &str, default: u64) -> u64 {
    let word = options.split_whitespace().find_map(|word| word.strip_prefix(&format!("{name}=")));
    word.map_or(default, |value| value.parse().expect("a number"))
}

fn compare(folder: &Path, seed: u64, options: &str) {
    let path = folder.join("image");
    let name = path.to_str().expect("UTF-8");
    let known = make(&path, seed, options);
    let found = map_ranges(&path);
    assert_eq!(found, known, "{options}: as written");
    assert_eq!(found, python(name), "{options}: Python");
    let block = option(options, "block", 4096);
    if option(options, "wrapper", 0) == 0 {
        assert_eq!(found, sleuthkit(name, block), "{options}: The Sleuth Kit");
    }
    if option(options, "wrapper", 0) == 0 && option(options, "bitmap", 1) < 3 && option(options, "hfsx", 0) == 0 {
        assert_eq!(found, partclone(name, folder), "{options}: partclone");
    }
    // libblkid looks for the name in the catalog's usual node sizes and its first extent only.
    let ((uuid, label), (blkid_uuid, blkid_label)) = (identity(name), blkid(name));
    assert_eq!(uuid, blkid_uuid, "{options}: UUID");
    assert!(blkid_label.is_none() || label == blkid_label, "{options}: {label:?}, blkid {blkid_label:?}");
    assert!(label.is_some() || option(options, "scatter", 0) == 1, "{options}: no label");
}

/// UUID and label by libblkid.
fn blkid(path: &str) -> (Option<String>, Option<String>) {
    let value = |tag: &str| {
        let output = tool("blkid", &["-p", "-o", "value", "-s", tag, path]);
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()).filter(|text| !text.is_empty())
    };
    (value("UUID"), value("LABEL"))
}

fn identity(path: &str) -> (Option<String>, Option<String>) {
    match &load(path, WitnessMode::Never)[..] {
        [Content::Volume { volume, .. }] => (volume.uuid.clone(), volume.label.clone()),
        other => panic!("{other:?}"),
    }
}

fn load(path: &str, witness: WitnessMode) -> Vec<Content> {
    contents(&std::fs::read(path).expect("the image"), witness)
}

fn contents(bytes: &[u8], witness: WitnessMode) -> Vec<Content> {
    let options = Options { witness, ..Options::default() };
    let stack = read(&[Layer { source: &bytes, sector_size: 512 }], &options);
    stack.nodes.into_iter().map(|node| node.content).collect()
}

/// Filled, fragmented and emptied again by the kernel's driver.
#[test]
fn carried_image() {
    carried_image_equals_its_records("hfsplus");
}

#[test]
fn fixed_cases() {
    let folder = tempfile::tempdir().expect("a folder");
    for (index, options) in CASES.iter().enumerate() {
        compare(folder.path(), u64::try_from(index).expect("small"), options);
    }
}

#[test]
fn random_cases() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut rng = Rng(seed("random_cases"));
    for _ in 0..if full() { 120 } else { 18 } {
        let options = random_case(&mut rng);
        println!("{options}");
        compare(folder.path(), rng.next() % 1000, &options);
    }
}

/// The message of the refusal of changed bytes.
fn refusal(bytes: &[u8]) -> String {
    match &contents(bytes, WitnessMode::WhereNeeded)[..] {
        [Content::Refused { finding, .. }] => finding.message.clone(),
        [Content::Volume { volume, .. }] if !volume.is_usable() => {
            volume.findings.iter().map(|finding| finding.message.clone()).collect::<Vec<_>>().join("; ")
        }
        other => panic!("not refused: {other:?}"),
    }
}

fn image(options: &str) -> (Vec<u8>, Ranges) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image");
    let free = make(&path, 7, options);
    (std::fs::read(&path).expect("the image"), free)
}

/// One field of a good image changed, one refusal expected.
#[test]
fn damage_and_unclean_states_are_refused() {
    let (good, _) = image("size=8388608 journal=empty files=10");
    let journal_info = 4096 * word(&good, 1024 + 12);
    let journal = word(&good, journal_info + 40);
    let cases: &[(&str, usize, &[u8], &str)] = &[
        ("unmounted bit", 1024 + 4, &[0, 0, 0x20, 0], "not unmounted cleanly"),
        ("inconsistent boot volume", 1024 + 4, &[0, 0, 0x29, 0], "attribute bit 11"),
        ("inconsistent", 1024 + 4, &[0, 0, 0x61, 0], "attribute bit 14"),
        ("locked", 1024 + 4, &[0, 0, 0xA1, 0], "locked"),
        ("content protection", 1024 + 4, &[0x40, 0, 0x21, 0], "0x40000000"),
        ("unknown bit", 1024 + 4, &[0, 1, 0x21, 0], "0x10000"),
        ("failed replay", 1024 + 8, b"FSK!", "could not be replayed"),
        ("block size", 1024 + 40, &[0, 0, 0x10, 1], "block size"),
        ("blocks beyond the end", 1024 + 44, &[0, 0, 8, 1], "number of blocks"),
        ("free count", 1024 + 48, &[0, 0, 0, 1], "number of free blocks"),
        ("extent outside", 1024 + 112 + 16, &[0, 0, 8, 1], "an extent of"),
        ("short bitmap", 1024 + 112, &[0, 0, 0, 0, 0, 0, 0, 9], "size of the allocation file"),
        ("second header", (8 << 20) - 1024, b"XX", "no second volume header"),
        ("second header's blocks", (8 << 20) - 1024 + 44, &[0, 0, 7, 0], "no second volume header"),
        ("journal elsewhere", journal_info, &[0, 0, 0, 2], "not in this volume"),
        ("journal outside", journal_info + 36, &[0, 0, 0, 0, 0, 0x80, 0, 0], "expected it inside"),
        ("journal magic", journal, b"JNLy", "magic number"),
        ("journal checksum", journal + 40, &[9], "checksum of the journal"),
    ];
    for (what, at, bytes, words) in cases {
        let mut changed = good.clone();
        changed[*at..][..<[u8]>::len(bytes)].copy_from_slice(bytes);
        let message = refusal(&changed);
        assert!(message.contains(words), "{what}: {message}");
    }
    let message = refusal(&image("size=8388608 journal=full").0);
    assert!(message.contains("holds changes"), "{message}");
    let message = refusal(&image("size=8388608 journal=none dirty=1").0);
    assert!(message.contains("not unmounted cleanly"), "{message}");
}

fn word(bytes: &[u8], at: usize) -> usize {
    let bytes: [u8; 4] = bytes[at..at + 4].try_into().expect("four bytes");
    usize::try_from(u32::from_be_bytes(bytes)).expect("fits")
}

/// A cut copy, and a copy on a larger device.
#[test]
fn a_volume_of_another_size_than_its_device() {
    let (good, free) = image("size=8388608 files=10");
    let message = refusal(&good[..(8 << 20) - 4096]);
    assert!(message.contains("number of blocks"), "{message}");
    let mut grown = good.clone();
    grown.resize(9 << 20, 0);
    match &contents(&grown, WitnessMode::WhereNeeded)[..] {
        [Content::Volume { volume, .. }] => {
            let found: Ranges = volume.free.ranges().iter().map(|r| (r.start(), r.len())).collect();
            assert!(volume.is_usable());
            assert_eq!(found, free, "nothing behind the volume's end");
        }
        other => panic!("{other:?}"),
    }
}

/// The witness alone: a block of each kind of owner is marked free and the count kept right by marking a free one used.
#[test]
fn the_witness_names_the_owner_of_a_freed_block() {
    let (good, free) = image("size=20000768 files=30 pieces=20 bad=2 attributes=1");
    let bitmap = 4096 * word(&good, 1024 + 112 + 16);
    let total = word(&good, 1024 + 44);
    let spare = usize::try_from(free[0].0 / 4096).expect("small");
    let firsts: Vec<usize> = (112..=352).step_by(80).map(|fork| word(&good, 1024 + fork + 16)).collect();
    let mut owners = BTreeSet::new();
    for block in 0..total {
        let (byte, mask) = (bitmap + block / 8, 0x80 >> (block % 8));
        let sampled = full() || block.is_multiple_of(37) || firsts.contains(&block);
        if good[byte] & mask == 0 || !sampled {
            continue;
        }
        let mut changed = good.clone();
        changed[byte] &= !mask;
        changed[bitmap + spare / 8] |= 0x80 >> (spare % 8);
        let message = refusal(&changed);
        let special = ["catalog file", "extents overflow file", "allocation file", "attributes file", "volume header"];
        let owner = ["to file", "to bad blocks", "to attribute \""].into_iter().chain(special);
        let owner = owner.into_iter().find(|owner| message.contains(owner));
        owners.insert(owner.unwrap_or_else(|| panic!("block {block}: {message}")));
    }
    assert!(owners.contains("to file") && owners.contains("catalog file"), "{owners:?}");
    if full() {
        assert!(owners.contains("to bad blocks") && owners.contains("to attribute \""), "{owners:?}");
    }
}

/// Notes what is read.
struct Noting<'a>(&'a [u8], RefCell<BTreeSet<usize>>);

impl Source for Noting<'_> {
    fn len(&self) -> u64 {
        self.0.len().try_into().expect("fits")
    }
    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let start = usize::try_from(at).expect("fits");
        self.1.borrow_mut().extend(start / 512..(start + buf.len()).div_ceil(512));
        self.0.read_at(at, buf)
    }
}

/// HFS+ metadata has no checksums. Every flipped bit of the volume header, the bitmap and the tree of further extents
/// must leave all used blocks used; it is counted which check caught it.
#[test]
fn flips() {
    let (mut bytes, free) = image("size=4198400 block=512 node=512 files=20 pieces=12 bitmap=10 journal=empty");
    let is_free = |at: u64, len: u64| free.iter().any(|(start, size)| *start <= at && at + len <= start + size);
    let noting = Noting(&bytes, RefCell::default());
    let format = coldtrim_parsers::fs::by_name("hfsplus").expect("the row");
    format.read(&noting, &[]).expect("a good image");
    let sectors = noting.1.into_inner();
    let (mut parser, mut witness, mut harmless) = (0, 0, 0);
    let mut rng = Rng(seed("flips"));
    for sector in sectors {
        for bit in 0..512 * 8 {
            if !full() && !rng.next().is_multiple_of(64) {
                continue;
            }
            let (at, mask) = (sector * 512 + bit / 8, 1 << (bit % 8));
            bytes[at] ^= mask;
            match &contents(&bytes, WitnessMode::WhereNeeded)[..] {
                [Content::Volume { volume, testimony }] => {
                    let clash = testimony.iter().any(|words| !matches!(words, Testimony::Agrees { .. }));
                    if volume.is_usable() {
                        assert!(!clash);
                        harmless += 1;
                        for range in volume.free.ranges() {
                            assert!(is_free(range.start(), range.len()), "byte {at} bit {bit}: {range} is in use");
                        }
                    } else if clash {
                        witness += 1;
                    } else {
                        parser += 1;
                    }
                }
                _ => parser += 1,
            }
            bytes[at] ^= mask;
        }
    }
    println!(
        "flips: {parser} refused by the parser, {witness} by the witness, {harmless} changed nothing that matters"
    );
    assert!(parser > 0 && harmless > 0);
}

/// Metadata read for the map of a large, nearly empty volume: the bitmap, the header, a few blocks.
#[test]
fn a_large_volume_costs_its_bitmap() {
    let (bytes, _) = image("size=268435456 files=3");
    let noting = Noting(&bytes, RefCell::default());
    coldtrim_parsers::fs::by_name("hfsplus").expect("the row").read(&noting, &[]).expect("a good image");
    let read = 512 * noting.1.borrow().len();
    assert!(read < 8192 + 16_384, "{read} bytes for a bitmap of 8192");
}

#[test]
fn the_command_says_which_format_it_expected() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image");
    make(&path, 1, "size=8388608 journal=full");
    let output = coldtrim(&["map", "--format", "ranges", path.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("journal"));
}
