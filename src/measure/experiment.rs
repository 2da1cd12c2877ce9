//! Before, Sham, Treatment.

use super::drive::{Drive, Fault};
use super::effect::{Compared, Limits, compare, is_repeatable};
use super::latency::{self, Latency};
use super::pass::{Load, Order, Pass, Pattern, Stage, Until, write};
use super::rest::{rest, some};
use super::stats::knee::Knee;
use super::stats::ratio::Ratio;
use super::stats::settle::Patience;
use super::stats::steady::Window;
use crate::plan::Area;
use crate::plan::units::ByteRange;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use serde::Serialize;
use std::time::Duration;

/// How large everything is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Design {
    /// Most bytes to write, all passes together.
    pub budget: u64,
    /// Sequential passes.
    pub sequential: Load,
    /// Scattered passes.
    pub scattered: Load,
    /// Windows of the steady state.
    pub window: Window,
    /// Pauses.
    pub patience: Patience,
    /// The longer pause of [`Stage::Later`], seconds.
    pub later: f64,
    /// Reads of each kind in a comparison of latencies.
    pub reads: usize,
    /// Where random numbers begin: the same seed writes to the same places.
    pub seed: u64,
}

/// Where the experiment may write and read.
#[derive(Debug)]
pub struct Ground<'p> {
    /// Free space in large pieces, for sequential passes.
    pub zone: Area<'p>,
    /// All free space in small pieces, for scattered ones.
    pub slots: Area<'p>,
    /// Places that hold data, to be read only.
    pub used: Vec<ByteRange>,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Yardstick {
    /// Bytes that can be written fast, sequentially, before the speed falls.
    FastBytes,
    /// Throughput of small writes scattered over all free space.
    Scattered,
}

impl Yardstick {
    /// A ratio counts as an effect from here on.
    pub(super) fn threshold(self) -> f64 {
        match self {
            Self::FastBytes => 1.5,
            Self::Scattered => 1.10,
        }
    }
}

/// What the discard did to the speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It came back.
    Gain,
    /// A part of it came back, another part had come back before by itself.
    PartGain,
    /// The drive repaired itself before the discard; that shows nothing.
    SelfRepair,
    /// The speed was never down, so nothing could come back.
    NothingToGain,
    /// It was down and stayed down.
    NoEffect,
    /// It was lower after the discard.
    Slower,
    /// The passes do not say.
    NotMeasurable,
}

