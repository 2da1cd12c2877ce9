//! The boot sector, from raw bytes to a geometry that cannot contradict itself.

use super::ondisk::{RawBootSector, RawTail16, RawTail32};
use super::{FatError, Kind};
use crate::error::{Mismatch, ParseError};
use crate::free_map::Grid;
use crate::source::{Source, read_struct, read_vec};
use crate::units::{BlockSize, add, div_up, mul, sub};
use zerocopy::FromBytes;

/// BitLocker To Go dresses as FAT32; this GUID at byte 424 gives it away.
const BITLOCKER_TO_GO: [u8; 16] = *b"\x3B\xD6\x67\x49\x29\x2E\xD8\x4A\x83\x99\xF6\xA3\x39\xE3\xD0\x01";
/// Where that GUID lies, counted from byte 36 as `tail` is.
const BITLOCKER_AT: std::ops::Range<usize> = 388..404;

/// The bytes that state sizes and places: from the sector size to the number of the backup boot sector.
const NUMBERS: std::ops::Range<u64> = 0x0B..0x34;

/// What the boot sector says, checked. Positions and lengths are bytes from the start of the volume.
#[derive(Debug)]
pub(super) struct Geometry {
    pub kind: Kind,
    /// Bytes that the volume spans.
    pub size: u64,
    /// Cluster 2 is block 0.
    pub grid: Grid,
    /// The FATs that count: all of them when they mirror each other, else the active one.
    pub fats: Vec<u64>,
    /// Where the root directory begins: a fixed area, or a cluster.
    pub root: Root,
    /// Where the FSInfo sector is, on FAT32.
    pub fs_info: Option<u64>,
    /// The media byte.
    pub media: u8,
    /// The state byte, and where it lies.
    pub state: (u8, u64),
    pub serial: u32,
    /// True when the boot sector has a copy that should be there and is not.
    pub lacks_backup: bool,
}

/// The root directory.
#[derive(Debug, Clone, Copy)]
pub(super) enum Root {
    /// FAT12/16: an area between the FATs and the clusters.
    Area { at: u64, len: u64 },
    /// FAT32: a chain that begins with this cluster.
    Cluster(u64),
}

/// True when the first sector can only be a FAT boot sector: several fields with few possible values each.
pub(super) fn probe(source: &dyn Source) -> Result<bool, ParseError> {
    if source.len() < 512 {
        return Ok(false);
    }
    let raw: RawBootSector = read_struct(source, 0)?;
    let foreign = matches!(&raw.oem_name, b"EXFAT   " | b"NTFS    " | b"-FVE-FS-")
        || raw.tail.get(BITLOCKER_AT) == Some(BITLOCKER_TO_GO.as_slice());
    let jump = matches!(raw.jmp_boot, [0xEB, _, 0x90] | [0xE9, _, _] | [0, 0, 0]);
    let sizes = matches!(raw.byts_per_sec.get(), 512 | 1024 | 2048 | 4096) && raw.sec_per_clus.is_power_of_two();
    let counts = raw.rsvd_sec_cnt.get() >= 1 && (1..=4).contains(&raw.num_fats);
    let media = raw.media == 0xF0 || raw.media >= 0xF8;
    Ok(!foreign && jump && sizes && counts && media && raw.signature == [0x55, 0xAA])
}

/// The two shapes of a boot sector, brought together.
struct Tail {
    fat_sectors: u64,
    state: (u8, u64),
    serial: u32,
    /// The type by name, if the volume states one.
    named: Option<[u8; 8]>,
    fat32: Option<RawTail32>,
}

fn tail(raw: &RawBootSector) -> Result<Tail, ParseError> {
    let short = || ParseError::corrupt(36, "the boot sector was cut short");
    if raw.fat_sz16.get() != 0 {
        let (tail, _) = RawTail16::read_from_prefix(&raw.tail).map_err(|_| short())?;
        return Ok(Tail {
            fat_sectors: raw.fat_sz16.get().into(),
            state: (tail.state, 0x25),
            serial: tail.vol_id.get(),
            named: (tail.boot_sig == 0x29).then_some(tail.fil_sys_type),
            fat32: None,
        });
    }
    let (tail, _) = RawTail32::read_from_prefix(&raw.tail).map_err(|_| short())?;
    Ok(Tail {
        fat_sectors: tail.fat_sz32.get().into(),
        state: (tail.state, 0x41),
        serial: tail.vol_id.get(),
        named: (tail.boot_sig == 0x29).then_some(tail.fil_sys_type),
        fat32: Some(tail),
    })
}

