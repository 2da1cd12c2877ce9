//! The partition table of the PC: four entries in sector 0, one of which may hold a chain of further ones.
//!
//! ```text
//! sector 0                                  extended partition
//! +-----------+----+----+----+----+-------+ +-----+-----------+-----+-----------+
//! | boot code | p1 | p2 | p3 | p4 | 55 AA | | EBR | logical 5 | EBR | logical 6 |
//! +-----------+----+----+----+----+-------+ +-----+-----------+-----+-----------+
//!                          `--type 05/0F/85--^  `-- next EBR, counted --^
//!                                                   from the extended partition
//! ```
//!
//! Two bytes are all that marks the sector, and the boot sectors of FAT and NTFS end in the same two. So flags must be
//! flags, and a sector that is a boot sector too counts as a table only when an entry could be one: a type, a start on the
//! device and a length. What else the entries say does not matter there: a table with one wrong entry beside a boot
//! sector is still somebody's, and two owners are a refusal. A table with a
//! protective entry belongs to [`gpt`](super::gpt). A table without entries is no table: a stale one survives the making
//! of many filesystems.
//!
//! Partitions are numbered as Linux numbers them (`block/partitions/msdos.c`): 1 to 4 by slot, logical ones from 5.

mod kinds;
mod logical;
mod ondisk;
pub(in crate::container) mod sector;

use super::kind::Fate;
use super::{Container, Part, Table};
use crate::error::ParseError;
use crate::source::Source;
use crate::units::{ByteRange, mul};
use sector::{Entry, Sector};

/// The row for [`CONTAINERS`](super::CONTAINERS).
pub struct Mbr;

/// What is wrong with a table.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum MbrError {
    #[error(
        "partition {number} has type {kind:#04x}, start {start} and {count} sectors: no usable partition has a zero there"
    )]
    Empty { number: u32, kind: u8, start: u64, count: u64 },
    #[error(
        "partition {number} covers sectors {start} to {end}, but the device has only {sectors} sectors of {sector_size} bytes: \
         expected a table that was made for this device and this sector size"
    )]
    OutOfBounds { number: u32, start: u64, end: u64, sectors: u64, sector_size: u64 },
    #[error("partitions {first} and {second} overlap: expected every sector in one partition at most")]
    Overlap { first: u32, second: u32 },
    #[error("partition {number} has type {kind:#04x} ({words}): expected a disk whose table says where its data lies")]
    Foreign { number: u32, kind: u8, words: &'static str },
    #[error("partitions {first} and {second} are both extended partitions: expected one at most")]
    SecondExtended { first: u32, second: u32 },
    #[error(
        "no 55 AA and four valid flags at the end of the sector: expected a link of the chain of logical partitions"
    )]
    NoLink,
    #[error("a link of the chain of logical partitions uses entry {slot} (type {kind:#04x}): expected {expected}")]
    Link { slot: u32, kind: u8, expected: &'static str },
    #[error("a logical partition lies at sectors {start} to {end}: expected {expected}")]
    Logical { start: u64, end: u64, expected: String },
    #[error("the chain of logical partitions comes back to sector {0}: expected every link farther on")]
    Loop(u64),
    #[error("more than {0} logical partitions: expected a chain that ends")]
    TooLong(usize),
}

/// The device in the unit of the table.
#[derive(Clone, Copy)]
pub(super) struct Sectors {
    /// Bytes in a sector.
    size: u64,
    /// Sectors on the device.
    count: u64,
}

impl Sectors {
    fn of(source: &dyn Source, size: u64) -> Self {
        Self { size, count: source.len().checked_div(size).unwrap_or(0) }
    }

    fn bytes(self, first: u64, count: u64) -> Result<ByteRange, ParseError> {
        let start = mul(first, self.size, "the start of a partition")?;
        let len = mul(count, self.size, "the length of a partition")?;
        ByteRange::with_len(start, len).ok_or_else(|| ParseError::corrupt(start, "an empty partition"))
    }

    fn position(self, sector: u64) -> u64 {
        sector.saturating_mul(self.size)
    }
}

impl Container for Mbr {
    fn name(&self) -> &'static str {
        "mbr"
    }

    fn probe(&self, source: &dyn Source, _sector_size: u64) -> Result<bool, ParseError> {
        let Some(table) = Sector::read(source, 0)? else {
            return Ok(false);
        };
        Ok(table.is_somebodys(source.len()) && !table.is_protective())
    }

    fn read(&self, source: &dyn Source, sector_size: u64) -> Result<Table, ParseError> {
        let sectors = Sectors::of(source, sector_size);
        let entries = Sector::read(source, 0)?.map(|table| table.entries).unwrap_or_default();
        check(&entries, sectors).map_err(|cause| ParseError::corrupt(0, cause))?;
        known_layout(&entries)?;
        let mut table = Table { sector_size, ..Table::default() };
        table.reserved.extend(ByteRange::new(0, sector_size.max(512).min(source.len())));
        for entry in entries.iter().filter(|entry| !entry.is_extended()) {
            let range = sectors.bytes(entry.start, entry.count)?;
            table.parts.push(part(entry.slot, entry.kind, range));
        }
        if let Some(extended) = entries.iter().find(|entry| entry.is_extended()) {
            logical::read(source, sectors, extended, &mut table)?;
        }
        Ok(table)
    }
}

fn part(number: u32, kind: u8, range: ByteRange) -> Part {
    let (words, fate) = kinds::meaning(kind);
    let kind = if words.is_empty() { format!("type {kind:#04x}") } else { words.to_owned() };
    Part { number, range, kind, name: None, kept: fate.kept(), refused: fate.refused() }
}

/// Entries that a working system could use: none empty by half, all on the device, none upon another.
fn check(entries: &[Entry], sectors: Sectors) -> Result<(), MbrError> {
    for (index, entry) in entries.iter().enumerate() {
        let Entry { slot: number, kind, start, count } = *entry;
        if kind == 0 || start == 0 || count == 0 {
            return Err(MbrError::Empty { number, kind, start, count });
        }
        if entry.end() > sectors.count {
            let Sectors { size: sector_size, count: sectors } = sectors;
            return Err(MbrError::OutOfBounds { number, start, end: entry.end(), sectors, sector_size });
        }
        if let Some(other) = entries.iter().skip(index.saturating_add(1)).find(|other| other.overlaps(entry)) {
            return Err(MbrError::Overlap { first: number, second: other.slot });
        }
    }
    Ok(())
}

/// Refuses tables whose entries do not say where the data lies.
fn known_layout(entries: &[Entry]) -> Result<(), ParseError> {
    for Entry { slot: number, kind, .. } in entries.iter().copied() {
        if let Some(words) = kinds::hides_the_layout(kind) {
            return Err(ParseError::unsupported(0, MbrError::Foreign { number, kind, words }));
        }
    }
    let mut extended = entries.iter().filter(|entry| entry.is_extended()).map(|entry| entry.slot);
    match (extended.next(), extended.next()) {
        (Some(first), Some(second)) => Err(ParseError::unsupported(0, MbrError::SecondExtended { first, second })),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
