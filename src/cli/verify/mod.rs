//! `coldtrim verify`: what TRIM does to the drive's speed, and how sure that is.

mod ground;
mod measurement;
mod way;

use super::job::{Output, TrimJob, VerifyJob};
use super::routes::Prepared;
use super::survey::{Survey, print_notes};
use super::trim::{is_shown, prepare_all, show, told, unchanged};
use super::{Ending, confirm, interrupt};
use crate::report::verify::{csv, html, text as measured};
use crate::report::{Report, human, text};
use crate::target::Intent;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::atomic::AtomicBool;

/// Files that are written at the end. They are made at the beginning, so that a name that cannot be is told before hours of
/// measuring.
struct Files {
    html: Option<File>,
    csv: Option<File>,
}

impl Files {
    fn create(job: &VerifyJob) -> Result<Self> {
        let html = job.html.as_deref().map(super::new_file).transpose()?;
        let csv = job.csv.as_deref().map(super::new_file).transpose()?;
        Ok(Self { html, csv })
    }

    fn write(self, report: &Report) -> Result<()> {
        let Some(verify) = &report.verify else { return Ok(()) };
        if let Some(file) = self.html {
            let mut out = BufWriter::new(file);
            html::print(&mut out, report, verify)
                .and_then(|()| out.flush())
                .context("the page could not be written")?;
        }
        if let Some(file) = self.csv {
            let mut out = BufWriter::new(file);
            csv::print(&mut out, verify).and_then(|()| out.flush()).context("the table could not be written")?;
        }
        Ok(())
    }
}

/// Runs the verb.
pub fn run(job: &VerifyJob, output: &Output) -> Result<Ending> {
    let stop = interrupt::flag()?;
    let mut survey = Survey::new("verify", &job.trim.scope, Intent::Discard, stop)?;
    print_notes(&survey.notes, output);
    let (mut prepared, endings) = prepare_all(&mut survey, &job.trim);
    if let Some(why) = objection(&prepared) {
        survey.report.errors.push(why.to_owned());
        let ending = endings.first().copied().unwrap_or(Ending::Refused);
        let shown = show(&survey.report, output, text::print);
        return Ok(finish(&mut survey.report, ending, shown, output));
    }
    let files = Files::create(job)?;
    let free = free_of(&prepared);
    let budget = budget(&survey, job, free);
    let shown = show(&survey.report, output, text::print);
    confirm::ask(&question(&survey.report, budget, free, prepared.iter()), job.trim.yes, stop)?;
    if !job.trim.yes {
        survey = unchanged(survey, &job.trim, stop, &mut prepared)?;
    }
    if is_shown(output) {
        survey.report.errors.clear();
    }
    let Some(device) = prepared.pop() else { return Ok(Ending::Refused) };
    let ending = measurement::measure(&mut survey, device, job, budget, output, stop)?;
    let shown = shown & print_measured(&survey.report, output);
    files.write(&survey.report)?;
    Ok(finish(&mut survey.report, ending, shown, output))
}

/// The same for a run that goes on with an ordinary trim: measures, and leaves the result in the survey's report. Tells
/// how it ended, and whether that could be told to the user.
pub fn before_trim(
    survey: &mut Survey,
    prepared: &mut Vec<Prepared>,
    job: &TrimJob,
    output: &Output,
    stop: &AtomicBool,
) -> Result<(Ending, bool)> {
    let free = free_of(prepared);
    let job = VerifyJob::short(job.clone());
    let budget = budget(survey, &job, free);
    let Some(device) = prepared.pop() else { return Ok((Ending::Refused, true)) };
    let ending = measurement::measure(survey, device, &job, budget, output, stop)?;
    let told = print_measured(&survey.report, output);
    Ok((ending, told))
}

/// Why nothing can be measured on what is prepared; none where it can.
pub fn objection(prepared: &[Prepared]) -> Option<&'static str> {
    let on_array = prepared.iter().flat_map(|device| &device.parts).any(|part| part.piece.is_some());
    match (on_array, free_of(prepared), prepared.len()) {
        (true, ..) => Some("test data on one member of an array would make its members differ; nothing was written"),
        (_, 0, _) => Some("there is no free space that is known and can be discarded; nothing was written"),
        (_, _, 1) => None,
        _ => Some("verify measures one drive at a time; nothing was written"),
    }
}

/// Free bytes that are planned.
fn free_of(prepared: &[Prepared]) -> u64 {
    prepared.iter().flat_map(|device| &device.parts).map(|part| part.plan.facts().bytes).sum()
}

fn budget(survey: &Survey, job: &VerifyJob, free: u64) -> u64 {
    let capacity = survey.targets.first().map_or(0, |target| target.disk().map_or(target.size(), |disk| disk.size));
    job.budget.unwrap_or_else(|| job.length.budget(free, capacity))
}

fn print_measured(report: &Report, output: &Output) -> bool {
    let silent = output.quiet || output.json;
    let Some(verify) = report.verify.as_ref().filter(|_| !silent) else { return true };
    told(measured::print(&mut std::io::stdout().lock(), verify, output.paint))
}

fn finish(report: &mut Report, ending: Ending, shown: bool, output: &Output) -> Ending {
    report.sum_up();
    report.exit_code = ending.code();
    if !output.json {
        report
            .errors
            .iter()
            .filter(|_| report.verify.is_some() || output.quiet)
            .for_each(|error| say!("coldtrim: {error}"));
    }
    let told = !output.json || told(super::print_json(report));
    ending.unless_untold(told && shown)
}

fn question<'a>(report: &Report, budget: u64, free: u64, devices: impl Iterator<Item = &'a Prepared>) -> String {
    let names: Vec<&str> =
        devices.filter_map(|device| report.targets.get(device.target)).map(|target| target.name.as_str()).collect();
    format!(
        "This writes up to {} of test data into the {} of free space on {}, and discards all of that free space several \
         times. Files that were deleted there can then no longer be recovered.",
        human::exact(budget),
        human::bytes(free),
        names.join(", ")
    )
}
