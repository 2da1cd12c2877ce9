//! The space manager, down to the list of chunks.
//!
//! ```text
//! space manager -> chunk-info blocks (CIB) -> chunks of 8 * block size blocks -> one bitmap block each, or none
//!              \-> over a few TB: address blocks (CAB) -> CIBs
//! internal pool: where CIBs, CABs and bitmaps live; has a bitmap of its own, whose copies go round in a ring
//! ```
//! Source: Apple File System Reference, "Space Manager".

use super::checkpoint::Checkpoint;
use super::error::{ApfsError, at_most, equal, only_known, wrong};
use super::object::{Blocks, Object};
use super::ondisk::{RawChunk, RawFreeQueue, RawInfoHead, RawSpaceManager, kind};
use crate::error::ParseError;
use crate::units::{add, div_up, from_usize, mul, sub, to_usize};
use zerocopy::{LE, U16, U64};

/// The bits of `ci_block_count` and `ci_free_count` that count.
const COUNT_MASK: u32 = 0x000F_FFFF;

/// Bytes of a space manager that is not versioned: it ends before `sm_version`.
const UNVERSIONED_SIZE: u64 = 0x150;

/// Bit of `sm_flags`.
const VERSIONED: u64 = 1;

/// Blocks that share a bitmap block.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub first: u64,
    pub count: u64,
    /// Free blocks by the record of the chunk.
    pub free: u64,
    /// Block of the bitmap; none: the whole chunk is free.
    pub bitmap: Option<u64>,
    /// Byte position of the record's block.
    pub at: u64,
}

/// The checked space manager of a container.
pub(super) struct SpaceManager {
    pub raw: RawSpaceManager,
    object: Object,
    pub chunks: Vec<Chunk>,
    /// Chunk-info blocks and address blocks.
    pub info_blocks: Vec<u64>,
}

impl SpaceManager {
    /// Reads the space manager and the chunk records, and checks each number against the others.
    pub fn read(checkpoint: &Checkpoint<'_>) -> Result<Self, ParseError> {
        let blocks = checkpoint.blocks;
        let oid = checkpoint.superblock.raw.nx_spaceman_oid.get();
        let object = checkpoint.ephemeral(oid, kind::SPACE_MANAGER, "space manager")?;
        let raw: RawSpaceManager = object.head()?;
        let mut found = Self { raw, object, chunks: Vec::new(), info_blocks: Vec::new() };
        found.check_shape(blocks)?;
        found.check_one_device()?;
        let cibs = found.chunk_info_addresses(blocks)?;
        found.read_chunks(blocks, &cibs)?;
        found.info_blocks.extend(cibs);
        Ok(found)
    }

    pub fn at(&self) -> u64 {
        self.object.at
    }

    fn xid(&self) -> u64 {
        self.object.header.o_xid.get()
    }

    fn check_shape(&self, blocks: Blocks<'_>) -> Result<(), ParseError> {
        let (raw, at, size) = (&self.raw, self.at(), blocks.size.bytes());
        let [main, _] = &raw.sm_dev;
        let room = sub(size, from_usize(size_of::<RawInfoHead>()), "room for entries")?;
        let per_chunk = mul(size, 8, "blocks of a chunk")?;
        let per_info = room.div_euclid(from_usize(size_of::<RawChunk>()));
        let per_address = room.div_euclid(8);
        let chunks = div_up(blocks.count, per_chunk, "a count of chunks")?;
        let infos = div_up(chunks, per_info, "a count of chunk-info blocks")?;
        equal(at, "space manager: block size", size, raw.sm_block_size.get().into())?;
        equal(at, "space manager: blocks of a chunk", per_chunk, raw.sm_blocks_per_chunk.get().into())?;
        equal(at, "space manager: chunks of a chunk-info block", per_info, raw.sm_chunks_per_cib.get().into())?;
        equal(at, "space manager: addresses of an address block", per_address, raw.sm_cibs_per_cab.get().into())?;
        equal(at, "space manager: blocks", blocks.count, main.sm_block_count.get())?;
        equal(at, "space manager: chunks", chunks, main.sm_chunk_count.get())?;
        equal(at, "space manager: chunk-info blocks", infos, main.sm_cib_count.get().into())?;
        let addresses = u64::from(main.sm_cab_count.get());
        if addresses != 0 {
            equal(at, "space manager: address blocks", div_up(infos, per_address, "address blocks")?, addresses)?;
        }
        only_known(at, "space manager: flags", VERSIONED, raw.sm_flags.get().into())
    }

