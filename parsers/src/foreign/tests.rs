use super::*;
use crate::fs::FORMATS;
use proptest::prelude::*;

const LEN: usize = 4 << 20;

/// Writes what a [`Check`] looks for.
type Writer = fn(&mut [u8]);

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

fn zfs_label(bytes: &mut [u8], label: usize) {
    put(bytes, label + (16 << 10), &[1, 1, 0, 0]);
    put(bytes, label + (16 << 10) + 20, b"\0\0\0\x07version");
}

fn md_0_90(bytes: &mut [u8], magic: [u8; 4], kib: [u8; 4]) {
    put(bytes, LEN - 65_536, &magic);
    put(bytes, LEN - 65_536 + 32, &kib);
}

/// One or more writers for every row with a check.
const WRITERS: &[(&str, Writer)] = &[
    ("Linux RAID (md 1.0)", |b| {
        put(b, LEN - 8192, b"\xFC\x4E\x2B\xA9\x01");
        put(b, LEN - 8192 + 0x90, &(((LEN - 8192) / 512) as u64).to_le_bytes());
    }),
    ("Linux RAID (md 0.90)", |b| md_0_90(b, 0xA92B_4EFC_u32.to_le_bytes(), 4032_u32.to_le_bytes())),
    ("Linux RAID (md 0.90)", |b| md_0_90(b, 0xA92B_4EFC_u32.to_be_bytes(), 4032_u32.to_be_bytes())),
    ("Linux RAID (md 0.90)", |b| md_0_90(b, 0xA92B_4EFC_u32.to_le_bytes(), 0_u32.to_le_bytes())),
    ("VIA RAID", |b| {
        put(b, LEN - 512, &[0x55, 0xAA, 1, 7]);
        put(b, LEN - 512 + 50, &[0x55_u8.wrapping_add(0xAA).wrapping_add(8)]);
    }),
    ("Adaptec HostRAID", |b| {
        put(b, LEN - 512, &[0x37, 0xFC, 0x4D, 0x1E]);
        put(b, LEN - 300, b"DPTM");
    }),
    ("JMicron RAID", |b| {
        put(b, LEN - 512, b"JM");
        put(b, LEN - 500, &0_u16.wrapping_sub(u16::from_le_bytes(*b"JM")).to_le_bytes());
    }),
    ("Apple RAID", |b| put(b, LEN - 4096, b"AppleRAIDHeader\0")),
    ("ZFS", |b| zfs_label(b, 0)),
    ("ZFS", |b| zfs_label(b, 256 << 10)),
    ("ZFS", |b| zfs_label(b, LEN - (512 << 10))),
    ("ZFS", |b| zfs_label(b, LEN - (256 << 10))),
    ("Core Storage", |b| {
        put(b, 8, &[1, 0, 0x10, 0]);
        put(b, 88, b"CS");
    }),
    ("HFS (before HFS+)", |b| {
        put(b, 1024, b"BD");
        put(b, 1024 + 0x14, &4096_u32.to_be_bytes());
    }),
    ("UFS", |b| put(b, 8192 + 1372, &0x0001_1954_u32.to_le_bytes())),
    ("UFS", |b| put(b, 65_536 + 1372, &0x1954_0119_u32.to_le_bytes())),
    ("UFS", |b| put(b, 262_144 + 1372, &0x1954_0119_u32.to_be_bytes())),
    ("UDF", |b| {
        put(b, 0x8001, b"BEA01");
        put(b, 0x8801, b"NSR02");
    }),
    ("UDF", |b| {
        put(b, 0x8001, b"CD001"); // a bridge disc is both
        put(b, 0xA001, b"NSR03");
    }),
    ("ISO 9660", |b| put(b, 0x8001, b"CD001")),
    ("Minix", |b| {
        put(b, 1024, &[0x60, 1, 0, 4, 1, 0, 1, 0, 15, 0]);
        put(b, 1040, &[0x8F, 0x13]);
    }),
    ("Minix", |b| {
        put(b, 1024 + 6, &[1, 0, 1, 0, 15, 0]);
        put(b, 1048, &[0x5A, 0x4D]);
    }),
    ("Sun disk label", |b| put(b, 506, &[0xDA, 0xBE, 0xDA, 0xBE])),
    ("Linux swap", |b| put(b, 4086, b"SWAPSPACE2")),
    ("Linux swap", |b| put(b, 65_526, b"SWAPSPACE2")),
    ("Linux swap", |b| put(b, 16_374, b"SWAP-SPACE")),
    ("suspend image", |b| put(b, 4086, b"S1SUSPEND\0")),
    ("suspend image", |b| put(b, 8182, b"LINHIB0001")),
    ("suspend image", |b| put(b, 4086, &[0xED, 0xC3, 0x02, 0xE9, 0x98, 0x56, 0xE5, 0x0C])),
];

