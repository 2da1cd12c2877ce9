//! From the volume header to numbers that can be trusted.

use super::HfsPlusError;
use super::ondisk::{RawExtent, RawFork, RawVolumeHeader, RawWrapper};
use crate::error::{Mismatch, ParseError};
use crate::foreign::has_bytes;
use crate::free_map::Grid;
use crate::source::{Source, read_struct};
use crate::units::{BlockSize, ByteRange, add, mul, sub};

/// Byte of the volume header, and of the master directory block of a wrapper.
pub(super) const HEADER_AT: u64 = 1024;

/// The bits of the attributes that are understood: locks, clean unmount, spared blocks, no cache, inconsistent boot
/// volume, reused identities, journal, inconsistent, expanded times, unused nodes fixed.
const KNOWN_ATTRIBUTES: u32 = 0xFF80 | 1 << 29 | 1 << 31;

/// A run of blocks of a file, inside the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub start: u64,
    pub count: u64,
}

/// Where a fork lies.
#[derive(Debug, Clone)]
pub(super) struct Fork {
    pub size: u64,
    pub blocks: u64,
    pub extents: Vec<Extent>,
}

/// A checked volume header. Positions are counted from the start of the HFS+ volume, which a wrapper may surround.
pub(super) struct Header {
    pub is_hfsx: bool,
    pub attributes: u32,
    pub last_mounted: [u8; 4],
    pub journal_info_block: u64,
    pub block: BlockSize,
    pub total: u64,
    pub free: u64,
    pub volume_id: [u8; 8],
    pub allocation: Fork,
    pub extents: Fork,
    pub catalog: Fork,
    pub attributes_file: Fork,
    pub startup: Fork,
}

/// True when a volume or its wrapper begins here.
pub(super) fn probe(source: &dyn Source) -> Result<bool, ParseError> {
    for signature in [b"H+\0\x04", b"HX\0\x05"] {
        if has_bytes(source, HEADER_AT, signature)? {
            return Ok(true);
        }
    }
    let wraps = has_bytes(source, HEADER_AT, b"BD")?;
    Ok(wraps && (has_bytes(source, HEADER_AT + 0x7C, b"H+")? || has_bytes(source, HEADER_AT + 0x7C, b"HX")?))
}

/// The bytes of the HFS+ volume: all, or what the wrapper says.
pub(super) fn locate(source: &dyn Source) -> Result<ByteRange, ParseError> {
    let whole = ByteRange::with_len(0, source.len()).ok_or_else(|| ParseError::corrupt(0, "an empty source"))?;
    let raw: RawWrapper = read_struct(source, HEADER_AT)?;
    if &raw.signature != b"BD" {
        return Ok(whole);
    }
    let unit = u64::from(raw.allocation_block_size.get());
    let blocks_at = mul(u64::from(raw.first_allocation_block.get()), 512, "the first block of the wrapper")?;
    let into = mul(u64::from(raw.embedded_start.get()), unit, "the start of the volume in its wrapper")?;
    let len = mul(u64::from(raw.embedded_count.get()), unit, "the length of the volume in its wrapper")?;
    let range = ByteRange::with_len(add(blocks_at, into, "the start of the volume in its wrapper")?, len);
    range.filter(|range| whole.contains(*range) && unit != 0 && unit & 511 == 0).ok_or_else(|| {
        let found = format!("{len} bytes, {into} bytes behind byte {blocks_at}");
        let expected = format!("a part of the {} bytes that there are", whole.len());
        ParseError::corrupt(HEADER_AT, Mismatch::new("volume inside of an HFS wrapper", expected, found))
    })
}

