//! The GUID partition table: two copies, at both ends of the disk, each under checksums.
//!
//! ```text
//! LBA 0      1        2 ..         first usable       last usable                      last
//! +--------+--------+------------+--------------//---------------+------------+--------+
//! | MBR EE | header | entries    | partitions                    | entries    | header |
//! +--------+--------+------------+--------------//---------------+------------+--------+
//!            `-- alternate LBA -------------------------------------------------^
//! ```
//!
//! All positions are in the logical sectors of the time when the table was made. Through another USB bridge the same disk
//! may show other sectors; the table's own unit is told by the byte position of the header of LBA 1.
//!
//! Half a table is no table: a disk that is being repartitioned, or was with a tool that knew one copy only, has two
//! opinions about where its data lies. So both copies must be there, hold their checksums, and say the same.

mod copy;
mod kinds;
mod ondisk;

use super::mbr::sector::Sector;
use super::{Container, Part, Table};
use crate::error::ParseError;
use crate::foreign::has_bytes;
use crate::source::Source;
use crate::units::{ByteRange, add, mul, sub};
use copy::Copy;
use ondisk::{RawEntry, SIGNATURE};
use zerocopy::FromBytes;

/// The row for [`CONTAINERS`](super::CONTAINERS).
pub struct Gpt;

/// What is wrong with a table.
#[derive(Debug, thiserror::Error)]
pub(super) enum GptError {
    #[error("no signature \"EFI PART\": expected a header there")]
    NoSignature,
    #[error("the protective MBR promises a GPT, but no header was found at either end of the device")]
    NoHeader,
    #[error(
        "the first copy of the GPT is missing, only the one at the end of the device was found. If it is the right one, \
         rebuild the first with gdisk (r, b, c, w); if it is a leftover, erase it with wipefs"
    )]
    OnlyBackup,
    #[error(
        "GPT headers were found for sectors of {0} and of {1} bytes: expected one table. One is a leftover of another USB bridge"
    )]
    TwoUnits(u64, u64),
    #[error(
        "no protective MBR: expected an entry of type 0xEE that starts at sector 1. Without it other systems see other partitions, or none"
    )]
    NotProtected,
    #[error("partition {slot} of the hybrid MBR (sectors {start} to {end}) is not a partition of the GPT")]
    Hybrid { slot: u32, start: u64, end: u64 },
    #[error(
        "the second copy of the GPT cannot be used: {0}. Repair it with gdisk (v tells more, w writes both copies)"
    )]
    Backup(#[source] ParseError),
    #[error(
        "the two copies of the GPT have different {0}: expected the same. The disk may be half repartitioned; gdisk DEVICE shows both (r, c)"
    )]
    Differ(&'static str),
    #[error("the second copy of the GPT names LBA {found} as the place of the first: expected 1")]
    NotMutual { found: u64 },
    #[error(
        "another GPT header lies at the end of the device, but the table names LBA {named} for its second copy: expected one table"
    )]
    Stray { named: u64 },
    #[error("usable LBAs {first} to {last}: expected an area between the two copies, on a device of {count} LBAs")]
    Usable { first: u64, last: u64, count: u64 },
    #[error(
        "partition {number} has LBAs {first} to {last}: expected a range inside the usable LBAs {usable_first} to {usable_last}"
    )]
    OutOfBounds { number: u32, first: u64, last: u64, usable_first: u64, usable_last: u64 },
    #[error("partitions {first} and {second} overlap: expected every LBA in one partition at most")]
    Overlap { first: u32, second: u32 },
}

