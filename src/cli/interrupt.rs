//! Ctrl-C, SIGTERM and SIGHUP: a flag that the run looks at between two commands.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

/// The flag; the first call installs the handlers. A second signal changes nothing: the command that is under way
/// ends by itself, and cutting it off would leave the drive in an unknown state.
pub fn flag() -> Result<&'static Arc<AtomicBool>> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    if let Some(flag) = FLAG.get() {
        return Ok(flag);
    }
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&flag)).context("signals cannot be handled")?;
    }
    Ok(FLAG.get_or_init(|| flag))
}
