//! The blocks directly before and behind everything that will be discarded, as they are before the run. A command that
//! takes too much takes these first.

use crate::plan::units::ByteRange;
use crate::transport::{BlockRead, TransportError};
use std::collections::BTreeMap;

/// Most blocks that are remembered; beyond them every n-th one.
const MOST: usize = 8192;
/// Bytes of one, at least.
const BLOCK: u64 = 4096;

/// Remembered blocks by their first byte.
pub struct Neighbours {
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Neighbours {
    /// Reads the neighbours of `extents` (sorted, disjoint) on a device of `size` bytes with logical blocks of `lba`.
    pub fn remember(
        reader: &mut dyn BlockRead,
        extents: &[ByteRange],
        size: u64,
        lba: u64,
        chance: u64,
    ) -> Result<Self, TransportError> {
        let places = places(extents, size, BLOCK.next_multiple_of(lba));
        let step = places.len().div_ceil(MOST).max(1);
        let first = usize::try_from(chance).unwrap_or(0) % step;
        let mut blocks = BTreeMap::new();
        for place in places.into_iter().skip(first).step_by(step) {
            blocks.insert(place.start(), reader.read(place)?);
        }
        Ok(Self { blocks })
    }

    /// Reads `places`, too: whole blocks that belong to no extent.
    pub fn remember_also(&mut self, reader: &mut dyn BlockRead, places: &[ByteRange]) -> Result<(), TransportError> {
        for place in places {
            self.blocks.insert(place.start(), reader.read(*place)?);
        }
        Ok(())
    }

    /// How many blocks are remembered.
    pub fn places(&self) -> usize {
        self.blocks.len()
    }

    /// Compares those next to `ranges`; the first that changed, in words.
    pub fn changed_beside(
        &self,
        reader: &mut dyn BlockRead,
        ranges: impl Iterator<Item = ByteRange>,
    ) -> Result<Option<String>, TransportError> {
        for range in ranges {
            let before = self.blocks.range(..range.start()).next_back();
            let before = before.filter(|(start, bytes)| end(**start, bytes) == range.start());
            let behind = self.blocks.get_key_value(&range.end());
            for (start, bytes) in before.into_iter().chain(behind) {
                if let Some(changed) = compare(reader, *start, bytes)? {
                    return Ok(Some(changed));
                }
            }
        }
        Ok(None)
    }

    /// Compares all of them.
    pub fn changed(&self, reader: &mut dyn BlockRead) -> Result<Option<String>, TransportError> {
        for (start, bytes) in &self.blocks {
            if let Some(changed) = compare(reader, *start, bytes)? {
                return Ok(Some(changed));
            }
        }
        Ok(None)
    }
}

fn end(start: u64, bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).map_or(u64::MAX, |length| start.saturating_add(length))
}

fn compare(reader: &mut dyn BlockRead, start: u64, bytes: &[u8]) -> Result<Option<String>, TransportError> {
    let Some(range) = ByteRange::new(start, end(start, bytes)) else { return Ok(None) };
    let differs = reader.read(range)? != bytes;
    Ok(differs.then(|| format!("{range}, which is next to what was discarded and not a part of it, has changed")))
}

/// Up to `block` bytes before and behind each extent, as far as they belong to no extent and to the device.
fn places(extents: &[ByteRange], size: u64, block: u64) -> Vec<ByteRange> {
    let mut found: Vec<ByteRange> = Vec::new();
    let mut last_end = 0;
    for (index, extent) in extents.iter().enumerate() {
        let next = extents.get(index.saturating_add(1)).map_or(size, |next| next.start());
        let before = ByteRange::new(extent.start().saturating_sub(block).max(last_end), extent.start());
        let behind = ByteRange::new(extent.end(), extent.end().saturating_add(block).min(next).min(size));
        // The block behind the last extent may be the one before this one.
        found.extend(before.filter(|place| found.last().is_none_or(|last| !last.overlaps(*place))));
        found.extend(behind);
        last_end = extent.end();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>);

    impl BlockRead for Bytes {
        fn path(&self) -> &'static str {
            "memory"
        }

        fn read(&mut self, range: ByteRange) -> Result<Vec<u8>, TransportError> {
            let index = |at: u64| usize::try_from(at).unwrap();
            Ok(self.0[index(range.start())..index(range.end())].to_vec())
        }
    }

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end).unwrap()
    }

    #[test]
    fn a_change_next_to_a_discarded_range_is_seen_and_one_inside_it_is_not() {
        let extents = [range(8192, 16384), range(20480, 24576), range(65536, 131_072)];
        let mut bytes = Bytes(vec![7; 131_072]);
        let neighbours = Neighbours::remember(&mut bytes, &extents, 131_072, 512, 3).unwrap();
        let counts = (neighbours.blocks.len(), places(&extents, 131_072, 4096).len());
        assert_eq!(counts, (4, 4), "the hole between the first two is one neighbour");
        for extent in extents {
            bytes.0[usize::try_from(extent.start()).unwrap()..usize::try_from(extent.end()).unwrap()].fill(0);
        }
        assert_eq!(neighbours.changed(&mut bytes).unwrap(), None);
        for at in [8191, 16384, 20479, 24576, 65535] {
            bytes.0[at] = 0;
            assert!(neighbours.changed(&mut bytes).unwrap().is_some(), "byte {at}");
            assert!(neighbours.changed_beside(&mut bytes, extents.into_iter()).unwrap().is_some(), "byte {at}");
            bytes.0[at] = 7;
        }
        bytes.0[65535] = 0;
        assert_eq!(neighbours.changed_beside(&mut bytes, [extents[0]].into_iter()).unwrap(), None, "not beside it");
    }
}
