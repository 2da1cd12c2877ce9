//! Members one behind the other.

use super::geometry::{Share, Slot};

/// Where each of members of these lengths ends in the array.
pub(super) fn ends(lengths: &[u64]) -> Option<Vec<u64>> {
    let mut end = 0_u64;
    lengths
        .iter()
        .map(|len| {
            end = end.checked_add(*len)?;
            Some(end)
        })
        .collect()
}

/// True when every member holds its part and the last one ends at `len`.
pub(super) fn fits(ends: &[u64], len: u64, lengths: &[Option<u64>]) -> bool {
    let mut start = 0;
    let held = ends.iter().zip(lengths).all(|(end, have)| {
        let part = end.checked_sub(std::mem::replace(&mut start, *end));
        part.is_some_and(|part| have.is_some_and(|have| part <= have))
    });
    held && ends.len() == lengths.len() && ends.last() == Some(&len)
}

/// The member of byte `at`.
pub(super) fn share(ends: &[u64], at: u64) -> Option<Share> {
    let member = ends.partition_point(|end| *end <= at);
    let len = ends.get(member)?.checked_sub(at)?;
    Some(Share { slots: vec![Slot { member, at: at.checked_sub(start(ends, member)?)? }], len })
}

/// The byte of the array that a slot holds, and how many follow on the same member.
pub(super) fn owner(ends: &[u64], slot: Slot) -> Option<(u64, u64)> {
    let at = start(ends, slot.member)?.checked_add(slot.at)?;
    let len = ends.get(slot.member)?.checked_sub(at).filter(|len| *len > 0)?;
    Some((at, len))
}

fn start(ends: &[u64], member: usize) -> Option<u64> {
    member.checked_sub(1).map_or(Some(0), |before| ends.get(before).copied())
}
