//! The table of a device-mapper device: which bytes of it lie where. Keys are read past, and never kept.
//! Source: Linux `Documentation/admin-guide/device-mapper/`.

use super::sys;
use crate::target::sysfs::DeviceNumber;
use coldtrim_parsers::units::ByteRange;
use std::fs::File;
use std::io;

/// Tables count in these.
const SECTOR: u64 = 512;
/// `struct dm_target_spec`: start and length of 64 bits, status and place of the next line of 32, the kind of 16 bytes.
const SPEC: usize = 40;

/// A table, without keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The name of the device.
    pub name: String,
    /// What its maker calls it (`CRYPT-LUKS2-...`, `LVM-...`).
    pub uuid: String,
    /// True when it is suspended, or another table waits.
    pub is_changing: bool,
    /// Counts its events.
    pub event: u32,
    /// From its first byte to its last.
    pub lines: Vec<Line>,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its bytes of the device.
    pub range: ByteRange,
    /// The kind, as the kernel calls it.
    pub kind: String,
    /// Where they lie.
    pub rule: Rule,
}

/// A byte of another device.
pub type Place = (DeviceNumber, u64);

/// Where the bytes of a line lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// From this byte on.
    Linear(Place),
    /// The same, encrypted.
    Crypt(Place),
    /// Chunks in turn.
    Striped {
        /// Bytes.
        chunk: u64,
        /// Where each column begins.
        columns: Vec<Place>,
    },
    /// Nowhere.
    Nothing,
    /// As something says that is not translated: why.
    Other(String),
}

impl Table {
    /// The table in use of a device.
    pub fn read(control: &File, device: DeviceNumber) -> io::Result<Self> {
        let answer = sys::table(control, nix::sys::stat::makedev(device.major, device.minor))?;
        let lines = lines(answer.data(), answer.lines);
        Ok(Self {
            name: answer.name(),
            uuid: answer.uuid(),
            is_changing: answer.flags & (sys::SUSPENDED | sys::INACTIVE_PRESENT) != 0,
            event: answer.event,
            lines: lines.ok_or_else(|| io::Error::other("its table cannot be read"))?,
        })
    }
}

/// The lines of a table; none unless they follow each other from the first byte on.
fn lines(data: &[u8], count: u32) -> Option<Vec<Line>> {
    let mut found = Vec::new();
    let (mut at, mut end) = (0, 0);
    for _ in 0..count {
        let spec = data.get(at..)?;
        let number = |from: usize| spec.get(from..).and_then(<[u8]>::first_chunk).copied().map(u64::from_ne_bytes);
        let start = number(0)?.checked_mul(SECTOR).filter(|start| *start == end)?;
        let range = ByteRange::with_len(start, number(8)?.checked_mul(SECTOR)?)?;
        let next = spec.get(20..).and_then(<[u8]>::first_chunk).copied().map(u32::from_ne_bytes)?;
        let kind = until_zero(spec.get(24..SPEC)?)?.to_owned();
        let rule = rule(&kind, until_zero(spec.get(SPEC..)?)?, range.len());
        found.push(Line { range, kind, rule });
        (at, end) = (usize::try_from(next).ok().filter(|next| *next > at)?, range.end());
    }
    (!found.is_empty()).then_some(found)
}

/// The text before the first zero byte, where it lies.
fn until_zero(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(bytes.get(..end)?).ok()
}

/// What the words of a line of `len` bytes say. Of the words none but places and names of options is looked at.
fn rule(kind: &str, words: &str, len: u64) -> Rule {
    let known = match kind {
        "linear" => linear(words),
        "striped" => striped(words, len),
        "crypt" => crypt(words),
        "zero" | "error" => Some(Rule::Nothing),
        _ => None,
    };
    known.unwrap_or_else(|| Rule::Other(reason(kind)))
}

fn place(device: &str, sector: &str) -> Option<Place> {
    Some((DeviceNumber::parse(device)?, sector.parse::<u64>().ok()?.checked_mul(SECTOR)?))
}

/// `DEVICE SECTOR`
fn linear(words: &str) -> Option<Rule> {
    let (device, sector) = words.trim().split_once(' ')?;
    place(device, sector).map(Rule::Linear)
}

/// `COUNT CHUNK DEVICE SECTOR [DEVICE SECTOR ...]`
fn striped(words: &str, len: u64) -> Option<Rule> {
    let mut words = words.split_ascii_whitespace();
    let count: u64 = words.next()?.parse().ok().filter(|count| *count > 0)?;
    let chunk = words.next()?.parse::<u64>().ok()?.checked_mul(SECTOR).filter(|chunk| *chunk > 0)?;
    let mut columns = Vec::new();
    while let (Some(device), Some(sector)) = (words.next(), words.next()) {
        columns.push(place(device, sector)?);
    }
    // What a last row that is not full would hold depends on the kernel's version.
    let row = count.checked_mul(chunk)?;
    let is_whole = usize::try_from(count) == Ok(columns.len()) && len.is_multiple_of(row);
    is_whole.then_some(Rule::Striped { chunk, columns })
}

