//! Targets that device-mapper makes of others: what is free on them becomes ranges of the devices below.
//!
//! The top is read, and claimed: it shows what is encrypted in clear. Commands go to the devices at the bottom, each by its
//! own route, since a mapping passes discards on only where it was opened so, and behind a bridge not at all.

use super::arrays::hull;
use crate::report::arrays::{ArrayMemberReport, ArrayReport};
use crate::target::dm::{Rule, Stack};
use crate::target::facts::Kind;
use crate::target::{DeviceNumber, Intent, Opener, Roots, Target, TargetError};
use coldtrim_parsers::array::{Area, Geometry, Mapping, Segment};
use coldtrim_parsers::units::ByteRange;
use coldtrim_parsers::volume::{Consent, Finding};
use std::os::unix::fs::FileExt;

/// How many places of a mapping are read through both ends.
const SAMPLES: u64 = 64;
/// Bytes that are read at each.
const SAMPLE: u64 = 4096;

/// What is below each target that was named; none where commands go to the target itself.
#[derive(Default)]
pub struct Below {
    lowers: Vec<Option<Lower>>,
    /// What is to be said of each target.
    findings: Vec<Vec<Finding>>,
}

/// The devices below a target.
pub struct Lower {
    stack: Stack,
    /// Where the bytes lie. Its devices are targets of the run.
    mapping: Mapping,
    /// Bytes of the top, and where in the mapping they begin. What is in none of them lies nowhere.
    places: Vec<(ByteRange, u64)>,
    /// Only whole units of so many bytes of the top are carried down: what is encrypted as one is discarded as one.
    granule: u64,
}

impl Below {
    /// Follows the mappings among `targets`, and opens the devices at the bottom as further targets.
    pub fn open(opener: &mut Opener, targets: &mut Vec<Target>, intent: Intent) -> Result<Self, TargetError> {
        let named = targets.len();
        let read: Vec<Option<Result<Stack, String>>> = targets.iter().map(stack_of).collect();
        let stacks: Vec<Stack> = read.iter().flatten().flatten().cloned().collect();
        let mut below = Self::default();
        let mut numbers = Vec::new();
        for (index, found) in read.into_iter().enumerate() {
            let (lower, findings) = match found {
                None => (None, Vec::new()),
                Some(Err(why)) => (None, vec![untranslated(&targets[index], &why)]),
                Some(Ok(stack)) => {
                    let opened = open_bottom(opener, targets, &mut numbers, &stack, &stacks, intent)?;
                    let consents = consents(&targets[index], &stack);
                    let lower = opened.and_then(|()| {
                        let (from, granule) = (named, targets[index].logical_sector());
                        Lower::new(
                            stack,
                            |number| Some(from + numbers.iter().position(|known| *known == number)?),
                            granule,
                        )
                    });
                    match lower {
                        Ok(lower) => (Some(lower), consents),
                        Err(why) => (None, [consents, vec![untranslated(&targets[index], &why)]].concat()),
                    }
                }
            };
            below.lowers.push(lower);
            below.findings.push(findings);
        }
        Ok(below)
    }

    /// What is below a target.
    pub fn lower(&self, target: usize) -> Option<&Lower> {
        self.lowers.get(target).and_then(Option::as_ref)
    }

    /// The targets that are mapped, with what is below each.
    pub fn mapped(&self) -> impl Iterator<Item = (usize, &Lower)> {
        self.lowers.iter().enumerate().filter_map(|(index, lower)| Some((index, lower.as_ref()?)))
    }

    /// Two targets that share bytes at the bottom.
    pub fn shared(&self) -> Option<(usize, usize)> {
        let areas = self.mapped().flat_map(|(index, lower)| lower.mapping.areas().map(move |area| (index, area)));
        let mut areas: Vec<(usize, ByteRange, usize)> =
            areas.map(|(index, area)| (area.device, area.range, index)).collect();
        areas.sort_unstable();
        areas.windows(2).find_map(|pair| match pair {
            [(device, range, one), (same, next, other)] if device == same && range.overlaps(*next) => {
                Some((*one.min(other), *one.max(other)))
            }
            _ => None,
        })
    }

