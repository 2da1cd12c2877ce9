//! What can be wrong with a filesystem.

use crate::error::{Mismatch, ParseError};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// What looks for damage and changes nothing; `DEVICE` stands for the volume's node.
pub(super) const CHECKER: &str = "btrfs check --readonly DEVICE";

/// The cause of a failure, boxed into a [`ParseError`].
#[derive(Debug, thiserror::Error)]
pub(super) enum BtrfsError {
    /// A field that contradicts the format or another field.
    #[error("{0}")]
    Field(Mismatch),
    /// A checksum that does not fit its bytes.
    #[error(
        "{0}: its checksum does not fit its bytes; expected a sound copy: btrfs scrub start DEVICE, mounted, repairs from another copy"
    )]
    Checksum(&'static str),
    /// Something that the format allows and that is not handled here.
    #[error("{what}; {remedy}")]
    Unhandled { what: String, remedy: &'static str },
}

/// A corrupt field at byte `at`.
pub(super) fn wrong(at: u64, what: impl Into<String>, expected: impl ToString, found: impl ToString) -> ParseError {
    ParseError::corrupt(at, BtrfsError::Field(Mismatch::new(what, expected, found)))
}

/// `found` must be `expected`.
pub(super) fn equal(at: u64, what: &'static str, expected: u64, found: u64) -> Result<(), ParseError> {
    if expected == found { Ok(()) } else { Err(wrong(at, what, expected, found)) }
}

/// What is allowed by the format, but not handled here.
pub(super) fn unhandled(at: u64, what: impl Into<String>, remedy: &'static str) -> ParseError {
    ParseError::unsupported(at, BtrfsError::Unhandled { what: what.into(), remedy })
}

/// The structure at the start of `bytes`, which come from byte `at`.
pub(super) fn head<T: FromBytes + KnownLayout + Immutable>(
    bytes: &[u8],
    at: u64,
    what: &'static str,
) -> Result<T, ParseError> {
    let cut = || wrong(at, what, format_args!("at least {} bytes", size_of::<T>()), bytes.len());
    T::read_from_prefix(bytes).map(|(value, _)| value).map_err(|_| cut())
}
