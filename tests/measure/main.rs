//! The whole experiment on modelled drives that do everything a drive can do with a discard, on their own clock: what is
//! said against what is true.
#![allow(clippy::as_conversions)] // numbers of the tests' own making

mod fleet;
mod presets;
mod simulated;
mod truth;

use coldtrim::measure::stats::settle::Patience;
use coldtrim::measure::stats::steady::Window;
use coldtrim::measure::verdict::Conclusion;
use coldtrim::measure::{Design, Effect, Evidence, Findings, Ground, Load, Observer, Stage, conclude, run};
use coldtrim::plan::units::ByteRange;
use coldtrim::plan::{Area, Plan};
use coldtrim::verify::Verdict;
use coldtrim::verify::canary::{self, Paths};
use coldtrim_ssd_model::{Command, PAGE, Ssd, TrimMode};
use fleet::{Model, Truth, fleet};
use simulated::{Bench, MIB, Simulated, pages, plan};
use std::collections::BTreeMap;

/// The design of a run on a drive of 256 or 512 MiB.
fn design(budget: u64) -> Design {
    Design {
        budget,
        sequential: Load { size: 16 << 10, depth: 8, chunk: MIB / 2 },
        scattered: Load { size: 4 << 10, depth: 32, chunk: MIB / 8 },
        window: Window { chunks: 24, seconds: 0.1 },
        patience: Patience { least: 15.0, most: 600.0, quiet: 10.0 },
        later: 60.0,
        reads: 128,
        seed: 4,
    }
}

struct Quiet;

impl Observer for Quiet {
    fn begins(&mut self, _: &str, _: u64) {}
    fn wrote(&mut self, _: u64) {}
    fn rests(&mut self, _: f64) {}
}

/// What was said of a drive, and what is true of it.
struct Run {
    name: String,
    truth: Truth,
    conclusion: Conclusion,
    findings: Option<Findings>,
    /// What the drive itself says of the factor.
    factor: Option<f64>,
}

/// The trial of the route and the experiment, as the command does them.
fn examine(model: &Model) -> Run {
    let bench = Bench::new(model.ssd.clone());
    let size = u64::from(model.ssd.config().pages) * PAGE;
    let free = ByteRange::new(0, u64::from(model.free.end) * PAGE).expect("free space");
    let plan = plan(size, &[free]);
    let (mut access, mut transport) = (bench.clone(), bench.clone());
    let ground = canary::Bench { plan: &plan, free: &[free], capacity: size, partitions: &[], block: PAGE };
    let mut paths = Paths { kernel: &mut access, route: None };
    let trial = canary::run_largest(&ground, &mut transport, &mut paths, 99).expect("a place").verdict;
    let usable = matches!(trial, Verdict::Works { .. } | Verdict::NoEvidence);
    let findings = usable.then(|| {
        let ground = experiment_ground(&plan, model);
        let mut drive = Simulated::new(&bench, &plan, model.ceiling);
        let works = matches!(trial, Verdict::Works { .. });
        run(&mut drive, &ground, &design(model.budget), works, &mut Quiet).expect("a run")
    });
    let shared = bench.0.borrow();
    assert_only_free_space_is_touched(&model.name, &shared.ssd, free);
    let conclusion = conclude(&Evidence { canary: Some(&trial), findings: findings.as_ref(), harm: None });
    let factor = findings.as_ref().and_then(|findings| {
        let sham = findings.pass(Stage::Sham)?;
        let later = findings.pass(Stage::Later).is_some() && findings.effect.is_gain();
        let after = shared.at_treatments.get(usize::from(later))?;
        let moments = [shared.at_sham.as_ref()?, after];
        Some(truth::factor(findings.yardstick, sham, moments, &design(model.budget), &model.free))
    });
    Run { name: model.name.clone(), truth: model.truth, conclusion, findings, factor }
}

/// Where the experiment writes and reads.
fn experiment_ground<'p>(plan: &'p Plan, model: &Model) -> Ground<'p> {
    let used = model.free.end..model.ssd.config().pages;
    Ground {
        zone: Area::of([plan].into_iter(), MIB / 8, MIB / 8),
        slots: Area::of([plan].into_iter(), PAGE, 64 << 10),
        used: used.filter_map(|page| ByteRange::with_len(u64::from(page) * PAGE, PAGE)).collect(),
    }
}

/// The drive's own log against the plan.
fn assert_only_free_space_is_touched(name: &str, ssd: &Ssd, free: ByteRange) {
    assert!(ssd.log().len() >= 2, "{name}: something was done");
    let free = pages(free);
    for command in ssd.log() {
        let (Command::Write(touched) | Command::Trim(touched)) = command;
        assert!(touched.start >= free.start && touched.end <= free.end, "{name}: {command:?} leaves {free:?}");
    }
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Works { .. } => "works",
        Verdict::NoEvidence => "no evidence",
        Verdict::Rejected(_) => "rejected",
        Verdict::Harmful(_) => "harmful",
        Verdict::Unstable(_) => "unstable",
        Verdict::Inconclusive(_) => "inconclusive",
    }
}

fn print_matrix(runs: &[Run]) {
    let mut matrix: BTreeMap<(Truth, &str), u32> = BTreeMap::new();
    for run in runs {
        *matrix.entry((run.truth, word(&run.conclusion.verdict))).or_default() += 1;
    }
    println!("{} drives; what is true, what was said, how often:", runs.len());
    for ((truth, word), count) in matrix {
        println!("  {:<28} {word:<14} {count}", format!("{truth:?}"));
    }
}

