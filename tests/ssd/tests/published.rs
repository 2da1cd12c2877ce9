//! The model against what was published about real drives, in small: ratios, not megabytes a second.

#![allow(clippy::as_conversions)] // numbers of the tests' own making

use coldtrim_ssd_model::config::{OBEYS, p1, pages, separate, vertex};
use coldtrim_ssd_model::{Command, Config, Content, Idle, PAGE, Random, Readback, Ssd, Throttle, Trim, TrimMode};
use std::collections::BinaryHeap;
use std::ops::Range;

/// A drive and a host that keeps `depth` commands in flight.
struct Host {
    ssd: Ssd,
    now: u64,
}

impl Host {
    fn new(config: &Config) -> Self {
        Self { ssd: Ssd::new(config), now: 0 }
    }

    /// Writes all of `commands`; when each of them was answered.
    fn write(&mut self, depth: usize, commands: impl Iterator<Item = Range<u32>>) -> Vec<u64> {
        let mut in_flight = BinaryHeap::new();
        let mut done = Vec::new();
        for pages in commands {
            if in_flight.len() == depth {
                self.now = self.now.max(in_flight.pop().map_or(0, |std::cmp::Reverse(at)| at));
                done.push(self.now);
            }
            in_flight.push(std::cmp::Reverse(self.ssd.write(self.now, pages)));
        }
        while let Some(std::cmp::Reverse(at)) = in_flight.pop() {
            self.now = self.now.max(at);
            done.push(self.now);
        }
        self.now = self.ssd.flush(self.now);
        done
    }

    /// Bytes a second of one sequential pass in commands of 128 KiB.
    fn sequential(&mut self, area: Range<u32>) -> f64 {
        let (begin, bytes) = (self.now, area.len() as u64 * PAGE);
        self.write(8, area.step_by(32).map(|page| page..page + 32));
        bytes as f64 * 1e9 / (self.now - begin) as f64
    }

    /// Bytes a second of `count` random pages.
    fn random(&mut self, count: usize, area: Range<u32>, seed: u64) -> f64 {
        let (begin, mut random) = (self.now, Random::new(seed));
        let mut page = || area.start + random.below(area.len() as u64) as u32;
        self.write(32, (0..count).map(|_| page()).map(|page| page..page + 1));
        (count as u64 * PAGE) as f64 * 1e9 / (self.now - begin) as f64
    }

    fn trim(&mut self, area: Range<u32>) {
        self.now = self.ssd.trim(self.now, area);
    }

    fn wait(&mut self, seconds: u64) {
        self.now += seconds * 1_000_000_000;
    }
}

#[track_caller]
fn near(value: f64, wanted: f64, share: f64, what: &str) {
    assert!((value / wanted - 1.0).abs() <= share, "{what}: {value:.3}, expected {wanted:.3} within {share}");
}

/// OCZ Vertex 30 GB: 159 MB/s new; 25.6, 40.8 and 50 after random writes; new again after the TRIM utility.
#[test]
fn vertex_falls_heals_slowly_and_is_new_after_trim() {
    let all = 0..pages(128);
    let mut host = Host::new(&vertex(128));
    let new = host.sequential(all.clone());
    host.sequential(all.clone());
    host.random(all.len(), all.clone(), 7);
    let passes = [(); 3].map(|()| host.sequential(all.clone()));
    host.trim(all.clone());
    let healed = host.sequential(all);
    println!("vertex: new {new:.0}, passes {passes:.0?}, after trim {healed:.0} B/s");
    near(new / passes[0], 159.0 / 25.6, 0.15, "new to the first pass");
    near(passes[1] / new, 40.8 / 159.0, 0.25, "second pass to new");
    near(passes[2] / new, 50.0 / 159.0, 0.25, "third pass to new");
    near(healed, new, 0.05, "after TRIM to new");
}

/// With a front of its own for the cleaner a drive heals in one pass, as most in hardware.fr's comparison.
#[test]
fn a_drive_with_separate_fronts_heals_in_one_pass() {
    let all = 0..pages(128);
    let mut host = Host::new(&separate(128));
    let new = host.sequential(all.clone());
    host.random(2 * all.len(), all.clone(), 7);
    let passes = [(); 2].map(|()| host.sequential(all.clone()));
    assert!(passes[0] < 0.5 * new && passes[1] > 0.85 * new, "{new} {passes:?}");
}

