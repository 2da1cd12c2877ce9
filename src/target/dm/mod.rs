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

use super::facts::lookup;
use super::sysfs::Roots;
use super::usage::{self, Use, User};
use std::fs::File;
use std::io;

/// True when `user` is one of the mappings of these stacks.
pub(super) fn is_holder(roots: &Roots, stacks: &[Stack], user: &User) -> bool {
    let Use::Holder { device, .. } = &user.by else { return false };
    let numbers = stacks.iter().flat_map(|stack| stack.tables.keys());
    numbers.filter_map(|number| lookup(roots, *number)).any(|(disk, _)| disk.name == *device)
}

/// Who uses the mappings of these stacks, other than each other.
pub(super) fn users(roots: &Roots, stacks: &[Stack]) -> Vec<User> {
    let numbers = stacks.iter().flat_map(|stack| stack.tables.keys());
    let disks: Vec<_> = numbers.filter_map(|number| lookup(roots, *number)).map(|(disk, _)| disk).collect();
    let mut users = usage::of_disks(roots, &disks);
    users.retain(|user| !is_holder(roots, stacks, user));
    users
}

/// The node that answers for all devices of device-mapper.
fn control(roots: &Roots) -> io::Result<File> {
    File::open(roots.dev.join("mapper/control"))
}
