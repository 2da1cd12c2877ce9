//! md arrays of the real kernel and mdadm: made and filled in the guest, trimmed here as members, assembled again there.

use crate::common::{self, coldtrim, tool_ok};
use crate::lab::{Lab, guest_file};
use crate::md_array::{carried, total, zeroed};
use serde_json::json;
use std::path::{Path, PathBuf};

/// One array: record version, mdadm's level and layout, Linux' numbers for both, chunk in KiB, KiB of each member.
struct Case {
    version: &'static str,
    level: &'static str,
    layout: &'static str,
    numbers: (i64, u64),
    chunk: u64,
    members: Vec<u64>,
}

impl Case {
    fn name(&self) -> String {
        format!("{} {} {} chunk {} members {:?}", self.version, self.level, self.layout, self.chunk, self.members)
    }

    fn options(&self) -> String {
        let mut words = format!("--metadata={} --level={}", self.version, self.level);
        if !self.layout.is_empty() {
            words += &format!(" --layout={}", self.layout);
        }
        if self.numbers.0 != 1 {
            words += &format!(" --chunk={}", self.chunk);
        }
        words
    }
}

fn case(
    version: &'static str,
    (level, layout): (&'static str, &'static str),
    numbers: (i64, u64),
    chunk: u64,
    members: &[u64],
) -> Case {
    Case { version, level, layout, numbers, chunk, members: members.to_vec() }
}

/// Two chunk sizes, four versions in turn, every layout that mdadm can make.
fn matrix() -> Vec<Case> {
    let mut all = Vec::new();
    let mut versions = ["1.2", "1.0", "1.1", "0.90"].into_iter().cycle();
    let mut version = move || versions.next().unwrap_or("1.2");
    for (chunk, more) in [(64, 37), (4, 91)] {
        let same = |count: usize, kib: u64| vec![kib + more; count];
        all.push(case(version(), ("linear", ""), (-1, 0), chunk, &[9000 + more, 7000, 8011]));
        all.push(case(version(), ("0", ""), (0, 2), chunk, &same(3, 9000)));
        all.push(case("1.2", ("0", "original"), (0, 1), chunk, &[6001, 9000, 9013, 12_000]));
        all.push(case("1.0", ("0", "alternate"), (0, 2), chunk, &[6001, 9000, 9013, 12_000]));
        all.push(case(version(), ("1", ""), (1, 0), chunk, &same(2, 16_000)));
        all.push(case(version(), ("1", ""), (1, 0), chunk, &same(3, 14_000)));
        for (name, number) in
            [("n2", 0x102), ("n3", 0x103), ("f2", 0x201), ("f3", 0x301), ("o2", 0x1_0201), ("o3", 0x1_0301)]
        {
            let count = if number & 2 == 0 { 5 } else { 4 };
            // md refuses raid10 with records of version 0.90 for nothing; far and near alike.
            all.push(case(version(), ("10", name), (10, number), chunk, &same(count, 11_000)));
        }
        all.push(case(version(), ("4", ""), (4, 0), chunk, &same(3, 10_000)));
        for (name, number) in [
            ("left-asymmetric", 0),
            ("right-asymmetric", 1),
            ("left-symmetric", 2),
            ("right-symmetric", 3),
            ("parity-first", 4),
            ("parity-last", 5),
        ] {
            all.push(case(version(), ("5", name), (5, number), chunk, &same(4, 8000)));
            all.push(case(version(), ("6", name), (6, number), chunk, &same(5, 7000)));
        }
        for (name, number) in [
            ("ddf-zero-restart", 8),
            ("ddf-N-restart", 9),
            ("ddf-N-continue", 10),
            ("left-asymmetric-6", 16),
            ("right-asymmetric-6", 17),
            ("left-symmetric-6", 18),
            ("right-symmetric-6", 19),
            ("parity-first-6", 20),
        ] {
            all.push(case(version(), ("6", name), (6, number), chunk, &same(5, 7000)));
        }
    }
    all
}

