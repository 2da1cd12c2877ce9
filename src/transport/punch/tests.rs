use super::*;
use crate::plan::units::ByteRange;
use crate::plan::{Disk, Plan, Policy, Region};
use crate::transport::facts::test_facts;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};

fn image(len: usize) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![0xA5; len]).unwrap();
    file
}

fn plan(route: &Punch, free: ByteRange) -> Plan {
    let whole = ByteRange::new(0, route.capacity()).unwrap();
    let disk = Disk { device: 0, size: whole.len(), capacity: route.capacity() };
    let region = Region { device: 0, origin: "test", ranges: &[free], within: whole, partition: whole };
    Plan::build(&disk, &[region], &route.limits(), &Policy::default()).unwrap()
}

#[test]
fn a_hole_zeroes_exactly_its_bytes_and_gives_whole_blocks_back() {
    let file = image(1 << 20);
    let before = file.metadata().unwrap().blocks();
    let mut route = Punch::open(&file, &test_facts(NodeKind::Image, 1 << 20)).unwrap();
    let free = ByteRange::new(1000, 900_001).unwrap();
    let plan = plan(&route, free);
    for batch in plan.batches() {
        route.discard(&batch).unwrap();
    }
    route.flush().unwrap();
    let mut bytes = vec![0; 1 << 20];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let expected = |at: usize| if (1000..900_001).contains(&at) { 0 } else { 0xA5 };
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
    assert!(file.metadata().unwrap().blocks() < before, "blocks were given back");
}

#[test]
fn an_image_that_changes_its_length_ends_the_run() {
    let file = image(8192);
    let mut route = Punch::open(&file, &test_facts(NodeKind::Image, 8192)).unwrap();
    let plan = plan(&route, ByteRange::new(0, 4096).unwrap());
    file.set_len(4096).unwrap();
    let error = route.discard(&plan.batches().next().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed);
    assert!(Punch::open(&file, &test_facts(NodeKind::Image, 8192)).is_err());
}
