//! The walk over the table: an entry of 0 is a free cluster, anything else is kept.
//!
//! All copies are read in step, a piece of each at a time, so that memory stays bounded and the drive sees a few long
//! streams. Entries behind the last cluster are padding that looks free: the walk ends before them.

use super::superblock::Geometry;
use super::{FatError, Kind};
use crate::error::{Mismatch, ParseError};
use crate::free_map::FreeMapBuilder;
use crate::source::{Source, read_vec};
use crate::units::{add, from_usize, mul, sub};

/// Bytes of one request; a multiple of every entry size but FAT12's, whose whole table is smaller.
const PIECE: u64 = 1 << 20;

/// What the table says.
pub(super) struct Table {
    pub map: FreeMapBuilder,
    /// Entry 1, which carries no link but flags.
    pub flags: u32,
}

/// Reads the table, comparing all copies that count.
pub(super) fn read(source: &dyn Source, geometry: &Geometry) -> Result<Table, ParseError> {
    let mut scan = Scan {
        map: FreeMapBuilder::new(geometry.grid),
        next: 0,
        count: add(geometry.grid.count(), 2, "the number of FAT entries")?,
        run: 0,
        reserved: [0; 2],
    };
    let valid = geometry.kind.fat_bytes(scan.count)?;
    let mut done = 0;
    while done < valid {
        let len = PIECE.min(sub(valid, done, "the rest of a FAT")?);
        scan.piece(geometry.kind, &read_piece(source, geometry, done, len)?)?;
        done = add(done, len, "a FAT position")?;
    }
    scan.close_run()?;
    let [first, flags] = scan.reserved;
    check_media(geometry, first)?;
    Ok(Table { map: scan.map, flags })
}

/// `len` bytes of the table from its byte `done`: the first copy, after every other copy was found equal.
fn read_piece(source: &dyn Source, geometry: &Geometry, done: u64, len: u64) -> Result<Vec<u8>, ParseError> {
    let mut copies = geometry.fats.iter();
    let first_at = *copies.next().ok_or_else(|| ParseError::inconsistent("no FAT at all"))?;
    let first = read_vec(source, add(first_at, done, "a FAT position")?, len)?;
    for copy in copies {
        let at = add(*copy, done, "a FAT position")?;
        compare(geometry.kind, &first, &read_vec(source, at, len)?, geometry, at, done)?;
    }
    Ok(first)
}

fn compare(kind: Kind, first: &[u8], other: &[u8], geometry: &Geometry, at: u64, done: u64) -> Result<(), ParseError> {
    if first == other {
        return Ok(());
    }
    let same = |(a, b): &(&u8, &u8)| a == b;
    let byte = from_usize(first.iter().zip(other).take_while(same).count());
    let differing = first.iter().zip(other).find(|pair| !same(pair)).map_or(0, |(a, b)| a ^ b);
    let entry = kind.entry_at(add(done, byte, "a FAT position")?, differing);
    if entry >= add(geometry.grid.count(), 2, "the number of FAT entries")? {
        // FAT12 with an odd number of entries: the last half byte is padding.
        return Ok(());
    }
    let at = add(at, byte, "a FAT position")?;
    Err(ParseError::corrupt(at, FatError::CopiesDiffer { cluster: entry }))
}

/// Entry 0 repeats the media byte, its upper bits are ones.
fn check_media(geometry: &Geometry, entry: u32) -> Result<(), ParseError> {
    let mask = geometry.kind.mask();
    let expected = (mask & !0xFF) | u32::from(geometry.media);
    if entry == expected {
        return Ok(());
    }
    let at = geometry.fats.first().copied().unwrap_or_default();
    Err(ParseError::corrupt(at, Mismatch::hex("the media byte in FAT entry 0", expected.into(), entry.into())))
}

/// The state of one pass over the entries in their order.
struct Scan {
    map: FreeMapBuilder,
    /// The entry that comes next.
    next: u64,
    /// Entries that mean something.
    count: u64,
    /// How many free entries end just before `next`.
    run: u64,
    /// Entries 0 and 1.
    reserved: [u32; 2],
}

impl Scan {
    fn piece(&mut self, kind: Kind, bytes: &[u8]) -> Result<(), ParseError> {
        match kind {
            Kind::Fat12 => entries_12(bytes).try_for_each(|entry| self.entry(entry)),
            Kind::Fat16 => bytes.as_chunks().0.iter().try_for_each(|b| self.entry(u16::from_le_bytes(*b).into())),
            Kind::Fat32 => {
                bytes.as_chunks().0.iter().try_for_each(|b| self.entry(u32::from_le_bytes(*b) & Kind::Fat32.mask()))
            }
        }
    }

    fn entry(&mut self, value: u32) -> Result<(), ParseError> {
        if value == 0 && (2..self.count).contains(&self.next) {
            self.run = self.run.saturating_add(1);
        } else if let Some(slot) = usize::try_from(self.next).ok().and_then(|next| self.reserved.get_mut(next)) {
            *slot = value;
        } else if self.next >= self.count {
            return Ok(());
        } else {
            self.close_run()?;
        }
        self.next = self.next.saturating_add(1);
        Ok(())
    }

    /// The free entries that end before `next` go into the map.
    fn close_run(&mut self) -> Result<(), ParseError> {
        if self.run > 0 {
            let first = sub(sub(self.next, self.run, "a free run")?, 2, "a free run")?;
            self.map.free(first, self.run)?;
            self.run = 0;
        }
        Ok(())
    }
}

/// Entries of 12 bits: three bytes hold two of them.
fn entries_12(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks(3).flat_map(|three| {
        let byte = |k: usize| u32::from(three.get(k).copied().unwrap_or_default());
        let even = byte(0) | (byte(1) & 0x0F) << 8;
        let odd = byte(1) >> 4 | byte(2) << 4;
        [Some(even), (three.len() == 3).then_some(odd)].into_iter().flatten()
    })
}

impl Kind {
    /// Bits of an entry that mean something.
    pub(super) fn mask(self) -> u32 {
        match self {
            Self::Fat12 => 0x0FFF,
            Self::Fat16 => 0xFFFF,
            // The upper four bits are reserved and may be anything.
            Self::Fat32 => 0x0FFF_FFFF,
        }
    }

    /// Bytes that `entries` entries take.
    pub(super) fn fat_bytes(self, entries: u64) -> Result<u64, ParseError> {
        let nibbles = match self {
            Self::Fat12 => 3,
            Self::Fat16 => 4,
            Self::Fat32 => 8,
        };
        Ok(mul(entries, nibbles, "the bytes of a FAT")?.div_ceil(2))
    }

    /// The first entry that has a part in the bits `differing` of a byte.
    fn entry_at(self, byte: u64, differing: u8) -> u64 {
        let nibble = byte.saturating_mul(2).saturating_add(u64::from(differing & 0x0F == 0));
        match self {
            Self::Fat12 => nibble / 3,
            Self::Fat16 => nibble / 4,
            Self::Fat32 => nibble / 8,
        }
    }
}
