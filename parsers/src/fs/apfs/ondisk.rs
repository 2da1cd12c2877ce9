//! The structures as they lie on disk, little-endian. Source: Apple File System Reference (2020-06-22); what it
//! leaves out of the space manager (from `ip_bm_free_head` on) after the layout in linux-apfs and libfsapfs.

use zerocopy::{FromBytes, Immutable, KnownLayout, LE, U16, U32, U64};

/// "NXSB" and "APSB" as the first field behind the object header; "JSDR" of the EFI jumpstart.
pub(super) const NX_MAGIC: [u8; 4] = *b"NXSB";
pub(super) const APFS_MAGIC: [u8; 4] = *b"APSB";
pub(super) const JUMPSTART_MAGIC: [u8; 4] = *b"JSDR";

/// Type words of objects: the kind in the low half, the way they are found in the two highest bits (physical: by
/// block number; ephemeral: through the checkpoint map; virtual: through an object map).
pub(super) mod kind {
    pub const PHYSICAL: u32 = 0x4000_0000;
    pub const EPHEMERAL: u32 = 0x8000_0000;
    pub const SUPERBLOCK: u32 = EPHEMERAL | 0x01;
    pub const BTREE_ROOT: u32 = 0x02;
    pub const BTREE_NODE: u32 = 0x03;
    pub const SPACE_MANAGER: u32 = EPHEMERAL | 0x05;
    pub const ADDRESS_BLOCK: u32 = PHYSICAL | 0x06;
    pub const INFO_BLOCK: u32 = PHYSICAL | 0x07;
    pub const FREE_QUEUE: u32 = 0x09;
    pub const OBJECT_MAP: u32 = PHYSICAL | 0x0B;
    pub const OBJECT_MAP_TREE: u32 = 0x0B;
    pub const CHECKPOINT_MAP: u32 = PHYSICAL | 0x0C;
    pub const VOLUME: u32 = 0x0D;
    pub const EXTENT_REFERENCES: u32 = 0x0F;
    pub const SNAPSHOTS: u32 = 0x10;
    pub const REAPER: u32 = EPHEMERAL | 0x11;
    pub const JUMPSTART: u32 = PHYSICAL | 0x14;
}

/// obj_phys_t: begins every object.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawHeader {
    /// Fletcher-64 over everything behind this field.
    pub o_cksum: U64<LE>,
    /// Object identifier; of a physical object its block number.
    pub o_oid: U64<LE>,
    /// Transaction that wrote it.
    pub o_xid: U64<LE>,
    /// See [`kind`].
    pub o_type: U32<LE>,
    /// Kind of the entries, for B-trees.
    pub o_subtype: U32<LE>,
}
const _: () = assert!(size_of::<RawHeader>() == 32);

/// prange_t: a run of blocks.
#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawRange {
    pub pr_start_paddr: U64<LE>,
    pub pr_block_count: U64<LE>,
}
const _: () = assert!(size_of::<RawRange>() == 16);

