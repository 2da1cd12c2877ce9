//! The binary records of a physical volume, as LVM2 `lib/label/label.h`, `lib/format_text/layout.h` and dm-raid's
//! superblock (Linux `drivers/md/dm-raid.c`) have them. Little endian.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// In one of the first four sectors of 512 bytes.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawLabel {
    pub id: [u8; 8],
    /// The label's own sector.
    pub sector: U64,
    /// Over the rest of the sector.
    pub crc: U32,
    /// Where the header of the physical volume begins, from the start of the label.
    pub offset: U32,
    pub kind: [u8; 8],
}

const _: () = assert!(size_of::<RawLabel>() == 32);

/// The fixed part of the header of a physical volume.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawPhysical {
    pub uuid: [u8; 32],
    /// Bytes.
    pub device_size: U64,
}

const _: () = assert!(size_of::<RawPhysical>() == 40);

/// An area of the device; a pair of zeros ends a list of them. A size of 0 reaches to the end of the device.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawArea {
    pub offset: U64,
    pub size: U64,
}

const _: () = assert!(size_of::<RawArea>() == 16);

/// The extension behind the lists; a list of boot loader areas follows.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawExtension {
    pub version: U32,
    /// Bit 0: in use by a volume group.
    pub flags: U32,
}

const _: () = assert!(size_of::<RawExtension>() == 8);

/// The head of a metadata area.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawMetadata {
    /// Over the rest of the sector.
    pub crc: U32,
    pub magic: [u8; 16],
    pub version: U32,
    /// Where the area begins on the device, in bytes.
    pub start: U64,
    /// Bytes of the area.
    pub size: U64,
    /// The text that is valid, and the one of a change that is being made.
    pub locations: [RawLocation; 2],
}

const _: () = assert!(size_of::<RawMetadata>() == 88);

/// Where a text lies in the area.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawLocation {
    pub offset: U64,
    pub size: U64,
    pub crc: U32,
    /// Bit 0: the area is not kept up to date.
    pub flags: U32,
}

const _: () = assert!(size_of::<RawLocation>() == 24);

/// What dm-raid writes at the start of the metadata of each image.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawRaid {
    pub magic: U32,
    pub compat_features: U32,
    pub num_devices: U32,
    pub array_position: U32,
    pub events: U64,
    pub failed_devices: U64,
    /// Sectors that are in sync; all ones when all are.
    pub disk_recovery_offset: U64,
    /// The same for the first synchronisation.
    pub array_resync_offset: U64,
    pub level: U32,
    pub layout: U32,
    pub stripe_sectors: U32,
    /// States of a reshape.
    pub flags: U32,
}

const _: () = assert!(size_of::<RawRaid>() == 64);

/// The log of a mirror (Linux `drivers/md/dm-log.c`); its bits begin in the third sector.
#[derive(Debug, Clone, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawLog {
    pub magic: U32,
    pub version: U32,
    /// Regions.
    pub nr_regions: U64,
}

const _: () = assert!(size_of::<RawLog>() == 16);
