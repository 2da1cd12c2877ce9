//! What else is written on the members of an array. A record at the start of a disk outlives a later partition table or
//! filesystem; an array that is put together from such records is a ghost, whose free space is somebody's file.

use super::claims::{Claim, claims, set_records_apart, stale_records};
use super::leaf::WHICH_IS_STALE;
use super::{Content, FoundMember, Layer, Leaf, Stack};
use crate::array::{ArraySource, Assembled, Difference, Place, mention};
use crate::foreign::Meaning;
use crate::source::{Source, Window};
use crate::units::ByteRange;
use crate::volume::Finding;
use std::collections::BTreeSet;

/// What the volumes on these arrays of a kind inherit from their members, or why the arrays are not to be believed.
pub(super) fn vouch(
    kind: &str,
    arrays: &[Assembled],
    members: &[&Leaf],
    layers: &[Layer<'_>],
) -> Result<Vec<Finding>, Finding> {
    let shown = shown_by(arrays, layers);
    let mut inherited = Vec::new();
    for leaf in members {
        let here = mention(leaf.device, leaf.range.start());
        let unreadable = || Finding::refusal(format!("{here} cannot be read"), "ddrescue DEVICE IMAGE MAPFILE");
        let layer = layers.get(leaf.device).ok_or_else(unreadable)?;
        let window = Window::new(layer.source, leaf.range).ok_or_else(unreadable)?;
        let found = claims(&window, leaf.sector_size).map_err(|_| unreadable())?;
        let (found, records) = set_records_apart(found);
        explained(kind, &found, &shown, &here)?;
        let around = leaf.findings.iter().cloned().chain(records.iter().map(|row| stale_records(row)));
        inherited.extend(around.map(|finding| Finding { message: format!("{here}: {}", finding.message), ..finding }));
    }
    Ok(inherited)
}

impl Stack {
    /// Forbids the volumes on an array, and on what stands on it, whose members do not agree on a byte that was read and that
    /// is not free: whose map would count is not known then. What is free may differ, as it does after a discard.
    pub(super) fn refuse_what_differs(&mut self, device: usize, differences: &[Difference]) {
        let Some(different) = differences.iter().find(|difference| !self.is_free(device, difference.range)) else {
            return;
        };
        let array = self.arrays.iter().find(|array| array.device == device);
        let name = |place: &Place| {
            let holds = |member: &&FoundMember| {
                member.device == place.device && (member.range.start()..member.range.end()).contains(&place.at)
            };
            let member = array.and_then(|array| array.members.iter().find(holds));
            let area =
                member.map_or_else(|| format!("device {}", place.device), |m| mention(m.device, m.range.start()));
            format!("byte {} of {area}", place.at)
        };
        let places: Vec<String> = different.places.iter().map(name).collect();
        let is_md = array.is_some_and(|array| array.format.starts_with("md "));
        let check = if is_md {
            "assemble the array and let it be checked: echo check > /sys/block/mdX/md/sync_action, then read \
             /sys/block/mdX/md/mismatch_cnt"
        } else {
            "activate it and let it be checked: lvchange --syncaction check VG/LV, then lvs -o +raid_mismatch_count VG/LV"
        };
        let finding = Finding::refusal(
            format!(
                "the members of the array do not agree on {} of it, by which its free space was found ({}): one of \
                 them may be of another generation, or may have been written to alone",
                different.range,
                places.join(", ")
            ),
            check,
        );
        let above = self.above(device);
        for node in self.nodes.iter_mut().filter(|node| above.contains(&node.device)) {
            match &mut node.content {
                Content::Volume { volume, .. } => volume.findings.push(finding.clone()),
                // What looks like damage is explained by it.
                Content::Refused { finding: why, .. } => {
                    why.message = format!("{}; {}", why.message, finding.message);
                    why.remedy.clone_from(&finding.remedy);
                }
                Content::Kept { .. } => {}
            }
        }
    }
}

impl Stack {
    /// True when a volume on a device, or on an array that stands on it, calls all of `range` free.
    fn is_free(&self, device: usize, range: ByteRange) -> bool {
        let on_it = self.nodes.iter().filter(|node| node.device == device);
        let mut volumes = on_it.filter_map(|node| Some((node, range.shift_down(node.range.start())?)));
        let in_volume = volumes.any(|(node, range)| {
            let Content::Volume { volume, .. } = &node.content else { return false };
            volume.free.ranges().iter().any(|free| free.contains(range))
        });
        // Arrays stand on devices with smaller numbers only.
        let mut above = self.arrays.iter().filter(|array| array.device > device);
        in_volume
            || above.any(|array| {
                let parts = array.mapping.back(device, range);
                parts.is_some_and(|parts| parts.iter().all(|part| self.is_free(array.device, *part)))
            })
    }

    /// A device and everything that stands on it.
    fn above(&self, device: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::from([device]);
        for array in &self.arrays {
            if array.mapping.areas().any(|area| found.contains(&area.device)) {
                found.insert(array.device);
            }
        }
        found
    }
}

/// The names of what the arrays themselves show.
fn shown_by(arrays: &[Assembled], layers: &[Layer<'_>]) -> Vec<&'static str> {
    let devices: Vec<&dyn Source> = layers.iter().map(|layer| layer.source).collect();
    let sector_size = layers.iter().map(|layer| layer.sector_size).max().unwrap_or(512);
    let of = |array: &Assembled| claims(&ArraySource::new(&array.mapping, devices.clone()), sector_size);
    arrays.iter().filter_map(|array| of(array).ok()).flatten().map(|claim| claim.name()).collect()
}

/// Nothing but its record is on a member, except where the record lies at the end and the rest is a view of the array.
fn explained(kind: &str, found: &[Claim], shown: &[&str], here: &str) -> Result<(), Finding> {
    let is_record = |claim: &&Claim| matches!(claim, Claim::Foreign(row) if matches!(row.meaning, Meaning::Member(of) if of == kind));
    let (own, others): (Vec<&Claim>, Vec<&Claim>) = found.iter().partition(is_record);
    let at_end = own.iter().all(|claim| matches!(claim, Claim::Foreign(row) if row.is_member_by_its_end()));
    let stranger = others.iter().find(|claim| !(at_end && shown.contains(&claim.name())));
    let (Some(stranger), Some(record)) = (stranger, own.first()) else { return Ok(()) };
    Err(Finding::refusal(
        format!(
            "signatures of {} and {} are both on {here}, so it is not clear whose data this is: the record may be left \
             over from an array that is no more",
            stranger.name(),
            record.name()
        ),
        WHICH_IS_STALE,
    ))
}
