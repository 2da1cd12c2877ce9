//! The second reading `ntfs-walk`: every record in use and every run of every attribute.
//!
//! It shares nothing with the reader of `$Bitmap` but the trait it reads through: fields are picked from plain bytes,
//! runs are decoded as they come, and the continuation of a fragmented $MFT is found in the records themselves
//! instead of an attribute list: a record that continues $MFT lies in the part of $MFT that precedes it.

use crate::error::ParseError;
use crate::source::{Source, read_vec};
use crate::units::{ByteRange, Overflow, add, div, mul, rem, to_usize};
use crate::witness::{Ledger, Witness};
use std::collections::BTreeMap;

/// The row.
pub(super) struct Walk;

impl Witness for Walk {
    fn name(&self) -> &'static str {
        "ntfs-walk"
    }

    fn walk(&self, source: &dyn Source, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        let mut table = Table::open(source)?;
        let boot = ByteRange::with_len(0, 8192.min(source.len()));
        boot.into_iter().for_each(|range| ledger.claim(range, &"$Boot"));
        let mut number = 0;
        while number < table.records && !ledger.has_clash() {
            number = table.visit_piece(number, ledger)?;
        }
        Ok(())
    }
}

/// Bytes of the volume that follow each other in a file.
#[derive(Clone, Copy)]
struct Stretch {
    /// Position in the file.
    offset: u64,
    /// Position on the volume; none in a hole.
    position: Option<u64>,
    len: u64,
}

/// $MFT as far as it is known.
struct Table<'a> {
    source: &'a dyn Source,
    cluster: u64,
    /// Bytes of all whole clusters.
    end: u64,
    record: u64,
    records: u64,
    known: Vec<Stretch>,
    known_len: u64,
    /// Later parts of $MFT, by position in the file, that were met already.
    later: BTreeMap<u64, Vec<Stretch>>,
}

/// Records are read and judged in pieces of this many bytes.
const PIECE: u64 = 1 << 20;

fn damaged(what: impl Into<String>) -> ParseError {
    ParseError::inconsistent(what.into())
}

