//! A second reading of HFS+, from the files: every fork of every file in the catalog with its further extents, bad
//! blocks, extended attributes, the special files, the journal, and both volume headers. It shares no code with the
//! reader of the bitmap, and reads the volume header by itself.

use super::tree::{Record, Tree};
use crate::error::{Mismatch, ParseError};
use crate::pages::Pages;
use crate::source::Source;
use crate::units::ByteRange;
use crate::witness::{Ledger, Witness};
use std::collections::BTreeMap;

/// The row in the format's list.
pub(super) struct HfsPlusWalk;

impl Witness for HfsPlusWalk {
    fn name(&self) -> &'static str {
        "hfsplus-walk"
    }

    fn walk(&self, source: &dyn Source, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        let pages = Pages::new(source);
        let mut walk = Walk::new(&pages, ledger)?;
        walk.special_files()?;
        walk.catalog()?;
        walk.attributes()?;
        walk.leftover_extents();
        Ok(())
    }
}

/// A list of (first block, number of blocks).
pub(super) type Extents = Vec<(u64, u64)>;

/// A fork as a record describes it.
struct Fork {
    blocks: u64,
    extents: Extents,
}

/// A big-endian number of four bytes; zero behind the end of a record, which no fork survives.
pub(super) fn be32(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).map_or(0, |b| u64::from(u32::from_be_bytes(*b)))
}

/// The same of two bytes.
pub(super) fn be16(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<2>()).map_or(0, |b| usize::from(u16::from_be_bytes(*b)))
}

/// Eight extents from byte `at`.
fn eight(bytes: &[u8], at: usize) -> Extents {
    let places = (0..8_usize).map(|index| at.saturating_add(index.saturating_mul(8)));
    let all = places.map(|at| (be32(bytes, at), be32(bytes, at.saturating_add(4))));
    all.take_while(|(_, count)| *count != 0).collect()
}

fn fork(bytes: &[u8], at: usize) -> Fork {
    Fork { blocks: be32(bytes, at.saturating_add(12)), extents: eight(bytes, at.saturating_add(16)) }
}

