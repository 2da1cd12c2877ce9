//! `coldtrim probe --test`: what every route really does, tried in space that is known to be free.

use super::power::{MOST_LEFT, leave, waiting};
use super::results::{Results, RouteResult};
use crate::cli::confirm;
use crate::cli::device::{Device, partition_starts};
use crate::cli::job::{Output, TestJob, TrimJob};
use crate::cli::routes::{NotPrepared, PlannedPart, Prepared, plan, prepare};
use crate::cli::survey::{Survey, complain};
use crate::cli::trial::{all_planned, nonce, sample};
use crate::cli::{interrupt, past};
use crate::plan::units::ByteRange;
use crate::plan::{Plan, Refusal};
use crate::report::{State, VolumeReport, human};
use crate::target::{Intent, Target, Troubles};
use crate::transport::{Applies, BlockRead, Direct, NodeKind, Route, TRANSPORTS, Transport, TransportError, scsi};
use crate::verify::Verdict;
use crate::verify::canary::{self, Paths};
use crate::verify::examine::{Examination, cross_read, examine};
use crate::verify::neighbours::Neighbours;
use anyhow::{Context, Result, bail};
use coldtrim_parsers::array::merge;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs the tests on the volumes of `spec`, or in its scratch area.
pub fn run(spec: &str, job: &TestJob, output: &Output) -> Result<Results> {
    let stop = interrupt::flag()?;
    let mut template = TrimJob::of(spec.to_owned());
    // What is tested is the device that was named.
    template.scope.below = false;
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
    if let Some(disk) = survey.targets[0].disk().filter(|_| job.power_cycle) {
        // Before anything is written: a pattern that nobody remembers would lie there for ever.
        past::keep(disk, std::iter::empty(), None).context("--power-cycle needs a place for its note")?;
    }
    survey.targets[0].seal()?;
    let wanted: Vec<&'static Route> = TRANSPORTS.iter().filter(|route| is_wanted(route, &survey, job)).collect();
    let mut bench = Bench::new(&survey, job, template);
    let reserve = if job.power_cycle { MOST_LEFT.min(job.budget / 2) } else { 0 };
    let mut routes = Vec::new();
    for (index, route) in wanted.iter().enumerate() {
        if stop.load(Ordering::Relaxed) || routes.iter().any(RouteResult::is_harmful) {
            break;
        }
        let written: u64 = routes.iter().map(|result: &RouteResult| result.written).sum();
        let share = (job.budget - reserve - written) / u64::try_from(wanted.len() - index).unwrap_or(1);
        if output.verbose {
            say!("testing {} with at most {}", route.name, human::bytes(share));
        }
        routes.push(bench.test(route, share));
    }
    let harmful = routes.iter().any(RouteResult::is_harmful);
    let mut left_bytes = bench.clean_up(harmful);
    let mut written: u64 = routes.iter().map(|route| route.written).sum();
    let mut pending = None;
    if job.power_cycle && !harmful && !stop.load(Ordering::Relaxed) {
        let left = leave(&bench, &mut routes, job.budget.saturating_sub(written));
        let left = left.context("leaving a pattern for --resume")?;
        written += left.written;
        left_bytes += if left.pending.is_none() { left.written } else { 0 };
        pending = left.pending;
    }
    let target = &survey.targets[0];
    let late = watch(target, job.settle, stop);
    target.drop_caches()?;
    let interrupted = stop.load(Ordering::Relaxed);
    let told = pending.as_ref().map(|pending| waiting(pending, spec, job.scratch));
    let results = Results { routes, written, left_bytes, settled: job.settle, late, waiting: told, interrupted };
    match target.disk().map(|disk| past::keep(disk, results.to_remember(), pending)) {
        Some(Err(error)) if job.power_cycle => return Err(error).context("the test cannot be finished later"),
        Some(Err(error)) => say!("coldtrim: the results are not kept for later: {error}"),
        _ => {}
    }
    Ok(results)
}

