//! The small rules. Whole images, made by the real tools, are in the integration tests `oracle_ext4` and `damage_ext4`.

use super::features::{Features, compat, incompat, ro_compat};
use super::*;

fn features(compat: u32, incompat: u32, ro_compat: u32) -> Features {
    Features { compat, incompat, ro_compat }
}

#[test]
fn names_are_those_of_blkid() {
    let journal = compat::HAS_JOURNAL;
    assert_eq!(features(0, incompat::FILETYPE, ro_compat::SPARSE_SUPER).format_name(), "ext2");
    assert_eq!(features(journal, incompat::FILETYPE, ro_compat::LARGE_FILE).format_name(), "ext3");
    assert_eq!(features(journal, incompat::FILETYPE | incompat::RECOVER, 0).format_name(), "ext3");
    assert_eq!(features(0, incompat::FLEX_BG, 0).format_name(), "ext4");
    assert_eq!(features(journal, 0, ro_compat::METADATA_CSUM).format_name(), "ext4");
    assert_eq!(features(0, incompat::JOURNAL_DEV, 0).format_name(), "jbd");
}

#[test]
fn every_bit_is_either_understood_or_named() {
    for shift in 0..32 {
        for (set, only) in [
            (features(1 << shift, 0, 0), "compatible"),
            (features(0, 1 << shift, 0), "incompatible"),
            (features(0, 0, 1 << shift), "read-only compatible"),
        ] {
            if let Err(error) = set.check() {
                let words = error.to_string();
                assert!(words.starts_with(only) && !words.ends_with(": "), "{words}");
            }
        }
    }
    let refused = (0..32).filter(|shift| features(0, 1 << shift, 0).check().is_err()).count();
    assert_eq!(refused, 32 - 14, "incompatible bits that are refused");
}

#[test]
fn uuids_are_grouped_and_zeros_are_none() {
    assert_eq!(uuid_text(&[0; 16]), None);
    let uuid = [0x6F, 0x1D, 0x3C, 0x5A, 0x2A, 0x40, 0x4B, 0x19, 0x9C, 0x55, 0x0E, 0x3D, 0, 0xDE, 0x30, 1];
    assert_eq!(uuid_text(&uuid).as_deref(), Some("6f1d3c5a-2a40-4b19-9c55-0e3d00de3001"));
}

#[test]
fn a_source_that_is_too_short_is_not_ext() {
    assert!(!Ext4.probe(&vec![0_u8; 1080]).unwrap());
    assert!(Ext4.read(&vec![0_u8; 4096], &[]).is_err());
}
