//! A small volume that is built here, and what becomes of it when one thing is wrong.

use super::Fat;
use crate::free_map::FreeMap;
use crate::fs::Format;
use crate::source::Source;
use crate::units::ByteRange;
use crate::volume::Weight;
use crate::witness::{Recording, Testimony, hear};

/// A volume of `clusters` clusters of one 512-byte sector: `/FILE` with clusters 4, 6, 5; `/DIR` at 3 with `/DIR/IN`
/// at 8; cluster 9 bad, cluster 10 lost; FAT32 has its root directory in cluster 2, the others a file `/TWO` there.
#[derive(Clone)]
struct Disk {
    bytes: Vec<u8>,
    bits: u32,
    copies: usize,
    fat: usize,
    fat_len: usize,
    root: usize,
    data: usize,
}

fn entry(name: &str, attributes: u8, first: u16, size: u32) -> [u8; 32] {
    let mut slot = [0; 32];
    slot[..11].copy_from_slice(format!("{name:11}").as_bytes());
    slot[11] = attributes;
    slot[26..28].copy_from_slice(&first.to_le_bytes());
    slot[28..].copy_from_slice(&size.to_le_bytes());
    slot
}

impl Disk {
    fn new(bits: u32, clusters: usize, copies: usize) -> Self {
        let fat_sectors = ((clusters + 2) * bits as usize).div_ceil(8 * 512) + 1;
        let (reserved, root_entries) = if bits == 32 { (8, 0) } else { (1, 16) };
        let fat = reserved * 512;
        let root_area = fat + copies * fat_sectors * 512;
        let data = root_area + root_entries * 32;
        let sectors = data / 512 + clusters;
        let mut bytes = vec![0; sectors * 512 + 700];
        let boot = &mut bytes[..512];
        boot[..3].copy_from_slice(&[0xEB, 0x3C, 0x90]);
        boot[0x0B..0x0D].copy_from_slice(&512_u16.to_le_bytes());
        boot[0x0D..0x11].copy_from_slice(&[1, reserved as u8, 0, copies as u8]);
        boot[0x11] = root_entries as u8;
        boot[0x15] = 0xF8;
        boot[0x20..0x24].copy_from_slice(&(sectors as u32).to_le_bytes());
        let tail = if bits == 32 { 0x40 } else { 0x24 };
        if bits == 32 {
            boot[0x24..0x28].copy_from_slice(&(fat_sectors as u32).to_le_bytes());
            boot[0x2C] = 2;
            boot[0x30] = 1;
            boot[0x32] = 6;
        } else {
            boot[0x16..0x18].copy_from_slice(&(fat_sectors as u16).to_le_bytes());
        }
        boot[tail + 2] = 0x29;
        boot[tail + 3..tail + 7].copy_from_slice(&[0x34, 0x12, 0xCD, 0xAB]);
        boot[tail + 18..tail + 26].copy_from_slice(format!("FAT{bits}   ").as_bytes());
        boot[510..].copy_from_slice(&[0x55, 0xAA]);
        let root = if bits == 32 { data } else { root_area };
        let mut disk = Self { bytes, bits, copies, fat, fat_len: fat_sectors * 512, root, data };
        disk.contents(clusters);
        disk
    }

