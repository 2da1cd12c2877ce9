//! Arrays in a report, and what a volume on one has on each member.

use super::{OutcomeReport, PlanReport};
use coldtrim_parsers::units::ByteRange;
use serde::Serialize;

/// One array.
#[derive(Debug, Clone, Serialize)]
pub struct ArrayReport {
    /// Its kind (`md raid5`).
    pub format: String,
    /// Its name.
    pub name: Option<String>,
    /// Its identity as its own tools print it.
    pub uuid: String,
    /// Bytes that it offers.
    pub size: u64,
    /// What members hold in common: `none`, `copies` or `parity`.
    pub redundancy: &'static str,
    /// True when no member is missing.
    pub complete: bool,
    /// The areas that it consists of.
    pub members: Vec<ArrayMemberReport>,
}

impl ArrayReport {
    /// Its name for people.
    pub fn title(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.uuid)
    }
}

/// One member of an array.
#[derive(Debug, Clone, Serialize)]
pub struct ArrayMemberReport {
    /// Index into `targets`; none for a member that is an array itself.
    pub target: Option<usize>,
    /// Index into `arrays`; none for a member on a target.
    pub array: Option<usize>,
    /// The partition that it is.
    pub partition: Option<u32>,
    /// Bytes from the start of the target or array.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// What it is in the array (`member 2`, `spare`).
    pub role: String,
}

/// What a volume on an array has on one member.
#[derive(Debug, Clone, Serialize)]
pub struct ShareReport {
    /// Index into `targets`.
    pub target: usize,
    /// What would be or was sent to it.
    pub plan: PlanReport,
    /// By which route.
    pub route: String,
    /// What was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeReport>,
    /// What is known of the route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// What that rests upon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

/// Free space of an array that lies on targets themselves.
#[derive(Debug, Clone)]
pub struct Ground {
    /// Index into the arrays of the run.
    pub array: usize,
    /// What is free in the array, in its own bytes.
    pub free: Vec<ByteRange>,
    /// The same on the members.
    pub pieces: Vec<Piece>,
}

/// What is free on one member.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Index of the target.
    pub target: usize,
    /// Sorted, disjoint, in bytes of the target.
    pub free: Vec<ByteRange>,
    /// The member's bytes on the target.
    pub within: ByteRange,
}
