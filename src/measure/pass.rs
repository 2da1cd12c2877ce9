//! One pass of writing: where to, for how long, and what was seen.

use super::drive::{Drive, Fault};
use super::queue::Direction;
use super::stats::knee::{Knee, knees};
use super::stats::series::{Chunk, Recorder, bytes, speed};
use super::stats::steady::{Window, steady_tail};
use crate::plan::units::ByteRange;
use crate::plan::{Area, Spot};
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::IndexedRandom;
use serde::Serialize;
use std::ops::Range;
use std::time::Duration;

/// How a pass writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Load {
    /// Bytes of a write.
    pub size: u64,
    /// Writes in flight.
    pub depth: usize,
    /// Bytes of a chunk of the record.
    pub chunk: u64,
}

/// The part of the experiment that a pass is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Is there a cache?
    Probe,
    /// As the drive was found.
    Before,
    /// After a pause without a discard.
    Sham,
    /// After a discard and the same pause.
    Treatment,
    /// Once more after a longer pause, for drives that act late.
    Later,
    /// A step of a protocol from the field.
    Step,
}

impl Stage {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Before => "before",
            Self::Sham => "pause without TRIM",
            Self::Treatment => "after TRIM",
            Self::Later => "later after TRIM",
            Self::Step => "step",
        }
    }
}

/// Where a pass writes.
#[derive(Debug)]
pub enum Pattern<'a, 'p> {
    /// On from where the last pass ended, up to the end of the space.
    Sequential {
        /// The space.
        area: &'a Area<'p>,
        /// Where the next write begins.
        at: &'a mut u64,
    },
    /// The same from the start again and again, writing or reading.
    Looping {
        /// The space.
        area: &'a Area<'p>,
        /// Where the next transfer begins.
        at: &'a mut u64,
        /// Which way.
        direction: Direction,
    },
    /// Half reads, half writes, in four sizes, anywhere.
    Mixed {
        /// The space.
        area: &'a Area<'p>,
        /// The source of places, sizes and ways.
        random: &'a mut Xoshiro256PlusPlus,
    },
    /// Anywhere, with repetition: a permutation would be a gentler load.
    Scattered {
        /// The space.
        area: &'a Area<'p>,
        /// The source of places.
        random: &'a mut Xoshiro256PlusPlus,
    },
}

impl<'p> Pattern<'_, 'p> {
    fn next(&mut self, size: u64) -> Option<(Direction, Spot<'p>)> {
        match self {
            Self::Sequential { area, at } => Some((Direction::Write, follow(area, at, size)?)),
            Self::Looping { area, at, direction } => {
                let spot = follow(area, at, size).or_else(|| {
                    **at = 0;
                    follow(area, at, size)
                });
                Some((*direction, spot?))
            }
            Self::Mixed { area, random } => {
                let size = *SIZES.choose(*random)?;
                let direction = if random.random_bool(0.5) { Direction::Write } else { Direction::Read };
                Some((direction, anywhere(area, random, size.max(area.unit()))?))
            }
            Self::Scattered { area, random } => Some((Direction::Write, anywhere(area, random, size)?)),
        }
    }

    /// True where bytes follow one another.
    fn is_sequential(&self) -> bool {
        matches!(self, Self::Sequential { .. } | Self::Looping { .. })
    }
}

/// Sizes of a mixed load, each as often as the others.
const SIZES: [u64; 4] = [4 << 10, 64 << 10, 128 << 10, 1 << 20];

/// The next bytes.
fn follow<'p>(area: &Area<'p>, at: &mut u64, size: u64) -> Option<Spot<'p>> {
    let spot = area.spot(*at, size)?;
    *at = at.saturating_add(spot.range().len());
    Some(spot)
}

/// Bytes at a random multiple of the unit, or of `size` where that is larger.
fn anywhere<'p>(area: &Area<'p>, random: &mut Xoshiro256PlusPlus, size: u64) -> Option<Spot<'p>> {
    let step = size.max(area.unit());
    let steps = area.bytes().div_ceil(step);
    let place = (steps > 0).then(|| random.random_range(0..steps))?;
    area.spot(place.checked_mul(step)?, size)
}