impl Container for Gpt {
    fn name(&self) -> &'static str {
        "gpt"
    }

    fn probe(&self, source: &dyn Source, _sector_size: u64) -> Result<bool, ParseError> {
        let promises = |mbr: &Sector| mbr.is_protective() && mbr.is_somebodys(source.len());
        let promised = Sector::read(source, 0)?.as_ref().is_some_and(promises);
        Ok(promised || !units_at_start(source)?.is_empty() || !headers_at_end(source)?.is_empty())
    }

    fn read(&self, source: &dyn Source, sector_size: u64) -> Result<Table, ParseError> {
        let unit = unit(source)?;
        let primary = Copy::read(source, unit, 1)?;
        let backup_at = mul(primary.alternate_lba, unit, "the position of the second header")?;
        let backup = Copy::read(source, unit, primary.alternate_lba)
            .map_err(|cause| ParseError::corrupt(backup_at, GptError::Backup(cause)))?;
        if let Some(what) = primary.difference(&backup) {
            return Err(ParseError::corrupt(backup_at, GptError::Differ(what)));
        }
        if backup.alternate_lba != 1 {
            return Err(ParseError::corrupt(backup_at, GptError::NotMutual { found: backup.alternate_lba }));
        }
        let named = primary.alternate_lba;
        if let Some(stray) = headers_at_end(source)?.into_iter().find(|at| *at != backup_at) {
            return Err(ParseError::corrupt(stray, GptError::Stray { named }));
        }
        let count = source.len().checked_div(unit).unwrap_or(0);
        check_usable(&primary, &backup, unit, count)?;
        let parts = entries(&primary, unit)?;
        check_mbr(source, unit, &parts)?;
        Ok(Table {
            sector_size: unit,
            parts: kinds::with_verity(parts),
            reserved: reserved(&primary, unit, source.len())?,
            warnings: warnings(unit, sector_size, named, count),
        })
    }
}

/// Sizes of a logical sector that a table may have been made for, in bytes.
const UNITS: [u64; 4] = [512, 1024, 2048, 4096];

/// The units whose LBA 1 carries a header.
fn units_at_start(source: &dyn Source) -> Result<Vec<u64>, ParseError> {
    let mut found = Vec::new();
    for unit in UNITS {
        if has_bytes(source, unit, SIGNATURE)? {
            found.push(unit);
        }
    }
    Ok(found)
}

/// Positions of headers in what is the last sector in some unit, in bytes.
fn headers_at_end(source: &dyn Source) -> Result<Vec<u64>, ParseError> {
    let mut found = Vec::new();
    for unit in UNITS {
        let count = source.len().checked_div(unit).unwrap_or(0);
        let at = count.saturating_sub(1).saturating_mul(unit);
        if at > unit && !found.contains(&at) && has_bytes(source, at, SIGNATURE)? {
            found.push(at);
        }
    }
    Ok(found)
}

/// Bytes in an LBA, told by where the first header lies.
fn unit(source: &dyn Source) -> Result<u64, ParseError> {
    match units_at_start(source)?.as_slice() {
        [unit] => Ok(*unit),
        [first, second, ..] => Err(ParseError::corrupt(*second, GptError::TwoUnits(*first, *second))),
        [] => Err(match headers_at_end(source)?.first() {
            Some(at) => ParseError::corrupt(*at, GptError::OnlyBackup),
            None => ParseError::corrupt(0, GptError::NoHeader),
        }),
    }
}

/// Both arrays must lie outside the usable area, and that between the two headers.
fn check_usable(primary: &Copy, backup: &Copy, unit: u64, count: u64) -> Result<(), ParseError> {
    let (first, last) = primary.usable;
    let outside = |(start, end): (u64, u64)| end <= first || start > last;
    let holds = first > 1
        && first <= last
        && last < primary.alternate_lba
        && primary.alternate_lba < count
        && outside(primary.array)
        && outside(backup.array);
    if holds { Ok(()) } else { Err(ParseError::corrupt(unit, GptError::Usable { first, last, count })) }
}

