//! Two opinions on where partitions lie: the table's, which is read here, and the kernel's, by which everybody else
//! works. Where they differ, one of them is old, and what it calls free is somebody's data.

use super::job::{Scope, UsageError};
use crate::sandbox::{SandboxLayer, read_stack};
use crate::target::Target;
use crate::target::facts::PartitionFacts;
use anyhow::Result;
use coldtrim_parsers::stack::{Content, Depth, FoundTable, Options, WitnessMode};
use coldtrim_parsers::text::quoted;
use coldtrim_parsers::units::ByteRange;
use coldtrim_parsers::volume::Finding;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// The bytes of a target that `--offset` and `--size` leave; inside one partition where there is a table.
pub fn window(target: &Target, scope: &Scope, stop: &AtomicBool) -> Result<ByteRange> {
    let size = target.size();
    let path = || target.path().display().to_string();
    let end = scope.size.map_or(Some(size), |len| scope.offset.checked_add(len)).filter(|end| *end <= size);
    let named = end.and_then(|end| ByteRange::new(scope.offset, end));
    let named = named.ok_or_else(|| UsageError::Outside(path(), size))?;
    if named.start() == 0 && named.end() == size {
        return Ok(named);
    }
    let table = match table(target.reader()?, size, target.logical_sector(), stop)? {
        Layout::Divided(table) => table,
        Layout::Plain(_) => return Ok(named),
        Layout::Unclear(_) if scope.size.is_some() => return Ok(named),
        Layout::Unclear(why) => return Err(UsageError::NoEnd { path: path(), why }.into()),
    };
    let (what, bound) = around(&table, named.start(), size);
    if scope.size.is_some() && named.end() > bound {
        return Err(UsageError::ReachesOut { path: path(), end: named.end(), what, bound }.into());
    }
    let inside = ByteRange::new(named.start(), named.end().min(bound));
    Ok(inside.ok_or_else(|| UsageError::Outside(path(), size))?)
}

/// What lies around a byte, and where that ends.
fn around(table: &FoundTable, at: u64, size: u64) -> (String, u64) {
    match table.parts.iter().find(|part| (part.range.start()..part.range.end()).contains(&at)) {
        Some(part) => (format!("partition {}", part.number), part.range.end()),
        None => {
            let next = table.parts.iter().map(|part| part.range.start()).filter(|start| *start > at).min();
            ("the space before the next partition".to_owned(), next.unwrap_or(size))
        }
    }
}

/// What speaks against the part of a target that was named, because of what lies around it: the kernel sees partitions
/// elsewhere than the table puts them, or all of it belongs to something that the part alone does not show.
pub fn objections(target: &Target, window: ByteRange, stop: &AtomicBool) -> Result<Vec<Finding>> {
    let mut found = strangers(target, stop)?;
    match (target.disk(), target.partition()) {
        (Some(disk), Some(partition)) => {
            let whole = SandboxLayer {
                file: target.disk_reader()?,
                offset: 0,
                len: disk.size,
                sector_size: disk.logical_sector,
            };
            found.extend(said_by(whole, partition.range, &disk.node, stop)?);
        }
        _ if window.start() == 0 && window.len() == target.size() => {}
        _ => {
            let (file, len) = (target.reader()?, target.size());
            let whole = SandboxLayer { file, offset: 0, len, sector_size: target.logical_sector() };
            found.extend(said_by(whole, window, target.path(), stop)?);
        }
    }
    Ok(found)
}

/// What the whole says about a part of it: a suspend image beside it, records of a RAID around it, a type that tells
/// whose it is, hashes that cover it.
fn said_by(whole: SandboxLayer, part: ByteRange, name: &Path, stop: &AtomicBool) -> Result<Vec<Finding>> {
    let (len, sector_size) = (whole.len, whole.sector_size);
    let found = match table(whole.file.try_clone()?, len, sector_size, stop)? {
        Layout::Divided(found) => found,
        // A volume with less behind it than it could have.
        Layout::Plain(Some(_)) if part.start() == 0 => return Ok(Vec::new()),
        Layout::Plain(Some(owner)) => return Ok(vec![owned(name, &owner)]),
        Layout::Plain(None) | Layout::Unclear(_) => return Ok(Vec::new()),
    };
    let number = found.parts.iter().find(|known| known.range.start() == part.start()).map(|known| known.number);
    let options = Options {
        depth: Depth::Surroundings,
        witness: WitnessMode::Never,
        partitions: vec![number.unwrap_or(0)],
        ..Options::default()
    };
    let stack = read_stack(vec![whole], &options, stop)?.stack;
    let remarks = stack.remarks.into_iter().map(|remark| remark.finding);
    let findings = remarks.chain(stack.nodes.into_iter().flat_map(|node| of_partition(node.content)));
    let disk = quoted(&name.to_string_lossy());
    Ok(findings.map(|found| Finding { remedy: found.remedy.replace("DISK", &disk), ..found }).collect())
}

