//! The compressed list of runs ("mapping pairs") of a non-resident value.
//!
//! Each run is a byte whose low nibble is the size of a length and whose high nibble is the size of an offset, then
//! the two numbers, little endian. The offset is signed and counts from the start of the last run that had one; no
//! offset at all (size 0) is a hole. A byte 0 ends the list.

/// `count` clusters of a value, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// The first cluster; none for a hole.
    pub lcn: Option<u64>,
    pub count: u64,
}

/// Decodes a list; every run lies inside the `clusters` of the volume. The error names the run and what is wrong.
pub(super) fn decode(bytes: &[u8], clusters: u64) -> Result<Vec<Extent>, (usize, &'static str)> {
    let mut extents = Vec::new();
    let mut rest = bytes;
    let mut last: i64 = 0;
    loop {
        let bad = |what| (extents.len(), what);
        let (head, tail) = rest.split_first().ok_or_else(|| bad("the list has no end"))?;
        if *head == 0 {
            return Ok(extents);
        }
        let (length, tail) = number(tail, *head & 15).ok_or_else(|| bad("its length is cut or too long"))?;
        let (offset, tail) = number(tail, *head >> 4).ok_or_else(|| bad("its offset is cut or too long"))?;
        let count = u64::try_from(length).ok().filter(|n| *n > 0).ok_or_else(|| bad("its length is not positive"))?;
        let lcn = if *head >> 4 == 0 {
            None
        } else {
            last = last.checked_add(offset).ok_or_else(|| bad("its offset overflows"))?;
            let first = u64::try_from(last).map_err(|_| bad("it begins before the volume"))?;
            let inside = first.checked_add(count).is_some_and(|end| end <= clusters);
            Some(inside.then_some(first).ok_or_else(|| bad("it ends behind the last cluster"))?)
        };
        extents.push(Extent { lcn, count });
        rest = tail;
    }
}

/// A signed number of `size` bytes, and what follows.
fn number(bytes: &[u8], size: u8) -> Option<(i64, &[u8])> {
    let (digits, rest) = bytes.split_at_checked(usize::from(size))?;
    let mut full = match digits.last() {
        Some(top) if top & 0x80 != 0 => [0xFF; 8],
        _ => [0; 8],
    };
    full.get_mut(..digits.len())?.copy_from_slice(digits);
    Some((i64::from_le_bytes(full), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(lcn: Option<u64>, count: u64) -> Extent {
        Extent { lcn, count }
    }

    #[test]
    fn runs_are_relative_signed_and_may_be_holes() {
        let list = [0x21, 4, 0x10, 0x02, 0x01, 3, 0x11, 2, 0xF0, 0x11, 1, 0x00, 0];
        let expected = [extent(Some(0x210), 4), extent(None, 3), extent(Some(0x200), 2), extent(Some(0x200), 1)];
        assert_eq!(decode(&list, 0x1000).unwrap(), expected);
    }

    #[test]
    fn cluster_zero_is_no_hole() {
        assert_eq!(decode(&[0x11, 2, 0, 0], 2).unwrap(), [extent(Some(0), 2)]);
    }

    #[test]
    fn lengths_are_signed_and_positive() {
        assert_eq!(decode(&[0x11, 0x80, 0, 0], 1000).unwrap_err().1, "its length is not positive");
        assert_eq!(decode(&[0x12, 0x80, 0, 0, 0], 1000).unwrap(), [extent(Some(0), 0x80)]);
        assert_eq!(decode(&[0x11, 0, 1, 0], 1000).unwrap_err().1, "its length is not positive");
        assert!(decode(&[0x10, 1, 0], 1000).is_err());
    }

    #[test]
    fn runs_outside_the_volume_and_lists_without_end_are_errors() {
        assert_eq!(decode(&[0x11, 3, 8, 0], 10).unwrap_err(), (0, "it ends behind the last cluster"));
        assert_eq!(decode(&[0x11, 1, 4, 0x11, 1, 0xFB, 0], 10).unwrap_err(), (1, "it begins before the volume"));
        assert_eq!(decode(&[0x11, 1, 4], 10).unwrap_err(), (1, "the list has no end"));
        assert!(decode(&[0x91, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], 10).is_err());
        assert!(decode(&[0x18, 1, 0, 0, 0, 0, 0, 0, 0x7F, 9, 0], 10).is_err());
    }
}
