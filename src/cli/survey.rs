//! The part that `map` and `trim` share: open the targets, read them in the sandbox, and say what was found.

use super::arrays::Arrays;
use super::below::Below;
use super::confirm::Unanswered;
use super::job::{Output, Scope, UsageError};
use super::{Ending, device, layout, past};
use crate::memory::Past;
use crate::report::arrays::ArrayReport;
use crate::report::{Reason, Report, State, TargetReport, VolumeReport};
use crate::sandbox::{SandboxError, SandboxLayer, read_stack};
use crate::target::{Identity, Intent, Opener, Target, TargetError};
use anyhow::Result;
use coldtrim_parsers::array::{Mapping, mention};
use coldtrim_parsers::stack::{Content, FoundArray, FoundTable, Node, Options, Stack, WitnessMode};
use coldtrim_parsers::text::quoted;
use coldtrim_parsers::units::ByteRange;
use coldtrim_parsers::volume::{Consent, Finding};
use coldtrim_parsers::witness::Testimony;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Opened targets and what is on them.
pub struct Survey {
    /// The targets, in the order of the command line.
    pub targets: Vec<Target>,
    /// What was found.
    pub report: Report,
    /// The gaps between partitions, per target, in bytes of the target.
    pub gaps: Vec<Vec<ByteRange>>,
    /// Why there are none, per target, where the table shows some.
    pub no_gaps: Vec<Option<String>>,
    /// Where the bytes of each array lie.
    pub mappings: Vec<Mapping>,
    /// Things to say once that belong to no volume.
    pub notes: Vec<String>,
    /// What lies below the targets that device-mapper makes; those devices are targets behind the named ones.
    below: Below,
    /// What earlier tests found, per target.
    pub pasts: Vec<Past>,
}

impl Survey {
    /// Opens and claims every target of `scope`, then reads them all.
    pub fn new(command: &'static str, scope: &Scope, intent: Intent, stop: &AtomicBool) -> Result<Self> {
        names_are_distinct(&scope.targets)?;
        let mut opener = Opener::default();
        let open = |spec| opener.open(spec, intent, &identify);
        let mut targets =
            scope.targets.iter().map(String::as_str).map(open).collect::<Result<Vec<_>, TargetError>>()?;
        places_are_distinct(&targets, &scope.targets)?;
        let below = if scope.below { Below::open(&mut opener, &mut targets, intent)? } else { Below::default() };
        if let Some((one, other)) = below.shared() {
            return Err(UsageError::Twice(scope.targets[one].clone(), scope.targets[other].clone()).into());
        }
        let (pasts, unread): (Vec<Past>, Vec<Vec<String>>) = targets.iter().map(past::of).unzip();
        let (report, gaps, no_gaps) = (Report::new(command), Vec::new(), Vec::new());
        let (mappings, notes) = (Vec::new(), Vec::new());
        let mut survey = Self { targets, report, gaps, no_gaps, mappings, notes, below, pasts };
        survey.read(scope, stop)?;
        survey.notes.extend(unread.into_iter().flatten());
        survey.has_partitions(scope)?;
        Ok(survey)
    }

    /// An error when a target does not have a partition that the user named, nor an array that it is a member of: all of it
    /// was not meant.
    fn has_partitions(&self, scope: &Scope) -> Result<(), UsageError> {
        let is_on = |volume: &VolumeReport, target| match volume.array {
            None => volume.target == target,
            Some(array) => stands_on(&self.report.arrays, array, target),
        };
        for (target, name) in scope.targets.iter().enumerate() {
            let has = |number: u32| {
                self.report.volumes.iter().any(|volume| volume.partition == Some(number) && is_on(volume, target))
            };
            if let Some(number) = scope.options.partitions.iter().find(|number| !has(**number)) {
                return Err(UsageError::NoPartition(name.clone(), *number));
            }
        }
        Ok(())
    }

