//! The superblock and its copies, from raw to checked.

use super::checksum::Checksum;
use super::error::{BtrfsError, equal, head, unhandled, wrong};
use super::ondisk::{MAGIC, RawDevItem, RawSuperblock, STRIPE, SUPER_AT, SUPER_LEN};
use super::tree::TreeRoot;
use super::{ondisk, tree};
use crate::error::ParseError;
use crate::source::{Source, read_vec};
use crate::units::{BlockSize, ByteRange, to_usize};

/// Advice where Linux can do the work and coldtrim cannot.
pub(super) const MOUNTED: &str = "trim it mounted, with fstrim, where the drive's bridge lets the kernel do so";

/// The free-space tree exists, and its content is right (bits of `compat_ro`).
const SPACE_TREE: u64 = 1;
const SPACE_TREE_VALID: u64 = 2;
const BLOCK_GROUP_TREE: u64 = 8;
/// Bit 2 is verity, which changes nothing in the allocation.
const KNOWN_COMPAT_RO: u64 = SPACE_TREE | SPACE_TREE_VALID | 4 | BLOCK_GROUP_TREE;
/// Tree blocks carry `metadata_uuid` and not the filesystem's UUID (a bit of `incompat`).
const METADATA_UUID: u64 = 0x400;
/// Mixed back references, default subvolume, mixed groups, LZO, ZSTD, big metadata, extended inode references, RAID5/6
/// (which stays set after a conversion, so the chunks decide), skinny metadata, no holes, metadata UUID, RAID1C3/4.
const KNOWN_INCOMPAT: u64 = 0xFFF;

/// Names of features that are known and not handled.
#[rustfmt::skip] // a row a line
const REFUSED_INCOMPAT: &[(u64, &str)] = &[
    (0x1000, "zoned device (zoned)"),
    (0x2000, "extent tree v2 (extent-tree-v2)"),
    (0x4000, "RAID stripe tree (raid-stripe-tree)"),
    (0x1_0000, "simple quotas (squota)"),
];

/// Names of flags that forbid to trust the filesystem as it stands.
#[rustfmt::skip] // a row a line
const REFUSED_FLAGS: &[(u64, &str, &str)] = &[
    (1 << 2, "an error was found while it was mounted (flag ERROR)", "look for damage: btrfs check --readonly DEVICE"),
    (1 << 32, "it is a seed of other filesystems (flag SEEDING), which read its blocks", "leave it alone, or make it an ordinary one: btrfstune -S 0 DEVICE"),
    (1 << 33, "it is an image of metadata without data (flag METADUMP)", "restore it: btrfs-image -r"),
    (1 << 34, "it is an image of metadata without data (flag METADUMP_V2)", "restore it: btrfs-image -r"),
    (1 << 35, "a change of its UUID was not finished (flag CHANGING_FSID)", "finish it: btrfstune -u DEVICE"),
    (1 << 36, "a change of its UUID was not finished (flag CHANGING_FSID_V2)", "finish it: btrfstune -m DEVICE"),
];
/// Written, and relocated: both say nothing.
const KNOWN_FLAGS: u64 = 3;

/// What a device says about itself and its filesystem.
#[derive(Debug, Clone)]
pub(super) struct Superblock {
    /// As `blkid` prints it.
    pub fsid: [u8; 16],
    /// What tree blocks and device items call the filesystem.
    pub metadata_id: [u8; 16],
    pub generation: u64,
    pub root: TreeRoot,
    pub chunk_root: TreeRoot,
    /// Where the log of the last fsync begins; 0 for none.
    pub log_root: u64,
    pub bytes_used: u64,
    pub num_devices: u64,
    pub sector: BlockSize,
    /// Bytes of a tree block.
    pub node_size: u64,
    pub checksum: Checksum,
    pub device: RawDevItem,
    pub label: Option<String>,
    /// Keys and chunks that are needed to read the chunk tree.
    pub system_chunks: Vec<u8>,
    /// Block groups have a tree of their own.
    pub has_block_group_tree: bool,
    /// There is a free-space tree and it is up to date.
    pub has_space_tree: bool,
}

impl Superblock {
    /// Reads the superblock and each of its copies that the device is large enough for.
    pub fn read(source: &dyn Source) -> Result<Self, ParseError> {
        let at = SUPER_AT[0];
        let (bytes, raw) = read_copy(source, at)?;
        check_features(at, &raw)?;
        let superblock = Self::checked(at, &raw)?;
        for copy in places(raw.device.total_bytes.get().min(source.len())).skip(1) {
            // An fsync writes the first copy alone; the log is a finding of its own.
            if superblock.log_root == 0 {
                compare_copy(&bytes, &read_copy(source, copy)?.0, copy)?;
            }
        }
        Ok(superblock)
    }

