//! All the I/O that a parser ever sees: exact reads at a position.

use crate::error::ParseError;
use crate::units::{ByteRange, add, from_usize, to_usize};
use std::io;
use zerocopy::FromBytes;

/// Bytes that can be read at a position: a device, an image, or a part of one. There is no hidden cursor.
pub trait Source {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// True when there is nothing to read.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from byte `at`, wholly or not at all; a read that passes the end is an error.
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()>;
}

impl Source for [u8] {
    fn len(&self) -> u64 {
        from_usize(<[u8]>::len(self))
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let part = usize::try_from(at)
            .ok()
            .and_then(|start| Some(start..start.checked_add(buf.len())?))
            .and_then(|range| self.get(range))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(part);
        Ok(())
    }
}

impl Source for Vec<u8> {
    fn len(&self) -> u64 {
        from_usize(self.as_slice().len())
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_at(at, buf)
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        (**self).read_at(at, buf)
    }
}

/// A part of a source, with positions counted from the start of the part.
pub struct Window<'a> {
    inner: &'a dyn Source,
    range: ByteRange,
}

impl<'a> Window<'a> {
    /// The bytes `range` of `inner`; none when it passes the end.
    pub fn new(inner: &'a dyn Source, range: ByteRange) -> Option<Self> {
        (range.end() <= inner.len()).then_some(Self { inner, range })
    }
}

impl Source for Window<'_> {
    fn len(&self) -> u64 {
        self.range.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let outer = ByteRange::with_len(at, from_usize(buf.len()))
            .and_then(|wanted| wanted.shift_up(self.range.start()))
            .filter(|wanted| self.range.contains(*wanted));
        match outer {
            Some(range) => self.inner.read_at(range.start(), buf),
            None if buf.is_empty() => Ok(()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Upper bound of a single allocation that a number on disk may cause, in bytes.
const MAX_READ: u64 = 256 << 20;

/// Reads `len` bytes at `at`. Refuses lengths that only a damaged disk would ask for.
pub fn read_vec(source: &dyn Source, at: u64, len: u64) -> Result<Vec<u8>, ParseError> {
    let end = add(at, len, "the end of a read").map_err(|e| ParseError::corrupt(at, e))?;
    if end > source.len() || len > MAX_READ {
        return Err(ParseError::corrupt(
            at,
            format!("a structure of {len} bytes does not fit into the {} bytes that there are", source.len()),
        ));
    }
    let mut buf = vec![0; to_usize(len, "a read length")?];
    source.read_at(at, &mut buf).map_err(|e| ParseError::io(at, e))?;
    Ok(buf)
}

/// Reads one on-disk structure at `at`.
pub fn read_struct<T: FromBytes>(source: &dyn Source, at: u64) -> Result<T, ParseError> {
    let bytes = read_vec(source, at, from_usize(size_of::<T>()))?;
    T::read_from_bytes(&bytes).map_err(|_| ParseError::corrupt(at, "a structure was cut short"))
}

/// A `Read + Seek` view of a source for reader crates that want one. Writing always fails: nothing that reads a
/// disk for coldtrim may change it, whatever a crate does when it is dropped.
pub struct Cursor<'a> {
    inner: &'a dyn Source,
    position: u64,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of `inner`.
    pub fn new(inner: &'a dyn Source) -> Self {
        Self { inner, position: 0 }
    }
}

impl io::Read for Cursor<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.inner.len().saturating_sub(self.position);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let Some(part) = buf.get_mut(..count) else {
            return Ok(0);
        };
        self.inner.read_at(self.position, part)?;
        self.position = self.position.saturating_add(from_usize(count));
        Ok(count)
    }
}

impl io::Seek for Cursor<'_> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let target = match to {
            io::SeekFrom::Start(at) => Some(at),
            io::SeekFrom::Current(by) => self.position.checked_add_signed(by),
            io::SeekFrom::End(by) => self.inner.len().checked_add_signed(by),
        };
        self.position = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

impl io::Write for Cursor<'_> {
    fn write(&mut self, _buf: &[u8]) -> io::Result<usize> {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "coldtrim reads disks and never writes to them here"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, SeekFrom, Write};

    #[test]
    fn a_window_does_not_show_its_surroundings() {
        let bytes: Vec<u8> = (0..100).collect();
        let window = Window::new(&bytes, ByteRange::new(10, 20).unwrap()).unwrap();
        let mut buf = [0; 4];
        window.read_at(6, &mut buf).unwrap();
        assert_eq!(buf, [16, 17, 18, 19]);
        assert!(window.read_at(7, &mut buf).is_err());
        assert!(Window::new(&bytes, ByteRange::new(10, 101).unwrap()).is_none());
    }

    #[test]
    fn a_read_past_the_end_is_an_error_and_never_zeros() {
        let bytes = vec![1u8; 10];
        assert!(read_vec(&bytes, 8, 3).is_err());
        assert!(read_vec(&bytes, u64::MAX, 3).is_err());
        assert_eq!(read_vec(&bytes, 8, 2).unwrap(), [1, 1]);
    }

    #[test]
    fn a_cursor_reads_and_seeks_and_refuses_to_write() {
        let bytes: Vec<u8> = (0..10).collect();
        let mut cursor = Cursor::new(&bytes);
        cursor.seek(SeekFrom::End(-2)).unwrap();
        let mut buf = [0; 4];
        assert_eq!(cursor.read(&mut buf).unwrap(), 2);
        assert_eq!(buf[..2], [8, 9]);
        assert_eq!(cursor.write(&[1]).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