    fn contents(&mut self, clusters: usize) {
        if self.bits == 32 {
            let fs_info = &mut self.bytes[512..1024];
            fs_info[..4].copy_from_slice(b"RRaA");
            fs_info[484..488].copy_from_slice(b"rrAa");
            fs_info[488..492].copy_from_slice(&(clusters as u32 - 8).to_le_bytes());
            fs_info[510..].copy_from_slice(&[0x55, 0xAA]);
            self.bytes.copy_within(..512, 6 * 512);
        }
        let end = 0x0FFF_FFFF;
        for (cluster, value) in [
            (0, 0x0FFF_FFF8),
            (1, end),
            (2, end),
            (3, end),
            (4, 6),
            (6, 5),
            (5, 0x0FFF_FFF8),
            (8, end),
            (9, 0x0FFF_FFF7),
            (10, end),
        ] {
            self.link(cluster, value);
        }
        let slots = [
            entry("LABEL", 0x08, 0, 0),
            entry("FILE", 0x20, 4, 1500),
            entry("DIR", 0x10, 3, 0),
            if self.bits == 32 { entry("EMPTY", 0x20, 0, 0) } else { entry("TWO", 0x20, 2, 512) },
        ];
        let root = self.root;
        self.bytes[root..root + 128].copy_from_slice(slots.as_flattened());
        let slots = [entry(".", 0x10, 3, 0), entry("..", 0x10, 0, 0), entry("IN", 0x20, 8, 5)];
        let at = self.cluster(3);
        self.bytes[at..at + 96].copy_from_slice(slots.as_flattened());
    }

    fn cluster(&self, number: usize) -> usize {
        self.data + (number - 2) * 512
    }

    /// Sets an entry in every copy of the table.
    fn link(&mut self, cluster: usize, value: u32) {
        for copy in 0..self.copies {
            self.link_in(copy, cluster, value);
        }
    }

    fn link_in(&mut self, copy: usize, cluster: usize, value: u32) {
        let fat = self.fat + copy * self.fat_len;
        match self.bits {
            12 => {
                let (at, shift) = (fat + cluster * 3 / 2, cluster % 2 * 4);
                let old = u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]);
                let new = old & !(0xFFF << shift) | ((value & 0xFFF) as u16) << shift;
                self.bytes[at..at + 2].copy_from_slice(&new.to_le_bytes());
            }
            16 => self.bytes[fat + cluster * 2..][..2].copy_from_slice(&(value as u16).to_le_bytes()),
            _ => self.bytes[fat + cluster * 4..][..4].copy_from_slice(&value.to_le_bytes()),
        }
    }

    fn read(&self) -> Result<crate::volume::Volume, String> {
        if !Fat.probe(&self.bytes).unwrap() {
            return Err("not FAT".to_owned());
        }
        Fat.read(&self.bytes, &[]).map_err(|e| e.to_string())
    }

    /// Free clusters by number.
    fn free(&self, map: &FreeMap) -> Vec<(usize, usize)> {
        let number = |at: u64| (at as usize - self.data) / 512 + 2;
        map.ranges().iter().map(|r| (number(r.start()), number(r.end()))).collect()
    }

    fn testimony(&self, witness: usize) -> Testimony {
        let map = self.read().unwrap().free;
        hear(Fat.witnesses()[witness], &self.bytes, &map)
    }

    /// What speaks against the map, in the order of `stack`: an error, a refusal, the complete witness.
    fn verdict(&self) -> Verdict {
        let volume = match self.read() {
            Ok(volume) => volume,
            Err(error) => return Verdict::Structure(error),
        };
        if let Some(finding) = volume.findings.iter().find(|f| f.weight == Weight::Refusal) {
            return Verdict::Structure(finding.message.clone());
        }
        if volume.size > self.bytes.len() as u64 {
            return Verdict::Structure("larger than its container".to_owned());
        }
        match hear(Fat.witnesses()[0], &self.bytes, &volume.free) {
            Testimony::Agrees { .. } => Verdict::Usable(volume.free),
            Testimony::Clash { owner, .. } => Verdict::Witness(format!("{owner} is free")),
            Testimony::Absent { reason, .. } => Verdict::Witness(reason),
        }
    }

    fn refusal(&self) -> String {
        match self.verdict() {
            Verdict::Structure(why) | Verdict::Witness(why) => why,
            Verdict::Usable(_) => panic!("the volume should be refused"),
        }
    }
}

#[derive(Debug)]
enum Verdict {
    Structure(String),
    Witness(String),
    Usable(FreeMap),
}

