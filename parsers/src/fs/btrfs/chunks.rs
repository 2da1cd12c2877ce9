//! Chunks: what logical space is made of, and where it lies on the devices.

use super::error::{equal, head, unhandled, wrong};
use super::ondisk::{CHUNK_OBJECT, Key, RawChunk, RawKey, RawStripe, STRIPE, kind};
use super::superblock::{MOUNTED, Superblock};
use crate::error::ParseError;
use crate::units::{ByteRange, add, div, mul, rem, sub, to_usize};
use zerocopy::FromBytes;

/// Data, system, metadata.
const PURPOSES: u64 = 1 | 2 | 4;
const RAID5: u64 = 0x80;
const RAID6: u64 = 0x100;

/// Bits of the profiles, and how many copies of each byte they keep.
#[rustfmt::skip] // a row a line
const PROFILES: &[(u64, u64, Layout)] = &[
    (0, 1, Layout::Plain),
    (0x08, 1, Layout::Striped), // RAID0
    (0x10, 2, Layout::Plain), // RAID1
    (0x20, 2, Layout::Plain), // DUP
    (0x40, 2, Layout::Striped), // RAID10
    (0x200, 3, Layout::Plain), // RAID1C3
    (0x400, 4, Layout::Plain), // RAID1C4
];

/// How stripes make up a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Each stripe is a copy of the whole.
    Plain,
    /// The bytes go round the stripes (or groups of copies) in steps of [`STRIPE`].
    Striped,
}

/// A part of a chunk on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stripe {
    pub device: u64,
    pub offset: u64,
}

/// A range of logical space and its places on the devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    pub range: ByteRange,
    /// Purpose and profile.
    pub flags: u64,
    /// Copies of each byte.
    copies: u64,
    /// How many stripes (or groups of copies) share the bytes: 1 unless striped.
    columns: u64,
    pub stripes: Vec<Stripe>,
}

impl Chunk {
    /// The chunk with key `key` in `data`, which came from byte `at`.
    pub fn new(key: Key, data: &[u8], at: u64) -> Result<Self, ParseError> {
        let raw: RawChunk = head(data, at, "a chunk")?;
        let range = ByteRange::with_len(key.offset, raw.len.get());
        let range = range.ok_or_else(|| wrong(at, "length of a chunk", "more than 0 bytes", raw.len.get()))?;
        let flags = raw.flags.get();
        let (copies, layout) = profile(flags, at)?;
        equal(at, "stripe length of a chunk", STRIPE, raw.stripe_len.get())?;
        let stripes = stripes(data, raw.stripes.get().into(), at)?;
        let count = u64::from(raw.stripes.get());
        let columns = div(count, copies, "columns of a chunk")?;
        let is_right = match layout {
            Layout::Plain => count == copies,
            Layout::Striped => columns > 0 && rem(count, copies, "stripes of a chunk")? == 0,
        };
        if !is_right {
            return Err(wrong(at, "number of stripes of a chunk", format_args!("{copies} for each column"), count));
        }
        if copies > 1 && layout == Layout::Striped {
            equal(at, "sub-stripes of a RAID10 chunk", copies, raw.sub_stripes.get().into())?;
        }
        if columns > 1 && rem(range.len(), mul(columns, STRIPE, "a row")?, "a row")? != 0 {
            return Err(wrong(at, "length of a striped chunk", "a whole number of rows", range.len()));
        }
        Ok(Self { range, flags, copies, columns, stripes })
    }

    /// Bytes that the chunk takes on each of its devices.
    pub fn len_on_device(&self) -> Result<u64, ParseError> {
        Ok(div(self.range.len(), self.columns, "a part of a chunk")?)
    }

    /// Every place of `range` (logical, inside the chunk) on the devices, all copies. The bytes of a column that lie
    /// before a logical position grow with it, so a range has one part in each column.
    pub fn places(&self, range: ByteRange) -> Result<Vec<(u64, ByteRange)>, ParseError> {
        let start = sub(range.start(), self.range.start(), "a place in a chunk")?;
        let end = sub(range.end(), self.range.start(), "a place in a chunk")?;
        let mut places = Vec::new();
        for (stripe, index) in self.stripes.iter().zip(0_u64..) {
            let column = div(index, self.copies, "a column")?;
            let from = add(stripe.offset, self.before(start, column)?, "a place on a device")?;
            let to = add(stripe.offset, self.before(end, column)?, "a place on a device")?;
            places.extend(ByteRange::new(from, to).map(|part| (stripe.device, part)));
        }
        Ok(places)
    }

