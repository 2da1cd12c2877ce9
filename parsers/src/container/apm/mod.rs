//! The Apple partition map: block 0 describes the disk, each block from 1 on describes one partition.
//!
//! ```text
//! block 0     1             2           3
//! +---------+-------------+-----------+--------//------------------+
//! | ER      | PM the map  | PM ...    | partitions                 |
//! +---------+-------------+-----------+--------//------------------+
//! ```
//!
//! The map names everything on the disk, itself and free space too. Free space is reserved here: drivers lived in it.
//! Partitions have the number of their entry, as in Linux `block/partitions/mac.c`.

mod ondisk;

use super::kind::{APPLE_RAID, BOOT_CODE, CORE_STORAGE, Fate};
use super::{Container, Part, Table};
use crate::error::{Mismatch, ParseError};
use crate::foreign::has_bytes;
use crate::source::{Source, read_struct};
use crate::units::{ByteRange, mul};
use ondisk::{RawDriverDescriptor, RawEntry};

/// The row for [`CONTAINERS`](super::CONTAINERS).
pub struct Apm;

/// A map with more entries than this is damaged; Linux stops at 256.
const MOST_ENTRIES: u32 = 256;

impl Container for Apm {
    fn name(&self) -> &'static str {
        "apm"
    }

    fn probe(&self, source: &dyn Source, _sector_size: u64) -> Result<bool, ParseError> {
        if !has_bytes(source, 0, b"ER")? {
            return Ok(false);
        }
        Ok(unit(source)?.is_some())
    }

    fn read(&self, source: &dyn Source, sector_size: u64) -> Result<Table, ParseError> {
        let Some(unit) = unit(source)? else {
            return Err(ParseError::corrupt(512, Mismatch::new("first entry of the map", "\"PM\"", "something else")));
        };
        let mut table = Table { sector_size: unit, ..Table::default() };
        if unit != sector_size {
            table
                .warnings
                .push(format!("the map counts in blocks of {unit} bytes, the device in sectors of {sector_size}"));
        }
        table.reserved.extend(ByteRange::with_len(0, unit));
        let first: RawEntry = read_struct(source, unit)?;
        let count = first.map_entries.get();
        if count == 0 || count > MOST_ENTRIES {
            let expected = format!("1 to {MOST_ENTRIES}");
            return Err(ParseError::corrupt(unit, Mismatch::new("number of entries in the map", expected, count)));
        }
        for number in 1..=count {
            read_entry(source, unit, number, count, &mut table)?;
        }
        check_overlap(&table)?;
        Ok(table)
    }
}

/// Bytes in a block: what block 0 says, when an entry lies there; none without a map. Maps for two units at once are
/// the mark of a hybrid image, whose data has several owners.
fn unit(source: &dyn Source) -> Result<Option<u64>, ParseError> {
    let descriptor: RawDriverDescriptor = read_struct(source, 0)?;
    let unit = u64::from(descriptor.block_size.get());
    let usable = (512..=4096).contains(&unit) && unit.is_power_of_two() && has_bytes(source, unit, b"PM")?;
    Ok(usable.then_some(unit))
}

fn read_entry(source: &dyn Source, unit: u64, number: u32, count: u32, table: &mut Table) -> Result<(), ParseError> {
    let at = mul(u64::from(number), unit, "the position of an entry")?;
    let raw: RawEntry = read_struct(source, at)?;
    if &raw.signature != b"PM" || raw.map_entries.get() != count {
        let found = format!("{:?} and {} entries", raw.signature.escape_ascii().to_string(), raw.map_entries.get());
        let expected = format!("\"PM\" and {count} entries");
        return Err(ParseError::corrupt(at, Mismatch::new(format!("entry {number} of the map"), expected, found)));
    }
    let start = mul(u64::from(raw.start.get()), unit, "the start of a partition")?;
    let len = mul(u64::from(raw.count.get()), unit, "the length of a partition")?;
    let range = ByteRange::with_len(start, len).filter(|range| range.start() > 0 && range.end() <= source.len());
    let Some(range) = range else {
        let expected = format!("a range inside the device of {} bytes", source.len());
        let found = format!("{len} bytes from byte {start}");
        return Err(ParseError::corrupt(at, Mismatch::new(format!("partition {number}"), expected, found)));
    };
    let kind = text(&raw.kind);
    if kind == "Apple_Free" || kind == "Apple_Void" {
        table.reserved.push(range);
        return Ok(());
    }
    let fate = fate(&kind);
    let name = Some(text(&raw.name)).filter(|name| !name.is_empty());
    table.parts.push(Part { number, range, kind, name, kept: fate.kept(), refused: fate.refused() });
    Ok(())
}

fn fate(kind: &str) -> Fate {
    match kind {
        "Apple_partition_map" => Fate::Kept("it is the partition map itself"),
        "Apple_Patches" | "Apple_FWDriver" | "Apple_Loader" => BOOT_CODE,
        "Apple_RAID" | "Apple_RAID_Offline" | "Apple_RAID_OfflineV2" => APPLE_RAID,
        "Apple_CoreStorage" => CORE_STORAGE,
        driver if driver.starts_with("Apple_Driver") => BOOT_CODE,
        _ => Fate::Content,
    }
}

fn text(bytes: &[u8]) -> String {
    let used: Vec<u8> = bytes.iter().copied().take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&used).into_owned()
}

fn check_overlap(table: &Table) -> Result<(), ParseError> {
    let mut ranges: Vec<ByteRange> =
        table.parts.iter().map(|part| part.range).chain(table.reserved.iter().copied()).collect();
    ranges.sort_unstable();
    match ranges.iter().zip(ranges.iter().skip(1)).find(|(left, right)| left.overlaps(**right)) {
        Some((left, right)) => {
            let found = format!("{left} and {right}");
            Err(ParseError::corrupt(right.start(), Mismatch::new("entries of the map", "no overlap", found)))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
