//! scsi_debug: a SCSI disk of the kernel itself whose limits are set at will, and which tells exactly which blocks it
//! holds. Here the kernel's own list of mapped blocks is the judge of what was discarded.

use crate::lab::{Lab, Output, Running, Snapshot, Status, Volume};
use crate::trim::{COLDTRIM, assert_done, total};
use crate::{common, lab::backing};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

const DRIVER: &str = "bus/pseudo/drivers/scsi_debug";
/// Mebibytes; more where the sectors are large, because a trial needs free space at every address that could be meant.
const SMALL: u64 = 48;
const ROOMY: u64 = 256;

/// What a disk says of itself, in the module's own words, and what follows for a plan.
struct Kind {
    parameters: &'static str,
    megabytes: u64,
    sector: u64,
    /// Sectors.
    granularity: u64,
    /// First sector that begins a granule.
    alignment: u64,
    /// Whether a discarded block reads as zeros; else it keeps its contents.
    zeroes: bool,
    via: &'static str,
}

const KINDS: &[Kind] = &[
    Kind {
        parameters: "sector_size=4096 lbpu=1",
        megabytes: ROOMY,
        sector: 4096,
        granularity: 1,
        alignment: 0,
        zeroes: true,
        via: "unmap",
    },
    Kind {
        parameters: "lbpu=1 unmap_granularity=64 unmap_alignment=8",
        megabytes: SMALL,
        sector: 512,
        granularity: 64,
        alignment: 8,
        zeroes: true,
        via: "unmap",
    },
    Kind {
        parameters: "lbpu=1 unmap_max_blocks=640 unmap_max_desc=2",
        megabytes: SMALL,
        sector: 512,
        granularity: 1,
        alignment: 0,
        zeroes: true,
        via: "unmap",
    },
    Kind {
        parameters: "lbpu=1 lbprz=0",
        megabytes: SMALL,
        sector: 512,
        granularity: 1,
        alignment: 0,
        zeroes: false,
        via: "unmap",
    },
    Kind {
        parameters: "lbpws=1",
        megabytes: SMALL,
        sector: 512,
        granularity: 1,
        alignment: 0,
        zeroes: true,
        via: "writesame16",
    },
    Kind {
        parameters: "lbpws10=1",
        megabytes: SMALL,
        sector: 512,
        granularity: 1,
        alignment: 0,
        zeroes: true,
        via: "writesame10",
    },
];

/// A loaded scsi_debug; unloaded again when dropped. There is only one at a time.
pub struct DebugDisk {
    pub lab: &'static Lab,
    pub node: String,
    /// Bytes.
    size: u64,
    _claim: MutexGuard<'static, ()>,
}

impl DebugDisk {
    pub fn load(parameters: &str, megabytes: u64) -> Self {
        static ONLY_ONE: Mutex<()> = Mutex::new(());
        let claim = ONLY_ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let lab = Lab::get();
        let _ = lab.run_ok(&format!(
            "modprobe -r scsi_debug; modprobe scsi_debug dev_size_mb={megabytes} ndelay=1000 {parameters}"
        ));
        for _ in 0..100 {
            let found = lab.run(&format!("ls /sys/{DRIVER}/adapter0/host*/target*/*/block"));
            if found.status == Status::Exited(0) && !found.stdout.is_empty() {
                return Self {
                    lab,
                    node: format!("/dev/{}", found.stdout.trim()),
                    size: megabytes << 20,
                    _claim: claim,
                };
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("scsi_debug {parameters}: no disk appeared\n{}", lab.log());
    }

    /// A volume of real files on a disk of which every block is mapped.
    pub fn make(&self, format: &str, table: &str) -> Volume {
        let pattern = self.lab.share.join("pattern.raw");
        backing::create(&pattern, self.size).expect("room for a pattern");
        backing::fill(&pattern, self.size);
        let _ = self.lab.run_ok(&format!("dd if=/lab/pattern.raw of={} bs=1M conv=fsync", self.node));
        self.lab.make_volume(&self.node, "scsi_debug", format, table, 21)
    }

    fn image(&self) -> PathBuf {
        let _ = self.lab.run_ok(&format!("dd if={} of=/lab/scsi_debug.raw bs=1M iflag=direct conv=fsync", self.node));
        self.lab.share.join("scsi_debug.raw")
    }

    /// The first and last index of each run of mapped granules.
    fn mapped(&self) -> Vec<(u64, u64)> {
        let text = self.lab.sysfs(&format!("{DRIVER}/map"));
        assert!(text.len() < 4000, "the kernel cuts this list at one page");
        let number = |text: &str| text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        text.split(',')
            .filter(|run| !run.is_empty())
            .map(|run| run.split_once('-').map_or_else(|| (number(run), number(run)), |(a, b)| (number(a), number(b))))
            .collect()
    }
}

impl Drop for DebugDisk {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = self.lab.run_ok("modprobe -r scsi_debug");
        }
    }
}

impl Kind {
    /// Free bytes of the disk rounded inwards to whole granules.
    fn plan(&self, free: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let (granule, shift) = (self.granularity * self.sector, self.alignment * self.sector);
        // Shifted up by a granule less the alignment, granules begin at multiples.
        let up = if shift == 0 { 0 } else { granule - shift };
        let shifted: Vec<_> = free.iter().map(|(start, length)| (start + up, *length)).collect();
        common::rounded(&shifted, granule).iter().map(|(start, length)| (start - up, *length)).collect()
    }

