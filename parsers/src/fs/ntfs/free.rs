//! $Bitmap, MFT record 6: bit i, least significant first, is cluster i; 1 is used.
//!
//! The bits behind the last cluster are 1 by convention and are not looked at. NTFS stores no count of free clusters
//! and no checksum of the bitmap, so what protects the map is that every cluster of the volume's own files must be
//! marked used, and, when the user asks for it, the witnesses.

use super::error::NtfsError;
use super::mft::{Mft, len_of};
use super::superblock::middle_backup;
use super::system::{BITMAP_FILE, data_of, for_each_piece, owned};
use crate::error::ParseError;
use crate::free_map::{BitOrder, DeclaredFree, FreeMap, FreeMapBuilder, Grid};

/// Reads the map and holds it against the volume's own files.
pub(super) fn read(mft: &Mft<'_>) -> Result<FreeMap, ParseError> {
    let geometry = &mft.geometry;
    let mut builder = FreeMapBuilder::new(Grid::new(0, geometry.cluster, geometry.clusters)?);
    read_bitmap(mft, &mut builder)?;
    builder.must_be_used(0, geometry.boot_clusters(), "the boot sector's clusters")?;
    for run in owned(mft)? {
        if run.bad {
            builder.keep(run.first, run.count)?;
        } else {
            builder.must_be_used(run.first, run.count, run.what)?;
        }
    }
    if let Some(lcn) = middle_backup(mft.source, geometry)? {
        builder.keep(lcn, 1)?;
    }
    builder.finish(DeclaredFree::Unknown)
}

fn read_bitmap(mft: &Mft<'_>, builder: &mut FreeMapBuilder) -> Result<(), ParseError> {
    let geometry = &mft.geometry;
    let (record, stream) = data_of(mft, BITMAP_FILE)?;
    stream.check_written(&record, geometry)?;
    let needed = geometry.clusters.div_ceil(8);
    if stream.data < needed {
        let expected = format!("at least {needed} bytes for {} clusters", geometry.clusters);
        let error = NtfsError::Bitmap { what: "size of $Bitmap", expected, found: stream.data };
        return Err(ParseError::corrupt(record.at, error));
    }
    for_each_piece(mft.source, &stream, geometry, needed, |done, bytes| {
        let first = done.saturating_mul(8);
        let count = len_of(bytes).saturating_mul(8).min(geometry.clusters.saturating_sub(first));
        builder.free_clear_bits(first, bytes, count, BitOrder::LeastFirst).map(|_| ())
    })
}
