//! LVM2 volume groups without LVM: filesystems are laid over logical volumes by tests/oracle/lvm_group.py, which shares no
//! code with coldtrim; coldtrim trims the physical volumes; they must then hold exactly the image of the free sets.
//! That the metadata is that of LVM is shown in the lab (`root_lab_lvm`).

mod common;
#[path = "common/ext4.rs"]
mod ext4;
#[path = "common/images.rs"]
mod images;
#[path = "common/lvm_group.rs"]
mod lvm_group;
#[path = "common/md_array.rs"]
mod md_array;

use common::{Rng, tool_ok};
use images::{Said, said, text};
use lvm_group::GROUP;
use md_array::{total, zeroed};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;

/// A volume group on files.
struct Group {
    spec: Value,
    images: BTreeMap<String, PathBuf>,
    physical: Vec<PathBuf>,
    folder: tempfile::TempDir,
}

impl Group {
    /// Makes a filesystem for every logical volume and lays them over the physical ones.
    fn make(spec: Value, rng: &mut Rng) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut images = BTreeMap::new();
        for volume in spec["volumes"].as_array().expect("volumes") {
            let name = volume["name"].as_str().expect("a name").to_owned();
            let own = folder.path().join(&name);
            std::fs::create_dir(&own).expect("a folder");
            let kind: &&str = rng.pick(&["1 KiB blocks", "no journal", "metadata_csum, 32-byte descriptors"]);
            let size = extents(volume) * spec["extent"].as_u64().expect("a size");
            images.insert(name, ext4::make(&own, ext4::by_name(kind), size / 1024, ext4::Fill::Fragmented, rng));
        }
        let count = spec["sizes"].as_array().expect("sizes").len();
        let physical = (0..count).map(|index| folder.path().join(format!("disk{index}"))).collect();
        let group = Self { spec, images, physical, folder };
        group.lay();
        group
    }

    fn lay(&self) {
        let images = json!(self.images.iter().map(|(name, path)| (name, text(path))).collect::<BTreeMap<_, _>>());
        let mut words = vec![GROUP.to_owned(), "lay".to_owned(), self.spec.to_string(), images.to_string()];
        words.extend(self.physical.iter().map(|path| text(path).to_owned()));
        tool_ok("python3", &words.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Runs coldtrim on the physical volumes, last one first: their order must not matter.
    fn said(&self, words: &[&str]) -> Said {
        let physical = self.physical.iter().rev().map(|path| text(path));
        said(&words.iter().copied().chain(physical).collect::<Vec<_>>())
    }

    /// Bytes of a physical volume that hold nothing but free bytes of logical volumes; with `unallocated` also what none takes.
    fn discarded(&self, number: usize, unallocated: bool) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        for (name, image) in &self.images {
            let free = tool_ok(env!("CARGO_BIN_EXE_coldtrim"), &["map", "--format", "ranges", text(image)]);
            all.extend(lvm_group::ranges(&["carry", &self.spec.to_string(), name, &number.to_string()], &free));
        }
        if unallocated {
            all.extend(lvm_group::ranges(&["spare", &self.spec.to_string(), &number.to_string()], ""));
        }
        all.sort_unstable();
        all
    }

    /// Trims, and compares every byte of every physical volume.
    fn trims_exactly(&self, unallocated: bool) {
        let spec = &self.spec;
        let before: Vec<Vec<u8>> = self.physical.iter().map(|path| std::fs::read(path).expect("a disk")).collect();
        let words: &[&str] = if unallocated { &["--unallocated"] } else { &[] };
        let done = self.said(&[&["trim", "--yes", "--json"], words].concat());
        let report = done.expect(0, &[]).json();
        let mut sum = 0;
        for (number, (path, before)) in self.physical.iter().zip(before).enumerate() {
            let ranges = self.discarded(number, unallocated);
            sum += total(&ranges);
            let found = std::fs::read(path).expect("a disk");
            assert!(found == zeroed(before, &ranges), "{spec}: disk {number} is not as expected");
        }
        assert!(sum > MIB, "{spec}: only {sum} bytes: the case shows nothing");
        assert_eq!(report["outcome"]["bytes"], sum, "{spec}");
        for (name, image) in &self.images {
            let back = self.folder.path().join("back");
            let mut words = vec![GROUP, "read"];
            let spec = self.spec.to_string();
            words.extend([spec.as_str(), name, text(&back)]);
            words.extend(self.physical.iter().map(|path| text(path)));
            tool_ok("python3", &words);
            tool_ok("e2fsck", &["-f", "-n", text(&back)]);
            let free = common::map_ranges(image);
            let [image, mut back] = [image, &back].map(|path| std::fs::read(path).expect("a volume"));
            back.truncate(image.len());
            assert!(zeroed(image, &free) == zeroed(back, &free), "{spec}: used bytes of {name} changed");
        }
    }

    /// What is said of the group with its description changed, which must be refused as a whole.
    #[track_caller]
    fn refused(&mut self, changes: &Value, words: &[&str]) {
        let spec = self.spec.clone();
        for (key, value) in changes.as_object().expect("an object") {
            self.spec[key] = value.clone();
        }
        self.lay();
        let before: Vec<Vec<u8>> = self.physical.iter().map(|path| std::fs::read(path).expect("a disk")).collect();
        self.said(&["trim", "--yes", "--unallocated"]).expect(3, words);
        for (path, before) in self.physical.iter().zip(before) {
            assert!(std::fs::read(path).expect("a disk") == before, "{changes}: {} has changed", path.display());
        }
        self.spec = spec;
    }
}