    /// Reads everything (again) and makes the report anew.
    pub fn read(&mut self, scope: &Scope, stop: &AtomicBool) -> Result<()> {
        self.targets.iter().try_for_each(Target::drop_caches)?;
        self.targets.iter_mut().for_each(Target::note_writes);
        let named = &self.targets[..scope.targets.len()];
        let mut windows = named.iter().map(|target| layout::window(target, scope, stop)).collect::<Result<Vec<_>>>()?;
        let layers =
            named.iter().zip(&windows).map(|(target, window)| layer(target, *window)).collect::<Result<Vec<_>>>()?;
        // The devices below are looked at as a whole.
        windows.extend(self.targets[named.len()..].iter().filter_map(|target| ByteRange::with_len(0, target.size())));
        let around = self.targets.iter().zip(&windows);
        let strange = around
            .map(|(target, window)| layout::objections(target, *window, stop))
            .collect::<Result<Vec<Vec<Finding>>>>()?;
        windows.truncate(named.len());
        let reading = read_stack(layers, &scope.options, stop)?;
        let mut stack = reading.stack;
        let mut nodes = std::mem::take(&mut stack.nodes);
        name_mentioned(&mut nodes, &self.targets);
        let arrays = Arrays::new(&stack, &windows, &self.below);
        let mut report = Report::new(self.report.command);
        report.targets = self.target_reports(scope, strange, &stack, &nodes);
        report.arrays = arrays.reports();
        let mut gaps = gaps(&stack.tables, &nodes, &arrays, self.targets.len(), scope);
        for (target, list) in gaps.iter_mut().enumerate() {
            let leads_there = |top: &usize| self.below.lower(*top).is_some_and(|lower| lower.bounds(target).is_some());
            let mut parts = (0..report.targets.len()).filter(|index| *index == target || leads_there(index));
            if parts.any(|index| report.targets[index].is_forbidden()) {
                list.clear();
            }
        }
        report.volumes = nodes
            .into_iter()
            .filter_map(|node| match arrays.index(node.device) {
                None => {
                    let start = windows.get(node.device)?.start();
                    let target = self.targets.get(node.device)?;
                    let name = name_of(target, node.part.as_ref().map(|part| part.number), start + node.range.start());
                    let mut volume = volume_report(node, (name, target), start, &scope.accept);
                    place_below(&mut volume, &arrays, scope);
                    Some(volume)
                }
                Some(index) => {
                    let first = arrays.first_target(node.device);
                    let target = self.targets.get(first)?;
                    let name = name_on_array(stack.arrays.get(index)?, &node, target);
                    let mut volume = volume_report(node, (name, target), 0, &scope.accept);
                    volume.target = first;
                    place_on_array(&mut volume, index, &arrays, scope);
                    Some(volume)
                }
            })
            .collect();
        refuse_unusable_targets(&mut report);
        report.sum_up();
        self.mappings = arrays.mappings();
        self.gaps = gaps;
        self.no_gaps = (0..self.targets.len()).map(|target| stack.table(target)?.no_gaps.clone()).collect();
        self.report = report;
        self.notes = reading.shortfalls;
        Ok(())
    }

    /// The named targets, then the devices below those that device-mapper makes.
    fn target_reports(
        &self,
        scope: &Scope,
        strange: Vec<Vec<Finding>>,
        stack: &Stack,
        nodes: &[Node],
    ) -> Vec<TargetReport> {
        let of = |(index, (target, mut strange)): (usize, (&Target, Vec<Finding>))| {
            let is_named = index < scope.targets.len();
            let own: Vec<&str> = nodes
                .iter()
                .filter(|node| is_named && node.device == index)
                .flat_map(said)
                .map(|finding| finding.message.as_str())
                .collect();
            strange.retain(|finding| !own.contains(&finding.message.as_str()));
            strange.extend(self.below.findings(index, &self.targets));
            match scope.targets.get(index) {
                Some(spec) => target_report(target, spec, strange, stack.table(index), &scope.accept),
                None => target_report(target, &target.path().display().to_string(), strange, None, &scope.accept),
            }
        };
        self.targets.iter().zip(strange).enumerate().map(of).collect()
    }

    /// The ending that this map would give to a trim that does all it may.
    pub fn ending(&self) -> Ending {
        let clean = self.report.volumes.iter().filter(|volume| volume.state == State::Clean).count();
        match (clean, self.report.refusals()) {
            (_, 0) => Ending::Done,
            (0, _) => Ending::Refused,
            _ => Ending::Partly,
        }
    }
}

/// True when a member of the array is the target or on it, also through another array.
fn stands_on(arrays: &[ArrayReport], array: usize, target: usize) -> bool {
    arrays.get(array).is_some_and(|array| {
        let mut members = array.members.iter();
        members.any(|member| {
            member.target == Some(target) || member.array.is_some_and(|below| stands_on(arrays, below, target))
        })
    })
}

