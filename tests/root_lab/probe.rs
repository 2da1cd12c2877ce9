//! `probe` and `probe --test` on real drivers: the verdicts must be what the host sees in the backing file.

use crate::common::parse_ranges;
use crate::lab::{Lab, Output, Status};
use crate::trim::COLDTRIM;
use serde_json::Value;

/// The answer, which must be as the schema says.
fn json(output: &Output) -> Value {
    let answer = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {output}"));
    let schema = serde_json::from_str(include_str!("../../schema/coldtrim-1.schema.json")).expect("the schema is JSON");
    if let Err(error) = jsonschema::validate(&schema, &answer) {
        panic!("{} at {}: {output}", error, error.instance_path());
    }
    answer
}

/// The drive and the routes that work on it.
const DRIVES: &[(&str, &[&str])] = &[
    ("bot0", &["unmap"]),
    ("ahci0", &["sat16"]),
    ("nvme0", &["nvme"]),
    ("uas0", &["unmap"]),
    ("vcoarse0", &["unmap"]),
];

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_probe_tells_what_the_host_sees() {
    let mut rng = crate::common::Rng(crate::common::seed("root_lab_probe"));
    // USB and SATA always, one of the others.
    let last = rng.pick(&DRIVES[2..]).0;
    let always =
        |drive: &str| crate::common::full() || DRIVES[..2].iter().any(|(name, _)| *name == drive) || drive == last;
    for (drive, routes) in DRIVES.iter().filter(|(drive, _)| always(drive)) {
        let disk = Lab::get().drive(drive);
        let volume = disk.make("ext4", "gpt", 41);
        let before = disk.snapshot();
        let asked = disk.lab.run(&format!("{COLDTRIM} probe --json {}", disk.node));
        assert!(asked.status == Status::Exited(0), "{drive}: {asked}");
        for route in *routes {
            let claims = json(&asked)["routes"].clone();
            let claim = claims.as_array().expect("a list").iter().find(|claim| claim["name"] == *route).cloned();
            assert_eq!(claim.expect("the route")["prospect"], "worth_trying", "{drive} {route}: {asked}");
        }
        before.assert_untouched();
        let map = disk.lab.run_ok(&format!("{COLDTRIM} map --format ranges {}", volume.node));
        let free: Vec<(u64, u64)> =
            parse_ranges(&map).iter().map(|(start, len)| (start + volume.start, *len)).collect();
        let run = disk.lab.run(&format!("{COLDTRIM} probe --test --yes --json --settle 1 --budget 12M {}", disk.node));
        assert!(run.status == Status::Exited(0), "{drive}: {run}");
        let test = json(&run)["test"].clone();
        for route in *routes {
            let found = test["routes"].as_array().expect("a list").iter().find(|found| found["name"] == *route);
            let found = found.unwrap_or_else(|| panic!("{drive}: {route} was not tested: {run}"));
            assert_eq!(found["verdict"], "works (zeroes)", "{drive} {route}: {found}");
            assert!(
                found["rung"].as_u64() >= Some(2) && found["steps"].as_array().is_some_and(|steps| steps.len() > 2),
                "{found}"
            );
            assert!(found["largest"].as_u64() >= Some(64 << 10), "{drive} {route}: {found}");
        }
        assert_eq!((&test["left_bytes"], &test["late"]), (&Value::from(0), &Value::Null), "{drive}: {test}");
        assert!(test["written"].as_u64().is_some_and(|written| written > 0 && written <= 12 << 20), "{drive}: {test}");
        let _ = disk.lab.run_ok("sync");
        before.assert_kept_outside(&free);
        disk.check(&volume);
    }
}

