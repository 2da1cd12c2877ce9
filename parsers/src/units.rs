//! Units and checked arithmetic. Between modules every position is a byte; cluster and block numbers stay inside a
//! format. A wrapped or cut number would be a wrong map, so every sum here can say no.

use serde::{Deserialize, Serialize};

/// A sum, product or conversion left the range of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("arithmetic overflow while computing {0}")]
pub struct Overflow(pub &'static str);

/// `a + b`, or which computation overflowed.
pub fn add(a: u64, b: u64, what: &'static str) -> Result<u64, Overflow> {
    a.checked_add(b).ok_or(Overflow(what))
}

/// `a - b`, or which computation went below zero.
pub fn sub(a: u64, b: u64, what: &'static str) -> Result<u64, Overflow> {
    a.checked_sub(b).ok_or(Overflow(what))
}

/// `a * b`, or which computation overflowed.
pub fn mul(a: u64, b: u64, what: &'static str) -> Result<u64, Overflow> {
    a.checked_mul(b).ok_or(Overflow(what))
}

/// `a / b` rounded down; `b == 0` is an overflow.
pub fn div(a: u64, b: u64, what: &'static str) -> Result<u64, Overflow> {
    a.checked_div(b).ok_or(Overflow(what))
}

/// `a / b` rounded up; `b == 0` is an overflow.
pub fn div_up(a: u64, b: u64, what: &'static str) -> Result<u64, Overflow> {
    if b == 0 { Err(Overflow(what)) } else { Ok(a.div_ceil(b)) }
}

/// `a % b`; `b == 0` is an overflow.
pub fn rem(a: u64, b: u64, what: &'static str) -> Result<u64, Overflow> {
    a.checked_rem(b).ok_or(Overflow(what))
}

/// A position or length as an index into memory.
pub fn to_usize(n: u64, what: &'static str) -> Result<usize, Overflow> {
    usize::try_from(n).map_err(|_| Overflow(what))
}

/// A memory length as a number of bytes. Lossless: `usize` has at most 64 bits on every target that Rust has.
pub fn from_usize(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// A half-open, non-empty range of bytes: `start..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(u64, u64)", into = "(u64, u64)")]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// `start..end`; an empty or reversed range is none.
    pub const fn new(start: u64, end: u64) -> Option<Self> {
        if start < end { Some(Self { start, end }) } else { None }
    }

    /// The range of `len` bytes from `start`; none when it is empty or passes the end of the number space.
    pub fn with_len(start: u64, len: u64) -> Option<Self> {
        Self::new(start, start.checked_add(len)?)
    }

    /// First byte.
    pub fn start(self) -> u64 {
        self.start
    }

    /// The byte behind the last one.
    pub fn end(self) -> u64 {
        self.end
    }

    /// Length in bytes, at least 1.
    #[allow(clippy::len_without_is_empty)] // never empty, by construction
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// True when `other` lies wholly inside.
    pub fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// True when both share a byte.
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The shared part.
    pub fn intersect(self, other: Self) -> Option<Self> {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// The same range seen from an origin that lies `by` bytes earlier.
    pub fn shift_up(self, by: u64) -> Option<Self> {
        Some(Self { start: self.start.checked_add(by)?, end: self.end.checked_add(by)? })
    }

    /// The same range seen from an origin that lies `by` bytes later.
    pub fn shift_down(self, by: u64) -> Option<Self> {
        Some(Self { start: self.start.checked_sub(by)?, end: self.end.checked_sub(by)? })
    }

    /// The largest range inside this one whose ends are `offset` plus a multiple of `step`; none when nothing is left.
    pub fn round_inwards(self, step: u64, offset: u64) -> Option<Self> {
        let offset = offset.checked_rem(step)?;
        let up = |n: u64| -> Option<u64> {
            let past = n.checked_sub(offset).map_or(Some(0), |rest| rest.checked_next_multiple_of(step))?;
            past.checked_add(offset)
        };
        let down = |n: u64| -> Option<u64> {
            let rest = n.checked_sub(offset)?;
            rest.checked_sub(rest.checked_rem(step)?)?.checked_add(offset)
        };
        Self::new(up(self.start)?, down(self.end)?)
    }
}

impl TryFrom<(u64, u64)> for ByteRange {
    type Error = Overflow;
    fn try_from((start, end): (u64, u64)) -> Result<Self, Overflow> {
        Self::new(start, end).ok_or(Overflow("a byte range whose end is not behind its start"))
    }
}

impl From<ByteRange> for (u64, u64) {
    fn from(range: ByteRange) -> Self {
        (range.start, range.end)
    }
}

impl std::fmt::Display for ByteRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "bytes {}..{}", self.start, self.end)
    }
}

/// The size of an allocation unit in bytes: a power of two, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct BlockSize {
    log2: u32,
}

impl BlockSize {
    /// A block of `bytes`; none unless it is a power of two.
    pub fn new(bytes: u64) -> Option<Self> {
        bytes.is_power_of_two().then(|| Self { log2: bytes.trailing_zeros() })
    }

    /// Size in bytes.
    pub fn bytes(self) -> u64 {
        1_u64.checked_shl(self.log2).unwrap_or(1)
    }

    /// log2 of the size in bytes.
    pub fn log2(self) -> u32 {
        self.log2
    }

    /// How many bytes `blocks` blocks are.
    pub fn to_bytes(self, blocks: u64) -> Result<u64, Overflow> {
        mul(blocks, self.bytes(), "a block number in bytes")
    }

    /// How many whole blocks fit into `bytes`.
    pub fn whole_blocks(self, bytes: u64) -> u64 {
        bytes.checked_shr(self.log2).unwrap_or(0)
    }
}

impl TryFrom<u64> for BlockSize {
    type Error = Overflow;
    fn try_from(bytes: u64) -> Result<Self, Overflow> {
        Self::new(bytes).ok_or(Overflow("a block size that is no power of two"))
    }
}

impl From<BlockSize> for u64 {
    fn from(size: BlockSize) -> Self {
        size.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn block_size_is_a_power_of_two() {
        assert_eq!(BlockSize::new(4096).map(BlockSize::bytes), Some(4096));
        assert_eq!(BlockSize::new(0), None);
        assert_eq!(BlockSize::new(3000), None);
    }

    #[test]
    fn rounding_to_nothing_is_none() {
        assert_eq!(ByteRange::new(1, 4095).and_then(|r| r.round_inwards(4096, 0)), None);
        assert_eq!(ByteRange::new(0, 4096).and_then(|r| r.round_inwards(0, 0)), None);
    }

    proptest! {
        /// The rounded range is inside, aligned, and no aligned step that fits is lost.
        #[test]
        fn rounding_goes_inwards(start in 0u64..10_000, len in 1u64..10_000, step in 1u64..600, offset in 0u64..700) {
            let range = ByteRange::with_len(start, len).unwrap();
            let wanted: Vec<u64> = (0..25_000u64)
                .map(|k| (offset % step) + k * step)
                .take_while(|s| s + step <= range.end())
                .filter(|s| *s >= range.start())
                .collect();
            let got = range.round_inwards(step, offset);
            let expected = wanted.first().map(|first| (*first, wanted.last().unwrap() + step));
            prop_assert_eq!(got.map(|r| (r.start(), r.end())), expected);
        }
    }
}