/// Two names of one file would lock each other out; found before either is opened.
fn names_are_distinct(names: &[String]) -> Result<(), UsageError> {
    let mut seen: Vec<((u64, u64), &String)> = Vec::new();
    for name in names {
        let Ok(metadata) = std::fs::metadata(name) else { continue };
        let key = if metadata.is_file() { (metadata.dev(), metadata.ino()) } else { (u64::MAX, metadata.rdev()) };
        if let Some((_, other)) = seen.iter().find(|(there, _)| *there == key) {
            return Err(UsageError::Twice((*other).clone(), name.clone()));
        }
        seen.push((key, name));
    }
    Ok(())
}

/// A disk and its partition are the same bytes, too.
fn places_are_distinct(targets: &[Target], names: &[String]) -> Result<(), UsageError> {
    let place = |target: &Target| Some((target.disk()?.number, target.range_on_disk()?));
    for (index, (one, name)) in targets.iter().zip(names).enumerate() {
        for (other, other_name) in targets.iter().zip(names).skip(index + 1) {
            if let (Some((disk, range)), Some((other_disk, other_range))) = (place(one), place(other))
                && disk == other_disk
                && range.overlaps(other_range)
            {
                return Err(UsageError::Twice(name.clone(), other_name.clone()));
            }
        }
    }
    Ok(())
}

fn layer(target: &Target, window: ByteRange) -> Result<SandboxLayer> {
    let file = target.reader()?;
    Ok(SandboxLayer { file, offset: window.start(), len: window.len(), sector_size: target.logical_sector() })
}

/// What lies on a node, by looking at it.
pub fn identify(node: &Path) -> Option<Identity> {
    let file = std::fs::File::open(node).ok()?;
    let len = (&file).seek(SeekFrom::End(0)).ok()?;
    let layer = SandboxLayer { file, offset: 0, len, sector_size: 512 };
    let options = Options { witness: WitnessMode::Never, ..Options::default() };
    let stack = read_stack(vec![layer], &options, &AtomicBool::new(false)).ok()?.stack;
    let Some(table) = stack.table(0) else { return stack.nodes.into_iter().next().map(identity) };
    let format = Some(table.format.clone());
    let within =
        stack.nodes.into_iter().filter_map(|node| Some((node.part.as_ref()?.number, identity(node)))).collect();
    Some(Identity { format, within, ..Identity::default() })
}

fn identity(node: Node) -> Identity {
    match node.content {
        Content::Volume { volume, .. } => {
            Identity { format: Some(volume.format), label: volume.label, uuid: volume.uuid, ..Identity::default() }
        }
        Content::Refused { format, .. } | Content::Kept { format, .. } => Identity { format, ..Identity::default() },
    }
}

fn target_report(
    target: &Target,
    spec: &str,
    strange: Vec<Finding>,
    table: Option<&FoundTable>,
    accept: &[Consent],
) -> TargetReport {
    let warnings = table.iter().flat_map(|table| &table.warnings).map(|text| Finding::warning(text.clone()));
    let findings: Vec<Finding> = target.findings().into_iter().chain(strange).chain(warnings).collect();
    let node = target.path().display().to_string();
    let disk = target.disk();
    TargetReport {
        name: spec.to_owned(),
        kind: device::kind(target).to_owned(),
        size: target.size(),
        // A device counts in its own sectors, whatever it showed when the table was made.
        sector_size: table.filter(|_| disk.is_none()).map_or(target.logical_sector(), |table| table.sector_size),
        sector_size_known: disk.is_some() || table.is_some(),
        disk: disk.map(|disk| disk.node.display().to_string()),
        disk_offset: target.range_on_disk().map_or(0, ByteRange::start),
        model: disk.and_then(device::model),
        serial: disk.and_then(|disk| disk.serial.clone()),
        attachment: disk.and_then(device::attachment),
        table: table.map(|table| table.format.clone()),
        reasons: findings.iter().map(|finding| Reason::new(finding, &quoted(&node), accept)).collect(),
        path: node,
    }
}

