//! Ctrl-C: a flag that is looked at between two commands. No signal ever cuts one short, however often it comes.

use super::sysfs::Roots;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that SIGINT, SIGTERM and SIGHUP raise from now on. A signal that the program was started to ignore (nohup)
/// stays ignored.
pub fn interrupt_flag(roots: &Roots) -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let ignored = ignored(roots);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let bit = 1_u64.checked_shl(signal.unsigned_abs().saturating_sub(1)).unwrap_or(0);
        if ignored & bit == 0 {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
    }
    Ok(flag)
}

/// Waits until there is something to read on standard input; false when the flag was raised first.
pub fn wait_for_input(stop: &AtomicBool) -> bool {
    let input = io::stdin();
    while !stop.load(Ordering::Relaxed) {
        let mut ready = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::from(100_u16)) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) | Err(_) => return true,
        }
    }
    false
}

/// The set of ignored signals (proc_pid_status(5), SigIgn).
fn ignored(roots: &Roots) -> u64 {
    let status = std::fs::read_to_string(roots.proc.join("self/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
