//! What the kernel's device-mapper and cryptsetup make of drives: read at the top, discarded at the bottom.

use crate::common::{parse_ranges, rounded, tool_ok};
use crate::lab::{Drive, Lab, Output, Status};
use crate::lvm_group;
use crate::trim::{COLDTRIM, assert_done};
use serde_json::json;

/// No udev is in the guest; device-mapper makes its nodes itself.
const DM: &str = "export PATH=$PATH:/usr/sbin:/sbin DM_DISABLE_UDEV=1; modprobe -a dm-mod dm-crypt dm-integrity;";

/// The kernel's own node of a mapping.
pub fn node(lab: &Lab, name: &str) -> String {
    format!("/dev/dm-{}", lab.run_ok(&format!("{DM} dmsetup info -c --noheadings -o minor {name}")).trim())
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or_else(|_| panic!("a number: {text:?}"))
}

/// One partition from 1 MiB on, and the node of it.
fn partition(disk: &Drive<'_>, mib: u64) -> String {
    let script = format!("label: gpt\\nstart=2048, size={}, type=linux\\n", mib * 2048);
    let _ = disk.lab.run_ok(&format!("{DM} printf '{script}' | sfdisk -q --wipe always {}", disk.node));
    format!("{}1", disk.node)
}

fn said(output: &Output) -> String {
    format!("{}{}", output.stdout, output.stderr)
}

/// What is free at the top, in bytes of it.
fn free(lab: &Lab, top: &str, consent: &str) -> Vec<(u64, u64)> {
    let map = parse_ranges(&lab.run_ok(&format!("{COLDTRIM} map --format ranges {consent} {top}")));
    assert!(map.iter().map(|(_, len)| len).sum::<u64>() > 4 << 20, "too little is free to show anything: {map:?}");
    map
}

const CONSENT: &str = "--accept encryption-pattern";
const KEY: &str = "--batch-mode --key-file /run/key";
/// Few iterations: under emulation each one is slow.
const FORMAT: &str = "--batch-mode --key-file /run/key --pbkdf pbkdf2 --pbkdf-force-iterations 1000";

