//! coldtrim: offline, filesystem-aware TRIM.
//!
//! ```text
//! Target ─ is a ─> Source ─> Stack ─> Volume{findings, FreeMap} ─> Plan ─> Batch ─> Transport ─> Outcome ─> Report
//! target           parsers, inside the sandbox                    plan    plan     transport    run        report
//! ```
//!
//! Each arrow is one named type, and each can only be made by the step before it: a [`FreeMap`] starts with
//! everything used, a [`Plan`](plan::Plan) only rounds inwards, and a [`Transport`](transport::Transport) takes
//! nothing but a [`Batch`](plan::Batch), which only a plan can make. `verify` asks whether a route does what it says
//! before the run, in space that the plan knows to be free.
//!
//! [`FreeMap`]: coldtrim_parsers::free_map::FreeMap

// Tests may count with small numbers that they have made themselves.
#![cfg_attr(test, allow(clippy::as_conversions))]

pub mod cli;
pub mod demo;
pub mod measure;
pub mod memory;
pub mod plan;
pub mod report;
pub mod run;
pub mod sandbox;
pub mod target;
pub mod transport;
pub mod verify;
