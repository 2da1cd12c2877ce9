//! Bytes in, free map out.
//!
//! A [`Source`](source::Source) is anything that can be read at a position. [`stack::read`] looks at both ends of each
//! source, through partition tables ([`container`]) down to a filesystem ([`fs`]), and gives a
//! [`Stack`](stack::Stack): what lies where, and for each volume a [`Volume`](volume::Volume) with the
//! [`FreeMap`](free_map::FreeMap) that the volume's own allocation structure states. What is known but cannot be
//! trimmed here is named by [`foreign`]; what nobody knows is never free.
//!
//! Parsers report facts and decide nothing: an unclean journal is a [`Finding`](volume::Finding), not an error. A
//! [`witness`] reads the same volume a second time, file by file, with code that shares nothing with the first
//! reading; it can convict a free map, never acquit it.
//!
//! The crate is fed hostile disks. It has no `unsafe`, allocates only what a checked number allows, does every sum on
//! disk values with overflow checks, and reads no clock, file or environment.

// Tests may do plain arithmetic on numbers that they have made themselves.
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::as_conversions))]

pub mod array;
pub mod container;
pub mod error;
pub mod foreign;
pub mod free_map;
pub mod fs;
pub mod pages;
#[cfg(test)]
mod sampling;
pub mod source;
pub mod stack;
pub mod text;
pub mod units;
pub mod volume;
pub mod witness;
