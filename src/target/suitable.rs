//! Not every disk wants to be trimmed: what speaks against a disk before anything on it is read.

use super::facts::{Attachment, DiskFacts, Kind, PartitionFacts, Rotation};
use coldtrim_parsers::volume::{Consent, Finding};

/// What is wrong with a disk as a target, or worth saying about it.
pub fn findings(disk: &DiskFacts, partition: Option<&PartitionFacts>) -> Vec<Finding> {
    let name = disk.node.display();
    let mut found = Vec::new();
    found.extend(state(disk));
    if disk.kind == Kind::Optical {
        found.push(Finding::refusal(format!("{name} is an optical drive"), "name a disk: coldtrim list"));
    }
    if disk.read_only || partition.is_some_and(|partition| partition.read_only) {
        found.push(Finding::refusal(
            format!("{name} is write-protected"),
            "look for a switch on the medium or its adapter; a lock set by software is lifted by: blockdev --setrw DEVICE",
        ));
    }
    if disk.zoned != "none" {
        found.push(Finding::refusal(
            format!("{name} has zones ({}), and a discard there moves a zone's write pointer", disk.zoned),
            "only its own filesystem can tell it what is free: mount it and use fstrim",
        ));
    }
    if disk.metadata_bytes > 0 {
        found.push(Finding::refusal(
            format!("{name} keeps {} bytes of metadata beside each sector", disk.metadata_bytes),
            "format the namespace without metadata to make it an ordinary disk: nvme id-ns -H DEVICE",
        ));
    }
    found.extend(rotation(disk));
    found.extend(flash(disk));
    found
}

fn state(disk: &DiskFacts) -> Option<Finding> {
    let state = disk.state.as_deref()?;
    (!matches!(state, "running" | "live")).then(|| {
        Finding::refusal(
            format!("the kernel calls {} \"{state}\" and not running", disk.node.display()),
            "look at the kernel's log: dmesg | tail -n 50",
        )
    })
}

fn rotation(disk: &DiskFacts) -> Option<Finding> {
    match disk.rotation {
        Rotation::Rotating => Some(rotates(&disk.node)),
        // Bridges do not pass the question on, and virtual disks have no answer: worth a remark on USB only.
        Rotation::Unknown if matches!(disk.attachment, Attachment::Usb(_)) => {
            Some(Finding::warning(format!("the kernel never asked {} whether it rotates", disk.node.display())))
        }
        Rotation::Unknown | Rotation::Solid => None,
    }
}

/// The finding for a disk that turns, by whichever layer said so.
pub fn rotates(node: &std::path::Path) -> Finding {
    Finding::consent(
        Consent::Rotating,
        format!(
            "{} is a rotating disk: TRIM gains nothing on most of them, and some (shingled ones) get slow or hang on it",
            node.display()
        ),
        "leave it alone, unless you know that it is a shingled disk that wants TRIM",
    )
}

/// USB sticks and card readers set the removable-medium bit and portable SSDs do not; an SD card says what it is.
fn flash(disk: &DiskFacts) -> Option<Finding> {
    let what = match (&disk.attachment, disk.card_type.as_deref()) {
        (Attachment::Usb(_), _) if disk.removable => "a USB stick or card reader (its medium is removable)",
        (Attachment::Mmc, Some("SD" | "SDIO" | "SDcombo")) => "an SD card",
        _ => return None,
    };
    Some(Finding::consent(
        Consent::RemovableFlash,
        format!(
            "{} is {what}: the firmware of some of these loses data that is in use when it is told to discard",
            disk.node.display()
        ),
        "back it up first; the data on it must be expendable",
    ))
}
