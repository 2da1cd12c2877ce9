use super::*;
use crate::error::ErrorKind;
use proptest::prelude::*;

const SECTORS: usize = 20_000;

struct Disk(Vec<u8>);

impl Disk {
    /// Primary partitions as (slot, type, start, count).
    fn new(entries: &[(usize, u8, u32, u32)]) -> Self {
        let mut disk = Self(vec![0; SECTORS * 512]);
        for (slot, kind, start, count) in entries {
            disk.entry(0, *slot, *kind, *start, *count);
        }
        disk.0[510..512].copy_from_slice(&[0x55, 0xAA]);
        disk
    }

    /// Writes an entry of the table in `sector`.
    fn entry(&mut self, sector: usize, slot: usize, kind: u8, start: u32, count: u32) {
        let table = &mut self.0[sector * 512..][..512];
        let entry = &mut table[446 + 16 * (slot - 1)..][..16];
        entry[4] = kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..16].copy_from_slice(&count.to_le_bytes());
        table[510..].copy_from_slice(&[0x55, 0xAA]);
    }

    fn read(&self) -> Result<Table, ParseError> {
        assert!(Mbr.probe(&self.0, 512).unwrap());
        Mbr.read(&self.0, 512)
    }

    fn refusal(&self) -> String {
        self.read().unwrap_err().to_string()
    }
}

/// (number, first sector, end) of every partition.
fn numbers(table: &Table) -> Vec<(u32, u64, u64)> {
    table.parts.iter().map(|p| (p.number, p.range.start() / 512, p.range.end() / 512)).collect()
}

/// One primary, one extended partition with three logical ones.
fn with_logical() -> Disk {
    let mut disk = Disk::new(&[(1, 0x83, 2048, 1000), (3, 0x0F, 4000, 10_000)]);
    disk.entry(4000, 1, 0x07, 63, 937); // 4063..5000
    disk.entry(4000, 2, 0x05, 2000, 3000);
    disk.entry(6000, 1, 0x83, 1, 999); // 6001..7000
    disk.entry(6000, 2, 0x05, 5000, 5000);
    disk.entry(9000, 1, 0x82, 100, 4900); // 9100..14000
    disk
}

#[test]
fn primary_and_logical_partitions() {
    let table = with_logical().read().unwrap();
    assert_eq!(numbers(&table), [(1, 2048, 3048), (5, 4063, 5000), (6, 6001, 7000), (7, 9100, 14_000)]);
    let kinds: Vec<_> = table.parts.iter().map(|p| p.kind.as_str()).collect();
    assert_eq!(kinds, ["Linux", "NTFS or exFAT", "Linux", "Linux swap"]);
    let reserved: Vec<_> = table.reserved.iter().map(|r| (r.start() / 512, r.end() / 512)).collect();
    assert_eq!(reserved, [(0, 1), (4000, 4063), (6000, 6001), (9000, 9100)]);
}

/// Entries count in the device's sectors, whatever their size.
#[test]
fn large_sectors() {
    let mut disk = Disk::new(&[(1, 0x83, 256, 1000), (2, 0x05, 1300, 1000)]);
    disk.entry(1300 * 8, 1, 0x83, 10, 90);
    let table = Mbr.read(&disk.0, 4096).unwrap();
    let starts: Vec<_> = table.parts.iter().map(|p| (p.number, p.range.start(), p.range.len())).collect();
    assert_eq!(starts, [(1, 256 * 4096, 1000 * 4096), (5, 1310 * 4096, 90 * 4096)]);
}

#[test]
fn an_empty_extended_partition_has_no_logical_ones() {
    let mut disk = Disk::new(&[(1, 0x83, 2048, 1000), (2, 0x05, 4000, 1000)]);
    assert!(disk.refusal().contains("no 55 AA"), "{}", disk.refusal());
    disk.entry(4000, 1, 0, 0, 0);
    assert_eq!(numbers(&disk.read().unwrap()), [(1, 2048, 3048)]);
}

/// A first link without partition, as deleting the first logical one leaves it behind.
#[test]
fn an_empty_first_link() {
    let mut disk = with_logical();
    disk.entry(4000, 1, 0, 0, 0);
    assert_eq!(numbers(&disk.read().unwrap())[1..], [(5, 6001, 7000), (6, 9100, 14_000)]);
}

#[test]
fn a_chain_that_runs_in_a_circle_is_refused() {
    for (target, words) in [(2000, "comes back"), (0, "comes back"), (1000, "comes back")] {
        let mut disk = with_logical();
        disk.entry(9000, 2, 0x05, target, 100);
        assert!(disk.refusal().contains(words), "{target}: {}", disk.refusal());
    }
}

#[test]
fn a_chain_without_end_is_refused() {
    let mut disk = Disk::new(&[(1, 0x05, 10, 19_000)]);
    for link in 0..200_u32 {
        disk.entry(10 + 2 * link as usize, 1, 0x83, 1, 1);
        disk.entry(10 + 2 * link as usize, 2, 0x05, 2 * (link + 1), 2);
    }
    assert!(disk.refusal().contains("more than 128"), "{}", disk.refusal());
}

#[test]
fn links_say_one_partition_and_one_link() {
    let mut disk = with_logical();
    disk.entry(6000, 3, 0x83, 1200, 10);
    assert!(disk.refusal().contains("uses entry 3"), "{}", disk.refusal());
    let mut disk = with_logical();
    disk.entry(6000, 2, 0x83, 1200, 10);
    assert!(disk.refusal().contains("uses entry 2"), "{}", disk.refusal());
}