    /// How many of the first `offset` bytes of the chunk lie in `column`.
    fn before(&self, offset: u64, column: u64) -> Result<u64, ParseError> {
        if self.columns == 1 {
            return Ok(offset);
        }
        let row = mul(self.columns, STRIPE, "a row")?;
        let rows = mul(div(offset, row, "a row")?, STRIPE, "rows before")?;
        let left = mul(column, STRIPE, "a column")?;
        let inside = rem(offset, row, "a row")?.saturating_sub(left).min(STRIPE);
        Ok(add(rows, inside, "bytes in a column")?)
    }
}

fn profile(flags: u64, at: u64) -> Result<(u64, Layout), ParseError> {
    for (bit, name) in [(RAID5, "RAID5"), (RAID6, "RAID6")] {
        if flags & bit != 0 {
            return Err(unhandled(at, format!("a chunk has the profile {name}, which is not handled"), MOUNTED));
        }
    }
    let row = PROFILES.iter().find(|(bits, ..)| flags & !PURPOSES == *bits);
    let Some((_, copies, layout)) = row else {
        let what = format!("a chunk has the profile bits {:#x}, which are not known", flags & !PURPOSES);
        return Err(unhandled(at, what, "look for a newer coldtrim"));
    };
    Ok((*copies, *layout))
}

fn stripes(data: &[u8], count: u64, at: u64) -> Result<Vec<Stripe>, ParseError> {
    let len = mul(count, 32, "stripes of a chunk")?;
    let end = add(48, len, "the end of a chunk")?;
    let bytes = data.get(48..to_usize(end, "the end of a chunk")?);
    let bytes = bytes.ok_or_else(|| wrong(at, "size of a chunk item", format_args!("at least {end}"), data.len()))?;
    let entries = bytes.chunks_exact(size_of::<RawStripe>()).map(|entry| {
        let raw: RawStripe = head(entry, at, "a stripe")?;
        Ok(Stripe { device: raw.device.get(), offset: raw.offset.get() })
    });
    entries.collect()
}

/// All chunks, in logical order.
#[derive(Debug, Clone, Default)]
pub(super) struct ChunkMap {
    chunks: Vec<Chunk>,
}

impl ChunkMap {
    /// Chunks in any order; two that share a byte are an error.
    pub fn new(mut chunks: Vec<Chunk>) -> Result<Self, ParseError> {
        chunks.sort_unstable_by_key(|chunk| chunk.range);
        let overlap = chunks.iter().zip(chunks.iter().skip(1)).find(|(a, b)| a.range.overlaps(b.range));
        match overlap {
            Some((a, b)) => {
                let found = format_args!("logical {} and {}", a.range, b.range).to_string();
                Err(wrong(b.range.start(), "chunks", "none that share a byte", found))
            }
            None => Ok(Self { chunks }),
        }
    }

    /// The chunks in the superblock, from which the chunk tree can be read.
    pub fn system(superblock: &Superblock, at: u64) -> Result<Self, ParseError> {
        let mut rest = superblock.system_chunks.as_slice();
        let mut chunks = Vec::new();
        while !rest.is_empty() {
            let cut = || wrong(at, "system chunks of the superblock", "a key and a chunk", "less");
            let (key, data) = RawKey::read_from_prefix(rest).map_err(|_| cut())?;
            let key = key.get();
            if (key.object, key.kind) != (CHUNK_OBJECT, kind::CHUNK) {
                return Err(wrong(at, "key of a system chunk", "(256 228 START)", key));
            }
            let chunk = Chunk::new(key, data, at)?;
            let stripes = crate::units::from_usize(chunk.stripes.len());
            let len = add(48, mul(stripes, 32, "stripes of a chunk")?, "a chunk")?;
            rest = data.get(to_usize(len, "a chunk")?..).ok_or_else(cut)?;
            chunks.push(chunk);
        }
        Self::new(chunks)
    }

    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Chunk> {
        self.chunks.iter()
    }

    /// Index of the chunk that holds the whole of `range`.
    pub fn index_of(&self, range: ByteRange) -> Option<usize> {
        let index = self.chunks.partition_point(|chunk| chunk.range.end() <= range.start());
        self.chunks.get(index).filter(|chunk| chunk.range.contains(range)).map(|_| index)
    }

    /// The chunk that holds the whole of `range`, which `what` needs.
    pub fn find(&self, range: ByteRange, what: &'static str) -> Result<&Chunk, ParseError> {
        let chunk = self.index_of(range).and_then(|index| self.chunks.get(index));
        chunk.ok_or_else(|| wrong(range.start(), what, "a place inside a chunk", format_args!("logical {range}")))
    }
}
