//! SCSI commands as bytes. Pure functions; numbers are big-endian, reserved bytes and the last byte (CONTROL) are 0.
//! Layouts: SPC-4 and SBC-3.

use crate::plan::units::LbaRange;

/// A command descriptor block.
pub type Cdb<const N: usize> = [u8; N];

/// TEST UNIT READY: six zeros.
pub const TEST_UNIT_READY: Cdb<6> = [0; 6];

/// SYNCHRONIZE CACHE(10) `35h`; address 0 and count 0 mean the whole device.
pub const SYNCHRONIZE_CACHE: Cdb<10> = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// READ CAPACITY(10) `25h`; answers 8 bytes.
pub const READ_CAPACITY_10: Cdb<10> = [0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// SERVICE ACTION IN(16) `9Eh`, `[1]` = 10h READ CAPACITY(16), `[10..14]` allocation length 32.
pub const READ_CAPACITY_16: Cdb<16> = [0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];

/// INQUIRY `12h` for the standard data, 36 bytes: the only length that all USB devices bear.
pub const INQUIRY: Cdb<6> = [0x12, 0, 0, 0, 36, 0];

/// MODE SENSE(6) `1Ah`, `[2]` = 3Fh all pages, `[4]` = 192 bytes, the length that the kernel asks of USB devices.
pub const MODE_SENSE: Cdb<6> = [0x1A, 0, 0x3F, 0, 192, 0];

/// INQUIRY `12h` with `[1]` bit 0 EVPD, `[2]` page, `[3..5]` allocation length.
pub fn vital_product_data(page: u8, length: u16) -> Cdb<6> {
    let [high, low] = length.to_be_bytes();
    [0x12, 0x01, page, high, low, 0]
}

/// READ(10) `28h`: `[2..6]` address, `[7..9]` count; none when the numbers do not fit.
pub fn read_10(blocks: LbaRange) -> Option<Cdb<10>> {
    let [a, b, c, d] = u32::try_from(blocks.start()).ok()?.to_be_bytes();
    let [high, low] = u16::try_from(blocks.count()).ok()?.to_be_bytes();
    Some([0x28, 0, a, b, c, d, 0, high, low, 0])
}

/// READ(16) `88h`: `[2..10]` address, `[10..14]` count; none when the count does not fit.
pub fn read_16(blocks: LbaRange) -> Option<Cdb<16>> {
    let mut cdb = [0; 16];
    cdb[0] = 0x88;
    cdb[2..10].copy_from_slice(&blocks.start().to_be_bytes());
    cdb[10..14].copy_from_slice(&u32::try_from(blocks.count()).ok()?.to_be_bytes());
    Some(cdb)
}

/// GET LBA STATUS(16): `9Eh`, `[1]` = 12h, `[2..10]` address, `[10..14]` allocation length 24: one descriptor.
pub fn get_lba_status(start: u64) -> Cdb<16> {
    let mut cdb = [0; 16];
    cdb[0] = 0x9E;
    cdb[1] = 0x12;
    cdb[2..10].copy_from_slice(&start.to_be_bytes());
    cdb[13] = 24;
    cdb
}

/// UNMAP `42h`: `[7..9]` length of the parameter list; and the list, a header of 8 bytes and 16 bytes a range:
///
/// ```text
/// 0  u16  length behind this field (6 + 16 n)      8 + 16 i   u64  first block
/// 2  u16  length of the descriptors (16 n)        16 + 16 i   u32  number of blocks
/// 4  u32  0                                       20 + 16 i   u32  0
/// ```
/// None when a number does not fit its field.
pub fn unmap(ranges: &[LbaRange]) -> Option<(Cdb<10>, Vec<u8>)> {
    let descriptors = u16::try_from(ranges.len().checked_mul(16)?).ok()?;
    let mut list = Vec::with_capacity(usize::from(descriptors).checked_add(8)?);
    list.extend(descriptors.checked_add(6)?.to_be_bytes());
    list.extend(descriptors.to_be_bytes());
    list.extend([0; 4]);
    for range in ranges {
        list.extend(range.start().to_be_bytes());
        list.extend(u32::try_from(range.count()).ok()?.to_be_bytes());
        list.extend([0; 4]);
    }
    let [high, low] = u16::try_from(list.len()).ok()?.to_be_bytes();
    Some(([0x42, 0, 0, 0, 0, 0, 0, high, low, 0], list))
}

/// WRITE SAME(16) `93h` with `[1]` bit 3 UNMAP: `[2..10]` address, `[10..14]` count. Data: one block of zeros. A
/// count of 0 would mean the rest of the device; [`LbaRange`] has none. None when the count does not fit into 16
/// bits, which is as much as all devices understand.
pub fn write_same_16(blocks: LbaRange) -> Option<Cdb<16>> {
    let count = u16::try_from(blocks.count()).ok()?;
    let mut cdb = [0; 16];
    cdb[0] = 0x93;
    cdb[1] = 0x08;
    cdb[2..10].copy_from_slice(&blocks.start().to_be_bytes());
    cdb[12..14].copy_from_slice(&count.to_be_bytes());
    Some(cdb)
}

/// WRITE SAME(10) `41h` with `[1]` bit 3 UNMAP: `[2..6]` address, `[7..9]` count; none when a number does not fit.
pub fn write_same_10(blocks: LbaRange) -> Option<Cdb<10>> {
    let [a, b, c, d] = u32::try_from(blocks.start()).ok()?.to_be_bytes();
    let [high, low] = u16::try_from(blocks.count()).ok()?.to_be_bytes();
    Some([0x41, 0x08, a, b, c, d, 0, high, low, 0])
}