const KINDS: [(u32, usize); 3] = [(12, 300), (16, 5000), (32, 300)];

fn disks() -> impl Iterator<Item = Disk> {
    KINDS.into_iter().map(|(bits, clusters)| Disk::new(bits, clusters, 2))
}

#[test]
fn only_clusters_of_value_zero_are_free() {
    for disk in disks() {
        let volume = disk.read().unwrap();
        assert_eq!(volume.format, format!("fat{}", disk.bits));
        let clusters = volume.free.grid().count() as usize;
        assert_eq!(disk.free(&volume.free), [(7, 8), (11, clusters + 2)]);
        assert_eq!(volume.uuid.as_deref(), Some("ABCD-1234"));
        assert_eq!(volume.label.as_deref(), Some("LABEL"));
        assert_eq!(volume.findings, []);
        assert!(volume.size < disk.bytes.len() as u64);
    }
}

#[test]
fn both_witnesses_agree_on_a_good_volume() {
    for disk in disks() {
        let Testimony::Agrees { owners, extents, .. } = disk.testimony(0) else { panic!() };
        assert_eq!((owners, extents), (5, if disk.bits == 32 { 6 } else { 7 }));
        // fatfs goes by the number of clusters and cannot open FAT32 with so few.
        let other = disk.testimony(1);
        assert_eq!(matches!(other, Testimony::Agrees { .. }), disk.bits != 32, "{other:?}");
    }
    let large = Disk::new(32, 65525, 2).testimony(1);
    assert!(matches!(large, Testimony::Agrees { extents: 5.., .. }), "{large:?}");
}

#[test]
fn the_type_follows_from_the_number_of_clusters() {
    for (bits, clusters) in [(12, 4084), (16, 4085), (16, 65524), (32, 65525)] {
        let disk = Disk::new(bits, clusters, 1);
        assert_eq!(disk.read().unwrap().format, format!("fat{bits}"));
        assert!(matches!(disk.verdict(), Verdict::Usable(_)));
    }
    for (bits, clusters) in [(12, 4085), (16, 4084), (16, 65525)] {
        assert!(Disk::new(bits, clusters, 1).refusal().contains("type is not certain"));
    }
}

#[test]
fn reserved_bits_and_odd_values_of_entries() {
    let mut disk = Disk::new(32, 300, 2);
    disk.link(7, 0xF000_0000);
    disk.link(20, 1);
    disk.link(21, 0x0FFF_FFF0);
    let map = disk.read().unwrap().free;
    assert_eq!(disk.free(&map), [(7, 8), (11, 20), (22, 302)]);
}

#[test]
fn padding_entries_mean_nothing_and_may_differ() {
    for mut disk in disks() {
        let last = disk.read().unwrap().free.grid().count() as usize + 1;
        disk.link_in(0, last + 1, 5);
        assert!(matches!(disk.verdict(), Verdict::Usable(_)));
    }
    // FAT12: the last entry ends within a byte whose other half is padding.
    let mut odd = Disk::new(12, 301, 2);
    odd.link_in(1, 303, 5);
    assert!(matches!(odd.verdict(), Verdict::Usable(_)));
    odd.link_in(1, 302, 5);
    assert!(odd.refusal().contains("differ at cluster 302"));
}

#[test]
fn dirty_marks_are_refused() {
    for disk in disks() {
        let state = if disk.bits == 32 { 0x41 } else { 0x25 };
        for (value, words) in [(1, "dirty bit"), (2, "surface errors")] {
            let mut marked = disk.clone();
            marked.bytes[state] = value;
            assert!(marked.refusal().contains(words));
        }
    }
    for (bits, clusters, value, words) in [
        (16, 5000, 0x7FFF, "not cleanly unmounted"),
        (16, 5000, 0xBFFF, "errors of the drive"),
        (32, 300, 0x07FF_FFFF, "not cleanly unmounted"),
        (32, 300, 0x0BFF_FFFF, "errors of the drive"),
    ] {
        let mut disk = Disk::new(bits, clusters, 2);
        disk.link(1, value);
        assert!(disk.refusal().contains(words));
    }
}

