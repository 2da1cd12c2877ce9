//! The structures as they lie on disk. Little endian; the bits of bitmaps run from the most significant one.
//!
//! Source: Linux `include/linux/f2fs_fs.h`, `Documentation/filesystems/f2fs.rst`. Names are those of the header.

use zerocopy::byteorder::{LE, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `magic`, also the start value of every checksum.
pub const MAGIC: u32 = 0xF2F5_2010;
/// The superblock in block 0 and its copy in block 1, in bytes from the start of the volume.
pub const SUPERBLOCKS_AT: [u64; 2] = [1024, BLOCK + 1024];
/// Bytes of a block. Kernels with larger pages can make larger ones, which are refused.
pub const BLOCK: u64 = 4096;
/// Blocks of a segment.
pub const SEGMENT: u64 = 512;
/// Bytes of a segment's entry in the segment information table.
pub const SIT_ENTRY: usize = 74;
/// Entries in a block of that table.
pub const SIT_ENTRIES: u64 = 55;

/// One device of several, in the superblock.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Clone)]
#[repr(C)]
pub struct RawDevice {
    pub path: [u8; 64],
    pub total_segments: U32<LE>,
}

/// The superblock.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Clone)]
#[repr(C)]
pub struct RawSuperBlock {
    pub magic: U32<LE>,
    pub major_ver: U16<LE>,
    pub minor_ver: U16<LE>,
    pub log_sectorsize: U32<LE>,
    pub log_sectors_per_block: U32<LE>,
    pub log_blocksize: U32<LE>,
    pub log_blocks_per_seg: U32<LE>,
    pub segs_per_sec: U32<LE>,
    pub secs_per_zone: U32<LE>,
    pub checksum_offset: U32<LE>,
    pub block_count: U64<LE>,
    pub section_count: U32<LE>,
    pub segment_count: U32<LE>,
    pub segment_count_ckpt: U32<LE>,
    pub segment_count_sit: U32<LE>,
    pub segment_count_nat: U32<LE>,
    pub segment_count_ssa: U32<LE>,
    pub segment_count_main: U32<LE>,
    /// Addresses in blocks, as all that follow.
    pub segment0_blkaddr: U32<LE>,
    pub cp_blkaddr: U32<LE>,
    pub sit_blkaddr: U32<LE>,
    pub nat_blkaddr: U32<LE>,
    pub ssa_blkaddr: U32<LE>,
    pub main_blkaddr: U32<LE>,
    pub root_ino: U32<LE>,
    pub node_ino: U32<LE>,
    pub meta_ino: U32<LE>,
    pub uuid: [u8; 16],
    /// UTF-16.
    pub volume_name: [U16<LE>; 512],
    pub extension_count: U32<LE>,
    pub extension_list: [[u8; 8]; 64],
    /// Blocks behind each checkpoint that hold the bitmap of a large segment table.
    pub cp_payload: U32<LE>,
    pub version: [u8; 256],
    pub init_version: [u8; 256],
    pub feature: U32<LE>,
    pub encryption_level: u8,
    pub encrypt_pw_salt: [u8; 16],
    pub devs: [RawDevice; 8],
    pub qf_ino: [U32<LE>; 3],
    pub hot_ext_count: u8,
    pub s_encoding: U16<LE>,
    pub s_encoding_flags: U16<LE>,
    /// How often the volume was stopped, by reason; the first is an orderly shutdown.
    pub s_stop_reason: [u8; 32],
    /// Bits of errors that the kernel found.
    pub s_errors: [u8; 16],
    pub reserved: [u8; 258],
    pub crc: U32<LE>,
}
const _: () = assert!(size_of::<RawSuperBlock>() == 3072);

/// The head of a checkpoint.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Clone)]
#[repr(C)]
pub struct RawCheckpoint {
    pub checkpoint_ver: U64<LE>,
    pub user_block_count: U64<LE>,
    /// Blocks in use, those included that a file reserved and that have no place yet.
    pub valid_block_count: U64<LE>,
    pub rsvd_segment_count: U32<LE>,
    pub overprov_segment_count: U32<LE>,
    pub free_segment_count: U32<LE>,
    /// Segments that are being written: nodes hot, warm, cold.
    pub cur_node_segno: [U32<LE>; 8],
    pub cur_node_blkoff: [U16<LE>; 8],
    pub cur_data_segno: [U32<LE>; 8],
    pub cur_data_blkoff: [U16<LE>; 8],
    pub ckpt_flags: U32<LE>,
    /// Blocks of this pack.
    pub cp_pack_total_block_count: U32<LE>,
    /// The pack's first block of summaries.
    pub cp_pack_start_sum: U32<LE>,
    pub valid_node_count: U32<LE>,
    pub valid_inode_count: U32<LE>,
    pub next_free_nid: U32<LE>,
    pub sit_ver_bitmap_bytesize: U32<LE>,
    pub nat_ver_bitmap_bytesize: U32<LE>,
    pub checksum_offset: U32<LE>,
    pub elapsed_time: U64<LE>,
    pub alloc_type: [u8; 16],
}
const _: () = assert!(size_of::<RawCheckpoint>() == 192);

/// A segment's entry in the segment information table.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Clone, Copy)]
#[repr(C)]
pub struct RawSitEntry {
    /// The lower ten bits count the valid blocks, the others are the segment's type.
    pub vblocks: U16<LE>,
    /// A bit for each block, 1 is in use.
    pub valid_map: [u8; 64],
    pub mtime: U64<LE>,
}
const _: () = assert!(size_of::<RawSitEntry>() == SIT_ENTRY);

/// An entry of the journal that overrides the table.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Clone, Copy)]
#[repr(C)]
pub struct RawSitJournalEntry {
    pub segno: U32<LE>,
    pub se: RawSitEntry,
}
const _: () = assert!(size_of::<RawSitJournalEntry>() == 78);

/// The last bytes of a node's block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Clone)]
#[repr(C)]
pub struct RawNodeFooter {
    pub nid: U32<LE>,
    pub ino: U32<LE>,
    pub flag: U32<LE>,
    /// The checkpoint after which the node was written.
    pub cp_ver: U64<LE>,
    pub next_blkaddr: U32<LE>,
}
const _: () = assert!(size_of::<RawNodeFooter>() == 24);
