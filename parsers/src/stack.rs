//! From devices down to volumes: which table, which partition, which filesystem, and what it calls free.

use crate::container::{CONTAINERS, Container, Part, Table};
use crate::error::{ErrorKind, ParseError};
use crate::foreign::{FOREIGN, Foreign, Meaning, has_bytes};
use crate::fs::{FORMATS, Format};
use crate::pages::Pages;
use crate::source::{Source, Window};
use crate::units::ByteRange;
use crate::volume::{Consent, Finding, Volume};
use crate::witness::{Testimony, Witness, hear};
use serde::{Deserialize, Serialize};

/// One device or image to look at.
#[derive(Clone, Copy)]
pub struct Layer<'a> {
    /// Its bytes.
    pub source: &'a dyn Source,
    /// Its logical sector size in bytes.
    pub sector_size: u64,
}

/// When to hear a second witness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WitnessMode {
    /// The complete ones, where nothing else protects the map ([`Format::needs_witness`]).
    #[default]
    WhereNeeded,
    /// Every one that a format has.
    Always,
    /// Not at all.
    Never,
}

/// What to look for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// When to hear a witness.
    pub witness: WitnessMode,
    /// Only these partition numbers; empty means all.
    pub partitions: Vec<u32>,
    /// The format that the user expects: anything else is refused.
    pub expect: Option<String>,
}

impl Options {
    /// True when the partition with this number is to be looked at.
    fn wants(&self, number: u32) -> bool {
        self.partitions.is_empty() || self.partitions.contains(&number)
    }
}

/// Everything that was found, in the order of devices and positions.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Stack {
    /// The partition tables.
    pub tables: Vec<FoundTable>,
    /// The volumes, refused and kept areas.
    pub nodes: Vec<Node>,
}

/// A partition table on a device.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FoundTable {
    /// Index of the device.
    pub device: usize,
    /// Name of the format (`gpt`).
    pub format: String,
    /// Bytes of one LBA as the table counts.
    pub sector_size: u64,
    /// Areas of the device outside every partition that may be discarded when the user asks for it (never the
    /// table itself, boot code or the first MiB).
    pub gaps: Vec<ByteRange>,
    /// Remarks that forbid nothing.
    pub warnings: Vec<String>,
}

/// One volume, or an area that was refused or left alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Node {
    /// Index of the device.
    pub device: usize,
    /// Its bytes on the device.
    pub range: ByteRange,
    /// The partition that holds it.
    pub part: Option<Part>,
    /// What is there.
    pub content: Content,
}

/// What an area holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// A filesystem that could be read. Its findings may still forbid its use.
    Volume {
        /// The facts.
        volume: Box<Volume>,
        /// What the witnesses said, if any was heard.
        testimony: Vec<Testimony>,
    },
    /// Nothing here may be trimmed.
    Refused {
        /// The format, where one was recognised.
        format: Option<String>,
        /// Why, and what helps.
        finding: Finding,
    },
    /// Left alone by design: no filesystem is expected here.
    Kept {
        /// The format, where one was recognised.
        format: Option<String>,
        /// Why.
        reason: String,
    },
}

/// Reads everything on `layers`. Never fails: what cannot be read is a refused node.
pub fn read(layers: &[Layer<'_>], options: &Options) -> Stack {
    let mut stack = Stack::default();
    let mut leaves = Vec::new();
    let mut asleep = Vec::new();
    for (device, layer) in layers.iter().enumerate() {
        let first = leaves.len();
        discover(device, *layer, &mut stack, &mut leaves);
        if leaves.iter().skip(first).any(|leaf| is_asleep(layer.source, leaf.range)) {
            asleep.push(device);
        }
    }
    leaves.retain(|leaf| leaf.part.as_ref().is_none_or(|part| options.wants(part.number)));
    let windows: Vec<Option<Window<'_>>> = leaves
        .iter()
        .map(|leaf| layers.get(leaf.device).and_then(|layer| Window::new(layer.source, leaf.range)))
        .collect();
    for (index, leaf) in leaves.iter().enumerate() {
        let companions: Vec<&dyn Source> = windows
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != index)
            .filter_map(|(_, window)| window.as_ref().map(|w| -> &dyn Source { w }))
            .collect();
        let content = match windows.get(index).and_then(Option::as_ref) {
            Some(window) => read_leaf(leaf, window, &companions, options),
            None => refused(None, "the partition passes the end of its device", "check the table: fdisk -l DEVICE"),
        };
        stack.nodes.push(Node { device: leaf.device, range: leaf.range, part: leaf.part.clone(), content });
    }
    stack.nodes.sort_by_key(|node| (node.device, node.range));
    asleep.iter().for_each(|device| stack.leave_alone(*device));
    stack
}

