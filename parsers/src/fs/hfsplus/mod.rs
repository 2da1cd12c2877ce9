//! HFS+ and HFSX.
//!
//! ```text
//! byte 0    1024             block n                                     end - 1024    end - 512
//! +-------+---------------+-----------------+----------//------------+-------------+----------+
//! | boot  | volume header | special files: allocation (bitmap),      | header copy | reserved |
//! |       |               | extents overflow, catalog, attributes    |             |          |
//! +-------+---------------+-----------------+----------//------------+-------------+----------+
//! ```
//!
//! Block 0 begins at byte 0 of the volume. The special files are described by the volume header; extents of the bitmap
//! beyond the eighth are in the extents overflow file. There is no checksum but the journal header's, so the count of free
//! blocks, the places of the special files and the witness protect the map. An old HFS volume may surround the whole.

mod free;
mod journal;
mod names;
mod ondisk;
mod superblock;
mod tree;
mod witness;

use crate::error::ParseError;
use crate::free_map::{DeclaredFree, FreeMap, FreeMapBuilder};
use crate::fs::Format;
use crate::source::{Source, Window};
use crate::units::{BlockSize, add, sub};
use crate::volume::{Finding, Volume};
use crate::witness::Witness;
use superblock::Header;

/// The row in the table of formats.
pub struct HfsPlus;

/// What mends a damaged volume. Linux has the same program in the package hfsprogs.
const CHECKER: &str = "fsck.hfsplus -f DEVICE (in macOS: fsck_hfs -f DEVICE)";

/// What only HFS+ can have.
#[derive(Debug, thiserror::Error)]
enum HfsPlusError {
    #[error("attribute bits {0:#x} of the volume header; they are not understood")]
    Attributes(u32),
    #[error("an extent of {count} blocks from block {start}: expected one inside the volume of {total} blocks")]
    Extent { start: u64, count: u64, total: u64 },
    #[error("a special file of {size} bytes in {blocks} blocks of {block} bytes: expected enough blocks")]
    Fork { size: u64, blocks: u64, block: u64 },
    #[error("no second volume header with the same version, block size and block count: expected one there")]
    NoAlternate,
    #[error("the journal is not in this volume (flags {0:#x}); only a journal inside of the volume is understood")]
    JournalElsewhere(u32),
    #[error("a journal of {size} bytes from byte {offset}: expected it inside the volume of {end} bytes")]
    JournalPlace { offset: u64, size: u64, end: u64 },
    #[error("the journal's header has start {start}, end {end} and size {size}: expected a journal of {room} bytes")]
    JournalBounds { start: u64, end: u64, size: u64, room: u64 },
    #[error("the leaves of the extents overflow file run in a circle (node {0})")]
    TreeLoop(u64),
    #[error("byte {0} of a special file lies behind the extents in the volume header")]
    BeyondFork(u64),
}

impl Format for HfsPlus {
    fn name(&self) -> &'static str {
        "hfsplus"
    }

    fn variants(&self) -> &'static [&'static str] {
        &["hfsplus", "hfsx"]
    }

    fn probe(&self, source: &dyn Source) -> Result<bool, ParseError> {
        superblock::probe(source)
    }

    fn read(&self, source: &dyn Source, _companions: &[&dyn Source]) -> Result<Volume, ParseError> {
        let place = superblock::locate(source)?;
        let volume =
            Window::new(source, place).ok_or_else(|| ParseError::inconsistent("the wrapper passes the end"))?;
        let header = Header::read(&volume)?;
        let grid = header.grid(place.start())?;
        let mut findings = state_findings(&header);
        let journal = is_journaled(&header).then(|| journal::read(&volume, &header)).transpose()?;
        let mut map = FreeMapBuilder::new(grid);
        mark_known(&volume, &header, &mut map)?;
        if let Some(journal) = journal {
            let blocks = covering(header.block, journal.range.start(), journal.range.len())?;
            map.must_be_used(blocks.0, blocks.1, "the journal")?;
            map.must_be_used(header.journal_info_block, 1, "the journal info block")?;
            findings.extend(journal.finding);
        }
        let free = if findings.is_empty() {
            free::read(&volume, &header, &mut map)?;
            map.finish(DeclaredFree::Exact(header.free))?
        } else {
            FreeMap::nothing(grid) // an interrupted write makes the bitmap worthless
        };
        Ok(Volume {
            format: if header.is_hfsx { "hfsx" } else { "hfsplus" }.to_owned(),
            label: names::label(&volume, &header),
            uuid: names::uuid(header.volume_id),
            size: grid.end(),
            block_size: header.block.bytes(),
            free,
            needs_witness: true,
            findings,
        })
    }

    fn checker(&self) -> &'static str {
        CHECKER
    }

    fn witnesses(&self) -> &'static [&'static dyn Witness] {
        &[&witness::HfsPlusWalk]
    }
}

fn is_journaled(header: &Header) -> bool {
    header.attributes & 1 << 13 != 0
}

/// What the volume header says about its state.
fn state_findings(header: &Header) -> Vec<Finding> {
    let bit = |bit: u32| header.attributes & 1_u32.wrapping_shl(bit) != 0;
    let marks = [
        (!bit(8), "was not unmounted cleanly (attribute bit 8 is clear)"),
        (bit(11), "was mounted by a system that did not finish (attribute bit 11 is set)"),
        (bit(14), "is marked inconsistent (attribute bit 14 is set)"),
        (bit(15), "is locked against writing by its owner (attribute bit 15 is set)"),
        (&header.last_mounted == b"FSK!", "has a journal that could not be replayed (last mounted by \"FSK!\")"),
    ];
    let at = superblock::HEADER_AT;
    let set = marks.into_iter().filter(|(set, _)| *set);
    set.map(|(_, what)| Finding::refusal(format!("the volume {what} (volume header at byte {at})"), CHECKER)).collect()
}

/// What must be marked used: both volume headers and the special files.
fn mark_known(volume: &dyn Source, header: &Header, map: &mut FreeMapBuilder) -> Result<(), ParseError> {
    let (first, count) = covering(header.block, 0, 1536)?;
    map.must_be_used(first, count.min(header.total), "the volume header")?;
    let end = volume.len() & !511;
    let (first, count) = covering(header.block, sub(end, 1024, "the second volume header")?, 512)?;
    if first < header.total {
        map.must_be_used(first, count.min(sub(header.total, first, "blocks")?), "the second volume header")?;
    }
    for (name, fork) in header.special_files() {
        for extent in &fork.extents {
            map.must_be_used(extent.start, extent.count, name)?;
        }
    }
    Ok(())
}

/// First block and number of the blocks that hold `len` bytes from byte `at`.
fn covering(block: BlockSize, at: u64, len: u64) -> Result<(u64, u64), ParseError> {
    let first = block.whole_blocks(at);
    let last = block.whole_blocks(add(at, sub(len, 1, "an empty area")?, "the end of an area")?);
    Ok((first, add(sub(last, first, "a number of blocks")?, 1, "a number of blocks")?))
}

#[cfg(test)]
mod tests;
