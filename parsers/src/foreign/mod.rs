//! Formats that are recognised and left alone, each with a sentence that helps. What is neither here nor in
//! [`FORMATS`](crate::fs::FORMATS) is unknown, and unknown data is never free.
//!
//! A missed signature can cost data, a false one only an answer: where a magic number is short, a check sum or a second
//! field is asked for too, and nothing more. Sources: util-linux `libblkid/src/superblocks/`, Linux `fs/`, dmraid, and
//! what is named beside a row.

mod arrays;
mod table;
mod volumes;

use crate::error::ParseError;
use crate::source::Source;
use crate::units::{ByteRange, from_usize};

pub(crate) use arrays::{md_0_90, md_1_0};
pub use table::FOREIGN;

/// Where a signature lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// This many bytes behind the start of the layer.
    Start(u64),
    /// This many bytes before the end of the layer.
    End(u64),
}

/// What it means that a format was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// It holds data that coldtrim cannot map.
    Refused,
    /// It holds no filesystem by design, so that leaving it alone is no refusal.
    Kept,
    /// The records of a RAID at the end of a disk: what lies before may look like a plain filesystem. Such records also
    /// outlive the RAID that they speak of, so a user may say that they are stale.
    RaidRecords,
    /// The record of a member of an array of this kind ([`ASSEMBLIES`](crate::array::ASSEMBLIES)): the area is a part of
    /// that, whatever its start looks like.
    Member(&'static str),
    /// The memory of a sleeping system, in which every filesystem of the same disk is mounted.
    SleepingSystem,
}

/// One format that coldtrim knows and does not trim.
pub struct Foreign {
    /// Name for messages.
    pub name: &'static str,
    /// Signatures: any one of them is enough.
    pub marks: &'static [(Place, &'static [u8])],
    /// A signature whose place depends on the size, or that needs more than equal bytes.
    pub check: Option<Check>,
    /// What to do instead.
    pub advice: &'static str,
    /// The part of a [kept](Meaning::Kept) area whose contents nobody needs, in bytes from its start; it is free when the
    /// user asks for unallocated space.
    pub body: Option<Body>,
    /// What follows.
    pub meaning: Meaning,
}

/// Finds what nobody needs.
pub type Body = fn(&dyn Source) -> Result<Vec<ByteRange>, ParseError>;

/// A test for a signature.
pub type Check = fn(&dyn Source) -> Result<bool, ParseError>;

impl Foreign {
    /// A format with data that cannot be mapped, recognised by fixed bytes.
    const fn refused(name: &'static str, marks: &'static [(Place, &'static [u8])], advice: &'static str) -> Self {
        Self { name, marks, check: None, advice, body: None, meaning: Meaning::Refused }
    }

    /// The same format, recognised by `check` too.
    const fn or(mut self, check: Check) -> Self {
        self.check = Some(check);
        self
    }

    /// The same format, with a body that nobody needs.
    const fn with(mut self, body: Body) -> Self {
        self.body = Some(body);
        self
    }

    /// The same format with another meaning.
    const fn means(mut self, meaning: Meaning) -> Self {
        self.meaning = meaning;
        self
    }

    /// True for a member whose record lies at the end, so that the array's own data may begin where the member does. Such
    /// a record has no fixed place, and so no fixed bytes.
    pub fn is_member_by_its_end(&self) -> bool {
        matches!(self.meaning, Meaning::Member(_)) && self.marks.is_empty()
    }

    /// True when one of the signatures is there.
    pub fn probe(&self, source: &dyn Source) -> Result<bool, ParseError> {
        for (place, magic) in self.marks {
            let at = match place {
                Place::Start(at) => Some(*at),
                Place::End(back) => source.len().checked_sub(*back),
            };
            if let Some(at) = at
                && has_bytes(source, at, magic)?
            {
                return Ok(true);
            }
        }
        match self.check {
            Some(check) => check(source),
            None => Ok(false),
        }
    }
}

/// True when `magic` lies at `at`; false when the source ends before.
pub fn has_bytes(source: &dyn Source, at: u64, magic: &[u8]) -> Result<bool, ParseError> {
    Ok(bytes_at(source, Some(at), magic.len())?.is_some_and(|found| found == magic))
}

/// `len` bytes at `at`; none when there is no such place.
fn bytes_at(source: &dyn Source, at: Option<u64>, len: usize) -> Result<Option<Vec<u8>>, ParseError> {
    let Some(at) = at.filter(|at| at.checked_add(from_usize(len)).is_some_and(|end| end <= source.len())) else {
        return Ok(None);
    };
    let mut found = vec![0; len];
    source.read_at(at, &mut found).map_err(|e| ParseError::io(at, e))?;
    Ok(Some(found))
}

/// `N` bytes of `bytes` from `at`, or zeros where there are none.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}

/// The last sector of 512 bytes.
fn last_sector(source: &dyn Source) -> Result<Option<Vec<u8>>, ParseError> {
    bytes_at(source, source.len().checked_sub(512), 512)
}

#[cfg(test)]
mod tests;
