//! What an area holds, read to the end.

use super::claims::{Claim, claims, set_records_apart, stale_records};
use super::{Content, Depth, Leaf, Options, Standing, WitnessMode};
use crate::error::{ErrorKind, ParseError};
use crate::foreign::{Meaning, has_bytes};
use crate::fs::Format;
use crate::source::{Source, Window};
use crate::volume::{Finding, Volume};
use crate::witness::{Testimony, Witness, hear};

pub(super) fn read_leaf(leaf: &Leaf, source: &Window<'_>, companions: &[&dyn Source], options: &Options) -> Content {
    if options.depth == Depth::Tables {
        return read_no_further(leaf, source);
    }
    if let Some(part) = &leaf.part {
        if let Some(reason) = &part.kept {
            return Content::kept(None, reason);
        }
        if let Some(reason) = &part.refused {
            return refused(None, reason.clone(), "");
        }
    }
    let found = match claims(source, leaf.sector_size) {
        Ok(found) => found,
        Err(error) => {
            return refused_by_error("the area", &error, "copy the drive first: ddrescue DEVICE IMAGE MAPFILE");
        }
    };
    if let Some(standing) = &leaf.standing {
        return read_member(leaf, standing, &found, source, companions, options);
    }
    let (found, records) = set_records_apart(found);
    let minds = |claim: &Claim| matches!(claim, Claim::Format(row) if row.minds_neighbours());
    if options.depth == Depth::Surroundings && !found.iter().any(minds) {
        return Content::kept(None, "only what lies around it was asked for");
    }
    match found.as_slice() {
        [] => Content::Refused {
            format: None,
            finding: Finding::refusal(
                "no known filesystem was found, and unknown data is never free",
                "look at it with: blkid -p DEVICE",
            ),
            is_unknown: true,
        },
        // A virtual machine's disk, for example: whose map would count, the inner table decides.
        [Claim::Container(row)] => refused(
            Some(row.name()),
            "a partition table lies inside the partition, and coldtrim divides partitions no further",
            "name the partition itself as the target, or attach it as a disk: losetup --find --show -P DEVICE",
        ),
        [Claim::Format(format)] => {
            let mut findings = leaf.findings.clone();
            findings.extend(records.iter().map(|row| stale_records(row)));
            read_volume(*format, source, companions, options, findings)
        }
        [Claim::Foreign(row)] if row.meaning == Meaning::Kept => {
            match row.body.map_or(Ok(Vec::new()), |body| body(source)) {
                Ok(spare) => Content::Kept { format: Some(row.name.to_owned()), reason: row.advice.to_owned(), spare },
                Err(error) => refused_by_error(row.name, &error, "copy the drive first: ddrescue DEVICE IMAGE MAPFILE"),
            }
        }
        [Claim::Foreign(row)] => {
            refused(Some(row.name), format!("{} is recognised, but not trimmed by coldtrim", row.name), row.advice)
        }
        several => ambiguous(several),
    }
}

/// What is said where only the tables were asked for: nothing, unless one may lie there that cannot be told apart; of
/// what has no table, whose it is.
fn read_no_further(leaf: &Leaf, source: &Window<'_>) -> Content {
    let found = if leaf.part.is_none() { claims(source, leaf.sector_size) } else { Ok(Vec::new()) };
    match found {
        Ok(found) if found.iter().any(|claim| matches!(claim, Claim::Container(_))) => ambiguous(&found),
        Ok(found) => Content::kept(found.first().map(Claim::name), "only the partition tables were asked for"),
        Err(error) => refused_by_error("the area", &error, "copy the drive first: ddrescue DEVICE IMAGE MAPFILE"),
    }
}