/// nx_superblock_t, up to the fields that matter here.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawSuperblock {
    pub nx_o: RawHeader,
    pub nx_magic: [u8; 4],
    /// Bytes, 4096..=65536.
    pub nx_block_size: U32<LE>,
    pub nx_block_count: U64<LE>,
    pub nx_features: U64<LE>,
    pub nx_readonly_compatible_features: U64<LE>,
    pub nx_incompatible_features: U64<LE>,
    pub nx_uuid: [u8; 16],
    pub nx_next_oid: U64<LE>,
    pub nx_next_xid: U64<LE>,
    /// Blocks of the checkpoint descriptor area; the highest bit says that `nx_xp_desc_base` is a tree.
    pub nx_xp_desc_blocks: U32<LE>,
    pub nx_xp_data_blocks: U32<LE>,
    pub nx_xp_desc_base: U64<LE>,
    pub nx_xp_data_base: U64<LE>,
    pub nx_xp_desc_next: U32<LE>,
    pub nx_xp_data_next: U32<LE>,
    pub nx_xp_desc_index: U32<LE>,
    pub nx_xp_desc_len: U32<LE>,
    pub nx_xp_data_index: U32<LE>,
    pub nx_xp_data_len: U32<LE>,
    /// Ephemeral.
    pub nx_spaceman_oid: U64<LE>,
    /// Physical.
    pub nx_omap_oid: U64<LE>,
    /// Ephemeral.
    pub nx_reaper_oid: U64<LE>,
    pub nx_test_type: U32<LE>,
    pub nx_max_file_systems: U32<LE>,
    /// Virtual; 0 = unused slot.
    pub nx_fs_oid: [U64<LE>; 100],
    pub nx_counters: [U64<LE>; 32],
    /// Blocks that a resize under way wants to be rid of.
    pub nx_blocked_out_prange: RawRange,
    pub nx_evict_mapping_tree_oid: U64<LE>,
    pub nx_flags: U64<LE>,
    /// Physical; 0 = none.
    pub nx_efi_jumpstart: U64<LE>,
    pub nx_fusion_uuid: [u8; 16],
    pub nx_keylocker: RawRange,
    pub nx_ephemeral_info: [U64<LE>; 4],
    pub nx_test_oid: U64<LE>,
    pub nx_fusion_mt_oid: U64<LE>,
    pub nx_fusion_wbc_oid: U64<LE>,
    pub nx_fusion_wbc: RawRange,
    pub nx_newest_mounted_version: U64<LE>,
    pub nx_mkb_locker: RawRange,
}
const _: () = assert!(size_of::<RawSuperblock>() == 0x580);

/// checkpoint_map_phys_t without its entries.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawCheckpointMap {
    pub cpm_o: RawHeader,
    /// 1 = the last map of this checkpoint.
    pub cpm_flags: U32<LE>,
    pub cpm_count: U32<LE>,
}
const _: () = assert!(size_of::<RawCheckpointMap>() == 0x28);

/// checkpoint_mapping_t: where an ephemeral object lies.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawMapping {
    pub cpm_type: U32<LE>,
    pub cpm_subtype: U32<LE>,
    /// Bytes.
    pub cpm_size: U32<LE>,
    pub cpm_pad: U32<LE>,
    pub cpm_fs_oid: U64<LE>,
    pub cpm_oid: U64<LE>,
    /// Block number in the checkpoint data area.
    pub cpm_paddr: U64<LE>,
}
const _: () = assert!(size_of::<RawMapping>() == 40);

/// spaceman_device_t.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawDevice {
    pub sm_block_count: U64<LE>,
    pub sm_chunk_count: U64<LE>,
    pub sm_cib_count: U32<LE>,
    /// 0 = the addresses at `sm_addr_offset` are those of chunk-info blocks.
    pub sm_cab_count: U32<LE>,
    pub sm_free_count: U64<LE>,
    /// Bytes from the start of the space manager.
    pub sm_addr_offset: U32<LE>,
    pub sm_reserved: U32<LE>,
    pub sm_reserved2: U64<LE>,
}
const _: () = assert!(size_of::<RawDevice>() == 48);

/// spaceman_free_queue_t: blocks that are no longer needed but may not be used again yet.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawFreeQueue {
    /// Blocks in the queue.
    pub sfq_count: U64<LE>,
    /// Ephemeral; 0 = no tree.
    pub sfq_tree_oid: U64<LE>,
    pub sfq_oldest_xid: U64<LE>,
    pub sfq_tree_node_limit: U16<LE>,
    pub sfq_pad16: U16<LE>,
    pub sfq_pad32: U32<LE>,
    pub sfq_reserved: U64<LE>,
}
const _: () = assert!(size_of::<RawFreeQueue>() == 40);

