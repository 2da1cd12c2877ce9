//! The eyes of a run: who comes to use the target, what changes beside the discarded ranges, and the log.

use crate::cli::Ending;
use crate::cli::job::TrimJob;
use crate::cli::routes::Prepared;
use crate::cli::trial::{Failed, all_planned, nonce};
use crate::plan::Batch;
use crate::plan::units::ByteRange;
use crate::report::progress::Progress;
use crate::run::Watcher;
use crate::target::{Target, TargetError, Troubles};
use crate::transport::{Direct, NodeKind, TransportError, scsi};
use crate::verify::neighbours::Neighbours;
use anyhow::Result;
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

/// Watches what lies next to the discarded ranges, on raw routes, which nothing else keeps inside of bounds.
pub struct Guard {
    neighbours: Neighbours,
    reader: Direct,
}

impl Guard {
    /// On a raw route.
    pub fn before(device: &Prepared) -> Result<Option<Self>, Failed> {
        let facts = &device.device.facts;
        let is_raw = facts.is_usb() || facts.kind == NodeKind::Scsi;
        is_raw.then(|| Self::of(device, &[])).transpose()
    }

    /// On any route; `places`, which are whole blocks and in use, are remembered, too.
    pub fn of(device: &Prepared, places: &[ByteRange]) -> Result<Self, Failed> {
        let node = &device.device;
        let extents = all_planned(device);
        let remembered = Direct::open(&node.file, &node.facts).and_then(|mut reader| {
            let lba = device.transport.limits().lba_size().bytes().max(node.facts.logical_block.bytes());
            let mut neighbours = Neighbours::remember(&mut reader, &extents, node.facts.size, lba, nonce())?;
            neighbours.remember_also(&mut reader, places)?;
            Ok(Self { neighbours, reader })
        });
        remembered.map_err(|error| Failed {
            ending: Ending::Failed,
            why: format!("what lies next to the free space could not be read: {error}; next: {}", error.advice()),
            verdict: None,
            evidence: "none".to_owned(),
        })
    }

    /// What changed next to any discarded range, or why that cannot be said. After a run that `failed` the device may
    /// not be there to be read, which then is told already.
    pub fn harm(&mut self, failed: bool) -> Option<String> {
        let changed = self.neighbours.changed(&mut self.reader);
        changed.unwrap_or_else(|error| (!failed).then(|| unread(&error)))
    }

    /// How many places are compared.
    pub fn places(&self) -> usize {
        self.neighbours.places()
    }

    fn harm_by(&mut self, batch: &Batch<'_>) -> Result<Option<String>, TransportError> {
        self.neighbours.changed_beside(&mut self.reader, batch.byte_ranges())
    }
}

fn unread(error: &TransportError) -> String {
    format!("what lies next to the discarded space could not be read again ({error})")
}

/// Every command and its answer, for `--log`.
pub struct Log {
    file: Option<File>,
    /// The first line that could not be written, in words.
    pub failed: Option<String>,
}

impl Log {
    /// The file that the job names.
    pub fn open(job: &TrimJob) -> Result<Self> {
        let file = job.log.as_deref().map(crate::cli::new_file).transpose()?;
        Ok(Self { file, failed: None })
    }

    /// Nowhere.
    pub fn none() -> Self {
        Self { file: None, failed: None }
    }

    fn line(&mut self, batch: &Batch<'_>, answer: &str) {
        let Some(file) = &mut self.file else { return };
        let ranges: Vec<String> =
            batch.byte_ranges().map(|range| format!("{}+{}", range.start(), range.len())).collect();
        // A log on a full disk must not stop a run half way; it is told at the end.
        if let Err(error) = writeln!(file, "{answer}\t{}", ranges.join(" ")) {
            self.failed.get_or_insert(format!("the log is not complete: {error}"));
        }
    }
}

/// What a run is watched by.
pub struct RunWatcher<'a> {
    /// What must stay as it is.
    pub target: &'a Target,
    /// What the user sees of it.
    pub progress: Progress,
    /// Where commands are written down.
    pub log: &'a mut Log,
    /// What lies next to the discarded ranges, where that is watched.
    pub guard: Option<&'a mut Guard>,
    /// What was found changed that should not have.
    pub harm: Option<String>,
    /// When to look again who uses the target.
    pub look: Look,
    /// Bytes that this run itself has written.
    pub written: u64,
    /// What had gone wrong on the device when the run began, or with the last command that was not taken.
    pub troubles: Option<Troubles>,
    /// What the device itself told after the last command.
    pub told: Option<String>,
}

impl RunWatcher<'_> {
    /// Asks a bridge how it is, before the kernel reads anything and takes the news of a reset for itself.
    fn ask(&mut self) {
        let answer = self.troubles.and_then(|_| self.target.claimed().ok()).map(|file| scsi::look(&file));
        if let Some(Err(error)) = answer {
            self.told =
                Some(format!("after a command that succeeded: {}; next: {}", error.with_causes(), error.advice()));
        }
    }

    /// Compares what lies next to a batch. A device that has left cannot be read; that is news, and no sign of harm.
    fn look_beside(&mut self, batch: &Batch<'_>) {
        match self.guard.as_mut().map(|guard| guard.harm_by(batch)) {
            None => {}
            Some(Ok(changed)) => self.harm = self.harm.take().or(changed),
            Some(Err(error)) => {
                self.ask();
                if self.news().is_none() {
                    self.harm = Some(unread(&error));
                }
            }
        }
    }

    /// What became of the device that no command of this run was told of.
    pub(super) fn news(&self) -> Option<String> {
        let changed = self.target.must_be_unchanged().err().map(|error| error.to_string());
        changed.or_else(|| self.told.clone()).or_else(|| self.unheard())
    }

    fn unheard(&self) -> Option<String> {
        let (before, now) = (self.troubles?, self.target.troubles()?);
        now.since(before).map(|what| format!("{what}; unplug it, plug it in again, and look at `dmesg`"))
    }
}

/// When to look again who uses the target. A look goes through all processes, so it may take a twentieth of the time.
pub struct Look {
    due: Instant,
}

impl Look {
    const PAUSE: Duration = Duration::from_secs(1);

    /// In a while.
    pub fn new() -> Self {
        Self { due: Instant::now() + Self::PAUSE }
    }

    fn again(&mut self, target: &Target) -> Result<(), TargetError> {
        let began = Instant::now();
        if began < self.due {
            return Ok(());
        }
        target.must_be_still_unused()?;
        self.due = Instant::now() + Self::PAUSE.max(began.elapsed() * 20);
        Ok(())
    }
}

impl Watcher for RunWatcher<'_> {
    fn taken(&mut self, batch: &Batch<'_>, took: Duration) {
        self.ask();
        if self.news().is_none() {
            self.look_beside(batch);
        }
        self.progress.advance(batch.bytes());
        self.log.line(batch, &format!("taken in {} ms", took.as_millis()));
    }

    fn not_taken(&mut self, batch: &Batch<'_>, error: &TransportError) {
        self.troubles = self.troubles.and_then(|_| self.target.troubles());
        self.log.line(batch, &format!("not taken: {error}"));
    }

    fn wrote(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
    }

    fn objection(&mut self) -> Option<String> {
        self.harm.clone().or_else(|| {
            // In this order: who was there during the look is heard of afterwards.
            let undisturbed = self.look.again(self.target).and_then(|()| self.target.must_be_undisturbed(self.written));
            let disturbed = undisturbed.err().map(|error| error.to_string());
            disturbed.or_else(|| self.told.clone()).or_else(|| self.unheard())
        })
    }
}
