//! Two opinions on where partitions lie: the table's, which is read here, and the kernel's, by which everybody else
//! works. Where they differ, one of them is old, and what it calls free is somebody's data.

use super::job::{Scope, UsageError};
use crate::sandbox::{SandboxLayer, read_stack};
use crate::target::Target;
use crate::target::facts::PartitionFacts;
use anyhow::Result;
use coldtrim_parsers::stack::{Content, FoundTable, Options};
use coldtrim_parsers::units::ByteRange;
use coldtrim_parsers::volume::Finding;
use std::fs::File;
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
        Ok(Some(table)) => table,
        Ok(None) => return Ok(named),
        Err(_) if scope.size.is_some() => return Ok(named),
        Err(why) => return Err(UsageError::NoEnd { path: path(), why }.into()),
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

/// What speaks against a device whose partitions the kernel sees elsewhere than its table puts them.
pub fn objections(target: &Target, stop: &AtomicBool) -> Result<Vec<Finding>> {
    let known = target.disk_partitions();
    let Some(disk) = target.disk().filter(|_| !known.is_empty()) else { return Ok(Vec::new()) };
    let table = table(target.disk_reader()?, disk.size, disk.logical_sector, stop)?;
    let strange = known.iter().find(|partition| !is_explained(partition, &table, disk.logical_sector));
    Ok(strange.map(|partition| disagreement(partition, &table)).into_iter().collect())
}

/// True for a partition that is in the table, too, or lies in one that the kernel divides further (BSD slices). Without a
/// table, for one that begins with the disk: what lies at its start is what lies at the disk's start. mkfs.fat writes such
/// an entry into the boot sector of a disk without partitions (`--mbr`), for Windows.
fn is_explained(partition: &PartitionFacts, table: &Result<Option<FoundTable>, String>, sector: u64) -> bool {
    let range = partition.range;
    let table = match table {
        Ok(Some(table)) => table,
        Ok(None) => return range.start() == 0,
        Err(_) => return false,
    };
    // The kernel shows an extended partition as its first two sectors of 512 bytes, or one larger one
    // (`block/partitions/msdos.c`).
    let is_extended = || table.format == "mbr" && range.len() <= sector.max(1024);
    table.parts.iter().any(|part| {
        let divided = part.refused.is_some() && part.range.contains(range);
        (part.number == partition.index && part.range == range) || divided
    }) || is_extended()
}

fn disagreement(partition: &PartitionFacts, table: &Result<Option<FoundTable>, String>) -> Finding {
    let said = match table {
        Err(why) => why.clone(),
        Ok(None) => "no partition table can be read on the disk".to_owned(),
        Ok(Some(table)) => match table.parts.iter().find(|part| part.number == partition.index) {
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

/// The partition table of a device or an image, none where there is none, or why it cannot be used.
fn table(file: File, len: u64, sector_size: u64, stop: &AtomicBool) -> Result<Result<Option<FoundTable>, String>> {
    let options = Options { tables_only: true, ..Options::default() };
    let reading = read_stack(vec![SandboxLayer { file, offset: 0, len, sector_size }], &options, stop)?;
    let refused = reading.stack.nodes.into_iter().find_map(|node| match node.content {
        Content::Refused { finding, .. } => Some(finding.message),
        Content::Volume { .. } | Content::Kept { .. } => None,
    });
    Ok(match (reading.stack.tables.into_iter().next(), refused) {
        (Some(table), _) => Ok(Some(table)),
        (None, None) => Ok(None),
        (None, Some(why)) => Err(why),
    })
}
