//! btrfs images for the tests: made by mkfs.btrfs without root, or filled through the kernel's own driver. Kinds with
//! sectors larger than a page are called unmountable.
#![allow(dead_code, clippy::as_conversions)] // each test file uses its part

pub use crate::common::kind::Kind;
use crate::common::kind::{kind, unmountable};
use crate::common::{Rng, tool, tool_ok};
use crate::kernel::Mount;
use std::path::{Path, PathBuf};

/// Every feature that changes where something lies, what it is called, or how it is protected.
#[rustfmt::skip] // a row a line
pub static KINDS: &[Kind] = &[
    kind("default", "", 150_001),
    kind("nodes of 4 KiB", "-n 4096", 140_003),
    kind("nodes of 8 KiB, xxhash", "-n 8192 --csum xxhash", 160_007),
    kind("nodes of 32 KiB, sha256", "-n 32768 --csum sha256", 170_009),
    kind("nodes of 64 KiB, blake2", "-n 65536 --csum blake2", 300_013),
    kind("no free-space tree", "-R ^free-space-tree", 150_017),
    kind("no skinny metadata", "-O ^skinny-metadata", 150_023),
    kind("older features", "-O ^skinny-metadata,^extref,^no-holes -R ^free-space-tree", 150_029),
    kind("single metadata", "-m single", 130_031),
    kind("DUP data", "-d dup", 250_037),
    kind("mixed groups", "-M", 70_041),
    kind("mixed groups, xxhash", "-M --csum xxhash -R ^free-space-tree", 90_043),
    kind("quota", "-R quota", 150_047),
    unmountable("sectors of 8 KiB", "-s 8192", 200_000),
    unmountable("sectors of 16 KiB, sha256", "-s 16384 --csum sha256", 210_011),
    unmountable("sectors and nodes of 64 KiB", "-s 65536 -n 65536", 400_007),
];

/// How a filesystem is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    Empty,
    /// Files copied in by mkfs.btrfs; needs no root.
    Copied,
    /// Through the kernel: files of all sizes, half of them deleted, others in the gaps, snapshots, clones.
    Live,
    /// The same, with compression, and then until nothing fits any more.
    Full,
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

/// Makes an image of `kib` KiB.
pub fn make(folder: &Path, kind: &Kind, kib: u64, fill: Fill, rng: &mut Rng) -> PathBuf {
    let image = folder.join("image");
    let _ = std::fs::remove_file(&image);
    std::fs::File::create(&image).expect("an image file").set_len(kib * 1024).expect("room for the image");
    let mut args = vec!["-q", "-f", "-L", "hello"];
    args.extend(kind.options.split_whitespace());
    let files = folder.join("files");
    if fill == Fill::Copied {
        write_files(&files, rng);
        args.extend(["-r", text(&files)]);
    }
    args.push(text(&image));
    tool_ok("mkfs.btrfs", &args);
    if matches!(fill, Fill::Live | Fill::Full) {
        let mount = mounted(folder, text(&image), if fill == Fill::Full { "loop,compress=zstd" } else { "loop" });
        live(mount.place(), fill == Fill::Full, rng);
    }
    image
}

fn write_files(folder: &Path, rng: &mut Rng) {
    std::fs::create_dir_all(folder.join("d/e")).expect("a folder");
    for number in 0..60 {
        let size = rng.between(0, 400_000) as usize;
        let name = ["", "d/", "d/e/"][number % 3].to_owned() + &format!("file{number}");
        std::fs::write(folder.join(name), vec![number as u8 + 1; size]).expect("room for a file");
    }
}

/// A filesystem mounted in a folder of its own below `folder`.
pub fn mounted(folder: &Path, device: &str, options: &str) -> Mount {
    let place = folder.join("mount");
    let _ = std::fs::create_dir(&place);
    Mount::new("btrfs", device, &place, options)
}

/// Bytes that compress a little.
fn content(size: usize, rng: &mut Rng) -> Vec<u8> {
    (0..size.div_ceil(16)).flat_map(|_| (u128::from(rng.next()) << 64).to_le_bytes()).take(size).collect()
}

pub fn live(place: &Path, until_full: bool, rng: &mut Rng) {
    let write = |name: String, most: u64, rng: &mut Rng| {
        let size = rng.between(0, most) as usize;
        // A filesystem that is full is as good as any.
        let _ = std::fs::write(place.join(name), content(size, rng));
    };
    (0..120).for_each(|number| write(format!("f{number}"), 300_000, rng));
    tool_ok("btrfs", &["filesystem", "sync", text(place)]);
    tool("btrfs", &["subvolume", "snapshot", text(place), text(&place.join("snapshot"))]);
    tool("btrfs", &["subvolume", "create", text(&place.join("other"))]);
    for number in (0..120).filter(|_| rng.next().is_multiple_of(2)).collect::<Vec<_>>() {
        let _ = std::fs::remove_file(place.join(format!("f{number}")));
    }
    (0..30).for_each(|number| write(format!("other/g{number}"), 100_000, rng));
    tool("cp", &["--reflink=always", text(&place.join("other/g7")), text(&place.join("clone"))]);
    if rng.next().is_multiple_of(2) {
        tool_ok("btrfs", &["subvolume", "delete", "-c", text(&place.join("snapshot"))]);
        tool_ok("btrfs", &["subvolume", "sync", text(place)]);
    }
    if until_full {
        let mut number = 0;
        while number < 400 && std::fs::write(place.join(format!("h{number}")), content(1_500_000, rng)).is_ok() {
            number += 1;
        }
    }
    tool_ok("btrfs", &["filesystem", "sync", text(place)]);
}
