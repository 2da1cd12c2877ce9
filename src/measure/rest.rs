//! Pauses: until a drive has finished what it does by itself.

use super::drive::{Drive, Fault};
use super::stats::settle::{Patience, Settling};
use crate::plan::units::ByteRange;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::IndexedRandom;
use std::time::Duration;

/// How often used places are read in a pause, seconds.
const LOOK: f64 = 1.0;
/// Used places that are read then.
const LOOK_READS: usize = 8;

/// Rests until reads of `used` places are as fast as ever; seconds.
pub fn rest(
    drive: &mut dyn Drive,
    patience: Patience,
    used: &[ByteRange],
    random: &mut Xoshiro256PlusPlus,
) -> Result<f64, Fault> {
    let start = drive.now();
    let mut settling = Settling::new(patience);
    loop {
        let mut reads = Vec::new();
        for place in some(used, LOOK_READS, random) {
            reads.push(drive.read(place)?.as_secs_f64());
        }
        let at = drive.now().saturating_sub(start).as_secs_f64();
        if settling.is_over(at, &mut reads) {
            return Ok(at);
        }
        drive.wait(Duration::from_secs_f64(LOOK))?;
    }
}

/// A few places at random.
pub fn some(places: &[ByteRange], count: usize, random: &mut Xoshiro256PlusPlus) -> Vec<ByteRange> {
    (0..count).filter_map(|_| places.choose(random).copied()).collect()
}
