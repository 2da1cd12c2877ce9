//! Two second readings of who owns what. Neither looks at the space manager.
//!
//! [`Extents`] goes through each volume's extent-reference tree, which lists every extent of every file by its place,
//! and through those of the snapshots; besides through the object maps, which list the nodes of all other trees. It
//! needs no key: only file trees are encrypted. [`Crate`] is the `apfs` crate, which goes through directories, for
//! what it can read: unencrypted volumes without snapshots (of several states of a node it takes the oldest) whose
//! checkpoint area is one run, as far as its reads stay within a budget (each look-up reads the tree from its start).

use super::btree::Tree;
use super::checkpoint::Checkpoint;
use super::error::{ApfsError, wrong};
use super::object::head;
use super::ondisk::kind;
use super::volumes::{ApfsVolume, ObjectMap};
use crate::error::ParseError;
use crate::source::{Cursor, Source};
use crate::units::ByteRange;
use crate::witness::{Ledger, Recording, Witness};
use apfs::{EntryKind, catalog, object, omap, superblock};
use std::collections::BTreeSet;
use zerocopy::{LE, U64};

/// Record types in the highest four bits of a key.
const SNAPSHOT: u64 = 1;
const EXTENT: u64 = 2;

/// Kinds of extent records, in the highest four bits of the length, that say "these blocks are in use": a new extent
/// and a change to one of a snapshot.
const KINDS_IN_USE: [u64; 2] = [1, 2];

const LOW_60_BITS: u64 = 0x0FFF_FFFF_FFFF_FFFF;

/// Bytes that the `apfs` crate may read.
const CRATE_BUDGET: u64 = 128 << 20;

/// Own walk over extent-reference trees and object maps.
pub(super) struct Extents;

impl Witness for Extents {
    fn name(&self) -> &'static str {
        "apfs-extents"
    }

    fn walk(&self, source: &dyn Source, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        let checkpoint = Checkpoint::read(source)?;
        let (volumes, object_map) = super::volumes::read(&checkpoint)?;
        let mut walk = ExtentWalk { checkpoint: &checkpoint, ledger };
        walk.claim_blocks(&object_map, &"the container's object map");
        volumes.iter().try_for_each(|volume| walk.volume(volume))
    }
}

/// A record of a tree of a volume.
struct Record<'r> {
    /// The highest four bits of the key.
    kind: u64,
    /// The rest of its first field.
    id: u64,
    value: &'r [u8],
    /// Byte position of its node.
    at: u64,
}

struct ExtentWalk<'w, 'a, 'l> {
    checkpoint: &'w Checkpoint<'a>,
    ledger: &'w mut Ledger<'l>,
}

