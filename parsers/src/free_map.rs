//! The free map: which bytes of a source its filesystem calls free. There is one way to make one, and it starts with
//! everything used.

use crate::error::{Mismatch, ParseError};
use crate::units::{BlockSize, ByteRange, Overflow, add};

/// The allocation units that a filesystem's free-space records speak of: `count` blocks, the first at byte `origin`
/// of the source. Bytes outside are never free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Grid {
    origin: u64,
    block: BlockSize,
    count: u64,
}

impl Grid {
    /// A grid whose end is a valid byte position.
    pub fn new(origin: u64, block: BlockSize, count: u64) -> Result<Self, Overflow> {
        add(origin, block.to_bytes(count)?, "the end of the last block")?;
        Ok(Self { origin, block, count })
    }

    /// Byte position of block 0.
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// Size of a block.
    pub fn block(&self) -> BlockSize {
        self.block
    }

    /// Number of blocks.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The byte behind the last block.
    pub fn end(&self) -> u64 {
        self.block.to_bytes(self.count).map_or(self.origin, |len| self.origin.saturating_add(len))
    }

    /// Bytes of the blocks `first..first + count`; an error names blocks outside the grid.
    fn bytes(&self, run: Run) -> Result<ByteRange, ParseError> {
        let end = add(run.first, run.count, "the end of a run of blocks")?;
        if end > self.count {
            return Err(ParseError::corrupt(
                self.end(),
                Mismatch::new(
                    "a run of blocks",
                    format!("at most block {}", self.count),
                    format!("blocks up to {end}"),
                ),
            ));
        }
        let start = add(self.origin, self.block.to_bytes(run.first)?, "a block position")?;
        let range = ByteRange::with_len(start, self.block.to_bytes(run.count)?);
        range.ok_or_else(|| Overflow("an empty run of blocks").into())
    }
}

/// `count` blocks from block `first`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    first: u64,
    count: u64,
}

impl Run {
    fn end(self) -> u64 {
        self.first.saturating_add(self.count)
    }

    /// What is left of this run when `hole` is taken out: a part before and a part behind.
    fn without(self, hole: Run) -> [Run; 2] {
        let before = Run { first: self.first, count: self.end().min(hole.first).saturating_sub(self.first) };
        let behind = self.first.max(hole.end());
        [before, Run { first: behind, count: self.end().saturating_sub(behind) }]
    }
}

/// How many blocks the filesystem itself says are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeclaredFree {
    /// A counter that is kept exact: a difference means that the map or the volume is wrong.
    Exact(u64),
    /// A counter that may lag behind (FAT's FSInfo): a difference is only a warning.
    Hint(u64),
    /// No counter.
    Unknown,
}

/// The order of the bits in a bitmap byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitOrder {
    /// Block k is mask `1 << (k % 8)`.
    LeastFirst,
    /// Block k is mask `0x80 >> (k % 8)`.
    MostFirst,
}

/// Collects what is free. Everything is used until a call says otherwise.
#[derive(Debug)]
pub struct FreeMapBuilder {
    grid: Grid,
    free: Vec<Run>,
    keep: Vec<Run>,
    witnessed: Vec<(Run, &'static str)>,
}

impl FreeMapBuilder {
    /// A map in which every block is used.
    pub fn new(grid: Grid) -> Self {
        Self { grid, free: Vec::new(), keep: Vec::new(), witnessed: Vec::new() }
    }

    /// Blocks that the allocation structure calls free. Calls may come in any order, but a block may be named once.
    pub fn free(&mut self, first: u64, count: u64) -> Result<(), ParseError> {
        if count == 0 {
            return Ok(());
        }
        self.grid.bytes(Run { first, count })?;
        match self.free.last_mut() {
            Some(last) if last.end() == first => last.count = last.count.saturating_add(count),
            _ => self.free.push(Run { first, count }),
        }
        Ok(())
    }

    /// The clear bits among the first `count` bits of `bitmap`, whose bit 0 is block `first`. A bitmap that is too
    /// short is an error. Returns how many bits were clear.
    pub fn free_clear_bits(
        &mut self,
        first: u64,
        bitmap: &[u8],
        count: u64,
        order: BitOrder,
    ) -> Result<u64, ParseError> {
        let mut cleared: u64 = 0;
        let mut run: Option<Run> = None;
        for (start, len, free) in bit_runs(bitmap, count, order)? {
            if !free {
                continue;
            }
            cleared = add(cleared, len, "a count of free blocks")?;
            let block = add(first, start, "a block number")?;
            run = match run {
                Some(open) if open.end() == block => Some(Run { count: open.count.saturating_add(len), ..open }),
                done => {
                    self.free_run(done)?;
                    Some(Run { first: block, count: len })
                }
            };
        }
        self.free_run(run)?;
        Ok(cleared)
    }

