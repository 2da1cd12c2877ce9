//! Linux volume groups (LVM2): linear and striped logical volumes, and mirrors (`raid1`, `mirror`) in sync.
//!
//! ```text
//! physical volume  |label | metadata: a text, the same on each | extent 0 | extent 1 | ... | (metadata again) |
//!                                                                  |          |
//! logical volume                                     | extent 5 ...  extent 0 |      as the text says
//! ```
//!
//! Every physical volume carries the description of the whole group. All that were named must say the same; a logical volume
//! is mapped when all of its extents are here, whatever else the group has. Extents that nothing in the group takes are
//! spare, if every physical volume is here. Sources: LVM2 `lib/format_text/`, `lib/label/`.

mod config;
mod group;
mod kinds;
mod label;
mod metadata;
mod ondisk;
mod state;
mod volume;

#[cfg(test)]
mod tests;

use super::{Assembled, Assembly, Candidate, Devices, Group, Redundancy, Role, Unmapped};
use crate::array::mapping::Mapping;
use crate::error::ParseError;
use crate::source::Source;
use crate::units::ByteRange;
use crate::volume::Finding;
use group::{Physical, Rule, Stretch, VolumeGroup};
use label::Label;
use std::collections::BTreeSet;
use volume::Layout;

/// The row of the table.
pub struct Lvm;

const CHECK: &str = "pvs and vgs show what LVM says of it; pvck --dump headers DEVICE shows the metadata; if the label is stale: \
                     pvremove DEVICE";
const TOGETHER: &str = "let LVM write the newest description to all of them: vgck --updatemetadata VG; then try again";

impl Assembly for Lvm {
    fn name(&self) -> &'static str {
        "lvm"
    }

    fn probe(&self, source: &dyn Source) -> Result<bool, ParseError> {
        Ok(label::place(source)?.is_some())
    }

    fn assemble(&self, candidates: &[Candidate<'_>]) -> Vec<Group> {
        let mut groups = Vec::new();
        let mut left: Vec<Given<'_>> = Vec::new();
        for candidate in candidates {
            match Given::read(*candidate) {
                Ok(given) => left.push(given),
                Err(error) => {
                    groups.push(alone(candidate, format!("a physical volume whose label cannot be used: {error}")))
                }
            }
        }
        let ids: BTreeSet<String> = left.iter().flat_map(Given::said).map(|group| group.id.clone()).collect();
        for id in ids {
            let newest = left.iter().flat_map(Given::said).filter(|group| group.id == id);
            let known: BTreeSet<String> = newest.flat_map(|group| &group.physical).map(|one| one.id.clone()).collect();
            let is_own = |given: &Given<'_>| {
                let mut said = given.said().peekable();
                let is_silent = said.peek().is_none();
                said.any(|group| group.id == id) || (is_silent && known.contains(&given.label.uuid))
            };
            let (own, others) = left.into_iter().partition(is_own);
            left = others;
            groups.push(assembled(&own, &id));
        }
        groups.extend(left.iter().map(Given::orphan));
        groups
    }
}

/// A physical volume that was named, and what it says of its group.
struct Given<'a> {
    candidate: Candidate<'a>,
    label: Label,
    /// Each copy of the description, or why there is none.
    said: Result<Vec<VolumeGroup>, String>,
}

impl<'a> Given<'a> {
    fn read(candidate: Candidate<'a>) -> Result<Self, ParseError> {
        let label = Label::read(candidate.source)?;
        let texts = metadata::texts(candidate.source, &label)
            .map_err(|error| format!("has metadata that cannot be used: {error}"));
        let read = |root| VolumeGroup::read(&root).map_err(|what| format!("has metadata that {what}"));
        let said = texts.and_then(|texts| texts.into_iter().map(read).collect());
        Ok(Self { candidate, label, said })
    }

    fn said(&self) -> impl Iterator<Item = &VolumeGroup> {
        self.said.iter().flatten()
    }

    fn mention(&self) -> String {
        self.candidate.mention()
    }

    /// One that belongs to no group that is described here.
    fn orphan(&self) -> Group {
        let what = match (&self.said, self.label.is_used) {
            (Err(what), _) => format!("a physical volume that {what}"),
            (Ok(_), Some(false)) => "a physical volume that no volume group uses".to_owned(),
            (Ok(_), _) => "a physical volume that does not describe its volume group itself".to_owned(),
        };
        alone(&self.candidate, what)
    }
}

/// A candidate that belongs to nothing.
fn alone(candidate: &Candidate<'_>, what: String) -> Group {
    Group {
        members: vec![Role { leaf: candidate.leaf, words: "physical volume".to_owned(), spare: Vec::new() }],
        title: "no volume group".to_owned(),
        outcome: Err(Finding::refusal(
            format!("it is {what}"),
            format!("name every physical volume of its group; {CHECK}"),
        )),
    }
}

