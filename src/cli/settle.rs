//! What the members of an array must have in common before anything is sent to one of them.
//!
//! Each member has its own route and granules, so that rounding leaves out other bytes on each. Where copies or parity
//! must stay equal, only what every member can discard is planned on any.

use super::arrays::spread;
use super::job::TrimJob;
use super::routes::{PlannedPart, Prepared, plan};
use super::survey::Survey;
use crate::plan::Refusal;
use crate::plan::units::ByteRange;
use crate::report::arrays::{Ground, Piece};
use crate::report::{Reason, State};
use crate::transport::ReadAfterDiscard;
use coldtrim_parsers::array::{Redundancy, Spread};
use coldtrim_parsers::volume::{Consent, Finding};

/// How often plans are made smaller before they must agree; two rounds do where granules are powers of two.
const MOST_ROUNDS: u32 = 8;

/// Makes the plans of every volume on an array agree, or refuses the volume; gives those that were refused.
pub fn settle(survey: &mut Survey, prepared: &mut [Prepared], job: &TrimJob) -> Vec<usize> {
    let mut refused = Vec::new();
    for volume in 0..survey.report.volumes.len() {
        let found = &survey.report.volumes[volume];
        if found.state != State::Clean || found.array.is_none() {
            continue;
        }
        let grounds = found.grounds.clone();
        let Err(finding) = settle_volume(survey, prepared, job, volume, &grounds) else { continue };
        for device in prepared.iter_mut() {
            device.parts.retain(|part| part.volume != Some(volume));
        }
        let found = &mut survey.report.volumes[volume];
        found.reasons.push(Reason::new(&finding, "DEVICE", &job.scope.accept));
        found.state = State::Refused;
        refused.push(volume);
    }
    refused
}

fn settle_volume(
    survey: &Survey,
    prepared: &mut [Prepared],
    job: &TrimJob,
    volume: usize,
    grounds: &[Ground],
) -> Result<(), Finding> {
    for (number, ground) in grounds.iter().enumerate() {
        let Some(mapping) = survey.mappings.get(ground.array) else { continue };
        for piece in &ground.pieces {
            if !prepared.iter().any(|device| device.target == piece.target) {
                let name = &survey.report.targets[piece.target].name;
                let message =
                    format!("nothing can be sent to {name}, and its array is trimmed as a whole or not at all");
                return Err(Finding::refusal(message, "see the reason given for that member"));
            }
        }
        let redundancy = mapping.redundancy();
        let members: Vec<&Prepared> =
            prepared.iter().filter(|device| ground.pieces.iter().any(|piece| piece.target == device.target)).collect();
        promises(survey, &members, redundancy, job)?;
        if redundancy != Redundancy::None && job.scope.member.is_none() {
            agree(survey, prepared, job, (volume, number), ground)?;
        }
    }
    Ok(())
}

/// What the members must promise of discarded blocks.
fn promises(survey: &Survey, members: &[&Prepared], redundancy: Redundancy, job: &TrimJob) -> Result<(), Finding> {
    let name = |device: &Prepared| survey.report.targets[device.target].name.clone();
    let zeros = |device: &&&Prepared| device.transport.read_after_discard() != ReadAfterDiscard::Zeros;
    let unsure: Vec<String> = members.iter().filter(zeros).map(|device| name(device)).collect();
    match redundancy {
        Redundancy::Parity => {
            let unproved = |device: &&&Prepared| device.route.name != "punch";
            let unproved: Vec<String> = members.iter().filter(unproved).map(|device| name(device)).collect();
            if unsure.is_empty() && unproved.is_empty() {
                return Ok(());
            }
            let names = if unsure.is_empty() { unproved } else { unsure };
            Err(Finding::refusal(
                format!(
                    "discarded blocks of an array with parity must read as zeros on every member, or the next failure of \
                     a disk costs data; that is not proved for {}",
                    names.join(", ")
                ),
                "assemble the array and use fstrim, where the kernel allows it (raid456.devices_handle_discard_safely)",
            ))
        }
        Redundancy::Copies if !unsure.is_empty() && !job.scope.accept.contains(&Consent::MirrorMismatch) => {
            Err(Finding::consent(
                Consent::MirrorMismatch,
                format!(
                    "it is not known that discarded blocks read as zeros on {}: a consistency check of the array may then \
                     count mismatches in free space. No file is harmed",
                    unsure.join(", ")
                ),
                "to go on all the same: --accept mirror-mismatch",
            ))
        }
        Redundancy::Copies | Redundancy::None => Ok(()),
    }
}

/// Makes the plans of a ground smaller until every member discards the same.
fn agree(
    survey: &Survey,
    prepared: &mut [Prepared],
    job: &TrimJob,
    (volume, number): (usize, usize),
    ground: &Ground,
) -> Result<(), Finding> {
    let fault = || {
        Finding::refusal(
            "the plans of the members do not fit together",
            "this is a fault in coldtrim, please report it",
        )
    };
    let mapping = survey.mappings.get(ground.array).ok_or_else(fault)?;
    let is_part = |part: &PlannedPart| part.volume == Some(volume) && part.piece.is_some_and(|place| place.0 == number);
    for _ in 0..MOST_ROUNDS {
        let planned = planned(prepared, is_part, job.scope.offset);
        let agreed = mapping.agree(&ground.free, &planned).ok_or_else(fault)?;
        if agreed == planned {
            return Ok(());
        }
        for device in prepared.iter_mut() {
            for index in 0..device.parts.len() {
                let Some((_, piece)) =
                    Some(&device.parts[index]).filter(|part| is_part(part)).and_then(|part| part.piece)
                else {
                    continue;
                };
                let piece = ground.pieces.get(piece).ok_or_else(fault)?;
                let ranges = inside(&agreed, piece, job.scope.offset);
                let anew = plan(device, job, "a member of an array", &ranges, piece.within);
                device.parts[index].plan =
                    anew.map_err(|refusal: Refusal| Finding::refusal(refusal.to_string(), ""))?;
            }
        }
    }
    Err(fault())
}

/// What is planned for the parts, in bytes of what was read of each target.
fn planned(prepared: &[Prepared], is_part: impl Fn(&PlannedPart) -> bool, offset: u64) -> Spread {
    spread(prepared.iter().map(|device| {
        let down = device.device.place.start() + offset;
        let extents = device.parts.iter().filter(|part| is_part(part)).flat_map(|part| part.plan.extents());
        (device.target, extents.filter_map(|extent| extent.shift_down(down)).collect())
    }))
}

/// The part of `agreed` that belongs to a piece, in bytes of its target.
fn inside(agreed: &Spread, piece: &Piece, offset: u64) -> Vec<ByteRange> {
    let ranges = agreed.get(&piece.target).map_or(&[][..], Vec::as_slice);
    ranges.iter().filter_map(|range| range.shift_up(offset)?.intersect(piece.within)).collect()
}
