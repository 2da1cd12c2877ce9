//! From chunks to the free map, and what must not be in it.
//!
//! The bitmaps are right as they are: deleted blocks that an earlier checkpoint may still need stay marked used and
//! stand in a free queue besides; what a snapshot holds stays marked used. So nothing is added to the free bits, and
//! everything that is known to be in use is compared with them. Bitmaps carry no checksum: each is counted.

use super::btree::Tree;
use super::checkpoint::Checkpoint;
use super::error::{at_most, equal, wrong};
use super::object::head;
use super::ondisk::{JUMPSTART_MAGIC, RawJumpstart, RawRange, kind};
use super::spaceman::SpaceManager;
use super::volumes::ApfsVolume;
use crate::error::ParseError;
use crate::free_map::{BitOrder, DeclaredFree, FreeMap, FreeMapBuilder, Grid};
use crate::units::{add, from_usize};
use zerocopy::{LE, U64};

/// Reads the allocation structures of the checkpoint.
pub(super) fn read(
    checkpoint: &Checkpoint<'_>,
    volumes: &[ApfsVolume],
    object_map: &[u64],
) -> Result<FreeMap, ParseError> {
    let manager = SpaceManager::read(checkpoint)?;
    let blocks = checkpoint.blocks;
    let map = FreeMapBuilder::new(Grid::new(0, blocks.size, blocks.count)?);
    let pool = manager.pool_bitmap(blocks)?;
    let mut walk = Walk { checkpoint, manager: &manager, pool, map };
    walk.chunks()?;
    walk.must_be_used()?;
    walk.queues()?;
    for block in object_map {
        walk.used(*block, 1, "object map")?;
    }
    for volume in volumes {
        walk.volume(volume)?;
    }
    let [main, _] = &manager.raw.sm_dev;
    let declared = DeclaredFree::Exact(main.sm_free_count.get());
    walk.map.finish(declared).map_err(|error| error.located(manager.at()))
}

struct Walk<'w, 'a> {
    checkpoint: &'w Checkpoint<'a>,
    manager: &'w SpaceManager,
    /// The internal pool's own bitmap.
    pool: Vec<u8>,
    map: FreeMapBuilder,
}

impl Walk<'_, '_> {
    fn chunks(&mut self) -> Result<(), ParseError> {
        let mut bitmaps = Vec::new();
        let mut owners = Vec::new();
        for chunk in &self.manager.chunks {
            match chunk.bitmap {
                Some(block) => {
                    bitmaps.push(block);
                    owners.push(chunk);
                }
                None => self.map.free(chunk.first, chunk.count)?,
            }
        }
        let map = &mut self.map;
        self.checkpoint.blocks.each(&bitmaps, "bitmap of a chunk", &mut |index, bytes| {
            let Some(chunk) = owners.get(index) else { return Ok(()) };
            // Behind the last block of the container the bits are clear: only `count` of them are looked at.
            let free = map.free_clear_bits(chunk.first, bytes, chunk.count, BitOrder::LeastFirst)?;
            equal(chunk.at, "chunk: free blocks by its record and by its bitmap", chunk.free, free)
        })?;
        for block in bitmaps {
            self.structure(block, "bitmap of a chunk")?;
        }
        Ok(())
    }

    /// Blocks in which `what` lives: inside the container and not free.
    fn used(&mut self, first: u64, count: u64, what: &'static str) -> Result<(), ParseError> {
        if count > 0 {
            self.checkpoint.blocks.position(first, count, what)?;
        }
        self.map.must_be_used(first, count, what)
    }

    /// A block that the space manager lives in: used in the main bitmap and, inside the pool, in the pool's.
    fn structure(&mut self, block: u64, what: &'static str) -> Result<(), ParseError> {
        self.used(block, 1, what)?;
        if self.manager.is_free_in_pool(&self.pool, block) {
            let at = self.checkpoint.blocks.size.to_bytes(block)?;
            return Err(wrong(at, what, "used in the internal pool's bitmap", "free there"));
        }
        Ok(())
    }

