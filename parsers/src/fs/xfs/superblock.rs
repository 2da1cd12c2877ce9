//! From the raw superblock to numbers that fit together. Only the first one is read: the copies in the other groups are
//! stale by design.

use super::XfsError;
use super::checksum;
use super::features::{Features, incompat, version};
use super::ondisk::{RawSuperBlock, SB_MAGIC, checksum_at};
use crate::error::{Mismatch, ParseError};
use crate::free_map::Grid;
use crate::source::{Source, read_struct, read_vec};
use crate::units::{BlockSize, add, mul, sub};

/// Each group costs a request and a few hundred bytes of memory. 16 TiB in groups of the smallest size have this many.
const MAX_GROUPS: u64 = 1 << 20;
/// Blocks of the smallest group that can hold its own headers and trees (`XFS_MIN_AG_BLOCKS`).
const MIN_GROUP_BLOCKS: u64 = 64;

/// A superblock whose numbers fit together.
#[derive(Debug, Clone)]
pub struct SuperBlock {
    pub features: Features,
    pub block: BlockSize,
    /// Bytes of a sector: each group's four headers fill one each.
    pub sector: u64,
    /// Blocks of the data device.
    pub blocks: u64,
    pub group_blocks: u64,
    pub groups: u64,
    /// Where the log lies.
    pub log: LogPlace,
    /// Blocks of the log.
    pub log_blocks: u64,
    /// The identity that every metadata block of version 5 repeats.
    pub meta_uuid: [u8; 16],
    pub uuid: [u8; 16],
    /// Place in the log of the change that wrote the superblock last; only version 5 knows it.
    pub written: u64,
    pub label: Option<String>,
    /// In blocks; may lag behind.
    pub free_blocks: u64,
    pub has_realtime: bool,
    pub is_in_progress: bool,
}

/// Where the log lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogPlace {
    /// On another device.
    Elsewhere,
    /// From this block of the volume.
    Block(u64),
}

impl SuperBlock {
    /// Reads the superblock and checks everything that can be checked without a look at the rest of the volume.
    pub fn read(source: &dyn Source) -> Result<Self, ParseError> {
        let raw: RawSuperBlock = read_struct(source, 0)?;
        check("magic", SB_MAGIC.into(), raw.sb_magicnum.get().into())?;
        let features = Features::of(&raw).map_err(|e| ParseError::unsupported(0, e))?;
        let sector = sector_size(&raw, features)?;
        if features.is_v5 {
            let bytes = read_vec(source, 0, sector)?;
            checksum::check(0, "the superblock", &bytes, checksum_at::SUPERBLOCK)?;
        }
        features.check().map_err(|e| ParseError::unsupported(0, e))?;
        let block = block_size(&raw, features)?;
        let mut parsed = Self {
            features,
            block,
            sector,
            blocks: raw.sb_dblocks.get(),
            group_blocks: raw.sb_agblocks.get().into(),
            groups: raw.sb_agcount.get().into(),
            log: LogPlace::Elsewhere,
            log_blocks: raw.sb_logblocks.get().into(),
            meta_uuid: if features.has_incompat(incompat::META_UUID) { raw.sb_meta_uuid } else { raw.sb_uuid },
            uuid: raw.sb_uuid,
            written: if features.is_v5 { raw.sb_lsn.get() } else { 0 },
            label: label(&raw.sb_fname),
            free_blocks: raw.sb_fdblocks.get(),
            has_realtime: raw.sb_rblocks.get() != 0,
            is_in_progress: raw.sb_inprogress != 0,
        };
        parsed.check_groups(raw.sb_agblklog.into())?;
        parsed.log = parsed.log_place(raw.sb_logstart.get(), raw.sb_agblklog.into())?;
        Ok(parsed)
    }

    /// The blocks that the free map speaks of.
    pub fn grid(&self) -> Result<Grid, ParseError> {
        Ok(Grid::new(0, self.block, self.blocks)?)
    }

    /// Blocks of the volume before a group.
    pub fn group_start(&self, group: u64) -> Result<u64, ParseError> {
        Ok(mul(group, self.group_blocks, "the start of a group")?)
    }

    /// Blocks of a group; the last one may be short.
    pub fn blocks_of(&self, group: u64) -> Result<u64, ParseError> {
        let left = sub(self.blocks, self.group_start(group)?, "the blocks behind the start of a group")?;
        Ok(left.min(self.group_blocks))
    }

