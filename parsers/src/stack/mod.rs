//! From devices down to volumes: which table, which partition, which filesystem, and what it calls free.

//!
//! ```text
//! Layer ── discover ──> Leaf ── assemble ──> array, one more Layer     (read.rs: until nothing new comes)
//!                         └──── read_leaf ─> Node                      (leaf.rs)
//! ```

mod claims;
mod discover;
mod gaps;
mod leaf;
mod members;
mod read;

pub use read::read;

use crate::array::Mapping;
use crate::container::Part;
use crate::source::Source;
use crate::units::ByteRange;
use crate::volume::{Finding, Volume};
use crate::witness::Testimony;
use serde::{Deserialize, Serialize};

/// One device or image to look at.
#[derive(Clone, Copy)]
pub struct Layer<'a> {
    /// Its bytes.
    pub source: &'a dyn Source,
    /// Its logical sector size in bytes.
    pub sector_size: u64,
}

/// When to hear a second witness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WitnessMode {
    /// The complete ones, where nothing else protects the map (`needs_witness` of the volume).
    #[default]
    WhereNeeded,
    /// Every one that a format has.
    Always,
    /// Not at all.
    Never,
}

/// How far to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Depth {
    /// To the end.
    #[default]
    Whole,
    /// To what the surroundings of an area say about it: its type in the table, and volumes that
    /// [mind their neighbours](crate::fs::Format::minds_neighbours).
    Surroundings,
    /// Nothing but the partition tables, and what makes it unclear whether there is one.
    Tables,
}

/// What to look for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// When to hear a witness.
    pub witness: WitnessMode,
    /// Only these partition numbers; empty means all.
    pub partitions: Vec<u32>,
    /// The format that the user expects: anything else is refused.
    pub expect: Option<String>,
    /// How far to look.
    pub depth: Depth,
}

impl Options {
    /// True when the partition with this number is to be looked at.
    fn wants(&self, number: u32) -> bool {
        self.partitions.is_empty() || self.partitions.contains(&number)
    }
}

/// Everything that was found, in the order of devices and positions.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Stack {
    /// The partition tables.
    pub tables: Vec<FoundTable>,
    /// The volumes, refused and kept areas.
    pub nodes: Vec<Node>,
    /// The arrays. Each is a device as well, numbered behind those that were given.
    pub arrays: Vec<FoundArray>,
    /// What speaks against everything on a device. The volumes that are listed have it among their findings, too.
    pub remarks: Vec<Remark>,
}

/// What speaks against everything on a device.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Remark {
    /// Number of the device.
    pub device: usize,
    /// What it is.
    pub finding: Finding,
}

/// An array that was put together from areas of devices.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FoundArray {
    /// Its own number as a device.
    pub device: usize,
    /// Its kind (`md raid5`).
    pub format: String,
    /// Its name, where it has one.
    pub name: Option<String>,
    /// Its identity as its own tools print it.
    pub uuid: String,
    /// The identity of what it is a part of: arrays of one pool run together.
    pub pool: Option<String>,
    /// The areas that belong to it.
    pub members: Vec<FoundMember>,
    /// Where its bytes lie on them.
    pub mapping: Mapping,
    /// What speaks against trimming anything on it, or is worth saying.
    pub findings: Vec<Finding>,
}

/// An area that belongs to an array.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FoundMember {
    /// Number of the device that it lies on.
    pub device: usize,
    /// Its bytes on that device.
    pub range: ByteRange,
    /// The number of the partition that it is.
    pub partition: Option<u32>,
    /// What it is in the array (`member 2`).
    pub role: String,
}

/// A partition table on a device.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FoundTable {
    /// Index of the device.
    pub device: usize,
    /// Name of the format (`gpt`).
    pub format: String,
    /// Bytes of one LBA as the table counts.
    pub sector_size: u64,
    /// Its partitions, those too that were not asked for.
    pub parts: Vec<Part>,
    /// Areas of the device outside every partition that may be discarded when the user asks for it (never the
    /// table itself, boot code or the first MiB).
    pub gaps: Vec<ByteRange>,
    /// Why there are no gaps although some bytes belong to no partition.
    pub no_gaps: Option<String>,
    /// Remarks that forbid nothing.
    pub warnings: Vec<String>,
}

