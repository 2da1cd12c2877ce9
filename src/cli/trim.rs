//! `coldtrim trim`: the main job, as a list of steps.

use super::arrays::pieces_on;
use super::job::{Output, TrimJob};
use super::routes::{NotPrepared, PlannedPart, Prepared, prepare, prepare_without};
use super::settle::settle;
use super::survey::{Survey, complain, print_notes};
use super::trial::{Failed, Tried, all_planned, nonce, try_route};
use super::{Ending, confirm, interrupt, saved_plan};
use crate::plan::Batch;
use crate::plan::units::ByteRange;
use crate::report::arrays::ShareReport;
use crate::report::progress::Progress;
use crate::report::{OutcomeReport, PlanReport, Reason, Report, State, VolumeReport, human, text};
use crate::run::{Outcome, Stop, Watcher, execute};
use crate::target::{Awake, Intent, Roots, Target, TargetError};
use crate::transport::{Direct, ErrorKind, NodeKind, TransportError};
use crate::verify::neighbours::Neighbours;
use anyhow::Result;
use coldtrim_parsers::volume::Weight;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Runs the verb.
pub fn run(job: &TrimJob, output: &Output) -> Result<Ending> {
    let stop = interrupt::flag()?;
    // A plan that is saved for review is not carried out in the same breath.
    let sends = !job.dry_run && job.save_plan.is_none();
    let intent = if sends { Intent::Discard } else { Intent::Read };
    let mut survey = Survey::new("trim", &job.scope, intent, stop)?;
    print_notes(&survey.notes, output);
    let (mut prepared, mut endings) = prepare_all(&mut survey, job);
    saved_plan::save(job.save_plan.as_deref(), &survey, &prepared)?;
    saved_plan::compare(job.plan.as_deref(), &survey, &prepared)?;
    if sends && prepared.iter().flat_map(|device| &device.parts).any(has_work) {
        let shown = show(&survey.report, output, text::print);
        confirm::ask(&question(&survey, &prepared), job.yes, stop)?;
        if !job.yes {
            survey = unchanged(survey, job, stop, &mut prepared)?;
        }
        survey.report.errors.clear();
        endings.extend(carry_out(&mut survey, &mut prepared, job, output, stop)?);
        let ending = conclude(&mut survey.report, endings);
        let told = shown & show(&survey.report, output, text::print_outcomes) & finish(&survey.report, output);
        Ok(ending.unless_untold(told))
    } else {
        endings.extend(prepared.iter().flat_map(|device| &device.parts).map(|_| Ending::Done));
        let ending = conclude(&mut survey.report, endings);
        let told = show(&survey.report, output, text::print) & finish(&survey.report, output);
        Ok(ending.unless_untold(told))
    }
}

/// The same for images of our own, without a question or a word: the report, what was planned (in bytes of the
/// target), and the ending.
pub fn run_quietly(job: &TrimJob) -> Result<(Report, Vec<ByteRange>, Ending)> {
    let stop = interrupt::flag()?;
    let mut survey = Survey::new("trim", &job.scope, Intent::Discard, stop)?;
    let (mut prepared, mut endings) = prepare_all(&mut survey, job);
    let plans = || prepared.iter().flat_map(|device| &device.parts);
    let planned = plans().flat_map(|part| part.plan.extents().iter().copied()).collect();
    endings.extend(carry_out(&mut survey, &mut prepared, job, &Output::SILENT, stop)?);
    let ending = conclude(&mut survey.report, endings);
    Ok((survey.report, planned, ending))
}

/// Sends everything that is planned. An ending for each part.
fn carry_out(
    survey: &mut Survey,
    prepared: &mut [Prepared],
    job: &TrimJob,
    output: &Output,
    stop: &AtomicBool,
) -> Result<Vec<Ending>> {
    let _awake = Awake::hold(&Roots::default());
    let mut log = Log::open(job)?;
    let mut endings = Vec::new();
    for device in prepared {
        endings.extend(run_device(survey, device, job, output, stop, &mut log));
    }
    if let Some(failed) = log.failed {
        survey.report.errors.push(failed);
        endings.push(Ending::Failed);
    }
    Ok(endings)
}