#[test]
fn differing_copies_are_refused_unless_mirroring_is_off() {
    for mut disk in disks() {
        disk.link_in(1, 7, 5);
        let why = disk.refusal();
        assert!(why.contains("differ at cluster 7"), "{why}");
    }
    let mut disk = Disk::new(32, 300, 2);
    disk.link_in(0, 4, 0);
    disk.bytes[0x28] = 0x81;
    disk.bytes.copy_within(..512, 6 * 512);
    let Verdict::Usable(map) = disk.verdict() else { panic!("{:?}", disk.verdict()) };
    assert_eq!(disk.free(&map), [(7, 8), (11, 302)]);
    disk.bytes[0x28] = 0x82;
    disk.bytes.copy_within(..512, 6 * 512);
    assert!(disk.refusal().contains("number of the active FAT"));
}

/// `(bits, offset, bytes, words of the refusal)`: one damaged field each.
#[test]
fn impossible_boot_sectors_are_refused() {
    let cases: &[(u32, usize, &[u8], &str)] = &[
        (16, 0x0B, &[0, 3], "not FAT"),
        (16, 0x0D, &[3], "not FAT"),
        (16, 0x0E, &[0, 0], "not FAT"),
        (16, 0x10, &[3], "3 FATs"),
        (16, 0x11, &[0], "root directory entries"),
        (16, 0x11, &[17], "whole sectors"),
        (16, 0x13, &[1, 0], "total sectors, stated twice"),
        (16, 0x15, &[0xF9], "media byte"),
        (16, 0x16, &[1, 0], "bytes in a FAT"),
        (16, 0x20, &[0; 4], "total sectors"),
        (16, 0x20, &[9, 0, 0, 0], "the volume's size"),
        (16, 0x20, &[0xFF, 0xFF, 0, 0], "bytes in a FAT"),
        (16, 0x36, b"FAT12", "type is not certain"),
        (32, 0x11, &[1], "root directory entries"),
        (32, 0x24, &[0; 4], "sectors of a FAT"),
        (32, 0x2A, &[1], "version"),
        (32, 0x2C, &[1], "first cluster of the root"),
        (32, 0x2C, &[0xFF, 0xFF], "first cluster of the root"),
        (32, 0x2C, &[7], "the root directory"),
        (32, 0x52, b"FAT16", "type is not certain"),
        (32, 3, b"NTFS    ", "not FAT"),
        (32, 3, b"EXFAT   ", "not FAT"),
        (32, 424, b"\x3B\xD6\x67\x49\x29\x2E\xD8\x4A\x83\x99\xF6\xA3\x39\xE3\xD0\x01", "not FAT"),
        (32, 510, &[0, 0], "not FAT"),
    ];
    for (bits, at, bytes, words) in cases {
        let clusters = if *bits == 32 { 300 } else { 5000 };
        let mut disk = Disk::new(*bits, clusters, 2);
        disk.bytes[*at..][..<[u8]>::len(bytes)].copy_from_slice(bytes);
        if *bits == 32 {
            disk.bytes.copy_within(..512, 6 * 512);
        }
        let why = disk.refusal();
        assert!(why.contains(words), "byte {at:#x}: {why}");
    }
}

#[test]
fn a_backup_boot_sector_that_differs_is_refused_and_a_missing_one_is_not() {
    let mut disk = Disk::new(32, 300, 2);
    disk.bytes[6 * 512 + 0x20] ^= 1;
    assert!(disk.refusal().contains("backup differ"));
    disk.bytes[6 * 512..7 * 512].fill(0);
    let volume = disk.read().unwrap();
    assert!(volume.is_usable());
    assert!(volume.findings[0].message.contains("backup is missing"));
}

