//! What every integration test shares: running coldtrim, running other tools, sizes of a run, seeds.
#![allow(dead_code, clippy::as_conversions)] // each test file uses its part

pub mod kind;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// True in `tests/run --full`: every case instead of the fixed sample.
pub fn full() -> bool {
    std::env::var("COLDTRIM_TESTS").is_ok_and(|v| v == "full")
}

/// A fresh seed for random cases, printed so that a failure can be repeated with `COLDTRIM_SEED=...`.
pub fn seed(what: &str) -> u64 {
    let seed = std::env::var("COLDTRIM_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock after 1970");
        now.as_nanos() as u64 % 1_000_000_007
    });
    println!("{what}: COLDTRIM_SEED={seed}");
    seed
}

/// A small deterministic generator (SplitMix64), so that a seed means the same on every machine and for ever.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `low..high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low)
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.between(0, from.len() as u64) as usize]
    }
}

/// Runs a tool of the system. A missing tool fails the test: a test that cannot run has not passed.
pub fn tool(program: &str, args: &[&str]) -> Output {
    Command::new(program)
        .args(args)
        // Debian's own tools first: a version manager in front of python3 costs up to a second a call.
        .env("PATH", format!("/usr/bin:{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
        .env("LC_ALL", "C")
        .output()
        .unwrap_or_else(|e| panic!("{program} cannot be run ({e}); tests/run installs what is missing"))
}

/// Runs a tool that must succeed, and gives its standard output.
pub fn tool_ok(program: &str, args: &[&str]) -> String {
    let output = tool(program, args);
    assert!(
        output.status.success(),
        "{program} {args:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs coldtrim.
pub fn coldtrim(args: &[&str]) -> Output {
    tool(env!("CARGO_BIN_EXE_coldtrim"), args)
}

/// `map --format ranges` of an image that must be readable: sorted `(start, length)` in bytes.
pub fn map_ranges(image: &Path) -> Vec<(u64, u64)> {
    let output = coldtrim(&["map", "--format", "ranges", image.to_str().expect("a UTF-8 path")]);
    assert!(
        output.status.success(),
        "map of {}: {}\n{}",
        image.display(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    parse_ranges(&String::from_utf8_lossy(&output.stdout))
}

/// Lines of `START LENGTH`.
pub fn parse_ranges(text: &str) -> Vec<(u64, u64)> {
    text.lines()
        .map(|line| {
            let mut numbers = line.split_whitespace().map(|n| n.parse().expect("a number"));
            (numbers.next().expect("a start"), numbers.next().expect("a length"))
        })
        .collect()
}

/// Ranges rounded inwards to `granule` bytes, empty ones dropped.
pub fn rounded(ranges: &[(u64, u64)], granule: u64) -> Vec<(u64, u64)> {
    ranges
        .iter()
        .map(|(start, len)| (start.next_multiple_of(granule), (start + len) / granule * granule))
        .filter(|(start, end)| start < end)
        .map(|(start, end)| (start, end - start))
        .collect()
}

/// Neighbours as one.
pub fn merged(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, len) in ranges {
        match merged.last_mut() {
            Some(last) if last.0 + last.1 == *start => last.1 += len,
            _ => merged.push((*start, *len)),
        }
    }
    merged
}

/// Raw CRC-32C, bit by bit, to repair checksums after a deliberate change.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 })
    })
}

/// The carried image of a format: its map is the record that was made with it, no extent that the driver named is free,
/// and some files are in more than one extent.
pub fn carried_image_equals_its_records(format: &str) {
    let (files, extents) = carried_files_and_extents(format, "01-demo");
    assert!(extents > files, "{extents} extents of {files} files");
}

/// The folder of a carried image.
fn carried(format: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(format).join(name)
}

/// A carried image, unpacked into `scratch`.
pub fn unpacked(format: &str, name: &str, scratch: &Path) -> PathBuf {
    let packed = carried(format, name).join("image.gz");
    let image = scratch.join("image");
    let content = tool("gzip", &["-dc", packed.to_str().expect("a UTF-8 path")]).stdout;
    std::fs::write(&image, content).expect("room for the image");
    image
}

/// The same for files of which each may be in one extent; gives their numbers.
pub fn carried_files_and_extents(format: &str, name: &str) -> (usize, usize) {
    let folder = carried(format, name);
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let image = unpacked(format, name, scratch.path());
    let ours = map_ranges(&image);
    let recorded = std::fs::read_to_string(folder.join("free.ranges")).expect("free.ranges");
    assert_eq!(ours, parse_ranges(&recorded));
    let manifest = std::fs::read_to_string(folder.join("manifest.json")).expect("manifest.json");
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
    assert_eq!(manifest["format"], format);
    let files = manifest["files"].as_array().expect("a list of files");
    let extents: Vec<(u64, u64)> = files
        .iter()
        .flat_map(|file| file["extents"].as_array().expect("a list of extents"))
        .map(|extent| (extent[0].as_u64().expect("a start"), extent[1].as_u64().expect("a length")))
        .collect();
    assert!(files.len() > 50 && extents.len() > 50, "{} extents", extents.len());
    for &(start, len) in &extents {
        let clash = ours.iter().find(|(free, free_len)| *free < start + len && start < free + free_len);
        assert_eq!(clash, None, "bytes {start}..{} belong to a file", start + len);
    }
    (files.len(), extents.len())
}
