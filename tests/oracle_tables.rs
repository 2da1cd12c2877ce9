//! Partition tables made by sgdisk, sfdisk and xorriso, read by coldtrim and by two others: libblkid (partx) and the tool
//! that made them. Every partition must have the same number, first sector and length.
#![allow(clippy::as_conversions)]

mod common;

use coldtrim_parsers::source::Source;
use coldtrim_parsers::stack::{Content, Layer, Node, Options, Stack, read};
use common::{Rng, full, seed, tool, tool_ok};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

struct Image(File);

impl Source for Image {
    fn len(&self) -> u64 {
        self.0.metadata().expect("an open file").len()
    }
    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.0.read_exact_at(buf, at)
    }
}

fn stack(path: &Path) -> Stack {
    let image = Image(File::open(path).expect("the image"));
    read(&[Layer { source: &image, sector_size: 512 }], &Options::default())
}

/// (number, start, length) in sectors.
type Row = (u64, u64, u64);

fn rows(stack: &Stack, unit: u64) -> Vec<Row> {
    let mut rows: Vec<Row> = stack
        .nodes
        .iter()
        .map(|node| {
            let part = node.part.as_ref().unwrap_or_else(|| panic!("not a partition: {node:?}"));
            (u64::from(part.number), part.range.start() / unit, part.range.len() / unit)
        })
        .collect();
    rows.sort_unstable();
    rows
}

/// What libblkid sees, without the extended partition, which is none to coldtrim.
fn partx(path: &str) -> Vec<Row> {
    let output = tool("partx", &["-s", "-g", "-o", "NR,START,SECTORS,TYPE", path]);
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter(|words| !matches!(words[3].as_str(), "0x5" | "0xf" | "0x85"))
        .map(|words| {
            let number = |index: usize| words[index].parse().expect("a number");
            (number(0), number(1), number(2))
        })
        .collect()
}

/// What `sfdisk --json` says, likewise.
fn sfdisk(path: &str) -> Vec<Row> {
    let json: serde_json::Value = serde_json::from_str(&tool_ok("sfdisk", &["--json", path])).expect("JSON");
    let table = &json["partitiontable"];
    let none = Vec::new();
    table["partitions"]
        .as_array()
        .unwrap_or(&none)
        .iter()
        .filter(|part| !matches!(part["type"].as_str(), Some("5" | "f" | "85")))
        .map(|part| {
            let node = part["node"].as_str().expect("a node");
            let number = node.strip_prefix(path).and_then(|n| n.trim_start_matches('p').parse().ok());
            (
                number.expect("a number"),
                part["start"].as_u64().expect("a start"),
                part["size"].as_u64().expect("a size"),
            )
        })
        .collect()
}

/// What `sgdisk --info` says of each of the numbers.
fn sgdisk(path: &str, numbers: impl Iterator<Item = u64>) -> Vec<Row> {
    let field = |text: &str, name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
        line[name.len()..].split_whitespace().next().expect("a value").parse().expect("a number")
    };
    numbers
        .map(|number| {
            let text = tool_ok("sgdisk", &[&format!("--info={number}"), path]);
            let (first, last) = (field(&text, "First sector:"), field(&text, "Last sector:"));
            (number, first, last - first + 1)
        })
        .collect()
}

fn image(folder: &Path, name: &str, bytes: u64) -> PathBuf {
    let path = folder.join(name);
    File::create(&path).and_then(|file| file.set_len(bytes)).expect("a new image");
    path
}

/// Sorted, disjoint areas (start, length) in sectors of `first..end`.
fn areas(rng: &mut Rng, first: u64, end: u64, most: u64) -> Vec<(u64, u64)> {
    let mut areas = Vec::new();
    let mut at = first;
    while areas.len() < most as usize && at + 4000 < end {
        let start = at + *rng.pick(&[0, 0, 1, 7, 2048]);
        let length = 1 + rng.next() % ((end - start) / 3);
        areas.push((start, length));
        at = start + length;
    }
    areas
}

const GPT_TYPES: [&str; 8] = ["ef00", "ef02", "0c01", "0700", "8300", "8200", "fd00", "af00"];