/// A number of mdadm's description of a member, as `Data Offset : 2048 sectors`.
fn examined(member: &Path, key: &str) -> Option<u64> {
    let text = tool_ok("mdadm", &["--examine", member.to_str().expect("UTF-8")]);
    let line = text.lines().find(|line| line.trim_start().starts_with(key))?;
    line.split_once(':')?.1.split_whitespace().next()?.parse().ok()
}

/// What tests/oracle/md_array.py needs to know, by mdadm.
fn described(case: &Case, members: &[PathBuf]) -> serde_json::Value {
    let sizes: Vec<u64> = case.members.iter().map(|kib| kib * 1024).collect();
    let old = case.version == "0.90";
    let offset = examined(&members[0], "Data Offset").unwrap_or(0) * 512;
    let mut spec = json!({
        "version": case.version, "level": case.numbers.0, "layout": case.numbers.1, "zone_layout": case.numbers.1,
        "chunk": if case.numbers.0 == 1 { 0 } else { case.chunk * 1024 }, "sizes": sizes, "offset": offset,
    });
    if !old {
        let room = |member: &PathBuf| examined(member, "Avail Dev Size").expect("a size") * 512;
        spec["room"] = members.iter().map(room).collect::<Vec<_>>().into();
    }
    if case.numbers.0 > 0 {
        let unit = if old { 1024 } else { 512 };
        let used = examined(&members[0], "Used Dev Size").or_else(|| examined(&members[0], "Avail Dev Size"));
        spec["size"] = (used.expect("a size") * unit).into();
    }
    spec
}

fn trims_a_real_array(lab: &Lab, case: &Case) {
    let name = case.name();
    println!("{name}");
    let folder = lab.share.join("md");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).expect("a folder of the lab");
    let script = guest_file("md.sh");
    let sizes: Vec<String> = case.members.iter().map(|kib| (kib * 1024).to_string()).collect();
    let _ = lab.run_ok(&format!("sh {script} make /lab/md '{}' {}", case.options(), sizes.join(" ")));
    let members: Vec<PathBuf> = (0..case.members.len()).map(|number| folder.join(format!("m{number}"))).collect();
    let words: Vec<&str> = members.iter().map(|member| member.to_str().expect("UTF-8")).collect();
    let array = folder.join("array");
    let free = tool_ok(crate::trim::COLDTRIM, &["map", "--format", "ranges", array.to_str().expect("UTF-8")]);
    let map = tool_ok(crate::trim::COLDTRIM, &[&["map", "--format", "ranges"], &words[..]].concat());
    assert_eq!(map, free, "{name}: the map of the members");
    let spec = described(case, &members);
    let before: Vec<Vec<u8>> = members.iter().map(|member| std::fs::read(member).expect("a member")).collect();
    let done = coldtrim(&[&["trim", "--yes"], &words[..]].concat());
    assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stdout));
    let mut sum = 0;
    for (number, (member, before)) in members.iter().zip(before).enumerate() {
        let carried = carried(&spec, number, &free);
        sum += total(&carried);
        let expected = zeroed(before, &carried);
        assert!(std::fs::read(member).expect("a member") == expected, "{name}: member {number} is not as expected");
    }
    assert!(sum > 1 << 20, "{name}: only {sum} bytes: the case shows nothing");
    let check = if case.numbers.0 > 0 { "yes" } else { "no" };
    let said = lab.run_ok(&format!("sh {script} check /lab/md {} {check}", members.len()));
    assert!(check == "no" || said.contains("mismatches: 0\n"), "{name}: {said}");
    assert!(said.trim_end().ends_with("26"), "{name}: {said}");
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_md_members_are_trimmed_and_assembled_again() {
    let lab = Lab::get();
    let all = matrix();
    assert!(all.len() >= 40, "only {} combinations", all.len());
    let mut levels: Vec<i64> = Vec::new();
    let start = usize::try_from(common::seed("lab md") % 7).expect("a small number");
    for case in all.iter().cycle().skip(start * 3).take(all.len()) {
        if common::full() || !levels.contains(&case.numbers.0) {
            levels.push(case.numbers.0);
            trims_a_real_array(lab, case);
        }
    }
}
