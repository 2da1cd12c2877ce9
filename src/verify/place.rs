//! Where to try a route: a place in known-free space of which every likely wrong address is free too.
//!
//! A bridge that counts in other units, adds the partition's start, or cuts the address to 28 or 32 bits discards
//! somewhere else. Each such mistake is a function of the LBA; its inverse turns the free map into the set of LBAs
//! for which that mistake hits free space or nothing. The intersection of all these sets is where a test is harmless.

/// An inclusive interval of start LBAs.
type Interval = (u64, u64);

/// What is known about the device, in LBAs.
pub struct Ground<'a> {
    /// Free space, sorted and merged: first LBA and the LBA behind the last.
    pub free: &'a [(u64, u64)],
    /// Number of LBAs of the device.
    pub capacity: u64,
    /// LBAs at which partitions begin, where not 0.
    pub partition_starts: &'a [u64],
    /// Granularity and alignment of the route, in LBAs.
    pub granule: u64,
    /// The LBA of the first granule's start.
    pub alignment: u64,
}

/// LBAs per LBA, if one side counts 4096 bytes and the other 512.
const UNIT_MISMATCH: u64 = 8;
/// Address widths that bridges are known to have, as the number of LBAs that they can tell apart.
const WRAPS: [u64; 2] = [1 << 28, 1 << 32];

impl Ground<'_> {
    /// The first LBA of a range of `length` LBAs with at least `guard` free LBAs on both sides, such that every alias
    /// of the range is free or off the device. It begins a granule; `length` must be a multiple of the granule.
    pub fn choose(&self, length: u64, guard: u64) -> Option<u64> {
        let widest = self.harmless(length, guard).into_iter().max_by_key(|(low, high)| high - low)?;
        let middle = widest.0 + (widest.1 - widest.0) / 2;
        [middle, widest.0].into_iter().filter_map(|from| self.align_up(from)).find(|start| *start <= widest.1)
    }

    fn align_up(&self, from: u64) -> Option<u64> {
        let past = from.saturating_sub(self.alignment);
        past.checked_next_multiple_of(self.granule.max(1))?.checked_add(self.alignment)
    }

    /// Every start LBA at which all aliases are harmless.
    fn harmless(&self, length: u64, guard: u64) -> Vec<Interval> {
        let mut starts = within(self.free.iter().copied(), guard, length + guard);
        let harmless = self.free_or_absent();
        let harmless = || harmless.iter().copied();
        starts = both(&starts, &scaled_up(harmless(), length));
        starts = both(&starts, &scaled_down(harmless(), length));
        for by in self.partition_starts.iter().copied().filter(|by| *by > 0) {
            starts = both(&starts, &added(harmless(), length, by));
            starts = both(&starts, &subtracted(harmless(), length, by));
        }
        for modulus in WRAPS {
            starts = both(&starts, &wrapped(self.free, length, modulus, self.capacity));
        }
        starts
    }

    /// Free space, and everything behind the end of the device.
    fn free_or_absent(&self) -> Vec<(u64, u64)> {
        let mut all = self.free.to_vec();
        match all.last_mut() {
            Some(last) if last.1 >= self.capacity => last.1 = u64::MAX,
            _ => all.push((self.capacity, u64::MAX)),
        }
        all
    }
}

/// Starts `s` with `s - before .. s + behind` inside one of `areas`.
fn within(areas: impl Iterator<Item = (u64, u64)>, before: u64, behind: u64) -> Vec<Interval> {
    intervals(areas.map(|(low, end)| (low.checked_add(before), end.checked_sub(behind))))
}

fn intervals(ends: impl Iterator<Item = (Option<u64>, Option<u64>)>) -> Vec<Interval> {
    ends.filter_map(|(low, high)| Some((low?, high?))).filter(|(low, high)| low <= high).collect()
}

/// Starts whose range times [`UNIT_MISMATCH`] lies inside one of `areas`.
fn scaled_up(areas: impl Iterator<Item = (u64, u64)>, length: u64) -> Vec<Interval> {
    let room = length.saturating_mul(UNIT_MISMATCH);
    intervals(
        areas.map(|(low, end)| {
            (Some(low.div_ceil(UNIT_MISMATCH)), end.checked_sub(room).map(|last| last / UNIT_MISMATCH))
        }),
    )
}

/// Starts whose quotient by [`UNIT_MISMATCH`], with the whole length behind it, lies inside one of `areas`.
fn scaled_down(areas: impl Iterator<Item = (u64, u64)>, length: u64) -> Vec<Interval> {
    let most = UNIT_MISMATCH - 1;
    intervals(areas.map(|(low, end)| {
        let last = end.checked_sub(length).map(|last| last.saturating_mul(UNIT_MISMATCH).saturating_add(most));
        (low.checked_mul(UNIT_MISMATCH), last)
    }))
}

/// Starts whose range moved up by `by` lies inside one of `areas`.
fn added(areas: impl Iterator<Item = (u64, u64)>, length: u64, by: u64) -> Vec<Interval> {
    intervals(areas.map(|(low, end)| {
        (Some(low.saturating_sub(by)), end.checked_sub(length).and_then(|last| last.checked_sub(by)))
    }))
}

