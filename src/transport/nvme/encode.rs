//! NVMe commands as fields and payload bytes (NVM Command Set specification 1.0; numbers are little-endian).

use super::port::Command;
use crate::plan::units::LbaRange;

/// Size of every data buffer here: some controllers fetch a whole page whatever the command says.
pub const PAGE: usize = 4096;
/// Most ranges in one Dataset Management.
pub const MOST_RANGES: u64 = 256;

/// IDENTIFY `06h`: CDW10 bits 7:0 CNS, CDW11 bits 31:24 command set (0: NVM). 4096 bytes from the controller.
pub fn identify(cns: u8, namespace: u32) -> Command {
    Command { opcode: 0x06, namespace, words: [u32::from(cns), 0, 0, 0, 0, 0] }
}

/// DATASET MANAGEMENT `09h`: CDW10 bits 7:0 number of ranges minus 1, CDW11 bit 2 deallocate. Payload, 16 bytes a
/// range: context attributes (4), number of blocks (4, not minus 1), first block (8). None when it does not fit.
pub fn deallocate(namespace: u32, ranges: &[LbaRange]) -> Option<(Command, Box<Page>)> {
    let last = u8::try_from(ranges.len().checked_sub(1)?).ok()?;
    let mut page = Box::new(Page([0; PAGE]));
    for (slot, range) in page.0.as_chunks_mut::<16>().0.iter_mut().zip(ranges) {
        slot[4..8].copy_from_slice(&u32::try_from(range.count()).ok()?.to_le_bytes());
        slot[8..16].copy_from_slice(&range.start().to_le_bytes());
    }
    Some((Command { opcode: 0x09, namespace, words: [u32::from(last), 1 << 2, 0, 0, 0, 0] }, page))
}

/// READ `02h`: CDW10-11 first block, CDW12 bits 15:0 number of blocks minus 1. None when the count does not fit.
pub fn read(namespace: u32, blocks: LbaRange) -> Option<Command> {
    let last = u16::try_from(blocks.count().checked_sub(1)?).ok()?;
    let [h0, h1, h2, h3, l0, l1, l2, l3] = blocks.start().to_be_bytes();
    let (low, high) = (u32::from_be_bytes([l0, l1, l2, l3]), u32::from_be_bytes([h0, h1, h2, h3]));
    Some(Command { opcode: 0x02, namespace, words: [low, high, u32::from(last), 0, 0, 0] })
}

/// A buffer that fills exactly one page of memory.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Page(pub [u8; PAGE]);