/// Names of the rows that see something.
fn seen(bytes: &[u8]) -> Vec<&'static str> {
    FOREIGN.iter().filter(|row| row.probe(&bytes).unwrap()).map(|row| row.name).collect()
}

#[test]
fn every_mark_is_seen_by_its_row_alone() {
    for row in FOREIGN {
        for (place, magic) in row.marks {
            let mut bytes = vec![0; LEN];
            let at = match place {
                Place::Start(at) => *at as usize,
                Place::End(back) => LEN - *back as usize,
            };
            put(&mut bytes, at, magic);
            assert_eq!(seen(&bytes), [row.name], "{place:?}");
            bytes[at] ^= 1;
            assert_eq!(seen(&bytes), [""; 0], "{} with one bit changed at {place:?}", row.name);
        }
    }
}

#[test]
fn every_check_is_met_by_its_row_alone() {
    for (name, write) in WRITERS {
        let mut bytes = vec![0; LEN];
        write(&mut bytes);
        assert_eq!(seen(&bytes), [*name]);
    }
}

#[test]
fn every_row_is_tested_and_helps() {
    for row in FOREIGN {
        let written = WRITERS.iter().any(|(name, _)| *name == row.name);
        assert_eq!(row.check.is_some(), written, "{}", row.name);
        assert!(written || !row.marks.is_empty(), "{}", row.name);
        assert!(row.advice.len() > 20, "{}", row.name);
        assert_eq!(FOREIGN.iter().filter(|other| other.name == row.name).count(), 1, "{}", row.name);
        assert!(FORMATS.iter().all(|format| format.name() != row.name), "{}", row.name);
    }
}

/// A record of a partition that ends with the disk lies where the disk's own would, but states its place or size.
#[test]
fn the_record_of_the_last_partition_is_not_the_disks() {
    let mut bytes = vec![0; 64 << 20];
    let (start, sectors) = (40_u32 << 11, (24_u32 << 11)); // 40 MiB in, up to the end
    put(&mut bytes, 446 + 4, &[0xFD]);
    put(&mut bytes, 446 + 8, &start.to_le_bytes());
    put(&mut bytes, 446 + 12, &sectors.to_le_bytes());
    put(&mut bytes, 510, &[0x55, 0xAA]);
    let record = bytes.len() - 65_536;
    put(&mut bytes, record, &0xA92B_4EFC_u32.to_le_bytes());
    put(&mut bytes, record + 32, &((24_u32 << 10) - 64).to_le_bytes());
    assert_eq!(seen(&bytes), [""; 0], "the disk");
    assert_eq!(seen(&bytes[40 << 20..]), ["Linux RAID (md 0.90)"], "the partition");
    bytes[510] = 0;
    assert_eq!(seen(&bytes), ["Linux RAID (md 0.90)"], "a disk without table");

    let mut bytes = vec![0; 64 << 20];
    let record = bytes.len() - 8192;
    put(&mut bytes, record, b"\xFC\x4E\x2B\xA9\x01");
    put(&mut bytes, record + 0x90, &(((24_u64 << 20) - 8192) / 512).to_le_bytes());
    assert_eq!(seen(&bytes), [""; 0], "the disk");
    assert_eq!(seen(&bytes[40 << 20..]), ["Linux RAID (md 1.0)"], "the partition");
}

