//! Series whose answers are known.

use super::knee::{Knee, knees};
use super::rank::below;
use super::ratio::ratio;
use super::series::{Chunk, Recorder, speed};
use super::settle::{Patience, Settling};
use super::steady::{Window, is_steady, steady_tail};
use super::*;
use proptest::prelude::*;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Noise of deviation `noise` whose neighbours are correlated by `r`, with stalls (a fifth of the speed) at a share.
struct Noise {
    random: Xoshiro256PlusPlus,
    noise: f64,
    r: f64,
    stalls: f64,
    now: f64,
}

impl Noise {
    fn new(seed: u64, noise: f64, r: f64, stalls: f64) -> Self {
        Self { random: Xoshiro256PlusPlus::seed_from_u64(seed), noise, r, stalls, now: 0.0 }
    }

    fn factor(&mut self) -> f64 {
        let normal = (0..12).map(|_| self.random.random_range(0.0..1.0)).sum::<f64>() - 6.0;
        self.now = self.r * self.now + (1.0 - self.r * self.r).sqrt() * normal;
        let stall = if self.random.random_range(0.0..1.0) < self.stalls { 0.2 } else { 1.0 };
        (self.noise * self.now).exp() * stall
    }

    fn chunks(&mut self, speeds: impl Iterator<Item = f64>) -> Vec<Chunk> {
        speeds.map(|speed| Chunk { bytes: MIB, seconds: real(MIB) / (speed * self.factor()) }).collect()
    }
}

fn steps(parts: &[(usize, f64)]) -> impl Iterator<Item = f64> {
    parts.iter().flat_map(|(count, speed)| std::iter::repeat_n(*speed, *count))
}

#[test]
fn chunks_are_of_equal_bytes_and_speed_is_bytes_by_time() {
    let mut recorder = Recorder::new(4096, Duration::from_secs(10));
    for (k, time) in [11, 12, 14, 15, 16, 22].into_iter().enumerate() {
        assert_eq!(recorder.answered(2048, Duration::from_secs(time)), k % 2 == 1);
    }
    let chunks = recorder.into_chunks();
    assert_eq!(
        chunks.iter().map(|chunk| (chunk.bytes, chunk.seconds)).collect::<Vec<_>>(),
        [(4096, 2.0), (4096, 3.0), (4096, 7.0)]
    );
    assert!((speed(&chunks) - 1024.0).abs() < 1e-9, "the mean of the speeds would be 1333");
}

#[test]
fn steady_is_what_the_specification_says() {
    assert!(is_steady(&[100.0; 5]));
    assert!(is_steady(&[95.0, 105.0, 100.0, 105.0, 95.0]));
    assert!(!is_steady(&[100.0, 100.0, 121.0, 100.0, 100.0]), "more than a fifth apart");
    assert!(!is_steady(&[95.0, 97.0, 100.0, 103.0, 106.0]), "a slope of eleven per cent");
    assert!(is_steady(&[96.0, 98.0, 100.0, 102.0, 104.0]), "one of eight");
    let window = Window { chunks: 12, seconds: 0.5 };
    let mut noise = Noise::new(5, 0.1, 0.0, 0.0);
    let chunks = noise.chunks(steps(&[(40, 100.0 * real(MIB)), (80, 10.0 * real(MIB))]));
    let first = (1..=chunks.len()).find(|end| steady_tail(&chunks[..*end], window).is_some());
    assert_eq!(
        first,
        None.or(first.filter(|end| *end >= 60 && *end <= 110)),
        "windows of half a second are five chunks"
    );
    assert!(steady_tail(&chunks[..70], Window { chunks: 12, seconds: 0.1 }).is_none(), "half fast and half slow");
    assert!(steady_tail(&chunks, window).is_some());
    assert!(steady_tail(&chunks, Window { chunks: 12, seconds: 5.0 }).is_none(), "not enough seconds");
}