/// LUKS on a partition, opened without leave to discard: the partition is trimmed behind the header, at the place that the
/// table tells, and everything is there when it is opened again.
fn luks(drive: &str, kind: &str, via: &str, mib: u64) {
    let disk = Lab::get().drive(drive);
    let lab = disk.lab;
    disk.fill();
    let part = partition(&disk, mib);
    let _ = lab.run_ok(&format!("{DM} echo secret >/run/key; cryptsetup luksFormat --type {kind} {FORMAT} {part}"));
    let name = format!("cold{drive}");
    let open = format!("{DM} cryptsetup open {KEY} {part} {name}");
    let _ = lab.run_ok(&open);
    let top = node(lab, &name);
    let mut volume = lab.make_volume(&top, &name, "ext4", "none", 3);
    let before = disk.snapshot();
    for verb in ["map", "trim --yes"] {
        let refused = lab.run(&format!("{COLDTRIM} {verb} {top}"));
        assert!(refused.status == Status::Exited(3) && said(&refused).contains(CONSENT), "{verb}: {refused}");
    }
    before.assert_untouched();
    // `  offset: 16777216 [bytes]`, and before LUKS2 `Payload offset: 4096` in sectors
    let dump = lab.run_ok(&format!("{DM} cryptsetup luksDump {part}"));
    let word = |key: &str| dump.lines().find_map(|line| line.trim().strip_prefix(key)).map(str::to_owned);
    let payload = match (kind, word("offset:"), word("Payload offset:")) {
        ("luks2", Some(bytes), _) => number(bytes.trim_end_matches("[bytes]")),
        (_, _, Some(sectors)) => number(&sectors) * 512,
        _ => panic!("no offset: {dump}"),
    };
    assert!(payload >= 1 << 20, "{dump}");
    let shifted: Vec<_> =
        free(lab, &top, CONSENT).iter().map(|(start, len)| (start + payload + (1 << 20), *len)).collect();
    let planned = rounded(&shifted, 4096);
    let output = lab.run(&format!("{COLDTRIM} trim --yes --json {CONSENT} {top}"));
    assert_done(&output, &planned, via);
    assert!(!said(&output).contains("secret"), "{output}");
    before.assert_only_discarded(&planned);
    let _ = lab.run_ok(&format!("{DM} cryptsetup close {name}; {open}"));
    volume.node = node(lab, &name);
    lab.check_volume(&volume);
    let _ = lab.run_ok(&format!("{DM} cryptsetup close {name}"));
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_luks2_is_trimmed_below_the_mapping() {
    luks("vscsi0", "luks2", "blkdiscard", 46);
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_luks1_is_trimmed_below_the_mapping() {
    luks("vscsi0", "luks1", "blkdiscard", 40);
}

/// Behind USB, where the kernel offers no discard, the route is tried in the free space of the encrypted volume.
#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_luks2_behind_usb_is_trimmed_below_the_mapping() {
    luks("bot0", "luks2", "unmap", 200);
}

/// A line of a table for the test's own reading: first sector, sectors, chunk in sectors (0: linear), columns of drive and sector.
type Line = (u64, u64, u64, &'static [(usize, u64)]);

/// What of each drive holds free bytes of the top, sector by sector.
fn carried(lines: &[Line], free: &[(u64, u64)], drives: usize) -> Vec<Vec<(u64, u64)>> {
    let mut found = vec![Vec::new(); drives];
    for (start, len) in free {
        for sector in start / 512..(start + len) / 512 {
            let (first, _, chunk, columns) =
                lines.iter().find(|(first, count, ..)| (*first..first + count).contains(&sector)).expect("a line");
            let inside = sector - first;
            let count = u64::try_from(columns.len()).expect("a small number");
            let (column, at) = match chunk {
                0 => (0, inside),
                chunk => (inside / chunk % count, inside / chunk / count * chunk + inside % chunk),
            };
            let (drive, offset) = columns[usize::try_from(column).expect("a small number")];
            found[drive].push(((offset + at) * 512, 512));
        }
    }
    found.iter_mut().for_each(|list| list.sort_unstable());
    found.iter().map(|list| rounded(&crate::common::merged(list), 4096)).collect()
}

/// Linear and striped pieces over two drives, a mapping upon that, and what may not be translated.
#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_linear_and_striped_mappings_are_trimmed_on_both_drives() {
    const LINES: &[Line] = &[
        (0, 20_480, 0, &[(1, 8192)]),
        (20_480, 40_960, 128, &[(0, 4096), (1, 32_768)]),
        (61_440, 8192, 0, &[(0, 65_536)]),
    ];
    let disks = ["vscsi0", "vscsi1"].map(|name| Lab::get().drive(name));
    let lab = disks[0].lab;
    disks.iter().for_each(Drive::fill);
    let line = |(first, count, chunk, columns): &Line| {
        let places: Vec<String> =
            columns.iter().map(|(drive, sector)| format!("{} {sector}", disks[*drive].node)).collect();
        match chunk {
            0 => format!("{first} {count} linear {}", places.join(" ")),
            chunk => format!("{first} {count} striped {} {chunk} {}", columns.len(), places.join(" ")),
        }
    };
    let table: Vec<String> = LINES.iter().map(line).collect();
    let _ = lab.run_ok(&format!("{DM} dmsetup create below <<'END'\n{}\nEND", table.join("\n")));
    let below = node(lab, "below");
    let _ = lab.run_ok(&format!("{DM} dmsetup create upper --table '0 69632 linear {below} 0'"));
    let upper = node(lab, "upper");
    let mut volume = lab.make_volume(&upper, "upper", "ext4", "none", 4);
    let before = disks.each_ref().map(Drive::snapshot);

    // Somebody else at any storey is a reason to leave the drives alone: here nothing but the kernel's own discard is used.
    let _ = lab.run_ok(&format!("{DM} dmsetup create other --table '0 8 linear {} 80000'", disks[0].node));
    let shared = lab.run(&format!("{COLDTRIM} trim -n {upper}"));
    assert!(said(&shared).contains("only the kernel's own discard") && said(&shared).contains("\"other\""), "{shared}");
    let _ = lab.run_ok(&format!("{DM} dmsetup remove other"));
    // The one below cannot be the target while the other stands on it.
    let held = lab.run(&format!("{COLDTRIM} trim --yes {below}"));
    assert!(held.status == Status::Exited(3) && said(&held).contains("\"upper\""), "{held}");
    let _ = lab.run_ok(&format!("mkdir -p /run/upper; mount -o ro {upper} /run/upper"));
    let mounted = lab.run(&format!("{COLDTRIM} trim --yes {upper}"));
    assert!(mounted.status == Status::Exited(3) && said(&mounted).contains("/run/upper"), "{mounted}");
    let _ = lab.run_ok("umount /run/upper");
    before.iter().for_each(|before| before.assert_untouched());

    let planned = carried(LINES, &free(lab, &upper, ""), 2);
    let output = lab.run(&format!("{COLDTRIM} trim --yes --json {upper}"));
    assert_done(&output, &planned.concat(), "blkdiscard");
    before.iter().zip(&planned).for_each(|(before, planned)| before.assert_only_discarded(planned));
    let _ = lab.run_ok(&format!(
        "{DM} dmsetup remove upper && dmsetup remove below && dmsetup create below <<'END'\n{}\nEND",
        table.join("\n")
    ));
    volume.node = node(lab, "below");
    lab.check_volume(&volume);
    let _ = lab.run_ok(&format!("{DM} dmsetup remove below"));
}

/// A volume group upon a mapping: through both, and what no volume takes as well.
#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_a_volume_group_on_a_mapping_is_trimmed_below_it() {
    const MIB: u64 = 1 << 20;
    let disk = Lab::get().drive("vscsi1");
    let lab = disk.lab;
    let folder = lab.share.join("group");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).expect("a folder of the lab");
    let image = folder.join("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(12 * MIB)).expect("an image");
    let _ = tool_ok("mkfs.ext4", &["-q", "-F", "-b", "1024", image.to_str().expect("UTF-8")]);
    let physical = folder.join("physical");
    let spec = json!({ "sizes": [40 * MIB], "start": MIB, "extent": MIB, "volumes": [
        { "name": "one", "segments": [{ "count": 5, "places": [[0, 20]] }, { "count": 7, "places": [[0, 3]] }] },
    ] });
    let images = json!({ "one": image }).to_string();
    let path = physical.to_str().expect("UTF-8");
    let _ = tool_ok("python3", &[lvm_group::GROUP, "lay", &spec.to_string(), &images, path]);
    disk.fill();
    let _ = lab.run_ok(&format!("{DM} dmsetup create ground --table '0 81920 linear {} 6144'", disk.node));
    let top = node(lab, "ground");
    let _ = lab.run_ok(&format!("dd if=/lab/group/physical of={top} bs=1M conv=fsync"));
    let before = disk.snapshot();
    let map = tool_ok(COLDTRIM, &["map", "--format", "ranges", image.to_str().expect("UTF-8")]);
    let mut expected = lvm_group::ranges(&["carry", &spec.to_string(), "one", "0"], &map);
    expected.extend(lvm_group::ranges(&["spare", &spec.to_string(), "0"], ""));
    expected.sort_unstable();
    let expected: Vec<_> = expected.iter().map(|(start, len)| (start + 6144 * 512, *len)).collect();
    let planned: Vec<_> = expected.iter().flat_map(|range| rounded(&[*range], 4096)).collect();
    let output = lab.run(&format!("{COLDTRIM} trim --yes --unallocated {top}"));
    assert!(output.status == Status::Exited(0), "{output}");
    before.assert_only_discarded(&planned);
    let _ = lab.run_ok(&format!("{DM} dmsetup remove ground"));
}

