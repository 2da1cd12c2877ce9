//! Bridges that behave badly, as models in memory: each gets the verdict that it deserves, and on none of them a used
//! byte changes.

use super::*;
use crate::plan::units::{BlockSize, Claims, Limits};
use crate::plan::{Batch, Disk, Policy, Region};
use crate::transport::{BlockAccess, Done, ErrorKind, TransportError};
use std::cell::RefCell;
use std::rc::Rc;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;
const BLOCK: u64 = 512;
/// Used: the first MiB and a half, one in the middle, the last 4.
const FREE: [(u64, u64); 2] = [(3 * MIB / 2, 40 * MIB), (41 * MIB, 60 * MIB)];

type Medium = Rc<RefCell<Vec<u8>>>;
/// What a bridge does with the ranges (first byte, bytes) of its command number so many; an error is a rejection.
type Behaviour = fn(&mut [u8], &[(u64, u64)], u64) -> Result<(), &'static str>;

struct Bridge {
    medium: Medium,
    behaviour: Behaviour,
    limits: Limits,
    commands: u64,
}

impl Transport for Bridge {
    fn name(&self) -> &'static str {
        "model"
    }
    fn limits(&self) -> Limits {
        self.limits
    }
    fn capacity(&self) -> u64 {
        SIZE
    }
    fn read_after_discard(&self) -> ReadAfterDiscard {
        ReadAfterDiscard::Zeros
    }
    fn notes(&self) -> &[String] {
        &[]
    }
    fn discard(&mut self, batch: &Batch<'_>) -> Result<Done, TransportError> {
        let ranges: Vec<(u64, u64)> = batch.byte_ranges().map(|range| (range.start(), range.len())).collect();
        self.commands += 1;
        (self.behaviour)(&mut self.medium.borrow_mut(), &ranges, self.commands)
            .map_err(|why| TransportError::new(ErrorKind::Rejected, "model", why))?;
        Ok(Done::default())
    }
    fn flush(&mut self) -> Result<(), TransportError> {
        Ok(())
    }
}

struct Kernel(Medium);

fn place(range: ByteRange) -> std::ops::Range<usize> {
    usize::try_from(range.start()).unwrap()..usize::try_from(range.end()).unwrap()
}

impl BlockRead for Kernel {
    fn path(&self) -> &'static str {
        "kernel"
    }
    fn read(&mut self, range: ByteRange) -> Result<Vec<u8>, TransportError> {
        Ok(self.0.borrow()[place(range)].to_vec())
    }
}

impl BlockAccess for Kernel {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), TransportError> {
        let range = ByteRange::with_len(at, u64::try_from(bytes.len()).unwrap()).unwrap();
        self.0.borrow_mut()[place(range)].copy_from_slice(bytes);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), TransportError> {
        Ok(())
    }
}

fn fill(medium: &mut [u8], start: u64, len: u64, value: u8) {
    let (start, end) = (start.min(SIZE), start.saturating_add(len).min(SIZE));
    medium[usize::try_from(start).unwrap()..usize::try_from(end).unwrap()].fill(value);
}

/// Does something with a bridge with granules of `granule` bytes, and checks that no used byte has changed.
fn on_a_bridge<T>(
    behaviour: Behaviour,
    granule: u64,
    act: impl FnOnce(&Bench<'_>, &mut Bridge, &mut Paths<'_>) -> T,
) -> T {
    let pattern: Vec<u8> = (1..=251).cycle().take(usize::try_from(SIZE).unwrap() / 64).collect::<Vec<u8>>().repeat(64);
    let medium: Medium = Rc::new(RefCell::new(pattern.clone()));
    let claims = Claims {
        lba_size: BlockSize::new(BLOCK).unwrap(),
        granularity: granule,
        alignment: 0,
        max_ranges: 256,
        max_range_bytes: 8 * MIB,
        max_command_bytes: 8 * MIB,
    };
    let limits = Limits::new(claims).unwrap();
    let free: Vec<ByteRange> = FREE.iter().map(|(start, end)| ByteRange::new(*start, *end).unwrap()).collect();
    let whole = ByteRange::new(0, SIZE).unwrap();
    let region = Region { device: 0, origin: "a volume", ranges: &free, within: whole, partition: whole };
    let disk = Disk { device: 0, size: SIZE, capacity: SIZE };
    let plan = Plan::build(&disk, &[region], &limits, &Policy::default()).unwrap();
    let bench = Bench { plan: &plan, free: &free, capacity: SIZE, partitions: &[MIB], block: BLOCK };
    let mut bridge = Bridge { medium: Rc::clone(&medium), behaviour, limits, commands: 0 };
    let mut kernel = Kernel(Rc::clone(&medium));
    let mut paths = Paths { kernel: &mut kernel, route: None };
    let result = act(&bench, &mut bridge, &mut paths);
    let after = medium.borrow();
    let mut used = 0;
    for (start, end) in FREE.into_iter().chain([(SIZE, SIZE)]) {
        let used_bytes = ByteRange::new(used, start).map(place).unwrap_or_default();
        assert!(after[used_bytes.clone()] == pattern[used_bytes], "a used byte before {start} changed");
        used = end;
    }
    result
}

