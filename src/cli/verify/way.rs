//! The way to a drive: what it carries at most, and how many transfers it takes at once.

use crate::measure::Way;
use crate::target::facts::{Attachment, DiskFacts};
use std::path::Path;

/// What practice shows of each link: megabits a second, with the driver where that matters, and bytes a second.
const LINKS: [(&str, Option<&str>, f64); 6] = [
    ("480", None, 42e6),
    ("5000", Some("usb-storage"), 270e6),
    ("5000", None, 450e6),
    ("10000", None, 1_060e6),
    ("20000", None, 2_100e6),
    ("12", None, 1.2e6),
];

/// What is known of the way to a disk, also in words.
pub fn way(disk: Option<&DiskFacts>) -> (Way, Option<String>) {
    let Some(disk) = disk else { return (Way::default(), None) };
    let depth = [disk.sysfs.join("device/queue_depth"), disk.sysfs.join("queue/nr_requests")];
    let depth = depth.iter().filter_map(|path| number(path)).filter(|depth| *depth > 0).min();
    let link = match &disk.attachment {
        Attachment::Usb(usb) => usb.speed.as_deref().map(|speed| (speed, usb.driver.as_deref())),
        _ => None,
    };
    let ceiling = link.and_then(|(speed, driver)| carried(speed, driver));
    let words = [
        super::super::device::attachment(disk),
        link.map(|(speed, _)| format!("link of {speed} Mbit/s")),
        ceiling.map(|ceiling| format!("which carries about {:.0} MB/s", ceiling / 1e6)),
        depth.map(|depth| format!("up to {depth} transfers at once")),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    (Way { depth, ceiling }, (!words.is_empty()).then(|| words.join(", ")))
}

fn carried(speed: &str, driver: Option<&str>) -> Option<f64> {
    let fits = |(link, by, _): &&(&str, Option<&str>, f64)| *link == speed && (by.is_none() || *by == driver);
    LINKS.iter().find(fits).map(|(_, _, carried)| *carried)
}

fn number(path: &Path) -> Option<usize> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_driver_has_the_lower_ceiling() {
        assert_eq!(carried("480", Some("uas")), Some(42e6));
        assert_eq!(carried("5000", Some("usb-storage")), Some(270e6));
        assert_eq!(carried("5000", Some("uas")), Some(450e6));
        assert_eq!(carried("40000", None), None);
        assert_eq!(way(None).1, None);
    }
}
