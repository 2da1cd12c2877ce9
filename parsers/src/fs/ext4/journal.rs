//! The journal: is there anything in it that the bitmaps do not know yet? The superblock's "needs recovery" flag is
//! one answer; the journal's own superblock is the other, and both must say no.
//!
//! An internal journal is a file (inode 8); an external one is a device of its own, found by its UUID among the other
//! sources of the run. Source: Linux `Documentation/filesystems/ext4/journal.rst`, `fs/jbd2/journal.c`, e2fsprogs
//! `e2fsck/journal.c`.

use super::features::{Features, compat};
use super::groups::Group;
use super::layout::Metadata;
use super::ondisk::{JOURNAL_MAGIC, RawJournalSuperBlock, RawSuperBlock, SUPERBLOCK_AT};
use super::superblock::{self, SuperBlock};
use super::{CHECKER, Ext4Error, inode, uuid_text};
use super::{checksum::crc32c, state};
use crate::error::{Mismatch, ParseError};
use crate::free_map::{FreeMap, Grid};
use crate::source::{Source, read_struct};
use crate::units::{BlockSize, mul};
use crate::volume::{Finding, Volume};
use zerocopy::IntoBytes;

/// Version 1 of the journal's superblock: no features, no checksum.
const VERSION_1: u32 = 3;
/// Version 2.
const VERSION_2: u32 = 4;
/// Revoke, 64 bit, asynchronous commit, checksums 2 and 3, fast commit.
const KNOWN_INCOMPAT: u32 = 0x3F;
/// Checksums of version 2 or 3: the journal's superblock has one.
const CHECKSUMS: u32 = 0x8 | 0x10;

/// Reads the journal's state into `findings` and gives the blocks that it owns here.
pub fn read(
    source: &dyn Source,
    superblock: &SuperBlock,
    groups: &[Group],
    companions: &[&dyn Source],
    findings: &mut Vec<Finding>,
) -> Result<Vec<Metadata>, ParseError> {
    let raw = &superblock.raw;
    let number = raw.s_journal_inum.get();
    let is_elsewhere = raw.s_journal_dev.get() != 0 || number == 0 && raw.s_journal_uuid != [0; 16];
    let mut claimed: Vec<Metadata> = state::multi_mount_block(superblock)
        .map(|first| Metadata { first, count: 1, what: "multi-mount protection" })
        .into_iter()
        .collect();
    let damaged = |error| ParseError::corrupt(SUPERBLOCK_AT, error);
    match (superblock.features.has_compat(compat::HAS_JOURNAL), number, is_elsewhere) {
        (false, 0, false) => {}
        (false, _, _) => return Err(damaged(Ext4Error::JournalUndeclared)),
        (true, 0, false) => return Err(damaged(Ext4Error::JournalNowhere)),
        (true, 0, true) => findings.extend(external(superblock, companions)?),
        (true, inode, true) => return Err(damaged(Ext4Error::JournalTwice { inode })),
        (true, inode, false) => claimed.extend(internal(source, superblock, groups, inode, findings)?),
    }
    Ok(claimed)
}

fn internal(
    source: &dyn Source,
    superblock: &SuperBlock,
    groups: &[Group],
    number: u32,
    findings: &mut Vec<Finding>,
) -> Result<Vec<Metadata>, ParseError> {
    const REGULAR_FILE: u16 = 0x8000;
    let inode = inode::read(source, superblock, groups, number)?;
    let runs = inode.runs(source, superblock)?;
    let first = runs.first().filter(|_| inode.raw.i_mode.get() & 0xF000 == REGULAR_FILE);
    let Some((first, _)) = first else {
        return Err(ParseError::corrupt(inode.at, Mismatch::new("journal", "a file with blocks", "something else")));
    };
    let at = superblock.block.to_bytes(*first)?;
    let journal: RawJournalSuperBlock = read_struct(source, at)?;
    check(at, &journal, superblock.block)?;
    findings.extend(pending(at, &journal, "the journal"));
    Ok(runs.into_iter().map(|(first, count)| Metadata { first, count, what: "journal" }).collect())
}

/// Magic, version, features, block size and checksum.
fn check(at: u64, journal: &RawJournalSuperBlock, block: BlockSize) -> Result<(), ParseError> {
    let corrupt = |what: &str, expected: u64, found: u64| ParseError::corrupt(at, Mismatch::hex(what, expected, found));
    if journal.h_magic.get() != JOURNAL_MAGIC {
        return Err(corrupt("magic of the journal", JOURNAL_MAGIC.into(), journal.h_magic.get().into()));
    }
    if ![VERSION_1, VERSION_2].contains(&journal.h_blocktype.get()) {
        return Err(corrupt("version of the journal", VERSION_2.into(), journal.h_blocktype.get().into()));
    }
    if u64::from(journal.s_blocksize.get()) != block.bytes() {
        return Err(corrupt("block size of the journal", block.bytes(), journal.s_blocksize.get().into()));
    }
    if journal.h_blocktype.get() == VERSION_1 {
        return Ok(());
    }
    let (incompat, ro_compat) = (journal.s_feature_incompat.get(), journal.s_feature_ro_compat.get());
    if incompat & !KNOWN_INCOMPAT != 0 || ro_compat != 0 {
        let error = Ext4Error::JournalFeatures { incompat: incompat & !KNOWN_INCOMPAT, ro_compat };
        return Err(ParseError::unsupported(at, error));
    }
    if incompat & CHECKSUMS == 0 {
        return Ok(());
    }
    let mut covered = journal.clone();
    covered.s_checksum = 0.into();
    let expected = crc32c(!0, covered.as_bytes());
    if expected == journal.s_checksum.get() {
        return Ok(());
    }
    Err(corrupt("checksum of the journal's superblock", expected.into(), journal.s_checksum.get().into()))
}