impl ExtentWalk<'_, '_, '_> {
    fn claim(&mut self, first: u64, count: u64, owner: &dyn std::fmt::Display) -> Result<(), ParseError> {
        let size = self.checkpoint.blocks.size;
        if let Some(range) = ByteRange::with_len(size.to_bytes(first)?, size.to_bytes(count)?) {
            self.ledger.claim(range, owner);
        }
        Ok(())
    }

    fn claim_blocks(&mut self, blocks: &[u64], owner: &dyn std::fmt::Display) {
        for block in blocks {
            // OK to drop: a block that was read has a position.
            let _ = self.claim(*block, 1, owner);
        }
    }

    fn volume(&mut self, volume: &ApfsVolume) -> Result<(), ParseError> {
        let (raw, name) = (&volume.raw, &volume.name);
        self.ledger.visit();
        self.claim(volume.block, 1, &format_args!("superblock of volume \"{name}\""))?;
        self.object_map(raw.apfs_omap_oid.get(), name)?;
        self.extents(raw.apfs_extentref_tree_oid.get(), raw.apfs_extentref_tree_type.get(), name)?;
        self.snapshots(raw.apfs_snap_meta_tree_oid.get(), raw.apfs_snap_meta_tree_type.get(), name)
    }

    fn object_map(&mut self, block: u64, name: &str) -> Result<(), ParseError> {
        let map = ObjectMap::read(self.checkpoint.blocks, block, self.checkpoint.superblock.xid)?;
        self.claim_blocks(&map.blocks, &format_args!("object map of volume \"{name}\""));
        for entry in map.entries.iter().filter(|entry| !entry.deleted) {
            let blocks = self.checkpoint.blocks.size.whole_blocks(entry.size);
            self.claim(entry.block, blocks, &format_args!("volume \"{name}\", node {}", entry.oid))?;
        }
        Ok(())
    }

    /// Visits the records of a physical tree, whose nodes belong to `owner`.
    fn records(
        &mut self,
        root: u64,
        tree_type: u32,
        subtype: u32,
        owner: &str,
        visit: &mut dyn FnMut(&mut Self, Record<'_>) -> Result<(), ParseError>,
    ) -> Result<(), ParseError> {
        if root == 0 {
            return Ok(());
        }
        if tree_type != kind::PHYSICAL | kind::BTREE_ROOT {
            let (what, expected) = ("type of a tree of a volume", "a physical tree");
            let found = format!("{tree_type:#x}");
            return Err(ParseError::unsupported(0, ApfsError::Unhandled { what, expected, found }));
        }
        let checkpoint = self.checkpoint;
        let tree = Tree {
            blocks: checkpoint.blocks,
            locate: &|oid| Ok(oid),
            storage: kind::PHYSICAL,
            subtype: Some(subtype),
            xid: checkpoint.superblock.xid,
            what: "tree of a volume",
        };
        let nodes = tree.walk(root, &mut |key, value, at| {
            let key: U64<LE> = head(key, at)?;
            let (kind, id) = (key.get() >> 60, key.get() & LOW_60_BITS);
            visit(self, Record { kind, id, value: value.unwrap_or_default(), at })
        })?;
        self.claim_blocks(&nodes, &owner);
        Ok(())
    }

    fn extents(&mut self, root: u64, tree_type: u32, name: &str) -> Result<(), ParseError> {
        let owner = format!("extent references of volume \"{name}\"");
        self.records(root, tree_type, kind::EXTENT_REFERENCES, &owner, &mut |walk, record| {
            if record.kind != EXTENT {
                return Err(wrong(record.at, "extent-reference tree: record type", EXTENT, record.kind));
            }
            let [length, object]: [U64<LE>; 2] = head(record.value, record.at)?;
            if !KINDS_IN_USE.contains(&(length.get() >> 60)) {
                return Ok(());
            }
            let owner = format_args!("volume \"{name}\", file with identifier {}", object.get()).to_string();
            walk.claim(record.id, length.get() & LOW_60_BITS, &owner)
        })
    }

    fn snapshots(&mut self, root: u64, tree_type: u32, name: &str) -> Result<(), ParseError> {
        let owner = format!("snapshots of volume \"{name}\"");
        let extents_type = kind::PHYSICAL | kind::BTREE_ROOT;
        self.records(root, tree_type, kind::SNAPSHOTS, &owner, &mut |walk, record| {
            if record.kind != SNAPSHOT {
                return Ok(()); // names of snapshots
            }
            let [tree, superblock]: [U64<LE>; 2] = head(record.value, record.at)?;
            let xid = record.id;
            walk.ledger.visit();
            walk.claim(superblock.get(), 1, &format_args!("volume \"{name}\", snapshot {xid}"))?;
            walk.extents(tree.get(), extents_type, &format!("{name}\", snapshot {xid} \""))
        })
    }
}

/// The `apfs` crate.
pub(super) struct Crate;

