//! The chain of logical partitions inside the extended one.
//!
//! Each link is a sector like the MBR. Its entry 1 is the partition, counted from the link; entry 2 the next link,
//! counted from the start of the extended partition; entries 3 and 4 are empty. The chain is followed only while it goes
//! forward, so it cannot run in a circle.

use super::sector::{Entry, Sector};
use super::{MbrError, Sectors, part};
use crate::container::Table;
use crate::error::ParseError;
use crate::source::Source;
use crate::units::ByteRange;

/// More logical partitions than this are a damaged chain; Linux itself stops at 100 links.
const MOST: usize = 128;

/// Adds the logical partitions in `extended` to `table`, and the links with the gaps behind them to its reserved areas:
/// boot managers keep code there.
pub(super) fn read(
    source: &dyn Source,
    sectors: Sectors,
    extended: &Entry,
    table: &mut Table,
) -> Result<(), ParseError> {
    let mut number: u32 = 5;
    let mut free_from = extended.start;
    let mut next = Some(extended.start);
    for _ in 0..MOST {
        let Some(at) = next else {
            return Ok(());
        };
        let wrong = |cause: MbrError| ParseError::corrupt(sectors.position(at), cause);
        if at < free_from {
            return Err(wrong(MbrError::Loop(at)));
        }
        let link = Link::read(source, sectors, at)?;
        free_from = at.saturating_add(1);
        let mut gap_end = free_from;
        if let Some(entry) = &link.partition {
            let range = inside(entry, at, free_from, extended).map_err(wrong)?;
            table.parts.push(part(number, entry.kind, sectors.bytes(range.start(), range.len())?));
            number = number.saturating_add(1);
            (gap_end, free_from) = (range.start(), range.end());
        }
        table.reserved.push(sectors.bytes(at, gap_end.saturating_sub(at))?);
        next = link
            .next
            .map(|entry| inside(&entry, extended.start, extended.start, extended))
            .transpose()
            .map_err(wrong)?
            .map(ByteRange::start);
    }
    Err(ParseError::corrupt(sectors.position(extended.start), MbrError::TooLong(MOST)))
}

/// The sectors of `entry`, which counts from `origin`: from `first` on and inside the extended partition.
fn inside(entry: &Entry, origin: u64, first: u64, extended: &Entry) -> Result<ByteRange, MbrError> {
    let start = origin.saturating_add(entry.start);
    let end = origin.saturating_add(entry.end());
    let range = ByteRange::new(start, end).filter(|_| first <= start && end <= extended.end());
    range.ok_or_else(|| {
        let expected = format!("sectors {first} to {}, inside the extended partition", extended.end());
        MbrError::Logical { start, end, expected }
    })
}

/// One link of the chain.
struct Link {
    partition: Option<Entry>,
    next: Option<Entry>,
}

impl Link {
    fn read(source: &dyn Source, sectors: Sectors, at: u64) -> Result<Self, ParseError> {
        let position = sectors.position(at);
        let wrong = |cause: MbrError| ParseError::corrupt(position, cause);
        let sector = Sector::read(source, position)?.ok_or_else(|| wrong(MbrError::NoLink))?;
        let mut link = Self { partition: None, next: None };
        for entry in sector.entries {
            let place = match (entry.slot, entry.is_extended()) {
                (1, false) if entry.kind != 0 && entry.count != 0 => &mut link.partition,
                (2, true) if entry.count != 0 => &mut link.next,
                (slot, _) => {
                    let expected = "the partition in entry 1, the next link in entry 2, and nothing else";
                    return Err(wrong(MbrError::Link { slot, kind: entry.kind, expected }));
                }
            };
            *place = Some(entry);
        }
        Ok(link)
    }
}