fn extents(volume: &Value) -> u64 {
    let of_segments = || volume["segments"].as_array()?.iter().map(|segment| segment["count"].as_u64()).sum();
    volume["count"].as_u64().or_else(of_segments).expect("a number of extents")
}

/// Extents of physical volumes that are given out at random, so that volumes lie in pieces.
struct Extents {
    free: Vec<Vec<u64>>,
}

impl Extents {
    fn new(counts: &[u64]) -> Self {
        Self { free: counts.iter().map(|count| (0..*count).collect()).collect() }
    }

    /// The start of `count` extents in a row on a physical volume.
    fn run(&mut self, number: usize, count: u64, rng: &mut Rng) -> Option<u64> {
        let free = &mut self.free[number];
        let fits: Vec<u64> =
            free.iter().copied().filter(|first| (*first..first + count).all(|extent| free.contains(&extent))).collect();
        let first = *(!fits.is_empty()).then(|| rng.pick(&fits))?;
        free.retain(|extent| !(first..first + count).contains(extent));
        Some(first)
    }

    /// Pieces of one or two extents, `count` in all.
    fn pieces(&mut self, number: usize, count: u64, rng: &mut Rng) -> Option<Vec<(usize, u64, u64)>> {
        let mut pieces = Vec::new();
        let mut left = count;
        while left > 0 {
            let len = rng.between(1, 3).min(left);
            pieces.push((number, self.run(number, len, rng)?, len));
            left -= len;
        }
        Some(pieces)
    }
}

/// A group with a volume of every kind; none where the disks were too small for the dice.
fn random_group(rng: &mut Rng) -> Option<Value> {
    let extent = *rng.pick(&[MIB, MIB / 2, 2 * MIB]);
    let disks: usize = *rng.pick(&[2, 3, 4]);
    let counts: Vec<u64> = (0..disks).map(|_| rng.between(24, 40)).collect();
    let start = *rng.pick(&[MIB, 192 << 10, MIB + 512 * 7]);
    let tail = *rng.pick(&[0, 512, 300 << 10]);
    let sizes: Vec<u64> = counts.iter().map(|count| start + count * extent + tail).collect();
    let mut extents = Extents::new(&counts);
    let mut volumes = Vec::new();
    let mut linear = Vec::new();
    let numbers: Vec<usize> = (0..disks).collect();
    for _ in 0..3 {
        let disk = *rng.pick(&numbers);
        linear.extend(extents.pieces(disk, 3, rng)?);
    }
    let segment = |(pv, first, count): (usize, u64, u64)| json!({ "count": count, "places": [[pv, first]] });
    volumes.push(json!({ "name": "lin-1", "segments": linear.into_iter().map(segment).collect::<Vec<_>>() }));
    let mut striped = Vec::new();
    for _ in 0..2 {
        let width = *rng.pick(&[2, disks]);
        let places = (0..width).map(|pv| Some(json!([pv, extents.run(pv, 3, rng)?]))).collect::<Option<Vec<_>>>()?;
        let chunk = *rng.pick(&[4096, 64 << 10, 256 << 10]);
        striped.push(json!({ "count": places.len() * 3, "chunk": chunk, "places": places }));
    }
    volumes.push(json!({ "name": "str", "segments": striped }));
    for kind in ["raid1", "mirror"] {
        let copies = [0, 1].map(|pv| extents.pieces(pv, 5, rng));
        let copies = copies.into_iter().collect::<Option<Vec<_>>>()?;
        let records = [0, 1].map(|pv| Some((pv, extents.run(pv, 1, rng)?)));
        let records = records.into_iter().collect::<Option<Vec<_>>>()?;
        let records = if kind == "raid1" { records } else { records[..1].to_vec() };
        volumes.push(json!({ "name": kind, "kind": kind, "count": 5, "copies": copies, "records": records }));
    }
    Some(json!({
        "sizes": sizes, "start": start, "extent": extent, "volumes": volumes, "ring": rng.between(0, 2) == 1,
        "label_sector": rng.between(0, 4), "counts": counts,
    }))
}