/// `size` bytes at `at` as an unsigned number.
fn number(bytes: &[u8], at: usize, size: usize) -> Result<u64, ParseError> {
    let end = at.checked_add(size).ok_or(Overflow("a field position"))?;
    let field = bytes.get(at..end).ok_or_else(|| damaged("a field lies behind the end of its structure"))?;
    Ok(field.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// The same where the number says a position in the structure.
fn place(bytes: &[u8], at: usize, size: usize) -> Result<usize, ParseError> {
    Ok(to_usize(number(bytes, at, size)?, "a position in a structure")?)
}

/// One byte that means a count of `counted`, or minus log2 of a count of `shifted`.
fn size_code(code: u64, counted: u64, shifted: u64) -> Result<u64, ParseError> {
    if code <= 0x80 {
        return Ok(mul(code, counted, "a size in the boot sector")?);
    }
    let shift = u32::try_from(256_u64.saturating_sub(code)).unwrap_or(63);
    Ok(mul(1_u64.checked_shl(shift).unwrap_or(0), shifted, "a size in the boot sector")?)
}

impl<'a> Table<'a> {
    fn open(source: &'a dyn Source) -> Result<Self, ParseError> {
        let boot = read_vec(source, 0, 512)?;
        let sector = number(&boot, 11, 2)?;
        let cluster = size_code(number(&boot, 13, 1)?, sector, sector)?;
        let record = size_code(number(&boot, 64, 1)?, cluster, 1)?;
        let total = mul(number(&boot, 40, 8)?, sector, "the end of the volume")?;
        if !(512..=4096).contains(&record) || rem(record, 512, "a record size")? != 0 || total > source.len() {
            return Err(damaged("the boot sector's sizes are impossible"));
        }
        let end = total.saturating_sub(rem(total, cluster, "the odd end of the volume")?);
        let mut table =
            Self { source, cluster, end, record, records: 0, known: Vec::new(), known_len: 0, later: BTreeMap::new() };
        let at = mul(number(&boot, 48, 8)?, cluster, "the position of $MFT")?;
        let zero = restored(read_vec(source, at, record)?)?.ok_or_else(|| damaged("record 0 is not in use"))?;
        table.learn(&zero)?;
        if table.records == 0 {
            return Err(damaged("record 0 has no data in clusters"));
        }
        Ok(table)
    }

    /// Takes over what a record says about the runs of $MFT.
    fn learn(&mut self, record: &[u8]) -> Result<(), ParseError> {
        for attribute in attributes(record)? {
            if attribute.kind()? != 0x80 || attribute.is_named()? || !attribute.is_outside()? {
                continue;
            }
            let stretches = attribute.stretches(self.cluster, self.end)?;
            let first = mul(number(attribute.0, 16, 8)?, self.cluster, "a position in $MFT")?;
            if first == 0 {
                self.records = div(number(attribute.0, 56, 8)?, self.record, "the number of records")?;
            }
            self.later.insert(first, stretches);
        }
        while let Some(stretches) = self.later.remove(&self.known_len) {
            let len = stretches.iter().fold(0_u64, |sum, stretch| sum.saturating_add(stretch.len));
            self.known_len = add(self.known_len, len, "the length of $MFT")?;
            self.known.extend(stretches);
        }
        Ok(())
    }

    /// Bytes of $MFT.
    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, ParseError> {
        let end = add(offset, len, "the end of a read in $MFT")?;
        if end > self.known_len {
            return Err(damaged("a part of $MFT is described by no record before it"));
        }
        let mut bytes = Vec::new();
        let first = self.known.partition_point(|stretch| stretch.offset.saturating_add(stretch.len) <= offset);
        for stretch in self.known.iter().skip(first).take_while(|stretch| stretch.offset < end) {
            let skip = offset.saturating_sub(stretch.offset);
            let stop = stretch.len.min(end.saturating_sub(stretch.offset));
            let position = stretch.position.ok_or_else(|| damaged("$MFT has a hole"))?;
            bytes.extend(read_vec(self.source, position.saturating_add(skip), stop.saturating_sub(skip))?);
        }
        Ok(bytes)
    }

    /// Visits the records from `first` that fit into one large read, and gives the number of the next one.
    fn visit_piece(&mut self, first: u64, ledger: &mut Ledger<'_>) -> Result<u64, ParseError> {
        let offset = mul(first, self.record, "a position in $MFT")?;
        let all = mul(self.records, self.record, "the length of $MFT")?;
        let len = PIECE.min(all.saturating_sub(offset)).min(self.known_len.saturating_sub(offset));
        let count = div(len, self.record, "a number of records")?.max(1);
        let bytes = self.read(offset, mul(count, self.record, "a piece of $MFT")?)?;
        let mut next = first;
        for raw in bytes.chunks_exact(to_usize(self.record, "a record size")?) {
            if let Some(record) = restored(raw.to_vec()).map_err(|e| damaged(format!("MFT record {next}: {e}")))? {
                ledger.visit();
                self.claim_all(next, &record, ledger).map_err(|e| damaged(format!("MFT record {next}: {e}")))?;
            }
            next = next.saturating_add(1);
        }
        Ok(next)
    }

    fn claim_all(&mut self, number_of: u64, record: &[u8], ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        let base = base_of(record)?;
        if number_of != 0 && base == 0 && is_continuation(record)? {
            self.learn(record)?;
        }
        for attribute in attributes(record)? {
            if !attribute.is_outside()? {
                continue;
            }
            for stretch in attribute.stretches(self.cluster, self.end)? {
                let range = stretch.position.and_then(|position| ByteRange::with_len(position, stretch.len));
                range.into_iter().for_each(|range| ledger.claim(range, &Owner { table: self, number: number_of }));
            }
        }
        Ok(())
    }
}

/// The bytes in use of a record as they were before the update sequence; none for a record that is not in use or was
/// never written.
fn restored(mut record: Vec<u8>) -> Result<Option<Vec<u8>>, ParseError> {
    if record.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    if !record.starts_with(b"FILE") {
        return Err(damaged("it does not begin with \"FILE\""));
    }
    let array = place(&record, 4, 2)?;
    let words = place(&record, 6, 2)?;
    if words.checked_sub(1) != Some(record.len() >> 9) {
        return Err(damaged("its update sequence has the wrong length"));
    }
    let stamp = number(&record, array, 2)?;
    for index in 1..words {
        let tail = index.saturating_mul(512).saturating_sub(2);
        if number(&record, tail, 2)? != stamp {
            return Err(damaged("it was written only in part"));
        }
        for byte in 0..2 {
            let from = array.saturating_add(index.saturating_mul(2)).saturating_add(byte);
            let value = *record.get(from).ok_or_else(|| damaged("its update sequence is cut"))?;
            if let Some(slot) = record.get_mut(tail.saturating_add(byte)) {
                *slot = value;
            }
        }
    }
    if number(&record, 22, 2)? & 1 == 0 {
        return Ok(None);
    }
    record.truncate(place(&record, 24, 4)?);
    Ok(Some(record))
}

/// Number of the base record of a record that continues another one.
fn base_of(record: &[u8]) -> Result<u64, ParseError> {
    number(record, 32, 6)
}

/// True when the record continues another one: then its base reference has a sequence number, even for record 0.
fn is_continuation(record: &[u8]) -> Result<bool, ParseError> {
    Ok(number(record, 32, 8)? != 0)
}

/// One attribute, head and all.
struct Attribute<'a>(&'a [u8]);

/// The attributes of a record up to the end mark.
fn attributes(record: &[u8]) -> Result<Vec<Attribute<'_>>, ParseError> {
    let mut found = Vec::new();
    let mut rest = record.get(place(record, 20, 2)?..).unwrap_or_default();
    while number(rest, 0, 4)? != 0xFFFF_FFFF {
        let length = place(rest, 4, 4)?;
        let (attribute, behind) = rest
            .split_at_checked(length)
            .filter(|_| length >= 24)
            .ok_or_else(|| damaged("an attribute has an impossible length"))?;
        found.push(Attribute(attribute));
        rest = behind;
    }
    Ok(found)
}

