//! A third opinion: the crate `fatfs`, as a user program would read the volume.
//!
//! It gives out no positions, so they are recorded where it reads: contents of files are read to their end, cluster
//! by cluster, but the bytes themselves are not fetched. It does not see clusters behind a file's end, and it has no
//! guard against cycles, so both its steps and its depth are bounded here. On drop it may want to rewrite the FSInfo
//! sector; [`Cursor`] refuses that.

use super::shape::Shape;
use crate::error::ParseError;
use crate::pages::Pages;
use crate::source::{Cursor, Source};
use crate::units::from_usize;
use crate::witness::{Ledger, Recording, Witness};
use fatfs::{Dir, FileSystem, FsOptions};
use std::cell::Cell;
use std::io::{self, Read};

/// The crate `fatfs`.
pub struct CrateReader;

/// Directories below each other.
const MAX_DEPTH: usize = 128;
/// Reads that reach the disk or the cache: some seconds of work. A volume that needs more goes without this opinion.
const MAX_STEPS: u64 = 30_000_000;
/// Bytes asked for at once; the crate cuts that to a cluster.
const PIECE: usize = 64 << 10;

impl Witness for CrateReader {
    fn name(&self) -> &'static str {
        "fatfs"
    }

    fn is_complete(&self) -> bool {
        false
    }

    fn walk(&self, source: &dyn Source, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        let pages = Pages::new(source);
        let first_data = Shape::read(&pages)?.first_data;
        let skim = Skim { inner: &pages, contents: Cell::new(false), steps: Cell::new(MAX_STEPS) };
        let recording = Recording::new(&skim, u64::MAX);
        let volume = FileSystem::new(Cursor::new(&recording), FsOptions::new());
        let volume = volume.map_err(|e| ParseError::inconsistent(format!("the volume cannot be opened: {e}")))?;
        let mut tour = Tour { skim: &skim, recording: &recording, first_data, ledger, buffer: vec![0; PIECE] };
        tour.settle(&"the root directory");
        tour.directory(volume.root_dir(), "", 0).map_err(|e| ParseError::inconsistent(e.to_string()))
    }
}

/// Lets reads of the table and of directories through and answers those of contents from nowhere.
struct Skim<'a> {
    inner: &'a dyn Source,
    /// True while a file's contents are read. Entries of the table, at most 4 bytes, are still fetched.
    contents: Cell<bool>,
    steps: Cell<u64>,
}

impl Source for Skim<'_> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let left = self.steps.get().checked_sub(1);
        self.steps.set(left.ok_or_else(|| io::Error::other("too many reads, perhaps a cycle of directories"))?);
        if self.contents.get() && buf.len() > 4 {
            buf.fill(0);
            return Ok(());
        }
        self.inner.read_at(at, buf)
    }
}

struct Tour<'a, 'f> {
    skim: &'a Skim<'a>,
    recording: &'a Recording<'a>,
    first_data: u64,
    ledger: &'a mut Ledger<'f>,
    buffer: Vec<u8>,
}

impl Tour<'_, '_> {
    /// What was read since the last call in the area of clusters belongs to `owner`.
    fn settle(&mut self, owner: &dyn std::fmt::Display) {
        for range in self.recording.take() {
            if range.start() >= self.first_data {
                self.ledger.claim(range, owner);
            }
        }
    }

    fn directory(&mut self, directory: Dir<'_, Cursor<'_>>, path: &str, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(io::Error::other(format!("{path}: directories are nested deeper than {MAX_DEPTH}")));
        }
        for entry in directory.iter() {
            let entry = entry?;
            self.settle(&path);
            let name = entry.file_name();
            if name == "." || name == ".." || self.ledger.has_clash() {
                continue;
            }
            let path = format!("{path}/{name}");
            self.ledger.visit();
            if entry.is_dir() {
                self.directory(entry.to_dir(), &path, depth.saturating_add(1))?;
            } else {
                self.file(entry.to_file(), entry.len(), &path)?;
            }
        }
        self.settle(&path);
        Ok(())
    }

    fn file(&mut self, mut file: fatfs::File<'_, Cursor<'_>>, len: u64, path: &str) -> io::Result<()> {
        self.skim.contents.set(true);
        let mut done: u64 = 0;
        let result = loop {
            match file.read(&mut self.buffer) {
                Ok(0) => break Ok(()),
                Ok(count) => done = done.saturating_add(from_usize(count)),
                Err(error) => break Err(error),
            }
            self.settle(&path);
        };
        self.skim.contents.set(false);
        result?;
        if done != len {
            return Err(io::Error::other(format!("{path}: only {done} of {len} bytes have clusters")));
        }
        Ok(())
    }
}
