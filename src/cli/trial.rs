//! The canary before a run: which routes need it, and what its verdict means for the run.

use super::Ending;
use super::device::partition_starts;
use super::routes::Prepared;
use crate::plan::units::ByteRange;
use crate::target::Target;
use crate::transport::{BlockRead, Direct, ReadAfterDiscard, TransportError};
use crate::verify::Verdict;
use crate::verify::canary::{self, Bench, Paths, Trial};
use coldtrim_parsers::array::merge;

/// What is known of a route when the run begins.
pub struct Tried {
    /// The verdict, where the route was tried.
    pub verdict: Option<String>,
    /// What it rests upon.
    pub evidence: String,
}

/// Why a run must not begin.
pub struct Failed {
    /// How the run ends.
    pub ending: Ending,
    /// Why, for the user.
    pub why: String,
    /// The verdict, where there is one.
    pub verdict: Option<String>,
    /// What it rests upon.
    pub evidence: String,
}

/// Tries the route of `device` in free space, unless it is the kernel's own on a native port.
pub fn try_route(target: &Target, device: &mut Prepared, wanted: bool) -> Result<Tried, Failed> {
    let untried = |why: &str| Ok(Tried { verdict: None, evidence: format!("none ({why})") });
    let node = &device.device;
    let own_path = (device.route.own_path)(&node.file, &node.facts).map_err(|error| not_tried(&error))?;
    if own_path.is_none() && !node.facts.is_usb() {
        return untried("the kernel's own way, which was not tried first");
    }
    if !wanted {
        return untried("--no-canary: the route was not tried first");
    }
    let trial = attempt(target, device, own_path).map_err(|error| not_tried(&error))?;
    judge(trial, device.transport.read_after_discard())
}

fn not_tried(error: &TransportError) -> Failed {
    Failed {
        ending: Ending::Failed,
        why: format!("the route could not be tried: {error}; next: {}", error.advice()),
        verdict: None,
        evidence: "none".to_owned(),
    }
}

fn attempt(
    target: &Target,
    device: &mut Prepared,
    mut own_path: Option<Box<dyn BlockRead>>,
) -> Result<Trial, TransportError> {
    let free = all_planned(device);
    let capacity = device.transport.capacity();
    let starts = partition_starts(target);
    let node = &device.device;
    let mut kernel = Direct::open(&node.file, &node.facts)?;
    if let Some(route) = &mut own_path
        && let Err(verdict) = canary::cross_read(&mut kernel, route.as_mut(), &sample(device))
    {
        let evidence = verdict.reason().unwrap_or_default().to_owned();
        return Ok(Trial { verdict, evidence, written: 0 });
    }
    let mut paths = Paths { kernel: &mut kernel, route: own_path.as_deref_mut() };
    let block = node.facts.logical_block.bytes();
    let tried = device.parts.iter().find_map(|part| {
        let bench = Bench { plan: &part.plan, free: &free, capacity, partitions: &starts, block };
        canary::run_largest(&bench, device.transport.as_mut(), &mut paths, nonce())
    });
    Ok(tried.unwrap_or_else(|| {
        let why = "no place for a trial: nowhere is there free space of which every wrong address that a bridge may make \
                   of it is free too";
        Trial { verdict: Verdict::Inconclusive(why.to_owned()), evidence: "none".to_owned(), written: 0 }
    }))
}

/// All planned space of the device, sorted and merged.
pub fn all_planned(device: &Prepared) -> Vec<ByteRange> {
    let mut all: Vec<ByteRange> = device.parts.iter().flat_map(|part| part.plan.extents().iter().copied()).collect();
    merge(&mut all);
    all
}

/// How many places are read through both paths.
const SAMPLES: u64 = 16;
/// Bytes that are read at each.
const SAMPLE_BYTES: u64 = 4096;

/// Places all over the device, its first and last blocks among them.
pub fn sample(device: &Prepared) -> Vec<ByteRange> {
    // Whole blocks for both: a bridge may show larger ones than the route counts in.
    let block = device.transport.limits().lba_size().bytes().max(device.device.facts.logical_block.bytes());
    let length = SAMPLE_BYTES.next_multiple_of(block);
    let Some(last) = device.transport.capacity().checked_sub(length) else { return Vec::new() };
    let step = (last / block / (SAMPLES - 1)).max(1) * block;
    let places = (0..SAMPLES - 1).map(|k| k * step).filter(|at| *at < last).chain([last / block * block]);
    places.filter_map(|at| ByteRange::with_len(at, length)).collect()
}

/// A number that no earlier run used, so that an old pattern cannot pass for the new one.
pub fn nonce() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// What a verdict means for the run (contract of the verdicts in the manual).
fn judge(trial: Trial, promise: ReadAfterDiscard) -> Result<Tried, Failed> {
    let ending = match (&trial.verdict, promise) {
        (Verdict::Works { .. }, _) | (Verdict::NoEvidence, ReadAfterDiscard::Undefined) => None,
        (Verdict::NoEvidence, ReadAfterDiscard::Zeros) | (Verdict::Rejected(_), _) => Some(Ending::NoRoute),
        (Verdict::Harmful(_) | Verdict::Unstable(_) | Verdict::Inconclusive(_), _) => Some(Ending::Refused),
    };
    let verdict = Some(trial.verdict.to_string());
    let Some(ending) = ending else {
        return Ok(Tried { verdict, evidence: trial.evidence });
    };
    let detail = match &trial.verdict {
        Verdict::NoEvidence => "the device promises zeros after a discard, and nothing changed".to_owned(),
        other => other.reason().unwrap_or_default().to_owned(),
    };
    let why = format!(
        "the route was tried in free space, and the verdict is {}: {detail}. Nothing else was sent",
        trial.verdict
    );
    Err(Failed { ending, why, verdict, evidence: trial.evidence })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(verdict: Verdict, promise: ReadAfterDiscard) -> Option<Ending> {
        judge(Trial { verdict, evidence: String::new(), written: 0 }, promise).err().map(|failed| failed.ending)
    }

    #[test]
    fn a_run_begins_only_behind_a_route_that_did_no_harm() {
        use ReadAfterDiscard::{Undefined, Zeros};
        assert_eq!(judged(Verdict::Works { zeroes: true }, Zeros), None);
        assert_eq!(judged(Verdict::Works { zeroes: false }, Undefined), None);
        assert_eq!(judged(Verdict::NoEvidence, Undefined), None);
        assert_eq!(judged(Verdict::NoEvidence, Zeros), Some(Ending::NoRoute));
        assert_eq!(judged(Verdict::Rejected(String::new()), Undefined), Some(Ending::NoRoute));
        assert_eq!(judged(Verdict::Harmful(String::new()), Undefined), Some(Ending::Refused));
        assert_eq!(judged(Verdict::Unstable(String::new()), Zeros), Some(Ending::Refused));
        assert_eq!(judged(Verdict::Inconclusive(String::new()), Zeros), Some(Ending::Refused));
    }
}