impl<'a> Attribute<'a> {
    fn kind(&self) -> Result<u64, ParseError> {
        number(self.0, 0, 4)
    }

    fn is_named(&self) -> Result<bool, ParseError> {
        Ok(number(self.0, 9, 1)? != 0)
    }

    /// True when the value lies in clusters.
    fn is_outside(&self) -> Result<bool, ParseError> {
        Ok(number(self.0, 8, 1)? != 0)
    }

    /// The value of a resident attribute.
    fn value(&self) -> Result<&'a [u8], ParseError> {
        let (len, at) = (place(self.0, 16, 4)?, place(self.0, 20, 2)?);
        let end = at.checked_add(len).ok_or(Overflow("the end of a value"))?;
        self.0.get(at..end).ok_or_else(|| damaged("a value passes its attribute"))
    }

    /// The runs, in bytes.
    fn stretches(&self, cluster: u64, end: u64) -> Result<Vec<Stretch>, ParseError> {
        let first = number(self.0, 16, 8)?;
        let behind = number(self.0, 24, 8)?.wrapping_add(1);
        let mut rest = self.0.get(place(self.0, 32, 2)?..).unwrap_or_default();
        let mut vcn = first;
        let mut lcn: u64 = 0;
        let mut found = Vec::new();
        while number(rest, 0, 1)? != 0 {
            let head = number(rest, 0, 1)?;
            let (low, high) = (to_usize(head & 15, "a run")?, to_usize(head >> 4, "a run")?);
            let count = number(rest, 1, low.min(8))?;
            let len = mul(count, cluster, "the length of a run")?;
            let mut position = None;
            if high > 0 {
                lcn = lcn.wrapping_add(signed(rest, low.saturating_add(1), high)?);
                let start = mul(lcn, cluster, "the position of a run")?;
                if count == 0 || add(start, len, "the end of a run")? > end {
                    return Err(damaged("a run lies outside the volume"));
                }
                position = Some(start);
            }
            found.push(Stretch { offset: mul(vcn, cluster, "a position in a file")?, position, len });
            vcn = add(vcn, count, "a position in a file")?;
            rest = rest.get(low.saturating_add(high).saturating_add(1)..).unwrap_or_default();
        }
        if vcn == behind { Ok(found) } else { Err(damaged("the runs do not cover what their attribute says")) }
    }
}

/// A number of `size` bytes in two's complement, as the `u64` that adds it.
fn signed(bytes: &[u8], at: usize, size: usize) -> Result<u64, ParseError> {
    let value = number(bytes, at, size.min(8))?;
    let bits = u32::try_from(size.min(8).saturating_mul(8)).unwrap_or(64);
    let negative = value.checked_shr(bits.saturating_sub(1)).unwrap_or(0) & 1 == 1;
    Ok(if negative { value | u64::MAX.checked_shl(bits).unwrap_or(0) } else { value })
}

/// Names a record by its path, worked out only when somebody asks.
struct Owner<'a> {
    table: &'a Table<'a>,
    number: u64,
}

/// Deeper paths are shown from this depth on only.
const DEPTH: usize = 32;

impl Owner<'_> {
    /// The name and the directory of a record.
    fn name(&self, number_of: u64) -> Option<(String, u64)> {
        let offset = number_of.checked_mul(self.table.record)?;
        let record = restored(self.table.read(offset, self.table.record).ok()?).ok()??;
        if is_continuation(&record).ok()? {
            let base = base_of(&record).ok()?;
            return (base != number_of).then(|| self.base_name(base)).flatten();
        }
        self.base_name(number_of)
    }

    fn base_name(&self, number_of: u64) -> Option<(String, u64)> {
        let offset = number_of.checked_mul(self.table.record)?;
        let record = restored(self.table.read(offset, self.table.record).ok()?).ok()??;
        let attributes = attributes(&record).ok()?;
        let names = attributes.iter().filter(|a| a.kind().ok() == Some(0x30));
        let values: Vec<&[u8]> = names.filter_map(|a| a.value().ok()).collect();
        // A short DOS name (namespace 2) only where there is no other.
        let value = values.iter().find(|value| value.get(65) != Some(&2)).or(values.first())?;
        let units: Vec<u16> = value
            .get(66..)?
            .chunks_exact(2)
            .take(usize::from(*value.get(64)?))
            .filter_map(|pair| Some(u16::from_le_bytes(pair.try_into().ok()?)))
            .collect();
        Some((String::from_utf16_lossy(&units), number(value, 0, 6).ok()?))
    }
}

impl std::fmt::Display for Owner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        let mut at = self.number;
        while let Some((name, parent)) = self.name(at).filter(|_| parts.len() < DEPTH) {
            if parent == at || at == 5 {
                break;
            }
            parts.push(name);
            at = parent;
        }
        parts.reverse();
        let known = !parts.is_empty() || self.number == 5;
        if known {
            write!(f, "/{} (MFT record {})", parts.join("/"), self.number)
        } else {
            write!(f, "MFT record {}", self.number)
        }
    }
}
