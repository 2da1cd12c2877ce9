//! The master file table: a file that describes all files, itself among them, and the values of its attributes.

use super::error::NtfsError;
use super::ondisk::RawListEntry;
use super::record::{ATTRIBUTE_LIST, Attribute, Body, DATA, Piece, REFERENCE, Record, part};
use super::runs::Extent;
use super::superblock::Geometry;
use crate::error::ParseError;
use crate::source::{Source, read_vec};
use crate::units::{add, from_usize, mul, to_usize};
use zerocopy::FromBytes;

/// Compressed (any method), encrypted, sparse.
const TRANSFORMED: u16 = 0x00FF | 0x4000 | 0x8000;

/// Windows limits an attribute list to 256 KiB.
const MAX_LIST: u64 = 256 << 10;

/// The records of the volume's own files; the table of their numbers is in `system.rs`.
pub(super) const SYSTEM_RECORDS: u64 = 16;

/// A whole non-resident value: all its pieces, in order and without a gap.
#[derive(Debug, Clone, Default)]
pub(super) struct Stream {
    pub extents: Vec<Extent>,
    pub flags: u16,
    pub allocated: u64,
    pub data: u64,
    pub initialised: u64,
}

impl Stream {
    /// Joins pieces that are sorted by their first VCN.
    fn join(pieces: Vec<Piece>, owner: &Record) -> Result<Self, ParseError> {
        let mut stream = Self::default();
        for (index, piece) in pieces.into_iter().enumerate() {
            if index == 0 {
                stream = Self {
                    flags: piece.flags,
                    allocated: piece.allocated,
                    data: piece.data,
                    initialised: piece.initialised,
                    extents: Vec::new(),
                };
            }
            stream.append(piece, owner)?;
        }
        Ok(stream)
    }

    fn append(&mut self, piece: Piece, owner: &Record) -> Result<(), ParseError> {
        if piece.lowest != self.clusters() {
            let error = NtfsError::field(owner.number, "next VCN of a value in pieces", self.clusters(), piece.lowest);
            return Err(ParseError::corrupt(owner.at, error));
        }
        self.flags |= piece.flags;
        self.extents.extend(piece.extents);
        Ok(())
    }

    /// Clusters that the runs cover, holes included.
    pub(super) fn clusters(&self) -> u64 {
        self.extents.iter().fold(0, |sum, extent| sum.saturating_add(extent.count))
    }

    /// What an allocation structure must be: every byte on disk as it is meant, none left out.
    pub(super) fn check_plain(&self, owner: &Record, geometry: &Geometry) -> Result<(), ParseError> {
        if self.flags & TRANSFORMED != 0 {
            return Err(owner.error("a system file is compressed, encrypted or sparse"));
        }
        if self.extents.iter().any(|extent| extent.lcn.is_none()) {
            return Err(owner.error("a system file has a hole"));
        }
        let field = |what, expected: u64, found: u64| {
            Err(ParseError::corrupt(owner.at, NtfsError::field(owner.number, what, expected, found)))
        };
        let allocated = geometry.byte_of(self.clusters())?;
        if self.allocated != allocated {
            return field("allocated size", allocated, self.allocated);
        }
        if self.data > allocated {
            return field("data size, at most", allocated, self.data);
        }
        if self.initialised > self.data {
            return field("initialised size, at most", self.data, self.initialised);
        }
        Ok(())
    }

    /// The same, and every byte was written: what lies behind the initialised size reads as zeros, whatever is on disk.
    pub(super) fn check_written(&self, owner: &Record, geometry: &Geometry) -> Result<(), ParseError> {
        self.check_plain(owner, geometry)?;
        if self.initialised != self.data {
            let error = NtfsError::field(owner.number, "initialised size", self.data, self.initialised);
            return Err(ParseError::corrupt(owner.at, error));
        }
        Ok(())
    }

    /// The bytes of the volume that hold bytes `at..at + len` of the value, in order; a hole has no position.
    pub(super) fn places(&self, at: u64, len: u64, geometry: &Geometry) -> Result<Vec<(Option<u64>, u64)>, ParseError> {
        let end = add(at, len, "the end of a read in a file")?;
        let mut places = Vec::new();
        let mut from = 0;
        for extent in &self.extents {
            let to = add(from, geometry.byte_of(extent.count)?, "a position in a file")?;
            let (first, last) = (from.max(at), to.min(end));
            if first < last {
                let position = match extent.lcn {
                    Some(lcn) => Some(add(geometry.byte_of(lcn)?, first.saturating_sub(from), "a position")?),
                    None => None,
                };
                places.push((position, last.saturating_sub(first)));
            }
            from = to;
        }
        if end > from {
            return Err(ParseError::inconsistent("a file ends before the bytes that should be in it"));
        }
        Ok(places)
    }

