//! Where a speed falls for good: the end of a cache. Change points of the logarithm of the speed, by optimal
//! partitioning with a squared-error cost.
//!
//! The penalty is ten times the usual one, which assumes that the noise of neighbouring chunks is independent. It never
//! is, and the usual one sees knees where there are none.

use super::series::Chunk;
use super::{median, real, real_len};

/// Cost of a change, in noise variances times the logarithm of the length.
const PENALTY: f64 = 25.0;
/// Noise is never taken for less, as a share of the speed.
const LEAST_NOISE: f64 = 0.02;
/// Chunks of a segment at least, and in a short series.
const SEGMENT: (usize, usize) = (5, 3);
/// A series with fewer chunks is short.
const SHORT: usize = 60;
/// A later segment that comes this near to the highest speed was only a dip.
const COMES_BACK: f64 = 1.25;
/// More points than this are joined, so that the time stays small.
const MOST: usize = 512;
/// From the deviation of neighbours to that of one of them, and from a median to a standard deviation.
const MEDIAN_TO_DEVIATION: f64 = 1.4826;

/// A fall for good.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Knee {
    /// Bytes that were written fast.
    pub bytes: f64,
    /// How far off that may be, bytes (95 %).
    pub uncertainty: f64,
    /// Speed before it, bytes a second.
    pub before: f64,
    /// Speed behind it, bytes a second.
    pub after: f64,
}

/// A run of chunks at one speed.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Segment {
    start: usize,
    end: usize,
    /// Median speed, bytes a second.
    level: f64,
}

/// Every fall for good, in order; the first is the end of the cache.
pub fn knees(chunks: &[Chunk]) -> Vec<Knee> {
    let (joined, step) = joined(chunks);
    let segments = segments(&joined);
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = first_fall(&segments, from) {
        found.extend(located(chunks, &segments, at, step));
        from = at;
    }
    found
}

/// The number of the first segment behind `from` after which no speed comes back near the highest one before it.
fn first_fall(segments: &[Segment], from: usize) -> Option<usize> {
    let next = from.saturating_add(1);
    (next..segments.len()).find(|at| {
        let highest = |segments: &[Segment]| segments.iter().map(|segment| segment.level).fold(0.0, f64::max);
        let before = segments.get(from..*at).map_or(0.0, highest);
        let later = segments.get(*at..).map_or(f64::MAX, highest);
        later * COMES_BACK < before
    })
}

/// The place of a fall, finer than a chunk: so many bytes at the speed before it and the rest at the one behind it take
/// as long as the chunks around it did.
fn located(chunks: &[Chunk], segments: &[Segment], at: usize, step: usize) -> Option<Knee> {
    let (before, after) = (segments.get(at.checked_sub(1)?)?, segments.get(at)?);
    let begin = before.start.max(after.start.saturating_sub(3)).saturating_mul(step);
    let end = after.start.saturating_add(3).min(after.end).saturating_mul(step).min(chunks.len());
    let around = chunks.get(begin..end)?;
    let size = real(super::series::bytes(around));
    let seconds: f64 = around.iter().map(|chunk| chunk.seconds).sum();
    let (fast, slow) = (1.0 / before.level, 1.0 / after.level);
    let into = ((size * slow - seconds) / (slow - fast)).clamp(0.0, size);
    let whole = real(super::series::bytes(chunks.get(..begin)?));
    let chunk = size / real_len(around.len());
    Some(Knee {
        bytes: whole + into,
        uncertainty: 2.0 * chunk * real_len(step),
        before: before.level,
        after: after.level,
    })
}

/// The chunks, or as many neighbours put together as make at most [`MOST`] points; and how many that are.
fn joined(chunks: &[Chunk]) -> (Vec<Chunk>, usize) {
    let step = chunks.len().div_ceil(MOST).max(1);
    let join = |part: &[Chunk]| Chunk {
        bytes: super::series::bytes(part),
        seconds: part.iter().map(|chunk| chunk.seconds).sum(),
    };
    (chunks.chunks(step).map(join).collect(), step)
}

