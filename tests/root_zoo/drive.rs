//! The drive behind a bridge: sectors of 512 bytes over an image that is never written, and the list of those that
//! changed.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

pub const SECTOR: u64 = 512;
type Sector = [u8; 512];

pub struct Drive {
    image: File,
    pub sectors: u64,
    changed: BTreeMap<u64, Sector>,
}

impl Drive {
    pub fn open(path: &str) -> Self {
        let image = File::open(path).expect("the image");
        let sectors = image.metadata().expect("the image's size").len() / SECTOR;
        Self { image, sectors, changed: BTreeMap::new() }
    }

    /// A drive of the same size with nothing on it but its own numbers.
    pub fn other(&self) -> Self {
        let mut other = Self { image: File::open("/dev/zero").expect("zeros"), ..Self::open_again(self) };
        let sectors: Vec<u64> = (0..self.sectors).step_by(8).collect();
        for sector in sectors {
            other.changed.insert(sector, [0xA5; 512]);
        }
        other
    }

    fn open_again(this: &Self) -> Self {
        Self { image: this.image.try_clone().expect("a descriptor"), sectors: this.sectors, changed: BTreeMap::new() }
    }

    pub fn read(&self, first: u64, count: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(count * SECTOR).expect("a small read")];
        self.image.read_exact_at(&mut bytes, first * SECTOR).expect("the image");
        for (sector, content) in self.changed.range(first..first + count) {
            let at = usize::try_from((sector - first) * SECTOR).expect("a small read");
            bytes[at..at + 512].copy_from_slice(content);
        }
        bytes
    }

    pub fn write(&mut self, first: u64, bytes: &[u8]) {
        for (sector, content) in (first..).zip(bytes.chunks_exact(512)) {
            self.changed.insert(sector, content.try_into().expect("512 bytes"));
        }
    }

    /// Discards what of the range is on the drive.
    pub fn discard(&mut self, first: u64, count: u64) {
        for sector in first..first.saturating_add(count).min(self.sectors) {
            self.changed.insert(sector, [0; 512]);
        }
    }

    /// Runs of sectors that are not as in the image: first and count.
    pub fn differences(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (sector, content) in &self.changed {
            let mut before = [0; 512];
            self.image.read_exact_at(&mut before, sector * SECTOR).expect("the image");
            match runs.last_mut() {
                _ if before == *content => {}
                Some((first, count)) if *first + *count == *sector => *count += 1,
                _ => runs.push((*sector, 1)),
            }
        }
        runs
    }
}
