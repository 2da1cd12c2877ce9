//! The drives: every flash layer, every way with a discard, every nuisance.

use crate::simulated::MIB;
use coldtrim_ssd_model::config::{OBEYS, p1, pages, separate, vertex};
use coldtrim_ssd_model::{Config, Fronts, Idle, Random, Readback, Slc, Ssd, Throttle, Trim, TrimMode};
use std::ops::Range;

/// What is true of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Truth {
    /// A discard has its effect, the drive is slow, and the way to it is fast enough to show it.
    Degraded,
    /// A discard has its effect; speed cannot show it here.
    Works,
    /// A discard does nothing.
    Ignores,
    /// Only parts of what was named are discarded.
    Partial,
    /// It does something else.
    Harmful,
}

pub struct Model {
    pub name: String,
    pub ssd: Ssd,
    pub free: Range<u32>,
    pub budget: u64,
    pub ceiling: Option<f64>,
    pub truth: Truth,
}

const SIZE: u32 = 256;
const SECOND: u64 = 1_000_000_000;
const BUDGET: u64 = 224 * MIB;

/// Filled, its free half aged by random writes, as after a long life.
fn worn(name: String, config: &Config, truth: Truth) -> Model {
    let mut ssd = Ssd::new(config);
    let free = 0..config.pages / 2;
    ssd.fill(0..config.pages);
    ssd.age(u64::from(config.pages), free.clone(), 17);
    ssd.settle();
    ssd.clear_log();
    let budget = BUDGET * u64::from(config.pages / pages(SIZE));
    Model { name, ssd, free, budget, ceiling: None, truth }
}

