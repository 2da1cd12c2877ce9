//! The free map: the segment information table (SIT), overridden by the journal in the checkpoint's summaries.
//!
//! ```text
//! SIT: block k has two copies, at k and k + half of the area; a bit of the checkpoint tells which one counts
//!      55 segments a block: count of valid blocks, a bit for each of 512 blocks (1 is in use)
//! journal: at most six entries, for segments that changed last
//! ```
//! Only the main area can be free. Each segment's count must equal its bits. The checkpoint's own sum may be larger: it
//! includes blocks that files have reserved and that have no place yet.
//!
//! Source: Linux `fs/f2fs/segment.c` (`build_sit_entries`, `read_compacted_summaries`, `read_normal_summaries`).

use super::F2fsError;
use super::checkpoint::{Checkpoint, flags};
use super::ondisk::{BLOCK, RawSitEntry, RawSitJournalEntry, SEGMENT, SIT_ENTRIES, SIT_ENTRY};
use super::superblock::SuperBlock;
use crate::error::{Mismatch, ParseError};
use crate::free_map::{BitOrder, DeclaredFree, FreeMap, FreeMapBuilder};
use crate::source::{Source, read_vec};
use crate::units::{add, from_usize, mul, sub, to_usize};
use std::collections::HashMap;
use zerocopy::FromBytes;

/// Blocks of the table that are read at once: 1 MiB.
const CHUNK: u64 = 256;
/// Where the journal of the segment table begins in a summary block of its own: behind 512 entries of 7 bytes.
const JOURNAL_AT: usize = 512 * 7;
/// In compact summaries it follows that of the node table, which fills so many bytes.
const COMPACT_JOURNAL_AT: usize = 507;
/// Entries that fit into a journal.
const MOST_ENTRIES: u16 = 6;
/// The lower bits of `vblocks`.
const COUNT_MASK: u16 = 0x3FF;

/// The map, and how many blocks the checkpoint calls valid beyond those that have a place.
pub struct Found {
    pub map: FreeMap,
    pub reserved: u64,
}

/// Reads the whole table.
pub fn map(source: &dyn Source, superblock: &SuperBlock, checkpoint: &Checkpoint) -> Result<Found, ParseError> {
    let journal = journal(source, superblock, checkpoint)?;
    let mut walk = Walk { superblock, journal, builder: FreeMapBuilder::new(superblock.grid()?), valid: 0, free: 0 };
    let blocks = superblock.segments.div_ceil(SIT_ENTRIES);
    let mut index = 0;
    while index < blocks {
        let copy = copy_of(checkpoint, index);
        let run = (index..blocks).take_while(|next| copy_of(checkpoint, *next) == copy);
        let count = from_usize(run.take(to_usize(CHUNK, "a chunk")?).count()).max(1);
        let first = add(superblock.sit, index, "the segment table")?;
        let first = if copy { add(first, superblock.sit_blocks, "the segment table")? } else { first };
        walk.chunk(source, index, first, count)?;
        index = index.saturating_add(count);
    }
    let declared = checkpoint.raw.valid_block_count.get();
    let reserved = declared.checked_sub(walk.valid).ok_or_else(|| {
        let expected = format!("at least {}, as the segments say", walk.valid);
        checkpoint.corrupt("valid blocks", expected, declared)
    })?;
    Ok(Found { map: walk.builder.finish(DeclaredFree::Exact(walk.free))?, reserved })
}

/// Whether the second copy of a block of the table counts.
fn copy_of(checkpoint: &Checkpoint, index: u64) -> bool {
    let byte = usize::try_from(index >> 3).ok().and_then(|at| checkpoint.sit_bitmap.get(at)).copied().unwrap_or(0);
    let shift = u32::try_from(index & 7).unwrap_or(0);
    byte & 0x80_u8.checked_shr(shift).unwrap_or(0) != 0
}

struct Walk<'a> {
    superblock: &'a SuperBlock,
    journal: HashMap<u64, RawSitEntry>,
    builder: FreeMapBuilder,
    valid: u64,
    free: u64,
}

