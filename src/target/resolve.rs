//! From what the user typed to a node or file: paths, `LABEL=`, `UUID=`, `PARTLABEL=`, `PARTUUID=`.

use super::error::TargetError;
use super::facts::{self, DiskFacts, PartitionFacts};
use super::sysfs::{DeviceNumber, Roots, entries};
use super::usage::Mount;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What lies on a node, as far as names go.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Identity {
    /// The filesystem or other content (`ext4`, `crypto_LUKS`).
    pub format: Option<String>,
    /// Its label.
    pub label: Option<String>,
    /// Its UUID as blkid prints it.
    pub uuid: Option<String>,
    /// What lies in the partitions of its own table, by their numbers; then the format is that of the table.
    #[serde(skip)]
    pub within: Vec<(u32, Identity)>,
}

impl Identity {
    /// True when it bears the name. UUIDs are written in both cases, labels that differ in case are two.
    fn bears(&self, tag: &str, value: &str) -> bool {
        match tag {
            "LABEL" => self.label.as_deref() == Some(value),
            "UUID" => self.uuid.as_deref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(value)),
            _ => false,
        }
    }
}

/// Looks at a node itself; used where udev has left no notes. An answer of nothing is no error.
pub type Identify<'a> = &'a dyn Fn(&Path) -> Option<Identity>;

/// The kinds of names: how users write them, udev's folder of links, udev's note.
const TAGS: &[(&str, &str, &str)] = &[
    ("LABEL", "disk/by-label", "ID_FS_LABEL_ENC"),
    ("UUID", "disk/by-uuid", "ID_FS_UUID_ENC"),
    ("PARTLABEL", "disk/by-partlabel", "ID_PART_ENTRY_NAME"),
    ("PARTUUID", "disk/by-partuuid", "ID_PART_ENTRY_UUID"),
];

/// The path that a target names.
pub(super) fn resolve(roots: &Roots, spec: &str, identify: Identify<'_>) -> Result<PathBuf, TargetError> {
    let tag = spec.split_once('=').and_then(|(name, value)| {
        let row = TAGS.iter().find(|row| row.0.eq_ignore_ascii_case(name))?;
        Some((row, value.trim_matches('"')))
    });
    let Some((row, value)) = tag else { return Ok(PathBuf::from(spec)) };
    // A file of that very name is meant when there is one.
    if Path::new(spec).exists() {
        return Ok(PathBuf::from(spec));
    }
    let is_same =
        |noted: &str| if row.0.ends_with("UUID") { noted.eq_ignore_ascii_case(value) } else { noted == value };
    let mut candidates = by_notes(roots, row.2, is_same);
    candidates.extend(by_links(roots, row.1, is_same));
    if matches!(row.0, "LABEL" | "UUID") {
        // A note on a disk with a table names one volume of it, and the disk has others.
        candidates.retain(|node| identify(node).is_none_or(|found| found.within.is_empty()));
    }
    let mut found: BTreeSet<Found> = candidates.into_iter().map(|node| (node, None)).collect();
    if found.is_empty() {
        found = by_looking(roots, row.0, value, identify);
    }
    let tag = spec.to_owned();
    let mut found: Vec<Found> = found.into_iter().collect();
    match (found.pop(), found.is_empty()) {
        (None, _) => Err(TargetError::NoSuchTag(tag)),
        (Some((node, None)), true) => Ok(node),
        (Some((disk, Some(number))), true) => Err(TargetError::Within { tag, disk, number }),
        (Some(last), false) => {
            found.push(last);
            let name = |(node, number): Found| match number {
                None => node,
                Some(number) => PathBuf::from(format!("{} (partition {number})", node.display())),
            };
            Err(TargetError::Ambiguous { tag, candidates: found.into_iter().map(name).collect() })
        }
    }
}

/// A node, or a partition of it that the kernel does not know.
type Found = (PathBuf, Option<u32>);

/// udev's notes on one device: `E:NAME=value` lines.
fn note(roots: &Roots, number: DeviceNumber, name: &str) -> Option<String> {
    let notes = std::fs::read_to_string(roots.udev.join(format!("b{number}"))).ok()?;
    let value = notes.lines().find_map(|line| line.strip_prefix("E:")?.strip_prefix(name)?.strip_prefix('='))?;
    Some(decoded(value))
}

/// What udev noted about the content of a device; none when it has no notes.
pub(super) fn noted_identity(roots: &Roots, number: DeviceNumber) -> Option<Identity> {
    let format = note(roots, number, "ID_FS_TYPE")?;
    let (label, uuid) = (note(roots, number, "ID_FS_LABEL_ENC"), note(roots, number, "ID_FS_UUID_ENC"));
    Some(Identity { format: Some(format), label, uuid, within: Vec::new() })
}

