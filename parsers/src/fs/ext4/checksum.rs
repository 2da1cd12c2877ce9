//! The two checksums of the family. Both are "raw": they start with the given value and are not inverted at the end.
//!
//! Source: Linux `Documentation/filesystems/ext4/checksums.rst`, e2fsprogs `lib/ext2fs/csum.c`.

/// CRC-32C (Castagnoli) continued from `seed`. The crate inverts before and behind, ext4 does neither.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// CRC-16 (polynomial 0x8005 reflected) continued from `seed`, as descriptors with GDT_CSUM alone use it.
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xA001 } else { crc >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_check_values() {
        // CRC-16/ARC and CRC-32C over "123456789", the latter with its inversions undone.
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
        assert_eq!(crc32c(!0, b"123456789"), !0xE306_9283);
    }
}