fn examined(behaviour: Behaviour, granule: u64, budget: u64) -> Examination {
    let found = on_a_bridge(behaviour, granule, |bench, bridge, paths| examine(bench, bridge, paths, 7, budget));
    assert!(found.written <= budget);
    assert_eq!(found.written, found.grounds.iter().map(|ground| ground.len()).sum::<u64>());
    found
}

/// Whoever thinks out a place: guards that are in use, or a target that is, and nothing is written.
#[test]
fn a_place_that_is_not_free_is_never_written() {
    let range = |start, end| ByteRange::new(start, end).unwrap();
    on_a_bridge(zeroes, BLOCK, |bench, bridge, paths| {
        for (ground, target) in [
            (range(MIB, 3 * MIB), range(2 * MIB, 3 * MIB)),
            (range(39 * MIB, 42 * MIB), range(39 * MIB, 42 * MIB)),
            (range(61 * MIB, 63 * MIB), range(62 * MIB, 62 * MIB + 4096)),
        ] {
            let trial = canary::run(bench, &Place { ground, targets: vec![target] }, bridge, paths, 7);
            assert!(matches!(trial.verdict, Verdict::Inconclusive(_)) && trial.written == 0, "{:?}", trial.verdict);
        }
        assert_eq!(bridge.commands, 0);
    });
}

fn zeroes(medium: &mut [u8], ranges: &[(u64, u64)], _: u64) -> Result<(), &'static str> {
    ranges.iter().for_each(|(start, len)| fill(medium, *start, *len, 0));
    Ok(())
}

const PLENTY: u64 = 64 * MIB;

#[test]
fn a_good_bridge_works_up_to_what_space_and_budget_allow() {
    for granule in [BLOCK, 4096, 65_536] {
        let found = examined(zeroes, granule, PLENTY);
        assert_eq!(found.verdict, Verdict::Works { zeroes: true });
        assert_eq!((found.rejected, rung(&found)), (None, 2), "{granule}");
        // With large granules there is no place for more of which every alias is free.
        assert!(
            found.largest == Some(8 * MIB) || (granule == 65_536 && found.largest >= Some(4 * MIB)),
            "{granule}: {found:?}"
        );
        let tried: Vec<&str> = found.steps.iter().map(|step| step.what.as_str()).collect();
        assert!(tried.contains(&"many ranges") && tried.contains(&"one granule"), "{tried:?}");
        assert!(found.steps.iter().any(|step| step.ranges == 64), "{granule}");
    }
    let short = examined(zeroes, BLOCK, 6 * MIB);
    assert!(short.verdict == Verdict::Works { zeroes: true } && short.largest < Some(4 * MIB), "{short:?}");
    let none = examined(zeroes, BLOCK, 4096);
    assert!(matches!(none.verdict, Verdict::Inconclusive(_)), "{none:?}");
}

#[test]
fn contents_may_be_anything_as_long_as_they_change() {
    let found = examined(
        |medium, ranges, _| {
            ranges.iter().for_each(|(start, len)| fill(medium, *start, *len, 0xFF));
            Ok(())
        },
        BLOCK,
        PLENTY,
    );
    assert_eq!(found.verdict, Verdict::Works { zeroes: false });
}

#[test]
fn what_is_ignored_or_refused_is_said() {
    let found = examined(|_, _, _| Ok(()), BLOCK, PLENTY);
    assert_eq!((&found.verdict, rung(&found), found.largest), (&Verdict::NoEvidence, 1, None));
    assert!(breaks_promise(&found.verdict, ReadAfterDiscard::Zeros));
    let found = examined(|_, _, _| Err("no such command"), BLOCK, PLENTY);
    assert!(matches!(&found.verdict, Verdict::Rejected(why) if why.contains("no such command")), "{found:?}");
    assert_eq!((found.steps.len(), rung(&found)), (1, 0));
}

