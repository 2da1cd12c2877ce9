//! The ratio of two throughputs and how far off it may be: a moving-block bootstrap, because neighbouring chunks are alike.

use super::series::Chunk;
use super::{real, real_len, whole};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// A measured ratio.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Ratio {
    /// The ratio.
    pub value: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval; infinite, in JSON null, where the value is only a lower bound.
    pub high: f64,
}

impl Ratio {
    /// The same interval seen from `value`, `factor` times as wide.
    fn widened(self, factor: f64) -> Self {
        let widen = |end: f64| (self.value * (end / self.value).powf(factor)).max(0.0);
        Self { value: self.value, low: widen(self.low), high: widen(self.high) }
    }
}

/// Resamplings.
const SAMPLES: usize = 2000;
/// Consecutive chunks that are drawn together, at least.
const BLOCK: usize = 8;
/// Below this correlation chunks count as independent.
const INDEPENDENT: f64 = 0.1;
/// Above this correlation of neighbours blocks are too short to be honest, and the interval is widened.
const STICKY: f64 = 0.8;
/// By so much.
const WIDER: f64 = 1.5;

/// Throughput of `over` divided by that of `under`; none when one of them is empty.
pub fn ratio(over: &[Chunk], under: &[Chunk], seed: u64) -> Option<Ratio> {
    if over.is_empty() || under.is_empty() {
        return None;
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (blocks_over, blocks_under) = (block(over), block(under));
    let mut drawn: Vec<f64> = (0..SAMPLES)
        .map(|_| resampled(over, blocks_over, &mut random) / resampled(under, blocks_under, &mut random))
        .collect();
    drawn.sort_by(f64::total_cmp);
    let at = |share: f64| usize::try_from(whole(real_len(SAMPLES) * share)).ok().and_then(|k| drawn.get(k)).copied();
    let value = super::series::speed(over) / super::series::speed(under);
    let found = Ratio { value, low: at(0.025)?.min(value), high: at(0.975)?.max(value) };
    let sticky = correlation(over, 1).max(correlation(under, 1)) > STICKY;
    Some(if sticky { found.widened(WIDER) } else { found })
}

/// Throughput of as many chunks, drawn in circular blocks.
fn resampled(chunks: &[Chunk], block: usize, random: &mut Xoshiro256PlusPlus) -> f64 {
    let (mut bytes, mut seconds, mut left) = (0_u64, 0.0, chunks.len());
    while left > 0 {
        let first = random.random_range(0..chunks.len());
        let length = block.min(left);
        for chunk in chunks.iter().cycle().skip(first).take(length) {
            bytes = bytes.saturating_add(chunk.bytes);
            seconds += chunk.seconds;
        }
        left = left.saturating_sub(length);
    }
    real(bytes) / seconds
}

/// Chunks that are drawn together: until they no longer resemble the first.
fn block(chunks: &[Chunk]) -> usize {
    let longest = chunks.len() / 4;
    let lag = (1..longest).find(|lag| correlation(chunks, *lag) < INDEPENDENT).unwrap_or(longest);
    lag.max(BLOCK).min(chunks.len().max(1))
}

/// Correlation of the chunks' times with those `lag` further on.
fn correlation(chunks: &[Chunk], lag: usize) -> f64 {
    let average = chunks.iter().map(|chunk| chunk.seconds).sum::<f64>() / real_len(chunks.len());
    let off = |chunk: &Chunk| chunk.seconds - average;
    let spread: f64 = chunks.iter().map(|chunk| off(chunk).powi(2)).sum();
    let together: f64 = chunks.iter().zip(chunks.iter().skip(lag)).map(|(a, b)| off(a) * off(b)).sum();
    if spread > 0.0 { together / spread } else { 0.0 }
}
