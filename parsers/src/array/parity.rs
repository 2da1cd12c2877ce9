//! RAID4, RAID5, RAID6: stripes of one chunk on every member, one or two of them parity.

use super::geometry::{Share, Slot};
use crate::units::{ByteRange, from_usize};
use serde::{Deserialize, Serialize};

/// Level and layout as Linux numbers them (`drivers/md/raid5.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParityRule {
    /// Bytes of a chunk.
    pub chunk: u64,
    /// Number of members.
    pub members: u64,
    /// 4, 5 or 6.
    pub level: u8,
    /// The layout's number; without meaning for level 4.
    pub layout: u32,
}

impl ParityRule {
    pub(super) fn members(&self) -> u64 {
        self.members
    }

    /// Chunks of data in a stripe; none when the rule makes no sense.
    fn data_chunks(&self) -> Option<u64> {
        let parities = match self.level {
            4 | 5 => 1,
            6 => 2,
            _ => return None,
        };
        self.members.checked_sub(parities).filter(|data| *data > 0)
    }

    /// True when the layout is one that Linux has, and makes sense with so many members.
    pub(super) fn is_known(&self) -> bool {
        let layout = match self.level {
            4 => true,
            5 => self.layout <= 5,
            6 => matches!(self.layout, 0..=5 | 8..=10 | 16..=20),
            _ => false,
        };
        layout && self.data_chunks().is_some() && self.chunk > 0
    }

    /// Bytes of data in a stripe.
    pub(super) fn stripe(&self) -> Option<u64> {
        self.data_chunks()?.checked_mul(self.chunk).filter(|stripe| *stripe > 0)
    }

    /// Bytes of every member that an array of `len` bytes needs; none when that is no whole number of stripes.
    pub(super) fn need(&self, len: u64) -> Option<u64> {
        let stripe = self.stripe()?;
        (len.checked_rem(stripe)? == 0).then_some(())?;
        len.checked_div(stripe)?.checked_mul(self.chunk)
    }

    /// The chunk that holds byte `at`.
    pub(super) fn data(&self, at: u64) -> Option<Share> {
        let number = at.checked_div(self.chunk)?;
        let within = at.checked_rem(self.chunk)?;
        let stripe = number.checked_div(self.data_chunks()?)?;
        let member = self.member_of(stripe, number.checked_rem(self.data_chunks()?)?)?;
        let at = stripe.checked_mul(self.chunk)?.checked_add(within)?;
        Some(Share {
            slots: vec![Slot { member: usize::try_from(member).ok()?, at }],
            len: self.chunk.checked_sub(within)?,
        })
    }

    /// The whole stripes inside `range`: the same bytes on every member.
    #[allow(clippy::option_option)] // no stripe is no error
    pub(super) fn stripes(&self, range: ByteRange) -> Option<Option<Share>> {
        let stripe = self.stripe()?;
        let (first, end) = (range.start().div_ceil(stripe), range.end().checked_div(stripe)?);
        if first >= end {
            return Some(None);
        }
        let at = first.checked_mul(self.chunk)?;
        let count = usize::try_from(self.members).ok()?;
        let slots = (0..count).map(|member| Slot { member, at }).collect();
        Some(Some(Share { slots, len: end.checked_sub(first)?.checked_mul(self.chunk)? }))
    }

    /// The bytes of data whose parity, or whose own place, a slot is: the same byte of every chunk of the stripe.
    pub(super) fn owners(&self, slot: Slot, len: u64) -> Option<(Vec<u64>, u64)> {
        (from_usize(slot.member) < self.members).then_some(())?;
        let within = slot.at.checked_rem(self.chunk)?;
        let start = slot.at.checked_div(self.chunk)?.checked_mul(self.stripe()?)?;
        let of_chunk = |number: u64| start.checked_add(number.checked_mul(self.chunk)?)?.checked_add(within);
        let owners = (0..self.data_chunks()?).map(of_chunk).collect::<Option<Vec<u64>>>()?;
        (*owners.last()? < len).then_some((owners, self.chunk.checked_sub(within)?))
    }

    /// For a byte of a member: the members with data in its stripe, and those with parity.
    pub(super) fn roles(&self, slot: Slot) -> Option<(Vec<Slot>, Vec<Slot>)> {
        let stripe = slot.at.checked_div(self.chunk)?;
        let data = (0..self.data_chunks()?).map(|chunk| self.member_of(stripe, chunk)).collect::<Option<Vec<u64>>>()?;
        let beside = |member: u64| Some(Slot { member: usize::try_from(member).ok()?, at: slot.at });
        let (data, parity): (Vec<u64>, Vec<u64>) = (0..self.members).partition(|member| data.contains(member));
        Some((
            data.into_iter().map(beside).collect::<Option<Vec<Slot>>>()?,
            parity.into_iter().map(beside).collect::<Option<Vec<Slot>>>()?,
        ))
    }

    /// The member that holds data chunk `chunk` of stripe number `stripe`.
    fn member_of(&self, stripe: u64, chunk: u64) -> Option<u64> {
        match self.level {
            4 => Some(chunk),
            5 => one_parity(self.layout, self.members, stripe, chunk),
            6 if (16..=19).contains(&self.layout) => {
                // RAID5 on all members but the last, which holds the second parity.
                one_parity(self.layout.checked_sub(16)?, self.members.checked_sub(1)?, stripe, chunk)
            }
            6 => two_parities(self.layout, self.members, stripe, chunk),
            _ => None,
        }
    }
}

/// RAID5. "Left" layouts move the parity from the last member down, "right" ones from the first up; "asymmetric" ones
/// count data from member 0 and leave the parity out, "symmetric" ones begin behind it.
fn one_parity(layout: u32, members: u64, stripe: u64, chunk: u64) -> Option<u64> {
    let last = members.checked_sub(1)?;
    let turn = stripe.checked_rem(members)?;
    let (left, right) = (last.checked_sub(turn)?, turn);
    let around = |parity: u64| if chunk >= parity { chunk.checked_add(1) } else { Some(chunk) };
    let behind = |parity: u64| parity.checked_add(1)?.checked_add(chunk)?.checked_rem(members);
    match layout {
        0 => around(left),
        1 => around(right),
        2 => behind(left),
        3 => behind(right),
        4 => chunk.checked_add(1),
        5 => Some(chunk),
        _ => None,
    }
}

/// RAID6 where both parities move. Layouts 8 to 10 are those of the DDF standard.
fn two_parities(layout: u32, members: u64, stripe: u64, chunk: u64) -> Option<u64> {
    let last = members.checked_sub(1)?;
    let turn = stripe.checked_rem(members)?;
    let (left, right) = (last.checked_sub(turn)?, turn);
    let around = |parity: u64| match () {
        // The second parity of this one wraps to member 0.
        () if parity == last => chunk.checked_add(1),
        () if chunk >= parity => chunk.checked_add(2),
        () => Some(chunk),
    };
    let behind = |parity: u64, gap: u64| parity.checked_add(gap)?.checked_add(chunk)?.checked_rem(members);
    match layout {
        0 => around(left),
        1 | 8 => around(right),
        2 => behind(left, 2),
        3 => behind(right, 2),
        4 => chunk.checked_add(2),
        5 => Some(chunk),
        9 => around(last.checked_sub(stripe.checked_add(1)?.checked_rem(members)?)?),
        10 => behind(left, 1),
        20 => chunk.checked_add(1),
        _ => None,
    }
}