fn layers() -> [(&'static str, Config); 3] {
    [("mixed", vertex(SIZE)), ("separate", separate(SIZE)), ("cache", p1(2 * SIZE))]
}

fn with(config: &Config, mode: TrimMode) -> Config {
    Config { trim: Trim { mode, ..OBEYS }, ..*config }
}

/// Every layer, TRIM mode, cleaning in pauses or not, noise or not.
fn grid() -> Vec<Model> {
    let modes = [
        ("obeys", TrimMode::Obey, Truth::Degraded),
        ("acts 5 s late", TrimMode::Late(5 * SECOND), Truth::Degraded),
        ("ignores", TrimMode::Ignore, Truth::Ignores),
    ];
    // Enough for the cache that is always there, or for a burst.
    let idles = [("", None), (", cleans in pauses", Some(Idle { target: 120, after: SECOND / 10 }))];
    let noises = [("", 0.0), (", noise", 0.10)];
    let mut found = Vec::new();
    for (layer, config) in layers() {
        for (mode_name, mode, truth) in modes {
            for (idle_name, idle) in idles {
                for (noise_name, noise) in noises {
                    let config = Config { idle, noise, seed: 5, ..with(&config, mode) };
                    found.push(worn(format!("{layer}, {mode_name}{idle_name}{noise_name}"), &config, truth));
                }
            }
        }
    }
    found
}

/// Bridges that discard something else.
fn harmful() -> Vec<Model> {
    let faults = [
        ("one page further", Trim { shift: 1, ..OBEYS }),
        ("one page before", Trim { shift: -1, ..OBEYS }),
        ("a partition further", Trim { shift: 256, ..OBEYS }),
        ("eight times as long", Trim { stretch: 8, ..OBEYS }),
    ];
    let of =
        |(name, trim): (&str, Trim)| worn(format!("discards {name}"), &Config { trim, ..vertex(SIZE) }, Truth::Harmful);
    faults.map(of).into()
}

/// Drives that return old data after a discard: only reads and speed can tell.
fn silent() -> Vec<Model> {
    let mut found = Vec::new();
    for (layer, config) in layers() {
        for (mode_name, mode, truth) in [
            ("obeys", TrimMode::Obey, Truth::Degraded),
            ("acts 5 s late", TrimMode::Late(5 * SECOND), Truth::Degraded),
            ("ignores", TrimMode::Ignore, Truth::Ignores),
        ] {
            let config = Config { readback: Readback::OldData, ..with(&config, mode) };
            found.push(worn(format!("{layer}, returns old data, {mode_name}"), &config, truth));
        }
    }
    found
}

/// Heat, a slow cable, and both with and without a working TRIM.
fn nuisances() -> Vec<Model> {
    let mut found = Vec::new();
    for (mode_name, mode) in [("obeys", TrimMode::Obey), ("ignores", TrimMode::Ignore)] {
        let ignores = mode == TrimMode::Ignore;
        let truth = |works| if ignores { Truth::Ignores } else { works };
        for (layer, config) in layers() {
            let hot = Config { throttle: Some(Throttle { after: u64::from(pages(24)) }), ..with(&config, mode) };
            found.push(worn(format!("{layer}, gets hot, {mode_name}"), &hot, truth(Truth::Works)));
            // A tenth of what even the worn flash can do.
            let slow = Config { link: 2_000_000, ..with(&config, mode) };
            let model = worn(format!("{layer}, slow cable, {mode_name}"), &slow, truth(Truth::Works));
            found.push(Model { ceiling: Some(4096.0 * 1e9 / 2_000_000.0), ..model });
        }
    }
    found
}

/// States in which nothing can come back.
fn states() -> Vec<Model> {
    let mut found = Vec::new();
    for (mode_name, mode) in [("obeys", TrimMode::Obey), ("ignores", TrimMode::Ignore)] {
        let truth = if mode == TrimMode::Ignore { Truth::Ignores } else { Truth::Works };
        for (layer, config) in layers() {
            let config = with(&config, mode);
            let model = worn(format!("{layer}, free space never written, {mode_name}"), &config, truth);
            let mut ssd = Ssd::new(&config);
            ssd.fill(model.free.end..config.pages);
            ssd.clear_log();
            found.push(Model { ssd, ..model });
            let model = worn(format!("{layer}, filled by large files, small budget, {mode_name}"), &config, truth);
            let mut ssd = Ssd::new(&config);
            ssd.fill(0..config.pages);
            ssd.clear_log();
            found.push(Model { ssd, budget: 24 * MIB, ..model });
        }
        let config = Config { readback: Readback::OldData, ..with(&vertex(SIZE), mode) };
        let model = worn(format!("mixed, already trimmed, returns old data, {mode_name}"), &config, truth);
        let mut ssd = Ssd::new(&config);
        ssd.fill(model.free.end..config.pages);
        ssd.clear_log();
        found.push(Model { ssd, ..model });
    }
    found
}

/// Parts of commands or of granules are left mapped.
fn partial() -> Vec<Model> {
    layers()
        .map(|(layer, config)| {
            let config = Config { trim: Trim { granule: 64, ..OBEYS }, ..config };
            worn(format!("{layer}, acts on whole groups of 64 pages"), &config, Truth::Partial)
        })
        .into()
}

pub fn fleet() -> Vec<Model> {
    [grid(), harmful(), silent(), nuisances(), states(), partial()].into_iter().flatten().collect()
}

/// A drive of random make, found in a random state, that does `mode` with a discard.
pub fn random(seed: u64, mode: TrimMode, truth: Truth) -> Model {
    let mut random = Random::new(seed);
    let mut pick = |low: u64, high: u64| low + random.below(high - low);
    let base = [vertex(128), separate(128), p1(256), p1(256)][pick(0, 4) as usize];
    let slc =
        base.slc.map(|slc| Slc { fixed: pick(0, 30) as f64 / 1000.0, of_unmapped: pick(2, 15) as f64 / 100.0, ..slc });
    let config = Config {
        spare: pick(60, 280) as f64 / 1000.0,
        fronts: [Fronts::Mixed, Fronts::Separate][pick(0, 2) as usize],
        program: base.program * pick(70, 150) / 100,
        link: base.link * pick(50, 300) / 100,
        buffer: pick(1, 12) * 1_000_000,
        idle: (pick(0, 3) > 0).then(|| Idle { target: pick(6, 200) as u32, after: pick(1, 20) * SECOND / 10 }),
        noise: pick(0, 20) as f64 / 100.0,
        seed,
        readback: [Readback::Zeros, Readback::OldData][pick(0, 2) as usize],
        slc,
        ..with(&base, mode)
    };
    let free = 0..config.pages / 100 * pick(20, 80) as u32 / 256 * 256;
    let mut ssd = Ssd::new(&config);
    ssd.fill(0..config.pages);
    ssd.age(u64::from(config.pages) * pick(0, 150) / 100, free.clone(), seed);
    if pick(0, 2) > 0 {
        ssd.settle();
    }
    ssd.clear_log();
    let budget = u64::from(config.pages) * 4096 * pick(20, 120) / 100;
    Model { name: format!("random drive {seed}"), ssd, free, budget, ceiling: None, truth }
}