#[test]
fn logical_partitions_stay_inside() {
    let mut disk = with_logical();
    disk.entry(9000, 1, 0x83, 100, 4901);
    assert!(disk.refusal().contains("inside the extended"), "{}", disk.refusal());
    let mut disk = with_logical();
    disk.entry(9000, 1, 0x83, 0, 100); // upon its own link
    assert!(disk.refusal().contains("inside the extended"), "{}", disk.refusal());
    let mut disk = with_logical();
    disk.entry(4000, 1, 0x83, 63, 1938); // reaches the second link
    assert!(disk.refusal().contains("comes back"), "{}", disk.refusal());
}

#[test]
fn primary_partitions_lie_inside_and_apart() {
    let disk = Disk::new(&[(1, 0x83, 2048, 20_000)]);
    assert!(disk.refusal().contains("only 20000 sectors"), "{}", disk.refusal());
    let disk = Disk::new(&[(1, 0x83, 2048, 100), (2, 0x83, 2147, 100)]);
    assert!(disk.refusal().contains("overlap"), "{}", disk.refusal());
    let disk = Disk::new(&[(1, 0x83, 2048, 100), (2, 0, 5000, 100)]);
    assert!(disk.refusal().contains("partition 2 has type 0x00"), "{}", disk.refusal());
}

#[test]
fn disks_whose_data_lies_elsewhere_are_refused() {
    for kind in [0x42, 0x54, 0x55, 0x86] {
        let error = Disk::new(&[(1, kind, 2048, 100)]).read().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{kind:#x}");
        assert!(error.to_string().contains(&format!("{kind:#04x}")), "{error}");
    }
    let disk = Disk::new(&[(1, 0x05, 2048, 100), (2, 0x0F, 4000, 100)]);
    assert!(disk.refusal().contains("both extended"), "{}", disk.refusal());
}

#[test]
fn types_that_hold_no_filesystem() {
    for (kind, kept, refused) in [(0x41, true, false), (0x84, true, false), (0xA5, false, true), (0xEF, false, false)] {
        let table = Disk::new(&[(1, kind, 2048, 100)]).read().unwrap();
        assert_eq!((table.parts[0].kept.is_some(), table.parts[0].refused.is_some()), (kept, refused), "{kind:#x}");
    }
}

#[test]
fn what_is_no_table() {
    let not = |disk: &Disk| !Mbr.probe(&disk.0, 512).unwrap();
    assert!(not(&Disk::new(&[])), "no entries");
    assert!(not(&Disk::new(&[(1, 0xEE, 1, 19_999)])), "a protective MBR");
    assert!(not(&Disk::new(&[(1, 0x83, 2048, 100), (2, 0xEE, 1, 100)])), "a hybrid MBR");
    let mut disk = with_logical();
    disk.0[510] = 0;
    assert!(not(&disk), "no 55 AA");
    let mut disk = with_logical();
    disk.0[446 + 16] = 0x10;
    assert!(not(&disk), "a flag that is none");
}

/// Boot sectors end in 55 AA too, and what lies where the entries would be is code, text or nothing.
#[test]
fn boot_sectors_of_filesystems_are_no_table() {
    let mut fat = Disk::new(&[]);
    fat.0[..22].copy_from_slice(&[
        0xEB, 0x3C, 0x90, b'm', b'k', b'f', b's', b'.', b'f', b'a', b't', 0, 2, 4, 4, 0, 2, 0, 2, 0, 40, 0xF8,
    ]);
    assert!(!Mbr.probe(&fat.0, 512).unwrap());
    let mut ntfs = Disk::new(&[]);
    ntfs.0[..11].copy_from_slice(b"\xEB\x52\x90NTFS    ");
    for disk in [&mut fat, &mut ntfs] {
        for slot in 0..4 {
            disk.0[446 + 16 * slot + 1..446 + 16 * (slot + 1)].copy_from_slice(b"rror occurred\r\n");
        }
        assert!(!Mbr.probe(&disk.0, 512).unwrap(), "text with flags of zero");
    }
    // A boot sector with a plausible entry in it is both, and two owners are a refusal; that another entry is wrong
    // makes the table a bad one, not none.
    for entries in
        [&[(1, 2048, 1000)][..], &[(1, 2048, 1000), (2, 4096, 1 << 20)], &[(3, 2048, 1 << 20), (4, 1 << 20, 9)]]
    {
        for disk in [&mut fat, &mut ntfs] {
            disk.0[446..510].fill(0);
            entries.iter().for_each(|(slot, start, count)| disk.entry(0, *slot, 0x07, *start, *count));
            assert!(Mbr.probe(&disk.0, 512).unwrap(), "{entries:?}");
        }
    }
}

proptest! {
    /// Whatever the bytes are: no panic, and what is read lies inside the device and apart from each other.
    #[test]
    fn never_panics(
        changes in proptest::collection::vec((0usize..4, 0usize..66, any::<u8>()), 0..10),
        sector_size in prop_oneof![Just(512u64), Just(4096u64)],
    ) {
        let mut disk = with_logical();
        for (sector, at, value) in changes {
            disk.0[[0, 4000, 6000, 9000][sector] * 512 + 446 + at] = value;
        }
        let _ = Mbr.probe(&disk.0, sector_size).unwrap();
        if let Ok(table) = Mbr.read(&disk.0, sector_size) {
            for (index, part) in table.parts.iter().enumerate() {
                prop_assert!(part.range.end() <= disk.0.len() as u64);
                prop_assert!(!table.parts[..index].iter().any(|other| other.range.overlaps(part.range)));
                prop_assert!(!table.reserved.iter().any(|kept| kept.overlaps(part.range)));
            }
        }
    }

    #[test]
    fn short_sources_are_no_table(bytes in proptest::collection::vec(any::<u8>(), 0..511)) {
        prop_assert!(!Mbr.probe(&bytes, 512).unwrap());
        let _ = Mbr.read(&bytes, 512);
    }
}
