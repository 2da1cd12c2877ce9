//! The structures as they lie on disk. Big endian, but for checksums, which are little endian.
//!
//! Sources: "XFS Algorithms & Data Structures" (kernel.org, third edition) and Linux `fs/xfs/libxfs/xfs_format.h`,
//! `xfs_log_format.h`. Names are those of the kernel's `xfs_dsb`, `xfs_agf`, `xfs_agfl`, `xfs_btree_block` and
//! `xlog_rec_header`.

use zerocopy::byteorder::{BE, LE, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `sb_magicnum`.
pub const SB_MAGIC: u32 = 0x5846_5342; // "XFSB"
/// `agf_magicnum`.
pub const AGF_MAGIC: u32 = 0x5841_4746; // "XAGF"
/// `agi_magicnum`.
pub const AGI_MAGIC: u32 = 0x5841_4749; // "XAGI"
/// `agfl_magicnum`.
pub const AGFL_MAGIC: u32 = 0x5841_464C; // "XAFL"
/// "No block" in a free-space tree.
pub const NULL_BLOCK: u32 = u32::MAX;
/// `h_magicno`.
pub const LOG_MAGIC: u32 = 0xFEED_BABE;
/// Bytes of the basic block in which the log, and block addresses of version 5, are counted.
pub const BASIC_BLOCK: u64 = 512;

/// Place of a checksum in the structure that it covers, in bytes.
pub mod checksum_at {
    pub const SUPERBLOCK: usize = 0xE0;
    pub const AGF: usize = 0xD8;
    pub const AGI: usize = 0x138;
    pub const AGFL: usize = 0x20;
    pub const SHORT_BTREE: usize = 0x34;
    pub const LOG_RECORD: usize = 32;
}

/// The superblock. It fills one sector; what lies behind these fields belongs to features that are refused.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Clone)]
#[repr(C)]
pub struct RawSuperBlock {
    pub sb_magicnum: U32<BE>,
    /// In bytes.
    pub sb_blocksize: U32<BE>,
    /// Blocks of the data device.
    pub sb_dblocks: U64<BE>,
    /// Blocks of the realtime device.
    pub sb_rblocks: U64<BE>,
    pub sb_rextents: U64<BE>,
    pub sb_uuid: [u8; 16],
    /// First block of the log; 0: the log is on another device.
    pub sb_logstart: U64<BE>,
    pub sb_rootino: U64<BE>,
    pub sb_rbmino: U64<BE>,
    pub sb_rsumino: U64<BE>,
    pub sb_rextsize: U32<BE>,
    /// Blocks of an allocation group.
    pub sb_agblocks: U32<BE>,
    pub sb_agcount: U32<BE>,
    pub sb_rbmblocks: U32<BE>,
    /// Blocks of the log.
    pub sb_logblocks: U32<BE>,
    /// The lowest four bits are the version, the others features.
    pub sb_versionnum: U16<BE>,
    /// In bytes.
    pub sb_sectsize: U16<BE>,
    pub sb_inodesize: U16<BE>,
    pub sb_inopblock: U16<BE>,
    /// The label.
    pub sb_fname: [u8; 12],
    pub sb_blocklog: u8,
    pub sb_sectlog: u8,
    pub sb_inodelog: u8,
    pub sb_inopblog: u8,
    /// log2 of the blocks of a group, rounded up.
    pub sb_agblklog: u8,
    pub sb_rextslog: u8,
    /// Not 0 while mkfs runs.
    pub sb_inprogress: u8,
    pub sb_imax_pct: u8,
    pub sb_icount: U64<BE>,
    pub sb_ifree: U64<BE>,
    /// Free blocks; may lag behind.
    pub sb_fdblocks: U64<BE>,
    pub sb_frextents: U64<BE>,
    pub sb_uquotino: U64<BE>,
    pub sb_gquotino: U64<BE>,
    pub sb_qflags: U16<BE>,
    pub sb_flags: u8,
    pub sb_shared_vn: u8,
    pub sb_inoalignmt: U32<BE>,
    pub sb_unit: U32<BE>,
    pub sb_width: U32<BE>,
    pub sb_dirblklog: u8,
    pub sb_logsectlog: u8,
    pub sb_logsectsize: U16<BE>,
    pub sb_logsunit: U32<BE>,
    pub sb_features2: U32<BE>,
    /// A copy of `sb_features2` at the place where old kernels wrote it by mistake.
    pub sb_bad_features2: U32<BE>,
    pub sb_features_compat: U32<BE>,
    pub sb_features_ro_compat: U32<BE>,
    pub sb_features_incompat: U32<BE>,
    pub sb_features_log_incompat: U32<BE>,
    pub sb_crc: U32<LE>,
    pub sb_spino_align: U32<BE>,
    pub sb_pquotino: U64<BE>,
    pub sb_lsn: U64<BE>,
    /// The identity in metadata blocks, where the volume's own was changed later.
    pub sb_meta_uuid: [u8; 16],
}
const _: () = assert!(size_of::<RawSuperBlock>() == 0x108);

/// The free-space header of an allocation group: its second sector.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Clone)]
#[repr(C)]
pub struct RawAgf {
    pub agf_magicnum: U32<BE>,
    pub agf_versionnum: U32<BE>,
    /// The number of the group.
    pub agf_seqno: U32<BE>,
    /// Blocks of the group.
    pub agf_length: U32<BE>,
    /// Root of the tree of free extents by block.
    pub agf_bno_root: U32<BE>,
    /// Root of the tree of free extents by size.
    pub agf_cnt_root: U32<BE>,
    pub agf_rmap_root: U32<BE>,
    /// Levels of the three trees; 1 is a lone leaf.
    pub agf_bno_level: U32<BE>,
    pub agf_cnt_level: U32<BE>,
    pub agf_rmap_level: U32<BE>,
    /// First and last used slot of the free list, a ring.
    pub agf_flfirst: U32<BE>,
    pub agf_fllast: U32<BE>,
    pub agf_flcount: U32<BE>,
    /// Blocks in the trees of free extents. Exact.
    pub agf_freeblks: U32<BE>,
    /// Blocks of the longest free extent. Exact.
    pub agf_longest: U32<BE>,
    /// Blocks of the three trees without their roots.
    pub agf_btreeblks: U32<BE>,
    pub agf_uuid: [u8; 16],
    /// Blocks of the tree of owners.
    pub agf_rmap_blocks: U32<BE>,
    pub agf_refcount_blocks: U32<BE>,
    pub agf_refcount_root: U32<BE>,
    pub agf_refcount_level: U32<BE>,
    pub agf_spare64: [u8; 112],
    pub agf_lsn: U64<BE>,
    pub agf_crc: U32<LE>,
    pub agf_spare2: U32<BE>,
}
const _: () = assert!(size_of::<RawAgf>() == 0xE0);

/// The inode header of an allocation group: its third sector.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Clone)]
#[repr(C)]
pub struct RawAgi {
    pub agi_magicnum: U32<BE>,
    pub agi_versionnum: U32<BE>,
    pub agi_seqno: U32<BE>,
    pub agi_length: U32<BE>,
    pub agi_count: U32<BE>,
    /// Root of the tree of inodes.
    pub agi_root: U32<BE>,
    pub agi_level: U32<BE>,
    pub agi_freecount: U32<BE>,
    pub agi_newino: U32<BE>,
    pub agi_dirino: U32<BE>,
    pub agi_unlinked: [U32<BE>; 64],
    pub agi_uuid: [u8; 16],
    pub agi_crc: U32<LE>,
    pub agi_pad32: U32<BE>,
    pub agi_lsn: U64<BE>,
}
const _: () = assert!(size_of::<RawAgi>() == 0x148);

/// The head of a free list of version 5: the fourth sector. Version 4 has none. Block numbers of four bytes follow.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Clone)]
#[repr(C)]
pub struct RawAgflHead {
    pub agfl_magicnum: U32<BE>,
    pub agfl_seqno: U32<BE>,
    pub agfl_uuid: [u8; 16],
    pub agfl_lsn: U64<BE>,
    pub agfl_crc: U32<LE>,
}
const _: () = assert!(size_of::<RawAgflHead>() == 0x24);

/// The head of a node in a tree of one group, of both versions.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Clone)]
#[repr(C)]
pub struct RawNode {
    pub bb_magic: U32<BE>,
    /// 0 is a leaf.
    pub bb_level: U16<BE>,
    pub bb_numrecs: U16<BE>,
    pub bb_leftsib: U32<BE>,
    pub bb_rightsib: U32<BE>,
}
const _: () = assert!(size_of::<RawNode>() == 0x10);

/// What version 5 adds to [`RawNode`].
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Clone)]
#[repr(C)]
pub struct RawNodeV5 {
    /// The node's own place, in basic blocks from the start of the volume.
    pub bb_blkno: U64<BE>,
    pub bb_lsn: U64<BE>,
    pub bb_uuid: [u8; 16],
    /// The number of the group.
    pub bb_owner: U32<BE>,
    pub bb_crc: U32<LE>,
}
const _: () = assert!(size_of::<RawNodeV5>() == 0x28);

/// A free extent, and also a key in a node of its trees. In blocks of the group.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Clone, Copy)]
#[repr(C)]
pub struct RawExtent {
    pub ar_startblock: U32<BE>,
    pub ar_blockcount: U32<BE>,
}
const _: () = assert!(size_of::<RawExtent>() == 8);

/// The head of a record in the log.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Clone)]
#[repr(C)]
pub struct RawLogRecord {
    pub h_magicno: U32<BE>,
    /// How often the log was begun anew.
    pub h_cycle: U32<BE>,
    pub h_version: U32<BE>,
    /// Bytes of data behind the head.
    pub h_len: U32<BE>,
    pub h_lsn: U64<BE>,
    pub h_tail_lsn: U64<BE>,
    /// 0 where mkfs or a repair wrote the record.
    pub h_crc: U32<LE>,
    pub h_prev_block: U32<BE>,
    pub h_num_logops: U32<BE>,
    pub h_cycle_data: [U32<BE>; 64],
    pub h_fmt: U32<BE>,
    pub h_fs_uuid: [u8; 16],
    /// Bytes of the largest record of that mount.
    pub h_size: U32<BE>,
}
const _: () = assert!(size_of::<RawLogRecord>() == 0x144);
