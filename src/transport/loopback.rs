//! Devices that live in memory, for tests of everything above a port: they decode the very command bytes.

use super::carrier::Data;
use super::scsi::script::check_condition;
use super::scsi::{Completion, ScsiPort};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// A SCSI disk in memory that knows UNMAP. Clones share the medium, so a test can look at it.
#[derive(Clone)]
pub struct MemoryDisk(Rc<RefCell<State>>);

struct State {
    medium: Vec<u8>,
    block: usize,
    max_blocks: u32,
    max_descriptors: u32,
    granularity: u32,
    unmaps: u64,
}

impl MemoryDisk {
    /// A disk of `blocks` blocks of 512 bytes full of A5h.
    pub fn new(blocks: usize, max_blocks: u32, max_descriptors: u32, granularity: u32) -> Self {
        let medium = vec![0xA5; blocks * 512];
        Self(Rc::new(RefCell::new(State { medium, block: 512, max_blocks, max_descriptors, granularity, unmaps: 0 })))
    }

    /// What is on the medium.
    pub fn medium(&self) -> Vec<u8> {
        self.0.borrow().medium.clone()
    }

    /// Number of UNMAP commands that were carried out.
    pub fn unmaps(&self) -> u64 {
        self.0.borrow().unmaps
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

impl State {
    fn answer(&mut self, cdb: &[u8]) -> Result<Vec<u8>, (u8, u8, u8)> {
        let last = u64::try_from(self.medium.len() / self.block - 1).unwrap();
        let size = u32::try_from(self.block).unwrap().to_be_bytes();
        match cdb[0] {
            0x12 if cdb[1] == 0 => Ok([&[0, 0, 6, 2, 31, 0, 0, 0][..], b"MEMORY  UNMAPPING DISK  1.0 "].concat()),
            0x12 => self.page(cdb[2]).ok_or((5, 0x24, 0)),
            0x25 => Ok([&u32::try_from(last).unwrap().to_be_bytes()[..], &size].concat()),
            0x9E if cdb[1] == 0x10 => Ok([&last.to_be_bytes()[..], &size, &[0; 20]].concat()),
            0x1A => Ok(vec![0; 4]),
            0x28 => self.read(number(&cdb[2..6]), number(&cdb[7..9])),
            _ => Err((5, 0x20, 0)),
        }
    }

    fn page(&self, code: u8) -> Option<Vec<u8>> {
        match code {
            0x00 => Some(vec![0, 0, 0, 3, 0x00, 0xB0, 0xB2]),
            0xB0 => {
                let mut page = vec![0; 64];
                (page[1], page[3]) = (0xB0, 0x3C);
                page[20..24].copy_from_slice(&self.max_blocks.to_be_bytes());
                page[24..28].copy_from_slice(&self.max_descriptors.to_be_bytes());
                page[28..32].copy_from_slice(&self.granularity.to_be_bytes());
                Some(page)
            }
            0xB2 => Some(vec![0, 0xB2, 0, 4, 0, 0x80, 0, 0]),
            _ => None,
        }
    }

    fn read(&self, lba: u64, count: u64) -> Result<Vec<u8>, (u8, u8, u8)> {
        let (start, len) = (usize::try_from(lba).unwrap() * self.block, usize::try_from(count).unwrap() * self.block);
        self.medium.get(start..start + len).map(<[u8]>::to_vec).ok_or((5, 0x21, 0))
    }

    /// Checks the list as a strict device would, then clears the blocks.
    fn unmap(&mut self, cdb: &[u8], list: &[u8]) -> Result<(), (u8, u8, u8)> {
        if number(&cdb[7..9]) != u64::try_from(list.len()).unwrap() || list.len() < 8 {
            return Err((5, 0x1A, 0));
        }
        let length = usize::try_from(number(&list[2..4])).unwrap();
        if usize::try_from(number(&list[..2])).unwrap() != list.len() - 2 || length != list.len() - 8 {
            return Err((5, 0x26, 0));
        }
        let ranges: Vec<(usize, usize)> = list[8..]
            .chunks_exact(16)
            .map(|d| (usize::try_from(number(&d[..8])).unwrap(), usize::try_from(number(&d[8..12])).unwrap()))
            .collect();
        let blocks: usize = ranges.iter().map(|(_, count)| count).sum();
        if ranges.len() > usize::try_from(self.max_descriptors).unwrap()
            || blocks > usize::try_from(self.max_blocks).unwrap()
        {
            return Err((5, 0x26, 0));
        }
        for (start, count) in ranges {
            let (start, end) = (start * self.block, (start + count) * self.block);
            self.medium.get_mut(start..end).ok_or((5, 0x21, 0))?.fill(0);
        }
        self.unmaps += 1;
        Ok(())
    }
}

impl ScsiPort for MemoryDisk {
    fn execute(&mut self, cdb: &[u8], data: Data<'_>, _timeout: Duration) -> std::io::Result<Completion> {
        let mut state = self.0.borrow_mut();
        let result = match data {
            Data::None if matches!(cdb[0], 0x00 | 0x35) => Ok(0),
            Data::Out(list) if cdb[0] == 0x42 => state.unmap(cdb, list).map(|()| 0),
            Data::In(buffer) => state.answer(cdb).map(|answer| {
                let count = answer.len().min(buffer.len());
                buffer[..count].copy_from_slice(&answer[..count]);
                buffer.len() - count
            }),
            _ => Err((5, 0x20, 0)),
        };
        Ok(match result {
            Ok(residue) => Completion { residue: i64::try_from(residue).unwrap(), ..Completion::default() },
            Err((key, asc, ascq)) => check_condition(key, asc, ascq),
        })
    }
}
