use super::units::{BlockSize, ByteRange, Claims, Limits, LimitsError};
use super::*;
use proptest::prelude::*;

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start, end).unwrap()
}

fn claims() -> Claims {
    Claims {
        lba_size: BlockSize::new(1).unwrap(),
        granularity: 1,
        alignment: 0,
        max_ranges: u64::MAX,
        max_range_bytes: u64::MAX,
        max_command_bytes: u64::MAX,
    }
}

fn limits(claims: Claims) -> Limits {
    Limits::new(claims).unwrap()
}

const DISK: Disk = Disk { device: 0, size: 1000, capacity: 1000 };

fn region(ranges: &[ByteRange]) -> Region<'_> {
    Region { device: 0, origin: "ext4 \"data\"", ranges, within: range(100, 900), partition: range(50, 950) }
}

fn build(ranges: &[ByteRange], claims: Claims, policy: Policy) -> Plan {
    Plan::build(&DISK, &[region(ranges)], &limits(claims), &policy).unwrap()
}

#[test]
fn every_range_is_held_by_volume_partition_disk_and_capacity() {
    let refuse = |disk: Disk, region: Region<'_>| {
        Plan::build(&disk, &[region], &limits(claims()), &Policy::default()).unwrap_err().to_string()
    };
    let ranges = [range(200, 300)];
    let outside = [range(899, 901)];
    let good = region(&ranges);
    assert!(
        refuse(DISK, region(&outside))
            .contains("a free range (bytes 899..901) is not inside the volume (bytes 100..900)")
    );
    assert!(
        refuse(DISK, Region { within: range(49, 900), ..good })
            .contains("the volume (bytes 49..900) is not inside its partition")
    );
    assert!(
        refuse(DISK, Region { partition: range(50, 1001), ..good })
            .contains("the partition (bytes 50..1001) is not inside the disk")
    );
    assert!(refuse(Disk { capacity: 999, ..DISK }, good).contains("the device itself reports 999"));
    assert!(refuse(DISK, Region { device: 1, ..good }).contains("device 1"));
}

