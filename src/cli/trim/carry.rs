//! From plans to commands: every route is tried first, then every plan is carried out.

use super::notes::{describe, ending_of_error, note_outcome, note_plans, note_verdict};
use super::watch::{Guard, Log, Look, RunWatcher};
use crate::cli::Ending;
use crate::cli::job::{Output, TrimJob};
use crate::cli::past;
use crate::cli::routes::Prepared;
use crate::cli::settle::settle;
use crate::cli::survey::Survey;
use crate::cli::trial::{Failed, Tried, Trying, try_routes};
use crate::report::Reason;
use crate::report::progress::Progress;
use crate::run::{Outcome, Stop, execute};
use crate::target::{Awake, Roots};
use crate::transport::{ErrorKind, TransportError};
use crate::verify::Verdict;
use anyhow::Result;
use std::sync::atomic::AtomicBool;

/// A device whose route was tried.
struct Ready {
    device: Prepared,
    trial: Tried,
}

/// Sends everything that is planned. An ending for each part.
pub(super) fn carry_out(
    survey: &mut Survey,
    prepared: Vec<Prepared>,
    job: &TrimJob,
    output: &Output,
    stop: &AtomicBool,
) -> Result<Vec<Ending>> {
    let _awake = Awake::hold(&Roots::default());
    let mut log = Log::open(job)?;
    let mut endings = Vec::new();
    let (mut devices, mut trials) = (Vec::new(), Vec::new());
    for device in prepared {
        match make_ready(survey, device, job, output) {
            Ok(Ready { device, trial }) => {
                devices.push(device);
                trials.push(trial);
            }
            Err(failed) => endings.extend(failed),
        }
    }
    endings.extend(agree(survey, &mut devices, job));
    let mut guards = Vec::new();
    while guards.len() < devices.len() {
        let device = &devices[guards.len()];
        match Guard::before(device) {
            Ok(guard) => guards.push(guard),
            Err(failed) => {
                endings.extend(note_failed(survey, device, &failed));
                trials.remove(guards.len());
                devices.remove(guards.len());
                endings.extend(agree(survey, &mut devices, job));
                // What lies next to other plans is something else.
                guards.clear();
            }
        }
    }
    devices.iter().for_each(|device| note_plans(&mut survey.report, device));
    let ready = devices.iter_mut().zip(&trials).zip(&mut guards).filter(|((device, _), _)| !device.parts.is_empty());
    for ((device, trial), guard) in ready {
        endings.extend(run_device(survey, device, (trial, guard.as_mut()), job, output, stop, &mut log));
    }
    if let Some(failed) = log.failed {
        survey.report.errors.push(failed);
        endings.push(Ending::Failed);
    }
    Ok(endings)
}

/// Makes the plans of arrays agree. Where a member cannot begin none does, and another route has other granules. An ending
/// for each volume that is refused.
fn agree(survey: &mut Survey, devices: &mut [Prepared], job: &TrimJob) -> Vec<Ending> {
    let refused = settle(survey, devices, job);
    for volume in &refused {
        let volume = &survey.report.volumes[*volume];
        let why = volume.reasons.last().map_or("", |reason| reason.message.as_str());
        let error = format!("{}: {why}", survey.report.name_of(volume));
        survey.report.errors.push(error);
    }
    vec![Ending::Refused; refused.len()]
}

/// Makes sure that a device is still what it was and nobody's, and tries its route where that is due. An ending for each
/// part where that failed.
fn make_ready(survey: &mut Survey, mut device: Prepared, job: &TrimJob, output: &Output) -> Result<Ready, Vec<Ending>> {
    let target = device.target;
    let name = survey.report.targets[target].name.clone();
    match survey.targets[target].seal() {
        Ok(None) => {}
        Ok(Some(remark)) => {
            if !(output.quiet || output.json) {
                say!("note: {name}: {remark}");
            }
            survey.report.targets[target].reasons.push(Reason::warning(&remark));
        }
        Err(error) => {
            survey.report.errors.push(format!("{name}: {error}"));
            return Err(vec![Ending::Refused; device.parts.len()]);
        }
    }
    let trying = if job.canary { Trying::WhereDue } else { Trying::Never };
    match try_routes(survey, &mut device, job, trying) {
        Ok(trial) => Ok(Ready { device, trial }),
        Err(failed) => Err(note_failed(survey, &device, &failed)),
    }
}

/// Notes why nothing is sent to a device; an ending for each part.
fn note_failed(survey: &mut Survey, device: &Prepared, failed: &Failed) -> Vec<Ending> {
    let name = &survey.report.targets[device.target].name;
    let why = format!("{name}: {}", failed.why);
    survey.report.errors.push(why);
    note_verdict(&mut survey.report, device, failed.verdict.as_ref(), &failed.evidence);
    if matches!(failed.verdict, Some(Verdict::Harmful(_))) {
        remember_harm(survey, device, &failed.evidence);
    }
    vec![failed.ending; device.parts.len()]
}

