//! A volume whose free space is in many pieces: how many commands that takes, and how many the kernel's own way takes.

use crate::common::{merged, parse_ranges, tool_ok};
use crate::lab::{Drive, Lab};
use crate::trim::{COLDTRIM, assert_done};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

const SECTOR: u64 = 512;
/// Free runs of the volume: under emulation the kernel's way takes a minute for the larger number.
fn extents() -> u32 {
    if crate::common::full() { 100_000 } else { 2_000 }
}

/// Clusters of the root folder, and the first one of the file.
const ROOT: u32 = 2;
const FIRST: u32 = 4;
/// Where whole mebibytes stay free: an eighth of the place at the volume's end. A trial needs both, because one wrong
/// address that a bridge may make of the end is there.
const HOLE: std::ops::Range<u64> = 12 << 20..16 << 20;
const LAST: u32 = 0x0FFF_FFFF;

/// FAT32 with clusters of one sector, and one file that has every other one.
fn write_volume(path: &Path) {
    let text = path.to_str().expect("a UTF-8 path");
    let _ = tool_ok("mkfs.fat", &["-F", "32", "-s", "1", "-n", "MANY", text]);
    let disk = OpenOptions::new().read(true).write(true).open(path).expect("the backing file");
    let mut boot = [0; 512];
    disk.read_exact_at(&mut boot, 0).expect("a boot sector");
    let (short, long) = (
        |at: usize| u64::from(u16::from_le_bytes([boot[at], boot[at + 1]])),
        |at: usize| u64::from(u32::from_le_bytes([boot[at], boot[at + 1], boot[at + 2], boot[at + 3]])),
    );
    let (reserved, tables, table, sectors) = (short(14), u64::from(boot[16]), long(36), long(32));
    let data = reserved + tables * table;
    let clusters = u32::try_from(sectors - data).expect("32 bits");
    let is_hole = |cluster: &u32| HOLE.contains(&((data + u64::from(*cluster - ROOT)) * SECTOR));
    let file: Vec<u32> = (FIRST..ROOT + clusters)
        .step_by(2)
        .filter(|cluster| !is_hole(cluster))
        .take(usize::try_from(extents() - 1).expect("a 64-bit machine"))
        .collect();
    assert_eq!(u32::try_from(file.len()), Ok(extents() - 1), "the drive is too small");
    let mut entries = vec![0_u8; usize::try_from(table * SECTOR).expect("a 64-bit machine")];
    disk.read_exact_at(&mut entries, reserved * SECTOR).expect("a table");
    for (cluster, next) in file.iter().zip(file[1..].iter().copied().chain([LAST])) {
        let at = usize::try_from(*cluster).expect("a 64-bit machine") * 4;
        entries[at..at + 4].copy_from_slice(&next.to_le_bytes());
    }
    for copy in 0..tables {
        disk.write_all_at(&entries, (reserved + copy * table) * SECTOR).expect("room for a table");
    }
    // Behind the entry of the label.
    let mut entry = [0; 32];
    entry[..12].copy_from_slice(b"HALF    BIN\x20");
    let first = FIRST.to_le_bytes();
    entry[20..22].copy_from_slice(&first[2..]);
    entry[26..28].copy_from_slice(&first[..2]);
    entry[28..].copy_from_slice(&(u32::try_from(SECTOR).expect("small") * (extents() - 1)).to_le_bytes());
    disk.write_all_at(&entry, data * SECTOR + 32).expect("room for an entry");
    // FSInfo: the count that everything but a check of the volume goes by.
    disk.write_all_at(&(clusters - extents()).to_le_bytes(), SECTOR + 488).expect("room for a count");
}

/// Counts what the kernel sends to a disk, by its own trace of the SCSI layer.
struct Trace<'a> {
    disk: &'a Drive<'a>,
    trigger: String,
}

const EVENT: &str = "/sys/kernel/tracing/events/scsi/scsi_dispatch_cmd_start";