    fn checked(at: u64, raw: &RawSuperblock) -> Result<Self, ParseError> {
        let sector = size_between(at, "sector size", 4096, STRIPE, raw.sector_size.get().into())?;
        let node = size_between(at, "size of a tree block", sector.bytes(), STRIPE, raw.node_size.get().into())?;
        let has_own_id = raw.incompat.get() & METADATA_UUID != 0;
        let system_chunks = raw.system_chunks.get(..to_usize(raw.system_chunks_len.get().into(), "a length")?);
        let root = |tree, block: zerocopy::little_endian::U64, generation: zerocopy::little_endian::U64, level| {
            tree::TreeRoot { tree, block: block.get(), generation: generation.get(), level }
        };
        Ok(Self {
            fsid: raw.fsid,
            metadata_id: if has_own_id { raw.metadata_uuid } else { raw.fsid },
            generation: raw.generation.get(),
            root: root(ondisk::tree::ROOT, raw.root, raw.generation, raw.root_level),
            chunk_root: root(ondisk::tree::CHUNK, raw.chunk_root, raw.chunk_root_generation, raw.chunk_root_level),
            log_root: raw.log_root.get(),
            bytes_used: raw.bytes_used.get(),
            num_devices: raw.num_devices.get(),
            sector,
            node_size: node.bytes(),
            checksum: Checksum::new(raw.checksum_kind.get(), at)?,
            device: raw.device,
            label: label(&raw.label),
            system_chunks: system_chunks
                .ok_or_else(|| wrong(at, "length of the system chunks", "at most 2048", raw.system_chunks_len.get()))?
                .to_vec(),
            has_block_group_tree: raw.compat_ro.get() & BLOCK_GROUP_TREE != 0,
            has_space_tree: raw.compat_ro.get() & SPACE_TREE != 0 && raw.compat_ro.get() & SPACE_TREE_VALID != 0,
        })
    }
}

/// Where copies of the superblock lie on a device of `len` bytes.
pub(super) fn places(len: u64) -> impl Iterator<Item = u64> {
    SUPER_AT.into_iter().filter(move |at| at.checked_add(SUPER_LEN).is_some_and(|end| end <= len))
}

/// What the allocator keeps clear around the copies of the superblock on a device of `len` bytes.
pub(super) fn stripes(len: u64) -> impl Iterator<Item = ByteRange> {
    SUPER_AT.into_iter().filter_map(move |at| ByteRange::new(at, at.checked_add(STRIPE)?.min(len)))
}

fn read_copy(source: &dyn Source, at: u64) -> Result<(Vec<u8>, RawSuperblock), ParseError> {
    let bytes = read_vec(source, at, SUPER_LEN)?;
    let raw: RawSuperblock = head(&bytes, at, "a superblock")?;
    if raw.magic != MAGIC {
        return Err(wrong(at, "magic number of a superblock", MAGIC.escape_ascii(), raw.magic.escape_ascii()));
    }
    if !Checksum::new(raw.checksum_kind.get(), at)?.fits(&bytes)? {
        return Err(ParseError::corrupt(at, BtrfsError::Checksum("a copy of the superblock")));
    }
    equal(at, "own place of a superblock", at, raw.bytenr.get())?;
    Ok((bytes, raw))
}

/// A copy differs from the first in its checksum and its own place (bytes 48 to 56) only.
fn compare_copy(first: &[u8], copy: &[u8], at: u64) -> Result<(), ParseError> {
    let parts = |bytes: &[u8]| Some((bytes.get(32..48)?.to_vec(), bytes.get(56..)?.to_vec()));
    if parts(first) == parts(copy) {
        return Ok(());
    }
    let generation = |bytes: &[u8]| head::<RawSuperblock>(bytes, at, "a superblock").map(|raw| raw.generation.get());
    let expected = format!("equal to the first, of generation {}", generation(first)?);
    let found = format!("another one, of generation {} (mounting and unmounting writes all copies)", generation(copy)?);
    Err(wrong(at, "a copy of the superblock", expected, found))
}

fn check_features(at: u64, raw: &RawSuperblock) -> Result<(), ParseError> {
    for (bit, name) in REFUSED_INCOMPAT {
        if raw.incompat.get() & bit != 0 {
            return Err(unhandled(at, format!("the feature {name} is not handled"), MOUNTED));
        }
    }
    for (bit, what, remedy) in REFUSED_FLAGS {
        if raw.flags.get() & bit != 0 {
            return Err(unhandled(at, *what, remedy));
        }
    }
    let known = [
        ("incompatible features", raw.incompat.get(), KNOWN_INCOMPAT),
        ("read-only compatible features", raw.compat_ro.get(), KNOWN_COMPAT_RO),
        ("compatible features", raw.compat.get(), 0),
        ("flags of the superblock", raw.flags.get(), KNOWN_FLAGS),
    ];
    for (what, found, known) in known {
        if found & !known != 0 {
            let what = format!("{what}: the bits {:#x} are not known", found & !known);
            return Err(unhandled(at, what, "look for a newer coldtrim"));
        }
    }
    Ok(())
}

fn size_between(at: u64, what: &'static str, least: u64, most: u64, found: u64) -> Result<BlockSize, ParseError> {
    let size = BlockSize::new(found).filter(|size| (least..=most).contains(&size.bytes()));
    size.ok_or_else(|| wrong(at, what, format_args!("a power of two from {least} to {most}"), found))
}

fn label(field: &[u8]) -> Option<String> {
    let text = field.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(String::from_utf8_lossy(text).into_owned()).filter(|label| !label.is_empty())
}