/// spaceman_phys_t up to the datazone.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawSpaceManager {
    pub sm_o: RawHeader,
    pub sm_block_size: U32<LE>,
    pub sm_blocks_per_chunk: U32<LE>,
    pub sm_chunks_per_cib: U32<LE>,
    pub sm_cibs_per_cab: U32<LE>,
    /// Main device, second tier of a Fusion drive.
    pub sm_dev: [RawDevice; 2],
    /// 1 = versioned.
    pub sm_flags: U32<LE>,
    pub sm_ip_bm_tx_multiplier: U32<LE>,
    /// Blocks of the internal pool, where chunk-info blocks and bitmaps live.
    pub sm_ip_block_count: U64<LE>,
    /// Blocks of one copy of the pool's own bitmap.
    pub sm_ip_bm_size_in_blocks: U32<LE>,
    /// Blocks of the ring that the copies go round in.
    pub sm_ip_bm_block_count: U32<LE>,
    pub sm_ip_bm_base: U64<LE>,
    pub sm_ip_base: U64<LE>,
    pub sm_fs_reserve_block_count: U64<LE>,
    pub sm_fs_reserve_alloc_count: U64<LE>,
    /// Internal pool, main device, second tier.
    pub sm_fq: [RawFreeQueue; 3],
    pub sm_ip_bm_free_head: U16<LE>,
    pub sm_ip_bm_free_tail: U16<LE>,
    pub sm_ip_bm_xid_offset: U32<LE>,
    /// Where the u16 ring index of each current bitmap block stands, in bytes from the start of the space manager.
    pub sm_ip_bitmap_offset: U32<LE>,
    pub sm_ip_bm_free_next_offset: U32<LE>,
    pub sm_version: U32<LE>,
    pub sm_struct_size: U32<LE>,
}
const _: () = assert!(size_of::<RawSpaceManager>() == 0x158);

/// Head of chunk_info_block_t and cib_addr_block_t: their entries follow.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawInfoHead {
    pub cib_o: RawHeader,
    pub cib_index: U32<LE>,
    pub cib_count: U32<LE>,
}
const _: () = assert!(size_of::<RawInfoHead>() == 0x28);

/// chunk_info_t: up to 8 * block size blocks that share a bitmap block.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawChunk {
    pub ci_xid: U64<LE>,
    /// First block.
    pub ci_addr: U64<LE>,
    /// Only the low 20 bits count.
    pub ci_block_count: U32<LE>,
    /// Only the low 20 bits count.
    pub ci_free_count: U32<LE>,
    /// Block number of the bitmap; 0 = there is none, all is free.
    pub ci_bitmap_addr: U64<LE>,
}
const _: () = assert!(size_of::<RawChunk>() == 32);

/// btree_node_phys_t without its data.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawNode {
    pub btn_o: RawHeader,
    /// 1 root, 2 leaf, 4 keys and values of fixed size, 8 hashed, 0x10 without header.
    pub btn_flags: U16<LE>,
    /// 0 = leaf.
    pub btn_level: U16<LE>,
    pub btn_nkeys: U32<LE>,
    /// Where the table of contents lies behind this structure, and its length.
    pub btn_table_space: [U16<LE>; 2],
    pub btn_free_space: [U16<LE>; 2],
    pub btn_key_free_list: [U16<LE>; 2],
    pub btn_val_free_list: [U16<LE>; 2],
}
const _: () = assert!(size_of::<RawNode>() == 0x38);

/// btree_info_t: the last bytes of a root node.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawTreeInfo {
    pub bt_flags: U32<LE>,
    /// Bytes.
    pub bt_node_size: U32<LE>,
    /// Bytes; 0 = not fixed.
    pub bt_key_size: U32<LE>,
    pub bt_val_size: U32<LE>,
    pub bt_longest_key: U32<LE>,
    pub bt_longest_val: U32<LE>,
    pub bt_key_count: U64<LE>,
    pub bt_node_count: U64<LE>,
}
const _: () = assert!(size_of::<RawTreeInfo>() == 40);