    /// What the kernel's list of mapped granules must be once `planned` is discarded from what was mapped.
    fn mapped_after(&self, mapped: &[(u64, u64)], planned: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let (granule, shift) = (self.granularity * self.sector, self.alignment * self.sector);
        let index = |byte: u64| (byte + if shift == 0 { 0 } else { granule - shift }) / granule;
        let mut runs = mapped.to_vec();
        for &(start, length) in planned {
            let (first, end) = (index(start), index(start + length));
            let before = runs.iter().filter(|run| run.0 < first).map(|run| (run.0, run.1.min(first - 1)));
            let behind = runs.iter().filter(|run| run.1 >= end).map(|run| (run.0.max(end), run.1));
            runs = before.chain(behind).collect();
        }
        runs
    }
}

/// How many granules these runs have.
fn granules(runs: &[(u64, u64)]) -> u64 {
    runs.iter().map(|(first, last)| last - first + 1).sum()
}

fn trim(disk: &DebugDisk, arguments: &str, node: &str) -> Output {
    disk.lab.run(&format!("{COLDTRIM} trim --yes --json {arguments} {node}"))
}

fn free_of(disk: &DebugDisk, volume: &Volume) -> Vec<(u64, u64)> {
    let map = disk.lab.run_ok(&format!("{COLDTRIM} map --format ranges {}", volume.node));
    common::parse_ranges(&map).iter().map(|(start, length)| (start + volume.start, *length)).collect()
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_scsi_debug_obeys_every_limit() {
    // The two lengths of WRITE SAME take turns in ordinary runs.
    let other = if common::seed("WRITE SAME").is_multiple_of(2) { "writesame10" } else { "writesame16" };
    for kind in KINDS.iter().filter(|kind| common::full() || kind.via != other) {
        println!("scsi_debug {} by {}", kind.parameters, kind.via);
        let disk = DebugDisk::load(kind.parameters, kind.megabytes);
        let volume = disk.make("ext4", "gpt");
        let before = Snapshot::take(&disk.image());
        let planned = kind.plan(&free_of(&disk, &volume));
        // Where the kernel writes zeros by WRITE SAME with the UNMAP bit, mkfs has unmapped a little already.
        let mapped = disk.mapped();
        let left = kind.mapped_after(&mapped, &planned);
        assert!(granules(&left) < granules(&mapped) / 2, "the volume has nothing to discard that is mapped");
        let output = trim(&disk, &format!("--via {}", kind.via), &volume.node);
        assert_done(&output, &planned, kind.via);
        assert_eq!(disk.mapped(), left, "{output}");
        let _ = disk.image();
        if kind.zeroes {
            before.assert_contents(&planned);
        } else {
            before.assert_kept_outside(&planned);
        }
        disk.lab.check_volume(&volume);
    }
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_without_any_discard_is_exit_4() {
    let disk = DebugDisk::load("lbpu=0", SMALL);
    let volume = disk.make("ext4", "none");
    let output = trim(&disk, "", &volume.node);
    assert!(output.status == Status::Exited(4), "{output}");
    let said = format!("{}{}", output.stdout, output.stderr);
    for route in ["blkdiscard", "unmap", "sat16"] {
        assert!(said.contains(route), "{route} is not among what was tried: {output}");
    }
    disk.lab.check_volume(&volume);
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_interrupted_tells_what_is_done_and_can_be_repeated() {
    let kind = &KINDS[2];
    let disk = DebugDisk::load(kind.parameters, kind.megabytes);
    let volume = disk.make("ext4", "gpt");
    let planned = kind.plan(&free_of(&disk, &volume));
    let mapped = disk.mapped();
    // 50 ms for each command, so that there is a middle.
    let _ = disk.lab.run_ok(&format!("echo 50000000 > /sys/{DRIVER}/ndelay"));
    let running = disk.lab.start(&format!("exec {COLDTRIM} trim --yes --json --via unmap {}", volume.node));
    // More than a trial of the route discards.
    let unmapped = || disk.mapped().windows(2).map(|runs| (runs[1].0 - runs[0].1 - 1) * kind.sector).sum::<u64>();
    wait_until(&running, || unmapped() > 1 << 20);
    running.signal(2);
    let output = running.wait();
    assert_eq!(output.status, Status::Exited(130), "{output}");
    let report: serde_json::Value = serde_json::from_str(&output.stdout).expect("a report, although interrupted");
    let done = report["outcome"]["bytes"].as_u64().unwrap_or_else(|| panic!("no outcome: {output}"));
    assert!(done > 0 && done < total(&planned), "not in the middle: {done} of {}", total(&planned));
    let _ = disk.lab.run_ok(&format!("echo 1000 > /sys/{DRIVER}/ndelay"));
    disk.lab.check_volume(&volume);
    assert_done(&trim(&disk, "--via unmap", &volume.node), &planned, "unmap");
    assert_eq!(disk.mapped(), kind.mapped_after(&mapped, &planned));
    disk.lab.check_volume(&volume);
}

fn wait_until(running: &Running<'_>, happened: impl Fn() -> bool) {
    while !happened() {
        assert!(running.so_far().is_some(), "it ended before it could be interrupted");
        std::thread::sleep(Duration::from_millis(20));
    }
}
