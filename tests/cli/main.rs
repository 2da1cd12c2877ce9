//! The command line on image files: exit codes, messages and outputs that users and scripts rely on. Needs no root.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/images.rs"]
mod images;

mod busy;
mod formats;
mod promises;
mod runs;
mod targets;
mod usage;
mod verify;

/// The program itself.
const PROGRAM: &str = env!("CARGO_BIN_EXE_coldtrim");
