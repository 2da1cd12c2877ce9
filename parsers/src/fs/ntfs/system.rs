//! The volume's own files: what they occupy, and whether $MFT and its mirror agree.

use super::error::NtfsError;
use super::mft::{Mft, SYSTEM_RECORDS, Stream, len_of};
use super::record::{ATTRIBUTE_LIST, Body, DATA, Record, part};
use super::superblock::Geometry;
use crate::error::ParseError;
use crate::source::{Source, read_vec};
use crate::units::{from_usize, to_usize};

pub(super) const MIRROR: u64 = 1;
pub(super) const LOG: u64 = 2;
pub(super) const VOLUME: u64 = 3;
pub(super) const ROOT: u64 = 5;
pub(super) const BITMAP_FILE: u64 = 6;
const BAD_CLUSTERS: u64 = 8;

/// Names of the records 0 to 15, for messages.
const NAMES: [&str; 16] = [
    "a cluster of $MFT",
    "a cluster of $MFTMirr",
    "a cluster of $LogFile",
    "a cluster of $Volume",
    "a cluster of $AttrDef",
    "a cluster of the root directory",
    "a cluster of $Bitmap",
    "a cluster of $Boot",
    "a bad cluster",
    "a cluster of $Secure",
    "a cluster of $UpCase",
    "a cluster of $Extend",
    "a cluster of a reserved file",
    "a cluster of a reserved file",
    "a cluster of a reserved file",
    "a cluster of a reserved file",
];

/// A run of clusters that a system file owns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owned {
    pub first: u64,
    pub count: u64,
    pub what: &'static str,
    /// A bad cluster: never free, but no proof of a wrong bitmap.
    pub bad: bool,
}

/// All runs of all attributes of the records 0 to 15 and of the records that continue them.
pub(super) fn owned(mft: &Mft<'_>) -> Result<Vec<Owned>, ParseError> {
    let mut found = Vec::new();
    for (number, what) in (0..SYSTEM_RECORDS).zip(NAMES) {
        let Some(record) = mft.record(number)? else {
            continue;
        };
        let bad = number == BAD_CLUSTERS;
        collect(&record, what, bad, &mft.geometry, &mut found)?;
        for extension in mft.continued_in(&record, |_| true)? {
            collect(&mft.extension(extension, &record)?, what, bad, &mft.geometry, &mut found)?;
        }
    }
    Ok(found)
}

fn collect(
    record: &Record,
    what: &'static str,
    bad: bool,
    geometry: &Geometry,
    found: &mut Vec<Owned>,
) -> Result<(), ParseError> {
    for attribute in record.attributes(geometry)? {
        if let Body::NonResident(piece) = attribute.body {
            let extents = piece.extents.iter().filter_map(|extent| Some((extent.lcn?, extent.count)));
            let bad = bad && attribute.kind != ATTRIBUTE_LIST;
            found.extend(extents.map(|(first, count)| Owned { first, count, what, bad }));
        }
    }
    Ok(())
}

/// The unnamed data of a system file, with the record that owns it.
pub(super) fn data_of(mft: &Mft<'_>, number: u64) -> Result<(Record, Stream), ParseError> {
    let record = mft.needed(number)?;
    let stream = mft.stream_of(&record, DATA, &[])?.ok_or_else(|| record.error("has no data in clusters"))?;
    Ok((record, stream))
}

/// Windows and ntfs-3g write the first four records twice and refuse a volume on which they differ.
const MIRRORED: u64 = 4;

/// Compares the first records of $MFT with $MFTMirr.
pub(super) fn check_mirror(mft: &Mft<'_>) -> Result<(), ParseError> {
    let (record, stream) = data_of(mft, MIRROR)?;
    let geometry = &mft.geometry;
    stream.check_written(&record, geometry)?;
    if stream.extents.first().and_then(|extent| extent.lcn) != Some(geometry.mirror) {
        return Err(record.error("$MFTMirr does not begin where the boot sector says"));
    }
    let len = MIRRORED.saturating_mul(geometry.record);
    let copy = stream.read(mft.source, geometry, 0, len)?;
    let record_len = to_usize(geometry.record, "a record")?;
    let at = geometry.byte_of(geometry.mirror)?;
    for (number, bytes) in (0..MIRRORED).zip(copy.chunks_exact(record_len)) {
        let start = to_usize(number.saturating_mul(geometry.record), "a record position")?;
        let original = part(mft.head(), start, record_len).unwrap_or_default();
        if !same_record(number, at, original, bytes)? {
            return Err(ParseError::corrupt(at, NtfsError::Mirror { record: number }));
        }
    }
    Ok(())
}

/// True when both copies say the same in their bytes in use.
fn same_record(number: u64, at: u64, original: &[u8], copy: &[u8]) -> Result<bool, ParseError> {
    if original == copy {
        return Ok(true);
    }
    let a = Record::parse(number, at, original.to_vec())?;
    let b = Record::parse(number, at, copy.to_vec())?;
    Ok(a.as_ref().map(Record::bytes) == b.as_ref().map(Record::bytes))
}

/// The largest request: over USB a round trip costs as much as 32 KiB, so requests are made large.
const REQUEST: u64 = 1 << 20;

/// Calls `f` with the first `len` bytes of a value without holes, in order and in large pieces.
pub(super) fn for_each_piece(
    source: &dyn Source,
    stream: &Stream,
    geometry: &Geometry,
    len: u64,
    mut f: impl FnMut(u64, &[u8]) -> Result<(), ParseError>,
) -> Result<(), ParseError> {
    let mut done: u64 = 0;
    for (position, count) in stream.places(0, len, geometry)? {
        let start = position.ok_or_else(|| ParseError::inconsistent("a system file has a hole"))?;
        let mut offset: u64 = 0;
        while offset < count {
            let bytes = read_vec(source, start.saturating_add(offset), REQUEST.min(count.saturating_sub(offset)))?;
            f(done, &bytes)?;
            offset = offset.saturating_add(len_of(&bytes));
            done = done.saturating_add(from_usize(bytes.len()));
        }
    }
    Ok(())
}
