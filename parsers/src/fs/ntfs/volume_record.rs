//! $Volume, MFT record 3: the label, the version, and the flags that say what is still to be done.

use super::error::NtfsError;
use super::mft::Mft;
use super::ondisk::RawVolumeInformation;
use super::record::{VOLUME_INFORMATION, VOLUME_NAME};
use super::system::VOLUME;
use crate::error::ParseError;
use crate::volume::Finding;
use zerocopy::FromBytes;

/// What $Volume says.
pub(super) struct VolumeRecord {
    at: u64,
    pub label: Option<String>,
    flags: u16,
}

/// Flags that mean unfinished work, in words. "Mounted on NT 4" (0x0008), "no short names are made" (0x0080, usual
/// since Windows 8; DiscUtils names it) and "modified by chkdsk" (0x8000) do not.
const PENDING: [(u16, &str); 6] = [
    (0x0001, "the volume is marked dirty"),
    (0x0002, "the log is to be resized"),
    (0x0004, "the volume is to be upgraded at the next mount"),
    (0x0010, "the change journal is being deleted"),
    (0x0020, "object identifiers are to be repaired"),
    (0x4000, "chkdsk is at work on it"),
];

/// Every flag whose meaning is known.
const KNOWN: u16 = 0x0001 | 0x0002 | 0x0004 | 0x0008 | 0x0010 | 0x0020 | 0x0080 | 0x4000 | 0x8000;

/// Reads record 3.
pub(super) fn read(mft: &Mft<'_>) -> Result<VolumeRecord, ParseError> {
    let record = mft.needed(VOLUME)?;
    let value = mft.resident_of(&record, VOLUME_INFORMATION, &[])?;
    let (raw, _) = RawVolumeInformation::read_from_prefix(value.as_deref().unwrap_or_default())
        .map_err(|_| record.error("has no $VOLUME_INFORMATION"))?;
    let version = (raw.major_ver, raw.minor_ver);
    if !matches!(version, (1, 1 | 2) | (3, 0 | 1)) {
        let error = NtfsError::Version { major: raw.major_ver, minor: raw.minor_ver };
        return Err(ParseError::unsupported(record.at, error));
    }
    let label = mft.resident_of(&record, VOLUME_NAME, &[])?.map(|name| text(&name)).filter(|name| !name.is_empty());
    Ok(VolumeRecord { at: record.at, label, flags: raw.flags.get() })
}

/// What the flags have to say against using the map.
pub(super) fn finding(record: &VolumeRecord) -> Result<Option<Finding>, ParseError> {
    let unknown = record.flags & !KNOWN;
    if unknown != 0 {
        return Err(ParseError::unsupported(record.at, NtfsError::UnknownFlags { bits: unknown }));
    }
    let pending: Vec<&str> =
        PENDING.iter().filter(|(bit, _)| record.flags & bit != 0).map(|(_, meaning)| *meaning).collect();
    Ok((!pending.is_empty()).then(|| {
        Finding::refusal(
            format!(
                "$Volume (record 3, byte {}) has flags {:#06x}: {}; expected none of them",
                record.at,
                record.flags,
                pending.join(", ")
            ),
            "let Windows check it: chkdsk DEVICE /f",
        )
    }))
}

fn text(bytes: &[u8]) -> String {
    let units: Vec<u16> =
        bytes.chunks_exact(2).filter_map(|pair| Some(u16::from_le_bytes(pair.try_into().ok()?))).collect();
    String::from_utf16_lossy(&units)
}
