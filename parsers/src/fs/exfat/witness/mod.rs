//! A second reading of an exFAT volume: every directory and every file's clusters. It shares no code with the reader
//! of the bitmap, not even the reading of the boot sector.

mod entry_set;
mod shape;
mod walk;

pub(super) use walk::ExfatWalk;
