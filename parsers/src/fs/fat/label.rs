//! The volume label: an entry of its own kind in the root directory. Nothing about free space depends on it.

use super::Kind;
use super::superblock::{Geometry, Root};
use crate::error::ParseError;
use crate::source::{Source, read_vec};
use crate::units::{add, mul};

/// Clusters of the root directory that are searched; the label is nearly always its first entry.
const MAX_CLUSTERS: usize = 64;

/// Attribute of the label's entry; long names have all four low bits set and are told apart by that.
const ATTR_VOLUME: u8 = 0x08;
const ATTR_DIRECTORY: u8 = 0x10;

/// The label, if the root directory has one.
pub(super) fn read(source: &dyn Source, geometry: &Geometry) -> Result<Option<String>, ParseError> {
    let mut cluster = match geometry.root {
        Root::Area { at, len } => return Ok(search(&read_vec(source, at, len)?).flatten()),
        Root::Cluster(cluster) => cluster,
    };
    for _ in 0..MAX_CLUSTERS {
        let Some(index) = cluster.checked_sub(2).filter(|index| *index < geometry.grid.count()) else {
            break; // the end of the chain, or a damaged one, which the witness will name
        };
        let block = geometry.grid.block();
        let at = add(geometry.grid.origin(), block.to_bytes(index)?, "a cluster position")?;
        if let Some(found) = search(&read_vec(source, at, block.bytes())?) {
            return Ok(found);
        }
        cluster = next(source, geometry, cluster)?;
    }
    Ok(None)
}

/// The chain's next cluster. Only FAT32 has its root directory in a chain.
fn next(source: &dyn Source, geometry: &Geometry, cluster: u64) -> Result<u64, ParseError> {
    let fat = geometry.fats.first().copied().unwrap_or_default();
    let at = add(fat, mul(cluster, 4, "a FAT position")?, "a FAT position")?;
    let bytes = read_vec(source, at, 4)?;
    let entry = bytes.as_chunks().0.first().map_or(0, |b| u32::from_le_bytes(*b));
    Ok(u64::from(entry & Kind::Fat32.mask()))
}

/// Searches a piece of the directory: `Some` when the search is over, with or without a label.
fn search(bytes: &[u8]) -> Option<Option<String>> {
    for entry in bytes.as_chunks::<32>().0 {
        let [first, .., attributes] = entry.first_chunk::<12>()?;
        match first {
            0 => return Some(None),
            0xE5 => {}
            _ if attributes & 0x3F == 0x0F => {}
            _ if attributes & (ATTR_VOLUME | ATTR_DIRECTORY) == ATTR_VOLUME => return Some(text(entry)),
            _ => {}
        }
    }
    None
}

fn text(entry: &[u8; 32]) -> Option<String> {
    let name = entry.first_chunk::<11>()?;
    let name = String::from_utf8_lossy(name).trim_end().to_owned();
    (!name.is_empty()).then_some(name)
}
