//! What a run has to say, as plain data. [`text`] and [`formats`] print it for people and for other tools; serde
//! prints it as JSON (`schema/coldtrim-1.schema.json`).

pub mod arrays;
pub mod formats;
pub mod human;
pub mod progress;
pub mod svg;
pub mod text;

use arrays::{ArrayReport, Ground, ShareReport};
use coldtrim_parsers::units::ByteRange;
use coldtrim_parsers::volume::{Finding, Weight};
use coldtrim_parsers::witness::Testimony;
use serde::Serialize;

/// The version of the JSON output.
pub const SCHEMA: &str = "coldtrim/1";

/// Everything about one run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The verb (`map`, `trim`).
    pub command: &'static str,
    /// The devices and images that were looked at.
    pub targets: Vec<TargetReport>,
    /// The arrays that several of them, or areas of them, are members of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arrays: Vec<ArrayReport>,
    /// What is on them.
    pub volumes: Vec<VolumeReport>,
    /// Space between partitions that is planned or discarded (`--unallocated`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<GapReport>,
    /// Sum over the volumes that may be trimmed.
    pub free_bytes: u64,
    /// Sum over the volumes that may be trimmed.
    pub free_extents: u64,
    /// Sum of the plans, where the verb plans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanReport>,
    /// Sum of what was done, where the verb does something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeReport>,
    /// What went wrong outside any volume.
    pub errors: Vec<String>,
    /// The exit code of the program.
    pub exit_code: u8,
}

impl Report {
    /// An empty report of `command`.
    pub fn new(command: &'static str) -> Self {
        Self {
            schema: SCHEMA,
            command,
            targets: Vec::new(),
            arrays: Vec::new(),
            volumes: Vec::new(),
            gaps: Vec::new(),
            free_bytes: 0,
            free_extents: 0,
            plan: None,
            outcome: None,
            errors: Vec::new(),
            exit_code: 0,
        }
    }

    /// What a volume lies on, for people: its target or its array.
    pub fn name_of(&self, volume: &VolumeReport) -> &str {
        match volume.array.and_then(|array| self.arrays.get(array)) {
            Some(array) => array.title(),
            None => self.targets.get(volume.target).map_or("", |target| target.name.as_str()),
        }
    }

    /// Takes out what is planned on a target, so that other plans can be noted.
    pub fn forget_plans(&mut self, target: usize) {
        self.gaps.retain(|gap| gap.target != target);
        for volume in &mut self.volumes {
            let is_plain = volume.array.is_none() && volume.target == target;
            let before = volume.members.len();
            volume.members.retain(|share| share.target != target);
            if is_plain || volume.members.len() != before {
                volume.plan = sum(volume.members.iter().map(|share| share.plan.clone()));
            }
        }
    }

    /// How many volumes are refused, and targets without any, whose other space is.
    pub fn refusals(&self) -> usize {
        let on = |target: usize| {
            self.volumes.iter().filter(move |volume| volume.target == target && volume.state == State::Refused)
        };
        let of = |(index, target): (usize, &TargetReport)| match on(index).count() {
            0 => usize::from(target.is_forbidden()),
            some => some,
        };
        self.targets.iter().enumerate().map(of).sum()
    }

    /// Fills in the sums over all volumes.
    pub fn sum_up(&mut self) {
        let usable = || self.volumes.iter().filter(|volume| volume.state == State::Clean);
        self.free_bytes = usable().map(|volume| volume.free_bytes).sum();
        self.free_extents = usable().map(|volume| volume.free_extents).sum();
        let volumes = self.volumes.iter();
        let gaps = || self.gaps.iter();
        self.plan = sum(volumes.clone().filter_map(|v| v.plan.clone()).chain(gaps().map(|g| g.plan.clone())));
        self.outcome = sum(volumes.filter_map(|v| v.outcome.clone()).chain(gaps().filter_map(|g| g.outcome.clone())));
    }
}

fn sum<T: std::ops::AddAssign>(parts: impl IntoIterator<Item = T>) -> Option<T> {
    parts.into_iter().reduce(|mut all, part| {
        all += part;
        all
    })
}

