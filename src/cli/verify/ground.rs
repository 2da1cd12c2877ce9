//! Where a measurement may write and read.

use crate::cli::routes::{PlannedPart, Prepared};
use crate::measure::queue::stamp;
use crate::measure::stats::count;
use crate::measure::{Design, Ground};
use crate::plan::units::ByteRange;
use crate::plan::{Area, Plan};
use crate::report::{Report, State};
use crate::transport::{BlockRead, TransportError};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};

/// Extents with less are left out of scattered passes.
const LEAST: u64 = 64 << 10;
/// Places in use that are read.
const USED: usize = 1024;
/// Free places that are looked at for test data of an earlier run.
const LOOKED_AT: usize = 256;

/// The plans that have anything in them.
pub fn plans(parts: &[PlannedPart]) -> Vec<&Plan> {
    parts.iter().map(|part| &part.plan).filter(|plan| plan.facts().bytes > 0).collect()
}

/// What places on a device must keep to.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The unit of all transfers: whole blocks for the kernel and for the route.
    pub block: u64,
    /// What the route discards as a whole.
    granularity: u64,
    /// Where the target begins on the device.
    start: u64,
}

impl Shape {
    /// That of a device.
    pub fn of(device: &Prepared) -> Self {
        let limits = device.transport.limits();
        let lba = limits.lba_size().bytes().max(device.device.facts.logical_block.bytes());
        let block = count(stamp::BLOCK).next_multiple_of(lba);
        Self { block, granularity: limits.granularity(), start: device.device.place.start() }
    }

    /// The free space of `parts` for passes of `design`, and places of their volumes that are in use.
    pub fn ground<'p>(self, report: &Report, parts: &'p [PlannedPart], design: &Design) -> Ground<'p> {
        let piece = self.granularity.max(design.sequential.size).next_multiple_of(design.sequential.size);
        let used = self.used(report, parts, design.seed);
        Ground { zone: Area::of(plans(parts).into_iter(), piece, piece), slots: slots(parts, design), used }
    }

    /// Blocks of the volumes that are not free, at random.
    pub fn used(self, report: &Report, parts: &[PlannedPart], seed: u64) -> Vec<ByteRange> {
        let mut ranges = Vec::new();
        for part in parts {
            let Some(volume) = part.volume.and_then(|volume| report.volumes.get(volume)) else { continue };
            if volume.state == State::Clean {
                let whole = ByteRange::with_len(volume.offset, volume.size);
                ranges.extend(whole.map(|whole| between(whole, &volume.free)).unwrap_or_default());
            }
        }
        let up = |range: ByteRange| range.shift_up(self.start)?.round_inwards(self.block, 0);
        let ranges: Vec<ByteRange> = ranges.into_iter().filter_map(up).collect();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut places: Vec<ByteRange> = (0..USED).filter_map(|_| place(&ranges, self.block, &mut random)).collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

/// All free space in small pieces.
pub fn slots<'p>(parts: &'p [PlannedPart], design: &Design) -> Area<'p> {
    Area::of(plans(parts).into_iter(), design.scattered.size, LEAST)
}

/// What of `whole` is in none of `free` (sorted, disjoint).
fn between(whole: ByteRange, free: &[ByteRange]) -> Vec<ByteRange> {
    let mut at = whole.start();
    let mut found = Vec::new();
    for range in free {
        found.extend(ByteRange::new(at, range.start().min(whole.end())).filter(|range| range.len() > 0));
        at = at.max(range.end());
    }
    found.extend(ByteRange::new(at, whole.end()).filter(|range| range.len() > 0));
    found
}

/// A block of one of the ranges; every range is as likely as another, so that small ones are seen, too.
fn place(ranges: &[ByteRange], block: u64, random: &mut impl Rng) -> Option<ByteRange> {
    let range = ranges.choose(random)?;
    let blocks = range.len().checked_div(block).filter(|blocks| *blocks > 0)?;
    ByteRange::with_len(range.start().checked_add(random.random_range(0..blocks).checked_mul(block)?)?, block)
}

/// How many of some free places hold test data of a run that was cut short.
pub fn left_by_earlier_run(reader: &mut dyn BlockRead, slots: &Area<'_>, seed: u64) -> Result<usize, TransportError> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let units = slots.bytes().checked_div(slots.unit()).unwrap_or(0);
    let mut found = 0;
    for _ in 0..LOOKED_AT.min(usize::try_from(units).unwrap_or(LOOKED_AT)) {
        let Some(spot) = slots.spot(random.random_range(0..units).saturating_mul(slots.unit()), slots.unit()) else {
            continue;
        };
        let bytes = reader.read(spot.range())?;
        found += stamp::left_behind(std::iter::once((spot.range(), bytes.as_slice())));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end).unwrap()
    }

    #[test]
    fn what_is_not_free_is_in_use() {
        let free = [range(10, 20), range(30, 40)];
        assert_eq!(between(range(0, 50), &free), [range(0, 10), range(20, 30), range(40, 50)]);
        assert_eq!(between(range(10, 40), &free), [range(20, 30)]);
        assert_eq!(between(range(0, 5), &[]), [range(0, 5)]);
        assert_eq!(between(range(10, 20), &free[..1]), []);
    }

    #[test]
    fn places_are_whole_blocks_inside_the_ranges() {
        let ranges = [range(4096, 8192), range(16384, 65536)];
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for _ in 0..100 {
            let place = place(&ranges, 4096, &mut random).unwrap();
            assert!(place.len() == 4096 && place.start().is_multiple_of(4096));
            assert!(ranges.iter().any(|range| range.contains(place)));
        }
        assert_eq!(super::place(&[], 4096, &mut random), None);
    }
}
