//! The structures as they lie on the disk, all with the greatest byte first except the journal's header, whose order is
//! its writer's. Source: Apple Technical Note TN1150 "HFS Plus Volume Format".

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// A run of allocation blocks.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawExtent {
    /// First block.
    pub start_block: U32,
    /// Number of blocks; zero ends the list.
    pub block_count: U32,
}

/// Where a fork of a file lies.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawFork {
    /// Length in bytes.
    pub logical_size: U64,
    _clump_size: U32,
    /// Blocks in all extents, those in the extents overflow file too.
    pub total_blocks: U32,
    /// The first extents.
    pub extents: [RawExtent; 8],
}

/// The volume header, at byte 1024 and again 1024 bytes before the end of the volume.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawVolumeHeader {
    /// "H+" or "HX".
    pub signature: [u8; 2],
    /// 4 for HFS+, 5 for HFSX.
    pub version: U16,
    /// State and features.
    pub attributes: U32,
    /// Who mounted the volume last.
    pub last_mounted_version: [u8; 4],
    /// Block of the journal info block.
    pub journal_info_block: U32,
    _dates: [U32; 4],
    _file_count: U32,
    _folder_count: U32,
    /// Bytes in an allocation block.
    pub block_size: U32,
    /// Number of allocation blocks.
    pub total_blocks: U32,
    /// Number of free ones.
    pub free_blocks: U32,
    _next_allocation: U32,
    _clump_sizes: [U32; 2],
    _next_catalog_id: U32,
    _write_count: U32,
    _encodings_bitmap: U64,
    _finder_info: [u8; 24],
    /// Identity of the volume; the last of the Finder's fields.
    pub volume_id: [u8; 8],
    /// The bitmap.
    pub allocation_file: RawFork,
    /// Extents that did not fit elsewhere.
    pub extents_file: RawFork,
    /// Files and folders.
    pub catalog_file: RawFork,
    /// Extended attributes.
    pub attributes_file: RawFork,
    /// For systems without HFS+ in ROM.
    pub startup_file: RawFork,
}

/// The journal info block.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawJournalInfo {
    /// Where the journal is, and whether it was ever used.
    pub flags: U32,
    _device_signature: [U32; 8],
    /// First byte of the journal in the volume.
    pub offset: U64,
    /// Bytes in the journal.
    pub size: U64,
}

/// What begins every node of a B-tree.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawNode {
    /// Next node of the same level.
    pub forward_link: U32,
    _backward_link: U32,
    /// -1 leaf, 0 index, 1 header, 2 map.
    pub kind: i8,
    _height: u8,
    /// Records in the node.
    pub records: U16,
    _reserved: U16,
}

/// The first record of a B-tree's first node.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawTreeHeader {
    _depth: U16,
    _root: U32,
    _leaf_records: U32,
    /// First leaf; zero in an empty tree.
    pub first_leaf: U32,
    _last_leaf: U32,
    /// Bytes in a node.
    pub node_size: U16,
    _max_key_length: U16,
    /// Nodes in the file.
    pub total_nodes: U32,
}

/// A record of the extents overflow file.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawOverflow {
    /// Bytes in the key behind this field: 10.
    pub key_length: U16,
    /// 0 data, 0xFF resource.
    pub fork_type: u8,
    _pad: u8,
    /// Whose extents.
    pub file_id: U32,
    /// Blocks of the fork before these.
    pub start_block: U32,
    /// The extents.
    pub extents: [RawExtent; 8],
}

/// The wrapper: the master directory block of the HFS volume around, at byte 1024.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawWrapper {
    /// "BD".
    pub signature: [u8; 2],
    _before: [u8; 18],
    /// Bytes in a block of the wrapper.
    pub allocation_block_size: U32,
    _between: [u8; 4],
    /// First sector of the blocks, in units of 512 bytes.
    pub first_allocation_block: U16,
    _further: [u8; 94],
    /// Signature of the volume inside.
    pub embedded_signature: [u8; 2],
    /// First block of the volume inside.
    pub embedded_start: U16,
    /// Blocks of the volume inside.
    pub embedded_count: U16,
}

const _: () = assert!(size_of::<RawFork>() == 80);
const _: () = assert!(size_of::<RawVolumeHeader>() == 512);
const _: () = assert!(std::mem::offset_of!(RawVolumeHeader, allocation_file) == 112);
const _: () = assert!(size_of::<RawJournalInfo>() == 52);
const _: () = assert!(size_of::<RawNode>() == 14);
const _: () = assert!(size_of::<RawTreeHeader>() == 30 - 4);
const _: () = assert!(size_of::<RawOverflow>() == 76);
const _: () = assert!(std::mem::offset_of!(RawWrapper, embedded_signature) == 0x7C);
const _: () = assert!(size_of::<RawWrapper>() == 0x82);