/// omap_phys_t.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawObjectMap {
    pub om_o: RawHeader,
    pub om_flags: U32<LE>,
    pub om_snap_count: U32<LE>,
    pub om_tree_type: U32<LE>,
    pub om_snapshot_tree_type: U32<LE>,
    pub om_tree_oid: U64<LE>,
    pub om_snapshot_tree_oid: U64<LE>,
}
const _: () = assert!(size_of::<RawObjectMap>() == 0x40);

/// omap_key_t and omap_val_t.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawMapKey {
    pub ok_oid: U64<LE>,
    pub ok_xid: U64<LE>,
}
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawMapValue {
    /// 1 = deleted.
    pub ov_flags: U32<LE>,
    /// Bytes.
    pub ov_size: U32<LE>,
    pub ov_paddr: U64<LE>,
}
const _: () = assert!(size_of::<RawMapValue>() == 16);

/// apfs_superblock_t up to the encryption state.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawVolume {
    pub apfs_o: RawHeader,
    pub apfs_magic: [u8; 4],
    pub apfs_fs_index: U32<LE>,
    pub apfs_features: U64<LE>,
    pub apfs_readonly_compatible_features: U64<LE>,
    pub apfs_incompatible_features: U64<LE>,
    pub apfs_unmount_time: U64<LE>,
    pub apfs_fs_reserve_block_count: U64<LE>,
    pub apfs_fs_quota_block_count: U64<LE>,
    pub apfs_fs_alloc_count: U64<LE>,
    pub apfs_meta_crypto: [u8; 20],
    pub apfs_root_tree_type: U32<LE>,
    pub apfs_extentref_tree_type: U32<LE>,
    pub apfs_snap_meta_tree_type: U32<LE>,
    /// Physical.
    pub apfs_omap_oid: U64<LE>,
    pub apfs_root_tree_oid: U64<LE>,
    /// Physical.
    pub apfs_extentref_tree_oid: U64<LE>,
    /// Physical.
    pub apfs_snap_meta_tree_oid: U64<LE>,
    pub apfs_revert_to_xid: U64<LE>,
    pub apfs_revert_to_sblock_oid: U64<LE>,
    pub apfs_next_obj_id: U64<LE>,
    pub apfs_num_files: U64<LE>,
    pub apfs_num_directories: U64<LE>,
    pub apfs_num_symlinks: U64<LE>,
    pub apfs_num_other_fsobjects: U64<LE>,
    pub apfs_num_snapshots: U64<LE>,
    pub apfs_total_blocks_alloced: U64<LE>,
    pub apfs_total_blocks_freed: U64<LE>,
    pub apfs_vol_uuid: [u8; 16],
    pub apfs_last_mod_time: U64<LE>,
    /// 1 = not encrypted.
    pub apfs_fs_flags: U64<LE>,
    /// Who formatted it and the eight that changed it last.
    pub apfs_formatted_by: [[u8; 48]; 9],
    /// UTF-8, ended by a zero.
    pub apfs_volname: [u8; 256],
    pub apfs_next_doc_id: U32<LE>,
    pub apfs_role: U16<LE>,
    pub reserved: U16<LE>,
    pub apfs_root_to_xid: U64<LE>,
    /// Encryption or decryption under way; 0 = none.
    pub apfs_er_state_oid: U64<LE>,
}
const _: () = assert!(size_of::<RawVolume>() == 0x3D8);

/// Head of nx_efi_jumpstart_t: extents follow.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawJumpstart {
    pub nej_o: RawHeader,
    pub nej_magic: [u8; 4],
    pub nej_version: U32<LE>,
    pub nej_efi_file_len: U32<LE>,
    pub nej_num_extents: U32<LE>,
    pub nej_reserved: [U64<LE>; 16],
}
const _: () = assert!(size_of::<RawJumpstart>() == 0xB0);