/// One device or image.
#[derive(Debug, Clone, Serialize)]
pub struct TargetReport {
    /// As the user named it.
    pub name: String,
    /// The node or file that it is.
    pub path: String,
    /// `disk`, `partition`, `image`, `loop`, ...
    pub kind: String,
    /// Bytes.
    pub size: u64,
    /// Logical sector size in bytes.
    pub sector_size: u64,
    /// False for an image: its sector size was assumed.
    pub sector_size_known: bool,
    /// Node of the whole disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// Where the target begins on the disk, in bytes.
    pub disk_offset: u64,
    /// Vendor and model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// How it is attached, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachment: Option<String>,
    /// The partition table on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Remarks on the device or its table; a refusal here holds for everything on it.
    pub reasons: Vec<Reason>,
}

impl TargetReport {
    /// True when nothing on it may be trimmed, whatever lies there.
    pub fn is_forbidden(&self) -> bool {
        self.reasons.iter().any(Reason::forbids)
    }
}

/// Space that no partition owns, or the body of a swap area (`--unallocated`).
#[derive(Debug, Clone, Serialize)]
pub struct GapReport {
    /// Index into `targets`.
    pub target: usize,
    /// What would be or was sent.
    pub plan: PlanReport,
    /// What was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeReport>,
}

/// Whether a volume may be trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It may.
    Clean,
    /// It may not; the reasons say why.
    Refused,
    /// It holds no filesystem by design and is left alone.
    Kept,
}

impl State {
    /// As JSON says it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Refused => "refused",
            Self::Kept => "kept",
        }
    }
}

/// One volume, or area that was refused or left alone.
#[derive(Debug, Clone, Serialize)]
pub struct VolumeReport {
    /// Index into `targets`; of the first member where it lies on an array.
    pub target: usize,
    /// Index into `arrays`, where it lies on one: places are then bytes of the array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub array: Option<usize>,
    /// Number of the partition.
    pub partition: Option<u32>,
    /// The filesystem, or whatever was recognised.
    pub format: Option<String>,
    /// Volume label.
    pub label: Option<String>,
    /// Volume identity.
    pub uuid: Option<String>,
    /// Bytes from the start of the target.
    pub offset: u64,
    /// Bytes that the filesystem spans, or the area where there is none.
    pub size: u64,
    /// Allocation unit in bytes.
    pub block_size: Option<u64>,
    /// Whether it may be trimmed.
    pub state: State,
    /// Everything that speaks against, or is worth saying.
    pub reasons: Vec<Reason>,
    /// Free bytes as the filesystem counts, unrounded.
    pub free_bytes: u64,
    /// Number of free extents.
    pub free_extents: u64,
    /// What the second reading said: `agrees`, `clash`, `absent` or `not_heard`.
    pub witness: &'static str,
    /// What each witness said.
    pub testimony: Vec<Testimony>,
    /// The free extents, bytes from the start of the target (`map --format json` alone).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranges: Option<Vec<Extent>>,
    /// What would be or was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanReport>,
    /// By which route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// Why this route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route_reason: Option<String>,
    /// What was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeReport>,
    /// What is known of the route: `works`, `no evidence`, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// What that rests upon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// What it has on each member of its array.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<ShareReport>,
    /// True where nothing was recognised and nothing says whose it is; not part of the report.
    #[serde(skip)]
    pub is_unknown: bool,
    /// Its free space on the members of its array; not part of the report.
    #[serde(skip)]
    pub grounds: Vec<Ground>,
    /// The bytes of the partition or target that holds it; not part of the report.
    #[serde(skip)]
    pub within: Option<ByteRange>,
    /// The free map itself, in bytes of the target; not part of the report.
    #[serde(skip)]
    pub free: Vec<ByteRange>,
}

impl VolumeReport {
    /// An area of `target` of which nothing is known yet, and which is therefore refused.
    pub fn unknown(target: usize, offset: u64, size: u64) -> Self {
        Self {
            target,
            array: None,
            partition: None,
            format: None,
            label: None,
            uuid: None,
            offset,
            size,
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
            members: Vec::new(),
            grounds: Vec::new(),
            is_unknown: false,
            within: ByteRange::with_len(offset, size),
            free: Vec::new(),
        }
    }
}

/// `start` and `length` in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Extent {
    /// First byte.
    pub start: u64,
    /// Length.
    pub length: u64,
}

impl From<ByteRange> for Extent {
    fn from(range: ByteRange) -> Self {
        Self { start: range.start(), length: range.len() }
    }
}

