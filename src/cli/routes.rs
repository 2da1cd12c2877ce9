//! Which route a device takes, and what is planned for it.

use super::arrays::pieces_on;
use super::device::Device;
use super::job::TrimJob;
use super::survey::Survey;
use crate::memory::Past;
use crate::plan::units::ByteRange;
use crate::plan::{Disk, Plan, Policy, Refusal, Region};
use crate::report::State;
use crate::target::{TargetError, suitable};
use crate::transport::{Applies, ErrorKind, Route, TRANSPORTS, Transport, TransportError};
use coldtrim_parsers::volume::{Consent, Finding};

/// One device with its route and the plans of its volumes.
pub struct Prepared {
    /// Index of the target.
    pub target: usize,
    /// The row of the table.
    pub route: &'static Route,
    /// Why this one.
    pub reason: String,
    /// The opened route.
    pub transport: Box<dyn Transport>,
    /// The node that commands go to.
    pub device: Device,
    /// What is planned, volume by volume.
    pub parts: Vec<PlannedPart>,
}

/// What is planned for one volume, or for the gaps between partitions.
pub struct PlannedPart {
    /// Index into the report's volumes; none for gaps.
    pub volume: Option<usize>,
    /// Which ground and piece of the volume, where it lies on an array.
    pub piece: Option<(usize, usize)>,
    /// The plan, in bytes of the disk.
    pub plan: Plan,
}

/// Why nothing can be sent to a device.
pub enum NotPrepared {
    /// No route works; what was tried, a sentence each.
    NoRoute(Vec<String>),
    /// The route works, but the plan was refused.
    Refused(Refusal),
    /// Only asking the disk or reading the options showed why it must not be done, and what helps.
    Unwanted(Finding),
    /// Opening a route failed in a way that forbids trying others.
    Failed(TransportError),
    /// The node cannot be used any more.
    Gone(TargetError),
}

/// Chooses a route for target number `index` and plans everything that is clean on it.
pub fn prepare(survey: &Survey, index: usize, job: &TrimJob) -> Result<Prepared, NotPrepared> {
    prepare_without(survey, index, job, &[])
}

/// The same without the routes of these names, which failed their trial.
pub fn prepare_without(survey: &Survey, index: usize, job: &TrimJob, failed: &[&str]) -> Result<Prepared, NotPrepared> {
    let device = Device::of(&survey.targets[index]).map_err(NotPrepared::Gone)?;
    if device.facts.is_usb() && job.via.is_none() && !job.canary {
        let what = "behind a USB bridge `auto` uses a route only after its trial, and --no-canary forbids that";
        return Err(NotPrepared::Unwanted(Finding::refusal(what, "leave --no-canary out, or name a route with --via")));
    }
    let (route, reason, transport) = choose(&device, job, failed, &survey.pasts[index])?;
    // The kernel never asks this behind USB, so the target's own findings could not say it.
    if transport.rotates() == Some(true) && !job.scope.accept.contains(&Consent::Rotating) {
        return Err(NotPrepared::Unwanted(suitable::rotates(&device.facts.path)));
    }
    let mut prepared = Prepared { target: index, route, reason, transport, device, parts: Vec::new() };
    prepared.parts = plans(survey, &prepared, job).map_err(NotPrepared::Refused)?;
    Ok(prepared)
}

