//! The long form of the canary: one route, tried in several sizes, places and numbers of ranges, until its limits are
//! known. Nothing here decides what is free: every place is a part of a [`Plan`].

use super::canary::{self, Bench, Paths};
use super::{Place, Verdict};
use crate::plan::Plan;
use crate::plan::units::ByteRange;
use crate::transport::{BlockRead, ReadAfterDiscard, Transport};
use std::time::{Duration, Instant};

/// One trial of an examination.
#[derive(Debug, Clone)]
pub struct Step {
    /// What was tried, in words.
    pub what: String,
    /// Ranges in the command.
    pub ranges: usize,
    /// Bytes that it was to discard.
    pub bytes: u64,
    /// What came of it.
    pub verdict: Verdict,
    /// What was seen, in a sentence.
    pub evidence: String,
    /// What the device itself says of the discarded blocks afterwards (GET LBA STATUS); none when it cannot tell.
    pub deallocated: Option<bool>,
    /// How long a read of discarded blocks took, and one of as many blocks with data beside them; none where the places
    /// are too small to compare.
    pub latency: Option<(Duration, Duration)>,
}

impl Step {
    /// A look at the device without a discard.
    pub fn without_command(what: String, verdict: Verdict, evidence: String) -> Self {
        Self { what, ranges: 0, bytes: 0, verdict, evidence, deallocated: None, latency: None }
    }
}

/// What an examination showed.
#[derive(Debug, Clone)]
pub struct Examination {
    /// The verdict on the route.
    pub verdict: Verdict,
    /// Every trial, in order.
    pub steps: Vec<Step>,
    /// Bytes of test patterns that were written.
    pub written: u64,
    /// Where they lie.
    pub grounds: Vec<ByteRange>,
    /// Bytes of the largest command that worked; none when none did.
    pub largest: Option<u64>,
    /// Bytes of the smallest command that was rejected although smaller ones work.
    pub rejected: Option<u64>,
}

impl Examination {
    /// A verdict before anything was tried.
    pub fn without_steps(verdict: Verdict) -> Self {
        Self { verdict, steps: Vec::new(), written: 0, grounds: Vec::new(), largest: None, rejected: None }
    }
}

/// Ranges of the command with many of them, at most.
const MANY: u64 = 64;
/// Where the search for the largest command begins, bytes.
const FIRST: u64 = 2 << 20;
/// Guards of the larger trials, bytes.
const GUARD: u64 = 64 << 10;
/// How finely the largest size is found: so many halvings between one that works and one that does not.
const HALVINGS: u32 = 4;

/// What follows from a trial for the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// Another one makes sense.
    Good,
    /// This command is not taken; others may be.
    Rejected,
    /// Nothing more is to be sent, or the budget is used up.
    End,
}

struct Examiner<'a, 'p, 'r> {
    bench: &'a Bench<'a>,
    transport: &'a mut dyn Transport,
    paths: &'a mut Paths<'r>,
    nonce: u64,
    budget: u64,
    found: &'p mut Examination,
}

/// Examines a route; at most `budget` bytes are written. Ends at the first sign of harm.
pub fn examine(
    bench: &Bench<'_>,
    transport: &mut dyn Transport,
    paths: &mut Paths<'_>,
    nonce: u64,
    budget: u64,
) -> Examination {
    let verdict = Verdict::Inconclusive("nothing was tried".to_owned());
    let mut found = Examination::without_steps(verdict);
    Examiner { bench, transport, paths, nonce, budget, found: &mut found }.run();
    found.verdict = conclude(&found.steps);
    found
}

