//! Is a hibernated Windows waiting on this volume? Then it still holds a picture of the volume in `hiberfil.sys` and
//! will go on from there.
//!
//! The file is looked for in the index of the root directory, all of it in order: no collation rule to get wrong.
//! Index blocks that the index's own bitmap calls unused are left out; they hold names of former times.

use super::error::NtfsError;
use super::mft::{Mft, len_of, utf16};
use super::ondisk::{RawIndexBlock, RawIndexEntry, RawIndexHeader, RawIndexRoot};
use super::record::{BITMAP, DATA, INDEX_ALLOCATION, INDEX_ROOT, REFERENCE, Record, fix_up, part};
use super::system::ROOT;
use crate::error::ParseError;
use crate::units::{from_usize, to_usize};
use crate::volume::Finding;
use zerocopy::FromBytes;

/// The largest root directory that is searched: about half a million files.
const MAX_INDEX: u64 = 64 << 20;

const REMEDY: &str = "start that Windows and shut it down fully (shutdown /s /t 0; powercfg /h off ends fast startup), \
                      then name DEVICE again";

/// What the hibernation file has to say against using the map.
pub(super) fn finding(mft: &Mft<'_>) -> Result<Option<Finding>, ParseError> {
    let Some(number) = find(mft, "hiberfil.sys")? else {
        return Ok(None);
    };
    let head = head_of(mft, &mft.needed(number)?)?;
    let message = match head.as_deref().map(|head| (head.get(..4).unwrap_or_default(), head)) {
        None => "hiberfil.sys is shorter than 4096 bytes, as only a hibernated Windows leaves it".to_owned(),
        Some((b"hibr" | b"HIBR", _)) => {
            "Windows is hibernated on this volume, or was shut down with fast startup (hiberfil.sys holds its memory)"
                .to_owned()
        }
        // Resumed from: the picture is used up, and $LogFile, which is judged as well, tells what came after.
        Some((b"wake" | b"WAKE" | b"RSTR", _)) => return Ok(None),
        Some((_, head)) if head.iter().all(|byte| *byte == 0) => return Ok(None),
        Some((magic, _)) => format!(
            "hiberfil.sys begins with {magic:02x?}, expected zeros, \"hibr\" or \"wake\": a hibernated Windows cannot be \
             ruled out"
        ),
    };
    Ok(Some(Finding::refusal(message, REMEDY)))
}

/// The first 4096 bytes of a file; none when it is shorter.
fn head_of(mft: &Mft<'_>, record: &Record) -> Result<Option<Vec<u8>>, ParseError> {
    match mft.stream_of(record, DATA, &[])? {
        Some(stream) if stream.data >= 4096 => stream.read(mft.source, &mft.geometry, 0, 4096).map(Some),
        _ => Ok(None),
    }
}

/// The record of the file `name` (ASCII, in any case) in the root directory.
fn find(mft: &Mft<'_>, name: &str) -> Result<Option<u64>, ParseError> {
    let root = mft.needed(ROOT)?;
    let index = utf16("$I30");
    let value = mft.resident_of(&root, INDEX_ROOT, &index)?.ok_or_else(|| bad(&root, "has no root"))?;
    let (head, _) = RawIndexRoot::read_from_prefix(&value).map_err(|_| bad(&root, "its root is cut"))?;
    let entries = value.get(16..).unwrap_or_default();
    if let Some(found) = search(entries, &head.index, name).map_err(|what| bad(&root, what))? {
        return Ok(Some(found));
    }
    let size = u64::from(head.index_block_size.get());
    if !size.is_power_of_two() || !(512..=65536).contains(&size) {
        return Err(bad(&root, "the size of its blocks is impossible"));
    }
    find_in_blocks(mft, &root, &index, size, name)
}

