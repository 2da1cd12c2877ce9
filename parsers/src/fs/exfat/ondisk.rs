//! The bytes as they lie on the disk. Source of every layout: Microsoft's "exFAT file system specification", sections
//! 3 (boot region) and 7 (directory entries).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The first 512 bytes of the main boot sector.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawBootSector {
    /// EB 76 90.
    pub jump_boot: [u8; 3],
    /// [`NAME`].
    pub file_system_name: [u8; 8],
    /// Zeros where FAT has its numbers, so that no driver for FAT takes the volume.
    pub must_be_zero: [u8; 53],
    /// Where the volume begins on its disk, in sectors; 0 for unknown.
    pub partition_offset: U64,
    /// Sectors of the volume.
    pub volume_length: U64,
    /// First sector of the first FAT.
    pub fat_offset: U32,
    /// Sectors of a FAT.
    pub fat_length: U32,
    /// First sector of cluster 2.
    pub cluster_heap_offset: U32,
    /// Number of clusters.
    pub cluster_count: U32,
    /// First cluster of the root directory.
    pub first_cluster_of_root_directory: U32,
    /// Serial number.
    pub volume_serial_number: U32,
    /// Low byte minor, high byte major.
    pub file_system_revision: U16,
    /// Bit 0 active FAT, 1 dirty, 2 media failure, 3 clear to zero.
    pub volume_flags: U16,
    /// log2 of the sector size.
    pub bytes_per_sector_shift: u8,
    /// log2 of the sectors of a cluster.
    pub sectors_per_cluster_shift: u8,
    /// 1, or 2 with TexFAT.
    pub number_of_fats: u8,
    /// Drive number for the BIOS.
    pub drive_select: u8,
    /// 0 to 100, or FFh for unknown.
    pub percent_in_use: u8,
    /// Unused.
    pub reserved: [u8; 7],
    /// Boot code.
    pub boot_code: [u8; 390],
    /// 55 AA.
    pub boot_signature: [u8; 2],
}
const _: () = assert!(size_of::<RawBootSector>() == 512);

/// The name at byte 3.
pub(super) const NAME: [u8; 8] = *b"EXFAT   ";

/// A directory entry, as far as the allocation bitmap and the up-case table share a shape.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawEntry {
    /// Bit 7: in use. 0 ends the directory.
    pub entry_type: u8,
    /// Bitmap: bit 0 says for which FAT. Label: number of characters.
    pub flags: u8,
    /// Depends on the type. Label: UTF-16.
    pub custom: [u8; 18],
    /// First cluster.
    pub first_cluster: U32,
    /// Bytes.
    pub data_length: U64,
}
const _: () = assert!(size_of::<RawEntry>() == 32);

/// Type of the allocation bitmap's entry.
pub(super) const TYPE_BITMAP: u8 = 0x81;
/// Type of the up-case table's entry.
pub(super) const TYPE_UPCASE: u8 = 0x82;
/// Type of the volume label's entry.
pub(super) const TYPE_LABEL: u8 = 0x83;

/// FAT entry of a bad cluster.
pub(super) const BAD: u32 = 0xFFFF_FFF7;
/// FAT entry of the last cluster of a chain.
pub(super) const END: u32 = 0xFFFF_FFFF;
/// What FAT entry 0 holds: the media type.
pub(super) const MEDIA: u32 = 0xFFFF_FFF8;
