//! Arrays: one device made of parts of several.
//!
//! ```text
//! records on the members ── Assembly::assemble ──> Group (one array, or why not) ── Mapping ──> ArraySource, one more
//!                                                                                               layer to look into
//! ```
//!
//! Adding a kind of array (a volume manager, a filesystem that spans devices) is a folder here and a row in
//! [`ASSEMBLIES`]. What its [`Mapping`] says holds in both directions: a filesystem is read through it, and what is
//! free in it is carried back through it to the members.

mod copied;
mod geometry;
mod linear;
mod mapping;
mod md;
mod parity;
mod source;
mod striped;

#[cfg(test)]
mod tests;

pub use geometry::{Geometry, Turn};
pub use mapping::{Area, Mapping, Place, Redundancy, Segment, Spread, merge};
pub use parity::ParityRule;
pub use source::{ArraySource, Difference};

use crate::error::ParseError;
use crate::source::Source;
use crate::volume::Finding;

/// One kind of array.
pub trait Assembly: Sync {
    /// Name of the kind (`md`).
    fn name(&self) -> &'static str;

    /// True when the area carries the record of a member, wherever that lies.
    fn probe(&self, source: &dyn Source) -> Result<bool, ParseError>;

    /// Sorts candidates into arrays by what their records say; every candidate is in exactly one group.
    fn assemble(&self, candidates: &[Candidate<'_>]) -> Vec<Group>;
}

/// An area that carries the record of a member.
#[derive(Clone, Copy)]
pub struct Candidate<'a> {
    /// The caller's number for it.
    pub leaf: usize,
    /// Its bytes.
    pub source: &'a dyn Source,
    /// The device that it lies on.
    pub device: usize,
    /// Where it begins on that device.
    pub start: u64,
}

impl Candidate<'_> {
    /// The area in a message; whoever knows its name puts that in its place ([`mention`]).
    fn mention(&self) -> String {
        mention(self.device, self.start)
    }
}

/// What stands in a message for the area at byte `start` of a device, until its name is known.
pub fn mention(device: usize, start: u64) -> String {
    format!("DEVICE[{device}@{start}]")
}

/// One array, or candidates that make none.
pub struct Group {
    /// The candidates, and what each is in it.
    pub members: Vec<Role>,
    /// The devices that it gives, or why it gives none.
    pub outcome: Result<Vec<Assembled>, Finding>,
}

/// What a candidate is in its group.
pub struct Role {
    /// The caller's number.
    pub leaf: usize,
    /// In words (`member 2`, `spare`).
    pub words: String,
}

/// A device that an array gives.
pub struct Assembled {
    /// Its kind (`md raid5`).
    pub format: String,
    /// Its name, where it has one.
    pub name: Option<String>,
    /// Its identity as its own tools print it.
    pub uuid: String,
    /// Where its bytes lie.
    pub mapping: Mapping,
    /// What speaks against trimming anything on it, or is worth saying.
    pub findings: Vec<Finding>,
}

/// Every kind of array.
#[rustfmt::skip] // one row a line
pub static ASSEMBLIES: &[&dyn Assembly] = &[
    &md::Md,
];