fn gpt_case(folder: &Path, case: u64, rng: &mut Rng) {
    let sectors = rng.between(20_000, 3_000_000);
    let tail = *rng.pick(&[0, 0, 0, 100]); // an image whose length is no multiple of a sector
    let path = image(folder, "gpt.img", sectors * 512);
    let name = path.to_str().expect("UTF-8");
    let slots = *rng.pick(&[128, 128, 4, 56, 256]);
    let most = rng.between(0, 9).min(slots);
    let mut wanted: Vec<Row> = Vec::new();
    let mut arguments = vec!["--clear".to_owned(), format!("--resize-table={slots}"), "--set-alignment=1".to_owned()];
    for (start, length) in areas(rng, 70, sectors - 80, most) {
        let mut number = rng.between(1, slots + 1);
        while wanted.iter().any(|row| row.0 == number) {
            number = rng.between(1, slots + 1);
        }
        arguments.push(format!("--new={number}:{start}:{}", start + length - 1));
        arguments.push(format!("--typecode={number}:{}", rng.pick(&GPT_TYPES)));
        arguments.push(format!("--change-name={number}:part {case} \u{e9}"));
        wanted.push((number, start, length));
    }
    if let Some(row) = wanted.first().filter(|_| case % 4 == 1) {
        arguments.push(format!("--hybrid={}", row.0));
    }
    arguments.push(name.to_owned());
    tool_ok("sgdisk", &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let file = File::options().write(true).open(&path).expect("the image");
    file.set_len(sectors * 512 + tail).expect("room");
    wanted.sort_unstable();
    let found = stack(&path);
    assert_eq!(found.tables[0].format, "gpt", "case {case}: {:?}", found.nodes);
    assert_eq!(rows(&found, 512), wanted, "case {case}: what was asked for");
    assert_eq!(rows(&found, 512), sorted(partx(name)), "case {case}: partx");
    assert_eq!(rows(&found, 512), sgdisk(name, wanted.iter().map(|row| row.0)), "case {case}: sgdisk");
    gaps_hold(&found, case);
}

fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_unstable();
    rows
}

/// No gap may touch a partition, the first or last MiB, or lie before the first partition.
fn gaps_hold(stack: &Stack, case: u64) {
    let first = stack.nodes.iter().map(|node| node.range.start()).min().unwrap_or(0);
    for gap in &stack.tables[0].gaps {
        assert!(gap.start() >= first.max(1 << 20), "case {case}: {gap}");
        assert!(!stack.nodes.iter().any(|node| node.range.overlaps(*gap)), "case {case}: {gap}");
    }
}

/// False when sfdisk did not make the table.
fn mbr_case(folder: &Path, case: u64, rng: &mut Rng) -> bool {
    let sectors = rng.between(60_000, 3_000_000);
    let path = image(folder, "mbr.img", sectors * 512);
    let name = path.to_str().expect("UTF-8");
    let mut script = "label: dos\n".to_owned();
    let mut slots = areas(rng, 63, sectors - 10, 4);
    // One of the areas may become the extended partition, with logical ones inside.
    let extended = (!case.is_multiple_of(4) && !slots.is_empty())
        .then(|| slots.remove(rng.between(0, slots.len() as u64) as usize));
    let types = ["7", "c", "83", "82", "fd", "ef", "6"];
    let mut line = |start: u64, length: u64, kind: &str| {
        script.push_str(&format!("start={start},size={length},type={kind}\n"));
    };
    for (start, length) in slots {
        line(start, length, rng.pick::<&str>(&types));
    }
    if let Some((start, length)) = extended {
        line(start, length, rng.pick::<&str>(&["5", "f", "85"]));
        let mut at = start + 1;
        while at + 300 < start + length && rng.between(0, 7) != 0 {
            let gap = *rng.pick(&[1, 63, 2048]);
            let room = (start + length).saturating_sub(at + gap);
            if room < 2 {
                break;
            }
            let size = 1 + rng.next() % room.div_ceil(2);
            line(at + gap, size, rng.pick::<&str>(&types));
            at += gap + size + 1;
        }
    }
    let file = folder.join("script");
    std::fs::write(&file, &script).expect("the script");
    let shell = format!("sfdisk -q {name} < {}", file.display());
    let made = tool("sh", &["-c", &shell]);
    if !made.status.success() {
        return false; // sfdisk wants more room before some logical partitions than others do
    }
    let expected = sfdisk(name);
    if expected.is_empty() {
        return true; // an empty table is no table to coldtrim
    }
    let found = stack(&path);
    assert_eq!(found.tables.first().map(|t| t.format.as_str()), Some("mbr"), "case {case}: {script}{:?}", found.nodes);
    assert_eq!(rows(&found, 512), sorted(expected), "case {case}: sfdisk\n{script}");
    assert_eq!(rows(&found, 512), sorted(partx(name)), "case {case}: partx\n{script}");
    gaps_hold(&found, case);
    true
}

