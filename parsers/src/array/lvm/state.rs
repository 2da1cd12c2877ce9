//! Whether the copies of a mirror hold the same, by what the kernel wrote about that.

use super::ondisk::{RawLog, RawRaid};
use super::volume::Piece;
use crate::array::md::has_intent;
use crate::error::ParseError;
use crate::source::{Window, read_struct, read_vec};

/// dm-raid's magic number.
const RAID: u32 = 0x6452_6D44;
/// The magic number of a mirror's log.
const LOG: u32 = 0x4D69_5272;
/// Where the write-intent bitmap lies, behind dm-raid's record.
const BITMAP: u64 = 4096;
/// Where the bits of a log lie.
const LOG_BITS: u64 = 1024;
/// dm-raid's "all of it".
const ALL: u64 = u64::MAX;

fn window<'a>(piece: &Piece<'a>) -> Result<Window<'a>, String> {
    Window::new(piece.candidate.source, piece.range).ok_or_else(|| "has a record outside of its device".to_owned())
}

fn unreadable(error: &ParseError) -> String {
    format!("has a record of its copies that cannot be read: {error}")
}

/// The records of all copies: each in its place, all of one age, nothing failed, nothing left to be synchronised.
pub(super) fn records_agree(copies: usize, records: &[Piece<'_>]) -> Result<(), String> {
    let mut events = None;
    for (number, piece) in records.iter().enumerate() {
        let source = window(piece)?;
        let raw: RawRaid = read_struct(&source, 0).map_err(|error| unreadable(&error))?;
        let places = (raw.num_devices.get(), raw.array_position.get());
        let expected = (u32::try_from(copies), u32::try_from(number));
        if raw.magic.get() != RAID || (Ok(places.0), Ok(places.1)) != expected {
            return Err(format!(
                "has no record of dm-raid on copy {number}: it was never activated, or another stood there"
            ));
        }
        if *events.get_or_insert(raw.events.get()) != raw.events.get() {
            return Err(format!("has copies of different ages: copy {number} is at event {}", raw.events.get()));
        }
        let is_whole = raw.disk_recovery_offset.get() == ALL && raw.array_resync_offset.get() == ALL;
        if raw.failed_devices.get() != 0 || raw.flags.get() != 0 || !is_whole {
            return Err(format!("is not in sync, says the record on copy {number}"));
        }
        if has_intent(&source, BITMAP).map_err(|error| unreadable(&error))? {
            return Err(format!("has areas that may not be in sync, says the write-intent bitmap of copy {number}"));
        }
    }
    Ok(())
}

/// The log of a mirror: a bit for each region, all set.
pub(super) fn log_is_clean(piece: Piece<'_>) -> Result<(), String> {
    let source = window(&piece)?;
    let raw: RawLog = read_struct(&source, 0).map_err(|error| unreadable(&error))?;
    if raw.magic.get() != LOG || raw.version.get() != 2 {
        return Err("has no log that can be read: it was never activated, or another stood there".to_owned());
    }
    let regions = raw.nr_regions.get();
    let bytes = read_vec(&source, LOG_BITS, regions.div_ceil(8)).map_err(|error| unreadable(&error))?;
    // Bits behind the last region mean nothing.
    let unused = match u32::try_from(regions & 7) {
        Ok(0) | Err(_) => 0,
        Ok(used) => u8::MAX.checked_shl(used).unwrap_or(0),
    };
    let whole = bytes.len().saturating_sub(1);
    let is_last = bytes.last().is_some_and(|last| last | unused == u8::MAX);
    if is_last && bytes.iter().take(whole).all(|byte| *byte == u8::MAX) {
        return Ok(());
    }
    Err("has regions whose copies may differ, says its log".to_owned())
}