#[test]
fn physical_volumes_are_trimmed_exactly() {
    let rng = &mut Rng(common::seed("lvm"));
    let mut done = 0;
    while done < if common::full() { 30 } else { 3 } {
        let Some(spec) = random_group(rng) else { continue };
        // The oracle's own count of extents leaves out what does not fill one.
        Group::make(spec, rng).trims_exactly(done % 2 == 1);
        done += 1;
    }
}

/// Two disks, a volume on the first, a striped one over both.
fn small() -> Value {
    json!({
        "sizes": [20 * MIB, 24 * MIB], "start": MIB, "extent": MIB,
        "volumes": [
            { "name": "one", "segments": [{ "count": 6, "places": [[0, 2]] }] },
            { "name": "both", "segments": [{ "count": 8, "chunk": 65536, "places": [[0, 10], [1, 3]] }] },
        ],
    })
}

#[test]
fn groups_that_may_be_other_than_they_say_are_refused_by_name() {
    let mut group = Group::make(small(), &mut Rng(1));
    let disk0 = text(&group.physical[0]).to_owned();
    let in_order = [
        (json!({ "generation": [7, 6] }), "generation 7 is the newest"),
        (json!({ "damage": "label" }), "label cannot be used"),
        (json!({ "damage": "head" }), "the sum of the metadata's head"),
        (json!({ "damage": "text" }), "the metadata's sum"),
        (json!({ "pending": true }), "neither finished nor taken back"),
        (json!({ "flags": ["RESIZEABLE", "READ", "WRITE", "EXPORTED"] }), "is exported"),
        (json!({ "flags": ["RESIZEABLE", "READ", "WRITE", "CLUSTERED"] }), "CLUSTERED"),
        (json!({ "flags": ["RESIZEABLE", "READ"] }), "read only"),
        (json!({ "lines": "lock_type = \"sanlock\"" }), "shared between machines (sanlock)"),
        (json!({ "pv_flags": { "1": ["ALLOCATABLE", "MISSING"] } }), "went on without its physical volume pv1"),
        (json!({ "pv_flags": { "1": ["STRANGE"] } }), "pv1 is STRANGE"),
        (json!({ "counts": [19, 40] }), "needs 42991616 bytes of"),
        (json!({ "uuids": ["A".repeat(32), "A".repeat(32)] }), "twice, as"),
        (json!({ "lines": "seqno = 8" }), "seqno is there twice"),
        (json!({ "lines": "a { " }), "expected '}'"),
        (json!({ "lines": "a = [[[[[[[[[[[[1]]]]]]]]]]]]" }), "too deep"),
        (json!({ "ignored": [0, 1] }), "does not describe its volume group itself"),
        (
            json!({ "extra": "x {\nid = \"x\"\nstatus = [\"READ\", \"WRITE\", \"VISIBLE\"]\nsegment_count = 1\nsegment1 {\n\
            start_extent = 0\nextent_count = 1\ntype = \"striped\"\nstripe_count = 1\nstripes = [\"pv0\", 11]\n}\n}\n" }),
            "two logical volumes take the same extents",
        ),
        (
            json!({ "extra": "x {\nid = \"x\"\nstatus = [\"READ\", \"WRITE\", \"VISIBLE\"]\nsegment_count = 1\nsegment1 {\n\
            start_extent = 1\nextent_count = 1\ntype = \"striped\"\nstripe_count = 1\nstripes = [\"pv0\", 16]\n}\n}\n" }),
            "has a gap in its logical volume x",
        ),
        (
            json!({ "extra": "pvmove0 {\nid = \"x\"\nstatus = [\"READ\", \"WRITE\", \"PVMOVE\", \"LOCKED\"]\nsegment_count = 1\nsegment1 {\n\
            start_extent = 0\nextent_count = 1\ntype = \"mirror\"\nmirror_count = 2\nextents_moved = 0\n\
            mirrors = [\n\"pv0\", 15,\n\"pv1\", 15\n]\n}\n}\n" }),
            "a pvmove was not finished",
        ),
    ];
    for (changes, expected) in in_order {
        println!("{changes}");
        group.refused(&changes, &[expected]);
    }
    group.refused(&json!({ "generation": [6, 7] }), &[&disk0, "has another one (6 of vg)", "vgck --updatemetadata vg"]);
    // The same, in order: none of the refusals comes from something else.
    group.lay();
    group.trims_exactly(false);
}

