//! coldtrim: offline, filesystem-aware TRIM.
pub mod cli;
pub mod plan;
pub mod sandbox;
pub mod transport;