impl Stack {
    /// Forbids everything on a device with a suspend image: the sleeping system has its filesystems mounted.
    fn leave_alone(&mut self, device: usize) {
        self.tables.iter_mut().filter(|table| table.device == device).for_each(|table| table.gaps.clear());
        for node in self.nodes.iter_mut().filter(|node| node.device == device) {
            if let Content::Volume { volume, .. } = &mut node.content {
                volume.findings.push(Finding::refusal(
                    "the disk holds the suspend image of a sleeping system, to which this volume may still be mounted",
                    "start that system and shut it down, then try again",
                ));
            }
        }
    }
}

/// True when `range` of the device holds the memory of a sleeping system. Unreadable areas are refused elsewhere.
fn is_asleep(device: &dyn Source, range: ByteRange) -> bool {
    let mut rows = FOREIGN.iter().filter(|row| row.meaning == Meaning::SleepingSystem);
    Window::new(device, range).is_some_and(|area| rows.any(|row| row.probe(&area).unwrap_or(false)))
}

/// An area that no table divides further.
struct Leaf {
    device: usize,
    range: ByteRange,
    part: Option<Part>,
    /// Bytes in a sector of the device.
    sector_size: u64,
    /// What was found on the device around it.
    findings: Vec<Finding>,
}

/// What claims to live in an area.
#[derive(Clone, Copy)]
enum Claim {
    Container(&'static dyn Container),
    Format(&'static dyn Format),
    Foreign(&'static Foreign),
}

impl Claim {
    fn name(&self) -> &'static str {
        match self {
            Self::Container(row) => row.name(),
            Self::Format(row) => row.name(),
            Self::Foreign(row) => row.name,
        }
    }
}

/// Every row of every table whose signature is there.
fn claims(source: &dyn Source, sector_size: Option<u64>) -> Result<Vec<Claim>, ParseError> {
    // Most signatures lie in the same few pages at both ends.
    let source = &Pages::new(source);
    let mut found = Vec::new();
    for row in CONTAINERS {
        if let Some(sector_size) = sector_size
            && row.probe(source, sector_size)?
        {
            found.push(Claim::Container(*row));
        }
    }
    for row in FORMATS {
        if row.probe(source)? {
            found.push(Claim::Format(*row));
        }
    }
    for row in FOREIGN {
        if row.probe(source)? {
            found.push(Claim::Foreign(row));
        }
    }
    Ok(found)
}

fn discover(device: usize, layer: Layer<'_>, stack: &mut Stack, leaves: &mut Vec<Leaf>) {
    let Some(whole) = ByteRange::with_len(0, layer.source.len()) else {
        return;
    };
    let sector_size = layer.sector_size;
    let found = claims(layer.source, Some(sector_size)).map(set_records_apart);
    let Ok(([Claim::Container(row)], records)) = found.as_ref().map(|(rest, records)| (rest.as_slice(), records))
    else {
        // Not (only) a table: the leaf is judged, and an ambiguity named, when it is read.
        leaves.push(Leaf { device, range: whole, part: None, sector_size, findings: Vec::new() });
        return;
    };
    match row.read(layer.source, sector_size) {
        Ok(table) => {
            for part in &table.parts {
                let findings = records.iter().map(|row| stale_records(row)).collect();
                leaves.push(Leaf { device, range: part.range, part: Some(part.clone()), sector_size, findings });
            }
            let mut table = found_table(device, whole, row.name(), table);
            if !records.is_empty() {
                table.gaps.clear(); // what no partition owns may be the RAID's
            }
            stack.tables.push(table);
        }
        Err(error) => stack.nodes.push(Node {
            device,
            range: whole,
            part: None,
            content: refused_by_error(row.name(), &error, "check the table: sfdisk --verify DEVICE"),
        }),
    }
}

fn found_table(device: usize, whole: ByteRange, format: &str, table: Table) -> FoundTable {
    FoundTable {
        device,
        format: format.to_owned(),
        sector_size: table.sector_size,
        gaps: gaps(whole, &table),
        warnings: table.warnings,
    }
}

/// The first MiB and everything before the first partition hold boot code that no table mentions (GRUB's core image,
/// boards' boot loaders up to 16 MiB in); the last MiB is where RAID and volume managers keep their records.
const MIB: u64 = 1 << 20;

/// The areas of a device that belong to no partition, without the table, boot code and records at the end.
fn gaps(whole: ByteRange, table: &Table) -> Vec<ByteRange> {
    let mut taken: Vec<ByteRange> =
        table.parts.iter().map(|part| part.range).chain(table.reserved.iter().copied()).collect();
    let first = table.parts.iter().map(|part| part.range.start()).min().unwrap_or(0);
    taken.extend(ByteRange::new(0, first.max(MIB)));
    taken.extend(ByteRange::new(whole.end().saturating_sub(MIB), whole.end()));
    taken.sort_unstable();
    let mut gaps = Vec::new();
    let mut end = 0;
    for range in taken {
        gaps.extend(ByteRange::new(end, range.start().min(whole.end())));
        end = end.max(range.end());
    }
    gaps.extend(ByteRange::new(end, whole.end()));
    gaps
}

fn read_leaf(leaf: &Leaf, source: &Window<'_>, companions: &[&dyn Source], options: &Options) -> Content {
    if let Some(part) = &leaf.part {
        if let Some(reason) = &part.kept {
            return Content::Kept { format: None, reason: reason.clone() };
        }
        if let Some(reason) = &part.refused {
            return refused(None, reason.clone(), "");
        }
    }
    // Inside a partition no further table is looked for.
    let sector_size = leaf.part.is_none().then_some(leaf.sector_size);
    let found = match claims(source, sector_size) {
        Ok(found) => found,
        Err(error) => {
            return refused_by_error("the area", &error, "copy the drive first: ddrescue DEVICE IMAGE MAPFILE");
        }
    };
    let (found, records) = set_records_apart(found);
    match found.as_slice() {
        [] => refused(
            None,
            "no known filesystem was found, and unknown data is never free",
            "look at it with: blkid -p DEVICE",
        ),
        [Claim::Format(format)] => {
            let mut findings = leaf.findings.clone();
            findings.extend(records.iter().map(|row| stale_records(row)));
            read_volume(*format, source, companions, options, findings)
        }
        [Claim::Foreign(row)] if row.meaning == Meaning::Kept => {
            Content::Kept { format: Some(row.name.to_owned()), reason: row.advice.to_owned() }
        }
        [Claim::Foreign(row)] => {
            refused(Some(row.name), format!("{} is recognised, but not trimmed by coldtrim", row.name), row.advice)
        }
        several => ambiguous(several),
    }
}

/// Takes the records of firmware RAIDs out, unless there is nothing else: a user may say that they are stale.
fn set_records_apart(found: Vec<Claim>) -> (Vec<Claim>, Vec<&'static Foreign>) {
    let is_record = |claim: &Claim| matches!(claim, Claim::Foreign(row) if row.meaning == Meaning::RaidRecords);
    let (records, rest): (Vec<Claim>, Vec<Claim>) = found.into_iter().partition(is_record);
    if rest.is_empty() {
        return (records, Vec::new());
    }
    let rows = records.iter().filter_map(|claim| match claim {
        Claim::Foreign(row) => Some(*row),
        Claim::Container(_) | Claim::Format(_) => None,
    });
    (rest, rows.collect())
}

fn stale_records(row: &Foreign) -> Finding {
    Finding::consent(
        Consent::StaleRaidMetadata,
        format!(
            "records of a {} lie at the end of the disk: it may be a member, and what looks like a volume only a part of \
             one. Where they are not stale, trimming destroys data of the RAID",
            row.name
        ),
        row.advice,
    )
}

fn ambiguous(found: &[Claim]) -> Content {
    let names: Vec<&str> = found.iter().map(Claim::name).collect();
    refused(
        None,
        format!("signatures of {} are on the same area, so it is not clear whose data this is", names.join(" and ")),
        "find out which one is stale and erase that signature alone: wipefs DEVICE lists them, wipefs -o OFFSET DEVICE erases one",
    )
}

fn read_volume(
    format: &'static dyn Format,
    source: &dyn Source,
    companions: &[&dyn Source],
    options: &Options,
    findings: Vec<Finding>,
) -> Content {
    let mut volume = match format.read(source, companions) {
        Ok(volume) => volume,
        Err(error) => return refused_by_error(format.name(), &error, format.checker()),
    };
    volume.findings.extend(findings);
    volume.findings.extend(verity(&volume, source));
    if let Some(finding) = expectation(&volume, format, options) {
        volume.findings.push(finding);
    }
    if volume.size.max(volume.free.grid().end()) > source.len() {
        volume.findings.push(Finding::refusal(
            format!("the filesystem says it spans {} bytes, but only {} are there", volume.size, source.len()),
            "it is a part of something larger (a RAID member, a cut copy): use the whole of it",
        ));
    }
    let wanted = |witness: &dyn Witness| match options.witness {
        WitnessMode::Always => true,
        // The partial ones add time, and nothing that a complete one would not see.
        WitnessMode::WhereNeeded => format.needs_witness() && witness.is_complete(),
        WitnessMode::Never => false,
    };
    let testimony: Vec<Testimony> = if volume.is_usable() {
        let wanted = format.witnesses().iter().filter(|witness| wanted(**witness));
        wanted.map(|witness| hear(*witness, source, &volume.free)).collect()
    } else {
        Vec::new()
    };
    volume.findings.extend(verdicts(format, &testimony));
    Content::Volume { volume: Box::new(volume), testimony }
}

/// dm-verity keeps its hashes behind the filesystem that they protect, and they cover free blocks too.
fn verity(volume: &Volume, source: &dyn Source) -> Option<Finding> {
    let ends = [volume.size, volume.free.grid().end()].into_iter().filter_map(|end| end.checked_next_multiple_of(512));
    let mut places = ends.flat_map(|end| [Some(end), end.checked_next_multiple_of(4096)]).flatten();
    places.any(|at| has_bytes(source, at, b"verity\0\0").unwrap_or(true)).then(|| {
        Finding::refusal(
            "a dm-verity hash tree lies behind the filesystem; it covers free blocks too, which would then read as damage",
            "leave it alone: a verified volume is written once",
        )
    })
}

fn expectation(volume: &Volume, format: &dyn Format, options: &Options) -> Option<Finding> {
    let expected = options.expect.as_deref()?;
    (expected != format.name() && expected != volume.format).then(|| {
        Finding::refusal(
            format!("the volume is {}, not {expected} as --fs expects", volume.format),
            "check that this is the volume that you mean",
        )
    })
}

/// What follows from the testimony: a clash forbids everything, silence forbids where a witness is needed.
fn verdicts(format: &dyn Format, testimony: &[Testimony]) -> Vec<Finding> {
    let complete = |name: &str| format.witnesses().iter().any(|w| w.name() == name && w.is_complete());
    testimony
        .iter()
        .filter_map(|words| match words {
            Testimony::Clash { witness, owner, range } => Some(Finding::refusal(
                format!("{range} belong to {owner} (says {witness}), but the allocation structure calls them free"),
                format.checker(),
            )),
            Testimony::Absent { witness, reason } if format.needs_witness() && complete(witness) => {
                Some(Finding::refusal(
                    format!("the second reading of the volume failed ({witness}: {reason})"),
                    format.checker(),
                ))
            }
            Testimony::Absent { witness, reason } => {
                Some(Finding::warning(format!("witness {witness} could not read the volume: {reason}")))
            }
            Testimony::Agrees { .. } => None,
        })
        .collect()
}

fn refused(format: Option<&str>, message: impl Into<String>, remedy: &str) -> Content {
    Content::Refused { format: format.map(str::to_owned), finding: Finding::refusal(message, remedy) }
}

fn refused_by_error(format: &str, error: &ParseError, checker: &str) -> Content {
    let (what, remedy) = match error.kind() {
        ErrorKind::Io => ("cannot be read", "copy the drive first: ddrescue DEVICE IMAGE MAPFILE"),
        ErrorKind::Corrupt => ("is damaged", checker),
        ErrorKind::Unsupported => ("uses something that coldtrim does not know", ""),
    };
    refused(Some(format), format!("{format} {what}: {error}"), remedy)
}
