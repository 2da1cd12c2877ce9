//! From the description of a logical volume to the segments of a mapping, or to the reason why there are none.

use super::group::{Logical, Origin, Rule, Stretch, SyncState, VolumeGroup};
use super::kinds;
use super::state;
use crate::array::Candidate;
use crate::array::geometry::Geometry;
use crate::array::mapping::{Area, Mapping, Segment};
use crate::units::ByteRange;
use crate::volume::Finding;

/// A volume group and the devices of its physical volumes; none where one was not named.
pub(super) struct Layout<'a> {
    pub group: &'a VolumeGroup,
    pub places: Vec<Option<Candidate<'a>>>,
}

/// Bytes of a physical volume that was named.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub candidate: Candidate<'a>,
    /// From the start of the physical volume.
    pub range: ByteRange,
}

impl Piece<'_> {
    fn area(&self) -> Option<Area> {
        Some(Area { device: self.candidate.device, range: self.range.shift_up(self.candidate.start)? })
    }
}

/// Why a logical volume has no mapping: what is the matter with it, and what helps.
pub(super) type Why = (String, String);

fn damaged(what: &str) -> Why {
    (format!("is damaged: {what}"), "vgck checks the metadata of a volume group".to_owned())
}

/// States of a logical volume in which its mapping holds.
const KNOWN: &[&str] = &["READ", "WRITE", "VISIBLE", "FIXED_MINOR", "ACTIVATION_SKIP"];
/// The same for the parts of a mirror.
const KNOWN_OF_IMAGES: &[&str] = &["READ", "WRITE", "WRITEMOSTLY"];

impl<'a> Layout<'a> {
    /// What a user calls the volume.
    pub(super) fn called(&self, logical: &Logical) -> String {
        format!("{}/{}", self.group.name, logical.name)
    }

    /// A refusal that names the volume.
    pub(super) fn refusal(&self, logical: &Logical, (what, remedy): Why) -> Finding {
        let called = self.called(logical);
        Finding::refusal(format!("the logical volume {called} {what}"), remedy.replace("VG/LV", &called))
    }

    /// Where the bytes of a visible volume lie.
    pub(super) fn mapping(&self, logical: &Logical) -> Result<Mapping, Why> {
        let strange = logical.flags.iter().find(|flag| !KNOWN.contains(&flag.as_str()));
        if let Some(flag) = strange {
            return Err((
                format!("is in a state in which it is not mapped: {flag}"),
                "lvs -a -o +lv_attr VG/LV".to_owned(),
            ));
        }
        if !logical.has("WRITE") {
            return Err(("is set to be read only".to_owned(), "lvchange --permission rw VG/LV".to_owned()));
        }
        if let Some(user) = self.user(logical) {
            return Err(kinds::used_by(logical, user));
        }
        let mut segments = Vec::new();
        for stretch in &logical.segments {
            segments.extend(self.segments(stretch, logical.segments.len())?);
        }
        Mapping::new(segments).filter(Mapping::is_complete).ok_or_else(|| damaged("its extents do not fit together"))
    }

