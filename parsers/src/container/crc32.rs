//! CRC-32 as GPT, zip and Ethernet use it: polynomial 0xEDB88320 reflected, start and end inverted.

/// The checksum of the concatenated `parts`.
pub(crate) fn crc32(parts: &[&[u8]]) -> u32 {
    !parts.iter().fold(u32::MAX, |crc, part| continued(crc, part))
}

/// The sum behind `bytes` where it was `start` before them; nothing is inverted.
pub(crate) fn continued(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        crc.wrapping_shr(8) ^ TABLE.get(usize::from(low ^ byte)).copied().unwrap_or_default()
    })
}

/// What eight steps do to each byte.
static TABLE: [u32; 256] = table();

#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::as_conversions)] // runs in the compiler only
const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 * (crc & 1));
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(super::crc32(&[b"123456789"]), 0xCBF4_3926);
        assert_eq!(super::crc32(&[b"1234", b"", b"56789"]), 0xCBF4_3926);
    }
}
