//! Signatures of arrays whose place or shape needs a calculation.

use super::{bytes_at, field, last_sector};
use crate::container::{CONTAINERS, Table};
use crate::error::ParseError;
use crate::source::Source;

/// The magic number of Linux md, least byte first.
const MD_MAGIC: [u8; 4] = 0xA92B_4EFC_u32.to_le_bytes();

/// md 1.0: at least 8 KiB before the end, on a multiple of 4 KiB. The record states its own sector, so the one of a
/// partition that ends with the disk is not taken for the disk's.
pub(crate) fn md_1_0(source: &dyn Source) -> Result<bool, ParseError> {
    let sectors = source.len() >> 9_u32;
    let sector = sectors.checked_sub(16).map(|sector| sector & !7);
    let record = bytes_at(source, sector.and_then(|s| s.checked_mul(512)), 256)?.unwrap_or_default();
    let own_sector = u64::from_le_bytes(field(&record, 0x90));
    Ok(record.starts_with(&MD_MAGIC) && Some(own_sector) == sector)
}

/// md 0.90: 64 to 128 KiB before the end, on a multiple of 64 KiB, in the byte order of the machine that made it.
pub(crate) fn md_0_90(source: &dyn Source) -> Result<bool, ParseError> {
    let Some(at) = md_0_90_place(source.len()) else {
        return Ok(false);
    };
    let record = bytes_at(source, Some(at), 256)?.unwrap_or_default();
    let magic: [u8; 4] = field(&record, 0);
    let word = |index: usize| -> u32 {
        let bytes = field(&record, index.saturating_mul(4));
        if magic == MD_MAGIC { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    };
    let is_record = magic == MD_MAGIC || u32::from_be_bytes(magic) == 0xA92B_4EFC;
    if !is_record || word(1) != 0 {
        return Ok(false);
    }
    // The record depends on the size alone, so that of a last partition lies where the disk's would.
    let used = u64::from(word(8)).saturating_mul(1024);
    let fits = |len: u64| used <= len && len.saturating_sub(used) <= SLACK;
    Ok(fits(source.len()) || !belongs_to_a_partition(source, at)?)
}

/// What an array may leave unused at the end of a member: the record itself and the rounding to chunks, in bytes.
const SLACK: u64 = 16 << 20;

/// Where a 0.90 record of a device of `len` bytes lies.
fn md_0_90_place(len: u64) -> Option<u64> {
    (len & !0xFFFF).checked_sub(0x1_0000)
}

/// True when the table of this device has a partition whose own 0.90 record would lie at `at` too.
fn belongs_to_a_partition(source: &dyn Source, at: u64) -> Result<bool, ParseError> {
    for container in CONTAINERS {
        if !container.probe(source, 512)? {
            continue;
        }
        let table = container.read(source, 512).unwrap_or_else(|_| Table::default());
        let own = |start: u64, len: u64| md_0_90_place(len).and_then(|place| place.checked_add(start)) == Some(at);
        if table.parts.iter().any(|part| own(part.range.start(), part.range.len())) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// VIA: two bytes are no signature, so the sum of the first fifty must hold (dmraid `via.c`).
pub(super) fn via(source: &dyn Source) -> Result<bool, ParseError> {
    let sector = last_sector(source)?.unwrap_or_default();
    let sum = sector.iter().take(50).fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    let [version] = field(&sector, 2);
    let [stored] = field(&sector, 50);
    Ok(sector.starts_with(&[0x55, 0xAA]) && version <= 1 && sum == stored && stored != 0)
}

/// JMicron: "JM" and 64 words that sum up to nothing or one (dmraid `jm.c`).
pub(super) fn jmicron(source: &dyn Source) -> Result<bool, ParseError> {
    let sector = last_sector(source)?.unwrap_or_default();
    let (words, _) = sector.as_chunks::<2>();
    let sum = words.iter().take(64).fold(0_u16, |sum, word| sum.wrapping_add(u16::from_le_bytes(*word)));
    Ok(sector.starts_with(b"JM") && sum <= 1)
}

/// Adaptec HostRAID: a number at the start of the last sector and "DPTM" further in (dmraid `asr.c`).
pub(super) fn adaptec(source: &dyn Source) -> Result<bool, ParseError> {
    let sector = last_sector(source)?.unwrap_or_default();
    Ok(sector.starts_with(&[0x37, 0xFC, 0x4D, 0x1E]) && sector.windows(4).any(|word| word == b"DPTM"))
}

/// Apple software RAID: a header in the last whole 4096 bytes.
pub(super) fn apple_raid(source: &dyn Source) -> Result<bool, ParseError> {
    let at = (source.len() & !4095).checked_sub(4096);
    Ok(bytes_at(source, at, 15)?.is_some_and(|found| found == b"AppleRAIDHeader"))
}

/// ZFS: four labels of 256 KiB, two at each end. Each begins its name-value list with the pair "version".
pub(super) fn zfs(source: &dyn Source) -> Result<bool, ParseError> {
    const LABEL: u64 = 256 << 10;
    let end = source.len() & !LABEL.saturating_sub(1);
    for label in [Some(0), Some(LABEL), end.checked_sub(2 * LABEL), end.checked_sub(LABEL)] {
        let list = label.and_then(|at| at.checked_add(16 << 10));
        let found = bytes_at(source, list, 32)?.unwrap_or_default();
        // Encoding 1 (XDR), then the list's header, two sizes, the length of the first name and the name.
        if found.first() == Some(&1) && found.get(20..31) == Some(b"\0\0\0\x07version") {
            return Ok(true);
        }
    }
    Ok(false)
}