/// What was seen of a pass.
#[derive(Debug, Clone, Serialize)]
pub struct Pass {
    /// Which one.
    pub stage: Stage,
    /// True for a sequential one.
    pub sequential: bool,
    /// Writes in flight.
    pub depth: usize,
    /// Bytes written.
    pub bytes: u64,
    /// Seconds until the last write was answered.
    pub seconds: f64,
    /// Seconds until the flush behind it was.
    pub seconds_flushed: f64,
    /// The record.
    pub chunks: Vec<Chunk>,
    /// Chunks at its start that never count.
    pub warm_up: usize,
    /// Falls of the speed for good, in a sequential pass.
    pub knees: Vec<Knee>,
    /// The chunks that count: those that were steady, else the second half.
    pub counted: Range<usize>,
    /// Whether they were steady.
    pub steady: bool,
    /// Whether the drive slowed itself down because of heat; none where it does not say.
    pub hot: Option<bool>,
    /// Some of the places that were written, one a write.
    #[serde(skip)]
    pub places: Vec<ByteRange>,
}

impl Pass {
    /// The chunks that count.
    pub fn counted(&self) -> &[Chunk] {
        self.chunks.get(self.counted.clone()).unwrap_or_default()
    }

    /// The end of a cache, in a sequential pass.
    pub fn cache(&self) -> Option<Knee> {
        cache(&self.chunks, &self.knees)
    }

    /// Bytes a second of the chunks that count.
    pub fn speed(&self) -> f64 {
        speed(self.counted())
    }

    /// The highest speed over a few chunks behind the warm-up, for comparison with what it fell to.
    pub fn best(&self) -> f64 {
        best(&self.chunks, self.warm_up)
    }
}

/// When a pass ends.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// [`BEHIND_KNEE`] chunks behind the end of a cache.
    Knee,
    /// Steady over five windows, with at least so many bytes; where a speed is given, only below it.
    Steady(u64, Option<f64>),
    /// So many bytes.
    Bytes(u64),
    /// So many seconds.
    Seconds(f64),
}

/// Slow chunks that must follow a knee.
pub const BEHIND_KNEE: usize = 30;

/// The first seconds of a pass fill the drive's RAM: they never count.
const WARM_UP: f64 = 2.0;
/// Nor do the first chunks.
const WARM_UP_CHUNKS: usize = 5;
/// Looking for knees after every chunk would be slow.
const LOOK_EVERY: usize = 8;
/// Places that are remembered, at most.
const PLACES: usize = 4096;

/// What a pass is to do.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    /// Which part of the experiment it is.
    pub stage: Stage,
    /// How to write.
    pub load: Load,
    /// When to end.
    pub until: Until,
    /// Most bytes to write.
    pub most: u64,
    /// Windows of the steady state.
    pub window: Window,
}

/// Writes one pass. `wrote` hears of every answer.
pub fn write(
    drive: &mut dyn Drive,
    mut pattern: Pattern<'_, '_>,
    order: &Order,
    wrote: &mut dyn FnMut(u64),
) -> Result<Pass, Fault> {
    let depth = drive.depth(order.load.depth);
    let slowdowns = drive.slowdowns();
    let start = drive.now();
    let mut recorder = Recorder::new(order.load.chunk, start);
    let (mut in_flight, mut submitted, mut answered) = (0_usize, 0_u64, 0_u64);
    let (mut places, mut last, mut ended) = (Vec::new(), start, false);
    loop {
        while !ended && in_flight < depth && submitted < order.most {
            let Some((direction, spot)) = pattern.next(order.load.size) else { break };
            match direction {
                Direction::Write => drive.submit(&spot)?,
                Direction::Read => drive.fetch(&spot)?,
            }
            in_flight = in_flight.saturating_add(1);
            submitted = submitted.saturating_add(spot.range().len());
            remember(&mut places, spot.range(), submitted / order.load.size);
        }
        if in_flight == 0 {
            break;
        }
        let answer = drive.complete()?;
        in_flight = in_flight.saturating_sub(1);
        answered = answered.saturating_add(answer.bytes);
        last = last.max(answer.at);
        wrote(answer.bytes);
        if recorder.answered(answer.bytes, answer.at) {
            ended = ended || is_enough(recorder.chunks(), answered, order);
        }
    }
    drive.flush()?;
    let flushed = drive.now();
    let hot = slowdowns.zip(drive.slowdowns()).map(|(before, after)| after > before);
    let seconds = |end: Duration| end.saturating_sub(start).as_secs_f64();
    let sequential = pattern.is_sequential();
    let chunks = recorder.into_chunks();
    let steady = steady(&chunks, order.window);
    Ok(Pass {
        warm_up: warm_up(&chunks, order.window),
        stage: order.stage,
        sequential,
        depth,
        bytes: answered,
        seconds: seconds(last),
        seconds_flushed: seconds(flushed),
        knees: if sequential { knees(&chunks) } else { Vec::new() },
        counted: steady.clone().unwrap_or(chunks.len() / 2..chunks.len()),
        steady: steady.is_some(),
        chunks,
        hot,
        places,
    })
}

