//! `coldtrim probe --test`: what every route really does, tried in space that is known to be free.

use crate::cli::confirm;
use crate::cli::device::partition_starts;
use crate::cli::job::{Output, TestJob, TrimJob};
use crate::cli::routes::{NotPrepared, PlannedPart, Prepared, plan, prepare};
use crate::cli::survey::{Survey, complain};
use crate::cli::trial::{all_planned, nonce, sample};
use crate::cli::{Ending, interrupt};
use crate::memory::{PastRoute, time};
use crate::plan::units::ByteRange;
use crate::plan::{Plan, Refusal};
use crate::report::{State, VolumeReport, human};
use crate::target::{Intent, Target};
use crate::transport::{Applies, Direct, ReadAfterDiscard, Route, TRANSPORTS, TransportError};
use crate::verify::Verdict;
use crate::verify::canary::{self, Paths};
use crate::verify::examine::{Examination, Step, breaks_promise, cross_read, examine, rung};
use crate::verify::neighbours::Neighbours;
use anyhow::{Result, bail};
use coldtrim_parsers::array::merge;
use serde::Serialize;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the tests showed.
#[derive(Serialize)]
pub struct Results {
    routes: Vec<RouteResult>,
    /// Bytes of test patterns that were written.
    written: u64,
    /// Bytes of them that no route could discard again; they lie in free space.
    left_bytes: u64,
    /// How long the device was watched afterwards, seconds.
    settled: u64,
    /// What was seen of the device afterwards that should not have been.
    late: Option<String>,
    #[serde(skip)]
    interrupted: bool,
}

/// What became of one route.
#[derive(Serialize)]
struct RouteResult {
    name: &'static str,
    verdict: String,
    /// Why, where the word does not say it.
    reason: Option<String>,
    /// How far up the ladder of evidence it came (0 to 3).
    rung: u8,
    /// What the device promises of discarded blocks; none where the route could not be opened.
    promise: Option<ReadAfterDiscard>,
    written: u64,
    /// Bytes of the largest command that worked.
    largest: Option<u64>,
    /// Bytes of the smallest command that was rejected although smaller ones worked.
    rejected: Option<u64>,
    steps: Vec<StepResult>,
    #[serde(skip)]
    word: Verdict,
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
            "all of it was discarded again".to_owned()
        } else {
            format!("{} of it stay in free space, because no route could discard them", human::bytes(self.left_bytes))
        };
        writeln!(out, "{} of test patterns were written; {left}.", human::exact(self.written))?;
        match &self.late {
            Some(late) => writeln!(out, "{} {late}", output.paint.bad("afterwards:")),
            None => writeln!(out, "The device was watched for {} s afterwards, and stayed as it was.", self.settled),
        }
    }
}

/// Runs the tests on the volumes of `spec`, or in its scratch area.
pub fn run(spec: &str, job: &TestJob, output: &Output) -> Result<Results> {
    let stop = interrupt::flag()?;
    let template = TrimJob::of(spec.to_owned());
    let mut survey = Survey::new("probe", &template.scope, Intent::Discard, stop)?;
    check_ground(&survey, job)?;
    let question = format!(
        "This writes up to {} of test patterns into {} of {spec}, and discards them.",
        human::bytes(job.budget),
        if job.scratch.is_some() { "the scratch area (what is there is lost)" } else { "the free space" }
    );
    confirm::ask(&question, job.yes, stop)?;
    if !job.yes {
        survey.read(&template.scope, stop)?;
        check_ground(&survey, job)?;
    }
    survey.targets[0].seal()?;
    let wanted: Vec<&'static Route> = TRANSPORTS.iter().filter(|route| is_wanted(route, &survey, job)).collect();
    let mut bench = Bench { survey: &survey, job, template, working: None, left: Vec::new() };
    let mut routes = Vec::new();
    for (index, route) in wanted.iter().enumerate() {
        if stop.load(Ordering::Relaxed) || routes.iter().any(RouteResult::is_harmful) {
            break;
        }
        let written: u64 = routes.iter().map(|result: &RouteResult| result.written).sum();
        let share = (job.budget - written) / u64::try_from(wanted.len() - index).unwrap_or(1);
        if output.verbose {
            say!("testing {} with at most {}", route.name, human::bytes(share));
        }
        routes.push(bench.test(route, share));
    }
    let left_bytes = bench.clean_up(routes.iter().any(RouteResult::is_harmful));
    let target = &survey.targets[0];
    let late = watch(target, job.settle, stop);
    target.drop_caches()?;
    let written = routes.iter().map(|route| route.written).sum();
    let interrupted = stop.load(Ordering::Relaxed);
    Ok(Results { routes, written, left_bytes, settled: job.settle, late, interrupted })
}

