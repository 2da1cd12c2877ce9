//! The structures as they lie on the disk, the least byte first. Source: Linux `include/uapi/linux/btrfs_tree.h`; the
//! on-disk format pages of the btrfs documentation.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Where the superblock and its copies lie on each device, as far as the device reaches.
pub(super) const SUPER_AT: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
/// Bytes of a superblock.
pub(super) const SUPER_LEN: u64 = 4096;
/// Bytes from each of [`SUPER_AT`] that the allocator leaves out: a whole stripe.
pub(super) const STRIPE: u64 = 64 << 10;
/// Bytes at the start of each device in which no chunk begins.
pub(super) const FIRST_CHUNK_AT: u64 = 1 << 20;
/// At byte 64 of a superblock.
pub(super) const MAGIC: [u8; 8] = *b"_BHRfS_M";
/// Bytes of a checksum field, and before what it covers.
pub(super) const CHECKSUM_LEN: usize = 32;

/// Kinds of items: the middle part of a key.
pub(super) mod kind {
    pub const ROOT_ITEM: u8 = 132;
    pub const EXTENT_ITEM: u8 = 168;
    pub const METADATA_ITEM: u8 = 169;
    /// Everything from here to [`LAST_REFERENCE`] says who refers to an extent.
    pub const EXTENT_OWNER_REF: u8 = 172;
    pub const FIRST_REFERENCE: u8 = 176;
    pub const EXTENT_REF_V0: u8 = 180;
    pub const LAST_REFERENCE: u8 = 184;
    pub const BLOCK_GROUP: u8 = 192;
    pub const SPACE_INFO: u8 = 198;
    pub const SPACE_EXTENT: u8 = 199;
    pub const SPACE_BITMAP: u8 = 200;
    pub const DEV_EXTENT: u8 = 204;
    pub const DEV_ITEM: u8 = 216;
    pub const CHUNK: u8 = 228;
    /// In the device tree: counters of errors, or with type 250 a device replace.
    pub const DEV_REPLACE: u8 = 250;
}

/// Numbers of trees, which are also the owners of their blocks.
pub(super) mod tree {
    pub const ROOT: u64 = 1;
    pub const EXTENT: u64 = 2;
    pub const CHUNK: u64 = 3;
    pub const DEVICE: u64 = 4;
    pub const FREE_SPACE: u64 = 10;
    pub const BLOCK_GROUP: u64 = 11;
}

/// The first part of the keys of all chunk items.
pub(super) const CHUNK_OBJECT: u64 = 256;
/// The first part of the keys of all device items.
pub(super) const DEV_ITEMS_OBJECT: u64 = 1;

/// The place of an item in a tree, as it is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub object: u64,
    pub kind: u8,
    pub offset: u64,
}

impl Key {
    pub const FIRST: Self = Self { object: 0, kind: 0, offset: 0 };
    pub const LAST: Self = Self { object: u64::MAX, kind: u8::MAX, offset: u64::MAX };

    /// The least key with these parts.
    pub const fn from(object: u64, kind: u8) -> Self {
        Self { object, kind, offset: 0 }
    }

    /// The greatest key with these parts.
    pub const fn to(object: u64, kind: u8) -> Self {
        Self { object, kind, offset: u64::MAX }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "({} {} {})", self.object, self.kind, self.offset)
    }
}

/// A [`Key`] on the disk.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawKey {
    object: U64,
    kind: u8,
    offset: U64,
}

impl RawKey {
    pub fn get(self) -> Key {
        Key { object: self.object.get(), kind: self.kind, offset: self.offset.get() }
    }
}

/// What is known about a device, in its superblock and in the chunk tree.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RawDevItem {
    pub id: U64,
    pub total_bytes: U64,
    /// Sum of its device extents.
    pub bytes_used: U64,
    _io: [U32; 3],
    _kind: U64,
    _generation: U64,
    _start_offset: U64,
    _group: U32,
    _speed: [u8; 2],
    pub uuid: [u8; 16],
    /// The filesystem that it belongs to: another one for a seed.
    pub fsid: [u8; 16],
}