    fn free_run(&mut self, run: Option<Run>) -> Result<(), ParseError> {
        run.map_or(Ok(()), |run| self.free(run.first, run.count))
    }

    /// Blocks that are used whatever the allocation structure says, because the format leaves them out of it.
    pub fn keep(&mut self, first: u64, count: u64) -> Result<(), ParseError> {
        if count > 0 {
            self.grid.bytes(Run { first, count })?;
            self.keep.push(Run { first, count });
        }
        Ok(())
    }

    /// Blocks that the allocation structure must call used (`what` lives there). If one is free the structure was
    /// misread or is damaged: [`finish`](Self::finish) fails.
    pub fn must_be_used(&mut self, first: u64, count: u64, what: &'static str) -> Result<(), ParseError> {
        if count > 0 {
            self.grid.bytes(Run { first, count })?;
            self.witnessed.push((Run { first, count }, what));
        }
        Ok(())
    }

    /// The finished map, compared with the filesystem's own count of free blocks (after [`keep`](Self::keep)).
    pub fn finish(mut self, declared: DeclaredFree) -> Result<FreeMap, ParseError> {
        self.free.sort_unstable();
        let merged = merge(&self.grid, &self.free)?;
        self.check_used(&merged)?;
        self.keep.sort_unstable();
        let runs = subtract(merged, &self.keep);
        let blocks = runs.iter().fold(0_u64, |sum, run| sum.saturating_add(run.count));
        let warning = compare(blocks, declared)?;
        let ranges = runs.iter().map(|run| self.grid.bytes(*run)).collect::<Result<_, _>>()?;
        Ok(FreeMap { grid: self.grid, ranges, warning })
    }

    fn check_used(&self, free: &[Run]) -> Result<(), ParseError> {
        for (run, what) in &self.witnessed {
            let next = free.partition_point(|f| f.end() <= run.first);
            if free.get(next).is_some_and(|f| f.first < run.end()) {
                let at = self.grid.bytes(*run)?.start();
                return Err(ParseError::corrupt(at, Mismatch::new(*what, "marked used", "free in the allocation map")));
            }
        }
        Ok(())
    }
}

/// Sorted runs, neighbours merged; two runs that share a block are an error.
fn merge(grid: &Grid, sorted: &[Run]) -> Result<Vec<Run>, ParseError> {
    let mut merged: Vec<Run> = Vec::new();
    for run in sorted {
        match merged.last_mut() {
            Some(last) if run.first < last.end() => {
                let at = grid.bytes(*run)?.start();
                return Err(ParseError::corrupt(at, Mismatch::new("free space", "every block once", "a block twice")));
            }
            Some(last) if run.first == last.end() => last.count = last.count.saturating_add(run.count),
            _ => merged.push(*run),
        }
    }
    Ok(merged)
}

/// `runs` without `holes`; both sorted, holes may overlap each other.
fn subtract(runs: Vec<Run>, holes: &[Run]) -> Vec<Run> {
    let mut left = Vec::with_capacity(runs.len());
    let mut holes = holes.iter().peekable();
    for run in runs {
        let mut rest = run;
        while holes.next_if(|hole| hole.end() <= rest.first).is_some() {}
        for hole in holes.clone().take_while(|hole| hole.first < run.end()) {
            let [before, behind] = rest.without(*hole);
            if before.count > 0 {
                left.push(before);
            }
            rest = behind;
        }
        if rest.count > 0 {
            left.push(rest);
        }
    }
    left
}

fn compare(found: u64, declared: DeclaredFree) -> Result<Option<String>, ParseError> {
    match declared {
        DeclaredFree::Exact(count) if count != found => {
            Err(ParseError::inconsistent(Mismatch::new("number of free blocks", count, found)))
        }
        DeclaredFree::Hint(count) if count != found => {
            Ok(Some(format!("the volume's own hint says {count} free blocks, its allocation map says {found}")))
        }
        _ => Ok(None),
    }
}

/// The first `count` bits of `bitmap` as runs `(start, length, clear)`, whole bytes at a time.
fn bit_runs(bitmap: &[u8], count: u64, order: BitOrder) -> Result<impl Iterator<Item = (u64, u64, bool)>, ParseError> {
    let bytes = crate::units::to_usize(count.div_ceil(8), "a bitmap length")?;
    let bitmap = bitmap.get(..bytes).ok_or(Overflow("a bitmap that is shorter than its blocks"))?;
    Ok((0_u64..).zip(bitmap).flat_map(move |(index, byte)| {
        let start = index.saturating_mul(8);
        let bits = count.saturating_sub(start).min(8);
        byte_runs(*byte, bits, order)
            .into_iter()
            .flatten()
            .map(move |(at, len, clear)| (start.saturating_add(at), len, clear))
    }))
}

/// At most eight runs in one byte of which `bits` bits count. Uniform bytes, nearly all of a large map, are one run.
fn byte_runs(byte: u8, bits: u64, order: BitOrder) -> [Option<(u64, u64, bool)>; 8] {
    let mut runs = [None; 8];
    if byte == 0 || byte == 0xFF {
        runs[0] = Some((0, bits, byte == 0));
        return runs;
    }
    let byte = match order {
        BitOrder::LeastFirst => byte,
        BitOrder::MostFirst => byte.reverse_bits(),
    };
    for (slot, bit) in runs.iter_mut().zip(0_u64..bits) {
        *slot = Some((bit, 1, byte & 1_u8.checked_shl(u32::try_from(bit).unwrap_or(0)).unwrap_or(0) == 0));
    }
    runs
}

/// The free bytes of a source: sorted, disjoint, merged ranges of whole blocks of a [`Grid`].
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "RawFreeMap")]
pub struct FreeMap {
    grid: Grid,
    ranges: Vec<ByteRange>,
    warning: Option<String>,
}

