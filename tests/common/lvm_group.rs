//! The independent layout of LVM2 groups (tests/oracle/lvm_group.py), for the tests that lay out groups and those of the lab.

use crate::common::parse_ranges;
use std::io::Write;
use std::process::{Command, Stdio};

/// The program.
pub const GROUP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/lvm_group.py");

/// The ranges that the program prints.
pub fn oracle(words: &[&str], input: &str) -> Vec<(u64, u64)> {
    let mut child = Command::new("/usr/bin/python3")
        .arg(GROUP)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("a listener");
    let output = child.wait_with_output().expect("an answer");
    assert!(output.status.success(), "{words:?}: {output:?}");
    parse_ranges(&String::from_utf8_lossy(&output.stdout))
}
