//! From a prepared device to a verdict: trial of the route, passes, a look at what must not have changed.

use super::ground::{Shape, left_by_earlier_run, plans, slots};
use super::way;
use crate::cli::Ending;
use crate::cli::job::{Output, VerifyJob};
use crate::cli::routes::Prepared;
use crate::cli::survey::Survey;
use crate::cli::trial::{Failed, Tried, Trying, nonce, try_routes};
use crate::cli::trim::notes::note_verdict;
use crate::cli::trim::watch::{Guard, Log, Look, RunWatcher};
use crate::measure::preset::{Preset, play};
use crate::measure::stats::real;
use crate::measure::{self, Conclusion, Design, Engine, Evidence, Fault, Findings, Sent, conclude};
use crate::plan::Area;
use crate::report::progress::{Live, Mode, Progress};
use crate::report::verify::{Bench, Ground as GroundReport, NamedPass, Trial, VerifyReport};
use crate::report::{OutcomeReport, Reason};
use crate::target::{Awake, Roots};
use crate::transport::{Direct, NodeKind, ReadAfterDiscard, access};
use crate::verify::Verdict;
use anyhow::{Context, Result};
use nix::sys::time::TimeValLike;
use std::sync::atomic::AtomicBool;

/// Places in use that are compared before and after.
const COMPARED: usize = 512;

/// Measures what a discard does on `device`, and leaves that in the survey's report.
pub fn measure(
    survey: &mut Survey,
    mut device: Prepared,
    job: &VerifyJob,
    budget: u64,
    output: &Output,
    stop: &AtomicBool,
) -> Result<Ending> {
    let _awake = Awake::hold(&Roots::default());
    let target = device.target;
    match survey.targets[target].seal() {
        Ok(remark) => survey.report.targets[target].reasons.extend(remark.as_deref().map(Reason::warning)),
        Err(error) => {
            survey.report.errors.push(error.to_string());
            return Ok(Ending::Refused);
        }
    }
    let shape = Shape::of(&device);
    let design = Design::new(job.length, budget, shape.block, job.settle, job.seed.unwrap_or_else(nonce));
    let mut reader = Direct::open(&device.device.file, &device.device.facts)?;
    let earlier = left_by_earlier_run(&mut reader, &slots(&device.parts, &design), design.seed)?;
    let (trial, failed) = match try_routes(survey, &mut device, &job.trim, Trying::Always) {
        Ok(tried) => (tried, None),
        Err(Failed { ending, why, verdict, evidence }) => (Tried { verdict, evidence }, Some((ending, why))),
    };
    let mut run = Run::new(job, design, &trial, earlier);
    // A route that shows no effect does no harm either: reads and speed may still show one.
    if let Some((ending, why)) = failed.filter(|_| trial.verdict != Some(Verdict::NoEvidence)) {
        survey.report.errors.push(why);
        return Ok(run.concluded(survey, &device, Some(ending)));
    }
    // What the trial wrote is no sign of anybody else.
    survey.targets[target].note_writes();
    // Another route may have been chosen, with other granules.
    let shape = Shape::of(&device);
    let compared = shape.used(&survey.report, &device.parts, run.report.design.seed);
    let compared = compared.get(..COMPARED.min(compared.len())).unwrap_or_default();
    let mut guard = match Guard::of(&device, compared) {
        Ok(guard) => guard,
        Err(failed) => {
            survey.report.errors.push(failed.why);
            return Ok(failed.ending);
        }
    };
    run.passes(survey, &mut device, shape, &mut guard, output, stop)?;
    run.harm = run.harm.take().or_else(|| guard.harm(run.fault.is_some()));
    run.report.compared_places = guard.places();
    if let Err(error) = survey.targets[target].drop_caches() {
        survey.report.errors.push(error.to_string());
    }
    Ok(run.concluded(survey, &device, None))
}

/// What is known of a run so far.
struct Run {
    trial: Option<Verdict>,
    promise: ReadAfterDiscard,
    preset: Option<&'static Preset>,
    report: VerifyReport,
    findings: Option<Findings>,
    harm: Option<String>,
    fault: Option<Fault>,
}

impl Run {
    fn new(job: &VerifyJob, design: Design, trial: &Tried, earlier: usize) -> Self {
        let shown = trial.verdict.as_ref();
        let nothing = GroundReport { extents: 0, bytes: 0 };
        let report = VerifyReport {
            preset: job.preset.map_or("bst", |preset| preset.name),
            length: job.length,
            design,
            bench: Bench {
                queue: "none",
                direct: false,
                link: None,
                ceiling: None,
                cpu: 0.0,
                zone: nothing,
                slots: nothing,
            },
            trial: shown.map(|verdict| Trial { verdict: verdict.to_string(), evidence: trial.evidence.clone() }),
            passes: Vec::new(),
            comparison: None,
            sent: Sent::default(),
            left_bytes: 0,
            left_by_earlier_run: earlier,
            compared_places: 0,
            harm: None,
            ended_early: None,
            verdict: String::new(),
            reason: None,
            rung: 0,
            sentence: String::new(),
        };
        let trial = trial.verdict.clone();
        let promise = ReadAfterDiscard::Undefined;
        Self { trial, promise, preset: job.preset, report, findings: None, harm: None, fault: None }
    }

