//! A drive with a clock: commands arrive at a time and are answered at a time.

use crate::config::{Config, Nanos, Readback, TrimMode};
use crate::flash::{Counters, Flash, PAGE};
use crate::random::Random;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// A discard, and one page of it.
const TRIM_COMMAND: Nanos = 100_000;
const TRIM_PAGE: Nanos = 20;

/// A command as it reached the drive, for comparison with what was allowed. Pages of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// So many pages were written from there on.
    Write(Range<u32>),
    /// They were discarded, as the host asked; what a bridge made of it is not in here.
    Trim(Range<u32>),
}

/// What a page holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Nothing but zeros.
    Zeros,
    /// What write number so and so put there.
    Written(u64),
    /// These bytes.
    Bytes(Vec<u8>),
}

/// The drive.
#[derive(Debug, Clone)]
pub struct Ssd {
    config: Config,
    flash: Flash,
    /// When the cable is free again.
    link_free: Nanos,
    /// When the flash is.
    flash_free: Nanos,
    /// Discards that will be carried out: when, and which pages.
    late: VecDeque<(Nanos, Range<u32>)>,
    /// The write that each page holds; 0 reads as zeros.
    written: Vec<u64>,
    bytes: BTreeMap<u32, Vec<u8>>,
    writes: u64,
    log: Vec<Command>,
}

impl Ssd {
    /// A new drive.
    pub fn new(config: &Config) -> Self {
        Self {
            config: *config,
            flash: Flash::new(config),
            link_free: 0,
            flash_free: 0,
            late: VecDeque::new(),
            written: vec![0; config.pages as usize],
            bytes: BTreeMap::new(),
            writes: 0,
            log: Vec::new(),
        }
    }

    /// What it is made of.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The flash, which knows the truth.
    pub fn flash(&self) -> &Flash {
        &self.flash
    }

    /// What the drive did.
    pub fn counters(&self) -> Counters {
        self.flash.counters()
    }

    /// Every command so far.
    pub fn log(&self) -> &[Command] {
        &self.log
    }

    /// Forgets the commands so far.
    pub fn clear_log(&mut self) {
        self.log.clear();
    }

    /// The same drive without noise, or with another one.
    pub fn with_noise(mut self, noise: f64, seed: u64) -> Self {
        self.flash.set_noise(noise, seed);
        self
    }

    /// Writes `pages`, which take no time: the state in which a drive is found.
    pub fn fill(&mut self, pages: Range<u32>) {
        pages.for_each(|page| {
            self.put(page);
        });
        self.settle();
    }

    /// Writes `count` pages at random places of `pages`, which take no time.
    pub fn age(&mut self, count: u64, pages: Range<u32>, seed: u64) {
        let mut random = Random::new(seed);
        for _ in 0..count {
            let page = pages.start + random.below(u64::from(pages.end - pages.start)) as u32;
            self.put(page);
        }
        self.settle();
    }

    /// As after a night: the cache is empty and the flash is cool.
    pub fn settle(&mut self) {
        while self.flash.fold().is_some() {}
        self.flash.rested(Nanos::MAX);
    }

    /// Writes `pages` at `now`; when the answer comes.
    pub fn write(&mut self, now: Nanos, pages: Range<u32>) -> Nanos {
        self.pause_until(now);
        self.log.push(Command::Write(pages.clone()));
        let on_link = self.over_the_link(now, pages.len());
        let mut cost = 0;
        for page in pages {
            cost += self.put(page);
        }
        self.flash_free = self.flash_free.max(now) + cost;
        on_link.max(self.flash_free.saturating_sub(self.config.buffer))
    }

    /// The same with real bytes: whole pages from `first` on.
    pub fn write_bytes(&mut self, now: Nanos, first: u32, bytes: &[u8]) -> Nanos {
        let pages: Vec<&[u8]> = bytes.chunks(PAGE as usize).collect();
        let end = self.write(now, first..first + pages.len() as u32);
        for (page, bytes) in (first..).zip(pages) {
            self.bytes.insert(page, bytes.to_vec());
        }
        end
    }