/// What follows from a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Force {
    /// Nothing is trimmed.
    Refusal,
    /// Nothing is trimmed unless the user accepts the loss.
    Consent,
    /// Nothing.
    Warning,
}

/// A finding, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// What follows from it.
    pub weight: Force,
    /// The consent that lifts it (`--accept`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consent: Option<&'static str>,
    /// True when that consent was given.
    pub accepted: bool,
    /// What was found.
    pub message: String,
    /// The next command to type, or what else helps.
    pub remedy: String,
}

impl Reason {
    /// A finding as shown: `node` takes the place of the word DEVICE; `accepted` are the consents that were given.
    pub fn new(finding: &Finding, node: &str, accepted: &[coldtrim_parsers::volume::Consent]) -> Self {
        let (weight, consent, given) = match finding.weight {
            Weight::Refusal => (Force::Refusal, None, false),
            Weight::Consent(consent) => (Force::Consent, Some(consent.name()), accepted.contains(&consent)),
            Weight::Warning => (Force::Warning, None, false),
        };
        Self {
            weight,
            consent,
            accepted: given,
            message: finding.message.clone(),
            remedy: finding.remedy.replace("DEVICE", node),
        }
    }

    /// A remark.
    pub fn warning(message: &str) -> Self {
        Self {
            weight: Force::Warning,
            consent: None,
            accepted: false,
            message: message.to_owned(),
            remedy: String::new(),
        }
    }

    /// True when it forbids trimming.
    pub fn forbids(&self) -> bool {
        match self.weight {
            Force::Refusal => true,
            Force::Consent => !self.accepted,
            Force::Warning => false,
        }
    }
}

/// What would be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PlanReport {
    /// Number of extents.
    pub extents: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Commands that the device's limits make of them.
    pub commands: u64,
    /// Free bytes that rounding inwards and the smallest extent leave out.
    pub skipped_bytes: u64,
}

impl std::ops::AddAssign for PlanReport {
    fn add_assign(&mut self, other: Self) {
        self.extents += other.extents;
        self.bytes += other.bytes;
        self.commands += other.commands;
        self.skipped_bytes += other.skipped_bytes;
    }
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OutcomeReport {
    /// Bytes whose command the device took.
    pub bytes: u64,
    /// Commands that the device took.
    pub commands: u64,
    /// Commands that it did not take, and other trouble.
    pub errors: Vec<String>,
}

impl std::ops::AddAssign for OutcomeReport {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.commands += other.commands;
        self.errors.extend(other.errors);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An image of `size` bytes.
    pub fn target(name: &str, size: u64) -> TargetReport {
        TargetReport {
            name: name.to_owned(),
            path: name.to_owned(),
            kind: "image".to_owned(),
            size,
            sector_size: 512,
            sector_size_known: false,
            disk: None,
            disk_offset: 0,
            model: None,
            serial: None,
            attachment: None,
            table: None,
            reasons: Vec::new(),
        }
    }

    fn plan(bytes: u64) -> PlanReport {
        PlanReport { extents: 1, bytes, commands: 1, skipped_bytes: 0 }
    }

    fn share(target: usize, bytes: u64) -> ShareReport {
        let route = "unmap".to_owned();
        ShareReport { target, plan: plan(bytes), route, outcome: None, verdict: None, evidence: None }
    }

    #[test]
    fn plans_of_one_target_are_forgotten_and_no_other() {
        let mut report = Report::new("trim");
        let mut on_array = VolumeReport::unknown(0, 0, 100);
        (on_array.array, on_array.plan) = (Some(0), Some(plan(30)));
        on_array.members = vec![share(0, 10), share(1, 20)];
        report.volumes = vec![VolumeReport::unknown(0, 0, 100), VolumeReport::unknown(1, 0, 100), on_array];
        report.volumes[0].plan = Some(plan(5));
        report.volumes[1].plan = Some(plan(6));
        report.gaps = vec![0, 1].into_iter().map(|target| GapReport { target, plan: plan(7), outcome: None }).collect();
        report.forget_plans(0);
        let plans: Vec<_> = report.volumes.iter().map(|volume| volume.plan.clone()).collect();
        assert_eq!(plans, [None, Some(plan(6)), Some(plan(20))]);
        assert_eq!(report.gaps.iter().map(|gap| gap.target).collect::<Vec<_>>(), [1]);
        report.forget_plans(1);
        assert_eq!(report.volumes[2].plan, None);
    }
}
