//! Records of version 0.90: words of 32 bits in the byte order of the machine that made them (Linux
//! `include/uapi/linux/raid/md_p.h`, `mdp_super_t`).

use super::one::folded;
use super::record::{Duty, MAGIC, Record, Shape, Version, uuid};
use crate::error::{Mismatch, ParseError};
use crate::source::{Source, read_vec};
use crate::units::ByteRange;

/// Bytes of a record.
const RECORD: u64 = 4096;
/// Numbers of words.
const MINOR_VERSION: usize = 2;
const SET_UUID: [usize; 4] = [5, 13, 14, 15];
const LEVEL: usize = 7;
const SIZE: usize = 8;
const RAID_DISKS: usize = 10;
const STATE: usize = 33;
const SUM: usize = 38;
const EVENTS: usize = 39;
const LAYOUT: usize = 64;
const CHUNK: usize = 65;
/// Entries of 32 words for up to 27 devices.
const DEVICES: usize = 128;
const DEVICE_WORDS: usize = 32;
const MOST_DEVICES: u32 = 27;
/// The same words for this device.
const THIS_DEVICE: usize = 992;
/// Words of an entry.
const SLOT: usize = 3;
const DEVICE_STATE: usize = 4;

struct Words {
    bytes: Vec<u8>,
    little: bool,
}

impl Words {
    fn get(&self, index: usize) -> u32 {
        let word = self.bytes.as_chunks::<4>().0.get(index).copied().unwrap_or_default();
        if self.little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) }
    }

    /// Two words, the low one first on machines whose low byte comes first.
    fn wide(&self, index: usize) -> u64 {
        let (one, two) = (u64::from(self.get(index)), u64::from(self.get(index.saturating_add(1))));
        let (low, high) = if self.little { (one, two) } else { (two, one) };
        high << 32_u32 | low
    }

    fn sum(&self) -> u32 {
        let count = self.bytes.as_chunks::<4>().0.len();
        let words = (0..count).filter(|index| *index != SUM);
        folded(words.fold(0_u64, |sum, index| sum.wrapping_add(self.get(index).into())))
    }
}

/// Reads the record at `at`, which is also where the data ends.
pub(super) fn read(source: &dyn Source, at: u64) -> Result<Record, ParseError> {
    let bytes = read_vec(source, at, RECORD)?;
    let words = Words { little: bytes.starts_with(&MAGIC.to_le_bytes()), bytes };
    if words.sum() != words.get(SUM) {
        let (expected, found) = (words.get(SUM).into(), words.sum().into());
        return Err(ParseError::corrupt(at, Mismatch::hex("the record's sum", expected, found)));
    }
    let slots = words.get(RAID_DISKS);
    if slots > MOST_DEVICES {
        let expected = format!("at most {MOST_DEVICES}");
        return Err(ParseError::corrupt(at, Mismatch::new("the number of members", expected, slots)));
    }
    let data = ByteRange::new(0, at).ok_or_else(|| ParseError::corrupt(at, "no room for data"))?;
    Ok(Record {
        version: Version::V0,
        uuid: uuid(SET_UUID.map(|index| words.get(index))),
        name: None,
        shape: shape(&words),
        events: words.wide(EVENTS),
        duty: duty(&words),
        in_sync: (0..slots).map(|slot| has_member(&words, slot)).collect(),
        data,
        at,
        // Set by Linux only when nothing is being written and no recovery is left to do.
        clean: words.get(STATE) & 0b11 == 0b01,
        troubles: troubles(&words),
        // The bitmap follows the record, within the 64 KiB that are kept for both.
        bitmap: if words.get(STATE) & 0x100 == 0 { None } else { at.checked_add(RECORD) },
    })
}

fn shape(words: &Words) -> Shape {
    Shape {
        level: i32::from_le_bytes(words.get(LEVEL).to_le_bytes()),
        layout: words.get(LAYOUT),
        chunk: words.get(CHUNK).into(),
        slots: words.get(RAID_DISKS),
        size: u64::from(words.get(SIZE)).saturating_mul(1024),
        states_layout: false,
    }
}

fn duty(words: &Words) -> Duty {
    let state = words.get(THIS_DEVICE.saturating_add(DEVICE_STATE));
    let slot = words.get(THIS_DEVICE.saturating_add(SLOT));
    match state & 0b111 {
        0b110 if slot < words.get(RAID_DISKS) => Duty::Member(slot),
        0 => Duty::Spare,
        _ => Duty::Faulty,
    }
}

/// True when the record knows a member in sync in this slot: active, in sync, not faulty.
fn has_member(words: &Words, slot: u32) -> bool {
    (0..27).any(|index: usize| {
        let entry = DEVICES.saturating_add(index.saturating_mul(DEVICE_WORDS));
        let state = words.get(entry.saturating_add(DEVICE_STATE)) & 0b1111;
        words.get(entry.saturating_add(SLOT)) == slot && state == 0b0110
    })
}

fn troubles(words: &Words) -> Vec<String> {
    match words.get(MINOR_VERSION) {
        90 => Vec::new(),
        91 => vec!["it is being reshaped: let the array run until that is done".to_owned()],
        other => vec![format!("its record has version 0.{other}, which coldtrim does not know")],
    }
}