/// A superblock of ext whose counter of free inodes equals Minix' magic number.
#[test]
fn ext_is_not_minix() {
    let mut bytes = vec![0; LEN];
    put(&mut bytes, 1024, &[0x60, 1, 0, 4, 1, 0, 1, 0, 15, 0]);
    put(&mut bytes, 1040, &[0x8F, 0x13]);
    put(&mut bytes, 1080, &[0x53, 0xEF]);
    assert_eq!(seen(&bytes), [""; 0]);
}

/// HFS+ inside of HFS is not HFS.
#[test]
fn a_wrapper_is_not_classic_hfs() {
    let mut bytes = vec![0; LEN];
    put(&mut bytes, 1024, b"BD");
    put(&mut bytes, 1024 + 0x14, &4096_u32.to_be_bytes());
    put(&mut bytes, 1024 + 0x7C, b"H+");
    assert_eq!(seen(&bytes), [""; 0]);
}

proptest! {
    /// Sizes around every distance from the end: no panic, no read past the end.
    #[test]
    fn short_sources_are_nothing(len in 0usize..20_000) {
        let bytes = vec![0; len];
        prop_assert_eq!(seen(&bytes), [""; 0]);
    }

    /// Noise is nobody's.
    #[test]
    fn noise_is_nothing(seed: u64) {
        let mut state = seed;
        let bytes: Vec<u8> = (0..300_000).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        }).collect();
        prop_assert_eq!(seen(&bytes), [""; 0]);
    }
}

/// Header words of a swap area of `pages` pages of `page` bytes, in the byte order that `word` writes.
fn swap_area(page: usize, pages: usize, bad: &[u32], word: fn(u32) -> [u8; 4]) -> Vec<u8> {
    let mut area = vec![0; page * pages];
    put(&mut area, page - 10, b"SWAPSPACE2");
    let words = [1, u32::try_from(pages - 1).unwrap(), u32::try_from(bad.len()).unwrap()];
    for (at, value) in (1024..).step_by(4).zip(words).chain((1536..).step_by(4).zip(bad.iter().copied())) {
        put(&mut area, at, &word(value));
    }
    area
}

#[test]
fn the_body_of_swap_is_all_but_its_header_and_its_bad_pages() {
    let pages = |area: &Vec<u8>, page: u64| -> Vec<(u64, u64)> {
        let body = volumes::swap_body(area).unwrap();
        body.iter().map(|range| (range.start() / page, range.end() / page)).collect()
    };
    for word in [u32::to_le_bytes, u32::to_be_bytes] {
        for page in [4096, 8192, 16_384, 32_768, 65_536] {
            let size = page as u64;
            assert_eq!(pages(&swap_area(page, 20, &[], word), size), [(1, 20)]);
            assert_eq!(pages(&swap_area(page, 20, &[19, 5, 6, 1], word), size), [(2, 5), (7, 19)]);
        }
        let mut longer = swap_area(4096, 20, &[], word);
        longer.extend([0; 4096]);
        assert_eq!(pages(&longer, 4096), [(1, 20)], "what is behind the last page is not swap's");
        longer.truncate(19 * 4096);
        assert_eq!(pages(&longer, 4096), [], "a part of something larger");
        let mut strange = swap_area(4096, 20, &[], word);
        put(&mut strange, 1024, &word(2));
        assert_eq!(pages(&strange, 4096), [], "another version");
        put(&mut strange, 1024, &word(1));
        put(&mut strange, 1032, &word(5000));
        assert_eq!(pages(&strange, 4096), [], "more bad pages than there is room for");
    }
}