/// Starts whose range moved down by `by` lies inside one of `areas`, or wholly before the device.
fn subtracted(areas: impl Iterator<Item = (u64, u64)>, length: u64, by: u64) -> Vec<Interval> {
    let before_the_device = (Some(0), by.checked_sub(length));
    let moved =
        areas.map(|(low, end)| (low.checked_add(by), end.checked_sub(length).map(|last| last.saturating_add(by))));
    intervals(std::iter::once(before_the_device).chain(moved))
}

/// Starts whose range, cut to `modulus`, is free.
fn wrapped(free: &[(u64, u64)], length: u64, modulus: u64, capacity: u64) -> Vec<Interval> {
    (0..capacity.div_ceil(modulus))
        .flat_map(|turn| {
            let below = free.iter().map(move |(low, end)| (*low, *end.min(&modulus)));
            intervals(below.map(move |(low, end)| {
                let base = turn.checked_mul(modulus);
                let last = end.checked_sub(length);
                (base.and_then(|b| b.checked_add(low)), base.and_then(|b| b.checked_add(last?)))
            }))
        })
        .collect()
}

/// Starts that are in both lists. Each list may overlap itself.
fn both(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let (a, b) = (merged(a), merged(b));
    let (mut i, mut j) = (0, 0);
    let mut shared = Vec::new();
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let (low, high) = (x.0.max(y.0), x.1.min(y.1));
        if low <= high {
            shared.push((low, high));
        }
        if x.1 < y.1 { i += 1 } else { j += 1 }
    }
    shared
}

fn merged(list: &[Interval]) -> Vec<Interval> {
    let mut sorted = list.to_vec();
    sorted.sort_unstable();
    sorted.dedup_by(|next, last| {
        let joins = next.0 <= last.1;
        if joins {
            last.1 = last.1.max(next.1);
        }
        joins
    });
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_free(ground: &Ground<'_>, lba: u64) -> bool {
        ground.free.iter().any(|(low, end)| (*low..*end).contains(&lba))
    }

    /// The definition, LBA by LBA: what a wrong bridge would hit is free or not there.
    fn is_harmless(ground: &Ground<'_>, start: u64, length: u64) -> bool {
        let ok = |lba: Option<u64>| lba.is_none_or(|lba| lba >= ground.capacity || is_free(ground, lba));
        (0..length).all(|k| {
            let lba = start + k;
            let scaled = (0..8).all(|sub| ok(Some(lba * 8 + sub)));
            let divided = ok(Some(lba / 8)) && ok(Some(start / 8 + k));
            let moved = ground.partition_starts.iter().all(|by| ok(Some(lba + by)) && ok(lba.checked_sub(*by)));
            let cut = WRAPS.iter().all(|wrap| ok(Some(lba % wrap)));
            is_free(ground, lba) && scaled && divided && moved && cut
        })
    }

    #[test]
    fn an_empty_disk_has_a_place() {
        let ground =
            Ground { free: &[(2048, 1 << 20)], capacity: 1 << 20, partition_starts: &[2048], granule: 8, alignment: 0 };
        let start = ground.choose(2048, 128).unwrap();
        assert!(start.is_multiple_of(8));
        assert!(is_harmless(&ground, start, 2048));
    }

    #[test]
    fn a_full_disk_has_none() {
        let ground = Ground { free: &[], capacity: 1 << 20, partition_starts: &[], granule: 1, alignment: 0 };
        assert_eq!(ground.choose(8, 8), None);
        // One free run whose eighth is in use: nowhere is harmless.
        let ground =
            Ground { free: &[(8000, 8800)], capacity: 10_000, partition_starts: &[], granule: 1, alignment: 0 };
        assert_eq!(ground.choose(8, 8), None);
    }

    #[test]
    fn addresses_that_a_28_bit_bridge_would_cut_are_looked_at() {
        let free = [(1 << 20, 1 << 21), ((1 << 28) + (1 << 19), (1 << 28) + (1 << 22))];
        let ground = Ground { free: &free[1..], capacity: 1 << 29, partition_starts: &[], granule: 1, alignment: 0 };
        assert_eq!(ground.choose(64, 64), None, "cut to 28 bits it would hit used space");
    }

    proptest! {
        #[test]
        fn what_is_chosen_is_harmless(cuts in prop::collection::vec((0u64..4000, 1u64..1500), 1..6),
                                      capacity in 3000u64..6000, length in 1u64..9, granule in 1u64..5, shift in 0u64..5,
                                      partition in 0u64..900) {
            let length = length * granule;
            let mut used = vec![true; 6000];
            for (start, len) in cuts { for k in start..(start + len).min(capacity) { used[k as usize] = false; } }
            let mut free: Vec<(u64, u64)> = Vec::new();
            for k in 0..capacity {
                if used[k as usize] { continue; }
                match free.last_mut() { Some(last) if last.1 == k => last.1 += 1, _ => free.push((k, k + 1)) }
            }
            let starts = [partition];
            let ground = Ground { free: &free, capacity, partition_starts: &starts, granule, alignment: shift % granule };
            if let Some(start) = ground.choose(length, 3) {
                prop_assert!(is_harmless(&ground, start, length), "start {start} length {length} free {free:?}");
                prop_assert_eq!((start + granule - shift % granule) % granule, 0);
                prop_assert!((start - 3..start + length + 3).all(|lba| is_free(&ground, lba)));
            }
        }
    }
}
