//! Volume shadow copies: snapshots that read through clusters which are free today.
//!
//! A shadow copy keeps a 16 KiB block only once the block is overwritten. A block of a file that was deleted after the
//! snapshot, and not overwritten since, lies where it always lay, although $Bitmap calls it free: to discard it turns
//! the snapshot's file into zeros. Layout: header at byte 0x1E00, a chain of catalog blocks, one entry a snapshot
//! (libvshadow, "Volume Shadow Snapshot (VSS) format").

use super::error::NtfsError;
use super::ondisk::{RawCatalogBlock, RawShadowHeader};
use crate::error::ParseError;
use crate::source::{Source, read_struct, read_vec};
use crate::units::from_usize;
use crate::volume::{Consent, Finding};
use zerocopy::FromBytes;

const HEADER: u64 = 0x1E00;

/// 3808876B-C176-4E48-B7AE-04046E6CC752.
const IDENTIFIER: [u8; 16] =
    [0x6B, 0x87, 0x08, 0x38, 0x76, 0xC1, 0x48, 0x4E, 0xB7, 0xAE, 0x04, 0x04, 0x6E, 0x6C, 0xC7, 0x52];

const CATALOG_BLOCK: u64 = 16 << 10;
const ENTRY: usize = 128;

/// The type of a catalog entry that describes a snapshot.
const SNAPSHOT: [u8; 8] = [2, 0, 0, 0, 0, 0, 0, 0];

/// Windows keeps at most 512 snapshots, which fit into a handful of catalog blocks.
const MAX_BLOCKS: usize = 64;

/// The demand for consent when shadow copies exist.
pub(super) fn finding(source: &dyn Source) -> Result<Option<Finding>, ParseError> {
    let raw: RawShadowHeader = read_struct(source, HEADER)?;
    if raw.identifier != IDENTIFIER {
        return Ok(None);
    }
    let unknown = |what, found, expected| ParseError::unsupported(HEADER, NtfsError::Shadow { what, found, expected });
    let (version, kind) = (u64::from(raw.version.get()), u64::from(raw.record_type.get()));
    if !(1..=2).contains(&version) {
        return Err(unknown("the version", version, "1 or 2"));
    }
    if kind != 1 {
        return Err(unknown("the record type", kind, "1"));
    }
    let catalog = raw.catalog_offset.get();
    Ok((catalog != 0).then(|| demand(count(source, catalog))))
}

fn demand(count: Option<u64>) -> Finding {
    let many = match count {
        Some(1) => "1 volume shadow copy".to_owned(),
        Some(count) => format!("{count} volume shadow copies"),
        None => "volume shadow copies (their catalog could not be read)".to_owned(),
    };
    Finding::consent(
        Consent::ShadowCopies,
        format!(
            "the volume holds {many}. They read through clusters that are free today: after a trim, restore points, \
             previous versions of files and backups made from them may read as zeros, without any error"
        ),
        "delete them in Windows first (vssadmin delete shadows /all), or give them up for DEVICE: --accept shadow-copies",
    )
}

/// How many snapshots the catalog lists; none when it cannot be followed.
fn count(source: &dyn Source, catalog: u64) -> Option<u64> {
    let mut at = catalog;
    let mut snapshots: u64 = 0;
    for _ in 0..MAX_BLOCKS {
        let block = read_vec(source, at, CATALOG_BLOCK).ok()?;
        let (raw, _) = RawCatalogBlock::read_from_prefix(&block).ok()?;
        if raw.identifier != IDENTIFIER || raw.record_type.get() != 2 {
            return None;
        }
        let found = block.chunks_exact(ENTRY).skip(1).filter(|entry| entry.starts_with(&SNAPSHOT)).count();
        snapshots = snapshots.saturating_add(from_usize(found));
        at = raw.next_offset.get();
        if at == 0 {
            return Some(snapshots);
        }
    }
    None
}
