//! MFT records and their attributes.
//!
//! ```text
//! record:    "FILE" head | update sequence array | attribute | attribute | ... | FF FF FF FF
//! attribute: 16-byte head | resident: length and value      | value
//!                         | non-resident: sizes, first VCN  | runs
//! ```
//! The last two bytes of every 512-byte stride were replaced by a number that changes with each write; the bytes that
//! belong there are in the update sequence array. A stride that ends with another number was not written with the rest.

use super::error::NtfsError;
use super::ondisk::{RawAttribute, RawNonResident, RawRecord, RawResident};
use super::runs::{Extent, decode};
use super::superblock::Geometry;
use crate::error::ParseError;
use crate::units::{from_usize, to_usize};
use zerocopy::FromBytes;

/// Attribute types.
pub(super) const ATTRIBUTE_LIST: u32 = 0x20;
pub(super) const VOLUME_NAME: u32 = 0x60;
pub(super) const VOLUME_INFORMATION: u32 = 0x70;
pub(super) const DATA: u32 = 0x80;
pub(super) const INDEX_ROOT: u32 = 0x90;
pub(super) const INDEX_ALLOCATION: u32 = 0xA0;
pub(super) const BITMAP: u32 = 0xB0;

/// The stride of the update sequence, whatever the sector size.
pub(super) const STRIDE: usize = 512;

/// Low 48 bits of a file reference: the record number.
pub(super) const REFERENCE: u64 = 0xFFFF_FFFF_FFFF;

/// A record in use, as it was before the update sequence was applied, up to the bytes in use.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub number: u64,
    pub at: u64,
    /// The record number of the base record; 0 in a base record.
    pub base: u64,
    bytes: Vec<u8>,
    first_attribute: usize,
}

/// Where the value of an attribute is.
#[derive(Debug)]
pub(super) enum Body<'a> {
    Resident(&'a [u8]),
    NonResident(Piece),
}

/// The part of a non-resident value that one attribute describes.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub lowest: u64,
    pub flags: u16,
    pub extents: Vec<Extent>,
    pub allocated: u64,
    pub data: u64,
    pub initialised: u64,
}

/// One attribute of a record.
#[derive(Debug)]
pub(super) struct Attribute<'a> {
    pub kind: u32,
    pub name: &'a [u8],
    pub body: Body<'a>,
}

/// `len` bytes of `bytes` from `at`.
pub(super) fn part(bytes: &[u8], at: usize, len: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(len)?)
}

/// Puts the true bytes back at the end of each stride. The error names the stride that was torn.
pub(super) fn fix_up(bytes: &mut [u8], usa_ofs: u16, usa_count: u16) -> Result<(), u64> {
    let strides = bytes.len() >> 9;
    let array: Vec<u8> =
        part(bytes, usize::from(usa_ofs), usize::from(usa_count).saturating_mul(2)).ok_or(0_u64)?.to_vec();
    if usize::from(usa_count) != strides.saturating_add(1) || usize::from(usa_ofs) & 1 != 0 {
        return Err(0);
    }
    let mut words = array.chunks_exact(2);
    let number = words.next().ok_or(0_u64)?;
    for (index, (stride, word)) in bytes.chunks_exact_mut(STRIDE).zip(words).enumerate() {
        let end = stride.get_mut(510..).ok_or(0_u64)?;
        if end != number {
            return Err(from_usize(index));
        }
        end.copy_from_slice(word);
    }
    Ok(())
}

impl Record {
    /// Checks the record `number` that was read from byte `at`. None when it is valid and not in use.
    pub(super) fn parse(number: u64, at: u64, mut bytes: Vec<u8>) -> Result<Option<Self>, ParseError> {
        let bad = |e: NtfsError| ParseError::corrupt(at, e);
        let (raw, _) = RawRecord::read_from_prefix(&bytes)
            .map_err(|_| bad(NtfsError::Record { record: number, what: "is cut" }))?;
        if &raw.magic != b"FILE" {
            return Err(bad(NtfsError::NotARecord { record: number, found: raw.magic.to_vec() }));
        }
        fix_up(&mut bytes, raw.usa_ofs.get(), raw.usa_count.get())
            .map_err(|stride| bad(NtfsError::Torn { record: number, stride }))?;
        check_head(&raw, number, bytes.len()).map_err(bad)?;
        bytes.truncate(to_usize(u64::from(raw.bytes_in_use.get()), "the bytes in use of a record")?);
        let base = raw.base_mft_record.get() & REFERENCE;
        let first_attribute = usize::from(raw.attrs_offset.get());
        let record = Self { number, at, base, bytes, first_attribute };
        Ok((raw.flags.get() & 1 == 1).then_some(record))
    }

