//! The log: was the volume unmounted, or is there something in it that the trees do not know yet?
//!
//! ```text
//! basic blocks of 512 bytes, written round and round:
//!
//! | record of cycle n | record | ... | last record | what cycle n - 1 left (or zeros, cycle 0) ... |
//!                                                 ^ head
//! record: head (1 basic block for each 32 KiB that the mount allows) | data; the first word of each basic block is the
//! cycle, in a record's head the second word
//! ```
//! Clean means: the last record before the head is the one that unmounting writes, its data ends exactly at the head, and
//! behind the head lies nothing newer. The head is found by bisection, as the kernel does it, so a large log costs little.
//! There is no clean flag to believe.
//!
//! Sources: Linux `fs/xfs/libxfs/xfs_log_format.h`, `fs/xfs/xfs_log_recover.c` (`xlog_find_head`,
//! `xlog_check_unmount_rec`), `fs/xfs/xfs_log.c` (`xlog_cksum`).

use super::checksum;
use super::lsn::Lsn;
use super::ondisk::{BASIC_BLOCK, LOG_MAGIC, RawLogRecord, checksum_at};
use crate::error::{Mismatch, ParseError};
use crate::source::{Source, Window, read_vec};
use crate::units::{add, from_usize, sub, to_usize};
use zerocopy::FromBytes;

/// Eight records of 256 KiB may be under way at once: so far behind the head something newer could lie.
const UNDER_WAY: u64 = (8 * 256) << 10;
/// Data of the largest record, in bytes, and its head.
const LARGEST: u64 = (256 << 10) + 8 * BASIC_BLOCK;
/// The record of an unmount is nearly always found in so many bytes before the head.
const USUAL: u64 = 32 << 10;
/// `oh_flags` of the operation that unmounting writes.
const UNMOUNT: u8 = 0x20;
/// `h_version` bit: heads of several basic blocks.
const VERSION_2: u32 = 2;

/// What a log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// That of an unmounted volume, which the next mount goes on writing at `end`.
    Clean { end: Lsn },
    /// Why it is not clean, with a byte position inside the log.
    Unclean { at: u64, reason: String },
    /// The log of another volume.
    Foreign,
}

/// Reads the state of the log that fills `window`. `uuid` is the volume's.
pub fn state(window: &Window<'_>, uuid: &[u8; 16], is_v5: bool) -> Result<State, ParseError> {
    let log = Log { window, blocks: window.len().checked_div(BASIC_BLOCK).unwrap_or(0) };
    if log.blocks < 2 {
        return Ok(unclean(0, "it is shorter than one record"));
    }
    let head = log.head()?;
    let Some(head) = head else {
        return Ok(unclean(0, "it is empty: not even making the volume left a record"));
    };
    let Some((place, record)) = log.last_record(head)? else {
        return Ok(unclean(log.byte(head.block), "no record lies before its head"));
    };
    log.judge(head, place, &record, uuid, is_v5)
}

/// True when the source begins with a log record: an external log that has not been written round yet.
pub fn is_log(source: &dyn Source) -> Result<bool, ParseError> {
    if source.len() < BASIC_BLOCK {
        return Ok(false);
    }
    let bytes = read_vec(source, 0, BASIC_BLOCK)?;
    Ok(record_of(&bytes).is_some())
}

/// The identity of the volume whose log begins the source.
pub fn owner(source: &dyn Source) -> Result<Option<[u8; 16]>, ParseError> {
    let bytes = read_vec(source, 0, BASIC_BLOCK)?;
    Ok(record_of(&bytes).map(|record| record.h_fs_uuid))
}

fn unclean(at: u64, reason: impl Into<String>) -> State {
    State::Unclean { at, reason: reason.into() }
}

/// A record's head, if the basic block is one.
fn record_of(bytes: &[u8]) -> Option<RawLogRecord> {
    let (record, _) = RawLogRecord::read_from_prefix(bytes).ok()?;
    let is_known = record.h_magicno.get() == LOG_MAGIC && (1..=3).contains(&record.h_version.get());
    (is_known && (1..=3).contains(&record.h_fmt.get())).then_some(record)
}

