//! From level, layout and sizes to the rule of a mapping.

use super::record::Shape;
use crate::array::geometry::{Geometry, Turn};
use crate::array::mapping::{Area, Segment};
use crate::array::parity::ParityRule;
use crate::array::{linear, striped};
use crate::units::{ByteRange, div, mul};

/// The name of a level that can be mapped.
pub(super) fn level_name(level: i32) -> Option<&'static str> {
    Some(match level {
        -1 => "linear",
        0 => "raid0",
        1 => "raid1",
        4 => "raid4",
        5 => "raid5",
        6 => "raid6",
        10 => "raid10",
        _ => return None,
    })
}

/// The one segment of an array whose members may hold data in these areas.
pub(super) fn segment(shape: &Shape, data: &[Option<Area>]) -> Result<Segment, String> {
    let name = level_name(shape.level).ok_or_else(|| format!("has level {}, which is not mapped", shape.level))?;
    if !matches!(shape.level, -1 | 1) && shape.chunk == 0 {
        return Err(format!("is damaged: {name} without a chunk size"));
    }
    let impossible = || format!("is damaged: {name} of {} members with these sizes is impossible", shape.slots);
    let used = match shape.level {
        -1 | 0 => whole_chunks(data, shape.chunk),
        _ => cut(data, shape.size).ok_or_else(|| {
            format!("is damaged: a member has less room than the {} bytes that are used of each", shape.size)
        })?,
    };
    let (geometry, len) = match shape.level {
        -1 => joined(&used),
        0 => striped(shape, &used)?,
        1 => Some((Geometry::Mirrored, shape.size)),
        10 => copied(shape, data)?,
        _ => parity(shape),
    }
    .ok_or_else(impossible)?;
    Ok(Segment { len, areas: used, geometry })
}

/// The areas without what is behind their last whole chunk.
fn whole_chunks(data: &[Option<Area>], chunk: u64) -> Vec<Option<Area>> {
    let whole = |area: &Area| {
        let rest = area.range.len().checked_rem(chunk).unwrap_or(0);
        let len = area.range.len().saturating_sub(rest);
        ByteRange::with_len(area.range.start(), len).map(|range| Area { range, ..*area })
    };
    data.iter().map(|area| area.as_ref().and_then(whole)).collect()
}

/// The first `size` bytes of the areas; none when one has less.
fn cut(data: &[Option<Area>], size: u64) -> Option<Vec<Option<Area>>> {
    let first = |area: &Area| {
        let range = ByteRange::with_len(area.range.start(), size).filter(|range| area.range.contains(*range))?;
        Some(Area { range, ..*area })
    };
    data.iter().map(|area| area.as_ref().map_or(Some(None), |area| first(area).map(Some))).collect()
}

fn lengths(areas: &[Option<Area>]) -> Option<Vec<u64>> {
    areas.iter().map(|area| area.map(|area| area.range.len())).collect()
}

/// A missing member leaves rules that need its size without an answer; the mapping then says which is missing.
fn joined(used: &[Option<Area>]) -> Option<(Geometry, u64)> {
    let Some(lengths) = lengths(used) else { return Some((Geometry::Linear { ends: Vec::new() }, 1)) };
    let ends = linear::ends(&lengths)?;
    let len = *ends.last()?;
    Some((Geometry::Linear { ends }, len))
}

/// The layout of zones was never written down before Linux 5.4, and two are possible.
fn striped(shape: &Shape, used: &[Option<Area>]) -> Result<Option<(Geometry, u64)>, String> {
    let chunk = shape.chunk;
    let Some(lengths) = lengths(used) else {
        return Ok(Some((Geometry::Striped { chunk, turn: Turn::OfZone, zones: Vec::new() }, 1)));
    };
    let Some(zones) = striped::zones(chunk, &lengths) else { return Ok(None) };
    let turn = match (shape.states_layout, shape.layout, zones.len()) {
        (_, _, 1) | (true, 2, _) => Turn::OfZone,
        (true, 1, _) => Turn::OfArray,
        _ => {
            return Err("is a raid0 of members of several sizes that does not say which of two layouts it has; Linux \
                        does not assemble it either without being told: mdadm --assemble --update=layout-original (or \
                        layout-alternate) writes it down"
                .to_owned());
        }
    };
    let len = zones.last().map_or(0, |zone| zone.end);
    Ok(Some((Geometry::Striped { chunk, turn, zones }, len)))
}

/// Layout of RAID10: near copies in the low byte, far copies in the next, then the offset flag and newer variants.
fn copied(shape: &Shape, data: &[Option<Area>]) -> Result<Option<(Geometry, u64)>, String> {
    let (near, far) = (u64::from(shape.layout & 0xFF), u64::from(shape.layout >> 8_u32 & 0xFF));
    if shape.layout >> 17_u32 != 0 || near > 1 && far > 1 {
        return Err(format!("has the raid10 layout {:#x}, which is not mapped", shape.layout));
    }
    let members = super::count(data);
    let bytes = || -> Result<(Geometry, u64), crate::units::Overflow> {
        let what = "the size of a raid10";
        let rows = div(div(shape.size, shape.chunk, what)?, far, what)?;
        let chunks = div(mul(rows, members, what)?, near, what)?;
        let rows = div(mul(chunks, near, what)?.saturating_add(members.saturating_sub(1)), members, what)?;
        let stride = mul(rows, shape.chunk, what)?;
        let by_rows = far == 1 || shape.layout >> 16_u32 & 1 == 1;
        let stride = if by_rows { None } else { Some(stride) };
        let geometry = Geometry::Copied { chunk: shape.chunk, near, far, stride, members };
        Ok((geometry, mul(chunks, shape.chunk, what)?))
    };
    Ok(bytes().ok())
}

fn parity(shape: &Shape) -> Option<(Geometry, u64)> {
    let rule = ParityRule {
        chunk: shape.chunk,
        members: shape.slots.into(),
        level: u8::try_from(shape.level).ok()?,
        layout: shape.layout,
    };
    let stripes = shape.size.checked_div(shape.chunk)?;
    Some((Geometry::Parity(rule), stripes.checked_mul(rule.stripe()?)?))
}