/// Bytes until the speed falls to a quarter of what it was at first, and how much it falls.
fn knee(host: &mut Host, area: Range<u32>) -> (u64, f64) {
    let done = host.write(8, area.step_by(4).map(|page| page..page + 4));
    // The first commands only fill the RAM buffer.
    let (first, last) = (200, done.len() - 17);
    let time = |k: usize| (done[k + 16] - done[k]) as f64;
    let knee = (first..last).find(|k| time(*k) > 4.0 * time(first)).unwrap_or(last);
    (knee as u64 * 4 * PAGE, time((knee + 100).min(last)) / time(first))
}

/// Crucial P1 1 TB: 975 MB/s in the cache and 80 behind it; 120, 105, 40, 30, 24 GB of cache as it fills.
#[test]
fn p1_has_a_cache_that_shrinks_as_it_fills_and_comes_back_with_trim_only() {
    let size = pages(512);
    let mut knees = Vec::new();
    for full in [0.0, 0.21, 0.43, 0.64, 0.86] {
        let mut host = Host::new(&p1(512));
        let used = (f64::from(size) * full) as u32 / 4 * 4;
        host.ssd.fill(0..used);
        // The file, up to the end of the drive: the cache is lent out of what stays unmapped behind it.
        let (bytes, ratio) = knee(&mut host, used..size);
        near(ratio, 975.0 / 80.0, 0.1, "cache to flash");
        knees.push(bytes as f64 / (512 << 20) as f64);
    }
    println!("p1: cache as a share of the capacity {knees:.3?}");
    assert!(knees.windows(2).all(|pair| pair[1] < pair[0]), "{knees:?}");
    near(knees[0] / knees[4], 120.0 / 24.0, 0.25, "empty to nearly full");
    let mut host = Host::new(&p1(512));
    host.ssd.fill(0..size);
    let (deleted, _) = knee(&mut host, 0..pages(60));
    host.wait(600);
    let (again, _) = knee(&mut host, 0..pages(60));
    host.trim(0..size);
    host.wait(600);
    let (trimmed, _) = knee(&mut host, 0..pages(120));
    near(again as f64, deleted as f64, 0.1, "deleted, not trimmed: as small as before");
    assert!(trimmed > 4 * again, "{deleted} {again} {trimmed}");
}

/// A trim of free space makes random writes fast, and one that is ignored does not.
#[test]
fn random_writes_show_whether_a_trim_was_obeyed() {
    for (mode, obeys) in [(TrimMode::Obey, true), (TrimMode::Ignore, false), (TrimMode::Late(2_000_000_000), true)] {
        let free = pages(32)..pages(64);
        let mut host = Host::new(&Config { trim: Trim { mode, ..OBEYS }, ..separate(64) });
        host.ssd.fill(0..pages(64));
        host.ssd.age(60_000, free.clone(), 3);
        let before = host.random(4000, free.clone(), 4);
        host.trim(free.clone());
        host.wait(5);
        let after = host.random(4000, free, 5);
        assert_eq!(after > 1.5 * before, obeys, "{mode:?}: {before} {after}");
        assert!(obeys || after < 1.1 * before, "{mode:?}: {before} {after}");
    }
}

/// Cleaning in pauses builds up a stock of erased blocks: a burst, and no more.
#[test]
fn cleaning_in_pauses_is_worth_a_burst() {
    let config = Config { idle: Some(Idle { target: 24, after: 100_000_000 }), ..vertex(64) };
    let mut host = Host::new(&config);
    let all = 0..pages(64);
    host.ssd.fill(all.clone());
    host.ssd.age(60_000, all.clone(), 3);
    host.random(8000, all.clone(), 4);
    host.wait(30);
    let stock = host.ssd.flash().free_blocks();
    let burst = host.random(1000, all.clone(), 5);
    let later = host.random(8000, all, 6);
    assert!(stock <= 5 && burst > 2.0 * later, "{stock} {burst} {later}");
    assert!(host.ssd.counters().moved_idle > 0);
}

