//! The plan: free ranges become ranges to discard. All decisions, no I/O.
//!
//! ```text
//! Region (free bytes of a volume) ── checked: range in volume in partition in disk in capacity ──┐
//! Limits (of a transport)         ── rounded inwards to granules, short ones dropped ────────────┤
//! Policy (of the user)                                                                          Plan ── Cursor ──> Batch
//! ```
//!
//! A [`Batch`] is what a transport accepts, and only a [`Plan`] makes one, so no byte reaches a drive that did not
//! pass through [`Plan::build`].

mod area;
mod batch;
mod ramp;
mod refusal;
pub mod units;

#[cfg(test)]
mod tests;

pub use area::{Area, Spot};
pub use batch::{Batch, Cap, Cursor};
pub use ramp::Ramp;
pub use refusal::Refusal;

use units::{ByteRange, Limits, least_common_multiple};

/// The device that a plan is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// Its place among the devices of the run.
    pub device: usize,
    /// Bytes according to the kernel (or the length of the image file).
    pub size: u64,
    /// Bytes that the device itself reports.
    pub capacity: u64,
}

/// Free ranges and where they come from: the map of a volume, a gap between partitions, free extents of a pool.
#[derive(Debug, Clone, Copy)]
pub struct Region<'a> {
    /// The place of its device among the devices of the run.
    pub device: usize,
    /// What the ranges belong to, in words for messages.
    pub origin: &'a str,
    /// Sorted, disjoint, in bytes of the device.
    pub ranges: &'a [ByteRange],
    /// The bytes of the volume or gap on the device.
    pub within: ByteRange,
    /// The bytes of the partition that holds it; the whole device when there is none.
    pub partition: ByteRange,
}

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Shorter extents are left alone; bytes.
    pub min_extent: u64,
    /// Extents also start and end on multiples of this many bytes, counted from a granule of the device; 1 for none.
    pub granule: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self { min_extent: 1, granule: 1 }
    }
}

/// What a plan comes to, for reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PlanFacts {
    /// Number of extents to discard.
    pub extents: u64,
    /// Sum of their bytes.
    pub bytes: u64,
    /// Number of commands at full size.
    pub commands: u64,
    /// Free bytes that are left alone: cut off by rounding, or in extents that are too short.
    pub skipped_bytes: u64,
}

/// What will be discarded on one device: sorted, disjoint extents of whole granules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    limits: Limits,
    extents: Vec<ByteRange>,
    facts: PlanFacts,
}

impl Plan {
    /// Checks every range against everything that must hold it, then rounds inwards.
    pub fn build(disk: &Disk, regions: &[Region<'_>], limits: &Limits, policy: &Policy) -> Result<Self, Refusal> {
        let step = least_common_multiple(limits.granularity(), policy.granule.max(1))
            .ok_or(Refusal::Granule { wished: policy.granule, device: limits.granularity() })?;
        let mut free = 0_u64;
        let mut extents: Vec<(ByteRange, &str)> = Vec::new();
        for region in regions {
            check_region(disk, region)?;
            for range in merged(region)? {
                free = free.saturating_add(range.len());
                let rounded = range.round_inwards(step, limits.alignment());
                extents.extend(rounded.filter(|r| r.len() >= policy.min_extent).map(|r| (r, region.origin)));
            }
        }
        extents.sort_unstable();
        check_order(extents.iter().copied())?;
        let extents: Vec<ByteRange> = extents.into_iter().map(|(range, _)| range).collect();
        let mut plan = Self { limits: *limits, extents, facts: PlanFacts::default() };
        plan.facts = plan.count(free);
        Ok(plan)
    }

    fn count(&self, free: u64) -> PlanFacts {
        let bytes = self.extents.iter().fold(0_u64, |sum, extent| sum.saturating_add(extent.len()));
        PlanFacts {
            extents: number(self.extents.len()),
            bytes,
            commands: number(self.batches().count()),
            skipped_bytes: free.saturating_sub(bytes),
        }
    }

    /// The part of the plan that holds exactly `ranges` (sorted, disjoint): for trials of a route. None unless each of
    /// them is whole granules inside one planned extent.
    pub fn part(&self, ranges: &[ByteRange]) -> Option<Self> {
        let is_planned = |range: &ByteRange| {
            let index = self.extents.partition_point(|extent| extent.end() <= range.start());
            let inside = self.extents.get(index).is_some_and(|extent| extent.contains(*range));
            inside && range.round_inwards(self.limits.granularity(), self.limits.alignment()) == Some(*range)
        };
        let in_order = ranges.windows(2).all(|pair| pair[0].end() <= pair[1].start());
        if ranges.is_empty() || !in_order || !ranges.iter().all(is_planned) {
            return None;
        }
        let mut part = Self { limits: self.limits, extents: ranges.to_vec(), facts: PlanFacts::default() };
        part.facts = part.count(0);
        Some(part)
    }

    /// The one command that holds all of the plan; none when it takes several.
    pub fn single_batch(&self) -> Option<Batch<'_>> {
        let mut batches = self.batches();
        batches.next().filter(|_| batches.next().is_none())
    }

