//! The canary: a pattern in known-free space, its middle discarded, everything read again around every cache.
//!
//! ```text
//! free space ...[ guard | target | guard ]...   1. write the pattern, flush, read it back
//!                 keep    discard  keep         2. discard the target, flush
//!                                               3. read: guards as written? target changed?
//! ```
//!
//! Every block of the pattern is unique and names its own place, so that a block that turns up elsewhere gives away
//! where it came from, and no drive can fold equal blocks into one.

use super::place::Ground;
use super::{Place, Verdict};
use crate::plan::units::{ByteRange, least_common_multiple};
use crate::plan::{Batch, Plan};
use crate::transport::{BlockAccess, BlockRead, ErrorKind, Transport, TransportError};
use std::time::Duration;

/// What a trial showed and what it rests upon.
#[derive(Debug, Clone)]
pub struct Trial {
    /// The verdict.
    pub verdict: Verdict,
    /// What was seen, in a sentence.
    pub evidence: String,
    /// Bytes that the trial wrote.
    pub written: u64,
}

/// Sizes to try, largest first: bytes of the target and of each guard.
const SIZES: [(u64, u64); 4] = [(1 << 20, 256 << 10), (256 << 10, 64 << 10), (64 << 10, 64 << 10), (4096, 4096)];

/// No drive has smaller blocks: what stayed in such a piece was not discarded.
const SMALLEST_BLOCK: usize = 512;

/// Where a route may be tried.
pub struct Bench<'a> {
    /// What is planned for the route.
    pub plan: &'a Plan,
    /// All planned space of the device, sorted and merged, in bytes.
    pub free: &'a [ByteRange],
    /// Bytes of the device.
    pub capacity: u64,
    /// Where partitions begin.
    pub partitions: &'a [u64],
    /// Bytes of a logical block as the kernel reads and writes; a bridge may show larger ones than the route counts in.
    pub block: u64,
}

impl Bench<'_> {
    /// The granule of places, bytes: what the route can discard and the kernel can write.
    pub fn granule(&self) -> u64 {
        least_common_multiple(self.plan.limits().granularity(), self.block).unwrap_or(u64::MAX)
    }

    /// Places inside the plan where every likely wrong address is free too, the largest first.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        SIZES.iter().filter_map(|(target, guard)| {
            // A granule more than a round number: whoever rounds outwards hits a guard at one end at least.
            self.find_place_of(target.checked_next_multiple_of(self.granule())?.checked_add(self.granule())?, *guard)
        })
    }

    /// The same for a target of about `target` bytes (as much of it as one range of one command holds) between guards
    /// of about `guard` bytes.
    pub fn find_place_of(&self, target: u64, guard: u64) -> Option<Place> {
        let limits = self.plan.limits();
        let lba = limits.lba_size().bytes();
        let to_lba = |ranges: &[ByteRange]| -> Vec<(u64, u64)> {
            ranges.iter().map(|range| (range.start() / lba, range.end() / lba)).collect()
        };
        let free = to_lba(self.free);
        let starts: Vec<u64> = self.partitions.iter().map(|start| start / lba).collect();
        let granule = self.granule();
        let ground = Ground {
            free: &free,
            capacity: self.capacity / lba,
            partition_starts: &starts,
            granule: granule / lba,
            alignment: limits.alignment() / lba,
        };
        let most = limits.max_range_bytes().min(limits.max_command_bytes()) / granule * granule;
        let target = target.checked_next_multiple_of(granule)?.min(most);
        let guard = guard.checked_next_multiple_of(granule)?;
        let start = ground.choose(target / lba, guard / lba)? * lba;
        let place = Place {
            ground: ByteRange::with_len(start - guard, target + 2 * guard)?,
            targets: vec![ByteRange::with_len(start, target)?],
        };
        let fits = self.plan.part(&place.targets)?.single_batch().is_some();
        (fits && place.ground.start().is_multiple_of(self.block)).then_some(place)
    }
}

/// Runs the trial at the largest place that the route does not reject for its size; none where there is no place.
pub fn run_largest(
    bench: &Bench<'_>,
    transport: &mut dyn Transport,
    paths: &mut Paths<'_>,
    nonce: u64,
) -> Option<Trial> {
    let mut rejected = None;
    for place in bench.places() {
        let trial = run(bench, &place, transport, paths, nonce);
        if !matches!(trial.verdict, Verdict::Rejected(_)) {
            return Some(trial);
        }
        rejected = rejected.or(Some(trial));
    }
    rejected
}

/// Compares `places` (each whole logical blocks) through both paths. The first difference is a verdict.
pub fn cross_read(one: &mut dyn BlockRead, other: &mut dyn BlockRead, places: &[ByteRange]) -> Result<(), Verdict> {
    for place in places {
        let both = one.read(*place).and_then(|a| Ok((a, other.read(*place)?)));
        let (a, b) = both
            .map_err(|error| Verdict::Inconclusive(format!("{place} could not be read through both paths: {error}")))?;
        if a != b {
            let (one, other) = (one.path(), other.path());
            let why = format!("{place} read differently through {one} and {other}: they are not the same blocks");
            return Err(Verdict::Harmful(why));
        }
    }
    Ok(())
}