#[test]
fn a_stale_hint_is_only_a_warning() {
    let mut disk = Disk::new(32, 300, 2);
    disk.bytes[512 + 488] = 7;
    let volume = disk.read().unwrap();
    assert!(volume.is_usable() && volume.findings[0].message.contains("hint says"), "{:?}", volume.findings);
    disk.bytes[512] = 0;
    let volume = disk.read().unwrap();
    assert!(volume.is_usable() && volume.findings[0].message.contains("FSInfo"), "{:?}", volume.findings);
}

#[test]
fn a_table_that_ends_early_is_an_error_and_never_zeros() {
    for mut disk in disks() {
        disk.bytes.truncate(disk.fat + 400);
        assert!(disk.read().is_err());
    }
}

/// A change of a disk, and words of what the witness says about it.
type Damage = (fn(&mut Disk), &'static str);

#[test]
fn the_witness_convicts() {
    let cases: &[Damage] = &[
        (|d| d.link(6, 0), "/FILE is free"),
        (|d| d.link(8, 0), "/DIR/IN is free"),
        (|d| d.link(3, 0), "/DIR is free"),
        (|d| d.link(8, 6), "already has an owner"),
        (|d| d.link(5, 4), "already has an owner"),
        (|d| d.link(4, 9), "marked bad"),
        (|d| d.link(4, 9999), "does not exist"),
        (|d| d.link(6, 0x0FFF_FFFF), "do not fit into the 1024 bytes"),
        (|d| d.link(5, 10), "2048 bytes goes on behind its 1500 bytes"),
        (|d| d.bytes[d.root + 32 + 29] = 1, "1536 bytes goes on behind its 476 bytes"),
        (|d| d.bytes[d.root + 32 + 26] = 0, "do not fit into the 0 bytes"),
        (|d| d.bytes[d.root + 64 + 26] = 0, "first cluster 0 does not exist"),
        (|d| d.bytes[d.root + 64 + 26] = 8, "its entries . and .."),
        (|d| d.bytes[d.root + 32 + 26] = 20, "/FILE is free"),
        (|d| d.bytes[d.root + 32 + 11] = 0x18, "a label and a directory"),
        (|d| d.bytes[d.root + 33] = 7, "control characters"),
        (
            |d| {
                let at = d.cluster(3);
                d.bytes[at..at + 512].fill(0);
            },
            "its entries . and ..",
        ),
        (
            |d| {
                let at = d.cluster(3) + 64;
                d.bytes[at..at + 32].copy_from_slice(&entry("AGAIN", 0x10, 3, 0));
            },
            "already has an owner",
        ),
    ];
    for (damage, words) in cases {
        for mut disk in disks() {
            damage(&mut disk);
            match disk.verdict() {
                Verdict::Witness(why) => assert!(why.contains(words), "FAT{}: {why}, not {words}", disk.bits),
                other => panic!("FAT{}, {words}: {other:?}", disk.bits),
            }
        }
    }
}

/// A number in the boot sector that moved the root directory makes everything vanish without a trace.
#[test]
fn clusters_without_any_file_are_suspicious() {
    for mut disk in disks().filter(|d| d.bits != 32) {
        let root = disk.root;
        disk.bytes[root..root + 128].fill(0);
        assert!(disk.refusal().contains("names no file"));
        for cluster in 2..11 {
            disk.link(cluster, 0);
        }
        assert!(matches!(disk.verdict(), Verdict::Usable(_)));
    }
}

#[test]
fn the_crate_convicts_and_ends() {
    for mut disk in disks().filter(|d| d.bits != 32) {
        disk.link(6, 0);
        let said = disk.testimony(1);
        assert!(matches!(&said, Testimony::Clash { owner, .. } if owner == "/FILE"), "{said:?}");
        // A directory that contains itself, and one whose chain is a circle.
        let mut cycle = disk.clone();
        let at = cycle.cluster(3) + 64;
        cycle.bytes[at..at + 32].copy_from_slice(&entry("AGAIN", 0x10, 3, 0));
        cycle.link(6, 5);
        let said = cycle.testimony(1);
        assert!(matches!(&said, Testimony::Absent { reason, .. } if reason.contains("nested deeper")), "{said:?}");
    }
}

#[test]
fn names_of_owners_are_the_long_ones() {
    let mut disk = Disk::new(16, 5000, 2);
    let sum = b"FILE       ".iter().fold(0_u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte));
    let mut slot = [0xFF; 32];
    slot[..1].copy_from_slice(&[0x41]);
    slot[11..14].copy_from_slice(&[0x0F, 0, sum]);
    slot[26..28].fill(0);
    for (at, unit) in [1, 3, 5, 7, 9, 14, 16].into_iter().zip("a näme\0".encode_utf16()) {
        slot[at..at + 2].copy_from_slice(&unit.to_le_bytes());
    }
    let root = disk.root;
    disk.bytes[root..root + 32].copy_from_slice(&slot);
    disk.link(6, 0);
    assert_eq!(disk.refusal(), "/a näme is free");
}

