//! What is written: blocks that cannot be compressed, are never twice the same, and name themselves. One that is found
//! where it does not belong says where it should be.

use crate::plan::units::ByteRange;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

/// Bytes of a block.
pub const BLOCK: usize = 4096;
/// What every block begins with.
const MAGIC: [u8; 8] = *b"coldtrim";
/// Magic, run, place and number.
const HEADER: usize = 32;

/// Fills memory with what cannot be compressed.
pub fn fill(memory: &mut [u8], seed: u64) {
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(memory);
}

/// Makes every block of `memory`, which is going to byte `at`, name itself. `number` is that of the first block, and of
/// the next one afterwards.
pub fn sign(memory: &mut [u8], at: u64, run: u64, number: &mut u64) {
    let mut place = at;
    for block in memory.chunks_mut(BLOCK) {
        let words = [MAGIC, run.to_le_bytes(), place.to_le_bytes(), number.to_le_bytes()];
        for (byte, value) in block.iter_mut().zip(words.as_flattened()) {
            *byte = *value;
        }
        place = place.saturating_add(super::super::stats::count(block.len()));
        *number = number.saturating_add(1);
    }
}

/// What a block says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// The run that wrote it.
    pub run: u64,
    /// Where it was written to.
    pub at: u64,
}

/// The signature of a block; none where it is none of ours.
pub fn signature(block: &[u8]) -> Option<Signature> {
    let word = |k: usize| block.get(..HEADER)?.as_chunks::<8>().0.get(k).copied();
    let number = |k: usize| word(k).map(u64::from_le_bytes);
    (word(0)? == MAGIC).then_some(Signature { run: number(1)?, at: number(2)? })
}

/// How many of `blocks`, read from `places`, are where an earlier run wrote them.
pub fn left_behind<'a>(blocks: impl Iterator<Item = (ByteRange, &'a [u8])>) -> usize {
    blocks.filter(|(place, block)| signature(block).is_some_and(|found| found.at == place.start())).count()
}
