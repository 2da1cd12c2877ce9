//! The feature bits by name: which are understood, and which nobody knows. Any bit that is not understood stops, also a
//! "read-only compatible" or a "compatible" one: discarding is a change.
//!
//! Source: Linux `fs/xfs/libxfs/xfs_format.h` (`XFS_SB_VERSION_*`, `XFS_SB_FEAT_*`).

use super::XfsError;
use super::ondisk::RawSuperBlock;
use crate::fs::features::{Row, not_understood};

/// Bits of `sb_versionnum` above the version, in both versions.
pub mod version {
    pub const SECTOR: u32 = 0x800;
    pub const MORE: u32 = 0x8000;
}

/// Bits of `sb_features2`.
pub mod features2 {
    pub const LAZY_COUNT: u32 = 0x2;
    pub const CRC: u32 = 0x100;
}

/// Bits of `sb_features_ro_compat`.
pub mod ro_compat {
    pub const RMAPBT: u32 = 0x2;
    pub const REFLINK: u32 = 0x4;
}

/// Bits of `sb_features_incompat`.
pub mod incompat {
    pub const META_UUID: u32 = 0x4;
    pub const NEEDS_REPAIR: u32 = 0x10;
}

const VERSION: &[Row] = &[
    (0x10, "attr", true),
    (0x20, "nlink", true),
    (0x40, "quota", true),
    (0x80, "inode alignment", true),
    (0x100, "stripe alignment", true),
    (0x200, "shared", false),
    (0x400, "log v2", true),
    (version::SECTOR, "sector", true),
    (0x1000, "unwritten extents", true),
    (0x2000, "directory v2", true),
    (0x4000, "ascii-ci", true),
    (version::MORE, "more bits", true),
];

const FEATURES2: &[Row] = &[
    (features2::LAZY_COUNT, "lazy-count", true),
    (0x8, "attr2", true),
    (0x10, "parent (IRIX)", false),
    (0x80, "projid32bit", true),
    (features2::CRC, "crc", true),
    (0x200, "ftype", true),
];

const COMPAT: &[Row] = &[];

const RO_COMPAT: &[Row] = &[
    (0x1, "finobt", true),
    (ro_compat::RMAPBT, "rmapbt", true),
    (ro_compat::REFLINK, "reflink", true),
    (0x8, "inobtcount", true),
];

const INCOMPAT: &[Row] = &[
    (0x1, "ftype", true),
    (0x2, "sparse inodes", true),
    (incompat::META_UUID, "meta_uuid", true),
    (0x8, "bigtime", true),
    // Its own finding, with its own remedy.
    (incompat::NEEDS_REPAIR, "needsrepair", true),
    (0x20, "nrext64", true),
    (0x40, "exchange-range", true),
    (0x80, "parent pointers", true),
    // Free space of the data device may be the same, but counters and reservations are not, and nothing was tested.
    (0x100, "metadir, realtime groups", false),
    (0x200, "zoned", false),
    (0x400, "zone gaps", false),
];

const LOG_INCOMPAT: &[Row] = &[(0x1, "logged attributes", true)];

/// The features of one volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Version 5: checksums and identities everywhere.
    pub is_v5: bool,
    /// `sb_versionnum` without the version.
    pub version: u32,
    pub features2: u32,
    pub compat: u32,
    pub ro_compat: u32,
    pub incompat: u32,
    pub log_incompat: u32,
}

impl Features {
    /// The features of a superblock; other versions than 4 and 5 stop here. Version 4 has no sets of its own.
    pub fn of(raw: &RawSuperBlock) -> Result<Self, XfsError> {
        let number = raw.sb_versionnum.get();
        let is_v5 = match number & 0xF {
            4 => false,
            5 => true,
            other => return Err(XfsError::Version(other)),
        };
        let of_v5 = |set: u32| if is_v5 { set } else { 0 };
        let version = u32::from(number & !0xF);
        Ok(Self {
            is_v5,
            version,
            features2: if version & version::MORE != 0 { raw.sb_features2.get() } else { 0 },
            compat: of_v5(raw.sb_features_compat.get()),
            ro_compat: of_v5(raw.sb_features_ro_compat.get()),
            incompat: of_v5(raw.sb_features_incompat.get()),
            log_incompat: of_v5(raw.sb_features_log_incompat.get()),
        })
    }

    /// True when the bit is set.
    pub fn has_incompat(self, bit: u32) -> bool {
        self.incompat & bit != 0
    }

    /// True when the bit is set.
    pub fn has_ro_compat(self, bit: u32) -> bool {
        self.ro_compat & bit != 0
    }

    /// True when `agf_btreeblks` is kept.
    pub fn has_tree_counts(self) -> bool {
        self.is_v5 || self.features2 & features2::LAZY_COUNT != 0
    }

    /// Stops at any bit that is not understood, and names them all.
    pub fn check(self) -> Result<(), XfsError> {
        if self.is_v5 != (self.features2 & features2::CRC != 0) {
            return Err(XfsError::VersionContradicts);
        }
        let sets = [
            ("version", VERSION, self.version),
            ("second version", FEATURES2, self.features2),
            ("incompatible", INCOMPAT, self.incompat),
            ("read-only compatible", RO_COMPAT, self.ro_compat),
            ("compatible", COMPAT, self.compat),
            ("log", LOG_INCOMPAT, self.log_incompat),
        ];
        for (set, rows, bits) in sets {
            let names = not_understood(rows, bits);
            if !names.is_empty() {
                return Err(XfsError::Features { set, names: names.join(", ") });
            }
        }
        Ok(())
    }
}
