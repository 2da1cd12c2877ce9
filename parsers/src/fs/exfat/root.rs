//! Chains, and what the root directory says about the volume itself: bitmap, up-case table, label.

use super::ExfatError;
use super::ondisk::{BAD, END, RawEntry, TYPE_BITMAP, TYPE_LABEL, TYPE_UPCASE};
use super::superblock::Geometry;
use crate::error::ParseError;
use crate::source::{Source, read_struct, read_vec};
use crate::units::{ByteRange, add, mul, sub};
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

/// The specification's limit of a directory, in bytes.
const MAX_DIRECTORY: u64 = 256 << 20;

/// `count` neighbouring blocks of the grid from block `first`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub first: u64,
    pub count: u64,
}

/// The chain that begins with cluster `first`, up to `max` clusters or its end, whichever comes first.
pub(super) fn chain(
    source: &dyn Source,
    geometry: &Geometry,
    what: &'static str,
    first: u32,
    max: u64,
) -> Result<Vec<Run>, ParseError> {
    let mut runs: Vec<Run> = Vec::new();
    let mut cluster = first;
    let mut at = geometry.fat;
    for _ in 0..max.min(geometry.grid.count()) {
        let block = geometry.block_of(cluster);
        let block = block.ok_or_else(|| ParseError::corrupt(at, ExfatError::Chain { what, cluster }))?;
        match runs.last_mut() {
            Some(run) if run.first.checked_add(run.count) == Some(block) => run.count = run.count.saturating_add(1),
            _ => runs.push(Run { first: block, count: 1 }),
        }
        at = add(geometry.fat, mul(cluster.into(), 4, "a FAT position")?, "a FAT position")?;
        cluster = read_struct::<U32>(source, at)?.get();
        if cluster == END {
            break;
        }
        if cluster == BAD {
            return Err(ParseError::corrupt(at, ExfatError::Chain { what, cluster }));
        }
    }
    Ok(runs)
}

/// Bytes of a run.
pub(super) fn bytes(geometry: &Geometry, run: Run) -> Result<ByteRange, ParseError> {
    let block = geometry.grid.block();
    let start = add(geometry.grid.origin(), block.to_bytes(run.first)?, "a cluster position")?;
    let range = ByteRange::with_len(start, block.to_bytes(run.count)?);
    range.ok_or_else(|| ParseError::inconsistent("a chain of no clusters"))
}

/// What the root directory says about the volume.
pub(super) struct Root {
    /// Its own clusters.
    pub runs: Vec<Run>,
    /// The allocation bitmap: first cluster, bytes.
    pub bitmap: (u32, u64),
    /// The up-case table: first cluster, bytes.
    pub upcase: (u32, u64),
    pub label: Option<String>,
}

/// Reads the root directory up to its end mark.
pub(super) fn read(source: &dyn Source, geometry: &Geometry) -> Result<Root, ParseError> {
    let block = geometry.grid.block().bytes();
    let max = add(MAX_DIRECTORY.div_ceil(block), 1, "the clusters of a directory")?;
    let runs = chain(source, geometry, "the root directory", geometry.root, max)?;
    let mut found = Found::default();
    'all: for run in &runs {
        let range = bytes(geometry, *run)?;
        let mut at = range.start();
        while at < range.end() {
            let len = (1 << 20).min(sub(range.end(), at, "the rest of a directory")?);
            for (entry, offset) in read_vec(source, at, len)?.as_chunks::<32>().0.iter().zip((0..).step_by(32)) {
                if !found.entry(entry, add(at, offset, "an entry")?)? {
                    break 'all;
                }
            }
            at = add(at, len, "a directory position")?;
        }
    }
    let at = bytes(geometry, Run { first: u64::from(geometry.root).saturating_sub(2), count: 1 })?.start();
    let missing = |what| ParseError::corrupt(at, ExfatError::NotOnce { what });
    Ok(Root {
        bitmap: found.bitmap.ok_or_else(|| missing("allocation bitmap"))?,
        upcase: found.upcase.ok_or_else(|| missing("up-case table"))?,
        label: found.label,
        runs,
    })
}

#[derive(Default)]
struct Found {
    bitmap: Option<(u32, u64)>,
    upcase: Option<(u32, u64)>,
    label: Option<String>,
}

impl Found {
    /// Takes up one entry at byte `at`; false at the end of the directory.
    fn entry(&mut self, bytes: &[u8; 32], at: u64) -> Result<bool, ParseError> {
        let entry = RawEntry::read_from_bytes(bytes).map_err(|_| ParseError::corrupt(at, "an entry was cut short"))?;
        let place = (entry.first_cluster.get(), entry.data_length.get());
        let before = match entry.entry_type {
            0 => return Ok(false),
            // Bit 0 names the FAT that the bitmap belongs to; there is only one.
            TYPE_BITMAP if entry.flags & 1 != 0 => return Err(ParseError::unsupported(at, ExfatError::TexFat)),
            TYPE_BITMAP => self.bitmap.replace(place).map(|_| "allocation bitmap"),
            TYPE_UPCASE => self.upcase.replace(place).map(|_| "up-case table"),
            TYPE_LABEL => {
                self.label = label(&entry);
                None
            }
            _ => None,
        };
        match before {
            Some(what) => Err(ParseError::corrupt(at, ExfatError::NotOnce { what })),
            None => Ok(true),
        }
    }
}

/// At most 11 characters, over all bytes behind the first two.
fn label(entry: &RawEntry) -> Option<String> {
    let [low, high] = [entry.custom.as_slice(), &entry.first_cluster.get().to_le_bytes()];
    let units: Vec<u16> = [low, high].concat().as_chunks().0.iter().map(|b| u16::from_le_bytes(*b)).collect();
    let text = String::from_utf16_lossy(units.get(..usize::from(entry.flags))?);
    (!text.is_empty()).then_some(text)
}
