//! What can go wrong while a disk is read: three kinds, a position, and the format's own error as the cause.

use crate::units::Overflow;

/// The kinds of failure. A new format adds none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The bytes could not be read.
    Io,
    /// The bytes contradict themselves or the format: a checker should look at the volume.
    Corrupt,
    /// The bytes may be right, but mean something that coldtrim does not know.
    Unsupported,
}

/// The cause of a [`ParseError`]: any error, usually the format's own enum.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a structure could not be read. Which format it was is known to the caller, who asked for it.
#[derive(Debug)]
pub struct ParseError {
    kind: ErrorKind,
    at: Option<u64>,
    cause: Cause,
}

impl ParseError {
    /// The bytes at `at` (from the start of the source) contradict the format.
    pub fn corrupt(at: u64, cause: impl Into<Cause>) -> Self {
        Self { kind: ErrorKind::Corrupt, at: Some(at), cause: cause.into() }
    }

    /// The bytes at `at` (from the start of the source) use something that is not understood.
    pub fn unsupported(at: u64, cause: impl Into<Cause>) -> Self {
        Self { kind: ErrorKind::Unsupported, at: Some(at), cause: cause.into() }
    }

    /// The bytes at `at` (from the start of the source) could not be read.
    pub fn io(at: u64, cause: impl Into<Cause>) -> Self {
        Self { kind: ErrorKind::Io, at: Some(at), cause: cause.into() }
    }

    /// The bytes contradict themselves, but no single position is to blame.
    pub fn inconsistent(cause: impl Into<Cause>) -> Self {
        Self { kind: ErrorKind::Corrupt, at: None, cause: cause.into() }
    }

    /// Which kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Byte position from the start of the source, where one is known.
    pub fn at(&self) -> Option<u64> {
        self.at
    }

    /// The same error with a position, unless it already has one.
    #[must_use]
    pub fn located(mut self, at: u64) -> Self {
        self.at = self.at.or(Some(at));
        self
    }
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.cause)?;
        match self.at {
            Some(at) => write!(f, " (at byte {at})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ParseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.source()
    }
}

impl From<Overflow> for ParseError {
    fn from(overflow: Overflow) -> Self {
        Self { kind: ErrorKind::Corrupt, at: None, cause: Box::new(overflow) }
    }
}

/// A field that is not what the format demands: the common cause of [`ParseError::corrupt`].
#[derive(Debug, thiserror::Error)]
#[error("{what}: expected {expected}, found {found}")]
pub struct Mismatch {
    what: String,
    expected: String,
    found: String,
}

impl Mismatch {
    /// `what` should be `expected` and is `found`.
    pub fn new(what: impl Into<String>, expected: impl ToString, found: impl ToString) -> Self {
        Self { what: what.into(), expected: expected.to_string(), found: found.to_string() }
    }

    /// The same for numbers that are customarily written in hexadecimal.
    pub fn hex(what: impl Into<String>, expected: u64, found: u64) -> Self {
        Self::new(what, format_args!("{expected:#x}"), format_args!("{found:#x}"))
    }
}
