//! The interrupt flag of the program.

use crate::target::{Roots, interrupt_flag};
use anyhow::{Context, Result};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// The flag that Ctrl-C raises; the first call installs the handlers.
pub fn flag() -> Result<&'static AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    if FLAG.get().is_none() {
        let flag = interrupt_flag(&Roots::default()).context("signals cannot be handled")?;
        FLAG.get_or_init(|| flag);
    }
    FLAG.get().map(AsRef::as_ref).context("signals cannot be handled")
}