/// Flips every bit of everything that the reader and the witness read. What is caught, and by which; what is not
/// caught must not free a byte in use.
///
/// FAT has no checksum. With two copies of the table nothing in it slips through. With one copy a lost cluster
/// that no file owns may become free, and so may the bad cluster; that is why the truth here is what files own.
#[test]
fn flips() {
    let step = crate::sampling::every(41);
    for (bits, clusters, copies) in [(12, 90, 2), (12, 90, 1), (16, 4100, 2), (16, 4100, 1), (32, 90, 2), (32, 90, 1)] {
        let mut disk = Disk::new(bits, clusters, copies);
        let recording = Recording::new(&disk.bytes, u64::MAX);
        Fat.read(&recording, &[]).unwrap();
        let mut read = recording.take();
        read.extend(ByteRange::with_len(disk.cluster(3) as u64, 512));
        let places: std::collections::BTreeSet<u64> = read.iter().flat_map(|r| r.start()..r.end()).collect();
        let owned: Vec<ByteRange> = (2..=8)
            .filter(|cluster| *cluster != 7)
            .map(|cluster| ByteRange::with_len(disk.cluster(cluster) as u64, 512).unwrap())
            .chain(ByteRange::new(0, disk.data as u64))
            .collect();
        let (mut structure, mut witness, mut harmless) = (0, 0, 0);
        for at in places {
            // Most of a volume that is nearly empty is alike.
            if at > 0x60 && disk.bytes[at as usize] == 0 && at % step != 0 {
                continue;
            }
            for bit in 0..8 {
                disk.bytes[at as usize] ^= 1 << bit;
                match disk.verdict() {
                    Verdict::Structure(_) => structure += 1,
                    Verdict::Witness(_) => witness += 1,
                    Verdict::Usable(map) => {
                        harmless += 1;
                        for range in &owned {
                            assert_eq!(map.clash(*range), None, "FAT{bits}, byte {at:#x}, bit {bit}");
                        }
                    }
                }
                disk.bytes[at as usize] ^= 1 << bit;
            }
        }
        println!(
            "FAT{bits} x {copies}: {structure} refused by structure, {witness} by the witness, {harmless} harmless"
        );
        assert!(structure > 100 && witness > 10);
    }
}

#[test]
fn reads_little() {
    let disk = Disk::new(32, 65525, 2);
    let recording = Recording::new(&disk.bytes, u64::MAX);
    Fat.read(&recording, &[]).unwrap();
    let bytes: u64 = recording.take().iter().map(|range| range.len()).sum();
    let minimum = 2 * 4 * 65527;
    assert!((minimum..minimum + 4096).contains(&bytes), "{bytes} bytes read, {minimum} in the tables");
    assert!(recording.len() > bytes);
}
