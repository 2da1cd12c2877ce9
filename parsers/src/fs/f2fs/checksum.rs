//! The checksum of checkpoints and superblocks: CRC-32 (polynomial 0xEDB88320), without inversions. Source: Linux
//! `fs/f2fs/f2fs.h` (`f2fs_crc32`). A few blocks of a volume have one, so it is worked out bit by bit.

/// The checksum continued from `start`.
pub fn f2fs_crc32(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 })
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn published_check_value() {
        // CRC-32 over "123456789" with its inversions undone.
        assert_eq!(!super::f2fs_crc32(!0, b"123456789"), 0xCBF4_3926);
    }
}
