//! Reading the kernel's trees: small attributes, links, directories. Where the trees lie is a parameter, so that
//! tests can grow their own.

use serde::Serialize;
use std::path::{Path, PathBuf};

/// Where the kernel and udev show what there is.
#[derive(Debug, Clone)]
pub struct Roots {
    /// sysfs.
    pub sys: PathBuf,
    /// procfs.
    pub proc: PathBuf,
    /// Device nodes.
    pub dev: PathBuf,
    /// udev's notes on devices.
    pub udev: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        let [sys, proc, dev, udev] = ["/sys", "/proc", "/dev", "/run/udev/data"].map(PathBuf::from);
        Self { sys, proc, dev, udev }
    }
}

/// Major and minor number of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct DeviceNumber {
    /// Which driver.
    pub major: u64,
    /// Which device of it.
    pub minor: u64,
}

impl DeviceNumber {
    /// From `st_rdev` or `st_dev`.
    pub fn from_raw(number: u64) -> Self {
        Self { major: nix::sys::stat::major(number), minor: nix::sys::stat::minor(number) }
    }

    /// From `8:1`.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl std::fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// An attribute as text, trimmed; none when it is absent, empty or unreadable.
pub(super) fn text(directory: &Path, name: &str) -> Option<String> {
    let bytes = std::fs::read(directory.join(name)).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    // Names of devices come from their firmware, and a terminal obeys what it is shown.
    let text: String = text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
    (!text.is_empty()).then_some(text)
}

/// An attribute as a decimal number.
pub(super) fn number(directory: &Path, name: &str) -> Option<u64> {
    text(directory, name)?.parse().ok()
}

/// An attribute that is 0 or 1.
pub(super) fn flag(directory: &Path, name: &str) -> Option<bool> {
    number(directory, name).map(|value| value != 0)
}

/// An attribute in hexadecimal without a prefix, as USB descriptors are shown.
pub(super) fn hex(directory: &Path, name: &str) -> Option<u16> {
    u16::from_str_radix(&text(directory, name)?, 16).ok()
}

/// Names of the entries of a directory, sorted; none when it is absent.
pub(super) fn entries(directory: &Path) -> Vec<String> {
    let found = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = found.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_by_key(|name| natural(name));
    names
}

/// `sda10` behind `sda9`.
fn natural(name: &str) -> (String, u64, String) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = name.strip_prefix(stem).unwrap_or_default();
    (stem.to_owned(), digits.parse().unwrap_or(0), name.to_owned())
}

/// The last component of where a link leads (`driver` -> `uas`).
pub(super) fn link_name(directory: &Path, name: &str) -> Option<String> {
    let to = std::fs::read_link(directory.join(name)).ok()?;
    Some(to.file_name()?.to_str()?.to_owned())
}

/// The first of a directory and its parents that has an attribute of this name.
pub(super) fn ancestor_with<'a>(directory: &'a Path, name: &str) -> Option<&'a Path> {
    directory.ancestors().find(|parent| parent.join(name).exists())
}
