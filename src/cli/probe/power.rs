//! `--power-cycle` and `--resume`: is what was discarded still so after the device was without power?
//!
//! A bridge or drive may answer from memory what never reached the medium. The first half leaves a pattern with a
//! discarded middle in free space and notes it in the memory of units; the second half finds the note and looks again.

use super::results::{Results, RouteResult, Waiting};
use super::test::{Bench, check_ground, on_bench, refused, watch};
use crate::cli::confirm;
use crate::cli::job::{Output, TestJob, TrimJob};
use crate::cli::routes::Prepared;
use crate::cli::survey::Survey;
use crate::cli::trial::nonce;
use crate::cli::{interrupt, past};
use crate::memory::{PastRoute, Pending, Record, Store, time};
use crate::plan::units::ByteRange;
use crate::report::{State, human};
use crate::target::facts::DiskFacts;
use crate::target::{Intent, Target};
use crate::transport::{Route, TransportError, route};
use crate::verify::canary::{self, after_power, look_again};
use crate::verify::examine::{Examination, Step};
use crate::verify::{Place, Verdict};
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::sync::atomic::Ordering;

/// No pattern that is left is longer, in bytes; a note of a longer one is wrong.
pub(super) const MOST_LEFT: u64 = 2 << 20;

/// What `--power-cycle` did.
#[derive(Default)]
pub(super) struct Left {
    /// The note for the second half; none where there is nothing to look at later.
    pub(super) pending: Option<Pending>,
    /// Bytes that were written.
    pub(super) written: u64,
}

/// Leaves a pattern of at most `most` bytes on the disk, a part of it discarded by the first route that worked, or else
/// by the first that was accepted. What is seen while that is done counts for the route.
pub(super) fn leave(bench: &Bench<'_>, routes: &mut [RouteResult], most: u64) -> Result<Left, TransportError> {
    let works = |result: &RouteResult| matches!(result.word, Verdict::Works { .. });
    let is_accepted = |result: &RouteResult| result.word == Verdict::NoEvidence;
    let chosen = routes.iter().position(works).or_else(|| routes.iter().position(is_accepted));
    let Some(result) = chosen.and_then(|index| routes.get_mut(index)) else { return Ok(Left::default()) };
    let prepared = route(result.name).and_then(|route| bench.prepare(route).ok());
    let Some(mut prepared) = prepared else { return Ok(Left::default()) };
    let (nonce, largest) = (nonce(), result.largest.unwrap_or(u64::MAX));
    let tried = on_bench(bench.target(), &mut prepared, |bench, transport, paths| {
        let mut fitting = bench.places().filter(|place| place.ground.len() <= most && place.bytes() <= largest);
        Ok(fitting.next().map(|place| (canary::run(bench, &place, transport, paths, nonce), place)))
    })?;
    let Some((trial, place)) = tried.flatten() else { return Ok(Left::default()) };
    let written = trial.written;
    if !matches!(trial.verdict, Verdict::Works { .. } | Verdict::NoEvidence) {
        result.worsen(trial.verdict);
        return Ok(Left { pending: None, written });
    }
    let pending = place.targets.first().map(|target| Pending {
        when: time::now(),
        boot: boot(),
        sequence: bench.target().disk().and_then(|disk| disk.sequence),
        free: digest(bench.survey(), bench.scratch()),
        route: result.name.to_owned(),
        ground: place.ground.start(),
        length: place.ground.len(),
        target: target.start(),
        discarded: target.len(),
        block: prepared.transport.limits().lba_size().bytes(),
        nonce,
        worked: trial.verdict != Verdict::NoEvidence,
    });
    Ok(Left { pending, written })
}

/// What the user is told of it.
pub(super) fn waiting(pending: &Pending, spec: &str, scratch: Option<ByteRange>) -> Waiting {
    let scratch = scratch.map_or(String::new(), |area| format!(" --scratch {}:{}", area.start(), area.len()));
    Waiting {
        route: pending.route.clone(),
        start: pending.ground,
        length: pending.length,
        next: format!("coldtrim probe --test --resume{scratch} {spec}"),
    }
}

/// Finishes a test.
pub(super) fn resume(spec: &str, job: &TestJob, output: &Output) -> Result<Results> {
    let stop = interrupt::flag()?;
    let template = TrimJob::of(spec.to_owned());
    let mut survey = Survey::new("probe", &template.scope, Intent::Discard, stop)?;
    let Some(disk) = survey.targets[0].disk().cloned() else { return Err(refused(NOTHING.to_owned())) };
    let store = Store::open();
    let (mut record, pending) = noted(&store, &disk)?;
    check_ground(&survey, job)?;
    let question = format!(
        "This reads and then discards {} that an earlier test left in free space of {spec}.",
        human::bytes(pending.length)
    );
    confirm::ask(&question, job.yes, stop)?;
    survey.targets[0].seal()?;
    let mut bench = Bench::new(&survey, job, template);
    let is_same = digest(&survey, job.scratch) == pending.free;
    let route = route(&pending.route).filter(|_| is_same);
    let (result, left_bytes) = match route {
        Some(route) => look(&mut bench, route, &pending),
        None => (unlike(&pending), pending.length),
    };
    let target = &survey.targets[0];
    let late = watch(target, job.settle, stop);
    target.drop_caches()?;
    let interrupted = stop.load(Ordering::Relaxed);
    if output.verbose {
        say!("the first half of this test ran on {}", time::date(pending.when));
    }
    forget(&mut record, &pending, &result);
    store.keep(&record).context("that the test is finished could not be noted")?;
    Ok(Results { routes: vec![result], written: 0, left_bytes, settled: job.settle, late, waiting: None, interrupted })
}

