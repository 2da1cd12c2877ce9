//! What parent and child tell each other. Both are the same program, so there is no version to negotiate.

use coldtrim_parsers::stack::{Options, Stack};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// First argument that makes this program a reader.
pub(super) const CHILD_ARGUMENT: &str = "__read";

/// Upper bound of a request in bytes; it travels as one packet.
pub(super) const MAX_REQUEST: usize = 64 << 10;

/// Descriptors that one packet can carry (Linux: SCM_MAX_FD is 253).
pub(super) const MAX_LAYERS: usize = 250;

/// One descriptor's part of the request, in the order of the descriptors.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Place {
    pub offset: u64,
    pub len: u64,
    pub sector_size: u64,
}

/// What the child is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// Comes back in the answer, so that bytes from elsewhere are not taken for one.
    pub nonce: u64,
    /// The child ends when this process is no longer its parent.
    pub parent: u32,
    pub places: Vec<Place>,
    pub options: Options,
    pub limits: Limits,
}

/// What the child found.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub nonce: u64,
    pub shortfalls: Vec<String>,
    pub stack: Stack,
}

/// What the reader may use up. Grows with the bytes to be mapped, because metadata does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Address space of the child in bytes, its stack of 64 MiB included.
    pub memory: u64,
    /// Processor time of the child in seconds.
    pub cpu_seconds: u64,
    /// Time by the clock.
    pub wall: Duration,
    /// Length of the answer in bytes.
    pub answer: u64,
}

impl Limits {
    /// Limits for `bytes` bytes of devices. A megabyte of map for each GiB is several times what the most fragmented
    /// real volumes need; a second for each GiB lets a slow USB 2 bridge finish.
    pub fn for_bytes(bytes: u64) -> Self {
        let gib = bytes >> 30;
        Self {
            memory: (2_u64 << 30).saturating_add(bytes >> 10),
            cpu_seconds: gib.saturating_add(120),
            wall: Duration::from_secs(gib.saturating_add(300)),
            answer: (64_u64 << 20).saturating_add(bytes >> 12),
        }
    }
}
