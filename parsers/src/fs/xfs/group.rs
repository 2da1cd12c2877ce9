//! The headers of an allocation group: one sector each for the copy of the superblock, the free space (AGF), the inodes
//! (AGI) and the free list (AGFL). One request reads all four.

use super::XfsError;
use super::checksum;
use super::features::ro_compat;
use super::lsn::Lsn;
use super::ondisk::{AGF_MAGIC, AGFL_MAGIC, AGI_MAGIC, NULL_BLOCK, RawAgf, RawAgflHead, RawAgi, checksum_at};
use super::superblock::SuperBlock;
use super::tree::Tree;
use crate::error::{Mismatch, ParseError};
use crate::source::{Source, read_vec};
use crate::units::{add, from_usize, mul, rem, to_usize};
use zerocopy::FromBytes;

/// `XFS_BTREE_MAXLEVELS`.
const MAX_LEVELS: u32 = 9;

/// A group whose headers were checked. Block numbers count from the group's first block.
#[derive(Debug, Clone)]
pub struct Group {
    pub number: u64,
    /// The group's first block on the volume.
    pub start: u64,
    /// Blocks of the group.
    pub blocks: u64,
    /// Nothing in the group can be newer.
    pub log_end: Lsn,
    pub by_block: Tree,
    pub by_size: Tree,
    /// Root of the tree of inodes.
    pub inode_root: u64,
    /// Blocks that are set aside for the trees: in no tree, and not free.
    pub free_list: Vec<u64>,
    /// Exact.
    pub free_blocks: u64,
    /// Exact.
    pub longest: u64,
    /// Blocks of both trees together without their roots, where this is counted.
    pub tree_blocks: Option<u64>,
    /// The same and the blocks of the tree of owners: what the superblock's sum takes for free.
    pub all_tree_blocks: u64,
}

/// Reads and checks the headers of one group.
pub fn read(source: &dyn Source, superblock: &SuperBlock, number: u64, log_end: Lsn) -> Result<Group, ParseError> {
    let start = superblock.group_start(number)?;
    let at = superblock.block.to_bytes(start)?;
    let bytes = read_vec(source, at, mul(superblock.sector, 4, "the headers of a group")?)?;
    let sector = to_usize(superblock.sector, "a sector")?;
    let mut sectors = bytes.chunks_exact(sector.max(1));
    let mut next = |index: u64| -> Result<Header<'_>, ParseError> {
        let bytes = sectors.next().ok_or_else(|| ParseError::corrupt(at, "the headers of a group were cut short"))?;
        let offset = mul(superblock.sector, index, "a header of a group")?;
        Ok(Header { superblock, log_end, number, at: add(at, offset, "a header of a group")?, bytes })
    };
    let (_copy, agf, agi, agfl) = (next(0)?, next(1)?, next(2)?, next(3)?);
    let blocks = superblock.blocks_of(number)?;
    let raw = agf.free_space(blocks)?;
    let mut group = agf.trees(&raw, start, blocks)?;
    group.inode_root = agi.inodes(blocks)?;
    group.free_list = agfl.free_list(&raw, blocks)?;
    Ok(group)
}

/// One header sector.
struct Header<'a> {
    superblock: &'a SuperBlock,
    log_end: Lsn,
    number: u64,
    at: u64,
    bytes: &'a [u8],
}