/// There is something to test in, and it is not somebody's.
pub(super) fn check_ground(survey: &Survey, job: &TestJob) -> Result<()> {
    let target = &survey.report.targets[0];
    if target.is_forbidden() {
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
    let is_nobodys = |volume: &VolumeReport| match volume.state {
        State::Clean => volume.free.iter().any(|free| free.contains(scratch)),
        State::Refused if volume.is_unknown => {
            let area = ByteRange::with_len(volume.offset, volume.size);
            area.is_some_and(|area| area.contains(scratch))
        }
        State::Refused | State::Kept => false,
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
pub(super) fn refused(why: String) -> anyhow::Error {
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
    let Ok(device) = Device::of(&survey.targets[0]) else { return false };
    matches!((route.applies)(&device.facts), Applies::Auto(_))
        && device.only_route.is_none_or(|only| only == route.name)
}

pub(super) struct Bench<'a> {
    survey: &'a Survey,
    job: &'a TestJob,
    template: TrimJob,
    /// The route with the finest granules of those that work: by it everything that was written is discarded again.
    working: Option<Prepared>,
    /// Where patterns lie.
    left: Vec<ByteRange>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(survey: &'a Survey, job: &'a TestJob, template: TrimJob) -> Self {
        Self { survey, job, template, working: None, left: Vec::new() }
    }

    pub(super) fn target(&self) -> &'a Target {
        &self.survey.targets[0]
    }

    pub(super) fn survey(&self) -> &'a Survey {
        self.survey
    }

    pub(super) fn scratch(&self) -> Option<ByteRange> {
        self.job.scratch
    }

    /// Discards what an earlier run has left at `ground`, by `prepared`; the bytes that stay.
    pub(super) fn discard_again(&mut self, prepared: Prepared, ground: ByteRange, harmful: bool) -> u64 {
        self.left.push(ground);
        self.working = Some(prepared);
        self.clean_up(harmful)
    }

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

    pub(super) fn prepare(&self, route: &'static Route) -> Result<Prepared, Verdict> {
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
        let places = sample(prepared);
        let (lba, facts) = (prepared.transport.limits().lba_size().bytes(), &prepared.device.facts);
        let (lba, size) = (lba.max(facts.logical_block.bytes()), facts.size);
        let found = on_bench(&self.survey.targets[0], prepared, |bench, transport, paths| {
            if let Some(own) = &mut paths.route
                && let Err(found) = cross_read(paths.kernel, *own, &places)
            {
                return Ok(*found);
            }
            let neighbours = Neighbours::remember(paths.kernel, bench.free, size, lba, nonce())?;
            let mut found = examine(bench, transport, paths, nonce(), budget);
            if let Some(changed) = neighbours.changed(paths.kernel)? {
                found.verdict = Verdict::Harmful(changed);
            }
            Ok(found)
        })?;
        let no_room = || Verdict::Inconclusive("there is no free space to test in".to_owned());
        Ok(found.unwrap_or_else(|| Examination::without_steps(no_room())))
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

/// Looks at the device once a second: is it there, the same, readable, and was it never reset?
pub(super) fn watch(target: &Target, seconds: u64, stop: &AtomicBool) -> Option<String> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let before = target.troubles();
    loop {
        if let Some(news) = look(target, before) {
            return Some(news);
        }
        if Instant::now() >= until || stop.load(Ordering::Relaxed) {
            return None;
        }
        std::thread::sleep(Duration::from_secs(1).min(until.saturating_duration_since(Instant::now())));
    }
}

/// What is wrong with the device now, or since it had had so many troubles.
fn look(target: &Target, before: Option<Troubles>) -> Option<String> {
    let device = match target.must_be_unchanged().and_then(|()| Device::of(target)) {
        Ok(device) => device,
        Err(error) => return Some(error.to_string()),
    };
    let asked = match device.facts.kind {
        NodeKind::Scsi => scsi::look(&device.file),
        _ => Ok(()),
    };
    let read = || {
        let first = ByteRange::with_len(0, device.facts.logical_block.bytes());
        let mut reader = Direct::open(&device.file, &device.facts)?;
        first.map_or(Ok(()), |first| reader.read(first).map(|_| ()))
    };
    if let Err(error) = asked.and_then(|()| read()) {
        return Some(format!("the device is not what it was: {}", error.with_causes()));
    }
    target.troubles().zip(before).and_then(|(now, before)| now.since(before))
}

/// Calls `work` with the part of the plan that has the most room, since large commands need it, and with the ways to the
/// medium; none where nothing is planned.
pub(super) fn on_bench<T>(
    target: &Target,
    prepared: &mut Prepared,
    work: impl FnOnce(&canary::Bench<'_>, &mut dyn Transport, &mut Paths<'_>) -> Result<T, TransportError>,
) -> Result<Option<T>, TransportError> {
    let free = all_planned(prepared);
    let (file, facts) = (&prepared.device.file, &prepared.device.facts);
    let mut own_path = (prepared.route.own_path)(file, facts)?;
    let mut kernel = Direct::open(file, facts)?;
    let Some(part) = prepared.parts.iter().max_by_key(|part| part.plan.facts().bytes) else { return Ok(None) };
    let starts = partition_starts(target);
    let (capacity, block) = (prepared.transport.capacity(), facts.logical_block.bytes());
    let bench = canary::Bench { plan: &part.plan, free: &free, capacity, partitions: &starts, block };
    let mut paths = Paths { kernel: &mut kernel, route: own_path.as_deref_mut() };
    work(&bench, prepared.transport.as_mut(), &mut paths).map(Some)
}

fn failed(error: &TransportError) -> Examination {
    Examination::without_steps(Verdict::Inconclusive(error.with_causes()))
}