/// A logical volume that takes no extents itself, or through others.
fn other(name: &str, kind: &str, fields: &str) -> String {
    format!(
        "{name} {{\nid = \"{name}\"\nstatus = [\"READ\", \"WRITE\", \"VISIBLE\"]\nsegment_count = 1\nsegment1 {{\nstart_extent = 0\n\
         extent_count = 2\ntype = \"{kind}\"\n{fields}\n}}\n}}\n"
    )
}

/// What is not mapped is named, the rest of the group is trimmed, and nothing of what it lies on is taken for unallocated.
#[test]
fn volumes_that_are_not_mapped_are_named_and_the_others_trimmed() {
    let mut spec = small();
    let hidden = |name: &str, first: u64| json!({ "name": name, "flags": ["READ", "WRITE"], "segments": [{ "count": 4, "places": [[1, first]] }] });
    spec["volumes"].as_array_mut().expect("a list").push(hidden("below", 12));
    let cases = [
        (other("pool", "thin-pool", "metadata = \"m\"\npool = \"below\""), "vg/pool is a thin pool"),
        (other("thin", "thin", "thin_pool = \"below\""), "vg/thin is a thin volume"),
        (other("fast", "cache+CACHE_USES_CACHEVOL", "cache_pool = \"c\"\norigin = \"below\""), "vg/fast is cached"),
        (other("fast", "writecache", "writecache = \"c\"\norigin = \"below\""), "vg/fast has a write cache"),
        (other("dup", "vdo", "vdo_pool = \"below\"\nvdo_offset = 0"), "vg/dup is a VDO volume"),
        (
            other("five", "raid5_ls", "raids = [\"m\", \"below\"]"),
            "vg/five is laid out in a way that is not mapped (raid5_ls)",
        ),
        (other("tags", "integrity", "origin = \"below\""), "vg/tags has checksums beside its blocks"),
    ];
    for (extra, expected) in cases {
        println!("{expected}");
        spec["extra"] = extra.into();
        let mut group = Group::make(spec.clone(), &mut Rng(2));
        group.images.remove("below");
        group.lay();
        let before: Vec<Vec<u8>> = group.physical.iter().map(|path| std::fs::read(path).expect("a disk")).collect();
        group.said(&["trim", "--yes", "--unallocated"]).expect(5, &[expected]);
        for (number, (path, before)) in group.physical.iter().zip(before).enumerate() {
            let expected = zeroed(before, &group.discarded(number, true));
            assert!(std::fs::read(path).expect("a disk") == expected, "{}: disk {number}", group.spec["extra"]);
        }
    }
    // Where the kind itself is unknown so are the extents that it takes.
    spec["extra"] = other("odd", "quantum", "stripes = [\"pv1\", 18]\norigin = \"below\"").into();
    let group = Group::make(spec, &mut Rng(3));
    group.said(&["trim", "-n", "--unallocated", "--json"]).expect(5, &["does not know (quantum)"]);
    let report = group.said(&["trim", "-n", "--unallocated", "--json"]).json();
    assert!(report["gaps"].as_array().is_none_or(Vec::is_empty), "{report}");
}

/// A snapshot keeps what its origin overwrites; a discard below it is no write.
#[test]
fn the_origin_of_a_snapshot_is_refused() {
    let mut spec = small();
    spec["extra"] = other("snapshot0", "snapshot", "chunk_size = 8\norigin = \"one\"\ncow_store = \"both\"")
        .replace(", \"VISIBLE\"", "")
        .into();
    let group = Group::make(spec, &mut Rng(4));
    let answer = group.said(&["trim", "--yes"]);
    answer.expect(3, &["vg/one is the origin of a snapshot, or one", "vg/both is the origin of a snapshot, or one"]);
}

