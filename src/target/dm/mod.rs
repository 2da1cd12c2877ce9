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

use super::facts::{DiskFacts, lookup};
use super::sysfs::{DeviceNumber, Roots};
use super::usage::{self, Use, User};
use std::fs::File;
use std::io;
use std::path::PathBuf;

/// True when `user` is one of the mappings of these stacks.
pub(super) fn is_holder(roots: &Roots, stacks: &[Stack], user: &User) -> bool {
    let Use::Holder { device, .. } = &user.by else { return false };
    disks(roots, stacks).iter().any(|disk| disk.name == *device)
}

/// The nodes of the mappings of these stacks.
pub(super) fn nodes(roots: &Roots, stacks: &[Stack]) -> Vec<(PathBuf, DeviceNumber)> {
    disks(roots, stacks).into_iter().map(|disk| (disk.node, disk.number)).collect()
}

fn disks(roots: &Roots, stacks: &[Stack]) -> Vec<DiskFacts> {
    let mut numbers: Vec<DeviceNumber> = stacks.iter().flat_map(|stack| stack.tables.keys().copied()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().filter_map(|number| lookup(roots, number)).map(|(disk, _)| disk).collect()
}

/// Who uses the mappings of these stacks, other than each other.
pub(super) fn users(roots: &Roots, stacks: &[Stack]) -> Vec<User> {
    let mut users = usage::of_disks(roots, &disks(roots, stacks));
    users.retain(|user| !is_holder(roots, stacks, user));
    users
}

/// The node that answers for all devices of device-mapper.
fn control(roots: &Roots) -> io::Result<File> {
    File::open(roots.dev.join("mapper/control"))
}
