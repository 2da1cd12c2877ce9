//! The structures as they lie on the disk. Source: UEFI Specification 2.10, section 5.3 "GUID Partition Table (GPT) Disk
//! Layout", tables 5-5 and 5-6.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// "EFI PART".
pub(super) const SIGNATURE: &[u8; 8] = b"EFI PART";

/// The header, at LBA 1 and again at the last LBA.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawHeader {
    /// [`SIGNATURE`].
    pub signature: [u8; 8],
    /// 0x0001_0000.
    pub revision: U32,
    /// Bytes under the checksum: at least 92, at most one LBA.
    pub header_size: U32,
    /// CRC-32 of the header with this field zero.
    pub header_crc32: U32,
    _reserved: U32,
    /// The LBA of this header.
    pub my_lba: U64,
    /// The LBA of the other header.
    pub alternate_lba: U64,
    /// First LBA that a partition may use.
    pub first_usable_lba: U64,
    /// Last LBA that a partition may use, inclusive.
    pub last_usable_lba: U64,
    /// Identity of the disk.
    pub disk_guid: [u8; 16],
    /// First LBA of this header's array of entries.
    pub partition_entry_lba: U64,
    /// Number of entries, used or not.
    pub number_of_partition_entries: U32,
    /// Bytes in an entry: 128 times a power of two.
    pub size_of_partition_entry: U32,
    /// CRC-32 of the array.
    pub partition_entry_array_crc32: U32,
}

/// One entry of the array; longer entries continue with reserved bytes.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawEntry {
    /// Type; all zero in an unused entry.
    pub partition_type_guid: [u8; 16],
    _unique_partition_guid: [u8; 16],
    /// First LBA.
    pub starting_lba: U64,
    /// Last LBA, inclusive.
    pub ending_lba: U64,
    _attributes: U64,
    /// UTF-16LE, ended by a zero unless it fills the field.
    pub partition_name: [u8; 72],
}

const _: () = assert!(size_of::<RawHeader>() == 92);
const _: () = assert!(size_of::<RawEntry>() == 128);
