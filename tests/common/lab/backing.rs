//! The backing file of a drive, as the host sees it: pattern, snapshot, and what was discarded since.
//!
//! Two looks that complete each other. Contents are exact to the byte (QEMU zeroes what a discard leaves of a block),
//! but blind where a used byte was zero before. Holes see those too, but only in whole granules of the host's
//! filesystem. So before a snapshot every hole is filled with written zeros: a hole that is there afterwards is new.

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The host's granule: a discard makes holes of whole ones only.
pub const GRANULE: u64 = 4096;
const BLOCK: usize = 4096;
/// What is written at once, bytes.
const PIECE: u64 = 1 << 20;

pub fn create(path: &Path, size: u64) -> Result<(), String> {
    File::create(path).and_then(|file| file.set_len(size)).map_err(|e| format!("{}: {e}", path.display()))
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Writes a pattern that has no zero byte; each block of a granule begins with its place.
pub fn fill(path: &Path, size: u64) {
    let file = open(path);
    let mut blocks: Vec<u8> = (0..PIECE / 8).flat_map(word).collect();
    for at in (0..size).step_by(blocks.len()) {
        for (index, block) in (at / GRANULE..).zip(blocks.chunks_exact_mut(BLOCK)) {
            block[..8].copy_from_slice(&word(index));
        }
        file.write_all_at(&blocks, at).expect("room for the pattern");
    }
    file.set_len(size).expect("a file that can be cut");
}

/// Writes the contents of `image` into an existing backing file of the same size.
pub fn overwrite(path: &Path, image: &Path) {
    let bytes = std::fs::read(image).expect("a readable image");
    assert_eq!(open(path).metadata().expect("a file that can be looked at").len(), size_of(&bytes), "the image's size");
    open(path).write_all_at(&bytes, 0).expect("room for the image");
}

fn size_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("a 64-bit machine")
}

/// Eight bytes that tell a number, none of them zero.
fn word(number: u64) -> [u8; 8] {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 0x8080_8080_8080_8080).to_le_bytes()
}

/// Contents of a backing file at one moment.
pub struct Snapshot {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Snapshot {
    /// Also fills the holes that are there with written zeros, which changes no content.
    pub fn take(path: &Path) -> Snapshot {
        let file = open(path);
        let granule = file.metadata().expect("a file that can be looked at").blksize();
        assert!(granule <= GRANULE, "{}: holes of {granule} bytes are too coarse for the lab", path.display());
        for (start, length) in holes(&file) {
            let zeros = vec![0; usize::try_from(length).expect("a length that fits")];
            file.write_all_at(&zeros, start).expect("room for zeros");
        }
        assert_eq!(holes(&file), [], "{}: holes remain after writing to them", path.display());
        Snapshot { path: path.to_owned(), bytes: std::fs::read(path).expect("a readable backing file") }
    }

    /// Fails unless exactly the planned bytes were discarded since the snapshot. `planned`: start and length, sorted.
    pub fn assert_only_discarded(&self, planned: &[(u64, u64)]) {
        if let Err(difference) = self.compare(planned) {
            panic!("{}: {difference}", self.path.display());
        }
    }

    /// Fails unless the drive is as it was.
    pub fn assert_untouched(&self) {
        self.assert_only_discarded(&[]);
    }

    /// As [`assert_only_discarded`](Self::assert_only_discarded), for a copy, in which holes mean nothing.
    pub fn assert_contents(&self, planned: &[(u64, u64)]) {
        let now = std::fs::read(&self.path).expect("a readable copy");
        if let Err(difference) = self.compare_contents(&now, planned) {
            panic!("{}: {difference}", self.path.display());
        }
    }

    /// Fails unless every byte outside of `planned` is as it was; inside, a trial may have left its pattern on a drive
    /// that keeps the contents of discarded blocks.
    pub fn assert_kept_outside(&self, planned: &[(u64, u64)]) {
        let mut now = std::fs::read(&self.path).expect("a readable copy");
        for (start, length) in planned {
            let place = usize::try_from(*start).expect("a start that fits")
                ..usize::try_from(start + length).expect("an end that fits");
            now[place.clone()].copy_from_slice(&self.bytes[place]);
        }
        if let Err(difference) = self.compare_contents(&now, &[]) {
            panic!("{}: {difference}", self.path.display());
        }
    }

