//! Two further readings of a FAT volume. They share no code with the reader of the table, not even the reading of
//! the boot sector.

mod crate_reader;
mod directory;
mod shape;
mod walk;

pub(super) use crate_reader::CrateReader;
pub(super) use walk::FatWalk;
