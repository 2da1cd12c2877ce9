//! The leaves of a B-tree, for the witness.

use super::witness::{Extents, be16, be32};
use crate::error::{Mismatch, ParseError};
use crate::source::Source;

/// A B-tree file, leaf by leaf. It ends in an error unless all records were seen that its header counts.
pub(super) struct Tree<'a> {
    source: &'a dyn Source,
    base: u64,
    block: u64,
    extents: Extents,
    node_size: u64,
    next: u64,
    nodes_left: u64,
    records_left: u64,
}

/// A record of a leaf.
pub(super) struct Record<'l> {
    /// The key behind its length.
    pub key: &'l [u8],
    /// What follows the key.
    pub data: &'l [u8],
}

/// One leaf.
pub(super) struct Leaf(Vec<u8>);

impl<'a> Tree<'a> {
    /// The tree in the file with these extents; none when there is no file.
    pub fn open(source: &'a dyn Source, base: u64, block: u64, extents: Extents) -> Result<Option<Self>, ParseError> {
        if extents.is_empty() {
            return Ok(None);
        }
        let mut tree = Self { source, base, block, extents, node_size: 512, next: 0, nodes_left: 0, records_left: 0 };
        let header = tree.node(0)?;
        let node_size = be32(&header, 30) & 0xFFFF;
        if header.get(8) != Some(&1) || !(512..=32_768).contains(&node_size) {
            return Err(ParseError::inconsistent(Mismatch::new(
                "first node of a B-tree",
                "a header",
                "something else",
            )));
        }
        tree.node_size = node_size;
        tree.next = be32(&header, 24);
        tree.records_left = be32(&header, 20);
        tree.nodes_left = be32(&header, 36);
        Ok(Some(tree))
    }

    /// The bytes of a node, which may be scattered over blocks smaller than itself.
    fn node(&self, number: u64) -> Result<Vec<u8>, ParseError> {
        let mut bytes = Vec::new();
        let mut at = number.saturating_mul(self.node_size);
        let end = at.saturating_add(self.node_size);
        while at < end {
            let (place, room) = self.place(at)?;
            let len = room.min(end.saturating_sub(at));
            let mut piece = vec![0; usize::try_from(len).unwrap_or_default()];
            self.source.read_at(place, &mut piece).map_err(|e| ParseError::io(place, e))?;
            bytes.extend(piece);
            at = at.saturating_add(len);
        }
        Ok(bytes)
    }

    /// Where byte `at` of the file lies, and how many bytes follow there.
    fn place(&self, at: u64) -> Result<(u64, u64), ParseError> {
        let mut before: u64 = 0;
        for (start, count) in &self.extents {
            let len = count.saturating_mul(self.block);
            let into = at.saturating_sub(before);
            if into < len {
                let start = self.base.saturating_add(start.saturating_mul(self.block));
                return Ok((start.saturating_add(into), len.saturating_sub(into)));
            }
            before = before.saturating_add(len);
        }
        Err(ParseError::inconsistent(format!("byte {at} lies behind the end of a B-tree file")))
    }

    /// The next leaf in the order of keys.
    pub fn next_leaf(&mut self) -> Result<Option<Leaf>, ParseError> {
        if self.next == 0 {
            return if self.records_left == 0 {
                Ok(None)
            } else {
                Err(ParseError::inconsistent(format!("{} records of a B-tree are in no leaf", self.records_left)))
            };
        }
        let left = self.nodes_left.checked_sub(1);
        self.nodes_left = left.ok_or_else(|| ParseError::inconsistent("the leaves of a B-tree run in a circle"))?;
        let leaf = Leaf(self.node(self.next)?);
        if leaf.0.get(8) != Some(&0xFF) {
            return Err(ParseError::inconsistent(format!("node {} of a B-tree is no leaf", self.next)));
        }
        let left = self.records_left.checked_sub(u64::try_from(be16(&leaf.0, 10)).unwrap_or(u64::MAX));
        self.records_left = left.ok_or_else(|| ParseError::inconsistent("a B-tree has more records than it counts"))?;
        self.next = be32(&leaf.0, 0);
        Ok(Some(leaf))
    }
}

impl Leaf {
    /// The records in order. Their offsets are at the end of the node, the first one last.
    pub fn records(&self) -> Result<Vec<Record<'_>>, ParseError> {
        let count = be16(&self.0, 10);
        let (_, offsets) = self.0.as_rchunks::<2>();
        let offsets: Vec<usize> = offsets.iter().rev().map(|b| usize::from(u16::from_be_bytes(*b))).collect();
        let bounds = offsets.iter().zip(offsets.iter().skip(1)).take(count);
        let records: Option<Vec<Record<'_>>> = bounds.map(|(start, end)| record(self.0.get(*start..*end)?)).collect();
        records.filter(|records| records.len() == count).ok_or_else(|| {
            ParseError::inconsistent(Mismatch::new("leaf of a B-tree", format!("{count} records"), "some outside"))
        })
    }
}

fn record(bytes: &[u8]) -> Option<Record<'_>> {
    let length = be16(bytes, 0).checked_add(2)?;
    let data = length.checked_add(length & 1)?;
    Some(Record { key: bytes.get(2..length)?, data: bytes.get(data..)? })
}