/// Keeps some places, evenly over the pass: every one at first, then ever fewer.
fn remember(places: &mut Vec<ByteRange>, place: ByteRange, number: u64) {
    let full = u64::try_from(places.len() / PLACES).unwrap_or(u64::MAX);
    if number.is_multiple_of(full.saturating_add(1)) {
        places.push(place);
    }
}

fn is_enough(chunks: &[Chunk], answered: u64, order: &Order) -> bool {
    match order.until {
        Until::Bytes(bytes) => answered >= bytes,
        Until::Seconds(seconds) => chunks.iter().map(|chunk| chunk.seconds).sum::<f64>() >= seconds,
        Until::Steady(least, below) => {
            let is_low = |chunks: &[Chunk]| below.is_none_or(|below| speed(chunks) < below);
            let found = steady(chunks, order.window).and_then(|tail| chunks.get(tail));
            let has_fallen = |tail| best(chunks, warm_up(chunks, order.window)) > CLIFF * speed(tail);
            answered >= least && found.is_some_and(|tail| is_low(tail) || has_fallen(tail))
        }
        Until::Knee => {
            chunks.len().is_multiple_of(LOOK_EVERY)
                && cache(chunks, &knees(chunks)).is_some_and(|knee| {
                    let slow = chunks.iter().rev().take(BEHIND_KNEE).map(|chunk| chunk.bytes).sum::<u64>();
                    super::stats::real(bytes(chunks).saturating_sub(slow)) >= knee.bytes
                })
        }
    }
}

/// Chunks that a cache holds at least; what ends earlier is the RAM of the drive.
const LEAST: usize = WARM_UP_CHUNKS;
/// A cache whose end is no lower than this share of it is none.
const CACHE: f64 = 2.0 / 3.0;

/// The deepest fall, if it is the end of a cache. The RAM of the drive ends in a fall, too, and so does a stock of erased
/// blocks behind a cache; neither is as deep.
fn cache(chunks: &[Chunk], knees: &[Knee]) -> Option<Knee> {
    let least = super::stats::real(bytes(chunks.get(..LEAST)?));
    let deepest = knees.iter().min_by(|a, b| (a.after / a.before).total_cmp(&(b.after / b.before)))?;
    (deepest.bytes >= least && deepest.after <= CACHE * deepest.before).then_some(*deepest)
}

/// A speed that was so many times higher at first has fallen.
pub const CLIFF: f64 = 1.5;

/// The highest speed over a few chunks behind the first `warm_up`.
fn best(chunks: &[Chunk], warm_up: usize) -> f64 {
    chunks.get(warm_up..).unwrap_or_default().windows(WARM_UP_CHUNKS).map(speed).fold(0.0, f64::max)
}

/// Chunks that fill the RAM of the drive.
fn warm_up(chunks: &[Chunk], window: Window) -> usize {
    let mut seconds = 0.0;
    let warm = chunks.iter().position(|chunk| {
        seconds += chunk.seconds;
        seconds >= WARM_UP.min(window.seconds)
    });
    warm.unwrap_or(chunks.len()).max(WARM_UP_CHUNKS)
}

/// The steady end of a pass, unless that reaches into its warm-up.
fn steady(chunks: &[Chunk], window: Window) -> Option<Range<usize>> {
    steady_tail(chunks, window).filter(|tail| tail.start >= warm_up(chunks, window))
}