/// The sums and the ending, with the volumes that were refused from the start.
fn conclude(report: &mut Report, mut endings: Vec<Ending>) -> Ending {
    let refused = report.volumes.iter().filter(|volume| volume.state == State::Refused);
    endings.extend(refused.map(|_| Ending::Refused));
    let ending = combine(&endings);
    report.sum_up();
    report.exit_code = ending.code();
    ending
}

fn has_work(part: &PlannedPart) -> bool {
    part.plan.facts().bytes > 0
}

/// Chooses routes and plans for every target that has something clean; fills the plans into the report. The endings
/// are those of volumes that found no route or no plan.
fn prepare_all(survey: &mut Survey, job: &TrimJob) -> (Vec<Prepared>, Vec<Ending>) {
    let mut prepared = Vec::new();
    let mut endings = Vec::new();
    for index in 0..survey.targets.len() {
        let clean = survey.report.volumes.iter().filter(|v| v.state == State::Clean && lies_on(v, index)).count();
        let gaps = if job.unallocated { survey.gaps[index].len() } else { 0 };
        if clean + gaps == 0 {
            continue;
        }
        match prepare(survey, index, job) {
            Ok(device) => {
                let notes = device.transport.notes().iter().map(|note| Reason::warning(note));
                survey.report.targets[index].reasons.extend(notes);
                prepared.push(device);
            }
            Err(problem) => endings.extend(vec![note_problem(survey, index, problem); clean.max(1)]),
        }
    }
    endings.extend(settle(survey, &mut prepared, job));
    prepared.iter().for_each(|device| note_plans(&mut survey.report, device));
    survey.report.sum_up();
    (prepared, endings)
}

/// True when something of the volume is on this target.
fn lies_on(volume: &VolumeReport, target: usize) -> bool {
    let is_plain = volume.array.is_none() && volume.target == target;
    is_plain || pieces_on(volume, target).next().is_some()
}

/// Fills the plans of a device into the report, in place of what was noted of it before.
fn note_plans(report: &mut Report, device: &Prepared) {
    report.forget_plans(device.target);
    for part in &device.parts {
        let facts = part.plan.facts();
        let plan = PlanReport {
            extents: facts.extents,
            bytes: facts.bytes,
            commands: facts.commands,
            skipped_bytes: facts.skipped_bytes,
        };
        match part.volume.and_then(|volume| report.volumes.get_mut(volume)) {
            Some(volume) => {
                if part.piece.is_some() {
                    let route = device.route.name.to_owned();
                    let (target, plan) = (device.target, plan.clone());
                    let share = ShareReport { target, plan, route, outcome: None, verdict: None, evidence: None };
                    volume.members.push(share);
                }
                *volume.plan.get_or_insert_default() += plan;
                volume.route = Some(device.route.name.to_owned());
                volume.route_reason = Some(device.reason.clone());
            }
            None => report.gaps.push(crate::report::GapReport { target: device.target, plan, outcome: None }),
        }
    }
}

fn note_problem(survey: &mut Survey, index: usize, problem: NotPrepared) -> Ending {
    let name = survey.report.targets[index].name.clone();
    let errors = &mut survey.report.errors;
    match problem {
        NotPrepared::NoRoute(tried) => {
            errors.push(format!("{name}: no route works here. Tried: {}", tried.join("; ")));
            Ending::NoRoute
        }
        NotPrepared::Refused(refusal) => {
            errors.push(format!("{name}: {refusal}"));
            Ending::Refused
        }
        NotPrepared::Unwanted(finding) => {
            let advice = match finding.weight {
                Weight::Consent(consent) => format!("; or accept it with --accept {}", consent.name()),
                _ => String::new(),
            };
            errors.push(format!("{name}: {}; next: {}{advice}", finding.message, finding.remedy));
            Ending::Refused
        }
        NotPrepared::Failed(error) => {
            errors.push(describe(&name, &error));
            ending_of_error(&error)
        }
        NotPrepared::Gone(error) => {
            errors.push(format!("{name}: {error}"));
            Ending::Failed
        }
    }
}

