//! What can be wrong with a container.

use crate::error::{Mismatch, ParseError};

/// The cause of a failure, boxed into a [`ParseError`].
#[derive(Debug, thiserror::Error)]
pub(super) enum ApfsError {
    /// An object whose Fletcher-64 does not fit its bytes.
    #[error(
        "{what}, block {block}: checksum: expected {expected:#018x}, found {found:#018x}; check and repair it on a Mac: diskutil repairDisk DEVICE"
    )]
    Checksum { what: &'static str, block: u64, expected: u64, found: u64 },
    /// A field that contradicts the format or another field.
    #[error("{0}; check and repair it on a Mac: diskutil repairDisk DEVICE")]
    Field(Mismatch),
    /// Feature bits that nobody here knows.
    #[error(
        "{what}: expected no bits but {known:#x}, found the unknown bits {unknown:#x}; look for a newer coldtrim, or trim it on a Mac: diskutil mount DEVICE"
    )]
    Features { what: &'static str, known: u64, unknown: u64 },
    /// A container over two devices.
    #[error(
        "{what}: expected a container on one device, found a Fusion drive (an SSD and a disk joined); trim it in the Mac that it belongs to: diskutil list DEVICE"
    )]
    Fusion { what: &'static str },
    /// Something that the format allows and that is not handled here.
    #[error("{what}: expected {expected}, found {found}; trim it on a Mac: diskutil mount DEVICE")]
    Unhandled { what: &'static str, expected: &'static str, found: String },
}

/// A corrupt field at byte `at`.
pub(super) fn wrong(at: u64, what: impl Into<String>, expected: impl ToString, found: impl ToString) -> ParseError {
    ParseError::corrupt(at, ApfsError::Field(Mismatch::new(what, expected, found)))
}

/// `found` must be `expected`.
pub(super) fn equal(at: u64, what: &'static str, expected: u64, found: u64) -> Result<(), ParseError> {
    if expected == found { Ok(()) } else { Err(wrong(at, what, expected, found)) }
}

/// `found` must not be greater than `most`.
pub(super) fn at_most(at: u64, what: &'static str, most: u64, found: u64) -> Result<(), ParseError> {
    if found <= most { Ok(()) } else { Err(wrong(at, what, format_args!("at most {most}"), found)) }
}

/// Only the bits `known` may be set in `found`.
pub(super) fn only_known(at: u64, what: &'static str, known: u64, found: u64) -> Result<(), ParseError> {
    match found & !known {
        0 => Ok(()),
        unknown => Err(ParseError::unsupported(at, ApfsError::Features { what, known, unknown })),
    }
}
