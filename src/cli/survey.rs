//! The part that `map` and `trim` share: open the targets, read them in the sandbox, and say what was found.

use super::Ending;
use super::job::{Output, Scope};
use crate::report::{Reason, Report, State, TargetReport, VolumeReport};
use crate::sandbox::{SandboxError, SandboxLayer, read_stack};
use crate::target::{Intent, Target, TargetError};
use anyhow::{Context, Result};
use coldtrim_parsers::stack::{Content, Node, Stack};
use coldtrim_parsers::units::ByteRange;
use coldtrim_parsers::volume::{Consent, Finding, Weight};
use coldtrim_parsers::witness::Testimony;
use std::sync::atomic::AtomicBool;

/// Opened targets and what is on them.
pub struct Survey {
    /// The targets, in the order of the command line.
    pub targets: Vec<Target>,
    /// What was found.
    pub report: Report,
    /// The gaps between partitions, per target, in bytes of the target.
    pub gaps: Vec<Vec<ByteRange>>,
    /// Things to say once that belong to no volume.
    pub notes: Vec<String>,
}

impl Survey {
    /// Opens and claims every target of `scope`, then reads them all.
    pub fn new(command: &'static str, scope: &Scope, intent: Intent, stop: &AtomicBool) -> Result<Self> {
        let targets = scope
            .targets
            .iter()
            .map(|spec| Target::open(spec, intent))
            .collect::<Result<Vec<_>, TargetError>>()?;
        let mut survey = Self { targets, report: Report::new(command), gaps: Vec::new(), notes: Vec::new() };
        survey.read(scope, stop)?;
        Ok(survey)
    }

    /// Reads everything (again) and makes the report anew.
    pub fn read(&mut self, scope: &Scope, stop: &AtomicBool) -> Result<()> {
        let windows = self.targets.iter().map(|target| window(target, scope)).collect::<Result<Vec<_>>>()?;
        let layers = self
            .targets
            .iter()
            .zip(&windows)
            .map(|(target, window)| layer(target, *window))
            .collect::<Result<Vec<_>>>()?;
        let reading = read_stack(layers, &scope.options, stop)?;
        let mut report = Report::new(self.report.command);
        report.targets = self
            .targets
            .iter()
            .enumerate()
            .map(|(index, target)| target_report(target, index, &reading.stack, &scope.accept))
            .collect();
        report.volumes = reading
            .stack
            .nodes
            .into_iter()
            .filter_map(|node| {
                let target = self.targets.get(node.device)?;
                let window = windows.get(node.device)?;
                Some(volume_report(node, target, window.start(), &scope.accept))
            })
            .collect();
        refuse_unusable_targets(&mut report);
        report.sum_up();
        self.gaps = gaps(&reading.stack.tables, &windows);
        self.report = report;
        self.notes = reading.shortfalls;
        Ok(())
    }

    /// The ending that this map would give to a trim that does all it may.
    pub fn ending(&self) -> Ending {
        let count = |state| self.report.volumes.iter().filter(|volume| volume.state == state).count();
        match (count(State::Clean), count(State::Refused)) {
            (_, 0) => Ending::Done,
            (0, _) => Ending::Refused,
            _ => Ending::Partly,
        }
    }
}

/// The bytes of a target that `--offset` and `--size` leave.
fn window(target: &Target, scope: &Scope) -> Result<ByteRange> {
    let size = target.facts().size;
    let end = scope.size.map_or(Some(size), |len| scope.offset.checked_add(len)).filter(|end| *end <= size);
    end.and_then(|end| ByteRange::new(scope.offset, end)).with_context(|| {
        format!("--offset and --size leave the {size} bytes of {}", target.facts().name)
    })
}

fn layer(target: &Target, window: ByteRange) -> Result<SandboxLayer> {
    let file = target.open_for_reading()?;
    Ok(SandboxLayer { file, offset: window.start(), len: window.len(), sector_size: target.facts().sector_size })
}

fn target_report(target: &Target, index: usize, stack: &Stack, accept: &[Consent]) -> TargetReport {
    let facts = target.facts();
    let table = stack.tables.iter().find(|table| table.device == index);
    let warnings = table.iter().flat_map(|table| &table.warnings).map(|text| Finding::warning(text.clone()));
    let findings: Vec<Finding> = target.findings().iter().cloned().chain(warnings).collect();
    TargetReport {
        name: facts.name.clone(),
        path: facts.path.display().to_string(),
        kind: facts.kind_name().to_owned(),
        size: facts.size,
        sector_size: facts.sector_size,
        sector_size_known: !facts.is_image() || table.is_some(),
        disk: facts.disk.as_ref().map(|disk| disk.display().to_string()),
        disk_offset: facts.disk_offset,
        model: facts.model_name(),
        serial: facts.serial.clone(),
        attachment: facts.attachment(),
        table: table.map(|table| table.format.clone()),
        reasons: findings.iter().map(|finding| Reason::new(finding, &facts.name, accept)).collect(),
    }
}

