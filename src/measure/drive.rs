//! What the experiment needs of a drive.

use crate::plan::units::ByteRange;
use crate::plan::{Area, Spot};
use std::time::Duration;

/// A write that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Its bytes.
    pub bytes: u64,
    /// When, on the drive's clock.
    pub at: Duration,
}

/// Why an experiment ended early.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The user wanted it.
    #[error("interrupted")]
    Stopped,
    /// Somebody wants the drive, it is another one, or something changed that must not: nothing more may be sent to it.
    #[error("{0}")]
    Objected(String),
    /// Something failed.
    #[error("{0}")]
    Failed(String),
}

/// A drive with a clock. Its clock need not be the world's.
pub trait Drive {
    /// The time.
    fn now(&mut self) -> Duration;

    /// How many writes it keeps in flight when `wanted` are asked for.
    fn depth(&self, wanted: usize) -> usize;

    /// Begins to write to a spot what was never written before and cannot be compressed. At most
    /// [`depth`](Self::depth) at once.
    fn submit(&mut self, spot: &Spot<'_>) -> Result<(), Fault>;

    /// Begins to read a spot; counts among those in flight.
    fn fetch(&mut self, spot: &Spot<'_>) -> Result<(), Fault>;

    /// Waits for one of the transfers that were submitted.
    fn complete(&mut self) -> Result<Answer, Fault>;

    /// Makes the drive write its cache to the medium.
    fn flush(&mut self) -> Result<(), Fault>;

    /// Reads `place` around every cache of the host; how long that took.
    fn read(&mut self, place: ByteRange) -> Result<Duration, Fault>;

    /// Lets the drive rest.
    fn wait(&mut self, time: Duration) -> Result<(), Fault>;

    /// Sends as many commands as [`discard`](Self::discard) would, all of them harmless.
    fn sham(&mut self) -> Result<(), Fault>;

    /// Discards all planned space.
    fn discard(&mut self) -> Result<(), Fault>;

    /// Discards a part of it.
    fn discard_part(&mut self, area: &Area<'_>) -> Result<(), Fault>;

    /// The most bytes a second that the way to the drive can carry, where that is known.
    fn ceiling(&self) -> Option<f64>;

    /// How often the drive has slowed itself down because of heat; none where it does not say.
    fn slowdowns(&mut self) -> Option<u64>;
}
