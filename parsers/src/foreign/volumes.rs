//! Signatures of filesystems and volume managers that need more than equal bytes at a fixed place.

use super::{bytes_at, field, has_bytes};
use crate::error::ParseError;
use crate::source::Source;
use crate::units::{ByteRange, add, mul, to_usize};

/// Core Storage has a signature of two bytes only, so its version and the type of its block are asked for too.
pub(super) fn core_storage(source: &dyn Source) -> Result<bool, ParseError> {
    let block = bytes_at(source, Some(0), 90)?.unwrap_or_default();
    Ok(block.ends_with(b"CS") && field(&block, 8) == [1, 0, 0x10, 0])
}

/// HFS as it was before HFS+, alone (with HFS+ inside it is a wrapper, and ours) and with a possible block size.
pub(super) fn classic_hfs(source: &dyn Source) -> Result<bool, ParseError> {
    let block = bytes_at(source, Some(1024), 162)?.unwrap_or_default();
    let block_size = u32::from_be_bytes(field(&block, 0x14));
    let embedded: [u8; 2] = field(&block, 0x7C);
    let wraps = matches!(&embedded, b"H+" | b"HX");
    Ok(matches!(&field(&block, 0), b"BD" | &[0xD2, 0xD7]) && !wraps && block_size != 0 && block_size & 511 == 0)
}

/// UFS: one of two magic numbers in either byte order, at one of four places (FreeBSD `ufs/ffs/fs.h`).
pub(super) fn ufs(source: &dyn Source) -> Result<bool, ParseError> {
    for superblock in [0, 8192, 65_536, 262_144_u64] {
        let magic = bytes_at(source, superblock.checked_add(1372), 4)?.unwrap_or_default();
        let magic = u32::from_le_bytes(field(&magic, 0));
        if [0x0001_1954, 0x1954_0119, 0x5419_0100, 0x1901_5419].contains(&magic) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// UDF: an NSR descriptor in the recognition sequence from 32 KiB on (ECMA-167, part 2).
pub(super) fn udf(source: &dyn Source) -> Result<bool, ParseError> {
    for descriptor in 0..16_u64 {
        let at = descriptor.saturating_mul(2048).saturating_add(0x8001);
        if has_bytes(source, at, b"NSR02")? || has_bytes(source, at, b"NSR03")? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// ISO 9660, unless the same disc is UDF.
pub(super) fn iso9660(source: &dyn Source) -> Result<bool, ParseError> {
    let found = has_bytes(source, 0x8001, b"CD001")? || has_bytes(source, 0x8009, b"CDROM")?;
    Ok(found && !udf(source)?)
}

/// Minix, whose magic number of two bytes lies where ext has a counter: its other fields must fit each other.
pub(super) fn minix(source: &dyn Source) -> Result<bool, ParseError> {
    let block = bytes_at(source, Some(1024), 64)?.unwrap_or_default();
    let word = |at: usize| u32::from(u16::from_le_bytes(field(&block, at)));
    let is_ext = word(56) == 0xEF53;
    let (maps, first_zone, zone_shift) = match (word(16), word(24)) {
        (0x137F | 0x138F | 0x2468 | 0x2478, _) => ([word(4), word(6)], word(8), word(10)),
        (_, 0x4D5A) => ([word(6), word(8)], word(10), word(12)),
        _ => return Ok(false),
    };
    let fits = first_zone > maps.iter().sum::<u32>() && !maps.contains(&0) && zone_shift <= 8;
    Ok(fits && !is_ext)
}

/// A Sun disk label: two bytes, and words that cancel out.
pub(super) fn sun_label(source: &dyn Source) -> Result<bool, ParseError> {
    let sector = bytes_at(source, Some(0), 512)?.unwrap_or_default();
    let (words, _) = sector.as_chunks::<2>();
    let sum = words.iter().fold(0, |sum, word| sum ^ u16::from_be_bytes(*word));
    Ok(field(&sector, 508) == [0xDA, 0xBE] && sum == 0)
}

/// The signatures that Linux swap carries in the last ten bytes of its first page, whatever the page size.
fn swap_page(source: &dyn Source, signatures: &[&[u8]]) -> Result<Option<u64>, ParseError> {
    for page in [4096, 8192, 16_384, 32_768, 65_536_u64] {
        let found = bytes_at(source, page.checked_sub(10), 10)?.unwrap_or_default();
        if signatures.iter().any(|signature| found.starts_with(signature)) {
            return Ok(Some(page));
        }
    }
    Ok(None)
}

pub(super) fn swap(source: &dyn Source) -> Result<bool, ParseError> {
    Ok(swap_page(source, &[SWAP, b"SWAP-SPACE"])?.is_some())
}

const SWAP: &[u8] = b"SWAPSPACE2";

/// Every page but the first and the bad ones; nothing where the header is not understood. Source: Linux
/// `include/linux/swap.h`, `union swap_header`: version, last page and number of bad pages are 32-bit words at byte 1024,
/// the list of bad pages begins at byte 1536; they are in the byte order of the machine, which version 1 tells.
pub(super) fn swap_body(source: &dyn Source) -> Result<Vec<ByteRange>, ParseError> {
    let Some(page) = swap_page(source, &[SWAP])? else { return Ok(Vec::new()) };
    let header = bytes_at(source, Some(0), to_usize(page, "a page of swap")?)?.unwrap_or_default();
    let Some(read) = [u32::from_le_bytes, u32::from_be_bytes].into_iter().find(|read| read(field(&header, 1024)) == 1)
    else {
        return Ok(Vec::new());
    };
    let word = |at: usize| u64::from(read(field(&header, at)));
    let (last, bad) = (word(1028), to_usize(word(1032), "bad pages")?);
    let list = header.get(1536..header.len().saturating_sub(10)).unwrap_or_default().as_chunks::<4>().0;
    let Some(list) = list.get(..bad) else { return Ok(Vec::new()) };
    let end = mul(add(last, 1, "pages of swap")?, page, "pages of swap")?;
    if end > source.len() {
        return Ok(Vec::new());
    }
    let mut kept: Vec<u64> = list.iter().map(|word| u64::from(read(*word))).collect();
    kept.extend([0, last.saturating_add(1)]);
    kept.sort_unstable();
    let between = |(one, next): (&u64, &u64)| {
        let pages = one.checked_add(1).zip(Some((*next).min(last.saturating_add(1))))?;
        ByteRange::new(pages.0.checked_mul(page)?, pages.1.checked_mul(page)?)
    };
    Ok(kept.iter().zip(kept.iter().skip(1)).filter_map(between).collect())
}

pub(super) fn suspend_image(source: &dyn Source) -> Result<bool, ParseError> {
    let tux_on_ice: &[u8] = &[0xED, 0xC3, 0x02, 0xE9, 0x98, 0x56, 0xE5, 0x0C];
    Ok(swap_page(source, &[b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"LINHIB0001", tux_on_ice])?.is_some())
}