/// Speeds of published drives, in MB/s, and where they fall.
#[test]
fn published_knees_are_found_where_they_are() {
    for (seconds, fast, slow) in
        [(123, 975.0, 80.0), (108, 975.0, 80.0), (42, 975.0, 80.0), (30, 975.0, 80.0), (24, 975.0, 80.0)]
    {
        let mut noise = Noise::new(seconds, 0.10, 0.6, 0.02);
        let fast_chunks = usize::try_from(seconds).unwrap();
        let chunks = noise.chunks(steps(&[(fast_chunks, fast), (30, slow)]));
        let knee = knees(&chunks)[0];
        let wanted = real(seconds * MIB);
        assert!((knee.bytes - wanted).abs() <= knee.uncertainty, "{} of {wanted}", knee.bytes);
        assert!((knee.before / knee.after / (fast / slow) - 1.0).abs() < 0.15, "{knee:?}");
    }
    for (fast, slow, is_knee) in
        [(450.0, 395.0, false), (2200.0, 600.0, true), (500.0, 200.0, true), (450.0, 90.0, true)]
    {
        let chunks = Noise::new(9, 0.05, 0.3, 0.0).chunks(steps(&[(60, fast), (60, slow)]));
        assert_eq!(knees(&chunks).len(), usize::from(is_knee), "{fast} to {slow}");
    }
    let three = Noise::new(9, 0.05, 0.3, 0.0).chunks(steps(&[(60, 3500.0), (60, 2200.0), (60, 1000.0)]));
    let found = knees(&three);
    assert_eq!(found.len(), 2, "two falls: {found:?}");
}

/// The table of false alarms and hits: penalty and rule hold what they were chosen for.
#[test]
fn knees_are_not_seen_where_there_are_none_and_seen_where_they_are() {
    let series = 100;
    for (noise, r, stalls, hits) in
        [(0.05, 0.0, 0.0, 100), (0.20, 0.0, 0.02, 95), (0.10, 0.6, 0.02, 98), (0.25, 0.6, 0.05, 80)]
    {
        let found = |seed: u64, parts: &[(usize, f64)]| knees(&Noise::new(seed, noise, r, stalls).chunks(steps(parts)));
        let false_alarms = (0..series).filter(|seed| !found(*seed, &[(120, 100.0)]).is_empty()).count();
        let is_near = |knee: &Knee| (knee.bytes / real(MIB) - 60.0).abs() <= 3.0;
        let near =
            (0..series).filter(|seed| found(*seed, &[(60, 100.0), (60, 25.0)]).first().is_some_and(is_near)).count();
        println!("noise {noise} r {r} stalls {stalls}: {false_alarms} false, {near} of {series} found");
        assert!(false_alarms <= 1 && near >= hits, "noise {noise}, r {r}: {false_alarms} {near}");
    }
}

#[test]
fn a_dip_is_no_knee_and_short_series_have_none() {
    let chunks = Noise::new(3, 0.05, 0.0, 0.0).chunks(steps(&[(60, 100.0), (20, 30.0), (60, 100.0)]));
    assert_eq!(knees(&chunks), []);
    assert_eq!(knees(&chunks[..5]), []);
    assert_eq!(knees(&[]), []);
}

/// The place of a knee is known better than a chunk where the noise is small.
#[test]
fn a_knee_inside_a_chunk_is_placed_inside_it() {
    let mut chunks = Noise::new(3, 0.001, 0.0, 0.0).chunks(steps(&[(10, 100.0 * real(MIB)), (60, 8.0 * real(MIB))]));
    // 0.3 of this chunk were fast.
    chunks.insert(10, Chunk { bytes: MIB, seconds: 0.3 / 100.0 + 0.7 / 8.0 });
    let knee = knees(&chunks)[0];
    assert!((knee.bytes / real(MIB) - 10.3).abs() < 0.05, "{knee:?}");
}

/// The interval holds the true ratio about as often as is known for blocks of eight (90 % at 120 chunks, r = 0.6).
#[test]
fn the_interval_of_a_ratio_covers_the_truth() {
    let (series, truth) = (150, 4.0);
    for (noise, r, least) in [(0.10, 0.0, 135), (0.10, 0.6, 122), (0.20, 0.6, 122)] {
        let covers = |seed: u64| {
            // A mean of times, so that the truth is not shifted by the noise.
            let over = Noise::new(seed, noise, r, 0.0).chunks(steps(&[(120, 400.0)]));
            let under = Noise::new(seed + 1000, noise, r, 0.0).chunks(steps(&[(120, 100.0)]));
            let found = ratio(&over, &under, seed).unwrap();
            found.low <= truth && truth <= found.high
        };
        let covered = (0..series).filter(|seed| covers(*seed)).count();
        println!("noise {noise} r {r}: {covered} of {series} intervals cover the truth");
        assert!(covered >= least, "noise {noise}, r {r}: {covered}");
    }
}

