//! The container's object map and the superblocks of its volumes. Free space does not depend on them; what they say
//! about half-done work does.

use super::btree::Tree;
use super::checkpoint::Checkpoint;
use super::error::{at_most, equal, only_known, wrong};
use super::object::{Blocks, head};
use super::ondisk::{APFS_MAGIC, RawMapKey, RawMapValue, RawObjectMap, RawVolume, kind};
use crate::error::ParseError;
use crate::volume::Finding;
use std::collections::BTreeMap;

/// Incompatible features of a volume: case-insensitive, snapshots without data, once encrypted in place,
/// normalisation-insensitive, restore not complete, sealed, and three of later systems (preboot, preallocated
/// extents, second root). None of them moves free space.
const KNOWN_INCOMPATIBLE: u64 = 0x1FF;
const INCOMPLETE_RESTORE: u64 = 0x10;

/// Bit of `apfs_fs_flags`.
const UNENCRYPTED: u64 = 1;

/// Bit of `ov_flags`.
const DELETED: u32 = 1;

/// Where a virtual object lies, by the entries of an object map.
#[derive(Debug, Clone)]
pub(super) struct MapEntry {
    pub oid: u64,
    pub xid: u64,
    pub deleted: bool,
    /// Bytes.
    pub size: u64,
    pub block: u64,
}

/// All entries of an object map, and the blocks of the map itself.
pub(super) struct ObjectMap {
    pub entries: Vec<MapEntry>,
    pub blocks: Vec<u64>,
}

impl ObjectMap {
    /// Reads the map in block `block`, which no transaction after `xid` may have written.
    pub fn read(blocks: Blocks<'_>, block: u64, xid: u64) -> Result<Self, ParseError> {
        let object = blocks.object(block, "object map")?;
        object.expect(kind::OBJECT_MAP, block, xid)?;
        let raw: RawObjectMap = object.head()?;
        let tree = Tree {
            blocks,
            locate: &|oid| Ok(oid),
            storage: kind::PHYSICAL,
            subtype: Some(kind::OBJECT_MAP_TREE),
            xid,
            what: "object map tree",
        };
        let mut entries = Vec::new();
        let mut nodes = tree.walk(raw.om_tree_oid.get(), &mut |key, value, at| {
            let (key, value): (RawMapKey, RawMapValue) = (head(key, at)?, head(value.unwrap_or_default(), at)?);
            entries.push(MapEntry {
                oid: key.ok_oid.get(),
                xid: key.ok_xid.get(),
                deleted: value.ov_flags.get() & DELETED != 0,
                size: value.ov_size.get().into(),
                block: value.ov_paddr.get(),
            });
            Ok(())
        })?;
        nodes.push(block);
        Ok(Self { entries, blocks: nodes })
    }

    /// The newest entry of each object, as of transaction `xid`.
    pub fn newest(&self, xid: u64) -> BTreeMap<u64, &MapEntry> {
        let mut newest: BTreeMap<u64, &MapEntry> = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| entry.xid <= xid) {
            let known = newest.entry(entry.oid).or_insert(entry);
            if known.xid < entry.xid {
                *known = entry;
            }
        }
        newest
    }
}

/// A volume superblock.
pub(super) struct ApfsVolume {
    pub raw: RawVolume,
    pub block: u64,
    pub at: u64,
    pub name: String,
}

/// Every volume of the container, and the blocks of the container's object map.
pub(super) fn read(checkpoint: &Checkpoint<'_>) -> Result<(Vec<ApfsVolume>, Vec<u64>), ParseError> {
    let (superblock, blocks) = (&checkpoint.superblock, checkpoint.blocks);
    let map = ObjectMap::read(blocks, superblock.raw.nx_omap_oid.get(), superblock.xid)?;
    let newest = map.newest(superblock.xid);
    let volume = |(slot, oid): (u32, u64)| {
        let entry = newest
            .get(&oid)
            .filter(|entry| !entry.deleted)
            .ok_or_else(|| wrong(superblock.at, "object map", format_args!("a place for volume {oid}"), "none"))?;
        ApfsVolume::read(blocks, oid, slot, entry)
    };
    let slots = superblock.raw.nx_fs_oid.iter().map(|oid| oid.get());
    let used = (0_u32..).zip(slots).filter(|(_, oid)| *oid != 0);
    Ok((used.map(volume).collect::<Result<_, _>>()?, map.blocks))
}

impl ApfsVolume {
    fn read(blocks: Blocks<'_>, oid: u64, slot: u32, entry: &MapEntry) -> Result<Self, ParseError> {
        let object = blocks.object(entry.block, "volume superblock")?;
        object.expect(kind::VOLUME, oid, entry.xid)?;
        let raw: RawVolume = object.head()?;
        if raw.apfs_magic != APFS_MAGIC {
            return Err(wrong(object.at, "volume superblock: magic", "APSB", raw.apfs_magic.escape_ascii()));
        }
        equal(object.at, "volume superblock: index", slot.into(), raw.apfs_fs_index.get().into())?;
        at_most(object.at, "object map: bytes of a volume superblock", blocks.size.bytes(), entry.size)?;
        let name = raw.apfs_volname.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        let found = Self { raw, block: entry.block, at: object.at, name };
        let compatible = found.raw.apfs_readonly_compatible_features.get();
        only_known(found.at, "volume superblock: read-only compatible features", 0, compatible)?;
        let incompatible = found.raw.apfs_incompatible_features.get();
        only_known(found.at, "volume superblock: incompatible features", KNOWN_INCOMPATIBLE, incompatible)?;
        Ok(found)
    }

    /// True when the volume's files cannot be read without a key.
    pub fn is_encrypted(&self) -> bool {
        self.raw.apfs_fs_flags.get() & UNENCRYPTED == 0
    }

    /// Half-done work on the volume, and what a user should know.
    pub fn findings(&self) -> Vec<Finding> {
        let refuse = |expected: &str, found: &str| {
            let (name, at) = (&self.name, self.at);
            let message = format!("volume \"{name}\", superblock at byte {at}: expected {expected}, found {found}");
            Finding::refusal(message, "let a Mac finish it: diskutil mount DEVICE; then diskutil unmount DEVICE")
        };
        let mut findings = Vec::new();
        if self.raw.apfs_incompatible_features.get() & INCOMPLETE_RESTORE != 0 {
            findings.push(refuse("a whole volume", "a restore that has not ended"));
        }
        if self.raw.apfs_revert_to_xid.get() != 0 {
            findings.push(refuse("no pending work", "a return to a snapshot that has not been done"));
        }
        if self.raw.apfs_er_state_oid.get() != 0 {
            findings.push(refuse("no pending work", "an encryption or decryption that has not ended"));
        }
        if self.is_encrypted() {
            findings.push(Finding::warning(format!(
                "volume \"{}\" is encrypted; its free space is known without the key, its files only by their extents",
                self.name
            )));
        }
        findings
    }
}