/// The share by which the reported factor is off; none where none was reported or only a lower bound.
fn error(run: &Run) -> Option<f64> {
    let findings = run.findings.as_ref().filter(|findings| findings.effect.is_gain() && !findings.at_least)?;
    Some(findings.gain?.value / run.factor? - 1.0)
}

/// How often the interval of a gain holds the truth; a lower bound must not lie above it.
fn covered(runs: &[Run]) -> (usize, usize) {
    let intervals: Vec<bool> = runs
        .iter()
        .filter_map(|run| {
            let findings = run.findings.as_ref().filter(|findings| findings.effect.is_gain())?;
            let (gain, factor) = (findings.gain?, run.factor?);
            Some(gain.low <= factor && factor <= gain.high)
        })
        .collect();
    (intervals.iter().filter(|holds| **holds).count(), intervals.len())
}

fn print_run(run: &Run) {
    let findings = run.findings.as_ref();
    let gain = findings.and_then(|found| found.gain).map_or(String::new(), |gain| {
        let bound = if findings.is_some_and(|found| found.at_least) { ">=" } else { "" };
        let truth = run.factor.unwrap_or(0.0);
        format!("x{bound}{:.2} ({:.2}..{:.2}), true {truth:.2}", gain.value, gain.low, gain.high.min(999.0))
    });
    let by_itself = findings.and_then(|found| found.by_itself).map_or(0.0, |ratio| ratio.value);
    let effect = findings.map_or("-".to_owned(), |found| format!("{:?} {:?}", found.yardstick, found.effect));
    println!(
        "{:<52} {:<13} rung {} {effect:<24} {gain} S/B {by_itself:.2} {}",
        run.name,
        word(&run.conclusion.verdict),
        run.conclusion.rung,
        findings.map_or(String::new(), |found| format!(
            "latency {:?}, {} MiB",
            found.latency.map(|l| (l.ratio * 100.0).round()),
            found.written / MIB
        )),
    );
}

/// The promise of the whole command, on every kind of drive.
#[test]
fn what_is_said_of_a_drive_is_true() {
    let runs: Vec<Run> = fleet().iter().map(examine).collect();
    runs.iter().for_each(print_run);
    print_matrix(&runs);
    assert!(runs.len() >= 60, "only {} drives", runs.len());
    let mut errors = Vec::new();
    for run in &runs {
        let said = word(&run.conclusion.verdict);
        match run.truth {
            Truth::Ignores => assert!(!["works", "harmful"].contains(&said), "{}: {said}", run.name),
            Truth::Harmful => assert_eq!(said, "harmful", "{}", run.name),
            Truth::Works => assert_eq!(said, "works", "{}: {:?}", run.name, run.conclusion),
            Truth::Partial => assert_eq!(said, "unstable", "{}", run.name),
            Truth::Degraded => {
                assert_eq!(said, "works", "{}: {:?}", run.name, run.conclusion);
                let effect = run.findings.as_ref().map(|findings| findings.effect);
                assert!(effect.is_some_and(Effect::is_gain), "{}: {effect:?}", run.name);
            }
        }
        if let Some(error) = error(run) {
            errors.push(error.abs());
            assert!(error.abs() <= 0.05, "{}: the factor is off by {:.1} %", run.name, error * 100.0);
        }
    }
    let (held, of) = covered(&runs);
    println!("the true factor lies within the interval that was given for {held} of {of} drives");
    assert!(held * 10 >= of * 8, "{held} of {of}");
    errors.sort_by(f64::total_cmp);
    let average = errors.iter().sum::<f64>() / errors.len() as f64;
    println!(
        "error of the factor over {} drives: {:.2} % on average, {:.2} % at most",
        errors.len(),
        average * 100.0,
        errors.last().copied().unwrap_or_default() * 100.0
    );
    assert!(errors.len() >= 15, "only {} factors were reported", errors.len());
}

/// Not only the drives above: whatever is made of the parts of a drive, the one thing that must never be said.
#[test]
fn a_drive_that_ignores_trim_is_never_said_to_work() {
    let count = if std::env::var("COLDTRIM_TESTS").is_ok_and(|tests| tests == "full") { 1000 } else { 40 };
    let mut bad = Vec::new();
    for seed in 0..count {
        let run = examine(&fleet::random(seed, TrimMode::Ignore, Truth::Ignores));
        print_run(&run);
        if word(&run.conclusion.verdict) == "works" {
            bad.push(run.name);
        }
    }
    assert!(bad.is_empty(), "said to work: {bad:?}");
}

/// And the other way round: one that obeys is never said to show no evidence where its speed came back.
#[test]
fn a_drive_that_obeys_is_never_said_to_show_nothing_when_speed_came_back() {
    let count = if std::env::var("COLDTRIM_TESTS").is_ok_and(|tests| tests == "full") { 400 } else { 20 };
    let mut errors = Vec::new();
    for seed in 0..count {
        let run = examine(&fleet::random(seed, TrimMode::Obey, Truth::Works));
        print_run(&run);
        assert_ne!(word(&run.conclusion.verdict), "no evidence", "{}", run.name);
        errors.extend(error(&run).map(|error| (error.abs() * 1000.0).round() as u32));
    }
    errors.sort_unstable();
    println!("errors of the factor in per mille: {errors:?}");
}
