//! Linux software RAID (md): records of version 0.90, 1.0, 1.1 and 1.2; linear, RAID0, RAID1, RAID4, RAID5, RAID6 and
//! RAID10.
//!
//! ```text
//! 1.1  |record .. bitmap .. | data .............................. |
//! 1.2  |4 KiB|record .. bitmap .. | data ........................ |
//! 1.0  |data ...................................... | .. |record | |
//! 0.90 |data ...................................... |record + bitmap| < 64 KiB
//! ```
//!
//! A record says which array its device belongs to, which slot of it, and how often the array's state has changed. Only
//! an array whose members all say the same, in every slot, is mapped. Source: Linux `drivers/md/md.c`.

mod layout;
mod ondisk;
mod one;
mod record;
mod zero;

use super::mapping::{Area, Mapping, Redundancy};
use super::{Assembled, Assembly, Candidate, Devices, Group, Role};
use crate::error::{ErrorKind, ParseError};
use crate::source::Source;
use crate::units::from_usize;
use crate::volume::Finding;
pub(super) use one::has_intent;
use record::{Duty, Record};

/// The row of the table.
pub struct Md;

const EXAMINE: &str =
    "mdadm --examine DEVICE shows what it belongs to; if the record is stale: mdadm --zero-superblock DEVICE";
const SYNC: &str = "assemble the array, let it finish (cat /proc/mdstat), stop it (mdadm --stop), and try again";

impl Assembly for Md {
    fn name(&self) -> &'static str {
        "md"
    }

    fn probe(&self, source: &dyn Source) -> Result<bool, ParseError> {
        Ok(!record::places(source)?.is_empty())
    }

    fn assemble(&self, candidates: &[Candidate<'_>]) -> Vec<Group> {
        let mut groups = Vec::new();
        let mut sets: Vec<Vec<Given<'_>>> = Vec::new();
        for candidate in candidates {
            match Record::read(candidate.source) {
                Err(error) => groups.push(unreadable(candidate, &error)),
                Ok(record) => {
                    let given = Given { candidate: *candidate, record };
                    match sets.iter_mut().find(|set| set.iter().any(|other| other.record.uuid == given.record.uuid)) {
                        Some(set) => set.push(given),
                        None => sets.push(vec![given]),
                    }
                }
            }
        }
        let count = sets.len();
        groups.extend(sets.iter().map(|set| group(set, count)));
        groups
    }
}

/// A candidate and what its record says.
struct Given<'a> {
    candidate: Candidate<'a>,
    record: Record,
}

impl Given<'_> {
    fn mention(&self) -> String {
        self.candidate.mention()
    }
}

fn unreadable(candidate: &Candidate<'_>, error: &ParseError) -> Group {
    let what = match error.kind() {
        ErrorKind::Io => "cannot be read",
        ErrorKind::Corrupt => "is damaged",
        ErrorKind::Unsupported => "uses something that coldtrim does not know",
    };
    let finding = Finding::refusal(format!("it is a member of a Linux RAID whose record {what}: {error}"), EXAMINE);
    let member = Role { leaf: candidate.leaf, words: "member".to_owned(), spare: Vec::new() };
    Group { members: vec![member], title: "an array".to_owned(), outcome: Err(finding) }
}

fn group(set: &[Given<'_>], arrays: usize) -> Group {
    let role = |given: &Given<'_>| Role {
        leaf: given.candidate.leaf,
        words: match given.record.duty {
            Duty::Member(slot) => format!("member {slot}"),
            Duty::Spare => "spare".to_owned(),
            Duty::Faulty => "failed member".to_owned(),
            Duty::Journal => "journal".to_owned(),
        },
        spare: Vec::new(),
    };
    let title = set.iter().find_map(|given| given.record.name.clone());
    Group {
        members: set.iter().map(role).collect(),
        title: title.or_else(|| Some(set.first()?.record.uuid.clone())).unwrap_or_default(),
        outcome: array(set, arrays).map(|array| Devices { mapped: vec![array], unmapped: Vec::new() }),
    }
}

