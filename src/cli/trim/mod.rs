//! `coldtrim trim`: the main job, as a list of steps.

mod carry;
pub mod notes;
pub mod watch;

use super::arrays::pieces_on;
use super::job::{Output, TrimJob};
use super::routes::{PlannedPart, Prepared, prepare};
use super::settle::settle;
use super::survey::{Survey, complain, print_notes};
use super::{Ending, confirm, interrupt, past, saved_plan, verify};
use crate::plan::units::ByteRange;
use crate::report::{Reason, Report, State, VolumeReport, human, text};
use crate::target::Intent;
use anyhow::Result;
use carry::carry_out;
use coldtrim_parsers::text::quoted;
use notes::{note_plans, note_problem};
use std::io::Write;
use std::sync::atomic::AtomicBool;

/// Runs the verb.
pub fn run(job: &TrimJob, output: &Output) -> Result<Ending> {
    let stop = interrupt::flag()?;
    // A plan that is saved for review is not carried out in the same breath.
    let sends = !job.dry_run && job.save_plan.is_none();
    let intent = if sends { Intent::Discard } else { Intent::Read };
    let mut survey = Survey::new("trim", &job.scope, intent, stop)?;
    print_notes(&survey.notes, output);
    let (mut prepared, mut endings) = prepare_all(&mut survey, job);
    if let Some(path) = &job.save_plan {
        saved_plan::save(path, &survey, &prepared)?;
    }
    saved_plan::compare(job.plan.as_deref(), &survey, &prepared)?;
    if sends && prepared.iter().flat_map(|device| &device.parts).any(has_work) {
        let shown = show(&survey.report, output, text::print);
        confirm::ask(&question(&survey, &prepared, job), job.yes, stop)?;
        if !job.yes {
            survey = unchanged(survey, job, stop, &mut prepared)?;
        }
        // What was shown is not said twice.
        if is_shown(output) {
            survey.report.errors.clear();
        }
        let mut shown = shown;
        if job.verify {
            let (ended, told) = measured_first(&mut survey, &mut prepared, job, output, stop)?;
            shown &= told;
            if let Some(ending) = ended {
                survey.report.sum_up();
                survey.report.exit_code = ending.code();
                let told = show(&survey.report, output, text::print_errors) & finish(&survey.report, output);
                return Ok(ending.unless_untold(shown & told));
            }
            survey = anew(survey, job, stop)?;
            (prepared, endings) = prepare_all(&mut survey, job);
        }
        endings.extend(carry_out(&mut survey, prepared, job, output, stop)?);
        let ending = conclude(&mut survey.report, endings);
        let told = shown & show(&survey.report, output, text::print_outcomes) & finish(&survey.report, output);
        Ok(ending.unless_untold(told))
    } else {
        if job.dry_run && note_unwritable(&mut survey) {
            // The run ends there, whatever else it could do.
            endings = vec![Ending::Failed];
        } else {
            endings.extend(prepared.iter().flat_map(|device| &device.parts).map(|_| Ending::Done));
        }
        let ending = conclude(&mut survey.report, endings);
        let told = show(&survey.report, output, text::print) & finish(&survey.report, output);
        if let Some(path) = job.save_plan.as_ref().filter(|_| is_shown(output)) {
            let path = quoted(&path.to_string_lossy());
            say!(
                "The plan is in {path}, with every range. To carry it out: the same command with --plan {path} in place of --save-plan"
            );
        }
        Ok(ending.unless_untold(told))
    }
}

/// The same for images of our own, without a question or a word: the report, what was planned (in bytes of the
/// target), and the ending.
pub fn run_quietly(job: &TrimJob) -> Result<(Report, Vec<ByteRange>, Ending)> {
    let stop = interrupt::flag()?;
    let mut survey = Survey::new("trim", &job.scope, Intent::Discard, stop)?;
    let (prepared, mut endings) = prepare_all(&mut survey, job);
    let plans = || prepared.iter().flat_map(|device| &device.parts);
    let planned = plans().flat_map(|part| part.plan.extents().iter().copied()).collect();
    endings.extend(carry_out(&mut survey, prepared, job, &Output::SILENT, stop)?);
    let ending = conclude(&mut survey.report, endings);
    Ok((survey.report, planned, ending))
}

/// The sums and the ending, with the volumes that were refused from the start.
fn conclude(report: &mut Report, mut endings: Vec<Ending>) -> Ending {
    endings.extend(vec![Ending::Refused; report.refusals()]);
    let ending = combine(&endings);
    report.sum_up();
    report.exit_code = ending.code();
    ending
}

/// Tells of targets that a run could not open for writing; true when there is one.
fn note_unwritable(survey: &mut Survey) -> bool {
    let errors = survey.targets.iter().filter_map(|target| target.must_be_writable().err());
    let errors: Vec<String> = errors.map(|error| format!("{:#}", anyhow::Error::from(error))).collect();
    survey.report.errors.extend_from_slice(&errors);
    !errors.is_empty()
}

