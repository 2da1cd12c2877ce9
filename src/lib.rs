//! coldtrim: offline, filesystem-aware TRIM.
pub mod cli;
pub mod sandbox;
pub mod target;
