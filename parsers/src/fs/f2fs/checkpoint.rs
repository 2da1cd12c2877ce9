//! The checkpoint: the state of the volume at one moment. Two packs are written by turns; the newer sound one counts.
//!
//! ```text
//! pack  | checkpoint | payload ... | orphans ... | summaries of the segments being written ... | checkpoint again |
//! ```
//! A pack is sound when both checkpoints have their checksums and the same version; both packs must be. A flag says that the volume was
//! unmounted; but files that were synced after that are written without a new checkpoint: a chain of nodes that begins
//! where the next warm node would be written. If the block there belongs to this checkpoint, the volume was in use.
//!
//! Source: Linux `fs/f2fs/checkpoint.c` (`f2fs_get_valid_checkpoint`), `fs/f2fs/recovery.c`, `fs/f2fs/node.h`
//! (`is_recoverable_dnode`), `fs/f2fs/f2fs.h` (`__bitmap_ptr`).

use super::F2fsError;
use super::checksum::f2fs_crc32;
use super::ondisk::{BLOCK, MAGIC, RawCheckpoint, RawNodeFooter, SEGMENT};
use super::superblock::SuperBlock;
use super::{CHECKER, REPLAY};
use crate::error::{Mismatch, ParseError};
use crate::source::{Source, read_struct, read_vec};
use crate::units::{Overflow, add, from_usize, mul, sub, to_usize};
use crate::volume::Finding;
use zerocopy::FromBytes;

/// Bits of `ckpt_flags`.
pub mod flags {
    pub const UMOUNT: u32 = 0x1;
    pub const COMPACT_SUM: u32 = 0x4;
    pub const ERROR: u32 = 0x8;
    pub const FSCK: u32 = 0x10;
    pub const FASTBOOT: u32 = 0x20;
    pub const CRC_RECOVERY: u32 = 0x40;
    pub const NO_CRC_RECOVERY: u32 = 0x200;
    pub const LARGE_NAT_BITMAP: u32 = 0x400;
    pub const QUOTA_NEED_FSCK: u32 = 0x800;
    pub const DISABLED: u32 = 0x1000;
    pub const DISABLED_QUICK: u32 = 0x2000;
    pub const RESIZE: u32 = 0x4000;
    /// Orphans, NAT bits and "trimmed" change nothing here: orphans' blocks are in use until they are deleted.
    pub const KNOWN: u32 = 0x7FFF;
}

/// Where the checksum usually lies in a checkpoint, in bytes.
const USUAL_CHECKSUM_AT: u64 = 4092;
/// Where it lies when the bitmaps fill the rest of the block.
const EARLY_CHECKSUM_AT: u64 = 192;

/// The checkpoint that counts.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Block of the pack's first checkpoint.
    pub start: u64,
    /// Blocks of the pack.
    pub blocks: u64,
    pub version: u64,
    pub checksum: u32,
    pub flags: u32,
    /// Which of the two copies of each block of the segment table counts.
    pub sit_bitmap: Vec<u8>,
    pub raw: Box<RawCheckpoint>,
}

impl Checkpoint {
    /// Reads both packs and takes the newer sound one.
    pub fn read(source: &dyn Source, superblock: &SuperBlock) -> Result<Self, ParseError> {
        let second = add(superblock.checkpoint, SEGMENT, "the second checkpoint")?;
        let packs = [superblock.checkpoint, second].map(|start| pack(source, superblock, start));
        match packs {
            // The version counts up; the difference has a sign so that it may wrap.
            [Ok(a), Ok(b)] => Ok(if b.version.wrapping_sub(a.version).cast_signed() > 0 { b } else { a }),
            // The damaged one may be the newer. Where a checkpoint was broken off, the kernel writes that pack anew.
            [Err(error), _] | [_, Err(error)] => Err(error),
        }
    }