/// The superblock.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawSuperblock {
    pub checksum: [u8; CHECKSUM_LEN],
    pub fsid: [u8; 16],
    /// Its own place on the device.
    pub bytenr: U64,
    pub flags: U64,
    pub magic: [u8; 8],
    pub generation: U64,
    pub root: U64,
    pub chunk_root: U64,
    pub log_root: U64,
    _log_root_transid: U64,
    pub total_bytes: U64,
    pub bytes_used: U64,
    _root_dir: U64,
    pub num_devices: U64,
    pub sector_size: U32,
    pub node_size: U32,
    _leaf_size: U32,
    _stripe_size: U32,
    pub system_chunks_len: U32,
    pub chunk_root_generation: U64,
    pub compat: U64,
    pub compat_ro: U64,
    pub incompat: U64,
    pub checksum_kind: U16,
    pub root_level: u8,
    pub chunk_root_level: u8,
    _log_root_level: u8,
    pub device: RawDevItem,
    pub label: [u8; 256],
    _cache_generation: U64,
    _uuid_tree_generation: U64,
    /// What tree blocks call the filesystem, with the feature of that name.
    pub metadata_uuid: [u8; 16],
    _reserved: [U64; 28],
    pub system_chunks: [u8; 2048],
    _backup_roots: [[u8; 168]; 4],
    _padding: [u8; 565],
}

/// What each tree block begins with.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawHeader {
    pub checksum: [u8; CHECKSUM_LEN],
    pub fsid: [u8; 16],
    /// Its own logical place.
    pub bytenr: U64,
    /// Bit 0: written. The highest byte is the revision of back references: 1.
    pub flags: U64,
    _chunk_tree_uuid: [u8; 16],
    pub generation: U64,
    pub owner: U64,
    pub count: U32,
    /// 0 for a leaf.
    pub level: u8,
}

/// An entry of a node.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawPointer {
    pub key: RawKey,
    pub block: U64,
    pub generation: U64,
}

/// An entry of a leaf.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawItem {
    pub key: RawKey,
    /// Where its data begins, counted from the end of the header.
    pub offset: U32,
    pub size: U32,
}

/// A chunk: logical space and what it is made of. The stripes follow.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawChunk {
    pub len: U64,
    _owner: U64,
    pub stripe_len: U64,
    pub flags: U64,
    _io: [U32; 2],
    _sector_size: U32,
    pub stripes: U16,
    pub sub_stripes: U16,
}

/// One part of a chunk on one device.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawStripe {
    pub device: U64,
    pub offset: U64,
    pub device_uuid: [u8; 16],
}

/// A block group: how a chunk is used. Its key has start and length.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawBlockGroup {
    pub used: U64,
    _chunk_object: U64,
    pub flags: U64,
}

/// Free space of a block group in the free-space tree.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawSpaceInfo {
    pub extents: U32,
    /// Bit 0: the free space is in bitmaps.
    pub flags: U32,
}

/// A part of a device that belongs to a chunk. Its key has device and start.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawDevExtent {
    _chunk_tree: U64,
    _chunk_object: U64,
    pub chunk: U64,
    pub len: U64,
    _chunk_tree_uuid: [u8; 16],
}

/// The start of a device replace item.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawReplace {
    _source_device: U64,
    _cursors: [U64; 2],
    _mode: U64,
    /// 0 never, 1 started, 2 finished, 3 cancelled, 4 suspended.
    pub state: U64,
}

/// Where a tree begins; the first 239 bytes of a root item.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawRoot {
    _inode: [u8; 160],
    pub generation: U64,
    _root_directory: U64,
    pub block: U64,
    _counters: [U64; 3],
    _flags: U64,
    _references: U32,
    _drop_progress: RawKey,
    _drop_level: u8,
    pub level: u8,
}

const _: () = {
    assert!(size_of::<RawKey>() == 17);
    assert!(size_of::<RawDevItem>() == 98);
    assert!(size_of::<RawSuperblock>() == 4096);
    assert!(size_of::<RawHeader>() == 101);
    assert!(size_of::<RawPointer>() == 33);
    assert!(size_of::<RawItem>() == 25);
    assert!(size_of::<RawChunk>() == 48);
    assert!(size_of::<RawStripe>() == 32);
    assert!(size_of::<RawBlockGroup>() == 24);
    assert!(size_of::<RawSpaceInfo>() == 8);
    assert!(size_of::<RawDevExtent>() == 48);
    assert!(size_of::<RawReplace>() == 40);
    assert!(size_of::<RawRoot>() == 239);
};