    /// What will be discarded, in bytes of the device.
    pub fn extents(&self) -> &[ByteRange] {
        &self.extents
    }

    /// The limits that the plan was made for.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The sums.
    pub fn facts(&self) -> PlanFacts {
        self.facts
    }

    /// A walk through the plan whose command size the caller chooses from command to command.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor::new(self)
    }

    /// The plan in full-size commands: the fewest that the limits allow in this order.
    pub fn batches(&self) -> impl Iterator<Item = Batch<'_>> {
        let mut cursor = self.cursor();
        std::iter::from_fn(move || cursor.next_batch(Cap::NONE))
    }
}

/// A length in memory as a number. Lossless: `usize` has at most 64 bits.
fn number(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

fn check_region(disk: &Disk, region: &Region<'_>) -> Result<(), Refusal> {
    if region.device != disk.device {
        return Err(Refusal::WrongDevice {
            origin: region.origin.to_owned(),
            expected: disk.device,
            found: region.device,
        });
    }
    let refusal = Refusal::Capacity { size: disk.size, capacity: disk.capacity };
    let whole = ByteRange::new(0, disk.size).filter(|_| disk.size <= disk.capacity).ok_or(refusal)?;
    check_inside(region, ("the partition", region.partition), ("the disk", whole))?;
    check_inside(region, ("the volume", region.within), ("its partition", region.partition))?;
    region
        .ranges
        .iter()
        .try_for_each(|range| check_inside(region, ("a free range", *range), ("the volume", region.within)))
}

fn check_inside(
    region: &Region<'_>,
    (inner, range): (&'static str, ByteRange),
    (outer, bounds): (&'static str, ByteRange),
) -> Result<(), Refusal> {
    if bounds.contains(range) {
        return Ok(());
    }
    Err(Refusal::Outside { origin: region.origin.to_owned(), inner, range, outer, bounds })
}

/// The ranges of a region with touching ones joined, so that a granule that lies across two is not lost.
fn merged(region: &Region<'_>) -> Result<Vec<ByteRange>, Refusal> {
    check_order(region.ranges.iter().map(|range| (*range, region.origin)))?;
    let mut merged: Vec<ByteRange> = Vec::with_capacity(region.ranges.len());
    for range in region.ranges {
        let joined = merged.last().filter(|last| last.end() == range.start());
        match joined.and_then(|last| ByteRange::new(last.start(), range.end())) {
            Some(joined) => {
                merged.pop();
                merged.push(joined);
            }
            None => merged.push(*range),
        }
    }
    Ok(merged)
}

fn check_order<'a>(mut ranges: impl Iterator<Item = (ByteRange, &'a str)>) -> Result<(), Refusal> {
    let Some((mut first, _)) = ranges.next() else {
        return Ok(());
    };
    for (second, origin) in ranges {
        if second.start() < first.end() {
            return Err(Refusal::Disorder { origin: origin.to_owned(), first, second });
        }
        first = second;
    }
    Ok(())
}
