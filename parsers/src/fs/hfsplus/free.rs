//! The walk over the allocation file: a bitmap, one bit a block, the greatest bit first, 1 = used.

use super::HfsPlusError;
use super::ondisk::{RawNode, RawOverflow, RawTreeHeader};
use super::superblock::{Extent, Fork, Header, extents};
use crate::error::{Mismatch, ParseError};
use crate::free_map::{BitOrder, FreeMapBuilder};
use crate::source::{Source, read_struct, read_vec};
use crate::units::{add, div_up, mul, sub};
use zerocopy::FromBytes;

/// The allocation file's identity in the extents overflow file.
const ALLOCATION_FILE: u32 = 6;
/// Bytes that are read at once: one MiB of bitmap is 8 million blocks.
const PIECE: u64 = 1 << 20;

/// Adds every block with a clear bit to `map`. Bits behind the last block are clear, too, and mean nothing.
pub(super) fn read(volume: &dyn Source, header: &Header, map: &mut FreeMapBuilder) -> Result<(), ParseError> {
    let needed = header.total.div_ceil(8);
    if header.allocation.size < needed {
        let cause = Mismatch::new("size of the allocation file", format!("{needed} bytes"), header.allocation.size);
        return Err(ParseError::inconsistent(cause));
    }
    let mut block = 0;
    for extent in whole_fork(volume, header)? {
        map.must_be_used(extent.start, extent.count, "the allocation file")?;
        let mut at = header.block.to_bytes(extent.start)?;
        let end = header.block.to_bytes(add(extent.start, extent.count, "the end of an extent")?)?;
        while at < end && block < header.total {
            let len =
                sub(end, at, "a piece of the bitmap")?.min(PIECE).min(sub(header.total, block, "blocks")?.div_ceil(8));
            let bits = mul(len, 8, "the bits of a piece")?.min(sub(header.total, block, "blocks")?);
            map.free_clear_bits(block, &read_vec(volume, at, len)?, bits, BitOrder::MostFirst)?;
            block = add(block, bits, "a block number")?;
            at = add(at, len, "the next piece of the bitmap")?;
        }
    }
    if block < header.total {
        return Err(ParseError::inconsistent(Mismatch::new("blocks in the allocation file", header.total, block)));
    }
    Ok(())
}

/// All extents of the allocation file: those of the volume header, then those of the extents overflow file.
fn whole_fork(volume: &dyn Source, header: &Header) -> Result<Vec<Extent>, ParseError> {
    let fork = &header.allocation;
    let count = |extents: &[Extent]| extents.iter().fold(0_u64, |sum, extent| sum.saturating_add(extent.count));
    let mut all = fork.extents.clone();
    if count(&all) < fork.blocks {
        for (start, more) in overflow(volume, header)? {
            if start != count(&all) {
                return Err(ParseError::inconsistent(Mismatch::new(
                    "next block of the allocation file",
                    count(&all),
                    start,
                )));
            }
            all.extend(more);
        }
    }
    if count(&all) != fork.blocks {
        let cause = Mismatch::new("blocks in all extents of the allocation file", fork.blocks, count(&all));
        return Err(ParseError::inconsistent(cause));
    }
    Ok(all)
}

/// The allocation file's further extents, each list with the number of blocks before it, in that order.
fn overflow(volume: &dyn Source, header: &Header) -> Result<Vec<(u64, Vec<Extent>)>, ParseError> {
    let tree: RawTreeHeader = read_struct(volume, add(position(header, &header.extents, 0)?, 14, "a tree header")?)?;
    let node_size = u64::from(tree.node_size.get());
    if !(512..=32_768).contains(&node_size) || !node_size.is_power_of_two() {
        return Err(ParseError::inconsistent(Mismatch::new(
            "size of a node",
            "a power of two, 512 to 32768",
            node_size,
        )));
    }
    let mut found = Vec::new();
    let mut node = u64::from(tree.first_leaf.get());
    for _ in 0..tree.total_nodes.get() {
        if node == 0 {
            break;
        }
        let offset = mul(node, node_size, "the position of a node")?;
        let at = position(header, &header.extents, offset)?;
        let bytes = read_node(volume, header, &header.extents, (offset, node_size))?;
        node = leaf(&bytes, header.total, &mut found).map_err(|e| e.located(at))?;
    }
    if node != 0 {
        return Err(ParseError::inconsistent(HfsPlusError::TreeLoop(node)));
    }
    Ok(found)
}

/// A node of a tree: its place in the file and its size, in bytes. It may begin in one extent and end in another.
pub(super) fn read_node(
    volume: &dyn Source,
    header: &Header,
    fork: &Fork,
    (offset, node_size): (u64, u64),
) -> Result<Vec<u8>, ParseError> {
    let step = node_size.min(header.block.bytes());
    let mut bytes = Vec::new();
    for piece in 0..div_up(node_size, step, "pieces of a node")? {
        let offset = add(offset, mul(piece, step, "a piece of a node")?, "a piece of a node")?;
        bytes.extend(read_vec(volume, position(header, fork, offset)?, step)?);
    }
    Ok(bytes)
}

/// Byte in the volume of byte `offset` of a fork that has no further extents.
fn position(header: &Header, fork: &Fork, offset: u64) -> Result<u64, ParseError> {
    let mut block = header.block.whole_blocks(offset);
    let inside = offset & sub(header.block.bytes(), 1, "a block")?;
    for extent in &fork.extents {
        if block < extent.count {
            let at = header.block.to_bytes(add(extent.start, block, "a block of a file")?)?;
            return Ok(add(at, inside, "a position in a file")?);
        }
        block = sub(block, extent.count, "a block of a file")?;
    }
    Err(ParseError::inconsistent(HfsPlusError::BeyondFork(offset)))
}

/// Collects the allocation file's records of one leaf, and gives the number of the next.
fn leaf(bytes: &[u8], total: u64, found: &mut Vec<(u64, Vec<Extent>)>) -> Result<u64, ParseError> {
    let (node, _) = RawNode::read_from_prefix(bytes).map_err(|_| ParseError::inconsistent("a node was cut short"))?;
    if node.kind != -1 {
        return Err(ParseError::inconsistent(Mismatch::new("kind of a node among the leaves", -1, node.kind)));
    }
    // Offsets of the records are written from the end of the node backwards.
    let (_, offsets) = bytes.as_rchunks::<2>();
    for offset in offsets.iter().rev().take(usize::from(node.records.get())) {
        let record = bytes
            .get(usize::from(u16::from_be_bytes(*offset))..)
            .and_then(|rest| RawOverflow::read_from_prefix(rest).ok());
        let Some((record, _)) = record.filter(|(record, _)| record.key_length.get() == 10) else {
            return Err(ParseError::inconsistent(Mismatch::new(
                "record of extents",
                "a key of 10 bytes",
                "something else",
            )));
        };
        if record.file_id.get() == ALLOCATION_FILE && record.fork_type == 0 {
            found.push((u64::from(record.start_block.get()), extents(&record.extents, total)?));
        }
    }
    Ok(u64::from(node.forward_link.get()))
}
