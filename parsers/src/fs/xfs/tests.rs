//! The small rules. Whole images, made by the real tools, are in the integration test `oracle_xfs`.

use super::features::Features;
use super::*;

fn features(version: u32, features2: u32, ro_compat: u32, incompat: u32) -> Features {
    Features { is_v5: true, version, features2, compat: 0, ro_compat, incompat, log_incompat: 0 }
}

#[test]
fn every_bit_is_either_understood_or_named() {
    let sound = features(0xB4A0, 0x18A, 0xF, 0xEF);
    sound.check().unwrap();
    let refused = |change: fn(&mut Features, u32)| {
        (0..32)
            .filter(|shift| {
                let mut changed = sound;
                change(&mut changed, 1 << shift);
                match changed.check() {
                    Ok(()) => false,
                    Err(error) => {
                        let words = error.to_string();
                        assert!(words.contains("do not") || words.contains("does not"), "{words}");
                        assert!(!words.ends_with(": "), "{words}");
                        true
                    }
                }
            })
            .count()
    };
    assert_eq!(refused(|f, bit| f.incompat |= bit), 32 - 8);
    assert_eq!(refused(|f, bit| f.ro_compat |= bit), 32 - 4);
    assert_eq!(refused(|f, bit| f.compat |= bit), 32);
    assert_eq!(refused(|f, bit| f.log_incompat |= bit), 32 - 1);
    assert_eq!(refused(|f, bit| f.features2 |= bit), 32 - 5);
    let named = features(0xB4A0, 0x18A, 0, 0x300).check().unwrap_err().to_string();
    assert!(named.contains("metadir") && named.contains("zoned"), "{named}");
}

#[test]
fn version_and_checksum_feature_must_agree() {
    let mut bare = features(0xB4A0, 0x8A, 0, 0);
    assert!(bare.check().is_err(), "version 5 without checksums");
    bare.is_v5 = false;
    bare.check().unwrap();
    bare.features2 |= 0x100;
    assert!(bare.check().is_err(), "version 4 with checksums");
}

#[test]
fn a_source_that_is_too_short_is_not_xfs() {
    assert!(!Xfs.probe(&vec![0_u8; 3]).unwrap());
    assert!(!Xfs.probe(&vec![0_u8; 4096]).unwrap());
    assert!(Xfs.read(&b"XFSB".to_vec(), &[]).is_err());
}
