//! The structures as they lie on disk. Little endian but for the journal, which is big endian.
//!
//! Sources: Linux `Documentation/filesystems/ext4/` (super, group_descr, inodes, ifork, mmp, journal) and
//! e2fsprogs `lib/ext2fs/ext2_fs.h`. Names are those of the documentation.

use zerocopy::byteorder::{BE, LE, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The superblock lies here whatever the block size, in bytes from the start of the volume.
pub const SUPERBLOCK_AT: u64 = 1024;
/// `s_magic`.
pub const MAGIC: u16 = 0xEF53;

/// The superblock.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Clone)]
#[repr(C)]
pub struct RawSuperBlock {
    pub s_inodes_count: U32<LE>,
    pub s_blocks_count_lo: U32<LE>,
    pub s_r_blocks_count_lo: U32<LE>,
    /// In blocks, also with bigalloc.
    pub s_free_blocks_count_lo: U32<LE>,
    pub s_free_inodes_count: U32<LE>,
    pub s_first_data_block: U32<LE>,
    pub s_log_block_size: U32<LE>,
    pub s_log_cluster_size: U32<LE>,
    pub s_blocks_per_group: U32<LE>,
    pub s_clusters_per_group: U32<LE>,
    pub s_inodes_per_group: U32<LE>,
    pub s_mtime: U32<LE>,
    pub s_wtime: U32<LE>,
    pub s_mnt_count: U16<LE>,
    pub s_max_mnt_count: U16<LE>,
    pub s_magic: U16<LE>,
    pub s_state: U16<LE>,
    pub s_errors: U16<LE>,
    pub s_minor_rev_level: U16<LE>,
    pub s_lastcheck: U32<LE>,
    pub s_checkinterval: U32<LE>,
    pub s_creator_os: U32<LE>,
    pub s_rev_level: U32<LE>,
    pub s_def_resuid: U16<LE>,
    pub s_def_resgid: U16<LE>,
    pub s_first_ino: U32<LE>,
    pub s_inode_size: U16<LE>,
    pub s_block_group_nr: U16<LE>,
    pub s_feature_compat: U32<LE>,
    pub s_feature_incompat: U32<LE>,
    pub s_feature_ro_compat: U32<LE>,
    pub s_uuid: [u8; 16],
    pub s_volume_name: [u8; 16],
    pub s_last_mounted: [u8; 64],
    pub s_algorithm_usage_bitmap: U32<LE>,
    pub s_prealloc_blocks: u8,
    pub s_prealloc_dir_blocks: u8,
    pub s_reserved_gdt_blocks: U16<LE>,
    pub s_journal_uuid: [u8; 16],
    pub s_journal_inum: U32<LE>,
    pub s_journal_dev: U32<LE>,
    pub s_last_orphan: U32<LE>,
    pub s_hash_seed: [u8; 16],
    pub s_def_hash_version: u8,
    pub s_jnl_backup_type: u8,
    pub s_desc_size: U16<LE>,
    pub s_default_mount_opts: U32<LE>,
    pub s_first_meta_bg: U32<LE>,
    pub s_mkfs_time: U32<LE>,
    pub s_jnl_blocks: [u8; 68],
    pub s_blocks_count_hi: U32<LE>,
    pub s_r_blocks_count_hi: U32<LE>,
    pub s_free_blocks_count_hi: U32<LE>,
    pub s_min_extra_isize: U16<LE>,
    pub s_want_extra_isize: U16<LE>,
    pub s_flags: U32<LE>,
    pub s_raid_stride: U16<LE>,
    pub s_mmp_interval: U16<LE>,
    pub s_mmp_block: U64<LE>,
    pub s_raid_stripe_width: U32<LE>,
    pub s_log_groups_per_flex: u8,
    pub s_checksum_type: u8,
    pub s_reserved_pad: U16<LE>,
    pub s_kbytes_written: U64<LE>,
    pub s_snapshot: [u8; 20],
    pub s_error_count: U32<LE>,
    pub s_error_info: [u8; 104],
    pub s_mount_opts: [u8; 64],
    pub s_usr_quota_inum: U32<LE>,
    pub s_grp_quota_inum: U32<LE>,
    pub s_overhead_clusters: U32<LE>,
    pub s_backup_bgs: [U32<LE>; 2],
    pub s_encrypt_algos: [u8; 4],
    pub s_encrypt_pw_salt: [u8; 16],
    pub s_lpf_ino: U32<LE>,
    pub s_prj_quota_inum: U32<LE>,
    pub s_checksum_seed: U32<LE>,
    pub s_time_hi: [u8; 8],
    pub s_encoding: [u8; 4],
    pub s_orphan_file_inum: U32<LE>,
    pub s_reserved: [u8; 376],
    /// Raw CRC-32C of everything before.
    pub s_checksum: U32<LE>,
}
const _: () = assert!(size_of::<RawSuperBlock>() == 1024);

/// A group descriptor of 32 bytes, and the first half of a longer one.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
pub struct RawGroupDesc {
    pub bg_block_bitmap_lo: U32<LE>,
    pub bg_inode_bitmap_lo: U32<LE>,
    pub bg_inode_table_lo: U32<LE>,
    /// In clusters.
    pub bg_free_blocks_count_lo: U16<LE>,
    pub bg_free_inodes_count_lo: U16<LE>,
    pub bg_used_dirs_count_lo: U16<LE>,
    pub bg_flags: U16<LE>,
    pub bg_exclude_bitmap_lo: U32<LE>,
    pub bg_block_bitmap_csum_lo: U16<LE>,
    pub bg_inode_bitmap_csum_lo: U16<LE>,
    pub bg_itable_unused_lo: U16<LE>,
    pub bg_checksum: U16<LE>,
}
const _: () = assert!(size_of::<RawGroupDesc>() == 32);

/// The second half of a descriptor of 64 bytes or more.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
pub struct RawGroupDescHigh {
    pub bg_block_bitmap_hi: U32<LE>,
    pub bg_inode_bitmap_hi: U32<LE>,
    pub bg_inode_table_hi: U32<LE>,
    pub bg_free_blocks_count_hi: U16<LE>,
    pub bg_free_inodes_count_hi: U16<LE>,
    pub bg_used_dirs_count_hi: U16<LE>,
    pub bg_itable_unused_hi: U16<LE>,
    pub bg_exclude_bitmap_hi: U32<LE>,
    pub bg_block_bitmap_csum_hi: U16<LE>,
    pub bg_inode_bitmap_csum_hi: U16<LE>,
    pub bg_reserved: U32<LE>,
}
const _: () = assert!(size_of::<RawGroupDescHigh>() == 32);

/// The part of an inode that every inode size has.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
pub struct RawInode {
    pub i_mode: U16<LE>,
    pub i_uid: U16<LE>,
    pub i_size_lo: U32<LE>,
    pub i_times: [u8; 16],
    pub i_gid: U16<LE>,
    pub i_links_count: U16<LE>,
    pub i_blocks_lo: U32<LE>,
    pub i_flags: U32<LE>,
    pub osd1: U32<LE>,
    pub i_block: [u8; 60],
    pub i_generation: U32<LE>,
    pub i_file_acl_lo: U32<LE>,
    pub i_size_high: U32<LE>,
    pub i_obso_faddr: U32<LE>,
    pub i_blocks_high: U16<LE>,
    pub i_file_acl_high: U16<LE>,
    pub i_uid_high: U16<LE>,
    pub i_gid_high: U16<LE>,
    pub i_checksum_lo: U16<LE>,
    pub i_reserved: U16<LE>,
}
const _: () = assert!(size_of::<RawInode>() == 128);

/// `i_flags`: the file is mapped by extents.
pub const EXTENTS_FL: u32 = 0x8_0000;
/// `eh_magic`.
pub const EXTENT_MAGIC: u16 = 0xF30A;

/// The head of every node of an extent tree.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
pub struct RawExtentHeader {
    pub eh_magic: U16<LE>,
    pub eh_entries: U16<LE>,
    pub eh_max: U16<LE>,
    pub eh_depth: U16<LE>,
    pub eh_generation: U32<LE>,
}
const _: () = assert!(size_of::<RawExtentHeader>() == 12);

/// An entry of a leaf (depth 0).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
pub struct RawExtent {
    pub ee_block: U32<LE>,
    /// More than 32768: unwritten, 32768 must be taken off.
    pub ee_len: U16<LE>,
    pub ee_start_hi: U16<LE>,
    pub ee_start_lo: U32<LE>,
}
const _: () = assert!(size_of::<RawExtent>() == 12);

/// An entry of an inner node.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
pub struct RawExtentIndex {
    pub ei_block: U32<LE>,
    pub ei_leaf_lo: U32<LE>,
    pub ei_leaf_hi: U16<LE>,
    pub ei_unused: U16<LE>,
}
const _: () = assert!(size_of::<RawExtentIndex>() == 12);

/// The multi-mount protection block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
pub struct RawMmp {
    pub mmp_magic: U32<LE>,
    pub mmp_seq: U32<LE>,
    pub mmp_time: U64<LE>,
    pub mmp_nodename: [u8; 64],
    pub mmp_bdevname: [u8; 32],
    pub mmp_check_interval: U16<LE>,
    pub mmp_pad1: U16<LE>,
    pub mmp_pad2: [u8; 904],
    pub mmp_checksum: U32<LE>,
}
const _: () = assert!(size_of::<RawMmp>() == 1024);

/// `mmp_magic`.
pub const MMP_MAGIC: u32 = 0x004D_4D50;
/// `mmp_seq` of a volume that nobody uses.
pub const MMP_SEQ_CLEAN: u32 = 0xFF4D_4D50;
/// `mmp_seq` while e2fsck runs.
pub const MMP_SEQ_FSCK: u32 = 0xE24D_4D50;

/// The journal's superblock (jbd2). Big endian.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
pub struct RawJournalSuperBlock {
    pub h_magic: U32<BE>,
    /// 3: version 1, whose fields end at `s_errno`; 4: version 2.
    pub h_blocktype: U32<BE>,
    pub h_sequence: U32<BE>,
    pub s_blocksize: U32<BE>,
    pub s_maxlen: U32<BE>,
    pub s_first: U32<BE>,
    pub s_sequence: U32<BE>,
    /// First block of the log that is not yet written back; 0 when there is nothing to replay.
    pub s_start: U32<BE>,
    pub s_errno: U32<BE>,
    pub s_feature_compat: U32<BE>,
    pub s_feature_incompat: U32<BE>,
    pub s_feature_ro_compat: U32<BE>,
    pub s_uuid: [u8; 16],
    pub s_nr_users: U32<BE>,
    pub s_dynsuper: U32<BE>,
    pub s_max_transaction: U32<BE>,
    pub s_max_trans_data: U32<BE>,
    pub s_checksum_type: u8,
    pub s_padding2: [u8; 3],
    pub s_num_fc_blks: U32<BE>,
    pub s_head: U32<BE>,
    pub s_padding: [u8; 160],
    pub s_checksum: U32<BE>,
    pub s_users: [[u8; 16]; 48],
}
const _: () = assert!(size_of::<RawJournalSuperBlock>() == 1024);

/// `h_magic`.
pub const JOURNAL_MAGIC: u32 = 0xC03B_3998;
