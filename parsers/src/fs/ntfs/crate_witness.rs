//! The second reading `ntfs-crate`: the same walk with the public `ntfs` crate, which none of us wrote.
//!
//! Its known limits (0.4.0): it reads $MFT through the runs of record 0 alone, so a $MFT in several records cannot be
//! read; it tells no position for runs that begin at cluster 0 ($Boot); it ends silently at an attribute that passes
//! its record, so the bytes it saw are compared with the bytes in use. It reads in pieces of a few bytes, and
//! record 0 again for each record, which a small cache makes bearable: the crate tells positions itself, so a cache
//! below it cannot make it see neighbours.

use crate::error::ParseError;
use crate::source::{Cursor, Source};
use crate::units::{ByteRange, from_usize, to_usize};
use crate::witness::{Ledger, Witness};
use ntfs::attribute_value::NtfsAttributeValue;
use ntfs::{Ntfs, NtfsAttributeType, NtfsError, NtfsFile, NtfsFileFlags};
use std::cell::RefCell;
use std::io;

/// The row.
pub(super) struct Crate;

impl Witness for Crate {
    fn name(&self) -> &'static str {
        "ntfs-crate"
    }

    fn walk(&self, source: &dyn Source, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        let cache = Cache { inner: source, lines: RefCell::new([const { None }; LINES]) };
        let mut cursor = Cursor::new(&cache);
        let ntfs = Ntfs::new(&mut cursor).map_err(unreadable)?;
        let records = record_count(&ntfs, &mut cursor)?;
        let boot = ByteRange::with_len(0, 8192.min(source.len()));
        boot.into_iter().for_each(|range| ledger.claim(range, &"$Boot"));
        for number in 0..records {
            if ledger.has_clash() {
                break;
            }
            match ntfs.file(&mut cursor, number) {
                Ok(file) if file.flags().contains(NtfsFileFlags::IN_USE) => claim(number, &file, &mut cursor, ledger)?,
                // A record that was never used: zeros.
                Ok(_) | Err(NtfsError::InvalidFileSignature { actual: [0, 0, 0, 0], .. }) => {}
                Err(error) => return Err(unreadable(error)),
            }
        }
        Ok(())
    }

    /// It cannot read every volume, see above.
    fn is_complete(&self) -> bool {
        false
    }
}

fn unreadable(error: NtfsError) -> ParseError {
    ParseError::inconsistent(error)
}

fn record_count(ntfs: &Ntfs, cursor: &mut Cursor<'_>) -> Result<u64, ParseError> {
    let table = ntfs.file(cursor, 0).map_err(unreadable)?;
    let mut attributes = table.attributes_raw();
    let data = attributes.find_map(|attribute| match attribute {
        Ok(attribute) if attribute.ty().ok() == Some(NtfsAttributeType::Data) && attribute.name_length() == 0 => {
            Some(attribute.value_length())
        }
        _ => None,
    });
    let len = data.ok_or_else(|| ParseError::inconsistent("$MFT has no data"))?;
    if table.attributes_raw().filter_map(Result::ok).any(|a| a.ty().ok() == Some(NtfsAttributeType::AttributeList)) {
        return Err(ParseError::inconsistent("$MFT lies in more pieces than the ntfs crate can follow"));
    }
    Ok(len.checked_div(u64::from(ntfs.file_record_size())).unwrap_or(0))
}

fn claim(number: u64, file: &NtfsFile<'_>, cursor: &mut Cursor<'_>, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
    ledger.visit();
    let owner = format!("MFT record {number}");
    let mut seen: u64 = 0;
    for attribute in file.attributes_raw() {
        let attribute = attribute.map_err(unreadable)?;
        seen = seen.saturating_add(u64::from(attribute.attribute_length()));
        let NtfsAttributeValue::NonResident(value) = attribute.value(cursor).map_err(unreadable)? else {
            continue;
        };
        for run in value.data_runs() {
            let run = run.map_err(unreadable)?;
            let range = run.data_position().value().and_then(|at| ByteRange::with_len(at.get(), run.allocated_size()));
            range.into_iter().for_each(|range| ledger.claim(range, &owner));
        }
    }
    // Head, attributes, end mark (4 bytes, padded to 8).
    let rest = u64::from(file.data_size()).saturating_sub(seen);
    if rest > MOST_HEAD {
        return Err(ParseError::inconsistent(format!("{owner}: the ntfs crate saw only {seen} bytes of attributes")));
    }
    Ok(())
}

/// The head of a record with the longest update sequence array (48 + 2 * 9, padded), and the end mark.
const MOST_HEAD: u64 = 72 + 8;

/// A direct-mapped cache of aligned lines.
struct Cache<'a> {
    inner: &'a dyn Source,
    lines: RefCell<[Line; LINES]>,
}

/// A line's number and bytes.
type Line = Option<(u64, Vec<u8>)>;

const LINES: usize = 16;
const LINE_LOG2: u32 = 16;

impl Cache<'_> {
    /// Copies what line `line` holds of the bytes from `at` into `buf`, and says how much that was.
    fn copy(&self, line: u64, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        let start = line << LINE_LOG2;
        let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let mut lines = self.lines.borrow_mut();
        let slot = usize::try_from(line).ok().and_then(|n| lines.get_mut(n & (LINES - 1))).ok_or_else(short)?;
        if slot.as_ref().is_none_or(|(number, _)| *number != line) {
            let len = self.inner.len().saturating_sub(start).min(1 << LINE_LOG2);
            let mut bytes = vec![0; to_usize(len, "a cache line").map_err(io::Error::other)?];
            self.inner.read_at(start, &mut bytes)?;
            *slot = Some((line, bytes));
        }
        let bytes = slot.as_ref().map(|(_, bytes)| bytes.as_slice()).unwrap_or_default();
        let skip = usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
        let rest = bytes.get(skip..).filter(|rest| !rest.is_empty()).ok_or_else(short)?;
        let count = rest.len().min(buf.len());
        buf.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        Ok(count)
    }
}

impl Source for Cache<'_> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, at: u64, mut buf: &mut [u8]) -> io::Result<()> {
        let mut at = at;
        while !buf.is_empty() {
            let count = self.copy(at >> LINE_LOG2, at, buf)?;
            at = at.saturating_add(from_usize(count));
            buf = buf.get_mut(count..).unwrap_or_default();
        }
        Ok(())
    }
}
