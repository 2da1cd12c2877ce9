use super::*;
use crate::transport::facts::{NodeKind, test_facts};

fn known(vendor: &str, product: &str) -> Quirks {
    find(&Names::of(&test_facts(NodeKind::Scsi, 0), vendor, product, "1.0"))
}

fn drive(model: &str) -> Quirks {
    find(&Names::default().with_drive(model, "X61110RL"))
}

#[test]
fn globs_are_those_of_the_kernel() {
    assert!(glob::matches("ST[1248][0248]0[FH]*", "ST480HM000"));
    assert!(!glob::matches("ST[1248][0248]0[FH]*", "ST490HM000"));
    assert!(glob::matches("INTEL*SSDSC2MH*", "INTEL SSDSC2MH120A2"));
    assert!(glob::matches("a?c", "abc") && !glob::matches("a?c", "ac") && !glob::matches("abc", "abcd"));
    assert!(!glob::matches("a[b", "ab"));
}

#[test]
fn broken_drives_are_known_by_every_name() {
    assert!(drive("SuperSSpeed S238 128GB").never.is_some());
    assert!(drive("M88V29-120").never.is_some());
    assert!(known("SuperSSp", "eed S238 128GB").never.is_some(), "split over vendor and product by a bridge");
    assert!(known("ATA", "SuperSSpeed S238").never.is_some(), "cut to 16 characters by libata");
    assert_eq!(drive("Super Talent S238"), Quirks::default());
}

#[test]
fn sandisk_drives_get_no_more_than_128_mib_at_once() {
    for model in ["SanDisk SD7SB6S128G", "SanDisk SD8SBAT256G1122", "SanDisk SD9SN8W1T00"] {
        assert_eq!(drive(model).max_command_bytes, Some(128 << 20));
    }
    assert_eq!(known("SanDisk", "SD8SBAT256G1122").max_command_bytes, Some(128 << 20));
    assert_eq!(drive("SanDisk SDSSDH3").max_command_bytes, None);
}

#[test]
fn only_listed_models_are_trusted_to_read_zeros() {
    assert!(drive("Samsung SSD 860 EVO 1TB").zeros_trusted);
    assert!(drive("Crucial_CT512MX100SSD1").zeros_trusted);
    assert!(drive("INTEL SSDSC2BB480G4").zeros_trusted);
    assert!(!drive("INTEL SSDSC2MH120A2").zeros_trusted, "the 510 claims it wrongly");
    assert!(!drive("KINGSTON SA400S37240G").zeros_trusted);
}

#[test]
fn bridges_are_known_by_their_numbers() {
    let behind = |vendor, product| {
        let usb = Some(UsbId { vendor, product, release: 0 });
        find(&Names { usb, ..Names::default() })
    };
    assert_eq!(
        behind(0x174c, 0x2463),
        Quirks { max_command_bytes: Some(64 << 20), no_sat12: true, ..Quirks::default() }
    );
    assert!(behind(0x152d, 0x0583).no_sat12);
    assert!(behind(0x0bda, 0x9210).known.is_some_and(|words| words.contains("hung")));
    assert_eq!(behind(0x0bda, 0x9210).max_command_bytes, Some(64 << 20));
    // What was published makes nothing else lax.
    assert_eq!(Quirks { known: None, ..behind(0x174c, 0x55aa) }, Quirks::default());
    assert_eq!(behind(0x1234, 0x5678), Quirks::default());
}

#[test]
fn firmware_decides_where_numbers_are_shared() {
    let behind =
        |product, vendor, release| find(&Names { usb: Some(UsbId { vendor, product, release }), ..Names::default() });
    assert!(behind(0x0583, 0x152d, 0x0214).known.is_some_and(|words| words.starts_with("JMS583")));
    for release in SATA_AS_JMS583 {
        let quirks = behind(0x0583, 0x152d, *release);
        assert!(quirks.known.is_some_and(|words| words.contains("SATA adapter")), "{release:04x}");
        assert!(quirks.no_sat12, "the numbers alone are reason enough to be careful");
    }
    assert!(behind(0x3940, 0x13fd, 0x0309).no_sat12 && behind(0x3940, 0x13fd, 0x0100).no_sat12);
    assert_eq!(behind(0x3940, 0x13fd, 0x0310), Quirks::default());
}
