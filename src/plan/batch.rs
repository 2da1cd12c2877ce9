//! From extents to commands: as much into each as the limits allow.
//!
//! Filling every command to the brim, in order, needs the fewest commands of all ways that keep the order: a command
//! that starts further on reaches at least as far, since what it holds is a part of what the other one held.

use super::Plan;
use super::units::{BlockSize, ByteRange, LbaRange};
use std::marker::PhantomData;

/// An upper bound for one command that is tighter than the device's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cap {
    /// Most bytes; a command holds at least one granule all the same.
    pub bytes: u64,
    /// Most ranges; a command holds at least one all the same.
    pub ranges: u64,
}

impl Cap {
    /// Only the device's limits count.
    pub const NONE: Self = Self { bytes: u64::MAX, ranges: u64::MAX };

    /// At most so many bytes.
    pub fn bytes(bytes: u64) -> Self {
        Self { bytes, ..Self::NONE }
    }
}

/// Where a walk stands: so many bytes of extent number `extent` are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    extent: usize,
    done: u64,
}

/// The ranges of one discard command. It has no public constructor: every batch is a part of a [`Plan`].
#[derive(Debug, PartialEq, Eq)]
pub struct Batch<'p> {
    ranges: Vec<LbaRange>,
    bytes: u64,
    lba_size: BlockSize,
    from: Position,
    plan: PhantomData<&'p Plan>,
}

impl Batch<'_> {
    /// Ranges in logical blocks of the device, in the plan's order; at least one.
    pub fn ranges(&self) -> &[LbaRange] {
        &self.ranges
    }

    /// The same ranges in bytes of the device.
    pub fn byte_ranges(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.ranges.iter().filter_map(|range| range.bytes(self.lba_size))
    }

    /// Sum of the ranges in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The unit of the ranges, in bytes.
    pub fn lba_size(&self) -> BlockSize {
        self.lba_size
    }
}

/// A walk through a plan, one command at a time.
#[derive(Debug, Clone)]
pub struct Cursor<'p> {
    plan: &'p Plan,
    at: Position,
}

impl<'p> Cursor<'p> {
    pub(super) fn new(plan: &'p Plan) -> Self {
        Self { plan, at: Position { extent: 0, done: 0 } }
    }

    /// The next command, filled as far as the limits and `cap` allow; none when the plan is done.
    pub fn next_batch(&mut self, cap: Cap) -> Option<Batch<'p>> {
        let limits = &self.plan.limits;
        let granule = limits.granularity();
        let mut room = limits.max_command_bytes().min((cap.bytes - cap.bytes % granule).max(granule));
        let most_ranges = limits.max_ranges().min(cap.ranges.max(1));
        let mut batch =
            Batch { ranges: Vec::new(), bytes: 0, lba_size: limits.lba_size(), from: self.at, plan: PhantomData };
        while room > 0 && super::number(batch.ranges.len()) < most_ranges {
            let Some(piece) = self.piece(room.min(limits.max_range_bytes())) else {
                break;
            };
            batch.ranges.push(LbaRange::exactly(piece, batch.lba_size)?);
            batch.bytes = batch.bytes.saturating_add(piece.len());
            room = room.saturating_sub(piece.len());
        }
        (!batch.ranges.is_empty()).then_some(batch)
    }

    /// The next `most` bytes of the current extent, or what is left of it.
    fn piece(&mut self, most: u64) -> Option<ByteRange> {
        let extent = self.plan.extents.get(self.at.extent)?;
        let start = extent.start().checked_add(self.at.done)?;
        let rest = ByteRange::new(start, extent.end())?;
        let piece = ByteRange::with_len(start, rest.len().min(most))?;
        self.at = if piece == rest {
            Position { extent: self.at.extent.checked_add(1)?, done: 0 }
        } else {
            Position { done: self.at.done.checked_add(piece.len())?, ..self.at }
        };
        Some(piece)
    }

    /// Steps back to the start of `batch`, to send its bytes again in smaller commands. Discarding twice does no harm.
    pub fn put_back(&mut self, batch: &Batch<'p>) {
        self.at = batch.from;
    }
}
