//! RAID10: chunks with copies, on neighbouring members ("near"), in a second half of every member ("far"), or in the next
//! row, one member further ("offset").
//!
//! ```text
//! near 2, 3 members    far 2, 3 members     offset 2, 3 members
//!  0  0  1              0  1  2              0  1  2
//!  1  2  2              3  4  5              2  0  1
//!  3  3  4              2  0  1  (stride)    3  4  5
//!  4  5  5              5  3  4              5  3  4
//! ```

use super::geometry::{Share, Slot};

/// Copies on neighbours, copies further down, bytes between those (none: row by row).
type Copies = (u64, u64, Option<u64>);

/// Every copy of byte `at`.
pub(super) fn share(chunk: u64, (near, far, stride): Copies, members: u64, at: u64) -> Option<Share> {
    let (number, within) = (at.checked_div(chunk)?, at.checked_rem(chunk)?);
    let first = number.checked_mul(near)?;
    let (row, mut member) = (first.checked_div(members)?, first.checked_rem(members)?);
    let row = if stride.is_none() { row.checked_mul(far)? } else { row };
    let mut place = row.checked_mul(chunk)?.checked_add(within)?;
    let stride = stride.unwrap_or(chunk);
    let mut slots = Vec::new();
    for _ in 0..near {
        for copy in 0..far {
            let member = member.checked_add(copy.checked_mul(near)?)?.checked_rem(members)?;
            let at = place.checked_add(copy.checked_mul(stride)?)?;
            slots.push(Slot { member: usize::try_from(member).ok()?, at });
        }
        member = member.checked_add(1)?;
        if member >= members {
            member = 0;
            place = place.checked_add(chunk)?;
        }
    }
    Some(Share { slots, len: chunk.checked_sub(within)? })
}

/// The byte of the array that a slot holds a copy of, and how many follow in the same chunk. One of `near` and `far` is 1.
pub(super) fn owner(chunk: u64, (near, far, stride): Copies, members: u64, slot: Slot) -> Option<(u64, u64)> {
    let member = u64::try_from(slot.member).ok()?;
    let within = slot.at.checked_rem(chunk)?;
    let row = slot.at.checked_div(chunk)?;
    let number = if far == 1 {
        // Row by row, each chunk takes `near` places in a line.
        row.checked_mul(members)?.checked_add(member)?.checked_div(near)?
    } else {
        let (row, copy) = match stride {
            Some(stride) => (slot.at.checked_rem(stride)?.checked_div(chunk)?, slot.at.checked_div(stride)?),
            None => (row.checked_div(far)?, row.checked_rem(far)?),
        };
        if copy >= far {
            return None;
        }
        // Each copy is one member further than the one before.
        let back = copy.checked_rem(members)?;
        let first = member.checked_add(members)?.checked_sub(back)?.checked_rem(members)?;
        row.checked_mul(members)?.checked_add(first)?
    };
    Some((number.checked_mul(chunk)?.checked_add(within)?, chunk.checked_sub(within)?))
}
