//! The boot region, from raw bytes to a geometry that cannot contradict itself.

use super::ExfatError;
use super::ondisk::{NAME, RawBootSector};
use crate::error::{Mismatch, ParseError};
use crate::foreign::has_bytes;
use crate::free_map::Grid;
use crate::source::{Source, read_struct, read_vec};
use crate::units::{BlockSize, add, mul, to_usize};

/// Sectors that the checksum covers; the one behind them holds it.
const CHECKED_SECTORS: u64 = 11;
/// First sector of the backup of the boot region.
const BACKUP_SECTOR: u64 = 12;

/// What the boot sector says, checked. Positions and lengths are bytes from the start of the volume.
#[derive(Debug)]
pub(super) struct Geometry {
    /// Bytes that the volume spans.
    pub size: u64,
    /// Cluster 2 is block 0.
    pub grid: Grid,
    /// Where the FAT is.
    pub fat: u64,
    /// First cluster of the root directory.
    pub root: u32,
    pub serial: u32,
    pub flags: u16,
    pub percent_in_use: u8,
    /// What is wrong with the backup, if it is of no use.
    pub backup_remark: Option<String>,
}

impl Geometry {
    /// The block of the grid that cluster `number` is; none when there is no such cluster.
    pub fn block_of(&self, number: u32) -> Option<u64> {
        u64::from(number).checked_sub(2).filter(|block| *block < self.grid.count())
    }
}

/// True when the name is there.
pub(super) fn probe(source: &dyn Source) -> Result<bool, ParseError> {
    has_bytes(source, 3, &NAME)
}

/// Reads and checks the boot region.
pub(super) fn read(source: &dyn Source) -> Result<Geometry, ParseError> {
    let raw: RawBootSector = read_struct(source, 0)?;
    check_fixed(&raw)?;
    let sector = 1_u64.wrapping_shl(raw.bytes_per_sector_shift.into());
    let region = read_vec(source, 0, mul(sector, CHECKED_SECTORS.saturating_add(1), "the boot region")?)?;
    if let Some((at, error)) = checksum_error(&region, sector)? {
        return Err(ParseError::corrupt(at, error));
    }
    let geometry = Geometry { backup_remark: compare_backup(source, &region, sector)?, ..geometry(&raw, sector)? };
    Ok(geometry)
}

fn bad(at: u64, what: &'static str, expected: impl ToString, found: impl ToString) -> ParseError {
    ParseError::corrupt(at, Mismatch::new(what, expected, found))
}

fn check_fixed(raw: &RawBootSector) -> Result<(), ParseError> {
    if raw.boot_signature != [0x55, 0xAA] {
        return Err(bad(510, "the boot signature", "55 AA", format!("{:02X?}", raw.boot_signature)));
    }
    if let Some((at, byte)) = (0x0B..).zip(raw.must_be_zero).find(|(_, byte)| *byte != 0) {
        return Err(bad(at, "the area that must be zero", 0, byte));
    }
    let revision = raw.file_system_revision.get();
    if revision >> 8 != 1 {
        return Err(ParseError::unsupported(
            0x68,
            ExfatError::Revision { major: revision >> 8, minor: revision & 0xFF },
        ));
    }
    if !(9..=12).contains(&raw.bytes_per_sector_shift) {
        return Err(bad(0x6C, "log2 of the sector size", "9 to 12", raw.bytes_per_sector_shift));
    }
    if u16::from(raw.sectors_per_cluster_shift) > 25_u16.saturating_sub(raw.bytes_per_sector_shift.into()) {
        return Err(bad(
            0x6D,
            "log2 of the sectors of a cluster",
            "clusters up to 32 MiB",
            raw.sectors_per_cluster_shift,
        ));
    }
    match raw.number_of_fats {
        1 => {}
        2 => return Err(ParseError::unsupported(0x6E, ExfatError::TexFat)),
        other => return Err(bad(0x6E, "number of FATs", "1 or 2", other)),
    }
    let flags = raw.volume_flags.get();
    if flags & 1 != 0 {
        return Err(bad(0x6A, "number of the active FAT of a volume with one", 0, 1));
    }
    if flags & !0x0F != 0 {
        return Err(ParseError::unsupported(0x6A, ExfatError::Flags(flags & !0x0F)));
    }
    Ok(())
}

