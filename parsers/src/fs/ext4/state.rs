//! Whether the volume was left in order: the superblock's own flags and multi-mount protection. The journal has its
//! own file. Clean flags are necessary, never sufficient: a journalled volume keeps its "valid" flag while mounted.

use super::CHECKER;
use super::checksum::crc32c;
use super::features::{incompat, ro_compat};
use super::ondisk::{MMP_MAGIC, MMP_SEQ_CLEAN, MMP_SEQ_FSCK, RawMmp};
use super::superblock::SuperBlock;
use crate::error::{Mismatch, ParseError};
use crate::source::{Source, read_struct};
use crate::volume::Finding;
use zerocopy::IntoBytes;

/// `s_state`: cleanly unmounted (or journalled).
const VALID: u16 = 1;
/// `s_state`: errors found.
const ERROR: u16 = 2;
/// `s_state`: orphans being processed.
const ORPHANS: u16 = 4;

/// What the superblock says against its own volume.
pub fn findings(superblock: &SuperBlock) -> Vec<Finding> {
    let raw = &superblock.raw;
    let state = raw.s_state.get();
    let orphans = state & ORPHANS != 0
        || raw.s_last_orphan.get() != 0
        || superblock.features.has_ro_compat(ro_compat::ORPHAN_PRESENT);
    let other = state & !(VALID | ERROR | ORPHANS);
    let errors = raw.s_error_count.get();
    let checks = [
        (
            superblock.features.has_incompat(incompat::RECOVER),
            "the journal needs recovery: the volume is mounted somewhere, or was not unmounted".to_owned(),
            "mount it once and unmount it, or: e2fsck -f DEVICE",
        ),
        (state & VALID == 0, format!("not cleanly unmounted: state {state:#x}, expected {VALID:#x}"), CHECKER),
        (state & ERROR != 0, format!("the kernel found errors on the volume: state {state:#x}"), CHECKER),
        (
            orphans,
            format!(
                "deleted files wait for their blocks to be freed (first orphan: inode {})",
                raw.s_last_orphan.get()
            ),
            "mount it once and unmount it, or: e2fsck -f DEVICE",
        ),
        (other != 0, format!("unknown bits {other:#x} in the state {state:#x} of the superblock"), CHECKER),
        (errors != 0, format!("the kernel recorded {errors} errors on the volume"), CHECKER),
    ];
    checks
        .into_iter()
        .filter(|(found, _, _)| *found)
        .map(|(_, message, remedy)| Finding::refusal(message, remedy))
        .collect()
}

/// Multi-mount protection: the block that the host which uses the volume writes every few seconds.
pub fn multi_mount_protection(source: &dyn Source, superblock: &SuperBlock) -> Result<Option<Finding>, ParseError> {
    if !superblock.features.has_incompat(incompat::MMP) {
        return Ok(None);
    }
    let block = superblock.raw.s_mmp_block.get();
    if block <= superblock.superblock_block() || block >= superblock.blocks_count {
        let expected = format!("a block inside {}..{}", superblock.first_data_block, superblock.blocks_count);
        return Err(ParseError::inconsistent(Mismatch::new("multi-mount protection block", expected, block)));
    }
    let at = superblock.block.to_bytes(block)?;
    let mmp: RawMmp = read_struct(source, at)?;
    check(at, "magic of the multi-mount protection block", MMP_MAGIC, mmp.mmp_magic.get())?;
    if superblock.features.has_ro_compat(ro_compat::METADATA_CSUM) {
        let covered = mmp.as_bytes().get(..1020).unwrap_or_default();
        let expected = crc32c(superblock.checksum_seed, covered);
        check(at, "checksum of the multi-mount protection block", expected, mmp.mmp_checksum.get())?;
    }
    let who = printable(&mmp.mmp_nodename);
    let finding = match mmp.mmp_seq.get() {
        MMP_SEQ_CLEAN => return Ok(None),
        MMP_SEQ_FSCK => Finding::refusal(
            format!("multi-mount protection at byte {at}: a check of the volume runs, or was broken off, on {who}"),
            "let it end; if none runs: tune2fs -f -E clear_mmp DEVICE, then e2fsck -f DEVICE",
        ),
        other => Finding::refusal(
            format!("multi-mount protection at byte {at}: sequence {other:#x}, so the volume is in use on {who}"),
            "unmount it there; if that host is gone: tune2fs -f -E clear_mmp DEVICE, then e2fsck -f DEVICE",
        ),
    };
    Ok(Some(finding))
}

/// The block of the multi-mount protection must be used: as blocks, none without the feature.
pub fn multi_mount_block(superblock: &SuperBlock) -> Option<u64> {
    superblock.features.has_incompat(incompat::MMP).then(|| superblock.raw.s_mmp_block.get())
}

fn check(at: u64, what: &str, expected: u32, found: u32) -> Result<(), ParseError> {
    if expected == found {
        return Ok(());
    }
    Err(ParseError::corrupt(at, Mismatch::hex(what, expected.into(), found.into())))
}

/// A name from the disk, safe for a terminal.
fn printable(raw: &[u8]) -> String {
    let name: String = raw.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
    let name: String = name.chars().map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect();
    if name.is_empty() { "an unnamed host".to_owned() } else { format!("host {name}") }
}
