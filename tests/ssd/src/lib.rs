//! A solid-state drive in memory, for tests of what measures drives. It is exact, deterministic, and knows the truth
//! about itself: how many pages it really programmed, how many are mapped, how large its cache is.
//!
//! ```text
//! command ─> link ─> RAM buffer ─> flash: page map, write fronts, greedy cleaning, SLC cache
//!            [`Ssd`], model nanoseconds      [`Flash`], pages and costs
//! ```
//!
//! Data is not kept: a page remembers which write put it there ([`Content`]), and what a discarded page reads as is a
//! policy. Published drives that the model reproduces in small are in [`config`].

// Counts of a model that fits into memory; a wrapped one would fail the tests in this package.
#![allow(clippy::as_conversions)]

pub mod config;
mod flash;
pub mod nbd;
mod random;
mod ssd;

pub use config::{Config, Fronts, Idle, Readback, Slc, Throttle, Trim, TrimMode};
pub use flash::{Counters, Flash, PAGE};
pub use random::Random;
pub use ssd::{Command, Content, Ssd};