#[test]
fn copies_that_may_differ_are_refused() {
    let spec =
        |volume: Value| json!({ "sizes": [20 * MIB, 20 * MIB], "start": MIB, "extent": MIB, "volumes": [volume] });
    let raid = json!({ "name": "mir", "kind": "raid1", "count": 5, "copies": [[[0, 2, 3], [0, 7, 2]], [[1, 1, 5]]],
        "records": [[0, 0], [1, 0]] });
    let mut mirror = raid.clone();
    (mirror["kind"], mirror["records"]) = ("mirror".into(), json!([[1, 0]]));
    let cases = [
        (&raid, json!({ "record": { "magic": 1 } }), "has no record of dm-raid on copy 1"),
        (&raid, json!({ "record": { "position": 0 } }), "has no record of dm-raid on copy 1"),
        (&raid, json!({ "record": { "events": 8 } }), "copies of different ages: copy 1 is at event 8"),
        (&raid, json!({ "record": { "failed": 1 } }), "is not in sync"),
        (&raid, json!({ "record": { "recovery": 512 } }), "is not in sync"),
        (&raid, json!({ "record": { "resync": 0 } }), "is not in sync"),
        (&raid, json!({ "record": { "flags": 1 } }), "is not in sync"),
        (&raid, json!({ "record": { "bits": 4 } }), "write-intent bitmap of copy 1"),
        (&raid, json!({ "image_flags": ["REBUILD"] }), "mir_rimage_0 is REBUILD"),
        (&raid, json!({ "flags": ["READ", "WRITE", "VISIBLE", "NOTSYNCED"] }), "NOTSYNCED"),
        (&mirror, json!({ "dirty": 8 }), "has regions whose copies may differ"),
        (&mirror, json!({ "dirty": 1 << 10 }), "has regions whose copies may differ"),
        (&mirror, json!({ "records": [] }), "has its log in memory only"),
    ];
    for (volume, changes, expected) in cases {
        println!("{changes}");
        let mut changed = volume.clone();
        for (key, value) in changes.as_object().expect("an object") {
            changed[key] = value.clone();
        }
        Group::make(spec(changed), &mut Rng(5)).said(&["trim", "--yes"]).expect(3, &[expected]);
    }
    // In sync by its records, and not in truth.
    let group = Group::make(spec(raid.clone()), &mut Rng(6));
    let superblock = MIB + MIB + 1024; // of the second copy, whose first extent is number 1
    images::put(&group.physical[1], superblock + 88, b"other");
    group.said(&["trim", "--yes"]).expect(3, &["the members of the array do not agree", "lvchange --syncaction check"]);
    for volume in [raid, mirror] {
        Group::make(spec(volume), &mut Rng(7)).trims_exactly(true);
    }
}

#[test]
fn one_physical_volume_alone_is_enough_for_what_lies_on_it() {
    let group = Group::make(small(), &mut Rng(8));
    let [one, other] = [0, 1].map(|number| text(&group.physical[number]));
    let before: Vec<Vec<u8>> = group.physical.iter().map(|path| std::fs::read(path).expect("a disk")).collect();
    // What no volume takes is known only with the whole group.
    let answer = said(&["trim", "--yes", "--unallocated", one]);
    answer.expect(5, &["vg/both needs the physical volume pv1", "last seen as /dev/was1"]);
    let free = tool_ok(env!("CARGO_BIN_EXE_coldtrim"), &["map", "--format", "ranges", text(&group.images["one"])]);
    let carried = lvm_group::ranges(&["carry", &group.spec.to_string(), "one", "0"], &free);
    assert!(std::fs::read(one).expect("a disk") == zeroed(before[0].clone(), &carried));
    said(&["trim", "--yes", other]).expect(3, &["vg/both needs the physical volume pv0"]);
    assert!(std::fs::read(other).expect("a disk") == before[1]);

    // One that does not describe the group says nothing alone, and is a part of it beside one that does.
    let mut spec = small();
    spec["silent"] = json!([1]);
    let group = Group::make(spec, &mut Rng(9));
    let other = text(&group.physical[1]);
    said(&["trim", "--yes", other]).expect(3, &["does not describe its volume group itself"]);
    group.trims_exactly(true);
}

