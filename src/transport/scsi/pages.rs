//! What a SCSI device says about itself: raw answers become checked numbers. Layouts: SPC-4, SBC-3.

/// A big-endian number at `at`; none when the page ends before.
fn be16(page: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(page.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn be32(page: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(page.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn be64(page: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(page.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn text(page: &[u8], at: std::ops::Range<usize>) -> String {
    let bytes = page.get(at).unwrap_or_default();
    String::from_utf8_lossy(bytes).trim_matches([' ', '\0']).to_owned()
}

/// Standard INQUIRY data.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Inquiry {
    /// Byte 0: qualifier (bits 7:5) and device type (bits 4:0); 00h is a connected disk.
    pub kind: u8,
    /// Byte 1 bit 7.
    pub removable: bool,
    /// Byte 2: 05h SPC-3, 06h SPC-4, ...
    pub version: u8,
    /// Bytes 8..16.
    pub vendor: String,
    /// Bytes 16..32.
    pub product: String,
    /// Bytes 32..36.
    pub revision: String,
}

impl Inquiry {
    /// None when the answer is too short to hold the names.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let &[kind, removable, version, ..] = data.get(..36)? else {
            return None;
        };
        Some(Self {
            kind,
            removable: removable & 0x80 != 0,
            version,
            vendor: text(data, 8..16),
            product: text(data, 16..32),
            revision: text(data, 32..36),
        })
    }

    /// What kind of device it is, when it is no disk. Opcodes change their meaning with the type: 42h, UNMAP on a
    /// disk, reads a sub-channel of a CD; A1h erases it; 93h erases a tape.
    pub fn not_a_disk(&self) -> Option<&'static str> {
        match self.kind {
            0x00 => None,
            0x01 => Some("a tape drive"),
            0x05 => Some("an optical drive"),
            0x07 => Some("an optical memory device"),
            0x0D => Some("an enclosure service"),
            0x0E => Some("a simplified (RBC) device"),
            0x14 => Some("a host-managed zoned disk"),
            kind if kind & 0xE0 != 0 => Some("not connected"),
            _ => Some("not a disk"),
        }
    }
}

/// The length that a VPD page states, header included, when it is the page asked for. Some bridges answer with
/// standard INQUIRY data instead.
pub fn page_length(header: &[u8], code: u8) -> Option<u16> {
    (header.get(1) == Some(&code)).then(|| be16(header, 2)?.checked_add(4)).flatten()
}

/// VPD page B0h, Block Limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct BlockLimits {
    /// Bytes 20..24: most blocks in one UNMAP; 0 not implemented, FFFFFFFFh no limit.
    pub max_unmap_blocks: u32,
    /// Bytes 24..28: most descriptors in one UNMAP; 0 not implemented, FFFFFFFFh no limit.
    pub max_unmap_descriptors: u32,
    /// Bytes 28..32: granule in blocks; 0 not reported.
    pub unmap_granularity: u32,
    /// Bytes 32..36 without bit 31 (UGAVALID): first block of a granule; none when not valid.
    pub unmap_alignment: Option<u32>,
    /// Bytes 36..44: most blocks in one WRITE SAME; 0 not reported.
    pub max_write_same_blocks: u64,
}

impl BlockLimits {
    /// None unless the page is long enough (64 bytes) to hold the discard fields.
    pub fn parse(page: &[u8]) -> Option<Self> {
        let page = page.get(..64.max(usize::from(page_length(page, 0xB0)?)))?;
        let alignment = be32(page, 32)?;
        Some(Self {
            max_unmap_blocks: be32(page, 20)?,
            max_unmap_descriptors: be32(page, 24)?,
            unmap_granularity: be32(page, 28)?,
            unmap_alignment: (alignment >> 31 == 1).then_some(alignment & 0x7FFF_FFFF),
            max_write_same_blocks: be64(page, 36)?,
        })
    }
}

/// VPD page B2h, Logical Block Provisioning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Provisioning {
    /// LBPU: UNMAP.
    pub unmap: bool,
    /// LBPWS: WRITE SAME(16) with UNMAP.
    pub write_same_16: bool,
    /// LBPWS10: WRITE SAME(10) with UNMAP.
    pub write_same_10: bool,
    /// LBPRZ is xx1b: unmapped blocks read as zeros.
    pub reads_zeros: bool,
}

impl Provisioning {
    /// None when the page is shorter than its 8 bytes.
    pub fn parse(page: &[u8]) -> Option<Self> {
        page_length(page, 0xB2).filter(|length| *length >= 8)?;
        let bits = *page.get(5)?;
        let bit = |number: u8| bits >> number & 1 == 1;
        Some(Self { unmap: bit(7), write_same_16: bit(6), write_same_10: bit(5), reads_zeros: bit(2) })
    }
}

