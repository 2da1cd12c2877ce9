//! Device-mapper devices, through to the devices below: dm-linear, dm-striped and dm-crypt.
//!
//! ```text
//! /dev/mapper/data (linear) ──> dm-1 (crypt) ──> /dev/sda2     the top is read, and claimed; commands go to the lowest
//! ```

mod resolve;
mod sys;
mod table;

pub use resolve::{Piece, Stack};
pub use table::{Place, Rule, Table};

use super::sysfs::Roots;
use std::fs::File;
use std::io;

/// The node that answers for all devices of device-mapper.
fn control(roots: &Roots) -> io::Result<File> {
    File::open(roots.dev.join("mapper/control"))
}
