//! The independent layout of LVM2 groups (tests/oracle/lvm_group.py), for the tests that lay out groups and those of the lab.

use crate::common::{oracle, parse_ranges};

/// The program.
pub const GROUP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/lvm_group.py");

/// The ranges that the program prints.
pub fn ranges(words: &[&str], input: &str) -> Vec<(u64, u64)> {
    parse_ranges(&oracle(GROUP, words, input))
}
