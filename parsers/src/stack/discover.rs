//! From a device to the areas that no table divides further.

use super::claims::{Claim, claims, set_records_apart, stale_records_of_disk};
use super::gaps::between;
use super::leaf::refused_by_error;
use super::{FoundTable, Layer, Leaf, Node, Remark, Stack};
use crate::container::Table;
use crate::foreign::{FOREIGN, Meaning};
use crate::source::{Source, Window};
use crate::units::ByteRange;
use crate::volume::Finding;

/// Finds the areas of a device, and the table that divides it.
pub(super) fn discover(device: usize, layer: Layer<'_>, stack: &mut Stack, leaves: &mut Vec<Leaf>) {
    let Some(whole) = ByteRange::with_len(0, layer.source.len()) else {
        return;
    };
    let sector_size = layer.sector_size;
    let found = claims(layer.source, sector_size).map(set_records_apart);
    let Ok(([Claim::Container(row)], records)) = found.as_ref().map(|(rest, records)| (rest.as_slice(), records))
    else {
        // Not (only) a table: the leaf is judged, and an ambiguity named, when it is read.
        leaves.push(Leaf::new(device, whole, None, sector_size));
        return;
    };
    match row.read(layer.source, sector_size) {
        Ok(table) => {
            let stale: Vec<Finding> = records.iter().map(|row| stale_records_of_disk(row)).collect();
            for part in &table.parts {
                let range = part.range;
                let findings = stale.clone();
                leaves.push(Leaf { findings, ..Leaf::new(device, range, Some(part.clone()), sector_size) });
            }
            stack.remarks.extend(stale.into_iter().map(|finding| Remark { device, finding }));
            let mut table = found_table(device, whole, row.name(), table);
            if !records.is_empty() {
                table.leave_gaps("the disk has records of a RAID, and what no partition owns may be the RAID's");
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
        gaps: between(whole, &table),
        no_gaps: None,
        parts: table.parts,
        warnings: table.warnings,
    }
}

/// True when `range` of the device holds the memory of a sleeping system. Unreadable areas are refused elsewhere.
pub(super) fn is_asleep(device: &dyn Source, range: ByteRange) -> bool {
    let mut rows = FOREIGN.iter().filter(|row| row.meaning == Meaning::SleepingSystem);
    Window::new(device, range).is_some_and(|area| rows.any(|row| row.probe(&area).unwrap_or(false)))
}
