//! The record of version 1.x, as Linux `include/uapi/linux/raid/md_p.h` has it (`struct mdp_superblock_1`), and of a
//! write-intent bitmap (`drivers/md/md-bitmap.h`). Little endian.

use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Version 1.x.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawRecord {
    pub magic: U32,
    pub major_version: U32,
    pub feature_map: U32,
    pub pad0: U32,
    pub set_uuid: [u8; 16],
    pub set_name: [u8; 32],
    pub ctime: U64,
    pub level: I32,
    pub layout: U32,
    /// Used sectors of each member; 0 for linear and RAID0.
    pub size: U64,
    /// Sectors.
    pub chunksize: U32,
    pub raid_disks: U32,
    /// Sectors behind the record, or before it.
    pub bitmap_offset: I32,
    pub new_level: U32,
    pub reshape_position: U64,
    pub delta_disks: U32,
    pub new_layout: U32,
    pub new_chunk: U32,
    pub new_offset: U32,
    /// First sector of data.
    pub data_offset: U64,
    /// Sectors for data.
    pub data_size: U64,
    /// The record's own sector.
    pub super_offset: U64,
    pub recovery_offset: U64,
    /// Which entry of the roles is this device's.
    pub dev_number: U32,
    pub cnt_corrected_read: U32,
    pub device_uuid: [u8; 16],
    pub devflags: u8,
    pub bblog_shift: u8,
    /// Sectors.
    pub bblog_size: U16,
    /// Sectors behind the record, or before it.
    pub bblog_offset: I32,
    pub utime: U64,
    pub events: U64,
    /// Sectors known to be in sync; all ones when the array is clean.
    pub resync_offset: U64,
    pub sb_csum: U32,
    /// Number of roles, 16 bits each, that follow the record.
    pub max_dev: U32,
    pub pad3: [u8; 32],
}

const _: () = assert!(size_of::<RawRecord>() == 256);

/// The head of a write-intent bitmap; its bits follow.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawBitmap {
    pub magic: U32,
    pub version: U32,
    pub uuid: [u8; 16],
    pub events: U64,
    pub events_cleared: U64,
    /// Sectors of a member.
    pub sync_size: U64,
    pub state: U32,
    /// Bytes that a bit stands for.
    pub chunksize: U32,
    pub daemon_sleep: U32,
    pub write_behind: U32,
    pub sectors_reserved: U32,
    pub nodes: U32,
    pub cluster_name: [u8; 64],
    pub pad: [u8; 120],
}

const _: () = assert!(size_of::<RawBitmap>() == 256);
