//! The two inodes that the reader of the map looks at: the journal's, because its state decides, and the root
//! directory's, because a map that calls it free was misread. All other files are the witness's business.
//!
//! Source: Linux `Documentation/filesystems/ext4/inodes.rst` and `ifork.rst`.

use super::checksum::crc32c;
use super::features::ro_compat;
use super::groups::Group;
use super::layout::Metadata;
use super::ondisk::{EXTENT_MAGIC, EXTENTS_FL, RawExtent, RawExtentHeader, RawExtentIndex, RawInode};
use super::superblock::SuperBlock;
use crate::error::{Mismatch, ParseError};
use crate::source::{Source, read_vec};
use crate::units::{add, div, mul, rem, sub, to_usize};
use zerocopy::FromBytes;

/// Inode number of the root directory.
pub const ROOT: u32 = 2;
/// The deepest extent tree that the kernel makes.
const MAX_DEPTH: u16 = 5;
/// More extents than this no journal and no sound root directory has.
const MAX_EXTENTS: usize = 1 << 16;
/// `i_flags`: the content lies in the inode itself.
const INLINE_DATA_FL: u32 = 0x1000_0000;

/// An inode, its checksum checked, with its place.
pub struct Inode {
    pub raw: RawInode,
    /// Byte position, for messages.
    pub at: u64,
    /// Start value of the checksums of its extent blocks.
    seed: u32,
}

/// Reads inode `number`.
pub fn read(source: &dyn Source, superblock: &SuperBlock, groups: &[Group], number: u32) -> Result<Inode, ParseError> {
    let index = sub(number.into(), 1, "an inode number")?;
    let group = to_usize(div(index, superblock.inodes_per_group, "the group of an inode")?, "a group")?;
    let table = groups.get(group).map(|group| group.inode_table).ok_or_else(|| {
        ParseError::inconsistent(Mismatch::new(
            "inode number",
            format!("at most {}", superblock.raw.s_inodes_count),
            number,
        ))
    })?;
    let place = rem(index, superblock.inodes_per_group, "the place of an inode")?;
    let inside = mul(place, superblock.inode_size, "the place of an inode")?;
    let at = add(superblock.block.to_bytes(table)?, inside, "the place of an inode")?;
    let bytes = read_vec(source, at, superblock.inode_size)?;
    let (raw, _) = RawInode::read_from_prefix(&bytes).map_err(|_| ParseError::corrupt(at, "an inode was cut short"))?;
    let seed = crc32c(superblock.checksum_seed, &number.to_le_bytes());
    let seed = crc32c(seed, &raw.i_generation.get().to_le_bytes());
    if superblock.features.has_ro_compat(ro_compat::METADATA_CSUM) {
        check_checksum(number, at, &bytes, &raw, seed)?;
    }
    Ok(Inode { raw, at, seed })
}

/// Over the whole inode with its checksum fields zeroed. The upper half is stored if the inode is long enough for it.
fn check_checksum(number: u32, at: u64, bytes: &[u8], raw: &RawInode, seed: u32) -> Result<(), ParseError> {
    const LOW: usize = 0x7C;
    const EXTRA_SIZE: usize = 0x80;
    const HIGH: usize = 0x82;
    let half = |at: usize| bytes.get(at..at.saturating_add(2)).and_then(|b| b.try_into().ok()).map(u16::from_le_bytes);
    let has_high = half(EXTRA_SIZE).is_some_and(|extra| extra >= 4);
    let mut covered = bytes.to_vec();
    for place in [Some(LOW), has_high.then_some(HIGH)].into_iter().flatten() {
        covered.get_mut(place..place.saturating_add(2)).into_iter().for_each(|field| field.fill(0));
    }
    let high = half(HIGH).filter(|_| has_high);
    let stored = u32::from(raw.i_checksum_lo.get()) | u32::from(high.unwrap_or(0)) << 16;
    let expected = crc32c(seed, &covered) & if has_high { u32::MAX } else { 0xFFFF };
    if expected == stored {
        return Ok(());
    }
    let what = format!("checksum of inode {number}");
    Err(ParseError::corrupt(at, Mismatch::hex(what, expected.into(), stored.into())))
}

/// The blocks of inode `number` as metadata called `what`.
pub fn blocks(
    source: &dyn Source,
    superblock: &SuperBlock,
    groups: &[Group],
    number: u32,
    what: &'static str,
) -> Result<Vec<Metadata>, ParseError> {
    let inode = read(source, superblock, groups, number)?;
    let runs = inode.runs(source, superblock)?;
    Ok(runs.into_iter().map(|(first, count)| Metadata { first, count, what }).collect())
}