    /// What is to be said of a target, and whether its bytes are where its table says.
    pub fn findings(&self, index: usize, targets: &[Target]) -> Vec<Finding> {
        let mut found = self.findings.get(index).cloned().unwrap_or_default();
        if let (Some(lower), Some(top)) = (self.lower(index), targets.get(index)) {
            found.extend(lower.disproved(top, targets));
        }
        found
    }
}

/// The stack below a target, where device-mapper makes it.
fn stack_of(target: &Target) -> Option<Result<Stack, String>> {
    let disk = target.disk().filter(|disk| disk.kind == Kind::DeviceMapper && target.partition().is_none())?;
    Some(Stack::read(&Roots::default(), disk.number))
}

/// Opens the devices at the bottom of `stack` that are not targets yet; their numbers are those of the targets behind the
/// named ones. An error in words when somebody else uses one of them.
fn open_bottom(
    opener: &mut Opener,
    targets: &mut Vec<Target>,
    numbers: &mut Vec<DeviceNumber>,
    stack: &Stack,
    stacks: &[Stack],
    intent: Intent,
) -> Result<Result<(), String>, TargetError> {
    for number in stack.bottom().into_iter().filter(|number| !numbers.contains(number)).collect::<Vec<_>>() {
        match opener.open_below(number, stacks, intent)? {
            Ok(target) => {
                targets.push(target);
                numbers.push(number);
            }
            Err(users) => {
                let users: Vec<String> =
                    users.iter().filter(|user| user.forbids(false)).map(ToString::to_string).collect();
                return Ok(Err(users.join("; ")));
            }
        }
    }
    Ok(Ok(()))
}

/// What is lost when free blocks of encrypted volumes can be seen.
fn consents(target: &Target, stack: &Stack) -> Vec<Finding> {
    let name = target.path().display();
    let mut found = Vec::new();
    if stack.is_encrypted() {
        found.push(Finding::consent(
            Consent::EncryptionPattern,
            format!(
                "{name} is encrypted: whoever gets hold of the disk can then see which blocks are free, and from that \
                 how much is stored, and by what kind of filesystem. No content is shown"
            ),
            "to go on all the same: --accept encryption-pattern",
        ));
    }
    if stack.may_hide_a_volume() {
        found.push(Finding::consent(
            Consent::HiddenVolume,
            format!("{name} is a VeraCrypt or TrueCrypt volume: a hidden volume in its free space would be destroyed"),
            "to go on where there surely is none: --accept hidden-volume",
        ));
    }
    found
}

/// A mapping whose lower devices are left to the kernel: a remark where that can discard, and else a refusal.
fn untranslated(target: &Target, why: &str) -> Finding {
    let name = target.path().display();
    let by_kernel = target.disk().is_some_and(|disk| disk.discard.max_bytes > 0);
    if by_kernel {
        return Finding::warning(format!(
            "only the kernel's own discard is used on {name}, not the devices below it: {why}"
        ));
    }
    Finding::refusal(
        format!(
            "{name} is not translated to the devices below it ({why}), and the kernel passes no discard through it"
        ),
        "mount it and use fstrim where the kernel can discard there; an encrypted mapping passes discards on after: \
         cryptsetup refresh --allow-discards NAME",
    )
}

impl Lower {
    /// Lays out the pieces of a stack; `target` gives the target of a device.
    fn new(stack: Stack, target: impl Fn(DeviceNumber) -> Option<usize>, granule: u64) -> Result<Self, String> {
        let (mut segments, mut places) = (Vec::new(), Vec::new());
        let mut at = 0;
        for piece in &stack.pieces {
            let (chunk, columns) = match &piece.rule {
                Rule::Linear(place) | Rule::Crypt(place) => (0, vec![*place]),
                Rule::Striped { chunk, columns } => (*chunk, columns.clone()),
                Rule::Nothing => continue,
                Rule::Other(why) => return Err(why.clone()),
            };
            let each = piece.range.len() / u64::try_from(columns.len()).unwrap_or(u64::MAX);
            let area =
                |(number, start)| Some(Area { device: target(number)?, range: ByteRange::with_len(start, each)? });
            let areas: Option<Vec<Option<Area>>> = columns.into_iter().map(|place| area(place).map(Some)).collect();
            let rule = areas.zip(Geometry::in_turn(chunk, &vec![each; piece_width(&piece.rule)]));
            let (areas, (geometry, len)) = rule.ok_or("its table makes no sense")?;
            segments.push(Segment { len, areas, geometry });
            places.push((piece.range, at));
            at += piece.range.len();
        }
        let mapping = Mapping::new(segments).filter(|mapping| mapping.len() == at);
        Ok(Self { mapping: mapping.ok_or("its table makes no sense")?, stack, places, granule })
    }

