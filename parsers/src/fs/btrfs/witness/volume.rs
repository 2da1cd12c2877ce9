//! A second, plain reading of superblock, chunks and blocks for the witness.

use crate::error::ParseError;
use crate::pages::Pages;
use crate::source::{Source, read_vec};
use crate::units::{ByteRange, add, div, from_usize, mul, rem, sub, to_usize};

const SUPERBLOCK: u64 = 65_536;
/// Bytes of a header, a node's pointer, and a leaf's item.
const HEADER: u64 = 101;
const POINTER: u64 = 33;
const ITEM: u64 = 25;
const CHUNK_ITEM: u8 = 228;

/// Little-endian number of `len` bytes at `at`.
fn number(bytes: &[u8], at: u64, len: u64) -> Result<u64, ParseError> {
    let range = to_usize(at, "a field")?..to_usize(add(at, len, "a field")?, "a field")?;
    let field = bytes.get(range).ok_or_else(|| ParseError::inconsistent(format!("no field of {len} bytes at {at}")))?;
    Ok(field.iter().rev().fold(0_u64, |sum, byte| sum.wrapping_shl(8) | u64::from(*byte)))
}

fn long(bytes: &[u8], at: u64) -> Result<u64, ParseError> {
    number(bytes, at, 8)
}

fn byte(bytes: &[u8], at: u64) -> Result<u8, ParseError> {
    Ok(u8::try_from(number(bytes, at, 1)?).unwrap_or(0))
}

fn part(bytes: &[u8], from: u64, len: u64) -> Result<&[u8], ParseError> {
    let range = to_usize(from, "a part")?..to_usize(add(from, len, "a part")?, "a part")?;
    bytes.get(range).ok_or_else(|| ParseError::inconsistent(format!("no {len} bytes at {from} of a block")))
}

/// Where a range of logical space lies.
struct Mapping {
    start: u64,
    end: u64,
    stripe_len: u64,
    /// How many stripes hold the same bytes.
    mirrors: u64,
    offsets: Vec<u64>,
}

impl Mapping {
    fn new(start: u64, chunk: &[u8]) -> Result<Self, ParseError> {
        let count = number(chunk, 44, 2)?;
        let offsets = (0..count).map(|k| long(chunk, add(48 + 8, mul(k, 32, "a stripe")?, "a stripe")?));
        let kind = long(chunk, 24)?;
        let mirrors = match kind & !7 {
            0 | 0x08 => 1,
            0x40 => number(chunk, 46, 2)?,
            0x10 | 0x20 | 0x200 | 0x400 => count,
            other => return Err(ParseError::inconsistent(format!("a chunk of kind {other:#x} is not read"))),
        };
        let end = add(start, long(chunk, 0)?, "a chunk")?;
        Ok(Self { start, end, stripe_len: long(chunk, 16)?, mirrors, offsets: offsets.collect::<Result<_, _>>()? })
    }

    /// The copies of what follows `logical`, up to `len` bytes or the end of a stripe.
    fn step(&self, logical: u64, len: u64) -> Result<(u64, Vec<ByteRange>), ParseError> {
        let offset = sub(logical, self.start, "a place in a chunk")?;
        let groups = div(from_usize(self.offsets.len()), self.mirrors, "groups of mirrors")?;
        let number = div(offset, self.stripe_len, "a stripe number")?;
        let inside = rem(offset, self.stripe_len, "a place in a stripe")?;
        let group = rem(number, groups, "a group of mirrors")?;
        let row = mul(div(number, groups, "a row")?, self.stripe_len, "a row")?;
        let len = len.min(sub(self.stripe_len, inside, "the rest of a stripe")?);
        let first = to_usize(mul(group, self.mirrors, "a stripe")?, "a stripe")?;
        let mirrors = self.offsets.iter().skip(first).take(to_usize(self.mirrors, "mirrors")?);
        let places = mirrors.map(|start| {
            let at = add(add(*start, row, "a place")?, inside, "a place")?;
            ByteRange::with_len(at, len).ok_or_else(|| ParseError::inconsistent("an empty stripe"))
        });
        Ok((len, places.collect::<Result<_, ParseError>>()?))
    }
}

/// A filesystem on one device.
pub(super) struct Volume<'a> {
    source: Pages<'a>,
    pub node_size: u64,
    pub root: u64,
    pub chunk_root: u64,
    mappings: Vec<Mapping>,
}

impl<'a> Volume<'a> {
    pub fn open(source: &'a dyn Source) -> Result<Self, ParseError> {
        let head = read_vec(source, SUPERBLOCK, 4096)?;
        if part(&head, 64, 8)? != b"_BHRfS_M" || long(&head, 0x88)? != 1 {
            return Err(ParseError::corrupt(
                SUPERBLOCK,
                "the walk reads a btrfs on one device, and this is something else",
            ));
        }
        let mut volume = Self {
            source: Pages::new(source),
            node_size: number(&head, 0x94, 4)?,
            root: long(&head, 0x50)?,
            chunk_root: long(&head, 0x58)?,
            mappings: system_chunks(part(&head, 0x32B, number(&head, 0xA0, 4)?)?)?,
        };
        let mut found = Vec::new();
        volume.chunks(volume.chunk_root, None, &mut found)?;
        volume.mappings = found;
        volume.mappings.sort_unstable_by_key(|mapping| mapping.start);
        Ok(volume)
    }