impl Effect {
    /// True when speed came back.
    pub fn is_gain(self) -> bool {
        matches!(self, Self::Gain | Self::PartGain)
    }
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Findings {
    /// What was measured.
    pub yardstick: Yardstick,
    /// Every pass, in order.
    pub passes: Vec<Pass>,
    /// Length of the pause before Sham, seconds.
    pub pause: f64,
    /// Of the one before Treatment; as long, or longer where the drive was not at rest.
    pub pause_after: f64,
    /// Treatment by Sham; none where one of them could not be measured.
    pub gain: Option<Ratio>,
    /// True when the gain is at least so much: the speed never fell within the bytes that were written.
    pub at_least: bool,
    /// Sham by Before.
    pub by_itself: Option<Ratio>,
    /// Reads before and after the discard.
    pub latency: Option<Latency>,
    /// What the discard did.
    pub effect: Effect,
    /// What else may have shaped the numbers, a sentence each.
    pub doubts: Vec<String>,
    /// Bytes written, all passes together.
    pub written: u64,
}

impl Findings {
    /// The pass of a stage; the last one when there are several.
    pub fn pass(&self, stage: Stage) -> Option<&Pass> {
        self.passes.iter().rev().find(|pass| pass.stage == stage)
    }
}

/// What hears how far it is.
pub trait Observer {
    /// A pass begins, in which at most so many bytes are written.
    fn begins(&mut self, what: &str, most: u64);
    /// So many bytes more were written.
    fn wrote(&mut self, bytes: u64);
    /// The drive rests; at most so many seconds.
    fn rests(&mut self, most: f64);
}

/// Emptying a cache takes a little longer than its bytes at the speed behind it.
const FOLDING: f64 = 1.3;

/// Runs the experiment. Everything free is discarded at the end, whatever was measured; after a fault that is for the
/// caller to do. `works` says that the discard is known to have an effect, so that no effect on the speed means that the
/// drive may need longer.
pub fn run(
    drive: &mut dyn Drive,
    ground: &Ground<'_>,
    design: &Design,
    works: bool,
    observer: &mut dyn Observer,
) -> Result<Findings, Fault> {
    let random = Xoshiro256PlusPlus::seed_from_u64(design.seed);
    let mut bench = Bench { drive, ground, design, observer, random, cursor: 0, written: 0 };
    let findings = bench.experiment(works)?;
    bench.drive.discard()?;
    Ok(findings)
}

/// The passes before the discard.
struct Controlled {
    yardstick: Yardstick,
    probes: Vec<Pass>,
    before: Pass,
    sham: Pass,
    /// Length of the pause between the two, seconds.
    pause: f64,
}

struct Bench<'a, 'p> {
    drive: &'a mut dyn Drive,
    ground: &'a Ground<'p>,
    design: &'a Design,
    observer: &'a mut dyn Observer,
    random: Xoshiro256PlusPlus,
    /// Where the next sequential pass goes on.
    cursor: u64,
    written: u64,
}

impl Bench<'_, '_> {
    fn experiment(&mut self, works: bool) -> Result<Findings, Fault> {
        self.settle(self.design.patience)?;
        let Controlled { yardstick, probes, before, sham, pause } = self.controlled()?;
        let (early, late) = self.places(&sham);
        let used = self.some_used(self.design.reads);
        let reads_before = latency::round(self.drive, &early, &used)?;
        self.drive.discard()?;
        let pause_after = self.settle(self.as_long_as(pause))?;
        let used = self.some_used(self.design.reads);
        let reads_after = latency::round(self.drive, &late, &used)?;
        let latency = latency::compare(&reads_before, &reads_after);
        let treatment = self.treatment(Stage::Treatment, yardstick, &sham)?;
        let limits = Limits { ceiling: self.drive.ceiling(), read: reads_before.typical() };
        let seed = self.design.seed;
        let compared = |after: &Pass| {
            compare(yardstick, &Compared { probe: probes.first(), before: &before, sham: &sham, after }, limits, seed)
        };
        let mut found = compared(&treatment);
        let is_known = works || latency.is_some_and(|latency| latency.effect);
        let later = self.later(is_known && !found.effect.is_gain(), yardstick, &sham)?;
        if let Some(again) = later.as_ref().map(compared).filter(|again| again.effect.is_gain()) {
            found = again;
            found
                .doubts
                .push(format!("the speed came back only {:.0} s after the discard and its pause", self.design.later));
        }
        Ok(Findings {
            yardstick,
            passes: probes.into_iter().chain([before, sham, treatment]).chain(later).collect(),
            pause,
            pause_after,
            gain: found.gain,
            at_least: found.at_least,
            by_itself: found.by_itself,
            latency,
            effect: found.effect,
            doubts: found.doubts,
            written: self.written,
        })
    }

    /// Chooses the yardstick, and measures with it before and after a pause. Fast bytes are one only where a pause alone
    /// does not change them: the end of a cache is a property of the drive, a stock of erased blocks is not.
    fn controlled(&mut self) -> Result<Controlled, Fault> {
        let probe = self.sequential(Stage::Probe, Until::Knee, (self.design.budget / 5).min(self.fresh() / 3))?;
        let mut probes = Vec::new();
        if let Some(knee) = probe.cache() {
            let pause = self.rest_without_discard(Some(knee))?;
            let most = (probe.bytes / 2 * 3).min(self.left() / 3).min(self.fresh() / 2);
            let sham = self.sequential(Stage::Sham, Until::Knee, most)?;
            if is_repeatable(&probe, &sham) {
                let before = Pass { stage: Stage::Before, ..probe };
                return Ok(Controlled { yardstick: Yardstick::FastBytes, probes, before, sham, pause });
            }
            probes.extend([probe, Pass { stage: Stage::Probe, ..sham }]);
        } else {
            probes.push(probe);
        }
        let best = probes.iter().map(Pass::best).fold(0.0, f64::max);
        // A speed that has not fallen yet is no state to compare with.
        let before = self.scattered(Stage::Before, Until::Steady(0, Some(best / 2.0)), self.left() / 2)?;
        let pause = self.rest_without_discard(None)?;
        // As far as the pass before, which had its fast start behind it then.
        let counted = before.chunks.get(..before.counted.end).unwrap_or_default();
        let (least, most) = (super::stats::series::bytes(counted), self.left() / 2);
        let sham = self.scattered(Stage::Sham, Until::Steady(least.min(most), None), most)?;
        Ok(Controlled { yardstick: Yardstick::Scattered, probes, before, sham, pause })
    }