/// VPD page B1h bytes 4..6; none when the page is too short.
pub fn rotation(page: &[u8]) -> Option<u16> {
    page_length(page, 0xB1).filter(|length| *length >= 6)?;
    be16(page, 4)
}

/// What a rotation rate says (the same numbers in VPD page B1h and IDENTIFY word 217): 1 does not turn, 0401h..FFFEh
/// turns a minute, anything else tells nothing.
pub fn rotates(rate: u16) -> Option<bool> {
    match rate {
        1 => Some(false),
        0x0401..=0xFFFE => Some(true),
        _ => None,
    }
}

/// What stands behind the header of a page that holds a text.
pub fn text_of(page: &[u8]) -> String {
    text(page, 4..page.len().max(4))
}

/// VPD page 83h: the identifiers of the unit itself (association 0), binary ones in hexadecimal. Each begins with 4
/// bytes: code set (bits 3:0 of byte 0; 2 and 3 are texts), association (bits 5:4 of byte 1), length (byte 3).
pub fn identifiers(page: &[u8]) -> Vec<String> {
    let mut rest = page.get(4..).unwrap_or_default();
    let mut found = Vec::new();
    while let [code_set, kind, _, length, behind @ ..] = rest {
        let Some((value, next)) = behind.split_at_checked(usize::from(*length)) else { break };
        let is_text = matches!(code_set & 0x0F, 2 | 3);
        if kind >> 4 & 3 == 0 && !value.is_empty() {
            found.push(if is_text { text(value, 0..value.len()) } else { hexadecimal(value) });
        }
        rest = next;
    }
    found
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// READ CAPACITY, both forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Capacity {
    /// Number of logical blocks.
    pub blocks: u64,
    /// Bytes in a logical block.
    pub block_size: u32,
    /// What only the long form tells.
    pub details: Option<CapacityDetails>,
}

/// Bytes 12..16 of READ CAPACITY(16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct CapacityDetails {
    /// PROT_EN: blocks carry protection information.
    pub protected: bool,
    /// log2 of the logical blocks in a physical one.
    pub physical_exponent: u8,
    /// LBPME: the device says that it can unmap. Most USB bridges leave it 0 and can.
    pub provisioned: bool,
    /// LBPRZ: unmapped blocks read as zeros.
    pub reads_zeros: bool,
    /// First block that starts a physical block.
    pub lowest_aligned: u16,
}

impl Capacity {
    /// The answer to READ CAPACITY(10); a last block of FFFFFFFFh means that only the long form can tell, which
    /// shows as more than 2^32 - 1 blocks.
    pub fn parse_10(data: &[u8]) -> Option<Self> {
        let blocks = u64::from(be32(data, 0)?).checked_add(1)?;
        Some(Self { blocks, block_size: be32(data, 4)?, details: None })
    }

    /// The answer to READ CAPACITY(16).
    pub fn parse_16(data: &[u8]) -> Option<Self> {
        let aligned = be16(data, 14)?;
        let details = CapacityDetails {
            protected: data.get(12)? & 1 == 1,
            physical_exponent: data.get(13)? & 0x0F,
            provisioned: aligned >> 15 == 1,
            reads_zeros: aligned >> 14 & 1 == 1,
            lowest_aligned: aligned & 0x3FFF,
        };
        Some(Self { blocks: be64(data, 0)?.checked_add(1)?, block_size: be32(data, 8)?, details: Some(details) })
    }

    /// True when the short form had no room for the number.
    pub fn is_saturated(&self) -> bool {
        self.blocks > u64::from(u32::MAX)
    }

    /// Size in bytes; none when it does not fit.
    pub fn bytes(&self) -> Option<u64> {
        self.blocks.checked_mul(u64::from(self.block_size))
    }
}

/// GET LBA STATUS: true when the descriptor that holds `start` says "deallocated" (1) or "anchored" (2) for at least
/// `count` blocks, false when it says otherwise, none when it says nothing that can be used.
pub fn is_deallocated(data: &[u8], start: u64, count: u64) -> Option<bool> {
    let (first, blocks) = (be64(data, 8)?, u64::from(be32(data, 16)?));
    let holds = first <= start && start.checked_add(count)? <= first.checked_add(blocks)?;
    let status = data.get(20)? & 0x0F;
    match status {
        1 | 2 => holds.then_some(true),
        3 => (first <= start).then_some(false),
        _ => None,
    }
}
