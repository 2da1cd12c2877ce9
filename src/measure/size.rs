//! How large an experiment is: from the bytes that may be written to everything else.

use super::experiment::Design;
use super::pass::Load;
use super::stats::settle::Patience;
use super::stats::steady::Window;
use serde::Serialize;

/// How thorough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// As far as it takes.
    Full,
    /// About ten minutes on a SATA drive.
    Quick,
    /// A few minutes, around a trim.
    Short,
    /// A minute, on a small or simulated drive.
    Smoke,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Writes in a chunk, at least: fewer make the speed of a chunk jump.
const WRITES: u64 = 32;
/// The smallest budget for which large sequential writes make enough chunks.
const LARGE: u64 = 2 * GIB;
/// Chunks that the whole budget makes, about: a pass has a fifth of them or more, and needs 120.
const CHUNKS: u64 = 800;
/// Bytes of a scattered write.
const SMALL: u64 = 4 * KIB;

impl Length {
    /// Bytes that may be written when the user names none: on a drive with `free` free bytes of `capacity`.
    pub fn budget(self, free: u64, capacity: u64) -> u64 {
        match self {
            Self::Full => (32 * GIB).min(free / 20).min(capacity / 20),
            Self::Quick => (8 * GIB).min(free / 20).min(capacity / 20),
            Self::Short => (4 * GIB).min(free / 20).min(capacity / 20),
            Self::Smoke => (512 * MIB).min(free.saturating_mul(2)),
        }
    }

    fn patience(self) -> Patience {
        match self {
            Self::Full => Patience { least: 15.0, most: 600.0, quiet: 10.0 },
            Self::Quick => Patience { least: 15.0, most: 120.0, quiet: 5.0 },
            Self::Short => Patience { least: 5.0, most: 30.0, quiet: 3.0 },
            Self::Smoke => Patience { least: 3.0, most: 15.0, quiet: 2.0 },
        }
    }

    fn window(self) -> f64 {
        match self {
            Self::Full => 2.0,
            Self::Quick | Self::Short => 1.0,
            Self::Smoke => 0.1,
        }
    }

    fn later(self) -> f64 {
        match self {
            Self::Full | Self::Quick => 60.0,
            Self::Short | Self::Smoke => 5.0,
        }
    }
}

impl Design {
    /// Passes of a mixed load.
    pub(super) fn mixed(&self) -> Load {
        Load { depth: 32, ..self.sequential }
    }

    /// An experiment that writes at most `budget` bytes to a drive whose blocks have `block` bytes. Pauses take at most
    /// `most_pause` seconds, if that is given.
    pub fn new(length: Length, budget: u64, block: u64, most_pause: Option<f64>, seed: u64) -> Self {
        let size = if budget >= LARGE { 128 * KIB } else { 16 * KIB }.max(block);
        let small = SMALL.max(block);
        let patience = length.patience();
        let most = most_pause.unwrap_or(patience.most);
        Self {
            budget,
            sequential: Load { size, depth: 8, chunk: chunk(budget / CHUNKS, size, 64 * MIB) },
            scattered: Load { size: small, depth: 32, chunk: chunk(budget / CHUNKS / 2, small, 16 * MIB) },
            window: Window { chunks: 24, seconds: length.window() },
            patience: Patience { least: patience.least.min(most), most, quiet: patience.quiet.min(most) },
            later: length.later().min(most_pause.unwrap_or(f64::MAX)),
            reads: 256,
            seed,
        }
    }
}

fn chunk(wanted: u64, size: u64, most: u64) -> u64 {
    wanted.min(most).next_multiple_of(size).max(WRITES.saturating_mul(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_a_small_share_of_a_large_drive() {
        assert_eq!(Length::Full.budget(900 * GIB, 1000 * GIB), 32 * GIB);
        assert_eq!(Length::Full.budget(100 * GIB, 1000 * GIB), 5 * GIB);
        assert_eq!(Length::Quick.budget(900 * GIB, 1000 * GIB), 8 * GIB);
        assert_eq!(Length::Smoke.budget(100 * MIB, 200 * MIB), 200 * MIB);
    }

    #[test]
    fn every_pass_has_enough_chunks_and_every_chunk_enough_writes() {
        for budget in [200 * MIB, GIB, 4 * GIB, 32 * GIB, 500 * GIB] {
            let design = Design::new(Length::Full, budget, 512, None, 1);
            for load in [design.sequential, design.scattered] {
                assert!(load.chunk >= WRITES * load.size && load.chunk.is_multiple_of(load.size), "{budget}: {load:?}");
                assert!(budget / 5 / load.chunk >= 64, "{budget}: {load:?}");
            }
        }
        let slow = Design::new(Length::Full, GIB, 512, Some(5.0), 1);
        assert_eq!((slow.patience.least, slow.patience.most, slow.later), (5.0, 5.0, 5.0));
    }
}
