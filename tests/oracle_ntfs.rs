//! NTFS against other people's tools: mkntfs, ntfscp and ntfs-3g make the volumes; `$Bitmap` as partclone reads it, as
//! ntfscat prints it and as a short Python reader (tests/oracle/ntfs_free.py) finds it are the answers. ntfs-3g's own
//! fstrim misjudges the last clusters and is never asked.
#![allow(clippy::as_conversions)] // numbers of the tests' own making

mod common;

use coldtrim_parsers::fs::by_name;
use coldtrim_parsers::source::Source;
use coldtrim_parsers::stack::{Content, Layer, Options, WitnessMode, read};
use coldtrim_parsers::witness::{Recording, Testimony};
use common::*;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A kind of volume.
#[derive(Debug, Clone, Copy)]
struct Kind {
    sector: u64,
    cluster: u64,
    sectors: u64,
    files: u64,
}

/// Every sector size with every cluster size that NTFS has: 46 kinds, with sizes that are no multiple of anything.
fn kinds(rng: &mut Rng) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for sector in [512, 1024, 2048, 4096] {
        for cluster in (9..=21).map(|log2| 1_u64 << log2).filter(|cluster| *cluster >= sector) {
            let clusters = rng.between(24, 36).max((6 << 20) / cluster) + rng.between(0, 9);
            let sectors = clusters * (cluster / sector) + rng.between(0, cluster / sector) + 1;
            kinds.push(Kind { sector, cluster, sectors, files: rng.between(0, 5) });
        }
    }
    kinds
}

/// In memory where that exists: mkntfs and ntfscp wait for the disk after every run.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.expect("a folder")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

fn make(path: &Path, kind: Kind) {
    let image = fs::File::create(path).expect("an image");
    image.set_len(kind.sectors * kind.sector).expect("its size");
    let (sector, cluster) = (kind.sector.to_string(), kind.cluster.to_string());
    tool_ok("mkntfs", &["-q", "-F", "-f", "-L", "trial", "-s", &sector, "-c", &cluster, text(path)]);
}

/// Bytes that tell where they are.
fn content(rng: &mut Rng, len: u64) -> Vec<u8> {
    (0..len / 8 + 1).flat_map(|_| rng.next().to_le_bytes()).take(len as usize).collect()
}

/// Copies files into an image without mounting it; gives what is in them.
fn put_files(image: &Path, count: u64, rng: &mut Rng) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for number in 0..count {
        let len = *rng.pick(&[0, 100, 5_000, 70_001, 400_000]);
        let (name, bytes) = (format!("file{number}"), content(rng, len));
        if put_file(image, &name, &bytes) {
            files.push((name, bytes));
        }
    }
    files
}

/// False when there is no room.
fn put_file(image: &Path, name: &str, bytes: &[u8]) -> bool {
    let source = image.with_extension("file");
    fs::write(&source, bytes).expect("a file");
    tool("ntfscp", &["-f", text(image), text(&source), name]).status.success()
}

fn python_free(image: &Path) -> Vec<(u64, u64)> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/ntfs_free.py");
    parse_ranges(&tool_ok("python3", &[script, text(image)]))
}

/// `(start, length)` of everything that a record owns.
fn python_owned(image: &Path) -> Vec<(u64, u64)> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/ntfs_free.py");
    let lines = tool_ok("python3", &[script, "--files", text(image)]);
    parse_ranges(&lines)
}

/// The areas that partclone's domain log calls free (`?`).
fn partclone_free(image: &Path) -> Vec<(u64, u64)> {
    let log = image.with_extension("domain");
    let _ = fs::remove_file(&log);
    tool_ok("partclone.ntfs", &["-D", "-s", text(image), "-O", text(&log), "-L", text(&image.with_extension("log"))]);
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).expect("a hexadecimal number");
    let lines = fs::read_to_string(&log).expect("a domain log");
    let areas = lines.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.len() == 3 && words[2] == "?").then(|| (number(words[0]), number(words[1])))
    });
    merged(&areas.collect::<Vec<_>>())
}

