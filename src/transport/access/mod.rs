//! Reading and writing blocks around the page cache: for trials of a route before it is used.

mod sys;

#[cfg(test)]
mod tests;

use super::error::{ErrorKind, TransportError};
use super::facts::{DeviceFacts, NodeKind};
use crate::plan::units::{BlockSize, ByteRange, LbaRange};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Reads blocks of a device through one particular path.
pub trait BlockRead {
    /// Name of the path, for messages.
    fn path(&self) -> &'static str;

    /// The bytes `range`, whose ends lie on logical blocks.
    fn read(&mut self, range: ByteRange) -> Result<Vec<u8>, TransportError>;
}

/// Writes them, too.
pub trait BlockAccess: BlockRead {
    /// Writes whole logical blocks at byte `at`.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), TransportError>;

    /// Makes the device write its cache to the medium.
    fn flush(&mut self) -> Result<(), TransportError>;
}

const NAME: &str = "direct";
/// Memory alignment and largest request in bytes.
const ALIGN: usize = 4096;
const MOST_BYTES: u64 = 1 << 20;

/// The kernel's own path, past the page cache: O_DIRECT on the opened node, buffered on an image.
pub struct Direct {
    file: File,
    block: BlockSize,
    size: u64,
}

impl Direct {
    /// Opens the node behind `file` once more, which does not disturb a claim that `file` holds.
    pub fn open(file: &File, facts: &DeviceFacts) -> Result<Self, TransportError> {
        Ok(Self { file: around_the_cache(file, facts)?, block: facts.logical_block, size: facts.size })
    }
}

/// The node behind `file`, opened once more past the page cache. An image is used as it is: opening it would break the
/// lease that tells who else wants it.
pub fn around_the_cache(file: &File, facts: &DeviceFacts) -> Result<File, TransportError> {
    let opened = if facts.kind == NodeKind::Image { file.try_clone() } else { sys::reopen(file) };
    opened.map_err(|cause| TransportError::os(NAME, format!("cannot open {} once more", facts.path.display()), cause))
}

/// Writes what the kernel holds of a block device and forgets it. To be done before the first raw command, so that
/// nothing old is written over discarded space later, and after the last one, so that nothing old is read; on the disk
/// and on each of its partitions, which have caches of their own.
pub fn forget_pages(file: &File) -> Result<(), TransportError> {
    sys::forget_pages(file).map_err(|cause| TransportError::os(NAME, "cannot empty the kernel's cache", cause))
}

impl BlockRead for Direct {
    fn path(&self) -> &'static str {
        "kernel"
    }

    fn read(&mut self, range: ByteRange) -> Result<Vec<u8>, TransportError> {
        let mut bytes = Vec::new();
        for (blocks, part) in pieces(NAME, range, self.block, self.size, MOST_BYTES)? {
            let mut buffer = Aligned::new(part.len());
            let at = blocks.bytes(self.block).map_or(range.start(), ByteRange::start);
            self.file
                .read_exact_at(buffer.bytes(), at)
                .map_err(|cause| TransportError::os(NAME, format!("cannot read {range}"), cause))?;
            bytes.extend_from_slice(buffer.bytes());
        }
        Ok(bytes)
    }
}

impl BlockAccess for Direct {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), TransportError> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let range = ByteRange::with_len(at, length).ok_or_else(|| outside(NAME, at, self.size))?;
        let mut rest = bytes;
        for (blocks, part) in pieces(NAME, range, self.block, self.size, MOST_BYTES)? {
            let (now, later) = rest.split_at_checked(part.len()).unwrap_or((rest, &[]));
            rest = later;
            let mut buffer = Aligned::new(now.len());
            buffer.bytes().copy_from_slice(now);
            let at = blocks.bytes(self.block).map_or(at, ByteRange::start);
            self.file
                .write_all_at(buffer.bytes(), at)
                .map_err(|cause| TransportError::os(NAME, format!("cannot write {range}"), cause))?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        self.file.sync_all().map_err(|cause| TransportError::os(NAME, "cannot flush the device", cause))
    }
}

/// A buffer whose bytes start on a page: O_DIRECT demands it.
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// A buffer of zeros.
    pub fn new(length: usize) -> Self {
        let memory = vec![0; length.saturating_add(ALIGN)];
        let start = memory.as_ptr().align_offset(ALIGN);
        Self { memory, start, length }
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        let end = self.start.saturating_add(self.length);
        self.memory.get_mut(self.start..end).unwrap_or_default()
    }
}

fn outside(route: &'static str, at: u64, size: u64) -> TransportError {
    let what = format!("byte {at}: expected whole blocks inside the {size} bytes of the device");
    TransportError::new(ErrorKind::OutOfRange, route, what)
}

/// `range` in requests of at most `most` bytes, each with a zeroed buffer. A range that is not whole blocks inside
/// the device is an error.
pub(super) fn pieces(
    route: &'static str,
    range: ByteRange,
    block: BlockSize,
    size: u64,
    most: u64,
) -> Result<Vec<(LbaRange, Vec<u8>)>, TransportError> {
    let mut pieces = Vec::new();
    let mut at = range.start();
    while let Some(rest) = ByteRange::new(at, range.end()) {
        let piece = ByteRange::with_len(at, rest.len().min(most)).filter(|piece| piece.end() <= size);
        let found = piece.and_then(|piece| Some((piece, LbaRange::exactly(piece, block)?)));
        let (piece, blocks) = found.ok_or_else(|| outside(route, at, size))?;
        let length = usize::try_from(piece.len()).map_err(|_| outside(route, at, size))?;
        pieces.push((blocks, vec![0; length]));
        at = piece.end();
    }
    Ok(pieces)
}
