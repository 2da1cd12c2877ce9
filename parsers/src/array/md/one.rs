//! Records of version 1.0, 1.1 and 1.2.

use super::ondisk::RawRecord;
use super::record::{Duty, Record, SECTOR, Shape, Version, sectors, uuid};
use crate::error::{Mismatch, ParseError};
use crate::source::{Source, read_struct, read_vec};
use crate::units::to_usize;

/// Roles that fit into the record's 4096 bytes.
const MAX_ROLES: u32 = 1920;

/// The features that change nothing for a stopped, clean array: a bitmap, and RAID0 that states its layout.
const BITMAP: u32 = 1;
const BAD_BLOCKS: u32 = 8;
const RAID0_LAYOUT: u32 = 0x1000;

/// The features under which the mapping does not hold, or data lies elsewhere.
const TROUBLES: &[(u32, &str)] = &[
    (2, "it is being rebuilt: let the array run until that is done"),
    (4, "it is being reshaped: let the array run until that is done"),
    (0x10, "a member is being replaced: let the array run until that is done"),
    (0x20, "it is being reshaped backwards: let the array run until that is done"),
    (0x40, "its data is being moved to another offset: let the array run until that is done"),
    (0x80, "it is being rebuilt by its bitmap: let the array run until that is done"),
    (0x100, "it is a clustered array, which another machine may be using"),
    (0x200, "it has a write journal, whose device may hold newer data"),
    (0x400, "it has a partial parity log, which may hold newer data: mdadm --grow --consistency-policy=resync DEVICE"),
    (0x800, "it has several partial parity logs, which may hold newer data"),
];

/// Reads the record at `at`.
pub(super) fn read(source: &dyn Source, version: Version, at: u64) -> Result<Record, ParseError> {
    let raw: RawRecord = read_struct(source, at)?;
    let roles = checked_roles(source, &raw, at)?;
    let own = raw.super_offset.get().checked_mul(SECTOR);
    if own != Some(at) {
        let found = format!("{} sectors", raw.super_offset.get());
        return Err(ParseError::corrupt(at, Mismatch::new("the record's own place", format!("{at} bytes"), found)));
    }
    let features = raw.feature_map.get();
    let known = TROUBLES.iter().fold(BITMAP | BAD_BLOCKS | RAID0_LAYOUT, |all, (bit, _)| all | bit);
    if features & !known != 0 {
        let bits = format!("it uses features that coldtrim does not know: {:#x}", features & !known);
        return Err(ParseError::unsupported(at, bits));
    }
    let mut troubles: Vec<String> =
        TROUBLES.iter().filter(|(bit, _)| features & bit != 0).map(|(_, words)| (*words).to_owned()).collect();
    if features & BAD_BLOCKS != 0 {
        troubles.extend(bad_blocks(source, &raw, at)?);
    }
    let slots = raw.raid_disks.get();
    if usize::try_from(slots).is_ok_and(|slots| slots > roles.len()) {
        let expected = format!("at most {}, one for each role", roles.len());
        return Err(ParseError::corrupt(at, Mismatch::new("the number of members", expected, slots)));
    }
    let in_sync = (0..slots).map(|slot| roles.iter().any(|role| u32::from(*role) == slot)).collect();
    let behind = |by: i32| at.checked_add_signed(i64::from(by).checked_mul(512)?);
    Ok(Record {
        version,
        uuid: uuid(words(raw.set_uuid)),
        name: name(&raw.set_name),
        shape: shape(&raw, at)?,
        events: raw.events.get(),
        duty: duty(&roles, raw.dev_number.get()),
        in_sync,
        data: sectors(source, at, raw.data_offset.get(), raw.data_size.get())?,
        at,
        clean: raw.resync_offset.get() == u64::MAX,
        troubles,
        bitmap: if features & BITMAP == 0 { None } else { behind(raw.bitmap_offset.get()) },
    })
}

fn shape(raw: &RawRecord, at: u64) -> Result<Shape, ParseError> {
    let bytes = |sectors: u64| sectors.checked_mul(SECTOR).ok_or_else(|| ParseError::corrupt(at, "a size has no end"));
    Ok(Shape {
        level: raw.level.get(),
        layout: raw.layout.get(),
        chunk: bytes(u64::from(raw.chunksize.get()))?,
        slots: raw.raid_disks.get(),
        size: bytes(raw.size.get())?,
        states_layout: raw.feature_map.get() & RAID0_LAYOUT != 0,
    })
}

