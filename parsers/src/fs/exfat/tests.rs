//! A small volume that is built here, and what becomes of it when one thing is wrong.

use super::Exfat;
use crate::free_map::FreeMap;
use crate::fs::Format;
use crate::source::Source;
use crate::units::ByteRange;
use crate::volume::Weight;
use crate::witness::{Recording, Testimony, hear};

/// A volume of clusters of one 512-byte sector. Bitmap 2 and 9, up-case table 3, root directory 4, `/FILE` 5, 7, 6,
/// `/DIR` 8 with `/DIR/IN` in 12 and 13 (neighbours, no chain); 14 is bad, 15 is lost; 10 and 11 are free.
#[derive(Clone)]
struct Disk {
    bytes: Vec<u8>,
    clusters: usize,
    fat: usize,
    heap: usize,
}

fn set(name: &str, folder: bool, first: u32, len: u64, contiguous: bool) -> Vec<u8> {
    let mut bytes = vec![0; 96];
    bytes[..2].copy_from_slice(&[0x85, 2]);
    bytes[4] = if folder { 0x10 } else { 0x20 };
    bytes[32..36].copy_from_slice(&[0xC0, if contiguous { 3 } else { 1 }, 0, name.len() as u8]);
    bytes[40..48].copy_from_slice(&len.to_le_bytes());
    bytes[52..56].copy_from_slice(&first.to_le_bytes());
    bytes[56..64].copy_from_slice(&len.to_le_bytes());
    bytes[64] = 0xC1;
    for (at, unit) in (66..).step_by(2).zip(name.encode_utf16()) {
        bytes[at..at + 2].copy_from_slice(&unit.to_le_bytes());
    }
    seal(&mut bytes);
    bytes
}

/// Sets the checksum of a set of entries.
fn seal(bytes: &mut [u8]) {
    let mut sum = 0_u16;
    for (at, byte) in bytes.iter().enumerate() {
        if at != 2 && at != 3 {
            sum = sum.rotate_right(1).wrapping_add((*byte).into());
        }
    }
    bytes[2..4].copy_from_slice(&sum.to_le_bytes());
}

fn plain(kind: u8, flags: u8, first: u32, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; 32];
    bytes[..2].copy_from_slice(&[kind, flags]);
    bytes[20..24].copy_from_slice(&first.to_le_bytes());
    bytes[24..].copy_from_slice(&len.to_le_bytes());
    bytes
}

