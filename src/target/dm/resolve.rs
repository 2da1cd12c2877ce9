//! From the top of a stack of mappings to the devices at its bottom.

use super::control;
use super::table::{Line, Place, Rule, Table};
use crate::target::facts::{Kind, lookup};
use crate::target::sysfs::{DeviceNumber, Roots};
use coldtrim_parsers::units::ByteRange;
use std::collections::BTreeMap;
use std::fs::File;

/// How many mappings may stand upon each other.
const MOST_STOREYS: u32 = 8;

/// A device-mapper device, translated to the devices below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Every mapping from the top to the bottom, by its number.
    pub tables: BTreeMap<DeviceNumber, Table>,
    /// What lies where, from the first byte of the top to its last.
    pub pieces: Vec<Piece>,
    /// The number of the top.
    pub top: DeviceNumber,
}

/// Consecutive bytes of the top, and where they lie at the bottom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of the top.
    pub range: ByteRange,
    /// Where they lie.
    pub rule: Rule,
    /// True when they are encrypted on the way.
    pub is_encrypted: bool,
}

impl Stack {
    /// The stack below a device; an error in words when it is not translated.
    pub fn read(roots: &Roots, top: DeviceNumber) -> Result<Self, String> {
        let control = control(roots).map_err(|error| format!("its table cannot be read ({error}); root can"))?;
        let mut walk = Walk { roots, control, tables: BTreeMap::new() };
        let table = walk.table(top)?;
        let refused = table.lines.iter().find_map(|line| match &line.rule {
            Rule::Other(why) => Some(why.clone()),
            _ => None,
        });
        refused.map_or(Ok(()), Err)?;
        let mut pieces = Vec::new();
        for line in &table.lines {
            pieces.extend(walk.pieces(line, line.range, 0)?);
        }
        Ok(Self { tables: walk.tables, pieces, top })
    }

    /// What is below the top: true when all tables are still what they were, and at rest.
    pub fn is_unchanged(&self, roots: &Roots) -> bool {
        let Ok(control) = control(roots) else { return false };
        self.tables.iter().all(|(number, table)| Table::read(&control, *number).is_ok_and(|now| now == *table))
    }

    /// The devices at the bottom.
    pub fn bottom(&self) -> Vec<DeviceNumber> {
        let mut all: Vec<DeviceNumber> =
            self.pieces.iter().flat_map(|piece| places(&piece.rule)).map(|place| place.0).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The table of the top.
    pub fn table(&self) -> Option<&Table> {
        self.tables.get(&self.top)
    }

    /// What the stack is made of, as the kernel calls it (`crypt`, `linear`).
    pub fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> =
            self.tables.values().flat_map(|table| &table.lines).map(|line| line.kind.as_str()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// True when something of it is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.pieces.iter().any(|piece| piece.is_encrypted)
    }

    /// True when one of its mappings was opened from a VeraCrypt or TrueCrypt volume, in whose free space another one may hide.
    pub fn may_hide_a_volume(&self) -> bool {
        self.tables.values().any(|table| table.uuid.starts_with("CRYPT-TCRYPT-"))
    }
}

/// The places that a rule names.
fn places(rule: &Rule) -> Vec<Place> {
    match rule {
        Rule::Linear(place) | Rule::Crypt(place) => vec![*place],
        Rule::Striped { columns, .. } => columns.clone(),
        Rule::Nothing | Rule::Other(_) => Vec::new(),
    }
}

struct Walk<'a> {
    roots: &'a Roots,
    control: File,
    tables: BTreeMap<DeviceNumber, Table>,
}

impl Walk<'_> {
    fn table(&mut self, number: DeviceNumber) -> Result<Table, String> {
        if let Some(table) = self.tables.get(&number) {
            return Ok(table.clone());
        }
        let table =
            Table::read(&self.control, number).map_err(|error| format!("its table cannot be read ({error})"))?;
        if table.is_changing {
            return Err(format!("\"{}\" is suspended, or about to get another table", table.name));
        }
        self.tables.insert(number, table.clone());
        Ok(table)
    }

    /// Where the part `wanted` of a line lies. Ranges of the answer are those of the line's device.
    fn pieces(&mut self, line: &Line, wanted: ByteRange, storey: u32) -> Result<Vec<Piece>, String> {
        let too_far = || "its table leads behind the end of the number space".to_owned();
        let inside = wanted.start().checked_sub(line.range.start()).ok_or_else(too_far)?;
        match &line.rule {
            Rule::Nothing => Ok(vec![Piece { range: wanted, rule: Rule::Nothing, is_encrypted: false }]),
            Rule::Other(why) => Err(why.clone()),
            Rule::Linear((device, start)) | Rule::Crypt((device, start)) => {
                let is_crypt = matches!(line.rule, Rule::Crypt(_));
                let start = start.checked_add(inside).ok_or_else(too_far)?;
                let below = self.below((*device, start), wanted.len(), storey)?;
                let up = |piece: Piece| {
                    let range = piece.range.shift_down(start)?.shift_up(wanted.start())?;
                    Some(Piece { range, is_encrypted: piece.is_encrypted || is_crypt, ..piece })
                };
                below.into_iter().map(up).collect::<Option<Vec<_>>>().ok_or_else(too_far)
            }
            Rule::Striped { chunk, columns } => {
                if wanted != line.range {
                    return Err("a mapping takes a part of a striped one".to_owned());
                }
                let len = wanted.len() / u64::try_from(columns.len().max(1)).unwrap_or(u64::MAX);
                let (mut found, mut is_encrypted) = (Vec::new(), false);
                for column in columns {
                    match self.below(*column, len, storey)?.as_slice() {
                        [Piece { rule: Rule::Linear(place), is_encrypted: below, .. }] => {
                            found.push(*place);
                            is_encrypted |= below;
                        }
                        _ => return Err("a column of a striped mapping lies in several pieces".to_owned()),
                    }
                }
                let rule = Rule::Striped { chunk: *chunk, columns: found };
                Ok(vec![Piece { range: wanted, rule, is_encrypted }])
            }
        }
    }

    /// Where `len` bytes of a device lie; they begin at `start` of it, and so do the ranges of the answer.
    fn below(&mut self, (device, start): Place, len: u64, storey: u32) -> Result<Vec<Piece>, String> {
        let range = ByteRange::with_len(start, len).ok_or("its table leads behind the end of the number space")?;
        let found = lookup(self.roots, device).ok_or_else(|| format!("there is no device {device} below it"))?;
        let is_mapping = found.1.is_none() && found.0.kind == Kind::DeviceMapper;
        let bottom = Piece { range, rule: Rule::Linear((device, start)), is_encrypted: false };
        if !is_mapping || storey >= MOST_STOREYS {
            return Ok(vec![bottom]);
        }
        let table = self.table(device)?;
        // What is not translated is a bottom of its own: the kernel's discard knows what to do there.
        if table.lines.iter().any(|line| matches!(line.rule, Rule::Other(_))) {
            self.tables.remove(&device);
            return Ok(vec![bottom]);
        }
        let mut pieces = Vec::new();
        for line in &table.lines {
            if let Some(part) = line.range.intersect(range) {
                pieces.extend(self.pieces(line, part, storey + 1)?);
            }
        }
        let covered: u64 = pieces.iter().map(|piece| piece.range.len()).sum();
        if covered == len { Ok(pieces) } else { Err(format!("\"{}\" is smaller than what stands on it", table.name)) }
    }
}
