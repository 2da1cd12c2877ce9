//! The areas of a device that no partition owns, and which of them somebody claims all the same.

use super::{Content, Node, Stack};
use crate::container::Table;
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

impl Stack {
    /// Takes out of the gaps what a volume claims beyond its partition: one that was made smaller in the table alone
    /// still has its filesystem's tail behind it.
    pub(super) fn keep_what_reaches_out(&mut self) {
        for table in &mut self.tables {
            let claimed = self.nodes.iter().filter(|node| node.device == table.device).filter_map(beyond);
            claimed.for_each(|claim| claim.take_from(&mut table.gaps));
        }
    }
}

/// What a node claims behind its partition.
enum Beyond {
    /// The bytes that its filesystem says are its own.
    Known(ByteRange),
    /// Something that begins at this byte, of unknown length.
    Unknown(u64),
}

fn beyond(node: &Node) -> Option<Beyond> {
    let end = node.range.end();
    match &node.content {
        Content::Kept { .. } => None,
        Content::Refused { .. } => Some(Beyond::Unknown(end)),
        Content::Volume { volume, .. } => {
            let size = volume.size.max(volume.free.grid().end());
            // Sizes that no disk has are of unknown length, too.
            let claim = node.range.start().checked_add(size).map(|own| ByteRange::new(end, own).map(Beyond::Known));
            claim.unwrap_or(Some(Beyond::Unknown(end)))
        }
    }
}

impl Beyond {
    fn take_from(&self, gaps: &mut Vec<ByteRange>) {
        match *self {
            // What lies behind the next partition is not its own: that one would lie upon it.
            Self::Unknown(end) => gaps.retain(|gap| gap.start() != end),
            Self::Known(claim) => {
                let left = |gap: &ByteRange| {
                    let before = ByteRange::new(gap.start(), gap.end().min(claim.start()));
                    before.into_iter().chain(ByteRange::new(gap.start().max(claim.end()), gap.end()))
                };
                *gaps = gaps.iter().flat_map(left).collect();
            }
        }
    }
}