    /// Blocks that a group's four header sectors fill.
    pub fn header_blocks(&self) -> u64 {
        self.sector.saturating_mul(4).div_ceil(self.block.bytes())
    }

    fn check_groups(&self, group_log: u32) -> Result<(), ParseError> {
        let (group, groups) = (self.group_blocks, self.groups);
        if groups > MAX_GROUPS {
            return Err(ParseError::unsupported(0, XfsError::Groups(groups)));
        }
        demand(group >= MIN_GROUP_BLOCKS, "blocks of a group", "at least 64", group)?;
        demand(groups > 0, "number of groups", "at least 1", groups)?;
        let least = mul(groups.saturating_sub(1), group, "the blocks of all groups")?;
        let most = mul(groups, group, "the blocks of all groups")?;
        demand(
            self.blocks > least && self.blocks <= most && sub(self.blocks, least, "blocks")? >= MIN_GROUP_BLOCKS,
            "number of blocks",
            &format!("{} to {most}", least.saturating_add(MIN_GROUP_BLOCKS)),
            self.blocks,
        )?;
        let expected = group.next_power_of_two().trailing_zeros();
        check("log2 of the blocks of a group", expected.into(), group_log.into())
    }

    /// `start` is a group's number above `group_log` bits of a block of that group.
    fn log_place(&self, start: u64, group_log: u32) -> Result<LogPlace, ParseError> {
        demand(self.log_blocks > 0, "blocks of the log", "at least 1", self.log_blocks)?;
        if start == 0 {
            return Ok(LogPlace::Elsewhere);
        }
        let group = start.checked_shr(group_log).unwrap_or(0);
        let within = start & 1_u64.checked_shl(group_log).unwrap_or(0).saturating_sub(1);
        let end = add(within, self.log_blocks, "the end of the log")?;
        let fits = group < self.groups && within >= self.header_blocks() && end <= self.blocks_of(group)?;
        demand(fits, "start of the log", "a place for all of it in one group", start)?;
        Ok(LogPlace::Block(add(self.group_start(group)?, within, "the start of the log")?))
    }
}

fn check(what: &str, expected: u64, found: u64) -> Result<(), ParseError> {
    if expected == found {
        return Ok(());
    }
    Err(ParseError::corrupt(0, Mismatch::hex(format!("superblock: {what}"), expected, found)))
}

fn demand(holds: bool, what: &str, expected: &str, found: u64) -> Result<(), ParseError> {
    if holds {
        return Ok(());
    }
    Err(ParseError::corrupt(0, Mismatch::new(format!("superblock: {what}"), expected, found)))
}

fn block_size(raw: &RawSuperBlock, features: Features) -> Result<BlockSize, ParseError> {
    let bytes = u64::from(raw.sb_blocksize.get());
    let least = if features.is_v5 { 1024 } else { 512 };
    let block = BlockSize::new(bytes).filter(|_| (least..=65_536).contains(&bytes));
    let expected = format!("a power of two from {least} to 65536");
    let block =
        block.ok_or_else(|| ParseError::corrupt(0, Mismatch::new("superblock: block size", expected, bytes)))?;
    check("log2 of the block size", block.log2().into(), raw.sb_blocklog.into())?;
    Ok(block)
}

/// Without its feature bit, version 4 has sectors of 512 bytes, whatever the field says.
fn sector_size(raw: &RawSuperBlock, features: Features) -> Result<u64, ParseError> {
    if !features.is_v5 && features.version & version::SECTOR == 0 {
        return Ok(512);
    }
    let bytes = u64::from(raw.sb_sectsize.get());
    let is_possible = bytes.is_power_of_two() && (512..=32_768).contains(&bytes);
    demand(is_possible, "sector size", "a power of two from 512 to 32768", bytes)?;
    check("log2 of the sector size", bytes.trailing_zeros().into(), raw.sb_sectlog.into())?;
    Ok(bytes)
}

fn label(raw: &[u8]) -> Option<String> {
    let end = raw.iter().position(|byte| *byte == 0).unwrap_or(raw.len());
    let text = String::from_utf8_lossy(raw.get(..end).unwrap_or_default()).into_owned();
    (!text.is_empty()).then_some(text)
}
