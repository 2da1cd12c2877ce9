//! A small read cache for witnesses, which read in tiny steps: whole aligned pages, a bounded number of them.

use crate::source::Source;
use crate::units::from_usize;
use std::cell::RefCell;
use std::io;

/// Bytes of a page.
const PAGE: u64 = 64 << 10;
/// Pages that are kept: 16 MiB.
const SLOTS: u64 = 256;

/// A source behind a cache. Each page has one slot that it can be in, so there is no bookkeeping to get wrong.
///
/// A [`Recording`](crate::witness::Recording) belongs between the reader and this cache, never below it: here
/// neighbours are read too.
pub struct Pages<'a> {
    inner: &'a dyn Source,
    slots: RefCell<Vec<Option<Page>>>,
}

struct Page {
    number: u64,
    bytes: Vec<u8>,
}

impl<'a> Pages<'a> {
    /// An empty cache before `inner`.
    pub fn new(inner: &'a dyn Source) -> Self {
        Self { inner, slots: RefCell::new((0..SLOTS).map(|_| None).collect()) }
    }

    fn load(&self, number: u64) -> io::Result<Page> {
        let start = number.saturating_mul(PAGE);
        let len = self.inner.len().saturating_sub(start).min(PAGE);
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?];
        self.inner.read_at(start, &mut bytes)?;
        Ok(Page { number, bytes })
    }

    /// Copies from one page; `buf` does not pass its end.
    fn copy(&self, number: u64, within: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut slots = self.slots.borrow_mut();
        let slot = usize::try_from(number % SLOTS).ok().and_then(|index| slots.get_mut(index));
        let slot = slot.ok_or(io::ErrorKind::OutOfMemory)?;
        if slot.as_ref().is_none_or(|page| page.number != number) {
            *slot = Some(self.load(number)?);
        }
        let start = usize::try_from(within).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let part = slot.as_ref().and_then(|page| page.bytes.get(start..)?.get(..buf.len()));
        buf.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Source for Pages<'_> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut at = at;
        let mut rest = buf;
        while !rest.is_empty() {
            let (number, within) = (at / PAGE, at % PAGE);
            let count = PAGE.saturating_sub(within).min(from_usize(rest.len()));
            let (part, behind) = rest.split_at_mut(usize::try_from(count).unwrap_or(rest.len()));
            if self.copy(number, within, part).is_err() {
                // One unreadable sector must not spoil its whole page.
                self.inner.read_at(at, part)?;
            }
            at = at.checked_add(count).ok_or(io::ErrorKind::UnexpectedEof)?;
            rest = behind;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::ByteRange;
    use crate::witness::Recording;
    use proptest::prelude::*;

    /// A source with one sector that cannot be read.
    struct Scratched(Vec<u8>, ByteRange);

    impl Source for Scratched {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
            match ByteRange::with_len(at, buf.len() as u64) {
                Some(wanted) if wanted.overlaps(self.1) => Err(io::Error::other("a scratch")),
                _ => self.0.read_at(at, buf),
            }
        }
    }

    #[test]
    fn a_scratch_costs_only_its_own_bytes() {
        let disk = Scratched(vec![7; 200_000], ByteRange::with_len(1024, 512).unwrap());
        let pages = Pages::new(&disk);
        let mut buf = [0; 4];
        pages.read_at(1020, &mut buf).unwrap();
        assert_eq!(buf, [7; 4]);
        assert!(pages.read_at(1022, &mut buf).is_err());
    }

    #[test]
    fn a_page_is_read_once() {
        let disk = vec![1_u8; 200_000];
        let recording = Recording::new(&disk, u64::MAX);
        let pages = Pages::new(&recording);
        for at in 0..1000 {
            pages.read_at(at, &mut [0; 3]).unwrap();
        }
        assert_eq!(recording.take(), [ByteRange::with_len(0, PAGE).unwrap()]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn the_cache_shows_what_is_below(reads in prop::collection::vec((0u64..40_000_000, 0usize..150_000), 1..20)) {
            // Longer than all slots together, so that pages meet in a slot.
            struct Numbers;
            impl Source for Numbers {
                fn len(&self) -> u64 {
                    40_000_001
                }
                fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
                    if at + buf.len() as u64 > self.len() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    (at..).zip(buf).for_each(|(n, byte)| *byte = (n.wrapping_mul(0x9E37_79B9) >> 13) as u8);
                    Ok(())
                }
            }
            let pages = Pages::new(&Numbers);
            for (at, len) in reads {
                let (mut expected, mut found) = (vec![0; len], vec![0; len]);
                let possible = Numbers.read_at(at, &mut expected).is_ok();
                prop_assert_eq!(pages.read_at(at, &mut found).is_ok(), possible);
                if possible {
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}