const NOTHING: &str = "no test of this device waits to be finished: bridge, firmware, drive, serial numbers, size and driver must be \
                       those of the first half, which begins with `coldtrim probe --test --power-cycle DEVICE`";

/// The record of a unit with the test that waits, or why there is nothing to finish.
fn noted(store: &Store, disk: &DiskFacts) -> Result<(Record, Pending)> {
    let unit = past::unit(disk);
    let found = store.record(&unit)?.and_then(|record| record.pending.clone().map(|pending| (record, pending)));
    let Some((record, pending)) = found else {
        let alike = store.waiting_like(&unit)?;
        let Some(other) = alike.first() else { return Err(refused(NOTHING.to_owned())) };
        return Err(refused(format!(
            "{NOTHING}. One waits for a unit with this bridge that is different: {}",
            unit.differs_from(other)
        )));
    };
    if pending.boot == boot() && pending.sequence.is_some() && pending.sequence == disk.sequence {
        return Err(refused(
            "the device has not been away since the first half of the test: unplug it, switch off its own power supply if it \
             has one, and plug it in again"
                .to_owned(),
        ));
    }
    Ok((record, pending))
}

/// The result, and the bytes that could not be discarded again.
fn look(bench: &mut Bench<'_>, route: &'static Route, pending: &Pending) -> (RouteResult, u64) {
    let mut prepared = match bench.prepare(route) {
        Ok(prepared) => prepared,
        Err(verdict) => return (RouteResult::untried(route.name, verdict), pending.length),
    };
    // What could not be read as the note says is not ours to discard.
    let (verdict, ground) = match seen(bench.target(), &mut prepared, pending) {
        Ok(verdict) => (verdict, place_of(pending)),
        Err(verdict) => (verdict, None),
    };
    let promise = prepared.transport.read_after_discard();
    let what = "the same place after the device was without power".to_owned();
    let evidence = format!("a pattern of {} bytes at byte {}: {verdict}", pending.length, pending.ground);
    let mut found = Examination::without_steps(verdict.clone());
    found.steps.push(Step { ranges: 1, bytes: pending.discarded, ..Step::without_command(what, verdict, evidence) });
    let result = RouteResult::new(route.name, promise, &found);
    let Some(ground) = ground else { return (result, pending.length) };
    let left = bench.discard_again(prepared, ground, result.is_harmful());
    (result, left)
}

fn seen(target: &Target, prepared: &mut Prepared, pending: &Pending) -> Result<Verdict, Verdict> {
    let lost =
        || Verdict::Inconclusive("what was noted of the first half is no place in free space of this disk".to_owned());
    let ground = place_of(pending).ok_or_else(lost)?;
    let targets = vec![ByteRange::with_len(pending.target, pending.discarded).ok_or_else(lost)?];
    let place = Place { ground, targets };
    let found = on_bench(target, prepared, |bench, _, paths| {
        let is_inside =
            place.targets.iter().all(|target| ground.contains(*target)) && bench.plan.part(&[ground]).is_some();
        let lba = bench.plan.limits().lba_size().bytes();
        match is_inside && lba == pending.block && ground.len() <= MOST_LEFT {
            true => look_again(&place, pending.block, pending.nonce, paths).map(Some),
            false => Ok(None),
        }
    });
    let now = found.map_err(|error| Verdict::Inconclusive(error.with_causes()))?;
    Ok(after_power(pending.worked, now.flatten().ok_or_else(lost)?))
}

fn place_of(pending: &Pending) -> Option<ByteRange> {
    ByteRange::with_len(pending.ground, pending.length)
}

fn unlike(pending: &Pending) -> RouteResult {
    let why = "the free space is not what it was in the first half, so somebody has used the volume since and may have \
               written there; begin again with --power-cycle";
    let name = route(&pending.route).map_or("unknown", |route| route.name);
    RouteResult::untried(name, Verdict::Inconclusive(why.to_owned()))
}

/// The test does not wait any more; what it showed counts for the route, with the limits that are known already.
fn forget(record: &mut Record, pending: &Pending, result: &RouteResult) {
    record.pending = None;
    let known = record.routes.iter().find(|known| known.name == pending.route).cloned();
    if let Some(known) = known.filter(|_| !matches!(result.word, Verdict::Inconclusive(_))) {
        let reason = result.word.reason().map(str::to_owned);
        record.learn(PastRoute { when: time::now(), verdict: result.word.to_string(), reason, ..known });
    }
}

/// Changes whenever anything is written or deleted on the volumes, in most cases.
fn digest(survey: &Survey, scratch: Option<ByteRange>) -> String {
    let mut sum = Sha256::new();
    let clean = survey.report.volumes.iter().filter(|volume| volume.state == State::Clean);
    for range in clean.flat_map(|volume| &volume.free).chain(&scratch) {
        sum.update(range.start().to_le_bytes());
        sum.update(range.len().to_le_bytes());
    }
    sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Differs from one start of this machine to the next.
fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
