//! From the raw superblock to numbers that fit together. What leaves this file needs no second look: no division by
//! zero, no group without blocks, no structure larger than a block.

use super::Ext4Error;
use super::checksum::crc32c;
use super::features::{Features, compat, incompat, ro_compat};
use super::ondisk::{MAGIC, RawSuperBlock, SUPERBLOCK_AT};
use crate::error::{Mismatch, ParseError};
use crate::free_map::Grid;
use crate::source::{Source, read_struct};
use crate::units::{BlockSize, div_up, mul, sub};
use zerocopy::IntoBytes;

/// More groups than this (32 TiB of 1 KiB blocks, 512 TiB of 4 KiB blocks) would need more memory than a check of
/// someone's disk should take.
const MAX_GROUPS: u64 = 1 << 22;

/// A superblock whose numbers fit together.
#[derive(Debug, Clone)]
pub struct SuperBlock {
    pub features: Features,
    pub block: BlockSize,
    /// Blocks of a cluster; 1 without bigalloc.
    pub cluster_ratio: u64,
    pub blocks_count: u64,
    pub first_data_block: u64,
    pub blocks_per_group: u64,
    pub clusters_per_group: u64,
    pub inodes_per_group: u64,
    pub groups: u64,
    pub inode_size: u64,
    /// Bytes of a group descriptor.
    pub descriptor_size: u64,
    pub first_meta_bg: u64,
    pub reserved_gdt_blocks: u64,
    pub backup_groups: [u64; 2],
    /// Start value of every checksum but the superblock's own, with METADATA_CSUM.
    pub checksum_seed: u32,
    pub uuid: [u8; 16],
    pub label: Option<String>,
    /// In blocks; may lag behind.
    pub free_blocks: u64,
    pub raw: Box<RawSuperBlock>,
}

/// The raw superblock, its magic checked and nothing else.
pub fn read_raw(source: &dyn Source) -> Result<RawSuperBlock, ParseError> {
    let raw: RawSuperBlock = read_struct(source, SUPERBLOCK_AT)?;
    check("magic", MAGIC.into(), raw.s_magic.get().into())?;
    Ok(raw)
}

/// The feature bits. A volume of revision 0 has none, and one that has some although it says revision 0 is damaged:
/// believing the revision would switch off every checksum.
pub fn features(raw: &RawSuperBlock) -> Result<Features, ParseError> {
    let features = Features {
        compat: raw.s_feature_compat.get(),
        incompat: raw.s_feature_incompat.get(),
        ro_compat: raw.s_feature_ro_compat.get(),
    };
    match raw.s_rev_level.get() {
        0 if features == (Features { compat: 0, incompat: 0, ro_compat: 0 }) => Ok(features),
        0 => Err(corrupt(Ext4Error::FeaturesInRevisionZero)),
        1 => Ok(features),
        other => Err(ParseError::unsupported(SUPERBLOCK_AT, Ext4Error::Revision(other))),
    }
}

/// Checks the superblock's own checksum, where there is one.
pub fn check_checksum(raw: &RawSuperBlock, features: Features) -> Result<(), ParseError> {
    if !features.has_ro_compat(ro_compat::METADATA_CSUM) {
        return Ok(());
    }
    if raw.s_checksum_type != 1 {
        return Err(ParseError::unsupported(SUPERBLOCK_AT, Ext4Error::ChecksumType(raw.s_checksum_type)));
    }
    let body = raw.as_bytes().get(..1020).unwrap_or_default();
    check_hex("superblock checksum", crc32c(!0, body).into(), raw.s_checksum.get().into())
}

