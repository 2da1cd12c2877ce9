//! The independent layout of md arrays (tests/oracle/md_array.py), for the tests that lay out arrays and those of the lab.

use crate::common::parse_ranges;
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};

/// The program.
pub fn script() -> String {
    format!("{}/tests/oracle/md_array.py", env!("CARGO_MANIFEST_DIR"))
}

/// The ranges of a member for free ranges of the array, as `map --format ranges` prints them.
pub fn carried(spec: &Value, member: usize, free: &str) -> Vec<(u64, u64)> {
    let mut child = Command::new("/usr/bin/python3")
        .args([script(), "carry".to_owned(), spec.to_string(), member.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    child.stdin.take().expect("a pipe").write_all(free.as_bytes()).expect("a listener");
    let output = child.wait_with_output().expect("an answer");
    assert!(output.status.success(), "{spec}: {output:?}");
    parse_ranges(&String::from_utf8_lossy(&output.stdout))
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
