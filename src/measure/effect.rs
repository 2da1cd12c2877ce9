//! What the passes say together.

use super::experiment::{Effect, Yardstick};
use super::pass::{BEHIND_KNEE, CLIFF, Pass};
use super::stats::knee::Knee;
use super::stats::ratio::{Ratio, ratio};
use super::stats::series::Chunk;
use super::stats::{median, real};

/// The passes of an experiment.
#[derive(Debug, Clone, Copy)]
pub struct Compared<'a> {
    /// Sequential, where the others are not.
    pub probe: Option<&'a Pass>,
    /// As the drive was found.
    pub before: &'a Pass,
    /// After a pause.
    pub sham: &'a Pass,
    /// After a discard and the same pause.
    pub after: &'a Pass,
}

/// What else is known of the drive.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// What the way to it can carry, bytes a second.
    pub ceiling: Option<f64>,
    /// Seconds of a small read, one at a time.
    pub read: Option<f64>,
}

/// What they say.
#[derive(Debug)]
pub struct Said {
    /// After the discard by after the pause.
    pub gain: Option<Ratio>,
    /// True when the gain is at least so much.
    pub at_least: bool,
    /// After the pause by before.
    pub by_itself: Option<Ratio>,
    /// What the discard did.
    pub effect: Effect,
    /// What else may have shaped the numbers.
    pub doubts: Vec<String>,
}

/// This near to what the cable carries, the cable is the limit.
const CEILING: f64 = 0.85;
/// A speed whose interval lies below this is lower.
const LOWER: f64 = 0.9;
/// A drive that got faster by more than this without a discard repaired itself.
const REPAIRED: f64 = 1.10;
/// From here on the speed behind a cache counts as changed.
const BEHIND: f64 = 1.3;

/// Two caches that differ by more are not the same one.
const SAME: f64 = 1.5;

/// True when two passes with only a pause between find the same cache, and the same speed behind it: where that rises,
/// the writing repairs the drive, which says that it is no cache that ends there.
pub fn is_repeatable(before: &Pass, sham: &Pass) -> bool {
    before.cache().zip(sham.cache()).is_some_and(|(before, sham)| {
        let ratio = sham.bytes / before.bytes;
        let repairs_itself = sham.after / sham.before > REPAIRED * before.after / before.before;
        ratio < SAME && ratio * SAME > 1.0 && !repairs_itself
    })
}

/// Compares the passes.
pub fn compare(yardstick: Yardstick, passes: &Compared<'_>, limits: Limits, seed: u64) -> Said {
    let mut said = match yardstick {
        Yardstick::FastBytes => fast_bytes(passes, seed),
        Yardstick::Scattered => scattered(passes, limits.read, seed),
    };
    said.doubts = doubts(passes, limits.ceiling);
    let hot = [passes.sham, passes.after].iter().any(|pass| pass.hot == Some(true));
    // A speed that something else holds down cannot show that nothing came back; one that heat moves shows nothing.
    let held = !said.doubts.is_empty() && !said.effect.is_gain();
    if hot || held {
        said.effect = Effect::NotMeasurable;
    }
    said
}

fn doubts(passes: &Compared<'_>, ceiling: Option<f64>) -> Vec<String> {
    let Compared { probe, before, sham, after } = *passes;
    let all = || probe.into_iter().chain([before, sham, after]);
    let mut doubts = Vec::new();
    if let Some(ceiling) = ceiling
        && before.best().max(probe.map_or(0.0, Pass::best)) > CEILING * ceiling
        && sham.speed() > CEILING * ceiling
    {
        doubts.push("the cable is the limit: the drive may be faster than what can be measured through it".to_owned());
    }
    if all().any(|pass| pass.hot == Some(true)) {
        doubts.push("the drive slowed itself down because of heat".to_owned());
    }
    if [before, after].iter().any(|pass| pass.depth != sham.depth && pass.sequential == sham.sequential) {
        doubts.push("the passes had different numbers of writes in flight".to_owned());
    }
    doubts
}

fn nothing(effect: Effect) -> Said {
    Said { gain: None, at_least: false, by_itself: None, effect, doubts: Vec::new() }
}

fn scattered(passes: &Compared<'_>, read: Option<f64>, seed: u64) -> Said {
    let Compared { before, sham, after, .. } = *passes;
    let (Some(gain), Some(by_itself)) =
        (ratio(after.counted(), sham.counted(), seed), ratio(sham.counted(), before.counted(), seed))
    else {
        return nothing(Effect::NotMeasurable);
    };
    let effect = match () {
        () if !sham.steady => Effect::NotMeasurable,
        () if is_gain(gain, by_itself, Yardstick::Scattered.threshold()) => gain_or_part(by_itself),
        () if gain.high < LOWER => Effect::Slower,
        () if by_itself.low > REPAIRED => Effect::SelfRepair,
        () if !was_down(passes, read) => Effect::NothingToGain,
        () => Effect::NoEffect,
    };
    Said { gain: Some(gain), by_itself: Some(by_itself), effect, ..nothing(effect) }
}

