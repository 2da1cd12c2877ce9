//! The second witness: an independent reading of who owns which bytes, file by file.
//!
//! A witness shares no code with the reader of the allocation structure. It convicts (an extent of a file is in the
//! free map: the map is wrong) and never acquits: no witness sees everything.

use crate::error::ParseError;
use crate::free_map::FreeMap;
use crate::source::Source;
use crate::units::{ByteRange, from_usize};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::io;

/// What a witness had to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Testimony {
    /// Everything that the witness saw is marked used.
    Agrees {
        /// Which witness.
        witness: String,
        /// How many files and other owners it visited.
        owners: u64,
        /// How many extents they have.
        extents: u64,
    },
    /// An owned extent is free in the map.
    Clash {
        /// Which witness.
        witness: String,
        /// The owner, a path where the witness knows one.
        owner: String,
        /// The bytes that are owned and free, from the start of the volume.
        range: ByteRange,
    },
    /// The witness could not read the volume: no agreement, no conflict.
    Absent {
        /// Which witness.
        witness: String,
        /// Why.
        reason: String,
    },
}

/// One independent reading of a format. A row in its format's list.
pub trait Witness: Sync {
    /// Name of the witness (`fat-walk`, `fatfs`).
    fn name(&self) -> &'static str;

    /// Names every extent it can find to the ledger. An error means "could not read", never agreement.
    fn walk(&self, source: &dyn Source, ledger: &mut Ledger<'_>) -> Result<(), ParseError>;

    /// True for a reading that sees the whole of the volume's files. The format's default-on check relies on these.
    fn is_complete(&self) -> bool {
        true
    }
}

/// Compares what a witness names with a free map, as it comes.
pub struct Ledger<'a> {
    free: &'a FreeMap,
    owners: u64,
    extents: u64,
    clash: Option<(String, ByteRange)>,
}

impl<'a> Ledger<'a> {
    /// An empty ledger beside a map.
    pub fn new(free: &'a FreeMap) -> Self {
        Self { free, owners: 0, extents: 0, clash: None }
    }

    /// Notes that one more file, directory or other owner was visited.
    pub fn visit(&mut self) {
        self.owners = self.owners.saturating_add(1);
    }

    /// Notes that `owner` owns `range` (bytes from the start of the volume). The first clash is kept.
    pub fn claim(&mut self, range: ByteRange, owner: &dyn std::fmt::Display) {
        self.extents = self.extents.saturating_add(1);
        if self.clash.is_none()
            && let Some(part) = self.free.clash(range).and_then(|free| free.intersect(range))
        {
            self.clash = Some((owner.to_string(), part));
        }
    }

    /// How many extents were named so far.
    pub fn extents(&self) -> u64 {
        self.extents
    }

    /// True once an owned extent was found free: a walk may stop.
    pub fn has_clash(&self) -> bool {
        self.clash.is_some()
    }
}

/// Lets one witness walk, whatever it does. A panic inside a reader crate counts as "could not read".
pub fn hear(witness: &dyn Witness, source: &dyn Source, free: &FreeMap) -> Testimony {
    let name = witness.name().to_owned();
    let mut ledger = Ledger::new(free);
    let walked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| witness.walk(source, &mut ledger)));
    match (ledger.clash, walked) {
        (Some((owner, range)), _) => Testimony::Clash { witness: name, owner, range },
        (None, Ok(Ok(()))) => Testimony::Agrees { witness: name, owners: ledger.owners, extents: ledger.extents },
        (None, Ok(Err(error))) => Testimony::Absent { witness: name, reason: error.to_string() },
        (None, Err(_)) => Testimony::Absent { witness: name, reason: "the reader crate panicked".to_owned() },
    }
}

/// A source that notes which bytes were read, for reader crates that tell no positions. It must sit directly below
/// the crate: a cache above it would make it see neighbours.
pub struct Recording<'a> {
    inner: &'a dyn Source,
    budget: RefCell<u64>,
    seen: RefCell<Vec<ByteRange>>,
}

impl<'a> Recording<'a> {
    /// Records reads of `inner` until `budget` bytes were read; then every read fails.
    pub fn new(inner: &'a dyn Source, budget: u64) -> Self {
        Self { inner, budget: RefCell::new(budget), seen: RefCell::new(Vec::new()) }
    }

    /// The bytes read since the last call.
    pub fn take(&self) -> Vec<ByteRange> {
        std::mem::take(&mut *self.seen.borrow_mut())
    }
}

impl Source for Recording<'_> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let left = self.budget.borrow().checked_sub(from_usize(buf.len()));
        let left = left.ok_or_else(|| io::Error::other("the witness has used up its read budget"))?;
        *self.budget.borrow_mut() = left;
        self.inner.read_at(at, buf)?;
        if let Some(range) = ByteRange::with_len(at, from_usize(buf.len())) {
            let mut seen = self.seen.borrow_mut();
            match seen.last_mut().filter(|last| last.end() == range.start()) {
                Some(last) => *last = ByteRange::new(last.start(), range.end()).unwrap_or(*last),
                None => seen.push(range),
            }
        }
        Ok(())
    }
}
