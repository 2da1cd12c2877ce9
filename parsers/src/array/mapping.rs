//! How the bytes of an array lie on its members, and back.
//!
//! ```text
//! array    |  segment 0 (its geometry)   |  segment 1  | ...       positions of the array, in bytes
//!              |        |        |
//! members   [area 0] [area 1] [area 2]                             a byte range of a device each
//! ```
//!
//! Every layer is a function on ranges: [`Mapping::carry`] takes free ranges of the array to the ranges of the members
//! that hold nothing else, [`Mapping::agree`] says what is left where not every member can discard its share, and
//! [`Mapping::proves`] goes the other way, by formulas of its own: no byte of a member may be carried that belongs to
//! anything but a free byte.

use super::geometry::{Geometry, Slot};
use crate::units::ByteRange;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ranges of several devices: sorted, disjoint, touching ones joined; bytes of each device.
pub type Spread = BTreeMap<usize, Vec<ByteRange>>;

/// A part of a device that a segment uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    /// Number of the device (arrays are numbered behind the devices).
    pub device: usize,
    /// The bytes on it.
    pub range: ByteRange,
}

/// Consecutive bytes of an array that lie on its members by one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Bytes of the array.
    pub len: u64,
    /// The members in the order of their slots; none where one is missing.
    pub areas: Vec<Option<Area>>,
    /// The rule.
    pub geometry: Geometry,
}

/// Where the bytes of an array lie.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Mapping {
    segments: Vec<Segment>,
}

/// What is lost when one member of an array discards and another does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Redundancy {
    /// Nothing: every byte is there once.
    None,
    /// The copies differ until they are written again.
    Copies,
    /// The parity is wrong, and the next failure of a disk costs data.
    Parity,
}

/// Where the same bytes can be found once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Again {
    /// Every copy; a single one where there is no redundancy.
    Copies(Vec<Place>),
    /// The chunks of a stripe and its parities: the first parity is what all the data gives by exclusive or.
    Stripe {
        /// The chunks of data.
        data: Vec<Place>,
        /// One parity or two, in the order of the members.
        parities: Vec<Place>,
    },
}

/// A place on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Number of the device.
    pub device: usize,
    /// Byte on it.
    pub at: u64,
}

impl Mapping {
    /// A mapping of these segments, one behind the other; none when a rule does not fit its areas or areas overlap.
    pub fn new(segments: Vec<Segment>) -> Option<Self> {
        let mapping = Self { segments };
        mapping.is_sound().then_some(mapping)
    }

    /// True when every segment fits its areas and no byte of a device is used twice. Whoever gets a mapping from
    /// somewhere else asks this first.
    pub fn is_sound(&self) -> bool {
        let fits = |segment: &Segment| {
            let lengths: Vec<Option<u64>> = segment.areas.iter().map(|area| area.map(|a| a.range.len())).collect();
            segment.geometry.fits(segment.len, &lengths)
        };
        let mut areas: Vec<(usize, ByteRange)> = self.areas().map(|area| (area.device, area.range)).collect();
        areas.sort_unstable();
        let disjoint = areas.windows(2).all(|pair| match pair {
            [(device, range), (other, next)] => device != other || range.end() <= next.start(),
            _ => true,
        });
        disjoint && !self.segments.is_empty() && self.segments.iter().all(fits) && self.total().is_some()
    }

    fn total(&self) -> Option<u64> {
        self.segments.iter().try_fold(0_u64, |sum, segment| sum.checked_add(segment.len))
    }

    /// Bytes of the array.
    pub fn len(&self) -> u64 {
        self.total().unwrap_or(0)
    }