impl Header<'_> {
    fn prefix<T: FromBytes>(&self) -> Result<T, ParseError> {
        let parsed = T::read_from_prefix(self.bytes);
        parsed.map(|(raw, _)| raw).map_err(|_| ParseError::corrupt(self.at, "a header of a group was cut short"))
    }

    fn check(&self, what: &str, expected: u64, found: u64) -> Result<(), ParseError> {
        if expected == found {
            return Ok(());
        }
        Err(ParseError::corrupt(self.at, Mismatch::hex(format!("group {}: {what}", self.number), expected, found)))
    }

    fn demand(&self, holds: bool, what: &str, expected: String, found: u64) -> Result<(), ParseError> {
        if holds {
            return Ok(());
        }
        Err(ParseError::corrupt(self.at, Mismatch::new(format!("group {}: {what}", self.number), expected, found)))
    }

    /// Checksum, identity and age, where the version has them.
    fn check_v5(&self, name: &str, checksum_at: usize, uuid: &[u8; 16], written: u64) -> Result<(), ParseError> {
        if !self.superblock.features.is_v5 {
            return Ok(());
        }
        let what = || format!("the {name} of group {}", self.number);
        checksum::check(self.at, &what(), self.bytes, checksum_at)?;
        if *uuid != self.superblock.meta_uuid {
            return Err(ParseError::corrupt(self.at, XfsError::Foreign { what: what() }));
        }
        self.log_end.check(self.at, what, written)
    }

    fn free_space(&self, blocks: u64) -> Result<RawAgf, ParseError> {
        let raw: RawAgf = self.prefix()?;
        self.check("magic of the AGF", AGF_MAGIC.into(), raw.agf_magicnum.get().into())?;
        self.check_v5("AGF", checksum_at::AGF, &raw.agf_uuid, raw.agf_lsn.get())?;
        self.check("version of the AGF", 1, raw.agf_versionnum.get().into())?;
        self.check("number in the AGF", self.number, raw.agf_seqno.get().into())?;
        self.check("length in the AGF", blocks, raw.agf_length.get().into())?;
        let (free, longest) = (raw.agf_freeblks.get().into(), raw.agf_longest.get().into());
        self.demand(free <= blocks, "free blocks in the AGF", format!("at most {blocks}"), free)?;
        self.demand(longest <= free, "longest free extent in the AGF", format!("at most {free}"), longest)?;
        Ok(raw)
    }

    fn trees(&self, raw: &RawAgf, start: u64, blocks: u64) -> Result<Group, ParseError> {
        let by_block = self.tree("by block", raw.agf_bno_root.get(), raw.agf_bno_level.get(), blocks)?;
        let by_size = self.tree("by size", raw.agf_cnt_root.get(), raw.agf_cnt_level.get(), blocks)?;
        Ok(Group {
            number: self.number,
            start,
            blocks,
            log_end: self.log_end,
            by_block,
            by_size,
            inode_root: 0,
            free_list: Vec::new(),
            free_blocks: raw.agf_freeblks.get().into(),
            longest: raw.agf_longest.get().into(),
            tree_blocks: self.tree_blocks(raw)?,
            all_tree_blocks: raw.agf_btreeblks.get().into(),
        })
    }

    fn tree(&self, which: &str, root: u32, levels: u32, blocks: u64) -> Result<Tree, ParseError> {
        let inside = format!("inside 1..{blocks}");
        let what = format!("root of the tree of free extents {which}");
        self.demand(root > 0 && u64::from(root) < blocks, &what, inside, root.into())?;
        let what = format!("levels of the tree of free extents {which}");
        self.demand((1..=MAX_LEVELS).contains(&levels), &what, format!("1 to {MAX_LEVELS}"), levels.into())?;
        Ok(Tree { root: root.into(), levels })
    }

    /// The count includes the tree of owners, whose blocks are counted on their own as well.
    fn tree_blocks(&self, raw: &RawAgf) -> Result<Option<u64>, ParseError> {
        let all = u64::from(raw.agf_btreeblks.get());
        if !self.superblock.features.has_tree_counts() {
            return Ok(None);
        }
        let owners = match self.superblock.features.has_ro_compat(ro_compat::RMAPBT) {
            true => u64::from(raw.agf_rmap_blocks.get()).saturating_sub(1),
            false => 0,
        };
        self.demand(owners <= all, "blocks of the tree of owners", format!("at most {all}"), owners)?;
        Ok(Some(all.saturating_sub(owners)))
    }

    /// Only the root of the inode tree matters here: it must be used.
    fn inodes(&self, blocks: u64) -> Result<u64, ParseError> {
        let raw: RawAgi = self.prefix()?;
        self.check("magic of the AGI", AGI_MAGIC.into(), raw.agi_magicnum.get().into())?;
        self.check_v5("AGI", checksum_at::AGI, &raw.agi_uuid, raw.agi_lsn.get())?;
        self.check("number in the AGI", self.number, raw.agi_seqno.get().into())?;
        self.check("length in the AGI", blocks, raw.agi_length.get().into())?;
        let root = raw.agi_root.get().into();
        self.demand(root > 0 && root < blocks, "root of the tree of inodes", format!("inside 1..{blocks}"), root)?;
        Ok(root)
    }

    /// The used slots of the ring, from `agf_flfirst` to `agf_fllast`.
    fn free_list(&self, agf: &RawAgf, blocks: u64) -> Result<Vec<u64>, ParseError> {
        let mut head = 0;
        if self.superblock.features.is_v5 {
            let raw: RawAgflHead = self.prefix()?;
            head = size_of::<RawAgflHead>();
            self.check("magic of the AGFL", AGFL_MAGIC.into(), raw.agfl_magicnum.get().into())?;
            self.check_v5("AGFL", checksum_at::AGFL, &raw.agfl_uuid, raw.agfl_lsn.get())?;
            self.check("number in the AGFL", self.number, raw.agfl_seqno.get().into())?;
        }
        let (slots, _) = self.bytes.get(head..).unwrap_or_default().as_chunks::<4>();
        let size = from_usize(slots.len());
        let (first, last) = (u64::from(agf.agf_flfirst.get()), u64::from(agf.agf_fllast.get()));
        let count = u64::from(agf.agf_flcount.get());
        for (what, slot) in [("first", first), ("last", last)] {
            self.demand(slot < size, &format!("{what} slot of the AGFL"), format!("below {size}"), slot)?;
        }
        // An empty ring has its last slot before its first one, as a full ring has.
        let around = add(last, size, "the free list")?.saturating_sub(first);
        let span = add(rem(around, size, "the free list")?, 1, "the free list")?;
        let fits = count == span || count == 0 && span == size;
        self.demand(fits, "number of blocks in the AGFL", format!("{span}, from slot {first} to {last}"), count)?;
        let ring = slots.iter().cycle().skip(to_usize(first, "a slot of the AGFL")?);
        let mut list = Vec::new();
        for slot in ring.take(to_usize(count, "the free list")?) {
            let block = u32::from_be_bytes(*slot);
            let is_block = block != NULL_BLOCK && block > 0 && u64::from(block) < blocks;
            self.demand(is_block, "a block in the AGFL", format!("inside 1..{blocks}"), block.into())?;
            list.push(block.into());
        }
        Ok(list)
    }
}