/// `CIPHER KEY OFFSET-OF-IV DEVICE SECTOR [COUNT OPTION ...]`
fn crypt(words: &str) -> Option<Rule> {
    let mut words = words.split_ascii_whitespace();
    let cipher = words.next()?;
    let mut words = words.skip(2);
    let place = place(words.next()?, words.next()?)?;
    let is_authenticated = words.any(|option| option.starts_with("integrity:")) || cipher.contains("authenc");
    let why =
        "it is encrypted with authentication, whose tags a discard below would make wrong (dm-crypt with integrity)";
    Some(if is_authenticated { Rule::Other(why.to_owned()) } else { Rule::Crypt(place) })
}

/// Why a kind is not translated.
fn reason(kind: &str) -> String {
    let what = match kind {
        "integrity" => "it keeps checksums beside its blocks, which a discard below would make wrong (dm-integrity)",
        "verity" => "its blocks are covered by hashes (dm-verity)",
        "thin" | "thin-pool" => "its blocks are given out by a pool, which must hear of a discard",
        "snapshot" | "snapshot-origin" | "snapshot-merge" => "it takes part in a snapshot, which must see every change",
        "cache" | "writecache" => "newer data may lie on a cache",
        "vdo" => "its blocks are deduplicated",
        "raid" | "mirror" => "its copies or its parity must stay in step",
        "multipath" => "it leads to a disk by several paths, of which none may be used alone",
        _ => return format!("dm-{kind} is not translated"),
    };
    format!("{what} ({kind})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(minor: u64) -> DeviceNumber {
        DeviceNumber { major: 253, minor }
    }

    #[test]
    fn places_are_read_and_keys_are_not() {
        let key = "0123456789abcdef".repeat(4);
        let words = format!("aes-xts-plain64 {key} 0 253:2 32768 1 allow_discards");
        let found = rule("crypt", &words, 512);
        assert_eq!(found, Rule::Crypt((device(2), 32_768 * 512)));
        assert!(!format!("{found:?}").contains("0123"));
        let keyring =
            "capi:xts(aes)-plain64 :64:logon:cryptsetup:x-d0 8 253:2 4096 2 sector_size:4096 iv_large_sectors";
        assert_eq!(rule("crypt", keyring, 512), Rule::Crypt((device(2), 4096 * 512)));
        let tagged = "capi:authenc(hmac(sha256),xts(aes))-random 00 0 253:2 0 1 integrity:48:aead";
        assert!(matches!(rule("crypt", tagged, 512), Rule::Other(why) if why.contains("authentication")));
        // No key at all (null cipher) is a dash.
        assert_eq!(rule("crypt", "cipher_null-ecb - 0 253:2 8", 512), Rule::Crypt((device(2), 4096)));
    }

    #[test]
    fn linear_and_striped_lines_are_read() {
        assert_eq!(rule("linear", "253:1 2048", 512), Rule::Linear((device(1), 1 << 20)));
        let columns = vec![(device(1), 0), (device(2), 4096)];
        assert_eq!(rule("striped", "2 128 253:1 0 253:2 8", 131_072), Rule::Striped { chunk: 65_536, columns });
        for (words, len) in
            [("2 128 253:1 0 253:2 8", 65_536), ("2 128 253:1 0", 131_072), ("0 128", 512), ("1 0 8:1 0", 512)]
        {
            assert!(matches!(rule("striped", words, len), Rule::Other(_)), "{words}");
        }
        assert_eq!(rule("zero", "", 512), Rule::Nothing);
        for kind in ["thin", "cache", "integrity", "mirror", "quantum"] {
            assert!(matches!(rule(kind, "253:1 0", 512), Rule::Other(why) if why.contains(kind)), "{kind}");
        }
    }

    /// Lines as the kernel lays them out.
    fn data(lines: &[(u64, u64, &str, &str)]) -> Vec<u8> {
        let mut data: Vec<u8> = Vec::new();
        for (start, sectors, kind, words) in lines {
            let next = (data.len() + SPEC + words.len() + 1).next_multiple_of(8);
            let next32 = u32::try_from(next).unwrap();
            let mut name = kind.as_bytes().to_vec();
            name.resize(16, 0);
            data.extend([start.to_ne_bytes(), sectors.to_ne_bytes()].concat());
            data.extend([0_u32.to_ne_bytes(), next32.to_ne_bytes()].concat());
            data.extend(name);
            data.extend(words.as_bytes());
            data.resize(next, 0);
        }
        data
    }

    #[test]
    fn lines_follow_each_other_from_the_first_byte() {
        let good = data(&[(0, 8, "linear", "253:1 0"), (8, 16, "crypt", "c k 0 253:2 64")]);
        let found = lines(&good, 2).unwrap();
        assert_eq!(found[1].range, ByteRange::new(4096, 12_288).unwrap());
        assert_eq!(found[1].rule, Rule::Crypt((device(2), 32_768)));
        assert_eq!(lines(&good, 3), None);
        assert_eq!(lines(&good[..60], 2), None);
        assert_eq!(lines(&good, 0), None);
        assert_eq!(lines(&data(&[(1, 8, "linear", "253:1 0")]), 1), None);
        assert_eq!(lines(&data(&[(0, 8, "linear", "253:1 0"), (9, 8, "linear", "253:1 0")]), 2), None);
        assert_eq!(lines(&data(&[(0, 0, "linear", "253:1 0")]), 1), None);
    }
}
