//! The walk over the block bitmaps.
//!
//! Bit k of group g, least significant first, is the cluster that begins at block
//! `first_data_block + g * blocks_per_group + k * ratio`; 1 is used. What lies behind the last cluster is padding.
//! Bitmaps are read in the order of their positions, neighbours together: flex_bg puts those of 16 groups side by side.

use super::Ext4Error;
use super::checksum::crc32c;
use super::features::ro_compat;
use super::groups::Group;
use super::layout::{Metadata, touching};
use super::superblock::SuperBlock;
use crate::error::{Mismatch, ParseError};
use crate::free_map::{BitOrder, DeclaredFree, FreeMap, FreeMapBuilder};
use crate::source::{Source, read_vec};
use crate::units::{add, div, mul, sub, to_usize};

/// Most bytes of one request.
const REQUEST: u64 = 1 << 20;
/// A gap between bitmaps up to this many bytes is read through: cheaper than another request.
const GAP: u64 = 64 << 10;

/// The free map, every exact cross-check made. `claimed` are further blocks that must be used (journal, root).
pub fn map(
    source: &dyn Source,
    superblock: &SuperBlock,
    groups: &[Group],
    metadata: &[Metadata],
    claimed: &[Metadata],
) -> Result<FreeMap, ParseError> {
    let mut walk = Walk { superblock, builder: FreeMapBuilder::new(superblock.grid()?), cut: 0 };
    for structure in metadata.iter().chain(claimed) {
        walk.builder.must_be_used(structure.first, structure.count, structure.what)?;
    }
    for (number, group) in (0..).zip(groups).filter(|(_, group)| group.is_uninit) {
        walk.uninit_group(number, group, metadata)?;
    }
    for request in requests(superblock, groups) {
        walk.read(source, &request, groups)?;
    }
    let clusters = groups.iter().fold(0_u64, |sum, group| sum.saturating_add(group.free_clusters));
    let whole = mul(clusters, superblock.cluster_ratio, "the number of free blocks")?;
    walk.builder.finish(DeclaredFree::Exact(sub(whole, walk.cut, "the number of free blocks")?))
}

/// Bitmaps that are read together: `(block, group)` in the order of blocks.
type Request = Vec<(u64, u64)>;

fn requests(superblock: &SuperBlock, groups: &[Group]) -> Vec<Request> {
    let mut wanted: Vec<(u64, u64)> = (0..)
        .zip(groups)
        .filter(|(_, group)| !group.is_uninit)
        .map(|(number, group)| (group.block_bitmap, number))
        .collect();
    wanted.sort_unstable();
    let gap = superblock.block.whole_blocks(GAP).max(1);
    let most = superblock.block.whole_blocks(REQUEST).max(1);
    let mut requests: Vec<Request> = Vec::new();
    for next in wanted {
        match requests.last_mut() {
            Some(open) if joins(open, next.0, gap, most) => open.push(next),
            _ => requests.push(vec![next]),
        }
    }
    requests
}

fn joins(open: &Request, block: u64, gap: u64, most: u64) -> bool {
    let (Some((first, _)), Some((last, _))) = (open.first(), open.last()) else {
        return false;
    };
    block.saturating_sub(*last) <= gap && block.saturating_sub(*first) < most
}

struct Walk<'a> {
    superblock: &'a SuperBlock,
    builder: FreeMapBuilder,
    /// Blocks that the last cluster lacks when it is free: the end of the volume may cut it.
    cut: u64,
}

