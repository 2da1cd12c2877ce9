//! A real drive: transfers around the page cache with the queue kept full, the world's clock, and a route by which planned
//! space is discarded.

use super::drive::{Answer, Drive, Fault};
use super::queue::{self, Direction, MOST_SLOTS, Queue, Request, stamp};
use super::stats::count;
use crate::plan::units::ByteRange;
use crate::plan::{Area, Plan, Spot};
use crate::run::{Stop, Watcher, execute};
use crate::transport::{ErrorKind, Transport};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is known of the way to a drive.
#[derive(Debug, Clone, Copy, Default)]
pub struct Way {
    /// The most transfers that it takes at once; none where it does not say.
    pub depth: Option<usize>,
    /// The most bytes a second that it carries; none where that is not known.
    pub ceiling: Option<f64>,
}

/// What was sent to a drive and written to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Sent {
    /// Bytes of test data.
    pub written: u64,
    /// Bytes of all discard commands that were taken.
    pub discarded: u64,
    /// Number of them.
    pub commands: u64,
}

/// Bytes of a slot.
const SLOT: usize = 1 << 20;
/// Parts of a slot that are written in turn, so that blocks differ in more than their signatures from those before.
const PARTS: usize = 4;
/// How often it is asked whether somebody wants the drive.
const LOOK: Duration = Duration::from_secs(1);
/// Sleeping is done in pieces, so that an interrupt ends it.
const NAP: Duration = Duration::from_millis(100);

/// A drive that is claimed.
pub struct Engine<'a> {
    queue: Box<dyn Queue>,
    /// Slots that may be used. The last one is taken first: its memory is the most likely to be near.
    idle: Vec<usize>,
    /// Where the next part of each slot begins.
    next: Vec<usize>,
    file: &'a File,
    transport: &'a mut dyn Transport,
    plans: Vec<&'a Plan>,
    watcher: &'a mut dyn Watcher,
    stop: &'a AtomicBool,
    way: Way,
    start: Instant,
    looked: Instant,
    run: u64,
    number: u64,
    sent: Sent,
}

impl<'a> Engine<'a> {
    /// A drive behind `file`, which is open around the page cache where that can be. `plans` are all that may be
    /// written to and all that is discarded; `run` is a number that no other run used.
    pub fn new(
        file: &'a File,
        transport: &'a mut dyn Transport,
        plans: Vec<&'a Plan>,
        watcher: &'a mut dyn Watcher,
        stop: &'a AtomicBool,
        way: Way,
        run: u64,
    ) -> io::Result<Self> {
        let slots = way.depth.unwrap_or(MOST_SLOTS).clamp(1, MOST_SLOTS);
        let mut queue = queue::open(file, slots, SLOT)?;
        for slot in 0..slots {
            if let Some(memory) = queue.memory(slot) {
                stamp::fill(memory, run.wrapping_add(count(slot)));
            }
        }
        let now = Instant::now();
        Ok(Self {
            queue,
            idle: (0..slots).collect(),
            next: vec![0; slots],
            file,
            transport,
            plans,
            watcher,
            stop,
            way,
            start: now,
            looked: now,
            run,
            number: 0,
            sent: Sent::default(),
        })
    }