impl Walk<'_> {
    /// `count` blocks of the table from block `first` of the volume; the first of them is number `index`.
    fn chunk(&mut self, source: &dyn Source, index: u64, first: u64, count: u64) -> Result<(), ParseError> {
        let at = mul(first, BLOCK, "the segment table")?;
        let bytes = read_vec(source, at, mul(count, BLOCK, "the segment table")?)?;
        let size = to_usize(BLOCK, "a block")?;
        for (number, (block, at)) in (index..).zip(bytes.chunks_exact(size).zip((at..).step_by(size))) {
            for (slot, entry) in (0..SIT_ENTRIES).zip(block.chunks_exact(SIT_ENTRY)) {
                let segment = add(mul(number, SIT_ENTRIES, "a segment")?, slot, "a segment")?;
                if segment >= self.superblock.segments {
                    return Ok(());
                }
                let stored = RawSitEntry::read_from_bytes(entry)
                    .map_err(|_| ParseError::corrupt(at, "an entry of the segment table was cut short"))?;
                let entry = self.journal.get(&segment).copied().unwrap_or(stored);
                self.segment(segment, &entry).map_err(|error| error.located(at))?;
            }
        }
        Ok(())
    }

    fn segment(&mut self, number: u64, entry: &RawSitEntry) -> Result<(), ParseError> {
        let declared = u64::from(entry.vblocks.get() & COUNT_MASK);
        let first = self.superblock.segment(number)?;
        let free = if entry.valid_map == [0; 64] {
            // Nearly all segments of a large volume: worth not looking at each bit.
            self.builder.free(first, SEGMENT)?;
            SEGMENT
        } else {
            self.builder.free_clear_bits(first, &entry.valid_map, SEGMENT, BitOrder::MostFirst)?
        };
        let valid = sub(SEGMENT, free, "the blocks of a segment")?;
        if valid != declared {
            let error = F2fsError::Count { segment: number, declared, found: valid };
            return Err(ParseError::inconsistent(error));
        }
        self.valid = add(self.valid, valid, "valid blocks")?;
        self.free = add(self.free, free, "free blocks")?;
        Ok(())
    }
}

/// The journal's entries by segment.
fn journal(
    source: &dyn Source,
    superblock: &SuperBlock,
    checkpoint: &Checkpoint,
) -> Result<HashMap<u64, RawSitEntry>, ParseError> {
    let (block, offset) = journal_place(superblock, checkpoint)?;
    let at = mul(block, BLOCK, "a summary")?;
    let bytes = read_vec(source, at, BLOCK)?;
    let (count, rest) = bytes.get(offset..).and_then(|rest| rest.split_first_chunk::<2>()).unwrap_or((&[0; 2], &[]));
    let count = u16::from_le_bytes(*count);
    if count > MOST_ENTRIES {
        let mismatch = Mismatch::new("entries in the journal of the segment table", "at most 6", count);
        return Err(ParseError::corrupt(at, mismatch));
    }
    let mut entries = HashMap::new();
    for raw in rest.chunks_exact(size_of::<RawSitJournalEntry>()).take(count.into()) {
        let raw = RawSitJournalEntry::read_from_bytes(raw)
            .map_err(|_| ParseError::corrupt(at, "the journal of the segment table was cut short"))?;
        let segment = u64::from(raw.segno.get());
        if segment >= superblock.segments || entries.insert(segment, raw.se).is_some() {
            let expected = format!("each below {}, and once", superblock.segments);
            let mismatch = Mismatch::new("segment in the journal of the segment table", expected, segment);
            return Err(ParseError::corrupt(at, mismatch));
        }
    }
    Ok(entries)
}

/// Block and byte of the journal: in compact summaries, or in the summary of cold data, the third of a full set.
fn journal_place(superblock: &SuperBlock, checkpoint: &Checkpoint) -> Result<(u64, usize), ParseError> {
    let from_start = u64::from(checkpoint.raw.cp_pack_start_sum.get());
    let first = add(superblock.payload, 1, "the summaries")?;
    let last = sub(checkpoint.blocks, 2, "the summaries")?;
    let outside = |expected: String| checkpoint.corrupt("start of its summaries", expected, from_start);
    if checkpoint.has(flags::COMPACT_SUM) {
        if !(first..=last).contains(&from_start) {
            return Err(outside(format!("{first} to {last}")));
        }
        return Ok((add(checkpoint.start, from_start, "the summaries")?, COMPACT_JOURNAL_AT));
    }
    // Three summaries of data; those of nodes follow when nothing can be worked out from the nodes themselves.
    let summaries = if checkpoint.has(flags::UMOUNT | flags::FASTBOOT) { 6 } else { 3 };
    let expected = sub(checkpoint.blocks, add(summaries, 1, "the summaries")?, "the summaries")?;
    if from_start != expected || from_start < first {
        return Err(outside(format!("{expected}, and at least {first}")));
    }
    let cold = add(from_start, 2, "the summaries")?;
    Ok((add(checkpoint.start, cold, "the summaries")?, JOURNAL_AT))
}