/// Tables, boot code, used space and what is refused by name are no scratch; free space and gaps are.
#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_probe_takes_only_nobodys_bytes_for_scratch() {
    let disk = Lab::get().drive("vscsi1");
    let volume = disk.make("ext4", "gpt", 47);
    let before = disk.snapshot();
    let test = |scratch: &str| {
        disk.lab.run(&format!(
            "{COLDTRIM} probe --test --yes --json --settle 0 --via unmap --scratch {scratch} {}",
            disk.node
        ))
    };
    let last = disk.spec.size - (1 << 20);
    for used in ["0:64K", "512K:1M", &format!("{}:4M", volume.start), &format!("{last}:512K")] {
        let run = test(used);
        assert!(run.status == Status::Exited(3) && run.stderr.contains("in use, or may be"), "{used}: {run}");
    }
    before.assert_untouched();
    let map = disk.lab.run_ok(&format!("{COLDTRIM} map --format ranges {}", volume.node));
    let largest = parse_ranges(&map).into_iter().max_by_key(|(_, len)| *len).expect("free space");
    let (start, len) = (largest.0 + volume.start, largest.1);
    let run = test(&format!("{start}:{len}"));
    assert!(matches!(run.status, Status::Exited(0 | 3)), "{run}");
    let _ = disk.lab.run_ok("sync");
    before.assert_kept_outside(&[(start, len)]);
    disk.check(&volume);
}

/// The rule by which the kernel trims from now on: with it fstrim works on the very disk where it failed.
#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_probe_hands_over_to_the_kernel() {
    let disk = Lab::get().drive("bot0");
    let volume = disk.make("ext4", "none", 43);
    let fstrim = format!(
        "mkdir -p /run/over && mount {0} /run/over && fstrim /run/over; s=$?; umount /run/over; exit $s",
        volume.node
    );
    assert!(matches!(disk.lab.run(&fstrim).status, Status::Exited(1..)), "the kernel distrusts this bridge");
    let rule = disk.lab.run_ok(&format!("{COLDTRIM} probe --test --udev --yes --settle 0 --budget 8M {}", disk.node));
    let value = |name: &str| {
        let (_, rest) = rule.split_once(&format!("ATTR{{{name}}}=\"")).unwrap_or_else(|| panic!("{name}: {rule}"));
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    let up = format!(
        "p=$(readlink -f /sys/{}/device); while [ ! -e $p/idVendor ]; do p=${{p%/*}}; done; cat $p/",
        disk.node.replace("/dev/", "block/")
    );
    let usb = |name: &str| disk.lab.run_ok(&format!("{up}{name}")).trim().to_owned();
    assert!(rule.contains(&format!("ATTRS{{idVendor}}==\"{}\"", usb("idVendor"))), "{rule}");
    // What udev would do with it.
    let folder = format!("/sys/{}", disk.node.replace("/dev/", "block/"));
    let _ = disk.lab.run_ok(&format!(
        "echo {} >$(echo {folder}/device/scsi_disk/*)/provisioning_mode && echo {} >{folder}/queue/discard_max_bytes",
        value("provisioning_mode"),
        value("queue/discard_max_bytes")
    ));
    let _ = disk.lab.run_ok(&fstrim);
    disk.check(&volume);
    let _ = disk.lab.run_ok(&format!("echo full >$(echo {folder}/device/scsi_disk/*)/provisioning_mode"));
}

/// A drive that keeps what was discarded and promises nothing: accepted, and no more is said than that.
#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_probe_claims_nothing_that_was_not_seen() {
    let disk = crate::debug_disk::DebugDisk::load("lbpu=1 lbprz=0", 32);
    let volume = disk.make("ext4", "none");
    let run = disk.lab.run(&format!("{COLDTRIM} probe --test --yes --json --settle 0 --via unmap {}", disk.node));
    assert!(run.status == Status::Exited(0), "{run}");
    let found = json(&run)["test"]["routes"][0].clone();
    assert_eq!((found["name"].as_str(), found["verdict"].as_str()), (Some("unmap"), Some("no evidence")), "{found}");
    disk.lab.check_volume(&volume);
}
