//! From the raw superblock to numbers that fit together: the areas lie one behind the other without gaps.

use super::F2fsError;
use super::checksum::f2fs_crc32;
use super::ondisk::{BLOCK, MAGIC, RawSuperBlock, SEGMENT, SUPERBLOCKS_AT};
use crate::error::{Mismatch, ParseError};
use crate::free_map::Grid;
use crate::fs::features::{Row, not_understood};
use crate::source::{Source, read_struct};
use crate::units::{BlockSize, Overflow, add, mul};
use crate::volume::Finding;
use zerocopy::IntoBytes;

const SB_CHECKSUM: u32 = 0x800;

const FEATURES: &[Row] = &[
    (0x1, "encrypt", true),
    (0x2, "zoned block device", false),
    (0x4, "atomic write", true),
    (0x8, "extra attributes", true),
    (0x10, "project quota", true),
    (0x20, "inode checksum", true),
    (0x40, "flexible inline attributes", true),
    (0x80, "quota inodes", true),
    (0x100, "inode creation time", true),
    (0x200, "lost+found", true),
    (0x400, "verity", true),
    (SB_CHECKSUM, "superblock checksum", true),
    (0x1000, "casefold", true),
    (0x2000, "compression", true),
    (0x4000, "read-only image", false),
    (0x8000, "device alias", false),
    (0x1_0000, "packed segment summaries", false),
];

/// A superblock whose numbers fit together. Addresses are in blocks from the start of the volume.
#[derive(Debug, Clone)]
pub struct SuperBlock {
    pub blocks: u64,
    pub checkpoint: u64,
    /// Blocks behind each checkpoint that belong to it.
    pub payload: u64,
    pub sit: u64,
    /// Blocks of one of the two copies of the segment information table.
    pub sit_blocks: u64,
    pub main: u64,
    pub segments: u64,
    pub uuid: [u8; 16],
    pub label: Option<String>,
    pub stop_reasons: [u8; 32],
    pub has_errors: bool,
}

impl SuperBlock {
    /// Reads the superblock and checks it, also against its copy.
    pub fn read(source: &dyn Source) -> Result<Self, ParseError> {
        let [at, copy_at] = SUPERBLOCKS_AT;
        let raw: RawSuperBlock = read_struct(source, at)?;
        let copy: RawSuperBlock = read_struct(source, copy_at)?;
        check(at, "magic", MAGIC.into(), raw.magic.get().into())?;
        check_features(&raw, at)?;
        check_geometry(&raw, at)?;
        // The kernel writes both, one after the other; only the names of its versions may differ for a while.
        let significant = |raw: &RawSuperBlock| raw.as_bytes().get(..124).map(<[u8]>::to_vec);
        if significant(&raw) != significant(&copy) || raw.cp_payload != copy.cp_payload || raw.feature != copy.feature {
            return Err(ParseError::corrupt(copy_at, F2fsError::Copies));
        }
        Ok(Self {
            blocks: raw.block_count.get(),
            checkpoint: raw.cp_blkaddr.get().into(),
            payload: raw.cp_payload.get().into(),
            sit: raw.sit_blkaddr.get().into(),
            sit_blocks: mul(u64::from(raw.segment_count_sit.get()) >> 1, SEGMENT, "the segment information table")?,
            main: raw.main_blkaddr.get().into(),
            segments: raw.segment_count_main.get().into(),
            uuid: raw.uuid,
            label: label(&raw),
            stop_reasons: raw.s_stop_reason,
            has_errors: raw.s_errors.iter().any(|byte| *byte != 0),
        })
    }

    /// The blocks that the free map speaks of.
    pub fn grid(&self) -> Result<Grid, ParseError> {
        Ok(Grid::new(0, block_size()?, self.blocks)?)
    }

    /// The first block of a segment of the main area.
    pub fn segment(&self, number: u64) -> Result<u64, ParseError> {
        Ok(add(self.main, mul(number, SEGMENT, "a segment")?, "a segment")?)
    }

    /// What the kernel recorded about its own stops. A stop leaves blocks in use that no file has, and worse.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let (orderly, bad) = self.stop_reasons.split_first().unwrap_or((&0, &[]));
        let bad = bad.iter().fold(0_u32, |sum, count| sum.saturating_add((*count).into()));
        if self.has_errors || bad > 0 {
            findings.push(Finding::refusal(
                format!("the superblock (byte 1024) records errors: {bad} stops of the volume because of one"),
                "fsck.f2fs -f DEVICE (version 1.16 or later also clears the record)",
            ));
        }
        if *orderly > 0 {
            findings.push(Finding::warning(format!("the volume was shut down while in use, {orderly} times")));
        }
        findings
    }
}