/// The two ways to the medium that a trial uses.
pub struct Paths<'a> {
    /// Writes the pattern and reads it: the kernel's own path, past the page cache.
    pub kernel: &'a mut dyn BlockAccess,
    /// Reads it once more by the route's own commands, where the route has any.
    pub route: Option<&'a mut (dyn BlockRead + 'static)>,
}

/// Runs the trial at `place`: nothing is written or discarded unless all of it is free in `bench` and planned.
pub fn run(
    bench: &Bench<'_>,
    place: &Place,
    transport: &mut dyn Transport,
    paths: &mut Paths<'_>,
    nonce: u64,
) -> Trial {
    let mut written = 0;
    let is_free = bench.free.iter().any(|free| free.contains(place.ground));
    let part = bench.plan.part(&place.targets).filter(|_| is_free);
    let verdict = match part.as_ref().and_then(Plan::single_batch) {
        None => Verdict::Inconclusive("the place is not free, not inside the plan, or no single command".to_owned()),
        Some(batch) => match attempt(&batch, place, transport, paths, nonce, &mut written) {
            Ok(verdict) => verdict,
            Err(error) if matches!(error.kind(), ErrorKind::Rejected | ErrorKind::LimitExceeded) => {
                Verdict::Rejected(error.to_string())
            }
            Err(error) => Verdict::Unstable(error.to_string()),
        },
    };
    let evidence = evidence(&verdict, place);
    Trial { verdict, evidence, written }
}

fn attempt(
    batch: &Batch<'_>,
    place: &Place,
    transport: &mut dyn Transport,
    paths: &mut Paths<'_>,
    nonce: u64,
    written: &mut u64,
) -> Result<Verdict, TransportError> {
    // An image counts in single bytes, but is written in blocks all the same.
    let block = batch.lba_size().bytes().max(u64::try_from(SMALLEST_BLOCK).unwrap_or(1));
    let before = pattern(place.ground, block, nonce);
    paths.kernel.write(place.ground.start(), &before)?;
    *written = place.ground.len();
    paths.kernel.flush()?;
    if read(paths, place.ground)? != Some(before.clone()) {
        return Ok(Verdict::Unstable("a pattern written to free space did not read back as written".to_owned()));
    }
    transport.discard(batch)?;
    flush_or_reject(transport)?;
    let mut verdict = Verdict::Inconclusive("nothing was read".to_owned());
    for pause in PAUSES {
        std::thread::sleep(pause);
        verdict = match read(paths, place.ground)? {
            Some(after) => judge(place, &before, &after),
            None => Verdict::Unstable("after the discard the two paths read different bytes".to_owned()),
        };
        if matches!(verdict, Verdict::Works { .. } | Verdict::Harmful(_)) {
            break;
        }
    }
    Ok(verdict)
}

/// Looks again at what a trial left at `place`: a pattern that `nonce` made, in blocks of `block` bytes.
///
/// # Errors
/// It cannot be read.
pub fn look_again(place: &Place, block: u64, nonce: u64, paths: &mut Paths<'_>) -> Result<Verdict, TransportError> {
    let before = pattern(place.ground, block, nonce);
    Ok(read(paths, place.ground)?.map_or_else(
        || Verdict::Unstable("the two paths read different bytes".to_owned()),
        |after| judge(place, &before, &after),
    ))
}

/// What two looks come to, one before and one after the device was without power.
pub fn after_power(worked: bool, now: Verdict) -> Verdict {
    match (worked, now) {
        (true, Verdict::NoEvidence) => Verdict::Unstable(
            "discarded blocks were changed, and are as written again since the device was without power".to_owned(),
        ),
        (_, Verdict::Harmful(why)) => {
            Verdict::Harmful(format!("{why}; it was still as written before the device was without power"))
        }
        (_, now) => now,
    }
}

/// A drive may take its time: what is not to be seen at once is looked for again after these.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(100), Duration::from_secs(1)];

/// A device without a cache rejects the flush, and has nothing to flush.
fn flush_or_reject(transport: &mut dyn Transport) -> Result<(), TransportError> {
    transport.flush().or_else(|error| if error.kind() == ErrorKind::Rejected { Ok(()) } else { Err(error) })
}

/// What both paths read; none when they do not agree.
fn read(paths: &mut Paths<'_>, range: ByteRange) -> Result<Option<Vec<u8>>, TransportError> {
    let bytes = paths.kernel.read(range)?;
    let agrees = match &mut paths.route {
        Some(route) => route.read(range)? == bytes,
        None => true,
    };
    Ok(agrees.then_some(bytes))
}

