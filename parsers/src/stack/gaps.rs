//! The areas of a device that no partition owns, and which of them somebody claims all the same.

use super::{Content, FoundTable, Node, Stack};
use crate::container::{Part, Table};
use crate::units::ByteRange;

/// The first MiB and everything before the first partition hold boot code that no table mentions (GRUB's core image,
/// boards' boot loaders up to 16 MiB in); the last MiB is where RAID and volume managers keep their records.
const MIB: u64 = 1 << 20;

/// The areas of a device that belong to no partition, without the table, boot code and records at the end.
pub(super) fn between(whole: ByteRange, table: &Table) -> Vec<ByteRange> {
    let mut taken: Vec<ByteRange> =
        table.parts.iter().map(|part| part.range).chain(table.reserved.iter().copied()).collect();
    let first = table.parts.iter().map(|part| part.range.start()).min().unwrap_or(0);
    taken.extend(ByteRange::new(0, first.max(MIB)));
    taken.extend(ByteRange::new(whole.end().saturating_sub(MIB), whole.end()));
    taken.sort_unstable();
    let mut left = Vec::new();
    let mut end = 0;
    for range in taken {
        left.extend(ByteRange::new(end, range.start().min(whole.end())));
        end = end.max(range.end());
    }
    left.extend(ByteRange::new(end, whole.end()));
    left
}

impl FoundTable {
    /// What no partition owns may be somebody's all the same.
    pub(super) fn leave_gaps(&mut self, why: &str) {
        if !self.gaps.is_empty() {
            self.gaps.clear();
            self.no_gaps = Some(why.to_owned());
        }
    }
}

impl Stack {
    /// Takes out of the gaps what a volume claims beyond its partition: one that was made smaller in the table alone
    /// still has its filesystem's tail behind it. A table under which something unknown lies, or nothing known, has no
    /// gaps: it may count in other sectors than were thought, and then nothing of it is where it seems to be.
    pub(super) fn keep_what_reaches_out(&mut self) {
        for table in &mut self.tables {
            let nodes: Vec<&Node> = self.nodes.iter().filter(|node| node.device == table.device).collect();
            let is_understood = table.parts.is_empty() || nodes.iter().any(|node| format(node).is_some());
            if nodes.iter().any(|node| is_unknown(node)) {
                table.leave_gaps("a partition holds something unknown, which may reach beyond it");
            } else if !is_understood {
                table.leave_gaps("nothing known is on any partition, so the table may count in other sectors");
            }
            let claimed: Vec<ByteRange> = nodes.iter().filter_map(|node| beyond(node, &table.parts)).collect();
            claimed.into_iter().for_each(|claim| take_from(&mut table.gaps, claim));
        }
    }
}

/// What was recognised in an area.
fn format(node: &Node) -> Option<&str> {
    match &node.content {
        Content::Volume { volume, .. } => Some(&volume.format),
        Content::Refused { format, .. } | Content::Kept { format, .. } => format.as_deref(),
    }
}

fn is_unknown(node: &Node) -> bool {
    matches!(&node.content, Content::Refused { format: None, .. })
}

/// What a node claims behind its partition.
fn beyond(node: &Node, parts: &[Part]) -> Option<ByteRange> {
    let end = node.range.end();
    // A part of what fills a partition ends where that says.
    let is_inside = |part: &Part| part.range.contains(node.range) && part.range != node.range;
    if parts.iter().any(is_inside) {
        return None;
    }
    let own = match &node.content {
        Content::Kept { .. } => return None,
        Content::Refused { .. } => None,
        Content::Volume { volume, .. } => {
            // Sizes that no disk has are of unknown length, too.
            node.range.start().checked_add(volume.size.max(volume.free.grid().end()))
        }
    };
    // What is of unknown length ends at the next partition: that one would lie upon it.
    let next = || parts.iter().map(|part| part.range.start()).filter(|start| *start >= end).min();
    ByteRange::new(end, own.or_else(next).unwrap_or(u64::MAX))
}

fn take_from(gaps: &mut Vec<ByteRange>, claim: ByteRange) {
    let left = |gap: &ByteRange| {
        let before = ByteRange::new(gap.start(), gap.end().min(claim.start()));
        before.into_iter().chain(ByteRange::new(gap.start().max(claim.end()), gap.end()))
    };
    *gaps = gaps.iter().flat_map(left).collect();
}