/// Reads and checks the boot sector.
pub(super) fn read(source: &dyn Source) -> Result<Geometry, ParseError> {
    let raw: RawBootSector = read_struct(source, 0)?;
    let tail = tail(&raw)?;
    check_features(&raw, &tail)?;
    let sector = u64::from(raw.byts_per_sec.get());
    let cluster = mul(sector, raw.sec_per_clus.into(), "the cluster size")?;
    let block = BlockSize::new(cluster).ok_or_else(|| bad(0x0D, "the cluster size", "a power of two", cluster))?;
    let total = total_sectors(&raw)?;
    let fat_bytes = mul(tail.fat_sectors, sector, "the size of a FAT")?;
    let first_fat = mul(raw.rsvd_sec_cnt.get().into(), sector, "the start of the first FAT")?;
    let root_at = add(first_fat, mul(fat_bytes, raw.num_fats.into(), "the FATs")?, "the end of the FATs")?;
    let root_entries = mul(raw.root_ent_cnt.get().into(), 32, "the root directory")?;
    if root_entries.checked_rem(sector) != Some(0) {
        // Drivers refuse it too, and a damaged number here would move every cluster.
        return Err(bad(0x11, "bytes of the root directory", format!("whole sectors of {sector}"), root_entries));
    }
    let first_data = add(root_at, root_entries, "the start of the clusters")?;
    let size = mul(total, sector, "the size of the volume")?;
    let clusters = block.whole_blocks(
        sub(size, first_data, "the cluster area").map_err(|_| bad(0x13, "the volume's size", first_data, size))?,
    );
    let kind = kind(clusters, &raw, &tail)?;
    check_room(kind, (clusters, cluster), fat_bytes)?;
    let root = match &tail.fat32 {
        None => Root::Area { at: root_at, len: root_entries },
        Some(t) => Root::Cluster(root_cluster(t.root_clus.get().into(), clusters)?),
    };
    Ok(Geometry {
        kind,
        size,
        grid: Grid::new(first_data, block, clusters)?,
        fats: fats(&raw, &tail, first_fat, fat_bytes)?,
        root,
        fs_info: fs_info(&raw, &tail, sector)?,
        media: raw.media,
        state: tail.state,
        serial: tail.serial,
        lacks_backup: check_backup(source, &raw, &tail, sector)?,
    })
}

/// FAT32 keeps a copy of its boot sector. It is never used, but where one is, its numbers are the same: nothing else
/// tells a damaged number from a right one. True when there is no copy in the place that was named for it.
fn check_backup(source: &dyn Source, raw: &RawBootSector, tail: &Tail, sector: u64) -> Result<bool, ParseError> {
    let number = tail.fat32.as_ref().map_or(0, |t| t.bk_boot_sec.get());
    if number == 0 || number >= raw.rsvd_sec_cnt.get() {
        return Ok(false);
    }
    let at = mul(number.into(), sector, "the backup boot sector")?;
    let (first, copy) = (read_vec(source, 0, NUMBERS.end)?, read_vec(source, at, 512)?);
    if copy.get(510..) != Some([0x55, 0xAA].as_slice()) {
        return Ok(true);
    }
    let numbers = (0_u64..).zip(first.iter().zip(&copy)).filter(|(at, _)| NUMBERS.contains(at));
    match numbers.into_iter().find(|(_, (a, b))| a != b) {
        None => Ok(false),
        Some((byte, (a, b))) => Err(ParseError::corrupt(
            byte,
            FatError::BackupDiffers { at: add(at, byte, "a byte")?, first: *a, copy: *b },
        )),
    }
}

fn bad(at: u64, what: &'static str, expected: impl ToString, found: impl ToString) -> ParseError {
    ParseError::corrupt(at, Mismatch::new(what, expected, found))
}

fn check_features(raw: &RawBootSector, tail: &Tail) -> Result<(), ParseError> {
    if raw.num_fats > 2 {
        return Err(ParseError::unsupported(0x10, FatError::FatCount(raw.num_fats)));
    }
    let Some(fat32) = &tail.fat32 else {
        let entries = raw.root_ent_cnt.get();
        return if entries == 0 { Err(bad(0x11, "root directory entries", "at least 1", entries)) } else { Ok(()) };
    };
    if fat32.fs_ver.get() != 0 {
        return Err(ParseError::unsupported(0x2A, FatError::Version(fat32.fs_ver.get())));
    }
    if raw.root_ent_cnt.get() != 0 {
        return Err(bad(0x11, "root directory entries of a FAT32 volume", 0, raw.root_ent_cnt.get()));
    }
    if fat32.fat_sz32.get() == 0 {
        return Err(bad(0x24, "sectors of a FAT", "at least 1", 0));
    }
    Ok(())
}