/// The cycle of a basic block: its first word, but in a record's head the second.
fn cycle_of(bytes: &[u8]) -> u32 {
    let word = |at: usize| {
        let four = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
        u32::from_be_bytes(four.copied().unwrap_or_default())
    };
    if word(0) == LOG_MAGIC { word(4) } else { word(0) }
}

/// The place behind the last record: `block` is 0 when the log was written exactly to its end.
#[derive(Debug, Clone, Copy)]
struct Head {
    block: u64,
    /// The cycle of what lies before it.
    cycle: u32,
}

impl Head {
    /// The place that is written next: at block 0 a new cycle begins.
    fn place(self) -> Lsn {
        Lsn::new(self.cycle.saturating_add(u32::from(self.block == 0)), self.block)
    }
}

struct Log<'a, 'w> {
    window: &'a Window<'w>,
    blocks: u64,
}

impl Log<'_, '_> {
    fn byte(&self, block: u64) -> u64 {
        block.saturating_mul(BASIC_BLOCK)
    }

    fn cycle(&self, block: u64) -> Result<u32, ParseError> {
        Ok(cycle_of(&read_vec(self.window, self.byte(block), BASIC_BLOCK)?))
    }

    /// The first basic block whose cycle is not that of the first one. None: nothing was ever written.
    fn head(&self) -> Result<Option<Head>, ParseError> {
        let cycle = self.cycle(0)?;
        if cycle == 0 {
            return Ok(None);
        }
        let last = sub(self.blocks, 1, "the last block of a log")?;
        if self.cycle(last)? == cycle {
            return Ok(Some(Head { block: 0, cycle }));
        }
        let (mut same, mut other) = (0, last);
        while other.saturating_sub(same) > 1 {
            let middle = add(same, other.saturating_sub(same) >> 1, "a place in the log")?;
            if self.cycle(middle)? == cycle {
                same = middle;
            } else {
                other = middle;
            }
        }
        Ok(Some(Head { block: other, cycle }))
    }

    /// `count` basic blocks from `block`, round the end of the log.
    fn around(&self, block: u64, count: u64) -> Result<Vec<u8>, ParseError> {
        let first = count.min(self.blocks.saturating_sub(block));
        let mut bytes = read_vec(self.window, self.byte(block), self.byte(first))?;
        if count > first {
            bytes.extend(read_vec(self.window, 0, self.byte(count.saturating_sub(first)))?);
        }
        Ok(bytes)
    }

    /// The block that lies `by` blocks behind `block`, round the end.
    fn behind(&self, block: u64, by: u64) -> u64 {
        block.saturating_add(by).checked_rem(self.blocks).unwrap_or(0)
    }

    /// The last record's head before the head of the log, and its block.
    fn last_record(&self, head: Head) -> Result<Option<(u64, RawLogRecord)>, ParseError> {
        for reach in [USUAL, LARGEST] {
            let count = (reach / BASIC_BLOCK).min(self.blocks);
            let start = self.behind(head.block, self.blocks.saturating_sub(count));
            let bytes = self.around(start, count)?;
            let (blocks, _) = bytes.as_chunks::<512>();
            let found = blocks.iter().enumerate().rev().find_map(|(index, block)| Some((index, record_of(block)?)));
            if let Some((index, record)) = found {
                return Ok(Some((self.behind(start, from_usize(index)), record)));
            }
        }
        Ok(None)
    }

