//! Small first: the size of a command grows as long as the device answers quickly.

use super::batch::Cap;
use super::units::Limits;
use std::time::Duration;

/// Size of the first command in bytes.
const START_BYTES: u64 = 64 << 20;
/// Below this a command may double: far from the 30 seconds after which kernels and bridges give up.
const QUICK: Duration = Duration::from_secs(1);
/// Above this the next command is half as large.
const SLOW: Duration = Duration::from_secs(2);

/// The size of the next command, learnt from how long the last one took.
#[derive(Debug, Clone, Copy)]
pub struct Ramp {
    cap: Cap,
    most: Cap,
    least_bytes: u64,
}

impl Ramp {
    /// Starts with one range of at most 64 MiB.
    pub fn new(limits: &Limits) -> Self {
        let most = Cap { bytes: limits.max_command_bytes(), ranges: limits.max_ranges() };
        let cap = Cap { bytes: START_BYTES.min(most.bytes), ranges: 1 };
        Self { cap, most, least_bytes: limits.granularity() }
    }

    /// The bound for the next command.
    pub fn cap(&self) -> Cap {
        self.cap
    }

    /// True when commands have reached the size that the device's limits allow.
    pub fn is_full(&self) -> bool {
        self.cap == self.most
    }

    /// A command succeeded and took so long.
    pub fn succeeded(&mut self, took: Duration) {
        if took < QUICK {
            self.cap.bytes = self.cap.bytes.saturating_mul(2).min(self.most.bytes);
            self.cap.ranges = self.cap.ranges.saturating_mul(2).min(self.most.ranges);
        } else if took > SLOW {
            self.halve();
        }
    }

    /// The device called a command too large: no later one will be as large. False when there is nothing left to halve.
    pub fn shrink(&mut self) -> bool {
        let before = self.cap;
        self.halve();
        self.most = self.cap;
        self.cap != before
    }

    fn halve(&mut self) {
        self.cap.bytes = (self.cap.bytes / 2).max(self.least_bytes);
        self.cap.ranges = (self.cap.ranges / 2).max(1);
    }
}