    /// The bytes in use.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// An error of this record.
    pub(super) fn error(&self, what: &'static str) -> ParseError {
        ParseError::corrupt(self.at, NtfsError::Record { record: self.number, what })
    }

    /// Every attribute, each checked.
    pub(super) fn attributes(&self, geometry: &Geometry) -> Result<Vec<Attribute<'_>>, ParseError> {
        let mut found = Vec::new();
        let mut at = self.first_attribute;
        loop {
            let rest = self.bytes.get(at..).unwrap_or_default();
            if rest.get(..4) == Some(&[0xFF; 4]) {
                return Ok(found);
            }
            let (raw, _) =
                RawAttribute::read_from_prefix(rest).map_err(|_| self.error("an attribute passes the bytes in use"))?;
            let length = to_usize(u64::from(raw.length.get()), "the length of an attribute")?;
            let bytes = rest
                .get(..length)
                .filter(|_| length >= size_of::<RawAttribute>() && length & 7 == 0)
                .ok_or_else(|| self.error("the length of an attribute is impossible"))?;
            found.push(self.attribute(&raw, bytes, geometry)?);
            at = at.saturating_add(length);
        }
    }

    fn attribute<'a>(
        &self,
        raw: &RawAttribute,
        bytes: &'a [u8],
        geometry: &Geometry,
    ) -> Result<Attribute<'a>, ParseError> {
        let name_len = usize::from(raw.name_length).saturating_mul(2);
        let name = part(bytes, usize::from(raw.name_offset.get()), name_len)
            .or((name_len == 0).then_some(&[]))
            .ok_or_else(|| self.error("the name of an attribute passes its end"))?;
        let head = bytes.get(size_of::<RawAttribute>()..).unwrap_or_default();
        let body = match raw.non_resident {
            0 => Body::Resident(self.resident(head, bytes)?),
            1 => Body::NonResident(self.non_resident(head, bytes, raw.flags.get(), geometry)?),
            _ => return Err(self.error("an attribute is neither resident nor non-resident")),
        };
        Ok(Attribute { kind: raw.kind.get(), name, body })
    }

    fn resident<'a>(&self, head: &[u8], bytes: &'a [u8]) -> Result<&'a [u8], ParseError> {
        let (raw, _) =
            RawResident::read_from_prefix(head).map_err(|_| self.error("a resident attribute is too short"))?;
        let length = to_usize(u64::from(raw.value_length.get()), "the length of a value")?;
        part(bytes, usize::from(raw.value_offset.get()), length)
            .ok_or_else(|| self.error("a resident value passes the end of its attribute"))
    }

    fn non_resident(&self, head: &[u8], bytes: &[u8], flags: u16, geometry: &Geometry) -> Result<Piece, ParseError> {
        let (raw, _) =
            RawNonResident::read_from_prefix(head).map_err(|_| self.error("a non-resident attribute is too short"))?;
        let lowest = raw.lowest_vcn.get();
        let wanted = raw
            .highest_vcn
            .get()
            .wrapping_add(1) // an empty value ends at VCN -1
            .checked_sub(lowest)
            .ok_or_else(|| self.error("the VCNs of an attribute are reversed"))?;
        let runs = bytes
            .get(usize::from(raw.mapping_pairs_offset.get())..)
            .ok_or_else(|| self.error("the runs of an attribute lie behind its end"))?;
        let extents = decode(runs, geometry.clusters)
            .map_err(|(run, what)| ParseError::corrupt(self.at, NtfsError::Run { record: self.number, run, what }))?;
        let found = extents.iter().fold(0_u64, |sum, extent| sum.saturating_add(extent.count));
        if found != wanted {
            let error = NtfsError::field(self.number, "clusters of an attribute", wanted, found);
            return Err(ParseError::corrupt(self.at, error));
        }
        Ok(Piece {
            lowest,
            flags,
            extents,
            allocated: raw.allocated_size.get(),
            data: raw.data_size.get(),
            initialised: raw.initialized_size.get(),
        })
    }
}

fn check_head(raw: &RawRecord, number: u64, len: usize) -> Result<(), NtfsError> {
    let allocated = u64::from(raw.bytes_allocated.get());
    if allocated != from_usize(len) {
        return Err(NtfsError::field(number, "bytes allocated", len, allocated));
    }
    let used = u64::from(raw.bytes_in_use.get());
    if used > allocated || used < u64::from(raw.attrs_offset.get()) {
        return Err(NtfsError::field(number, "bytes in use", format_args!("at most {allocated}"), used));
    }
    // Since NTFS 3.1 a record names itself: the surest sign that the runs of $MFT were followed rightly.
    let own = u64::from(raw.mft_record_number.get());
    if raw.usa_ofs.get() >= 48 && own != number & 0xFFFF_FFFF {
        return Err(NtfsError::field(number, "the record's own number", number, own));
    }
    Ok(())
}
