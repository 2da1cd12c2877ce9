//! The witness's own view of the boot sector: where the clusters are, and how an entry of the table is found.
//! Offsets are those of Microsoft's "FAT32 File System Specification" 1.03, section "Boot Sector and BPB".

use crate::error::ParseError;
use crate::source::Source;
use crate::units::ByteRange;

/// Where things are, in bytes from the start of the volume.
pub(super) struct Shape {
    pub cluster_len: u64,
    pub first_data: u64,
    /// Highest cluster number.
    pub last: u32,
    /// The fixed root directory of FAT12/16; on FAT32 an empty place, and `root_cluster` is set.
    pub root_area: (u64, u64),
    /// First cluster of FAT32's root directory.
    pub root_cluster: Option<u32>,
    fat_at: u64,
    bits: u64,
}

/// What an entry of the table says about the cluster that follows.
pub(super) enum Link {
    Next(u32),
    End,
    Broken(&'static str),
}

fn le(bytes: &[u8], at: usize, len: usize) -> u64 {
    let field = bytes.iter().skip(at).take(len).rev();
    field.fold(0, |sum, byte| sum.wrapping_shl(8) | u64::from(*byte))
}

impl Shape {
    pub fn read(source: &dyn Source) -> Result<Self, ParseError> {
        let mut boot = [0; 512];
        source.read_at(0, &mut boot).map_err(|e| ParseError::io(0, e))?;
        Self::compute(&boot).ok_or_else(|| ParseError::corrupt(0, "the boot sector's numbers do not fit together"))
    }

    fn compute(boot: &[u8]) -> Option<Self> {
        let sector = le(boot, 0x0B, 2);
        let cluster_len = sector.checked_mul(le(boot, 0x0D, 1)).filter(|len| *len > 0)?;
        let is_32 = le(boot, 0x16, 2) == 0;
        let fat_len = sector.checked_mul(if is_32 { le(boot, 0x24, 4) } else { le(boot, 0x16, 2) })?;
        let sectors = if le(boot, 0x13, 2) == 0 { le(boot, 0x20, 4) } else { le(boot, 0x13, 2) };
        let first_fat = sector.checked_mul(le(boot, 0x0E, 2))?;
        let root_at = first_fat.checked_add(fat_len.checked_mul(le(boot, 0x10, 1))?)?;
        let root_len = le(boot, 0x11, 2).checked_mul(32)?;
        let first_data = root_at.checked_add(root_len.checked_next_multiple_of(sector)?)?;
        let clusters = sectors.checked_mul(sector)?.checked_sub(first_data)?.checked_div(cluster_len)?;
        let bits = match clusters {
            _ if is_32 => 32,
            0..4085 => 12,
            _ => 16,
        };
        // Flags of FAT32: bit 7 set means that only the FAT in the low bits is kept up to date.
        let flags = if is_32 { le(boot, 0x28, 2) } else { 0 };
        let active = if flags & 0x80 == 0 { 0 } else { flags & 0x0F };
        Some(Self {
            cluster_len,
            first_data,
            last: u32::try_from(clusters.checked_add(1)?).ok()?,
            root_area: (root_at, root_len),
            root_cluster: is_32.then(|| u32::try_from(le(boot, 0x2C, 4)).unwrap_or(0)),
            fat_at: first_fat.checked_add(active.checked_mul(fat_len)?)?,
            bits,
        })
    }

    pub fn is_cluster(&self, cluster: u32) -> bool {
        (2..=self.last).contains(&cluster)
    }

    /// The bytes of a cluster; none when there is no such cluster.
    pub fn bytes(&self, cluster: u32) -> Option<ByteRange> {
        let index = u64::from(cluster).checked_sub(2).filter(|_| self.is_cluster(cluster))?;
        ByteRange::with_len(self.first_data.checked_add(index.checked_mul(self.cluster_len)?)?, self.cluster_len)
    }

    /// What the table says about `cluster`, which must exist.
    pub fn link(&self, source: &dyn Source, cluster: u32) -> Result<Link, ParseError> {
        let bit = self.bits.saturating_mul(cluster.into());
        let at = self.fat_at.saturating_add(bit / 8);
        let mut bytes = [0; 4];
        let wanted = bytes.get_mut(..if self.bits == 32 { 4 } else { 2 }).unwrap_or_default();
        source.read_at(at, wanted).map_err(|e| ParseError::io(at, e))?;
        let raw = le(&bytes, 0, 4);
        let (value, bad) = match self.bits {
            12 => ((raw >> (bit % 8)) & 0xFFF, 0xFF7),
            16 => (raw, 0xFFF7),
            _ => (raw & 0x0FFF_FFFF, 0x0FFF_FFF7),
        };
        let next = u32::try_from(value).unwrap_or(u32::MAX);
        Ok(match value {
            0 => Link::Broken("a cluster of its chain is free"),
            _ if self.is_cluster(next) => Link::Next(next),
            _ if value == bad => Link::Broken("a cluster of its chain is marked bad"),
            _ if value > bad => Link::End,
            _ => Link::Broken("its chain leads to a cluster that does not exist"),
        })
    }
}
