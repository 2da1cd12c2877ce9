//! What can be wrong with an NTFS volume, by name.

/// Why an NTFS structure is not believed. Positions are in the surrounding [`ParseError`](crate::error::ParseError).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NtfsError {
    #[error("the boot sector's {field} is {found:#x}, expected {expected}")]
    Boot { field: &'static str, found: u64, expected: &'static str },
    #[error(
        "the volume spans {spans} bytes, but only {there} are there: it is a part of something larger \
         (a RAID member, a cut copy); use the whole of it"
    )]
    Cut { spans: u64, there: u64 },
    #[error("MFT record {record} does not begin with \"FILE\" but with {found:02x?}")]
    NotARecord { record: u64, found: Vec<u8> },
    #[error("MFT record {record} was written only in part: its 512-byte stride {stride} ends with another number")]
    Torn { record: u64, stride: u64 },
    #[error("MFT record {record}: {what}: expected {expected}, found {found}")]
    Field { record: u64, what: &'static str, expected: String, found: String },
    #[error("MFT record {record}: {what}")]
    Record { record: u64, what: &'static str },
    #[error("MFT record {record}: run {run} is damaged: {what}")]
    Run { record: u64, run: usize, what: &'static str },
    #[error("MFT record {record} and its copy in $MFTMirr differ")]
    Mirror { record: u64 },
    #[error("{what}: expected {expected}, found {found}")]
    Bitmap { what: &'static str, expected: String, found: u64 },
    #[error("NTFS version {major}.{minor} (known are 1.1, 1.2, 3.0 and 3.1)")]
    Version { major: u8, minor: u8 },
    #[error("the volume's flags have bits {bits:#06x}, whose meaning is not known")]
    UnknownFlags { bits: u16 },
    #[error("the index of the root directory: {what}")]
    Index { what: &'static str },
    #[error("the header of the volume shadow copies: {what} is {found}, expected {expected}")]
    Shadow { what: &'static str, found: u64, expected: &'static str },
}

impl NtfsError {
    pub(super) fn field(record: u64, what: &'static str, expected: impl ToString, found: impl ToString) -> Self {
        Self::Field { record, what, expected: expected.to_string(), found: found.to_string() }
    }
}