impl Witness for Crate {
    fn name(&self) -> &'static str {
        "apfs crate"
    }

    fn is_complete(&self) -> bool {
        false
    }

    fn walk(&self, source: &dyn Source, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        // The crate believes block size and area sizes; here they are checked before it sees the volume.
        let checkpoint = Checkpoint::read(source)?;
        let (volumes, _) = super::volumes::read(&checkpoint)?;
        let refuse = |found: &str| {
            let (what, expected) = ("volume for the apfs crate", "what it can read");
            Err(ParseError::unsupported(0, ApfsError::Unhandled { what, expected, found: found.to_owned() }))
        };
        if checkpoint.is_fragmented() {
            return refuse("a checkpoint area in fragments");
        }
        if volumes.iter().any(ApfsVolume::is_encrypted) {
            return refuse("an encrypted volume");
        }
        if volumes.iter().any(|volume| volume.raw.apfs_num_snapshots.get() != 0) {
            return refuse("snapshots");
        }
        let recording = Recording::new(source, CRATE_BUDGET);
        let size = u32::try_from(checkpoint.blocks.size.bytes()).map_err(ParseError::inconsistent)?;
        let mut walk = CrateWalk { reader: Cursor::new(&recording), ledger, block_size: size };
        walk.container().map_err(ParseError::inconsistent)
    }
}

struct CrateWalk<'w, 'a, 'l> {
    reader: Cursor<'a>,
    ledger: &'w mut Ledger<'l>,
    block_size: u32,
}

/// The trees of one volume, as the crate wants them.
#[derive(Clone, Copy)]
struct Roots {
    catalog: u64,
    map: u64,
}

impl CrateWalk<'_, '_, '_> {
    fn container(&mut self) -> Result<(), apfs::ApfsError> {
        let reader = &mut self.reader;
        // Not read_nxsb: it compares the checksum with the first 4096 bytes of larger blocks.
        let (_, zero) = object::read_object(reader, 0, self.block_size)?;
        let newest = superblock::find_latest_nxsb(reader, &superblock::NxSuperblock::parse(&zero)?)?;
        let map = omap::read_omap_tree_root(reader, newest.omap_oid, self.block_size)?;
        for oid in newest.fs_oids.iter().filter(|oid| **oid != 0) {
            let block = omap::omap_lookup(&mut self.reader, map, self.block_size, *oid)?;
            self.volume(block)?;
        }
        Ok(())
    }

    fn volume(&mut self, block: u64) -> Result<(), apfs::ApfsError> {
        let (_, bytes) = object::read_object(&mut self.reader, block, self.block_size)?;
        let volume = superblock::ApfsSuperblock::parse(&bytes)?;
        let map = omap::read_omap_tree_root(&mut self.reader, volume.omap_oid, self.block_size)?;
        let catalog = omap::omap_lookup(&mut self.reader, map, self.block_size, volume.root_tree_oid)?;
        let roots = Roots { catalog, map };
        let mut open = vec![(catalog::ROOT_DIR_RECORD, format!("/{}", volume.volume_name))];
        // A directory has one name; a damaged tree could lead back.
        let mut seen = BTreeSet::from([catalog::ROOT_DIR_RECORD]);
        while let Some((directory, path)) = open.pop() {
            let reader = &mut self.reader;
            for entry in catalog::list_directory(reader, roots.catalog, roots.map, self.block_size, directory)? {
                let path = format!("{path}/{}", entry.name);
                match entry.kind {
                    EntryKind::Directory if seen.insert(entry.oid) => open.push((entry.oid, path)),
                    EntryKind::File => self.file(roots, entry.oid, &path)?,
                    EntryKind::Directory | EntryKind::Symlink => {}
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, roots: Roots, oid: u64, path: &str) -> Result<(), apfs::ApfsError> {
        self.ledger.visit();
        let reader = &mut self.reader;
        let inode = catalog::lookup_inode(reader, roots.catalog, roots.map, self.block_size, oid)?;
        let extents = catalog::lookup_extents(reader, roots.catalog, roots.map, self.block_size, inode.private_id)?;
        for extent in extents.iter().filter(|extent| extent.value.phys_block_num != 0) {
            let start = extent.value.phys_block_num.checked_mul(self.block_size.into());
            if let Some(range) = start.and_then(|start| ByteRange::with_len(start, extent.value.length())) {
                self.ledger.claim(range, &path);
            }
        }
        Ok(())
    }
}
