use super::*;
use crate::plan::units::{BlockSize, ByteRange};
use crate::plan::{Cap, Disk as PlanDisk, Plan, Policy, Region};
use crate::transport::facts::{UsbId, test_facts};
use crate::transport::loopback::MemoryDisk;

const BLOCKS: usize = 4096;
const BYTES: u64 = 4096 * 512;

fn facts() -> DeviceFacts {
    test_facts(NodeKind::Scsi, BYTES)
}

fn plan(route: &dyn Transport, free: &[ByteRange]) -> Plan {
    let whole = ByteRange::new(0, BYTES).unwrap();
    let region = Region { device: 0, origin: "test", ranges: free, within: whole, partition: whole };
    let disk = PlanDisk { device: 0, size: BYTES, capacity: route.capacity() };
    Plan::build(&disk, &[region], &route.limits(), &Policy::default()).unwrap()
}

#[test]
fn a_run_clears_exactly_the_plan() {
    let disk = MemoryDisk::new(BLOCKS, 100, 3, 8);
    let mut route = Unmap::open(Box::new(disk.clone()), &facts()).unwrap();
    assert_eq!(route.read_after_discard(), ReadAfterDiscard::Undefined);
    assert!(route.notes()[0].contains("LBPME is 0"));
    let free: Vec<ByteRange> =
        (0..60_u64).map(|k| ByteRange::with_len(k * 33_000, 512 * (k * 7 % 64 + 1)).unwrap()).collect();
    let plan = plan(&route, &free);
    for batch in plan.batches() {
        route.discard(&batch).unwrap();
    }
    assert_eq!(disk.unmaps(), plan.facts().commands);
    let medium = disk.medium();
    let planned = |at: u64| plan.extents().iter().any(|e| e.start() <= at && at < e.end());
    assert!((0_u64..).zip(&medium).all(|(at, byte)| *byte == if planned(at) { 0 } else { 0xA5 }));
}

#[test]
fn stated_limits_are_obeyed_and_absurd_ones_are_not_believed() {
    let limits = |blocks, descriptors, granularity, usb| {
        let usb = if usb { Some(UsbId { vendor: 1, product: 1, release: 1 }) } else { None };
        let disk = MemoryDisk::new(BLOCKS, blocks, descriptors, granularity);
        Unmap::open(Box::new(disk), &DeviceFacts { usb, ..facts() }).map(|route| route.limits())
    };
    let small = limits(1000, 1, 8, false).unwrap();
    assert_eq!((small.granularity(), small.max_ranges(), small.max_command_bytes()), (4096, 1, 1000 * 512));
    let unlimited = limits(u32::MAX, u32::MAX, 0, true).unwrap();
    assert_eq!(
        (unlimited.granularity(), unlimited.max_ranges(), unlimited.max_command_bytes()),
        (512, 255, 2_147_450_880)
    );
    assert_eq!(limits(u32::MAX, 63, 0, false).unwrap().max_command_bytes(), 0x7F_FFFF * 512);
    let kind = |result: Result<_, TransportError>| result.unwrap_err().kind();
    assert_eq!(kind(limits(0, 1, 0, false)), ErrorKind::Rejected);
    assert_eq!(kind(limits(1, 0, 0, false)), ErrorKind::Rejected);
    assert_eq!(kind(limits(7, 1, 8, false)), ErrorKind::Contradiction, "less than a granule");
}

#[test]
fn a_device_that_differs_from_what_the_kernel_knows_is_not_used() {
    let open = |facts| Unmap::open(Box::new(MemoryDisk::new(BLOCKS, 100, 1, 1)), &facts).err().unwrap().kind();
    assert_eq!(open(DeviceFacts { disk_size: BYTES + 512, ..facts() }), ErrorKind::Contradiction);
    let large = BlockSize::new(4096).unwrap();
    assert_eq!(open(DeviceFacts { logical_block: large, ..facts() }), ErrorKind::Contradiction);
    assert_eq!(open(DeviceFacts { partition: ByteRange::new(0, 512), ..facts() }), ErrorKind::Contradiction);
    assert_eq!(open(DeviceFacts { model: "SuperSSpeed S238".into(), ..facts() }), ErrorKind::Unsuitable);
}

#[test]
fn a_batch_of_another_device_is_not_sent() {
    let small = MemoryDisk::new(BLOCKS, 100, 1, 1);
    let large = MemoryDisk::new(BLOCKS, 200, 2, 1);
    let wide = Unmap::open(Box::new(large), &facts()).unwrap();
    let mut narrow = Unmap::open(Box::new(small.clone()), &facts()).unwrap();
    let plan = plan(&wide, &[ByteRange::new(0, 512 * 150).unwrap()]);
    let batch = plan.cursor().next_batch(Cap::NONE).unwrap();
    assert_eq!(narrow.discard(&batch).unwrap_err().kind(), ErrorKind::LimitExceeded);
    assert_eq!(small.unmaps(), 0);
}

#[test]
fn reads_go_through_the_same_addresses() {
    use crate::transport::BlockRead;
    let mut disk = Disk::identify(NAME, Box::new(MemoryDisk::new(BLOCKS, 100, 1, 1)), &facts()).unwrap();
    let bytes = disk.read(ByteRange::new(512, 512 * 200).unwrap()).unwrap();
    assert_eq!(bytes, vec![0xA5; 512 * 199]);
    assert_eq!(disk.read(ByteRange::new(100, 512).unwrap()).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(disk.read(ByteRange::new(BYTES, BYTES + 512).unwrap()).unwrap_err().kind(), ErrorKind::OutOfRange);
}
