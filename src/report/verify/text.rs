//! A measurement for people.

use super::{Comparison, NamedPass, RUNGS, VerifyReport, megabytes};
use crate::measure::stats::{real, whole};
use crate::report::human;
use crate::report::text::Paint;
use coldtrim_parsers::text::printable;
use std::io::{self, Write};

/// Prints it.
pub fn print(out: &mut dyn Write, report: &VerifyReport, paint: Paint) -> io::Result<()> {
    let bench = &report.bench;
    if let Some(link) = &bench.link {
        writeln!(out, "{} {link}", paint.bold("way:"))?;
    }
    if let Some(trial) = &report.trial {
        writeln!(out, "{} {}; {}", paint.bold("trial in free space:"), trial.verdict, trial.evidence)?;
    }
    if !report.passes.is_empty() {
        let sequential = report.design.sequential;
        let scattered = report.design.scattered;
        let load = |load: crate::measure::Load| format!("{} x {}", human::bytes(load.size), load.depth);
        writeln!(
            out,
            "{} sequential {}, scattered {}, by {}",
            paint.bold("passes:"),
            load(sequential),
            load(scattered),
            bench.queue
        )?;
    }
    report.passes.iter().try_for_each(|pass| writeln!(out, "  {}", pass_line(pass)))?;
    report.comparison.iter().try_for_each(|comparison| print_comparison(out, comparison))?;
    let word = paint.warn("note:");
    report.notes().iter().try_for_each(|note| writeln!(out, "  {word} {}", printable(note)))?;
    print_account(out, report, paint)?;
    let word = match report.verdict.as_str() {
        works if works.starts_with("works") => paint.good(works),
        "harmful" | "unstable" => paint.bad(&report.verdict),
        other => paint.warn(other),
    };
    let rung = RUNGS.get(usize::from(report.rung)).copied().unwrap_or_default();
    writeln!(out, "{} {word}", paint.bold("verdict:"))?;
    writeln!(out, "  evidence reached: rung {} of {} ({rung})", report.rung, RUNGS.len().saturating_sub(1))?;
    if let Some(reason) = &report.reason {
        writeln!(out, "  reason: {}", printable(reason))?;
    }
    writeln!(out, "  {}", printable(&report.sentence))
}

/// One pass in a line.
fn pass_line(named: &NamedPass) -> String {
    let pass = &named.pass;
    let cache = pass.cache().map_or(String::new(), |knee| {
        let (before, after) = (megabytes(knee.before), megabytes(knee.after));
        format!("; fast for {} at {before}, then {after}", human::bytes(whole(knee.bytes)))
    });
    let steady = if pass.steady { ", steady" } else { "" };
    format!(
        "{:<20} {:<18} {:>10} in {:>6.1} s  {:>12}{steady}{cache}",
        named.name,
        named.what,
        human::bytes(pass.bytes),
        pass.seconds_flushed,
        megabytes(pass.speed()),
    )
}

fn print_comparison(out: &mut dyn Write, comparison: &Comparison) -> io::Result<()> {
    let (pause, after) = (comparison.pause, comparison.pause_after);
    writeln!(out, "  pauses: {pause:.0} s without TRIM, {after:.0} s after it")?;
    if let Some(latency) = &comparison.latency {
        writeln!(
            out,
            "  reads of free space: {:.0} us before, {:.0} us after TRIM; of used space {:.0} and {:.0} us",
            latency.before_us, latency.after_us, latency.used_before_us, latency.used_after_us
        )?;
    }
    Ok(())
}

fn print_account(out: &mut dyn Write, report: &VerifyReport, paint: Paint) -> io::Result<()> {
    let sent = report.sent;
    let free = real(report.bench.slots.bytes).max(1.0);
    let shares = real(sent.written) / free;
    writeln!(
        out,
        "{} {} of test data ({shares:.2} x the free space); {} discarded with {}",
        paint.bold("written:"),
        human::exact(sent.written),
        human::bytes(sent.discarded),
        human::count(sent.commands, "command")
    )?;
    if report.left_bytes > 0 {
        let left = human::bytes(report.left_bytes);
        let word = paint.warn("note:");
        writeln!(out, "  {word} up to {left} of test data are left in free space; `coldtrim trim` discards them")?;
    }
    match &report.harm {
        Some(harm) => writeln!(out, "  {} {}", paint.bad("changed:"), printable(harm)),
        None if report.compared_places > 0 => writeln!(
            out,
            "  {} in use or next to free space were compared before and after: none has changed",
            human::count(crate::measure::stats::count(report.compared_places), "place")
        ),
        None => Ok(()),
    }?;
    if let Some(why) = &report.ended_early {
        writeln!(out, "  {} {}", paint.warn("ended early:"), printable(why))?;
    }
    Ok(())
}
