//! What was planned, tried and done, written into the report.

use crate::cli::Ending;
use crate::cli::routes::{NotPrepared, PlannedPart, Prepared};
use crate::cli::survey::Survey;
use crate::report::arrays::ShareReport;
use crate::report::{OutcomeReport, PlanReport, Report};
use crate::run::{Outcome, Stop};
use crate::transport::{ErrorKind, TransportError};
use crate::verify::Verdict;
use coldtrim_parsers::volume::Weight;

/// Fills the plans of a device into the report, in place of what was noted of it before.
pub(super) fn note_plans(report: &mut Report, device: &Prepared) {
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

pub(super) fn note_problem(survey: &mut Survey, index: usize, problem: NotPrepared) -> Ending {
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

/// Fills in what is known of a route.
pub fn note_verdict(report: &mut Report, device: &Prepared, verdict: Option<&Verdict>, evidence: &str) {
    let verdict = verdict.map(Verdict::to_string);
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

pub(super) fn note_outcome(report: &mut Report, part: &PlannedPart, name: &str, target: usize, outcome: &Outcome) {
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

pub(super) fn describe(name: &str, error: &TransportError) -> String {
    format!("{name}: {}; next: {}", error.with_causes(), error.advice())
}

/// The ending of a run that a transport error ended before anything was done.
pub(super) fn ending_of_error(error: &TransportError) -> Ending {
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
