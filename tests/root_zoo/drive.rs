//! The drive behind a bridge: sectors of 512 bytes over an image that is never written, and the list of those that
//! changed.

use std::collections::BTreeMap;
use std::sync::Arc;

pub const SECTOR: u64 = 512;
type Sector = [u8; 512];

pub struct Drive {
    image: Arc<Vec<u8>>,
    pub sectors: u64,
    /// What was written; none is a sector of zeros.
    changed: BTreeMap<u64, Option<Box<Sector>>>,
    /// What discarded sectors held before; none is what the image has.
    kept: BTreeMap<u64, Option<Box<Sector>>>,
}

impl Drive {
    /// Many drives may share an image.
    pub fn new(image: Arc<Vec<u8>>) -> Self {
        let sectors = u64::try_from(image.len()).expect("a 64-bit machine") / SECTOR;
        Self { image, sectors, changed: BTreeMap::new(), kept: BTreeMap::new() }
    }

    /// The same with other contents from the start.
    pub fn changed_by(self, change: fn(u64, &mut [u8])) -> Self {
        let mut image = self.image.to_vec();
        (0..).zip(image.chunks_exact_mut(512)).for_each(|(sector, chunk)| change(sector, chunk));
        Self::new(Arc::new(image))
    }

    fn original(&self, sector: u64) -> &[u8] {
        let at = usize::try_from(sector * SECTOR).expect("a 64-bit machine");
        &self.image[at..at + 512]
    }

    pub fn read(&self, first: u64, count: u64) -> Vec<u8> {
        let sector = |sector: u64| match self.changed.get(&sector) {
            Some(Some(content)) => content.to_vec(),
            Some(None) => vec![0; 512],
            None => self.original(sector).to_vec(),
        };
        (first..first + count).flat_map(sector).collect()
    }

    pub fn write(&mut self, first: u64, bytes: &[u8]) {
        for (sector, content) in (first..).zip(bytes.chunks_exact(512)) {
            self.changed.insert(sector, Some(Box::new(content.try_into().expect("512 bytes"))));
            self.kept.remove(&sector);
        }
    }

    /// Discards what of the range is on the drive.
    pub fn discard(&mut self, first: u64, count: u64) {
        for sector in first..first.saturating_add(count).min(self.sectors) {
            match self.changed.insert(sector, None) {
                Some(None) => {}
                Some(content) => drop(self.kept.insert(sector, content)),
                None => drop(self.kept.insert(sector, None)),
            }
        }
    }

    /// What was discarded is as it was before.
    pub fn bring_back(&mut self) {
        for (sector, content) in std::mem::take(&mut self.kept) {
            match content {
                Some(content) => self.changed.insert(sector, Some(content)),
                None => self.changed.remove(&sector),
            };
        }
    }

    /// Runs of sectors that are not as in the image: first and count.
    pub fn differences(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (sector, content) in &self.changed {
            let now = content.as_ref().map_or(&[0; 512][..], |content| &content[..]);
            match runs.last_mut() {
                _ if self.original(*sector) == now => {}
                Some((first, count)) if *first + *count == *sector => *count += 1,
                _ => runs.push((*sector, 1)),
            }
        }
        runs
    }
}
