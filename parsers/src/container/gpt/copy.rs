//! One of the two copies of the table: a header with its array, believed only when both checksums hold.

use super::GptError;
use super::ondisk::{RawHeader, SIGNATURE};
use crate::container::crc32::crc32;
use crate::error::{Mismatch, ParseError};
use crate::source::{Source, read_struct, read_vec};
use crate::units::{add, div_up, from_usize, mul, to_usize};

/// Most bytes that an array of entries may have; the usual one has 16 KiB, and Linux gives up at 4 MiB.
const MOST_ENTRY_BYTES: u64 = 4 << 20;

/// A copy whose checksums and own position hold.
pub(super) struct Copy {
    /// The other copy's LBA.
    pub alternate_lba: u64,
    /// First and last LBA that partitions may use.
    pub usable: (u64, u64),
    /// First LBA of the array and the LBA behind its last one.
    pub array: (u64, u64),
    /// Identity of the disk.
    disk_guid: [u8; 16],
    /// Bytes in an entry.
    pub entry_size: usize,
    /// The array.
    pub entries: Vec<u8>,
}

impl Copy {
    /// Reads the header at `lba` and its array.
    pub fn read(source: &dyn Source, sector_size: u64, lba: u64) -> Result<Self, ParseError> {
        let at = mul(lba, sector_size, "the position of a header")?;
        let wrong = |cause: Mismatch| ParseError::corrupt(at, cause);
        let raw: RawHeader = read_struct(source, at)?;
        if &raw.signature != SIGNATURE {
            return Err(ParseError::corrupt(at, GptError::NoSignature));
        }
        if raw.revision.get() != 0x0001_0000 {
            return Err(ParseError::unsupported(
                at,
                Mismatch::hex("revision of the header", 0x0001_0000, u64::from(raw.revision.get())),
            ));
        }
        check_header_crc(source, sector_size, at, &raw)?;
        if raw.my_lba.get() != lba {
            return Err(wrong(Mismatch::new("the header's own position", lba, raw.my_lba.get())));
        }
        let array_at = mul(raw.partition_entry_lba.get(), sector_size, "the position of the entries")?;
        let (entry_size, entries) = read_entries(source, at, array_at, &raw)?;
        let array_sectors = div_up(from_usize(entries.len()), sector_size, "the length of the entries")?;
        let array_start = raw.partition_entry_lba.get();
        Ok(Self {
            alternate_lba: raw.alternate_lba.get(),
            usable: (raw.first_usable_lba.get(), raw.last_usable_lba.get()),
            array: (array_start, add(array_start, array_sectors, "the end of the entries")?),
            disk_guid: raw.disk_guid,
            entry_size,
            entries,
        })
    }

    /// What differs between two copies that should be the same; none when they are.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        if self.disk_guid != other.disk_guid {
            return Some("disk identities");
        }
        if self.usable != other.usable {
            return Some("usable areas");
        }
        if self.entry_size != other.entry_size || self.entries.len() != other.entries.len() {
            return Some("sizes of the array of entries");
        }
        (self.entries != other.entries).then_some("entries")
    }
}

fn check_header_crc(source: &dyn Source, sector_size: u64, at: u64, raw: &RawHeader) -> Result<(), ParseError> {
    let size = u64::from(raw.header_size.get());
    if !(from_usize(size_of::<RawHeader>())..=sector_size).contains(&size) {
        let expected = format!("92 to {sector_size} bytes");
        return Err(ParseError::corrupt(at, Mismatch::new("size of the header", expected, size)));
    }
    let bytes = read_vec(source, at, size)?;
    // The checksum's own field, bytes 16..20, counts as zero.
    let parts = [bytes.get(..16), Some(&[0; 4][..]), bytes.get(20..)].map(Option::unwrap_or_default);
    let found = crc32(&parts);
    if found != raw.header_crc32.get() {
        let stored = u64::from(raw.header_crc32.get());
        return Err(ParseError::corrupt(at, Mismatch::hex("checksum of the header", stored, u64::from(found))));
    }
    Ok(())
}

/// The size of an entry and the array of entries, its checksum compared.
fn read_entries(source: &dyn Source, at: u64, array_at: u64, raw: &RawHeader) -> Result<(usize, Vec<u8>), ParseError> {
    let entry_size = u64::from(raw.size_of_partition_entry.get());
    let bytes = mul(entry_size, u64::from(raw.number_of_partition_entries.get()), "the length of the entries")?;
    if !(128..=4096).contains(&entry_size) || !entry_size.is_power_of_two() || bytes == 0 || bytes > MOST_ENTRY_BYTES {
        let expected = "entries of 128 bytes times a power of two, 4 MiB at most";
        let found = format!("{} of {entry_size} bytes", raw.number_of_partition_entries.get());
        return Err(ParseError::corrupt(at, Mismatch::new("array of entries", expected, found)));
    }
    let entries = read_vec(source, array_at, bytes)?;
    let (stored, found) = (raw.partition_entry_array_crc32.get(), crc32(&[&entries]));
    if stored != found {
        let cause = Mismatch::hex("checksum of the entries", u64::from(stored), u64::from(found));
        return Err(ParseError::corrupt(array_at, cause));
    }
    Ok((to_usize(entry_size, "the size of an entry")?, entries))
}
