//! From trees to free bytes of each device.

use super::chunks::{Chunk, ChunkMap};
use super::device::{self, DevExtent, Device};
use super::error::wrong;
use super::ondisk::{self, CHUNK_OBJECT, FIRST_CHUNK_AT, Key, RawRoot, SUPER_AT, kind};
use super::space::{self, without};
use super::space_tree;
use super::superblock::{Superblock, stripes};
use super::tree::{Forest, TreeRoot};
use crate::error::ParseError;
use crate::free_map::{DeclaredFree, FreeMap, FreeMapBuilder, Grid};
use crate::units::ByteRange;

/// The blocks of a device: sectors, the last partial one left out.
pub(super) fn grid(superblock: &Superblock) -> Result<Grid, ParseError> {
    let sector = superblock.sector;
    Ok(Grid::new(0, sector, sector.whole_blocks(superblock.device.total_bytes.get()))?)
}

/// The free map of each device, in their order. All devices of the filesystem must be given.
pub(super) fn read(devices: &[Device<'_>]) -> Result<Vec<FreeMap>, ParseError> {
    device::check_set(devices)?;
    let Some(first) = devices.first() else { return Ok(Vec::new()) };
    let superblock = &first.superblock;
    let chunks = read_chunks(devices, superblock)?;
    let forest = Forest::new(devices, superblock, &chunks);
    device::check_items(&forest, &superblock.chunk_root, devices)?;
    let root = |tree| find_root(&forest, superblock, tree);
    let extents = device::extents(&forest, &root(ondisk::tree::DEVICE)?, &chunks)?;
    let groups = superblock.has_block_group_tree.then(|| root(ondisk::tree::BLOCK_GROUP)).transpose()?;
    let spaces = space::read(&forest, &chunks, &root(ondisk::tree::EXTENT)?, groups.as_ref(), superblock)?;
    if superblock.has_space_tree {
        space_tree::check(&forest, &root(ondisk::tree::FREE_SPACE)?, &chunks, &spaces, superblock.sector)?;
    }
    space::check_read(&chunks, &spaces, superblock.node_size, &forest.seen())?;
    let mut parts = unallocated(devices, &extents)?;
    for (chunk, space) in chunks.iter().zip(&spaces) {
        for range in space.free(chunk.range) {
            parts.extend(chunk.places(range)?);
        }
    }
    devices.iter().map(|device| map_of(device, &parts)).collect()
}

/// The chunk tree, read through the chunks in the superblock, which it must repeat.
fn read_chunks(devices: &[Device<'_>], superblock: &Superblock) -> Result<ChunkMap, ParseError> {
    let system = ChunkMap::system(superblock, SUPER_AT[0])?;
    let forest = Forest::new(devices, superblock, &system);
    let mut chunks = Vec::new();
    let (from, to) = (Key::from(CHUNK_OBJECT, kind::CHUNK), Key::to(CHUNK_OBJECT, kind::CHUNK));
    forest.walk(&superblock.chunk_root, from, to, &mut |item| {
        chunks.push(Chunk::new(item.key, item.data, item.at)?);
        Ok(())
    })?;
    let chunks = ChunkMap::new(chunks)?;
    match system.iter().find(|chunk| !chunks.iter().any(|other| other == *chunk)) {
        Some(chunk) => {
            let found = format!("another or none for logical {}", chunk.range);
            Err(wrong(superblock.chunk_root.block, "chunk tree", "the system chunks of the superblock too", found))
        }
        None => Ok(chunks),
    }
}

fn find_root(forest: &Forest<'_>, superblock: &Superblock, tree: u64) -> Result<TreeRoot, ParseError> {
    let (from, to) = (Key::from(tree, kind::ROOT_ITEM), Key::to(tree, kind::ROOT_ITEM));
    let mut found = None;
    forest.walk(&superblock.root, from, to, &mut |item| {
        let raw: RawRoot = item.head("a root item")?;
        let root = TreeRoot { tree, block: raw.block.get(), generation: raw.generation.get(), level: raw.level };
        match found.replace(root) {
            Some(_) => Err(wrong(item.at, "root items of a tree", format_args!("one for tree {tree}"), "two")),
            None => Ok(()),
        }
    })?;
    let missing = || wrong(superblock.root.block, "root item", format_args!("one for tree {tree}"), "none");
    found.ok_or_else(missing)
}

/// What of each device belongs to no chunk.
fn unallocated(devices: &[Device<'_>], extents: &[DevExtent]) -> Result<Vec<(u64, ByteRange)>, ParseError> {
    let mut parts = Vec::new();
    for device in devices {
        let whole = ByteRange::new(0, grid(&device.superblock)?.end());
        let whole = whole.ok_or_else(|| wrong(SUPER_AT[0], "size of a device", "some sectors", device.len()))?;
        let own = extents.iter().filter(|extent| extent.device == device.id);
        let taken: Vec<ByteRange> = own.map(|extent| extent.range).collect();
        if let Some(last) = taken.last().filter(|last| last.end() > whole.end()) {
            let found = last.end();
            return Err(wrong(found, "end of a device extent", format_args!("at most {}", whole.end()), found));
        }
        parts.extend(without(&[whole], &taken).into_iter().map(|range| (device.id, range)));
    }
    Ok(parts)
}

fn map_of(device: &Device<'_>, parts: &[(u64, ByteRange)]) -> Result<FreeMap, ParseError> {
    let grid = grid(&device.superblock)?;
    let block = grid.block();
    let mut map = FreeMapBuilder::new(grid);
    for (_, range) in parts.iter().filter(|(id, _)| *id == device.id) {
        // Everything here is in whole sectors; what is not would be a part of a block, which is used.
        if let Some(range) = range.round_inwards(block.bytes(), 0) {
            map.free(block.whole_blocks(range.start()), block.whole_blocks(range.len()))?;
        }
    }
    for range in ByteRange::new(0, FIRST_CHUNK_AT).into_iter().chain(stripes(device.len())) {
        if let Some(range) = range.intersect(ByteRange::new(0, grid.end()).unwrap_or(range)) {
            map.keep(block.whole_blocks(range.start()), range.len().div_ceil(block.bytes()))?;
        }
    }
    map.finish(DeclaredFree::Unknown)
}
