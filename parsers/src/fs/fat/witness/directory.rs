//! Directory entries of 32 bytes, as the witness reads them. Source: Microsoft's "FAT32 File System Specification"
//! 1.03, sections "FAT Directory Structure" and "FAT Long Directory Entries".

/// One slot of a directory.
pub(super) type Slot = [u8; 32];

/// What a slot holds.
pub(super) enum Entry {
    /// Nothing here and behind.
    End,
    /// Deleted, or the volume's label.
    Nothing,
    /// A part of the long name of the entry that follows.
    LongName,
    /// `.` with its cluster, or `..`.
    Own(u32),
    Parent,
    Directory(u32),
    File {
        first: u32,
        size: u32,
    },
    /// Bytes that no entry has.
    Garbage(&'static str),
}

const VOLUME: u8 = 0x08;
const DIRECTORY: u8 = 0x10;
const LONG_NAME: u8 = 0x0F;

pub(super) fn entry(slot: &Slot, has_high_word: bool) -> Entry {
    let [first, .., attributes] = *slot.first_chunk::<12>().unwrap_or(&[0; 12]);
    if first == 0 {
        return Entry::End;
    }
    if first == 0xE5 {
        return Entry::Nothing;
    }
    if attributes & 0x3F == LONG_NAME {
        return Entry::LongName;
    }
    let name = slot.first_chunk::<11>().unwrap_or(&[0; 11]);
    // 05h stands for a name that begins with E5h.
    if first != 0x05 && first < 0x20 || name.iter().skip(1).any(|byte| *byte < 0x20) {
        return Entry::Garbage("a name with control characters");
    }
    let (high, low) = (if has_high_word { word(slot, 20) } else { 0 }, word(slot, 26));
    let cluster = high << 16 | low;
    match attributes & (VOLUME | DIRECTORY) {
        VOLUME => Entry::Nothing,
        DIRECTORY if name == b".          " => Entry::Own(cluster),
        DIRECTORY if name == b"..         " => Entry::Parent,
        DIRECTORY => Entry::Directory(cluster),
        0 => Entry::File { first: cluster, size: word(slot, 30) << 16 | word(slot, 28) },
        _ => Entry::Garbage("an entry that is a label and a directory at once"),
    }
}

fn word(slot: &Slot, at: usize) -> u32 {
    let bytes = slot.get(at..).and_then(|rest| rest.first_chunk()).unwrap_or(&[0; 2]);
    u16::from_le_bytes(*bytes).into()
}

/// The name to show: the long one if its parts are all there, else the short one.
pub(super) fn name(slot: &Slot, long: &[Slot]) -> String {
    let short = slot.first_chunk::<11>().unwrap_or(&[0; 11]);
    let sum = short.iter().fold(0_u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte));
    let mut bytes = Vec::new();
    for (part, number) in long.iter().rev().zip(1_u8..) {
        if part.first().is_none_or(|first| first & 0x1F != number) || part.get(13) != Some(&sum) {
            return short_name(short);
        }
        bytes
            .extend([1..11, 14..26, 28..32].into_iter().flat_map(|range| part.get(range).unwrap_or_default()).copied());
    }
    let units: Vec<u16> = bytes.as_chunks().0.iter().map(|pair| u16::from_le_bytes(*pair)).collect();
    let end = units.iter().position(|unit| *unit == 0).unwrap_or(units.len());
    match String::from_utf16_lossy(units.get(..end).unwrap_or_default()) {
        name if name.is_empty() => short_name(short),
        name => name,
    }
}

fn short_name(name: &[u8; 11]) -> String {
    let (base, extension) = name.split_at(8);
    let [base, extension] = [base, extension].map(|part| String::from_utf8_lossy(part).trim_end().to_owned());
    if extension.is_empty() { base } else { format!("{base}.{extension}") }
}