impl SuperBlock {
    /// Checks everything that can be checked without a look at the rest of the volume.
    pub fn parse(raw: RawSuperBlock) -> Result<Self, ParseError> {
        let features = features(&raw)?;
        check_checksum(&raw, features)?;
        features.check().map_err(|e| ParseError::unsupported(SUPERBLOCK_AT, e))?;
        let block = block_size(&raw)?;
        let cluster_ratio = cluster_ratio(&raw, features, block)?;
        let wide = features.has_incompat(incompat::BIT64);
        let join = |low: u32, high: u32| u64::from(low) | if wide { u64::from(high) << 32 } else { 0 };
        let mut parsed = Self {
            features,
            block,
            cluster_ratio,
            blocks_count: join(raw.s_blocks_count_lo.get(), raw.s_blocks_count_hi.get()),
            first_data_block: raw.s_first_data_block.get().into(),
            blocks_per_group: raw.s_blocks_per_group.get().into(),
            clusters_per_group: raw.s_clusters_per_group.get().into(),
            inodes_per_group: raw.s_inodes_per_group.get().into(),
            groups: 0,
            inode_size: if raw.s_rev_level.get() == 0 { 128 } else { raw.s_inode_size.get().into() },
            descriptor_size: if wide { raw.s_desc_size.get().into() } else { 32 },
            first_meta_bg: raw.s_first_meta_bg.get().into(),
            reserved_gdt_blocks: if features.has_compat(compat::RESIZE_INODE) {
                raw.s_reserved_gdt_blocks.get().into()
            } else {
                0
            },
            backup_groups: raw.s_backup_bgs.map(|group| group.get().into()),
            checksum_seed: if features.has_incompat(incompat::CSUM_SEED) {
                raw.s_checksum_seed.get()
            } else {
                crc32c(!0, &raw.s_uuid)
            },
            uuid: raw.s_uuid,
            label: label(&raw.s_volume_name),
            free_blocks: join(raw.s_free_blocks_count_lo.get(), raw.s_free_blocks_count_hi.get()),
            raw: Box::new(raw),
        };
        parsed.check_sizes()?;
        parsed.groups = parsed.count_groups()?;
        parsed.check_groups()?;
        Ok(parsed)
    }

    /// The blocks that the free map speaks of.
    pub fn grid(&self) -> Result<Grid, ParseError> {
        Ok(Grid::new(0, self.block, self.blocks_count)?)
    }

    /// Descriptors in a block; at least 1, because a descriptor is no larger than a block.
    pub fn descriptors_per_block(&self) -> u64 {
        self.block.bytes().checked_div(self.descriptor_size).unwrap_or(1).max(1)
    }

    /// Blocks that all descriptors together fill.
    pub fn descriptor_blocks(&self) -> u64 {
        self.groups.div_ceil(self.descriptors_per_block())
    }

    /// Blocks of each group's inode table.
    pub fn inode_table_blocks(&self) -> Result<u64, ParseError> {
        let bytes = mul(self.inodes_per_group, self.inode_size, "the size of an inode table")?;
        Ok(bytes.div_ceil(self.block.bytes()))
    }

    /// First block of a group.
    pub fn group_start(&self, group: u64) -> Result<u64, ParseError> {
        let behind = mul(group, self.blocks_per_group, "the start of a group")?;
        Ok(crate::units::add(self.first_data_block, behind, "the start of a group")?)
    }

    /// Blocks of a group; the last one may be short.
    pub fn group_blocks(&self, group: u64) -> Result<u64, ParseError> {
        let left = sub(self.blocks_count, self.group_start(group)?, "the blocks behind the start of a group")?;
        Ok(left.min(self.blocks_per_group))
    }

    /// The block that the superblock itself lies in.
    pub fn superblock_block(&self) -> u64 {
        u64::from(self.block.bytes() == SUPERBLOCK_AT)
    }

