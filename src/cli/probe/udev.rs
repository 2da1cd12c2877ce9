//! Hand-over to the kernel: the udev rule by which ordinary `fstrim` works from now on, with the limits that were measured.

use super::results::Results;
use crate::target::facts::{Attachment, DiskFacts, UsbFacts};
use std::fmt::Write;

/// What the kernel calls a route in `provisioning_mode` (Linux `drivers/scsi/sd.c`). It knows no ATA command behind USB.
const MODES: &[(&str, &str)] = &[("unmap", "unmap"), ("writesame16", "writesame_16"), ("writesame10", "writesame_10")];

/// The rule as the text of a file, or why there is none. `granularity` is that of a route, in bytes.
pub fn rule(disk: &DiskFacts, results: &Results, granularity: impl Fn(&str) -> Option<u64>) -> Result<String, String> {
    let Attachment::Usb(usb) = &disk.attachment else {
        return Err("a udev rule is for bridges that the kernel distrusts, and this disk is not behind USB".to_owned());
    };
    let found = MODES.iter().find_map(|(name, mode)| Some((*name, *mode, results.largest_by(name)?)));
    let Some((name, mode, largest)) = found else {
        return Err(
            "no route worked that the kernel knows behind USB (unmap, writesame16, writesame10); coldtrim itself may \
             still use another one"
                .to_owned(),
        );
    };
    let granule = granularity(name).unwrap_or(disk.logical_sector).max(1);
    Ok(text(usb, name, mode, largest / granule * granule))
}

fn text(usb: &UsbFacts, name: &str, mode: &str, most: u64) -> String {
    let device = format!(
        "ATTRS{{idVendor}}==\"{:04x}\", ATTRS{{idProduct}}==\"{:04x}\", ATTRS{{bcdDevice}}==\"{:04x}\"",
        usb.vendor_id, usb.product_id, usb.release
    );
    let mut out = String::new();
    let _ = writeln!(
        out,
        "# Save as /etc/udev/rules.d/50-coldtrim.rules, then: udevadm control --reload && udevadm trigger"
    );
    let _ =
        writeln!(out, "# Measured on one unit with this firmware by probe --test: {name} works up to {most} bytes.");
    let _ = writeln!(
        out,
        "# With provisioning_mode set by hand the kernel ignores the limit that the device itself states,"
    );
    let _ = writeln!(out, "# so the second line is as needful as the first. Another firmware needs another test.");
    let _ = writeln!(
        out,
        "ACTION==\"add|change\", SUBSYSTEM==\"scsi_disk\", {device}, ATTR{{provisioning_mode}}=\"{mode}\""
    );
    let _ = writeln!(
        out,
        "ACTION==\"add|change\", SUBSYSTEM==\"block\", ENV{{DEVTYPE}}==\"disk\", {device}, ATTR{{queue/discard_max_bytes}}=\"{most}\""
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_names_the_bridge_the_mode_and_the_limit() {
        let usb = UsbFacts {
            vendor_id: 0x152d,
            product_id: 0x0583,
            release: 0x0214,
            manufacturer: None,
            product: None,
            serial: Some("secret".to_owned()),
            speed: None,
            driver: None,
            sysfs: std::path::PathBuf::new(),
        };
        let rule = text(&usb, "writesame16", "writesame_16", 4 << 20);
        let lines: Vec<&str> = rule.lines().filter(|line| !line.starts_with('#')).collect();
        let device = r#"ATTRS{idVendor}=="152d", ATTRS{idProduct}=="0583", ATTRS{bcdDevice}=="0214""#;
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.contains(device)), "{rule}");
        assert!(
            lines[0].contains(r#"SUBSYSTEM=="scsi_disk""#)
                && lines[0].ends_with(r#"ATTR{provisioning_mode}="writesame_16""#)
        );
        assert!(lines[1].ends_with(r#"ATTR{queue/discard_max_bytes}="4194304""#), "{rule}");
        assert!(rule.contains("ignores the limit") && !rule.contains("secret"));
    }
}
