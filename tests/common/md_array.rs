//! The independent layout of md arrays (tests/oracle/md_array.py), for the tests that lay out arrays and those of the lab.

use crate::common::{oracle, parse_ranges};
use serde_json::Value;

/// The program.
pub fn script() -> String {
    format!("{}/tests/oracle/md_array.py", env!("CARGO_MANIFEST_DIR"))
}

/// The ranges of a member for free ranges of the array, as `map --format ranges` prints them.
pub fn carried(spec: &Value, member: usize, free: &str) -> Vec<(u64, u64)> {
    parse_ranges(&oracle(&script(), &["carry", &spec.to_string(), &member.to_string()], free))
}

/// The same bytes with zeros in `ranges`.
pub fn zeroed(mut bytes: Vec<u8>, ranges: &[(u64, u64)]) -> Vec<u8> {
    let place = |at: u64| usize::try_from(at).expect("a 64-bit machine");
    ranges.iter().for_each(|(start, length)| bytes[place(*start)..place(start + length)].fill(0));
    bytes
}

/// Bytes of the ranges.
pub fn total(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(_, length)| length).sum()
}
