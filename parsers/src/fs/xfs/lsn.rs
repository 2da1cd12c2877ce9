//! Places in the log. Every structure of version 5 names the place of the change that wrote it last, so none can be newer
//! than the place where the log goes on. If one is, the log is an older one than the volume: a copy of another time, or
//! the log on another device that was in use before. What the right log holds is then unknown.
//!
//! Source: Linux `fs/xfs/xfs_log.c` (`xfs_log_check_lsn`), `fs/xfs/xfs_log_priv.h` (`xlog_valid_lsn`).

use super::XfsError;
use crate::error::ParseError;

/// "Written by no change" (`NULLCOMMITLSN`).
const NONE: u64 = u64::MAX;

/// A place in the log: the cycle above, a basic block of it below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lsn(u64);

impl Lsn {
    /// `block` is inside a log, which has fewer than 2^32 of them.
    pub fn new(cycle: u32, block: u64) -> Self {
        Self(u64::from(cycle) << 32 | block)
    }

    /// Checks that a structure at `byte`, written at the place `written`, is no newer than a log that goes on here.
    pub fn check(self, byte: u64, what: impl FnOnce() -> String, written: u64) -> Result<(), ParseError> {
        if written == NONE || written <= self.0 {
            return Ok(());
        }
        let (what, written) = (what(), Self(written).to_string());
        Err(ParseError::corrupt(byte, XfsError::Newer { what, written, head: self.to_string() }))
    }
}

impl std::fmt::Display for Lsn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.0 >> 32, self.0 & u64::from(u32::MAX))
    }
}
