//! The newest checkpoint: which superblock is true, and where the ephemeral objects of its moment lie.
//!
//! ```text
//! block 0        copy of the superblock as of the last clean unmount
//! descriptors    ring: map, map, superblock (the newest xid with a right checksum wins) | map, superblock | ...
//! data           ring: the ephemeral objects that the maps name (space manager, free queues, reaper)
//! ```
//! Both rings are runs of blocks, or, in fragments, B-trees from block offset to run. Source: Apple File System
//! Reference, "Mounting an Apple File System Partition" and "nx_superblock_t".

use super::btree::Tree;
use super::error::{at_most, equal, wrong};
use super::object::{Blocks, Object};
use super::ondisk::{RawCheckpointMap, RawMapping, RawRange, kind};
use super::superblock::{Superblock, resembles};
use crate::error::{ErrorKind, ParseError};
use crate::source::Source;
use crate::units::{add, from_usize, rem, sub};
use std::collections::BTreeMap;

/// Highest bit of a number of blocks: the area is a tree.
const FRAGMENTED: u32 = 0x8000_0000;

/// Blocks of an area that is believed: 16 times what Apple's tools make for the largest disks.
const MAX_AREA: u64 = 1 << 20;

/// A part of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fragment {
    /// First block and number of blocks, in the container.
    pub block: u64,
    pub count: u64,
}

/// The blocks of a checkpoint area, in the order of the ring.
#[derive(Debug, Clone)]
pub(super) struct Area {
    pub fragments: Vec<Fragment>,
    pub count: u64,
    /// Nodes of the tree that holds the fragments, if there is one.
    pub nodes: Vec<u64>,
}

impl Area {
    fn read(blocks: Blocks<'_>, count: u32, base: u64, what: &'static str) -> Result<Self, ParseError> {
        let fragmented = count & FRAGMENTED != 0;
        let count = u64::from(count & !FRAGMENTED);
        at_most(0, what, MAX_AREA, count)?;
        if count == 0 {
            return Err(wrong(0, what, "at least one block", 0));
        }
        let mut area = Self { fragments: Vec::new(), count, nodes: Vec::new() };
        if fragmented {
            area.read_tree(blocks, base, what)?;
        } else {
            area.fragments.push(Fragment { block: base, count });
        }
        for fragment in &area.fragments {
            blocks.position(fragment.block, fragment.count, what)?;
        }
        Ok(area)
    }

    fn read_tree(&mut self, blocks: Blocks<'_>, root: u64, what: &'static str) -> Result<(), ParseError> {
        let tree = Tree { blocks, locate: &|oid| Ok(oid), storage: kind::PHYSICAL, subtype: None, xid: u64::MAX, what };
        let (mut fragments, mut next) = (Vec::new(), 0);
        self.nodes = tree.walk(root, &mut |key, value, at| {
            let key = key.first_chunk().map(|key| u64::from_le_bytes(*key));
            equal(at, what, next, key.unwrap_or(u64::MAX))?;
            let range: RawRange = super::object::head(value.unwrap_or_default(), at)?;
            let fragment = Fragment { block: range.pr_start_paddr.get(), count: range.pr_block_count.get() };
            next = add(next, fragment.count, "blocks of a checkpoint area")?;
            fragments.push(fragment);
            Ok(())
        })?;
        self.fragments = fragments;
        equal(blocks.size.to_bytes(root)?, what, self.count, next)
    }

    /// The block at `index` of the ring.
    fn block(&self, index: u64) -> Option<u64> {
        let mut rest = index;
        for fragment in &self.fragments {
            match rest.checked_sub(fragment.count) {
                None => return fragment.block.checked_add(rest),
                Some(behind) => rest = behind,
            }
        }
        None
    }

    /// Where in the ring a block lies.
    pub fn index(&self, block: u64) -> Option<u64> {
        let mut before: u64 = 0;
        for fragment in &self.fragments {
            match block.checked_sub(fragment.block) {
                Some(offset) if offset < fragment.count => return before.checked_add(offset),
                _ => before = before.checked_add(fragment.count)?,
            }
        }
        None
    }

    /// `count` blocks of the ring from `index` on, behind the last the first.
    pub fn ring(&self, index: u64, count: u64, at: u64, what: &'static str) -> Result<Vec<u64>, ParseError> {
        at_most(at, what, self.count, count)?;
        (0..count)
            .map(|offset| {
                let place = rem(add(index, offset, "a place in a ring")?, self.count, "a place in a ring")?;
                self.block(place).ok_or_else(|| wrong(at, what, "a block of the ring", place))
            })
            .collect()
    }

    fn all(&self) -> Result<Vec<u64>, ParseError> {
        self.ring(0, self.count, 0, "checkpoint area")
    }
}

/// A block of the descriptor area that may hold a superblock.
struct Candidate {
    superblock: Superblock,
    block: u64,
}