/// The partitions.
fn entries(table: &Copy, unit: u64) -> Result<Vec<Part>, ParseError> {
    let mut parts = Vec::new();
    for (number, bytes) in (1..).zip(table.entries.chunks_exact(table.entry_size)) {
        let Ok((raw, _)) = RawEntry::read_from_prefix(bytes) else {
            continue; // no entry is shorter than the structure
        };
        if raw.partition_type_guid == [0; 16] {
            continue;
        }
        let (first, last) = (raw.starting_lba.get(), raw.ending_lba.get());
        let (usable_first, usable_last) = table.usable;
        if first < usable_first || last > usable_last || first > last {
            let cause = GptError::OutOfBounds { number, first, last, usable_first, usable_last };
            return Err(ParseError::corrupt(mul(table.array.0, unit, "the position of the entries")?, cause));
        }
        parts.push(part(number, &raw, unit)?);
    }
    check_overlap(&parts)?;
    Ok(parts)
}

fn part(number: u32, raw: &RawEntry, unit: u64) -> Result<Part, ParseError> {
    let start = mul(raw.starting_lba.get(), unit, "the start of a partition")?;
    let lbas = sub(raw.ending_lba.get(), raw.starting_lba.get(), "the length of a partition")?;
    let len = mul(add(lbas, 1, "the length of a partition")?, unit, "the length of a partition")?;
    let range = ByteRange::with_len(start, len).ok_or_else(|| ParseError::corrupt(start, "an empty partition"))?;
    let (kind, fate) = kinds::meaning(&raw.partition_type_guid);
    Ok(Part { number, range, kind, name: name(&raw.partition_name), kept: fate.kept(), refused: fate.refused() })
}

fn name(bytes: &[u8; 72]) -> Option<String> {
    let (pairs, _) = bytes.as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().map(|pair| u16::from_le_bytes(*pair)).take_while(|unit| *unit != 0).collect();
    (!units.is_empty()).then(|| String::from_utf16_lossy(&units))
}

fn check_overlap(parts: &[Part]) -> Result<(), ParseError> {
    let mut sorted: Vec<&Part> = parts.iter().collect();
    sorted.sort_by_key(|part| part.range);
    for (left, right) in sorted.iter().zip(sorted.iter().skip(1)) {
        if left.range.overlaps(right.range) {
            let cause = GptError::Overlap { first: left.number, second: right.number };
            return Err(ParseError::corrupt(right.range.start(), cause));
        }
    }
    Ok(())
}

/// The MBR must protect the table, and every other partition that it names must be one of the table's.
fn check_mbr(source: &dyn Source, unit: u64, parts: &[Part]) -> Result<(), ParseError> {
    let entries = Sector::read(source, 0)?.map(|mbr| mbr.entries).unwrap_or_default();
    if !entries.iter().any(|entry| entry.kind == 0xEE && entry.start == 1) {
        return Err(ParseError::corrupt(0, GptError::NotProtected));
    }
    for entry in entries.iter().filter(|entry| entry.kind != 0xEE) {
        let range = ByteRange::new(entry.start.saturating_mul(unit), entry.end().saturating_mul(unit));
        if !parts.iter().any(|part| Some(part.range) == range) {
            let cause = GptError::Hybrid { slot: entry.slot, start: entry.start, end: entry.end() };
            return Err(ParseError::corrupt(0, cause));
        }
    }
    Ok(())
}

/// Everything before the first and behind the last usable LBA, and the two arrays wherever they lie.
fn reserved(table: &Copy, unit: u64, len: u64) -> Result<Vec<ByteRange>, ParseError> {
    let (first, last) = table.usable;
    let start = mul(first, unit, "the first usable byte")?;
    let end = mul(add(last, 1, "the end of the usable area")?, unit, "the end of the usable area")?;
    Ok([ByteRange::new(0, start), ByteRange::new(end, len)].into_iter().flatten().collect())
}

fn warnings(unit: u64, sector_size: u64, named: u64, count: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    if unit != sector_size {
        warnings.push(format!(
            "the GPT counts in sectors of {unit} bytes, the device in sectors of {sector_size}: it was made through \
             another controller or bridge, and Linux sees no partitions here"
        ));
    }
    if named.checked_add(1) != Some(count) {
        warnings.push(format!(
            "the second copy of the GPT lies at LBA {named}, not at the last one: the disk has grown or is a copy \
             (sgdisk --move-second-header DEVICE moves it)"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests;
