//! When a drive has finished what it does by itself: reads in used space, which are slow while it works.

use super::median;

/// The wait.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Patience {
    /// At least so many seconds.
    pub least: f64,
    /// At most so many seconds.
    pub most: f64,
    /// So long the reads must be as fast as they ever were.
    pub quiet: f64,
}

/// Reads this near to the fastest are as fast.
const NEAR: f64 = 1.10;

/// Looks at one group of reads after the other.
#[derive(Debug)]
pub struct Settling {
    patience: Patience,
    fastest: f64,
    /// Since when the reads have been fast.
    since: Option<f64>,
}

impl Settling {
    /// Nothing was read yet.
    pub fn new(patience: Patience) -> Self {
        Self { patience, fastest: f64::INFINITY, since: None }
    }

    /// The reads at second `at` took so many seconds each; none where there is nothing to read. True when the wait is
    /// over.
    pub fn is_over(&mut self, at: f64, reads: &mut [f64]) -> bool {
        let typical = median(reads);
        if !reads.is_empty() && typical > self.fastest * NEAR {
            self.since = None;
        } else {
            self.since.get_or_insert(at);
        }
        self.fastest = if reads.is_empty() { self.fastest } else { self.fastest.min(typical) };
        let quiet = self.since.is_some_and(|since| at - since >= self.patience.quiet);
        at >= self.patience.most || (at >= self.patience.least && quiet)
    }
}
