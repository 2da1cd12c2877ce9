//! A volume group as its metadata describes it: the text's tree to checked facts.

use super::config::{Section, Value};
use crate::units::ByteRange;

/// LVM counts in sectors of 512 bytes, whatever the device's are.
const SECTOR: u64 = 512;
/// How many physical or logical volumes are looked at; real groups have a few hundred at most.
const MOST_VOLUMES: usize = 4096;

/// A volume group.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VolumeGroup {
    pub name: String,
    /// As LVM prints it.
    pub id: String,
    /// Counts the changes of the group.
    pub generation: u64,
    /// Bytes of an extent.
    pub extent: u64,
    /// Its states.
    pub flags: Vec<String>,
    /// How several machines share it.
    pub lock_type: Option<String>,
    pub physical: Vec<Physical>,
    pub logical: Vec<Logical>,
}

/// A physical volume.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Physical {
    /// Its name in the text (`pv0`).
    pub name: String,
    pub id: String,
    /// Where it was when the text was written.
    pub hint: Option<String>,
    pub flags: Vec<String>,
    /// Bytes before its first extent.
    pub start: u64,
    /// Number of extents.
    pub extents: u64,
}

/// A logical volume.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Logical {
    pub name: String,
    pub id: String,
    pub flags: Vec<String>,
    /// In the order of their extents, without gaps.
    pub segments: Vec<Stretch>,
}

/// Consecutive extents of a logical volume that are laid out by one rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The first extent.
    pub first: u64,
    /// How many.
    pub extents: u64,
    /// `striped`, `raid1`, `thin-pool`, ...
    pub kind: String,
    /// What the rule says.
    pub rule: Rule,
    /// Every name that is mentioned, of physical or logical volumes or of anything else.
    pub mentions: Vec<String>,
}

/// A place: extents of a physical volume, or of a hidden logical one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    pub name: String,
    pub extent: u64,
}

/// How the extents of a stretch lie below it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Chunks in turn; one origin alone is linear, and has no chunks.
    Striped {
        /// Bytes.
        chunk: u64,
        origins: Vec<Origin>,
    },
    /// The same on every origin; what says whether they are in sync.
    Mirrored { origins: Vec<Origin>, state: SyncState },
    /// A rule that is not mapped.
    Other,
}

/// Where the state of copies is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SyncState {
    /// A logical volume for each copy, with a record of dm-raid.
    Records(Vec<String>),
    /// One logical volume with the log of a mirror; none where it was kept in memory.
    Log(Option<String>),
}

impl VolumeGroup {
    /// The one volume group that a text describes.
    pub(super) fn read(root: &Section) -> Result<Self, String> {
        let mut groups = root.sections().filter(|(_, section)| section.section("physical_volumes").is_some());
        let (Some((name, section)), None) = (groups.next(), groups.next()) else {
            return Err("does not describe one volume group".to_owned());
        };
        if root.text("contents") != Some("Text Format Volume Group") || root.number("version") != Some(1) {
            return Err("is of a kind that is not known".to_owned());
        }
        let extent = sectors(section, "extent_size").filter(|extent| *extent > 0).ok_or("names no size of extents")?;
        let physical = section.section("physical_volumes").ok_or("names no physical volumes")?;
        let none = Section::default();
        let logical = section.section("logical_volumes").unwrap_or(&none);
        if physical.sections().count() > MOST_VOLUMES || logical.sections().count() > MOST_VOLUMES {
            return Err(format!("has more than {MOST_VOLUMES} volumes"));
        }
        Ok(Self {
            name: name.to_owned(),
            id: section.text("id").ok_or("names no identity")?.to_owned(),
            generation: section.number("seqno").ok_or("names no generation")?,
            extent,
            flags: flags(section),
            lock_type: section.text("lock_type").map(str::to_owned),
            physical: physical
                .sections()
                .map(|(name, section)| Physical::read(name, section))
                .collect::<Result<_, _>>()?,
            logical: logical
                .sections()
                .map(|(name, section)| Logical::read(name, section))
                .collect::<Result<_, _>>()?,
        })
    }

    /// The physical volume of this name, with its number.
    pub(super) fn physical_named(&self, name: &str) -> Option<(usize, &Physical)> {
        self.physical.iter().enumerate().find(|(_, physical)| physical.name == name)
    }

    /// The logical volume of this name.
    pub(super) fn logical_named(&self, name: &str) -> Option<&Logical> {
        self.logical.iter().find(|logical| logical.name == name)
    }

    /// `count` extents of a physical volume from `first` on, in bytes of its device; none where it has no such extents.
    pub(super) fn bytes(&self, physical: &Physical, first: u64, count: u64) -> Option<ByteRange> {
        first.checked_add(count).filter(|end| *end <= physical.extents)?;
        let start = physical.start.checked_add(first.checked_mul(self.extent)?)?;
        ByteRange::with_len(start, count.checked_mul(self.extent)?)
    }
}

impl Physical {
    fn read(name: &str, section: &Section) -> Result<Self, String> {
        let missing = |what: &str| format!("does not say the {what} of its physical volume {name}");
        Ok(Self {
            name: name.to_owned(),
            id: section.text("id").ok_or_else(|| missing("identity"))?.to_owned(),
            hint: section.text("device").map(str::to_owned),
            flags: flags(section),
            start: sectors(section, "pe_start").ok_or_else(|| missing("first extent"))?,
            extents: section.number("pe_count").ok_or_else(|| missing("number of extents"))?,
        })
    }
}