/// The state of a container at its newest checkpoint.
pub(super) struct Checkpoint<'a> {
    pub blocks: Blocks<'a>,
    pub superblock: Superblock,
    pub descriptors: Area,
    pub data: Area,
    mappings: BTreeMap<u64, RawMapping>,
    /// Why the container was not unmounted cleanly, if so.
    pub unclean: Option<String>,
}

impl<'a> Checkpoint<'a> {
    /// Finds the newest checkpoint.
    pub fn read(source: &'a dyn Source) -> Result<Self, ParseError> {
        let (zero, blocks) = super::superblock::block_zero(source)?;
        let raw = &zero.raw;
        let descriptors =
            Area::read(blocks, raw.nx_xp_desc_blocks.get(), raw.nx_xp_desc_base.get(), "checkpoint descriptor area")?;
        let data = Area::read(blocks, raw.nx_xp_data_blocks.get(), raw.nx_xp_data_base.get(), "checkpoint data area")?;
        let scan = Scan::of(blocks, &descriptors, &zero)?;
        let unclean = scan.unclean(&zero)?;
        let Some(newest) = scan.newest else {
            return Err(wrong(0, "checkpoint descriptor area", "a superblock with a right checksum", "none"));
        };
        zero.check_same(&newest.superblock)?;
        let mut found =
            Self { blocks, superblock: newest.superblock, descriptors, data, mappings: BTreeMap::new(), unclean };
        found.read_maps(newest.block)?;
        if found.unclean.is_none() {
            found.unclean = found.unfinished()?;
        }
        Ok(found)
    }

    /// The next checkpoint begins where the superblock says, with a map of the next transaction. Where that lies
    /// already, its superblock is missing: it was never written (a crash), or it was lost, and what is free is another.
    fn unfinished(&self) -> Result<Option<String>, ParseError> {
        let (raw, next) = (&self.superblock.raw, self.superblock.raw.nx_next_xid.get());
        let index = u64::from(raw.nx_xp_desc_next.get());
        let last = sub(self.descriptors.count, 1, "an index")?;
        at_most(self.superblock.at, "checkpoint: index of the next descriptor", last, index)?;
        let Some(block) = self.descriptors.block(index) else { return Ok(None) };
        let map = match self.blocks.object(block, "checkpoint map") {
            Ok(map) if map.header.o_type.get() == kind::CHECKPOINT_MAP && map.header.o_xid.get() == next => map,
            Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
            Ok(_) | Err(_) => return Ok(None), // of a checkpoint that is over
        };
        Ok(Some(format!(
            "container was not cleanly unmounted: checkpoint map at byte {}: expected none younger than transaction {}, \
             found one of transaction {next} without its superblock",
            map.at, self.superblock.xid
        )))
    }

    fn read_maps(&mut self, superblock: u64) -> Result<(), ParseError> {
        let (raw, at) = (&self.superblock.raw, self.superblock.at);
        let (index, len) = (u64::from(raw.nx_xp_desc_index.get()), u64::from(raw.nx_xp_desc_len.get()));
        at_most(at, "checkpoint: index of its first descriptor", sub(self.descriptors.count, 1, "an index")?, index)?;
        let ring = self.descriptors.ring(index, len, at, "checkpoint: descriptors")?;
        let Some((last, maps)) = ring.split_last().filter(|(_, maps)| !maps.is_empty()) else {
            return Err(wrong(at, "checkpoint: descriptors", "at least a map and a superblock", len));
        };
        equal(at, "checkpoint: block of its superblock", superblock, *last)?;
        for (number, block) in (1..).zip(maps) {
            self.read_map(*block, number == maps.len())?;
        }
        Ok(())
    }

    fn read_map(&mut self, block: u64, last: bool) -> Result<(), ParseError> {
        let xid = self.superblock.xid;
        let object = self.blocks.object(block, "checkpoint map")?;
        object.expect(kind::CHECKPOINT_MAP, block, xid)?;
        equal(object.at, "checkpoint map: transaction", xid, object.header.o_xid.get())?;
        let map: RawCheckpointMap = object.head()?;
        equal(object.at, "checkpoint map: flags", u64::from(last), u64::from(map.cpm_flags.get()))?;
        let offset = from_usize(size_of::<RawCheckpointMap>());
        for mapping in object.entries::<RawMapping>(offset, u64::from(map.cpm_count.get()))? {
            let oid = mapping.cpm_oid.get();
            if self.mappings.insert(oid, mapping).is_some() {
                return Err(wrong(object.at, "checkpoint map: an object", "one place", format_args!("two for {oid}")));
            }
        }
        Ok(())
    }

    /// True when a checkpoint area is a tree.
    pub fn is_fragmented(&self) -> bool {
        !self.descriptors.nodes.is_empty() || !self.data.nodes.is_empty()
    }

