//! Planned space as a place to write test data to. Like a [`Batch`](super::Batch), a [`Spot`] has no public constructor:
//! what is written somewhere is written inside a [`Plan`].

use super::Plan;
use super::units::ByteRange;
use std::marker::PhantomData;

/// The extents of some plans of one device, each rounded inwards to a unit, short ones left out, as if they were one
/// space.
#[derive(Debug, Clone)]
pub struct Area<'p> {
    /// Where each extent begins in the area, and its bytes on the device.
    extents: Vec<(u64, ByteRange)>,
    bytes: u64,
    unit: u64,
    plans: PhantomData<&'p Plan>,
}

/// Bytes that may be written to: a part of a planned extent.
#[derive(Debug, PartialEq, Eq)]
pub struct Spot<'p> {
    range: ByteRange,
    plan: PhantomData<&'p Plan>,
}

impl Spot<'_> {
    /// The bytes on the device.
    pub fn range(&self) -> ByteRange {
        self.range
    }
}

impl<'p> Area<'p> {
    /// The space of `plans`, which must be of one device. Extents begin and end on multiples of `unit` bytes, and those
    /// with less than `least` bytes are left out.
    pub fn of(plans: impl Iterator<Item = &'p Plan>, unit: u64, least: u64) -> Self {
        let extents = plans.flat_map(Plan::extents).filter_map(|extent| extent.round_inwards(unit, 0));
        let mut ranges: Vec<ByteRange> = extents.filter(|extent| extent.len() >= least).collect();
        ranges.sort_unstable();
        ranges.dedup();
        let mut bytes = 0_u64;
        let placed = ranges.into_iter().map(|extent| {
            let start = bytes;
            bytes = bytes.saturating_add(extent.len());
            (start, extent)
        });
        let extents = placed.collect();
        Self { extents, bytes, unit, plans: PhantomData }
    }

    /// The part of the area from byte `at` on that has `length` bytes, or what there is of it, in whole units.
    pub fn part(&self, at: u64, length: u64) -> Self {
        let unit = self.unit.max(1);
        let (mut at, end) = (at - at % unit, at.saturating_add(length - length % unit).min(self.bytes));
        let mut part = Self { extents: Vec::new(), bytes: 0, unit: self.unit, plans: PhantomData };
        while let Some(spot) = self.spot(at, end.saturating_sub(at)) {
            part.extents.push((part.bytes, spot.range));
            part.bytes = part.bytes.saturating_add(spot.range.len());
            at = at.saturating_add(spot.range.len());
        }
        part
    }

    /// The same space in smaller units, of which one of its own is a multiple; else as it is.
    pub fn in_units(&self, unit: u64) -> Self {
        let fits = self.unit.checked_rem(unit) == Some(0);
        Self { unit: if fits { unit } else { self.unit }, ..self.clone() }
    }

    /// What of `plan` the area covers, as a plan; none where that is nothing, or no whole granules.
    pub fn plan_within(&self, plan: &Plan) -> Option<Plan> {
        let of_plan = |range: &ByteRange| {
            let index = plan.extents().partition_point(|extent| extent.end() <= range.start());
            plan.extents().get(index).is_some_and(|extent| extent.contains(*range))
        };
        let ranges: Vec<ByteRange> = self.extents.iter().map(|(_, range)| *range).filter(of_plan).collect();
        plan.part(&ranges)
    }

    /// Bytes of all extents.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of extents.
    pub fn extents(&self) -> usize {
        self.extents.len()
    }

    /// Bytes of a unit: every extent begins and ends on a multiple of it.
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// Up to `length` bytes from byte `at` of the area on, fewer where an extent ends; none behind the end.
    pub fn spot(&self, at: u64, length: u64) -> Option<Spot<'p>> {
        let index = self.extents.partition_point(|(start, _)| *start <= at).checked_sub(1)?;
        let (start, extent) = *self.extents.get(index)?;
        let first = extent.start().checked_add(at.checked_sub(start)?)?;
        let rest = ByteRange::new(first, extent.end())?;
        let range = ByteRange::with_len(first, rest.len().min(length))?;
        Some(Spot { range, plan: PhantomData })
    }
}
