//! What a controller and a namespace say about themselves (NVMe base specification 2.1, NVM Command Set 1.1).

fn le16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(data.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn le32(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn le64(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(data.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn text(data: &[u8], at: std::ops::Range<usize>) -> Option<String> {
    Some(String::from_utf8_lossy(data.get(at)?).trim_matches([' ', '\0']).to_owned())
}

/// Identify Controller (CNS 01h).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Controller {
    /// Bytes 4..24.
    pub serial: String,
    /// Bytes 24..64.
    pub model: String,
    /// Bytes 64..72.
    pub firmware: String,
    /// ONCS (520..522) bit 2: knows Dataset Management.
    pub dataset_management: bool,
}

impl Controller {
    /// None when the data is too short.
    pub fn parse(data: &[u8]) -> Option<Self> {
        Some(Self {
            serial: text(data, 4..24)?,
            model: text(data, 24..64)?,
            firmware: text(data, 64..72)?,
            dataset_management: le16(data, 520)? >> 2 & 1 == 1,
        })
    }
}

/// Identify Namespace (CNS 00h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Namespace {
    /// NSZE (0..8): size in logical blocks.
    pub blocks: u64,
    /// log2 of the bytes in a logical block.
    pub block_log2: u8,
    /// Metadata bytes beside each block.
    pub metadata: u16,
    /// NSATTR (99) bit 0.
    pub write_protected: bool,
    /// DLFEAT (33) bits 2:0 are 1: deallocated blocks read as zeros.
    pub reads_zeros: bool,
    /// NSFEAT (24) bit 4, then NPDG and NPDA (68, 70, minus 1): preferred granule and alignment in blocks.
    pub preferred: Option<(u32, u32)>,
    /// NSFEAT bit 5: the large forms of both are in CNS 05h.
    pub has_large_preferred: bool,
}

impl Namespace {
    /// None when the data is too short.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let (features, format) = (*data.get(24)?, *data.get(26)?);
        let index = usize::from(format & 0x0F | (format & 0x60) >> 1);
        let at = index.checked_mul(4)?.checked_add(128)?;
        let preferred = (u32::from(le16(data, 68)?).checked_add(1)?, u32::from(le16(data, 70)?).checked_add(1)?);
        Some(Self {
            blocks: le64(data, 0)?,
            metadata: le16(data, at)?,
            block_log2: *data.get(at.checked_add(2)?)?,
            write_protected: data.get(99)? & 1 == 1,
            reads_zeros: data.get(33)? & 0x07 == 1,
            preferred: (features >> 4 & 1 == 1).then_some(preferred),
            has_large_preferred: features >> 5 & 1 == 1,
        })
    }
}

/// NPDGL (268) and NPDAL (284) of CNS 05h: granule and alignment in blocks; 0 is not stated.
pub fn large_preferred(data: &[u8]) -> Option<(u32, u32)> {
    let (granule, alignment) = (le32(data, 268)?, le32(data, 284)?);
    (granule > 0).then_some((granule, alignment.max(1)))
}

/// Limits of Dataset Management in CNS 06h; none where none is stated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct CommandLimits {
    /// DMRL (3): most ranges.
    pub ranges: Option<u8>,
    /// DMRSL (4..8): most blocks in a range.
    pub range_blocks: Option<u32>,
    /// DMSL (8..16): most blocks in a command.
    pub command_blocks: Option<u64>,
}

impl CommandLimits {
    /// None when the data is too short.
    pub fn parse(data: &[u8]) -> Option<Self> {
        Some(Self {
            ranges: Some(*data.get(3)?).filter(|n| *n > 0),
            range_blocks: Some(le32(data, 4)?).filter(|n| *n > 0),
            command_blocks: Some(le64(data, 8)?).filter(|n| *n > 0),
        })
    }
}
