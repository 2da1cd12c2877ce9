//! The rules by which arrays lay their bytes on members. Positions are bytes: of the segment on one side, of a member's
//! area on the other. Sources: Linux `drivers/md/{md-linear,raid0,raid1,raid10,raid5}.c`.

use super::mapping::Redundancy;
use super::parity::ParityRule;
use super::striped::Zone;
use crate::units::ByteRange;
use serde::{Deserialize, Serialize};

/// A byte of a member's area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Number of the member.
    pub member: usize,
    /// Byte from the start of its area.
    pub at: u64,
}

/// Bytes that lie alike on several members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Where they begin on each member: the copies, or all chunks of a stripe and their parity.
    pub slots: Vec<Slot>,
    /// For how many bytes that holds.
    pub len: u64,
}

/// Which chunk number says whose turn it is where a RAID0 has zones of several widths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Turn {
    /// That of the whole array (Linux before 3.14, "original").
    OfArray,
    /// That inside the zone ("alternate").
    OfZone,
}

/// The rule of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Geometry {
    /// One member behind the other.
    Linear {
        /// Where each ends.
        ends: Vec<u64>,
    },
    /// Chunk by chunk in turn; members of several sizes make several zones.
    Striped {
        /// Bytes of a chunk.
        chunk: u64,
        /// Whose turn it is.
        turn: Turn,
        /// From the start of the array.
        zones: Vec<Zone>,
    },
    /// Everything on every member.
    Mirrored,
    /// Chunks with copies (RAID10).
    Copied {
        /// Bytes of a chunk.
        chunk: u64,
        /// Copies on neighbouring members; 1 when `far` is more.
        near: u64,
        /// Copies further down; 1 when `near` is more.
        far: u64,
        /// Bytes from one far copy to the next; none where they follow each other row by row ("offset").
        stride: Option<u64>,
        /// Number of members.
        members: u64,
    },
    /// Stripes with parity.
    Parity(ParityRule),
}

impl Geometry {
    /// Chunks in turn over areas of these lengths, and the bytes that they give; one area alone is linear.
    pub fn in_turn(chunk: u64, lengths: &[u64]) -> Option<(Self, u64)> {
        if let [len] = lengths {
            return Some((Self::Linear { ends: vec![*len] }, *len));
        }
        let zones = super::striped::zones(chunk, lengths)?;
        let len = zones.last()?.end;
        Some((Self::Striped { chunk, turn: Turn::OfZone, zones }, len))
    }

    /// True when a segment of `len` bytes by this rule fits on areas of these lengths (none where a member is missing).
    pub fn fits(&self, len: u64, lengths: &[Option<u64>]) -> bool {
        let all_hold = |need: Option<u64>| need.is_some_and(|need| lengths.iter().flatten().all(|have| *have >= need));
        let is_readable = match self {
            Self::Linear { .. } | Self::Striped { .. } | Self::Parity(_) => lengths.iter().all(Option::is_some),
            Self::Mirrored | Self::Copied { .. } => lengths.iter().any(Option::is_some),
        };
        let count = crate::units::from_usize(lengths.len());
        let fits = match self {
            Self::Linear { ends } => super::linear::fits(ends, len, lengths),
            Self::Striped { chunk, zones, .. } => super::striped::fits(*chunk, zones, len, lengths),
            Self::Mirrored => all_hold(Some(len)),
            Self::Copied { members, .. } => *members == count && all_hold(self.need(len)),
            Self::Parity(rule) => rule.members() == count && rule.is_known() && all_hold(rule.need(len)),
        };
        len > 0 && is_readable && fits
    }

    /// Bytes of every area that a RAID10 of `len` bytes needs; none for rules that make no sense.
    fn need(&self, len: u64) -> Option<u64> {
        let Self::Copied { chunk, near, far, stride, members } = *self else { return None };
        let one_kind = (near == 1 || far == 1) && near.checked_mul(far)? <= members;
        let rows = len.checked_div(chunk)?.checked_mul(near)?.div_ceil(members.max(1));
        let used = rows.checked_mul(chunk)?;
        let need = match stride {
            Some(stride) if far > 1 => stride.checked_mul(far).filter(|_| used <= stride)?,
            _ => used.checked_mul(far)?,
        };
        (one_kind && len.checked_rem(chunk)? == 0 && near > 0 && far > 0).then_some(need)
    }

    /// What is lost when members discard differently.
    pub fn redundancy(&self) -> Redundancy {
        match self {
            Self::Linear { .. } | Self::Striped { .. } => Redundancy::None,
            Self::Mirrored | Self::Copied { .. } => Redundancy::Copies,
            Self::Parity(_) => Redundancy::Parity,
        }
    }

    /// Where byte `at` of a segment of `len` bytes with `count` members can be read.
    pub fn copies(&self, at: u64, len: u64, count: usize) -> Option<Share> {
        let rest = len.checked_sub(at).filter(|rest| *rest > 0)?;
        let share = match self {
            Self::Linear { ends } => super::linear::share(ends, at)?,
            Self::Striped { chunk, turn, zones } => super::striped::share(*chunk, *turn, zones, at)?,
            Self::Mirrored => Share { slots: (0..count).map(|member| Slot { member, at }).collect(), len: rest },
            Self::Copied { chunk, near, far, stride, members } => {
                super::copied::share(*chunk, (*near, *far, *stride), *members, at)?
            }
            Self::Parity(rule) => rule.data(at)?,
        };
        Some(Share { len: share.len.min(rest), ..share })
    }

    /// Calls `each` with everything on the members that holds nothing but bytes of `range`, which lies in a segment of
    /// `len` bytes with `count` members. With parity that is whole stripes alone.
    pub fn shares(
        &self,
        range: ByteRange,
        (len, count): (u64, usize),
        each: &mut dyn FnMut(Share) -> Option<()>,
    ) -> Option<()> {
        if let Self::Parity(rule) = self {
            return match rule.stripes(range)? {
                Some(share) => each(share),
                None => Some(()),
            };
        }
        let mut at = range.start();
        while at < range.end() {
            let mut share = self.copies(at, len, count)?;
            share.len = share.len.min(range.end().checked_sub(at)?);
            at = at.checked_add(share.len).filter(|next| *next > at)?;
            each(share)?;
        }
        Some(())
    }

    /// Where the bytes of the segment begin that depend on a byte of a member, and for how many bytes that holds: one
    /// place, or with parity a place in each chunk of the stripe. None for a byte that the rule does not use.
    pub fn owners(&self, slot: Slot, len: u64) -> Option<(Vec<u64>, u64)> {
        let (owners, count) = match self {
            Self::Linear { ends } => super::linear::owner(ends, slot)?,
            Self::Striped { chunk, turn, zones } => super::striped::owner(*chunk, *turn, zones, slot)?,
            Self::Mirrored => (slot.at, len.checked_sub(slot.at)?),
            Self::Copied { chunk, near, far, stride, members } => {
                super::copied::owner(*chunk, (*near, *far, *stride), *members, slot)?
            }
            Self::Parity(rule) => return rule.owners(slot, len),
        };
        let rest = len.checked_sub(owners).filter(|rest| *rest > 0)?;
        Some((vec![owners], count.min(rest)))
    }
}
