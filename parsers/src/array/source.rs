//! The bytes of an array, read from its members.

use super::mapping::Mapping;
use crate::source::Source;
use crate::units::from_usize;
use std::io;

/// An array as something that can be read. Devices are looked up in `devices` by their number.
pub struct ArraySource<'a> {
    mapping: &'a Mapping,
    devices: Vec<&'a dyn Source>,
}

impl<'a> ArraySource<'a> {
    /// The array that `mapping` describes on these devices.
    pub fn new(mapping: &'a Mapping, devices: Vec<&'a dyn Source>) -> Self {
        Self { mapping, devices }
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
            let device = self.devices.get(place.device).ok_or(io::ErrorKind::NotFound)?;
            device.read_at(place.at, now)?;
            at = at.checked_add(from_usize(count)).ok_or(io::ErrorKind::UnexpectedEof)?;
            rest = later;
        }
        Ok(())
    }
}
