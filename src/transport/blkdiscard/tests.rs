use super::*;
use crate::transport::facts::test_facts;

/// A sysfs of one disk.
fn fake(max_bytes: &str, mode: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("queue/discard_max_bytes", max_bytes);
    write("queue/discard_granularity", "4096\n");
    write("discard_alignment", "512\n");
    write("device/scsi_disk/0:0:0:0/provisioning_mode", mode);
    directory
}

fn facts(directory: &tempfile::TempDir) -> DeviceFacts {
    DeviceFacts { sysfs: Some(directory.path().to_owned()), ..test_facts(NodeKind::Scsi, 1 << 20) }
}

#[test]
fn limits_are_those_of_sysfs() {
    let directory = fake("2147450880\n", "unmap\n");
    let state = State::read(directory.path()).unwrap();
    let limits = limits(directory.path(), &facts(&directory), &state).unwrap();
    assert_eq!((limits.granularity(), limits.alignment(), limits.max_ranges()), (4096, 512, 1));
    assert_eq!(limits.max_range_bytes(), 2_147_450_880 / 4096 * 4096);
}

#[test]
fn a_kernel_that_switched_discard_off_is_not_believed() {
    let directory = fake("2147450880\n", "unmap\n");
    let (limits, state) = {
        let state = State::read(directory.path()).unwrap();
        (limits(directory.path(), &facts(&directory), &state).unwrap(), state)
    };
    let file = tempfile::tempfile().unwrap();
    let route = BlkDiscard { file, sysfs: directory.path().to_owned(), state, limits, size: 1 << 20 };
    route.check_state().unwrap();
    std::fs::write(directory.path().join("device/scsi_disk/0:0:0:0/provisioning_mode"), "disabled\n").unwrap();
    let error = route.check_state().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(
        error
            .to_string()
            .contains("provisioning_mode unmap to discard_max_bytes 2147450880, provisioning_mode disabled"),
        "{error}"
    );
}

#[test]
fn auto_takes_it_on_native_ports_only_and_only_when_offered() {
    let on = fake("2147450880\n", "unmap\n");
    let off = fake("0\n", "full\n");
    let usb = crate::transport::UsbId { vendor: 0x152d, product: 0x0583, release: 0x0214 };
    assert!(matches!((ROUTE.applies)(&facts(&on)), Applies::Auto(_)));
    assert!(matches!((ROUTE.applies)(&DeviceFacts { usb: Some(usb), ..facts(&on) }), Applies::WhenNamed(_)));
    assert!(matches!((ROUTE.applies)(&facts(&off)), Applies::No(_)));
    assert!(matches!((ROUTE.applies)(&test_facts(NodeKind::Image, 4096)), Applies::No(_)));
    let file = tempfile::tempfile().unwrap();
    let error = BlkDiscard::open(&file, &facts(&off)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Rejected);
}

#[test]
fn zoned_disks_are_refused_on_every_route() {
    let directory = fake("2147450880\n", "unmap\n");
    std::fs::write(directory.path().join("queue/zoned"), "none\n").unwrap();
    sysfs::refuse_zones(NAME, &facts(&directory)).unwrap();
    std::fs::write(directory.path().join("queue/zoned"), "host-managed\n").unwrap();
    let file = tempfile::tempfile().unwrap();
    for row in crate::transport::TRANSPORTS.iter().filter(|row| row.name != "punch") {
        let error = (row.open)(&file, &facts(&directory)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsuitable, "{}: {error}", row.name);
    }
}

#[test]
fn the_devices_own_page_says_where_granules_start() {
    let directory = fake("2147450880\n", "unmap\n");
    let mut page = vec![0; 64];
    (page[1], page[3], page[31]) = (0xB0, 0x3C, 8);
    page[32..36].copy_from_slice(&0x8000_0005_u32.to_be_bytes());
    std::fs::write(directory.path().join("device/vpd_pgb0"), page).unwrap();
    let whole = facts(&directory);
    assert_eq!(alignment(directory.path(), &whole, 4096).unwrap(), 5 * 512, "whatever the kernel's attribute says");
    // A partition that starts at block 7: the next granule starts at block 13.
    let partition = ByteRange::new(7 * 512, 100 * 512);
    assert_eq!(alignment(directory.path(), &DeviceFacts { partition, ..whole }, 4096).unwrap(), 6 * 512);
}