/// The volume group with this identity, as the physical volumes in `set` have it.
fn assembled(set: &[Given<'_>], id: &str) -> Group {
    let said = || set.iter().flat_map(Given::said).filter(|group| group.id == id);
    let newest = said().max_by_key(|group| group.generation);
    let title = newest.map_or(String::new(), |group| format!("the volume group {}", group.name));
    let outcome =
        newest.map_or(Err((String::new(), CHECK)), |newest| trusted(set, newest).map(|layout| (newest, layout)));
    let mut members: Vec<Role> = set
        .iter()
        .map(|given| Role { leaf: given.candidate.leaf, words: "physical volume".to_owned(), spare: Vec::new() })
        .collect();
    let outcome = match outcome {
        Err((what, remedy)) => {
            let called = newest.map_or(id, |group| group.name.as_str());
            Err(Finding::refusal(format!("the volume group {called} ({id}) {what}"), remedy.replace("VG", called)))
        }
        Ok((newest, layout)) => {
            for (number, physical) in newest.physical.iter().enumerate() {
                let here = layout.places.get(number).copied().flatten();
                if let Some(role) = members.iter_mut().find(|role| here.is_some_and(|here| here.leaf == role.leaf)) {
                    role.words = format!("physical volume {}", physical.name);
                    role.spare = spare(&layout, physical);
                }
            }
            Ok(devices(&layout))
        }
    };
    Group { members, title, outcome }
}

/// What forbids the whole group, and what helps.
type Trouble = (String, &'static str);

/// The layout of a group that all physical volumes describe alike, and that is at rest.
fn trusted<'a>(set: &[Given<'a>], group: &'a VolumeGroup) -> Result<Layout<'a>, Trouble> {
    for given in set {
        if let Err(what) = &given.said {
            return Err((format!("cannot be trusted: {} {what}", given.mention()), CHECK));
        }
        if let Some(other) = given.said().find(|other| *other != group) {
            return Err((
                format!(
                    "is described differently: generation {} is the newest, and {} has another one ({} of {})",
                    group.generation,
                    given.mention(),
                    other.generation,
                    other.name
                ),
                TOGETHER,
            ));
        }
    }
    at_rest(group)?;
    let mut places = Vec::new();
    for physical in &group.physical {
        let mut here = set.iter().filter(|given| given.label.uuid == physical.id);
        let (found, second) = (here.next(), here.next());
        if let (Some(one), Some(other)) = (found, second) {
            let (one, other) = (one.mention(), other.mention());
            let what = format!("has its physical volume {} twice, as {one} and {other}: one is a copy", physical.id);
            return Err((what, "name the right one alone; vgimportclone gives a copy a name of its own"));
        }
        if let Some(given) = found {
            fits(given, physical, group)?;
        }
        places.push(found.map(|given| given.candidate));
    }
    let layout = Layout { group, places };
    if let Some(stranger) = set.iter().find(|given| !group.physical.iter().any(|one| one.id == given.label.uuid)) {
        return Err((format!("does not list {} among its physical volumes", stranger.mention()), CHECK));
    }
    taken(group).map_err(|what| (what, CHECK))?;
    Ok(layout)
}

/// An error when the group is in a state in which its extents may move, or in which others may use it.
fn at_rest(group: &VolumeGroup) -> Result<(), Trouble> {
    let strange = group.flags.iter().find(|flag| !matches!(flag.as_str(), "RESIZEABLE" | "READ" | "WRITE"));
    match strange.map(String::as_str) {
        Some("EXPORTED") => return Err(("is exported, to be used by another machine".to_owned(), "vgimport VG")),
        Some(flag) => return Err((format!("is in a state in which it is not mapped: {flag}"), CHECK)),
        None if !group.flags.iter().any(|flag| flag == "WRITE") => {
            return Err(("is set to be read only".to_owned(), "lvs and vgs show its state"));
        }
        None => {}
    }
    if let Some(kind) = group.lock_type.as_ref().filter(|kind| *kind != "none") {
        let what = format!("is shared between machines ({kind}), and another one may be using it");
        return Err((what, "trim it mounted, on the machine that uses it, with fstrim"));
    }
    for physical in &group.physical {
        match physical.flags.iter().find(|flag| *flag != "ALLOCATABLE").map(String::as_str) {
            None => {}
            Some("MISSING") => {
                let what = format!("went on without its physical volume {} ({})", physical.name, physical.id);
                return Err((
                    what,
                    "vgextend --restoremissing VG DEVICE where it came back unchanged, else vgreduce --removemissing VG",
                ));
            }
            Some(flag) => {
                return Err((
                    format!("has a physical volume in a state that is not known: {} is {flag}", physical.name),
                    CHECK,
                ));
            }
        }
    }
    if let Some(moved) = group.logical.iter().find(|logical| logical.has("PVMOVE") || logical.has("LOCKED")) {
        let what = format!("has extents that are being moved ({}): a pvmove was not finished", moved.name);
        return Err((what, "pvmove goes on with it, pvmove --abort takes it back; then try again"));
    }
    Ok(())
}

/// A physical volume has room for its extents, and none lies on what LVM keeps for itself.
fn fits(given: &Given<'_>, physical: &Physical, group: &VolumeGroup) -> Result<(), Trouble> {
    let Some(extents) = group.bytes(physical, 0, physical.extents).filter(|_| physical.extents > 0) else {
        return if physical.extents == 0 {
            Ok(())
        } else {
            Err((format!("has a physical volume without end: {}", physical.name), CHECK))
        };
    };
    let len = given.candidate.source.len();
    if extents.end() > len {
        let here = given.mention();
        let what =
            format!("needs {} bytes of {here}, which has {len}: it is a cut copy, or was made smaller", extents.end());
        return Err((what, "give it back its size, or restore the group from a backup"));
    }
    match given.label.reserved.iter().find(|area| area.overlaps(extents)) {
        Some(area) => Err((format!("has extents of {} over its own records at {area}", given.mention()), CHECK)),
        None => Ok(()),
    }
}

/// The physical extents that the group's logical volumes take, in the order of physical volumes; an error when two take the
/// same.
fn taken(group: &VolumeGroup) -> Result<Vec<(usize, ByteRange)>, String> {
    let mut all = Vec::new();
    for logical in &group.logical {
        for stretch in &logical.segments {
            for origin in stretch.origins() {
                let Some((number, physical)) = group.physical_named(&origin.name) else { continue };
                let range = stretch.extents_of_each().and_then(|each| group.bytes(physical, origin.extent, each));
                let range =
                    range.ok_or_else(|| format!("is damaged: {} takes extents that there are not", logical.name))?;
                all.push((number, range));
            }
        }
    }
    all.sort_unstable();
    let twice = all
        .windows(2)
        .find(|pair| matches!(pair, [(one, range), (other, next)] if one == other && range.overlaps(*next)));
    match twice {
        Some(_) => Err("is damaged: two logical volumes take the same extents".to_owned()),
        None => Ok(all),
    }
}

/// The bytes of a physical volume that no logical volume takes; nothing unless all is known of the group.
fn spare(layout: &Layout<'_>, physical: &Physical) -> Vec<ByteRange> {
    let group = layout.group;
    let is_known = |stretch: &Stretch| {
        let takes_none = |name: &String| group.physical_named(name).is_none();
        stretch.rule != Rule::Other
            || (kinds::takes_no_extents(&stretch.kind) && stretch.mentions.iter().all(takes_none))
    };
    let all_known = group.logical.iter().flat_map(|logical| &logical.segments).all(is_known);
    let whole = group.bytes(physical, 0, physical.extents);
    let (Some(whole), true, true) = (whole, all_known, layout.places.iter().all(Option::is_some)) else {
        return Vec::new();
    };
    let number = group.physical_named(&physical.name).map(|(number, _)| number);
    let taken = taken(group).unwrap_or_default();
    let mut free = Vec::new();
    let mut end = whole.start();
    for (_, range) in taken.iter().filter(|(device, _)| Some(*device) == number) {
        free.extend(ByteRange::new(end, range.start()));
        end = range.end();
    }
    free.extend(ByteRange::new(end, whole.end()));
    free
}

/// Every visible logical volume: a device, or the reason why it is none.
fn devices(layout: &Layout<'_>) -> Devices {
    let mut devices = Devices::default();
    for logical in layout.group.logical.iter().filter(|logical| logical.is_visible()) {
        match layout.mapping(logical) {
            Ok(mapping) => devices.mapped.push(Assembled {
                format: format!("lvm {}", kind(&mapping, &logical.segments)),
                name: Some(layout.called(logical)),
                uuid: logical.id.clone(),
                pool: Some(layout.group.id.clone()),
                mapping,
                findings: Vec::new(),
            }),
            Err(why) => devices.unmapped.extend(layout.footprint(logical).map(|piece| Unmapped {
                leaf: piece.candidate.leaf,
                range: piece.range,
                format: format!("lvm {}", logical.segments.first().map_or("volume", |stretch| stretch.kind.as_str())),
                finding: layout.refusal(logical, why),
            })),
        }
    }
    devices
}

/// What a user calls the layout of a mapped volume.
fn kind<'a>(mapping: &Mapping, segments: &'a [Stretch]) -> &'a str {
    let is_striped = |stretch: &Stretch| matches!(&stretch.rule, Rule::Striped { origins, .. } if origins.len() > 1);
    match segments.first() {
        Some(first) if mapping.redundancy() != Redundancy::None => first.kind.as_str(),
        _ if segments.iter().any(is_striped) => "striped",
        _ => "linear",
    }
}
