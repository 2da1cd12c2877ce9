//! Written bytes over time, in chunks of equal bytes. Chunks of equal *time* would hide a knee: a slow one then holds two
//! or three requests, and counts jump.

use std::time::Duration;

/// A run of consecutive bytes and how long they took.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Chunk {
    /// Bytes whose writing was answered.
    pub bytes: u64,
    /// Seconds since the chunk before it was full.
    pub seconds: f64,
}

impl Chunk {
    /// Bytes a second.
    pub fn speed(&self) -> f64 {
        super::real(self.bytes) / self.seconds
    }
}

/// No chunk takes less; answers that came together would else be infinitely fast.
const LEAST: f64 = 1e-7;

/// Cuts a stream of answers into chunks.
#[derive(Debug)]
pub struct Recorder {
    size: u64,
    bytes: u64,
    since: Duration,
    chunks: Vec<Chunk>,
}

impl Recorder {
    /// Chunks of at least `size` bytes, from time `start` on.
    pub fn new(size: u64, start: Duration) -> Self {
        Self { size, bytes: 0, since: start, chunks: Vec::new() }
    }

    /// `bytes` were answered at time `at`. True when that filled a chunk.
    pub fn answered(&mut self, bytes: u64, at: Duration) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes < self.size {
            return false;
        }
        let seconds = at.saturating_sub(self.since).as_secs_f64().max(LEAST);
        self.chunks.push(Chunk { bytes: std::mem::take(&mut self.bytes), seconds });
        self.since = at;
        true
    }

    /// The full chunks so far.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// The full chunks; a last one that is not full is left out.
    pub fn into_chunks(self) -> Vec<Chunk> {
        self.chunks
    }
}

/// Bytes of all chunks.
pub fn bytes(chunks: &[Chunk]) -> u64 {
    chunks.iter().map(|chunk| chunk.bytes).sum()
}

/// Bytes a second over all chunks: bytes by time, never the mean of speeds. 0 of nothing.
pub fn speed(chunks: &[Chunk]) -> f64 {
    let seconds: f64 = chunks.iter().map(|chunk| chunk.seconds).sum();
    if seconds > 0.0 { super::real(bytes(chunks)) / seconds } else { 0.0 }
}
