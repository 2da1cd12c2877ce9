//! The device lab: a QEMU guest with the real kernel drivers, booted once for all cases of a test binary.
//!
//! ```text
//! let disk = Lab::get().drive("bot0");            // exclusive; other tests go on with other drives
//! let volume = disk.make("ext4", "gpt", 7);       // pattern everywhere, partition, mkfs, files, deletions
//! let before = disk.snapshot();
//! disk.lab.run_ok(&format!("coldtrim trim --yes --via unmap {}", disk.node));
//! before.assert_only_discarded(&planned);         // the backing file, as the host sees it
//! disk.check(&volume);                            // fresh mount by the kernel, every file's bytes, fsck
//! ```
//!
//! The guest's root is the host's own `/` (9p, read-only, with an overlay that forgets), so every tool and every built
//! binary is there at its path. `Lab::share` is `/lab` in the guest and is writable.
//! With `COLDTRIM_LAB_TRACE` set, every command is shown with its time.
//! The guest switches itself off when this process ends, however it ends.
#![allow(dead_code, unused_imports)] // each test file uses its part

pub mod backing;
mod channel;
mod drives;
mod qemu;

pub use backing::Snapshot;
pub use channel::{Output, Running, Status};
pub use drives::{DRIVES, Drive, Spec, Volume};

use channel::Channel;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// More than any command of the lab takes, under emulation on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// One running guest.
pub struct Lab {
    // Dropped in this order: the channel first, because its end tells the guest to switch off.
    channel: Channel,
    qemu: qemu::Process,
    folder: PathBuf,
    /// A folder of the host that is `/lab` in the guest, writable on both sides.
    pub share: PathBuf,
    locks: Vec<Mutex<()>>,
}

impl Lab {
    /// The guest that all tests of this binary share. When it cannot boot, every test says why.
    pub fn get() -> &'static Lab {
        static LAB: OnceLock<Result<Lab, String>> = OnceLock::new();
        LAB.get_or_init(|| Lab::boot(drives::DRIVES)).as_ref().unwrap_or_else(|reason| panic!("no lab: {reason}"))
    }

    /// Boots a guest with these drives, and returns when all of them are there.
    ///
    /// # Errors
    /// The reason, with the end of the serial log.
    pub fn boot(drives: &[drives::Spec]) -> Result<Lab, String> {
        let folder = qemu::fresh_folder()?;
        let share = folder.join("share");
        std::fs::create_dir_all(&share).map_err(|e| format!("{}: {e}", share.display()))?;
        for drive in drives.iter().filter(|drive| drive.socket.is_none()) {
            backing::create(&folder.join(format!("{}.raw", drive.name)), drive.size)?;
        }
        let (qemu, socket) = qemu::start(&folder, drives)?;
        let channel = Channel::open(socket).map_err(|e| format!("{e}\n{}", tail(&folder)))?;
        let locks = drives.iter().map(|_| Mutex::new(())).collect();
        let lab = Lab { channel, qemu, folder, share, locks };
        for drive in drives {
            lab.wait_for_node(drive.name)?;
        }
        Ok(lab)
    }

    fn wait_for_node(&self, serial: &str) -> Result<(), String> {
        for _ in 0..300 {
            if self.node(serial).is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(format!("no drive with serial {serial} appeared in the guest\n{}", self.log()))
    }

    /// Runs a command of `sh` in the guest, at most ten minutes.
    pub fn run(&self, command: &str) -> Output {
        self.run_within(command, PATIENCE)
    }

    /// Runs a command of `sh` in the guest; it is killed after `limit`.
    pub fn run_within(&self, command: &str, limit: Duration) -> Output {
        self.start_within(command, limit).wait()
    }

    /// Runs a command that must succeed, and gives its standard output.
    pub fn run_ok(&self, command: &str) -> String {
        let output = self.run(command);
        assert!(output.status == Status::Exited(0), "in the guest: {command}\n{output}\n{}", self.log());
        output.stdout
    }

    /// Starts a command and returns at once: for signals, and for things that must happen at the same time.
    pub fn start(&self, command: &str) -> Running<'_> {
        self.start_within(command, PATIENCE)
    }

    /// As [`start`](Self::start), for what runs longer or shorter than ten minutes.
    pub fn start_within(&self, command: &str, limit: Duration) -> Running<'_> {
        self.channel.start(command, limit).unwrap_or_else(|e| panic!("{e}: {command}\n{}", self.log()))
    }

    /// The node of the drive with this serial number, such as `/dev/sdb`.
    pub fn node(&self, serial: &str) -> Option<String> {
        Some(self.ask("node", serial)).filter(|node| !node.is_empty())
    }

    /// The first match of a pattern in the guest's sysfs, such as `block/sda/queue/discard_max_bytes`: a file's contents,
    /// a link's last name. Much faster than a command.
    pub fn sysfs(&self, pattern: &str) -> String {
        self.ask("sysfs", pattern)
    }

    /// Whether a pattern in the guest's sysfs matches anything.
    pub fn has_sysfs(&self, pattern: &str) -> bool {
        self.try_ask("sysfs", pattern).status == Status::Exited(0)
    }

    /// A request that the agent answers itself, without starting a process.
    fn ask(&self, verb: &str, body: &str) -> String {
        let answer = self.try_ask(verb, body);
        assert!(answer.status == Status::Exited(0), "in the guest: {verb} {body}\n{answer}\n{}", self.log());
        answer.stdout
    }

    fn try_ask(&self, verb: &str, body: &str) -> Output {
        self.channel.ask(verb, 0, body, PATIENCE).unwrap_or_else(|e| panic!("{e}\n{}", self.log()))
    }

    /// Waits for a drive of the table and claims it for one test.
    pub fn drive(&self, name: &str) -> Drive<'_> {
        let index = DRIVES.iter().position(|d| d.name == name).unwrap_or_else(|| panic!("no drive {name} in the lab"));
        // A test that failed has left the drive in any state; each test begins by making its own.
        let claim = self.locks[index].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let node = self.node(name).unwrap_or_else(|| panic!("drive {name} has gone\n{}", self.log()));
        Drive { lab: self, spec: &DRIVES[index], node, backing: self.folder.join(format!("{name}.raw")), _claim: claim }
    }

    /// The last lines of the guest's kernel log, for messages of failure.
    pub fn log(&self) -> String {
        tail(&self.folder)
    }
}

/// The path of a helper under `tests/lab/guest/`, the same in the guest.
pub fn guest_file(name: &str) -> String {
    format!("{}/tests/lab/guest/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn tail(folder: &Path) -> String {
    let log = qemu::serial_log(folder);
    let text = std::fs::read(&log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    let mut out = format!("--- end of the guest's log, {}\n", log.display());
    for line in lines.iter().skip(lines.len().saturating_sub(100)) {
        let _ = writeln!(out, "{line}");
    }
    out
}