fn describe(name: &str, error: &TransportError) -> String {
    format!("{name}: {}; next: {}", error.with_causes(), error.advice())
}

/// The ending of a run that a transport error ended before anything was done.
fn ending_of_error(error: &TransportError) -> Ending {
    match error.kind() {
        ErrorKind::Rejected => Ending::NoRoute,
        ErrorKind::OutOfRange
        | ErrorKind::Contradiction
        | ErrorKind::Unsuitable
        | ErrorKind::Changed
        | ErrorKind::WriteProtected
        | ErrorKind::Incomplete => Ending::Refused,
        _ => Ending::Failed,
    }
}

/// Prints a part of the report for people, where people read along. That nobody listens any more is no reason to do
/// less than what was asked for. False when it could not be written.
fn show(
    report: &Report,
    output: &Output,
    part: fn(&mut dyn Write, &Report, text::Paint) -> std::io::Result<()>,
) -> bool {
    let silent = output.quiet || output.json;
    silent || told(part(&mut std::io::stdout().lock(), report, output.paint))
}

/// The report for programs, or the errors where nothing else is wanted. False when it could not be written.
fn finish(report: &Report, output: &Output) -> bool {
    if output.json {
        return told(super::print_json(report));
    }
    if output.quiet {
        complain(report);
    }
    true
}

/// A report that could not be written is told where it still can be; a closed pipe has nobody to tell.
fn told(written: std::io::Result<()>) -> bool {
    match written.and_then(|()| std::io::stdout().flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            say!("coldtrim: the report could not be written: {error}");
            false
        }
        _ => true,
    }
}

fn question(survey: &Survey, prepared: &[Prepared]) -> String {
    let bytes = prepared.iter().flat_map(|device| &device.parts).map(|part| part.plan.facts().bytes).sum();
    let names: Vec<&str> = prepared.iter().map(|device| survey.report.targets[device.target].name.as_str()).collect();
    format!(
        "This discards {} of free space on {}. Files that were deleted there can then no longer be recovered.",
        human::exact(bytes),
        names.join(", ")
    )
}

/// Somebody thought about the answer for a while: reads everything again, and refuses when anything is different.
fn unchanged(survey: Survey, job: &TrimJob, stop: &AtomicBool, prepared: &mut Vec<Prepared>) -> Result<Survey> {
    let mut again = survey;
    again.read(&job.scope, stop)?;
    let (anew, _) = prepare_all(&mut again, job);
    let same = anew.len() == prepared.len()
        && anew.iter().zip(prepared.iter()).all(|(a, b)| {
            a.parts.len() == b.parts.len() && a.parts.iter().zip(&b.parts).all(|(a, b)| a.plan == b.plan)
        });
    if !same {
        return Err(saved_plan::Differs::WhileAsking.into());
    }
    *prepared = anew;
    Ok(again)
}

