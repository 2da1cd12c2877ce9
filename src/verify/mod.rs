//! Does a route do what it says? Asked in space that is known to be free, before anything else is sent.

pub mod canary;
pub mod claims;
pub mod examine;
pub mod neighbours;
pub mod place;

use crate::plan::units::ByteRange;

/// What a trial of a route showed. One list for canary, probe and verify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The discarded blocks changed, and nothing else did.
    Works {
        /// Every discarded byte read back as zero.
        zeroes: bool,
    },
    /// The command was accepted, and nothing at all was seen to change.
    NoEvidence,
    /// The device does not take the command.
    Rejected(String),
    /// Something outside the discarded range changed: the route must never be used.
    Harmful(String),
    /// The route did different things at different times.
    Unstable(String),
    /// It could not be tried.
    Inconclusive(String),
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Works { zeroes: true } => write!(f, "works (zeroes)"),
            Self::Works { zeroes: false } => write!(f, "works (content undefined)"),
            Self::NoEvidence => write!(f, "no evidence"),
            Self::Rejected(_) => write!(f, "rejected"),
            Self::Harmful(_) => write!(f, "harmful"),
            Self::Unstable(_) => write!(f, "unstable"),
            Self::Inconclusive(_) => write!(f, "inconclusive"),
        }
    }
}

impl Verdict {
    /// Why, where the word alone does not say it.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Works { .. } | Self::NoEvidence => None,
            Self::Rejected(why) | Self::Harmful(why) | Self::Unstable(why) | Self::Inconclusive(why) => Some(why),
        }
    }
}

/// A place for a trial: the bytes to discard, with room around them that must stay as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Targets and guards together; all of it free.
    pub ground: ByteRange,
    /// What is discarded by one command: sorted, disjoint.
    pub targets: Vec<ByteRange>,
}

impl Place {
    /// Bytes to discard.
    pub fn bytes(&self) -> u64 {
        self.targets.iter().map(|target| target.len()).sum()
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.targets.as_slice() {
            [target] => write!(f, "{target}"),
            several => write!(f, "{} ranges in {}", several.len(), self.ground),
        }
    }
}