/// udev writes characters that are not safe in a file name as `\x20`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        match behind.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.extend_from_slice(b"\\x");
                rest = behind;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    let text = String::from_utf8_lossy(&bytes);
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Every block device: whole disks and partitions.
fn nodes(roots: &Roots) -> Vec<(DiskFacts, Option<PartitionFacts>)> {
    let numbers = entries(&roots.sys.join("dev/block"));
    numbers.iter().filter_map(|number| facts::lookup(roots, DeviceNumber::parse(number)?)).collect()
}

fn by_notes(roots: &Roots, name: &str, is_same: impl Fn(&str) -> bool) -> BTreeSet<PathBuf> {
    let numbers = entries(&roots.udev);
    let found = numbers.iter().filter_map(|file| {
        let number = DeviceNumber::parse(file.strip_prefix('b')?)?;
        let (disk, partition) =
            note(roots, number, name).filter(|noted| is_same(noted)).and_then(|_| facts::lookup(roots, number))?;
        Some(partition.map_or(disk.node, |partition| partition.node))
    });
    found.collect()
}

fn by_links(roots: &Roots, folder: &str, is_same: impl Fn(&str) -> bool) -> BTreeSet<PathBuf> {
    let folder = roots.dev.join(folder);
    let names = entries(&folder);
    let equal = names.iter().filter(|name| is_same(&decoded(name)));
    equal.filter_map(|name| folder.join(name).canonicalize().ok()).collect()
}

fn by_looking(roots: &Roots, tag: &str, value: &str, identify: Identify<'_>) -> BTreeSet<Found> {
    let of_node = |(disk, partition): (DiskFacts, Option<PartitionFacts>)| {
        let is_disk = partition.is_none();
        let node = partition.map_or_else(|| disk.node.clone(), |partition| partition.node);
        let identity = identify(&node).unwrap_or_default();
        let own = identity.bears(tag, value).then(|| (node.clone(), None));
        // Those that the kernel knows are nodes, too.
        let known = if is_disk { facts::partitions(roots, &disk) } else { Vec::new() };
        let unknown = identity.within.into_iter().filter(|(number, _)| !known.iter().any(|part| part.index == *number));
        let within = unknown.filter(|(_, part)| part.bears(tag, value)).map(|(number, _)| (node.clone(), Some(number)));
        own.into_iter().chain(within).collect::<Vec<_>>()
    };
    nodes(roots).into_iter().filter(|(disk, _)| disk.size > 0).flat_map(of_node).collect()
}

/// What a path is, when it is neither a block device nor a regular file: an error that says what to name instead.
pub(super) fn unsuitable(roots: &Roots, path: &Path, metadata: &Metadata) -> Option<TargetError> {
    let kind = metadata.file_type();
    let path = path.to_owned();
    if kind.is_dir() {
        return Some(directory(roots, path));
    }
    if kind.is_char_device() {
        let hint = block_of(roots, DeviceNumber::from_raw(metadata.rdev()));
        return Some(TargetError::CharacterDevice { path, hint });
    }
    let what = match () {
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => return None,
    };
    Some(TargetError::NotADisk { path, what })
}

fn directory(roots: &Roots, path: PathBuf) -> TargetError {
    let at = path.canonicalize().unwrap_or_else(|_| path.clone());
    let table = std::fs::read(roots.proc.join("self/mountinfo")).unwrap_or_default();
    let table = String::from_utf8_lossy(&table).into_owned();
    let mount = table.lines().filter_map(Mount::parse).rfind(|mount| Path::new(&mount.at) == at);
    if let Some(mount) = mount {
        return TargetError::MountPoint { at: mount.at, source_node: mount.source };
    }
    let is_bundle = path.join("Info.plist").exists() && path.join("bands").is_dir();
    let hint = if is_bundle {
        ": a sparse bundle of macOS; shrink it there with `hdiutil compact`".to_owned()
    } else {
        "; name a disk, a partition or an image file".to_owned()
    };
    TargetError::Directory { path, hint }
}

/// The block devices behind a character device such as `/dev/sg1` or `/dev/nvme0`.
fn block_of(roots: &Roots, number: DeviceNumber) -> String {
    let directory = roots.sys.join("dev/char").join(number.to_string());
    let mut names = entries(&directory.join("device/block"));
    names.extend(entries(&directory).into_iter().filter(|name| roots.sys.join("block").join(name).exists()));
    if names.is_empty() {
        return String::new();
    }
    let nodes: Vec<String> = names.iter().map(|name| format!("/dev/{name}")).collect();
    format!("; its disk is {}", nodes.join(", "))
}