#[test]
fn overlaps_are_refused_within_and_between_regions() {
    let plan = |regions: &[Region<'_>]| Plan::build(&DISK, regions, &limits(claims()), &Policy::default());
    let (disorder, first, second) = ([range(300, 400), range(200, 300)], [range(200, 300)], [range(299, 310)]);
    assert!(matches!(plan(&[region(&disorder)]), Err(Refusal::Disorder { .. })));
    assert!(matches!(plan(&[region(&first), region(&second)]), Err(Refusal::Disorder { .. })));
    // Regions may come in any order as long as they do not overlap.
    assert!(plan(&[region(&[range(310, 320)]), region(&first)]).is_ok());
}

#[test]
fn limits_become_tighter_and_never_looser() {
    let block = BlockSize::new(512).unwrap();
    let base = Claims { lba_size: block, ..claims() };
    let got =
        limits(Claims { granularity: 3072, alignment: 4096, max_range_bytes: 7000, max_command_bytes: 10_000, ..base });
    assert_eq!((got.granularity(), got.alignment()), (3072, 1024));
    assert_eq!((got.max_range_bytes(), got.max_command_bytes()), (6144, 9216));
    assert_eq!(limits(Claims { granularity: 0, ..base }).granularity(), 512);
    assert_eq!(limits(Claims { granularity: 768, ..base }).granularity(), 1536);
    let error = |claims| Limits::new(claims).unwrap_err();
    assert!(matches!(error(Claims { alignment: 100, ..base }), LimitsError::Misaligned { .. }));
    assert!(matches!(error(Claims { granularity: 4096, max_range_bytes: 4095, ..base }), LimitsError::TooSmall { .. }));
    assert!(matches!(error(Claims { max_ranges: 0, ..base }), LimitsError::NoRange));
    assert!(matches!(error(Claims { granularity: u64::MAX, ..base }), LimitsError::Huge { .. }));
}

#[test]
fn the_batch_of_a_trial_lies_inside_planned_extents_on_granules() {
    let plan = build(
        &[range(200, 300), range(400, 500)],
        Claims { granularity: 10, max_range_bytes: 30, max_ranges: 2, ..claims() },
        Policy::default(),
    );
    let bytes_of = |ranges: &[ByteRange]| {
        let part = plan.part(ranges)?;
        part.single_batch().map(|batch| batch.byte_ranges().collect::<Vec<_>>())
    };
    let bytes = |start, end| bytes_of(&[range(start, end)]);
    assert_eq!(bytes_of(&[range(210, 220), range(420, 440)]), Some(vec![range(210, 220), range(420, 440)]));
    assert_eq!(bytes_of(&[range(420, 440), range(210, 220)]), None, "not in order");
    assert_eq!(bytes_of(&[]), None, "nothing");
    assert_eq!(bytes(210, 240), Some(vec![range(210, 240)]));
    assert_eq!(bytes(410, 470), Some(vec![range(410, 440), range(440, 470)]));
    assert_eq!(bytes(410, 480), None, "more than two ranges of 30 bytes");
    assert_eq!(bytes(295, 300), None, "not whole granules");
    assert_eq!(bytes(290, 310), None, "passes the extent");
    assert_eq!(bytes(300, 400), None, "used");
}

#[test]
fn a_batch_that_was_put_back_comes_again_in_smaller_pieces() {
    let plan = build(&[range(200, 300), range(400, 410)], Claims { granularity: 10, ..claims() }, Policy::default());
    let mut cursor = plan.cursor();
    let batch = cursor.next_batch(Cap::NONE).unwrap();
    assert_eq!(batch.bytes(), 110);
    cursor.put_back(&batch);
    let rest: Vec<u64> = std::iter::from_fn(|| cursor.next_batch(Cap::bytes(59)).map(|batch| batch.bytes())).collect();
    assert_eq!(rest, [50, 50, 10]);
}

#[test]
fn the_ramp_grows_while_answers_are_quick_and_remembers_a_refusal() {
    use std::time::Duration;
    let mut ramp = Ramp::new(&limits(Claims { max_ranges: 4, max_command_bytes: 300 << 20, ..claims() }));
    assert_eq!(ramp.cap(), Cap { bytes: 64 << 20, ranges: 1 });
    for _ in 0..3 {
        ramp.succeeded(Duration::from_millis(10));
    }
    assert_eq!(ramp.cap(), Cap { bytes: 300 << 20, ranges: 4 });
    assert!(ramp.is_full());
    ramp.succeeded(Duration::from_millis(1500));
    assert!(ramp.is_full(), "neither quick nor slow");
    ramp.succeeded(Duration::from_secs(3));
    assert_eq!(ramp.cap(), Cap { bytes: 150 << 20, ranges: 2 });
    assert!(ramp.shrink());
    ramp.succeeded(Duration::from_millis(10));
    assert_eq!(ramp.cap(), Cap { bytes: 75 << 20, ranges: 1 }, "never again larger than what was accepted");
    while ramp.shrink() {}
    assert_eq!(ramp.cap(), Cap { bytes: 1, ranges: 1 });
}

/// The fewest commands that cover `extents` in order, by trying every place where each command may end.
fn fewest(extents: &[ByteRange], limits: &Limits) -> u64 {
    let granule = limits.granularity();
    let units: Vec<u64> =
        extents.iter().flat_map(|e| (0..e.len() / granule).map(move |k| e.start() + k * granule)).collect();
    let fits = |from: usize, to: usize| {
        let part = &units[from..to];
        let runs = part.chunk_by(|a, b| a + granule == *b && !extents.iter().any(|e| e.start() == *b));
        let ranges: u64 = runs.map(|run| (number(run.len()) * granule).div_ceil(limits.max_range_bytes())).sum();
        ranges <= limits.max_ranges() && number(part.len()) * granule <= limits.max_command_bytes()
    };
    let mut best = vec![0_u64];
    for to in 1..=units.len() {
        best.push((0..to).filter(|from| fits(*from, to)).map(|from| best[from] + 1).min().unwrap());
    }
    best[units.len()]
}

fn ranges_of(bits: &[bool], at: u64) -> Vec<ByteRange> {
    let mut ranges = Vec::new();
    let mut position = at;
    for run in bits.chunk_by(|a, b| a == b) {
        let end = position + number(run.len());
        if run[0] {
            ranges.push(range(position, end));
        }
        position = end;
    }
    ranges
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Every spot of an area lies inside the plan.
    #[test]
    fn spots_are_planned(cuts in proptest::collection::vec(100_u64..900, 2..20), unit in 1_u64..40, at in 0_u64..900, length in 1_u64..200) {
        let mut cuts = cuts;
        cuts.sort_unstable();
        cuts.dedup();
        let ranges: Vec<ByteRange> = cuts.chunks_exact(2).filter_map(|pair| ByteRange::new(pair[0], pair[1])).collect();
        let plan = build(&ranges, claims(), Policy::default());
        let area = Area::of([&plan].into_iter(), unit, 1);
        let spot = area.spot(at, length).map(|spot| spot.range());
        prop_assert_eq!(spot.is_some(), at < area.bytes());
        if let Some(spot) = spot {
            prop_assert!(spot.len() <= length && plan.extents().iter().any(|extent| extent.contains(spot)));
        }
    }

    /// Against a plain bit vector: a byte is planned exactly when it lies in a whole free granule of a run that is
    /// long enough; the batches hold each planned byte once, in order, within all limits, and are as few as possible.
    #[test]
    fn planned_is_free_rounded_inwards_and_batches_are_fewest(
        bits in prop::collection::vec(prop::bool::weighted(0.7), 1..300),
        at in 100u64..120,
        lba_log2 in 0u32..4,
        granules in 1u64..4,
        phase in 0u64..8,
        wished in prop::sample::select(vec![1u64, 2, 3, 4]),
        min_extent in 1u64..30,
        max_ranges in 1u64..5,
        range_granules in 1u64..6,
        command_granules in 1u64..12,
    ) {
        let lba = 1u64 << lba_log2;
        let granule = granules * lba;
        let claims = Claims {
            lba_size: BlockSize::new(lba).unwrap(),
            granularity: granule,
            alignment: phase * lba,
            max_ranges,
            max_range_bytes: range_granules * granule + granule / 2,
            max_command_bytes: command_granules * granule + granule / 2,
        };
        let plan = build(&ranges_of(&bits, at), claims, Policy { min_extent, granule: wished });
        let step = least_common_multiple(granule, wished).unwrap();
        let free = |byte: u64| byte.checked_sub(at).and_then(|i| bits.get(usize::try_from(i).unwrap())).copied().unwrap_or(false);
        let first = (phase * lba) % step;
        let mut planned = vec![false; 1000];
        for start in (0..).map(|k| first % granule + k * step).take_while(|start| start + step <= 1000) {
            let whole = (start..start + step).all(free);
            (start..start + step).for_each(|byte| planned[usize::try_from(byte).unwrap()] = whole);
        }
        let expected: Vec<ByteRange> = ranges_of(&planned, 0).into_iter().filter(|r| r.len() >= min_extent).collect();
        prop_assert_eq!(plan.extents(), &expected[..]);
        let free_bytes = number(bits.iter().filter(|bit| **bit).count());
        prop_assert_eq!(plan.facts().skipped_bytes, free_bytes - plan.facts().bytes);

        let limits = plan.limits();
        let mut covered = Vec::new();
        let mut commands = 0;
        for batch in plan.batches() {
            commands += 1;
            prop_assert!(number(batch.ranges().len()) <= max_ranges);
            prop_assert!(batch.bytes() <= claims.max_command_bytes);
            prop_assert_eq!(batch.bytes(), batch.byte_ranges().map(ByteRange::len).sum::<u64>());
            for piece in batch.byte_ranges() {
                prop_assert!(piece.len() <= claims.max_range_bytes);
                prop_assert_eq!((piece.start() + granule - limits.alignment()) % granule, 0);
                prop_assert_eq!(piece.len() % granule, 0);
                covered.extend(piece.start()..piece.end());
            }
        }
        prop_assert_eq!(covered, expected.iter().flat_map(|r| r.start()..r.end()).collect::<Vec<_>>());
        prop_assert_eq!(commands, plan.facts().commands);
        prop_assert_eq!(commands, fewest(&expected, limits));
    }

    /// A changing cap never loses or repeats a byte.
    #[test]
    fn any_caps_cover_the_plan(bits in prop::collection::vec(any::<bool>(), 1..200), caps in prop::collection::vec((1u64..40, 1u64..4), 1..200)) {
        let plan = build(&ranges_of(&bits, 100), Claims { granularity: 2, max_ranges: 3, ..claims() }, Policy::default());
        let mut cursor = plan.cursor();
        let mut covered = Vec::new();
        for (bytes, ranges) in caps.iter().cycle() {
            let Some(batch) = cursor.next_batch(Cap { bytes: *bytes, ranges: *ranges }) else { break };
            prop_assert!(batch.bytes() <= (*bytes).max(2) && number(batch.ranges().len()) <= *ranges);
            batch.byte_ranges().for_each(|piece| covered.extend(piece.start()..piece.end()));
        }
        prop_assert_eq!(covered, plan.extents().iter().flat_map(|r| r.start()..r.end()).collect::<Vec<_>>());
    }
}

/// 100,000 extents: within 1 % of what no order of ranges could beat.
#[test]
fn a_large_plan_needs_no_more_commands_than_the_limits_demand() {
    let extents: Vec<ByteRange> =
        (0..100_000_u64).map(|k| k << 20).map(|at| range(at, at + 4096 * (1 + (at >> 20) * 7919 % 200))).collect();
    let whole = range(0, 100_000 << 20);
    let disk = Disk { device: 0, size: whole.len(), capacity: whole.len() };
    let region = Region { device: 0, origin: "test", ranges: &extents, within: whole, partition: whole };
    for (max_ranges, max_range, max_command) in [
        (1, 4_194_240 << 9, 4_194_240 << 9),
        (63, 1 << 40, 1 << 40),
        (64, 65535 << 9, 64 * (65535 << 9)),
        (256, 1 << 20, 16 << 20),
    ] {
        let claims = Claims {
            lba_size: BlockSize::new(512).unwrap(),
            granularity: 512,
            max_ranges,
            max_range_bytes: max_range,
            max_command_bytes: max_command,
            ..claims()
        };
        let plan = Plan::build(&disk, &[region], &limits(claims), &Policy::default()).unwrap();
        let by_ranges = number(extents.len()).div_ceil(max_ranges);
        let least = by_ranges.max(plan.facts().bytes.div_ceil(max_command));
        let commands = plan.facts().commands;
        assert!(commands >= least && commands * 100 <= least * 101 + 100, "{commands} commands, at least {least}");
    }
}

#[test]
fn an_area_hands_out_nothing_but_whole_units_of_planned_space() {
    let plan = build(&[range(200, 300), range(310, 330), range(400, 555)], claims(), Policy::default());
    let area = Area::of([&plan].into_iter(), 16, 32);
    assert_eq!((area.bytes(), area.extents(), area.unit()), (80 + 144, 2, 16), "208..288 and 400..544");
    let spot = |at, length| area.spot(at, length).map(|spot| (spot.range().start(), spot.range().end()));
    assert_eq!(spot(0, 16), Some((208, 224)));
    assert_eq!(spot(64, 32), Some((272, 288)), "cut where the extent ends");
    assert_eq!(spot(80, 32), Some((400, 432)));
    assert_eq!(spot(223, 16), Some((543, 544)));
    assert_eq!(spot(224, 16), None);
    let nothing = Area::of([&plan].into_iter(), 16, 1000);
    assert_eq!((nothing.bytes(), nothing.spot(0, 16)), (0, None));
}
