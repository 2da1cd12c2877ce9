//! A small NTFS image is made in memory, byte by byte; then one thing is changed and one answer expected.

use super::Ntfs;
use crate::free_map::FreeMap;
use crate::fs::Format;
use crate::units::ByteRange;
use crate::volume::{Consent, Volume, Weight};
use crate::witness::{Testimony, hear};

/// What to make.
#[derive(Clone)]
struct Spec {
    sector: u64,
    cluster: u64,
    clusters: u64,
    /// Into how many runs $Bitmap is cut, with a cluster of somebody else's between them.
    bitmap_runs: u64,
    /// How many of those runs are described by a second record, through an attribute list.
    bitmap_extension: bool,
    list_outside: bool,
    /// $MFT's second half is described by record 15.
    mft_extension: bool,
    /// The content of hiberfil.sys.
    hibernation: Option<Vec<u8>>,
    hibernation_in_block: bool,
    log: Vec<u8>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            sector: 512,
            cluster: 4096,
            clusters: 199,
            bitmap_runs: 1,
            bitmap_extension: false,
            list_outside: false,
            mft_extension: false,
            hibernation: None,
            hibernation_in_block: false,
            log: vec![0xFF; 16384],
        }
    }
}

const RECORD: u64 = 1024;
const RECORDS: u64 = 32;

type Runs = Vec<(Option<u64>, u64)>;

/// The image in the making.
struct Maker {
    spec: Spec,
    bytes: Vec<u8>,
    bits: Vec<u8>,
    next: u64,
    records: Vec<Option<Vec<u8>>>,
}

