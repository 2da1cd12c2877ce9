//! The journal: changes in it are in no bitmap yet, so it must be empty.

use super::CHECKER;
use super::HfsPlusError;
use super::ondisk::RawJournalInfo;
use super::superblock::Header;
use crate::error::{Mismatch, ParseError};
use crate::source::{Source, read_struct, read_vec};
use crate::units::ByteRange;
use crate::volume::Finding;

const IN_THIS_VOLUME: u32 = 1;
const ON_OTHER_DEVICE: u32 = 2;
const NEEDS_INITIALISATION: u32 = 4;

/// A journal, and what speaks against using the volume.
pub(super) struct Journal {
    /// Its bytes in the volume.
    pub range: ByteRange,
    /// Set when it holds changes or cannot be read.
    pub finding: Option<Finding>,
}

/// Reads the state of the journal of a journaled volume.
pub(super) fn read(volume: &dyn Source, header: &Header) -> Result<Journal, ParseError> {
    let at = header.block.to_bytes(header.journal_info_block)?;
    let info: RawJournalInfo = read_struct(volume, at)?;
    let flags = info.flags.get();
    if flags & ON_OTHER_DEVICE != 0 || flags & IN_THIS_VOLUME == 0 {
        return Err(ParseError::unsupported(at, HfsPlusError::JournalElsewhere(flags)));
    }
    let (offset, size) = (info.offset.get(), info.size.get());
    let end = header.block.to_bytes(header.total)?;
    let range = ByteRange::with_len(offset, size).filter(|range| range.end() <= end);
    let range = range.ok_or_else(|| ParseError::corrupt(at, HfsPlusError::JournalPlace { offset, size, end }))?;
    let unused = flags & NEEDS_INITIALISATION != 0;
    let finding = if unused { None } else { state(volume, range)? };
    Ok(Journal { range, finding })
}

/// What the journal's own header says. The order of its bytes is that of the machine that wrote it.
fn state(volume: &dyn Source, range: ByteRange) -> Result<Option<Finding>, ParseError> {
    let at = range.start();
    let bytes = read_vec(volume, at, 48)?;
    let word = |index: usize, little: bool| {
        let start = index.saturating_mul(4);
        let word = bytes.get(start..).and_then(|rest| rest.first_chunk::<4>()).copied().unwrap_or_default();
        if little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) }
    };
    let little = word(1, true) == 0x1234_5678;
    let word = |index| word(index, little);
    // Two halves of a number of 64 bits lie in the same order as its bytes.
    let long = |index: usize| {
        let (first, second) = (u64::from(word(index)), u64::from(word(index.saturating_add(1))));
        if little { second << 32 | first } else { first << 32 | second }
    };
    if word(1) != 0x1234_5678 || !matches!(word(0), 0x4A4E_4C78 | 0x4A48_4452) {
        let cause = Mismatch::hex("magic number of the journal", 0x4A4E_4C78, u64::from(word(0)));
        return Err(ParseError::corrupt(at, cause));
    }
    let (start, end, size) = (long(2), long(4), long(6));
    let found = checksum(bytes.get(..44).unwrap_or_default());
    if found != word(9) {
        let cause = Mismatch::hex("checksum of the journal's header", u64::from(word(9)), u64::from(found));
        return Err(ParseError::corrupt(at, cause));
    }
    if size != range.len() || start > size || end > size {
        return Err(ParseError::corrupt(at, HfsPlusError::JournalBounds { start, end, size, room: range.len() }));
    }
    Ok((start != end).then(|| {
        Finding::refusal(
            format!(
                "the journal at byte {at} holds changes that are not yet in the volume (start {start}, end {end}; expected \
                 the same)"
            ),
            format!("mount it once in macOS, which replays the journal, or let it be checked there: {CHECKER}"),
        )
    }))
}

/// TN1150, "Journal Header": the field itself, bytes 36 to 40, counts as zero.
fn checksum(header: &[u8]) -> u32 {
    let sum = (0_u32..).zip(header).fold(0_u32, |sum, (index, byte)| {
        let byte = if (36..40).contains(&index) { 0 } else { u32::from(*byte) };
        sum.wrapping_shl(8) ^ sum.wrapping_add(byte)
    });
    !sum
}
