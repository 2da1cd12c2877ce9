//! From a device to the areas that no table divides further.

use super::claims::{Claim, claims, set_records_apart, stale_records};
use super::leaf::refused_by_error;
use super::{FoundTable, Layer, Leaf, Node, Stack};
use crate::container::Table;
use crate::foreign::{FOREIGN, Meaning};
use crate::source::{Source, Window};
use crate::units::ByteRange;

/// Finds the areas of a device, and the table that divides it.
pub(super) fn discover(device: usize, layer: Layer<'_>, stack: &mut Stack, leaves: &mut Vec<Leaf>) {
    let Some(whole) = ByteRange::with_len(0, layer.source.len()) else {
        return;
    };
    let sector_size = layer.sector_size;
    let found = claims(layer.source, Some(sector_size)).map(set_records_apart);
    let Ok(([Claim::Container(row)], records)) = found.as_ref().map(|(rest, records)| (rest.as_slice(), records))
    else {
        // Not (only) a table: the leaf is judged, and an ambiguity named, when it is read.
        leaves.push(Leaf { device, range: whole, part: None, sector_size, findings: Vec::new(), standing: None });
        return;
    };
    match row.read(layer.source, sector_size) {
        Ok(table) => {
            for part in &table.parts {
                let range = part.range;
                let findings = records.iter().map(|row| stale_records(row)).collect();
                let part = Some(part.clone());
                leaves.push(Leaf { device, range, part, sector_size, findings, standing: None });
            }
            let mut table = found_table(device, whole, row.name(), table);
            if !records.is_empty() {
                table.gaps.clear(); // what no partition owns may be the RAID's
            }
            stack.tables.push(table);
        }
        Err(error) => stack.nodes.push(Node {
            device,
            range: whole,
            part: None,
            content: refused_by_error(row.name(), &error, "check the table: sfdisk --verify DEVICE"),
        }),
    }
}

fn found_table(device: usize, whole: ByteRange, format: &str, table: Table) -> FoundTable {
    FoundTable {
        device,
        format: format.to_owned(),
        sector_size: table.sector_size,
        gaps: gaps(whole, &table),
        warnings: table.warnings,
    }
}

/// The first MiB and everything before the first partition hold boot code that no table mentions (GRUB's core image,
/// boards' boot loaders up to 16 MiB in); the last MiB is where RAID and volume managers keep their records.
const MIB: u64 = 1 << 20;

/// The areas of a device that belong to no partition, without the table, boot code and records at the end.
fn gaps(whole: ByteRange, table: &Table) -> Vec<ByteRange> {
    let mut taken: Vec<ByteRange> =
        table.parts.iter().map(|part| part.range).chain(table.reserved.iter().copied()).collect();
    let first = table.parts.iter().map(|part| part.range.start()).min().unwrap_or(0);
    taken.extend(ByteRange::new(0, first.max(MIB)));
    taken.extend(ByteRange::new(whole.end().saturating_sub(MIB), whole.end()));
    taken.sort_unstable();
    let mut gaps = Vec::new();
    let mut end = 0;
    for range in taken {
        gaps.extend(ByteRange::new(end, range.start().min(whole.end())));
        end = end.max(range.end());
    }
    gaps.extend(ByteRange::new(end, whole.end()));
    gaps
}

/// True when `range` of the device holds the memory of a sleeping system. Unreadable areas are refused elsewhere.
pub(super) fn is_asleep(device: &dyn Source, range: ByteRange) -> bool {
    let mut rows = FOREIGN.iter().filter(|row| row.meaning == Meaning::SleepingSystem);
    Window::new(device, range).is_some_and(|area| rows.any(|row| row.probe(&area).unwrap_or(false)))
}