    /// Bytes `at..at + len` of the value as a reader of the file sees them: zeros in holes and where nothing was
    /// written yet.
    pub(super) fn read(
        &self,
        source: &dyn Source,
        geometry: &Geometry,
        at: u64,
        len: u64,
    ) -> Result<Vec<u8>, ParseError> {
        let mut bytes = Vec::new();
        for (position, count) in self.places(at, len, geometry)? {
            match position {
                Some(position) => bytes.extend(read_vec(source, position, count)?),
                None => bytes.resize(bytes.len().saturating_add(to_usize(count, "a hole")?), 0),
            }
        }
        let written = to_usize(self.initialised.saturating_sub(at), "an initialised size")?;
        if let Some(unwritten) = bytes.get_mut(written..) {
            unwritten.fill(0);
        }
        Ok(bytes)
    }
}

/// The table, found through its own first record.
pub(super) struct Mft<'a> {
    pub source: &'a dyn Source,
    pub geometry: Geometry,
    stream: Stream,
    /// The system records as they lie on disk: one read instead of many.
    head: Vec<u8>,
}

impl<'a> Mft<'a> {
    /// Reads record 0 and, where $MFT is too fragmented for one record, the records that continue it; each must lie
    /// in the part of the table that is known by then.
    pub(super) fn open(source: &'a dyn Source, geometry: Geometry) -> Result<Self, ParseError> {
        let at = geometry.byte_of(geometry.mft)?;
        let bytes = read_vec(source, at, geometry.record)?;
        let zero = Record::parse(0, at, bytes)?
            .ok_or_else(|| ParseError::corrupt(at, NtfsError::Record { record: 0, what: "is not in use" }))?;
        let own = pieces_in(&zero, DATA, &[], &geometry)?;
        let mut mft = Self { source, geometry, stream: Stream::join(own, &zero)?, head: Vec::new() };
        let first = mft.stream.extents.first().and_then(|extent| extent.lcn);
        if first != Some(geometry.mft) {
            return Err(zero.error("$MFT does not begin where the boot sector says"));
        }
        for entry in mft.list(&zero)?.iter().filter(|entry| entry.is(DATA, &[]) && entry.record != 0) {
            let extension = mft.extension(entry.record, &zero)?;
            for piece in pieces_in(&extension, DATA, &[], &geometry)? {
                if piece.lowest >= mft.stream.clusters() {
                    mft.stream.append(piece, &extension)?;
                }
            }
        }
        mft.stream.check_plain(&zero, &geometry)?;
        mft.load_head(&zero)?;
        Ok(mft)
    }

    fn load_head(&mut self, zero: &Record) -> Result<(), ParseError> {
        let len = mul(SYSTEM_RECORDS, self.geometry.record, "the system records")?;
        if self.stream.initialised < len {
            return Err(zero.error("$MFT holds fewer than 16 records"));
        }
        self.head = self.stream.read(self.source, &self.geometry, 0, len)?;
        Ok(())
    }

    /// The system records as they lie on disk.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Record `number`; none when it is not in use.
    pub(super) fn record(&self, number: u64) -> Result<Option<Record>, ParseError> {
        let offset = mul(number, self.geometry.record, "the position of an MFT record")?;
        let end = add(offset, self.geometry.record, "the end of an MFT record")?;
        if end > self.stream.initialised {
            return Err(ParseError::inconsistent(NtfsError::Record { record: number, what: "lies behind $MFT's end" }));
        }
        let places = self.stream.places(offset, self.geometry.record, &self.geometry)?;
        let at = places.first().and_then(|place| place.0).unwrap_or(0);
        let cached =
            part(&self.head, to_usize(offset, "a record position")?, to_usize(self.geometry.record, "a record")?);
        let bytes = match cached {
            Some(bytes) => bytes.to_vec(),
            None => self.stream.read(self.source, &self.geometry, offset, self.geometry.record)?,
        };
        Record::parse(number, at, bytes)
    }

    /// A record that must be in use, because the volume does not work without it.
    pub(super) fn needed(&self, number: u64) -> Result<Record, ParseError> {
        self.record(number)?.ok_or_else(|| {
            ParseError::inconsistent(NtfsError::Record { record: number, what: "is needed and not in use" })
        })
    }

    /// Record `number`, which continues `base`.
    pub(super) fn extension(&self, number: u64, base: &Record) -> Result<Record, ParseError> {
        let record = self.needed(number)?;
        if record.base != base.number {
            let error = NtfsError::field(number, "its base record", base.number, record.base);
            return Err(ParseError::corrupt(record.at, error));
        }
        Ok(record)
    }

