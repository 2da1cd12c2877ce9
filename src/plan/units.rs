//! The units of a plan. Between modules every position is a byte; logical block addresses exist only between a plan
//! and a transport, and only as an [`LbaRange`].

pub use coldtrim_parsers::units::{BlockSize, ByteRange};

/// A non-empty run of a device's own logical blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LbaRange {
    start: u64,
    count: u64,
}

impl LbaRange {
    /// The blocks of `range`; none unless both ends lie on a block boundary.
    pub(crate) fn exactly(range: ByteRange, lba_size: BlockSize) -> Option<Self> {
        let blocks = Self { start: lba_size.whole_blocks(range.start()), count: lba_size.whole_blocks(range.len()) };
        (blocks.bytes(lba_size) == Some(range)).then_some(blocks)
    }

    /// First logical block.
    pub fn start(self) -> u64 {
        self.start
    }

    /// Number of logical blocks, at least 1.
    pub fn count(self) -> u64 {
        self.count
    }

    /// The logical block behind the last one.
    pub fn end(self) -> u64 {
        self.start.saturating_add(self.count)
    }

    /// The same range in bytes.
    pub fn bytes(self, lba_size: BlockSize) -> Option<ByteRange> {
        ByteRange::with_len(lba_size.to_bytes(self.start).ok()?, lba_size.to_bytes(self.count).ok()?)
    }
}

/// What a device claims about its discard command, as read; all zero-means-nothing conventions already resolved
/// except for `granularity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claims {
    /// Logical block size in bytes: the unit of the command's addresses.
    pub lba_size: BlockSize,
    /// Allocation granule in bytes; 0 means that none was stated.
    pub granularity: u64,
    /// Byte position of some granule's start; granules start at `n * granularity + alignment`.
    pub alignment: u64,
    /// Most ranges in one command.
    pub max_ranges: u64,
    /// Most bytes in one range.
    pub max_range_bytes: u64,
    /// Most bytes in one command, all ranges together.
    pub max_command_bytes: u64,
}

/// Claims that make no sense together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// A granule would start in the middle of a logical block.
    #[error("the device says that its granules start at byte {alignment}, inside a logical block of {lba_size} bytes")]
    Misaligned {
        /// Claimed start of a granule in bytes.
        alignment: u64,
        /// Logical block size in bytes.
        lba_size: u64,
    },
    /// Not even one granule fits into a command.
    #[error(
        "the device says that one command discards at most {most} bytes, less than its granule of {granularity} bytes"
    )]
    TooSmall {
        /// Most bytes in a command or in one of its ranges.
        most: u64,
        /// Granule in bytes.
        granularity: u64,
    },
    /// No range at all is allowed.
    #[error("the device says that a command may carry no range at all")]
    NoRange,
    /// Numbers beyond all devices.
    #[error(
        "the device states a granule of {granularity} bytes over logical blocks of {lba_size} bytes, which cannot be combined"
    )]
    Huge {
        /// Claimed granule in bytes.
        granularity: u64,
        /// Logical block size in bytes.
        lba_size: u64,
    },
}

/// What one discard command may hold. The granule is a multiple of the logical block, every maximum is a multiple of
/// the granule and holds at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Limits {
    lba_size: BlockSize,
    granularity: u64,
    alignment: u64,
    max_ranges: u64,
    max_range_bytes: u64,
    max_command_bytes: u64,
}

impl Limits {
    /// The limits that follow from what a device claims. All rounding makes them tighter.
    pub fn new(claims: Claims) -> Result<Self, LimitsError> {
        let lba_size = claims.lba_size.bytes();
        let granularity = least_common_multiple(claims.granularity.max(1), lba_size)
            .ok_or(LimitsError::Huge { granularity: claims.granularity, lba_size })?;
        if !claims.alignment.is_multiple_of(lba_size) {
            return Err(LimitsError::Misaligned { alignment: claims.alignment, lba_size });
        }
        if claims.max_ranges == 0 {
            return Err(LimitsError::NoRange);
        }
        let whole = |bytes: u64| bytes - bytes % granularity;
        let most = claims.max_range_bytes.min(claims.max_command_bytes);
        if whole(most) == 0 {
            return Err(LimitsError::TooSmall { most, granularity });
        }
        Ok(Self {
            lba_size: claims.lba_size,
            granularity,
            alignment: claims.alignment % granularity,
            max_ranges: claims.max_ranges,
            max_range_bytes: whole(most),
            max_command_bytes: whole(claims.max_command_bytes),
        })
    }

    /// Logical block size in bytes.
    pub fn lba_size(&self) -> BlockSize {
        self.lba_size
    }

    /// Granule in bytes: a multiple of the logical block size.
    pub fn granularity(&self) -> u64 {
        self.granularity
    }

    /// Byte position of the first granule that starts on the device; less than [`granularity`](Self::granularity).
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Most ranges in one command, at least 1.
    pub fn max_ranges(&self) -> u64 {
        self.max_ranges
    }

    /// Most bytes in one range: whole granules, at least one.
    pub fn max_range_bytes(&self) -> u64 {
        self.max_range_bytes
    }

    /// Most bytes in one command: whole granules, at least one.
    pub fn max_command_bytes(&self) -> u64 {
        self.max_command_bytes
    }
}

/// The smallest number that both divide; none when it does not fit.
pub fn least_common_multiple(a: u64, b: u64) -> Option<u64> {
    let (mut large, mut small) = (a.max(b), a.min(b));
    while small != 0 {
        (large, small) = (small, large % small);
    }
    a.checked_div(large)?.checked_mul(b)
}