fn find_in_blocks(
    mft: &Mft<'_>,
    root: &Record,
    index: &[u8],
    size: u64,
    name: &str,
) -> Result<Option<u64>, ParseError> {
    let Some(stream) = mft.stream_of(root, INDEX_ALLOCATION, index)? else {
        return Ok(None);
    };
    stream.check_plain(root, &mft.geometry)?;
    if stream.data > MAX_INDEX {
        return Err(bad(root, "is larger than 64 MiB"));
    }
    let in_use = index_bitmap(mft, root, index)?;
    let blocks = stream.read(mft.source, &mft.geometry, 0, stream.data)?;
    for (number, block) in blocks.chunks_exact(to_usize(size, "an index block")?).enumerate() {
        let used = in_use.get(number >> 3).is_some_and(|byte| byte.checked_shr(low_bits(number)).unwrap_or(0) & 1 == 1);
        if used && let Some(found) = search_block(block, name).map_err(|what| bad(root, what))? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn low_bits(number: usize) -> u32 {
    u32::try_from(number & 7).unwrap_or(0)
}

fn index_bitmap(mft: &Mft<'_>, root: &Record, index: &[u8]) -> Result<Vec<u8>, ParseError> {
    if let Some(value) = mft.resident_of(root, BITMAP, index)? {
        return Ok(value);
    }
    let stream = mft.stream_of(root, BITMAP, index)?.ok_or_else(|| bad(root, "has no bitmap"))?;
    if stream.data > MAX_INDEX {
        return Err(bad(root, "its bitmap is too large"));
    }
    stream.read(mft.source, &mft.geometry, 0, stream.data)
}

fn bad(root: &Record, what: &'static str) -> ParseError {
    ParseError::corrupt(root.at, NtfsError::Index { what })
}

fn search_block(block: &[u8], name: &str) -> Result<Option<u64>, &'static str> {
    let (raw, _) = RawIndexBlock::read_from_prefix(block).map_err(|_| "a block is cut")?;
    if &raw.magic != b"INDX" {
        return Err("a block in use does not begin with \"INDX\"");
    }
    let mut bytes = block.to_vec();
    fix_up(&mut bytes, raw.usa_ofs.get(), raw.usa_count.get()).map_err(|_| "a block was written only in part")?;
    search(bytes.get(24..).unwrap_or_default(), &raw.index, name)
}

/// Looks through a list of entries, whose offsets count from the start of `bytes`.
fn search(bytes: &[u8], header: &RawIndexHeader, name: &str) -> Result<Option<u64>, &'static str> {
    let end = u64::from(header.index_length.get());
    if end > len_of(bytes) {
        return Err("its entries pass their block");
    }
    let mut at = u64::from(header.entries_offset.get());
    loop {
        let start = usize::try_from(at).map_err(|_| "its entries pass their block")?;
        let rest = bytes.get(start..).unwrap_or_default();
        let (entry, key) = RawIndexEntry::read_from_prefix(rest).map_err(|_| "an entry is cut")?;
        if entry.flags.get() & 2 != 0 {
            return Ok(None);
        }
        let key = key.get(..usize::from(entry.key_length.get())).ok_or("a key is cut")?;
        if name_of(key).ok_or("a name is cut")?.eq_ignore_ascii_case(name) {
            return Ok(Some(entry.indexed_file.get() & REFERENCE));
        }
        let length = u64::from(entry.length.get());
        at = at.saturating_add(length);
        if length < from_usize(size_of::<RawIndexEntry>()) || at >= end {
            return Err("the length of an entry is impossible");
        }
    }
}

/// The name in a $FILE_NAME value: its length in UTF-16 units at byte 64, the name at byte 66.
fn name_of(key: &[u8]) -> Option<String> {
    let units = usize::from(*key.get(64)?);
    let bytes = part(key, 66, units.checked_mul(2)?)?;
    let units: Vec<u16> =
        bytes.chunks_exact(2).filter_map(|pair| Some(u16::from_le_bytes(pair.try_into().ok()?))).collect();
    Some(String::from_utf16_lossy(&units))
}
