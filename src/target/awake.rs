//! Keeping the machine awake: a disk that loses power between two commands of a run is a run cut short.
//!
//! Linux has no system call for "do not suspend". Where systemd-logind or elogind runs, their inhibitor locks do it;
//! where the kernel has user-space wake locks (CONFIG_PM_WAKELOCKS) one of those keeps autosleep away. Where neither
//! is there nothing suspends on its own accord either, but a `echo mem > /sys/power/state` cannot be stopped.

use super::sysfs::{Roots, text};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Name of our wake lock.
const NAME: &str = "coldtrim";

/// How long the inhibitor may take to start.
const PATIENCE: Duration = Duration::from_secs(3);

/// What keeps the machine awake while this value lives.
#[derive(Debug)]
pub struct Awake {
    how: How,
}

#[derive(Debug)]
pub(super) enum How {
    /// The kernel cannot sleep at all.
    CannotSleep,
    /// `systemd-inhibit` or `elogind-inhibit`, which lives until its input is closed.
    Inhibitor { program: &'static str, child: Child },
    /// A wake lock, with the file that releases it.
    WakeLock(PathBuf),
    /// Nothing.
    Nothing,
}

impl Awake {
    /// Does what can be done without root's consent to more than this run.
    pub fn hold(roots: &Roots) -> Self {
        let how = if text(&roots.sys, "power/state").is_none() {
            How::CannotSleep
        } else {
            inhibit().or_else(|| wake_lock(roots)).unwrap_or(How::Nothing)
        };
        Self { how }
    }

    #[cfg(test)]
    pub(super) fn by(how: How) -> Self {
        Self { how }
    }

    /// What holds, in words; an error when nothing does.
    pub fn describe(&self) -> Result<String, String> {
        match &self.how {
            How::CannotSleep => Ok("this kernel cannot suspend".to_owned()),
            How::Inhibitor { program, .. } => Ok(format!("suspend is inhibited ({program})")),
            How::WakeLock(_) => Ok("a wake lock keeps the machine from sleeping on its own accord".to_owned()),
            How::Nothing => Err("nothing here can keep the machine from suspending; do not close the lid".to_owned()),
        }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        match &mut self.how {
            How::Inhibitor { child, .. } => {
                drop(child.stdin.take());
                let _ = child.kill();
                let _ = child.wait();
            }
            How::WakeLock(release) => drop(std::fs::write(release, NAME)),
            How::CannotSleep | How::Nothing => {}
        }
    }
}

fn inhibit() -> Option<How> {
    ["systemd-inhibit", "elogind-inhibit"].into_iter().find_map(|program| {
        let child = start(program)?;
        Some(How::Inhibitor { program, child })
    })
}

/// The inhibitor runs a command that ends when our end of its pipe is closed, so the lock cannot outlive us. It says
/// a word once the lock is held.
fn start(program: &str) -> Option<Child> {
    let mut child = Command::new(program)
        .args(["--what=sleep:idle:handle-lid-switch", "--who=coldtrim", "--mode=block"])
        .args(["--why=a disk is being trimmed", "sh", "-c", "echo held; exec cat > /dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .ok()?;
    let (said, heard) = mpsc::channel();
    let output = child.stdout.take()?;
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(output).read_line(&mut line);
        said.send(line)
    });
    if heard.recv_timeout(PATIENCE).is_ok_and(|line| line.trim() == "held") {
        return Some(child);
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

pub(super) fn wake_lock(roots: &Roots) -> Option<How> {
    let power = roots.sys.join("power");
    // Writing must not create a file in a place where the kernel has none.
    power.join("wake_lock").exists().then_some(())?;
    std::fs::write(power.join("wake_lock"), NAME).ok()?;
    Some(How::WakeLock(power.join("wake_unlock")))
}