/// The clear bits of what ntfscat gives for record 6.
fn ntfscat_free(image: &Path, kind: Kind) -> Vec<(u64, u64)> {
    let bits = tool("ntfscat", &["-f", "-i", "6", text(image)]).stdout;
    let clusters = (kind.sectors - 1) * kind.sector / kind.cluster;
    let free = (0..clusters).filter(|k| bits[(k / 8) as usize] >> (k % 8) & 1 == 0);
    merged(&free.map(|k| (k * kind.cluster, kind.cluster)).collect::<Vec<_>>())
}

/// What the library says about an image, with every witness heard.
fn heard(bytes: &dyn Source) -> Content {
    let options = Options { witness: WitnessMode::Always, ..Options::default() };
    let mut nodes = read(&[Layer { source: bytes, sector_size: 512 }], &options).nodes;
    assert_eq!(nodes.len(), 1);
    nodes.remove(0).content
}

fn assert_both_witnesses_agree(image: &Path) {
    let bytes = fs::read(image).expect("the image");
    let Content::Volume { volume, testimony } = heard(&bytes) else { panic!("{} is no volume", image.display()) };
    assert!(volume.is_usable(), "{:?}", volume.findings);
    assert_eq!(testimony.len(), 2);
    for words in testimony {
        let Testimony::Agrees { owners, extents, .. } = words else { panic!("{}: {words:?}", image.display()) };
        assert!(owners >= 16 && extents >= 8, "{owners} {extents}");
    }
}

/// Overwrites everything that is free with a pattern, which hurts more than zeros, and reads the files again.
fn assert_files_survive(image: &Path, free: &[(u64, u64)], files: &[(String, Vec<u8>)]) {
    let file = fs::OpenOptions::new().write(true).open(image).expect("the image");
    for (start, len) in free {
        file.write_all_at(&vec![0xDB; *len as usize], *start).expect("a write");
    }
    drop(file); // coldtrim refuses an image that somebody has open for writing
    for (name, bytes) in files {
        let found = tool("ntfscat", &["-f", text(image), name]);
        assert!(found.status.success() && found.stdout == *bytes, "{name} in {} is damaged", image.display());
    }
    assert_eq!(map_ranges(image), free, "the map changed with the content of free space");
}

fn check(folder: &Path, kind: Kind, rng: &mut Rng) {
    let image = folder.join("image");
    make(&image, kind);
    let files = put_files(&image, kind.files, rng);
    let ours = map_ranges(&image);
    assert_eq!(ours, python_free(&image), "{kind:?}: ntfs_free.py");
    assert_eq!(ours, ntfscat_free(&image, kind), "{kind:?}: ntfscat");
    assert_eq!(ours, partclone_free(&image), "{kind:?}: partclone");
    assert_both_witnesses_agree(&image);
    assert_files_survive(&image, &ours, &files);
}

#[test]
fn free_space_equals_three_other_readings() {
    let folder = folder();
    let mut rng = Rng(seed("free_space_equals_three_other_readings"));
    let kinds = kinds(&mut rng);
    // In an ordinary run: smallest and largest cluster of each sector size, and two of the rest.
    let ends = kinds.iter().filter(|kind| kind.cluster == kind.sector || kind.cluster == 2 << 20);
    let mut chosen: Vec<Kind> = if full() { kinds.clone() } else { ends.copied().collect() };
    if !full() {
        chosen.extend((0..2).map(|_| *rng.pick(&kinds)));
    }
    for kind in &chosen {
        check(folder.path(), *kind, &mut rng);
    }
    println!("{} kinds of volumes", chosen.len());
}

#[test]
fn every_remainder_of_the_number_of_clusters() {
    let folder = folder();
    let mut rng = Rng(seed("every_remainder_of_the_number_of_clusters"));
    for clusters in if full() { 2000..2016 } else { 2006..2009 } {
        for odd in [0, 7] {
            check(
                folder.path(),
                Kind { sector: 512, cluster: 4096, sectors: clusters * 8 + odd + 1, files: 1 },
                &mut rng,
            );
        }
    }
}

