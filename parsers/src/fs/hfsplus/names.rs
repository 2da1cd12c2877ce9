//! The volume's name and identity.

use super::free::read_node;
use super::superblock::Header;
use crate::source::Source;

/// The name space in which Apple makes a UUID of a volume's eight bytes.
const NAME_SPACE: [u8; 16] =
    [0xB3, 0xE2, 0x0F, 0x39, 0xF2, 0x92, 0x11, 0xD6, 0x97, 0xA4, 0x00, 0x30, 0x65, 0x43, 0xEC, 0xAC];

/// The volume's identity as macOS and libblkid print it: a UUID of version 3, by MD5. None where none was given.
pub(super) fn uuid(volume_id: [u8; 8]) -> Option<String> {
    if volume_id == [0; 8] {
        return None;
    }
    let mut block = [0; 64];
    let padded = NAME_SPACE.into_iter().chain(volume_id).chain([0x80]);
    block.iter_mut().zip(padded).for_each(|(to, from)| *to = from);
    let bits: u64 = 8 * (16 + 8);
    block.iter_mut().skip(56).zip(bits.to_le_bytes()).for_each(|(to, from)| *to = from);
    let hash = u128::from_be_bytes(md5_of_block(&block));
    let uuid = hash & !(0xF << 76 | 0x3 << 62) | 3 << 76 | 2 << 62;
    let hex = format!("{uuid:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| hex.get(part).unwrap_or_default());
    Some(parts.join("-"))
}

/// How far each step of MD5 rotates, four steps in turn for each round.
const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// MD5 (RFC 1321) of a message that fits, with its padding, into one block.
fn md5_of_block(block: &[u8; 64]) -> [u8; 16] {
    const START: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];
    let (words, _) = block.as_chunks::<4>();
    let [mut a, mut b, mut c, mut d] = START;
    for step in 0..64_u32 {
        let (round, turn) = (step >> 4, step & 3);
        let (mixed, word) = match round {
            0 => ((b & c) | (!b & d), step),
            1 => ((d & b) | (!d & c), step.wrapping_mul(5).wrapping_add(1)),
            2 => (b ^ c ^ d, step.wrapping_mul(3).wrapping_add(5)),
            _ => (c ^ (b | !d), step.wrapping_mul(7)),
        };
        let pick = |n: u32| usize::try_from(n).unwrap_or_default();
        let word = words.get(pick(word & 15)).copied().map_or(0, u32::from_le_bytes);
        let rotation = ROTATIONS.get(pick(round)).and_then(|row| row.get(pick(turn))).copied().unwrap_or_default();
        let sum = a.wrapping_add(mixed).wrapping_add(word).wrapping_add(sine(step));
        (a, d, c, b) = (d, c, b, b.wrapping_add(sum.rotate_left(rotation)));
    }
    let sums = [a, b, c, d].into_iter().zip(START).flat_map(|(n, start)| n.wrapping_add(start).to_le_bytes());
    let mut hash = [0; 16];
    hash.iter_mut().zip(sums).for_each(|(to, from)| *to = from);
    hash
}

/// RFC 1321: the integer part of 4294967296 times the sine of the step, in radians.
fn sine(step: u32) -> u32 {
    let whole = (f64::from(step) + 1.0).sin().abs() * 4_294_967_296.0;
    // OK to use `as`: the value is below 2^32, and there is no other conversion from floating point.
    #[allow(clippy::as_conversions)]
    let whole = whole as u32;
    whole
}

/// The volume's name: the key of the catalog's first record, the root folder, whose parent is 1. None where the catalog
/// does not say; the map does not depend on it.
pub(super) fn label(volume: &dyn Source, header: &Header) -> Option<String> {
    let word = |bytes: &[u8], at: usize| bytes.get(at..)?.first_chunk::<2>().map(|b| u16::from_be_bytes(*b));
    let long = |bytes: &[u8], at: usize| bytes.get(at..)?.first_chunk::<4>().map(|b| u32::from_be_bytes(*b));
    let tree = read_node(volume, header, &header.catalog, (0, 512)).ok()?;
    let (first_leaf, node_size) = (u64::from(long(&tree, 24)?), u64::from(word(&tree, 32)?));
    let node = read_node(volume, header, &header.catalog, (first_leaf.checked_mul(node_size)?, node_size)).ok()?;
    if long(&node, 16)? != 1 {
        return None;
    }
    let count = usize::from(word(&node, 20)?);
    let (units, _) = node.get(22..)?.as_chunks::<2>();
    let name: Vec<u16> = units.get(..count)?.iter().map(|unit| u16::from_be_bytes(*unit)).collect();
    Some(String::from_utf16_lossy(&name)).filter(|name| !name.is_empty())
}
