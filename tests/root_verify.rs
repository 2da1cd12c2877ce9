//! `coldtrim verify` on loop devices: real reads and writes around the page cache, on images whose bytes the test can see.

mod common;
#[path = "common/images.rs"]
mod images;
#[path = "common/loops.rs"]
mod loops;

use common::{map_ranges, rounded};
use images::backing::Snapshot;
use images::{SECOND, Table, check_ext4, check_fat, disk, ext4, ext4_of, fat, said, text};
use loops::{Loop, granule};

const SHORT: [&str; 8] = ["verify", "--json", "--yes", "--length", "smoke", "--settle", "1", "--budget"];

/// Sectors that the kernel has written to a device.
fn sectors_written(device: &Loop) -> u64 {
    let stat = std::fs::read_to_string(format!("/sys/class/block/{}/stat", device.name())).expect("its account");
    stat.split_whitespace().nth(6).and_then(|word| word.parse().ok()).expect("the seventh number")
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_loop_device_is_measured_in_free_space_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4_of(folder.path(), "a.img", 96);
    let free = map_ranges(&image);
    let before = Snapshot::take(&image);
    let device = Loop::new(&image);
    let planned = rounded(&free, granule(&device));
    let sectors = sectors_written(&device);
    let run = said(&[&SHORT[..], &["64M", &device.0]].concat());
    let report = run.expect(0, &[]).json();
    let found = &report["verify"];
    assert_eq!(
        (&found["bench"]["direct"], &found["harm"], &found["left_bytes"]),
        (&true.into(), &().into(), &0.into())
    );
    assert_eq!(found["verdict"], "works (zeroes)");
    let written = found["sent"]["written"].as_u64().expect("a number");
    let seen = (sectors_written(&device) - sectors) * 512;
    // The trial of the route writes some, too.
    assert!(written > 16 << 20 && seen >= written && seen < written + (8 << 20), "{written} written, {seen} seen");
    drop(device);
    before.assert_only_discarded(&planned);
    check_ext4(&image, 0);
}

/// One partition of two is measured, and the other keeps every byte.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_partition_is_measured_and_its_neighbour_left_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Gpt, &first, &second);
    let free = map_ranges(&image);
    let before = Snapshot::take(&image);
    let device = Loop::partitioned(&image);
    let planned = rounded(&free, granule(&device));
    let second: Vec<_> = planned.into_iter().filter(|(start, _)| *start >= SECOND).collect();
    let run = said(&[&SHORT[..], &["8M", &device.part(2)]].concat());
    assert!(run.expect(0, &[]).json()["verify"]["sent"]["written"].as_u64() > Some(1 << 20));
    drop(device);
    before.assert_only_discarded(&second);
    check_fat(&image, SECOND);
    assert!(second.len() > 5 && text(&image).ends_with("disk.img"));
}