/// Tries the route where that is due, then carries out every plan of the device. An ending for each part.
fn run_device(
    survey: &mut Survey,
    device: &mut Prepared,
    job: &TrimJob,
    output: &Output,
    stop: &AtomicBool,
    log: &mut Log,
) -> Vec<Ending> {
    let name = survey.report.targets[device.target].name.clone();
    match survey.targets[device.target].seal() {
        Ok(remark) => survey.report.targets[device.target].reasons.extend(remark.map(Reason::warning)),
        Err(error) => {
            survey.report.errors.push(format!("{name}: {error}"));
            return vec![Ending::Refused; device.parts.len()];
        }
    }
    let chosen = device.route.name;
    let tried = tried_route(survey, device, job);
    if device.route.name != chosen {
        note_plans(&mut survey.report, device);
    }
    let (trial, mut guard) = match tried {
        Ok(proved) => proved,
        Err(failed) => {
            survey.report.errors.push(format!("{name}: {}", failed.why));
            note_verdict(&mut survey.report, device, &failed.verdict, &failed.evidence);
            return vec![failed.ending; device.parts.len()];
        }
    };
    let target = &survey.targets[device.target];
    let total = device.parts.iter().map(|part| part.plan.facts().bytes).sum();
    let progress = Progress::start(output.progress, device.route.name, total);
    let look = Look::new();
    let mut watcher = RunWatcher { target, progress, log, guard: guard.as_mut(), harm: None, look };
    let mut outcomes: Vec<Outcome> = Vec::new();
    for part in &device.parts {
        if outcomes.last().is_some_and(|last| !matches!(last.stop, Stop::Finished)) {
            break;
        }
        outcomes.push(execute(&part.plan, device.transport.as_mut(), &mut watcher, stop, job.max_rate));
    }
    watcher.progress.finish();
    let harm = watcher.harm.take();
    let flushed = flush_error(device.transport.flush()).map(|error| describe(&name, &error));
    // Raw commands pass below the page cache, which may still hold what is gone now.
    let dropped = target.drop_caches().err().map(|error| format!("{name}: {error}"));
    let failed = outcomes.iter().any(|outcome| matches!(outcome.stop, Stop::Failed(_)));
    let harm = harm.or_else(|| guard.as_mut().and_then(|guard| guard.harm(failed))).map(|what| {
        format!(
            "{name}: {what}. The run has ended, and files near by may be damaged: check the volume (fsck -n) and compare \
             with a backup; do not use this route on this device again"
        )
    });
    survey.report.errors.extend(flushed.into_iter().chain(dropped).chain(harm.clone()));
    note_verdict(&mut survey.report, device, &trial.verdict, &trial.evidence);
    let mut endings: Vec<Ending> =
        outcomes.iter().map(|outcome| ending_of_stop(&outcome.stop, outcome.bytes)).collect();
    // Parts that were not reached end like the one that stopped the run, with nothing done.
    if let Some(last) = outcomes.last() {
        endings.resize(device.parts.len(), ending_of_stop(&last.stop, 0));
    }
    if harm.is_some() {
        endings = vec![Ending::Refused; device.parts.len()];
    }
    for (part, outcome) in device.parts.iter().zip(&outcomes) {
        note_outcome(&mut survey.report, part, &name, device.target, outcome);
    }
    endings
}

/// Tries the route of `device`. Where `auto` chose it behind USB and it has no effect or is rejected, the next one is
/// tried; the plan is then that one's, of the same free space. A reviewed plan is not exchanged.
fn tried_route(survey: &Survey, device: &mut Prepared, job: &TrimJob) -> Result<(Tried, Option<Guard>), Failed> {
    let target = &survey.targets[device.target];
    let mut failures: Vec<(&str, Failed)> = Vec::new();
    loop {
        match try_route(target, device, job.canary) {
            Ok(trial) => return Guard::before(device).map(|guard| (trial, guard)),
            Err(failed) => failures.push((device.route.name, failed)),
        }
        let names: Vec<&str> = failures.iter().map(|(name, _)| *name).collect();
        let last = failures.last().map(|(_, failed)| failed.ending);
        let may_go_on = last == Some(Ending::NoRoute) && job.via.is_none() && job.plan.is_none();
        let next = (may_go_on && device.device.facts.is_usb())
            .then(|| prepare_without(survey, device.target, job, &names).ok())
            .flatten();
        match next {
            Some(next) => *device = next,
            None => return Err(together(failures)),
        }
    }
}

/// Why none of several routes was used. The last one tried gives ending, verdict and evidence.
fn together(failures: Vec<(&str, Failed)>) -> Failed {
    let whys: Vec<String> = failures.iter().map(|(name, failed)| format!("{name}: {}", failed.why)).collect();
    let why = whys.join("; ");
    match failures.into_iter().next_back() {
        Some((_, last)) => Failed { why, ..last },
        None => Failed { ending: Ending::NoRoute, why, verdict: None, evidence: "none".to_owned() },
    }
}