type Chosen = (&'static Route, String, Box<dyn Transport>);

fn choose(device: &Device, job: &TrimJob, failed: &[&str], past: &Past) -> Result<Chosen, NotPrepared> {
    let (mut tried, mut objections) = (Vec::new(), Vec::new());
    let via = job.via.as_deref();
    let wanted = |route: &&Route| via.is_none_or(|name| name == route.name) && !failed.contains(&route.name);
    for route in TRANSPORTS.iter().filter(wanted) {
        let reason = match ((route.applies)(&device.facts), via) {
            (Applies::Auto(reason) | Applies::WhenNamed(reason), Some(_)) => format!("named by --via; {reason}"),
            (Applies::Auto(reason), None) => reason.to_owned(),
            (Applies::WhenNamed(reason), None) => {
                tried.push(format!("{}: only when named with --via {}: {reason}", route.name, route.name));
                continue;
            }
            (Applies::No(reason), _) => {
                tried.push(format!("{}: {reason}", route.name));
                continue;
            }
        };
        if let Some(only) = device.only_route.filter(|only| *only != route.name) {
            tried.push(format!("{}: another partition of the disk is in use, so only {only} is allowed", route.name));
            continue;
        }
        match (past.objection(route.name), via) {
            (Some(objection), None) => {
                objections.push(format!("{}: {objection}", route.name));
                continue;
            }
            (Some(objection), Some(_)) if !job.canary => {
                let remedy = "leave --no-canary out, or test it again: `coldtrim probe --test DEVICE`";
                return Err(NotPrepared::Unwanted(Finding::refusal(objection, remedy)));
            }
            _ => {}
        }
        match (route.open)(&device.file, &device.facts) {
            Ok(transport) => return Ok((route, reason, transport)),
            Err(error) if error.kind() == ErrorKind::Rejected => tried.push(error.to_string()),
            Err(error) => return Err(NotPrepared::Failed(error)),
        }
    }
    if objections.is_empty() {
        return Err(NotPrepared::NoRoute(tried));
    }
    let what = format!("no route is left that `auto` would choose: {}", [objections, tried].concat().join("; "));
    let remedy =
        "test it again with `coldtrim probe --test DEVICE`, which forgets the old result, or name it with --via";
    Err(NotPrepared::Unwanted(Finding::refusal(what, remedy)))
}

/// A plan for every clean volume on the device, and one for the gaps if the user wants them.
fn plans(survey: &Survey, prepared: &Prepared, job: &TrimJob) -> Result<Vec<PlannedPart>, Refusal> {
    let mut parts = Vec::new();
    for (volume, found) in survey.report.volumes.iter().enumerate() {
        if found.state != State::Clean {
            continue;
        }
        let name = match (&found.label, found.partition) {
            (Some(label), _) => format!("volume \"{label}\""),
            (None, Some(number)) => format!("partition {number}"),
            (None, None) => "the volume".to_owned(),
        };
        for (place, piece) in pieces_on(found, prepared.target) {
            let plan = plan(prepared, job, &name, &piece.free, piece.within)?;
            parts.push(PlannedPart { volume: Some(volume), piece: Some(place), plan });
        }
        if let Some(within) = found.within.filter(|_| found.array.is_none() && found.target == prepared.target) {
            let plan = plan(prepared, job, &name, &found.free, within)?;
            parts.push(PlannedPart { volume: Some(volume), piece: None, plan });
        }
    }
    if job.unallocated {
        for gap in &survey.gaps[prepared.target] {
            let plan = plan(prepared, job, "unallocated space", &[*gap], *gap)?;
            parts.push(PlannedPart { volume: None, piece: None, plan });
        }
    }
    Ok(parts)
}

/// The plan for free `ranges` (bytes of the target) inside `within`, as bytes of the node that commands go to.
pub fn plan(
    prepared: &Prepared,
    job: &TrimJob,
    origin: &str,
    ranges: &[ByteRange],
    within: ByteRange,
) -> Result<Plan, Refusal> {
    let place = prepared.device.place;
    let disk =
        Disk { device: prepared.target, size: prepared.device.facts.size, capacity: prepared.transport.capacity() };
    let up = |range: ByteRange| range.shift_up(place.start());
    let ranges: Vec<ByteRange> = ranges.iter().copied().filter_map(up).collect();
    let within = up(within).ok_or(Refusal::Capacity { size: disk.size, capacity: disk.capacity })?;
    let region = Region { device: prepared.target, origin, ranges: &ranges, within, partition: place };
    // Never a part of a block that the kernel reads and writes as a whole: a bridge may show larger ones than it counts.
    let granule = prepared.device.facts.logical_block.bytes();
    let policy = Policy { min_extent: job.min_extent.unwrap_or(1), granule };
    Plan::build(&disk, &[region], &prepared.transport.limits(), &policy)
}
