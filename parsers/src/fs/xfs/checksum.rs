//! The checksum of version 5: CRC-32C of a whole structure with the checksum's own four bytes taken as zero, stored
//! little endian. Source: Linux `fs/xfs/libxfs/xfs_cksum.h`.

use crate::error::{Mismatch, ParseError};

/// Checks the structure `bytes`, read from `byte`, whose checksum lies at `at` inside it.
pub fn check(byte: u64, what: &str, bytes: &[u8], at: usize) -> Result<(), ParseError> {
    let cut = || ParseError::corrupt(byte, format!("{what} was cut short"));
    let (head, rest) = bytes.split_at_checked(at).ok_or_else(cut)?;
    let (stored, tail) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    let expected = of_parts(&[head, &[0; 4], tail]);
    let stored = u32::from_le_bytes(*stored);
    if expected == stored {
        return Ok(());
    }
    Err(ParseError::corrupt(byte, Mismatch::hex(format!("checksum of {what}"), expected.into(), stored.into())))
}

/// CRC-32C of the parts as one.
pub fn of_parts(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_check_value() {
        assert_eq!(of_parts(&[b"1234", b"56789"]), 0xE306_9283);
    }

    #[test]
    fn a_flipped_bit_is_seen() {
        let mut bytes = vec![7_u8; 64];
        bytes[16..20].fill(0);
        let sum = of_parts(&[&bytes]);
        bytes[16..20].copy_from_slice(&sum.to_le_bytes());
        check(0, "a test", &bytes, 16).unwrap();
        for bit in 0..64 * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(check(0, "a test", &flipped, 16).is_err(), "bit {bit}");
        }
    }
}
