//! The structures on disk, little endian. Sources: the layout headers of ntfs-3g (`layout.h`, `logfile.h`), the Linux
//! driver `fs/ntfs3/ntfs.h`, the NTFS documentation of the Linux-NTFS project, and for shadow copies the "Volume
//! Shadow Snapshot (VSS) format" document of libvshadow.

use zerocopy::little_endian::{I16, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The first 512 bytes of the volume.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawBoot {
    pub jump: [u8; 3],
    /// "NTFS    ".
    pub oem_id: [u8; 8],
    pub bytes_per_sector: U16,
    /// 1..128, or above 128: 256 minus log2.
    pub sectors_per_cluster: u8,
    /// Reserved sectors, number of FATs, root entries, sectors (16 bit): zero on NTFS.
    pub fat_fields: [u8; 7],
    pub media: u8,
    /// Sectors per FAT: zero.
    pub sectors_per_fat: U16,
    /// Sectors per track, heads, hidden sectors: for boot code only.
    pub geometry: [u8; 8],
    /// Sectors (32 bit): zero.
    pub large_sectors: U32,
    pub drive: [u8; 4],
    /// Sectors of the volume without the backup boot sector, which follows them.
    pub number_of_sectors: U64,
    /// Cluster of $MFT.
    pub mft_lcn: U64,
    /// Cluster of $MFTMirr.
    pub mftmirr_lcn: U64,
    /// Above 0: clusters; below 0: minus log2 of the bytes.
    pub clusters_per_mft_record: i8,
    pub reserved0: [u8; 3],
    pub clusters_per_index_record: i8,
    pub reserved1: [u8; 3],
    pub volume_serial_number: U64,
    pub checksum: U32,
    pub bootstrap: [u8; 426],
    /// 55 AA.
    pub end_of_sector_marker: [u8; 2],
}
const _: () = assert!(size_of::<RawBoot>() == 512);

/// The head of an MFT record.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawRecord {
    /// "FILE", or "BAAD" where a checker gave up.
    pub magic: [u8; 4],
    pub usa_ofs: U16,
    pub usa_count: U16,
    pub lsn: U64,
    pub sequence_number: U16,
    pub link_count: U16,
    pub attrs_offset: U16,
    /// 1 in use, 2 directory.
    pub flags: U16,
    pub bytes_in_use: U32,
    pub bytes_allocated: U32,
    /// Zero in a base record, else the reference of the base record.
    pub base_mft_record: U64,
    pub next_attr_instance: U16,
    /// From here on only since NTFS 3.1, where the update sequence array begins at 48.
    pub reserved: U16,
    pub mft_record_number: U32,
}
const _: () = assert!(size_of::<RawRecord>() == 48);

/// The head of every attribute.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawAttribute {
    pub kind: U32,
    pub length: U32,
    pub non_resident: u8,
    /// In UTF-16 units.
    pub name_length: u8,
    pub name_offset: U16,
    /// 1 compressed (the low byte is the method), 0x4000 encrypted, 0x8000 sparse.
    pub flags: U16,
    pub instance: U16,
}
const _: () = assert!(size_of::<RawAttribute>() == 16);

/// Follows [`RawAttribute`] when the value lies in the record.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawResident {
    pub value_length: U32,
    pub value_offset: U16,
    pub resident_flags: u8,
    pub reserved: u8,
}
const _: () = assert!(size_of::<RawResident>() == 8);

/// Follows [`RawAttribute`] when the value lies in clusters.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawNonResident {
    pub lowest_vcn: U64,
    /// -1 for an empty value.
    pub highest_vcn: U64,
    pub mapping_pairs_offset: U16,
    pub compression_unit: u8,
    pub reserved: [u8; 5],
    /// The three sizes are right only where `lowest_vcn` is 0.
    pub allocated_size: U64,
    pub data_size: U64,
    pub initialized_size: U64,
}
const _: () = assert!(size_of::<RawNonResident>() == 48);