/// True when there is something to discard.
pub fn has_work(part: &PlannedPart) -> bool {
    part.plan.facts().bytes > 0
}

/// Chooses routes and plans for every target that has something clean; fills the plans into the report. The endings
/// are those of volumes that found no route or no plan.
pub fn prepare_all(survey: &mut Survey, job: &TrimJob) -> (Vec<Prepared>, Vec<Ending>) {
    let mut prepared = Vec::new();
    let mut endings = Vec::new();
    for index in 0..survey.targets.len() {
        let clean = survey.report.volumes.iter().filter(|v| v.state == State::Clean && lies_on(v, index)).count();
        let gaps = if job.unallocated { survey.gaps[index].len() } else { 0 };
        if let Some(why) = survey.no_gaps[index].as_ref().filter(|_| job.unallocated) {
            let words = format!("unallocated space is left alone: {why}");
            survey.report.targets[index].reasons.push(Reason::warning(&words));
        }
        if clean + gaps == 0 {
            continue;
        }
        let known = past::warnings(&survey.pasts[index]);
        survey.report.targets[index].reasons.extend(known.iter().map(|words| Reason::warning(words)));
        match prepare(survey, index, job) {
            Ok(device) => {
                let notes = device.transport.notes().iter().map(|note| Reason::warning(note));
                survey.report.targets[index].reasons.extend(notes);
                prepared.push(device);
            }
            Err(problem) => endings.extend(vec![note_problem(survey, index, problem); clean.max(1)]),
        }
    }
    endings.extend(settle(survey, &mut prepared, job).iter().map(|_| Ending::Refused));
    prepared.iter().for_each(|device| note_plans(&mut survey.report, device));
    survey.report.sum_up();
    (prepared, endings)
}

/// True when something of the volume is on this target.
fn lies_on(volume: &VolumeReport, target: usize) -> bool {
    let is_plain = volume.array.is_none() && volume.target == target;
    is_plain || pieces_on(volume, target).next().is_some()
}

/// True where people read along.
pub fn is_shown(output: &Output) -> bool {
    !(output.quiet || output.json)
}

/// Prints a part of the report for people, where people read along. That nobody listens any more is no reason to do
/// less than what was asked for. False when it could not be written.
pub fn show(
    report: &Report,
    output: &Output,
    part: fn(&mut dyn Write, &Report, text::Paint) -> std::io::Result<()>,
) -> bool {
    !is_shown(output) || told(part(&mut std::io::stdout().lock(), report, output.paint))
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
pub fn told(written: std::io::Result<()>) -> bool {
    match written.and_then(|()| std::io::stdout().flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            say!("coldtrim: the report could not be written: {error}");
            false
        }
        _ => true,
    }
}

fn question(survey: &Survey, prepared: &[Prepared], job: &TrimJob) -> String {
    let bytes = prepared.iter().flat_map(|device| &device.parts).map(|part| part.plan.facts().bytes).sum();
    let names: Vec<&str> = prepared.iter().map(|device| survey.report.targets[device.target].name.as_str()).collect();
    let first = if job.verify { "This writes test data into free space, measures, and then " } else { "This " };
    format!(
        "{first}discards {} of free space on {}. Files that were deleted there can then no longer be recovered.",
        human::exact(bytes),
        names.join(", ")
    )
}

/// A new survey for the trim behind a measurement: free space was written to meanwhile, and a target is sealed once only.
fn anew(survey: Survey, job: &TrimJob, stop: &AtomicBool) -> Result<Survey> {
    let measured = survey.report.verify.clone();
    drop(survey);
    let mut survey = Survey::new("trim", &job.scope, Intent::Discard, stop)?;
    survey.report.verify = measured;
    Ok(survey)
}

/// `--verify`: measures before the trim. An ending where that must not follow; and whether all could be told.
fn measured_first(
    survey: &mut Survey,
    prepared: &mut Vec<Prepared>,
    job: &TrimJob,
    output: &Output,
    stop: &AtomicBool,
) -> Result<(Option<Ending>, bool)> {
    if let Some(why) = verify::objection(prepared) {
        survey.report.errors.push(why.to_owned());
        return Ok((Some(Ending::Refused), true));
    }
    let (ending, told) = verify::before_trim(survey, prepared, job, output, stop)?;
    match ending {
        Ending::Done => Ok((None, told)),
        // As without --verify: a promise of zeros that is not kept is no working way to discard; harm is a refusal.
        Ending::Disproved => {
            let harm = survey.report.verify.as_ref().is_some_and(|found| found.verdict == "harmful");
            Ok((Some(if harm { Ending::Refused } else { Ending::NoRoute }), told))
        }
        other => Ok((Some(other), told)),
    }
}

/// Somebody thought about the answer for a while: reads everything again, and refuses when anything is different.
pub fn unchanged(survey: Survey, job: &TrimJob, stop: &AtomicBool, prepared: &mut Vec<Prepared>) -> Result<Survey> {
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