    /// Runs the experiment, and takes back what it wrote however it ends, unless nothing more may be sent.
    fn passes(
        &mut self,
        survey: &Survey,
        device: &mut Prepared,
        shape: Shape,
        guard: &mut Guard,
        output: &Output,
        stop: &AtomicBool,
    ) -> Result<()> {
        let target = &survey.targets[device.target];
        let Prepared { transport, parts, device: node, route, .. } = device;
        self.promise = transport.read_after_discard();
        let design = self.report.design.clone();
        let ground = shape.ground(&survey.report, parts, &design);
        let file = access::around_the_cache(&node.file, &node.facts)?;
        let (way, link) = way::way(target.disk());
        let mut log = Log::none();
        let progress = Progress::start(Mode::Silent, route.name, 0);
        let mut watcher = RunWatcher {
            target,
            progress,
            log: &mut log,
            guard: Some(guard),
            harm: None,
            look: Look::new(),
            written: 0,
            troubles: target.troubles().filter(|_| node.facts.is_usb()),
            told: None,
        };
        let engine = Engine::new(&file, transport.as_mut(), plans(parts), &mut watcher, stop, way, nonce());
        let mut engine = engine.context("transfers cannot be begun")?;
        let area = |area: &Area<'_>| GroundReport { extents: area.extents(), bytes: area.bytes() };
        self.report.bench = Bench {
            queue: engine.queue(),
            direct: node.facts.kind != NodeKind::Image,
            link,
            ceiling: way.ceiling,
            cpu: 0.0,
            zone: area(&ground.zone),
            slots: area(&ground.slots),
        };
        let mut live = Live::start(output.progress, design.budget);
        let busy = cpu_seconds();
        let works = matches!(self.trial, Some(Verdict::Works { .. }));
        let done = match self.preset {
            None => {
                measure::run(&mut engine, &ground, &design, works, &mut live).map(|found| self.findings = Some(found))
            }
            Some(preset) => play(&mut engine, &ground, &design, preset, &mut live)
                .map(|records| self.report.passes = records.into_iter().map(NamedPass::from).collect()),
        };
        match done {
            Ok(()) => {}
            Err(fault) => {
                // Whoever wants the drive now is not to be disturbed by one more command.
                let cleaned = if matches!(fault, Fault::Objected(_)) { None } else { engine.clean().ok() };
                self.report.left_bytes = if cleaned.is_some() { 0 } else { engine.sent().written };
                self.report.ended_early = Some(fault.to_string());
                self.fault = Some(fault);
            }
        }
        live.finish();
        let passes = self.findings.iter().flat_map(|found| &found.passes);
        let passes = passes.chain(self.report.passes.iter().map(|named| &named.pass));
        let seconds: f64 = passes.map(|pass| pass.seconds_flushed).sum();
        self.report.bench.cpu = if seconds > 0.0 { (cpu_seconds() - busy) / seconds } else { 0.0 };
        self.report.sent = engine.sent();
        drop(engine);
        self.harm = watcher.harm.take();
        Ok(())
    }

    /// The verdict, the exit code, and what goes into the report of the volumes.
    fn concluded(mut self, survey: &mut Survey, device: &Prepared, ended: Option<Ending>) -> Ending {
        let evidence =
            Evidence { canary: self.trial.as_ref(), findings: self.findings.as_ref(), harm: self.harm.as_deref() };
        let Conclusion { verdict, rung, mut sentence } = conclude(&evidence);
        if let Some(preset) = self.preset {
            sentence.push_str(&format!(
                " The curves are those of a protocol from the field ({}), which has no sufficient control: they show what \
                 happened, and prove nothing about TRIM. --preset bst does.",
                preset.note
            ));
        }
        let words = format!("rung {rung} of 4: {sentence}");
        note_verdict(&mut survey.report, device, Some(&verdict), &words);
        let mut errors: Vec<String> = self.fault.iter().map(Fault::to_string).chain(self.harm.clone()).collect();
        errors.dedup();
        let ending = match (&verdict, &self.fault) {
            (Verdict::Harmful(_), _) => Ending::Disproved,
            (_, Some(Fault::Stopped)) => Ending::Stopped,
            (_, Some(Fault::Objected(_))) => Ending::Refused,
            (_, Some(Fault::Failed(_))) => Ending::Failed,
            (Verdict::NoEvidence, None) if self.promise == ReadAfterDiscard::Zeros => Ending::Disproved,
            (_, None) => ended.unwrap_or(Ending::Done),
        };
        let volumes = survey.report.volumes.iter_mut().filter(|volume| volume.plan.is_some());
        let sent = self.report.sent;
        for volume in volumes.take(1) {
            let (bytes, commands) = (sent.discarded, sent.commands);
            volume.outcome = Some(OutcomeReport { bytes, commands, errors: errors.clone() });
        }
        if let Some(findings) = self.findings.take() {
            self.report.take(findings);
        }
        let report = &mut self.report;
        (report.verdict, report.reason) = (verdict.to_string(), verdict.reason().map(str::to_owned));
        (report.rung, report.sentence, report.harm) = (rung, sentence, self.harm);
        survey.report.errors.extend(errors);
        survey.report.verify = Some(Box::new(self.report));
        ending
    }
}

/// Seconds that this program has computed for, the kernel's work on its behalf included.
fn cpu_seconds() -> f64 {
    let used = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    used.map_or(0.0, |used| {
        let times = [used.user_time(), used.system_time()];
        times.iter().map(|time| real(u64::try_from(time.num_microseconds()).unwrap_or(0)) / 1e6).sum()
    })
}