impl Examiner<'_, '_, '_> {
    fn run(&mut self) {
        let Some(first) = self.bench.places().next() else {
            self.note_untried(
                "no place for a trial: nowhere is there free space of which every wrong address that a bridge may make of \
                 it is free too",
            );
            return;
        };
        if self.step("the middle of a pattern", &first) != After::Good {
            return;
        }
        let small = self.bench.granule();
        let smaller = self.bench.find_place_of(small, small.max(4096));
        let odd = smaller.as_ref().and_then(|_| self.shifted());
        let many = self.many();
        for (what, place) in [("one granule", smaller), ("a start on no round number", odd), ("many ranges", many)] {
            if place.is_some_and(|place| self.step(what, &place) == After::End) {
                return;
            }
        }
        self.grow();
    }

    /// A target that begins one granule behind a round number and ends one before the next.
    fn shifted(&self) -> Option<Place> {
        let granule = self.bench.granule();
        let place = self.bench.find_place_of(GUARD.next_multiple_of(granule) + 2 * granule, GUARD)?;
        let target = *place.targets.first()?;
        let (start, end) = (target.start() + granule, target.end() - granule);
        // A start that is odd in granules, whatever the place's own is.
        let start = if (start / granule).is_multiple_of(2) { start + granule } else { start };
        Some(Place { targets: vec![ByteRange::new(start, end)?], ..place })
    }

    /// Every other granule of a place, as many as one command takes.
    fn many(&self) -> Option<Place> {
        let limits = self.bench.plan.limits();
        let granule = self.bench.granule();
        let count = limits.max_ranges().min(MANY).min(limits.max_command_bytes() / granule);
        let place = self.bench.find_place_of(2 * count * granule, granule.max(4096)).filter(|_| count > 1)?;
        let whole = *place.targets.first()?;
        let targets: Vec<ByteRange> = (0..count)
            .filter_map(|k| ByteRange::with_len(whole.start() + 2 * k * granule, granule))
            .take_while(|target| target.end() <= whole.end())
            .collect();
        (targets.len() > 1).then_some(Place { targets, ..place })
    }

    /// Doubles the size until a command is not taken, the space or the budget ends; then halves the difference.
    fn grow(&mut self) {
        let granule = self.bench.granule();
        let (mut good, mut size) = (self.found.largest.unwrap_or(0), FIRST.next_multiple_of(granule));
        let mut bad = None;
        while size > good && bad.is_none() {
            match self.try_size(size) {
                Some(true) => good = size,
                Some(false) => bad = Some(size),
                None => return,
            }
            size = size.saturating_mul(2);
        }
        for _ in 0..HALVINGS {
            let Some(above) = bad else { return };
            let middle = (good + (above - good) / 2) / granule * granule;
            if middle <= good || middle >= above {
                return;
            }
            match self.try_size(middle) {
                Some(true) => good = middle,
                Some(false) => bad = Some(middle),
                None => return,
            }
        }
    }

    /// Tries one command of `size` bytes; none when there is no room, no budget or no point.
    fn try_size(&mut self, size: u64) -> Option<bool> {
        let place = self.bench.find_place_of(size, GUARD).filter(|place| place.bytes() == size)?;
        match self.step("a larger command", &place) {
            After::Good => Some(true),
            After::Rejected => {
                self.found.rejected = Some(self.found.rejected.map_or(size, |known| known.min(size)));
                Some(false)
            }
            After::End => None,
        }
    }

    /// One trial.
    fn step(&mut self, what: &str, place: &Place) -> After {
        if self.found.written.saturating_add(place.ground.len()) > self.budget {
            return After::End;
        }
        let trial = canary::run(self.bench, place, self.transport, self.paths, self.nonce ^ self.found.written);
        self.found.written += trial.written;
        if trial.written > 0 {
            self.found.grounds.push(place.ground);
        }
        let part = self.bench.plan.part(&place.targets);
        let batch = part.as_ref().and_then(Plan::single_batch);
        let deallocated = batch.and_then(|batch| self.transport.is_deallocated(&batch));
        let after = match &trial.verdict {
            Verdict::Works { .. } => {
                self.found.largest = self.found.largest.max(Some(place.bytes()));
                After::Good
            }
            Verdict::NoEvidence => After::Good,
            Verdict::Rejected(_) => After::Rejected,
            Verdict::Harmful(_) | Verdict::Unstable(_) | Verdict::Inconclusive(_) => After::End,
        };
        let latency = if after == After::Good { self.latency(place) } else { None };
        self.found.steps.push(Step {
            what: what.to_owned(),
            ranges: place.targets.len(),
            bytes: place.bytes(),
            verdict: trial.verdict,
            evidence: trial.evidence,
            deallocated,
            latency,
        });
        after
    }

    /// Reads as much of the discarded target as its guard has, and the guard.
    fn latency(&mut self, place: &Place) -> Option<(Duration, Duration)> {
        let target = place.targets.first()?;
        let guard = ByteRange::new(place.ground.start(), target.start())?;
        let len = guard.len().min(target.len());
        let mut time = |range: ByteRange| {
            let began = Instant::now();
            self.paths.kernel.read(range).ok().map(|_| began.elapsed())
        };
        Some((time(ByteRange::with_len(target.start(), len)?)?, time(ByteRange::with_len(guard.start(), len)?)?))
    }

    fn note_untried(&mut self, why: &str) {
        let verdict = Verdict::Inconclusive(why.to_owned());
        self.found.steps.push(Step::without_command("the middle of a pattern".to_owned(), verdict, "none".to_owned()));
    }
}

