//! The group descriptors: where they lie, their checksums, and what they say about each group.
//!
//! ```text
//! classic       | superblock | descriptors of all groups | reserved | ...        copies in some other groups
//! meta_bg       group i * n holds the one block with the descriptors of groups i * n .. (i + 1) * n,
//!               behind its superblock copy if it has one; copies in the second and the last of these groups
//! ```
//! Source: Linux `Documentation/filesystems/ext4/blockgroup.rst` and `group_descr.rst`, `fs/ext4/super.c`
//! (`descriptor_loc`), e2fsprogs `lib/ext2fs/closefs.c` (`ext2fs_super_and_bgd_loc2`).

use super::Ext4Error;
use super::checksum::{crc16, crc32c};
use super::features::{compat, incompat, ro_compat};
use super::ondisk::{RawGroupDesc, RawGroupDescHigh};
use super::superblock::SuperBlock;
use crate::error::{Mismatch, ParseError};
use crate::source::{Source, read_vec};
use crate::units::{add, from_usize, mul, to_usize};
use zerocopy::FromBytes;

/// `bg_flags`: inode bitmap and table were never written.
const INODE_UNINIT: u16 = 1;
/// `bg_flags`: the block bitmap was never written; the block on disk is garbage.
const BLOCK_UNINIT: u16 = 2;

/// Bytes of descriptors that are read at once.
const CHUNK: u64 = 1 << 20;

/// What a descriptor says about its group.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// Block of the block bitmap.
    pub block_bitmap: u64,
    /// Block of the inode bitmap.
    pub inode_bitmap: u64,
    /// First block of the inode table.
    pub inode_table: u64,
    /// Free clusters.
    pub free_clusters: u64,
    /// Checksum of the block bitmap, and which of its bits are stored.
    pub bitmap_checksum: u32,
    /// See [`Group::bitmap_checksum`].
    pub bitmap_checksum_mask: u32,
    /// The block bitmap on disk means nothing: only metadata is used.
    pub is_uninit: bool,
}

/// True when the group holds a copy of the superblock (group 0: the superblock itself).
pub fn has_superblock(superblock: &SuperBlock, group: u64) -> bool {
    if group == 0 {
        return true;
    }
    if superblock.features.has_compat(compat::SPARSE_SUPER2) {
        return superblock.backup_groups.contains(&group);
    }
    let is_sparse = superblock.features.has_ro_compat(ro_compat::SPARSE_SUPER);
    !is_sparse || group == 1 || [3, 5, 7].into_iter().any(|base| is_power(group, base))
}

fn is_power(number: u64, base: u64) -> bool {
    let mut power = base;
    while power < number {
        power = power.saturating_mul(base);
    }
    power == number
}

/// How many descriptor blocks lie in the classic place, behind the superblock.
pub fn classic_descriptor_blocks(superblock: &SuperBlock) -> u64 {
    match superblock.features.has_incompat(incompat::META_BG) {
        true => superblock.first_meta_bg,
        false => superblock.descriptor_blocks(),
    }
}

/// The block that a group's superblock copy lies in. With bigalloc and blocks of 1 KiB group 0 begins at block 0, yet
/// the superblock stays at byte 1024.
pub fn superblock_copy(superblock: &SuperBlock, group: u64) -> Result<u64, ParseError> {
    Ok(superblock.group_start(group)?.max(superblock.superblock_block()))
}

/// The block that descriptor block `index` lies in.
fn descriptor_block(superblock: &SuperBlock, index: u64) -> Result<u64, ParseError> {
    if index < classic_descriptor_blocks(superblock) {
        let behind = add(superblock.superblock_block(), 1, "the first descriptor block")?;
        return Ok(add(behind, index, "a descriptor block")?);
    }
    let group = mul(index, superblock.descriptors_per_block(), "the first group of a meta block group")?;
    let start = superblock_copy(superblock, group)?;
    Ok(add(start, u64::from(has_superblock(superblock, group)), "a descriptor block")?)
}

/// Reads and checks all descriptors.
pub fn read(source: &dyn Source, superblock: &SuperBlock) -> Result<Vec<Group>, ParseError> {
    let mut groups = Vec::with_capacity(to_usize(superblock.groups, "the number of groups")?);
    let blocks = superblock.descriptor_blocks();
    let mut index = 0;
    while index < blocks {
        let count = adjacent(superblock, index, blocks)?;
        let at = superblock.block.to_bytes(descriptor_block(superblock, index)?)?;
        let bytes = read_vec(source, at, superblock.block.to_bytes(count)?)?;
        read_chunk(superblock, at, &bytes, &mut groups)?;
        index = index.saturating_add(count);
    }
    if from_usize(groups.len()) == superblock.groups {
        return Ok(groups);
    }
    Err(ParseError::inconsistent(Mismatch::new("group descriptors", superblock.groups, groups.len())))
}

/// How many descriptor blocks from `index` lie one behind the other and may be read at once.
fn adjacent(superblock: &SuperBlock, index: u64, blocks: u64) -> Result<u64, ParseError> {
    let classic = classic_descriptor_blocks(superblock);
    let most = superblock.block.whole_blocks(CHUNK).max(1);
    Ok(if index < classic { classic.min(blocks).saturating_sub(index).min(most) } else { 1 })
}

