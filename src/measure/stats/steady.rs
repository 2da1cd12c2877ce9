//! Steady state as SNIA's Performance Test Specification has it: over five windows the values differ by at most 20 % of
//! their average, and the line through them changes by at most 10 % of it.

use super::series::{Chunk, speed};
use super::{real, real_len};
use std::ops::Range;

/// Windows that are looked at.
const WINDOWS: usize = 5;
/// Largest difference between two of them, as a share of the average.
const EXCURSION: f64 = 0.20;
/// Largest change along the fitted line, as a share of the average.
const SLOPE: f64 = 0.10;

/// How large a window is.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Window {
    /// At least so many chunks.
    pub chunks: usize,
    /// At least so many seconds.
    pub seconds: f64,
}

/// The chunks of the last five windows, if they are steady.
pub fn steady_tail(chunks: &[Chunk], window: Window) -> Option<Range<usize>> {
    let length = window_length(chunks, window)?;
    let start = chunks.len().checked_sub(length.checked_mul(WINDOWS)?)?;
    let tail = chunks.get(start..)?;
    let values: Vec<f64> = tail.chunks(length).map(speed).collect();
    is_steady(&values).then_some(start..chunks.len())
}

/// Chunks of a window that ends with the last chunk; none when all of them are too short.
fn window_length(chunks: &[Chunk], window: Window) -> Option<usize> {
    let mut seconds = 0.0;
    let enough = chunks.iter().rev().position(|chunk| {
        seconds += chunk.seconds;
        seconds >= window.seconds
    })?;
    Some(window.chunks.max(enough.saturating_add(1)))
}

/// The rule itself, on the averages of the windows.
pub fn is_steady(values: &[f64]) -> bool {
    let count = real_len(values.len());
    let average = values.iter().sum::<f64>() / count;
    let highest = values.iter().copied().fold(f64::MIN, f64::max);
    let lowest = values.iter().copied().fold(f64::MAX, f64::min);
    let change = slope(values) * (count - 1.0);
    average > 0.0 && highest - lowest <= EXCURSION * average && change.abs() <= SLOPE * average
}

/// Least-squares slope for each step.
fn slope(values: &[f64]) -> f64 {
    let count = real_len(values.len());
    let middle = (count - 1.0) / 2.0;
    let average = values.iter().sum::<f64>() / count;
    let at = (0_u64..).map(|k| real(k) - middle);
    let along: f64 = values.iter().zip(at.clone()).map(|(value, x)| x * (value - average)).sum();
    let spread: f64 = at.take(values.len()).map(|x| x * x).sum();
    if spread > 0.0 { along / spread } else { 0.0 }
}
