//! NTFS, versions 1.1 to 3.1.
//!
//! ```text
//! byte 0         $Boot: boot sector, boot code, header of the shadow copies (byte 0x1E00)
//! cluster mft    $MFT: records of 1 KiB (or 512 to 4096 bytes), one or more a file
//!                  0 $MFT  1 $MFTMirr  2 $LogFile  3 $Volume  5 root directory  6 $Bitmap  7 $Boot  8 $BadClus
//! anywhere       what the runs in those records say
//! last sector    the backup boot sector: outside every cluster, behind the sectors that the volume counts
//! ```
//!
//! The boot sector leads to record 0, record 0 to the whole table, record 6 to $Bitmap. Before a bit of it is believed
//! the copies of the boot sector and of the first records are compared, records are checked against torn writes, and
//! $Volume, $LogFile, hiberfil.sys and the header of the shadow copies are asked whether the volume is at rest: a clear
//! dirty flag alone proves nothing, because Windows sets it late.

mod crate_witness;
mod error;
mod free;
mod hibernation;
mod log;
mod mft;
mod ondisk;
mod record;
mod runs;
mod shadow;
mod superblock;
mod system;
#[cfg(test)]
mod tests;
mod volume_record;
mod witness;

use super::Format;
use crate::error::ParseError;
use crate::foreign::has_bytes;
use crate::source::Source;
use crate::volume::{Finding, Volume};
use crate::witness::Witness;
use mft::Mft;
use superblock::{Backup, Geometry, compare_backup};

/// The format's row.
pub struct Ntfs;

impl Format for Ntfs {
    fn name(&self) -> &'static str {
        "ntfs"
    }

    fn variants(&self) -> &'static [&'static str] {
        &["ntfs"]
    }

    fn probe(&self, source: &dyn Source) -> Result<bool, ParseError> {
        has_bytes(source, 3, b"NTFS    ")
    }

    fn minds_neighbours(&self) -> bool {
        true
    }

    fn read(&self, source: &dyn Source, companions: &[&dyn Source]) -> Result<Volume, ParseError> {
        let geometry = Geometry::read(source)?;
        let mut findings: Vec<Finding> = backup_finding(source, &geometry)?.into_iter().collect();
        let mft = Mft::open(source, geometry)?;
        system::check_mirror(&mft)?;
        let record = volume_record::read(&mft)?;
        findings.extend(volume_record::finding(&record)?);
        let log = log::read(&mft)?;
        findings.extend(log.finding);
        findings.extend(hibernation::finding(&mft)?);
        findings.extend(companions.iter().filter_map(|other| hibernated_beside(*other)));
        findings.extend(shadow::finding(source)?);
        Ok(Volume {
            format: "ntfs".to_owned(),
            label: record.label,
            uuid: Some(format!("{:016X}", geometry.serial)),
            size: geometry.size(),
            block_size: geometry.cluster.bytes(),
            free: free::read(&mft)?,
            needs_witness: log.erased,
            findings,
        })
    }

    fn checker(&self) -> &'static str {
        "check it in Windows: chkdsk DEVICE /f"
    }

    fn witnesses(&self) -> &'static [&'static dyn Witness] {
        &[&witness::Walk, &crate_witness::Crate]
    }
}

fn backup_finding(source: &dyn Source, geometry: &Geometry) -> Result<Option<Finding>, ParseError> {
    let what = match compare_backup(source, geometry)? {
        Backup::Same => return Ok(None),
        Backup::Different => "differs from the boot sector",
        Backup::Missing => "is missing",
    };
    Ok(Some(Finding::refusal(
        format!(
            "the backup boot sector at byte {} {what}: the volume does not end where its boot sector says (a shrunk \
             partition, a cut copy, or a part of something larger)",
            geometry.backup
        ),
        "compare the partition with the volume: ntfsinfo -m DEVICE; repair it in Windows: chkdsk DEVICE /f",
    )))
}

/// A hibernated Windows keeps its picture of all the volumes it had mounted, not only of the one it lies on.
fn hibernated_beside(other: &dyn Source) -> Option<Finding> {
    if !Ntfs.probe(other).unwrap_or(false) {
        return None;
    }
    let mft = Mft::open(other, Geometry::read(other).ok()?).ok()?;
    let finding = hibernation::finding(&mft).ok()??;
    Some(Finding::refusal(format!("another volume given here is NTFS, and there {}", finding.message), finding.remedy))
}
