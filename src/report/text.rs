//! A report for people.

use super::arrays::ArrayReport;
use super::{OutcomeReport, Report, State, TargetReport, VolumeReport, human};
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

/// Prints what was found on every target, and what is planned.
pub fn print(out: &mut dyn Write, report: &Report, paint: Paint) -> io::Result<()> {
    for (index, target) in report.targets.iter().enumerate() {
        print_target(out, target, paint)?;
        for volume in report.volumes.iter().filter(|volume| volume.array.is_none() && volume.target == index) {
            print_volume(out, report, volume, paint)?;
        }
        for gap in report.gaps.iter().filter(|gap| gap.target == index) {
            writeln!(out, "   a gap between partitions: {}", human::exact(gap.plan.bytes))?;
        }
    }
    for (index, array) in report.arrays.iter().enumerate() {
        print_array(out, report, array, paint)?;
        for volume in report.volumes.iter().filter(|volume| volume.array == Some(index)) {
            print_volume(out, report, volume, paint)?;
        }
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
        let target = report.name_of(volume);
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
        writeln!(out, "{}", paint.bold("a gap between partitions"))?;
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
    outcome.errors.iter().try_for_each(|error| writeln!(out, "   {} {error}", paint.bad("error:")))
}

fn print_errors(out: &mut dyn Write, report: &Report, paint: Paint) -> io::Result<()> {
    report.errors.iter().try_for_each(|error| writeln!(out, "{} {error}", paint.bad("error:")))
}

fn print_target(out: &mut dyn Write, target: &TargetReport, paint: Paint) -> io::Result<()> {
    let facts = [
        Some(human::bytes(target.size)),
        target.model.clone(),
        target.serial.as_ref().map(|serial| format!("serial {serial}")),
        target.attachment.clone(),
        target.table.as_ref().map(|table| format!("{} partition table", table.to_uppercase())),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    writeln!(out, "{}  {}", paint.bold(&target.name), facts.join(", "))?;
    print_reasons(out, "  ", &target.reasons, paint)
}

/// An array as a tree: what it is, then what it stands upon.
fn print_array(out: &mut dyn Write, report: &Report, array: &ArrayReport, paint: Paint) -> io::Result<()> {
    let size = human::bytes(array.size);
    writeln!(out, "{}  {}, {size}, {}", paint.bold(array.title()), array.format, array.uuid)?;
    for member in &array.members {
        let target = member.target.and_then(|target| report.targets.get(target)).map(|target| target.name.as_str());
        let below = member.array.and_then(|below| report.arrays.get(below)).map(ArrayReport::title);
        let place = member.partition.map_or(String::new(), |number| format!(" partition {number}"));
        writeln!(out, "   {}: {}{place}", member.role, target.or(below).unwrap_or("?"))?;
    }
    Ok(())
}

fn print_reasons(out: &mut dyn Write, indent: &str, reasons: &[super::Reason], paint: Paint) -> io::Result<()> {
    for reason in reasons {
        let word = match (reason.weight, reason.accepted) {
            ("refusal", _) => paint.bad("refused:"),
            ("consent", false) => paint.bad("needs your consent:"),
            ("consent", true) => paint.warn("accepted:"),
            _ => paint.warn("note:"),
        };
        writeln!(out, "{indent}{word} {}", reason.message)?;
        if let (Some(consent), false) = (reason.consent, reason.accepted) {
            writeln!(out, "{indent}  to accept that: --accept {consent}")?;
        }
        if !reason.remedy.is_empty() {
            writeln!(out, "{indent}  next: {}", reason.remedy)?;
        }
    }
    Ok(())
}

fn print_volume(out: &mut dyn Write, report: &Report, volume: &VolumeReport, paint: Paint) -> io::Result<()> {
    let place = volume.partition.map_or("  ".to_owned(), |number| format!("  {number:>3} "));
    let mut name = volume.format.clone().unwrap_or_else(|| "unknown".to_owned());
    if let Some(label) = &volume.label {
        name = format!("{name} \"{label}\"");
    }
    let state = match volume.state {
        State::Clean => paint.good("clean"),
        State::Refused => paint.bad("refused"),
        State::Kept => "kept".to_owned(),
    };
    writeln!(out, "{place} {name}, {} at byte {}, {state}", human::bytes(volume.size), volume.offset)?;
    if volume.state == State::Clean {
        writeln!(
            out,
            "       free: {} in {}, {} %",
            human::exact(volume.free_bytes),
            human::count(volume.free_extents, "extent"),
            human::percent(volume.free_bytes, volume.size)
        )?;
    }
    print_reasons(out, "       ", &volume.reasons, paint)?;
    print_witness(out, volume, paint)?;
    print_plan(out, report, volume)
}

fn print_witness(out: &mut dyn Write, volume: &VolumeReport, paint: Paint) -> io::Result<()> {
    use coldtrim_parsers::witness::Testimony;
    for words in &volume.testimony {
        if let Testimony::Agrees { witness, owners, extents } = words {
            writeln!(
                out,
                "       witness {witness}: {} in {}, {}",
                human::count(*extents, "extent"),
                human::count(*owners, "file"),
                paint.good("none of it free")
            )?;
        }
    }
    Ok(())
}

fn print_plan(out: &mut dyn Write, report: &Report, volume: &VolumeReport) -> io::Result<()> {
    if let Some(plan) = &volume.plan {
        let route = volume.route.as_deref().unwrap_or("no route");
        writeln!(
            out,
            "       plan: {} in {}, {} by {route}{}",
            human::exact(plan.bytes),
            human::count(plan.extents, "extent"),
            human::count(plan.commands, "command"),
            volume.route_reason.as_ref().map_or(String::new(), |reason| format!(" ({reason})"))
        )?;
        for share in &volume.members {
            let extents = human::count(share.plan.extents, "extent");
            let name = report.targets.get(share.target).map_or("", |target| target.name.as_str());
            writeln!(out, "         on {name}: {} in {extents} by {}", human::exact(share.plan.bytes), share.route)?;
        }
        if plan.skipped_bytes > 0 {
            writeln!(
                out,
                "       left out by rounding inwards and by the smallest extent: {}",
                human::exact(plan.skipped_bytes)
            )?;
        }
    }
    Ok(())
}