    /// # Errors
    /// What differs: a planned byte that is not zero, another byte that changed, a hole outside of the plan, or a
    /// whole granule of the plan that still takes space.
    pub fn compare(&self, planned: &[(u64, u64)]) -> Result<(), String> {
        let now = std::fs::read(&self.path).map_err(|e| e.to_string())?;
        if now.len() != self.bytes.len() {
            return Err(format!("was {} bytes long and is now {}", self.bytes.len(), now.len()));
        }
        self.compare_contents(&now, planned)?;
        compare_holes(&holes(&open(&self.path)), planned)
    }

    fn compare_contents(&self, now: &[u8], planned: &[(u64, u64)]) -> Result<(), String> {
        let mut kept_from = 0;
        for &(start, length) in planned {
            let end = start + length;
            if start < kept_from || end > u64::try_from(now.len()).unwrap_or(u64::MAX) {
                return Err(format!("the plan itself is wrong at {start}+{length}"));
            }
            self.compare_kept(now, kept_from, start)?;
            if let Some(at) = first_not_zero(slice(now, start, end)) {
                return Err(format!("planned {start}+{length}, but its byte {at} is not zero"));
            }
            kept_from = end;
        }
        self.compare_kept(now, kept_from, u64::try_from(now.len()).unwrap_or(u64::MAX))
    }

    fn compare_kept(&self, now: &[u8], start: u64, end: u64) -> Result<(), String> {
        let (before, now) = (slice(&self.bytes, start, end), slice(now, start, end));
        if before == now {
            return Ok(());
        }
        // Whole blocks first: in an unoptimised test a walk over every byte takes seconds.
        let blocks = before.chunks(BLOCK).zip(now.chunks(BLOCK)).enumerate().filter(|(_, (a, b))| a != b);
        let differ: Vec<(usize, u8)> = blocks
            .flat_map(|(block, (a, b))| a.iter().zip(b).enumerate().map(move |(i, (a, b))| (block * BLOCK + i, *a, *b)))
            .filter(|(_, a, b)| a != b)
            .map(|(at, _, now)| (at, now))
            .collect();
        Err(format!(
            "{} bytes that were not planned changed between {start} and {end}; the first at {start}+{}, {} of them to zero",
            differ.len(),
            differ[0].0,
            differ.iter().filter(|(_, now)| *now == 0).count()
        ))
    }
}

/// The first byte that is not zero.
fn first_not_zero(bytes: &[u8]) -> Option<usize> {
    let block = bytes.chunks(BLOCK).position(|chunk| chunk != &[0; BLOCK][..chunk.len()])?;
    bytes[block * BLOCK..].iter().position(|&byte| byte != 0).map(|at| block * BLOCK + at)
}

fn slice(bytes: &[u8], start: u64, end: u64) -> &[u8] {
    &bytes[usize::try_from(start).expect("a 64-bit machine")..usize::try_from(end).expect("a 64-bit machine")]
}

fn compare_holes(holes: &[(u64, u64)], planned: &[(u64, u64)]) -> Result<(), String> {
    for &(start, length) in holes {
        if !covered(planned, start, start + length) {
            return Err(format!("the hole {start}+{length} is not inside of what was planned"));
        }
    }
    for &(start, length) in planned {
        let (first, end) = (start.next_multiple_of(GRANULE), (start + length) / GRANULE * GRANULE);
        if first < end && !covered(holes, first, end) {
            return Err(format!("planned {start}+{length}, but {first} to {end} still takes space"));
        }
    }
    Ok(())
}

/// Whether sorted, disjoint ranges cover all of `start..end`; ranges may touch.
fn covered(ranges: &[(u64, u64)], start: u64, end: u64) -> bool {
    let mut at = start;
    let first = ranges.partition_point(|&(start, length)| start + length <= at);
    for &(start, length) in &ranges[first..] {
        if start > at || at >= end {
            break;
        }
        at = start + length;
    }
    at >= end
}

/// The holes of a file, start and length in bytes.
pub fn holes(file: &File) -> Vec<(u64, u64)> {
    let size = file.metadata().expect("a file that can be looked at").len();
    let seek = |at: u64, whence| match lseek(file, i64::try_from(at).expect("a file size"), whence) {
        Ok(found) => u64::try_from(found).expect("a position in a file"),
        Err(Errno::ENXIO) => size, // no more of it
        Err(e) => panic!("lseek: {e}"),
    };
    let mut found = Vec::new();
    let mut at = 0;
    while at < size {
        let start = seek(at, Whence::SeekHole);
        if start >= size {
            break;
        }
        let end = seek(start, Whence::SeekData);
        found.push((start, end - start));
        at = end;
    }
    found
}