    /// True when the flag is set.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// What the checkpoint says against its volume.
    pub fn findings(&self) -> Vec<Finding> {
        let at = self.start.saturating_mul(BLOCK);
        let unknown = self.flags & !flags::KNOWN;
        let rows = [
            (!self.has(flags::UMOUNT), "not unmounted: the volume is in use somewhere, or was pulled out", REPLAY),
            (self.has(flags::ERROR), "the kernel met an error on the volume", CHECKER),
            (self.has(flags::FSCK), "the volume wants a check", CHECKER),
            (
                self.has(flags::DISABLED | flags::DISABLED_QUICK),
                "checkpoints are switched off: everything since the last one may be thrown away again",
                "mount it with -o checkpoint=enable and unmount it",
            ),
            (self.has(flags::RESIZE), "a change of the volume's size was not finished", CHECKER),
            (unknown != 0, "bits that coldtrim does not know", CHECKER),
        ];
        let mut findings: Vec<Finding> = rows
            .into_iter()
            .filter(|(found, _, _)| *found)
            .map(|(_, what, remedy)| {
                let flags = self.flags;
                Finding::refusal(format!("{what} (flags {flags:#x} of the checkpoint at byte {at})"), remedy)
            })
            .collect();
        if self.has(flags::QUOTA_NEED_FSCK) {
            findings.push(Finding::warning("the volume's quota files want a check; its free space is not concerned"));
        }
        findings
    }

    /// A node that was written after this checkpoint and that the next mount would read, if there is one.
    pub fn synced_since(&self, source: &dyn Source, superblock: &SuperBlock) -> Result<Option<Finding>, ParseError> {
        const WARM: usize = 1;
        let segment = self.raw.cur_node_segno.get(WARM).map_or(0, |number| number.get());
        let offset = self.raw.cur_node_blkoff.get(WARM).map_or(0, |offset| offset.get());
        if u64::from(segment) >= superblock.segments || u64::from(offset) > SEGMENT {
            let found = format!("segment {segment}, block {offset}");
            return Err(self.corrupt("place of the next warm node", "inside of the main area", found));
        }
        let block = add(superblock.segment(segment.into())?, offset.into(), "the next warm node")?;
        if block >= superblock.blocks {
            return Ok(None);
        }
        let at = mul(block, BLOCK, "the next warm node")?;
        let footer: RawNodeFooter = read_struct(source, add(at, BLOCK.saturating_sub(24), "a node")?)?;
        let (ours, found) = (self.node_version(), footer.cp_ver.get());
        let is_ours = if self.has(flags::NO_CRC_RECOVERY) { ours << 32 == found << 32 } else { ours == found };
        Ok(is_ours.then(|| {
            let message = format!(
                "files were synced after the last checkpoint, and are not in it (node {}, byte {at})",
                footer.nid
            );
            Finding::refusal(message, REPLAY)
        }))
    }

    /// What nodes that were written after this checkpoint carry.
    fn node_version(&self) -> u64 {
        let sum = if self.has(flags::CRC_RECOVERY) { u64::from(self.checksum) << 32 } else { 0 };
        self.version | sum
    }

    /// An error at the checkpoint.
    pub fn corrupt(&self, what: &str, expected: impl ToString, found: impl ToString) -> ParseError {
        corrupt(self.start, what, expected, found)
    }
}

fn corrupt(block: u64, what: &str, expected: impl ToString, found: impl ToString) -> ParseError {
    ParseError::corrupt(block.saturating_mul(BLOCK), Mismatch::new(format!("checkpoint: {what}"), expected, found))
}

/// One pack, if it is sound.
fn pack(source: &dyn Source, superblock: &SuperBlock, start: u64) -> Result<Checkpoint, ParseError> {
    let (raw, checksum, bytes) = block(source, start, superblock)?;
    let blocks = u64::from(raw.cp_pack_total_block_count.get());
    // Both checkpoints, and the summaries of three kinds of data at least in one block.
    let least = add(superblock.payload, 3, "a pack")?;
    if blocks < least || blocks > SEGMENT {
        return Err(corrupt(start, "blocks of its pack", format!("{least} to {SEGMENT}"), blocks));
    }
    let last = sub(add(start, blocks, "the end of a pack")?, 1, "the end of a pack")?;
    let (raw_again, _, _) = block(source, last, superblock)?;
    let (version, again) = (raw.checkpoint_ver.get(), raw_again.checkpoint_ver.get());
    if version != again {
        return Err(corrupt(last, "version at the end of its pack", version, again));
    }
    let sit_bitmap = sit_bitmap(source, superblock, start, &raw, &bytes)?;
    Ok(Checkpoint { start, blocks, version, checksum, flags: raw.ckpt_flags.get(), sit_bitmap, raw: Box::new(raw) })
}

