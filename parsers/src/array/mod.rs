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
mod lvm;
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
use crate::units::ByteRange;
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
    /// What they are members of, in words.
    pub title: String,
    /// What it gives, or why it gives nothing.
    pub outcome: Result<Devices, Finding>,
}

/// What a group gives.
#[derive(Default)]
pub struct Devices {
    /// The devices.
    pub mapped: Vec<Assembled>,
    /// The parts of it that give none.
    pub unmapped: Vec<Unmapped>,
}

/// A part of a group that gives no device.
pub struct Unmapped {
    /// The candidate on which it lies, or begins.
    pub leaf: usize,
    /// Where it lies on that, in bytes from the start of the candidate.
    pub range: ByteRange,
    /// Its kind (`lvm thin-pool`).
    pub format: String,
    /// Why it gives none.
    pub finding: Finding,
}

/// What a candidate is in its group.
pub struct Role {
    /// The caller's number.
    pub leaf: usize,
    /// In words (`member 2`, `spare`).
    pub words: String,
    /// What nobody needs of it, in bytes from its start: sorted, disjoint.
    pub spare: Vec<ByteRange>,
}

/// A device that an array gives.
pub struct Assembled {
    /// Its kind (`md raid5`).
    pub format: String,
    /// Its name, where it has one.
    pub name: Option<String>,
    /// Its identity as its own tools print it.
    pub uuid: String,
    /// The identity of what it is a part of: devices of one pool run together.
    pub pool: Option<String>,
    /// Where its bytes lie.
    pub mapping: Mapping,
    /// What speaks against trimming anything on it, or is worth saying.
    pub findings: Vec<Finding>,
}

/// Every kind of array.
#[rustfmt::skip] // one row a line
pub static ASSEMBLIES: &[&dyn Assembly] = &[
    &md::Md,
    &lvm::Lvm,
];
