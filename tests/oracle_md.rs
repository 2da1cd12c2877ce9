//! Linux md arrays without the kernel: a filesystem is laid over members by tests/oracle/md_array.py, which shares no
//! code with coldtrim; coldtrim maps and trims the members; they must then hold exactly the image of the free set.
//! That the records are those of mdadm is shown in the lab (`root_lab_md`).

mod common;
#[path = "common/ext4.rs"]
mod ext4;
#[path = "common/images.rs"]
mod images;
#[path = "common/md_array.rs"]
mod md_array;

use common::{Rng, coldtrim, parse_ranges, tool_ok};
use md_array::{carried, script, total, zeroed};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Output;

/// One array of made members.
struct Array {
    spec: Value,
    image: PathBuf,
    members: Vec<PathBuf>,
    folder: tempfile::TempDir,
}

impl Array {
    /// Makes a filesystem as large as the array and lays it over the members.
    fn make(spec: Value, rng: &mut Rng) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let size: u64 = tool_ok("python3", &[&script(), "size", &spec.to_string()]).trim().parse().expect("a size");
        let name: &&str = rng.pick(&["1 KiB blocks", "no journal", "metadata_csum, 32-byte descriptors"]);
        let kind = ext4::by_name(name);
        let image = ext4::make(folder.path(), kind, size / 1024, ext4::Fill::Fragmented, rng);
        std::fs::File::options().write(true).open(&image).and_then(|file| file.set_len(size)).expect("room");
        let count = spec["sizes"].as_array().expect("sizes").len();
        let members = (0..count).map(|index| folder.path().join(format!("member{index}"))).collect();
        let array = Self { spec, image, members, folder };
        array.run("lay", &array.image);
        array
    }

    fn run(&self, verb: &str, image: &Path) {
        let spec = self.spec.to_string();
        let mut words = vec![script(), verb.to_owned(), spec, text(image)];
        words.extend(self.members.iter().map(|member| text(member)));
        tool_ok("python3", &words.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Runs coldtrim on the members, last one first: their order must not matter.
    fn coldtrim(&self, words: &[&str]) -> Output {
        let members: Vec<String> = self.members.iter().rev().map(|member| text(member)).collect();
        coldtrim(&words.iter().copied().chain(members.iter().map(String::as_str)).collect::<Vec<_>>())
    }

    /// Lays the image anew with parts of the description changed.
    fn again(&mut self, changes: &Value) {
        for (key, value) in changes.as_object().expect("an object") {
            self.spec[key] = value.clone();
        }
        self.run("lay", &self.image);
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a UTF-8 path").to_owned()
}

fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Bytes of a member; odd, so that every rule must round somewhere.
fn sizes(count: u64, each: u64) -> Vec<u64> {
    (0..count).map(|_| each + 512 * 77).collect()
}

fn spec(version: &str, level: i64, layout: u64, chunk: u64, sizes: &[u64]) -> Value {
    let offset = if matches!(version, "0.90" | "1.0") { 0 } else { 1 << 20 };
    json!({ "version": version, "level": level, "layout": layout, "chunk": chunk, "sizes": sizes, "offset": offset })
}

const MIB: u64 = 1 << 20;

/// Every level and layout; two chunk sizes; the versions in turn.
fn matrix() -> Vec<Value> {
    let mut cases = Vec::new();
    let versions = ["1.2", "0.90", "1.0", "1.1"];
    let mut turn = versions.iter().cycle();
    let mut add = |level, layout, chunk, sizes: &[u64]| {
        let version = turn.next().expect("endless");
        cases.push(spec(version, level, layout, chunk, sizes));
    };
    for chunk in [4096, 64 << 10] {
        add(-1, 0, chunk, &[9 * MIB + 512, 7 * MIB, 11 * MIB + 5120]);
        add(0, 0, chunk, &sizes(3, 9 * MIB));
        for layout in [0x102, 0x103, 0x201, 0x301, 0x1_0201, 0x1_0301] {
            add(10, layout, chunk, &sizes(4, 12 * MIB));
            add(10, layout, chunk, &sizes(5, 11 * MIB));
        }
        add(4, 0, chunk, &sizes(3, 9 * MIB));
        (0..=5).for_each(|layout| add(5, layout, chunk, &sizes(4, 8 * MIB)));
        for layout in (0..=5).chain(8..=10).chain(16..=20) {
            add(6, layout, chunk, &sizes(5, 7 * MIB));
        }
    }
    for version in versions {
        cases.push(spec(version, 1, 0, 0, &sizes(2, 20 * MIB)));
        cases.push(spec(version, 1, 0, 0, &sizes(3, 18 * MIB)));
    }
    for turn in [1, 2] {
        let mut zones = spec("1.2", 0, 0, 32 << 10, &[5 * MIB, 9 * MIB + 512, 9 * MIB + 512, 13 * MIB, 14 * MIB]);
        zones["zone_layout"] = turn.into();
        cases.push(zones);
    }
    let mut other_order = spec("0.90", 5, 2, 4096, &sizes(3, 9 * MIB));
    other_order["order"] = ">".into();
    cases.push(other_order);
    cases
}

/// Trims one array and compares every byte of every member.
fn trims_exactly(case: &Value, rng: &mut Rng) {
    let array = Array::make(case.clone(), rng);
    let free = tool_ok(env!("CARGO_BIN_EXE_coldtrim"), &["map", "--format", "ranges", &text(&array.image)]);
    let map = array.coldtrim(&["map", "--format", "ranges"]);
    assert!(map.status.success() && words(&map) == free, "{case}: the map of the array: {}", words(&map));
    let before: Vec<Vec<u8>> = array.members.iter().map(|member| std::fs::read(member).expect("a member")).collect();
    let done = array.coldtrim(&["trim", "--yes", "--json"]);
    assert!(done.status.success(), "{case}: {}", words(&done));
    let report: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let mut sum = 0;
    for (index, (member, before)) in array.members.iter().zip(before).enumerate() {
        let carried = carried(&array.spec, index, &free);
        sum += total(&carried);
        let expected = zeroed(before, &carried);
        assert!(std::fs::read(member).expect("a member") == expected, "{case}: member {index} is not as expected");
    }
    assert!(sum > MIB, "{case}: only {sum} bytes: the case shows nothing");
    assert_eq!(report["outcome"]["bytes"], sum, "{case}");
    // Put together again: every used byte is there, and copies and parity agree.
    let back = array.folder.path().join("back");
    array.run("read", &back);
    let [image, back] =
        [&array.image, &back].map(|path| zeroed(std::fs::read(path).expect("the array"), &parse_ranges(&free)));
    assert!(image == back, "{case}: used bytes changed");
}

#[test]
fn members_are_trimmed_exactly() {
    let rng = &mut Rng(common::seed("md"));
    let all = matrix();
    let is_sampled = |index: usize| common::full() || index.is_multiple_of(7) || index + 11 >= all.len();
    for (_, case) in all.iter().enumerate().filter(|(index, _)| is_sampled(*index)) {
        trims_exactly(case, rng);
    }
}

/// What is said of an array whose description was changed, which must be refused.
fn refusal(array: &mut Array, changes: &Value) -> String {
    let before = array.spec.clone();
    array.again(changes);
    let output = array.coldtrim(&["trim", "--yes"]);
    assert_eq!(output.status.code(), Some(3), "{changes}: {}", words(&output));
    array.spec = before;
    words(&output)
}

#[test]
fn states_in_which_the_mapping_may_not_hold_are_refused_by_name() {
    let rng = &mut Rng(1);
    let mut array = Array::make(spec("1.2", 1, 0, 0, &sizes(2, 4 * MIB)), rng);
    let cases = [
        (json!({ "events": [7, 5] }), "member1 stopped at event 5"),
        (json!({ "damage": 1 }), "is damaged: the record's sum"),
        (json!({ "features": 2 }), "being rebuilt"),
        (json!({ "features": 4 }), "being reshaped"),
        (json!({ "features": 0x10 }), "being replaced"),
        (json!({ "features": 0x100 }), "clustered"),
        (json!({ "features": 0x200 }), "write journal"),
        (json!({ "features": 0x400 }), "partial parity log"),
        (json!({ "features": 0x2000 }), "does not know: 0x2000"),
        (json!({ "features": 1, "bitmap": 8 }), "the bitmap's magic number"),
        (json!({ "features": 8, "bad_at": 16, "bad_size": 8 }), "runs of bad blocks"),
        (json!({ "resync": 4096 }), "first synchronisation never ended"),
        (json!({ "roles": [0, 0] }), "two members for slot 0"),
        (json!({ "roles": [0, 0xFFFE] }), "failed or removed"),
        (json!({ "roles": [0, 0xFFFF] }), "runs without member 1"),
        (json!({ "super": 16 }), "the record's own place"),
        (json!({ "said_level": 7 }), "has level 7"),
        (json!({ "count": 5000 }), "the number of members: expected at most 8"),
        (json!({ "count": 3 }), "runs without member 2"),
    ];
    for (changes, expected) in cases {
        let said = refusal(&mut array, &changes);
        assert!(said.contains(expected), "{changes}: {said}");
    }
    let mut old = Array::make(spec("0.90", 1, 0, 0, &sizes(2, 4 * MIB)), rng);
    for (changes, expected) in [
        (json!({ "state": 0 }), "not stopped cleanly"),
        (json!({ "minor": 91 }), "being reshaped"),
        (json!({ "damage": 1 }), "the record's sum"),
        (json!({ "events": [7, 5] }), "stopped at event 5"),
    ] {
        let said = refusal(&mut old, &changes);
        assert!(said.contains(expected), "{changes}: {said}");
    }
    let mut zones = Array::make(spec("1.2", 0, 2, 4096, &[4 * MIB, 6 * MIB]), rng);
    let said = refusal(&mut zones, &json!({ "states_layout": false }));
    assert!(said.contains("layout-original"), "{said}");
    let mut ten = Array::make(spec("1.2", 10, 0x102, 4096, &sizes(4, 4 * MIB)), rng);
    let said = refusal(&mut ten, &json!({ "said_layout": 0x2_0102 }));
    assert!(said.contains("0x20102"), "{said}");
    let said = refusal(&mut ten, &json!({ "said_layout": 0x202 }));
    assert!(said.contains("0x202"), "{said}");
}

#[test]
fn missing_and_foreign_members_are_named() {
    let rng = &mut Rng(2);
    let array = Array::make(spec("1.2", 5, 2, 4096, &sizes(3, 4 * MIB)), rng);
    let mut other = spec("1.2", 5, 2, 4096, &sizes(3, 4 * MIB));
    other["uuid"] = "22".repeat(16).into();
    let other = Array::make(other, rng);
    let members: Vec<String> = array.members.iter().chain(&other.members).map(|member| text(member)).collect();
    let trim = |members: &[&String]| {
        let words: Vec<&str> = ["trim", "--yes"].into_iter().chain(members.iter().map(|m| m.as_str())).collect();
        coldtrim(&words)
    };
    let output = trim(&[&members[0], &members[2]]);
    assert_eq!(output.status.code(), Some(3));
    let said = words(&output);
    assert!(said.contains("lacks member 1") && said.contains(&format!("{} is member 2", members[2])), "{said}");
    let output = trim(&[&members[0], &members[4], &members[2]]);
    assert_eq!(output.status.code(), Some(3));
    let said = words(&output);
    assert!(said.contains("lacks member 1") && said.contains("lacks member 0, 2"), "{said}");
    assert!(said.contains("members of 2 arrays were named"), "{said}");
    // Both whole arrays in one command are two groups.
    let output = trim(&members.iter().collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
}

#[test]
fn one_member_alone_only_of_copies_and_only_when_named() {
    let rng = &mut Rng(3);
    let array = Array::make(spec("1.2", 1, 0, 0, &sizes(2, 8 * MIB)), rng);
    let (one, other) = (text(&array.members[0]), text(&array.members[1]));
    let output = coldtrim(&["trim", "--yes", &one]);
    assert_eq!(output.status.code(), Some(3), "{}", words(&output));
    assert!(words(&output).contains("--member PATH"), "{}", words(&output));
    let before = std::fs::read(&other).expect("a member");
    let free = tool_ok(env!("CARGO_BIN_EXE_coldtrim"), &["map", "--format", "ranges", &text(&array.image)]);
    let expected = zeroed(std::fs::read(&one).expect("a member"), &carried(&array.spec, 0, &free));
    for words_of in [vec![&one], vec![&one, &other]] {
        let words_of: Vec<&str> = words_of.into_iter().map(String::as_str).collect();
        let output = coldtrim(&[&["trim", "--yes", "--member", &one], &words_of[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", words(&output));
        assert!(
            std::fs::read(&one).expect("a member") == expected && std::fs::read(&other).expect("a member") == before
        );
    }
    let parity = Array::make(spec("1.2", 5, 2, 4096, &sizes(3, 4 * MIB)), rng);
    let output = parity.coldtrim(&["trim", "--yes", "--member", &text(&parity.members[0])]);
    assert_eq!(output.status.code(), Some(3));
    assert!(words(&output).contains("parity would be wrong"), "{}", words(&output));
    let output = coldtrim(&["trim", "--yes", "--member", &one, &other]);
    assert_eq!(output.status.code(), Some(2), "{}", words(&output));
}

/// The first member of an array with its record at the end looks like a plain volume.
#[test]
fn a_member_that_looks_like_a_volume_is_none() {
    let rng = &mut Rng(4);
    for (version, level) in [("0.90", 1), ("1.0", 1), ("0.90", 5), ("1.0", 5)] {
        let array = Array::make(spec(version, level, 2, 64 << 10, &sizes(3, 6 * MIB)), rng);
        let output = coldtrim(&["trim", "--yes", &text(&array.members[0])]);
        assert_eq!(output.status.code(), Some(3), "{version} {level}: {}", words(&output));
        assert!(words(&output).contains(&format!("Linux RAID (md {version})")), "{}", words(&output));
    }
}

/// Puts bytes over a file.
fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    std::fs::File::options().write(true).open(path).and_then(|file| file.write_all_at(bytes, at)).expect("a write");
}

/// Disks that were an array once, and were divided anew by a tool that erases nothing but the first sector: the records
/// of md 1.2 are all there, and what they describe may look whole. It is somebody else's now.
#[test]
fn an_array_whose_members_were_divided_anew_is_a_ghost() {
    let rng = &mut Rng(5);
    let mut table = [0; 512];
    table[446 + 4] = 7;
    table[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
    table[446 + 12..446 + 16].copy_from_slice(&4096_u32.to_le_bytes());
    table[510..].copy_from_slice(&[0x55, 0xAA]);
    for level in [-1, 0, 1] {
        let array = Array::make(spec("1.2", level, 0, 64 << 10, &sizes(2, 6 * MIB)), rng);
        assert_eq!(array.coldtrim(&["map"]).status.code(), Some(0), "the array without a table");
        overwrite(&array.members[1], 0, &table);
        let output = array.coldtrim(&["trim", "--yes"]);
        assert_eq!(output.status.code(), Some(3), "{level}: {}", words(&output));
        assert!(words(&output).contains("signatures of mbr and Linux RAID (md 1.2)"), "{}", words(&output));
        assert!(words(&output).contains(&text(&array.members[1])), "{}", words(&output));
    }
}

/// One disk of a mirror with its record at the end got a filesystem of its own.
#[test]
fn a_member_that_shows_something_else_than_its_array_is_none() {
    let rng = &mut Rng(6);
    let array = Array::make(spec("1.0", 1, 0, 0, &sizes(2, 6 * MIB)), rng);
    let other = array.folder.path().join("other");
    std::fs::File::create(&other).and_then(|file| file.set_len(6 * MIB)).expect("room");
    tool_ok("mkfs.fat", &["-F", "12", &text(&other)]);
    overwrite(&array.members[1], 0, &std::fs::read(&other).expect("a volume"));
    let output = array.coldtrim(&["trim", "--yes"]);
    assert_eq!(output.status.code(), Some(3), "{}", words(&output));
    assert!(words(&output).contains("it is not clear whose data this is"), "{}", words(&output));
}

/// One member gets the contents that the same filesystem had at another time: nothing on it is wrong by itself, and its
/// record says that it belongs to the array. Only what the others hold tells.
#[test]
fn members_that_do_not_agree_are_refused_by_name() {
    let rng = &mut Rng(8);
    let cases = [
        ("1.0", 1, 0, 2),
        ("1.2", 10, 0x102, 4),
        ("1.2", 10, 0x201, 3),
        ("1.2", 4, 0, 3),
        ("1.2", 5, 2, 3),
        ("1.2", 6, 2, 4),
    ];
    for (version, level, layout, count) in cases {
        let array = Array::make(spec(version, level, layout, 64 << 10, &sizes(count, 6 * MIB)), rng);
        assert_eq!(array.coldtrim(&["map"]).status.code(), Some(0), "{version} {level} {layout:#x}");
        let free = array.coldtrim(&["map", "--format", "ranges"]);
        let member = &array.members[1];
        let good = std::fs::read(member).expect("a member");
        // What is free may differ, as it does after a discard of one member alone.
        let carried = carried(&array.spec, 1, &words(&free));
        std::fs::write(member, zeroed(good.clone(), &carried)).expect("room");
        assert_eq!(array.coldtrim(&["map"]).status.code(), Some(0), "{version} {level} {layout:#x}: free space");
        std::fs::write(member, &good).expect("room");
        // The same disk some files earlier: another array of the same description, whose records are put in their place.
        let other = Array::make(array.spec.clone(), rng);
        let mut stale = std::fs::read(&other.members[1]).expect("a member");
        let start = usize::try_from(array.spec["offset"].as_u64().expect("an offset")).expect("a start that fits");
        let end = if version == "1.0" { good.len() - (64 << 10) } else { good.len() };
        stale[..start].copy_from_slice(&good[..start]);
        stale[end..].copy_from_slice(&good[end..]);
        std::fs::write(member, stale).expect("room");
        let output = array.coldtrim(&["trim", "--yes"]);
        assert_eq!(output.status.code(), Some(3), "{version} {level} {layout:#x}: {}", words(&output));
        assert!(words(&output).contains("do not agree on"), "{}", words(&output));
        assert!(words(&output).contains(&format!("of {}", text(member))), "{}", words(&output));
    }
}

/// While the question waits, somebody opens the last member: nothing is sent to the others either.
#[test]
fn nothing_is_sent_to_a_member_before_all_can_begin() {
    let rng = &mut Rng(9);
    for (level, layout) in [(-1, 0), (0, 0), (1, 0), (5, 2)] {
        let array = Array::make(spec("1.2", level, layout, 64 << 10, &sizes(3, 6 * MIB)), rng);
        let before: Vec<Vec<u8>> =
            array.members.iter().map(|member| std::fs::read(member).expect("a member")).collect();
        let names: Vec<String> = array.members.iter().map(|member| text(member)).collect();
        let command = format!("{} trim {}", env!("CARGO_BIN_EXE_coldtrim"), names.join(" "));
        let open = || {
            std::process::Command::new("sleep")
                .arg("60")
                .stdin(std::fs::File::open(&names[2]).expect("a member"))
                .spawn()
        };
        let mut holder = None;
        let said = images::while_asked(&command, "yes\n", || holder = Some(open().expect("sleep")));
        let mut holder = holder.expect("a question was asked");
        holder.kill().and_then(|()| holder.wait()).expect("sleep ends");
        said.expect(3, &["in use", "trimmed as a whole or not at all"]);
        for (member, before) in array.members.iter().zip(before) {
            assert!(std::fs::read(member).expect("a member") == before, "{level}: {} has changed", text(member));
        }
    }
}

/// What a disk says at its end holds for the array on it, too.
#[test]
fn records_of_a_firmware_raid_below_an_array_need_consent() {
    let rng = &mut Rng(7);
    let array = Array::make(spec("1.2", 0, 0, 64 << 10, &sizes(2, 6 * MIB)), rng);
    let end = std::fs::metadata(&array.members[0]).expect("a member").len();
    overwrite(&array.members[0], end - 1024, b"Intel Raid ISM Cfg Sig. 1.3.00");
    let output = array.coldtrim(&["trim", "--yes"]);
    assert_eq!(output.status.code(), Some(3), "{}", words(&output));
    assert!(words(&output).contains("--accept stale-raid-metadata"), "{}", words(&output));
    let output = array.coldtrim(&["trim", "--yes", "--accept", "stale-raid-metadata"]);
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
}
