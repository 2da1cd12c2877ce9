//! Blocks that name themselves: an image is filled with them before it is trimmed; afterwards every one that is in use
//! must still be where it was, and every planned one must read as zeros. Needs no root.

mod common;
#[path = "common/images.rs"]
mod images;

use common::{map_ranges, tool_ok};
use images::backing::Snapshot;
use images::{FIRST, SECOND, STAMP, Table, check_ext4, check_fat, disk, ext4, fat, kept_files, plan_of, said, text};
use std::path::Path;

/// The bytes of a file block by block as the filesystem's own debugger sees them, against the named blocks in the
/// image itself. `at` is where the volume begins.
fn check_blocks_of_ext4(image: &Path, at: usize) {
    let bytes = std::fs::read(image).expect("the image");
    let place = format!("{}?offset={at}", text(image));
    let mut seen = 0;
    for (name, content) in kept_files() {
        let blocks = tool_ok("debugfs", &["-R", &format!("blocks {name}"), &place]);
        let blocks = blocks.split_whitespace().map(|number| number.parse::<usize>().expect("a block number"));
        for (block, part) in blocks.zip(content.chunks(1024)) {
            let here = at + block * 1024;
            assert!(bytes[here..here + part.len()] == *part, "{name}: block {block} of the volume");
            seen += 1;
        }
    }
    assert_eq!(seen, kept_files().iter().map(|(_, content)| content.len().div_ceil(1024)).sum::<usize>());
}

/// How often each named block of the files that stay is found in the image.
fn check_stamps(image: &Path) {
    let bytes = std::fs::read(image).expect("the image");
    let sectors: std::collections::HashSet<&[u8]> = bytes.chunks(STAMP).collect();
    for (name, content) in kept_files() {
        for (k, block) in content.chunks_exact(STAMP).enumerate() {
            assert!(sectors.contains(block), "block {k} of {name} is nowhere on the image");
        }
    }
}

fn check_zeros(image: &Path, planned: &[(u64, u64)]) {
    let bytes = std::fs::read(image).expect("the image");
    for (start, length) in planned {
        let (start, length) = (usize::try_from(*start).unwrap(), usize::try_from(*length).unwrap());
        assert!(bytes[start..start + length].iter().all(|byte| *byte == 0), "{start}+{length} is not zero");
    }
}

/// Trims, and compares: with the plan, with the map, and with what was there before.
fn trim(image: &Path) -> Vec<(u64, u64)> {
    let planned = plan_of(image, &[]);
    assert_eq!(planned, map_ranges(image), "a hole may begin and end at any byte");
    assert!(planned.len() > 10 && planned.iter().map(|(_, len)| len).sum::<u64>() > 1 << 20, "{planned:?}");
    check_stamps(image);
    let before = Snapshot::take(image);
    said(&["trim", "--yes", text(image)]).expect(0, &["discarded:"]);
    before.assert_only_discarded(&planned);
    check_zeros(image, &planned);
    check_stamps(image);
    planned
}

#[test]
fn every_used_block_of_ext4_is_still_there() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    check_blocks_of_ext4(&image, 0);
    trim(&image);
    check_blocks_of_ext4(&image, 0);
    check_ext4(&image, 0);
}

#[test]
fn every_used_block_of_fat_is_still_there() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = fat(folder.path(), "a.img");
    trim(&image);
    check_fat(&image, 0);
    tool_ok("fsck.fat", &["-n", text(&image)]);
}

fn on_a_disk(table: Table, name: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    let image = disk(folder.path(), name, table, &first, &second);
    let planned = trim(&image);
    assert!(planned.iter().any(|(start, _)| *start < SECOND) && planned.iter().any(|(start, _)| *start >= SECOND));
    check_blocks_of_ext4(&image, usize::try_from(FIRST).unwrap());
    check_ext4(&image, FIRST);
    check_fat(&image, SECOND);
    tool_ok("sfdisk", &["--verify", text(&image)]);
}

#[test]
fn every_used_block_behind_a_gpt_is_still_there() {
    on_a_disk(Table::Gpt, "gpt.img");
}

#[test]
fn every_used_block_behind_an_mbr_is_still_there() {
    on_a_disk(Table::Mbr, "mbr.img");
}

#[test]
fn gaps_between_partitions_go_only_when_asked_for() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "gpt.img", Table::Gpt, &first, &second);
    let mut planned = plan_of(&image, &["--unallocated"]);
    planned.sort_unstable();
    let gaps: Vec<_> = planned.iter().filter(|extent| !map_ranges(&image).contains(extent)).copied().collect();
    // Between the partitions: 11 to 12 MiB, 20 to 21 MiB, and behind the last one up to the backup of the table.
    assert!(gaps.contains(&(11 << 20, 1 << 20)) && gaps.contains(&(20 << 20, 1 << 20)), "{gaps:?}");
    let before = Snapshot::take(&image);
    said(&["trim", "--yes", "--unallocated", text(&image)]).expect(0, &["a gap between partitions"]);
    before.assert_only_discarded(&planned);
    check_ext4(&image, FIRST);
    check_fat(&image, SECOND);
    tool_ok("sfdisk", &["--verify", text(&image)]);
}

/// Swap holds nothing of use while no system runs on it or sleeps in it.
#[test]
fn the_body_of_swap_goes_only_when_asked_for_and_never_while_a_system_sleeps() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let swap = folder.path().join("swap.img");
    images::backing::create(&swap, 8 << 20).expect("a new image");
    images::backing::fill(&swap, 8 << 20);
    // One page less than the partition has.
    let made = tool_ok("mkswap", &["-L", "swapped", text(&swap), &((8 << 10) - 4).to_string()]);
    let usable = (8 << 20) - 2 * 4096;
    assert!(made.contains(&format!("({usable} bytes)")), "{made}");
    let image = disk(folder.path(), "gpt.img", Table::Gpt, &ext4(folder.path(), "a.img"), &swap);
    let body = (SECOND + 4096, usable);
    assert!(!plan_of(&image, &[]).contains(&body));
    for more in [&["--unallocated"][..], &["--unallocated", "--partition", "2"]] {
        assert!(plan_of(&image, more).contains(&body), "{more:?}: {:?}", plan_of(&image, more));
    }
    let planned = plan_of(&image, &["--unallocated"]);
    let before = Snapshot::take(&image);
    said(&["trim", "--yes", "--unallocated", text(&image)]).expect(0, &["unallocated space"]);
    before.assert_only_discarded(&planned);
    assert!(tool_ok("swaplabel", &[&extract(&image, folder.path())]).contains("swapped"));
    // A suspend image takes the place of the signature (Linux kernel/power/swap.c), and of everything on the disk.
    images::put(&image, SECOND + 4086, b"S1SUSPEND\0");
    let before = Snapshot::take(&image);
    said(&["trim", "--yes", "--unallocated", text(&image)]).expect(3, &["sleeping system"]);
    said(&["trim", "--yes", text(&image)]).expect(3, &["sleeping system"]);
    before.assert_untouched();
}

/// The second partition as a file of its own.
fn extract(image: &Path, folder: &Path) -> String {
    let path = folder.join("second.img");
    let bytes = std::fs::read(image).expect("the image");
    let start = usize::try_from(SECOND).expect("a start that fits");
    std::fs::write(&path, &bytes[start..start + (8 << 20)]).expect("room");
    text(&path).to_owned()
}