    /// The value of an attribute that lies in clusters; none when the record has no such attribute there.
    pub(super) fn stream_of(&self, base: &Record, kind: u32, name: &[u8]) -> Result<Option<Stream>, ParseError> {
        let mut pieces = pieces_in(base, kind, name, &self.geometry)?;
        for number in self.continued_in(base, |entry| entry.is(kind, name))? {
            pieces.extend(pieces_in(&self.extension(number, base)?, kind, name, &self.geometry)?);
        }
        pieces.sort_by_key(|piece| piece.lowest);
        if pieces.is_empty() { Ok(None) } else { Stream::join(pieces, base).map(Some) }
    }

    /// The resident value of an attribute, in the record itself or in one that continues it.
    pub(super) fn resident_of(&self, base: &Record, kind: u32, name: &[u8]) -> Result<Option<Vec<u8>>, ParseError> {
        if let Some(value) = resident_in(base, kind, name, &self.geometry)? {
            return Ok(Some(value));
        }
        for number in self.continued_in(base, |entry| entry.is(kind, name))? {
            if let Some(value) = resident_in(&self.extension(number, base)?, kind, name, &self.geometry)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Numbers of the other records that hold attributes of `base` which `wanted` picks, each once.
    pub(super) fn continued_in(&self, base: &Record, wanted: impl Fn(&Entry) -> bool) -> Result<Vec<u64>, ParseError> {
        let list = self.list(base)?;
        let mut numbers: Vec<u64> =
            list.iter().filter(|e| e.record != base.number && wanted(e)).map(|e| e.record).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    /// The attribute list of a record, in its order; empty when it has none.
    fn list(&self, base: &Record) -> Result<Vec<Entry>, ParseError> {
        let attributes = base.attributes(&self.geometry)?;
        let Some(list) = attributes.iter().find(|attribute| attribute.kind == ATTRIBUTE_LIST) else {
            return Ok(Vec::new());
        };
        match &list.body {
            Body::Resident(bytes) => parse_list(bytes, base),
            Body::NonResident(piece) => {
                let stream = Stream::join(vec![piece.clone()], base)?;
                stream.check_written(base, &self.geometry)?;
                if stream.data > MAX_LIST {
                    return Err(base.error("its attribute list is longer than 256 KiB"));
                }
                parse_list(&stream.read(self.source, &self.geometry, 0, stream.data)?, base)
            }
        }
    }
}

/// One line of an attribute list.
#[derive(Debug)]
pub(super) struct Entry {
    kind: u32,
    name: Vec<u8>,
    record: u64,
}

impl Entry {
    fn is(&self, kind: u32, name: &[u8]) -> bool {
        self.kind == kind && self.name == name
    }
}

fn parse_list(mut bytes: &[u8], owner: &Record) -> Result<Vec<Entry>, ParseError> {
    let bad = || owner.error("its attribute list is damaged");
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (raw, _) = RawListEntry::read_from_prefix(bytes).map_err(|_| bad())?;
        let length = usize::from(raw.length.get());
        let (entry, rest) = bytes
            .split_at_checked(length)
            .filter(|_| length >= size_of::<RawListEntry>() && length & 7 == 0)
            .ok_or_else(bad)?;
        let name_len = usize::from(raw.name_length).saturating_mul(2);
        let name =
            if name_len == 0 { &[] } else { part(entry, usize::from(raw.name_offset), name_len).ok_or_else(bad)? };
        let record = raw.mft_reference.get() & REFERENCE;
        entries.push(Entry { kind: raw.kind.get(), name: name.to_vec(), record });
        bytes = rest;
    }
    Ok(entries)
}

fn matches(attribute: &Attribute<'_>, kind: u32, name: &[u8]) -> bool {
    attribute.kind == kind && attribute.name == name
}

fn pieces_in(record: &Record, kind: u32, name: &[u8], geometry: &Geometry) -> Result<Vec<Piece>, ParseError> {
    let attributes = record.attributes(geometry)?;
    let wanted = attributes.into_iter().filter(|attribute| matches(attribute, kind, name));
    Ok(wanted
        .filter_map(|attribute| match attribute.body {
            Body::NonResident(piece) => Some(piece),
            Body::Resident(_) => None,
        })
        .collect())
}

fn resident_in(record: &Record, kind: u32, name: &[u8], geometry: &Geometry) -> Result<Option<Vec<u8>>, ParseError> {
    let attributes = record.attributes(geometry)?;
    Ok(attributes.iter().filter(|attribute| matches(attribute, kind, name)).find_map(|attribute| {
        match attribute.body {
            Body::Resident(value) => Some(value.to_vec()),
            Body::NonResident(_) => None,
        }
    }))
}

/// A name as it lies in an attribute: UTF-16, little endian.
pub(super) fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// How many bytes a slice has, as a position.
pub(super) fn len_of(bytes: &[u8]) -> u64 {
    from_usize(bytes.len())
}