    /// How transfers are kept in flight.
    pub fn queue(&self) -> &'static str {
        self.queue.name()
    }

    /// What was done so far.
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// Takes back what was written: waits for what is in flight and discards all planned space, whatever the interrupt
    /// flag says.
    pub fn clean(&mut self) -> Result<(), Fault> {
        while self.queue.in_flight() > 0 {
            // A transfer that failed left nothing to take back.
            if let Ok(done) = self.queue.complete() {
                self.idle.push(done.slot);
            }
        }
        self.discard_until(&AtomicBool::new(false))
    }

    fn discard_until(&mut self, stop: &AtomicBool) -> Result<(), Fault> {
        for plan in self.plans.clone() {
            self.send(plan, stop)?;
        }
        self.flush_discards()
    }

    fn send(&mut self, plan: &Plan, stop: &AtomicBool) -> Result<(), Fault> {
        let outcome = execute(plan, self.transport, self.watcher, stop, None);
        self.sent.discarded = self.sent.discarded.saturating_add(outcome.bytes);
        self.sent.commands = self.sent.commands.saturating_add(outcome.commands);
        match outcome.stop {
            Stop::Finished => Ok(()),
            Stop::Interrupted => Err(Fault::Stopped),
            Stop::Objected(why) => Err(Fault::Objected(why)),
            Stop::Failed(error) => Err(Fault::Failed(format!("{}; next: {}", error.with_causes(), error.advice()))),
        }
    }

    fn flush_discards(&mut self) -> Result<(), Fault> {
        match self.transport.flush() {
            // A device without a cache has nothing to flush.
            Err(error) if error.kind() != ErrorKind::Rejected => Err(Fault::Failed(error.with_causes())),
            _ => Ok(()),
        }
    }

    /// Nobody has interrupted, and now and then: nobody wants the drive.
    fn look(&mut self) -> Result<(), Fault> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Fault::Stopped);
        }
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            if let Some(why) = self.watcher.objection() {
                return Err(Fault::Objected(why));
            }
        }
        Ok(())
    }

    /// The slot for the next transfer and where in it there is room for `length` bytes.
    fn room(&mut self, length: usize) -> Result<(usize, usize), Fault> {
        let slot = self.idle.pop().ok_or_else(|| Fault::Failed("more transfers than the queue holds".to_owned()))?;
        let next = self.next.get_mut(slot).map_or(0, |next| {
            let end = length.saturating_mul(PARTS).min(SLOT);
            let from = if next.saturating_add(length) <= end { *next } else { 0 };
            *next = from.saturating_add(length).next_multiple_of(stamp::BLOCK);
            from
        });
        Ok((slot, next))
    }

    fn write(&mut self, place: ByteRange) -> Result<(), Fault> {
        let length = usize::try_from(place.len()).unwrap_or(usize::MAX);
        let (slot, from) = self.room(length)?;
        let part = self.queue.memory(slot).and_then(|memory| memory.get_mut(from..from.checked_add(length)?));
        let part = part.ok_or_else(|| Fault::Failed(format!("a write of {length} bytes is too large")))?;
        stamp::sign(part, place.start(), self.run, &mut self.number);
        let request = Request { direction: Direction::Write, slot, from, length, at: place.start() };
        self.watcher.wrote(place.len());
        self.queue.submit(&request).map_err(|error| failed("write", &error))?;
        self.sent.written = self.sent.written.saturating_add(place.len());
        Ok(())
    }

    fn begin_read(&mut self, place: ByteRange) -> Result<Request, Fault> {
        let length = usize::try_from(place.len()).unwrap_or(usize::MAX);
        let (slot, from) = self.room(length)?;
        let request = Request { direction: Direction::Read, slot, from, length, at: place.start() };
        self.queue.submit(&request).map_err(|error| failed("read", &error))?;
        Ok(request)
    }

    fn answered(&mut self) -> Result<Answer, Fault> {
        let done = self.queue.complete().map_err(|error| failed("write or read", &error))?;
        self.idle.push(done.slot);
        Ok(Answer { bytes: count(done.length), at: done.at.saturating_duration_since(self.start) })
    }
}

fn failed(what: &str, error: &io::Error) -> Fault {
    Fault::Failed(format!("cannot {what}: {error}"))
}

impl Drive for Engine<'_> {
    fn now(&mut self) -> Duration {
        self.start.elapsed()
    }

    fn depth(&self, wanted: usize) -> usize {
        wanted.clamp(1, self.next.len())
    }

    fn submit(&mut self, spot: &Spot<'_>) -> Result<(), Fault> {
        self.look()?;
        self.write(spot.range())
    }

    fn fetch(&mut self, spot: &Spot<'_>) -> Result<(), Fault> {
        self.look()?;
        self.begin_read(spot.range()).map(|_| ())
    }

    fn complete(&mut self) -> Result<Answer, Fault> {
        self.answered()
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.file.sync_data().map_err(|error| failed("flush", &error))
    }

    fn read(&mut self, place: ByteRange) -> Result<Duration, Fault> {
        let begin = Instant::now();
        let Request { slot, from, length, .. } = self.begin_read(place)?;
        self.answered()?;
        let took = begin.elapsed();
        // What was read is known to the drive: it must not be written as new.
        if let Some(part) = self.queue.memory(slot).and_then(|memory| memory.get_mut(from..from.checked_add(length)?)) {
            self.number = self.number.wrapping_add(1);
            stamp::fill(part, self.run ^ self.number);
        }
        Ok(took)
    }

    fn wait(&mut self, time: Duration) -> Result<(), Fault> {
        let until = Instant::now() + time;
        loop {
            self.look()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(NAP));
        }
    }

    fn sham(&mut self) -> Result<(), Fault> {
        let first = self.plans.iter().find_map(|plan| plan.extents().first().copied());
        let commands: usize = self.plans.iter().map(|plan| plan.batches().count()).sum();
        let block = first.and_then(|first| ByteRange::with_len(first.start(), first.len().min(count(stamp::BLOCK))));
        for _ in 0..commands {
            self.look()?;
            block.map_or(Ok(Duration::ZERO), |block| self.read(block))?;
        }
        Ok(())
    }

    fn discard(&mut self) -> Result<(), Fault> {
        self.discard_until(self.stop)
    }

    fn discard_part(&mut self, area: &Area<'_>) -> Result<(), Fault> {
        for plan in self.plans.clone() {
            if let Some(part) = area.plan_within(plan) {
                self.send(&part, self.stop)?;
            }
        }
        self.flush_discards()
    }

    fn ceiling(&self) -> Option<f64> {
        self.way.ceiling
    }

    fn slowdowns(&mut self) -> Option<u64> {
        None
    }
}
