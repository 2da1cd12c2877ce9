//! Blocks of a container, and objects: blocks that begin with a header and a checksum.

use super::error::{ApfsError, at_most, equal, wrong};
use super::ondisk::RawHeader;
use crate::error::ParseError;
use crate::source::{Source, read_vec};
use crate::units::{BlockSize, add, from_usize, mul, to_usize};
use apfs::fletcher::fletcher64;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Bytes of the largest read, and of what may lie between two wanted blocks before two reads are made of it.
const MAX_RUN: u64 = 1 << 20;

/// Called with the index of a block among those that were wanted, and its bytes.
pub(super) type Visit<'v> = dyn FnMut(usize, &[u8]) -> Result<(), ParseError> + 'v;

/// The blocks of a container.
#[derive(Clone, Copy)]
pub(super) struct Blocks<'a> {
    pub source: &'a dyn Source,
    pub size: BlockSize,
    /// All of them lie inside the source.
    pub count: u64,
}

impl Blocks<'_> {
    /// Byte position of `count` blocks from `first`, which must lie inside the container.
    pub fn position(&self, first: u64, count: u64, what: &'static str) -> Result<u64, ParseError> {
        let end = add(first, count, "the end of a run of blocks")?;
        if end > self.count {
            let message = format!("{what}: blocks inside the container");
            return Err(ParseError::inconsistent(ApfsError::Field(crate::error::Mismatch::new(
                message,
                format_args!("up to {}", self.count),
                format_args!("{first}..{end}"),
            ))));
        }
        Ok(self.size.to_bytes(first)?)
    }

    /// `count` blocks from `first`.
    pub fn run(&self, first: u64, count: u64, what: &'static str) -> Result<Vec<u8>, ParseError> {
        let at = self.position(first, count, what)?;
        read_vec(self.source, at, self.size.to_bytes(count)?)
    }

    /// The object in block `block`.
    pub fn object(&self, block: u64, what: &'static str) -> Result<Object, ParseError> {
        Object::new(self.run(block, 1, what)?, block, self.size.to_bytes(block)?, what)
    }

    /// Reads blocks in the order in which they lie, neighbours in one request, and hands each to `visit` with its
    /// index in `wanted`. A block that is wanted twice is an error: every block here has one owner.
    pub fn each(&self, wanted: &[u64], what: &'static str, visit: &mut Visit<'_>) -> Result<(), ParseError> {
        let mut order: Vec<(u64, usize)> = wanted.iter().copied().zip(0..).collect();
        order.sort_unstable();
        let twice = order.iter().zip(order.iter().skip(1)).find(|(a, b)| a.0 == b.0);
        if let Some(((block, _), _)) = twice {
            return Err(wrong(self.size.to_bytes(*block)?, what, "a block for each", "one block twice"));
        }
        let most = self.size.whole_blocks(MAX_RUN);
        let near = |a: &(u64, usize), b: &(u64, usize)| a.0.checked_add(1) == Some(b.0);
        for neighbours in order.chunk_by(near) {
            for run in neighbours.chunks(to_usize(most, "blocks in a read")?) {
                let Some((first, _)) = run.first() else { continue };
                let bytes = self.run(*first, from_usize(run.len()), what)?;
                let blocks = bytes.chunks_exact(to_usize(self.size.bytes(), "a block size")?);
                run.iter().zip(blocks).try_for_each(|((_, index), block)| visit(*index, block))?;
            }
        }
        Ok(())
    }
}

/// The structure at the start of `bytes`.
pub(super) fn head<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8], at: u64) -> Result<T, ParseError> {
    let cut = || wrong(at, "a structure", format_args!("{} bytes", size_of::<T>()), format_args!("{}", bytes.len()));
    T::read_from_prefix(bytes).map(|(value, _)| value).map_err(|_| cut())
}

/// `count` structures that follow each other from byte `offset` of `bytes`.
pub(super) fn entries<T: FromBytes + KnownLayout + Immutable + Clone>(
    bytes: &[u8],
    offset: u64,
    count: u64,
    at: u64,
    what: &'static str,
) -> Result<Vec<T>, ParseError> {
    let len = mul(count, from_usize(size_of::<T>()), "a length of entries")?;
    let end = add(offset, len, "the end of entries")?;
    at_most(at, what, from_usize(bytes.len()), end)?;
    let part = bytes.get(to_usize(offset, "an offset")?..to_usize(end, "an offset")?).unwrap_or_default();
    part.chunks_exact(size_of::<T>()).map(|entry| head(entry, at)).collect()
}

/// An object whose checksum is right.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub bytes: Vec<u8>,
    pub header: RawHeader,
    /// Where it lies.
    pub block: u64,
    pub at: u64,
    pub what: &'static str,
}

impl Object {
    /// Verifies the checksum of `bytes`, which lie at block `block`, byte `at`.
    pub fn new(bytes: Vec<u8>, block: u64, at: u64, what: &'static str) -> Result<Self, ParseError> {
        let header: RawHeader = head(&bytes, at)?;
        let expected = fletcher64(bytes.get(8..).unwrap_or_default());
        let found = header.o_cksum.get();
        if expected != found {
            return Err(ParseError::corrupt(at, ApfsError::Checksum { what, block, expected, found }));
        }
        Ok(Self { bytes, header, block, at, what })
    }

    /// The type word must be `kind`, the transaction not younger than `xid`.
    pub fn expect(&self, kind: u32, oid: u64, xid: u64) -> Result<(), ParseError> {
        if self.header.o_type.get() != kind {
            let what = format!("{}: object type", self.what);
            return Err(wrong(
                self.at,
                what,
                format_args!("{kind:#x}"),
                format_args!("{:#x}", self.header.o_type.get()),
            ));
        }
        equal(self.at, self.what, oid, self.header.o_oid.get())?;
        if self.header.o_xid.get() > xid {
            let what = format!("{}: transaction", self.what);
            return Err(wrong(self.at, what, format_args!("at most {xid}"), self.header.o_xid.get()));
        }
        Ok(())
    }

    /// The structure at its start.
    pub fn head<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<T, ParseError> {
        head(&self.bytes, self.at)
    }

    /// `count` structures from byte `offset` on.
    pub fn entries<T: FromBytes + KnownLayout + Immutable + Clone>(
        &self,
        offset: u64,
        count: u64,
    ) -> Result<Vec<T>, ParseError> {
        entries(&self.bytes, offset, count, self.at, self.what)
    }
}
