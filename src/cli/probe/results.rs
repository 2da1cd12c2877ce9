//! What `probe --test` found, as data and for people.

use crate::cli::Ending;
use crate::cli::job::Output;
use crate::memory::{PastRoute, time};
use crate::report::human;
use crate::transport::ReadAfterDiscard;
use crate::verify::Verdict;
use crate::verify::examine::{Examination, Step, breaks_promise, rung};
use serde::Serialize;
use std::io::Write;

/// What the tests showed.
#[derive(Serialize)]
pub struct Results {
    pub(super) routes: Vec<RouteResult>,
    /// Bytes of test patterns that were written.
    pub(super) written: u64,
    /// Bytes of patterns, of this run or of the first half of its test, that were not discarded again.
    pub(super) left_bytes: u64,
    /// How long the device was watched afterwards, seconds.
    pub(super) settled: u64,
    /// What was seen of the device afterwards that should not have been.
    pub(super) late: Option<String>,
    /// A test that goes on after the device was without power.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waiting: Option<Waiting>,
    #[serde(skip)]
    pub(super) interrupted: bool,
}

/// What lies on the disk until the device was without power.
#[derive(Serialize)]
pub(super) struct Waiting {
    /// By which route a part of it was discarded.
    pub(super) route: String,
    /// First byte of the pattern.
    pub(super) start: u64,
    /// Bytes of it.
    pub(super) length: u64,
    /// What to type when the device is there again.
    pub(super) next: String,
}

/// What became of one route.
#[derive(Serialize)]
pub(super) struct RouteResult {
    pub(super) name: &'static str,
    verdict: String,
    /// Why, where the word does not say it.
    reason: Option<String>,
    /// How far up the ladder of evidence it came (0 to 3).
    rung: u8,
    /// What the device promises of discarded blocks; none where the route could not be opened.
    promise: Option<ReadAfterDiscard>,
    pub(super) written: u64,
    /// Bytes of the largest command that worked.
    pub(super) largest: Option<u64>,
    /// Bytes of the smallest command that was rejected although smaller ones worked.
    rejected: Option<u64>,
    steps: Vec<StepResult>,
    #[serde(skip)]
    pub(super) word: Verdict,
}

#[derive(Serialize)]
struct StepResult {
    what: String,
    ranges: usize,
    bytes: u64,
    verdict: String,
    evidence: String,
    /// What the device says of the blocks afterwards; null when it cannot tell.
    deallocated: Option<bool>,
    /// Microseconds for a read of discarded blocks, and for one of as many blocks with data.
    read_us: Option<[u128; 2]>,
}

impl Results {
    /// The exit code follows from the verdicts: harm before everything, then what works.
    pub fn ending(&self) -> Ending {
        let has = |wanted: fn(&RouteResult) -> bool| self.routes.iter().any(wanted);
        match () {
            () if has(|route| matches!(route.word, Verdict::Harmful(_))) => Ending::Disproved,
            () if self.interrupted => Ending::Stopped,
            () if self.late.is_some() => Ending::Refused,
            () if has(|route| matches!(route.word, Verdict::Works { .. })) => Ending::Done,
            () if has(|route| route.promise.is_some_and(|promise| breaks_promise(&route.word, promise))) => {
                Ending::Disproved
            }
            () if has(|route| route.word == Verdict::NoEvidence) => Ending::Done,
            () if has(|route| matches!(route.word, Verdict::Unstable(_) | Verdict::Inconclusive(_))) => Ending::Refused,
            () => Ending::NoRoute,
        }
    }

    /// Bytes of the largest command that worked by the route of this name; none where it is not a route to rely on.
    pub fn largest_by(&self, name: &str) -> Option<u64> {
        let calm = self.late.is_none() && !self.routes.iter().any(RouteResult::is_harmful);
        let found = self.routes.iter().find(|route| calm && route.name == name);
        found.filter(|route| matches!(route.word, Verdict::Works { .. })).and_then(|route| route.largest)
    }