/// True when the drive was slower than it can be: it had fallen, or the sequential probe was much faster, or a write of
/// many in flight took longer than several reads one at a time, which no healthy drive does.
fn was_down(passes: &Compared<'_>, read: Option<f64>) -> bool {
    let Compared { probe, before, .. } = *passes;
    let seconds = SMALL / before.speed();
    before.best() > CLIFF * before.speed()
        || probe.is_some_and(|probe| probe.best() > 2.0 * before.speed())
        || read.is_some_and(|read| seconds > WRITE_BY_READ * read)
}

/// Bytes of a scattered write.
const SMALL: f64 = 4096.0;
/// A write that takes so many times a read is slow.
const WRITE_BY_READ: f64 = 3.0;

/// A gain is beyond the threshold, and beyond what the drive did by itself.
fn is_gain(gain: Ratio, by_itself: Ratio, threshold: f64) -> bool {
    gain.low > threshold && gain.low > by_itself.high
}

fn gain_or_part(by_itself: Ratio) -> Effect {
    if by_itself.low > REPAIRED { Effect::PartGain } else { Effect::Gain }
}

fn fast_bytes(passes: &Compared<'_>, seed: u64) -> Said {
    let Compared { before, sham, after, .. } = *passes;
    let (Some(knee_before), Some(knee_sham)) = (before.cache(), sham.cache()) else {
        return nothing(Effect::NotMeasurable);
    };
    let by_itself = by_knees(&knee_sham, &knee_before);
    let (gain, at_least) = match after.cache() {
        Some(knee) => (by_knees(&knee, &knee_sham), false),
        None => (at_least(real(after.bytes), &knee_sham), true),
    };
    let gained = is_gain(gain, by_itself, Yardstick::FastBytes.threshold()) && is_fast_behind(after, &knee_sham);
    let behind = behind(after).zip(behind(sham)).and_then(|(after, sham)| ratio(after, sham, seed));
    let effect = match () {
        () if gained => gain_or_part(by_itself),
        () if at_least => Effect::NotMeasurable,
        () if gain.high < LOWER => Effect::Slower,
        () if by_itself.low > REPAIRED => Effect::SelfRepair,
        // Sequential writing repairs the flash behind a cache by itself, so that this proves nothing either way.
        () if behind.is_some_and(|behind| behind.low > BEHIND) => Effect::SelfRepair,
        () => Effect::NoEffect,
    };
    // A lower bound that proved nothing is no number to print.
    let gain = (gained || !at_least).then_some(gain);
    Said { gain, at_least: at_least && gained, by_itself: Some(by_itself), effect, doubts: Vec::new() }
}

/// Fewer chunks behind a cache say nothing about the speed there.
const ENOUGH: usize = 20;

/// The chunks behind the cache.
fn behind(pass: &Pass) -> Option<&[Chunk]> {
    let knee = pass.cache()?;
    let mut bytes = 0_u64;
    let first = pass.chunks.iter().position(|chunk| {
        bytes = bytes.saturating_add(chunk.bytes);
        real(bytes) > knee.bytes + knee.uncertainty
    })?;
    pass.chunks.get(first..).filter(|chunks| chunks.len() >= ENOUGH)
}

/// True when a pass was as fast behind the place where another one had its knee as before it, up to its own knee. One
/// that falls there and recovers is being repaired by the writing itself.
fn is_fast_behind(pass: &Pass, other: &Knee) -> bool {
    let own = pass.cache();
    let end = own.map_or(f64::INFINITY, |knee| knee.bytes);
    let (mut before, mut behind, mut at) = (Vec::new(), Vec::new(), 0.0);
    for (number, chunk) in pass.chunks.iter().enumerate() {
        at += real(chunk.bytes);
        if at > other.bytes + other.uncertainty && at <= end {
            behind.push(*chunk);
        } else if number >= RAM && at < other.bytes {
            before.push(*chunk);
        }
    }
    let typical = |part: &[Chunk]| median(&mut part.iter().map(Chunk::speed).collect::<Vec<_>>());
    let level = ABOUT * typical(&before);
    let begins_fast = typical(&before) > BEGINS * other.before;
    let enough = if own.is_some() { 1 } else { BEHIND_KNEE };
    begins_fast && behind.len() >= enough && behind.windows(DIP.min(behind.len())).all(|part| typical(part) >= level)
}

/// Chunks that go into the RAM of the drive.
const RAM: usize = 2;
/// A pass that begins with less than this share of another one's speed is not the same drive in the same state.
const BEGINS: f64 = 0.75;
/// A speed that is no lower than this share of another one is about the same.
const ABOUT: f64 = 0.92;
/// So many chunks that are slower are a dip; fewer are a stall.
const DIP: usize = 16;

fn by_knees(over: &Knee, under: &Knee) -> Ratio {
    let least = |knee: &Knee| (knee.bytes - knee.uncertainty).max(1.0);
    let most = |knee: &Knee| knee.bytes + knee.uncertainty;
    Ratio {
        value: over.bytes.max(1.0) / under.bytes.max(1.0),
        low: least(over) / most(under),
        high: most(over) / least(under),
    }
}

fn at_least(bytes: f64, under: &Knee) -> Ratio {
    let value = bytes / under.bytes.max(1.0);
    Ratio { value, low: bytes / (under.bytes + under.uncertainty), high: f64::INFINITY }
}