    /// Where the bytes lie; devices are targets.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// `free` bytes of the top (sorted, disjoint) as bytes of the mapping; without those that lie nowhere, and in whole units.
    pub fn inside(&self, free: &[ByteRange]) -> Vec<ByteRange> {
        let mut found = Vec::new();
        for range in free.iter().filter_map(|range| range.round_inwards(self.granule, 0)) {
            let parts = self
                .places
                .iter()
                .filter_map(|(place, at)| place.intersect(range)?.shift_down(place.start())?.shift_up(*at));
            found.extend(parts);
        }
        coldtrim_parsers::array::merge(&mut found);
        found
    }

    /// The first and the last byte that is used of a target.
    pub fn bounds(&self, target: usize) -> Option<ByteRange> {
        hull(&self.mapping, |area| area.device == target)
    }

    /// The targets at the bottom.
    fn targets(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.mapping.areas().map(|area| area.device).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The mapping for the report.
    pub fn report(&self) -> ArrayReport {
        let table = self.stack.table();
        let name = table.map_or(String::new(), |table| table.name.clone());
        let uuid = table.map(|table| table.uuid.clone()).filter(|uuid| !uuid.is_empty());
        let member = |target: usize| {
            let bounds = self.bounds(target)?;
            let (offset, size) = (bounds.start(), bounds.len());
            let role = "device below".to_owned();
            Some(ArrayMemberReport { target: Some(target), array: None, partition: None, offset, size, role })
        };
        ArrayReport {
            format: format!("dm {}", self.stack.kinds().join("+")),
            uuid: uuid.unwrap_or_else(|| name.clone()),
            name: Some(name),
            size: self.places.last().map_or(0, |(place, _)| place.end()),
            redundancy: "none",
            complete: true,
            members: self.targets().into_iter().filter_map(member).collect(),
        }
    }

    /// Why the bytes are not where the table says, if they are not: places all over the mapping, read at the top and at the
    /// bottom. What is encrypted looks different at both ends; there the table alone says where it lies.
    fn disproved(&self, top: &Target, targets: &[Target]) -> Option<Finding> {
        let name = top.path().display();
        let fault = |what: String| Some(Finding::refusal(what, "look at the table: dmsetup table, dmsetup ls --tree"));
        for area in self.mapping.areas() {
            let target = targets.get(area.device)?;
            if area.range.end() > target.size() {
                return fault(format!("the table of {name} leads behind the end of {}", target.path().display()));
            }
        }
        let plain = self.stack.pieces.iter().filter(|piece| !piece.is_encrypted).map(|piece| piece.range);
        for at in plain.flat_map(samples) {
            match self.is_there(top, targets, at) {
                Ok(true) => {}
                Ok(false) => {
                    return fault(format!("byte {at} of {name} does not hold what lies where its table leads"));
                }
                Err(error) => return fault(format!("{name} could not be compared with what lies below it: {error}")),
            }
        }
        None
    }

    /// True when the bytes of the top at `at` are those where the mapping says; also for bytes that lie nowhere.
    fn is_there(&self, top: &Target, targets: &[Target], at: u64) -> std::io::Result<bool> {
        let inside = self.places.iter().find_map(|(place, start)| {
            let within = at.checked_sub(place.start()).filter(|within| *within < place.len())?;
            Some((start + within, place.end() - at))
        });
        let Some((inside, rest)) = inside else { return Ok(true) };
        let gone = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let (place, run) = self.mapping.locate(inside).ok_or_else(gone)?;
        let len = usize::try_from(run.min(rest).min(SAMPLE)).map_err(std::io::Error::other)?;
        let (mut above, mut below) = (vec![0; len], vec![0; len]);
        let lower = targets.get(place.device).ok_or_else(gone)?;
        let reader = |target: &Target| target.reader().map_err(std::io::Error::other);
        reader(top)?.read_exact_at(&mut above, at)?;
        reader(lower)?.read_exact_at(&mut below, place.at)?;
        Ok(above == below)
    }
}

fn piece_width(rule: &Rule) -> usize {
    match rule {
        Rule::Striped { columns, .. } => columns.len(),
        Rule::Linear(_) | Rule::Crypt(_) | Rule::Nothing | Rule::Other(_) => 1,
    }
}

/// Places all over a range, its first and last among them.
fn samples(range: ByteRange) -> Vec<u64> {
    let last = range.end().saturating_sub(SAMPLE.min(range.len()));
    let step = (range.len() / SAMPLES / 512).max(1) * 512;
    let between = (0..SAMPLES).map(|number| range.start() + number * step).filter(|at| *at < last);
    between.chain([last]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::dm::Piece;
    use std::collections::BTreeMap;

    fn range(start: u64, len: u64) -> ByteRange {
        ByteRange::with_len(start, len).unwrap()
    }

    fn device(minor: u64) -> DeviceNumber {
        DeviceNumber { major: 8, minor }
    }

    fn lower(pieces: &[(u64, Rule)], granule: u64) -> Result<Lower, String> {
        let mut at = 0;
        let piece = |(len, rule): &(u64, Rule)| {
            let range = range(at, *len);
            at += len;
            Piece { range, rule: rule.clone(), is_encrypted: false }
        };
        let pieces = pieces.iter().map(piece).collect();
        let stack = Stack { tables: BTreeMap::new(), pieces, top: device(9) };
        Lower::new(stack, |number| usize::try_from(number.minor).ok(), granule)
    }

    /// As cryptsetup opens BitLocker: the first sectors lie elsewhere, and where its own records are there is nothing.
    fn with_holes() -> Vec<(u64, Rule)> {
        vec![
            (8192, Rule::Linear((device(1), 100_352))),
            (24_576, Rule::Linear((device(1), 8192))),
            (4096, Rule::Nothing),
            (32_768, Rule::Striped { chunk: 4096, columns: vec![(device(2), 512), (device(3), 0)] }),
        ]
    }

    #[test]
    fn what_lies_nowhere_is_left_out_and_the_rest_lies_where_the_table_says() {
        let lower = lower(&with_holes(), 512).unwrap();
        let inside = lower.inside(&[range(4096, 16_384), range(28_672, 12_288), range(49_152, 20_480)]);
        let spread = lower.mapping().carry(&inside).unwrap();
        assert_eq!(spread[&1], [range(8192, 12_288), range(28_672, 4096), range(104_448, 4096)]);
        // Of the striped piece bytes 0..4096 and 12288..32768.
        assert_eq!(spread[&2], [range(512, 4096), range(8704, 8192)]);
        assert_eq!(spread[&3], [range(4096, 12_288)]);
        assert!(lower.mapping().proves(&spread, &inside));
        assert_eq!(lower.bounds(1), Some(range(8192, 100_352)));
        assert_eq!(lower.report().size, 69_632);
    }

    /// A sector that is encrypted as one is discarded as one.
    #[test]
    fn only_whole_sectors_of_the_top_go_down() {
        let lower = lower(&[(65_536, Rule::Linear((device(1), 512)))], 4096).unwrap();
        assert_eq!(lower.inside(&[range(1024, 8192), range(20_000, 4000)]), [range(4096, 4096)]);
    }

    #[test]
    fn tables_that_make_no_sense_give_nothing() {
        let twice = [(4096, Rule::Linear((device(1), 0))), (4096, Rule::Linear((device(1), 2048)))];
        assert!(lower(&twice, 512).is_err());
        let uneven = [(4096 * 3, Rule::Striped { chunk: 4096, columns: vec![(device(1), 0), (device(2), 0)] })];
        assert!(lower(&uneven, 512).is_err());
        assert!(lower(&[(4096, Rule::Other("no".to_owned()))], 512).is_err());
        assert!(lower(&[(4096, Rule::Nothing)], 512).is_err());
    }

    #[test]
    fn samples_lie_inside_and_reach_both_ends() {
        for len in [512, 4096, 100_352, 1 << 30] {
            let all = samples(range(8192, len));
            assert_eq!((all.first(), all.last()), (Some(&8192), Some(&(8192 + len.saturating_sub(4096)))));
            assert!(all.iter().all(|at| *at >= 8192 && *at < 8192 + len) && all.len() <= 65);
        }
    }
}
