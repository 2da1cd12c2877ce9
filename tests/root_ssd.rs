//! `verify` end to end: simulated drives with clocks of their own, served to the lab's guest behind real front ends, and
//! measured there by the program through the kernel's own drivers. The drives know what they did.
#![allow(clippy::as_conversions)] // numbers of the test's own making

mod common;
#[path = "common/lab/mod.rs"]
mod lab;

use coldtrim_ssd_model::config::{OBEYS, vertex};
use coldtrim_ssd_model::nbd::Served;
use coldtrim_ssd_model::{Command, Config, PAGE, Readback, Ssd, Trim, TrimMode};
use common::parse_ranges;
use lab::{Lab, Spec, Status};
use serde_json::Value;
use std::os::unix::net::UnixListener;

const COLDTRIM: &str = env!("CARGO_BIN_EXE_coldtrim");
const MIB: u64 = 1 << 20;
const SIZE: u32 = 256;

/// The 2009 class at 16 MiB/s, a quarter of what the front ends carry under emulation, worn by a long life.
fn worn(mode: TrimMode, readback: Readback) -> Ssd {
    let config = Config {
        spare: 0.09,
        block_pages: 64,
        program: 232_000,
        read: 48_000,
        erase: 800_000,
        buffer: 16_000_000,
        trim: Trim { mode, ..OBEYS },
        readback,
        ..vertex(SIZE)
    };
    let mut ssd = Ssd::new(&config);
    ssd.fill(0..config.pages);
    ssd.age(u64::from(config.pages), config.pages / 8..config.pages, 5);
    ssd.settle();
    ssd
}

/// The drives, how they are attached, and whether they act on TRIM.
fn drives() -> [(&'static str, &'static str, &'static str, Ssd, bool); 2] {
    [
        (
            "obeys",
            "usb-uas,bus=xhci.0,id=obeys",
            "scsi-hd,bus=obeys.0,rotation_rate=1",
            worn(TrimMode::Obey, Readback::Zeros),
            true,
        ),
        (
            "ignores",
            "usb-uas,bus=xhci.0,id=ignores",
            "scsi-hd,bus=ignores.0,rotation_rate=1",
            worn(TrimMode::Ignore, Readback::OldData),
            false,
        ),
    ]
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_ssd_what_is_said_of_a_served_drive_is_true() {
    let sockets = tempfile::tempdir().expect("a temporary folder");
    let (mut specs, mut served) = (Vec::new(), Vec::new());
    for (name, bridge, device, ssd, obeys) in drives() {
        let socket = sockets.path().join(name);
        let listener = UnixListener::bind(&socket).expect("a socket");
        specs.push(Spec { name, size: u64::from(SIZE) * MIB, bridge, device, socket: Some(socket) });
        served.push((name, obeys, Served::new(ssd, listener)));
    }
    let lab = Lab::boot(&specs).unwrap_or_else(|reason| panic!("no lab: {reason}"));
    for (name, obeys, drive) in &served {
        let node = lab.node(name).expect("a node");
        // What mke2fs would discard would be the answer already.
        lab.run_ok(&format!("mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 {node} && sync"));
        let map = lab.run_ok(&format!("{COLDTRIM} map --format ranges {node}"));
        let free = parse_ranges(&map);
        drive.ssd().clear_log();
        let verify = format!("{COLDTRIM} verify --yes --json --length smoke --settle 5 --budget 72M --seed 7 {node}");
        let run = lab.run(&verify);
        let answer: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {run}"));
        let found = &answer["verify"];
        println!("{name}: {} rung {}: {}", found["verdict"], found["rung"], found["sentence"]);
        for pass in found["passes"].as_array().expect("passes") {
            println!("  {} {} {} bytes in {} s", pass["name"], pass["what"], pass["bytes"], pass["seconds_flushed"]);
        }
        assert_only_free_space_is_touched(name, &drive.ssd(), &free);
        let amplification = drive.ssd().flash().counters().amplification();
        println!("  {name}: flash pages by host pages {amplification:.2}");
        if *obeys {
            assert!(run.status == Status::Exited(0), "{run}");
            assert_eq!((&found["verdict"], &found["rung"]), (&"works (zeroes)".into(), &4.into()), "{found}");
            assert!(found["comparison"]["gain"]["low"].as_f64() > Some(1.3), "{}", found["comparison"]["gain"]);
        } else {
            let verdict = found["verdict"].as_str().unwrap_or_default();
            assert!(["no evidence", "inconclusive"].contains(&verdict), "{verdict}: {}", found["comparison"]);
        }
        lab.run_ok(&format!("fsck.ext4 -fn {node}"));
    }
}

/// The drive's own log against the map.
fn assert_only_free_space_is_touched(name: &str, ssd: &Ssd, free: &[(u64, u64)]) {
    assert!(ssd.log().len() > 100, "{name}: something was done");
    for command in ssd.log() {
        let (Command::Write(touched) | Command::Trim(touched)) = command;
        let (start, end) = (u64::from(touched.start) * PAGE, u64::from(touched.end) * PAGE);
        let inside = free.iter().any(|(from, length)| *from <= start && end <= from + length);
        assert!(inside, "{name}: {command:?} leaves the free space");
    }
}