/// Keeps for later runs that a route did harm here.
fn remember_harm(survey: &mut Survey, device: &Prepared, what: &str) {
    let disk = survey.targets[device.target].disk();
    if let Some(Err(error)) = disk.map(|disk| past::keep_harm(disk, device.route.name, what)) {
        let remark = Reason::warning(&format!("what was found is not kept for later: {error}"));
        survey.report.targets[device.target].reasons.push(remark);
    }
}

/// Carries out every plan of a device. An ending for each part.
fn run_device(
    survey: &mut Survey,
    device: &mut Prepared,
    (trial, mut guard): (&Tried, Option<&mut Guard>),
    job: &TrimJob,
    output: &Output,
    stop: &AtomicBool,
    log: &mut Log,
) -> Vec<Ending> {
    let name = survey.report.targets[device.target].name.clone();
    survey.targets[device.target].note_writes();
    let target = &survey.targets[device.target];
    let total = device.parts.iter().map(|part| part.plan.facts().bytes).sum();
    let progress = Progress::start(output.progress, device.route.name, total);
    let look = Look::new();
    // Only bridges reset themselves; elsewhere other programs may send commands that fail.
    let troubles = target.troubles().filter(|_| device.device.facts.is_usb());
    let mut watcher = RunWatcher {
        target,
        progress,
        log,
        guard: guard.as_deref_mut(),
        harm: None,
        look,
        written: 0,
        troubles,
        told: None,
    };
    let mut outcomes: Vec<Outcome> = Vec::new();
    for part in &device.parts {
        if outcomes.last().is_some_and(|last| !matches!(last.stop, Stop::Finished)) {
            break;
        }
        outcomes.push(execute(&part.plan, device.transport.as_mut(), &mut watcher, stop, job.max_rate));
    }
    let harm = watcher.harm.take();
    let news = watcher.news();
    let failed = news.is_some() || outcomes.iter().any(|outcome| matches!(outcome.stop, Stop::Failed(_)));
    let is_finished = outcomes.iter().all(|outcome| matches!(outcome.stop, Stop::Finished));
    let news = news.filter(|_| is_finished).map(|news| format!("{name}: {news}"));
    watcher.progress.finish();
    let flushed = flush_error(device.transport.flush()).map(|error| describe(&name, &error));
    // Raw commands pass below the page cache, which may still hold what is gone now.
    let dropped = target.drop_caches().err().map(|error| format!("{name}: {error}"));
    let harm = harm.or_else(|| guard.and_then(|guard| guard.harm(failed))).map(|what| {
        format!(
            "{name}: {what}. The run has ended, and files near by may be damaged: check the volume (fsck -n) and compare \
             with a backup; do not use this route on this device again"
        )
    });
    let is_restless = news.is_some();
    survey.report.errors.extend(news.into_iter().chain(flushed).chain(dropped).chain(harm.clone()));
    note_verdict(&mut survey.report, device, trial.verdict.as_ref(), &trial.evidence);
    let mut endings: Vec<Ending> =
        outcomes.iter().map(|outcome| ending_of_stop(&outcome.stop, outcome.bytes)).collect();
    // Parts that were not reached end like the one that stopped the run, with nothing done.
    if let Some(last) = outcomes.last() {
        endings.resize(device.parts.len(), ending_of_stop(&last.stop, 0));
    }
    if let Some(what) = &harm {
        remember_harm(survey, device, what);
        endings = vec![Ending::Refused; device.parts.len()];
    } else if is_restless {
        endings = vec![Ending::Partly; device.parts.len()];
    }
    for (part, outcome) in device.parts.iter().zip(&outcomes) {
        note_outcome(&mut survey.report, part, &name, device.target, outcome);
    }
    endings
}

/// A device without a cache to flush rejects the command; that is no failure.
fn flush_error(flushed: Result<(), TransportError>) -> Option<TransportError> {
    flushed.err().filter(|error| error.kind() != ErrorKind::Rejected)
}

/// How one part ended. `done` are the bytes that the device took for it.
fn ending_of_stop(stop: &Stop, done: u64) -> Ending {
    match stop {
        Stop::Finished => Ending::Done,
        Stop::Interrupted => Ending::Stopped,
        Stop::Failed(_) | Stop::Objected(_) if done > 0 => Ending::Partly,
        Stop::Failed(error) => ending_of_error(error),
        Stop::Objected(_) => Ending::Refused,
    }
}