    fn must_be_used(&mut self) -> Result<(), ParseError> {
        let (raw, sm) = (&self.checkpoint.superblock.raw, &self.manager.raw);
        self.used(0, 1, "block 0")?;
        for (area, what) in [
            (&self.checkpoint.descriptors, "checkpoint descriptor area"),
            (&self.checkpoint.data, "checkpoint data area"),
        ] {
            for fragment in &area.fragments {
                self.used(fragment.block, fragment.count, what)?;
            }
            for node in &area.nodes {
                self.used(*node, 1, what)?;
            }
        }
        self.used(sm.sm_ip_base.get(), sm.sm_ip_block_count.get(), "internal pool")?;
        self.used(sm.sm_ip_bm_base.get(), sm.sm_ip_bm_block_count.get().into(), "internal pool's bitmap")?;
        for (range, what) in [(raw.nx_keylocker, "keybag"), (raw.nx_mkb_locker, "media keybag")] {
            self.used(range.pr_start_paddr.get(), range.pr_block_count.get(), what)?;
        }
        for block in &self.manager.info_blocks {
            self.structure(*block, "chunk-info block")?;
        }
        // Nothing in the reaper moves free space: what it has yet to free is marked used. It must be readable.
        let reaper = raw.nx_reaper_oid.get();
        if reaper != 0 {
            self.checkpoint.ephemeral(reaper, kind::REAPER, "reaper")?;
        }
        self.jumpstart()
    }

    fn jumpstart(&mut self) -> Result<(), ParseError> {
        let block = self.checkpoint.superblock.raw.nx_efi_jumpstart.get();
        if block == 0 {
            return Ok(());
        }
        let object = self.checkpoint.blocks.object(block, "EFI jumpstart")?;
        object.expect(kind::JUMPSTART, block, self.checkpoint.superblock.xid)?;
        let raw: RawJumpstart = object.head()?;
        if raw.nej_magic != JUMPSTART_MAGIC {
            return Err(wrong(object.at, "EFI jumpstart: magic", "JSDR", raw.nej_magic.escape_ascii()));
        }
        self.used(block, 1, "EFI jumpstart")?;
        let offset = from_usize(size_of::<RawJumpstart>());
        for extent in object.entries::<RawRange>(offset, raw.nej_num_extents.get().into())? {
            self.used(extent.pr_start_paddr.get(), extent.pr_block_count.get(), "EFI driver")?;
        }
        Ok(())
    }

    fn queues(&mut self) -> Result<(), ParseError> {
        for (what, queue) in self.manager.queues() {
            let mut entries = Vec::new();
            if queue.sfq_tree_oid.get() != 0 {
                self.queue(queue.sfq_tree_oid.get(), what, &mut entries)?;
            }
            let sum = entries.iter().try_fold(0, |sum, (_, count)| add(sum, *count, "blocks of a free queue"))?;
            equal(self.manager.at(), what, queue.sfq_count.get(), sum)?;
            for (first, count) in entries {
                self.used(first, count, what)?;
            }
        }
        Ok(())
    }

    fn queue(&self, root: u64, what: &'static str, entries: &mut Vec<(u64, u64)>) -> Result<(), ParseError> {
        let checkpoint = self.checkpoint;
        let tree = Tree {
            blocks: checkpoint.blocks,
            locate: &|oid| checkpoint.locate(oid, what),
            storage: kind::EPHEMERAL,
            subtype: Some(kind::FREE_QUEUE),
            xid: checkpoint.superblock.xid,
            what,
        };
        tree.walk(root, &mut |key, value, at| {
            let [xid, first]: [U64<LE>; 2] = head(key, at)?;
            at_most(at, what, checkpoint.superblock.xid, xid.get())?;
            // A key without a value stands for one block.
            let count = value.map_or(Ok(1), |value| head::<U64<LE>>(value, at).map(|count| count.get()))?;
            entries.push((first.get(), count));
            Ok(())
        })?;
        Ok(())
    }

    fn volume(&mut self, volume: &ApfsVolume) -> Result<(), ParseError> {
        self.used(volume.block, 1, "volume superblock")?;
        let raw = &volume.raw;
        for (block, what) in [
            (raw.apfs_omap_oid, "object map of a volume"),
            (raw.apfs_extentref_tree_oid, "extent-reference tree"),
            (raw.apfs_snap_meta_tree_oid, "snapshot tree"),
        ] {
            self.used(block.get(), u64::from(block.get() != 0), what)?;
        }
        Ok(())
    }
}
