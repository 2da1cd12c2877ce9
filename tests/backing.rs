//! The lab's judge, judged: what the comparison of backing files must accept and must not.

#[path = "common/lab/backing.rs"]
#[allow(dead_code)]
mod backing;

use backing::{GRANULE, Snapshot};
use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

const SIZE: u64 = 1 << 20;

/// A file with a pattern, and the zeros of a used block at 16 KiB.
fn file(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("backing.raw");
    backing::create(&path, SIZE).expect("a file");
    backing::fill(&path, SIZE);
    open(&path).write_all_at(&[0; 4096], 16384).expect("written zeros");
    path
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("the backing file")
}

fn punch(path: &Path, start: u64, length: u64) {
    let how = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let signed = |number: u64| i64::try_from(number).expect("a small number");
    fallocate(open(path), how, signed(start), signed(length)).expect("a filesystem that punches holes");
}

/// Punches these, and compares with a plan.
fn judged(punched: &[(u64, u64)], planned: &[(u64, u64)]) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = file(folder.path());
    let before = Snapshot::take(&path);
    for &(start, length) in punched {
        punch(&path, start, length);
    }
    before.compare(planned)
}

#[test]
fn accepts_exactly_what_was_planned() {
    assert_eq!(judged(&[], &[]), Ok(()));
    let odd = [(512, 1536), (8192, GRANULE), (40960 + 512, 3 * GRANULE), (SIZE - 1024, 1024)];
    assert_eq!(judged(&odd, &odd), Ok(()));
    // ranges that touch, punched as one
    assert_eq!(judged(&[(8192, 8192)], &[(8192, 2048), (10240, 6144)]), Ok(()));
}

#[test]
fn sees_one_sector_too_much_or_too_little() {
    let plan = [(8192, 6 * GRANULE)];
    for wrong in [(8192 - 512, 512), (8192 + 6 * GRANULE, 512), (0, 512), (SIZE - 512, 512)] {
        assert!(judged(&[plan[0], wrong], &plan).is_err(), "{wrong:?} more");
    }
    assert!(judged(&[(8192 + 512, 6 * GRANULE - 512)], &plan).is_err(), "first sector left");
    assert!(judged(&[(8192, 6 * GRANULE - 512)], &plan).is_err(), "last sector left");
    assert!(judged(&[], &plan).is_err(), "nothing done");
}

#[test]
fn sees_a_discard_of_a_used_block_of_zeros() {
    assert!(judged(&[(16384, 4096)], &[]).is_err());
}

#[test]
fn sees_zeros_that_were_written_instead_of_discarded() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = file(folder.path());
    let before = Snapshot::take(&path);
    open(&path).write_all_at(&[0; 8192], 32768).expect("written zeros");
    assert!(before.compare(&[(32768, 8192)]).is_err());
}
