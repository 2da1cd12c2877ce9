//! What a measurement has to say, as plain data; for people, as one page with plots, and as a table.

pub mod csv;
pub mod html;
mod plot;
pub mod text;

use crate::measure::preset::Record;
use crate::measure::stats::ratio::Ratio;
use crate::measure::{Design, Effect, Findings, Length, Pass, Sent, Yardstick};
use serde::Serialize;

/// Everything about one measurement.
#[derive(Debug, Clone, Serialize)]
pub struct VerifyReport {
    /// The protocol.
    pub preset: &'static str,
    /// How thorough.
    pub length: Length,
    /// Its sizes.
    pub design: Design,
    /// What the measurement was made with.
    pub bench: Bench,
    /// What the trial of the route in free space showed, where there was room for one.
    pub trial: Option<Trial>,
    /// Every pass with its samples, in order.
    pub passes: Vec<NamedPass>,
    /// What the passes say together.
    pub comparison: Option<Comparison>,
    /// What was written and discarded.
    pub sent: Sent,
    /// Bytes of test data that may still lie in free space.
    pub left_bytes: u64,
    /// Places with test data of an earlier run that was cut short, of those that were looked at.
    pub left_by_earlier_run: usize,
    /// Places in use, and next to what was discarded, that were compared before and after.
    pub compared_places: usize,
    /// What was found changed that must not change.
    pub harm: Option<String>,
    /// Why the measurement ended early.
    pub ended_early: Option<String>,
    /// `works (zeroes)`, `no evidence`, ...
    pub verdict: String,
    /// Why, where the word does not say it.
    pub reason: Option<String>,
    /// The rung of the ladder of evidence (0 to 4) that the verdict stands on.
    pub rung: u8,
    /// The whole in a sentence or two.
    pub sentence: String,
}

/// What a measurement was made with.
#[derive(Debug, Clone, Serialize)]
pub struct Bench {
    /// `io_uring` or `threads`.
    pub queue: &'static str,
    /// False for an image, which is written through the memory of this computer.
    pub direct: bool,
    /// The way to the drive, in words.
    pub link: Option<String>,
    /// What that carries at most, bytes a second.
    pub ceiling: Option<f64>,
    /// What this program took of one core while transfers were under way; from 0.7 on the drive may be faster than that.
    pub cpu: f64,
    /// Extents and bytes that sequential passes write to.
    pub zone: Ground,
    /// Extents and bytes that scattered passes write to.
    pub slots: Ground,
}

/// A part of free space.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Ground {
    /// Number of extents.
    pub extents: usize,
    /// Bytes.
    pub bytes: u64,
}

/// The trial of the route.
#[derive(Debug, Clone, Serialize)]
pub struct Trial {
    /// Its verdict.
    pub verdict: String,
    /// What that rests upon.
    pub evidence: String,
}

/// A pass with what it is called.
#[derive(Debug, Clone, Serialize)]
pub struct NamedPass {
    /// For legends.
    pub name: String,
    /// What is done in it.
    pub what: &'static str,
    /// The pass.
    #[serde(flatten)]
    pub pass: Pass,
}

impl From<Pass> for NamedPass {
    fn from(pass: Pass) -> Self {
        let name = pass.stage.words();
        let what = if pass.sequential { "sequential writes" } else { "scattered writes" };
        Self { name: name.to_owned(), what, pass }
    }
}

/// What the passes say together.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// What was compared.
    pub yardstick: Yardstick,
    /// Length of the pause without TRIM, seconds.
    pub pause: f64,
    /// Of the one after TRIM.
    pub pause_after: f64,
    /// After TRIM by after the pause.
    pub gain: Option<Ratio>,
    /// True when it is at least so much.
    pub at_least: bool,
    /// After the pause by before.
    pub by_itself: Option<Ratio>,
    /// Reads before and after TRIM.
    pub latency: Option<crate::measure::latency::Latency>,
    /// What TRIM did to the speed.
    pub effect: Effect,
    /// What else may have shaped the numbers.
    pub doubts: Vec<String>,
}

impl From<Record> for NamedPass {
    fn from(record: Record) -> Self {
        Self { name: record.name.to_owned(), what: record.what, pass: record.pass }
    }
}

impl VerifyReport {
    /// Takes in what was found.
    pub fn take(&mut self, findings: Findings) {
        let Findings {
            yardstick, passes, pause, pause_after, gain, at_least, by_itself, latency, effect, doubts, ..
        } = findings;
        self.passes = passes.into_iter().map(NamedPass::from).collect();
        self.comparison =
            Some(Comparison { yardstick, pause, pause_after, gain, at_least, by_itself, latency, effect, doubts });
    }
}

/// A program that takes more than this of a core may be what limits the speed.
const BUSY: f64 = 0.7;

impl VerifyReport {
    /// What to know of the numbers, a sentence each.
    pub fn notes(&self) -> Vec<&str> {
        let doubts = self.comparison.iter().flat_map(|comparison| &comparison.doubts).map(String::as_str);
        let measured = !self.passes.is_empty();
        let image = measured && !self.bench.direct;
        let image = image
            .then_some("an image is written through the memory of this computer: its speed is not that of a drive");
        let busy = measured && self.bench.cpu > BUSY;
        let busy = busy.then_some("limited by this computer: a drive may be faster than transfers could be made");
        let earlier = self.left_by_earlier_run > 0;
        let earlier = earlier.then_some("free space held test data of an earlier run that was cut short");
        doubts.chain(image).chain(busy).chain(earlier).collect()
    }
}

/// What each rung of the ladder asks.
pub const RUNGS: [&str; 5] = [
    "TRIM is claimed",
    "the command is taken",
    "the right place changes, and nothing else",
    "discarded blocks are read faster",
    "speed or cache comes back",
];

/// A number of things as a real number.
fn count_of(count: usize) -> f64 {
    crate::measure::stats::real_len(count)
}

/// Bytes a second in decimal megabytes, as drives are sold.
fn megabytes(speed: f64) -> String {
    format!("{:.1} MB/s", speed / 1e6)
}
