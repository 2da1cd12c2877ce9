//! The crate `ext4` as a further, partial opinion.
//!
//! It tells no positions, so it reads through a source that notes them; and because the content does not matter, reads
//! of content are noted and answered with whatever is in the buffer. It counts only for files that it opens without an
//! error, and its known mistakes are kept away from it: it does not know block maps, and it misreads the length of
//! unwritten extents and positions beyond 2^32 blocks.

use super::geometry::Geometry;
use super::inodes::{Inode, Part, Walker};
use crate::error::ParseError;
use crate::source::Source;
use crate::units::{ByteRange, from_usize};
use crate::witness::{Ledger, Recording, Witness};
use std::cell::{Cell, RefCell};
use std::io::{self, Read};

/// Bytes of metadata that the crate may read.
const BUDGET: u64 = 1 << 30;
/// Content that is asked for at once.
const REQUEST: usize = 1 << 20;
/// The crate keeps all extents of a file in memory; files of more pieces are not shown to it.
const MOST_PARTS: u32 = 1 << 20;

/// Regular files, directories and symbolic links with extents, as the crate `ext4` sees them.
pub struct Crate;

impl Witness for Crate {
    fn name(&self) -> &'static str {
        "ext4 (crate)"
    }

    fn is_complete(&self) -> bool {
        false
    }

    fn walk(&self, source: &dyn Source, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        let walker = Walker::new(source, Geometry::read(source)?);
        let phantom = Phantom::new(source);
        let options = ext4::Options { checksums: ext4::Checksums::Enabled };
        let volume = ext4::SuperBlock::new_with_options(&phantom, &options)
            .map_err(|error| ParseError::inconsistent(format!("{error:#}")))?;
        let mut buffer = vec![0; REQUEST];
        for group in 0..walker.geometry.groups {
            walker.used_inodes(group, &mut |inode| {
                if is_understood(&walker, inode)? {
                    visit(&volume, &phantom, inode.number, &mut buffer, ledger);
                }
                Ok(!ledger.has_clash())
            })?;
        }
        match phantom.is_exhausted() {
            true => Err(ParseError::inconsistent("the read budget of the crate was used up")),
            false => Ok(()),
        }
    }
}

/// True for an inode that the crate reads rightly: extents, none of them unwritten or high, and no large holes, which
/// it would fill with zeros byte by byte.
fn is_understood(walker: &Walker<'_>, inode: &Inode) -> Result<bool, ParseError> {
    let room = inode.allocated()?.saturating_add(from_usize(REQUEST));
    if !inode.has_extents()? || inode.size()? > room {
        return Ok(false);
    }
    let highest = walker.geometry.block.saturating_mul(1 << 32);
    let (mut is_plain, mut parts) = (true, 0_u32);
    walker.parts(inode, &mut |part, range| {
        parts = parts.saturating_add(1);
        is_plain &= part != Part::Unwritten && range.end() <= highest && parts < MOST_PARTS;
        Ok(())
    })?;
    Ok(is_plain)
}

/// Claims what the crate reads for one inode. Its errors mean "unknown", so they are passed over.
fn visit(
    volume: &ext4::SuperBlock<&Phantom<'_>>,
    phantom: &Phantom<'_>,
    number: u32,
    buffer: &mut [u8],
    ledger: &mut Ledger<'_>,
) {
    let opened = volume.load_inode(number).and_then(|inode| volume.open(&inode));
    let mut ranges = phantom.take();
    if let Ok(mut reader) = opened {
        phantom.is_content.set(true);
        while let Ok(count) = reader.read(buffer)
            && count > 0
        {}
        phantom.is_content.set(false);
        ranges.extend(phantom.take());
        ledger.visit();
        for range in ranges {
            ledger.claim(range, &format_args!("inode {number}"));
        }
    }
}

/// Notes every read. Metadata is really read, within the budget; content is not.
struct Phantom<'a> {
    metadata: Recording<'a>,
    is_content: Cell<bool>,
    content: RefCell<Vec<ByteRange>>,
    used: Cell<u64>,
}

impl<'a> Phantom<'a> {
    fn new(source: &'a dyn Source) -> Self {
        Self {
            metadata: Recording::new(source, BUDGET),
            is_content: Cell::new(false),
            content: RefCell::new(Vec::new()),
            used: Cell::new(0),
        }
    }

    /// The bytes asked for since the last call.
    fn take(&self) -> Vec<ByteRange> {
        let mut all = self.metadata.take();
        all.append(&mut self.content.borrow_mut());
        all
    }

    fn is_exhausted(&self) -> bool {
        self.used.get() > BUDGET
    }
}

impl positioned_io::ReadAt for Phantom<'_> {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        let length = from_usize(buf.len());
        if !self.is_content.get() {
            self.used.set(self.used.get().saturating_add(length));
            self.metadata.read_at(at, buf)?;
            return Ok(buf.len());
        }
        let range = ByteRange::with_len(at, length).filter(|range| range.end() <= self.metadata.len());
        self.content.borrow_mut().push(range.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(buf.len())
    }
}