/// Two mappings of the same sectors are two names of the same bytes.
#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_mappings_that_share_bytes_are_not_trimmed_together() {
    let disk = Lab::get().drive("vscsi0");
    let lab = disk.lab;
    disk.fill();
    let make = |name: &str, start: u64| {
        let table = format!("0 40960 linear {} {start}", disk.node);
        let _ = lab.run_ok(&format!("{DM} dmsetup create {name} --table '{table}'"));
        node(lab, name)
    };
    let (one, other) = (make("one", 2048), make("two", 40_000));
    let _ = lab.make_volume(&one, "one", "ext4", "none", 5);
    let before = disk.snapshot();
    // Partitions that the kernel still knows from before are no reason: the disk is held as a whole.
    let output = lab.run(&format!("{COLDTRIM} trim --yes {one} {other}"));
    assert!(output.status == Status::Exited(2) && said(&output).contains("are the same device"), "{output}");
    before.assert_untouched();
    let _ = lab.run_ok(&format!("{DM} dmsetup remove one; dmsetup remove two"));
}

/// Encryption with authentication keeps tags for every sector, free or not.
#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_mappings_with_checksums_are_refused_by_name() {
    let disk = Lab::get().drive("vscsi1");
    let lab = disk.lab;
    disk.fill();
    let part = partition(&disk, 40);
    let _ = lab.run_ok(&format!(
        "{DM} modprobe -a authenc hmac; echo secret >/run/key; \
         cryptsetup luksFormat --type luks2 --integrity hmac-sha256 --integrity-no-wipe {FORMAT} {part} && \
         cryptsetup open {KEY} {part} tagged"
    ));
    let top = node(lab, "tagged");
    // What was never written has no right checksum, and cannot be read.
    let _ = lab.run(&format!("dd if=/dev/zero of={top} bs=1M conv=fsync"));
    let refused = lab.run(&format!("{COLDTRIM} trim --yes {CONSENT} {top}"));
    assert!(refused.status == Status::Exited(3), "{refused}");
    assert!(said(&refused).contains("dm-crypt with integrity") && !said(&refused).contains("secret"), "{refused}");
    let below = node(lab, "tagged_dif");
    let refused = lab.run(&format!("{COLDTRIM} map {below}"));
    assert!(refused.status == Status::Exited(3) && said(&refused).contains("dm-integrity"), "{refused}");
    let _ = lab.run_ok(&format!("{DM} cryptsetup close tagged"));
}