impl Header {
    /// Reads and checks the header of the volume that fills `volume`.
    pub fn read(volume: &dyn Source) -> Result<Self, ParseError> {
        let raw: RawVolumeHeader = read_struct(volume, HEADER_AT)?;
        let is_hfsx = match (&raw.signature, raw.version.get()) {
            (b"H+", 4) => false,
            (b"HX", 5) => true,
            (signature, version) => {
                let found = format!("{:?}, version {version}", signature.escape_ascii().to_string());
                let expected = "\"H+\", version 4, or \"HX\", version 5";
                return Err(ParseError::unsupported(HEADER_AT, Mismatch::new("volume header", expected, found)));
            }
        };
        let unknown = raw.attributes.get() & !KNOWN_ATTRIBUTES;
        if unknown != 0 {
            return Err(ParseError::unsupported(HEADER_AT, HfsPlusError::Attributes(unknown)));
        }
        let (block, total) = size(&raw, volume.len())?;
        let header = Self {
            is_hfsx,
            attributes: raw.attributes.get(),
            last_mounted: raw.last_mounted_version,
            journal_info_block: u64::from(raw.journal_info_block.get()),
            block,
            total,
            free: u64::from(raw.free_blocks.get()),
            volume_id: raw.volume_id,
            allocation: fork(&raw.allocation_file, block, total)?,
            extents: fork(&raw.extents_file, block, total)?,
            catalog: fork(&raw.catalog_file, block, total)?,
            attributes_file: fork(&raw.attributes_file, block, total)?,
            startup: fork(&raw.startup_file, block, total)?,
        };
        check_alternate(volume, &header, &raw)?;
        Ok(header)
    }

    /// The free map's blocks, as seen from a source in which the volume begins at byte `origin`.
    pub fn grid(&self, origin: u64) -> Result<Grid, ParseError> {
        Ok(Grid::new(origin, self.block, self.total)?)
    }

    /// The five special files by name.
    pub fn special_files(&self) -> [(&'static str, &Fork); 5] {
        [
            ("the allocation file", &self.allocation),
            ("the extents overflow file", &self.extents),
            ("the catalog file", &self.catalog),
            ("the attributes file", &self.attributes_file),
            ("the startup file", &self.startup),
        ]
    }
}

fn size(raw: &RawVolumeHeader, len: u64) -> Result<(BlockSize, u64), ParseError> {
    let wrong = |what: &str, expected: String, found: u64| {
        Err(ParseError::corrupt(HEADER_AT, Mismatch::new(what, expected, found)))
    };
    let bytes = u64::from(raw.block_size.get());
    let Some(block) = BlockSize::new(bytes).filter(|_| bytes >= 512) else {
        return wrong("block size", "a power of two, at least 512".to_owned(), bytes);
    };
    let total = u64::from(raw.total_blocks.get());
    if total == 0 || block.to_bytes(total)? > len {
        return wrong("number of blocks", format!("1 to {} of {bytes} bytes", block.whole_blocks(len)), total);
    }
    let free = u64::from(raw.free_blocks.get());
    if free >= total {
        return wrong("number of free blocks", format!("less than all {total}"), free);
    }
    Ok((block, total))
}

/// Extents up to the first empty one, each inside the volume.
pub(super) fn extents(raw: &[RawExtent; 8], total: u64) -> Result<Vec<Extent>, ParseError> {
    let used = raw.iter().take_while(|extent| extent.block_count.get() != 0);
    used.map(|extent| {
        let (start, count) = (u64::from(extent.start_block.get()), u64::from(extent.block_count.get()));
        if add(start, count, "the end of an extent")? > total {
            return Err(ParseError::inconsistent(HfsPlusError::Extent { start, count, total }));
        }
        Ok(Extent { start, count })
    })
    .collect()
}

fn fork(raw: &RawFork, block: BlockSize, total: u64) -> Result<Fork, ParseError> {
    let (size, blocks) = (raw.logical_size.get(), u64::from(raw.total_blocks.get()));
    if block.to_bytes(blocks)? < size {
        return Err(ParseError::corrupt(HEADER_AT, HfsPlusError::Fork { size, blocks, block: block.bytes() }));
    }
    let extents = extents(&raw.extents, total).map_err(|e| e.located(HEADER_AT))?;
    Ok(Fork { size, blocks, extents })
}

/// The second header lies 1024 bytes before the end of the partition, or of the last block where the partition has
/// grown. Its counts are stale by design; what it says about the shape of the volume is not.
fn check_alternate(volume: &dyn Source, header: &Header, raw: &RawVolumeHeader) -> Result<(), ParseError> {
    let ends = [volume.len() & !511, header.block.to_bytes(header.total)?];
    let mut at = 0;
    for end in ends {
        at = sub(end, 1024, "the place of the second volume header")?;
        if !has_bytes(volume, at, &raw.signature)? {
            continue;
        }
        let other: RawVolumeHeader = read_struct(volume, at)?;
        let shape = |h: &RawVolumeHeader| (h.version.get(), h.block_size.get(), h.total_blocks.get());
        if shape(&other) == shape(raw) {
            return Ok(());
        }
    }
    Err(ParseError::corrupt(at, HfsPlusError::NoAlternate))
}