/// What the whole says about one of its partitions.
fn of_partition(content: Content) -> Vec<Finding> {
    match content {
        Content::Volume { volume, .. } => volume.findings,
        Content::Refused { finding, .. } => vec![finding],
        Content::Kept { .. } => Vec::new(),
    }
}

fn owned(name: &Path, owner: &str) -> Finding {
    Finding::refusal(
        format!("{} as a whole is {owner}, so what is free inside of it only {owner} tells", name.display()),
        "name the whole, without --offset; if those signatures are stale: wipefs DEVICE lists them",
    )
}

/// Partitions that the kernel sees elsewhere than the table puts them.
fn strangers(target: &Target, stop: &AtomicBool) -> Result<Vec<Finding>> {
    let known = target.disk_partitions();
    let Some(disk) = target.disk().filter(|_| !known.is_empty()) else { return Ok(Vec::new()) };
    let table = table(target.disk_reader()?, disk.size, disk.logical_sector, stop)?;
    let strange = known.iter().find(|partition| !is_explained(partition, &table, disk.logical_sector));
    Ok(strange.map(|partition| disagreement(partition, &table)).into_iter().collect())
}

/// True for a partition that is in the table, too, or lies in one that the kernel divides further (BSD slices). Without a
/// table, for one that begins with the disk: what lies at its start is what lies at the disk's start. mkfs.fat writes such
/// an entry into the boot sector of a disk without partitions (`--mbr`), for Windows.
fn is_explained(partition: &PartitionFacts, table: &Layout, sector: u64) -> bool {
    let range = partition.range;
    let table = match table {
        Layout::Divided(table) => table,
        Layout::Plain(_) => return range.start() == 0,
        Layout::Unclear(_) => return false,
    };
    // The kernel shows an extended partition as its first two sectors of 512 bytes, or one larger one
    // (`block/partitions/msdos.c`).
    let is_extended = || table.format == "mbr" && range.len() <= sector.max(1024);
    table.parts.iter().any(|part| {
        let divided = part.refused.is_some() && part.range.contains(range);
        (part.number == partition.index && part.range == range) || divided
    }) || is_extended()
}

fn disagreement(partition: &PartitionFacts, table: &Layout) -> Finding {
    let said = match table {
        Layout::Unclear(why) => why.clone(),
        Layout::Plain(Some(owner)) => format!("the disk as a whole is {owner}, without a partition table"),
        Layout::Plain(None) => "no partition table can be read on the disk".to_owned(),
        Layout::Divided(table) => match table.parts.iter().find(|part| part.number == partition.index) {
            Some(part) => format!("the table on the disk ({}) puts it at {}", table.format, part.range),
            None => format!("the table on the disk ({}) has no such partition", table.format),
        },
    };
    Finding::refusal(
        format!(
            "the kernel sees {} at {}, but {said}: one of the two is old",
            partition.node.display(),
            partition.range
        ),
        "look at both with: lsblk -b -o NAME,START,SIZE and sfdisk --dump; then let the kernel read the table again: \
         blockdev --rereadpt DISK, or partx --update DISK",
    )
}

/// How a device or an image is divided.
enum Layout {
    /// By this table.
    Divided(FoundTable),
    /// Not at all, and what its signatures say that it is.
    Plain(Option<String>),
    /// Why that cannot be said.
    Unclear(String),
}

fn table(file: File, len: u64, sector_size: u64, stop: &AtomicBool) -> Result<Layout> {
    let options = Options { depth: Depth::Tables, ..Options::default() };
    let stack = read_stack(vec![SandboxLayer { file, offset: 0, len, sector_size }], &options, stop)?.stack;
    if let Some(table) = stack.tables.into_iter().next() {
        return Ok(Layout::Divided(table));
    }
    Ok(match stack.nodes.into_iter().next().map(|node| node.content) {
        Some(Content::Refused { finding, .. }) => Layout::Unclear(finding.message),
        Some(Content::Kept { format, .. }) => Layout::Plain(format),
        Some(Content::Volume { .. }) | None => Layout::Plain(None),
    })
}