    fn check_one_device(&self) -> Result<(), ParseError> {
        let ([_, tier], [_, _, queue]) = (&self.raw.sm_dev, &self.raw.sm_fq);
        let numbers = [tier.sm_block_count, tier.sm_chunk_count, tier.sm_free_count, queue.sfq_count];
        if numbers.iter().any(|n| n.get() != 0) || tier.sm_cib_count.get() != 0 || tier.sm_cab_count.get() != 0 {
            let what = "space manager: second tier";
            return Err(ParseError::unsupported(self.at(), ApfsError::Fusion { what }));
        }
        Ok(())
    }

    /// Block numbers of the chunk-info blocks, in the order of their indexes.
    fn chunk_info_addresses(&mut self, blocks: Blocks<'_>) -> Result<Vec<u64>, ParseError> {
        let [main, _] = &self.raw.sm_dev;
        let (cibs, cabs) = (u64::from(main.sm_cib_count.get()), u64::from(main.sm_cab_count.get()));
        let offset = u64::from(main.sm_addr_offset.get());
        if !offset.is_multiple_of(8) || offset < UNVERSIONED_SIZE {
            return Err(wrong(self.at(), "space manager: address offset", "a multiple of 8 behind the fields", offset));
        }
        let count = if cabs == 0 { cibs } else { cabs };
        let found: Vec<U64<LE>> = self.object.entries(offset, count)?;
        let found: Vec<u64> = found.iter().map(|block| block.get()).collect();
        if cabs == 0 {
            return Ok(found);
        }
        let per_block = u64::from(self.raw.sm_cibs_per_cab.get());
        let lists = self.info_lists::<U64<LE>>(blocks, &found, kind::ADDRESS_BLOCK, cibs, per_block)?;
        self.info_blocks.extend(found);
        Ok(lists.into_iter().flat_map(|(_, list)| list).map(|block| block.get()).collect())
    }

    /// The entries of chunk-info or address blocks, which are numbered and full, except the last.
    fn info_lists<T>(
        &self,
        blocks: Blocks<'_>,
        wanted: &[u64],
        kind: u32,
        total: u64,
        per_block: u64,
    ) -> Result<Vec<(u64, Vec<T>)>, ParseError>
    where
        T: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + Clone,
    {
        let what = if kind == kind::ADDRESS_BLOCK { "address block" } else { "chunk-info block" };
        let mut lists = vec![(0, Vec::new()); wanted.len()];
        blocks.each(wanted, what, &mut |index, bytes| {
            let block = wanted.get(index).copied().unwrap_or(0);
            let object = Object::new(bytes.to_vec(), block, blocks.size.to_bytes(block)?, what)?;
            object.expect(kind, block, self.xid())?;
            let head: RawInfoHead = object.head()?;
            let index64 = from_usize(index);
            equal(object.at, "chunk-info or address block: index", index64, head.cib_index.get().into())?;
            let before = mul(index64, per_block, "entries of earlier blocks")?;
            let expected = sub(total, before, "entries of this block")?.min(per_block);
            equal(object.at, "chunk-info or address block: entries", expected, head.cib_count.get().into())?;
            let list = object.entries(from_usize(size_of::<RawInfoHead>()), expected)?;
            lists.get_mut(index).into_iter().for_each(|slot| *slot = (object.at, list.clone()));
            Ok(())
        })?;
        Ok(lists)
    }

