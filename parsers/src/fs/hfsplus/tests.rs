//! What needs no image; generated volumes are compared with other readers in the package's own tests.

use super::*;
use crate::witness::{Ledger, hear};
use proptest::prelude::*;

/// As libblkid prints it.
#[test]
fn the_uuid_of_a_volume_id() {
    let id = 0xB4E3_9300_8DEC_47F0_u64.to_be_bytes();
    assert_eq!(names::uuid(id).as_deref(), Some("9a582826-a33c-34ec-89e9-b6e6bfc7b253"));
    assert_eq!(names::uuid([0; 8]), None);
}

#[test]
fn blocks_that_cover_bytes() {
    let block = BlockSize::new(512).unwrap();
    assert_eq!(covering(block, 0, 1536).unwrap(), (0, 3));
    assert_eq!(covering(block, 511, 2).unwrap(), (0, 2));
    assert_eq!(covering(BlockSize::new(4096).unwrap(), 8192 - 1024, 512).unwrap(), (1, 1));
    assert!(covering(block, 0, 0).is_err());
}

/// Bytes of which most are 0, 1 or 2, so that many of the numbers are plausible. From one number, because a strategy
/// for each byte takes longer than everything that is tested.
fn noise(mut state: u64) -> Vec<u8> {
    let mut next = || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 33) as u8
    };
    (0..8192).map(|_| if next() < 192 { next() % 3 } else { next() }).collect()
}

proptest! {
    /// Noise behind a plausible header, small numbers and large ones: no panic, no endless loop, nothing outside.
    #[test]
    fn never_panics(
        seed: u64, wrapper: bool, journaled: bool, sparse in 0usize..4,
    ) {
        let mut bytes = noise(seed);
        for part in bytes.chunks_mut(4).skip(sparse).step_by(2) {
            part.split_last_mut().unwrap().1.fill(0); // numbers that are small enough to get further
        }
        let base = if wrapper { 1024 } else { 0 };
        bytes.resize(16_384, 0);
        if wrapper {
            bytes[1024..1026].copy_from_slice(b"BD");
            bytes[1024 + 0x14..1024 + 0x18].copy_from_slice(&[0, 0, 2, 0]);
            bytes[1024 + 0x1C..1024 + 0x1E].copy_from_slice(&[0, 1]);
            bytes[1024 + 0x7C..1024 + 0x82].copy_from_slice(b"H+\0\x01\0\x10");
        }
        let header = base + 1024;
        bytes[header..header + 8].copy_from_slice(&[b'H', b'+', 0, 4, 0, 0, if journaled { 0x21 } else { 1 }, 0]);
        bytes[header + 40..header + 48].copy_from_slice(&[0, 0, 2, 0, 0, 0, 0, 16]);
        let copy = bytes[header..header + 512].to_vec();
        for end in [base + 8192, 16_384] {
            bytes[end - 1024..end - 512].copy_from_slice(&copy);
        }
        let _ = HfsPlus.probe(&bytes).unwrap();
        let grid = crate::free_map::Grid::new(0, BlockSize::new(512).unwrap(), 32).unwrap();
        let free = HfsPlus.read(&bytes, &[]).map_or_else(|_| FreeMap::nothing(grid), |volume| volume.free);
        prop_assert!(free.ranges().iter().all(|range| range.end() <= 16_384));
        let _ = witness::HfsPlusWalk.walk(&bytes, &mut Ledger::new(&free));
        let words = format!("{:?}", hear(&witness::HfsPlusWalk, &bytes, &free));
        prop_assert!(!words.contains("panicked"), "{}", words);
    }
}