impl Inode {
    /// The inode's blocks `(first, count)` in the order of the file, tree blocks left out. Of a block-mapped file only
    /// the twelve direct blocks and the roots of the rest: enough to find the head of a journal.
    pub fn runs(&self, source: &dyn Source, superblock: &SuperBlock) -> Result<Vec<(u64, u64)>, ParseError> {
        let flags = self.raw.i_flags.get();
        if flags & INLINE_DATA_FL != 0 {
            return Ok(Vec::new());
        }
        let mut runs = Vec::new();
        if flags & EXTENTS_FL != 0 {
            self.node(source, superblock, &self.raw.i_block, None, &mut runs)?;
        } else {
            let pointers = self.raw.i_block.chunks_exact(4).filter_map(|bytes| bytes.try_into().ok());
            runs.extend(pointers.map(u32::from_le_bytes).filter(|block| *block != 0).map(|block| (block.into(), 1)));
        }
        for (first, count) in &runs {
            let end = add(*first, *count, "the end of an extent")?;
            if *first <= superblock.superblock_block() || end > superblock.blocks_count {
                let expected = format!("at most {}", superblock.blocks_count);
                return Err(ParseError::corrupt(self.at, Mismatch::new("blocks of an inode", expected, end)));
            }
        }
        Ok(runs)
    }

    /// One node of the extent tree; `parent_depth` is the depth of the node above, which must be one more.
    fn node(
        &self,
        source: &dyn Source,
        superblock: &SuperBlock,
        bytes: &[u8],
        parent_depth: Option<u16>,
        runs: &mut Vec<(u64, u64)>,
    ) -> Result<(), ParseError> {
        let damaged = |what: &'static str| ParseError::corrupt(self.at, what);
        let (header, rest) =
            RawExtentHeader::read_from_prefix(bytes).map_err(|_| damaged("an extent tree was cut short"))?;
        let depth = header.eh_depth.get();
        let fits = parent_depth.map_or(depth <= MAX_DEPTH, |parent| depth.checked_add(1) == Some(parent));
        if header.eh_magic.get() != EXTENT_MAGIC || !fits {
            return Err(damaged("a node of the extent tree has a wrong magic or depth"));
        }
        let entries = usize::from(header.eh_entries.get());
        if entries > rest.chunks_exact(size_of::<RawExtent>()).len() || runs.len() > MAX_EXTENTS {
            return Err(damaged("an extent tree has more entries than there is room for"));
        }
        for entry in rest.chunks_exact(size_of::<RawExtent>()).take(entries) {
            if depth == 0 {
                runs.extend(leaf(entry));
            } else {
                self.child(source, superblock, entry, depth, runs)?;
            }
        }
        Ok(())
    }

    fn child(
        &self,
        source: &dyn Source,
        superblock: &SuperBlock,
        entry: &[u8],
        depth: u16,
        runs: &mut Vec<(u64, u64)>,
    ) -> Result<(), ParseError> {
        let cut = || ParseError::corrupt(self.at, "an extent index was cut short");
        let index = RawExtentIndex::read_from_bytes(entry).map_err(|_| cut())?;
        let block = u64::from(index.ei_leaf_lo.get()) | u64::from(index.ei_leaf_hi.get()) << 32;
        let at = superblock.block.to_bytes(block)?;
        let bytes = read_vec(source, at, superblock.block.bytes())?;
        let before = runs.len();
        if superblock.features.has_ro_compat(ro_compat::METADATA_CSUM) {
            self.check_tail(at, &bytes)?;
        }
        self.node(source, superblock, &bytes, Some(depth), runs)?;
        // Every node of a sound tree leads to an extent, so a damaged one cannot make this walk long.
        if runs.len() == before { Err(ParseError::corrupt(at, "an empty node in an extent tree")) } else { Ok(()) }
    }

    /// An extent block ends with the checksum of its header and the entries that there is room for.
    fn check_tail(&self, at: u64, bytes: &[u8]) -> Result<(), ParseError> {
        let most = bytes.get(4..6).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes);
        let end = usize::from(most).saturating_add(1).saturating_mul(size_of::<RawExtent>());
        let stored = bytes.get(end..end.saturating_add(4)).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        let expected = bytes.get(..end).map(|covered| crc32c(self.seed, covered));
        if stored.is_some() && stored == expected {
            return Ok(());
        }
        let (expected, stored) = (expected.unwrap_or(0), stored.unwrap_or(0));
        Err(ParseError::corrupt(at, Mismatch::hex("checksum of an extent block", expected.into(), stored.into())))
    }
}

/// The blocks of a leaf's entry. A length over 32768 means "unwritten", which is as used as any other.
fn leaf(entry: &[u8]) -> Option<(u64, u64)> {
    let extent = RawExtent::read_from_bytes(entry).ok()?;
    let start = u64::from(extent.ee_start_lo.get()) | u64::from(extent.ee_start_hi.get()) << 32;
    let length = extent.ee_len.get();
    Some((start, length.checked_sub(32768).filter(|rest| *rest > 0).unwrap_or(length).into()))
}