fn pad8(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn resident(kind: u32, name: &str, value: &[u8]) -> Vec<u8> {
    let name = super::mft::utf16(name);
    let mut out = kind.to_le_bytes().to_vec();
    let at = (24 + name.len()).next_multiple_of(8);
    out.extend(((at + value.len()).next_multiple_of(8) as u32).to_le_bytes());
    out.extend([0, (name.len() / 2) as u8, 24, 0, 0, 0, 0, 0]);
    out.extend((value.len() as u32).to_le_bytes());
    out.extend((at as u16).to_le_bytes());
    out.extend([0, 0]);
    out.extend(&name);
    out.resize(at, 0);
    out.extend(value);
    pad8(out)
}

fn pack(runs: &Runs) -> Vec<u8> {
    let (mut out, mut last) = (Vec::new(), 0_i64);
    for (lcn, count) in runs {
        match lcn {
            Some(lcn) => {
                out.push(0x44);
                out.extend((*count as u32).to_le_bytes());
                out.extend(((*lcn as i64 - last) as i32).to_le_bytes());
                last = *lcn as i64;
            }
            None => {
                out.push(0x04);
                out.extend((*count as u32).to_le_bytes());
            }
        }
    }
    out.push(0);
    out
}

fn outside(kind: u32, name: &str, lowest: u64, runs: &Runs, allocated: u64, data: u64) -> Vec<u8> {
    let name = super::mft::utf16(name);
    let packed = pack(runs);
    let at = (64 + name.len()).next_multiple_of(8);
    let count: u64 = runs.iter().map(|run| run.1).sum();
    let mut out = kind.to_le_bytes().to_vec();
    out.extend(((at + packed.len()).next_multiple_of(8) as u32).to_le_bytes());
    out.extend([1, (name.len() / 2) as u8, 64, 0, 0, 0, 0, 0]);
    out.extend(lowest.to_le_bytes());
    out.extend((lowest + count).wrapping_sub(1).to_le_bytes());
    out.extend((at as u64).to_le_bytes()); // runs offset, compression unit 0, padding
    out.extend(allocated.to_le_bytes());
    out.extend(data.to_le_bytes());
    out.extend(data.to_le_bytes());
    out.extend(&name);
    out.resize(at, 0);
    out.extend(packed);
    pad8(out)
}

fn list(entries: &[(u32, u64, u64)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (kind, lowest, record) in entries {
        out.extend(kind.to_le_bytes());
        out.extend([32, 0, 0, 26]);
        out.extend(lowest.to_le_bytes());
        out.extend((record | 1 << 48).to_le_bytes());
        out.extend([0; 8]);
    }
    out
}

fn file_name(name: &str, parent: u64) -> Vec<u8> {
    let mut value = (parent | 1 << 48).to_le_bytes().to_vec();
    value.resize(64, 0);
    value.extend([name.len() as u8, 1]);
    value.extend(super::mft::utf16(name));
    value
}

/// Stamps the strides of a record or block, whose array of `len / 512 + 1` words is at `usa`.
fn seal(bytes: &mut [u8], usa: usize) {
    let strides = bytes.len() / 512;
    bytes[4..6].copy_from_slice(&(usa as u16).to_le_bytes());
    bytes[6..8].copy_from_slice(&(strides as u16 + 1).to_le_bytes());
    bytes[usa..usa + 2].copy_from_slice(&[7, 0]);
    for i in 0..strides {
        let tail = i * 512 + 510;
        let saved = [bytes[tail], bytes[tail + 1]];
        bytes[usa + 2 + 2 * i..usa + 4 + 2 * i].copy_from_slice(&saved);
        bytes[tail..tail + 2].copy_from_slice(&[7, 0]);
    }
}

fn record(number: u64, base: u64, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![0; RECORD as usize];
    out[..4].copy_from_slice(b"FILE");
    out[16..18].copy_from_slice(&[1, 0]);
    out[20..22].copy_from_slice(&[56, 0]);
    out[22] = 1;
    out[28..32].copy_from_slice(&(RECORD as u32).to_le_bytes());
    out[32..40].copy_from_slice(&base.to_le_bytes());
    out[44..48].copy_from_slice(&(number as u32).to_le_bytes());
    let mut at = 56;
    for attribute in attributes {
        out[at..at + attribute.len()].copy_from_slice(attribute);
        at += attribute.len();
    }
    out[at..at + 4].fill(0xFF);
    out[24..28].copy_from_slice(&(at as u32 + 8).to_le_bytes());
    seal(&mut out, 48);
    out
}

fn index_entry(file: u64, name: &str, last: bool) -> Vec<u8> {
    let key = if last { Vec::new() } else { file_name(name, 5) };
    let mut out = (file | 1 << 48).to_le_bytes().to_vec();
    out.extend(((16 + key.len()).next_multiple_of(8) as u16).to_le_bytes());
    out.extend((key.len() as u16).to_le_bytes());
    out.extend([if last { 2 } else { 0 }, 0, 0, 0]);
    out.extend(key);
    pad8(out)
}

/// A list of index entries behind its header; `gap` bytes lie between them.
fn index_list(entries: &[u8], gap: u32) -> Vec<u8> {
    let mut out = (16 + gap).to_le_bytes().to_vec();
    out.extend((16 + gap + entries.len() as u32).to_le_bytes());
    out.extend((16 + gap + entries.len() as u32).to_le_bytes());
    out.extend([0; 4]);
    out.resize(16 + gap as usize, 0);
    out.extend(entries);
    out
}

impl Maker {
    fn take(&mut self, count: u64) -> u64 {
        let first = self.next;
        self.next += count;
        (first..self.next).for_each(|lcn| self.bits[lcn as usize / 8] |= 1 << (lcn % 8));
        first
    }

    fn clusters_for(&self, len: usize) -> u64 {
        (len as u64).div_ceil(self.spec.cluster).max(1)
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.bytes[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    /// Stores a value in new clusters and describes it.
    fn store(&mut self, kind: u32, name: &str, value: &[u8]) -> Vec<u8> {
        let count = self.clusters_for(value.len());
        let lcn = self.take(count);
        self.put(lcn * self.spec.cluster, value);
        outside(kind, name, 0, &vec![(Some(lcn), count)], count * self.spec.cluster, value.len() as u64)
    }

    fn set(&mut self, number: u64, attributes: &[Vec<u8>]) {
        self.records[number as usize] = Some(record(number, 0, attributes));
    }

    fn root(&mut self) {
        let mut entries = Vec::new();
        if self.spec.hibernation.is_some() {
            entries.extend(index_entry(24, "HiberFil.sys", false));
        }
        entries.extend(index_entry(0, "", true));
        let in_block = self.spec.hibernation_in_block;
        let here = if in_block { index_entry(0, "", true) } else { entries.clone() };
        let mut value = vec![0x30, 0, 0, 0, 1, 0, 0, 0, 0, 16, 0, 0, 1, 0, 0, 0];
        value.extend(index_list(&here, 0));
        let mut attributes = vec![resident(0x30, "", &file_name(".", 5)), resident(0x90, "$I30", &value)];
        if in_block {
            let mut block = b"INDX".to_vec();
            block.resize(24, 0);
            block.extend(index_list(&entries, 24));
            block.resize(4096, 0);
            seal(&mut block, 40);
            attributes.push(self.store(0xA0, "$I30", &[vec![0xAA; 4096], block].concat()));
            attributes.push(resident(0xB0, "$I30", &[2, 0, 0, 0, 0, 0, 0, 0]));
        }
        self.set(5, &attributes);
    }

    fn bitmap(&mut self) -> Vec<u64> {
        let data = self.spec.clusters.div_ceil(8).next_multiple_of(8);
        let runs: Runs = (0..self.spec.bitmap_runs)
            .map(|_| {
                let lcn = self.take(1);
                self.take(1);
                (Some(lcn), 1)
            })
            .collect();
        let cluster = self.spec.cluster;
        let allocated = runs.len() as u64 * cluster;
        let places: Vec<u64> = runs.iter().map(|run| run.0.unwrap() * cluster).collect();
        if self.spec.bitmap_extension {
            let (a, b) = runs.split_at(1);
            let content = list(&[(0x80, 0, 6), (0x80, 1, 25)]);
            let list =
                if self.spec.list_outside { self.store(0x20, "", &content) } else { resident(0x20, "", &content) };
            self.set(6, &[list, outside(0x80, "", 0, &a.to_vec(), allocated, data)]);
            self.records[25] = Some(record(25, 6 | 1 << 48, &[outside(0x80, "", 1, &b.to_vec(), 0, 0)]));
        } else {
            self.set(6, &[outside(0x80, "", 0, &runs, allocated, data)]);
        }
        places
    }

    fn mft(&mut self) -> Runs {
        let per = (RECORDS * RECORD).div_ceil(self.spec.cluster);
        if !self.spec.mft_extension {
            return vec![(Some(self.take(per)), per)];
        }
        let first = self.take(per / 2);
        self.take(3);
        vec![(Some(first), per / 2), (Some(self.take(per - per / 2)), per - per / 2)]
    }

    fn mft_records(&mut self, runs: &Runs) {
        let (allocated, data) = (runs.iter().map(|r| r.1).sum::<u64>() * self.spec.cluster, RECORDS * RECORD);
        if runs.len() == 1 {
            return self.set(0, &[outside(0x80, "", 0, runs, allocated, data)]);
        }
        let list = resident(0x20, "", &list(&[(0x80, 0, 0), (0x80, runs[0].1, 15)]));
        self.set(0, &[list, outside(0x80, "", 0, &vec![runs[0]], allocated, data)]);
        self.records[15] = Some(record(15, 1 << 48, &[outside(0x80, "", runs[0].1, &vec![runs[1]], 0, 0)]));
    }
}

fn boot(spec: &Spec, mft: u64, mirror: u64) -> Vec<u8> {
    let mut out = vec![0; 512];
    out[..11].copy_from_slice(b"\xEB\x52\x90NTFS    ");
    out[11..13].copy_from_slice(&(spec.sector as u16).to_le_bytes());
    let per = spec.cluster / spec.sector;
    out[13] = if per <= 128 { per as u8 } else { (256 - u64::from(per.ilog2())) as u8 };
    out[40..48].copy_from_slice(&(spec.clusters * per).to_le_bytes());
    out[48..56].copy_from_slice(&mft.to_le_bytes());
    out[56..64].copy_from_slice(&mirror.to_le_bytes());
    out[64] = 0xF6; // 1 << 10
    out[68] = 0xF4;
    out[72..80].copy_from_slice(&0x0123_4567_89AB_CDEF_u64.to_le_bytes());
    out[510..].copy_from_slice(&[0x55, 0xAA]);
    out
}

/// The image, and the free ranges that it ought to have.
fn make(spec: &Spec) -> (Vec<u8>, Vec<ByteRange>) {
    let size = spec.clusters * spec.cluster + spec.sector;
    let mut maker = Maker {
        spec: spec.clone(),
        bytes: vec![0; size as usize],
        bits: vec![0; spec.clusters as usize / 8 + 9],
        next: 0,
        records: vec![None; RECORDS as usize],
    };
    maker.take(8192_u64.div_ceil(spec.cluster));
    maker.next += 1; // a free cluster
    let mft = maker.mft();
    let mirror_clusters = maker.clusters_for(4096);
    let mirror = maker.take(mirror_clusters);
    maker.mft_records(&mft);
    let mirror_runs = vec![(Some(mirror), mirror_clusters)];
    maker.set(1, &[outside(0x80, "", 0, &mirror_runs, mirror_clusters * spec.cluster, 4096)]);
    let log = maker.store(0x80, "", &spec.log.clone());
    maker.set(2, &[log]);
    let information = [0, 0, 0, 0, 0, 0, 0, 0, 3, 1, 0, 0];
    maker.set(3, &[resident(0x60, "", &super::mft::utf16("name")), resident(0x70, "", &information)]);
    maker.set(4, &[]);
    maker.root();
    let places = maker.bitmap();
    maker.set(
        7,
        &[outside(
            0x80,
            "",
            0,
            &vec![(Some(0), 8192_u64.div_ceil(spec.cluster))],
            8192_u64.next_multiple_of(spec.cluster),
            8192,
        )],
    );
    let bad = maker.next + 1; // bad, but not marked used
    let holes = vec![(None, bad), (Some(bad), 1), (None, spec.clusters - bad - 1)];
    maker.set(8, &[resident(0x80, "", &[]), outside(0x80, "$Bad", 0, &holes, spec.clusters * spec.cluster, 0)]);
    (9..15).for_each(|number| maker.set(number, &[]));
    if maker.records[15].is_none() {
        maker.set(15, &[]);
    }
    if let Some(content) = &spec.hibernation {
        let content = content.clone();
        let data = if content.len() < 700 { resident(0x80, "", &content) } else { maker.store(0x80, "", &content) };
        maker.set(24, &[resident(0x30, "", &file_name("hiberfil.sys", 5)), data]);
    }
    maker.next = bad + 3;
    let file = maker.store(0x80, "", b"a file");
    maker.set(26, &[resident(0x30, "", &file_name("file.txt", 27)), file]);
    maker.set(27, &[resident(0x30, "", &file_name("folder", 5))]);
    finish(maker, &mft, mirror, &places, bad)
}

fn finish(mut maker: Maker, mft: &Runs, mirror: u64, places: &[u64], bad: u64) -> (Vec<u8>, Vec<ByteRange>) {
    let spec = maker.spec.clone();
    let table: Vec<u8> = maker.records.iter().flat_map(|r| r.clone().unwrap_or(vec![0; RECORD as usize])).collect();
    let mut rest = table.as_slice();
    for (lcn, count) in mft {
        let (now, later) = rest.split_at(((count * spec.cluster) as usize).min(rest.len()));
        maker.put(lcn.unwrap() * spec.cluster, now);
        rest = later;
    }
    maker.put(mirror * spec.cluster, &table[..4096]);
    let boot = boot(&spec, mft[0].0.unwrap(), mirror);
    maker.put(0, &boot);
    let end = spec.clusters * spec.cluster;
    maker.put(end, &boot);
    let bits = maker.bits.clone();
    let needed = &bits[..spec.clusters.div_ceil(8) as usize];
    for (place, piece) in places.iter().zip(needed.chunks(spec.cluster as usize)) {
        maker.put(*place, piece);
    }
    let mut free: Vec<ByteRange> = Vec::new();
    for lcn in (0..spec.clusters).filter(|lcn| bits[*lcn as usize / 8] >> (lcn % 8) & 1 == 0 && *lcn != bad) {
        let range = ByteRange::with_len(lcn * spec.cluster, spec.cluster).unwrap();
        match free.last_mut().filter(|last| last.end() == range.start()) {
            Some(last) => *last = ByteRange::new(last.start(), range.end()).unwrap(),
            None => free.push(range),
        }
    }
    (maker.bytes, free)
}

fn read(image: &[u8]) -> Result<Volume, String> {
    Ntfs.read(&image, &[]).map_err(|e| e.to_string())
}

fn assert_reads(spec: &Spec) -> Vec<u8> {
    let (image, free) = make(spec);
    let volume = read(&image).unwrap();
    assert_eq!(volume.findings, []);
    assert_eq!(volume.free.ranges(), free);
    for witness in Ntfs.witnesses() {
        let words = hear(*witness, &image, &volume.free);
        let silent = spec.mft_extension && witness.name() == "ntfs-crate";
        match words {
            Testimony::Agrees { owners, extents, .. } => assert!(owners > 10 && extents > 6 && !silent),
            Testimony::Absent { .. } if silent => {}
            other => panic!("{other:?}"),
        }
    }
    image
}

/// The volume is refused, and the message holds `words`.
fn assert_refused(image: &[u8], words: &str) {
    let message = match read(image) {
        Err(message) => message,
        Ok(volume) => {
            assert!(!volume.is_usable(), "{words}: {:?}", volume.findings);
            volume.findings.iter().map(|finding| finding.message.as_str()).collect::<Vec<_>>().join("\n")
        }
    };
    assert!(message.contains(words), "{message:?} does not speak of {words:?}");
}

fn mft_at(image: &[u8]) -> usize {
    u64::from_le_bytes(image[48..56].try_into().unwrap()) as usize * 4096
}

/// Changes the restored bytes of a record (default spec), stamps it again, and does the same to the mirror.
fn change(image: &mut [u8], number: usize, f: impl Fn(&mut [u8])) {
    let mirror = u64::from_le_bytes(image[56..64].try_into().unwrap()) as usize * 4096;
    let mut places = vec![mft_at(image) + number * 1024];
    if number < 4 {
        places.push(mirror + number * 1024);
    }
    for at in places {
        let record = &mut image[at..at + 1024];
        for i in 0..2 {
            let saved = [record[50 + 2 * i], record[51 + 2 * i]];
            record[i * 512 + 510..i * 512 + 512].copy_from_slice(&saved);
        }
        f(record);
        seal(record, 48);
    }
}

/// The same for the first non-resident attribute of a record.
fn change_outside(image: &mut [u8], number: usize, f: impl Fn(&mut [u8])) {
    change(image, number, |record| {
        let mut at = 56;
        while record[at + 8] == 0 {
            at += u32::from_le_bytes(record[at + 4..at + 8].try_into().unwrap()) as usize;
        }
        f(&mut record[at..]);
    });
}

fn mutated(f: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut image = make(&Spec::default()).0;
    f(&mut image);
    image
}

#[test]
fn a_clean_volume_is_read() {
    let image = assert_reads(&Spec::default());
    let volume = read(&image).unwrap();
    assert_eq!(volume.uuid.as_deref(), Some("0123456789ABCDEF"));
    assert_eq!(volume.label.as_deref(), Some("name"));
    assert_eq!((volume.block_size, volume.size), (4096, 199 * 4096 + 512));
}

#[test]
fn every_size_of_sector_and_cluster() {
    for (sector, cluster, clusters) in [
        (512, 512, 1003),
        (512, 1024, 999),
        (1024, 2048, 200),
        (4096, 4096, 150),
        (512, 65536, 71),
        (4096, 65536, 65),
        (512, 1 << 20, 31),
        (4096, 2 << 20, 23),
    ] {
        assert_reads(&Spec { sector, cluster, clusters, ..Spec::default() });
    }
}

#[test]
fn bits_behind_the_last_cluster_mean_nothing() {
    for clusters in 192..=200 {
        assert_reads(&Spec { clusters, ..Spec::default() }); // the maker leaves those bits clear
    }
}

#[test]
fn a_fragmented_bitmap_is_followed() {
    let small = Spec { cluster: 512, clusters: 12_000, bitmap_runs: 3, ..Spec::default() };
    assert_reads(&small);
    assert_reads(&Spec { bitmap_extension: true, ..small.clone() });
    assert_reads(&Spec { bitmap_extension: true, list_outside: true, ..small });
}

#[test]
fn a_fragmented_mft_is_followed() {
    assert_reads(&Spec { mft_extension: true, ..Spec::default() });
    assert_reads(&Spec { mft_extension: true, cluster: 512, clusters: 3000, ..Spec::default() });
}

#[test]
fn the_boot_sector_must_make_sense() {
    let cases: [(usize, &[u8], &str); 8] = [
        (510, &[0, 0], "end mark"),
        (11, &[1, 2], "sector size"),
        (13, &[3], "sectors per cluster"),
        (14, &[1], "fields of FAT"),
        (40, &[0xFF, 0xFF], "a part of something larger"),
        (48, &[0xFF, 0xFF], "cluster of $MFT"),
        (56, &[0, 0], "cluster of $MFTMirr"),
        (64, &[0x70], "size of an MFT record"),
    ];
    for (at, bytes, words) in cases {
        assert_refused(&mutated(|image| image[at..at + bytes.len()].copy_from_slice(bytes)), words);
    }
}

#[test]
fn the_backup_boot_sector_must_be_the_same() {
    let end = 199 * 4096;
    assert_refused(&mutated(|image| image[end + 100] ^= 1), "differs from the boot sector");
    assert_refused(&mutated(|image| image.truncate(end)), "is missing");
}

#[test]
fn damaged_records_are_refused() {
    assert_refused(
        &mutated(|image| {
            let at = mft_at(image);
            image[at + 6 * 1024 + 510] ^= 1
        }),
        "written only in part",
    );
    assert_refused(
        &mutated(|image| {
            let at = mft_at(image);
            image[at + 6 * 1024..][..4].copy_from_slice(b"BAAD")
        }),
        "FILE",
    );
    assert_refused(&mutated(|image| change(image, 6, |r| r[22] = 0)), "not in use");
    assert_refused(&mutated(|image| change(image, 6, |r| r[44] = 9)), "the record's own number");
    assert_refused(
        &mutated(|image| {
            let at = mft_at(image);
            image[at + 1024 + 8] ^= 1
        }),
        "its copy in $MFTMirr",
    );
    assert_refused(&mutated(|image| change(image, 3, |r| r[24] = 0)), "bytes in use");
}

#[test]
fn a_bitmap_that_is_not_wholly_written_is_refused() {
    let six = |f: fn(&mut [u8])| mutated(move |image| change_outside(image, 6, f));
    assert_refused(&six(|a| a[56] = 8), "initialised size");
    assert_refused(
        &six(|a| {
            a[48] = 8;
            a[56] = 8
        }),
        "size of $Bitmap",
    );
    assert_refused(&six(|a| a[13] = 0x80), "compressed, encrypted or sparse");
    assert_refused(&six(|a| a[12] = 1), "compressed, encrypted or sparse");
    assert_refused(
        &six(|a| {
            a[64] = 0x04;
            a[69] = 0
        }),
        "has a hole",
    );
    assert_refused(&six(|a| a[65] = 2), "clusters of an attribute");
    assert_refused(&six(|a| a[71] = 1), "behind the last cluster");
    assert_refused(&six(|a| a[41] = 0x20), "allocated size");
}

#[test]
fn metadata_that_the_bitmap_calls_free_is_refused() {
    let bitmap = |image: &[u8]| {
        let at = mft_at(image) + 6 * 1024 + 56 + 64 + 5;
        u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize * 4096
    };
    let lcn_of = |image: &[u8], at: usize| image[at] as usize;
    let clear = |image: &mut Vec<u8>, lcn: usize| {
        let at = bitmap(image);
        image[at + lcn / 8] &= !(1 << (lcn % 8));
    };
    assert_refused(&mutated(|i| clear(i, 0)), "the boot sector's clusters");
    assert_refused(
        &mutated(|i| {
            let lcn = lcn_of(i, 48);
            clear(i, lcn)
        }),
        "a cluster of $MFT:",
    );
    assert_refused(
        &mutated(|i| {
            let lcn = lcn_of(i, 56);
            clear(i, lcn)
        }),
        "a cluster of $MFTMirr",
    );
    assert_refused(
        &mutated(|i| {
            let lcn = bitmap(i) / 4096;
            clear(i, lcn)
        }),
        "a cluster of $Bitmap",
    );
}

#[test]
fn unfinished_work_is_refused_and_other_flags_are_not() {
    let flags = |low, high| {
        mutated(|image| {
            change(image, 3, |r| {
                let at = 56 + u32::from_le_bytes(r[60..64].try_into().unwrap()) as usize + 24 + 10;
                r[at] = low;
                r[at + 1] = high;
            })
        })
    };
    for (low, high, words) in [
        (1, 0, "marked dirty"),
        (2, 0, "resized"),
        (4, 0, "upgraded"),
        (0x10, 0, "journal"),
        (0x20, 0, "identifiers"),
        (0, 0x40, "chkdsk is at work"),
        (0x40, 0, "not known"),
        (0, 1, "not known"),
    ] {
        assert_refused(&flags(low, high), words);
    }
    assert!(read(&flags(0x88, 0x80)).unwrap().is_usable());
}

#[test]
fn unknown_versions_are_refused() {
    assert_refused(
        &mutated(|image| {
            change(image, 3, |r| {
                let at = 56 + u32::from_le_bytes(r[60..64].try_into().unwrap()) as usize + 24 + 8;
                r[at] = 4;
            })
        }),
        "NTFS version 4.1",
    );
}

/// A restart page of 4096 bytes.
fn restart(magic: &[u8; 4], version: (u8, u8), lsn: u8, in_use: u16, flags: u8) -> Vec<u8> {
    let mut page = vec![0; 4096];
    page[..4].copy_from_slice(magic);
    page[17] = 0x10;
    page[21] = 0x10;
    page[24] = 48;
    page[26] = version.1;
    page[28] = version.0;
    page[48] = lsn;
    page[56] = 1;
    page[58..60].copy_from_slice(&[0xFF; 2]);
    page[60..62].copy_from_slice(&in_use.to_le_bytes());
    page[62] = flags;
    seal(&mut page, 30);
    page
}

fn with_log(first: Vec<u8>, second: Vec<u8>) -> Vec<u8> {
    make(&Spec { log: [first, second, vec![0; 16384]].concat(), ..Spec::default() }).0
}

#[test]
fn the_log_tells_whether_the_volume_is_at_rest() {
    let page = |lsn, in_use, flags| restart(b"RSTR", (1, 1), lsn, in_use, flags);
    let usable = |first, second| assert!(read(&with_log(first, second)).unwrap().is_usable());
    usable(page(5, 0xFFFF, 0), page(4, 0, 0));
    usable(page(4, 0, 0), page(5, 0, 2));
    usable(page(4, 0xFFFF, 2), restart(b"CHKD", (1, 1), 5, 0xFFFF, 2));
    let unclean = "not unmounted cleanly";
    assert_refused(&with_log(page(4, 0xFFFF, 2), page(5, 0, 0)), unclean);
    assert_refused(&with_log(page(5, 0, 0), page(4, 0xFFFF, 2)), unclean);
    assert_refused(&with_log(page(5, 0xFFFF, 2), page(5, 0, 0)), unclean);
    let newer = restart(b"RSTR", (2, 0), 9, 0xFFFF, 2);
    assert_refused(&with_log(newer.clone(), newer), "version 2.0");
    let strange = restart(b"RSTR", (1, 0), 9, 0xFFFF, 2);
    assert_refused(&with_log(strange.clone(), strange), "version 1.0");
    let mut torn = page(6, 0, 0);
    torn[1022] ^= 1;
    assert_refused(&with_log(page(5, 0xFFFF, 2), torn), "the second damaged");
    assert_refused(&with_log(vec![0; 4096], page(5, 0xFFFF, 2)), "the first is absent");
    assert_refused(&with_log(vec![0; 4096], vec![0; 4096]), "the second absent");
    assert_refused(&with_log(vec![0xFF; 4096], vec![0; 4096]), "restart pages");
}

#[test]
fn a_hibernated_windows_is_noticed() {
    let content = |magic: &[u8], len: usize| {
        let mut content = magic.to_vec();
        content.resize(len, 0);
        Some(content)
    };
    for hibernation_in_block in [false, true] {
        let make = |hibernation| make(&Spec { hibernation, hibernation_in_block, ..Spec::default() }).0;
        assert_refused(&make(content(b"hibr", 8192)), "hibernated");
        assert_refused(&make(content(b"HIBR", 8192)), "hibernated");
        assert_refused(&make(content(b"", 4000)), "shorter than 4096");
        assert_refused(&make(content(b"", 16)), "shorter than 4096");
        assert_refused(&make(content(b"what", 8192)), "cannot be ruled out");
        for consumed in [&b""[..], b"wake", b"WAKE", b"RSTR"] {
            assert!(read(&make(content(consumed, 8192))).unwrap().is_usable());
        }
    }
    let (plain, hibernated) =
        (make(&Spec::default()).0, make(&Spec { hibernation: content(b"hibr", 8192), ..Spec::default() }).0);
    let beside = Ntfs.read(&plain, &[&hibernated]).unwrap();
    assert!(!beside.is_usable() && beside.findings[0].message.contains("another volume"));
}

#[test]
fn names_in_unused_index_blocks_do_not_count() {
    let spec = Spec { hibernation: Some(b"hibr".repeat(2048)), hibernation_in_block: true, ..Spec::default() };
    let mut image = make(&spec).0;
    assert_refused(&image, "hibernated");
    change(&mut image, 5, |r| {
        let at = r.windows(8).rposition(|w| w == [2, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        r[at] = 0;
    });
    assert!(read(&image).unwrap().is_usable());
}

const VSS: [u8; 16] = [0x6B, 0x87, 8, 0x38, 0x76, 0xC1, 0x48, 0x4E, 0xB7, 0xAE, 4, 4, 0x6E, 0x6C, 0xC7, 0x52];

#[test]
fn shadow_copies_need_consent() {
    let header = |catalog: u32, version: u8| {
        mutated(|image| {
            image[0x1E00..0x1E10].copy_from_slice(&VSS);
            image[0x1E10] = version;
            image[0x1E14] = 1;
            image[0x1E30..0x1E34].copy_from_slice(&catalog.to_le_bytes());
            let block = 150 * 4096;
            image[block..block + 16].copy_from_slice(&VSS);
            image[block + 20] = 2;
            image[block + 128] = 2;
            image[block + 256] = 3;
            image[block + 384] = 2;
        })
    };
    assert_eq!(read(&header(0, 1)).unwrap().findings, []);
    let volume = read(&header(150 * 4096, 2)).unwrap();
    assert_eq!(volume.findings[0].weight, Weight::Consent(Consent::ShadowCopies));
    assert!(volume.findings[0].message.contains("2 volume shadow copies"), "{}", volume.findings[0].message);
    assert!(volume.is_usable() && volume.free.bytes() > 0);
    let unreadable = read(&header(7, 1)).unwrap();
    assert!(unreadable.findings[0].message.contains("could not be read"));
    assert_refused(&header(0, 3), "the version is 3");
}

#[test]
fn a_backup_in_the_middle_is_kept() {
    let spec = Spec { clusters: 400, ..Spec::default() };
    let (mut image, free) = make(&spec);
    let middle = 200 * 4096;
    assert!(free.iter().any(|range| range.contains(ByteRange::with_len(middle, 4096).unwrap())));
    image.copy_within(0..512, middle as usize);
    assert!(read(&image).unwrap().free.clash(ByteRange::with_len(middle, 4096).unwrap()).is_none());
}

#[test]
fn both_witnesses_convict_and_name_the_file() {
    let (image, _) = make(&Spec::default());
    let volume = read(&image).unwrap();
    let all = ByteRange::new(0, volume.free.grid().end()).unwrap();
    let everything: FreeMap = {
        let mut builder = crate::free_map::FreeMapBuilder::new(volume.free.grid());
        let file = image.windows(6).position(|w| w == b"a file").unwrap() as u64 / 4096;
        builder.free(file, 1).unwrap();
        builder.finish(crate::free_map::DeclaredFree::Unknown).unwrap()
    };
    assert!(everything.clash(all).is_some());
    let owners: Vec<String> = Ntfs
        .witnesses()
        .iter()
        .map(|witness| match hear(*witness, &image, &everything) {
            Testimony::Clash { owner, .. } => owner,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(owners, ["/folder/file.txt (MFT record 26)", "MFT record 26"]);
}

#[test]
fn a_witness_that_cannot_read_is_absent() {
    let (mut image, _) = make(&Spec::default());
    let volume = read(&image).unwrap();
    let at = mft_at(&image) + 26 * 1024 + 510;
    image[at] ^= 1;
    for witness in Ntfs.witnesses() {
        assert!(matches!(hear(*witness, &image, &volume.free), Testimony::Absent { .. }), "{}", witness.name());
    }
}

#[test]
fn relatives_are_not_ntfs() {
    for name in [b"-FVE-FS-", b"EXFAT   ", b"MSWIN4.1"] {
        assert!(!Ntfs.probe(&mutated(|image| image[3..11].copy_from_slice(name))).unwrap());
    }
    assert!(!Ntfs.probe(&b"\0\0\0ReFS\0\0\0\0".to_vec()).unwrap());
    assert!(Ntfs.probe(&make(&Spec::default()).0).unwrap());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]
    /// Whatever a hostile disk says: no panic, no endless loop, and a map inside the volume.
    #[test]
    fn damage_never_panics(hits in proptest::collection::vec((0usize..60_000, proptest::prelude::any::<u8>()), 1..6)) {
        let mut image = make(&Spec { hibernation_in_block: true, ..Spec::default() }).0;
        for (at, value) in hits {
            image[at] = value;
        }
        if let Ok(volume) = read(&image) {
            for witness in Ntfs.witnesses() {
                hear(*witness, &image, &volume.free);
            }
            proptest::prop_assert!(volume.free.grid().end() <= image.len() as u64);
        }
    }
}