#[test]
fn limits_that_nobody_claimed_are_found() {
    let found = examined(
        |medium, ranges, number| {
            if ranges.iter().map(|(_, len)| len).sum::<u64>() > 4 * MIB {
                Err("too large")
            } else {
                zeroes(medium, ranges, number)
            }
        },
        BLOCK,
        PLENTY,
    );
    assert_eq!(found.verdict, Verdict::Works { zeroes: true });
    assert_eq!(found.largest, Some(4 * MIB));
    assert!(found.rejected.is_some_and(|size| size > 4 * MIB && size <= 4 * MIB + 512 * 1024), "{found:?}");
    let found = examined(
        |medium, ranges, number| if ranges.len() > 1 { Err("one only") } else { zeroes(medium, ranges, number) },
        BLOCK,
        PLENTY,
    );
    assert_eq!((&found.verdict, found.largest), (&Verdict::Works { zeroes: true }, Some(8 * MIB)));
    assert!(found.steps.iter().any(|step| step.ranges > 1 && matches!(step.verdict, Verdict::Rejected(_))));
}

/// Each of these changes something that was not named: one command is enough to know.
#[test]
fn harm_ends_it_at_the_first_command() {
    let harmful: [Behaviour; 5] = [
        |medium, ranges, _| {
            ranges.iter().for_each(|(start, len)| fill(medium, *start, len + BLOCK, 0)); // one too many behind
            Ok(())
        },
        |medium, ranges, _| {
            ranges.iter().for_each(|(start, len)| fill(medium, start - BLOCK, len + BLOCK, 0)); // and before
            Ok(())
        },
        |medium, ranges, _| {
            let outwards =
                |(start, len): &(u64, u64)| (start / 65_536 * 65_536, (start + len).next_multiple_of(65_536));
            ranges.iter().map(outwards).for_each(|(start, end)| fill(medium, start, end - start, 0));
            Ok(())
        },
        |medium, ranges, _| {
            ranges.iter().for_each(|(start, len)| fill(medium, start + 2 * BLOCK, *len, 0)); // shifted a little
            Ok(())
        },
        |medium, ranges, _| {
            ranges.iter().for_each(|(start, _)| fill(medium, start - 4096, 4096, 0)); // the guard alone
            Err("and says that it did nothing")
        },
    ];
    for (number, behaviour) in harmful.into_iter().enumerate() {
        let found = examined(behaviour, BLOCK, PLENTY);
        let is_seen = matches!(found.verdict, Verdict::Harmful(_));
        // What is rejected is not read again by the trial; the neighbours of the run are.
        assert!(is_seen || (number == 4 && matches!(found.verdict, Verdict::Rejected(_))), "{number}: {found:?}");
        assert_eq!(found.steps.len(), 1, "{number}");
    }
}

/// Wrong places whose aliases are free, because the place was chosen for that: nothing is seen, nothing is lost.
#[test]
fn far_wrong_addresses_hit_free_space_or_nothing() {
    let wrong: [Behaviour; 4] = [
        |medium, ranges, _| {
            ranges.iter().for_each(|(start, len)| fill(medium, start * 8, len * 8, 0));
            Ok(())
        },
        |medium, ranges, _| {
            ranges.iter().for_each(|(start, len)| fill(medium, start / BLOCK / 8 * BLOCK, *len, 0));
            Ok(())
        },
        |medium, ranges, _| {
            ranges.iter().for_each(|(start, len)| fill(medium, start + MIB, *len, 0));
            Ok(())
        },
        |medium, ranges, _| {
            ranges.iter().for_each(|(start, len)| fill(medium, start - MIB, *len, 0));
            Ok(())
        },
    ];
    for (number, behaviour) in wrong.into_iter().enumerate() {
        let found = examined(behaviour, BLOCK, PLENTY);
        let expected = matches!(found.verdict, Verdict::NoEvidence | Verdict::Harmful(_) | Verdict::Unstable(_));
        assert!(expected || matches!(found.verdict, Verdict::Inconclusive(_)), "{number}: {found:?}");
    }
}

#[test]
fn what_works_now_and_then_or_in_part_is_not_stable() {
    let odd: [Behaviour; 2] = [
        |medium, ranges, number| if number % 2 == 1 { zeroes(medium, ranges, number) } else { Ok(()) },
        |medium, ranges, _| {
            ranges.iter().for_each(|(start, len)| fill(medium, *start, len / 2 / BLOCK * BLOCK, 0));
            Ok(())
        },
    ];
    for behaviour in odd {
        let found = examined(behaviour, 4096, PLENTY);
        assert!(matches!(found.verdict, Verdict::Unstable(_)), "{found:?}");
    }
}

#[test]
fn two_paths_that_differ_are_found_before_anything_is_written() {
    let (one, other): (Medium, Medium) = (Rc::new(RefCell::new(vec![1; 8192])), Rc::new(RefCell::new(vec![2; 8192])));
    let places = [ByteRange::new(0, 4096).unwrap()];
    let found = cross_read(&mut Kernel(Rc::clone(&one)), &mut Kernel(other), &places).unwrap_err();
    assert!(matches!(found.verdict, Verdict::Harmful(_)) && found.written == 0);
    assert!(cross_read(&mut Kernel(Rc::clone(&one)), &mut Kernel(one), &places).is_ok());
}
