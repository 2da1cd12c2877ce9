//! The witness's own view of the boot sector. Offsets are those of Microsoft's "exFAT file system specification",
//! section 3.1.

use crate::error::ParseError;
use crate::source::Source;
use crate::units::ByteRange;

/// Where things are, in bytes from the start of the volume.
pub(super) struct Shape {
    pub cluster_len: u64,
    /// Highest cluster number.
    pub last: u32,
    /// First cluster of the root directory.
    pub root: u32,
    heap: u64,
    fat: u64,
}

/// What the FAT says about the cluster that follows.
pub(super) enum Link {
    Next(u32),
    End,
    Broken,
}

/// The little-endian number of `len` bytes at `at`.
pub(super) fn le(bytes: &[u8], at: usize, len: usize) -> u64 {
    let field = bytes.iter().skip(at).take(len).rev();
    field.fold(0, |sum, byte| sum.wrapping_shl(8) | u64::from(*byte))
}

/// The same for four bytes.
pub(super) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::try_from(le(bytes, at, 4)).unwrap_or(u32::MAX)
}

impl Shape {
    pub fn read(source: &dyn Source) -> Result<Self, ParseError> {
        let mut boot = [0; 120];
        source.read_at(0, &mut boot).map_err(|e| ParseError::io(0, e))?;
        Self::compute(&boot).ok_or_else(|| ParseError::corrupt(0, "the boot sector's numbers do not fit together"))
    }

    fn compute(boot: &[u8]) -> Option<Self> {
        let sector = 1_u64.checked_shl(u32::try_from(le(boot, 0x6C, 1)).ok()?)?;
        let cluster_len = sector.checked_mul(1_u64.checked_shl(u32::try_from(le(boot, 0x6D, 1)).ok()?)?)?;
        Some(Self {
            cluster_len,
            last: le32(boot, 0x5C).checked_add(1)?,
            root: le32(boot, 0x60),
            heap: le(boot, 0x58, 4).checked_mul(sector)?,
            fat: le(boot, 0x50, 4).checked_mul(sector)?,
        })
    }

    pub fn is_cluster(&self, cluster: u32) -> bool {
        (2..=self.last).contains(&cluster)
    }

    /// The bytes of a cluster; none when there is no such cluster.
    pub fn bytes(&self, cluster: u32) -> Option<ByteRange> {
        let index = u64::from(cluster).checked_sub(2).filter(|_| self.is_cluster(cluster))?;
        ByteRange::with_len(self.heap.checked_add(index.checked_mul(self.cluster_len)?)?, self.cluster_len)
    }

    /// What the FAT says about `cluster`, which must exist.
    pub fn link(&self, source: &dyn Source, cluster: u32) -> Result<Link, ParseError> {
        let at = self.fat.saturating_add(u64::from(cluster).saturating_mul(4));
        let mut bytes = [0; 4];
        source.read_at(at, &mut bytes).map_err(|e| ParseError::io(at, e))?;
        Ok(match u32::from_le_bytes(bytes) {
            u32::MAX => Link::End,
            next if self.is_cluster(next) => Link::Next(next),
            _ => Link::Broken,
        })
    }
}
