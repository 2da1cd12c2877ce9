//! The sector as it lies on the disk. Source: Microsoft fatgen103 for the part that a FAT boot sector shares with it;
//! the partition table as in Linux `include/uapi/linux/` and `block/partitions/msdos.c`.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// One of four entries. The addresses in cylinders, heads and sectors are ignored, as the kernel does.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawEntry {
    /// 0x80 active, 0x00 not; anything else is no partition table.
    pub flag: u8,
    _chs_first: [u8; 3],
    /// Type of the partition.
    pub kind: u8,
    _chs_last: [u8; 3],
    /// First sector.
    pub start: U32,
    /// Number of sectors.
    pub count: U32,
}

/// The first sector of a disk (MBR) or of a link in the chain of logical partitions (EBR).
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawSector {
    /// In a boot sector: a jump over the parameter block.
    pub jump: [u8; 3],
    /// In a boot sector: who made it.
    pub oem_name: [u8; 8],
    /// FAT: bytes in a sector.
    pub bytes_per_sector: U16,
    /// FAT: sectors in a cluster.
    pub sectors_per_cluster: u8,
    /// FAT: sectors before the first table.
    pub reserved_sectors: U16,
    /// FAT: number of tables.
    pub fats: u8,
    _root_entries: U16,
    _sectors: U16,
    /// FAT: media descriptor, 0xF0 or 0xF8..=0xFF.
    pub media: u8,
    _boot_code: [u8; 424],
    /// The table.
    pub entries: [RawEntry; 4],
    /// 55 AA.
    pub signature: [u8; 2],
}

const _: () = assert!(size_of::<RawEntry>() == 16);
const _: () = assert!(size_of::<RawSector>() == 512);
const _: () = assert!(std::mem::offset_of!(RawSector, entries) == 446);
