//! Volumes on arrays: what is free in the array becomes ranges of the members.

use super::below::Below;
use super::job::Scope;
use crate::report::VolumeReport;
use crate::report::arrays::{ArrayMemberReport, ArrayReport, Ground, Piece};
use coldtrim_parsers::array::{Area, Mapping, Redundancy, Spread};
use coldtrim_parsers::stack::{FoundArray, FoundMember, Stack};
use coldtrim_parsers::units::ByteRange;
use coldtrim_parsers::volume::Finding;
use std::collections::BTreeSet;

/// The arrays of a run, on `windows` (where the part of each target that was read begins).
pub struct Arrays<'a> {
    arrays: &'a [FoundArray],
    windows: &'a [ByteRange],
    below: &'a Below,
}

impl<'a> Arrays<'a> {
    /// Those of a reading.
    pub fn new(stack: &'a Stack, windows: &'a [ByteRange], below: &'a Below) -> Self {
        Self { arrays: &stack.arrays, windows, below }
    }

    /// The index of the array that a device number means; none for a target.
    pub fn index(&self, device: usize) -> Option<usize> {
        device.checked_sub(self.windows.len())
    }

    /// The first target below a device.
    pub fn first_target(&self, device: usize) -> usize {
        let array = self.index(device).and_then(|index| self.arrays.get(index));
        match array.and_then(|array| array.mapping.areas().next()) {
            Some(area) if area.device < device => self.first_target(area.device),
            _ => device,
        }
    }

    /// The arrays for the report.
    pub fn reports(&self) -> Vec<ArrayReport> {
        let of = |array: &FoundArray| ArrayReport {
            format: array.format.clone(),
            name: array.name.clone(),
            uuid: array.uuid.clone(),
            size: array.mapping.len(),
            redundancy: match array.mapping.redundancy() {
                Redundancy::None => "none",
                Redundancy::Copies => "copies",
                Redundancy::Parity => "parity",
            },
            complete: array.mapping.is_complete(),
            members: array.members.iter().map(|member| self.member(member)).collect(),
        };
        self.arrays.iter().map(of).chain(self.below.mapped().map(|(_, lower)| lower.report())).collect()
    }

    /// Where the bytes of all of them lie, in the same order.
    pub fn mappings(&self) -> Vec<Mapping> {
        let below = self.below.mapped().map(|(_, lower)| lower.mapping().clone());
        self.arrays.iter().map(|array| array.mapping.clone()).chain(below).collect()
    }

    /// The index, among the reports, of the mapping that makes a target.
    pub fn mapping_of(&self, target: usize) -> Option<usize> {
        let position = self.below.mapped().position(|(index, _)| index == target)?;
        Some(self.arrays.len() + position)
    }

    /// Carries `free` bytes of a target that device-mapper makes down to the devices below it.
    pub fn carry_below(&self, target: usize, free: &[ByteRange], grounds: &mut Vec<Ground>) -> Result<(), String> {
        let lower = self.below.lower(target).ok_or("a mapping that nobody knows")?;
        let free = lower.inside(free);
        let spread = lower.mapping().carry(&free).ok_or("free space outside of the mapping")?;
        if !lower.mapping().proves(&spread, &free) {
            return Err("the way back from the devices below does not lead to the same free space".to_owned());
        }
        let piece = |(target, free): (usize, Vec<ByteRange>)| {
            let within = lower.bounds(target).ok_or("free space on a device that is not below")?;
            Ok(Piece { target, free, within })
        };
        let pieces = spread.into_iter().map(piece).collect::<Result<Vec<_>, String>>()?;
        let array = self.mapping_of(target).ok_or("a mapping that nobody knows")?;
        if !pieces.is_empty() {
            grounds.push(Ground { array, free, pieces });
        }
        Ok(())
    }

    fn member(&self, member: &FoundMember) -> ArrayMemberReport {
        let (target, array) = match self.index(member.device) {
            Some(index) => (None, Some(index)),
            None => (Some(member.device), None),
        };
        let start = self.windows.get(member.device).map_or(0, |window| window.start());
        ArrayMemberReport {
            target,
            array,
            partition: member.partition,
            offset: start + member.range.start(),
            size: member.range.len(),
            role: member.role.clone(),
        }
    }

    /// Carries `free` bytes of array number `index` down to the targets. An error is a fault of ours, in words.
    pub fn carry_down(&self, index: usize, free: Vec<ByteRange>, grounds: &mut Vec<Ground>) -> Result<(), String> {
        let array = self.arrays.get(index).ok_or("an array that nobody knows")?;
        let spread = array.mapping.carry(&free).ok_or("free space outside of the array")?;
        if !array.mapping.proves(&spread, &free) {
            return Err("the way back from the members does not lead to the same free space".to_owned());
        }
        let mut pieces = Vec::new();
        for (device, ranges) in spread {
            match self.index(device) {
                Some(below) => self.carry_down(below, ranges, grounds)?,
                None if self.below.lower(device).is_some() => {
                    let start = self.windows.get(device).map_or(0, |window| window.start());
                    let up: Option<Vec<ByteRange>> = ranges.iter().map(|range| range.shift_up(start)).collect();
                    self.carry_below(device, &up.ok_or("free space behind every end")?, grounds)?;
                }
                None => pieces.extend(self.pieces(array, device, &ranges)?),
            }
        }
        if !pieces.is_empty() {
            grounds.push(Ground { array: index, free, pieces });
        }
        Ok(())
    }