/// A checkpoint's block, its checksum checked.
fn block(
    source: &dyn Source,
    number: u64,
    superblock: &SuperBlock,
) -> Result<(RawCheckpoint, u32, Vec<u8>), ParseError> {
    if number >= superblock.sit {
        return Err(corrupt(number, "place", format!("before block {}", superblock.sit), number));
    }
    let at = mul(number, BLOCK, "a checkpoint")?;
    let bytes = read_vec(source, at, BLOCK)?;
    let (raw, _) =
        RawCheckpoint::read_from_prefix(&bytes).map_err(|_| ParseError::corrupt(at, "a checkpoint was cut short"))?;
    let place = u64::from(raw.checksum_offset.get());
    if place != USUAL_CHECKSUM_AT && place != EARLY_CHECKSUM_AT {
        return Err(corrupt(number, "place of its checksum", "192 or 4092", place));
    }
    let (head, rest) = bytes.split_at_checked(to_usize(place, "a checksum")?).unwrap_or_default();
    let (stored, behind) = rest.split_first_chunk::<4>().ok_or(Overflow("a checksum"))?;
    let mut sum = f2fs_crc32(MAGIC, head);
    if place == EARLY_CHECKSUM_AT {
        sum = f2fs_crc32(sum, behind);
    }
    let stored = u32::from_le_bytes(*stored);
    if stored != sum {
        let (expected, found) = (format!("{sum:#x}"), format!("{stored:#x}"));
        return Err(corrupt(number, "checksum", expected, found));
    }
    Ok((raw, stored, bytes))
}

/// The bitmap lies behind the checkpoint's head, behind the other bitmap, or in the payload.
fn sit_bitmap(
    source: &dyn Source,
    superblock: &SuperBlock,
    start: u64,
    raw: &RawCheckpoint,
    bytes: &[u8],
) -> Result<Vec<u8>, ParseError> {
    let len = u64::from(raw.sit_ver_bitmap_bytesize.get());
    let needed = superblock.sit_blocks.div_ceil(8);
    if len != needed {
        return Err(corrupt(start, "bytes of the bitmap of the segment table", needed, len));
    }
    let head = from_usize(size_of::<RawCheckpoint>());
    let is_large = raw.ckpt_flags.get() & flags::LARGE_NAT_BITMAP != 0;
    if superblock.payload > 0 && !is_large {
        let room = mul(superblock.payload, BLOCK, "the payload of a checkpoint")?;
        if len > room {
            return Err(corrupt(start, "bytes of its payload", format!("at least {len}"), room));
        }
        return read_vec(source, mul(add(start, 1, "a payload")?, BLOCK, "a payload")?, len);
    }
    let before = if is_large { add(raw.nat_ver_bitmap_bytesize.get().into(), 4, "a bitmap")? } else { 0 };
    let first = to_usize(add(head, before, "a bitmap")?, "a bitmap")?;
    let checksum_at = u64::from(raw.checksum_offset.get());
    let end = if checksum_at == USUAL_CHECKSUM_AT { USUAL_CHECKSUM_AT } else { BLOCK };
    let room = bytes.get(..to_usize(end, "a bitmap")?).unwrap_or_default();
    let found = room.get(first..).and_then(|rest| rest.get(..to_usize(len, "a bitmap").ok()?));
    let found = found.ok_or_else(|| corrupt(start, "bytes of its bitmaps", "what fits into its block", len))?;
    if is_large && superblock.payload > 0 {
        return Err(ParseError::unsupported(start.saturating_mul(BLOCK), F2fsError::LargeWithPayload));
    }
    Ok(found.to_vec())
}