/// One entry of $ATTRIBUTE_LIST.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawListEntry {
    pub kind: U32,
    pub length: U16,
    pub name_length: u8,
    pub name_offset: u8,
    pub lowest_vcn: U64,
    /// Record number in the low 48 bits, its sequence number in the high 16.
    pub mft_reference: U64,
    pub instance: U16,
}
const _: () = assert!(size_of::<RawListEntry>() == 26);

/// The value of $VOLUME_INFORMATION.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawVolumeInformation {
    pub reserved: U64,
    pub major_ver: u8,
    pub minor_ver: u8,
    pub flags: U16,
}
const _: () = assert!(size_of::<RawVolumeInformation>() == 12);

/// A restart page of $LogFile.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawRestartPage {
    /// "RSTR", or "CHKD" after a chkdsk.
    pub magic: [u8; 4],
    pub usa_ofs: U16,
    pub usa_count: U16,
    pub chkdsk_lsn: U64,
    pub system_page_size: U32,
    pub log_page_size: U32,
    pub restart_area_offset: U16,
    pub minor_ver: I16,
    pub major_ver: I16,
}
const _: () = assert!(size_of::<RawRestartPage>() == 30);

/// The restart area inside a restart page.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawRestartArea {
    pub current_lsn: U64,
    pub log_clients: U16,
    pub client_free_list: U16,
    /// 0xFFFF when no client has the log open.
    pub client_in_use_list: U16,
    /// 2: the volume is clean.
    pub flags: U16,
}
const _: () = assert!(size_of::<RawRestartArea>() == 16);

/// Head of an index block ("INDX") of a directory. The entries' offsets count from byte 24.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawIndexBlock {
    pub magic: [u8; 4],
    pub usa_ofs: U16,
    pub usa_count: U16,
    pub lsn: U64,
    pub index_block_vcn: U64,
    pub index: RawIndexHeader,
}
const _: () = assert!(size_of::<RawIndexBlock>() == 40);

/// Describes a list of index entries; offsets count from the start of this header.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawIndexHeader {
    pub entries_offset: U32,
    pub index_length: U32,
    pub allocated_size: U32,
    pub flags: U32,
}
const _: () = assert!(size_of::<RawIndexHeader>() == 16);

/// Head of the value of $INDEX_ROOT.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawIndexRoot {
    pub kind: U32,
    pub collation_rule: U32,
    pub index_block_size: U32,
    pub clusters_per_index_block: u8,
    pub reserved: [u8; 3],
    pub index: RawIndexHeader,
}
const _: () = assert!(size_of::<RawIndexRoot>() == 32);

/// Head of an index entry of a directory; the key, a $FILE_NAME value, follows.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawIndexEntry {
    pub indexed_file: U64,
    pub length: U16,
    pub key_length: U16,
    /// 1: a sub-node follows; 2: the last entry, without a key.
    pub flags: U16,
    pub reserved: U16,
}
const _: () = assert!(size_of::<RawIndexEntry>() == 16);

/// The header of the volume shadow copies, at byte 0x1E00 of the volume.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawShadowHeader {
    pub identifier: [u8; 16],
    pub version: U32,
    pub record_type: U32,
    pub relative_offset: U64,
    pub reserved: [u8; 16],
    /// Byte position of the first catalog block; 0 without a shadow copy.
    pub catalog_offset: U64,
}
const _: () = assert!(size_of::<RawShadowHeader>() == 56);

/// Head of a catalog block (16 KiB) of the shadow copies; entries of 128 bytes follow at byte 128.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawCatalogBlock {
    pub identifier: [u8; 16],
    pub version: U32,
    pub record_type: U32,
    pub relative_offset: U64,
    pub current_offset: U64,
    /// Byte position of the next block; 0 in the last.
    pub next_offset: U64,
}
const _: () = assert!(size_of::<RawCatalogBlock>() == 48);