    /// Reads `pages` at `now`; when the answer comes.
    pub fn read(&mut self, now: Nanos, pages: Range<u32>) -> Nanos {
        self.pause_until(now);
        let count = pages.len();
        let cost: Nanos = pages.map(|page| self.flash.read(page)).sum();
        // What is not mapped needs no flash; what is waits for it, and passes over the cable then.
        let ready = if cost == 0 { now } else { self.flash_free.max(now) + cost };
        self.flash_free = self.flash_free.max(ready);
        self.over_the_link(ready, count)
    }

    /// What a page holds.
    pub fn content(&self, page: u32) -> Content {
        match (self.bytes.get(&page), self.written[page as usize]) {
            (Some(bytes), _) => Content::Bytes(bytes.clone()),
            (None, 0) => Content::Zeros,
            (None, write) => Content::Written(write),
        }
    }

    /// Everything that was answered reaches the flash.
    pub fn flush(&mut self, now: Nanos) -> Nanos {
        self.pause_until(now);
        self.over_the_link(now, 0).max(self.flash_free)
    }

    /// Discards `pages` at `now`; when the answer comes.
    pub fn trim(&mut self, now: Nanos, pages: Range<u32>) -> Nanos {
        self.pause_until(now);
        self.log.push(Command::Trim(pages.clone()));
        self.flash.count_trim(pages.len() as u32);
        let end = self.over_the_link(now, 0) + TRIM_COMMAND + TRIM_PAGE * pages.len() as Nanos;
        let pages = self.as_the_bridge_has_it(pages);
        match self.config.trim.mode {
            TrimMode::Ignore => {}
            TrimMode::Obey => self.unmap(pages),
            TrimMode::Late(by) => self.late.push_back((end + by, pages)),
        }
        self.link_free = end;
        end
    }

    fn as_the_bridge_has_it(&self, pages: Range<u32>) -> Range<u32> {
        let trim = self.config.trim;
        let on_drive = |page: i64| page.clamp(0, i64::from(self.config.pages)) as u32;
        let start = i64::from(pages.start) + trim.shift;
        let length = i64::from(pages.end - pages.start) * i64::from(trim.stretch);
        let length = trim.most.map_or(length, |most| length.min(i64::from(most)));
        on_drive(start)..on_drive(start + length)
    }

    fn unmap(&mut self, pages: Range<u32>) {
        let granule = self.config.trim.granule;
        let whole = pages.start.next_multiple_of(granule)..pages.end / granule * granule;
        for page in whole {
            self.flash.unmap(page);
            if self.config.readback == Readback::Zeros {
                self.written[page as usize] = 0;
                self.bytes.remove(&page);
            }
        }
    }

    fn put(&mut self, page: u32) -> Nanos {
        self.writes += 1;
        self.written[page as usize] = self.writes;
        self.bytes.remove(&page);
        self.flash.write(page)
    }

    fn over_the_link(&mut self, now: Nanos, pages: usize) -> Nanos {
        self.link_free = self.link_free.max(now) + self.config.command + self.config.link * pages as Nanos;
        self.link_free
    }

    /// What the drive does by itself until a command comes at `now`: late discards first, then the cache is emptied,
    /// then blocks are cleaned. What has begun is finished, so a command may have to wait.
    fn pause_until(&mut self, now: Nanos) {
        let rest = self.flash_free;
        self.flash.rested(now.saturating_sub(rest));
        while let Some((_, pages)) = self.late.pop_front_if(|(due, _)| *due <= now) {
            self.unmap(pages);
        }
        if let Some(slc) = self.config.slc {
            self.work_from(rest.saturating_add(slc.fold_after), now, Flash::fold);
        }
        if let Some(idle) = self.config.idle {
            self.work_from(rest.saturating_add(idle.after), now, |flash| flash.clean_idle(idle.target));
        }
    }

    fn work_from(&mut self, begin: Nanos, now: Nanos, mut step: impl FnMut(&mut Flash) -> Option<Nanos>) {
        let mut at = begin.max(self.flash_free);
        while at < now {
            let Some(cost) = step(&mut self.flash) else { return };
            at += cost;
            self.flash_free = at;
        }
    }
}