/// What the bytes say: `before` was written over the whole ground, `after` was read from it.
fn judge(place: &Place, before: &[u8], after: &[u8]) -> Verdict {
    let Some(targets) = place.targets.iter().map(|target| inside(place, *target)).collect::<Option<Vec<_>>>() else {
        return Verdict::Inconclusive(format!("{} is too large for a trial", place.ground));
    };
    let mut kept = 0;
    for (start, end) in targets.iter().map(|[from, to]| (*from, *to)).chain([(before.len(), before.len())]) {
        if let Some(index) = first_difference(&before[kept..start], &after[kept..start]) {
            let at = u64::try_from(kept + index).map_or(u64::MAX, |index| place.ground.start() + index);
            return Verdict::Harmful(format!("byte {at} changed, outside the discarded {place}"));
        }
        kept = end;
    }
    let pairs = || {
        let of = |[from, to]: &[usize; 2]| {
            before[*from..*to].chunks(SMALLEST_BLOCK).zip(after[*from..*to].chunks(SMALLEST_BLOCK))
        };
        targets.iter().flat_map(of)
    };
    match pairs().filter(|(before, after)| before == after).count() {
        0 => Verdict::Works { zeroes: pairs().all(|(_, after)| after.iter().all(|byte| *byte == 0)) },
        same if same == pairs().count() => Verdict::NoEvidence,
        _ => Verdict::Unstable(format!("only a part of the discarded {place} changed")),
    }
}

/// Where a target lies inside the ground: first byte and end.
fn inside(place: &Place, target: ByteRange) -> Option<[usize; 2]> {
    let offset = |at: u64| usize::try_from(at.checked_sub(place.ground.start())?).ok();
    Some([offset(target.start())?, offset(target.end())?])
}

/// The first index at which two slices of one length differ.
fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    // Slices compare much faster than bytes one by one, and nearly always they are equal.
    if one == other { None } else { one.iter().zip(other).position(|(a, b)| a != b) }
}

fn evidence(verdict: &Verdict, place: &Place) -> String {
    let what = format!("a pattern of {} bytes at byte {}", place.ground.len(), place.ground.start());
    match verdict {
        Verdict::Works { zeroes: true } => {
            format!("{what}: its middle reads as zeros after the discard, both guards are unchanged")
        }
        Verdict::Works { zeroes: false } => {
            format!("{what}: its middle has changed after the discard, both guards are unchanged")
        }
        Verdict::NoEvidence => format!("none ({what} was unchanged after a discard of its middle that was accepted)"),
        other => format!("{what}: {}", other.reason().unwrap_or_default()),
    }
}

/// Unique blocks of `block` bytes: pseudo-random, seeded by the nonce and the block's own address.
fn pattern(ground: ByteRange, block: u64, nonce: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for index in 0..ground.len() / block {
        let mut state = nonce ^ (ground.start() + index * block).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for _ in 0..block / 8 {
            bytes.extend_from_slice(&next(&mut state).to_le_bytes());
        }
    }
    bytes
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place { ground: range(4096, 12288), targets: vec![range(6144, 8192)] }
    }

    const fn range(start: u64, end: u64) -> ByteRange {
        match ByteRange::new(start, end) {
            Some(range) => range,
            None => panic!("an empty range"),
        }
    }

    /// The pattern, with `change` done to the bytes `from..to` of the device.
    fn judged(from: usize, to: usize, change: impl Fn(u8) -> u8) -> Verdict {
        let before = pattern(place().ground, 512, 7);
        let mut after = before.clone();
        after[from - 4096..to - 4096].iter_mut().for_each(|byte| *byte = change(*byte));
        judge(&place(), &before, &after)
    }

    #[test]
    fn the_pattern_never_repeats_a_block() {
        let bytes = pattern(place().ground, 512, 7);
        assert_eq!(bytes.len(), 8192);
        let mut blocks: Vec<&[u8]> = bytes.chunks(512).collect();
        blocks.sort_unstable();
        blocks.dedup();
        assert_eq!(blocks.len(), 16);
    }

    #[test]
    fn what_comes_back_after_a_loss_of_power_was_not_discarded() {
        let zeroes = || Verdict::Works { zeroes: true };
        assert_eq!(after_power(true, zeroes()), zeroes());
        assert_eq!(after_power(false, zeroes()), zeroes(), "it only took its time");
        assert_eq!(after_power(false, Verdict::NoEvidence), Verdict::NoEvidence);
        assert!(matches!(after_power(true, Verdict::NoEvidence), Verdict::Unstable(_)));
        for worked in [true, false] {
            assert!(matches!(after_power(worked, Verdict::Harmful("byte 7".to_owned())), Verdict::Harmful(_)));
        }
    }

    #[test]
    fn exactly_the_middle_must_change() {
        assert_eq!(judged(6144, 8192, |_| 0), Verdict::Works { zeroes: true });
        assert_eq!(judged(6144, 8192, |byte| !byte), Verdict::Works { zeroes: false });
        assert_eq!(judged(6144, 6144, |_| 0), Verdict::NoEvidence);
        assert!(matches!(judged(6144, 8193, |_| 0), Verdict::Harmful(_)), "one byte too many after");
        assert!(matches!(judged(6143, 8192, |_| 0), Verdict::Harmful(_)), "one byte too many before");
        assert!(matches!(judged(4096, 4608, |_| 0), Verdict::Harmful(_)), "somewhere else");
        assert!(matches!(judged(6144, 7168, |_| 0), Verdict::Unstable(_)), "half of it");
    }
}