/// Parts of granules stay, short commands are cut, a bridge that counts wrongly discards elsewhere.
#[test]
fn a_bridge_can_be_wrong_in_every_known_way() {
    let mapped = |trim: Trim| {
        let mut ssd = Ssd::new(&Config { trim, ..vertex(16) });
        ssd.fill(0..4096);
        ssd.trim(0, 1000..1100);
        (0..4096)
            .filter(|page| !ssd.flash().is_mapped(*page))
            .fold(None, |ends: Option<(u32, u32)>, page| Some((ends.map_or(page, |(first, _)| first), page + 1)))
    };
    assert_eq!(mapped(OBEYS), Some((1000, 1100)));
    assert_eq!(mapped(Trim { mode: TrimMode::Ignore, ..OBEYS }), None);
    assert_eq!(mapped(Trim { granule: 64, ..OBEYS }), Some((1024, 1088)));
    assert_eq!(mapped(Trim { most: Some(32), ..OBEYS }), Some((1000, 1032)));
    assert_eq!(mapped(Trim { shift: -1, ..OBEYS }), Some((999, 1099)));
    assert_eq!(mapped(Trim { stretch: 8, ..OBEYS }), Some((1000, 1800)));
}

/// What is read back after a discard is what the policy says.
#[test]
fn a_discarded_page_reads_as_the_policy_says() {
    for (readback, wanted) in [(Readback::Zeros, Content::Zeros), (Readback::OldData, Content::Bytes(vec![7; 4096]))] {
        let mut ssd = Ssd::new(&Config { readback, ..vertex(16) });
        ssd.write_bytes(0, 5, &[7; 4096]);
        assert_eq!(ssd.content(5), Content::Bytes(vec![7; 4096]));
        ssd.trim(0, 5..6);
        assert_eq!(ssd.content(5), wanted);
        ssd.write(0, 5..6);
        assert_eq!(ssd.content(5), Content::Written(2));
        let trimmed = Command::Trim(5..6);
        assert_eq!(ssd.log(), [Command::Write(5..6), trimmed, Command::Write(5..6)]);
    }
}

/// Heat halves the speed of programming until there is a pause.
#[test]
fn heat_halves_the_speed() {
    let config = Config { throttle: Some(Throttle { after: u64::from(pages(16)) }), ..vertex(64) };
    let mut host = Host::new(&config);
    let cool = host.sequential(0..pages(16));
    let hot = host.sequential(pages(16)..pages(32));
    host.wait(1);
    let again = host.sequential(pages(32)..pages(48));
    near(cool / hot, 2.0, 0.1, "cool to hot");
    near(again, cool, 0.05, "after a pause");
    assert!(host.ssd.counters().hot_pages >= u64::from(pages(16)));
}

/// A slow cable hides everything behind it, and the same seed gives the same run to the bit.
#[test]
fn a_slow_cable_is_the_limit_and_noise_is_repeatable() {
    let slow = Config { link: 200_000, ..vertex(16) };
    let mut host = Host::new(&slow);
    near(host.sequential(0..pages(16)), PAGE as f64 * 1e9 / 200_000.0, 0.05, "the cable");
    let noisy = |seed| {
        let mut host = Host::new(&Config { noise: 0.2, seed, ..vertex(16) });
        host.sequential(0..pages(16)).to_bits()
    };
    assert_eq!(noisy(1), noisy(1));
    assert_ne!(noisy(1), noisy(2));
}

/// The account must balance: mapped pages are those that were written and not discarded, and reading tells them apart.
#[test]
fn the_account_balances() {
    let mut random = Random::new(11);
    let mut ssd = Ssd::new(&Config { idle: Some(Idle { target: 8, after: 1000 }), ..p1(16) });
    let mut expected = vec![false; 4096];
    let mut now = 0;
    for step in 0..20_000 {
        let first = random.below(4096 - 8) as u32;
        let pages = first..first + 1 + random.below(8) as u32;
        let is_trim = random.below(4) == 0;
        expected[pages.start as usize..pages.end as usize].fill(!is_trim);
        now = if is_trim { ssd.trim(now, pages) } else { ssd.write(now, pages) };
        now += if step % 50 == 0 { 2_000_000_000 } else { 0 };
    }
    let mapped = expected.iter().filter(|mapped| **mapped).count();
    assert_eq!(ssd.flash().mapped() as usize, mapped);
    for (page, mapped) in (0..).zip(expected) {
        assert_eq!(ssd.flash().is_mapped(page), mapped, "page {page}");
        assert_eq!(ssd.content(page) != Content::Zeros, mapped, "page {page}");
    }
    let counters = ssd.counters();
    assert_eq!(counters.flash_pages, counters.host_pages + counters.moved + counters.moved_idle);
}