fn small(folder: &Path, rng: &mut Rng) -> PathBuf {
    let image = folder.join("small");
    make(&image, Kind { sector: 512, cluster: 4096, sectors: 8 * 799 + 5, files: 3 });
    put_files(&image, 4, rng);
    // By chance all of them are so small that they have no cluster.
    assert!(put_file(&image, "large", &content(rng, 70_001)), "room for a file");
    image
}

/// Exit 3 and these words.
fn assert_refused(image: &Path, words: &str) {
    let output = coldtrim(&["map", "--format", "ranges", text(image)]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{words}: {said}");
    assert!(said.contains(words), "{said} does not speak of {words:?}");
    assert!(output.stdout.is_empty(), "ranges of a refused volume");
}

#[test]
fn a_volume_marked_dirty_is_refused() {
    let folder = folder();
    let image = small(folder.path(), &mut Rng(1));
    tool_ok("ntfsfix", &[text(&image)]); // schedules a check at the next start of Windows
    assert_refused(&image, "marked dirty");
    tool_ok("ntfsfix", &["-d", text(&image)]);
    assert_eq!(map_ranges(&image), python_free(&image));
}

#[test]
fn a_cut_or_grown_image_is_refused() {
    let folder = folder();
    let image = small(folder.path(), &mut Rng(1));
    let file = fs::OpenOptions::new().write(true).open(&image).expect("the image");
    let len = file.metadata().expect("its size").len();
    file.set_len(len - 512).expect("a cut");
    drop(file);
    assert_refused(&image, "backup boot sector");
    let file = fs::OpenOptions::new().write(true).open(&image).expect("the image");
    file.set_len(len - 8192).expect("a cut");
    drop(file);
    assert_refused(&image, "a part of something larger");
}

#[test]
fn a_hibernation_file_is_looked_into() {
    let folder = folder();
    for (magic, words) in
        [("hibr", Some("hibernated")), ("what", Some("cannot be ruled out")), ("wake", None), ("", None)]
    {
        let image = small(folder.path(), &mut Rng(1));
        let mut content = magic.as_bytes().to_vec();
        content.resize(70_000, 0);
        let source = image.with_extension("file");
        fs::write(&source, content).expect("a file");
        tool_ok("ntfscp", &["-f", text(&image), text(&source), "hiberfil.sys"]);
        match words {
            Some(words) => assert_refused(&image, words),
            None => assert_eq!(map_ranges(&image), python_free(&image)),
        }
    }
}

/// The header and the catalog that Windows writes when it makes a shadow copy; the copies themselves do not matter.
fn add_shadow_copy(image: &Path) {
    let mut header = vec![0x6B, 0x87, 8, 0x38, 0x76, 0xC1, 0x48, 0x4E, 0xB7, 0xAE, 4, 4, 0x6E, 0x6C, 0xC7, 0x52];
    header.extend([2, 0, 0, 0, 1, 0, 0, 0]);
    header.resize(128, 0);
    let mut catalog = header.clone();
    catalog[20] = 2;
    catalog.resize(16384, 0);
    catalog[128] = 2;
    // Where nothing else is.
    let at = python_free(image).iter().find(|range| range.1 > 16384).expect("free space").0;
    header[48..56].copy_from_slice(&at.to_le_bytes());
    let file = fs::OpenOptions::new().write(true).open(image).expect("the image");
    file.write_all_at(&header, 0x1E00).expect("a write");
    file.write_all_at(&catalog, at).expect("a write");
}

#[test]
fn shadow_copies_are_given_up_only_by_name() {
    let folder = folder();
    let image = small(folder.path(), &mut Rng(1));
    add_shadow_copy(&image);
    assert_refused(&image, "1 volume shadow copy");
    assert_refused(&image, "--accept shadow-copies");
    let output = coldtrim(&["map", "--format", "ranges", "--accept", "shadow-copies", text(&image)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(parse_ranges(&String::from_utf8_lossy(&output.stdout)), python_free(&image));
}

/// Bytes of an image with one bit changed, without a copy a bit.
struct Flipped<'a> {
    bytes: &'a [u8],
    at: u64,
    mask: u8,
}

impl Source for Flipped<'_> {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        Source::read_at(self.bytes, at, buf)?;
        if (at..at + buf.len() as u64).contains(&self.at) {
            buf[(self.at - at) as usize] ^= self.mask;
        }
        Ok(())
    }
}

