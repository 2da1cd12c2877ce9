//! coldtrim: offline, filesystem-aware TRIM.
pub mod cli;