/// The roles, once the sum over record and roles is right.
fn checked_roles(source: &dyn Source, raw: &RawRecord, at: u64) -> Result<Vec<u16>, ParseError> {
    let count = raw.max_dev.get();
    if count > MAX_ROLES {
        return Err(ParseError::corrupt(
            at,
            Mismatch::new("the number of roles", format!("at most {MAX_ROLES}"), count),
        ));
    }
    let bytes = read_vec(source, at, 256_u64.saturating_add(u64::from(count).saturating_mul(2)))?;
    let sum = checksum(&bytes);
    if sum != raw.sb_csum.get() {
        return Err(ParseError::corrupt(at, Mismatch::hex("the record's sum", raw.sb_csum.get().into(), sum.into())));
    }
    let roles = bytes.get(256..).unwrap_or_default();
    Ok(roles.as_chunks::<2>().0.iter().map(|role| u16::from_le_bytes(*role)).collect())
}

/// The sum of all words of 32 bits but the sum itself, a last odd half word added; the carry is added to the low half.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let words = words.iter().enumerate().filter(|(index, _)| *index != 0xD8 / 4);
    let sum = words.fold(0_u64, |sum, (_, word)| sum.wrapping_add(u32::from_le_bytes(*word).into()));
    let last = rest.first_chunk::<2>().map_or(0, |half| u16::from_le_bytes(*half).into());
    folded(sum.wrapping_add(last))
}

/// A sum of 64 bits as one of 32.
pub(super) fn folded(sum: u64) -> u32 {
    let low = u32::try_from(sum & 0xFFFF_FFFF).unwrap_or(0);
    low.wrapping_add(u32::try_from(sum >> 32_u32).unwrap_or(0))
}

fn duty(roles: &[u16], number: u32) -> Duty {
    let role = usize::try_from(number).ok().and_then(|index| roles.get(index));
    match role {
        Some(0xFFFD) => Duty::Journal,
        Some(0xFFFF) => Duty::Spare,
        None | Some(0xFF00..) => Duty::Faulty,
        Some(slot) => Duty::Member(u32::from(*slot)),
    }
}

/// What the list of bad blocks says: blocks on it lie elsewhere, or nowhere.
fn bad_blocks(source: &dyn Source, raw: &RawRecord, at: u64) -> Result<Option<String>, ParseError> {
    let start = at.checked_add_signed(i64::from(raw.bblog_offset.get()).saturating_mul(512));
    let start = start.ok_or_else(|| ParseError::corrupt(at, "the list of bad blocks lies before the device"))?;
    let list = read_vec(source, start, u64::from(raw.bblog_size.get()).saturating_mul(SECTOR))?;
    let entries = list.as_chunks::<8>().0.iter().map(|entry| u64::from_le_bytes(*entry));
    let count = entries.take_while(|entry| *entry != u64::MAX).count();
    Ok((count > 0).then(|| {
        format!("it lists {count} runs of bad blocks (mdadm --examine-badblocks DEVICE shows them): replace the drive")
    }))
}

fn words(uuid: [u8; 16]) -> [u32; 4] {
    let (words, _) = uuid.as_chunks::<4>();
    std::array::from_fn(|index| words.get(index).map_or(0, |word| u32::from_be_bytes(*word)))
}

fn name(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let name = String::from_utf8_lossy(bytes.get(..end)?).into_owned();
    (!name.is_empty()).then_some(name)
}

/// True when a bit of the write-intent bitmap at `at` is set.
pub(in crate::array) fn has_intent(source: &dyn Source, at: u64) -> Result<bool, ParseError> {
    let head: super::ondisk::RawBitmap = read_struct(source, at)?;
    if head.magic.get() != 0x6D74_6962 {
        let found = u64::from(head.magic.get());
        return Err(ParseError::corrupt(at, Mismatch::hex("the bitmap's magic number", 0x6D74_6962, found)));
    }
    let chunk = u64::from(head.chunksize.get()).checked_div(SECTOR).filter(|sectors| *sectors > 0);
    let chunk = chunk.ok_or_else(|| ParseError::corrupt(at, "a bit of the bitmap stands for nothing"))?;
    let bits = head.sync_size.get().div_ceil(chunk);
    let start = at.checked_add(256).ok_or_else(|| ParseError::corrupt(at, "the bitmap has no end"))?;
    let bytes = read_vec(source, start, bits.div_ceil(8))?;
    let whole = to_usize(bits.checked_div(8).unwrap_or(0), "bytes of a bitmap")?;
    let rest = u32::try_from(bits & 7).unwrap_or(0);
    let last = bytes.get(whole).is_some_and(|byte| u32::from(*byte) & 1_u32.wrapping_shl(rest).wrapping_sub(1) != 0);
    Ok(last || bytes.iter().take(whole).any(|byte| *byte != 0))
}
