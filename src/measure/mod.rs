//! Write speed before and after a discard, and what that proves.
//!
//! ```text
//! Before ── pause ── Sham ── discard ── pause ── Treatment        the result is Treatment against Sham
//! ```
//!
//! "Write, trim, write again" is no test: a drive heals while it is written to, and cleans itself in pauses, so speed
//! comes back without any TRIM. The control is a pass in *time*: the same pause, the same bytes, nothing discarded. A
//! control *region* would be worth nothing for speed, because flash is one pool.
//!
//! Everything here works on a [`Drive`], so that the same code runs on a device and on a model with its own clock, and
//! it writes nowhere but to a [`Spot`](crate::plan::Spot), which only a plan can make.

pub mod drive;
mod effect;
pub mod engine;
pub mod experiment;
pub mod latency;
pub mod pass;
pub mod preset;
pub mod queue;
mod rest;
pub mod size;
pub mod stats;
pub mod verdict;

pub use drive::{Answer, Drive, Fault};
pub use engine::{Engine, Sent, Way};
pub use experiment::{Design, Effect, Findings, Ground, Observer, Yardstick, run};
pub use pass::{Load, Pass, Stage};
pub use size::Length;
pub use verdict::{Conclusion, Evidence, conclude};