    fn check_sizes(&self) -> Result<(), ParseError> {
        let bits = self.block.bytes().saturating_mul(8);
        let first = u64::from(self.block.bytes() == 1024 && !self.features.has_ro_compat(ro_compat::BIGALLOC));
        check("first data block", first, self.first_data_block)?;
        demand(
            self.blocks_count > self.first_data_block,
            "block count",
            "more than the first data block",
            self.blocks_count,
        )?;
        demand(
            (8..=bits).contains(&self.clusters_per_group) && self.clusters_per_group.is_multiple_of(8),
            "clusters per group",
            &format!("a multiple of 8, at most {bits}"),
            self.clusters_per_group,
        )?;
        check(
            "blocks per group",
            mul(self.clusters_per_group, self.cluster_ratio, "the blocks of a group")?,
            self.blocks_per_group,
        )?;
        demand(
            self.inode_size.is_power_of_two() && (128..=self.block.bytes()).contains(&self.inode_size),
            "inode size",
            "a power of two from 128 to the block size",
            self.inode_size,
        )?;
        demand(
            (1..=bits).contains(&self.inodes_per_group),
            "inodes per group",
            &format!("1 to {bits}"),
            self.inodes_per_group,
        )?;
        let wide = self.features.has_incompat(incompat::BIT64);
        demand(
            !wide || self.descriptor_size.is_power_of_two() && (64..=1024).contains(&self.descriptor_size),
            "descriptor size",
            "a power of two from 64 to 1024",
            self.descriptor_size,
        )?;
        demand(
            !wide || self.raw.s_blocks_count_hi.get() < 1 << 16,
            "block count",
            "at most 48 bits",
            self.blocks_count,
        )?;
        check("group number of the superblock", 0, self.raw.s_block_group_nr.get().into())
    }

    fn count_groups(&self) -> Result<u64, ParseError> {
        let data = sub(self.blocks_count, self.first_data_block, "the number of blocks in groups")?;
        Ok(div_up(data, self.blocks_per_group, "the number of groups")?)
    }

    fn check_groups(&self) -> Result<(), ParseError> {
        let inodes = mul(self.groups, self.inodes_per_group, "the number of inodes")?;
        check("inode count", inodes, self.raw.s_inodes_count.get().into())?;
        if self.groups > MAX_GROUPS {
            return Err(ParseError::unsupported(SUPERBLOCK_AT, Ext4Error::Groups(self.groups)));
        }
        if self.features.has_incompat(incompat::META_BG) {
            demand(
                self.first_meta_bg <= self.descriptor_blocks(),
                "first meta block group",
                &format!("at most {}", self.descriptor_blocks()),
                self.first_meta_bg,
            )?;
        }
        Ok(())
    }
}

fn block_size(raw: &RawSuperBlock) -> Result<BlockSize, ParseError> {
    let log = raw.s_log_block_size.get();
    demand(log <= 6, "log2 of the block size over 1024", "at most 6", log.into())?;
    let bytes = 1024_u64.checked_shl(log).and_then(BlockSize::new);
    bytes.ok_or_else(|| corrupt(Mismatch::new("block size", "a power of two", log)))
}

fn cluster_ratio(raw: &RawSuperBlock, features: Features, block: BlockSize) -> Result<u64, ParseError> {
    let (log_block, log_cluster) = (raw.s_log_block_size.get(), raw.s_log_cluster_size.get());
    if !features.has_ro_compat(ro_compat::BIGALLOC) {
        check("log2 of the cluster size over 1024", log_block.into(), log_cluster.into())?;
        return Ok(1);
    }
    let ratio = log_cluster.checked_sub(log_block).filter(|by| *by < 20).and_then(|by| 1_u64.checked_shl(by));
    ratio.ok_or_else(|| {
        corrupt(Mismatch::new("cluster size", format!("at least the block size of {}", block.bytes()), log_cluster))
    })
}

pub fn label(raw: &[u8]) -> Option<String> {
    let end = raw.iter().position(|byte| *byte == 0).unwrap_or(raw.len());
    let text = String::from_utf8_lossy(raw.get(..end)?).into_owned();
    (!text.is_empty()).then_some(text)
}

fn corrupt(cause: impl Into<crate::error::Cause>) -> ParseError {
    ParseError::corrupt(SUPERBLOCK_AT, cause)
}

fn check(what: &str, expected: u64, found: u64) -> Result<(), ParseError> {
    if expected == found { Ok(()) } else { Err(corrupt(Mismatch::new(what, expected, found))) }
}

fn check_hex(what: &str, expected: u64, found: u64) -> Result<(), ParseError> {
    if expected == found { Ok(()) } else { Err(corrupt(Mismatch::hex(what, expected, found))) }
}

fn demand(holds: bool, what: &str, expected: &str, found: u64) -> Result<(), ParseError> {
    if holds { Ok(()) } else { Err(corrupt(Mismatch::new(what, expected, found))) }
}