impl Logical {
    fn read(name: &str, section: &Section) -> Result<Self, String> {
        let wrong = |what: &str| format!("{what} in its logical volume {name}");
        let mut segments = section.sections().map(|(_, segment)| Stretch::read(segment)).collect::<Option<Vec<_>>>();
        segments.iter_mut().for_each(|segments| segments.sort_by_key(|segment| segment.first));
        let segments = segments.ok_or_else(|| wrong("leaves something out"))?;
        let mut end = 0_u64;
        for segment in &segments {
            if segment.first != end || segment.extents == 0 {
                return Err(wrong("has a gap"));
            }
            end = end.checked_add(segment.extents).ok_or_else(|| wrong("has no end"))?;
        }
        if section.number("segment_count").and_then(|count| usize::try_from(count).ok()) != Some(segments.len()) {
            return Err(wrong("counts other segments than there are"));
        }
        Ok(Self {
            name: name.to_owned(),
            id: section.text("id").ok_or_else(|| wrong("leaves out the identity"))?.to_owned(),
            flags: flags(section),
            segments,
        })
    }

    /// True for one that users see.
    pub(super) fn is_visible(&self) -> bool {
        self.has("VISIBLE")
    }

    /// True when it has this state.
    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|found| found == flag)
    }
}

impl Stretch {
    fn read(section: &Section) -> Option<Self> {
        let kind = section.text("type")?.to_owned();
        let rule = match kind.as_str() {
            "striped" | "linear" => striped(section)?,
            "raid1" => raid1(section)?,
            "mirror" => mirror(section)?,
            _ => Rule::Other,
        };
        let mut mentions = Vec::new();
        mentioned(section, &mut mentions);
        Some(Self {
            first: section.number("start_extent")?,
            extents: section.number("extent_count")?,
            kind,
            rule,
            mentions,
        })
    }

    /// Extents on each origin, where all have as many.
    pub(super) fn extents_of_each(&self) -> Option<u64> {
        match &self.rule {
            Rule::Striped { origins, .. } => {
                let count = crate::units::from_usize(origins.len());
                let each = self.extents.checked_div(count)?;
                (each.checked_mul(count) == Some(self.extents)).then_some(each)
            }
            Rule::Mirrored { .. } => Some(self.extents),
            Rule::Other => None,
        }
    }

    /// The places below, where the rule is known.
    pub(super) fn origins(&self) -> &[Origin] {
        match &self.rule {
            Rule::Striped { origins, .. } | Rule::Mirrored { origins, .. } => origins,
            Rule::Other => &[],
        }
    }
}

fn sectors(section: &Section, key: &str) -> Option<u64> {
    section.number(key)?.checked_mul(SECTOR)
}

/// The strings of both lists of states.
fn flags(section: &Section) -> Vec<String> {
    let lists = ["status", "flags"].into_iter().filter_map(|key| section.list(key));
    let texts = lists.flatten().filter_map(|value| match value {
        Value::Text(text) => Some(text.clone()),
        Value::Number(_) | Value::List(_) => None,
    });
    texts.collect()
}

/// Pairs of a name and an extent.
fn origins(list: &[Value]) -> Option<Vec<Origin>> {
    let (pairs, rest) = list.as_chunks::<2>();
    let origin = |pair: &[Value; 2]| match pair {
        [Value::Text(name), Value::Number(extent)] => {
            Some(Origin { name: name.clone(), extent: u64::try_from(*extent).ok()? })
        }
        _ => None,
    };
    let found = pairs.iter().map(origin).collect::<Option<Vec<_>>>()?;
    (rest.is_empty() && !found.is_empty()).then_some(found)
}

fn has_count(section: &Section, key: &str, count: usize) -> bool {
    section.number(key) == Some(crate::units::from_usize(count))
}

fn striped(section: &Section) -> Option<Rule> {
    let origins = origins(section.list("stripes")?)?;
    let chunk = if origins.len() == 1 { 0 } else { sectors(section, "stripe_size").filter(|chunk| *chunk > 0)? };
    has_count(section, "stripe_count", origins.len()).then_some(Rule::Striped { chunk, origins })
}

/// Pairs of the volume with the record and the one with the data.
fn raid1(section: &Section) -> Option<Rule> {
    let (mut records, mut images) = (Vec::new(), Vec::new());
    let (pairs, rest) = section.list("raids")?.as_chunks::<2>();
    for pair in pairs {
        let [Value::Text(record), Value::Text(image)] = pair else { return None };
        records.push(record.clone());
        images.push(Origin { name: image.clone(), extent: 0 });
    }
    let is_right = rest.is_empty() && images.len() > 1 && has_count(section, "device_count", images.len());
    is_right.then_some(Rule::Mirrored { origins: images, state: SyncState::Records(records) })
}

fn mirror(section: &Section) -> Option<Rule> {
    let origins = origins(section.list("mirrors")?)?;
    let log = section.text("mirror_log").map(str::to_owned);
    let is_right = origins.len() > 1 && has_count(section, "mirror_count", origins.len());
    is_right.then_some(Rule::Mirrored { origins, state: SyncState::Log(log) })
}

/// Every string in a section and those in it.
fn mentioned(section: &Section, found: &mut Vec<String>) {
    fn of(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Text(text) => found.push(text.clone()),
            Value::List(list) => list.iter().for_each(|value| of(value, found)),
            Value::Number(_) => {}
        }
    }
    section.values().filter(|(key, _)| !matches!(*key, "type" | "tags")).for_each(|(_, value)| of(value, found));
    section.sections().for_each(|(_, section)| mentioned(section, found));
}