/// One verdict from those of the trials: harm counts before everything, and what works now and not then is not stable. A
/// command that is rejected for its size alone is a limit, not a fault.
fn conclude(steps: &[Step]) -> Verdict {
    let verdicts = || steps.iter().map(|step| &step.verdict);
    let grave = |verdict: &&Verdict| matches!(verdict, Verdict::Harmful(_));
    if let Some(harm) = verdicts().find(grave) {
        return harm.clone();
    }
    if let Some(unstable) = verdicts().find(|verdict| matches!(verdict, Verdict::Unstable(_))) {
        return unstable.clone();
    }
    let works = verdicts().filter(|verdict| matches!(verdict, Verdict::Works { .. })).count();
    let silent = verdicts().filter(|verdict| **verdict == Verdict::NoEvidence).count();
    match (works, silent) {
        (0, 0) => verdicts().next().cloned().unwrap_or(Verdict::Inconclusive("nothing was tried".to_owned())),
        (0, _) => Verdict::NoEvidence,
        (_, 0) => {
            Verdict::Works { zeroes: verdicts().all(|verdict| !matches!(verdict, Verdict::Works { zeroes: false })) }
        }
        _ => {
            let different = steps.iter().find(|step| step.verdict == Verdict::NoEvidence);
            let what = different.map_or(String::new(), |step| format!("{}, {} bytes", step.what, step.bytes));
            Verdict::Unstable(format!("some commands had an effect, and one of the same kind had none ({what})"))
        }
    }
}

/// How far up the ladder of evidence a route has come: 0 it is claimed, 1 the command is accepted, 2 the right place
/// changes and no other, 3 the drive says of itself that the blocks are unmapped.
pub fn rung(examination: &Examination) -> u8 {
    let has = |wanted: fn(&Step) -> bool| examination.steps.iter().any(wanted);
    match () {
        () if has(|step| step.deallocated == Some(true)) => 3,
        () if has(|step| matches!(step.verdict, Verdict::Works { .. })) => 2,
        () if has(|step| step.verdict == Verdict::NoEvidence) => 1,
        () => 0,
    }
}

/// True where the drive breaks its own promise.
pub fn breaks_promise(verdict: &Verdict, promise: ReadAfterDiscard) -> bool {
    *verdict == Verdict::NoEvidence && promise == ReadAfterDiscard::Zeros
}

/// Compares `places` through the kernel and through the route's own addresses; a difference is a finished examination.
pub fn cross_read(
    kernel: &mut dyn BlockRead,
    own: &mut dyn BlockRead,
    places: &[ByteRange],
) -> Result<(), Box<Examination>> {
    canary::cross_read(kernel, own, places).map_err(|verdict| {
        let evidence = verdict.reason().unwrap_or_default().to_owned();
        let what = format!("{} places read through both paths", places.len());
        let step = Step::without_command(what, verdict.clone(), evidence);
        Box::new(Examination { steps: vec![step], ..Examination::without_steps(verdict) })
    })
}

#[cfg(test)]
mod tests;