/// The report on a node that commands can name as `name`, on `target`; its device begins at byte `base` of what positions
/// are counted on.
fn volume_report(node: Node, (name, target): (String, &Target), base: u64, accept: &[Consent]) -> VolumeReport {
    let offset = base + node.range.start();
    let mut report = VolumeReport::unknown(node.device, offset, node.range.len());
    report.partition = node.part.map(|part| part.number);
    let disk = quoted(&target.disk().map_or(target.path(), |disk| &disk.node).to_string_lossy());
    let reason = |finding: &Finding| {
        let remedy = finding.remedy.replace("DISK", &disk);
        Reason::new(&Finding { remedy, ..finding.clone() }, &name, accept)
    };
    match node.content {
        Content::Kept { format, reason: why, .. } => {
            report.format = format;
            report.state = State::Kept;
            report.reasons.push(reason(&Finding::warning(why)));
        }
        Content::Refused { format, finding, is_unknown } => {
            report.format = format;
            report.is_unknown = is_unknown;
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

/// What was found about an area.
fn said(node: &Node) -> &[Finding] {
    match &node.content {
        Content::Volume { volume, .. } => &volume.findings,
        Content::Refused { finding, .. } => std::slice::from_ref(finding),
        Content::Kept { .. } => &[],
    }
}

/// Carries the free space of a volume on an array down to the targets, and adds what forbids that.
fn place_on_array(volume: &mut VolumeReport, index: usize, arrays: &Arrays<'_>, scope: &Scope) {
    volume.array = Some(index);
    if volume.state == State::Kept {
        return;
    }
    let mut found = arrays.objections(index, scope);
    found.extend(arrays.carry_down(index, volume.free.clone(), &mut volume.grounds).err().map(not_carried));
    if let Some(member) = scope.member.as_ref().and_then(|name| scope.targets.iter().position(|target| target == name))
    {
        volume.grounds.iter_mut().for_each(|ground| ground.pieces.retain(|piece| piece.target == member));
    }
    object(volume, &found, scope);
}

/// The same for a volume on a target that device-mapper makes of others.
fn place_below(volume: &mut VolumeReport, arrays: &Arrays<'_>, scope: &Scope) {
    let Some(index) = arrays.mapping_of(volume.target) else { return };
    volume.array = Some(index);
    let fault = arrays.carry_below(volume.target, &volume.free, &mut volume.grounds).err();
    object(volume, &fault.map(not_carried).into_iter().collect::<Vec<_>>(), scope);
}

fn not_carried(fault: String) -> Finding {
    let message = format!("its free space could not be carried to the devices below: {fault}");
    Finding::refusal(message, "this is a fault in coldtrim, please report it")
}

/// Adds what forbids a volume.
fn object(volume: &mut VolumeReport, found: &[Finding], scope: &Scope) {
    volume.reasons.extend(found.iter().map(|finding| Reason::new(finding, "DEVICE", &scope.accept)));
    if volume.state == State::Clean && volume.reasons.iter().any(Reason::forbids) {
        volume.state = State::Refused;
    }
}

/// Puts names into messages in place of the numbers by which the reader knows members.
fn name_mentioned(nodes: &mut [Node], targets: &[Target]) {
    let name = |node: &Node| {
        let path = targets.get(node.device)?.path().display();
        let place = node.part.as_ref().map_or(String::new(), |part| format!(" partition {}", part.number));
        Some((mention(node.device, node.range.start()), format!("{path}{place}")))
    };
    let names: Vec<(String, String)> = nodes.iter().filter_map(name).collect();
    for node in nodes {
        let findings = match &mut node.content {
            Content::Volume { volume, .. } => volume.findings.as_mut_slice(),
            Content::Refused { finding, .. } => std::slice::from_mut(finding),
            Content::Kept { .. } => &mut [],
        };
        for finding in findings {
            for (number, name) in &names {
                finding.message = finding.message.replace(number, name);
            }
        }
    }
}

/// What to put for DEVICE into a command, quoted for a shell: the node of the partition, or what attaches it where there is none.
fn name_of(target: &Target, partition: Option<u32>, offset: u64) -> String {
    let path = quoted(&target.path().to_string_lossy());
    match partition {
        _ if target.disk().is_some() => quoted(&target.node_of_partition(partition).to_string_lossy()),
        Some(number) => format!("\"$(losetup --find --show -P {path})p{number}\""),
        None if offset > 0 => format!("\"$(losetup --find --show --offset {offset} {path})\""),
        None => path,
    }
}

/// The same for what lies on an array: a logical volume has a name of its own, once it is activated.
fn name_on_array(array: &FoundArray, node: &Node, target: &Target) -> String {
    match &array.name {
        Some(name) if array.pool.is_some() => format!("/dev/{name}"),
        _ => name_of(target, node.part.as_ref().map(|part| part.number), node.range.start()),
    }
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

/// What forbids a device forbids every volume on it. What would help the volume has to wait: a repair of a filesystem
/// that is mounted destroys it.
fn refuse_unusable_targets(report: &mut Report) {
    let forbidden = |target: &usize| report.targets.get(*target).filter(|target| target.is_forbidden());
    for volume in &mut report.volumes {
        let pieces = volume.grounds.iter().flat_map(|ground| &ground.pieces).map(|piece| piece.target);
        let Some(target) = pieces.chain([volume.target]).find_map(|target| forbidden(&target)) else { continue };
        volume.state = State::Refused;
        for reason in volume.reasons.iter_mut().filter(|reason| reason.forbids()) {
            reason.remedy = format!("see to what forbids {} first, then look again", target.name);
        }
    }
}

/// What is free on every target when the user asks for unallocated space: the gaps between partitions, and what nobody
/// needs of an area that is kept. Whoever names partitions means those, and nothing between them.
fn gaps(
    tables: &[FoundTable],
    nodes: &[Node],
    arrays: &Arrays<'_>,
    targets: usize,
    scope: &Scope,
) -> Vec<Vec<ByteRange>> {
    let between = tables
        .iter()
        .filter(|_| scope.options.partitions.is_empty())
        .flat_map(|table| table.gaps.iter().map(|gap| (table.device, *gap)));
    let spare = nodes.iter().flat_map(|node| {
        let spare = if let Content::Kept { spare, .. } = &node.content { spare.as_slice() } else { &[] };
        spare.iter().filter_map(|range| Some((node.device, range.shift_up(node.range.start())?)))
    });
    let mut gaps = vec![Vec::new(); targets];
    for (target, range) in between.chain(spare).flat_map(|(device, range)| arrays.carry_spare(device, range)) {
        if let Some(list) = gaps.get_mut(target) {
            list.push(range);
        }
    }
    gaps.iter_mut().for_each(|list: &mut Vec<ByteRange>| list.sort_unstable());
    gaps
}

/// Says on standard error what was refused and what went wrong, where standard output has no room for it.
pub fn complain(report: &Report) {
    for volume in report.volumes.iter().filter(|volume| volume.state == State::Refused) {
        let target = report.targets.get(volume.target);
        let name = report.name_of(volume);
        let reasons = volume.reasons.iter().chain(target.iter().flat_map(|target| &target.reasons));
        let place = volume.partition.map_or(String::new(), |number| format!(" partition {number}"));
        reasons.for_each(|reason| complain_of(&format!("{name}{place}"), reason));
    }
    // A gap, or a device below a mapping, has no volume that could say it.
    let refused = |index: usize| report.volumes.iter().any(|v| v.target == index && v.state == State::Refused);
    for (_, target) in report.targets.iter().enumerate().filter(|(index, _)| !refused(*index)) {
        target.reasons.iter().for_each(|reason| complain_of(&target.name, reason));
    }
    report.errors.iter().for_each(|error| say!("coldtrim: {error}"));
}

fn complain_of(name: &str, reason: &Reason) {
    if reason.forbids() {
        say!("coldtrim: {name}: refused: {}", reason.message);
        if !reason.remedy.is_empty() {
            say!("  next: {}", reason.remedy);
        }
    }
}

/// Prints what the user should know that no report has room for.
pub fn print_notes(notes: &[String], output: &Output) {
    if output.verbose {
        notes.iter().for_each(|note| say!("note: {note}"));
    }
}

/// The ending of a run that ended in an error.
pub fn ending_of(error: &anyhow::Error) -> Ending {
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<TargetError>() {
            return match error {
                error if error.is_refusal() => Ending::Refused,
                error if error.is_usage() => Ending::Usage,
                _ => Ending::Failed,
            };
        }
        if let Some(error) = cause.downcast_ref::<SandboxError>() {
            return match error {
                SandboxError::Interrupted => Ending::Stopped,
                error if error.is_refusal() => Ending::Refused,
                _ => Ending::Failed,
            };
        }
        if let Some(error) = cause.downcast_ref::<Unanswered>() {
            return match error {
                Unanswered::NoTerminal => Ending::Usage,
                Unanswered::No => Ending::Stopped,
            };
        }
        if cause.is::<super::saved_plan::Differs>() || cause.is::<super::probe::Refused>() {
            return Ending::Refused;
        }
        if cause.is::<crate::report::formats::FormatError>() || cause.is::<UsageError>() {
            return Ending::Usage;
        }
    }
    Ending::Failed
}
