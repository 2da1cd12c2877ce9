//! What the drive itself knows: the same pass again on a copy of it, without noise, with other random places.

use crate::simulated::{MIB, Moment};
use coldtrim::measure::{Design, Pass, Yardstick};
use coldtrim_ssd_model::{PAGE, Random};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Copies that are averaged.
const TWINS: u64 = 4;

/// The true factor between two states of a drive for what `sham` measured.
pub fn factor(yardstick: Yardstick, sham: &Pass, moments: [&Moment; 2], design: &Design, free: &Range<u32>) -> f64 {
    match yardstick {
        Yardstick::FastBytes => {
            let bytes = moments.map(|moment| fast_pages(moment, free));
            bytes[1] as f64 / bytes[0] as f64
        }
        Yardstick::Scattered => {
            let chunk = design.scattered.chunk;
            let counted = sham.counted.start as u64 * chunk..sham.counted.end as u64 * chunk;
            let seconds = moments.map(|moment| {
                let twin = |seed| scattered(moment, &counted, design.scattered.depth, free, seed);
                (0..TWINS).map(|k| twin(1000 + k)).sum::<f64>()
            });
            seconds[0] / seconds[1]
        }
    }
}

/// Pages that can be written one after the other before the host has to wait for slow flash or for the cleaner.
fn fast_pages(moment: &Moment, free: &Range<u32>) -> u64 {
    let mut ssd = moment.ssd.clone().with_noise(0.0, 1);
    let length = free.end - free.start;
    for count in 0..u64::from(2 * length) {
        let page = free.start + (moment.first - free.start + count as u32) % length;
        let (cache, moved) = (ssd.flash().cache().0, ssd.counters().moved);
        ssd.write(moment.now, page..page + 1);
        let in_cache = ssd.config().slc.is_none() || ssd.flash().cache().0 > cache;
        // Rewriting a page frees one block of the cache now and then; a fall is many slow pages.
        if !in_cache || ssd.counters().moved > moved + 8 {
            return count;
        }
    }
    u64::from(2 * length)
}

/// Seconds for the bytes `counted` of a pass of small writes.
fn scattered(moment: &Moment, counted: &Range<u64>, depth: usize, free: &Range<u32>, seed: u64) -> f64 {
    let mut ssd = moment.ssd.clone().with_noise(0.0, 1);
    let mut random = Random::new(seed);
    let mut now = moment.now;
    let (mut in_flight, mut answered, mut begin) = (BinaryHeap::new(), 0_u64, now);
    loop {
        while in_flight.len() < depth {
            let page = free.start + random.below(u64::from(free.end - free.start)) as u32;
            in_flight.push(Reverse(ssd.write(now, page..page + 1)));
        }
        let Some(Reverse(end)) = in_flight.pop() else { unreachable!("the queue is full") };
        now = now.max(end);
        answered += PAGE;
        if answered == counted.start {
            begin = now;
        }
        if answered == counted.end {
            return (now - begin) as f64 / 1e9;
        }
        assert!(answered < 4096 * MIB, "the pass ends");
    }
}