/// What became of a volume with one wrong bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// Refused by the reader of the bitmap: a wrong field, or a system file's cluster called free.
    Reader,
    /// Refused because a file's cluster was called free.
    Witness,
    /// The map is right, or keeps more than it needs to.
    Harmless,
    /// A used cluster is called free, and nobody says so.
    Missed,
}

fn fate(flipped: &Flipped<'_>, truth: &[(u64, u64)]) -> Fate {
    let Content::Volume { volume, testimony } = heard(flipped) else { return Fate::Reader };
    if testimony.iter().any(|words| matches!(words, Testimony::Clash { .. })) {
        return Fate::Witness;
    }
    if !volume.is_usable() {
        return Fate::Reader;
    }
    let inside = |start: u64, end: u64| truth.iter().any(|(at, len)| *at <= start && end <= at + len);
    if volume.free.ranges().iter().all(|range| inside(range.start(), range.end())) {
        Fate::Harmless
    } else {
        Fate::Missed
    }
}

/// The bytes that the reader looks at, without most of the log's and the boot code's.
fn read_bytes(bytes: &[u8]) -> Vec<u64> {
    let recording = Recording::new(&bytes, u64::MAX);
    by_name("ntfs").expect("a row").read(&recording, &[]).expect("a volume");
    let log: BTreeSet<u64> = recording.take().iter().filter(|r| r.len() > 16384).map(|r| r.start()).collect();
    let recording = Recording::new(&bytes, u64::MAX);
    by_name("ntfs").expect("a row").read(&recording, &[]).expect("a volume");
    let mut all: Vec<u64> = recording
        .take()
        .iter()
        .flat_map(|r| if log.contains(&r.start()) { r.start()..r.start() + 4096 } else { r.start()..r.end() })
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// NTFS has no checksum and no counter of free clusters. Every single wrong bit in what the reader reads is either
/// harmless, or caught by the reader's own comparisons, or by a witness; how many by which is printed.
#[test]
fn flips() {
    let folder = folder();
    let mut rng = Rng(seed("flips"));
    let image = small(folder.path(), &mut rng);
    let bytes = fs::read(&image).expect("the image");
    let truth = map_ranges(&image);
    let owned: u64 = python_owned(&image).iter().map(|range| range.1).sum();
    let free: u64 = truth.iter().map(|range| range.1).sum();
    // No cluster is used without an owner, so a missed bit would be a file's.
    assert!(owned + free >= 799 * 4096, "{owned} owned, {free} free");
    let places = read_bytes(&bytes);
    let chosen: Vec<u64> = if full() {
        places.iter().map(|at| at * 8 + rng.between(0, 8)).collect()
    } else {
        (0..300).map(|_| rng.pick(&places) * 8 + rng.between(0, 8)).collect()
    };
    let mut counts = std::collections::BTreeMap::new();
    for bit in &chosen {
        let flipped = Flipped { bytes: &bytes, at: bit / 8, mask: 1 << (bit % 8) };
        let fate = fate(&flipped, &truth);
        assert_ne!(fate, Fate::Missed, "bit {} of byte {}", bit % 8, bit / 8);
        *counts.entry(fate).or_insert(0_u64) += 1;
    }
    println!("{} bits of {} bytes read: {counts:?}", chosen.len(), places.len());
}

/// Every used bit of $Bitmap cleared: how many are caught by the reader, how many only by a witness.
#[test]
fn cleared_bits_of_the_bitmap() {
    let folder = folder();
    let mut rng = Rng(seed("cleared_bits_of_the_bitmap"));
    let image = small(folder.path(), &mut rng);
    let bytes = fs::read(&image).expect("the image");
    let truth = map_ranges(&image);
    let bits = ntfscat(&image, "6");
    let bitmap = bytes.windows(100).position(|window| *window == bits[..100]).expect("$Bitmap") as u64;
    let is_free = |lcn: u64| truth.iter().any(|(start, len)| (*start..start + len).contains(&(lcn * 4096)));
    let used: Vec<u64> = (0..799).filter(|lcn| !is_free(*lcn)).collect();
    let mut counts = std::collections::BTreeMap::new();
    for lcn in used.iter().filter(|_| full() || rng.between(0, 4) == 0) {
        let fate = fate(&Flipped { bytes: &bytes, at: bitmap + lcn / 8, mask: 1 << (lcn % 8) }, &truth);
        assert!(matches!(fate, Fate::Reader | Fate::Witness), "cluster {lcn}: {fate:?}");
        *counts.entry(fate).or_insert(0_u64) += 1;
    }
    println!("{} used clusters: {counts:?}", used.len());
    assert_eq!(counts.len(), 2, "system files by the reader, files by a witness");
}

/// ntfs-3g keeps no log: torn away before it has written `$Bitmap`, it leaves an erased log and a volume that looks to be in
/// order. Then the files themselves are asked, without a word from the user.
#[test]
fn a_bitmap_that_was_not_written_is_refused_where_the_log_is_erased() {
    let folder = folder();
    let mut rng = Rng(seed("a_bitmap_that_was_not_written"));
    let image = small(folder.path(), &mut rng);
    let before = ntfscat(&image, "6");
    let bytes = fs::read(&image).expect("the image");
    let bitmap = bytes.windows(100).position(|window| *window == before[..100]).expect("$Bitmap") as u64;
    assert!(put_file(&image, "late", &content(&mut rng, 50_000)));
    map_ranges(&image);
    fs::File::options().write(true).open(&image).and_then(|file| file.write_all_at(&before, bitmap)).expect("a write");
    assert_refused(&image, "/late");
}

fn ntfscat(image: &Path, record: &str) -> Vec<u8> {
    tool("ntfscat", &["-f", "-i", record, text(image)]).stdout
}

/// An image that stays on disk.
struct OnDisk(fs::File);

impl Source for OnDisk {
    fn len(&self) -> u64 {
        self.0.metadata().expect("a size").len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.0.read_exact_at(buf, at)
    }
}

/// 64 GiB at 4 KiB a cluster: 2 MiB of bitmap, 1 MiB of $LogFile, and little else is read (1 TiB: 33 MiB).
#[test]
fn reads_little_more_than_the_bitmap() {
    let folder = folder();
    let image = folder.path().join("large");
    make(&image, Kind { sector: 512, cluster: 4096, sectors: (64 << 30) / 512, files: 0 });
    let disk = OnDisk(fs::File::open(&image).expect("the image"));
    let recording = Recording::new(&disk, u64::MAX);
    let volume = by_name("ntfs").expect("a row").read(&recording, &[]).expect("a volume");
    let bytes: u64 = recording.take().iter().map(|range| range.len()).sum();
    println!("{bytes} bytes read for a bitmap of {}", 2 << 20);
    assert!(volume.free.bytes() > 60 << 30);
    assert!(bytes < (2 << 20) + (5 << 18), "{bytes}");
}

/// A volume mounted through ntfs-3g, unmounted when it goes.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Path) -> Self {
        let at = image.with_extension("mount");
        fs::create_dir_all(&at).expect("a mount point");
        tool_ok("ntfs-3g", &["-o", "no_def_opts,silent", text(image), text(&at)]);
        Self(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        tool_ok("umount", &[text(&self.0)]);
    }
}