/// Watches what lies next to the discarded ranges, on raw routes, which nothing else keeps inside of bounds.
struct Guard {
    neighbours: Neighbours,
    reader: Direct,
}

impl Guard {
    fn before(device: &Prepared) -> Result<Option<Self>, Failed> {
        let node = &device.device;
        if !node.facts.is_usb() && node.facts.kind != NodeKind::Scsi {
            return Ok(None);
        }
        let extents = all_planned(device);
        let remembered = Direct::open(&node.file, &node.facts).and_then(|mut reader| {
            let lba = device.transport.limits().lba_size().bytes().max(node.facts.logical_block.bytes());
            let neighbours = Neighbours::remember(&mut reader, &extents, node.facts.size, lba, nonce())?;
            Ok(Some(Self { neighbours, reader }))
        });
        remembered.map_err(|error| Failed {
            ending: Ending::Failed,
            why: format!("what lies next to the free space could not be read: {error}; next: {}", error.advice()),
            verdict: None,
            evidence: "none".to_owned(),
        })
    }

    /// What changed next to any discarded range, or why that cannot be said. After a run that `failed` the device may
    /// not be there to be read, which then is told already.
    fn harm(&mut self, failed: bool) -> Option<String> {
        let changed = self.neighbours.changed(&mut self.reader);
        changed.unwrap_or_else(|error| (!failed).then(|| unread(&error)))
    }

    fn harm_by(&mut self, batch: &Batch<'_>) -> Option<String> {
        let changed = self.neighbours.changed_beside(&mut self.reader, batch.byte_ranges());
        changed.unwrap_or_else(|error| Some(unread(&error)))
    }
}

fn unread(error: &TransportError) -> String {
    format!("what lies next to the discarded space could not be read again ({error})")
}

fn note_verdict(report: &mut Report, device: &Prepared, verdict: &Option<String>, evidence: &str) {
    for volume in device.parts.iter().filter_map(|part| part.volume) {
        if let Some(volume) = report.volumes.get_mut(volume) {
            volume.verdict = verdict.clone();
            volume.evidence = Some(evidence.to_owned());
            for share in volume.members.iter_mut().filter(|share| share.target == device.target) {
                share.verdict = verdict.clone();
                share.evidence = Some(evidence.to_owned());
            }
        }
    }
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

fn note_outcome(report: &mut Report, part: &PlannedPart, name: &str, target: usize, outcome: &Outcome) {
    let mut errors = match &outcome.stop {
        Stop::Finished => Vec::new(),
        Stop::Interrupted => vec!["interrupted; run the same command again to do the rest".to_owned()],
        Stop::Failed(error) => vec![describe(name, error)],
        Stop::Objected(why) => vec![why.clone()],
    };
    let volume = part.volume.and_then(|volume| report.volumes.get_mut(volume));
    let array = volume.as_ref().and_then(|volume| report.arrays.get(volume.array?));
    if !errors.is_empty() && array.is_some_and(|array| array.redundancy == "parity") {
        errors.push(
            "run the same command again before the array is assembled: until then its parity is wrong".to_owned(),
        );
    }
    let done = OutcomeReport { bytes: outcome.bytes, commands: outcome.commands, errors };
    // What lies on one target is noted in the order in which it was planned.
    if let Some(volume) = volume {
        let is_next = |share: &&mut ShareReport| share.target == target && share.outcome.is_none();
        if let Some(share) = volume.members.iter_mut().find(is_next) {
            share.outcome = Some(done.clone());
        }
        *volume.outcome.get_or_insert_default() += done;
    } else if let Some(gap) = report.gaps.iter_mut().find(|gap| gap.target == target && gap.outcome.is_none()) {
        gap.outcome = Some(done);
    }
}

/// One ending for the run from the endings of its units (volumes, gaps): some done and some not is partly done; where
/// nothing was done, the most serious reason counts.
fn combine(units: &[Ending]) -> Ending {
    let has = |wanted: Ending| units.contains(&wanted);
    if has(Ending::Stopped) {
        return Ending::Stopped;
    }
    let bad = [Ending::Failed, Ending::NoRoute, Ending::Refused].into_iter().find(|ending| has(*ending));
    match bad {
        None if has(Ending::Partly) => Ending::Partly,
        None => Ending::Done,
        Some(_) if has(Ending::Done) || has(Ending::Partly) => Ending::Partly,
        Some(bad) => bad,
    }
}

/// Every command and its answer, for `--log`.
struct Log {
    file: Option<File>,
    /// The first line that could not be written, in words.
    failed: Option<String>,
}

impl Log {
    fn open(job: &TrimJob) -> Result<Self> {
        let file = job.log.as_deref().map(super::new_file).transpose()?;
        Ok(Self { file, failed: None })
    }

    fn line(&mut self, batch: &Batch<'_>, answer: &str) {
        let Some(file) = &mut self.file else { return };
        let ranges: Vec<String> =
            batch.byte_ranges().map(|range| format!("{}+{}", range.start(), range.len())).collect();
        // A log on a full disk must not stop a run half way; it is told at the end.
        if let Err(error) = writeln!(file, "{answer}\t{}", ranges.join(" ")) {
            self.failed.get_or_insert(format!("the log is not complete: {error}"));
        }
    }
}

struct RunWatcher<'a> {
    target: &'a Target,
    progress: Progress,
    log: &'a mut Log,
    guard: Option<&'a mut Guard>,
    /// What was found changed that should not have.
    harm: Option<String>,
    look: Look,
}

