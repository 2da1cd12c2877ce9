//! Small numbers and words of sysfs.

use super::error::{ErrorKind, TransportError};
use super::facts::DeviceFacts;
use std::path::Path;

/// The trimmed content of an attribute; none when it does not exist.
pub fn word(directory: &Path, name: &str) -> Option<String> {
    std::fs::read_to_string(directory.join(name)).ok().map(|text| text.trim().to_owned())
}

/// A number that must be there.
pub fn number(route: &'static str, directory: &Path, name: &str) -> Result<u64, TransportError> {
    let path = directory.join(name);
    let text = std::fs::read_to_string(&path)
        .map_err(|cause| TransportError::os(route, format!("cannot read {}", path.display()), cause))?;
    text.trim().parse().map_err(|_| {
        let what = format!("{}: expected a number, found {:?}", path.display(), text.trim());
        TransportError::new(ErrorKind::Io, route, what)
    })
}

/// How sd discards on this disk (`unmap`, `disabled`, ...); none when the disk is not a SCSI one.
pub fn provisioning_mode(sysfs: &Path) -> Option<String> {
    let mut disks = std::fs::read_dir(sysfs.join("device/scsi_disk")).ok()?;
    word(&disks.next()?.ok()?.path(), "provisioning_mode")
}

/// Zoned devices free whole zones by resetting them; a discard of single blocks has no meaning there.
pub fn refuse_zones(route: &'static str, facts: &DeviceFacts) -> Result<(), TransportError> {
    let zoned = facts.sysfs.as_deref().and_then(|sysfs| word(sysfs, "queue/zoned"));
    match zoned.filter(|kind| kind != "none") {
        Some(kind) => {
            let what = format!("the disk is written in zones ({kind}), and zones are not trimmed but reset");
            Err(TransportError::new(ErrorKind::Unsuitable, route, what))
        }
        None => Ok(()),
    }
}
