//! The walk over the allocation bitmap, itself a file whose chain is followed. A clear bit is a free cluster, unless
//! the FAT calls that cluster bad.

use super::ExfatError;
use super::ondisk::{BAD, MEDIA};
use super::root::{Root, Run, bytes, chain};
use super::superblock::Geometry;
use crate::error::{Mismatch, ParseError};
use crate::free_map::{BitOrder, FreeMapBuilder};
use crate::source::{Source, read_struct, read_vec};
use crate::units::{add, from_usize, mul, sub, to_usize};
use zerocopy::little_endian::U32;

/// Bytes of the bitmap that are read at once.
const PIECE: u64 = 1 << 20;
/// Bytes of the bitmap whose clusters have their FAT entries in 1 MiB.
const GROUP: usize = 32 << 10;

/// Reads the bitmap. Returns the map and how many clusters are free by the bitmap alone.
pub(super) fn read(source: &dyn Source, geometry: &Geometry, root: &Root) -> Result<(FreeMapBuilder, u64), ParseError> {
    let media: U32 = read_struct(source, geometry.fat)?;
    if media.get() != MEDIA {
        return Err(ParseError::corrupt(geometry.fat, Mismatch::hex("FAT entry 0", MEDIA.into(), media.get().into())));
    }
    let count = geometry.grid.count();
    let (first, stated) = root.bitmap;
    let needed = count.div_ceil(8);
    if stated < needed {
        return Err(ParseError::inconsistent(Mismatch::new(
            "bytes of the bitmap",
            format!("at least {needed}"),
            stated,
        )));
    }
    let mut walk = Walk { source, geometry, map: FreeMapBuilder::new(geometry.grid), next: 0, free: 0 };
    let runs = whole_chain(source, geometry, "the allocation bitmap", first, needed)?;
    for run in &runs {
        walk.run(*run)?;
    }
    let upcase = whole_chain(source, geometry, "the up-case table", root.upcase.0, root.upcase.1)?;
    let all = [("the allocation bitmap", &runs), ("the up-case table", &upcase), ("the root directory", &root.runs)];
    for (what, runs) in all {
        for run in runs {
            walk.map.must_be_used(run.first, run.count, what)?;
        }
    }
    Ok((walk.map, walk.free))
}

/// The chain of something that has `len` bytes; a shorter chain is an error.
fn whole_chain(
    source: &dyn Source,
    geometry: &Geometry,
    what: &'static str,
    first: u32,
    len: u64,
) -> Result<Vec<Run>, ParseError> {
    let needed = len.div_ceil(geometry.grid.block().bytes());
    let runs = chain(source, geometry, what, first, needed)?;
    let found = runs.iter().fold(0_u64, |sum, run| sum.saturating_add(run.count));
    if found < needed {
        return Err(ParseError::inconsistent(ExfatError::ShortChain { what, needed, found }));
    }
    Ok(runs)
}

struct Walk<'a> {
    source: &'a dyn Source,
    geometry: &'a Geometry,
    map: FreeMapBuilder,
    /// The block that the next bit speaks of.
    next: u64,
    free: u64,
}

impl Walk<'_> {
    /// Reads the part of the bitmap that is in these clusters, as far as its bits mean something.
    fn run(&mut self, run: Run) -> Result<(), ParseError> {
        let range = bytes(self.geometry, run)?;
        let mut at = range.start();
        while at < range.end() {
            let bits = sub(self.geometry.grid.count(), self.next, "the rest of the bitmap")?;
            let len = PIECE.min(sub(range.end(), at, "the rest of a run")?).min(bits.div_ceil(8));
            if len == 0 {
                break;
            }
            self.piece(&read_vec(self.source, at, len)?)?;
            at = add(at, len, "a bitmap position")?;
        }
        Ok(())
    }

    fn piece(&mut self, bitmap: &[u8]) -> Result<(), ParseError> {
        for group in bitmap.chunks(GROUP) {
            let left = sub(self.geometry.grid.count(), self.next, "the rest of the bitmap")?;
            let count = left.min(mul(from_usize(group.len()), 8, "bits of the bitmap")?);
            let free = self.map.free_clear_bits(self.next, group, count, BitOrder::LeastFirst)?;
            if free > 0 {
                self.keep_bad(self.next, count)?;
            }
            self.free = add(self.free, free, "a count of free clusters")?;
            self.next = add(self.next, count, "a cluster")?;
        }
        Ok(())
    }

    /// A bad cluster should be marked in the bitmap as well; it is kept if it is not.
    fn keep_bad(&mut self, first: u64, count: u64) -> Result<(), ParseError> {
        let entry = add(first, 2, "a FAT entry")?;
        let at = add(self.geometry.fat, mul(entry, 4, "a FAT position")?, "a FAT position")?;
        let table = read_vec(self.source, at, mul(count, 4, "a part of the FAT")?)?;
        let entries = table.get(..to_usize(mul(count, 4, "a part of the FAT")?, "a part of the FAT")?);
        let bad = BAD.to_le_bytes();
        for (entry, block) in entries.unwrap_or_default().as_chunks::<4>().0.iter().zip(first..) {
            if *entry == bad {
                self.map.keep(block, 1)?;
            }
        }
        Ok(())
    }
}
