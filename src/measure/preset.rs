//! Protocols from the field, in the free space of a volume: the passes that an article made, in its order, with sizes as
//! shares of a zone, so that their ratios stay when drive and budget are smaller. Their curves can be laid beside the
//! published ones. What they lack, mostly, is a control for what a pause and the writing itself do to a drive: they say what
//! happened, and prove nothing about TRIM. [`run`](super::experiment::run) is for that.

use super::drive::{Drive, Fault};
use super::experiment::{Design, Ground, Observer};
use super::pass::{Order, Pass, Pattern, Stage, Until, write};
use super::queue::Direction;
use super::rest::rest;
use super::stats::{real, whole};
use crate::plan::Area;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use serde::Serialize;

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Action {
    /// Sequential writes over the zone, again and again.
    Write(f64),
    /// Sequential writes that go on where the last such step ended, up to the end of the zone.
    File(f64),
    /// Sequential reads over the zone, again and again.
    Read(f64),
    /// Small writes all over the zone.
    Scatter(f64),
    /// Small writes all over the zone until they are steady.
    Steady(f64),
    /// Half reads, half writes of four sizes.
    Mix(f64),
    /// Sequential writes of the other zone.
    Other,
    /// A pause, with as many harmless commands as a discard would take.
    Sham,
    /// A discard of all free space, and a pause.
    Discard,
    /// A discard of the other zone, and a pause.
    DiscardOther,
}

impl Action {
    /// Bytes that it transfers at most, in zones.
    fn zones(self) -> f64 {
        match self {
            Self::Write(zones)
            | Self::File(zones)
            | Self::Read(zones)
            | Self::Scatter(zones)
            | Self::Steady(zones)
            | Self::Mix(zones) => zones,
            Self::Other => OTHER,
            Self::Sham | Self::Discard | Self::DiscardOther => 0.0,
        }
    }

    /// True for what wears the drive out.
    fn writes(self) -> bool {
        !matches!(self, Self::Read(_))
    }

    /// What is done, for people.
    fn what(self) -> &'static str {
        match self {
            Self::Read(_) => "sequential reads",
            Self::Scatter(_) | Self::Steady(_) => "scattered writes",
            Self::Mix(_) => "mixed reads and writes",
            _ => "sequential writes",
        }
    }
}