fn geometry(raw: &RawBootSector, sector: u64) -> Result<Geometry, ParseError> {
    let cluster_shift = u32::from(raw.bytes_per_sector_shift).saturating_add(raw.sectors_per_cluster_shift.into());
    let block = BlockSize::new(1_u64.wrapping_shl(cluster_shift)).ok_or_else(|| bad(0x6D, "cluster size", "", ""))?;
    let count = u64::from(raw.cluster_count.get());
    if !(1..=0xFFFF_FFF5).contains(&count) {
        return Err(bad(0x5C, "number of clusters", "1 to 4294967285", count));
    }
    let (fat, fat_len) = (u64::from(raw.fat_offset.get()), u64::from(raw.fat_length.get()));
    if fat < 24 {
        return Err(bad(0x50, "first sector of the FAT", "at least 24", fat));
    }
    let needed = mul(add(count, 2, "the number of FAT entries")?, 4, "the FAT")?;
    let has = mul(fat_len, sector, "the FAT")?;
    if has < needed {
        return Err(bad(0x54, "bytes in the FAT", format!("at least {needed}"), has));
    }
    let heap = u64::from(raw.cluster_heap_offset.get());
    let fat_end = add(fat, fat_len, "the end of the FAT")?;
    if heap < fat_end {
        return Err(bad(0x58, "first sector of the clusters", format!("at least {fat_end}"), heap));
    }
    let grid = Grid::new(mul(heap, sector, "the start of the clusters")?, block, count)?;
    let size = mul(raw.volume_length.get(), sector, "the size of the volume")?;
    if grid.end() > size {
        return Err(bad(0x48, "bytes of the volume", format!("at least {} for its clusters", grid.end()), size));
    }
    let geometry = Geometry {
        size,
        grid,
        fat: mul(fat, sector, "the start of the FAT")?,
        root: raw.first_cluster_of_root_directory.get(),
        serial: raw.volume_serial_number.get(),
        flags: raw.volume_flags.get(),
        percent_in_use: raw.percent_in_use,
        backup_remark: None,
    };
    match geometry.block_of(geometry.root) {
        Some(_) => Ok(geometry),
        None => Err(bad(0x60, "first cluster of the root directory", "a cluster of the volume", geometry.root)),
    }
}

/// The checksum of 11 sectors, which leaves out the fields that change while the volume is in use.
fn checksum(sectors: &[u8]) -> u32 {
    let counted = sectors.iter().enumerate().filter(|(at, _)| !matches!(at, 0x6A | 0x6B | 0x70));
    counted.fold(0_u32, |sum, (_, byte)| sum.rotate_right(1).wrapping_add((*byte).into()))
}

/// The twelfth sector of a boot region repeats the checksum of the others. Where it does not, and what is there.
fn checksum_error(region: &[u8], sector: u64) -> Result<Option<(u64, Mismatch)>, ParseError> {
    let len = to_usize(mul(sector, CHECKED_SECTORS, "the boot region")?, "the boot region")?;
    let (sectors, stated) = region.split_at_checked(len).unwrap_or_default();
    let expected = checksum(sectors);
    let places = (0_u64..).step_by(4).zip(stated.as_chunks().0);
    let mut wrong = places.map(|(at, bytes)| (at, u32::from_le_bytes(*bytes))).filter(|(_, found)| *found != expected);
    Ok(wrong.next().map(|(at, found)| {
        let at = at.saturating_add(sector.saturating_mul(CHECKED_SECTORS));
        (at, Mismatch::hex("the checksum of the boot region", expected.into(), found.into()))
    }))
}

/// The backup is never used. Where it is sound and says something else, it is not known which of the two is right;
/// where it is not sound, that is worth a remark. Its flags and its fill level are stale by design.
fn compare_backup(source: &dyn Source, region: &[u8], sector: u64) -> Result<Option<String>, ParseError> {
    let start = mul(sector, BACKUP_SECTOR, "the backup of the boot region")?;
    let backup = read_vec(source, start, mul(sector, BACKUP_SECTOR, "the boot region")?)?;
    if let Some((at, error)) = checksum_error(&backup, sector)? {
        return Ok(Some(format!(
            "the backup of the boot region at byte {start} is damaged: {error} (byte {at} of it)"
        )));
    }
    let pairs = (0_u64..).zip(region.iter().zip(&backup)).take(512);
    let mut differing = pairs.filter(|(at, (a, b))| !matches!(at, 0x6A | 0x6B | 0x70) && a != b);
    match differing.next() {
        None => Ok(None),
        Some((at, _)) => Err(ParseError::corrupt(at, ExfatError::BackupDiffers { at: start.saturating_add(at) })),
    }
}