/// One volume, or an area that was refused or left alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Node {
    /// Index of the device.
    pub device: usize,
    /// Its bytes on the device.
    pub range: ByteRange,
    /// The partition that holds it.
    pub part: Option<Part>,
    /// What is there.
    pub content: Content,
}

/// What an area holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// A filesystem that could be read. Its findings may still forbid its use.
    Volume {
        /// The facts.
        volume: Box<Volume>,
        /// What the witnesses said, if any was heard.
        testimony: Vec<Testimony>,
    },
    /// Nothing here may be trimmed.
    Refused {
        /// The format, where one was recognised.
        format: Option<String>,
        /// Why, and what helps.
        finding: Finding,
        /// True where nothing was recognised and nothing says whose it is.
        is_unknown: bool,
    },
    /// Left alone by design: no filesystem is expected here.
    Kept {
        /// The format, where one was recognised.
        format: Option<String>,
        /// Why.
        reason: String,
        /// What nobody needs of it, in bytes from its start (the body of a swap area): free when the user asks for
        /// unallocated space.
        spare: Vec<ByteRange>,
    },
}

impl Content {
    /// An area that is left alone as a whole.
    fn kept(format: Option<&str>, reason: impl Into<String>) -> Self {
        Self::Kept { format: format.map(str::to_owned), reason: reason.into(), spare: Vec::new() }
    }
}

impl Stack {
    /// The partition table of a device.
    pub fn table(&self, device: usize) -> Option<&FoundTable> {
        self.tables.iter().find(|table| table.device == device)
    }

    /// Forbids everything on a device with a suspend image: the sleeping system has its filesystems mounted.
    fn leave_alone(&mut self, device: usize) {
        let asleep = Finding::refusal(
            "the disk holds the suspend image of a sleeping system, to which this volume may still be mounted",
            "start that system and shut it down, then try again",
        );
        self.remarks.push(Remark { device, finding: asleep.clone() });
        self.tables.iter_mut().filter(|table| table.device == device).for_each(|table| {
            table.leave_gaps("the system that sleeps on the disk may know of them");
        });
        for node in self.nodes.iter_mut().filter(|node| node.device == device) {
            match &mut node.content {
                Content::Volume { volume, .. } => volume.findings.push(asleep.clone()),
                Content::Kept { spare, .. } => spare.clear(),
                Content::Refused { .. } => {}
            }
        }
    }
}

/// An area that no table divides further.
struct Leaf {
    device: usize,
    range: ByteRange,
    part: Option<Part>,
    /// Bytes in a sector of the device.
    sector_size: u64,
    /// What was found on the device around it.
    findings: Vec<Finding>,
    /// What it is to an array.
    standing: Option<Standing>,
    /// False for a partition that was not asked for. What lies on it may still say something about its neighbours.
    wanted: bool,
}

impl Leaf {
    fn new(device: usize, range: ByteRange, part: Option<Part>, sector_size: u64) -> Self {
        Self { device, range, part, sector_size, findings: Vec::new(), standing: None, wanted: true }
    }

    /// True when a look for the record of a member of an array of this kind may be worth while.
    fn may_be_a_member(&self, kind: &str) -> bool {
        let by_type = self.part.as_ref().is_none_or(|part| part.kept.is_none() && part.refused.is_none());
        self.wanted
            && by_type
            && match &self.standing {
                None => true,
                // What it lacks may have come to light since.
                Some(Standing::NotAssembled { kind: known, .. }) => *known == kind,
                Some(Standing::Member { .. }) => false,
            }
    }
}

/// What an area with the record of a member is.
enum Standing {
    /// A part of an array that was put together.
    Member {
        /// In words.
        words: String,
        /// What nobody needs of it.
        spare: Vec<ByteRange>,
    },
    /// A part of one of this kind that was not: why.
    NotAssembled { kind: &'static str, finding: Finding },
}