fn read_chunk(superblock: &SuperBlock, at: u64, bytes: &[u8], groups: &mut Vec<Group>) -> Result<(), ParseError> {
    let size = to_usize(superblock.descriptor_size, "the size of a descriptor")?;
    let mut position = at;
    for descriptor in bytes.chunks_exact(size.max(1)) {
        let group = from_usize(groups.len());
        if group == superblock.groups {
            break;
        }
        groups.push(read_one(superblock, group, descriptor).map_err(|error| error.located(position))?);
        position = position.saturating_add(superblock.descriptor_size);
    }
    Ok(())
}

fn read_one(superblock: &SuperBlock, group: u64, bytes: &[u8]) -> Result<Group, ParseError> {
    let cut = |_| ParseError::inconsistent("a group descriptor was cut short");
    let (low, rest) = RawGroupDesc::read_from_prefix(bytes).map_err(|_| cut(()))?;
    let high = RawGroupDescHigh::read_from_prefix(rest).ok().map(|(high, _)| high);
    check_checksum(superblock, group, bytes, low.bg_checksum.get())?;
    let join = |low: u32, high: Option<u32>| u64::from(low) | u64::from(high.unwrap_or(0)) << 32;
    let high_of = |field: fn(&RawGroupDescHigh) -> u32| high.as_ref().map(field);
    let flags = low.bg_flags.get();
    let has_checksums = superblock.features.has_descriptor_checksums();
    if !has_checksums && flags & (INODE_UNINIT | BLOCK_UNINIT) != 0 {
        return Err(ParseError::inconsistent(Ext4Error::UninitWithoutChecksum { group }));
    }
    let free_high = high.as_ref().map_or(0, |high| u64::from(high.bg_free_blocks_count_hi.get()));
    let checksum_high = high.as_ref().map(|high| u32::from(high.bg_block_bitmap_csum_hi.get()));
    let parsed = Group {
        block_bitmap: join(low.bg_block_bitmap_lo.get(), high_of(|h| h.bg_block_bitmap_hi.get())),
        inode_bitmap: join(low.bg_inode_bitmap_lo.get(), high_of(|h| h.bg_inode_bitmap_hi.get())),
        inode_table: join(low.bg_inode_table_lo.get(), high_of(|h| h.bg_inode_table_hi.get())),
        free_clusters: u64::from(low.bg_free_blocks_count_lo.get()) | free_high << 16,
        bitmap_checksum: u32::from(low.bg_block_bitmap_csum_lo.get()) | checksum_high.unwrap_or(0) << 16,
        bitmap_checksum_mask: if checksum_high.is_some() { u32::MAX } else { 0xFFFF },
        is_uninit: flags & BLOCK_UNINIT != 0,
    };
    check_places(superblock, group, &parsed)?;
    Ok(parsed)
}

fn check_checksum(superblock: &SuperBlock, group: u64, bytes: &[u8], stored: u16) -> Result<(), ParseError> {
    let number = u32::try_from(group).unwrap_or(u32::MAX).to_le_bytes();
    // bg_checksum lies at 0x1E.
    let head = bytes.get(..0x1E).unwrap_or_default();
    let tail = bytes.get(0x20..).unwrap_or_default();
    let expected = if superblock.features.has_ro_compat(ro_compat::METADATA_CSUM) {
        let seed = crc32c(crc32c(superblock.checksum_seed, &number), head);
        let whole = crc32c(crc32c(seed, &[0, 0]), tail);
        u16::try_from(whole & 0xFFFF).unwrap_or(0)
    } else if superblock.features.has_ro_compat(ro_compat::GDT_CSUM) {
        crc16(crc16(crc16(crc16(0xFFFF, &superblock.uuid), &number), head), tail)
    } else {
        return Ok(());
    };
    if expected == stored {
        return Ok(());
    }
    let what = format!("checksum of the descriptor of group {group}");
    Err(ParseError::inconsistent(Mismatch::hex(what, expected.into(), stored.into())))
}

/// Without flex_bg a group's bitmaps and table lie in the group itself; with it, anywhere on the volume.
fn check_places(superblock: &SuperBlock, group: u64, found: &Group) -> Result<(), ParseError> {
    let (low, high) = if superblock.features.has_incompat(incompat::FLEX_BG) {
        (superblock.first_data_block, superblock.blocks_count)
    } else {
        let start = superblock.group_start(group)?;
        (start, add(start, superblock.group_blocks(group)?, "the end of a group")?)
    };
    let table = superblock.inode_table_blocks()?;
    let places = [
        ("block bitmap", found.block_bitmap, 1),
        ("inode bitmap", found.inode_bitmap, 1),
        ("inode table", found.inode_table, table),
    ];
    for (what, first, count) in places {
        let end = add(first, count, "the end of a group's metadata")?;
        if first < low || end > high || first == 0 {
            return Err(ParseError::inconsistent(Mismatch::new(
                format!("{what} of group {group}"),
                format!("inside blocks {low}..{high}"),
                format!("blocks {first}..{end}"),
            )));
        }
    }
    Ok(())
}