impl Disk {
    /// More than 4096 clusters, so that the bitmap needs two.
    fn new() -> Self {
        let clusters: usize = 4203;
        let fat_sectors = ((clusters + 2) * 4).div_ceil(512);
        let (fat, heap) = (24 * 512, (24 + fat_sectors + 3) * 512);
        let sectors = heap / 512 + clusters + 2;
        let mut disk = Self { bytes: vec![0; sectors * 512 + 700], clusters, fat, heap };
        let boot = &mut disk.bytes[..512];
        boot[..11].copy_from_slice(b"\xEB\x76\x90EXFAT   ");
        boot[72..80].copy_from_slice(&(sectors as u64).to_le_bytes());
        for (at, value) in [(80, 24), (84, fat_sectors), (88, heap / 512), (92, clusters), (96, 4), (100, 0xABCD_1234)]
        {
            boot[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
        }
        boot[104..112].copy_from_slice(&[0, 1, 0, 0, 9, 0, 1, 0x80]);
        boot[112] = 0xFF;
        boot[510..].copy_from_slice(&[0x55, 0xAA]);
        disk.seal_boot();
        disk.contents();
        disk
    }

    /// Sets the checksum of the boot region and makes its backup.
    fn seal_boot(&mut self) {
        let mut sum = 0_u32;
        for (at, byte) in self.bytes[..11 * 512].iter().enumerate() {
            if ![106, 107, 112].contains(&at) {
                sum = sum.rotate_right(1).wrapping_add((*byte).into());
            }
        }
        for at in (11 * 512..12 * 512).step_by(4) {
            self.bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        }
        self.bytes.copy_within(..12 * 512, 12 * 512);
    }

    fn contents(&mut self) {
        let end = 0xFFFF_FFFF;
        let links = [(0, 0xFFFF_FFF8), (1, end), (2, 9), (9, end), (3, end), (4, end), (5, 7), (7, 6), (6, end)];
        for (cluster, value) in links {
            self.link(cluster, value);
        }
        self.link(14, 0xFFFF_FFF7);
        self.link(13, 77); // an old value: nobody follows it
        for cluster in (2..=9).chain(12..=15) {
            self.mark(cluster, true);
        }
        let mut label = plain(0x83, 5, 0, 0);
        for (at, unit) in (2..).step_by(2).zip("LABEL".encode_utf16()) {
            label[at..at + 2].copy_from_slice(&unit.to_le_bytes());
        }
        let bitmap = plain(0x81, 0, 2, self.clusters.div_ceil(8) as u64);
        let upcase = plain(0x82, 0, 3, 60);
        let file = set("FILE", false, 5, 1500, false);
        self.write(4, &[label, bitmap, upcase, file, set("DIR", true, 8, 512, true)].concat());
        self.write(8, &set("IN", false, 12, 700, true));
    }

    fn at(&self, cluster: usize) -> usize {
        self.heap + (cluster - 2) * 512
    }

    fn write(&mut self, cluster: usize, bytes: &[u8]) {
        let at = self.at(cluster);
        self.bytes[at..][..<[u8]>::len(bytes)].copy_from_slice(bytes);
    }

    fn link(&mut self, cluster: usize, value: u32) {
        self.bytes[self.fat + cluster * 4..][..4].copy_from_slice(&value.to_le_bytes());
    }

    /// Sets a cluster's bit in the bitmap, which is in clusters 2 and 9.
    fn mark(&mut self, cluster: usize, used: bool) {
        let (byte, bit) = ((cluster - 2) / 8, 1 << ((cluster - 2) % 8));
        let at = self.at(if byte < 512 { 2 } else { 9 }) + byte % 512;
        self.bytes[at] = if used { self.bytes[at] | bit } else { self.bytes[at] & !bit };
    }

    fn read(&self) -> Result<crate::volume::Volume, String> {
        if !Exfat.probe(&self.bytes).unwrap() {
            return Err("not exFAT".to_owned());
        }
        Exfat.read(&self.bytes, &[]).map_err(|e| e.to_string())
    }

    /// Free clusters by number.
    fn free(&self, map: &FreeMap) -> Vec<(usize, usize)> {
        let number = |at: u64| (at as usize - self.heap) / 512 + 2;
        map.ranges().iter().map(|r| (number(r.start()), number(r.end()))).collect()
    }

    /// What speaks against the map, in the order of `stack`: an error, a refusal, the witness.
    fn verdict(&self) -> Verdict {
        let volume = match self.read() {
            Ok(volume) => volume,
            Err(error) => return Verdict::Structure(error),
        };
        if let Some(finding) = volume.findings.iter().find(|f| f.weight == Weight::Refusal) {
            return Verdict::Structure(finding.message.clone());
        }
        match hear(Exfat.witnesses()[0], &self.bytes, &volume.free) {
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

#[test]
fn clear_bits_are_free_up_to_the_last_cluster() {
    let disk = Disk::new();
    let volume = disk.read().unwrap();
    assert_eq!(disk.free(&volume.free), [(10, 12), (16, disk.clusters + 2)]);
    assert_eq!(volume.uuid.as_deref(), Some("ABCD-1234"));
    assert_eq!(volume.label.as_deref(), Some("LABEL"));
    assert_eq!(volume.findings, []);
    let said = hear(Exfat.witnesses()[0], &disk.bytes, &volume.free);
    assert!(matches!(said, Testimony::Agrees { owners: 6, extents: 9, .. }), "{said:?}");
}

#[test]
fn a_bad_cluster_is_kept_even_if_its_bit_is_clear() {
    let mut disk = Disk::new();
    disk.mark(14, false);
    disk.link(4200, 0xFFFF_FFF7);
    let Verdict::Usable(map) = disk.verdict() else { panic!() };
    assert_eq!(disk.free(&map), [(10, 12), (16, 4200), (4201, disk.clusters + 2)]);
}

#[test]
fn state_flags_are_refused() {
    for (flag, words) in
        [(2, "not cleanly unmounted"), (4, "errors of the drive"), (1, "active FAT"), (0x10, "unknown")]
    {
        let mut disk = Disk::new();
        disk.bytes[106] = flag;
        assert!(disk.refusal().contains(words));
    }
    let mut disk = Disk::new();
    disk.bytes[106] = 8;
    assert!(matches!(disk.verdict(), Verdict::Usable(_)));
}

#[test]
fn the_fill_level_is_only_a_hint() {
    for (stated, warns) in [(0xFF, false), (0, false), (1, false), (50, true), (100, true), (101, false)] {
        let mut disk = Disk::new();
        disk.bytes[112] = stated;
        let volume = disk.read().unwrap();
        assert!(volume.is_usable());
        assert_eq!(volume.findings.len(), usize::from(warns), "{stated} {:?}", volume.findings);
    }
}

#[test]
fn a_wrong_checksum_of_the_boot_region_is_refused() {
    for at in [100, 400, 3 * 512, 11 * 512 - 1, 11 * 512, 12 * 512 - 1] {
        let mut disk = Disk::new();
        disk.bytes[at] ^= 1;
        assert!(disk.refusal().contains("checksum of the boot region"), "byte {at}");
    }
}

#[test]
fn the_backup_is_compared_and_never_used() {
    let mut disk = Disk::new();
    disk.bytes[12 * 512 + 200] ^= 1;
    let volume = disk.read().unwrap();
    assert!(volume.is_usable() && volume.findings[0].message.contains("backup"));
    // Flags and fill level of the backup are stale by design.
    let mut disk = Disk::new();
    disk.bytes[12 * 512 + 106] = 2;
    disk.bytes[12 * 512 + 112] = 7;
    assert_eq!(disk.read().unwrap().findings, []);
    // A sound backup that says something else: the volume was formatted twice, or half.
    let other = disk.bytes[12 * 512..24 * 512].to_vec();
    disk.bytes[100] ^= 1;
    disk.seal_boot();
    disk.bytes[12 * 512..24 * 512].copy_from_slice(&other);
    assert!(disk.refusal().contains("both have a valid checksum"));
}

/// `(offset, bytes, words of the refusal)`: one damaged field each, with a right checksum.
#[test]
fn impossible_boot_sectors_are_refused() {
    let cases: &[(usize, &[u8], &str)] = &[
        (3, b"NTFS    ", "not exFAT"),
        (11, &[1], "must be zero"),
        (63, &[1], "must be zero"),
        (72, &[0, 1, 0], "bytes of the volume"),
        (80, &[23], "first sector of the FAT"),
        (84, &[1], "bytes in the FAT"),
        (88, &[24], "first sector of the clusters"),
        (92, &[0; 4], "number of clusters"),
        (92, &[0xFF; 4], "number of clusters"),
        (92, &[0xFF, 0x1F], "bytes in the FAT"),
        (96, &[1], "first cluster of the root"),
        (96, &[0xFF; 4], "first cluster of the root"),
        (105, &[2], "revision 2.0"),
        (108, &[8], "log2 of the sector size"),
        (108, &[13], "log2 of the sector size"),
        (109, &[17], "clusters up to 32 MiB"),
        (110, &[0], "number of FATs"),
        (110, &[2], "TexFAT"),
        (110, &[3], "number of FATs"),
        (510, &[0], "boot signature"),
    ];
    for (at, bytes, words) in cases {
        let mut disk = Disk::new();
        disk.bytes[*at..][..<[u8]>::len(bytes)].copy_from_slice(bytes);
        disk.seal_boot();
        let why = disk.refusal();
        assert!(why.contains(words), "byte {at}: {why}");
    }
}

/// A change of a disk, and words of the refusal.
type Damage = (fn(&mut Disk), &'static str);

#[test]
fn damaged_structures_are_refused() {
    let cases: &[Damage] = &[
        (|d| d.link(0, 0xFFFF_FFF0), "FAT entry 0"),
        (|d| d.link(2, 0xFFFF_FFFF), "has 1 clusters; 2 are needed"),
        (|d| d.link(2, 0), "leads to cluster 0"),
        (|d| d.link(2, 0xFFFF_FFF7), "does not exist or is bad"),
        (|d| d.link(3, 0xFFFF_FFF7), "does not exist or is bad"),
        (|d| d.link(4, 1), "leads to cluster 1"),
        (|d| d.mark(2, false), "the allocation bitmap"),
        (|d| d.mark(9, false), "the allocation bitmap"),
        (|d| d.mark(3, false), "the up-case table"),
        (|d| d.mark(4, false), "the root directory"),
        (|d| d.write(4, &[0x03]), ""),
    ];
    for (damage, words) in cases {
        let mut disk = Disk::new();
        damage(&mut disk);
        match (disk.verdict(), *words) {
            (Verdict::Structure(why), words) if !words.is_empty() => assert!(why.contains(words), "{why}, not {words}"),
            (Verdict::Usable(_), "") => {}
            (other, words) => panic!("{words}: {other:?}"),
        }
    }
}

#[test]
fn the_root_directory_names_one_bitmap_and_one_table() {
    let cases: &[(usize, &[u8], &str)] = &[
        (32, &[0x01], "exactly one entry for the allocation bitmap"),
        (32, &[0x82], "exactly one entry for the up-case table"),
        (64, &[0x02], "exactly one entry for the up-case table"),
        (64, &[0x81], "exactly one entry for the allocation bitmap"),
        (33, &[1], "TexFAT"),
        (32 + 24, &[0, 1], "bytes of the bitmap"),
    ];
    for (at, bytes, words) in cases {
        let mut disk = Disk::new();
        let at = disk.at(4) + at;
        disk.bytes[at..][..<[u8]>::len(bytes)].copy_from_slice(bytes);
        let why = disk.refusal();
        assert!(why.contains(words), "{why}, not {words}");
    }
}

#[test]
fn the_witness_convicts() {
    let cases: &[Damage] = &[
        (|d| d.mark(7, false), "/FILE is free"),
        (|d| d.mark(13, false), "/DIR/IN is free"),
        (|d| d.mark(8, false), "/DIR is free"),
        (
            |d| {
                d.link(7, 12);
                d.link(12, u32::MAX);
            },
            "/DIR/IN: its cluster 12 already has an owner",
        ),
        (|d| d.link(6, 5), "/FILE: its cluster 5 already has an owner"),
        (|d| d.link(6, 0), "/FILE: its chain breaks off at cluster 6"),
        (|d| d.link(7, 0xFFFF_FFFF), "need 3 clusters, its chain has 2"),
        (
            |d| {
                d.link(6, 10);
                d.link(10, u32::MAX);
                d.mark(10, true);
            },
            "need 3 clusters, its chain goes on: it has 4",
        ),
        (|d| d.write(8, &set("IN", false, 15, 1000, true)), "/DIR/IN is free"),
        (|d| d.write(8, &set("IN", false, 4203, 1100, true)), "/DIR/IN is free"),
        (|d| d.write(8, &set("IN", false, 12, 1 << 40, true)), "/DIR/IN is free"),
        (|d| d.write(8, &set("IN", false, 0, 100, false)), "cluster 0 does not exist"),
        (|d| d.write(8, &set("AGAIN", true, 8, 512, true)), "/DIR/AGAIN: its cluster 8 already has an owner"),
        (|d| d.bytes[d.heap + 6 * 512 + 64] = 0x41, "secondary entries are missing"),
        (|d| d.write(8, &set("IN", false, 12, 700, true)[32..]), "without its primary entry"),
        (|d| d.bytes[d.heap + 6 * 512 + 70] ^= 1, "the checksum of a set"),
        (|d| d.write(8, &[0x86, 0]), "unknown critical entry"),
        (|d| d.write(8, &[0x85, 1]), "impossible number"),
        (
            |d| {
                let mut entries = set("IN", false, 12, 700, true);
                entries[40] = 0xFF;
                seal(&mut entries);
                d.write(8, &entries);
            },
            "more valid data than data",
        ),
        (
            |d| {
                let mut entries = set("IN", false, 12, 700, true);
                entries[64] = 0xC2;
                seal(&mut entries);
                d.write(8, &entries);
            },
            "unknown critical secondary",
        ),
        (
            // A vendor's benign entry may hold clusters, too.
            |d| {
                let mut entries = set("IN", false, 12, 700, true);
                entries.extend(plain(0xE1, 3, 11, 40));
                entries[1] = 3;
                seal(&mut entries);
                d.write(8, &entries);
            },
            "/DIR/IN is free",
        ),
    ];
    for (damage, words) in cases {
        let mut disk = Disk::new();
        damage(&mut disk);
        match disk.verdict() {
            Verdict::Witness(why) => assert!(why.contains(words), "{why}, not {words}"),
            other => panic!("{words}: {other:?}"),
        }
    }
}

#[test]
fn deleted_entries_own_nothing() {
    let mut disk = Disk::new();
    let mut entries = set("IN", false, 12, 700, true);
    for at in [0, 32, 64] {
        entries[at] &= 0x7F;
    }
    disk.write(8, &entries);
    disk.mark(12, false);
    disk.mark(13, false);
    let Verdict::Usable(map) = disk.verdict() else { panic!("{:?}", disk.verdict()) };
    assert_eq!(disk.free(&map), [(10, 14), (16, disk.clusters + 2)]);
}

/// Flips bits of everything that the reader and the witness read. The boot region has a checksum, the bitmap has
/// none: there the witness is all there is. A lost cluster, which no file owns, and the bad one may become free.
#[test]
fn flips() {
    let step = crate::sampling::every(211);
    let mut disk = Disk::new();
    let recording = Recording::new(&disk.bytes, u64::MAX);
    Exfat.read(&recording, &[]).unwrap();
    let mut read = recording.take();
    read.extend(ByteRange::with_len(disk.at(8) as u64, 512));
    let places: std::collections::BTreeSet<u64> = read.iter().flat_map(|r| r.start()..r.end()).collect();
    let owned: Vec<ByteRange> = (2..=13)
        .filter(|cluster| ![10, 11].contains(cluster))
        .map(|cluster| ByteRange::with_len(disk.at(cluster) as u64, 512).unwrap())
        .chain(ByteRange::new(0, disk.heap as u64))
        .collect();
    let (mut structure, mut witness, mut harmless) = (0, 0, 0);
    for at in places {
        // Most of a volume that is nearly empty is alike.
        if at > 128 && disk.bytes[at as usize] == 0 && at % step != 0 {
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
                        assert_eq!(map.clash(*range), None, "byte {at:#x}, bit {bit}");
                    }
                }
            }
            disk.bytes[at as usize] ^= 1 << bit;
        }
    }
    println!("exFAT: {structure} refused by structure, {witness} by the witness, {harmless} harmless");
    assert!(structure > 1000 && witness > 100);
}

/// 1 TiB with clusters of 128 KiB: the bitmap is 1 MiB, and where something is free, the FAT is searched for bad
/// clusters. Everything used: the FAT is not read.
#[test]
fn reads_little() {
    let mut disk = Disk::new();
    let read = |disk: &Disk| {
        let recording = Recording::new(&disk.bytes, u64::MAX);
        Exfat.read(&recording, &[]).unwrap();
        recording.take().iter().map(|range| range.len()).sum::<u64>()
    };
    let empty = read(&disk);
    for cluster in 2..disk.clusters + 2 {
        disk.mark(cluster, true);
    }
    let full = read(&disk);
    assert_eq!(empty - full, 4 * disk.clusters as u64);
    assert!(full < 24 * 512 + 4096, "{full} bytes read");
    assert!(Source::len(&disk.bytes) > 2_000_000);
}
