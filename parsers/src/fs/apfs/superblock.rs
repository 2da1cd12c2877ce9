//! The container superblock: raw to checked.

use super::error::{ApfsError, at_most, equal, only_known, wrong};
use super::object::{Blocks, Object, head};
use super::ondisk::{NX_MAGIC, RawRange, RawSuperblock, kind};
use crate::error::ParseError;
use crate::fs::grouped;
use crate::source::{Source, read_vec};
use crate::units::BlockSize;

/// Version 2 of the format: demanded. Version 1 (2016, before APFS was released) and Fusion are refused.
const VERSION_2: u64 = 2;
const FUSION: u64 = 0x100;

/// Bits of `nx_flags` that the format defines: two reserved ones and software encryption.
const KNOWN_FLAGS: u64 = 0x7;

/// A container superblock that is what this program understands.
#[derive(Debug, Clone)]
pub(super) struct Superblock {
    pub raw: RawSuperblock,
    pub xid: u64,
    /// Byte position, for messages.
    pub at: u64,
}

/// Size of the blocks, from the superblock in block 0, whose other fields are not yet believed.
fn block_size(source: &dyn Source) -> Result<BlockSize, ParseError> {
    let raw: RawSuperblock = head(&read_vec(source, 0, 4096)?, 0)?;
    if raw.nx_magic != NX_MAGIC {
        return Err(wrong(0, "container superblock: magic", "NXSB", raw.nx_magic.escape_ascii()));
    }
    let bytes = u64::from(raw.nx_block_size.get());
    BlockSize::new(bytes)
        .filter(|size| (4096..=65536).contains(&size.bytes()))
        .ok_or_else(|| wrong(0, "container superblock: block size", "a power of two from 4096 to 65536", bytes))
}

/// The superblock in block 0 and the blocks of its container.
pub(super) fn block_zero(source: &dyn Source) -> Result<(Superblock, Blocks<'_>), ParseError> {
    let size = block_size(source)?;
    let object = Object::new(read_vec(source, 0, size.bytes())?, 0, 0, "container superblock")?;
    let found = Superblock::new(&object)?;
    let count = found.raw.nx_block_count.get();
    let bytes = size.to_bytes(count)?;
    if bytes > source.len() {
        let place = format_args!("{bytes} bytes").to_string();
        return Err(wrong(
            0,
            "container superblock: the container's size",
            place,
            format_args!("{} bytes of device", source.len()),
        ));
    }
    Ok((found, Blocks { source, size, count }))
}

/// True when the bytes look like a container superblock, whatever their checksum.
pub(super) fn resembles(bytes: &[u8]) -> Option<RawSuperblock> {
    head::<RawSuperblock>(bytes, 0).ok().filter(|raw| raw.nx_magic == NX_MAGIC)
}

impl Superblock {
    /// Checks everything that can be checked without looking elsewhere.
    pub fn new(object: &Object) -> Result<Self, ParseError> {
        let raw: RawSuperblock = object.head()?;
        object.expect(kind::SUPERBLOCK, 1, u64::MAX)?;
        let found = Self { xid: object.header.o_xid.get(), at: object.at, raw };
        found.check_features()?;
        found.check_one_device()?;
        found.check_no_resize()?;
        let at = found.at;
        if found.raw.nx_next_xid.get() <= found.xid {
            return Err(wrong(
                at,
                "container superblock: next transaction",
                format_args!("more than {}", found.xid),
                found.raw.nx_next_xid,
            ));
        }
        at_most(at, "container superblock: volumes", 100, u64::from(found.raw.nx_max_file_systems.get()))?;
        Ok(found)
    }

    fn check_features(&self) -> Result<(), ParseError> {
        let incompatible = self.raw.nx_incompatible_features.get();
        if incompatible & FUSION != 0 {
            return Err(self.fusion("container superblock: incompatible features"));
        }
        only_known(self.at, "container superblock: incompatible features", VERSION_2, incompatible)?;
        if incompatible & VERSION_2 == 0 {
            let (what, expected) = ("container superblock: version", "version 2");
            return Err(ParseError::unsupported(
                self.at,
                ApfsError::Unhandled { what, expected, found: "an older one".into() },
            ));
        }
        let compatible = self.raw.nx_readonly_compatible_features.get();
        only_known(self.at, "container superblock: read-only compatible features", 0, compatible)?;
        only_known(self.at, "container superblock: flags", KNOWN_FLAGS, self.raw.nx_flags.get())
    }

    fn fusion(&self, what: &'static str) -> ParseError {
        ParseError::unsupported(self.at, ApfsError::Fusion { what })
    }

    fn check_one_device(&self) -> Result<(), ParseError> {
        let raw = &self.raw;
        let numbers = [raw.nx_fusion_mt_oid, raw.nx_fusion_wbc_oid, raw.nx_fusion_wbc.pr_block_count];
        if raw.nx_fusion_uuid != [0; 16] || numbers.iter().any(|n| n.get() != 0) {
            return Err(self.fusion("container superblock: Fusion fields"));
        }
        Ok(())
    }

    fn check_no_resize(&self) -> Result<(), ParseError> {
        let RawRange { pr_start_paddr, pr_block_count } = self.raw.nx_blocked_out_prange;
        if pr_start_paddr.get() == 0 && pr_block_count.get() == 0 && self.raw.nx_evict_mapping_tree_oid.get() == 0 {
            return Ok(());
        }
        let (what, expected) = ("container superblock: blocked-out range", "none");
        let found = "a resize that has not ended".to_owned();
        Err(ParseError::unsupported(self.at, ApfsError::Unhandled { what, expected, found }))
    }

    /// A superblock elsewhere in the same container must describe the same container.
    pub fn check_same(&self, other: &Self) -> Result<(), ParseError> {
        let pairs = [
            ("container superblock: blocks", self.raw.nx_block_count.get(), other.raw.nx_block_count.get()),
            ("container superblock: descriptor area", self.raw.nx_xp_desc_base.get(), other.raw.nx_xp_desc_base.get()),
            ("container superblock: data area", self.raw.nx_xp_data_base.get(), other.raw.nx_xp_data_base.get()),
            (
                "container superblock: descriptor blocks",
                self.raw.nx_xp_desc_blocks.get().into(),
                other.raw.nx_xp_desc_blocks.get().into(),
            ),
            (
                "container superblock: data blocks",
                self.raw.nx_xp_data_blocks.get().into(),
                other.raw.nx_xp_data_blocks.get().into(),
            ),
        ];
        pairs.into_iter().try_for_each(|(what, expected, found)| equal(other.at, what, expected, found))
    }

    /// The container's uuid as blkid prints it.
    pub fn uuid(&self) -> String {
        grouped(&self.raw.nx_uuid)
    }
}