impl<'a> Trace<'a> {
    fn start(disk: &'a Drive<'a>) -> Self {
        let address = format!("basename $(readlink -f /sys/{}/device)", disk.node.replace("/dev/", "block/"));
        let host = disk.lab.run_ok(&address).split(':').next().expect("host:channel:id:lun").to_owned();
        let trace = Self { disk, trigger: format!("hist:keys=opcode if host_no == {host}") };
        let _ = disk.lab.run_ok(&format!(
            "mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing; {}",
            trace.set("")
        ));
        trace
    }

    /// The command that sets the trigger, or with `!` takes it away.
    fn set(&self, not: &str) -> String {
        format!("echo '{not}{}' >{EVENT}/trigger", self.trigger)
    }

    /// The number of UNMAP commands since the last time.
    fn unmaps(&self) -> u64 {
        let text = self.disk.lab.run_ok(&format!("cat {EVENT}/hist; {}; {}", self.set("!"), self.set("")));
        // { opcode:         66 } hitcount:        400
        let count = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = |name: &str| words.iter().position(|word| *word == name)?.checked_add(1);
            (*words.get(at("opcode:")?)? == "66").then(|| words.get(at("hitcount:")?)?.parse().ok())?
        };
        text.lines().find_map(count).unwrap_or_else(|| panic!("no UNMAP was traced:\n{text}"))
    }
}

/// Commands that are at most one doubling away from the device's limit: the first has one range.
fn ramp(most: u64) -> u64 {
    u64::from(most.next_power_of_two().ilog2())
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_many_extents_take_few_commands() {
    let disk = Lab::get().drive("uasmany0");
    disk.fill();
    write_volume(&disk.backing);
    let before = disk.snapshot();
    let limits = disk.lab.run_ok(&format!("sg_vpd --page=bl {}", disk.node));
    let most: u64 = limits
        .lines()
        .find_map(|line| line.trim().strip_prefix("Maximum unmap block descriptor count:"))
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or_else(|| panic!("no limit: {limits}"));
    let planned = parse_ranges(&disk.lab.run_ok(&format!("{COLDTRIM} map --format ranges {}", disk.node)));
    assert_eq!((planned.len(), planned.clone()), (extents().try_into().expect("64 bits"), merged(&planned)));
    let trace = Trace::start(&disk);
    let began = std::time::Instant::now();
    let output = disk.lab.run(&format!("{COLDTRIM} trim --yes --json --via unmap {}", disk.node));
    let (ours, took) = (trace.unmaps(), began.elapsed());
    assert_done(&output, &planned, "unmap");
    let _ = disk.lab.run_ok("sync");
    before.assert_only_discarded(&planned);
    let began = std::time::Instant::now();
    let _ = disk.lab.run_ok(&format!(
        "mkdir -p /run/many && mount -t vfat -o ro {} /run/many && fstrim /run/many; s=$?; umount /run/many; exit $s",
        disk.node
    ));
    let theirs = trace.unmaps();
    before.assert_only_discarded(&planned);
    // The trial of the route is one command more, in sizes that may be rejected four.
    let report: serde_json::Value = serde_json::from_str(&output.stdout).expect("JSON");
    let commands = report["outcome"]["commands"].as_u64().expect("a count");
    let least = u64::from(extents()).div_ceil(most);
    println!(
        "{} extents through UAS: {ours} UNMAP commands ({commands} of the run; with {most} ranges in each it would \
         be {least}) in {took:.1?}, fstrim {theirs} in {:.1?}",
        extents(),
        began.elapsed()
    );
    assert!(ours >= commands && ours <= commands + 4, "{ours} were traced, {commands} told");
    assert!(commands <= ramp(most) + least + least / 100, "{commands} commands, where {least} and a ramp are enough");
    assert!(theirs >= u64::from(extents()), "{theirs} commands of fstrim cannot have told all extents");
}