/// When to look again who uses the target. A look goes through all processes, so it may take a twentieth of the time.
struct Look {
    due: Instant,
}

impl Look {
    const PAUSE: Duration = Duration::from_secs(1);

    fn new() -> Self {
        Self { due: Instant::now() + Self::PAUSE }
    }

    fn again(&mut self, target: &Target) -> Result<(), TargetError> {
        let began = Instant::now();
        if began < self.due {
            return Ok(());
        }
        target.must_be_still_unused()?;
        self.due = Instant::now() + Self::PAUSE.max(began.elapsed() * 20);
        Ok(())
    }
}

impl Watcher for RunWatcher<'_> {
    fn taken(&mut self, batch: &Batch<'_>, took: Duration) {
        self.harm = self.harm.take().or_else(|| self.guard.as_mut().and_then(|guard| guard.harm_by(batch)));
        self.progress.advance(batch.bytes());
        self.log.line(batch, &format!("taken in {} ms", took.as_millis()));
    }

    fn not_taken(&mut self, batch: &Batch<'_>, error: &TransportError) {
        self.log.line(batch, &format!("not taken: {error}"));
    }

    fn objection(&mut self) -> Option<String> {
        self.harm.clone().or_else(|| {
            let undisturbed = self.target.must_be_undisturbed().and_then(|()| self.look.again(self.target));
            undisturbed.err().map(|error| error.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_combine_to_what_the_user_must_know() {
        use Ending::{Done, Failed, NoRoute, Partly, Refused, Stopped};
        assert_eq!(combine(&[]), Done);
        assert_eq!(combine(&[Done, Done]), Done);
        assert_eq!(combine(&[Refused, Refused]), Refused);
        assert_eq!(combine(&[Done, Refused]), Partly);
        assert_eq!(combine(&[NoRoute, Refused]), NoRoute);
        assert_eq!(combine(&[Failed, NoRoute]), Failed);
        assert_eq!(combine(&[Done, NoRoute]), Partly);
        assert_eq!(combine(&[Partly]), Partly);
        assert_eq!(combine(&[Stopped, Refused, Done]), Stopped);
    }
}
