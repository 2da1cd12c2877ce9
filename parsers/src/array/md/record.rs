//! What one member says of its array: raw bytes to checked facts, whatever the version.

use super::{one, zero};
use crate::error::{Mismatch, ParseError};
use crate::foreign::{has_bytes, md_0_90, md_1_0};
use crate::source::Source;
use crate::units::ByteRange;

/// The magic number in the byte order of most machines.
pub(super) const MAGIC: u32 = 0xA92B_4EFC;
/// Bytes of a sector in which md counts, whatever the device's are.
pub(super) const SECTOR: u64 = 512;

/// Where the record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// 0.90, near the end.
    V0,
    /// 1.0, at the end.
    V1End,
    /// 1.1, at the start.
    V1Start,
    /// 1.2, behind the first 4 KiB.
    V1Behind,
}

impl Version {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V0 => "0.90",
            Self::V1End => "1.0",
            Self::V1Start => "1.1",
            Self::V1Behind => "1.2",
        }
    }
}

/// What a device is in its array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duty {
    /// The member of this slot.
    Member(u32),
    Spare,
    Faulty,
    Journal,
}

/// What every member must say alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    /// As Linux numbers it; -1 is linear.
    pub level: i32,
    pub layout: u32,
    /// Bytes; 0 where the level has none.
    pub chunk: u64,
    /// Number of slots.
    pub slots: u32,
    /// Used bytes of each member; 0 for linear and RAID0.
    pub size: u64,
    /// True when the layout of a RAID0 is stated.
    pub states_layout: bool,
}

/// The record of one member.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub version: Version,
    /// As mdadm prints it.
    pub uuid: String,
    pub name: Option<String>,
    pub shape: Shape,
    /// Counts the changes of the array's state.
    pub events: u64,
    pub duty: Duty,
    /// What each slot is according to this record: true when a member in sync has it.
    pub in_sync: Vec<bool>,
    /// The bytes of the device that may hold data.
    pub data: ByteRange,
    /// Where the record itself lies.
    pub at: u64,
    /// True when nothing was being written when the array stopped.
    pub clean: bool,
    /// States in which the mapping, or the free map, does not hold; a sentence each.
    pub troubles: Vec<String>,
    /// Where the write-intent bitmap lies.
    pub bitmap: Option<u64>,
}

impl Record {
    /// Reads the record; an error when there is none, or more than one.
    pub(super) fn read(source: &dyn Source) -> Result<Self, ParseError> {
        let record = match places(source)?.as_slice() {
            [(Version::V0, at)] => zero::read(source, *at),
            [(version, at)] => one::read(source, *version, *at),
            several => {
                let names: Vec<&str> = several.iter().map(|(version, _)| version.name()).collect();
                Err(ParseError::inconsistent(Mismatch::new(
                    "records of arrays on one member",
                    "one",
                    format!("{} (versions {})", names.len(), names.join(" and ")),
                )))
            }
        }?;
        record.keeps_apart()
    }

    /// The record, if neither it nor the bitmap lies where data may be.
    fn keeps_apart(self) -> Result<Self, ParseError> {
        let records = [Some(self.at), self.bitmap].into_iter().flatten();
        let mut areas = records.filter_map(|at| ByteRange::with_len(at, 4096));
        if areas.any(|area| area.overlaps(self.data)) {
            let found = format!("data in {}", self.data);
            return Err(ParseError::corrupt(
                self.at,
                Mismatch::new("the data's place", "apart from the records", found),
            ));
        }
        Ok(self)
    }
}

/// Every record that is there.
pub(super) fn places(source: &dyn Source) -> Result<Vec<(Version, u64)>, ParseError> {
    let magic = [MAGIC.to_le_bytes(), 1_u32.to_le_bytes()].concat();
    let sectors = source.len() >> 9_u32;
    let mut found = Vec::new();
    if md_0_90(source)? {
        found.extend((source.len() & !0xFFFF).checked_sub(0x1_0000).map(|at| (Version::V0, at)));
    }
    if md_1_0(source)? {
        let at = sectors.checked_sub(16).and_then(|sector| (sector & !7).checked_mul(SECTOR));
        found.extend(at.map(|at| (Version::V1End, at)));
    }
    if has_bytes(source, 0, &magic)? {
        found.push((Version::V1Start, 0));
    }
    if has_bytes(source, 4096, &magic)? {
        found.push((Version::V1Behind, 4096));
    }
    Ok(found)
}

/// Four groups of eight digits, as mdadm prints an identity.
pub(super) fn uuid(words: [u32; 4]) -> String {
    words.map(|word| format!("{word:08x}")).join(":")
}

/// The bytes `start..start + len`, given in sectors, if they are on the device.
pub(super) fn sectors(source: &dyn Source, at: u64, start: u64, len: u64) -> Result<ByteRange, ParseError> {
    let range = start
        .checked_mul(SECTOR)
        .and_then(|start| ByteRange::with_len(start, len.checked_mul(SECTOR)?))
        .filter(|range| range.end() <= source.len());
    range.ok_or_else(|| {
        ParseError::corrupt(
            at,
            Mismatch::new(
                "the place of the data",
                format!("sectors of a device of {} bytes", source.len()),
                format!("{len} sectors from sector {start}"),
            ),
        )
    })
}