impl Walk<'_> {
    fn read(&mut self, source: &dyn Source, request: &Request, groups: &[Group]) -> Result<(), ParseError> {
        let (Some((first, _)), Some((last, _))) = (request.first(), request.last()) else {
            return Ok(());
        };
        let block = self.superblock.block;
        let count = add(sub(*last, *first, "a run of bitmaps")?, 1, "a run of bitmaps")?;
        let bytes = read_vec(source, block.to_bytes(*first)?, block.to_bytes(count)?)?;
        for (bitmap, number) in request {
            let at = block.to_bytes(*bitmap)?;
            let start = to_usize(block.to_bytes(sub(*bitmap, *first, "a bitmap")?)?, "a bitmap")?;
            let end = to_usize(block.to_bytes(add(sub(*bitmap, *first, "a bitmap")?, 1, "a bitmap")?)?, "a bitmap")?;
            let part = bytes.get(start..end).unwrap_or_default();
            let group = groups.get(to_usize(*number, "a group")?);
            let group = group.ok_or_else(|| ParseError::inconsistent("a group without a descriptor"))?;
            self.bitmap(*number, group, part).map_err(|error| error.located(at))?;
        }
        Ok(())
    }

    fn bitmap(&mut self, number: u64, group: &Group, bitmap: &[u8]) -> Result<(), ParseError> {
        check_bitmap_checksum(self.superblock, number, group, bitmap)?;
        let start = self.superblock.group_start(number)?;
        let ratio = self.superblock.cluster_ratio;
        let clusters = self.superblock.group_blocks(number)?.div_ceil(ratio);
        let free = match ratio {
            1 => self.builder.free_clear_bits(start, bitmap, clusters, BitOrder::LeastFirst)?,
            _ => self.cluster_bits(start, bitmap, clusters)?,
        };
        compare(number, group, free)
    }

    /// The clear bits of a bitmap whose bits are clusters of several blocks.
    fn cluster_bits(&mut self, start: u64, bitmap: &[u8], clusters: u64) -> Result<u64, ParseError> {
        let mut free: u64 = 0;
        for cluster in 0..clusters {
            let byte = bitmap.get(to_usize(div(cluster, 8, "a bitmap byte")?, "a bitmap byte")?);
            let byte = byte.ok_or(crate::units::Overflow("a bitmap that is shorter than its clusters"))?;
            let shift = u32::try_from(cluster & 7).unwrap_or(0);
            if byte.checked_shr(shift).unwrap_or(1) & 1 == 0 {
                free = add(free, 1, "free clusters")?;
                self.free_clusters(start, cluster, 1)?;
            }
        }
        Ok(free)
    }

    /// `count` free clusters of the group that begins at block `start`.
    fn free_clusters(&mut self, start: u64, cluster: u64, count: u64) -> Result<(), ParseError> {
        let ratio = self.superblock.cluster_ratio;
        let first = add(start, mul(cluster, ratio, "a cluster")?, "a cluster")?;
        let whole = add(first, mul(count, ratio, "clusters")?, "the end of a cluster")?;
        let end = whole.min(self.superblock.blocks_count);
        self.cut = add(self.cut, sub(whole, end, "a cut cluster")?, "the cut cluster")?;
        self.builder.free(first, sub(end, first, "a free cluster")?)
    }

    /// A group whose bitmap was never written: free but for metadata, rounded outwards to clusters.
    fn uninit_group(&mut self, number: u64, group: &Group, metadata: &[Metadata]) -> Result<(), ParseError> {
        let start = self.superblock.group_start(number)?;
        let ratio = self.superblock.cluster_ratio;
        let blocks = self.superblock.group_blocks(number)?;
        let clusters = blocks.div_ceil(ratio);
        let (mut free, mut next) = (0_u64, 0_u64);
        for used in touching(metadata, start, add(start, blocks, "the end of a group")?) {
            let first = div(used.first.saturating_sub(start), ratio, "a cluster")?;
            free = add(free, self.gap(start, next, first)?, "free clusters")?;
            next = next.max(used.end().saturating_sub(start).div_ceil(ratio)).min(clusters);
        }
        free = add(free, self.gap(start, next, clusters)?, "free clusters")?;
        compare(number, group, free)
    }

    /// The clusters `from..to` are free.
    fn gap(&mut self, start: u64, from: u64, to: u64) -> Result<u64, ParseError> {
        let count = to.saturating_sub(from);
        if count > 0 {
            self.free_clusters(start, from, count)?;
        }
        Ok(count)
    }
}

fn check_bitmap_checksum(superblock: &SuperBlock, number: u64, group: &Group, bitmap: &[u8]) -> Result<(), ParseError> {
    if !superblock.features.has_ro_compat(ro_compat::METADATA_CSUM) {
        return Ok(());
    }
    // The kernel's header says that the group number is part of it; it is not.
    let bytes = to_usize(div(superblock.clusters_per_group, 8, "a bitmap length")?, "a bitmap length")?;
    let covered = bitmap.get(..bytes).ok_or(crate::units::Overflow("a bitmap that is shorter than its group"))?;
    let expected = crc32c(superblock.checksum_seed, covered) & group.bitmap_checksum_mask;
    if expected == group.bitmap_checksum {
        return Ok(());
    }
    let what = format!("checksum of the block bitmap of group {number}");
    Err(ParseError::inconsistent(Mismatch::hex(what, expected.into(), group.bitmap_checksum.into())))
}

/// The count in the descriptor is exact: the kernel changes both in one transaction.
fn compare(number: u64, group: &Group, found: u64) -> Result<(), ParseError> {
    if group.free_clusters == found {
        return Ok(());
    }
    Err(ParseError::inconsistent(Ext4Error::FreeCount { group: number, declared: group.free_clusters, found }))
}