    /// True for an array of nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The areas that are there.
    pub fn areas(&self) -> impl Iterator<Item = Area> + '_ {
        self.segments.iter().flat_map(|segment| segment.areas.iter().copied().flatten())
    }

    /// True when every member of every segment is there.
    pub fn is_complete(&self) -> bool {
        self.segments.iter().all(|segment| segment.areas.iter().all(Option::is_some))
    }

    /// True when every byte can be read from a member that is there.
    pub fn is_readable(&self) -> bool {
        self.segments.iter().all(|segment| {
            // The places of copies repeat after as many chunks as there are members.
            let chunks = crate::units::from_usize(segment.areas.len());
            let mut at = 0;
            (0..chunks).all(|_| {
                let Some(share) = segment.geometry.copies(at, segment.len, segment.areas.len()) else {
                    return at >= segment.len;
                };
                at = at.saturating_add(share.len);
                share.slots.iter().any(|slot| segment.place(*slot).is_some())
            })
        })
    }

    /// The strictest redundancy of its segments.
    pub fn redundancy(&self) -> Redundancy {
        let has = |wanted| self.segments.iter().any(|segment| segment.geometry.redundancy() == wanted);
        match () {
            () if has(Redundancy::Parity) => Redundancy::Parity,
            () if has(Redundancy::Copies) => Redundancy::Copies,
            () => Redundancy::None,
        }
    }

    /// Where to read byte `at`, and for how many bytes that holds; none when no member that is there has it.
    pub fn locate(&self, at: u64) -> Option<(Place, u64)> {
        let (segment, start) = self.segment_at(at)?;
        let share = segment.geometry.copies(at.checked_sub(start)?, segment.len, segment.areas.len())?;
        let place = share.slots.iter().find_map(|slot| segment.place(*slot))?;
        Some((place, share.len))
    }

    /// Everything on the members that depends on byte `at`, for as many bytes as [`locate`](Self::locate) gives.
    pub(super) fn again(&self, at: u64) -> Option<Again> {
        let (segment, start) = self.segment_at(at)?;
        let share = segment.geometry.copies(at.checked_sub(start)?, segment.len, segment.areas.len())?;
        let places = |slots: &[Slot]| slots.iter().filter_map(|slot| segment.place(*slot)).collect();
        Some(match &segment.geometry {
            Geometry::Parity(rule) => {
                let (data, parities) = rule.roles(*share.slots.first()?)?;
                Again::Stripe { data: places(&data), parities: places(&parities) }
            }
            _ => Again::Copies(places(&share.slots)),
        })
    }

    fn segment_at(&self, at: u64) -> Option<(&Segment, u64)> {
        self.starts().find(|(segment, start)| at.checked_sub(*start).is_some_and(|inside| inside < segment.len))
    }

    /// The segments, and where each begins.
    fn starts(&self) -> impl Iterator<Item = (&Segment, u64)> + '_ {
        self.segments.iter().scan(0_u64, |start, segment| {
            let here = *start;
            *start = here.checked_add(segment.len)?;
            Some((segment, here))
        })
    }

    /// The ranges of the members that hold nothing but `free` bytes of the array (sorted, disjoint): all copies of them,
    /// and with parity whole stripes alone.
    pub fn carry(&self, free: &[ByteRange]) -> Option<Spread> {
        let mut spread = Gather::default();
        for (segment, start) in self.starts() {
            for range in segment.inside(free, start) {
                segment.carry(range, &mut spread)?;
            }
        }
        Some(spread.finish())
    }

    /// The largest part of what [`carry`](Self::carry) gives for `free` that lies inside `allowed` on every member
    /// alike: where one copy is not allowed no other is, and with parity the same bytes of every member are.
    pub fn agree(&self, free: &[ByteRange], allowed: &Spread) -> Option<Spread> {
        let mut spread = Gather::default();
        for (segment, start) in self.starts() {
            for range in segment.inside(free, start) {
                segment.agree(range, allowed, &mut spread)?;
            }
        }
        Some(spread.finish())
    }

    /// True when every byte of `spread` belongs to a byte of `free`, or is the parity of a stripe that is free as a
    /// whole. The way back, by formulas that share nothing with the way there.
    pub fn proves(&self, spread: &Spread, free: &[ByteRange]) -> bool {
        spread.iter().all(|(device, ranges)| ranges.iter().all(|range| self.owned_by_free(*device, *range, free)))
    }

    fn owned_by_free(&self, device: usize, range: ByteRange, free: &[ByteRange]) -> bool {
        // Sorted and merged: only the last one that begins at or before the piece can hold it.
        let is_free = |piece: ByteRange| {
            let before = free.partition_point(|candidate| candidate.start() <= piece.start());
            before.checked_sub(1).and_then(|index| free.get(index)).is_some_and(|holder| holder.contains(piece))
        };
        let mut at = range.start();
        while at < range.end() {
            let Some((owners, len)) = self.owners(Place { device, at }) else { return false };
            let len = len.min(range.end().saturating_sub(at));
            let piece = |start: &u64| ByteRange::with_len(*start, len);
            if len == 0 || owners.is_empty() || !owners.iter().all(|start| piece(start).is_some_and(is_free)) {
                return false;
            }
            at = at.saturating_add(len);
        }
        true
    }

    /// The bytes of the array that depend on a range of a device; none where a byte of it belongs to nothing in the array.
    pub fn back(&self, device: usize, range: ByteRange) -> Option<Vec<ByteRange>> {
        let mut found = Vec::new();
        let mut at = range.start();
        while at < range.end() {
            let (owners, len) = self.owners(Place { device, at })?;
            let len = len.min(range.end().checked_sub(at)?);
            for start in owners {
                found.push(ByteRange::with_len(start, len)?);
            }
            at = at.checked_add(len)?;
        }
        merge(&mut found);
        Some(found)
    }

    /// Where in the array the bytes begin that depend on a byte of a member, and for how many bytes that holds.
    fn owners(&self, place: Place) -> Option<(Vec<u64>, u64)> {
        self.starts().find_map(|(segment, start)| {
            let slot = segment.slot_of(place)?;
            let (owners, len) = segment.geometry.owners(slot, segment.len)?;
            let owners = owners.into_iter().map(|at| at.checked_add(start)).collect::<Option<Vec<u64>>>()?;
            Some((owners, len))
        })
    }
}

