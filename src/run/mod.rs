//! Carries out a plan: one command after another, small ones first, until it is done, interrupted, or something is
//! wrong.

use crate::plan::{Batch, Cap, Plan, Ramp};
use crate::transport::{Transport, TransportError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the caller wants to see and to control.
pub trait Watcher {
    /// The device took `batch` after `took`.
    fn taken(&mut self, batch: &Batch<'_>, took: Duration);

    /// The device did not take `batch`.
    fn not_taken(&mut self, batch: &Batch<'_>, error: &TransportError);

    /// So many bytes of test data are on their way to the device.
    fn wrote(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Asked before every command: an objection ends the run (the device has changed, a claim was lost).
    fn objection(&mut self) -> Option<String>;
}

/// How a run ended.
#[derive(Debug)]
pub enum Stop {
    /// All of the plan was sent.
    Finished,
    /// The user interrupted between two commands.
    Interrupted,
    /// A command failed for good.
    Failed(TransportError),
    /// The watcher objected.
    Objected(String),
}

/// What was done.
#[derive(Debug)]
pub struct Outcome {
    /// Bytes of the commands that the device took.
    pub bytes: u64,
    /// Number of commands that the device took.
    pub commands: u64,
    /// How it ended.
    pub stop: Stop,
}

/// How often a command that was too large is tried again in smaller pieces before the route counts as broken.
const MOST_SHRINKS: u32 = 40;

/// Sends `plan` by `transport`. `interrupted` is looked at between commands; `max_rate` is in bytes a second.
pub fn execute(
    plan: &Plan,
    transport: &mut dyn Transport,
    watcher: &mut dyn Watcher,
    interrupted: &AtomicBool,
    max_rate: Option<u64>,
) -> Outcome {
    let mut outcome = Outcome { bytes: 0, commands: 0, stop: Stop::Finished };
    let mut ramp = Ramp::new(plan.limits());
    let mut cursor = plan.cursor();
    let mut shrinks = 0;
    let started = Instant::now();
    while let Some(batch) = cursor.next_batch(paced(ramp.cap(), max_rate)) {
        pace(started, outcome.bytes, max_rate, interrupted);
        if interrupted.load(Ordering::Relaxed) {
            outcome.stop = Stop::Interrupted;
            break;
        }
        if let Some(objection) = watcher.objection() {
            outcome.stop = Stop::Objected(objection);
            break;
        }
        match transport.discard(&batch) {
            Ok(done) => {
                outcome.bytes += batch.bytes();
                outcome.commands += 1;
                ramp.succeeded(done.took);
                watcher.taken(&batch, done.took);
            }
            Err(error) => {
                watcher.not_taken(&batch, &error);
                shrinks += 1;
                if !(error.kind().may_shrink() && shrinks <= MOST_SHRINKS && ramp.shrink()) {
                    outcome.stop = Stop::Failed(error);
                    break;
                }
                // An unknown part of the batch may be discarded already; all of it is free, so sending it again in
                // smaller pieces is harmless.
                cursor.put_back(&batch);
            }
        }
    }
    outcome
}

/// A command of at most a tenth of a second's worth.
fn paced(cap: Cap, max_rate: Option<u64>) -> Cap {
    Cap { bytes: max_rate.map_or(cap.bytes, |rate| (rate / 10).min(cap.bytes)), ..cap }
}

/// Sleeps until `bytes` since `started` are no more than `max_rate` allows; an interrupt ends the sleep.
fn pace(started: Instant, bytes: u64, max_rate: Option<u64>, interrupted: &AtomicBool) {
    const NAP: Duration = Duration::from_millis(50);
    let Some(rate) = max_rate else { return };
    let millis = u128::from(bytes) * 1000 / u128::from(rate);
    let due = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
    while started.elapsed() < due && !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(NAP.min(due.saturating_sub(started.elapsed())));
    }
}