/// An area with the record of a member. Whatever its start looks like, it is a part of something else, unless the user
/// knows that the record is stale; that is possible only where the record lies behind everything that is there.
fn read_member(
    leaf: &Leaf,
    standing: &Standing,
    found: &[Claim],
    source: &Window<'_>,
    companions: &[&dyn Source],
    options: &Options,
) -> Content {
    let record = found.iter().find_map(|claim| match claim {
        Claim::Foreign(row) if row.meaning == Meaning::Member => Some(*row),
        _ => None,
    });
    let name = record.map(|row| row.name);
    let finding = match standing {
        Standing::Member(words) => return Content::kept(name, words),
        Standing::NotAssembled(finding) => finding,
    };
    match found {
        [Claim::Format(format), Claim::Foreign(row)] if row.is_member_by_its_end() => {
            let mut findings = leaf.findings.clone();
            findings.extend([stale_records(row), Finding::warning(finding.message.clone())]);
            read_volume(*format, source, companions, options, findings)
        }
        _ => Content::Refused { format: name.map(str::to_owned), finding: finding.clone(), is_unknown: false },
    }
}

/// What helps where several things claim an area.
pub(super) const WHICH_IS_STALE: &str = "find out which one is stale and erase that signature alone: wipefs DEVICE lists \
                                         them, wipefs -o OFFSET DEVICE erases one";

fn ambiguous(found: &[Claim]) -> Content {
    let names: Vec<&str> = found.iter().map(Claim::name).collect();
    refused(
        None,
        format!("signatures of {} are on the same area, so it is not clear whose data this is", names.join(" and ")),
        WHICH_IS_STALE,
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
        WitnessMode::WhereNeeded => volume.needs_witness && witness.is_complete(),
        WitnessMode::Never => false,
    };
    let testimony: Vec<Testimony> = if volume.is_usable() {
        let wanted = format.witnesses().iter().filter(|witness| wanted(**witness));
        wanted.map(|witness| hear(*witness, source, &volume.free)).collect()
    } else {
        Vec::new()
    };
    volume.findings.extend(verdicts(format, volume.needs_witness, &testimony));
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
    // The name of a family will do, unless it is that of another member (an ext2 volume is not ext4).
    let is_another = |members: &[&str]| members.contains(&expected) && members.contains(&volume.format.as_str());
    let is_it = expected == volume.format || (expected == format.name() && !is_another(format.variants()));
    (!is_it).then(|| {
        Finding::refusal(
            format!("the volume is {}, not {expected} as --fs expects", volume.format),
            "check that this is the volume that you mean",
        )
    })
}

/// What follows from the testimony: a clash forbids everything, silence forbids where a witness is needed.
fn verdicts(format: &dyn Format, needed: bool, testimony: &[Testimony]) -> Vec<Finding> {
    let complete = |name: &str| format.witnesses().iter().any(|w| w.name() == name && w.is_complete());
    testimony
        .iter()
        .filter_map(|words| match words {
            Testimony::Clash { witness, owner, range } => Some(Finding::refusal(
                format!("{range} belong to {owner} (says {witness}), but the allocation structure calls them free"),
                format.checker(),
            )),
            Testimony::Absent { witness, reason } if needed && complete(witness) => Some(Finding::refusal(
                format!("the second reading of the volume failed ({witness}: {reason})"),
                format.checker(),
            )),
            Testimony::Absent { witness, reason } => {
                Some(Finding::warning(format!("witness {witness} could not read the volume: {reason}")))
            }
            Testimony::Agrees { .. } => None,
        })
        .collect()
}

pub(super) fn refused(format: Option<&str>, message: impl Into<String>, remedy: &str) -> Content {
    Content::Refused {
        format: format.map(str::to_owned),
        finding: Finding::refusal(message, remedy),
        is_unknown: false,
    }
}

pub(super) fn refused_by_error(format: &str, error: &ParseError, checker: &str) -> Content {
    let (what, remedy) = match error.kind() {
        ErrorKind::Io => ("cannot be read", "copy the drive first: ddrescue DEVICE IMAGE MAPFILE"),
        ErrorKind::Corrupt => ("is damaged", checker),
        ErrorKind::Unsupported => ("uses something that coldtrim does not know", ""),
    };
    refused(Some(format), format!("{format} {what}: {error}"), remedy)
}