/// There is something to test in, and it is not somebody's.
fn check_ground(survey: &Survey, job: &TestJob) -> Result<()> {
    let target = &survey.report.targets[0];
    if target.reasons.iter().any(crate::report::Reason::forbids) {
        complain(&survey.report);
        return Err(refused("nothing is written to a device that must not be trimmed".to_owned()));
    }
    let Some(scratch) = job.scratch else {
        if survey.report.volumes.iter().any(|volume| volume.state == State::Clean) {
            return Ok(());
        }
        complain(&survey.report);
        return Err(refused(
            "there is no free space that is known: no volume on it can be read. Name bytes that may be lost with --scratch"
                .to_owned(),
        ));
    };
    if scratch.end() > target.size {
        bail!(crate::cli::job::UsageError::Outside(target.path.clone(), target.size));
    }
    // Nobody's: between partitions, free in a volume, or where nothing is known. Tables, boot code and what is refused by
    // name are somebody's.
    let is_nobodys = |volume: &VolumeReport| match (&volume.format, volume.state) {
        (_, State::Clean) => volume.free.iter().any(|free| free.contains(scratch)),
        (None, State::Refused) => {
            let area = ByteRange::with_len(volume.offset, volume.size);
            area.is_some_and(|area| area.contains(scratch))
        }
        _ => false,
    };
    let in_gap = survey.gaps[0].iter().any(|gap| gap.contains(scratch));
    if in_gap || survey.report.volumes.iter().any(is_nobodys) {
        return Ok(());
    }
    complain(&survey.report);
    Err(refused(
        "--scratch names bytes that are in use, or may be: take them from one free extent of a volume (coldtrim map \
         --format ranges), from between two partitions, or from a partition without any known contents"
            .to_owned(),
    ))
}

/// A refusal for safety, as the exit code says it.
fn refused(why: String) -> anyhow::Error {
    Refused(why).into()
}

/// Why nothing was tested.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

fn is_wanted(route: &Route, survey: &Survey, job: &TestJob) -> bool {
    if !job.via.is_empty() {
        return job.via.iter().any(|name| name == route.name);
    }
    let Ok(device) = crate::cli::device::Device::of(&survey.targets[0]) else { return false };
    matches!((route.applies)(&device.facts), Applies::Auto(_))
        && device.only_route.is_none_or(|only| only == route.name)
}

struct Bench<'a> {
    survey: &'a Survey,
    job: &'a TestJob,
    template: TrimJob,
    /// The route with the finest granules of those that work: by it everything that was written is discarded again.
    working: Option<Prepared>,
    /// Where patterns lie.
    left: Vec<ByteRange>,
}

