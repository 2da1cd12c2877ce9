//! RAID0: chunks in turn. Members of several sizes make zones: the first one over all members up to the size of the
//! smallest, the next one over those that are larger, and so on.
//!
//! ```text
//! member 0  |0 3 6|                 zone 0: chunks 0..8 over three members
//! member 1  |1 4 7|9  11|           zone 1: chunks 9..12 over two
//! member 2  |2 5 8|10 12|
//! ```

use super::geometry::{Share, Slot, Turn};
use crate::units::from_usize;
use serde::{Deserialize, Serialize};

/// Bytes of the array that are laid over the same members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// Where it begins in the array.
    pub start: u64,
    /// Where it ends in the array.
    pub end: u64,
    /// Where it begins in the area of each of its members.
    pub at: u64,
    /// Its members.
    pub members: Vec<usize>,
}

/// The zones of members of these lengths; none when no chunk fits.
pub(super) fn zones(chunk: u64, lengths: &[u64]) -> Option<Vec<Zone>> {
    let whole = |len: &u64| len.checked_sub(len.checked_rem(chunk)?);
    let lengths = lengths.iter().map(whole).collect::<Option<Vec<u64>>>()?;
    let mut heights = lengths.clone();
    heights.sort_unstable();
    heights.dedup();
    let (mut start, mut at) = (0_u64, 0_u64);
    let mut zones = Vec::new();
    for height in heights.into_iter().filter(|height| *height > 0) {
        let members: Vec<usize> =
            lengths.iter().enumerate().filter(|(_, len)| **len >= height).map(|(index, _)| index).collect();
        let end = start.checked_add(height.checked_sub(at)?.checked_mul(from_usize(members.len()))?)?;
        zones.push(Zone { start, end, at, members });
        (start, at) = (end, height);
    }
    (!zones.is_empty()).then_some(zones)
}

/// True when these are the zones of members of these lengths.
pub(super) fn fits(chunk: u64, found: &[Zone], len: u64, lengths: &[Option<u64>]) -> bool {
    let lengths: Option<Vec<u64>> = lengths.iter().copied().collect();
    let expected = lengths.and_then(|lengths| zones(chunk, &lengths));
    expected.is_some_and(|expected| expected == found && expected.last().map(|zone| zone.end) == Some(len))
}

/// The member of byte `at`.
pub(super) fn share(chunk: u64, turn: Turn, zones: &[Zone], at: u64) -> Option<Share> {
    let zone = zones.get(zones.partition_point(|zone| zone.end <= at))?;
    let width = from_usize(zone.members.len());
    let inside = at.checked_sub(zone.start)?;
    let (number, within) = (inside.checked_div(chunk)?, inside.checked_rem(chunk)?);
    let counted = match turn {
        Turn::OfZone => number,
        Turn::OfArray => at.checked_div(chunk)?,
    };
    let member = *zone.members.get(usize::try_from(counted.checked_rem(width)?).ok()?)?;
    let row = number.checked_div(width)?;
    let at = zone.at.checked_add(row.checked_mul(chunk)?)?.checked_add(within)?;
    Some(Share { slots: vec![Slot { member, at }], len: chunk.checked_sub(within)? })
}

/// The byte of the array that a slot holds, and how many follow in the same chunk.
pub(super) fn owner(chunk: u64, turn: Turn, zones: &[Zone], slot: Slot) -> Option<(u64, u64)> {
    let zone = zones.iter().rev().find(|zone| zone.at <= slot.at && zone.members.contains(&slot.member))?;
    let width = from_usize(zone.members.len());
    let place = from_usize(zone.members.iter().position(|member| *member == slot.member)?);
    let inside = slot.at.checked_sub(zone.at)?;
    let (row, within) = (inside.checked_div(chunk)?, inside.checked_rem(chunk)?);
    let before = match turn {
        Turn::OfZone => 0,
        Turn::OfArray => zone.start.checked_div(chunk)?.checked_rem(width)?,
    };
    // The place of the first chunk of every row, counted by the array, is `before`; ours is so many further.
    let further = place.checked_add(width)?.checked_sub(before)?.checked_rem(width)?;
    let number = row.checked_mul(width)?.checked_add(further)?;
    let at = zone.start.checked_add(number.checked_mul(chunk)?)?.checked_add(within)?;
    (at < zone.end).then_some((at, chunk.checked_sub(within)?))
}