/// The only size of blocks that is read.
pub fn block_size() -> Result<BlockSize, ParseError> {
    Ok(BlockSize::new(BLOCK).ok_or(Overflow("the size of a block"))?)
}

fn check(at: u64, what: &str, expected: u64, found: u64) -> Result<(), ParseError> {
    if expected == found {
        return Ok(());
    }
    Err(ParseError::corrupt(at, Mismatch::hex(format!("superblock: {what}"), expected, found)))
}

fn check_features(raw: &RawSuperBlock, at: u64) -> Result<(), ParseError> {
    let bits = raw.feature.get();
    if bits & SB_CHECKSUM != 0 {
        let covered = raw.as_bytes().get(..3068).unwrap_or_default();
        check(at, "place of the checksum", 3068, raw.checksum_offset.get().into())?;
        check(at, "checksum", f2fs_crc32(MAGIC, covered).into(), raw.crc.get().into())?;
    }
    let unknown = not_understood(FEATURES, bits);
    if !unknown.is_empty() {
        return Err(ParseError::unsupported(at, F2fsError::Features(unknown.join(", "))));
    }
    // A name, or a number of segments, in any place means that the volume goes on elsewhere.
    let is_used = |device: &super::ondisk::RawDevice| device.path[0] != 0 || device.total_segments.get() != 0;
    let devices = raw.devs.iter().filter(|device| is_used(device)).count();
    if devices > 0 {
        return Err(ParseError::unsupported(at, F2fsError::Devices(devices)));
    }
    let block = raw.log_blocksize.get();
    if block != 12 {
        return Err(ParseError::unsupported(at, F2fsError::BlockSize(block)));
    }
    Ok(())
}

fn check_geometry(raw: &RawSuperBlock, at: u64) -> Result<(), ParseError> {
    check(at, "log2 of the blocks of a segment", 9, raw.log_blocks_per_seg.get().into())?;
    check(at, "segments of checkpoints", 2, raw.segment_count_ckpt.get().into())?;
    let first = raw.segment0_blkaddr.get();
    check(at, "address of the checkpoints", first.into(), raw.cp_blkaddr.get().into())?;
    let areas = [
        ("address of the segment table", raw.cp_blkaddr, raw.segment_count_ckpt, raw.sit_blkaddr),
        ("address of the node table", raw.sit_blkaddr, raw.segment_count_sit, raw.nat_blkaddr),
        ("address of the summaries", raw.nat_blkaddr, raw.segment_count_nat, raw.ssa_blkaddr),
        ("address of the main area", raw.ssa_blkaddr, raw.segment_count_ssa, raw.main_blkaddr),
    ];
    for (what, before, segments, start) in areas {
        let len = mul(segments.get().into(), SEGMENT, "an area")?;
        check(at, what, add(before.get().into(), len, "an area")?, start.get().into())?;
    }
    let len = |segments: u32| mul(segments.into(), SEGMENT, "the length of the volume");
    let end = add(raw.main_blkaddr.get().into(), len(raw.segment_count_main.get())?, "the end of the main area")?;
    let all = add(first.into(), len(raw.segment_count.get())?, "the end of the volume")?;
    let blocks = raw.block_count.get();
    let table = mul(u64::from(raw.segment_count_sit.get()) >> 1, SEGMENT, "the segment table")?;
    let entries = table.saturating_mul(super::ondisk::SIT_ENTRIES);
    let holds = [
        ("end of the main area", end <= all && all <= blocks, blocks),
        ("start of the first area", first >= 2, u64::from(first)),
        ("segments of the segment table", raw.segment_count_sit.get() & 1 == 0, raw.segment_count_sit.get().into()),
        ("segments of the main area", u64::from(raw.segment_count_main.get()) <= entries, entries),
        ("segments of the main area", raw.segment_count_main.get() > 0, 0),
        ("blocks of the checkpoint's payload", u64::from(raw.cp_payload.get()) < SEGMENT, raw.cp_payload.get().into()),
    ];
    match holds.into_iter().find(|(_, holds, _)| !holds) {
        Some((what, _, found)) => {
            let mismatch = Mismatch::new(format!("superblock: {what}"), "inside of what surrounds it", found);
            Err(ParseError::corrupt(at, mismatch))
        }
        None => Ok(()),
    }
}

fn label(raw: &RawSuperBlock) -> Option<String> {
    let name = raw.volume_name.iter().map(|unit| unit.get()).take_while(|unit| *unit != 0);
    let text: String = char::decode_utf16(name).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    (!text.is_empty()).then_some(text)
}
