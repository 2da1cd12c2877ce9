//! IDENTIFY DEVICE: what an ATA drive says about itself (ACS-3 section 7.12), checked, because bridges in front of
//! NVMe drives invent such data.

use super::super::scsi::pages::rotates;

/// A drive's own description.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Identity {
    /// Words 27-46.
    pub model: String,
    /// Words 10-19.
    pub serial: String,
    /// Words 23-26.
    pub firmware: String,
    /// Size in sectors: words 230-233 when word 69 bit 3 says so, else 100-103.
    pub sectors: u64,
    /// Bytes in a logical sector: words 117-118 when word 106 says so, else 512.
    pub sector_size: u32,
    /// log2 of the logical sectors in a physical one.
    pub physical_exponent: u8,
    /// First logical sector that starts a physical one.
    pub lowest_aligned: u64,
    /// Word 169 bit 0, in a drive of ATA-7 or later: knows TRIM.
    pub trim: bool,
    /// Word 105: most 512-byte payload blocks in one TRIM; none when not stated.
    pub max_payload_blocks: Option<u16>,
    /// Word 69 bits 14 and 5: trimmed sectors read the same each time, and read as zeros.
    pub promises_zeros: bool,
    /// Word 217: whether the drive turns; none when it does not say.
    pub rotates: Option<bool>,
    /// Word 128 bit 2: a password is set and was not given.
    pub locked: bool,
}

/// Why an answer cannot be what an ATA drive says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotIdentity {
    /// Fewer than 512 bytes.
    #[error("IDENTIFY data has 512 bytes, the device sent {0}")]
    Short(usize),
    /// Word 255 claims a checksum, and it does not fit.
    #[error("the checksum of the IDENTIFY data is wrong")]
    Checksum,
    /// Word 0 bit 15.
    #[error("word 0 says that this is not an ATA disk")]
    NotAta,
    /// Words that a drive must mark as valid are not.
    #[error("words 82-83 are not marked valid: the IDENTIFY data was made up, or the drive is older than TRIM")]
    Invented,
    /// No model name.
    #[error("the model name is empty: the IDENTIFY data was made up")]
    NoModel,
    /// No capacity or no 48-bit addresses.
    #[error("the drive states no 48-bit capacity")]
    NoCapacity,
}

struct Words([u16; 256]);

impl Words {
    fn get(&self, index: usize) -> u16 {
        self.0.get(index).copied().unwrap_or(0)
    }

    fn bit(&self, index: usize, bit: u8) -> bool {
        self.get(index) >> bit & 1 == 1
    }

    /// A word whose bits 15:14 are 01 counts, others are not filled in.
    fn valid(&self, index: usize) -> Option<u16> {
        Some(self.get(index)).filter(|word| word >> 14 == 1)
    }

    fn number(&self, index: usize, count: usize) -> u64 {
        (0..count).rev().fold(0, |sum, word| sum << 16 | u64::from(self.get(index.saturating_add(word))))
    }

    /// The first character of a pair is the high byte.
    fn text(&self, words: std::ops::Range<usize>) -> String {
        let bytes: Vec<u8> = words.flat_map(|index| self.get(index).to_be_bytes()).collect();
        String::from_utf8_lossy(&bytes).trim_matches([' ', '\0']).to_owned()
    }
}

impl Identity {
    /// Checks and decodes 512 bytes.
    pub fn parse(data: &[u8]) -> Result<Self, NotIdentity> {
        let words = checked(data)?;
        let sectors = if words.bit(69, 3) { words.number(230, 4) } else { words.number(100, 4) };
        if !words.bit(83, 10) || sectors == 0 {
            return Err(NotIdentity::NoCapacity);
        }
        let model = words.text(27..47);
        if model.is_empty() {
            return Err(NotIdentity::NoModel);
        }
        let sizes = words.valid(106).unwrap_or(0);
        let physical_exponent = if sizes >> 13 & 1 == 1 { sizes & 0x0F } else { 0 };
        let large = u32::try_from(words.number(117, 2)).unwrap_or(0).checked_mul(2);
        Ok(Self {
            model,
            serial: words.text(10..20),
            firmware: words.text(23..27),
            sectors,
            sector_size: large.filter(|_| sizes >> 12 & 1 == 1).unwrap_or(512),
            physical_exponent: u8::try_from(physical_exponent).unwrap_or(0),
            lowest_aligned: lowest_aligned(&words, physical_exponent),
            trim: words.bit(169, 0) && is_recent(words.get(80)),
            max_payload_blocks: Some(words.get(105)).filter(|blocks| !matches!(blocks, 0 | 0xFFFF)),
            promises_zeros: words.bit(69, 14) && words.bit(69, 5),
            rotates: rotates(words.get(217)),
            locked: words.bit(128, 2),
        })
    }

    /// Size in bytes; none when it does not fit.
    pub fn bytes(&self) -> Option<u64> {
        self.sectors.checked_mul(u64::from(self.sector_size))
    }
}

fn checked(data: &[u8]) -> Result<Words, NotIdentity> {
    let data: &[u8; 512] = data.try_into().map_err(|_| NotIdentity::Short(data.len()))?;
    let mut words = Words([0; 256]);
    for (word, pair) in words.0.iter_mut().zip(data.as_chunks::<2>().0) {
        *word = u16::from_le_bytes(*pair);
    }
    let sum = data.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    if words.get(255) & 0xFF == 0xA5 && sum != 0 {
        return Err(NotIdentity::Checksum);
    }
    if words.bit(0, 15) {
        return Err(NotIdentity::NotAta);
    }
    words.valid(83).map(|_| ()).ok_or(NotIdentity::Invented)?;
    Ok(words)
}

/// ATA-7 (bit 7) or a later version: the first that can know TRIM, as the kernel demands, too.
fn is_recent(versions: u16) -> bool {
    versions != 0xFFFF && versions >> 7 != 0
}

/// Word 209 says where in a physical sector the logical sector 0 lies.
fn lowest_aligned(words: &Words, exponent: u16) -> u64 {
    let per_physical = 1_u64 << (exponent & 0x0F);
    let offset = words.valid(209).map_or(0, |word| u64::from(word & 0x3FFF));
    per_physical.saturating_sub(offset % per_physical) % per_physical
}
