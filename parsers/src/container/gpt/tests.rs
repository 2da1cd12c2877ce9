use super::*;
use crate::container::crc32::crc32;
use crate::error::ErrorKind;
use proptest::prelude::*;

const LINUX: &str = "0FC63DAF-8483-4772-8E79-3D69D8477DE4";

/// A GUID as stored, from how people write it.
fn guid(text: &str) -> [u8; 16] {
    let digits: Vec<u8> = text.bytes().filter(|c| *c != b'-').collect();
    let bytes: Vec<u8> =
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect();
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    order.map(|index| bytes[index])
}

/// A disk with a table, and what may be changed about it.
#[derive(Clone)]
struct Disk {
    unit: usize,
    bytes: Vec<u8>,
    last: u64,
}

const COUNT: u64 = 32;

impl Disk {
    /// Partitions as (type, first, last).
    fn new(unit: usize, sectors: usize, partitions: &[(&str, u64, u64)]) -> Self {
        let mut disk = Self { unit, bytes: vec![0; unit * sectors], last: sectors as u64 - 1 };
        disk.mbr_entry(0, 0xEE, 1, u32::try_from(disk.last).unwrap());
        disk.bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
        let array: u64 = COUNT * 128 / unit as u64;
        for (lba, other, entries) in [(1, disk.last, 2), (disk.last, 1, disk.last - array)] {
            let at = lba as usize * unit;
            let header = &mut disk.bytes[at..at + 92];
            header[..8].copy_from_slice(b"EFI PART");
            for (offset, value) in [(8, 0x10000_u32), (12, 92), (80, COUNT as u32), (84, 128)] {
                header[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
            }
            for (offset, value) in [(24, lba), (32, other), (40, 2 + array), (48, disk.last - array - 1), (72, entries)]
            {
                header[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
            }
            header[56..72].copy_from_slice(b"identity of disk");
        }
        for (index, (kind, first, last)) in partitions.iter().enumerate() {
            disk.entry(index, &guid(kind), *first, *last);
        }
        disk.sign();
        disk
    }

    fn mbr_entry(&mut self, slot: usize, kind: u8, start: u32, count: u32) {
        let entry = &mut self.bytes[446 + 16 * slot..][..16];
        entry[4] = kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..16].copy_from_slice(&count.to_le_bytes());
    }

    fn entry(&mut self, index: usize, kind: &[u8; 16], first: u64, last: u64) {
        let backup = (self.last as usize) * self.unit - COUNT as usize * 128;
        for array in [2 * self.unit, backup] {
            let entry = &mut self.bytes[array + index * 128..][..128];
            entry[..16].copy_from_slice(kind);
            entry[16..32].copy_from_slice(&[index as u8 + 1; 16]);
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
            entry[56..60].copy_from_slice(&[b'p', 0, b'0' + index as u8, 0]);
        }
    }

    /// Changes a header field of both copies, which keep their checksums.
    fn header(&mut self, offset: usize, bytes: &[u8]) {
        for lba in [1, self.last as usize] {
            self.bytes[lba * self.unit + offset..][..bytes.len()].copy_from_slice(bytes);
        }
        self.sign();
    }

    /// Puts the right checksums into both copies.
    fn sign(&mut self) {
        for lba in [1, self.last as usize] {
            let at = lba * self.unit;
            let field = |offset: usize| {
                let bytes = &self.bytes[at + offset..][..8];
                u64::from_le_bytes(bytes.try_into().unwrap())
            };
            let array = field(72) as usize * self.unit;
            let crc = crc32(&[&self.bytes[array..][..COUNT as usize * 128]]);
            self.bytes[at + 88..at + 92].copy_from_slice(&crc.to_le_bytes());
            self.bytes[at + 16..at + 20].fill(0);
            let crc = crc32(&[&self.bytes[at..at + 92]]);
            self.bytes[at + 16..at + 20].copy_from_slice(&crc.to_le_bytes());
        }
    }

    fn read(&self) -> Result<Table, ParseError> {
        assert!(Gpt.probe(&self.bytes, 512).unwrap());
        Gpt.read(&self.bytes, 512)
    }

    /// The message of the refusal.
    fn refusal(&self) -> String {
        self.read().unwrap_err().to_string()
    }
}

fn good() -> Disk {
    Disk::new(512, 4096, &[("C12A7328-F81F-11D2-BA4B-00A0C93EC93B", 40, 999), (LINUX, 1000, 4062)])
}

#[test]
fn a_good_table() {
    let table = good().read().unwrap();
    assert_eq!(table.sector_size, 512);
    assert_eq!(table.warnings, [""; 0]);
    let parts: Vec<_> = table
        .parts
        .iter()
        .map(|p| (p.number, p.range.start(), p.range.end(), p.kind.as_str(), p.name.as_deref()))
        .collect();
    let expected =
        [(1, 40 * 512, 1000 * 512, "EFI system", Some("p0")), (2, 1000 * 512, 4063 * 512, "Linux", Some("p1"))];
    assert_eq!(parts, expected);
    let reserved: Vec<_> = table.reserved.iter().map(|r| (r.start() / 512, r.end() / 512)).collect();
    assert_eq!(reserved, [(0, 10), (4087, 4096)]);
}

#[test]
fn numbers_are_those_of_the_slots() {
    let mut disk = good();
    disk.entry(0, &[0; 16], 40, 999);
    disk.entry(9, &guid(LINUX), 40, 80);
    disk.sign();
    let numbers: Vec<_> = disk.read().unwrap().parts.iter().map(|p| (p.number, p.range.start() / 512)).collect();
    assert_eq!(numbers, [(2, 1000), (10, 40)]);
}

/// A disk made with 4096-byte sectors and seen with 512-byte ones.
#[test]
fn the_unit_is_the_one_of_the_table() {
    for unit in [1024, 2048, 4096] {
        let disk = Disk::new(unit, 512, &[(LINUX, 40, 400)]);
        let table = disk.read().unwrap();
        assert_eq!(table.sector_size, unit as u64);
        assert_eq!(table.parts[0].range, ByteRange::new(40 * unit as u64, 401 * unit as u64).unwrap());
        assert!(table.warnings[0].contains("sectors of"), "{:?}", table.warnings);
    }
    let disk = Disk::new(512, 4096, &[(LINUX, 40, 400)]);
    let seen = Gpt.read(&disk.bytes, 4096).unwrap();
    assert_eq!((seen.sector_size, seen.parts[0].range.start()), (512, 40 * 512));
}

/// Every bit of both headers and of the used entries, and some of the empty ones.
#[test]
fn every_flipped_bit_is_a_refusal() {
    let mut disk = good();
    let last = disk.last as usize;
    let places =
        [512..512 + 92, 1024..1024 + 300, (last - 8) * 512..(last - 8) * 512 + 300, last * 512..last * 512 + 92];
    for at in places.into_iter().flatten() {
        for bit in 0..8 {
            disk.bytes[at] ^= 1 << bit;
            assert!(Gpt.read(&disk.bytes, 512).is_err(), "byte {at} bit {bit}");
            assert!(Gpt.probe(&disk.bytes, 512).unwrap());
            disk.bytes[at] ^= 1 << bit;
        }
    }
}

#[test]
fn half_a_table_is_refused() {
    let mut disk = good();
    disk.bytes[512..1024].fill(0);
    assert!(disk.refusal().contains("only the one at the end"), "{}", disk.refusal());

    let mut disk = good();
    let last = disk.last as usize * 512;
    disk.bytes[last..].fill(0);
    assert!(disk.refusal().contains("second copy of the GPT cannot be used"), "{}", disk.refusal());

    let mut disk = good();
    disk.bytes[512..1024].fill(0);
    disk.bytes[last..].fill(0);
    assert!(disk.refusal().contains("promises a GPT"), "{}", disk.refusal());
}

#[test]
fn copies_that_differ_are_refused() {
    let mut disk = good();
    let array = (disk.last as usize - 8) * 512;
    disk.bytes[array + 40] ^= 1; // the last LBA of partition 1, in the second copy only
    disk.sign();
    assert!(disk.refusal().contains("different entries"), "{}", disk.refusal());

    let mut disk = good();
    disk.bytes[512 + 56] ^= 1;
    disk.sign();
    assert!(disk.refusal().contains("different disk identities"), "{}", disk.refusal());
}

#[test]
fn impossible_fields_are_refused() {
    let cases: [(usize, &[u8], &str); 7] = [
        (8, &[0, 0, 2, 0], "revision"),
        (12, &[91, 0, 0, 0], "size of the header"),
        (12, &[1, 2, 0, 0], "size of the header"),
        (40, &[1, 0, 0, 0, 0, 0, 0, 0], "usable LBAs"),
        (48, &[0xFF, 0x0F, 0, 0, 0, 0, 0, 0], "usable LBAs"),
        (84, &[64, 0, 0, 0], "array of entries"),
        (80, &[0xFF, 0xFF, 0xFF, 0x7F], "array of entries"),
    ];
    for (offset, bytes, words) in cases {
        let mut disk = good();
        disk.header(offset, bytes);
        assert!(disk.refusal().contains(words), "{offset}: {}", disk.refusal());
    }
}

#[test]
fn partitions_must_lie_inside_and_apart() {
    for (first, last, words) in [
        (9, 100, "partition 1 has"),
        (100, 5000, "partition 1 has"),
        (99, 98, "partition 1 has"),
        (500, 1000, "overlap"),
    ] {
        let mut disk = good();
        disk.entry(0, &guid(LINUX), first, last);
        disk.sign();
        assert!(disk.refusal().contains(words), "{first}..={last}: {}", disk.refusal());
    }
}

#[test]
fn the_mbr_must_protect_and_agree() {
    let mut disk = good();
    disk.mbr_entry(1, 0x0C, 40, 960);
    assert_eq!(disk.read().unwrap().parts.len(), 2, "a hybrid that agrees");
    disk.mbr_entry(1, 0x0C, 40, 961);
    assert!(disk.refusal().contains("hybrid"), "{}", disk.refusal());
    let mut disk = good();
    disk.bytes[..512].fill(0);
    assert!(disk.refusal().contains("no protective MBR"), "{}", disk.refusal());
}

#[test]
fn a_table_in_two_units_is_refused() {
    let mut disk = good();
    disk.bytes[4096..4104].copy_from_slice(b"EFI PART");
    assert!(disk.refusal().contains("512 and of 4096"), "{}", disk.refusal());
}

/// A disk image copied to a larger disk: the table is whole and its second copy lies where it says.
#[test]
fn a_grown_disk_is_a_warning_and_a_second_table_at_its_end_a_refusal() {
    let mut disk = good();
    disk.bytes.resize(disk.bytes.len() + 1_000_000, 0);
    let table = disk.read().unwrap();
    assert!(table.warnings[0].contains("not at the last one"), "{:?}", table.warnings);
    assert_eq!(table.reserved[1].end(), disk.bytes.len() as u64);
    let end = disk.bytes.len() / 512 * 512 - 512;
    disk.bytes[end..end + 8].copy_from_slice(b"EFI PART");
    assert!(disk.refusal().contains("another GPT header"), "{}", disk.refusal());
}

#[test]
fn a_cut_disk_is_refused() {
    let mut disk = good();
    disk.bytes.truncate(3000 * 512);
    assert!(disk.refusal().contains("second copy"), "{}", disk.refusal());
}

#[test]
fn types_that_hold_no_filesystem() {
    let kinds = [
        ("21686148-6449-6E6F-744E-656564454649", true, false),
        ("E3C9E316-0B5C-4DB8-817D-F92DF00215AE", true, false),
        ("5808C8AA-7E8F-42E0-85D2-E1E90434CFB3", false, true),
        ("E75CAF8F-F680-4CEE-AFA3-B001E56EFC2D", false, true),
        ("53746F72-6167-11AA-AA11-00306543ECAC", false, true),
        ("0657FD6D-A4AB-43C4-84E5-0933C84B4F4F", false, false),
        ("11111111-2222-3333-4444-555555555555", false, false),
    ];
    for (kind, kept, refused) in kinds {
        let disk = Disk::new(512, 4096, &[(kind, 40, 99)]);
        let part = &disk.read().unwrap().parts[0];
        assert_eq!((part.kept.is_some(), part.refused.is_some()), (kept, refused), "{kind}: {part:?}");
    }
    let unknown = Disk::new(512, 4096, &[("11111111-2222-3333-4444-555555555555", 40, 99)]).read().unwrap();
    assert_eq!(unknown.parts[0].kind, "type 11111111-2222-3333-4444-555555555555");
}

/// Hashes cover free blocks too, so the partner of a verity partition is left alone.
#[test]
fn a_verity_partition_protects_its_partner() {
    let (root, hashes) = ("4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709", "2C7357ED-EBD2-46D9-AEC1-23D437EC2BF5");
    let alone = Disk::new(512, 4096, &[(root, 40, 99)]).read().unwrap();
    assert_eq!(alone.parts[0].refused, None);
    let pair = Disk::new(512, 4096, &[(root, 40, 99), (hashes, 100, 120), (LINUX, 200, 300)]).read().unwrap();
    assert!(pair.parts[0].refused.is_some());
    assert!(pair.parts[1].kept.is_some());
    assert_eq!(pair.parts[2].refused, None);
}

#[test]
fn damage_and_novelty_are_told_apart() {
    let mut disk = good();
    disk.header(8, &[0, 0, 2, 0]);
    assert_eq!(disk.read().unwrap_err().kind(), ErrorKind::Unsupported);
    let mut disk = good();
    disk.bytes[600] ^= 1;
    assert_eq!(disk.read().unwrap_err().kind(), ErrorKind::Corrupt);
}

proptest! {
    /// Whatever the bytes are: no panic, and what is read lies inside the device and apart from each other.
    #[test]
    fn never_panics(changes in proptest::collection::vec((0usize..8192, any::<u8>()), 0..12), cut in 0usize..4096, sign: bool) {
        let mut disk = good();
        let len = disk.bytes.len();
        for (at, value) in changes {
            // Both ends are where the table lies.
            let at = if at < 4096 { at } else { len - (at - 4095) };
            disk.bytes[at] = value;
        }
        if sign && disk.bytes[512 + 72..512 + 80] == [2, 0, 0, 0, 0, 0, 0, 0] {
            let last = disk.last as usize * 512;
            let array = (disk.last - 8).to_le_bytes();
            disk.bytes[last + 72..last + 80].copy_from_slice(&array);
            disk.sign();
        }
        disk.bytes.truncate(len - cut * 512 * usize::from(cut < 8));
        for sector_size in [512, 4096] {
            let _ = Gpt.probe(&disk.bytes, sector_size).unwrap();
            if let Ok(table) = Gpt.read(&disk.bytes, sector_size) {
                for (index, part) in table.parts.iter().enumerate() {
                    prop_assert!(part.range.end() <= disk.bytes.len() as u64);
                    prop_assert!(!table.parts[..index].iter().any(|other| other.range.overlaps(part.range)));
                    prop_assert!(!table.reserved.iter().any(|kept| kept.overlaps(part.range)));
                }
            }
        }
    }

    #[test]
    fn short_sources_are_no_table(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = Gpt.probe(&bytes, 512).unwrap();
        prop_assert!(Gpt.read(&bytes, 512).is_err());
    }
}
