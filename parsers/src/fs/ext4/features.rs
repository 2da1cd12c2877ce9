//! The feature bits by name: which are understood, which forbid a map, and which nobody knows.
//!
//! Discarding is a change, so an unknown "read-only compatible" bit stops as surely as an "incompatible" one. Unknown
//! "compatible" bits stop too, as they do e2fsck: an allocator that nobody knows (snapshots were one) may be behind.

use super::Ext4Error;
use crate::fs::features::{Row, not_understood};

/// One of the three sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    Compat,
    Incompat,
    RoCompat,
}

impl std::fmt::Display for Set {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Compat => "compatible",
            Self::Incompat => "incompatible",
            Self::RoCompat => "read-only compatible",
        })
    }
}

/// Bits of `s_feature_compat`.
pub mod compat {
    pub const HAS_JOURNAL: u32 = 0x4;
    pub const RESIZE_INODE: u32 = 0x10;
    pub const SPARSE_SUPER2: u32 = 0x200;
    pub const ORPHAN_FILE: u32 = 0x1000;
}

/// Bits of `s_feature_incompat`.
pub mod incompat {
    pub const FILETYPE: u32 = 0x2;
    pub const RECOVER: u32 = 0x4;
    pub const JOURNAL_DEV: u32 = 0x8;
    pub const META_BG: u32 = 0x10;
    pub const BIT64: u32 = 0x80;
    pub const MMP: u32 = 0x100;
    pub const FLEX_BG: u32 = 0x200;
    pub const CSUM_SEED: u32 = 0x2000;
}

/// Bits of `s_feature_ro_compat`.
pub mod ro_compat {
    pub const SPARSE_SUPER: u32 = 0x1;
    pub const LARGE_FILE: u32 = 0x2;
    pub const BTREE_DIR: u32 = 0x4;
    pub const GDT_CSUM: u32 = 0x10;
    pub const BIGALLOC: u32 = 0x200;
    pub const METADATA_CSUM: u32 = 0x400;
    pub const ORPHAN_PRESENT: u32 = 0x1_0000;
}

const COMPAT: &[Row] = &[
    (0x1, "dir_prealloc", true),
    (0x2, "imagic_inodes", true),
    (compat::HAS_JOURNAL, "has_journal", true),
    (0x8, "ext_attr", true),
    (compat::RESIZE_INODE, "resize_inode", true),
    (0x20, "dir_index", true),
    (0x40, "lazy_bg", false),
    (0x80, "exclude_inode", false),
    (0x100, "exclude_bitmap", false),
    (compat::SPARSE_SUPER2, "sparse_super2", true),
    (0x400, "fast_commit", true),
    (0x800, "stable_inodes", true),
    (compat::ORPHAN_FILE, "orphan_file", true),
];

const INCOMPAT: &[Row] = &[
    (0x1, "compression", false),
    (incompat::FILETYPE, "filetype", true),
    // Its own finding, with its own remedy: see `state`.
    (incompat::RECOVER, "needs_recovery", true),
    // Recognised before the features are looked at.
    (incompat::JOURNAL_DEV, "journal_dev", false),
    (incompat::META_BG, "meta_bg", true),
    (0x40, "extents", true),
    (incompat::BIT64, "64bit", true),
    (incompat::MMP, "mmp", true),
    (incompat::FLEX_BG, "flex_bg", true),
    (0x400, "ea_inode", true),
    (0x1000, "dirdata", true),
    (incompat::CSUM_SEED, "metadata_csum_seed", true),
    (0x4000, "large_dir", true),
    (0x8000, "inline_data", true),
    (0x1_0000, "encrypt", true),
    (0x2_0000, "casefold", true),
];

const RO_COMPAT: &[Row] = &[
    (ro_compat::SPARSE_SUPER, "sparse_super", true),
    (ro_compat::LARGE_FILE, "large_file", true),
    (ro_compat::BTREE_DIR, "btree_dir", false),
    (0x8, "huge_file", true),
    (ro_compat::GDT_CSUM, "uninit_bg", true),
    (0x20, "dir_nlink", true),
    (0x40, "extra_isize", true),
    (0x80, "has_snapshot", false),
    (0x100, "quota", true),
    (ro_compat::BIGALLOC, "bigalloc", true),
    (ro_compat::METADATA_CSUM, "metadata_csum", true),
    (0x800, "replica", false),
    (0x1000, "read-only", true),
    (0x2000, "project", true),
    (0x4000, "shared_blocks", true),
    (0x8000, "verity", true),
    (ro_compat::ORPHAN_PRESENT, "orphan_present", true),
];

/// The features of one volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    pub compat: u32,
    pub incompat: u32,
    pub ro_compat: u32,
}

impl Features {
    /// True when the bit is set.
    pub fn has_compat(self, bit: u32) -> bool {
        self.compat & bit != 0
    }

    /// True when the bit is set.
    pub fn has_incompat(self, bit: u32) -> bool {
        self.incompat & bit != 0
    }

    /// True when the bit is set.
    pub fn has_ro_compat(self, bit: u32) -> bool {
        self.ro_compat & bit != 0
    }

    /// True when group descriptors carry a checksum, so that their "uninitialised" flags mean something.
    pub fn has_descriptor_checksums(self) -> bool {
        self.has_ro_compat(ro_compat::GDT_CSUM | ro_compat::METADATA_CSUM)
    }

    /// Stops at any bit that is not understood, and names them all.
    pub fn check(self) -> Result<(), Ext4Error> {
        let sets = [
            (Set::Incompat, INCOMPAT, self.incompat),
            (Set::RoCompat, RO_COMPAT, self.ro_compat),
            (Set::Compat, COMPAT, self.compat),
        ];
        for (set, rows, bits) in sets {
            let names = not_understood(rows, bits);
            if !names.is_empty() {
                return Err(Ext4Error::Features { set, names: names.join(", ") });
            }
        }
        Ok(())
    }

    /// The name that blkid gives the volume. Its rule: what ext2 (or ext3) could mount is called so.
    pub fn format_name(self) -> &'static str {
        let old_ro = ro_compat::SPARSE_SUPER | ro_compat::LARGE_FILE | ro_compat::BTREE_DIR;
        let old_incompat = incompat::FILETYPE | incompat::META_BG;
        if self.has_incompat(incompat::JOURNAL_DEV) {
            return "jbd";
        }
        if self.ro_compat & !old_ro != 0 || self.incompat & !(old_incompat | incompat::RECOVER) != 0 {
            return "ext4";
        }
        match (self.has_compat(compat::HAS_JOURNAL), self.has_incompat(incompat::RECOVER)) {
            (true, _) => "ext3",
            (false, false) => "ext2",
            (false, true) => "ext4",
        }
    }
}
