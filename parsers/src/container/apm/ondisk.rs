//! The structures as they lie on the disk, all with the greatest byte first. Source: Apple, Inside Macintosh: Devices,
//! chapter 3 "SCSI Manager"; Linux `block/partitions/mac.h`.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Block 0: the driver descriptor.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawDriverDescriptor {
    /// "ER".
    pub signature: [u8; 2],
    /// Bytes in a block.
    pub block_size: U16,
    _block_count: U32,
}

/// One block of the map, from block 1 on.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawEntry {
    /// "PM".
    pub signature: [u8; 2],
    _reserved: U16,
    /// Number of entries in the map, the same in each.
    pub map_entries: U32,
    /// First block of the partition.
    pub start: U32,
    /// Number of blocks.
    pub count: U32,
    /// Name, ended by a zero unless it fills the field.
    pub name: [u8; 32],
    /// Type, likewise.
    pub kind: [u8; 32],
}

const _: () = assert!(size_of::<RawDriverDescriptor>() == 8);
const _: () = assert!(size_of::<RawEntry>() == 80);