    fn judge(
        &self,
        head: Head,
        place: u64,
        record: &RawLogRecord,
        uuid: &[u8; 16],
        is_v5: bool,
    ) -> Result<State, ParseError> {
        if record.h_fs_uuid != *uuid {
            return Ok(State::Foreign);
        }
        let at = self.byte(place);
        let heads = head_blocks(record);
        let data = u64::from(record.h_len.get()).div_ceil(BASIC_BLOCK);
        let whole = add(heads, data, "the length of a log record")?;
        if whole > LARGEST.div_ceil(BASIC_BLOCK) || whole >= self.blocks {
            let found = format!("{whole} basic blocks");
            return Err(ParseError::inconsistent(Mismatch::new("length of a log record", "less than the log", found)));
        }
        // What a record wrote behind the end of the log, at its start, belongs to the next cycle already.
        let goes_round = u32::from(place.saturating_add(whole) > self.blocks);
        let ends_at_head = self.behind(place, whole) == head.block;
        if !ends_at_head || record.h_cycle.get() != head.cycle.saturating_sub(goes_round) {
            return Ok(unclean(at, "its last record does not end at its head"));
        }
        let bytes = self.around(place, whole)?;
        let (_, body) = bytes.split_at_checked(to_usize(self.byte(heads), "a log record")?).unwrap_or_default();
        let flags = body.get(9).copied().unwrap_or(0);
        if record.h_num_logops.get() != 1 || flags & UNMOUNT == 0 {
            return Ok(unclean(at, "its last record is not the one that unmounting writes"));
        }
        if is_v5 {
            check_record(&bytes, body, record, heads)?;
        }
        self.check_behind(head)
    }

    /// Nothing newer may lie behind the head: records are sent several at a time and can arrive out of order.
    fn check_behind(&self, head: Head) -> Result<State, ParseError> {
        let count = (UNDER_WAY / BASIC_BLOCK).min(self.blocks.saturating_sub(head.block));
        let bytes = self.around(head.block, count)?;
        let (blocks, _) = bytes.as_chunks::<512>();
        // Behind a head at block 0 lies the very cycle that was just finished.
        let older = if head.block == 0 { head.cycle } else { head.cycle.saturating_sub(1) };
        for (block, index) in blocks.iter().zip(head.block..) {
            if cycle_of(block) > older {
                return Ok(unclean(self.byte(index), "records lie behind its head"));
            }
        }
        Ok(State::Clean { end: head.place() })
    }
}

/// Basic blocks of a record's head.
fn head_blocks(record: &RawLogRecord) -> u64 {
    let size = u64::from(record.h_size.get());
    if record.h_version.get() & VERSION_2 == 0 { 1 } else { size.div_ceil(32 << 10).clamp(1, 8) }
}

/// The record's checksum: its head without the checksum, each further block of the head, the data. mkfs and xfs_repair
/// write 0.
fn check_record(bytes: &[u8], body: &[u8], record: &RawLogRecord, heads: u64) -> Result<(), ParseError> {
    /// Bytes of a head that are covered: the structure as 64-bit kernels pad it. 32-bit kernels do not pad.
    const COVERED: [usize; 2] = [328, 324];
    /// Bytes of a further head block that are covered.
    const COVERED_FURTHER: usize = 260;
    let stored = record.h_crc.get();
    if stored == 0 {
        return Ok(());
    }
    let (blocks, _) = bytes.as_chunks::<512>();
    let data = body.get(..to_usize(record.h_len.get().into(), "a log record")?).unwrap_or_default();
    let further: Vec<&[u8]> = blocks
        .iter()
        .take(to_usize(heads, "a log record")?)
        .skip(1)
        .filter_map(|block| block.get(..COVERED_FURTHER))
        .collect();
    for covered in COVERED {
        let head = bytes.get(..checksum_at::LOG_RECORD).unwrap_or_default();
        let tail = bytes.get(checksum_at::LOG_RECORD.saturating_add(4)..covered).unwrap_or_default();
        let mut parts: Vec<&[u8]> = vec![head, &[0; 4], tail];
        parts.extend(&further);
        parts.push(data);
        if checksum::of_parts(&parts) == stored {
            return Ok(());
        }
    }
    let found = format!("{} bytes that do not have it", from_usize(bytes.len()));
    Err(ParseError::inconsistent(Mismatch::new("checksum of the last log record", format!("{stored:#x}"), found)))
}
