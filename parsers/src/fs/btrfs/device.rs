//! The devices of a filesystem: who is here, who should be, and which parts of each belong to a chunk.

use super::chunks::ChunkMap;
use super::error::{equal, unhandled, wrong};
use super::ondisk::{DEV_ITEMS_OBJECT, Key, RawDevExtent, RawDevItem, RawReplace, SUPER_AT, kind};
use super::superblock::Superblock;
use super::tree::{Forest, TreeRoot};
use crate::error::ParseError;
use crate::source::Source;
use crate::units::{ByteRange, add, from_usize};

/// One device of the filesystem.
pub(super) struct Device<'a> {
    pub id: u64,
    pub source: &'a dyn Source,
    pub superblock: Superblock,
}

impl<'a> Device<'a> {
    /// The device that `source` is.
    pub fn read(source: &'a dyn Source) -> Result<Self, ParseError> {
        let superblock = Superblock::read(source)?;
        Ok(Self { id: superblock.device.id.get(), source, superblock })
    }

    /// Bytes of it that the filesystem uses.
    pub fn len(&self) -> u64 {
        self.superblock.device.total_bytes.get()
    }
}

/// The devices must be all of one filesystem, as of one moment, and each there once.
pub(super) fn check_set(devices: &[Device<'_>]) -> Result<(), ParseError> {
    let at = SUPER_AT[0];
    let Some((first, others)) = devices.split_first() else { return Ok(()) };
    for other in others {
        if other.superblock.fsid != first.superblock.fsid {
            return Err(wrong(at, "UUID of a device's filesystem", "that of the first device", "another one"));
        }
        let what = "generation of another device's superblock";
        equal(at, what, first.superblock.generation, other.superblock.generation)?;
    }
    let mut ids: Vec<u64> = devices.iter().map(|device| device.id).collect();
    ids.sort_unstable();
    if let Some((twice, _)) = ids.iter().zip(ids.iter().skip(1)).find(|(a, b)| a == b) {
        let what = format!("device {twice} of the filesystem is there twice: one may be an old copy of the other");
        return Err(unhandled(at, what, "name only the devices that belong together"));
    }
    equal(at, "number of devices", first.superblock.num_devices, from_usize(devices.len()))
}

/// The chunk tree's device items must describe the devices that are here, and no others.
pub(super) fn check_items(forest: &Forest<'_>, root: &TreeRoot, devices: &[Device<'_>]) -> Result<(), ParseError> {
    let (from, to) = (Key::from(DEV_ITEMS_OBJECT, kind::DEV_ITEM), Key::to(DEV_ITEMS_OBJECT, kind::DEV_ITEM));
    let mut found = 0_u64;
    forest.walk(root, from, to, &mut |item| {
        let raw: RawDevItem = item.head("a device item")?;
        equal(item.at, "key of a device item", raw.id.get(), item.key.offset)?;
        found = add(found, 1, "a number of devices")?;
        let Some(device) = devices.iter().find(|device| device.id == raw.id.get()) else {
            return Err(wrong(item.at, "a device item", "one of the devices given", raw.id));
        };
        let own = &device.superblock;
        if raw.fsid != own.metadata_id {
            let what = format!("device {} belongs to a seed filesystem", device.id);
            return Err(unhandled(item.at, what, "remove the seed: btrfs device remove SEED, mounted"));
        }
        if raw.uuid != own.device.uuid {
            return Err(wrong(item.at, "UUID of a device item", "the one in the device's superblock", "another one"));
        }
        equal(item.at, "size of a device", own.device.total_bytes.get(), raw.total_bytes.get())?;
        equal(item.at, "used bytes of a device", own.device.bytes_used.get(), raw.bytes_used.get())
    })?;
    equal(root.block, "number of device items", from_usize(devices.len()), found)
}

/// A part of a device that belongs to a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DevExtent {
    pub device: u64,
    pub range: ByteRange,
    chunk: u64,
}

/// The device tree's extents, sorted; they must be exactly the stripes of the chunks.
pub(super) fn extents(forest: &Forest<'_>, root: &TreeRoot, chunks: &ChunkMap) -> Result<Vec<DevExtent>, ParseError> {
    let mut extents = Vec::new();
    forest.walk(root, Key::FIRST, Key::LAST, &mut |item| {
        match item.key.kind {
            kind::DEV_EXTENT => {
                let raw: RawDevExtent = item.head("a device extent")?;
                let range = ByteRange::with_len(item.key.offset, raw.len.get());
                let range = range.ok_or_else(|| wrong(item.at, "a device extent", "some bytes", raw.len))?;
                extents.push(DevExtent { device: item.key.object, range, chunk: raw.chunk.get() });
            }
            kind::DEV_REPLACE if item.key.object == 0 => check_replace(item.head("a replace item")?, item.at)?,
            _ => {} // counters of read errors
        }
        Ok(())
    })?;
    compare(&extents, &stripes_of(chunks)?, root.block)?;
    Ok(extents)
}

fn check_replace(raw: RawReplace, at: u64) -> Result<(), ParseError> {
    if [1, 4].contains(&raw.state.get()) {
        let what = "the replacement of a device was not finished";
        return Err(unhandled(
            at,
            what,
            "mount it, and finish it or end it: btrfs replace status, btrfs replace cancel",
        ));
    }
    Ok(())
}

fn stripes_of(chunks: &ChunkMap) -> Result<Vec<DevExtent>, ParseError> {
    let mut stripes = Vec::new();
    for chunk in chunks.iter() {
        let len = chunk.len_on_device()?;
        for stripe in &chunk.stripes {
            let range = ByteRange::with_len(stripe.offset, len);
            let range = range.ok_or_else(|| wrong(stripe.offset, "a stripe", "a possible place", len))?;
            stripes.push(DevExtent { device: stripe.device, range, chunk: chunk.range.start() });
        }
    }
    stripes.sort_unstable();
    Ok(stripes)
}

fn compare(extents: &[DevExtent], stripes: &[DevExtent], block: u64) -> Result<(), ParseError> {
    if extents != stripes {
        let found = format!("{} extents and {} stripes that are not the same", extents.len(), stripes.len());
        return Err(wrong(block, "device extents", "exactly the stripes of the chunks", found));
    }
    let mut pairs = extents.iter().zip(extents.iter().skip(1));
    match pairs.find(|(a, b)| a.device == b.device && a.range.overlaps(b.range)) {
        Some((_, b)) => Err(wrong(b.range.start(), "device extents", "none that share a byte", "two that do")),
        None => Ok(()),
    }
}
