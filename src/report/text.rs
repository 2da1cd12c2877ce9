//! A report for people.

use super::arrays::{ArrayMemberReport, ArrayReport};
use super::{Force, OutcomeReport, PlanReport, Reason, Report, State, TargetReport, VolumeReport, human};
use coldtrim_parsers::text::printable;
use coldtrim_parsers::witness::Testimony;
use std::io::{self, Write};

/// Colours, or none.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    /// True to use colours.
    pub colours: bool,
}

impl Paint {
    fn wrap(self, code: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Headings.
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// All is well.
    pub fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// Look here.
    pub fn warn(self, text: &str) -> String {
        self.wrap("33", text)
    }

    /// Refused or failed.
    pub fn bad(self, text: &str) -> String {
        self.wrap("31", text)
    }
}

/// Prints a tree: a heading with its own lines, then everything that stands on it. Of each, the first line is on a
/// branch and the others are about it.
pub fn print_tree(out: &mut dyn Write, heading: &[String], branches: &[Vec<String>]) -> io::Result<()> {
    heading.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    for (index, lines) in branches.iter().enumerate() {
        let (mut front, under) = if index + 1 == branches.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        for line in lines {
            writeln!(out, "{front}{line}")?;
            front = under;
        }
    }
    Ok(())
}

/// What a [`GapReport`](super::GapReport) is about.
const GAP: &str = "unallocated space (a gap between partitions, extents that no logical volume takes, or swap)";

/// Prints what was found on every target, and what is planned.
pub fn print(out: &mut dyn Write, report: &Report, paint: Paint) -> io::Result<()> {
    for (index, target) in report.targets.iter().enumerate() {
        let volumes = report.volumes.iter().filter(|volume| volume.array.is_none() && volume.target == index);
        let gaps = report.gaps.iter().filter(|gap| gap.target == index);
        let branches: Vec<_> = volumes
            .map(|volume| volume_lines(report, volume, paint))
            .chain(gaps.map(|gap| vec![GAP.to_owned(), format!("  {}", plan_line(&gap.plan))]))
            .collect();
        print_tree(out, &target_lines(target, paint), &branches)?;
    }
    for (index, array) in report.arrays.iter().enumerate() {
        let volumes = report.volumes.iter().filter(|volume| volume.array == Some(index));
        let members = array.members.iter().map(|member| vec![member_line(report, member)]);
        let branches: Vec<_> = members.chain(volumes.map(|volume| volume_lines(report, volume, paint))).collect();
        print_tree(out, &[array_line(array, paint)], &branches)?;
    }
    if report.volumes.len() > 1 {
        let (bytes, extents) = (human::exact(report.free_bytes), human::count(report.free_extents, "extent"));
        writeln!(out, "{} {bytes} in {extents}", paint.bold("free in all:"))?;
    }
    print_errors(out, report, paint)
}

/// Prints what was done, after [`print()`] has shown what was planned.
pub fn print_outcomes(out: &mut dyn Write, report: &Report, paint: Paint) -> io::Result<()> {
    let volumes = report.volumes.iter().filter(|volume| volume.outcome.is_some() || volume.verdict.is_some());
    for volume in volumes {
        let target = printable(report.name_of(volume));
        let place = volume.partition.map_or(String::new(), |number| format!(" partition {number}"));
        writeln!(out, "{}", paint.bold(&format!("{target}{place}")))?;
        if let Some(outcome) = &volume.outcome {
            print_outcome(out, outcome, paint)?;
        }
        let evidence = volume.evidence.as_deref().unwrap_or("none");
        match &volume.verdict {
            Some(verdict) => writeln!(out, "   verdict: {verdict}; evidence: {evidence}")?,
            None => writeln!(out, "   evidence: {evidence}")?,
        }
    }
    for gap in &report.gaps {
        writeln!(out, "{}", paint.bold(GAP))?;
        gap.outcome.iter().try_for_each(|outcome| print_outcome(out, outcome, paint))?;
    }
    if let Some(outcome) = report.outcome.as_ref().filter(|_| report.volumes.len() > 1) {
        let commands = human::count(outcome.commands, "command");
        writeln!(out, "{} {} with {commands}", paint.bold("discarded in all:"), human::exact(outcome.bytes))?;
    }
    print_errors(out, report, paint)
}

fn print_outcome(out: &mut dyn Write, outcome: &OutcomeReport, paint: Paint) -> io::Result<()> {
    let word = if outcome.errors.is_empty() { paint.good("discarded:") } else { paint.warn("discarded:") };
    writeln!(out, "   {word} {} with {}", human::exact(outcome.bytes), human::count(outcome.commands, "command"))?;
    outcome.errors.iter().try_for_each(|error| writeln!(out, "   {} {}", paint.bad("error:"), printable(error)))
}

/// Prints what went wrong.
pub fn print_errors(out: &mut dyn Write, report: &Report, paint: Paint) -> io::Result<()> {
    report.errors.iter().try_for_each(|error| writeln!(out, "{} {}", paint.bad("error:"), printable(error)))
}

fn target_lines(target: &TargetReport, paint: Paint) -> Vec<String> {
    let facts = [
        Some(human::bytes(target.size)),
        target.model.clone(),
        target.serial.as_ref().map(|serial| format!("serial {serial}")),
        target.attachment.clone(),
        target.table.as_ref().map(|table| format!("{} partition table", table.to_uppercase())),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    let mut lines = vec![format!("{}  {}", paint.bold(&printable(&target.name)), facts.join(", "))];
    let reasons = target.reasons.iter().flat_map(|reason| reason_lines(reason, paint));
    lines.extend(reasons.map(|line| format!("  {line}")));
    lines
}

fn array_line(array: &ArrayReport, paint: Paint) -> String {
    let size = human::bytes(array.size);
    format!("{}  {}, {size}, {}", paint.bold(array.title()), array.format, array.uuid)
}

fn member_line(report: &Report, member: &ArrayMemberReport) -> String {
    let target = member.target.and_then(|target| report.targets.get(target)).map(|target| printable(&target.name));
    let below = member.array.and_then(|below| report.arrays.get(below)).map(ArrayReport::title);
    let place = member.partition.map_or(String::new(), |number| format!(" partition {number}"));
    format!("{}: {}{place}", member.role, target.as_deref().or(below).unwrap_or("?"))
}

fn reason_lines(reason: &Reason, paint: Paint) -> Vec<String> {
    let word = match (reason.weight, reason.accepted) {
        (Force::Refusal, _) => paint.bad("refused:"),
        (Force::Consent, false) => paint.bad("needs your consent:"),
        (Force::Consent, true) => paint.warn("accepted:"),
        (Force::Warning, _) => paint.warn("note:"),
    };
    let mut lines = vec![format!("{word} {}", printable(&reason.message))];
    if let (Some(consent), false) = (reason.consent, reason.accepted) {
        lines.push(format!("  to accept that: --accept {consent}"));
    }
    if !reason.remedy.is_empty() {
        lines.push(format!("  next: {}", printable(&reason.remedy)));
    }
    lines
}

/// The volume, then all about it, a little to the right.
fn volume_lines(report: &Report, volume: &VolumeReport, paint: Paint) -> Vec<String> {
    let mut about = Vec::new();
    if volume.state == State::Clean {
        about.push(format!(
            "free: {} in {}, {} %",
            human::exact(volume.free_bytes),
            human::count(volume.free_extents, "extent"),
            human::percent(volume.free_bytes, volume.size)
        ));
    }
    about.extend(volume.reasons.iter().flat_map(|reason| reason_lines(reason, paint)));
    about.extend(volume.testimony.iter().filter_map(|words| witness_line(words, paint)));
    about.extend(volume.plan.iter().flat_map(|plan| plan_lines(report, volume, plan)));
    let mut lines = vec![volume_line(volume, paint)];
    lines.extend(about.iter().map(|line| format!("  {line}")));
    lines
}

fn volume_line(volume: &VolumeReport, paint: Paint) -> String {
    let place = volume.partition.map_or(String::new(), |number| format!("{number}: "));
    let label = volume.label.as_ref().map_or(String::new(), |label| format!(" \"{label}\""));
    let state = match volume.state {
        State::Clean => paint.good(volume.state.word()),
        State::Refused => paint.bad(volume.state.word()),
        State::Kept => volume.state.word().to_owned(),
    };
    let format = volume.format.as_deref().unwrap_or("unknown");
    format!("{place}{format}{label}, {} at byte {}, {state}", human::bytes(volume.size), volume.offset)
}

fn witness_line(words: &Testimony, paint: Paint) -> Option<String> {
    let Testimony::Agrees { witness, owners, extents } = words else { return None };
    let (extents, owners) = (human::count(*extents, "extent"), human::count(*owners, "owner"));
    Some(format!(
        "witness {witness}: {extents} of {owners} (files, folders, the root), {}",
        paint.good("none of it free")
    ))
}

fn plan_lines(report: &Report, volume: &VolumeReport, plan: &PlanReport) -> Vec<String> {
    let route = volume.route.as_deref().unwrap_or("no route");
    let why = volume.route_reason.as_ref().map_or(String::new(), |reason| format!(" ({reason})"));
    let mut lines = vec![format!("{} by {route}{why}", plan_line(plan))];
    for share in &volume.members {
        let extents = human::count(share.plan.extents, "extent");
        let name = report.targets.get(share.target).map_or(String::new(), |target| printable(&target.name));
        lines.push(format!("  on {name}: {} in {extents} by {}", human::exact(share.plan.bytes), share.route));
    }
    if plan.skipped_bytes > 0 {
        let skipped = human::exact(plan.skipped_bytes);
        lines.push(format!("left out by rounding inwards and by the smallest extent: {skipped}"));
    }
    lines
}

fn plan_line(plan: &PlanReport) -> String {
    let (extents, commands) = (human::count(plan.extents, "extent"), human::count(plan.commands, "command"));
    // The first commands are small ones.
    let at_least = if plan.commands > 0 { "at least " } else { "" };
    format!("plan: {} in {extents}, {at_least}{commands}", human::exact(plan.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_volume_hangs_on_its_disk_and_the_last_one_ends_the_branch() {
        let mut report = Report::new("map");
        report.targets = vec![super::super::tests::target("a.img", 4096)];
        report.volumes = vec![VolumeReport::unknown(0, 0, 1024), VolumeReport::unknown(0, 1024, 2048)];
        (report.volumes[0].partition, report.volumes[0].label) = (Some(1), Some("data".to_owned()));
        report.volumes[0].reasons = vec![Reason::warning("it is old")];
        let mut out = Vec::new();
        print(&mut out, &report, Paint { colours: false }).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..4],
            [
                "a.img  4.0 KiB",
                "├─ 1: unknown \"data\", 1.0 KiB at byte 0, refused",
                "│    note: it is old",
                "└─ unknown, 2.0 KiB at byte 1024, refused"
            ]
        );
    }
}