    /// Carries what nobody needs of a device down to the targets; nothing of a target where copies or parity would have to
    /// agree on it.
    pub fn carry_spare(&self, device: usize, range: ByteRange) -> Vec<(usize, ByteRange)> {
        let mut grounds = Vec::new();
        let carried = match self.index(device) {
            Some(index) if !self.is_plain(index) => return Vec::new(),
            Some(index) => self.carry_down(index, vec![range], &mut grounds),
            None => {
                let start = self.windows.get(device).map_or(0, |window| window.start());
                let Some(range) = range.shift_up(start) else { return Vec::new() };
                if self.below.lower(device).is_none() {
                    return vec![(device, range)];
                }
                self.carry_below(device, &[range], &mut grounds)
            }
        };
        if carried.is_err() {
            return Vec::new();
        }
        let pieces = grounds.into_iter().flat_map(|ground| ground.pieces);
        pieces.flat_map(|piece| piece.free.into_iter().map(move |range| (piece.target, range))).collect()
    }

    /// True for an array without copies or parity, on nothing but such.
    fn is_plain(&self, index: usize) -> bool {
        self.arrays.get(index).is_some_and(|array| {
            let below = array.mapping.areas().filter_map(|area| self.index(area.device)).filter(|below| *below < index);
            array.mapping.redundancy() == Redundancy::None && below.into_iter().all(|below| self.is_plain(below))
        })
    }

    /// The pieces of one target: one for each member on it.
    pub fn pieces(&self, array: &FoundArray, device: usize, ranges: &[ByteRange]) -> Result<Vec<Piece>, String> {
        let start = self.windows.get(device).ok_or("a member on no target")?.start();
        let mut pieces = Vec::new();
        let mut placed = 0;
        for member in array.members.iter().filter(|member| member.device == device) {
            let own = ranges.iter().filter(|range| member.range.contains(**range));
            let free: Vec<ByteRange> = own.filter_map(|range| range.shift_up(start)).collect();
            placed += free.len();
            if !free.is_empty() {
                let within = bounds(array, member).and_then(|within| within.shift_up(start));
                pieces.push(Piece { target: device, free, within: within.ok_or("a member that holds nothing")? });
            }
        }
        if placed == ranges.len() { Ok(pieces) } else { Err("free space outside of the members".to_owned()) }
    }

    /// What forbids a volume on array number `index`, apart from what its own findings say.
    pub fn objections(&self, index: usize, scope: &Scope) -> Vec<Finding> {
        let Some(array) = self.arrays.get(index) else { return Vec::new() };
        let redundancy = array.mapping.redundancy();
        let below: BTreeSet<usize> = array.mapping.areas().filter_map(|area| self.index(area.device)).collect();
        // What an array stands on is trimmed with it.
        let mut found: Vec<Finding> =
            below.iter().filter(|below| **below < index).flat_map(|below| self.objections(*below, scope)).collect();
        if redundancy != Redundancy::None && !below.is_empty() {
            found.push(Finding::refusal(
                format!("a {} on top of another array is not trimmed", array.format),
                "name the upper array alone, assembled",
            ));
        }
        match (&scope.member, redundancy) {
            (None, Redundancy::Copies) if !array.mapping.is_complete() => found.push(Finding::refusal(
                "a member of the mirror is not here: trimming the others alone would make the copies differ",
                "name every member; or trim one alone with --member PATH",
            )),
            (Some(_), Redundancy::Parity) => found.push(Finding::refusal(
                "one member of an array with parity cannot be trimmed alone: its parity would be wrong",
                "name every member, without --member",
            )),
            _ => {}
        }
        found
    }
}

/// The bytes of a member from the first to the last that the array uses: its records lie outside of them.
fn bounds(array: &FoundArray, member: &FoundMember) -> Option<ByteRange> {
    hull(&array.mapping, |area| area.device == member.device && member.range.contains(area.range))
}

/// From the first byte to the last of the areas that are meant.
pub fn hull(mapping: &Mapping, is_meant: impl Fn(&Area) -> bool) -> Option<ByteRange> {
    let ranges = mapping.areas().filter(is_meant).map(|area| area.range);
    ranges
        .reduce(|all, range| ByteRange::new(all.start().min(range.start()), all.end().max(range.end())).unwrap_or(all))
}

/// The pieces of a volume on target `index`, with the place of each.
pub fn pieces_on(volume: &VolumeReport, index: usize) -> impl Iterator<Item = ((usize, usize), &Piece)> {
    let all = volume.grounds.iter().enumerate().flat_map(|(ground, found)| {
        found.pieces.iter().enumerate().map(move |(piece, found)| ((ground, piece), found))
    });
    all.filter(move |(_, piece)| piece.target == index)
}

/// The ranges of devices, from lists of one device each.
pub fn spread(lists: impl Iterator<Item = (usize, Vec<ByteRange>)>) -> Spread {
    let mut all = Spread::new();
    // A device with nothing is no device: lists are compared.
    for (device, ranges) in lists.filter(|(_, ranges)| !ranges.is_empty()) {
        all.entry(device).or_default().extend(ranges);
    }
    all.values_mut().for_each(coldtrim_parsers::array::merge);
    all
}
