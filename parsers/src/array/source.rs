//! The bytes of an array, read from its members, each as often as it is there.
//!
//! What is read decides what is free, so a byte that the copies or the parity do not confirm is noted. A half of a mirror
//! that was reformatted outside of the array, or a member of another generation, shows itself this way: nothing else on it
//! need be wrong.

use super::mapping::{Again, Mapping, Place};
use crate::source::Source;
use crate::units::{ByteRange, from_usize};
use std::cell::RefCell;
use std::io;

/// An array as something that can be read. Devices are looked up in `devices` by their number.
pub struct ArraySource<'a> {
    mapping: &'a Mapping,
    devices: Vec<&'a dyn Source>,
    differences: RefCell<Vec<Difference>>,
}

/// Bytes of an array that not all of its members confirm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Where in the array.
    pub range: ByteRange,
    /// The places on the members that do not agree: two copies, or a whole stripe.
    pub places: Vec<Place>,
}

/// How many differences are noted. Behind the last one everything counts as different.
const MOST: usize = 10_000;

impl<'a> ArraySource<'a> {
    /// The array that `mapping` describes on these devices.
    pub fn new(mapping: &'a Mapping, devices: Vec<&'a dyn Source>) -> Self {
        Self { mapping, devices, differences: RefCell::default() }
    }

    /// What was read so far and not confirmed.
    pub fn differences(&self) -> Vec<Difference> {
        self.differences.borrow().clone()
    }

    fn device(&self, place: Place) -> io::Result<&dyn Source> {
        self.devices.get(place.device).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn bytes(&self, place: Place, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.device(place)?.read_at(place.at, &mut bytes)?;
        Ok(bytes)
    }

    /// Compares `bytes`, read at byte `at` of the array and byte `first` of a device, with everything that depends on them.
    fn confirm(&self, at: u64, first: Place, bytes: &[u8]) -> io::Result<()> {
        match self.mapping.again(at).ok_or(io::ErrorKind::UnexpectedEof)? {
            Again::Copies(places) => {
                for place in places.into_iter().filter(|place| *place != first) {
                    let copy = self.bytes(place, bytes.len())?;
                    self.note(at, &[first, place], bytes.iter().zip(&copy).map(|(one, other)| one == other));
                }
            }
            Again::Stripe { data, parities } => {
                let mut sum = vec![0; bytes.len()];
                for place in &data {
                    sum.iter_mut().zip(self.bytes(*place, bytes.len())?).for_each(|(sum, byte)| *sum ^= byte);
                }
                let found =
                    parities.iter().map(|place| self.bytes(*place, bytes.len())).collect::<io::Result<Vec<_>>>()?;
                let is_sum = |(index, sum): (usize, &u8)| found.iter().any(|parity| parity.get(index) == Some(sum));
                self.note(at, &[data, parities].concat(), sum.iter().enumerate().map(is_sum));
            }
        }
        Ok(())
    }

    /// Notes the runs of bytes from `at` on that are not `alike`.
    fn note(&self, at: u64, places: &[Place], alike: impl Iterator<Item = bool>) {
        let mut differences = self.differences.borrow_mut();
        for (at, _) in (at..).zip(alike).filter(|(_, alike)| !alike) {
            let Some(byte) = ByteRange::with_len(at, 1) else { return };
            let has_room = differences.len() < MOST;
            match differences.last_mut().filter(|last| last.range.end() == at) {
                Some(last) => last.range = ByteRange::new(last.range.start(), byte.end()).unwrap_or(last.range),
                None if has_room => differences.push(Difference { range: byte, places: places.to_vec() }),
                None => {
                    let all = ByteRange::with_len(0, self.mapping.len());
                    differences.extend(all.map(|range| Difference { range, places: places.to_vec() }));
                    return;
                }
            }
        }
    }
}

impl Source for ArraySource<'_> {
    fn len(&self) -> u64 {
        self.mapping.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = at.checked_add(from_usize(buf.len())).ok_or(io::ErrorKind::UnexpectedEof)?;
        if end > self.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut at = at;
        let mut rest = buf;
        while !rest.is_empty() {
            let (place, run) = self.mapping.locate(at).ok_or(io::ErrorKind::UnexpectedEof)?;
            let count = usize::try_from(run).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest.split_at_mut_checked(count).ok_or(io::ErrorKind::UnexpectedEof)?;
            self.device(place)?.read_at(place.at, now)?;
            self.confirm(at, place, now)?;
            at = at.checked_add(from_usize(count)).ok_or(io::ErrorKind::UnexpectedEof)?;
            rest = later;
        }
        Ok(())
    }
}