/// The array of one set of members.
fn array(set: &[Given<'_>], arrays: usize) -> Result<Assembled, Finding> {
    let called = called(set);
    let refuse = |message: String, remedy: &str| Finding::refusal(format!("the array {called} {message}"), remedy);
    agree(set).map_err(|message| refuse(message, EXAMINE))?;
    let first = set.first().ok_or_else(|| refuse("has no members".to_owned(), EXAMINE))?;
    let shape = &first.record.shape;
    in_order(set).map_err(|message| refuse(message, SYNC))?;
    let slots = slots(set, shape.slots).map_err(|message| refuse(message, EXAMINE))?;
    let data: Vec<Option<Area>> = slots
        .iter()
        .map(|given| {
            let (device, range) =
                given.map(|given| (given.candidate.device, given.record.data.shift_up(given.candidate.start)))?;
            Some(Area { device, range: range? })
        })
        .collect();
    let segment = layout::segment(shape, &data).map_err(|message| refuse(message, EXAMINE))?;
    let missing: Vec<usize> =
        slots.iter().enumerate().filter(|(_, given)| given.is_none()).map(|(slot, _)| slot).collect();
    let complaint = || {
        refuse(
            missing_words(set, &missing, shape, arrays),
            "name every member of the array: mdadm --examine --scan --verbose lists them",
        )
    };
    let mapping = Mapping::new(vec![segment]).filter(Mapping::is_readable).ok_or_else(complaint)?;
    if mapping.redundancy() != Redundancy::None {
        set.iter().try_for_each(|given| settled(given).map_err(|message| refuse(message, SYNC)))?;
    }
    Ok(Assembled {
        format: format!("md {}", layout::level_name(shape.level).unwrap_or("array")),
        name: set.iter().find_map(|given| given.record.name.clone()),
        uuid: first.record.uuid.clone(),
        pool: None,
        mapping,
        findings: Vec::new(),
    })
}

/// The array's name and identity, in words.
fn called(set: &[Given<'_>]) -> String {
    let uuid = set.first().map_or("", |given| given.record.uuid.as_str());
    match set.iter().find_map(|given| given.record.name.as_deref()) {
        Some(name) => format!("\"{name}\" ({uuid})"),
        None => uuid.to_owned(),
    }
}

/// All records say the same, but for the device's own part.
fn agree(set: &[Given<'_>]) -> Result<(), String> {
    let Some(first) = set.first() else { return Ok(()) };
    for given in set {
        if given.record.shape != first.record.shape || given.record.version != first.record.version {
            return Err(format!(
                "is described differently by its members: {} says {}, {} says {}; one of them is of another generation",
                first.mention(),
                shape_words(&first.record),
                given.mention(),
                shape_words(&given.record)
            ));
        }
    }
    // A spare may lag behind: it holds nothing.
    let members = || set.iter().filter(|given| matches!(given.record.duty, Duty::Member(_)));
    let newest = members().map(|given| given.record.events).max().unwrap_or(0);
    let stale: Vec<String> = members()
        .filter(|given| given.record.events != newest)
        .map(|given| format!("{} stopped at event {}", given.mention(), given.record.events))
        .collect();
    if stale.is_empty() {
        return Ok(());
    }
    Err(format!("went on to event {newest} without some of its members: {}; what they hold is older", stale.join(", ")))
}

fn shape_words(record: &Record) -> String {
    let shape = &record.shape;
    format!(
        "version {}, {} of {} members, layout {:#x}, chunks of {} bytes, {} bytes of each",
        record.version.name(),
        layout::level_name(shape.level).unwrap_or("an unknown level"),
        shape.slots,
        shape.layout,
        shape.chunk,
        shape.size
    )
}

/// No member is in a state in which its data may lie elsewhere.
fn in_order(set: &[Given<'_>]) -> Result<(), String> {
    for given in set {
        if let Some(trouble) = given.record.troubles.first() {
            return Err(format!("cannot be mapped, {} says: {trouble}", given.mention()));
        }
        match given.record.duty {
            Duty::Member(_) | Duty::Spare => {}
            Duty::Faulty => {
                return Err(format!("no longer has {} as a member: it was failed or removed", given.mention()));
            }
            Duty::Journal => {
                return Err(format!("has a write journal ({}), which may hold newer data", given.mention()));
            }
        }
    }
    Ok(())
}

/// The member of every slot; none where one is missing.
fn slots<'a, 'b>(set: &'a [Given<'b>], count: u32) -> Result<Vec<Option<&'a Given<'b>>>, String> {
    (0..count)
        .map(|slot| {
            let mut here = set.iter().filter(|given| given.record.duty == Duty::Member(slot));
            match (here.next(), here.next()) {
                (Some(one), Some(other)) => Err(format!(
                    "has two members for slot {slot}, {} and {}: one is a copy or of another generation",
                    one.mention(),
                    other.mention()
                )),
                (found, _) => Ok(found),
            }
        })
        .collect()
}

fn missing_words(set: &[Given<'_>], missing: &[usize], shape: &record::Shape, arrays: usize) -> String {
    let given: Vec<String> = set
        .iter()
        .filter_map(|given| match given.record.duty {
            Duty::Member(slot) => Some(format!("{} is member {slot}", given.mention())),
            _ => None,
        })
        .collect();
    let words: Vec<String> = missing.iter().map(ToString::to_string).collect();
    let level = layout::level_name(shape.level).unwrap_or("array");
    let mixed = match arrays {
        0 | 1 => String::new(),
        more => format!("; members of {more} arrays were named"),
    };
    let found = if given.is_empty() { "none of its members is here".to_owned() } else { given.join(", ") };
    match words.as_slice() {
        [] => format!("({level} of {} members) does not fit onto its members: {found}", shape.slots),
        words => format!("({level} of {} members) lacks member {}: {found}{mixed}", shape.slots, words.join(", ")),
    }
}

/// A member of an array with copies or parity is in sync, and knows of nothing that is not.
fn settled(given: &Given<'_>) -> Result<(), String> {
    let here = given.mention();
    if !given.record.clean {
        return Err(format!("was not stopped cleanly, or its first synchronisation never ended, says {here}"));
    }
    if let Some(slot) = given.record.in_sync.iter().position(|there| !there) {
        return Err(format!("runs without member {slot}, says {here}: its copies and parity are not complete"));
    }
    let Some(at) = given.record.bitmap else { return Ok(()) };
    match has_intent(given.candidate.source, at) {
        Ok(false) => Ok(()),
        Ok(true) => Err(format!("has areas that may not be in sync, says the write-intent bitmap of {here}")),
        Err(error) => Err(format!("has a write-intent bitmap on {here} that cannot be read: {error}")),
    }
}

/// Number of members, for rules that count in 64 bits.
fn count<T>(list: &[T]) -> u64 {
    from_usize(list.len())
}
