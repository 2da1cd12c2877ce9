//! The label of a physical volume, and the areas that it names: raw bytes to checked facts.

use super::ondisk::{RawArea, RawExtension, RawLabel, RawPhysical};
use crate::container::crc32;
use crate::error::{Mismatch, ParseError};
use crate::source::{Source, read_vec};
use crate::units::ByteRange;
use zerocopy::FromBytes;

const SECTOR: u64 = 512;
/// The label lies in one of so many sectors.
const LABEL_SECTORS: u64 = 4;
/// Where LVM2's sums begin.
pub(super) const SUM_START: u32 = 0xF597_A6CF;

/// What the label of a device says.
#[derive(Debug, Clone)]
pub(super) struct Label {
    /// As LVM prints it.
    pub uuid: String,
    /// Where the metadata may lie.
    pub metadata: Vec<ByteRange>,
    /// Where nothing of a logical volume may lie: the label, the metadata, what a boot loader keeps.
    pub reserved: Vec<ByteRange>,
    /// Whether a volume group uses it; older labels do not say.
    pub is_used: Option<bool>,
}

/// The label's sector, in bytes; none without one.
pub(super) fn place(source: &dyn Source) -> Result<Option<u64>, ParseError> {
    for sector in 0..LABEL_SECTORS {
        let at = sector.saturating_mul(SECTOR);
        if crate::foreign::has_bytes(source, at.saturating_add(24), b"LVM2 001")? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

impl Label {
    /// Reads the first label that is there, as LVM does.
    pub(super) fn read(source: &dyn Source) -> Result<Self, ParseError> {
        let at = place(source)?.ok_or_else(|| ParseError::corrupt(0, "there is no label"))?;
        let sector = read_vec(source, at, SECTOR)?;
        let short = || ParseError::corrupt(at, "the label was cut short");
        let (raw, _) = RawLabel::read_from_prefix(&sector).map_err(|_| short())?;
        let summed = sector.get(20..).ok_or_else(short)?;
        let sum = crc32::continued(SUM_START, summed);
        if raw.id != *b"LABELONE" || raw.crc.get() != sum {
            let found = u64::from(raw.crc.get());
            return Err(ParseError::corrupt(at, Mismatch::hex("the label's sum", sum.into(), found)));
        }
        if raw.sector.get().checked_mul(SECTOR) != Some(at) {
            return Err(ParseError::corrupt(
                at,
                Mismatch::new("the label's own sector", at >> 9_u32, raw.sector.get()),
            ));
        }
        let header = usize::try_from(raw.offset.get()).ok().and_then(|offset| sector.get(offset..));
        let (physical, rest) = RawPhysical::read_from_prefix(header.ok_or_else(short)?).map_err(|_| short())?;
        let (_, rest) = areas(rest, source.len()).ok_or_else(short)?;
        let (metadata, rest) = areas(rest, source.len()).ok_or_else(short)?;
        let extension = RawExtension::read_from_prefix(rest).ok().filter(|(raw, _)| raw.version.get() > 0);
        let boot = extension.as_ref().and_then(|(_, rest)| areas(rest, source.len()));
        let mut reserved = metadata.clone();
        reserved.extend(boot.into_iter().flat_map(|(areas, _)| areas));
        reserved.extend(ByteRange::new(0, LABEL_SECTORS.saturating_mul(SECTOR)));
        // Flags are known since version 2 of the extension.
        let is_used = extension.filter(|(raw, _)| raw.version.get() > 1).map(|(raw, _)| raw.flags.get() & 1 != 0);
        Ok(Self { uuid: uuid(&physical.uuid), metadata, reserved, is_used })
    }
}

/// A list of areas, and what is behind its end; none when one lies outside of a device of `len` bytes.
fn areas(bytes: &[u8], len: u64) -> Option<(Vec<ByteRange>, &[u8])> {
    let mut found = Vec::new();
    let mut rest = bytes;
    loop {
        let (raw, behind) = RawArea::read_from_prefix(rest).ok()?;
        rest = behind;
        let (start, size) = (raw.offset.get(), raw.size.get());
        if start == 0 {
            return Some((found, rest));
        }
        let end = if size == 0 { len } else { start.checked_add(size)? };
        found.push(ByteRange::new(start, end).filter(|area| area.end() <= len)?);
    }
}

/// 32 letters and digits as LVM prints them: 6-4-4-4-4-4-6.
fn uuid(bytes: &[u8; 32]) -> String {
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 6 | 10 | 14 | 18 | 22 | 26) {
            text.push('-');
        }
        text.push(char::from(*byte));
    }
    text
}