    /// What a later run should know. Of routes that were not opened there is nothing to know.
    pub fn to_remember(&self) -> impl Iterator<Item = PastRoute> + '_ {
        let when = time::now();
        self.routes.iter().filter(|route| route.promise.is_some()).map(move |route| PastRoute {
            name: route.name.to_owned(),
            when,
            verdict: route.verdict.clone(),
            reason: route.reason.clone(),
            largest: route.largest,
            rejected: route.rejected,
            late: self.late.clone().filter(|_| matches!(route.word, Verdict::Works { .. } | Verdict::NoEvidence)),
        })
    }

    /// For people.
    pub fn print(&self, out: &mut dyn Write, output: &Output) -> std::io::Result<()> {
        writeln!(out, "tests:")?;
        for route in &self.routes {
            let word = match route.word {
                Verdict::Works { .. } => output.paint.good(&route.verdict),
                Verdict::NoEvidence | Verdict::Rejected(_) => output.paint.warn(&route.verdict),
                _ => output.paint.bad(&route.verdict),
            };
            let reason = route.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
            writeln!(out, "  {:<12} {word}{reason}", route.name)?;
            for step in &route.steps {
                let size = human::bytes(step.bytes);
                writeln!(out, "               {} ({size} in {}): {}", step.what, step.ranges, step.verdict)?;
            }
            if let Some(largest) = route.largest {
                let limit =
                    route.rejected.map_or(String::new(), |size| format!(", {} are rejected", human::bytes(size)));
                writeln!(out, "               largest command that worked: {}{limit}", human::bytes(largest))?;
            }
        }
        let left = if self.left_bytes == 0 {
            "nothing of them is left".to_owned()
        } else {
            format!("{} were not discarded again, and stay where they are", human::bytes(self.left_bytes))
        };
        writeln!(out, "{} of test patterns were written; {left}.", human::exact(self.written))?;
        match &self.late {
            Some(late) => writeln!(out, "{} {late}", output.paint.bad("afterwards:"))?,
            None => writeln!(out, "The device was watched for {} s afterwards, and stayed as it was.", self.settled)?,
        }
        match &self.waiting {
            None => Ok(()),
            Some(waiting) => writeln!(
                out,
                "A pattern of {} at byte {} stays, a part of it discarded by {}. Now unplug the device, switch off its own \
                 power supply if it has one, plug it in again after ten seconds, mount nothing of it, and run:\n  {}",
                human::bytes(waiting.length),
                waiting.start,
                waiting.route,
                waiting.next
            ),
        }
    }
}

impl RouteResult {
    pub(super) fn new(name: &'static str, promise: ReadAfterDiscard, found: &Examination) -> Self {
        Self {
            name,
            verdict: found.verdict.to_string(),
            reason: found.verdict.reason().map(str::to_owned),
            rung: rung(found),
            promise: Some(promise),
            written: found.written,
            largest: found.largest,
            rejected: found.rejected,
            steps: found.steps.iter().map(StepResult::from).collect(),
            word: found.verdict.clone(),
        }
    }

    pub(super) fn untried(name: &'static str, word: Verdict) -> Self {
        let found = Examination::without_steps(word);
        Self { promise: None, ..Self::new(name, ReadAfterDiscard::Undefined, &found) }
    }

    /// A later look showed something worse.
    pub(super) fn worsen(&mut self, word: Verdict) {
        self.verdict = word.to_string();
        self.reason = word.reason().map(str::to_owned);
        self.word = word;
    }

    pub(super) fn is_harmful(&self) -> bool {
        matches!(self.word, Verdict::Harmful(_))
    }
}

impl From<&Step> for StepResult {
    fn from(step: &Step) -> Self {
        Self {
            what: step.what.clone(),
            ranges: step.ranges,
            bytes: step.bytes,
            verdict: step.verdict.to_string(),
            evidence: step.evidence.clone(),
            deallocated: step.deallocated,
            read_us: step.latency.map(|(discarded, mapped)| [discarded.as_micros(), mapped.as_micros()]),
        }
    }
}
