use super::facts::test_facts;
use super::*;

fn names(facts: &DeviceFacts) -> Vec<&'static str> {
    candidates(facts).iter().map(|(route, _)| route.name).collect()
}

fn scsi(vendor: &str, usb: bool) -> DeviceFacts {
    let usb = usb.then_some(UsbId { vendor: 0x174c, product: 0x55aa, release: 0x0100 });
    DeviceFacts { vendor: vendor.to_owned(), usb, ..test_facts(NodeKind::Scsi, 1 << 20) }
}

#[test]
fn auto_prefers_what_the_contract_says() {
    assert_eq!(names(&test_facts(NodeKind::Image, 1 << 20)), ["punch"]);
    assert_eq!(names(&test_facts(NodeKind::Nvme, 1 << 20)), ["nvme"]);
    assert_eq!(names(&scsi("ATA", false)), ["sat16"]);
    assert_eq!(names(&scsi("QEMU", false)), ["unmap"]);
    assert_eq!(names(&scsi("ASMT", true)), ["unmap", "sat16"]);
    assert!(names(&test_facts(NodeKind::Loop, 1 << 20)).is_empty(), "nothing in sysfs");
}

#[test]
fn raw_routes_never_work_on_a_partition() {
    let partition = crate::plan::units::ByteRange::new(512, 1024);
    for kind in [NodeKind::Scsi, NodeKind::Nvme] {
        let facts = DeviceFacts { partition, ..test_facts(kind, 1 << 20) };
        let offered = TRANSPORTS.iter().filter(|route| !matches!((route.applies)(&facts), Applies::No(_)));
        assert_eq!(offered.count(), 0);
    }
}

#[test]
fn names_of_routes_are_unique_and_found() {
    for row in TRANSPORTS {
        assert!(std::ptr::eq(route(row.name).unwrap(), row));
    }
    assert!(route("auto").is_none());
}

#[test]
fn errors_of_the_kernel_have_kinds() {
    let kind = |number| TransportError::os("x", "y", std::io::Error::from_raw_os_error(number)).kind();
    let table = [
        (1, ErrorKind::Permission),
        (5, ErrorKind::Io),
        (6, ErrorKind::Gone),
        (19, ErrorKind::Gone),
        (22, ErrorKind::OutOfRange),
        (25, ErrorKind::Rejected),
        (30, ErrorKind::WriteProtected),
        (95, ErrorKind::Rejected),
        (110, ErrorKind::TimedOut),
        (121, ErrorKind::Rejected),
    ];
    for (number, expected) in table {
        assert_eq!(kind(number), expected, "errno {number}");
    }
}
