//! FAT12, FAT16 and FAT32.
//!
//! ```text
//! | boot sector, FSInfo, copies | FAT | FAT copy | root directory | cluster 2 | cluster 3 | ... | rest |
//! | reserved sectors            |                | (FAT12/16)     | grid of the free map        |
//! ```
//!
//! The file allocation table is an array with one entry a cluster; 0 means free. There is no journal and no checksum.
//! What protects the map: the boot sector's numbers agree with each other, all copies of the table agree, both dirty
//! marks are clear, and the witness, which follows every file's chain and is heard by default.
//!
//! Free is exactly the value 0: bad clusters, reserved values, lost chains are used. Everything outside of whole
//! clusters is used: the reserved sectors, the FATs, the fixed root directory, the rest behind the last cluster.

mod free;
mod label;
mod ondisk;
mod superblock;
#[cfg(test)]
mod tests;
mod witness;

use crate::error::ParseError;
use crate::free_map::DeclaredFree;
use crate::fs::Format;
use crate::source::{Source, read_struct};
use crate::units::sub;
use crate::volume::{Finding, Volume};
use crate::witness::Witness;
use ondisk::{FSINFO_LEAD, FSINFO_STRUCT, RawFsInfo};
use superblock::{Geometry, Root};

/// The row in the table of formats.
pub struct Fat;

/// What clears a dirty mark and mends a damaged volume.
const CHECKER: &str = "fsck.fat -a DEVICE";

/// Width of the table's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fat12,
    Fat16,
    Fat32,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Fat12 => "fat12",
            Self::Fat16 => "fat16",
            Self::Fat32 => "fat32",
        }
    }

    /// The kind that the boot sector's name field states, if it states one (`FAT     ` does not).
    fn by_name(name: &[u8; 8]) -> Option<Self> {
        match name {
            b"FAT12   " => Some(Self::Fat12),
            b"FAT16   " => Some(Self::Fat16),
            b"FAT32   " => Some(Self::Fat32),
            _ => None,
        }
    }
}

/// What only FAT can have.
#[derive(Debug, thiserror::Error)]
enum FatError {
    #[error("the volume has {0} FATs; 1 or 2 are understood")]
    FatCount(u8),
    #[error("FAT32 version {0:#x}; only 0 is understood")]
    Version(u16),
    #[error(
        "the type is not certain: {clusters} clusters, {raw} sectors in the 16-bit field for the FAT's size, and the \
         boot sector names {}", named.map_or("no type", Kind::name)
    )]
    Contradiction { clusters: u64, raw: u16, named: Option<Kind> },
    #[error("the boot sector and its backup differ: {first:#04x} here, {copy:#04x} at byte {at}")]
    BackupDiffers { at: u64, first: u8, copy: u8 },
    #[error("the copies of the FAT differ at cluster {cluster}: the mark of an interrupted write")]
    CopiesDiffer { cluster: u64 },
}

impl Format for Fat {
    fn name(&self) -> &'static str {
        "fat"
    }

    fn variants(&self) -> &'static [&'static str] {
        &["fat12", "fat16", "fat32"]
    }

    fn probe(&self, source: &dyn Source) -> Result<bool, ParseError> {
        superblock::probe(source)
    }

    fn read(&self, source: &dyn Source, _companions: &[&dyn Source]) -> Result<Volume, ParseError> {
        let geometry = superblock::read(source)?;
        let mut table = free::read(source, &geometry)?;
        if let Root::Cluster(cluster) = geometry.root {
            table.map.must_be_used(sub(cluster, 2, "the root cluster")?, 1, "the root directory")?;
        }
        let mut findings = state_findings(&geometry, table.flags);
        let (declared, remark) = declared_free(source, &geometry)?;
        let free = table.map.finish(declared)?;
        findings.extend(remark.or(free.warning().map(str::to_owned)).map(Finding::warning));
        findings.extend(geometry.lacks_backup.then(|| Finding::warning("the boot sector's backup is missing")));
        let [low, high] = [geometry.serial & 0xFFFF, geometry.serial >> 16];
        Ok(Volume {
            format: geometry.kind.name().to_owned(),
            label: label::read(source, &geometry)?,
            uuid: Some(format!("{high:04X}-{low:04X}")),
            size: geometry.size,
            block_size: geometry.grid.block().bytes(),
            free,
            needs_witness: true,
            findings,
        })
    }

    fn checker(&self) -> &'static str {
        CHECKER
    }

    fn witnesses(&self) -> &'static [&'static dyn Witness] {
        &[&witness::FatWalk, &witness::CrateReader]
    }
}

/// The two marks of an unclean unmount, and the two of errors of the drive. The marks in FAT entry 1 are set when
/// all is well.
fn state_findings(geometry: &Geometry, flags: u32) -> Vec<Finding> {
    let (clean, sound) = match geometry.kind {
        Kind::Fat12 => (0, 0),
        Kind::Fat16 => (1 << 15, 1 << 14),
        Kind::Fat32 => (1 << 27, 1 << 26),
    };
    let (state, at) = geometry.state;
    let fat_at = geometry.fats.first().copied().unwrap_or_default();
    let marks = [
        (state & 1 != 0, format!("the dirty bit in the boot sector is set (byte {at}, found {state:#04x})")),
        (state & 2 != 0, format!("the boot sector tells of surface errors (byte {at}, found {state:#04x})")),
        (
            flags & clean != clean,
            format!(
                "FAT entry 1 says that the volume was not cleanly unmounted (FAT at byte {fat_at}, found {flags:#x})"
            ),
        ),
        (
            flags & sound != sound,
            format!("FAT entry 1 tells of errors of the drive (FAT at byte {fat_at}, found {flags:#x})"),
        ),
    ];
    marks.into_iter().filter(|(set, _)| *set).map(|(_, what)| Finding::refusal(what, CHECKER)).collect()
}

/// FSInfo's count is a hint that many writers leave stale; it decides nothing.
fn declared_free(source: &dyn Source, geometry: &Geometry) -> Result<(DeclaredFree, Option<String>), ParseError> {
    let Some(at) = geometry.fs_info else {
        return Ok((DeclaredFree::Unknown, None));
    };
    let raw: RawFsInfo = read_struct(source, at)?;
    if raw.lead_sig.get() != FSINFO_LEAD || raw.struc_sig.get() != FSINFO_STRUCT {
        return Ok((DeclaredFree::Unknown, Some(format!("the FSInfo sector at byte {at} has no signature"))));
    }
    Ok(match raw.free_count.get() {
        u32::MAX => (DeclaredFree::Unknown, None),
        count => (DeclaredFree::Hint(count.into()), None),
    })
}
