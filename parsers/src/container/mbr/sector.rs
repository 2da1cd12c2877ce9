//! One sector with a partition table of four entries: the MBR itself, or a link of the chain of logical partitions.

use super::ondisk::RawSector;
use crate::error::ParseError;
use crate::source::{Source, read_struct};
use crate::units::from_usize;

/// One entry that is in use. Positions are in sectors, counted from where the table says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::container) struct Entry {
    /// Slot, 1 to 4.
    pub slot: u32,
    /// The type byte.
    pub kind: u8,
    /// First sector.
    pub start: u64,
    /// Number of sectors.
    pub count: u64,
}

impl Entry {
    /// True for the three types of extended partitions.
    pub fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0F | 0x85)
    }

    /// The sector behind the last one; cannot overflow, both summands come from 32 bits.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.count)
    }

    /// True when both share a sector.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

/// A sector that ends in 55 AA and whose four flags are flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::container) struct Sector {
    /// The entries that name sectors or a type, in the order of their slots.
    pub entries: Vec<Entry>,
    /// True when the same bytes are (also) the boot sector of a filesystem.
    pub is_boot_sector: bool,
}

impl Sector {
    /// The table at byte `at`; none when there is no table.
    pub fn read(source: &dyn Source, at: u64) -> Result<Option<Self>, ParseError> {
        let end = at.checked_add(from_usize(size_of::<RawSector>()));
        if end.is_none_or(|end| end > source.len()) {
            return Ok(None);
        }
        let raw: RawSector = read_struct(source, at)?;
        let flags_hold = raw.entries.iter().all(|entry| matches!(entry.flag, 0x00 | 0x80));
        if raw.signature != [0x55, 0xAA] || !flags_hold {
            return Ok(None);
        }
        let entries = (1..)
            .zip(&raw.entries)
            .map(|(slot, entry)| Entry {
                slot,
                kind: entry.kind,
                start: u64::from(entry.start.get()),
                count: u64::from(entry.count.get()),
            })
            .filter(|entry| entry.kind != 0 || entry.count != 0)
            .collect();
        Ok(Some(Self { entries, is_boot_sector: is_boot_sector(&raw) }))
    }

    /// True when the entries are a table on a device of `len` bytes: there are some, and where the sector is a boot
    /// sector too, one of them at least could be a partition.
    pub fn is_somebodys(&self, len: u64) -> bool {
        // In the smallest sectors: the device may have been formatted elsewhere, with larger ones.
        let count = len.checked_div(512).unwrap_or(0);
        let could_be_one = |entry: &Entry| entry.kind != 0 && entry.count != 0 && (1..count).contains(&entry.start);
        !self.entries.is_empty() && (!self.is_boot_sector || self.entries.iter().any(could_be_one))
    }

    /// True when an entry protects a GPT.
    pub fn is_protective(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == 0xEE)
    }
}

/// True for the boot sectors that also end in 55 AA: FAT, exFAT, NTFS, ReFS and BitLocker. FAT has no name at a fixed
/// place, so its parameter block is weighed (fatgen103, section "Boot Sector and BPB").
fn is_boot_sector(raw: &RawSector) -> bool {
    let named: [&[u8; 8]; 5] = [b"EXFAT   ", b"NTFS    ", b"ReFS\0\0\0\0", b"-FVE-FS-", b"MSWIN4.1"];
    let jumps = matches!(raw.jump, [0xEB, _, 0x90] | [0xE9, _, _]);
    let bytes_per_sector = raw.bytes_per_sector.get();
    let is_fat = (512..=4096).contains(&bytes_per_sector)
        && bytes_per_sector.is_power_of_two()
        && raw.sectors_per_cluster.is_power_of_two()
        && raw.reserved_sectors.get() != 0
        && matches!(raw.fats, 1 | 2)
        && (raw.media == 0xF0 || raw.media >= 0xF8);
    named.contains(&&raw.oem_name) || (jumps && is_fat)
}