fn volume_report(node: Node, target: &Target, base: u64, accept: &[Consent]) -> VolumeReport {
    let name = target.node_of_partition(node.part.as_ref().map(|part| part.number));
    let offset = base + node.range.start();
    let mut report = VolumeReport {
        target: node.device,
        partition: node.part.map(|part| part.number),
        format: None,
        label: None,
        uuid: None,
        offset,
        size: node.range.len(),
        block_size: None,
        state: State::Refused,
        reasons: Vec::new(),
        free_bytes: 0,
        free_extents: 0,
        witness: "not_heard",
        testimony: Vec::new(),
        ranges: None,
        plan: None,
        route: None,
        route_reason: None,
        outcome: None,
        verdict: None,
        evidence: None,
        within: ByteRange::with_len(offset, node.range.len()),
        free: Vec::new(),
    };
    let reason = |finding: &Finding| Reason::new(finding, &name, accept);
    match node.content {
        Content::Kept { format, reason: why } => {
            report.format = format;
            report.state = State::Kept;
            report.reasons.push(reason(&Finding::warning(why)));
        }
        Content::Refused { format, finding } => {
            report.format = format;
            report.reasons.push(reason(&finding));
        }
        Content::Volume { volume, testimony } => {
            report.format = Some(volume.format);
            report.label = volume.label;
            report.uuid = volume.uuid;
            report.size = volume.size;
            report.block_size = Some(volume.block_size);
            report.reasons = volume.findings.iter().map(reason).collect();
            report.reasons.extend(volume.free.warning().map(|text| reason(&Finding::warning(text))));
            report.free_bytes = volume.free.bytes();
            report.free = volume.free.ranges().iter().filter_map(|range| range.shift_up(offset)).collect();
            report.free_extents = u64::try_from(report.free.len()).unwrap_or(u64::MAX);
            report.witness = witness_word(&testimony);
            report.testimony = testimony;
            let forbidden = report.reasons.iter().any(Reason::forbids);
            report.state = if forbidden { State::Refused } else { State::Clean };
        }
    }
    report
}

fn witness_word(testimony: &[Testimony]) -> &'static str {
    let said = |wanted: fn(&Testimony) -> bool| testimony.iter().any(wanted);
    match () {
        () if said(|t| matches!(t, Testimony::Clash { .. })) => "clash",
        () if said(|t| matches!(t, Testimony::Agrees { .. })) => "agrees",
        () if said(|t| matches!(t, Testimony::Absent { .. })) => "absent",
        () => "not_heard",
    }
}

/// What forbids a device forbids every volume on it.
fn refuse_unusable_targets(report: &mut Report) {
    for volume in report.volumes.iter_mut().filter(|volume| volume.state == State::Clean) {
        let reasons = report.targets.get(volume.target).map(|target| &target.reasons);
        if reasons.is_some_and(|reasons| reasons.iter().any(Reason::forbids)) {
            volume.state = State::Refused;
        }
    }
}

fn gaps(tables: &[coldtrim_parsers::stack::FoundTable], windows: &[ByteRange]) -> Vec<Vec<ByteRange>> {
    let mut gaps = vec![Vec::new(); windows.len()];
    for table in tables {
        if let (Some(list), Some(window)) = (gaps.get_mut(table.device), windows.get(table.device)) {
            list.extend(table.gaps.iter().filter_map(|gap| gap.shift_up(window.start())));
        }
    }
    gaps
}

/// Prints what the user should know that no report has room for.
pub fn print_notes(notes: &[String], output: &Output) {
    if output.verbose {
        notes.iter().for_each(|note| eprintln!("note: {note}"));
    }
}

/// The ending of a run that ended in an error.
pub fn ending_of(error: &anyhow::Error) -> Ending {
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<TargetError>() {
            return if error.is_refusal() { Ending::Refused } else { Ending::Failed };
        }
        if let Some(error) = cause.downcast_ref::<SandboxError>() {
            return match error {
                SandboxError::Interrupted => Ending::Stopped,
                error if error.is_refusal() => Ending::Refused,
                _ => Ending::Failed,
            };
        }
        if cause.is::<super::saved_plan::Differs>() {
            return Ending::Refused;
        }
        if cause.is::<crate::report::formats::FormatError>() || cause.is::<super::job::UsageError>() {
            return Ending::Usage;
        }
    }
    Ending::Failed
}

/// True for a finding that only the given consent lifts.
pub fn lifted_by(finding: &Finding, accept: &[Consent]) -> bool {
    matches!(finding.weight, Weight::Consent(consent) if accept.contains(&consent))
}
