//! What claims to live in an area: every signature of every table.

use crate::container::{CONTAINERS, Container};
use crate::error::ParseError;
use crate::foreign::{FOREIGN, Foreign, Meaning};
use crate::fs::{FORMATS, Format};
use crate::pages::Pages;
use crate::source::Source;
use crate::volume::{Consent, Finding};

/// What claims to live in an area.
#[derive(Clone, Copy)]
pub(super) enum Claim {
    Container(&'static dyn Container),
    Format(&'static dyn Format),
    Foreign(&'static Foreign),
}

impl Claim {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Container(row) => row.name(),
            Self::Format(row) => row.name(),
            Self::Foreign(row) => row.name,
        }
    }
}

/// Every row of every table whose signature is there.
pub(super) fn claims(source: &dyn Source, sector_size: u64) -> Result<Vec<Claim>, ParseError> {
    // Most signatures lie in the same few pages at both ends.
    let source = &Pages::new(source);
    let mut found = Vec::new();
    for row in CONTAINERS {
        if row.probe(source, sector_size)? {
            found.push(Claim::Container(*row));
        }
    }
    for row in FORMATS {
        if row.probe(source)? {
            found.push(Claim::Format(*row));
        }
    }
    for row in FOREIGN {
        if row.probe(source)? {
            found.push(Claim::Foreign(row));
        }
    }
    Ok(found)
}

/// Takes the records of firmware RAIDs out, unless there is nothing else: a user may say that they are stale.
pub(super) fn set_records_apart(found: Vec<Claim>) -> (Vec<Claim>, Vec<&'static Foreign>) {
    let is_record = |claim: &Claim| matches!(claim, Claim::Foreign(row) if row.meaning == Meaning::RaidRecords);
    let (records, rest): (Vec<Claim>, Vec<Claim>) = found.into_iter().partition(is_record);
    if rest.is_empty() {
        return (records, Vec::new());
    }
    let rows = records.iter().filter_map(|claim| match claim {
        Claim::Foreign(row) => Some(*row),
        Claim::Container(_) | Claim::Format(_) => None,
    });
    (rest, rows.collect())
}

/// The same for records at the end of a disk that is divided: the command to type is about the disk, not the volume.
pub(super) fn stale_records_of_disk(row: &Foreign) -> Finding {
    let finding = stale_records(row);
    Finding { remedy: finding.remedy.replace("DEVICE", "DISK"), ..finding }
}

pub(super) fn stale_records(row: &Foreign) -> Finding {
    Finding::consent(
        Consent::StaleRaidMetadata,
        format!(
            "records of a {} lie at the end of the disk: it may be a member, and what looks like a volume only a part of \
             one. Where they are not stale, trimming destroys data of the RAID",
            row.name
        ),
        row.advice,
    )
}
