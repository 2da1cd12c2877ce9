//! What lies between a device and a filesystem. Adding a container is a folder here and a row in [`CONTAINERS`].

mod apm;
pub(crate) mod crc32;
mod gpt;
mod kind;
mod mbr;

use crate::error::ParseError;
use crate::source::Source;
use crate::units::ByteRange;
use serde::{Deserialize, Serialize};

/// One kind of partition table.
pub trait Container: Sync {
    /// Name of the format (`gpt`).
    fn name(&self) -> &'static str;

    /// True when the layer carries this table. `sector_size` is the device's logical sector size in bytes.
    fn probe(&self, source: &dyn Source, sector_size: u64) -> Result<bool, ParseError>;

    /// Reads the table. An error means that nothing on the layer may be trimmed.
    fn read(&self, source: &dyn Source, sector_size: u64) -> Result<Table, ParseError>;
}

/// A partition table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Bytes of one LBA as the table counts; may differ from the device's sector size.
    pub sector_size: u64,
    /// The partitions, in the order of their numbers.
    pub parts: Vec<Part>,
    /// Places of the table itself and of boot code: never free, whatever lies around them.
    pub reserved: Vec<ByteRange>,
    /// Remarks that forbid nothing.
    pub warnings: Vec<String>,
}

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its number, as the kernel would count it.
    pub number: u32,
    /// Its bytes, from the start of the layer.
    pub range: ByteRange,
    /// Its type in words (`EFI system`, `Linux`), or the raw type where it is unknown.
    pub kind: String,
    /// Its name in the table, where the format has names.
    pub name: Option<String>,
    /// Set when the type itself says that no filesystem is to be expected: why it is left alone.
    pub kept: Option<String>,
    /// Set when the type itself forbids a look inside: why.
    pub refused: Option<String>,
}

/// Every container, in the order in which they are tried.
#[rustfmt::skip] // one row a line
pub static CONTAINERS: &[&dyn Container] = &[
    &gpt::Gpt,
    &mbr::Mbr,
    &apm::Apm,
];
