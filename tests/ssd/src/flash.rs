//! The flash and its translation layer: where each logical page lies, and what moving it costs.
//!
//! Blocks are written page by page and erased whole. Writing a page anew leaves a hole where it was; the cleaner takes
//! the block with the most holes, moves what is left of it, and has a free block again. A discard makes holes without
//! writing, which is all that TRIM is about.

use crate::config::{Config, Fronts, NOISE_PAGES, Nanos, Slc};
use crate::random::Random;
use std::collections::VecDeque;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// No physical page, or no logical one.
const NONE: u32 = u32::MAX;
/// Cleaning begins when so few blocks are free.
const LOW: usize = 3;
/// So long the flash must rest to cool down.
const COOLING: Nanos = 200_000_000;

/// What the drive did, as only the drive can know.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counters {
    /// Pages that the host wrote.
    pub host_pages: u64,
    /// Pages that were programmed.
    pub flash_pages: u64,
    /// Of those, pages moved while the host waited.
    pub moved: u64,
    /// Pages moved in pauses.
    pub moved_idle: u64,
    /// Blocks that were erased.
    pub erases: u64,
    /// Pages programmed while the drive was hot.
    pub hot_pages: u64,
    /// Discard commands.
    pub trims: u64,
    /// Pages that they named.
    pub trimmed: u64,
}

impl Counters {
    /// Pages programmed for each page of the host.
    pub fn amplification(&self) -> f64 {
        self.flash_pages as f64 / self.host_pages.max(1) as f64
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Open,
    Closed,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    state: State,
    fast: bool,
    /// Pages that hold data that counts.
    valid: u32,
    /// Pages that are written.
    written: u32,
    /// When it was opened, as a number that only grows.
    age: u64,
}

/// The kinds of open blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Front {
    Host = 0,
    Cleaner = 1,
    Cache = 2,
}

/// Why a page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Host,
    Moved,
}

/// The flash.
#[derive(Debug, Clone)]
pub struct Flash {
    config: Config,
    /// Physical page of each logical one.
    to_physical: Vec<u32>,
    /// Logical page of each physical one.
    to_logical: Vec<u32>,
    blocks: Vec<Block>,
    free: VecDeque<u32>,
    open: [Option<u32>; 3],
    opened: u64,
    mapped: u32,
    /// Fast pages that are written and whose block is not yet free again.
    fast_pages: u32,
    /// Flash time of the current command.
    cost: Nanos,
    since_pause: u64,
    noise: Random,
    noise_left: u32,
    noise_now: f64,
    counters: Counters,
}