impl Segment {
    /// Where a slot lies; none when that member is missing.
    fn place(&self, slot: Slot) -> Option<Place> {
        let area = self.areas.get(slot.member).copied().flatten()?;
        let at = area.range.start().checked_add(slot.at).filter(|at| *at < area.range.end())?;
        Some(Place { device: area.device, at })
    }

    /// The slot of a member's byte; none when the byte is outside of every area.
    fn slot_of(&self, place: Place) -> Option<Slot> {
        let holds =
            |area: &Area| area.device == place.device && (area.range.start()..area.range.end()).contains(&place.at);
        let member = self.areas.iter().position(|area| area.as_ref().is_some_and(holds))?;
        let area = self.areas.get(member).copied().flatten()?;
        Some(Slot { member, at: place.at.checked_sub(area.range.start())? })
    }

    /// The parts of `ranges` (of the array) inside this segment, which begins at `start`, counted from there.
    fn inside<'a>(&self, ranges: &'a [ByteRange], start: u64) -> impl Iterator<Item = ByteRange> + 'a {
        let own = ByteRange::with_len(start, self.len);
        ranges.iter().filter_map(move |range| range.intersect(own?)?.shift_down(start))
    }

    /// What members that are there hold of `range` (of the segment), and nothing else.
    fn carry(&self, range: ByteRange, spread: &mut Gather) -> Option<()> {
        self.geometry.shares(range, (self.len, self.areas.len()), &mut |share| {
            for (copy, slot) in share.slots.iter().enumerate() {
                // Of a mirror with a missing member the rest is carried; that it is missing is said elsewhere.
                if self.areas.get(slot.member).is_some_and(Option::is_some) {
                    let place = self.place(*slot)?;
                    spread.push(place.device, copy, ByteRange::with_len(place.at, share.len)?);
                }
            }
            Some(())
        })
    }

    /// The same, where every member that is there allows it at the same bytes of the share.
    fn agree(&self, range: ByteRange, allowed: &Spread, spread: &mut Gather) -> Option<()> {
        self.geometry.shares(range, (self.len, self.areas.len()), &mut |share| {
            let places: Vec<(usize, Place)> =
                share.slots.iter().enumerate().filter_map(|(copy, slot)| Some((copy, self.place(*slot)?))).collect();
            let mut common = vec![ByteRange::with_len(0, share.len)?];
            for (_, place) in &places {
                let own = ByteRange::with_len(place.at, share.len)?;
                let ranges = allowed.get(&place.device).map_or(&[][..], Vec::as_slice);
                common = intersection(&common, &clipped(ranges, own));
            }
            for piece in common {
                for (copy, place) in &places {
                    spread.push(place.device, *copy, piece.shift_up(place.at)?);
                }
            }
            Some(())
        })
    }
}

/// The parts of sorted `ranges` inside `own`, counted from its start.
fn clipped(ranges: &[ByteRange], own: ByteRange) -> Vec<ByteRange> {
    let first = ranges.partition_point(|range| range.end() <= own.start());
    let near = ranges.iter().skip(first).take_while(|range| range.start() < own.end());
    near.filter_map(|range| range.intersect(own)?.shift_down(own.start())).collect()
}

/// What two sorted lists share.
fn intersection(one: &[ByteRange], other: &[ByteRange]) -> Vec<ByteRange> {
    let mut shared = Vec::new();
    for range in one {
        let first = other.partition_point(|candidate| candidate.end() <= range.start());
        let near = other.iter().skip(first).take_while(|candidate| candidate.start() < range.end());
        shared.extend(near.filter_map(|candidate| range.intersect(*candidate)));
    }
    shared
}

/// Ranges as they come, by device and copy: those of one copy come nearly in order, so that touching ones join at once.
#[derive(Default)]
struct Gather {
    lists: BTreeMap<(usize, usize), Vec<ByteRange>>,
}

impl Gather {
    fn push(&mut self, device: usize, copy: usize, range: ByteRange) {
        let list = self.lists.entry((device, copy)).or_default();
        let joined = list.last().filter(|last| last.end() == range.start());
        match joined.and_then(|last| ByteRange::new(last.start(), range.end())) {
            Some(joined) => {
                list.pop();
                list.push(joined);
            }
            None => list.push(range),
        }
    }

    fn finish(self) -> Spread {
        let mut spread = Spread::new();
        for ((device, _), list) in self.lists {
            spread.entry(device).or_default().extend(list);
        }
        spread.values_mut().for_each(merge);
        spread
    }
}

/// Sorts, and joins what touches or overlaps.
pub fn merge(ranges: &mut Vec<ByteRange>) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let joins = next.start() <= last.end();
        if joins {
            *last = ByteRange::new(last.start(), last.end().max(next.end())).unwrap_or(*last);
        }
        joins
    });
}