impl FreeMap {
    /// A map of `grid` in which nothing is free.
    pub fn nothing(grid: Grid) -> Self {
        Self { grid, ranges: Vec::new(), warning: None }
    }

    /// The blocks that the map speaks of.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// Free ranges in bytes from the start of the source.
    pub fn ranges(&self) -> &[ByteRange] {
        &self.ranges
    }

    /// Sum of the free ranges in bytes.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().fold(0, |sum, range| sum.saturating_add(range.len()))
    }

    /// What a [`DeclaredFree::Hint`] had to say.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// A free range that shares a byte with `range`.
    pub fn clash(&self, range: ByteRange) -> Option<ByteRange> {
        let next = self.ranges.partition_point(|free| free.end() <= range.start());
        self.ranges.get(next).copied().filter(|free| free.overlaps(range))
    }
}

/// A map as it comes from elsewhere, before anything about it is believed.
#[derive(serde::Deserialize)]
struct RawFreeMap {
    grid: Grid,
    ranges: Vec<ByteRange>,
    warning: Option<String>,
}

impl TryFrom<RawFreeMap> for FreeMap {
    type Error = ParseError;

    /// Rebuilds the map from nothing, so that a map from another process keeps every promise of this type.
    fn try_from(raw: RawFreeMap) -> Result<Self, ParseError> {
        let grid = Grid::new(raw.grid.origin, raw.grid.block, raw.grid.count)?;
        let mut builder = FreeMapBuilder::new(grid);
        for range in &raw.ranges {
            let from_origin = range.shift_down(grid.origin).ok_or(Overflow("a free range before block 0"))?;
            let aligned = from_origin.round_inwards(grid.block.bytes(), 0);
            if aligned != Some(from_origin) {
                return Err(Overflow("a free range that is not made of whole blocks").into());
            }
            builder.free(grid.block.whole_blocks(from_origin.start()), grid.block.whole_blocks(from_origin.len()))?;
        }
        let map = builder.finish(DeclaredFree::Unknown)?;
        if map.ranges != raw.ranges {
            return Err(Overflow("free ranges that are not sorted and merged").into());
        }
        Ok(Self { warning: raw.warning, ..map })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grid(count: u64) -> Grid {
        Grid::new(1000, BlockSize::new(512).unwrap(), count).unwrap()
    }

    /// The map as one bool a block, which no clever code can get wrong.
    fn as_bits(map: &FreeMap) -> Vec<bool> {
        (0..map.grid().count())
            .map(|k| map.clash(ByteRange::with_len(1000 + k * 512, 512).unwrap()).is_some())
            .collect()
    }

    #[test]
    fn everything_is_used_at_first() {
        assert_eq!(FreeMapBuilder::new(grid(10)).finish(DeclaredFree::Exact(0)).unwrap().ranges(), []);
    }

    #[test]
    fn blocks_outside_the_grid_are_an_error() {
        assert!(FreeMapBuilder::new(grid(10)).free(9, 2).is_err());
        assert!(FreeMapBuilder::new(grid(10)).free(u64::MAX, 2).is_err());
    }

    #[test]
    fn a_block_that_is_free_twice_is_an_error() {
        let mut builder = FreeMapBuilder::new(grid(10));
        builder.free(4, 3).unwrap();
        builder.free(2, 3).unwrap();
        assert!(builder.finish(DeclaredFree::Unknown).is_err());
    }

    #[test]
    fn a_free_metadata_block_is_an_error() {
        let mut builder = FreeMapBuilder::new(grid(10));
        builder.free(4, 3).unwrap();
        builder.must_be_used(6, 1, "the root directory").unwrap();
        let error = builder.finish(DeclaredFree::Unknown).unwrap_err();
        assert!(error.to_string().contains("the root directory"), "{error}");
    }

    #[test]
    fn a_wrong_exact_count_is_an_error_and_a_wrong_hint_a_warning() {
        let mut builder = FreeMapBuilder::new(grid(10));
        builder.free(4, 3).unwrap();
        assert!(builder.finish(DeclaredFree::Exact(2)).is_err());
        let mut builder = FreeMapBuilder::new(grid(10));
        builder.free(4, 3).unwrap();
        assert!(builder.finish(DeclaredFree::Hint(2)).unwrap().warning().is_some());
    }

    #[test]
    fn a_map_from_elsewhere_is_checked() {
        let unsorted = RawFreeMap {
            grid: grid(10),
            ranges: vec![ByteRange::with_len(1512, 512).unwrap(), ByteRange::with_len(1000, 512).unwrap()],
            warning: None,
        };
        assert!(FreeMap::try_from(unsorted).is_err());
        let unaligned =
            RawFreeMap { grid: grid(10), ranges: vec![ByteRange::with_len(1001, 512).unwrap()], warning: None };
        assert!(FreeMap::try_from(unaligned).is_err());
        let outside =
            RawFreeMap { grid: grid(1), ranges: vec![ByteRange::with_len(1512, 512).unwrap()], warning: None };
        assert!(FreeMap::try_from(outside).is_err());
    }

    proptest! {
        #[test]
        fn bitmaps_equal_a_plain_loop(bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(255u8), any::<u8>()], 0..40),
                                      cut in 0u64..8, most_first in any::<bool>()) {
            let count = (bytes.len() as u64 * 8).saturating_sub(cut);
            let order = if most_first { BitOrder::MostFirst } else { BitOrder::LeastFirst };
            let expected: Vec<bool> = (0..count).map(|k| {
                let byte = bytes[(k / 8) as usize];
                let mask = if most_first { 0x80 >> (k % 8) } else { 1 << (k % 8) };
                byte & mask == 0
            }).collect();
            let mut builder = FreeMapBuilder::new(grid(count));
            let cleared = builder.free_clear_bits(0, &bytes, count, order).unwrap();
            let map = builder.finish(DeclaredFree::Exact(cleared)).unwrap();
            prop_assert_eq!(cleared as usize, expected.iter().filter(|b| **b).count());
            prop_assert_eq!(as_bits(&map), expected);
        }

        #[test]
        fn free_minus_keep_equals_a_bit_vector(cuts in prop::collection::vec((0u64..60, 1u64..9), 0..12),
                                               keeps in prop::collection::vec((0u64..60, 1u64..9), 0..12)) {
            let mut bits = vec![false; 70];
            let mut builder = FreeMapBuilder::new(grid(70));
            for (first, count) in cuts {
                if (first..first + count).any(|k| bits[k as usize]) { continue; }
                (first..first + count).for_each(|k| bits[k as usize] = true);
                builder.free(first, count).unwrap();
            }
            for (first, count) in keeps {
                (first..first + count).for_each(|k| bits[k as usize] = false);
                builder.keep(first, count).unwrap();
            }
            let map = builder.finish(DeclaredFree::Unknown).unwrap();
            prop_assert_eq!(as_bits(&map), bits);
            prop_assert!(map.ranges().windows(2).all(|w| w[0].end() < w[1].start()));
        }
    }
}
