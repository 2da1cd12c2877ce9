//! A volume group of the real LVM2 and kernel: made and filled in the guest, one volume removed, trimmed here as physical
//! volumes, activated again there.

use crate::common::{coldtrim, tool_ok};
use crate::lab::{Lab, guest_file};
use crate::lvm_group;
use crate::md_array::{total, zeroed};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// LVM's own report as the description that tests/oracle/lvm_group.py needs.
fn described(folder: &Path, sizes: &[u64]) -> Value {
    let report = std::fs::read(folder.join("layout.json")).expect("a report");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let segments = report["report"][0]["seg"].as_array().expect("segments").clone();
    let nodes = std::fs::read_to_string(folder.join("nodes")).expect("a list of nodes");
    let nodes: Vec<&str> = nodes.split_whitespace().collect();
    let number = |word: &Value| word.as_str().and_then(|word| word.trim().parse::<u64>().ok()).expect("a number");
    // "/dev/loop0(7),/dev/loop1(3)"
    let places = |segment: &Value| -> Vec<(u64, u64)> {
        let words = segment["devices"].as_str().expect("devices").split(',');
        let place = |word: &str| {
            let (node, extent) = word.trim_end_matches(')').split_once('(').expect("a place");
            let pv = nodes.iter().position(|known| *known == node).expect("a physical volume");
            (u64::try_from(pv).expect("a small number"), extent.parse().expect("an extent"))
        };
        words.map(place).collect()
    };
    let of = |name: &str| {
        let bare = |segment: &&Value| segment["lv_name"].as_str().expect("a name").trim_matches(['[', ']']) == name;
        let mut found: Vec<Value> = segments.iter().filter(bare).cloned().collect();
        found.sort_by_key(|segment| number(&segment["seg_start_pe"]));
        assert!(!found.is_empty(), "{name} in {segments:?}");
        found
    };
    let plain = |name: &str| {
        let list = of(name).into_iter().map(|segment| {
            let (count, chunk) = (number(&segment["seg_size_pe"]), number(&segment["stripe_size"]));
            json!({ "count": count, "chunk": chunk, "places": places(&segment) })
        });
        json!({ "name": name, "segments": list.collect::<Vec<_>>() })
    };
    let pieces = |name: &str| {
        let piece = |segment: Value| {
            let (pv, first) = places(&segment)[0];
            json!([pv, first, number(&segment["seg_size_pe"])])
        };
        of(name).into_iter().map(piece).collect::<Vec<_>>()
    };
    let record = |name: &str| json!(places(&of(name)[0])[0]);
    let mirror = json!({
        "name": "mir", "kind": "raid1", "count": number(&of("mir")[0]["seg_size_pe"]),
        "copies": [pieces("mir_rimage_0"), pieces("mir_rimage_1")], "records": [record("mir_rmeta_0"), record("mir_rmeta_1")],
    });
    json!({ "sizes": sizes, "start": MIB, "extent": MIB, "volumes": [plain("lin"), plain("str"), mirror] })
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_lvm_physical_volumes_are_trimmed_and_activated_again() {
    let lab = Lab::get();
    let folder = lab.share.join("lvm");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).expect("a folder of the lab");
    let script = guest_file("lvm.sh");
    let sizes = [48 * MIB + 77 * 512, 40 * MIB];
    let _ = lab.run_ok(&format!("sh {script} make /lab/lvm {} {}", sizes[0], sizes[1]));
    let physical: Vec<PathBuf> = (0..2).map(|number| folder.join(format!("p{number}"))).collect();
    let names: Vec<&str> = physical.iter().map(|path| path.to_str().expect("UTF-8")).collect();
    let spec = described(&folder, &sizes);
    let before: Vec<Vec<u8>> = physical.iter().map(|path| std::fs::read(path).expect("a disk")).collect();
    let done = coldtrim(&[&["trim", "--yes", "--unallocated", "--json"], &names[..]].concat());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    for (number, (path, before)) in physical.iter().zip(before).enumerate() {
        let mut ranges = lvm_group::ranges(&["spare", &spec.to_string(), &number.to_string()], "");
        assert!(total(&ranges) > 5 * MIB, "disk {number}: the removed volume's extents are spare: {spec}");
        for volume in ["lin", "str", "mir"] {
            let image = folder.join(volume);
            let free = tool_ok(crate::trim::COLDTRIM, &["map", "--format", "ranges", image.to_str().expect("UTF-8")]);
            ranges.extend(lvm_group::ranges(&["carry", &spec.to_string(), volume, &number.to_string()], &free));
        }
        let found = std::fs::read(path).expect("a disk");
        assert!(found == zeroed(before, &ranges), "disk {number} is not as expected: {spec}");
    }
    let said = lab.run_ok(&format!("sh {script} check /lab/lvm 2"));
    assert!(said.matches("\n20\n").count() == 3 && said.contains("mismatches:"), "{said}");
    assert!(said.lines().any(|line| line.replace(' ', "") == "mismatches:0"), "{said}");
}