impl Flash {
    /// A new drive.
    pub fn new(config: &Config) -> Self {
        let pages = config.pages as usize;
        let blocks = (f64::from(config.pages) * (1.0 + config.spare) / f64::from(config.block_pages)).ceil() as u32;
        let empty = Block { state: State::Free, fast: false, valid: 0, written: 0, age: 0 };
        Self {
            config: *config,
            to_physical: vec![NONE; pages],
            to_logical: vec![NONE; (blocks * config.block_pages) as usize],
            blocks: vec![empty; blocks as usize],
            free: (0..blocks).collect(),
            open: [None; 3],
            opened: 0,
            mapped: 0,
            fast_pages: 0,
            cost: 0,
            since_pause: 0,
            noise: Random::new(config.seed),
            noise_left: 0,
            noise_now: 1.0,
            counters: Counters::default(),
        }
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Blocks that are erased, or need only be.
    pub fn free_blocks(&self) -> usize {
        self.free.len()
    }

    /// Logical pages that the drive believes to hold data.
    pub fn mapped(&self) -> u32 {
        self.mapped
    }

    /// True when the drive believes that the page holds data.
    pub fn is_mapped(&self, page: u32) -> bool {
        self.to_physical[page as usize] != NONE
    }

    /// Pages that the cache holds, and that it may hold now.
    pub fn cache(&self) -> (u32, u32) {
        (self.fast_pages, self.config.slc.map_or(0, |slc| self.cache_limit(&slc)))
    }

    /// Makes the noise another one, or none.
    pub fn set_noise(&mut self, noise: f64, seed: u64) {
        self.config.noise = noise;
        self.noise = Random::new(seed);
        (self.noise_left, self.noise_now) = (0, 1.0);
    }

    /// Writes a page for the host; the flash time that it took.
    pub fn write(&mut self, page: u32) -> Nanos {
        self.cost = 0;
        self.counters.host_pages += 1;
        let front = match self.config.slc {
            Some(slc) if self.fast_pages < self.cache_limit(&slc) => Front::Cache,
            _ => Front::Host,
        };
        self.program(page, front, Why::Host);
        self.cost
    }

    /// Reads a page; the flash time that it took.
    pub fn read(&mut self, page: u32) -> Nanos {
        if self.is_mapped(page) { self.config.read } else { 0 }
    }

    /// Forgets a page.
    pub fn unmap(&mut self, page: u32) {
        let physical = std::mem::replace(&mut self.to_physical[page as usize], NONE);
        if physical != NONE {
            self.mapped -= 1;
            self.invalidate(physical);
        }
    }

    /// Notes a discard command of `pages` pages.
    pub fn count_trim(&mut self, pages: u32) {
        self.counters.trims += 1;
        self.counters.trimmed += u64::from(pages);
    }

    /// The flash has rested for so long.
    pub fn rested(&mut self, pause: Nanos) {
        if pause >= COOLING {
            self.since_pause = 0;
        }
    }

    /// Empties the oldest block of the cache; the flash time, or none when there is none that is full.
    pub fn fold(&mut self) -> Option<Nanos> {
        if self.free.len() <= 1 {
            return None;
        }
        let is_foldable = |block: &Block| block.fast && block.state == State::Closed;
        let oldest =
            (0..self.blocks.len()).filter(|k| is_foldable(&self.blocks[*k])).min_by_key(|k| self.blocks[*k].age);
        let block = match oldest {
            Some(block) => block as u32,
            // Only the open one is left: it is closed, so that the cache is empty after a long pause.
            None => self.close(Front::Cache)?,
        };
        self.cost = 0;
        self.counted_as_idle(|flash| flash.empty(block));
        Some(self.cost)
    }

    /// Cleans one block if fewer than `target` are free; the flash time.
    pub fn clean_idle(&mut self, target: u32) -> Option<Nanos> {
        if self.free.len() >= target as usize {
            return None;
        }
        let victim = self.victim()?;
        // A block with hardly a hole is not worth it: that would only wear the flash out.
        if self.blocks[victim as usize].valid * 20 > self.capacity(victim) * 19 {
            return None;
        }
        self.cost = 0;
        self.counted_as_idle(|flash| flash.empty(victim));
        Some(self.cost)
    }

    fn counted_as_idle(&mut self, work: impl FnOnce(&mut Self)) {
        let before = self.counters.moved;
        work(self);
        let moved = self.counters.moved - before;
        self.counters.moved = before;
        self.counters.moved_idle += moved;
    }

    /// Pages that the cache may hold now.
    fn cache_limit(&self, slc: &Slc) -> u32 {
        let unmapped = f64::from(self.config.pages - self.mapped);
        (slc.fixed * f64::from(self.config.pages) + slc.of_unmapped * unmapped) as u32
    }

    /// Pages that a block holds.
    fn capacity(&self, block: u32) -> u32 {
        let divisor = self.config.slc.filter(|_| self.blocks[block as usize].fast).map_or(1, |slc| slc.divisor);
        self.config.block_pages / divisor
    }

    fn program(&mut self, page: u32, front: Front, why: Why) {
        let block = self.room(front, why);
        let before = std::mem::replace(&mut self.to_physical[page as usize], NONE);
        if before == NONE {
            self.mapped += 1;
        } else {
            self.invalidate(before);
        }
        let slot = &mut self.blocks[block as usize];
        let physical = block * self.config.block_pages + slot.written;
        slot.written += 1;
        slot.valid += 1;
        let fast = slot.fast;
        self.fast_pages += u32::from(fast);
        self.to_physical[page as usize] = physical;
        self.to_logical[physical as usize] = page;
        self.counters.flash_pages += 1;
        self.counters.moved += u64::from(why == Why::Moved);
        self.cost += self.program_time(fast);
    }

    fn program_time(&mut self, fast: bool) -> Nanos {
        let plain = self.config.slc.filter(|_| fast).map_or(self.config.program, |slc| slc.program);
        self.since_pause += 1;
        let hot = self.config.throttle.is_some_and(|throttle| self.since_pause > throttle.after);
        self.counters.hot_pages += u64::from(hot);
        let time = if hot { 2 * plain } else { plain };
        if self.config.noise == 0.0 {
            return time;
        }
        if self.noise_left == 0 {
            self.noise_left = NOISE_PAGES;
            self.noise_now = (1.0 + self.config.noise * self.noise.normal()).max(0.2);
        }
        self.noise_left -= 1;
        (time as f64 * self.noise_now) as Nanos
    }

    /// The open block of a front, with room for a page. Cleaning comes after opening and goes one block at a time, so
    /// that with one front the moved pages and those of the host share every block.
    fn room(&mut self, front: Front, why: Why) -> u32 {
        let front = if front == Front::Cleaner && self.config.fronts == Fronts::Mixed { Front::Host } else { front };
        loop {
            let block = self.open_with_room(front).unwrap_or_else(|| self.open_block(front));
            // What the cleaner itself moves goes into the reserve.
            let victim = if why == Why::Host && self.free.len() <= LOW { self.victim() } else { None };
            match victim {
                Some(victim) => self.empty(victim),
                None => return block,
            }
        }
    }

    fn open_with_room(&mut self, front: Front) -> Option<u32> {
        let block = self.open[front as usize]?;
        if self.blocks[block as usize].written < self.capacity(block) {
            return Some(block);
        }
        self.close(front);
        None
    }

    fn open_block(&mut self, front: Front) -> u32 {
        let block = self.free.pop_front().unwrap_or_else(|| panic!("the cleaner keeps {LOW} blocks"));
        self.opened += 1;
        self.counters.erases += 1;
        self.cost += self.config.erase;
        self.blocks[block as usize] =
            Block { state: State::Open, fast: front == Front::Cache, valid: 0, written: 0, age: self.opened };
        self.open[front as usize] = Some(block);
        block
    }

    /// Closes the open block of a front.
    fn close(&mut self, front: Front) -> Option<u32> {
        let block = self.open[front as usize].take()?;
        self.blocks[block as usize].state = State::Closed;
        self.free_if_empty(block);
        Some(block)
    }

    fn invalidate(&mut self, physical: u32) {
        self.to_logical[physical as usize] = NONE;
        let block = physical / self.config.block_pages;
        self.blocks[block as usize].valid -= 1;
        self.free_if_empty(block);
    }

    /// A closed block without data is free at once; its erasure is paid when it is opened again.
    fn free_if_empty(&mut self, block: u32) {
        let slot = &mut self.blocks[block as usize];
        if slot.state == State::Closed && slot.valid == 0 {
            slot.state = State::Free;
            if slot.fast {
                self.fast_pages -= slot.written;
            }
            self.free.push_back(block);
        }
    }

    /// The closed block that costs least to empty for what it gives back.
    fn victim(&self) -> Option<u32> {
        let closed = (0..self.blocks.len() as u32).filter(|k| self.blocks[*k as usize].state == State::Closed);
        let full =
            |k: &u32| !self.blocks[*k as usize].fast && self.blocks[*k as usize].valid == self.config.block_pages;
        closed.filter(|k| !full(k)).min_by_key(|k| self.blocks[*k as usize].valid)
    }

    /// Moves what counts out of a closed block.
    fn empty(&mut self, block: u32) {
        let first = block * self.config.block_pages;
        for physical in first..first + self.blocks[block as usize].written {
            let page = self.to_logical[physical as usize];
            if page != NONE {
                self.cost += self.config.read;
                self.program(page, Front::Cleaner, Why::Moved);
            }
        }
    }
}