    /// Another volume of the group that speaks of this one.
    fn user(&self, logical: &Logical) -> Option<&'a Stretch> {
        let others = self.group.logical.iter().filter(|other| other.name != logical.name);
        others.flat_map(|other| &other.segments).find(|stretch| stretch.mentions.contains(&logical.name))
    }

    fn segments(&self, stretch: &Stretch, stretches: usize) -> Result<Vec<Segment>, Why> {
        let each = stretch.extents_of_each();
        let each = || each.ok_or_else(|| damaged("its stripes are not of one length"));
        match &stretch.rule {
            Rule::Other => Err(kinds::not_mapped(&stretch.kind)),
            Rule::Striped { chunk, origins } => {
                let areas = origins.iter().map(|origin| self.on_physical(origin, each()?));
                striped_segment(*chunk, areas.collect::<Result<Vec<_>, Why>>()?).map(|segment| vec![segment])
            }
            Rule::Mirrored { origins, state } => {
                // The records of such a volume speak of its images as a whole.
                if stretches != 1 {
                    return Err(kinds::not_mapped("a mirror of several segments"));
                }
                let images =
                    origins.iter().map(|origin| self.of_image(origin, each()?)).collect::<Result<Vec<_>, _>>()?;
                self.in_sync(origins.len(), state)?;
                mirrored_segments(&images).ok_or_else(|| damaged("its images are not of one length"))
            }
        }
    }

    /// Extents of a physical volume that must be here.
    fn piece(&self, origin: &Origin, count: u64) -> Result<Piece<'a>, Why> {
        let Some((number, physical)) = self.group.physical_named(&origin.name) else {
            return Err(kinds::not_mapped("extents of another logical volume"));
        };
        let range = self.group.bytes(physical, origin.extent, count);
        let range = range.ok_or_else(|| damaged(&format!("{} has no such extents", origin.name)))?;
        let here = self.places.get(number).copied().flatten();
        here.map(|candidate| Piece { candidate, range }).ok_or_else(|| {
            let hint = physical.hint.as_ref().map_or(String::new(), |hint| format!(", last seen as {hint}"));
            (
                format!("needs the physical volume {} ({}{hint}), which was not named", physical.name, physical.id),
                "name every physical volume of the group: pvs -o pv_name,vg_name,pv_uuid lists them".to_owned(),
            )
        })
    }

    fn on_physical(&self, origin: &Origin, count: u64) -> Result<Area, Why> {
        self.piece(origin, count)?.area().ok_or_else(|| damaged("it has no end"))
    }

    /// The first `count` extents of a hidden linear volume.
    fn pieces_of(&self, name: &str, count: u64) -> Result<Vec<Piece<'a>>, Why> {
        let hidden = self.group.logical_named(name).ok_or_else(|| damaged(&format!("there is no {name}")))?;
        if let Some(flag) = hidden.flags.iter().find(|flag| !KNOWN_OF_IMAGES.contains(&flag.as_str())) {
            return Err((
                format!("has a part that is not in sync or not in order: {name} is {flag}"),
                kinds::SYNC.to_owned(),
            ));
        }
        let mut pieces = Vec::new();
        let mut left = count;
        for stretch in &hidden.segments {
            let [origin] = stretch.origins() else { return Err(kinds::not_mapped(&stretch.kind)) };
            let extents = stretch.extents.min(left);
            if extents > 0 {
                pieces.push(self.piece(origin, extents)?);
            }
            left = left.saturating_sub(extents);
        }
        if left > 0 { Err(damaged(&format!("{name} is too short"))) } else { Ok(pieces) }
    }

    fn of_image(&self, origin: &Origin, count: u64) -> Result<Vec<Area>, Why> {
        if origin.extent != 0 {
            return Err(kinds::not_mapped("a part of an image"));
        }
        let pieces = self.pieces_of(&origin.name, count)?;
        pieces.iter().map(|piece| piece.area().ok_or_else(|| damaged("it has no end"))).collect()
    }

    /// An error unless all copies of a mirror hold the same, by what is written about that.
    fn in_sync(&self, copies: usize, state: &SyncState) -> Result<(), Why> {
        let trouble = |what: String| (what, kinds::SYNC.to_owned());
        let start = |name: &String| {
            let pieces = self.pieces_of(name, 1)?;
            pieces.first().copied().ok_or_else(|| damaged(&format!("{name} is empty")))
        };
        match state {
            SyncState::Log(None) => {
                Err(trouble("has its log in memory only, so that nothing says whether its copies agree".to_owned()))
            }
            SyncState::Log(Some(log)) => state::log_is_clean(start(log)?).map_err(trouble),
            SyncState::Records(names) => {
                let records = names.iter().map(start).collect::<Result<Vec<_>, Why>>()?;
                state::records_agree(copies, &records).map_err(trouble)
            }
        }
    }

    /// The first bytes of what a volume consists of that are on a physical volume that was named.
    pub(super) fn footprint(&self, logical: &Logical) -> Option<Piece<'a>> {
        let mut seen = vec![logical.name.as_str()];
        let mut next = 0;
        while let Some(name) = seen.get(next).copied() {
            next = next.saturating_add(1);
            for stretch in self.group.logical_named(name).map_or(&[][..], |found| &found.segments) {
                let each = stretch.extents_of_each().unwrap_or(1);
                if let Some(piece) = stretch.origins().iter().find_map(|origin| self.piece(origin, each).ok()) {
                    return Some(piece);
                }
                let below = self.group.logical.iter().filter(|other| stretch.mentions.contains(&other.name));
                let fresh: Vec<&str> =
                    below.map(|other| other.name.as_str()).filter(|name| !seen.contains(name)).collect();
                seen.extend(fresh);
            }
        }
        None
    }
}

fn striped_segment(chunk: u64, areas: Vec<Area>) -> Result<Segment, Why> {
    let lengths: Vec<u64> = areas.iter().map(|area| area.range.len()).collect();
    let rule = Geometry::in_turn(chunk, &lengths);
    let (geometry, len) = rule.ok_or_else(|| damaged("its stripes are larger than it is"))?;
    if lengths.iter().fold(0_u64, |sum, len| sum.saturating_add(*len)) != len {
        return Err(damaged("its stripes do not fill its extents"));
    }
    Ok(Segment { len, areas: areas.into_iter().map(Some).collect(), geometry })
}

/// Images that lie in several pieces each are cut where one of them ends a piece.
fn mirrored_segments(images: &[Vec<Area>]) -> Option<Vec<Segment>> {
    let mut rest: Vec<Vec<Area>> = images.iter().map(|areas| areas.iter().rev().copied().collect()).collect();
    let mut segments = Vec::new();
    while rest.iter().any(|areas| !areas.is_empty()) {
        let len = rest.iter().map(|areas| areas.last().map(|area| area.range.len())).min()??;
        let take = |areas: &mut Vec<Area>| {
            let area = areas.pop()?;
            let (start, end) = (area.range.start(), area.range.end());
            let cut = start.checked_add(len)?;
            areas.extend(ByteRange::new(cut, end).map(|range| Area { range, ..area }));
            Some(Area { range: ByteRange::new(start, cut)?, ..area })
        };
        let areas = rest.iter_mut().map(|areas| take(areas).map(Some)).collect::<Option<Vec<_>>>()?;
        segments.push(Segment { len, areas, geometry: Geometry::Mirrored });
    }
    Some(segments)
}
