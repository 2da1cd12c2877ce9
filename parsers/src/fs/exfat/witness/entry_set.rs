//! Directory entries of 32 bytes and the sets that they form. Source: Microsoft's "exFAT file system specification",
//! sections 6 and 7.

use super::shape::{le, le32};

/// One entry.
pub(super) type Slot = [u8; 32];

/// What has clusters: its first one, its length in bytes, and whether they are neighbours, so that the FAT has no
/// chain for them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Allocation {
    pub first: u32,
    pub len: u64,
    pub contiguous: bool,
}

/// A primary entry and the secondary entries that belong to it.
#[derive(Debug, PartialEq)]
pub(super) struct EntrySet {
    pub name: String,
    pub is_directory: bool,
    /// The contents first, then what unknown but benign entries hold.
    pub allocations: Vec<Allocation>,
}

/// What is to be done after an entry.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing is complete.
    More,
    End,
    Complete(EntrySet),
    Broken(&'static str),
}

/// Puts entries together, as they come.
#[derive(Default)]
pub(super) struct Assembler {
    slots: Vec<Slot>,
    missing: usize,
}

const IN_USE: u8 = 0x80;
const SECONDARY: u8 = 0x40;
const BENIGN: u8 = 0x20;
const FILE: u8 = 0x85;
const STREAM: u8 = 0xC0;
const NAME: u8 = 0xC1;

impl Assembler {
    /// True when no set waits for further entries.
    pub fn is_between_sets(&self) -> bool {
        self.missing == 0
    }

    pub fn take(&mut self, slot: &Slot) -> Step {
        let [kind, count, ..] = *slot;
        if self.missing > 0 {
            if kind & (IN_USE | SECONDARY) != IN_USE | SECONDARY {
                return Step::Broken("an entry's secondary entries are missing");
            }
            self.slots.push(*slot);
            self.missing = self.missing.saturating_sub(1);
            return if self.missing == 0 { complete(&std::mem::take(&mut self.slots)) } else { Step::More };
        }
        match kind {
            0 => Step::End,
            _ if kind & IN_USE == 0 => Step::More,
            _ if kind & SECONDARY != 0 => Step::Broken("a secondary entry without its primary entry"),
            0x81 => single(slot, "the allocation bitmap"),
            0x82 => single(slot, "the up-case table"),
            0x83 => Step::More,
            FILE if !(2..=18).contains(&count) => Step::Broken("an impossible number of secondary entries"),
            _ if kind != FILE && kind & BENIGN == 0 => Step::Broken("an unknown critical entry"),
            _ if count == 0 => complete(&[*slot]),
            _ => {
                self.slots.push(*slot);
                self.missing = count.into();
                Step::More
            }
        }
    }
}

/// An entry that stands alone and always has a chain.
fn single(slot: &Slot, name: &str) -> Step {
    let allocation = Allocation { contiguous: false, ..allocation(slot) };
    Step::Complete(EntrySet { name: name.to_owned(), is_directory: false, allocations: vec![allocation] })
}

/// Flags at byte `1` of secondary and `4` of primary entries: bit 0 clusters are possible, bit 1 no chain.
fn allocation(slot: &Slot) -> Allocation {
    let flags = le(slot, if slot[0] & SECONDARY == 0 { 4 } else { 1 }, 1);
    Allocation { first: le32(slot, 20), len: le(slot, 24, 8), contiguous: flags & 2 != 0 }
}

fn may_allocate(slot: &Slot) -> bool {
    le(slot, if slot[0] & SECONDARY == 0 { 4 } else { 1 }, 1) & 1 != 0
}

/// The sum over all entries of a set, without the two bytes that hold it.
fn checksum(slots: &[Slot]) -> u16 {
    let bytes = slots.as_flattened().iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
    bytes.fold(0_u16, |sum, (_, byte)| sum.rotate_right(1).wrapping_add((*byte).into()))
}

fn complete(slots: &[Slot]) -> Step {
    let Some((primary, secondary)) = slots.split_first() else { return Step::More };
    if u64::from(checksum(slots)) != le(primary, 2, 2) {
        return Step::Broken("the checksum of a set of entries is wrong");
    }
    if primary[0] != FILE {
        let allocations = slots.iter().filter(|slot| may_allocate(slot)).map(allocation).collect();
        return Step::Complete(EntrySet { name: "an unknown entry".to_owned(), is_directory: false, allocations });
    }
    let Some((stream, rest)) = secondary.split_first().filter(|(stream, _)| stream[0] == STREAM) else {
        return Step::Broken("a file without its stream extension");
    };
    if le(stream, 8, 8) > le(stream, 24, 8) {
        return Step::Broken("a file with more valid data than data");
    }
    let unknown = rest.iter().find(|slot| slot[0] != NAME && slot[0] & BENIGN == 0);
    if unknown.is_some() {
        return Step::Broken("an unknown critical secondary entry");
    }
    let others = rest.iter().filter(|slot| slot[0] != NAME && may_allocate(slot));
    let allocations = [allocation(stream)].into_iter().chain(others.map(allocation)).collect();
    Step::Complete(EntrySet { name: name(stream, rest), is_directory: le(primary, 4, 2) & 0x10 != 0, allocations })
}

fn name(stream: &Slot, rest: &[Slot]) -> String {
    let parts = rest.iter().filter(|slot| slot[0] == NAME).flat_map(|slot| slot.iter().skip(2).copied());
    let units: Vec<u16> = parts.collect::<Vec<u8>>().as_chunks().0.iter().map(|b| u16::from_le_bytes(*b)).collect();
    let len = usize::from(stream[3]).min(units.len());
    String::from_utf16_lossy(units.get(..len).unwrap_or_default())
}
