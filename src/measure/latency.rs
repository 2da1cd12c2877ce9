//! Does the drive treat discarded blocks as empty? An unmapped block needs no flash to be read, so reads get faster; and
//! that works on drives which still return the old data. Reads wear nothing out.
//!
//! The same kind of places, written by the pass before, is read before and after the discard, other places each time, so
//! that no cache can answer. Between them used blocks are read, which no discard touches: what makes *them* faster (less
//! work inside, a link that was renegotiated) is divided out.

use super::drive::{Drive, Fault};
use super::stats::{median, rank};
use crate::plan::units::ByteRange;
use serde::Serialize;

/// Reads of one round: seconds of each.
#[derive(Debug, Clone, Default)]
pub struct Reads {
    free: Vec<f64>,
    used: Vec<f64>,
}

impl Reads {
    /// Seconds of a typical read of mapped space; none where nothing was read.
    pub fn typical(&self) -> Option<f64> {
        (!self.used.is_empty()).then(|| median(&mut self.used.clone()))
    }
}

/// What two rounds of reads say.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// Microseconds of a read of free space before the discard.
    pub before_us: f64,
    /// After it.
    pub after_us: f64,
    /// Microseconds of a read of used space before it.
    pub used_before_us: f64,
    /// After it.
    pub used_after_us: f64,
    /// After by before, the change of used space divided out.
    pub ratio: f64,
    /// By how many standard deviations the reads after lie below those before.
    pub deviations: f64,
    /// Whether that is an effect of the discard.
    pub effect: bool,
}

/// Reads become an effect when the ratio is below this ...
const FASTER: f64 = 0.9;
/// ... and the ranks differ by so many deviations (about one in three million by chance).
const DEVIATIONS: f64 = 5.0;
/// Bytes of a read.
const SIZE: u64 = 4096;
/// Fewer reads say nothing.
const LEAST: usize = 32;

/// Reads free and used places in turn, one at a time.
pub fn round(drive: &mut dyn Drive, free: &[ByteRange], used: &[ByteRange]) -> Result<Reads, Fault> {
    let mut reads = Reads::default();
    for (free, used) in free.iter().zip(used) {
        reads.free.push(read(drive, *free)?);
        reads.used.push(read(drive, *used)?);
    }
    Ok(reads)
}

fn read(drive: &mut dyn Drive, place: ByteRange) -> Result<f64, Fault> {
    let place = ByteRange::with_len(place.start(), place.len().min(SIZE)).unwrap_or(place);
    Ok(drive.read(place)?.as_secs_f64())
}

/// Compares a round before the discard with one after it; none when there were too few reads.
pub fn compare(before: &Reads, after: &Reads) -> Option<Latency> {
    if before.free.len() < LEAST || after.free.len() < LEAST {
        return None;
    }
    let typical = |reads: &[f64]| median(&mut reads.to_vec());
    let (used_before, used_after) = (typical(&before.used), typical(&after.used));
    let relative = |reads: &[f64], used: f64| reads.iter().map(|read| read / used).collect::<Vec<_>>();
    let (early, late) = (relative(&before.free, used_before), relative(&after.free, used_after));
    let ratio = typical(&late) / typical(&early);
    let deviations = rank::below(&late, &early);
    let us = |seconds: f64| seconds * 1e6;
    Some(Latency {
        before_us: us(typical(&before.free)),
        after_us: us(typical(&after.free)),
        used_before_us: us(used_before),
        used_after_us: us(used_after),
        ratio,
        deviations,
        effect: ratio < FASTER && deviations > DEVIATIONS,
    })
}