/// A step and what its curve is called.
type Step = (&'static str, Action);

/// The other zone of hardware.fr, as a share of the zone.
const OTHER: f64 = 1.0 / 3.0;

/// A protocol.
#[derive(Debug)]
pub struct Preset {
    /// As in `--preset`.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Where it comes from and what was left out of it.
    pub note: &'static str,
    steps: &'static [Step],
}

use Action::{Discard, DiscardOther, File, Mix, Other, Read, Scatter, Sham, Steady, Write};

/// All of them.
pub static PRESETS: &[Preset] = &[
    Preset {
        name: "vertex",
        about: "sequential passes after random writes, before and after TRIM",
        note: "after an article on the OCZ Vertex (cases 2 and 3), in free space and without its secure erase",
        steps: &[
            ("as found", Write(1.0)),
            ("random writes", Scatter(1.0)),
            ("read 1", Read(1.0)),
            ("write 1", Write(1.0)),
            ("read 2", Read(1.0)),
            ("write 2", Write(1.0)),
            ("read 3", Read(1.0)),
            ("write 3", Write(1.0)),
            ("TRIM", Discard),
            ("read after TRIM", Read(1.0)),
            ("write after TRIM", Write(1.0)),
            ("TRIM", Discard),
            ("random 1", Scatter(0.25)),
            ("random 2", Scatter(0.25)),
            ("random 3", Scatter(0.25)),
            ("random 4", Scatter(0.25)),
            ("random 5", Scatter(0.25)),
            ("random 6", Scatter(0.25)),
        ],
    },
    Preset {
        name: "hardwarefr",
        about: "sequential and random loops on one zone, before and after TRIM of another one",
        note: "after hardware.fr's comparison of 37 drives, its steps 2 to 5 and 9 to 11, in free space: the drive is not \
               filled and not erased, and a pause without TRIM is added",
        steps: &[
            ("other zone", Other),
            ("random writes", Scatter(1.0)),
            ("after random", Write(1.7)),
            ("pause", Sham),
            ("after a pause", Write(1.7)),
            ("TRIM of the other zone", DiscardOther),
            ("after TRIM", Write(1.7)),
            ("other zone again", Other),
            ("random after sequential", Scatter(1.0)),
            ("pause", Sham),
            ("random after a pause", Scatter(1.0)),
            ("TRIM of the other zone", DiscardOther),
            ("random after TRIM", Scatter(1.0)),
        ],
    },
    Preset {
        name: "continutest",
        about: "half reads, half writes of 4 KiB to 1 MiB, 32 at once, before and after TRIM",
        note: "after Hardware.info's continuous test, in free space",
        steps: &[
            ("fill", Write(1.0)),
            ("before", Mix(3.0)),
            ("pause", Sham),
            ("after a pause", Mix(3.0)),
            ("TRIM", Discard),
            ("fill after TRIM", Write(1.0)),
            ("after TRIM", Mix(3.0)),
        ],
    },
    Preset {
        name: "slc-cache",
        about: "large files one after the other, each up to the end of the cache and beyond, before and after TRIM",
        note: "after journaldulapin's test of a Crucial P1, in free space",
        steps: &[
            ("file 1", File(0.2)),
            ("pause", Sham),
            ("file 2", File(0.2)),
            ("pause", Sham),
            ("file 3", File(0.2)),
            ("pause", Sham),
            ("file 4", File(0.2)),
            ("pause", Sham),
            ("file 5", File(0.2)),
            ("pause", Sham),
            ("deleted, not trimmed", File(0.2)),
            ("TRIM", Discard),
            ("after TRIM", File(0.4)),
        ],
    },
    Preset {
        name: "snia-wsat",
        about: "random writes from a discarded drive on until they are steady",
        note: "after SNIA's write saturation test, in free space: a discard of it takes the place of the purge, and the zone \
               is written once before",
        steps: &[("TRIM", Discard), ("fill", Write(1.0)), ("random writes", Steady(4.0))],
    },
    Preset {
        name: "steady",
        about: "random writes until they are steady, before and after a pause and after TRIM",
        note: "the steady state of SNIA's specification",
        steps: &[
            ("before", Steady(2.0)),
            ("pause", Sham),
            ("after a pause", Steady(1.0)),
            ("TRIM", Discard),
            ("after TRIM", Steady(1.0)),
        ],
    },
];

/// The protocol of this name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// A pass of a protocol.
#[derive(Debug, Clone, Serialize)]
pub struct Record {
    /// What its curve is called.
    pub name: &'static str,
    /// What was done.
    pub what: &'static str,
    /// The pass.
    pub pass: Pass,
}

/// Runs a protocol. All free space is discarded at the end; after a fault that is for the caller to do.
pub fn play(
    drive: &mut dyn Drive,
    ground: &Ground<'_>,
    design: &Design,
    preset: &Preset,
    observer: &mut dyn Observer,
) -> Result<Vec<Record>, Fault> {
    let zones: f64 = preset.steps.iter().filter(|step| step.1.writes()).map(|step| step.1.zones()).sum();
    let share = whole(real(design.budget) / zones.max(1.0));
    let both = if preset.steps.iter().any(|step| step.1 == Other) { 1.0 + OTHER } else { 1.0 };
    let wanted = share.min(whole(real(ground.zone.bytes()) / both));
    let zone = ground.zone.part(0, wanted);
    let other = ground.zone.part(zone.bytes(), whole(real(zone.bytes()) * OTHER));
    let random = Xoshiro256PlusPlus::seed_from_u64(design.seed);
    let small = zone.in_units(design.scattered.size);
    let mut player = Player { drive, ground, design, observer, zone, small, other, random, at: 0 };
    let mut records = Vec::new();
    for (name, action) in preset.steps {
        let pass = player.step(name, *action)?;
        records.extend(pass.map(|pass| Record { name, what: action.what(), pass }));
    }
    player.drive.discard()?;
    Ok(records)
}

struct Player<'a, 'p> {
    drive: &'a mut dyn Drive,
    ground: &'a Ground<'p>,
    design: &'a Design,
    observer: &'a mut dyn Observer,
    zone: Area<'p>,
    /// The zone in units of small writes.
    small: Area<'p>,
    other: Area<'p>,
    random: Xoshiro256PlusPlus,
    /// Where the next file begins.
    at: u64,
}

impl Player<'_, '_> {
    /// A step; a pass where it is one.
    fn step(&mut self, name: &'static str, action: Action) -> Result<Option<Pass>, Fault> {
        let most = whole(real(self.zone.bytes()) * action.zones());
        match action {
            Sham => self.drive.sham().and_then(|()| self.rest()),
            Discard => self.drive.discard().and_then(|()| self.rest()),
            DiscardOther => {
                self.drive.discard_part(&self.other)?;
                self.rest()
            }
            _ => {
                self.observer.begins(name, most);
                self.pass(action, most).map(Some)
            }
        }
    }

    fn pass(&mut self, action: Action, most: u64) -> Result<Pass, Fault> {
        let Self { design, zone, small, other, random, at, .. } = self;
        let mut start = 0;
        let (load, until, pattern) = match action {
            Scatter(_) => (design.scattered, Until::Bytes(most), Pattern::Scattered { area: small, random }),
            Steady(_) => (design.scattered, Until::Steady(0, None), Pattern::Scattered { area: small, random }),
            Mix(_) => (design.mixed(), Until::Bytes(most), Pattern::Mixed { area: small, random }),
            File(_) => {
                let pattern = Pattern::Looping { area: zone, at, direction: Direction::Write };
                (design.sequential, Until::Bytes(most), pattern)
            }
            action => {
                let direction = if action.writes() { Direction::Write } else { Direction::Read };
                let area = if action == Other { other } else { zone };
                (design.sequential, Until::Bytes(most), Pattern::Looping { area, at: &mut start, direction })
            }
        };
        let order = Order { stage: Stage::Step, load, until, most, window: design.window };
        let observer = &mut *self.observer;
        write(self.drive, pattern, &order, &mut |bytes| observer.wrote(bytes))
    }

    /// Rests until the drive has finished what it does by itself.
    fn rest(&mut self) -> Result<Option<Pass>, Fault> {
        self.observer.rests(self.design.patience.most);
        rest(self.drive, self.design.patience, &self.ground.used, &mut self.random).map(|_| None)
    }
}
