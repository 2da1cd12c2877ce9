//! Nodes: inodes, blocks of block addresses, blocks of node numbers, blocks of attributes. A footer of 24 bytes tells
//! number, inode, and the node's place among those of its inode, from which its kind follows.

use super::table::{Table, read, u16_at, u32_at};
use crate::error::{Mismatch, ParseError};
use crate::source::Source;
use crate::text::printable_name;
use crate::units::Overflow;

/// Where the addresses in an inode begin, and how many there are at most.
const INODE_ADDRESSES_AT: usize = 360;
const INODE_ADDRESSES: usize = 923;
/// Numbers in a block of addresses or nodes.
const NUMBERS: u32 = 1018;
/// Place of a block of attributes.
const ATTRIBUTES: u32 = 0x1FFF_FFFF;
const INLINE_ATTRIBUTES: u8 = 1;
const INLINE_DATA: u8 = 2;
const INLINE_NAMES: u8 = 4;
const EXTRA_FIELDS: u8 = 0x20;
/// Folders above one another that a path may have.
const MOST_FOLDERS: usize = 256;

/// One node.
pub struct Node {
    pub block: u32,
    pub inode: u32,
    number: u32,
    bytes: Vec<u8>,
    has_flexible_attributes: bool,
}

impl Node {
    /// Reads the node with this number.
    pub fn read(source: &dyn Source, table: &Table, number: u32, block: u32) -> Result<Self, ParseError> {
        let range = table.bytes(block, 1)?;
        let bytes = read(source, range)?;
        let (found, inode) = (u32_at(&bytes, 4072)?, u32_at(&bytes, 4076)?);
        if found != number {
            return Err(ParseError::corrupt(range.start(), Mismatch::new("number of a node", number, found)));
        }
        Ok(Self { block, inode, number, bytes, has_flexible_attributes: table.has_flexible_attributes })
    }

    /// The blocks of data that the node points at.
    pub fn addresses(&self) -> Result<Vec<u32>, Overflow> {
        let (at, count) = match (self.number == self.inode, self.place()?) {
            (true, _) => self.inode_addresses()?,
            (false, place) if holds_addresses(place) => (0, usize::try_from(NUMBERS).unwrap_or(0)),
            (false, _) => return Ok(Vec::new()),
        };
        let part = self.bytes.get(at..).ok_or(Overflow("the addresses of a node"))?;
        let (numbers, _) = part.as_chunks::<4>();
        let addresses = numbers.iter().take(count).map(|number| u32::from_le_bytes(*number));
        // A hole, a block without a place yet, the head of a compressed cluster.
        Ok(addresses.filter(|address| *address != 0 && *address < u32::MAX.saturating_sub(1)).collect())
    }

    fn place(&self) -> Result<u32, Overflow> {
        Ok(u32_at(&self.bytes, 4080)? >> 3)
    }

    /// Where the addresses of an inode begin, and how many there are.
    fn inode_addresses(&self) -> Result<(usize, usize), Overflow> {
        let inline = self.bytes.get(3).copied().unwrap_or(0);
        // Directories, files and symbolic links; devices and pipes keep numbers here.
        let has_blocks = matches!(u16_at(&self.bytes, 0)? >> 12, 4 | 8 | 10);
        if !has_blocks || inline & (INLINE_DATA | INLINE_NAMES) != 0 {
            return Ok((INODE_ADDRESSES_AT, 0));
        }
        let has_extra = inline & EXTRA_FIELDS != 0;
        let extra = if has_extra { usize::from(u16_at(&self.bytes, INODE_ADDRESSES_AT)?) } else { 0 };
        let attributes = match (self.has_flexible_attributes && has_extra, inline & INLINE_ATTRIBUTES != 0) {
            (true, _) => usize::from(u16_at(&self.bytes, INODE_ADDRESSES_AT.saturating_add(2))?),
            (false, true) => 50,
            (false, false) => 0,
        };
        let count = INODE_ADDRESSES.checked_sub(extra >> 2).and_then(|rest| rest.checked_sub(attributes));
        Ok((INODE_ADDRESSES_AT.saturating_add(extra), count.ok_or(Overflow("the addresses of an inode"))?))
    }

    /// Folder and name of an inode.
    fn name(&self) -> Result<(u32, String), Overflow> {
        let len = usize::try_from(u32_at(&self.bytes, 88)?).unwrap_or(0).min(255);
        let name = self.bytes.get(92..).and_then(|rest| rest.get(..len)).ok_or(Overflow("a name"))?;
        Ok((u32_at(&self.bytes, 84)?, printable_name(name)))
    }
}

/// True for a block of addresses; the others hold node numbers, or attributes.
fn holds_addresses(place: u32) -> bool {
    // 1, 2: direct; 3, 3 + 1018 + 1: indirect; then one of two levels, each of whose children is followed by its own.
    if place == ATTRIBUTES
        || [3, NUMBERS.saturating_add(4), NUMBERS.saturating_mul(2).saturating_add(5)].contains(&place)
    {
        return false;
    }
    match place.checked_sub(NUMBERS.saturating_mul(2).saturating_add(6)) {
        Some(rest) => !rest.is_multiple_of(NUMBERS.saturating_add(1)),
        None => true,
    }
}

/// The owner of blocks, written as a path where the inodes tell one.
pub struct Owner<'a> {
    pub source: &'a dyn Source,
    pub table: &'a Table,
    pub inode: u32,
}

impl std::fmt::Display for Owner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.path() {
            Ok(path) if path.is_empty() => write!(f, "the root directory (inode {})", self.inode),
            Ok(path) => write!(f, "{path} (inode {})", self.inode),
            Err(_) => write!(f, "inode {}", self.inode),
        }
    }
}

impl Owner<'_> {
    fn path(&self) -> Result<String, ParseError> {
        let (mut path, mut inode) = (String::new(), self.inode);
        for _ in 0..MOST_FOLDERS {
            if inode == self.table.root {
                return Ok(path);
            }
            let block = self.table.block_of(inode).ok_or(Overflow("a folder without a node"))?;
            let (folder, name) = Node::read(self.source, self.table, inode, block)?.name()?;
            path = format!("/{name}{path}");
            inode = folder;
        }
        Err(Overflow("a path with too many folders").into())
    }
}
