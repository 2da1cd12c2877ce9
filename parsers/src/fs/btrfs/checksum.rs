//! The four checksums that a filesystem can have been made with.

use super::error::{unhandled, wrong};
use super::ondisk::CHECKSUM_LEN;
use crate::error::ParseError;
use blake2::{Blake2b, digest::consts::U32 as Bytes32};
use sha2::{Digest, Sha256};

/// One of the checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checksum {
    Crc32c,
    XxHash64,
    Sha256,
    Blake2b,
}

impl Checksum {
    /// The kind with the number `kind` in the superblock, which lies at byte `at`.
    pub fn new(kind: u16, at: u64) -> Result<Self, ParseError> {
        match kind {
            0 => Ok(Self::Crc32c),
            1 => Ok(Self::XxHash64),
            2 => Ok(Self::Sha256),
            3 => Ok(Self::Blake2b),
            other => Err(unhandled(at, format!("checksum kind {other} is not known"), "look for a newer coldtrim")),
        }
    }

    /// True when the first 32 bytes of `block` hold the checksum of the rest of it.
    pub fn fits(self, block: &[u8]) -> Result<bool, ParseError> {
        let (Some(field), Some(covered)) = (block.get(..CHECKSUM_LEN), block.get(CHECKSUM_LEN..)) else {
            return Err(wrong(0, "a block with a checksum", "more than 32 bytes", block.len()));
        };
        Ok(match self {
            Self::Crc32c => field.starts_with(&crc32c::crc32c(covered).to_le_bytes()),
            Self::XxHash64 => field.starts_with(&twox_hash::XxHash64::oneshot(0, covered).to_le_bytes()),
            Self::Sha256 => field == Sha256::digest(covered).as_slice(),
            Self::Blake2b => field == Blake2b::<Bytes32>::digest(covered).as_slice(),
        })
    }
}