    fn read_chunks(&mut self, blocks: Blocks<'_>, cibs: &[u64]) -> Result<(), ParseError> {
        let [main, _] = &self.raw.sm_dev;
        let (total, per_block) = (main.sm_chunk_count.get(), u64::from(self.raw.sm_chunks_per_cib.get()));
        let per_chunk = u64::from(self.raw.sm_blocks_per_chunk.get());
        let mut next = 0;
        let mut chunks = Vec::new();
        for (at, list) in self.info_lists::<RawChunk>(blocks, cibs, kind::INFO_BLOCK, total, per_block)? {
            for raw in list {
                let expected = sub(blocks.count, next, "blocks that are left")?.min(per_chunk);
                let chunk = self.chunk(&raw, at)?;
                equal(at, "chunk: first block", next, chunk.first)?;
                equal(at, "chunk: blocks", expected, chunk.count)?;
                next = add(next, chunk.count, "the end of a chunk")?;
                chunks.push(chunk);
            }
        }
        equal(self.at(), "space manager: blocks of all chunks", blocks.count, next)?;
        self.chunks = chunks;
        Ok(())
    }

    fn chunk(&self, raw: &RawChunk, at: u64) -> Result<Chunk, ParseError> {
        let count = u64::from(raw.ci_block_count.get() & COUNT_MASK);
        let free = u64::from(raw.ci_free_count.get() & COUNT_MASK);
        let bitmap = Some(raw.ci_bitmap_addr.get()).filter(|block| *block != 0);
        at_most(at, "chunk: transaction", self.xid(), raw.ci_xid.get())?;
        at_most(at, "chunk: free blocks", count, free)?;
        if bitmap.is_none() {
            equal(at, "chunk without a bitmap: free blocks", count, free)?;
        }
        Ok(Chunk { first: raw.ci_addr.get(), count, free, bitmap, at })
    }

    /// The internal pool's own bitmap as of now, bit 0 for its first block.
    pub fn pool_bitmap(&self, blocks: Blocks<'_>) -> Result<Vec<u8>, ParseError> {
        let (raw, at) = (&self.raw, self.at());
        let count = u64::from(raw.sm_ip_bm_size_in_blocks.get());
        let ring = u64::from(raw.sm_ip_bm_block_count.get());
        let needed = mul(blocks.size.bytes(), 8, "bits of a block")?;
        let needed = div_up(raw.sm_ip_block_count.get(), needed, "blocks of the pool's bitmap")?;
        equal(at, "space manager: blocks of the internal pool's bitmap", needed, count)?;
        let places: Vec<U16<LE>> = self.object.entries(raw.sm_ip_bitmap_offset.get().into(), count)?;
        let mut bitmap = Vec::new();
        for place in places {
            let place = u64::from(place.get());
            at_most(at, "space manager: place in the ring of the pool's bitmap", sub(ring, 1, "a ring")?, place)?;
            let block = add(raw.sm_ip_bm_base.get(), place, "a block of the pool's bitmap")?;
            bitmap.extend(blocks.run(block, 1, "internal pool's bitmap")?);
        }
        Ok(bitmap)
    }

    /// True when `block` lies in the internal pool and the pool's own bitmap calls it free.
    pub fn is_free_in_pool(&self, bitmap: &[u8], block: u64) -> bool {
        let offset = block.checked_sub(self.raw.sm_ip_base.get()).filter(|o| *o < self.raw.sm_ip_block_count.get());
        let Some(offset) = offset else { return false };
        let byte = to_usize(offset.div_euclid(8), "a byte").ok().and_then(|byte| bitmap.get(byte)).copied();
        let bit = u32::try_from(offset.rem_euclid(8)).ok().and_then(|bit| 1_u8.checked_shl(bit));
        byte.zip(bit).is_none_or(|(byte, bit)| byte & bit == 0)
    }

    /// The free queues of the internal pool and of the device.
    pub fn queues(&self) -> [(&'static str, RawFreeQueue); 2] {
        let [pool, main, _] = self.raw.sm_fq.clone();
        [("free queue of the internal pool", pool), ("free queue", main)]
    }
}