    fn mapping(&self, oid: u64, what: &'static str) -> Result<&RawMapping, ParseError> {
        self.mappings
            .get(&oid)
            .ok_or_else(|| wrong(self.superblock.at, what, format_args!("object {oid} in the checkpoint maps"), "none"))
    }

    /// Where an ephemeral object of one block lies.
    pub fn locate(&self, oid: u64, what: &'static str) -> Result<u64, ParseError> {
        let mapping = self.mapping(oid, what)?;
        equal(
            self.superblock.at,
            "checkpoint map: bytes of an object",
            self.blocks.size.bytes(),
            mapping.cpm_size.get().into(),
        )?;
        let block = mapping.cpm_paddr.get();
        self.place(block, what)?;
        Ok(block)
    }

    fn place(&self, block: u64, what: &'static str) -> Result<u64, ParseError> {
        let index = self.data.index(block);
        index.ok_or_else(|| wrong(self.superblock.at, what, "a block of the checkpoint data area", block))
    }

    /// An ephemeral object, which may have several blocks.
    pub fn ephemeral(&self, oid: u64, kind: u32, what: &'static str) -> Result<Object, ParseError> {
        let mapping = self.mapping(oid, what)?;
        let at = self.superblock.at;
        equal(at, "checkpoint map: type of an object", kind.into(), mapping.cpm_type.get().into())?;
        let size = u64::from(mapping.cpm_size.get());
        let count = self.blocks.size.whole_blocks(size);
        if count == 0 || self.blocks.size.to_bytes(count)? != size {
            return Err(wrong(at, "checkpoint map: bytes of an object", "whole blocks", size));
        }
        let first = mapping.cpm_paddr.get();
        let ring = self.data.ring(self.place(first, what)?, count, at, what)?;
        let mut pieces = vec![Vec::new(); ring.len()];
        self.blocks.each(&ring, what, &mut |index, bytes| {
            pieces.get_mut(index).into_iter().for_each(|piece| *piece = bytes.to_vec());
            Ok(())
        })?;
        let object = Object::new(pieces.concat(), first, self.blocks.size.to_bytes(first)?, what)?;
        object.expect(kind, oid, self.superblock.xid)?;
        Ok(object)
    }
}

/// What the descriptor area holds.
struct Scan {
    newest: Option<Candidate>,
    /// Transaction and byte position of the youngest superblock of this container with a wrong checksum.
    torn: Option<(u64, u64)>,
}

impl Scan {
    fn of(blocks: Blocks<'_>, area: &Area, zero: &Superblock) -> Result<Self, ParseError> {
        let ring = area.all()?;
        let mut scan = Self { newest: None, torn: None };
        blocks.each(&ring, "checkpoint descriptor area", &mut |index, bytes| {
            let block = ring.get(index).copied().unwrap_or(0);
            scan.consider(blocks, zero, block, bytes)
        })?;
        Ok(scan)
    }

    fn consider(&mut self, blocks: Blocks<'_>, zero: &Superblock, block: u64, bytes: &[u8]) -> Result<(), ParseError> {
        let Some(raw) = resembles(bytes) else { return Ok(()) };
        // An earlier container on the same disk may have left its own.
        if raw.nx_uuid != zero.raw.nx_uuid || raw.nx_block_size != zero.raw.nx_block_size {
            return Ok(());
        }
        let (at, xid) = (blocks.size.to_bytes(block)?, raw.nx_o.o_xid.get());
        if self.newest.as_ref().is_some_and(|newest| newest.superblock.xid >= xid) {
            return Ok(());
        }
        let object = match Object::new(bytes.to_vec(), block, at, "container superblock") {
            Ok(object) => object,
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.torn = self.torn.max(Some((xid, at)));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.newest = Some(Candidate { superblock: Superblock::new(&object)?, block });
        Ok(())
    }

    /// On a clean unmount block 0 is a copy of the newest superblock. The newest checkpoint is whole even after a
    /// crash, but a container that is mounted this moment looks the same.
    fn unclean(&self, zero: &Superblock) -> Result<Option<String>, ParseError> {
        let newest = self.newest.as_ref().map_or(0, |newest| newest.superblock.xid);
        if newest < zero.xid {
            let what = "checkpoint descriptor area: newest superblock with a right checksum";
            return Err(wrong(0, what, format_args!("transaction {}", zero.xid), newest));
        }
        if newest > zero.xid {
            return Ok(Some(format!(
                "container was not cleanly unmounted: block 0 (byte 0): expected transaction {newest}, that of the newest checkpoint, found {}",
                zero.xid
            )));
        }
        Ok(self.torn.filter(|(xid, _)| *xid > newest).map(|(xid, at)| {
            format!(
                "container was not cleanly unmounted: superblock at byte {at}: expected none younger than transaction {newest}, found a half-written one of transaction {xid}"
            )
        }))
    }
}