    /// The pause of the control; its seconds.
    fn rest_without_discard(&mut self, knee: Option<Knee>) -> Result<f64, Fault> {
        self.drive.sham()?;
        self.settle(self.patience_for(knee))
    }

    fn treatment(&mut self, stage: Stage, yardstick: Yardstick, sham: &Pass) -> Result<Pass, Fault> {
        let most = self.left();
        match yardstick {
            Yardstick::FastBytes => self.sequential(stage, Until::Knee, most.min(self.fresh())),
            Yardstick::Scattered => {
                let pass = self.scattered(stage, Until::Bytes(sham.bytes), sham.bytes.min(most))?;
                // The same bytes of both count.
                let end = sham.counted.end.min(pass.chunks.len());
                Ok(Pass { counted: sham.counted.start.min(end)..end, ..pass })
            }
        }
    }

    /// Some drives carry a discard out much later: once more, where it is known to have an effect and the speed shows none.
    fn later(&mut self, wanted: bool, yardstick: Yardstick, sham: &Pass) -> Result<Option<Pass>, Fault> {
        if !wanted || yardstick == Yardstick::FastBytes && self.fresh() < sham.bytes || self.left() < sham.bytes {
            return Ok(None);
        }
        self.drive.discard()?;
        self.observer.rests(self.design.later);
        self.drive.wait(Duration::from_secs_f64(self.design.later))?;
        self.treatment(Stage::Later, yardstick, sham).map(Some)
    }

    fn sequential(&mut self, stage: Stage, until: Until, most: u64) -> Result<Pass, Fault> {
        let order = Order { stage, load: self.design.sequential, until, most, window: self.design.window };
        let pattern = Pattern::Sequential { area: &self.ground.zone, at: &mut self.cursor };
        self.observer.begins(stage.words(), most);
        let pass = write(self.drive, pattern, &order, &mut |bytes| self.observer.wrote(bytes))?;
        self.written = self.written.saturating_add(pass.bytes);
        Ok(pass)
    }

    fn scattered(&mut self, stage: Stage, until: Until, most: u64) -> Result<Pass, Fault> {
        let order = Order { stage, load: self.design.scattered, until, most, window: self.design.window };
        let pattern = Pattern::Scattered { area: &self.ground.slots, random: &mut self.random };
        self.observer.begins(stage.words(), most);
        let pass = write(self.drive, pattern, &order, &mut |bytes| self.observer.wrote(bytes))?;
        self.written = self.written.saturating_add(pass.bytes);
        Ok(pass)
    }

    /// Bytes of the zone that no sequential pass has written yet. What was written in one go is fast to write again,
    /// with TRIM or without, so no pass goes over the same place twice.
    fn fresh(&self) -> u64 {
        self.ground.zone.bytes().saturating_sub(self.cursor)
    }

    /// Bytes that may still be written.
    fn left(&self) -> u64 {
        self.design.budget.saturating_sub(self.written)
    }

    /// A pause in which a full cache can be emptied.
    fn patience_for(&self, knee: Option<Knee>) -> Patience {
        let patience = self.design.patience;
        let folding = knee.map_or(0.0, |knee| FOLDING * knee.bytes / knee.after);
        Patience { least: patience.least.max(folding).min(patience.most), ..patience }
    }

    /// A pause that is at least as long as another one was.
    fn as_long_as(&self, pause: f64) -> Patience {
        let patience = self.design.patience;
        Patience { least: pause, most: pause.max(patience.most), quiet: patience.quiet }
    }

    /// Rests until the drive has finished what it does by itself; seconds.
    fn settle(&mut self, patience: Patience) -> Result<f64, Fault> {
        self.observer.rests(patience.most);
        rest(self.drive, patience, &self.ground.used, &mut self.random)
    }

    /// A few used places at random.
    fn some_used(&mut self, count: usize) -> Vec<ByteRange> {
        some(&self.ground.used, count, &mut self.random)
    }

    /// Two lists of places that a pass wrote, none in both.
    fn places(&mut self, pass: &Pass) -> (Vec<ByteRange>, Vec<ByteRange>) {
        let mut places = pass.places.clone();
        places.sort_unstable();
        places.dedup();
        places.shuffle(&mut self.random);
        let half = (places.len() / 2).min(self.design.reads);
        let late = places.split_off(half);
        (places, late.into_iter().take(half).collect())
    }
}