/// Two fields can hold the total; when both do they must agree.
fn total_sectors(raw: &RawBootSector) -> Result<u64, ParseError> {
    let (small, large) = (u64::from(raw.tot_sec16.get()), u64::from(raw.tot_sec32.get()));
    match (small, large) {
        (0, 0) => Err(bad(0x20, "total sectors", "at least 1", 0)),
        (0, total) | (total, 0) => Ok(total),
        (a, b) if a == b => Ok(a),
        (a, b) => Err(bad(0x20, "total sectors, stated twice", a, b)),
    }
}

/// The type follows from the number of clusters; the structure and the name beside it must not contradict.
fn kind(clusters: u64, raw: &RawBootSector, tail: &Tail) -> Result<Kind, ParseError> {
    let by_count = match clusters {
        0 => return Err(bad(0x13, "number of clusters", "at least 1", 0)),
        1..4085 => Kind::Fat12,
        4085..65525 => Kind::Fat16,
        65525..=0x0FFF_FFF5 => Kind::Fat32,
        _ => return Err(bad(0x20, "number of clusters", "at most 268435445", clusters)),
    };
    let named = tail.named.as_ref().and_then(Kind::by_name);
    if tail.fat32.is_some() {
        // mkfs.fat -F 32 makes small ones too, and drivers go by the structure; then the name is the second proof.
        if by_count == Kind::Fat32 && named.is_none_or(|n| n == Kind::Fat32) || named == Some(Kind::Fat32) {
            return Ok(Kind::Fat32);
        }
        return Err(ParseError::corrupt(0x52, FatError::Contradiction { clusters, raw: raw.fat_sz16.get(), named }));
    }
    // Implementations differ by a few clusters near the limits. A name that contradicts means that the volume was
    // perhaps written with entries of another width, and every link would be misread.
    if by_count == Kind::Fat32 || named.is_some_and(|n| n != by_count) {
        return Err(ParseError::corrupt(0x36, FatError::Contradiction { clusters, raw: raw.fat_sz16.get(), named }));
    }
    Ok(by_count)
}

/// Bytes that a FAT may have too many in any case: 8 sectors of the smallest size.
const SLACK: u64 = 8 * 512;

fn check_room(kind: Kind, (clusters, cluster): (u64, u64), fat_bytes: u64) -> Result<(), ParseError> {
    let needed = kind.fat_bytes(add(clusters, 2, "the number of FAT entries")?)?;
    if needed > fat_bytes {
        return Err(bad(0x16, "bytes in a FAT", format!("at least {needed} for {clusters} clusters"), fat_bytes));
    }
    // fatgen103, "FAT Volume Initialization": its own formula wastes up to 8 sectors; mkfs.fat rounds to whole clusters.
    // Twice as much is what a wrong cluster size looks like.
    let most =
        add(needed, div_up(needed, 2, "the room in a FAT")?, "the room in a FAT")?.saturating_add(SLACK.max(cluster));
    if fat_bytes > most {
        return Err(bad(0x0D, "bytes in a FAT", format!("at most {most} for {clusters} clusters"), fat_bytes));
    }
    Ok(())
}

fn root_cluster(cluster: u64, clusters: u64) -> Result<u64, ParseError> {
    let last = add(clusters, 1, "the last cluster")?;
    if (2..=last).contains(&cluster) {
        return Ok(cluster);
    }
    Err(bad(0x2C, "first cluster of the root directory", format!("2 to {last}"), cluster))
}

/// Bit 7 of the flags switches mirroring off; then the low bits name the one FAT that is true.
fn fats(raw: &RawBootSector, tail: &Tail, first: u64, bytes: u64) -> Result<Vec<u64>, ParseError> {
    let flags = tail.fat32.as_ref().map_or(0, |t| t.ext_flags.get());
    let all = 0..u64::from(raw.num_fats);
    let active = u64::from(flags & 0x0F);
    let chosen = if flags & 0x80 == 0 {
        all
    } else if all.contains(&active) {
        active..add(active, 1, "the active FAT")?
    } else {
        return Err(bad(0x28, "number of the active FAT", format!("below {}", raw.num_fats), active));
    };
    chosen.map(|k| Ok(add(first, mul(k, bytes, "a FAT position")?, "a FAT position")?)).collect()
}

fn fs_info(raw: &RawBootSector, tail: &Tail, sector: u64) -> Result<Option<u64>, ParseError> {
    let Some(fat32) = &tail.fat32 else {
        return Ok(None);
    };
    let number = fat32.fs_info.get();
    let exists = number != 0 && number < raw.rsvd_sec_cnt.get();
    Ok(if exists { Some(mul(number.into(), sector, "the FSInfo sector")?) } else { None })
}