    fn chunks(&self, at: u64, below: Option<u8>, found: &mut Vec<Mapping>) -> Result<(), ParseError> {
        let block = self.block(at, below)?;
        for child in block.children()? {
            self.chunks(child, Some(block.level), found)?;
        }
        for item in block.items()?.iter().filter(|item| item.kind == CHUNK_ITEM) {
            found.push(Mapping::new(item.offset, item.data)?);
        }
        Ok(())
    }

    /// All places of `len` bytes from `logical`.
    pub fn copies(&self, logical: u64, len: u64) -> Result<Vec<ByteRange>, ParseError> {
        let (mut at, mut left, mut places) = (logical, len, Vec::new());
        while left > 0 {
            let mapping = self.mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&at));
            let mapping = mapping.ok_or_else(|| ParseError::inconsistent(format!("no chunk has logical byte {at}")))?;
            let (step, copies) = mapping.step(at, left)?;
            places.extend(copies);
            at = add(at, step, "a logical place")?;
            left = sub(left, step, "what is left")?;
        }
        Ok(places)
    }

    /// The block at `logical`, one level below `below`.
    pub fn block(&self, logical: u64, below: Option<u8>) -> Result<Block, ParseError> {
        let place = self.copies(logical, self.node_size)?.into_iter().next();
        let place = place.ok_or_else(|| ParseError::inconsistent(format!("no place for logical byte {logical}")))?;
        let bytes = read_vec(&self.source, place.start(), self.node_size)?;
        let level = byte(&bytes, 100)?;
        let is_below = below.is_none_or(|below| level.checked_add(1) == Some(below));
        if long(&bytes, 48)? != logical || !is_below {
            return Err(ParseError::corrupt(place.start(), "a block of another place or level"));
        }
        Ok(Block { bytes, level })
    }
}

fn system_chunks(mut rest: &[u8]) -> Result<Vec<Mapping>, ParseError> {
    let mut found = Vec::new();
    while !rest.is_empty() {
        let start = long(rest, 9)?;
        let chunk = rest.get(17..).unwrap_or_default();
        let len = add(48, mul(number(chunk, 44, 2)?, 32, "stripes")?, "a chunk")?;
        found.push(Mapping::new(start, chunk)?);
        rest = chunk.get(to_usize(len, "a chunk")?..).unwrap_or_default();
    }
    Ok(found)
}

/// A tree block.
pub(super) struct Block {
    bytes: Vec<u8>,
    pub level: u8,
}

impl Block {
    fn starts(&self, size: u64) -> Result<impl Iterator<Item = u64>, ParseError> {
        let count = number(&self.bytes, 96, 4)?;
        let end = add(HEADER, mul(count, size, "entries of a block")?, "entries of a block")?;
        if end > from_usize(self.bytes.len()) {
            return Err(ParseError::inconsistent(format!("{count} entries in a tree block")));
        }
        Ok((0..count).map(move |k| k.saturating_mul(size).saturating_add(HEADER)))
    }

    /// Logical places of the blocks below; none for a leaf.
    pub fn children(&self) -> Result<Vec<u64>, ParseError> {
        if self.level == 0 {
            return Ok(Vec::new());
        }
        self.starts(POINTER)?.map(|at| long(&self.bytes, at.saturating_add(17))).collect()
    }

    /// The items of a leaf.
    pub fn items(&self) -> Result<Vec<Item<'_>>, ParseError> {
        if self.level > 0 {
            return Ok(Vec::new());
        }
        let items = self.starts(ITEM)?.map(|at| {
            let field = |by: u64| at.saturating_add(by);
            let start = add(HEADER, number(&self.bytes, field(17), 4)?, "an item's data")?;
            Ok(Item {
                object: long(&self.bytes, at)?,
                kind: byte(&self.bytes, field(8))?,
                offset: long(&self.bytes, field(9))?,
                data: part(&self.bytes, start, number(&self.bytes, field(21), 4)?)?,
            })
        });
        items.collect()
    }
}

/// One item of a leaf.
pub(super) struct Item<'a> {
    pub object: u64,
    pub kind: u8,
    pub offset: u64,
    pub data: &'a [u8],
}

impl Item<'_> {
    /// The name in an inode reference.
    pub fn reference_name(&self) -> Option<String> {
        let len = number(self.data, 8, 2).ok()?;
        Some(String::from_utf8_lossy(part(self.data, 10, len).ok()?).into_owned())
    }

    /// Logical place of a file's extent; none for a hole and for data in the tree itself.
    pub fn extent(&self) -> Result<Option<ByteRange>, ParseError> {
        let is_inline = byte(self.data, 20)? == 0;
        if is_inline || long(self.data, 21)? == 0 {
            return Ok(None);
        }
        Ok(ByteRange::with_len(long(self.data, 21)?, long(self.data, 29)?))
    }

    /// Where the tree of a root item begins; none when nobody refers to it any more.
    pub fn living_root(&self) -> Result<Option<u64>, ParseError> {
        Ok((number(self.data, 216, 4)? > 0).then_some(long(self.data, 176)?).filter(|block| *block > 0))
    }
}
