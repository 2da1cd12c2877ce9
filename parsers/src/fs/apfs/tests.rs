//! Parts that need no whole container; whole ones are made and compared by `tests/oracle_apfs.rs`.

use super::checkpoint::{Area, Fragment};
use super::object::{Blocks, Object};
use crate::error::ErrorKind;
use crate::fs::Format;
use crate::source::Source;
use crate::units::BlockSize;

const SIZE: u64 = 4096;

fn blocks(source: &dyn Source) -> Blocks<'_> {
    let size = BlockSize::new(SIZE).expect("a power of two");
    Blocks { source, size, count: size.whole_blocks(source.len()) }
}

/// Blocks that hold their own number.
fn numbered(count: u64) -> Vec<u8> {
    (0..count).flat_map(|block| block.to_le_bytes().repeat(512)).collect()
}

#[test]
fn a_ring_in_fragments_goes_round() {
    let fragments = vec![Fragment { block: 50, count: 3 }, Fragment { block: 10, count: 2 }];
    let area = Area { fragments, count: 5, nodes: Vec::new() };
    assert_eq!(area.ring(3, 4, 0, "ring").expect("a part of the ring"), [10, 11, 50, 51]);
    assert_eq!([50, 52, 10, 11].map(|block| area.index(block)), [Some(0), Some(2), Some(3), Some(4)]);
    assert_eq!([49, 53, 9, 12].map(|block| area.index(block)), [None; 4]);
    assert!(area.ring(0, 6, 0, "ring").is_err(), "more than there is");
}

#[test]
fn blocks_are_read_in_place_and_given_by_index() {
    let bytes = numbered(700);
    let wanted = [600, 3, 4, 599, 5];
    let mut found = [0; 5];
    let visit = &mut |index: usize, block: &[u8]| {
        found[index] = u64::from_le_bytes(block[..8].try_into().expect("eight bytes"));
        Ok(())
    };
    blocks(&bytes).each(&wanted, "test", visit).expect("all inside");
    assert_eq!(found, wanted);
}

#[test]
fn a_block_wanted_twice_or_outside_is_corrupt() {
    let bytes = numbered(9);
    for wanted in [&[3, 5, 3][..], &[9], &[u64::MAX]] {
        let error = blocks(&bytes).each(wanted, "test", &mut |_, _| Ok(())).expect_err("not to be read");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{wanted:?}: {error}");
    }
}

#[test]
fn a_checksum_is_demanded_and_named() {
    let mut bytes = numbered(1);
    let error = Object::new(bytes.clone(), 0, 0, "test object").expect_err("no checksum yet").to_string();
    assert!(error.contains("test object, block 0: checksum: expected"), "{error}");
    let sum = apfs::fletcher::fletcher64(&bytes[8..]);
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
    Object::new(bytes, 0, 0, "test object").expect("now it has one");
}

/// Worked out by hand: two words, 1 and 2; sums 3 and 4; M - 7, then M - (3 + M - 7) mod M = 4.
#[test]
fn fletcher_is_that_of_the_format() {
    assert_eq!(apfs::fletcher::fletcher64(&[1, 0, 0, 0, 2, 0, 0, 0]), 4 << 32 | (0xFFFF_FFFF - 7));
}

#[test]
fn only_nxsb_at_byte_32_is_claimed() {
    let mut bytes = vec![0; 4096];
    assert!(!super::Apfs.probe(&bytes).expect("readable"));
    bytes[32..36].copy_from_slice(b"NXSB");
    assert!(super::Apfs.probe(&bytes).expect("readable"));
    assert!(!super::Apfs.probe(&vec![0; 20]).expect("readable"), "shorter than the signature");
    assert!(super::Apfs.read(&bytes, &[]).is_err());
}