#[test]
fn ratios_are_repeatable_and_need_two_series() {
    let chunks = Noise::new(1, 0.2, 0.9, 0.0).chunks(steps(&[(120, 100.0)]));
    let same = ratio(&chunks, &chunks, 7).unwrap();
    assert_eq!(same, ratio(&chunks, &chunks, 7).unwrap());
    assert!((same.value - 1.0).abs() < 1e-12 && same.low < 1.0 && same.high > 1.0);
    assert_eq!(ratio(&[], &chunks, 7), None);
    let calm = Noise::new(1, 0.2, 0.0, 0.0).chunks(steps(&[(120, 100.0)]));
    let calm = ratio(&calm, &calm, 7).unwrap();
    assert!(same.high - same.low > 1.5 * (calm.high - calm.low), "{same:?} {calm:?}");
}

#[test]
fn settled_is_when_reads_are_as_fast_as_ever_for_a_while() {
    let patience = Patience { least: 15.0, most: 600.0, quiet: 10.0 };
    let end = |reads: fn(u32) -> f64| {
        let mut settling = Settling::new(patience);
        (0..700).find(|at| settling.is_over(f64::from(*at), &mut [reads(*at), reads(*at), 9.0]))
    };
    assert_eq!(end(|_| 0.001), Some(15), "quiet from the start: the least");
    assert_eq!(end(|at| if at < 100 { 0.01 } else { 0.001 }), Some(15), "slow all the time looks quiet");
    assert_eq!(end(|at| if at % 7 == 3 { 0.01 } else { 0.001 }), Some(600), "never quiet: the most");
    assert_eq!(end(|at| if at > 2 && at < 50 { 0.01 } else { 0.001 }), Some(60), "ten seconds behind the work");
    let mut settling = Settling::new(patience);
    assert_eq!((0..700).find(|at| settling.is_over(f64::from(*at), &mut [])), Some(15), "nothing to read: the least");
}

#[test]
fn ranks_tell_small_differences_from_none() {
    let values = |seed: u64, middle: f64| -> Vec<f64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..128).map(|_| middle * random.random_range(0.8..1.2)).collect()
    };
    assert!(below(&values(1, 35.0), &values(2, 60.0)) > 10.0);
    assert!(below(&values(1, 60.0), &values(2, 35.0)) < -10.0);
    assert!(below(&values(1, 50.0), &values(2, 50.0)).abs() < 3.0);
    assert!(below(&[1.0; 64], &[1.0; 64]).abs() < 1e-9, "all the same");
    assert!(below(&[], &[1.0]).abs() < 1e-9);
}

proptest! {
    /// Whatever the series: no panic, segments in order, knees inside the series and falling.
    #[test]
    fn knees_are_sane(speeds in proptest::collection::vec(1e3..1e10_f64, 0..200)) {
        let chunks: Vec<Chunk> = speeds.iter().map(|speed| Chunk { bytes: MIB, seconds: real(MIB) / speed }).collect();
        let found = knees(&chunks);
        for knee in &found {
            prop_assert!(knee.bytes >= 0.0 && knee.bytes <= real_len(chunks.len()) * real(MIB));
        }
        prop_assert!(found.windows(2).all(|pair| pair[0].bytes <= pair[1].bytes));
    }

    /// A ratio lies in its interval; scaling all times scales it.
    #[test]
    fn ratios_are_sane(times in proptest::collection::vec(1e-4..1e2_f64, 1..60), scale in 0.1..10.0_f64) {
        let chunks = |scale: f64| -> Vec<Chunk> {
            times.iter().map(|seconds| Chunk { bytes: MIB, seconds: seconds * scale }).collect()
        };
        let found = ratio(&chunks(scale), &chunks(1.0), 3).unwrap();
        prop_assert!(found.low <= found.value && found.value <= found.high);
        prop_assert!((found.value * scale - 1.0).abs() < 1e-9);
    }

    /// More of the same is as steady.
    #[test]
    fn steadiness_does_not_depend_on_the_unit(values in proptest::collection::vec(1.0..1e3_f64, 5), unit in 1e-6..1e6_f64) {
        let scaled: Vec<f64> = values.iter().map(|value| value * unit).collect();
        prop_assert_eq!(is_steady(&values), is_steady(&scaled));
    }
}