/// What the journal says against using the bitmaps as they are.
fn pending(at: u64, journal: &RawJournalSuperBlock, which: &str) -> Vec<Finding> {
    let (start, errno) = (journal.s_start.get(), journal.s_errno.get());
    let mut findings = Vec::new();
    if start != 0 {
        findings.push(Finding::refusal(
            format!("{which} (at byte {at}) is not empty: its log begins at block {start}, expected 0"),
            "mount it once and unmount it, or: e2fsck -f DEVICE",
        ));
    }
    if errno != 0 {
        let message = format!("{which} (at byte {at}) was given up after an error: number {errno:#x}, expected 0");
        findings.push(Finding::refusal(message, CHECKER));
    }
    findings
}

fn external(superblock: &SuperBlock, companions: &[&dyn Source]) -> Result<Vec<Finding>, ParseError> {
    let wanted = superblock.raw.s_journal_uuid;
    let named = uuid_text(&wanted).unwrap_or_else(|| "unknown".to_owned());
    let mut found = Vec::new();
    for companion in companions {
        if let Some(raw) = external_superblock(*companion)
            && raw.s_uuid == wanted
        {
            found.push((*companion, raw));
        }
    }
    match found.as_slice() {
        [] => Ok(vec![Finding::refusal(
            format!("the journal of this volume is on another device (UUID {named}), whose state was not seen"),
            format!("name both: DEVICE UUID={named}"),
        )]),
        [(companion, raw)] => external_state(superblock, *companion, raw, &named),
        several => Ok(vec![Finding::refusal(
            format!("{} devices say that they are this volume's journal (UUID {named})", several.len()),
            "name the right one only",
        )]),
    }
}

/// The outer superblock of a journal device; none for anything else. What cannot be read is no journal.
fn external_superblock(source: &dyn Source) -> Option<RawSuperBlock> {
    let raw = superblock::read_raw(source).ok()?;
    let features = superblock::features(&raw).ok()?;
    features.has_incompat(super::features::incompat::JOURNAL_DEV).then_some(raw)
}

fn external_state(
    superblock: &SuperBlock,
    source: &dyn Source,
    raw: &RawSuperBlock,
    named: &str,
) -> Result<Vec<Finding>, ParseError> {
    let features = superblock::features(raw)?;
    let which = format!("the journal device (UUID {named})");
    let block = external_block(raw)?;
    let at = external_journal_at(block);
    let journal: RawJournalSuperBlock = read_struct(source, at)?;
    // Positions of another device would mislead in an error about this one, so its faults are findings.
    let checked = superblock::check_checksum(raw, features)
        .and_then(|()| check(at, &journal, superblock.block))
        .and_then(|()| check_owner(at, superblock, &journal));
    match checked {
        Ok(()) => Ok(pending(at, &journal, &which)),
        Err(error) => Ok(vec![Finding::refusal(format!("{which}: {error}"), CHECKER)]),
    }
}

/// The journal lies in the block behind the outer superblock.
fn external_journal_at(block: BlockSize) -> u64 {
    block.bytes().max(SUPERBLOCK_AT.saturating_mul(2))
}

fn check_owner(at: u64, superblock: &SuperBlock, journal: &RawJournalSuperBlock) -> Result<(), ParseError> {
    let users = usize::try_from(journal.s_nr_users.get()).unwrap_or(0).min(journal.s_users.len());
    let is_ours = journal.s_users.iter().take(users).any(|user| *user == superblock.uuid);
    if is_ours && journal.s_uuid == superblock.raw.s_journal_uuid {
        return Ok(());
    }
    let expected = uuid_text(&superblock.uuid).unwrap_or_default();
    Err(ParseError::corrupt(at, Mismatch::new("owner of the journal", expected, "another volume")))
}

fn external_block(raw: &RawSuperBlock) -> Result<BlockSize, ParseError> {
    let bytes = Some(raw.s_log_block_size.get()).filter(|log| *log <= 6).and_then(|log| 1024_u64.checked_shl(log));
    bytes.and_then(BlockSize::new).ok_or_else(|| {
        ParseError::corrupt(SUPERBLOCK_AT, Mismatch::new("block size of a journal device", "at most 64 KiB", "more"))
    })
}

/// A journal device as a volume of its own: wholly used.
pub fn external_volume(raw: RawSuperBlock, features: Features) -> Result<Volume, ParseError> {
    superblock::check_checksum(&raw, features)?;
    let block = external_block(&raw)?;
    let blocks = u64::from(raw.s_blocks_count_lo.get());
    Ok(Volume {
        format: features.format_name().to_owned(),
        label: superblock::label(&raw.s_volume_name),
        uuid: uuid_text(&raw.s_uuid),
        size: mul(blocks, block.bytes(), "the size of a journal device")?,
        block_size: block.bytes(),
        free: FreeMap::nothing(Grid::new(0, block, blocks)?),
        needs_witness: false,
        findings: vec![Finding::warning(
            "this is the external journal of another ext3 or ext4 volume: nothing on it is free",
        )],
    })
}