fn sum(extents: &Extents) -> u64 {
    extents.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

/// Files whose extents are in no catalog: by their fixed identities.
const BAD_BLOCKS: u64 = 5;
const DATA: u8 = 0;
const RESOURCES: u8 = 0xFF;

struct Walk<'a, 'b> {
    source: &'a dyn Source,
    ledger: &'a mut Ledger<'b>,
    /// Byte of the source where the HFS+ volume begins.
    base: u64,
    /// Bytes of the HFS+ volume.
    len: u64,
    block: u64,
    header: Vec<u8>,
    /// Further extents by file and fork, each list with the number of blocks before it.
    overflow: BTreeMap<(u64, u8), Vec<(u64, Extents)>>,
}

impl<'a, 'b> Walk<'a, 'b> {
    fn new(source: &'a dyn Source, ledger: &'a mut Ledger<'b>) -> Result<Self, ParseError> {
        let read = |at: u64| -> Result<Vec<u8>, ParseError> {
            let mut bytes = vec![0; 512];
            source.read_at(at, &mut bytes).map_err(|e| ParseError::io(at, e))?;
            Ok(bytes)
        };
        let outer = read(1024)?;
        let (mut base, mut len) = (0, source.len());
        if outer.starts_with(b"BD") {
            let unit = be32(&outer, 0x14);
            let (start, count) = (be32(&outer, 0x7C) & 0xFFFF, be32(&outer, 0x7E) & 0xFFFF);
            base = (be32(&outer, 0x1A) & 0xFFFF).saturating_mul(512).saturating_add(start.saturating_mul(unit));
            len = count.saturating_mul(unit);
        }
        let header = read(base.saturating_add(1024))?;
        let block = be32(&header, 40);
        if block == 0 || !matches!(header.get(..2), Some(b"H+" | b"HX")) {
            return Err(ParseError::corrupt(base, Mismatch::new("volume header", "a block size", block)));
        }
        let mut walk = Self { source, ledger, base, len, block, header, overflow: BTreeMap::new() };
        walk.read_overflow()?;
        Ok(walk)
    }

    fn claim(&mut self, extents: &Extents, owner: &str) {
        for (start, count) in extents {
            self.claim_bytes(start.saturating_mul(self.block), count.saturating_mul(self.block), owner);
        }
    }

    fn claim_bytes(&mut self, at: u64, len: u64, owner: &str) {
        if let Some(range) = ByteRange::with_len(self.base.saturating_add(at), len) {
            self.ledger.claim(range, &owner);
        }
    }

    fn tree(&self, extents: Extents) -> Result<Option<Tree<'a>>, ParseError> {
        Tree::open(self.source, self.base, self.block, extents)
    }

    /// Every record of the extents overflow file, whose own extents are all in the volume header.
    fn read_overflow(&mut self) -> Result<(), ParseError> {
        let own = fork(&self.header, 192);
        let Some(mut tree) = self.tree(own.extents)? else {
            return Ok(());
        };
        while let Some(leaf) = tree.next_leaf()? {
            for Record { key, data } in leaf.records()? {
                let kind = key.first().copied().unwrap_or_default();
                let list = (be32(key, 6), eight(data, 0));
                self.overflow.entry((be32(key, 2), kind)).or_default().push(list);
            }
        }
        Ok(())
    }

    /// All extents of a fork; an error when they do not add up to the blocks that it says it has.
    fn whole(&mut self, id: u64, kind: u8, fork: Fork) -> Result<Extents, ParseError> {
        let mut extents = fork.extents;
        for (start, more) in self.overflow.remove(&(id, kind)).unwrap_or_default() {
            if start != sum(&extents) {
                let what = format!("next block of file {id}");
                return Err(ParseError::inconsistent(Mismatch::new(what, sum(&extents), start)));
            }
            extents.extend(more);
        }
        if sum(&extents) != fork.blocks {
            let what = format!("blocks in all extents of file {id}");
            return Err(ParseError::inconsistent(Mismatch::new(what, fork.blocks, sum(&extents))));
        }
        Ok(extents)
    }

    fn special_files(&mut self) -> Result<(), ParseError> {
        self.claim_bytes(0, 1536, "the volume header");
        self.claim_bytes(self.len.saturating_sub(1024), 1024, "the second volume header");
        for (id, at, name) in
            [(6, 112, "the allocation file"), (3, 192, "the extents overflow file"), (7, 432, "the startup file")]
        {
            self.ledger.visit();
            let fork = fork(&self.header, at);
            let extents = self.whole(id, DATA, fork)?;
            self.claim(&extents, name);
        }
        let journaled = be32(&self.header, 4) & 0x2000 != 0;
        if journaled { self.journal() } else { Ok(()) }
    }

    fn journal(&mut self) -> Result<(), ParseError> {
        let at = be32(&self.header, 12).saturating_mul(self.block);
        let mut info = vec![0; 52];
        let place = self.base.saturating_add(at);
        self.source.read_at(place, &mut info).map_err(|e| ParseError::io(place, e))?;
        self.claim_bytes(at, self.block, "the journal info block");
        let long = |at: usize| be32(&info, at) << 32 | be32(&info, at.saturating_add(4));
        self.claim_bytes(long(36), long(44), "the journal");
        Ok(())
    }

    /// Every file's two forks.
    fn catalog(&mut self) -> Result<(), ParseError> {
        let own = fork(&self.header, 272);
        let extents = self.whole(4, DATA, own)?;
        self.claim(&extents, "the catalog file");
        let tree = self.tree(extents)?;
        let mut tree = tree.ok_or_else(|| ParseError::inconsistent("there is no catalog"))?;
        while let Some(leaf) = tree.next_leaf()? {
            for Record { key, data } in leaf.records()? {
                if be16(data, 0) != 2 {
                    continue; // a folder, or a thread back to a name
                }
                self.ledger.visit();
                let id = be32(data, 8);
                let owner = format!("file {id} ({:?} in folder {})", name(key, 4), be32(key, 0));
                for (kind, at) in [(DATA, 88), (RESOURCES, 168)] {
                    let extents = self.whole(id, kind, fork(data, at))?;
                    self.claim(&extents, &owner);
                }
            }
            if self.ledger.has_clash() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Extended attributes that are too large for a record have forks of their own.
    fn attributes(&mut self) -> Result<(), ParseError> {
        let own = fork(&self.header, 352);
        let extents = self.whole(8, DATA, own)?;
        self.claim(&extents, "the attributes file");
        let Some(mut tree) = self.tree(extents)? else {
            return Ok(());
        };
        while let Some(leaf) = tree.next_leaf()? {
            for Record { key, data } in leaf.records()? {
                self.ledger.visit();
                let owner = format!("attribute {:?} of file {}", name(key, 10), be32(key, 2));
                match be32(data, 0) {
                    0x20 => self.claim(&fork(data, 8).extents, &owner),
                    0x30 => self.claim(&eight(data, 8), &owner),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// What no file took: bad blocks, and files that the catalog does not know. Used, whosever it is.
    fn leftover_extents(&mut self) {
        for ((id, _), lists) in std::mem::take(&mut self.overflow) {
            let owner =
                if id == BAD_BLOCKS { "bad blocks".to_owned() } else { format!("file {id}, which has no name") };
            self.ledger.visit();
            for (_, extents) in lists {
                self.claim(&extents, &owner);
            }
        }
    }
}

/// A name in a key: its length in UTF-16 units at `at`, then the units.
fn name(key: &[u8], at: usize) -> String {
    let (units, _) = key.get(at.saturating_add(2)..).unwrap_or_default().as_chunks::<2>();
    let units: Vec<u16> = units.iter().take(be16(key, at)).map(|unit| u16::from_be_bytes(*unit)).collect();
    String::from_utf16_lossy(&units)
}