fn cases(few: u64, all: u64) -> u64 {
    if full() { all } else { few }
}

#[test]
fn gpt_made_by_sgdisk() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut rng = Rng(seed("gpt_made_by_sgdisk"));
    for case in 0..cases(12, 120) {
        gpt_case(folder.path(), case, &mut rng);
    }
}

#[test]
fn mbr_made_by_sfdisk() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut rng = Rng(seed("mbr_made_by_sfdisk"));
    let wanted = cases(16, 160);
    let made = (0..2 * wanted).filter(|case| mbr_case(folder.path(), *case, &mut rng)).take(wanted as usize).count();
    assert_eq!(made, wanted as usize, "tables that sfdisk was willing to make");
}

/// sfdisk writes its GPT without help of sgdisk, and leaves other room around it.
#[test]
fn gpt_made_by_sfdisk() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = image(folder.path(), "gpt.img", 70_000_000);
    let name = path.to_str().expect("UTF-8");
    let script = "label: gpt\\nstart=2048,size=9999,type=uefi\\nstart=30000,size=1\\nsize=50000,type=linux\\n";
    tool_ok("sh", &["-c", &format!("printf '{script}' | sfdisk -q {name}")]);
    let found = stack(&path);
    assert_eq!(rows(&found, 512), sfdisk(name));
    assert_eq!(rows(&found, 512), partx(name));
}

fn only_refusal(stack: &Stack) -> String {
    match stack.nodes.as_slice() {
        [Node { content: Content::Refused { finding, .. }, part: None, .. }] => finding.message.clone(),
        other => panic!("expected one refusal of the whole disk: {other:?}"),
    }
}

/// A disk that was repartitioned from GPT to MBR by a tool that knew one copy only, and the reverse.
#[test]
fn leftovers_of_another_table_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = image(folder.path(), "disk.img", 64 << 20);
    let name = path.to_str().expect("UTF-8");
    tool_ok("sgdisk", &["--clear", "--new=1:2048:9999", name]);
    tool_ok("sh", &["-c", &format!("printf 'label: dos\\nstart=2048,size=5000\\n' | sfdisk -q --wipe never {name}")]);
    let message = only_refusal(&stack(&path));
    assert!(message.contains("gpt and mbr"), "{message}");

    image(folder.path(), "disk.img", 64 << 20);
    tool_ok("sgdisk", &["--clear", "--new=1:2048:9999", name]);
    tool_ok("dd", &["if=/dev/zero", &format!("of={name}"), "bs=512", "count=34", "conv=notrunc", "status=none"]);
    let message = only_refusal(&stack(&path));
    assert!(message.contains("only the one at the end"), "{message}");
}

/// ISO hybrids carry several tables and a filesystem over the same bytes.
#[test]
fn a_hybrid_iso_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (tree, path) = (folder.path().join("tree"), folder.path().join("hybrid.iso"));
    std::fs::create_dir(&tree).expect("a folder");
    std::fs::write(tree.join("file"), vec![7; 100_000]).expect("a file");
    let (tree, name) = (tree.to_str().expect("UTF-8"), path.to_str().expect("UTF-8"));
    tool_ok("xorriso", &["-as", "mkisofs", "-quiet", "-hfsplus", "-o", name, "-partition_offset", "16", tree]);
    let message = only_refusal(&stack(&path));
    assert!(message.contains("signatures of"), "{message}");
}

/// A table made while the disk showed 4096-byte sectors, read where it shows 512-byte ones.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_sectors_of_another_size() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = image(folder.path(), "disk.img", 256 << 20);
    let name = path.to_str().expect("UTF-8");
    let device = tool_ok("losetup", &["--find", "--show", "--sector-size", "4096", name]);
    let device = device.trim();
    let made = tool("sgdisk", &["--clear", "--new=1:256:9999", "--new=2:10240:50000", device]);
    tool_ok("losetup", &["--detach", device]);
    assert!(made.status.success(), "{made:?}");
    let found = stack(&path);
    assert_eq!(found.tables[0].sector_size, 4096);
    assert_eq!(rows(&found, 4096), [(1, 256, 9744), (2, 10_240, 39_761)]);
}