/// Many files, every other one deleted, more files into the holes: fragments everywhere, $MFT's among them.
fn fragment(at: &Path, rounds: u64, rng: &mut Rng) -> Vec<(String, Vec<u8>)> {
    let mut kept = Vec::new();
    for round in 0..rounds {
        for number in 0..120 {
            let (name, len) = (format!("r{round}-{number}"), *rng.pick(&[900, 4_000, 9_000, 20_000]));
            let bytes = content(rng, len);
            if fs::write(at.join(&name), &bytes).is_err() {
                let _ = fs::remove_file(at.join(&name)); // full
                continue;
            }
            kept.push((name, bytes));
        }
        kept.retain(|(name, _)| rng.between(0, 2) == 0 || fs::remove_file(at.join(name)).is_err());
    }
    kept
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_fragmented_and_full_volumes() {
    let folder = folder();
    let mut rng = Rng(seed("root_fragmented_and_full_volumes"));
    let cases = [(512, 6, 3), (4096, 12, 3), (4096, 30, 10), (65536, 40, 2)];
    for (cluster, mebibytes, rounds) in cases.into_iter().take(if full() { 4 } else { 3 }) {
        let image = folder.path().join("image");
        let kind = Kind { sector: 512, cluster, sectors: mebibytes * 2048 + 13, files: 0 };
        make(&image, kind);
        let mounted = Mounted::new(&image);
        let files = fragment(&mounted.0, rounds, &mut rng);
        drop(mounted);
        let ours = map_ranges(&image);
        assert_eq!(ours, python_free(&image), "{kind:?}");
        assert_eq!(ours, partclone_free(&image), "{kind:?}");
        println!("{kind:?}: {} files, {} free ranges", files.len(), ours.len());
        assert!(ours.len() > 5 || cluster == 65536, "not fragmented: {}", ours.len());
        assert_walk_agrees(&image);
        assert_files_survive(&image, &ours, &[]);
        let mounted = Mounted::new(&image);
        for (name, bytes) in &files {
            assert!(fs::read(mounted.0.join(name)).expect("a file") == *bytes, "{name} is damaged");
        }
        drop(mounted);
        tool_ok("ntfsfix", &["-n", text(&image)]);
    }
}

/// The own walk must agree; the crate may be unable to follow a $MFT in many pieces.
fn assert_walk_agrees(image: &Path) {
    let bytes = fs::read(image).expect("the image");
    let Content::Volume { volume, testimony } = heard(&bytes) else { panic!("no volume") };
    assert!(volume.is_usable(), "{:?}", volume.findings);
    assert!(matches!(&testimony[0], Testimony::Agrees { owners, .. } if *owners > 40), "{testimony:?}");
    assert!(!matches!(&testimony[1], Testimony::Clash { .. }), "{testimony:?}");
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_full_volume_has_nothing_to_trim() {
    let folder = folder();
    let image = folder.path().join("image");
    make(&image, Kind { sector: 512, cluster: 4096, sectors: 8 * 1999 + 3, files: 0 });
    let mounted = Mounted::new(&image);
    let mut file = fs::File::create(mounted.0.join("all")).expect("a file");
    while std::io::Write::write_all(&mut file, &[0x55; 4096]).is_ok() {}
    drop(file);
    drop(mounted);
    assert_eq!(map_ranges(&image), python_free(&image));
    assert!(map_ranges(&image).iter().map(|range| range.1).sum::<u64>() < 100 * 4096);
    assert_both_witnesses_agree(&image);
}

/// A full volume of small files, every other one deleted, and then so many tiny files that $MFT itself grows into the
/// holes: more runs than one record can hold, and an attribute list.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_mft_in_many_pieces() {
    let folder = folder();
    let image = folder.path().join("image");
    make(&image, Kind { sector: 512, cluster: 512, sectors: 15_001, files: 0 });
    let mounted = Mounted::new(&image);
    let until_full = |prefix: &str, len: usize| {
        let write = |number: &u32| fs::write(mounted.0.join(format!("{prefix}{number}")), vec![7; len]).is_ok();
        (0..).take_while(write).count()
    };
    let large = until_full("large", 1400);
    (0..large).step_by(2).for_each(|number| fs::remove_file(mounted.0.join(format!("large{number}"))).expect("a file"));
    let tiny = until_full("tiny", 5);
    drop(mounted);
    let table = tool_ok("ntfsinfo", &["-i", "0", text(&image)]);
    assert!(table.contains("$ATTRIBUTE_LIST"), "{large} and {tiny} files did not fragment $MFT enough");
    let ours = map_ranges(&image);
    assert_eq!(ours, python_free(&image));
    assert_eq!(ours, partclone_free(&image));
    assert_walk_agrees(&image);
}