impl Bench<'_> {
    fn test(&mut self, route: &'static Route, budget: u64) -> RouteResult {
        match self.prepare(route) {
            Err(verdict) => RouteResult::untried(route.name, verdict),
            Ok(mut prepared) => {
                let promise = prepared.transport.read_after_discard();
                let found = self.examine(&mut prepared, budget);
                let found = found.unwrap_or_else(|error| failed(&error));
                self.left.extend(&found.grounds);
                let granule = |prepared: &Prepared| prepared.transport.limits().granularity();
                let is_finer = self.working.as_ref().is_none_or(|known| granule(&prepared) < granule(known));
                if matches!(found.verdict, Verdict::Works { .. }) && is_finer {
                    self.working = Some(prepared);
                }
                RouteResult::new(route.name, promise, &found)
            }
        }
    }

    fn prepare(&self, route: &'static Route) -> Result<Prepared, Verdict> {
        let job = TrimJob { via: Some(route.name.to_owned()), ..self.template.clone() };
        let mut prepared = prepare(self.survey, 0, &job).map_err(|problem| match problem {
            NotPrepared::NoRoute(tried) => Verdict::Rejected(tried.join("; ")),
            NotPrepared::Failed(error) => Verdict::Inconclusive(error.with_causes()),
            NotPrepared::Refused(refusal) => Verdict::Inconclusive(refusal.to_string()),
            NotPrepared::Unwanted(finding) => Verdict::Inconclusive(finding.message),
            NotPrepared::Gone(error) => Verdict::Inconclusive(error.to_string()),
        })?;
        if let Some(scratch) = self.job.scratch {
            let plan = plan(&prepared, &job, "the scratch area", &[scratch], scratch);
            let plan = plan.map_err(|refusal: Refusal| Verdict::Inconclusive(refusal.to_string()))?;
            prepared.parts = vec![PlannedPart { volume: None, piece: None, plan }];
        }
        Ok(prepared)
    }

    fn examine(&self, prepared: &mut Prepared, budget: u64) -> Result<Examination, TransportError> {
        let target = &self.survey.targets[0];
        let free = all_planned(prepared);
        let (file, facts) = (&prepared.device.file, &prepared.device.facts);
        let mut own_path = (prepared.route.own_path)(file, facts)?;
        let mut kernel = Direct::open(file, facts)?;
        if let Some(own) = &mut own_path
            && let Err(found) = cross_read(&mut kernel, own.as_mut(), &sample(prepared))
        {
            return Ok(*found);
        }
        let lba = prepared.transport.limits().lba_size().bytes().max(facts.logical_block.bytes());
        let neighbours = Neighbours::remember(&mut kernel, &free, facts.size, lba, nonce())?;
        // The part with the most room: large commands need it.
        let Some(part) = prepared.parts.iter().max_by_key(|part| part.plan.facts().bytes) else {
            return Ok(no_room());
        };
        let starts = partition_starts(target);
        let capacity = prepared.transport.capacity();
        let block = facts.logical_block.bytes();
        let bench = canary::Bench { plan: &part.plan, free: &free, capacity, partitions: &starts, block };
        let mut paths = Paths { kernel: &mut kernel, route: own_path.as_deref_mut() };
        let mut found = examine(&bench, prepared.transport.as_mut(), &mut paths, nonce(), budget);
        if let Some(changed) = neighbours.changed(&mut kernel)? {
            found.verdict = Verdict::Harmful(changed);
        }
        Ok(found)
    }

    /// Discards what was written; the bytes that are left. After harm nothing more is sent.
    fn clean_up(&mut self, harmful: bool) -> u64 {
        merge(&mut self.left);
        let all: u64 = self.left.iter().map(|ground| ground.len()).sum();
        let Some(prepared) = self.working.as_mut().filter(|_| !harmful) else { return all };
        let mut done = 0;
        for part in &prepared.parts {
            let granule = (part.plan.limits().granularity(), part.plan.limits().alignment());
            let inside = |ground: &ByteRange| {
                let extents = part.plan.extents().iter();
                extents
                    .filter_map(|extent| ground.intersect(*extent)?.round_inwards(granule.0, granule.1))
                    .collect::<Vec<_>>()
            };
            let grounds: Vec<ByteRange> = self.left.iter().flat_map(inside).collect();
            let Some(plan) = part.plan.part(&grounds) else { continue };
            for batch in Plan::batches(&plan) {
                if prepared.transport.discard(&batch).is_ok() {
                    done += batch.bytes();
                }
            }
        }
        let _ = prepared.transport.flush();
        all.saturating_sub(done)
    }
}

/// Looks at the device once a second: is it there, the same, and readable?
fn watch(target: &Target, seconds: u64, stop: &AtomicBool) -> Option<String> {
    let until = Instant::now() + Duration::from_secs(seconds);
    loop {
        let seen = target.must_be_unchanged().and_then(|()| target.disk_reader()).map(|file| {
            let mut byte = [0; 1];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut byte, 0)
        });
        match seen {
            Err(error) => return Some(error.to_string()),
            Ok(Err(error)) => return Some(format!("the device cannot be read any more: {error}")),
            Ok(Ok(())) => {}
        }
        if Instant::now() >= until || stop.load(Ordering::Relaxed) {
            return None;
        }
        std::thread::sleep(Duration::from_secs(1).min(until.saturating_duration_since(Instant::now())));
    }
}

fn failed(error: &TransportError) -> Examination {
    let verdict = Verdict::Inconclusive(error.with_causes());
    Examination { verdict, ..no_room() }
}

fn no_room() -> Examination {
    let verdict = Verdict::Inconclusive("there is no free space to test in".to_owned());
    Examination { verdict, steps: Vec::new(), written: 0, grounds: Vec::new(), largest: None, rejected: None }
}

impl RouteResult {
    fn new(name: &'static str, promise: ReadAfterDiscard, found: &Examination) -> Self {
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

    fn untried(name: &'static str, word: Verdict) -> Self {
        let found = Examination { verdict: word, ..no_room() };
        Self { promise: None, ..Self::new(name, ReadAfterDiscard::Undefined, &found) }
    }

    fn is_harmful(&self) -> bool {
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
