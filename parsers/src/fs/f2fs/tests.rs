//! The small rules. Whole images, made by the real tools, are in the integration tests `oracle_f2fs` and `damage_f2fs`.

use super::*;

#[test]
fn a_source_that_is_too_short_is_not_f2fs() {
    assert!(!F2fs.probe(&vec![0_u8; 1025]).unwrap());
    let mut stub = vec![0_u8; 4096];
    stub[1024..1028].copy_from_slice(&ondisk::MAGIC.to_le_bytes());
    assert!(F2fs.probe(&stub).unwrap());
    assert!(F2fs.read(&stub, &[]).is_err());
}
