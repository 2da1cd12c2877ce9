//! The boot sector: from raw bytes to a geometry whose numbers agree with each other and with the source.

use super::error::NtfsError;
use super::ondisk::RawBoot;
use crate::error::ParseError;
use crate::source::{Source, read_struct, read_vec};
use crate::units::{BlockSize, add, mul};

/// Sizes of clusters and records, and where things begin. Made only by [`Geometry::read`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    /// Bytes of a sector as the volume counts.
    pub sector: u64,
    pub cluster: BlockSize,
    /// Whole clusters of the volume.
    pub clusters: u64,
    /// Bytes of an MFT record, a power of two.
    pub record: u64,
    /// First cluster of $MFT.
    pub mft: u64,
    /// First cluster of $MFTMirr.
    pub mirror: u64,
    /// Byte position of the backup boot sector: behind the last sector that the volume counts.
    pub backup: u64,
    pub serial: u64,
}

/// The largest cluster that Windows makes.
const MAX_CLUSTER: u64 = 2 << 20;

impl Geometry {
    pub(super) fn read(source: &dyn Source) -> Result<Self, ParseError> {
        let raw: RawBoot = read_struct(source, 0)?;
        check_constants(&raw)?;
        let sector = u64::from(raw.bytes_per_sector.get());
        if !sector.is_power_of_two() || !(512..=4096).contains(&sector) {
            return Err(boot(0x0B, "sector size", sector, "a power of two from 512 to 4096"));
        }
        let cluster = cluster_size(sector, raw.sectors_per_cluster)?;
        let sectors = raw.number_of_sectors.get();
        let backup = mul(sectors, sector, "the end of the volume").map_err(|e| ParseError::corrupt(0x28, e))?;
        let geometry = Self {
            sector,
            cluster,
            clusters: cluster.whole_blocks(backup),
            record: record_size(cluster, raw.clusters_per_mft_record)?,
            mft: raw.mft_lcn.get(),
            mirror: raw.mftmirr_lcn.get(),
            backup,
            serial: raw.volume_serial_number.get(),
        };
        geometry.check(source)?;
        Ok(geometry)
    }

    fn check(&self, source: &dyn Source) -> Result<(), ParseError> {
        if self.backup > source.len() {
            return Err(ParseError::corrupt(0x28, NtfsError::Cut { spans: self.backup, there: source.len() }));
        }
        for (at, field, lcn) in [(0x30, "cluster of $MFT", self.mft), (0x38, "cluster of $MFTMirr", self.mirror)] {
            if lcn == 0 || lcn >= self.clusters {
                return Err(boot(at, field, lcn, "a cluster of the volume"));
            }
        }
        Ok(())
    }

    /// Byte position of a cluster.
    pub(super) fn byte_of(&self, lcn: u64) -> Result<u64, ParseError> {
        Ok(self.cluster.to_bytes(lcn)?)
    }

    /// Bytes that the filesystem claims: its clusters, the odd sectors behind them and the backup boot sector.
    pub(super) fn size(&self) -> u64 {
        self.backup.saturating_add(self.sector)
    }

    /// How many clusters hold the first 8 KiB: $Boot with its boot code and the header of the shadow copies.
    pub(super) fn boot_clusters(&self) -> u64 {
        8192_u64.div_ceil(self.cluster.bytes()).min(self.clusters)
    }
}

/// How the copy of the boot sector behind the last cluster was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backup {
    Same,
    Different,
    Missing,
}

/// Compares the boot sector with its copy: the strongest sign that the source ends where the volume ends.
pub(super) fn compare_backup(source: &dyn Source, geometry: &Geometry) -> Result<Backup, ParseError> {
    if add(geometry.backup, 512, "the end of the backup boot sector")? > source.len() {
        return Ok(Backup::Missing);
    }
    let copy = read_vec(source, geometry.backup, 512)?;
    let same = copy == read_vec(source, 0, 512)?;
    Ok(if same { Backup::Same } else { Backup::Different })
}

/// The cluster in the middle of the volume, if a boot sector lies there: Windows NT 3.51 kept its backup at half of
/// the sectors, inside a cluster.
pub(super) fn middle_backup(source: &dyn Source, geometry: &Geometry) -> Result<Option<u64>, ParseError> {
    let half = geometry.backup.checked_div(geometry.sector).unwrap_or(0) >> 1;
    let at = mul(half, geometry.sector, "the middle of the volume")?;
    let found = read_vec(source, at, 512)?;
    let lcn = geometry.cluster.whole_blocks(at);
    Ok((found.get(3..11) == Some(b"NTFS    ") && lcn < geometry.clusters).then_some(lcn))
}

fn boot(at: u64, field: &'static str, found: u64, expected: &'static str) -> ParseError {
    ParseError::corrupt(at, NtfsError::Boot { field, found, expected })
}

/// The fields that are the same on every volume.
fn check_constants(raw: &RawBoot) -> Result<(), ParseError> {
    if raw.end_of_sector_marker != [0x55, 0xAA] {
        let found = u16::from_le_bytes(raw.end_of_sector_marker);
        return Err(boot(0x1FE, "end mark", u64::from(found), "55 AA"));
    }
    if &raw.oem_id != b"NTFS    " {
        return Err(boot(3, "name", u64::from_le_bytes(raw.oem_id), "\"NTFS    \""));
    }
    let zero = raw.fat_fields == [0; 7] && raw.sectors_per_fat.get() == 0 && raw.large_sectors.get() == 0;
    if !zero {
        return Err(boot(0x0E, "fields of FAT", 1, "zeros"));
    }
    Ok(())
}

fn cluster_size(sector: u64, code: u8) -> Result<BlockSize, ParseError> {
    let sectors = match code {
        0 => None,
        1..=0x80 => Some(u64::from(code)),
        _ => 1_u64.checked_shl(u32::from(code.wrapping_neg())),
    };
    sectors
        .and_then(|sectors| sectors.checked_mul(sector))
        .filter(|bytes| *bytes <= MAX_CLUSTER)
        .and_then(BlockSize::new)
        .ok_or_else(|| boot(0x0D, "sectors per cluster", u64::from(code), "clusters of 512 bytes to 2 MiB"))
}

fn record_size(cluster: BlockSize, code: i8) -> Result<u64, ParseError> {
    let bytes = match u64::try_from(code) {
        Ok(clusters) => cluster.to_bytes(clusters)?,
        Err(_) => 1_u64.checked_shl(u32::from(code.unsigned_abs())).unwrap_or(0),
    };
    if bytes.is_power_of_two() && (512..=4096).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(boot(0x40, "size of an MFT record", bytes, "a power of two from 512 to 4096 bytes"))
    }
}
