//! What the tests of damaged volumes share: the words of a refusal, what the witnesses say, flipped bits, and what a
//! reading costs. The test file names its row in [`FORMATS`](coldtrim_parsers::fs::FORMATS) as `crate::FORMAT`.
#![allow(dead_code, clippy::as_conversions, clippy::ptr_arg)] // each test file uses its part; a `Vec` is a `Source`

use crate::FORMAT;
use crate::common::Rng;
use coldtrim_parsers::error::ParseError;
use coldtrim_parsers::free_map::FreeMap;
use coldtrim_parsers::fs::{Format, by_name};
use coldtrim_parsers::source::Source;
use coldtrim_parsers::stack::{Content, Layer, Options, WitnessMode, read};
use coldtrim_parsers::units::ByteRange;
use coldtrim_parsers::volume::{Volume, Weight};
use coldtrim_parsers::witness::{Recording, Testimony};
use std::path::Path;

/// The row under test.
pub fn format() -> &'static dyn Format {
    by_name(FORMAT).unwrap_or_else(|| panic!("no row is called {FORMAT}"))
}

pub fn volume(image: &Vec<u8>) -> Result<Volume, ParseError> {
    format().read(image, &[])
}

/// The volume, against which nothing may speak.
pub fn assert_sound(image: &Vec<u8>) -> Volume {
    let volume = volume(image).expect("a sound image");
    assert_eq!(volume.findings, [], "a sound image");
    assert!(volume.free.bytes() > 0);
    volume
}

/// The words of a refusal: of an error, or of the findings that forbid the map. None when the map may be used.
pub fn words_of(read: Result<Volume, ParseError>) -> Option<String> {
    match read {
        Err(error) => Some(error.to_string()),
        Ok(volume) => {
            let refusals = volume.findings.iter().filter(|finding| finding.weight == Weight::Refusal);
            let words: Vec<String> = refusals.map(|f| format!("{} [{}]", f.message, f.remedy)).collect();
            assert!(words.is_empty() || volume.free.ranges().is_empty(), "a refused volume has free ranges");
            (!words.is_empty()).then(|| words.join("; "))
        }
    }
}

/// See [`words_of`].
pub fn refusal(image: &Vec<u8>) -> Option<String> {
    words_of(volume(image))
}

#[track_caller]
pub fn assert_refused(image: &Vec<u8>, words: &[&str]) {
    let found = refusal(image).unwrap_or_else(|| panic!("not refused; expected {words:?}"));
    for word in words {
        assert!(found.contains(word), "expected {word:?} in {found:?}");
    }
}

/// What the witnesses say of an image whose map may be used.
pub fn testimony(image: &Vec<u8>) -> Vec<Testimony> {
    let options = Options { witness: WitnessMode::Always, ..Options::default() };
    let stack = read(&[Layer { source: image, sector_size: 512 }], &options);
    match &stack.nodes[0].content {
        Content::Volume { testimony, .. } => testimony.clone(),
        other => panic!("no volume: {other:?}"),
    }
}

/// What the reader of the map reads of an image: sorted, each byte once.
pub fn metadata(image: &Vec<u8>) -> Vec<ByteRange> {
    let recording = Recording::new(image, u64::MAX);
    format().read(&recording, &[]).expect("a sound image");
    let mut read = recording.take();
    read.sort_unstable();
    let mut end = 0;
    let once = read.into_iter().filter_map(|range| {
        let start = range.start().max(end);
        end = end.max(range.end());
        ByteRange::new(start, range.end())
    });
    once.collect()
}

/// How flipped bits were caught.
#[derive(Debug, Default)]
pub struct Caught {
    pub by_errors: u64,
    pub by_findings: u64,
    pub by_witness: u64,
    pub harmless: u64,
}

/// Flips bits of everything that the reader reads: in each byte one bit out of `one_in(byte)`, 1 means every bit. No flip
/// may free a used byte, unless the witness says so.
pub fn flip(image: &mut Vec<u8>, one_in: impl Fn(u64) -> u64, rng: &mut Rng, ask_witness: bool) -> Caught {
    let truth = volume(image).expect("a sound image").free;
    let mut caught = Caught::default();
    for byte in metadata(image).iter().flat_map(|range| range.start()..range.end()) {
        let step = one_in(byte);
        for bit in (0..8).filter(|_| step == 1 || rng.next().is_multiple_of(step)) {
            image[byte as usize] ^= 1 << bit;
            judge(image, &truth, ask_witness, &format!("byte {byte}, bit {bit}"), &mut caught);
            image[byte as usize] ^= 1 << bit;
        }
    }
    caught
}

fn judge(image: &Vec<u8>, truth: &FreeMap, ask_witness: bool, what: &str, caught: &mut Caught) {
    match volume(image) {
        Err(_) => caught.by_errors += 1,
        Ok(volume) if !volume.is_usable() => caught.by_findings += 1,
        Ok(volume) if volume.size > image.len() as u64 => caught.by_errors += 1,
        Ok(volume) if is_inside(&volume.free, truth) => caught.harmless += 1,
        Ok(_) => {
            let words = if ask_witness { testimony(image) } else { Vec::new() };
            let convicted = words.iter().any(|word| matches!(word, Testimony::Clash { .. }));
            assert!(convicted, "{what}: a used block becomes free: {words:?}");
            caught.by_witness += 1;
        }
    }
}

/// True when nothing is free in `map` that is not free in `truth`.
fn is_inside(map: &FreeMap, truth: &FreeMap) -> bool {
    let around = truth.ranges();
    map.ranges().iter().all(|free| {
        let index = around.partition_point(|range| range.end() < free.end());
        around.get(index).is_some_and(|range| range.contains(*free))
    })
}

/// What the reading of a sparse image costs: the volume, and the bytes that were read.
pub fn cost(image: &Path) -> (Volume, u64) {
    let file = Sparse::open(image);
    let recording = Recording::new(&file, u64::MAX);
    let volume = format().read(&recording, &[]).expect("a sound image");
    (volume, recording.take().iter().map(|range| range.len()).sum())
}

/// An image that is too large for memory.
pub struct Sparse(std::fs::File);

impl Sparse {
    pub fn open(image: &Path) -> Self {
        Self(std::fs::File::open(image).expect("the image"))
    }
}

impl Source for Sparse {
    fn len(&self) -> u64 {
        self.0.metadata().expect("its length").len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, buf, at)
    }
}

/// A sparse file of 1 TiB.
pub fn terabyte(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("image");
    std::fs::File::create(&path).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    path
}
