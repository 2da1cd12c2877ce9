//! The bytes as they lie on the disk. Source of every layout: Microsoft's "FAT32 File System Specification" 1.03
//! (fatgen103), sections on the boot sector and the FSInfo sector; the state byte is described by Linux
//! `include/uapi/linux/msdos_fs.h` (`FAT_STATE_DIRTY`).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The first 512 bytes of the volume, whatever its sector size. Byte 36 and later differ between FAT12/16 and FAT32.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawBootSector {
    /// `EB xx 90` or `E9 xx xx`.
    pub jmp_boot: [u8; 3],
    /// Free text of the formatting program.
    pub oem_name: [u8; 8],
    /// 512, 1024, 2048 or 4096.
    pub byts_per_sec: U16,
    /// A power of two.
    pub sec_per_clus: u8,
    /// Sectors before the first FAT.
    pub rsvd_sec_cnt: U16,
    /// Copies of the FAT.
    pub num_fats: u8,
    /// Entries of 32 bytes in the fixed root directory; 0 on FAT32.
    pub root_ent_cnt: U16,
    /// Total sectors, or 0 when they are in `tot_sec32`.
    pub tot_sec16: U16,
    /// F0 or F8..FF; repeated in FAT entry 0.
    pub media: u8,
    /// Sectors of one FAT; 0 on FAT32.
    pub fat_sz16: U16,
    /// Geometry for the BIOS.
    pub sec_per_trk: U16,
    /// Geometry for the BIOS.
    pub num_heads: U16,
    /// Sectors before the volume on the disk; used for nothing.
    pub hidd_sec: U32,
    /// Total sectors when `tot_sec16` is 0.
    pub tot_sec32: U32,
    /// [`RawTail16`] or [`RawTail32`], then boot code.
    pub tail: [u8; 474],
    /// 55 AA.
    pub signature: [u8; 2],
}
const _: () = assert!(size_of::<RawBootSector>() == 512);

/// What FAT12 and FAT16 keep from byte 36 on.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawTail16 {
    /// BIOS drive number.
    pub drv_num: u8,
    /// Bit 0: not cleanly unmounted, bit 1: surface errors.
    pub state: u8,
    /// 29h when the three fields behind it are valid.
    pub boot_sig: u8,
    /// Serial number.
    pub vol_id: U32,
    /// Label at format time; the current one is in the root directory.
    pub vol_lab: [u8; 11],
    /// `FAT12   `, `FAT16   ` or `FAT     `.
    pub fil_sys_type: [u8; 8],
}
const _: () = assert!(size_of::<RawTail16>() == 26);

/// What FAT32 keeps from byte 36 on.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawTail32 {
    /// Sectors of one FAT.
    pub fat_sz32: U32,
    /// Bits 0..3: the active FAT, if bit 7 (mirroring off) is set.
    pub ext_flags: U16,
    /// 0.0.
    pub fs_ver: U16,
    /// First cluster of the root directory.
    pub root_clus: U32,
    /// Sector of the [`RawFsInfo`].
    pub fs_info: U16,
    /// Sector of the copy of the boot sector.
    pub bk_boot_sec: U16,
    /// Unused.
    pub reserved: [u8; 12],
    /// BIOS drive number.
    pub drv_num: u8,
    /// Bit 0: not cleanly unmounted, bit 1: surface errors.
    pub state: u8,
    /// 29h when the three fields behind it are valid.
    pub boot_sig: u8,
    /// Serial number.
    pub vol_id: U32,
    /// Label at format time; the current one is in the root directory.
    pub vol_lab: [u8; 11],
    /// `FAT32   `.
    pub fil_sys_type: [u8; 8],
}
const _: () = assert!(size_of::<RawTail32>() == 54);

/// FAT32's hint about free clusters, often stale.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawFsInfo {
    /// [`FSINFO_LEAD`].
    pub lead_sig: U32,
    /// Unused.
    pub reserved1: [u8; 480],
    /// [`FSINFO_STRUCT`].
    pub struc_sig: U32,
    /// Free clusters, or FFFFFFFFh for unknown.
    pub free_count: U32,
    /// Where to look for the next free cluster.
    pub nxt_free: U32,
    /// Unused.
    pub reserved2: [u8; 12],
    /// AA550000h.
    pub trail_sig: U32,
}
const _: () = assert!(size_of::<RawFsInfo>() == 512);

/// `RRaA`.
pub(super) const FSINFO_LEAD: u32 = 0x4161_5252;
/// `rrAa`.
pub(super) const FSINFO_STRUCT: u32 = 0x6141_7272;