/// The segments of least cost.
fn segments(chunks: &[Chunk]) -> Vec<Segment> {
    let shortest = if chunks.len() < SHORT { SEGMENT.1 } else { SEGMENT.0 };
    if chunks.len() < 2 * shortest {
        return Vec::new();
    }
    let logarithms: Vec<f64> = chunks.iter().map(|chunk| chunk.speed().ln()).collect();
    let penalty = PENALTY * noise(&logarithms).powi(2) * real_len(chunks.len()).ln();
    let values = smooth(&logarithms);
    let bounds = partition(&values, shortest, penalty);
    let pairs = bounds.iter().zip(bounds.iter().skip(1));
    pairs
        .map(|(start, end)| {
            let mut part: Vec<f64> = values.get(*start..*end).unwrap_or_default().to_vec();
            Segment { start: *start, end: *end, level: median(&mut part).exp() }
        })
        .collect()
}

/// Running median of three: single stalls are not the matter here.
fn smooth(values: &[f64]) -> Vec<f64> {
    let last = values.len().saturating_sub(1);
    let at = |k: usize| values.get(k.min(last)).copied().unwrap_or_default();
    (0..values.len()).map(|k| median(&mut [at(k.saturating_sub(1)), at(k), at(k.saturating_add(1))])).collect()
}

/// The deviation of a single value, from the differences of neighbours, which a few changes do not touch.
fn noise(values: &[f64]) -> f64 {
    let mut steps: Vec<f64> = values.iter().zip(values.iter().skip(1)).map(|(a, b)| (b - a).abs()).collect();
    (MEDIAN_TO_DEVIATION * median(&mut steps) / std::f64::consts::SQRT_2).max(LEAST_NOISE)
}

/// Bounds of the segments of least cost, with 0 and the end.
fn partition(values: &[f64], shortest: usize, penalty: f64) -> Vec<usize> {
    let sums = Sums::new(values);
    // For every end: the least cost up to it, and where its last segment begins.
    let mut best = vec![(f64::INFINITY, 0_usize); values.len().saturating_add(1)];
    if let Some(first) = best.first_mut() {
        first.0 = -penalty;
    }
    for end in shortest..=values.len() {
        let starts = (0..=end.saturating_sub(shortest)).filter_map(|start| {
            let cost = best.get(start)?.0 + sums.cost(start, end) + penalty;
            cost.is_finite().then_some((cost, start))
        });
        if let (Some(cheapest), Some(slot)) = (starts.min_by(|a, b| a.0.total_cmp(&b.0)), best.get_mut(end)) {
            *slot = cheapest;
        }
    }
    let mut bounds = vec![values.len()];
    while let Some(last) = bounds.last().copied().filter(|last| *last > 0) {
        bounds.push(best.get(last).map_or(0, |(_, start)| *start));
    }
    bounds.reverse();
    bounds
}

/// Sums of values and of their squares up to each place.
struct Sums(Vec<(f64, f64)>);

impl Sums {
    fn new(values: &[f64]) -> Self {
        let mut sums = vec![(0.0, 0.0)];
        let (mut sum, mut squares) = (0.0, 0.0);
        // Counted from the first value, so that squares of large numbers do not drown small differences.
        let origin = values.first().copied().unwrap_or_default();
        for value in values {
            sum += value - origin;
            squares += (value - origin).powi(2);
            sums.push((sum, squares));
        }
        Self(sums)
    }

    /// Squared deviations of the values `start..end` from their mean.
    fn cost(&self, start: usize, end: usize) -> f64 {
        let at = |k: usize| self.0.get(k).copied().unwrap_or_default();
        let ((sum, squares), (sum_before, squares_before)) = (at(end), at(start));
        let count = real_len(end.saturating_sub(start));
        (squares - squares_before - (sum - sum_before).powi(2) / count).max(0.0)
    }
}