/// A physical volume on a mirror of md whose record lies at its end: the members themselves carry the label, too.
#[test]
fn the_label_on_a_member_of_an_array_is_the_arrays() {
    let md = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/md_array.py");
    let member = 20 * MIB + 12_288;
    for (level, count) in [(1, 2), (0, 2)] {
        let array = json!({ "version": "1.0", "level": level, "layout": 0, "chunk": if level == 0 { 65536 } else { 0 },
            "sizes": vec![member; count], "offset": 0 });
        let size: u64 = tool_ok("python3", &[md, "size", &array.to_string()]).trim().parse().expect("a size");
        let spec = json!({ "sizes": [size], "start": MIB, "extent": MIB,
            "volumes": [{ "name": "one", "segments": [{ "count": 9, "places": [[0, 5]] }, { "count": 2, "places": [[0, 1]] }] }] });
        let group = Group::make(spec, &mut Rng(13));
        let members: Vec<PathBuf> = (0..count).map(|number| group.folder.path().join(format!("m{number}"))).collect();
        let names: Vec<&str> = members.iter().map(|path| text(path)).collect();
        tool_ok("python3", &[&[md, "lay", &array.to_string(), text(&group.physical[0])], &names[..]].concat());
        let before: Vec<Vec<u8>> = members.iter().map(|path| std::fs::read(path).expect("a member")).collect();
        let single = said(&["trim", "--yes", "--unallocated", names[0]]);
        single.expect(3, &[if level == 1 { "--member" } else { "lacks member 1" }]);
        assert!(std::fs::read(&members[0]).expect("a member") == before[0], "level {level}");
        if level == 1 {
            // What a copy of the mirror says otherwise is said of everything on it.
            let label = MIB + 5 * MIB + 1024 + 120; // of the volume, whose first extent is number 5
            images::put(&members[1], label, b"other");
            let differ = said(&["trim", "--yes", names[0], names[1]]);
            differ.expect(3, &["the members of the array do not agree", "/sys/block/mdX/md/sync_action"]);
            std::fs::write(&members[1], &before[1]).expect("a member");
        }
        said(&[&["trim", "--yes", "--unallocated"], &names[..]].concat())
            .expect(0, &["md raid", "lvm linear", "vg/one"]);
        // What is free in a volume is discarded through both layers; extents that no volume takes only where nothing is
        // there twice.
        let free: String =
            group.discarded(0, level == 0).iter().map(|(start, len)| format!("{start} {len}\n")).collect();
        for (number, (path, before)) in members.iter().zip(before).enumerate() {
            let carried = md_array::carried(&array, number, &free);
            assert!(
                std::fs::read(path).expect("a member") == zeroed(before, &carried),
                "level {level} member {number}"
            );
        }
    }
}

#[test]
fn a_group_is_read_through_partitions_and_second_areas() {
    let mut spec = small();
    spec["sizes"] = json!([20 * MIB + 512 * 1024, 24 * MIB + 512 * 1024]);
    spec["second"] = (MIB / 2).into();
    Group::make(spec.clone(), &mut Rng(10)).trims_exactly(true);
    // The second area lies over the last extent when the group says that there is one more.
    let mut group = Group::make(small(), &mut Rng(11));
    group.refused(&json!({ "second": MIB / 2 }), &["over its own records"]);

    let group = Group::make(spec, &mut Rng(12));
    let table = group.folder.path().join("disk");
    std::fs::File::create(&table).and_then(|file| file.set_len(56 * MIB)).expect("a disk");
    let script = "label: gpt\nstart=2048, size=41984, type=lvm\nstart=45056, size=50176, type=lvm\n";
    tool_ok("sh", &["-c", &format!("printf '{script}' | sfdisk -q {}", text(&table))]);
    for (path, at) in group.physical.iter().zip([MIB, 22 * MIB]) {
        images::put(&table, at, &std::fs::read(path).expect("a physical volume"));
    }
    let before = std::fs::read(&table).expect("a disk");
    said(&["trim", "--yes", text(&table)]).expect(0, &["vg/one", "vg/both", "partition 2"]);
    let after = std::fs::read(&table).expect("a disk");
    let starts: Vec<u64> = said(&["map", "--json", text(&table)]).json()["volumes"]
        .as_array()
        .expect("volumes")
        .iter()
        .filter(|volume| volume["format"] == "LVM2 physical volume")
        .map(|volume| volume["offset"].as_u64().expect("an offset"))
        .collect();
    let mut ranges = Vec::new();
    for (number, start) in starts.iter().enumerate() {
        ranges.extend(group.discarded(number, false).into_iter().map(|(at, len)| (at + start, len)));
    }
    assert_eq!(starts.len(), 2);
    assert!(after == zeroed(before, &ranges));
}
