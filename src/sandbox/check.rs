//! The parent's second look at an answer. Deserialising has rebuilt every free map by its own rules; here it is
//! compared with the devices, and its words are made safe to print.

use coldtrim_parsers::container::Part;
use coldtrim_parsers::stack::{Content, FoundTable, Node, Stack};
use coldtrim_parsers::text::printable;
use coldtrim_parsers::units::ByteRange;
use coldtrim_parsers::volume::{Finding, Volume};
use coldtrim_parsers::witness::Testimony;

/// The stack, if it can be true of devices of these lengths in bytes.
pub(super) fn checked(mut stack: Stack, lengths: &[u64]) -> Result<Stack, String> {
    let lengths = &with_arrays(&stack, lengths)?;
    for node in &stack.nodes {
        check_node(node, lengths)?;
    }
    for table in &stack.tables {
        check_table(table, lengths)?;
    }
    check_disjoint(&stack)?;
    for (device, length) in lengths.iter().enumerate() {
        let seen = stack.nodes.iter().any(|node| node.device == device)
            || stack.tables.iter().any(|table| table.device == device);
        if *length > 0 && !seen {
            return Err(format!("it says nothing about device {device}"));
        }
    }
    clean(&mut stack);
    Ok(stack)
}

/// The lengths of the devices, then those of the arrays on them. Each array lies, by a rule that makes sense, on devices
/// before it, inside areas that nothing else uses.
fn with_arrays(stack: &Stack, lengths: &[u64]) -> Result<Vec<u64>, String> {
    let mut lengths = lengths.to_vec();
    let mut taken: Vec<(usize, ByteRange)> = Vec::new();
    for array in &stack.arrays {
        if array.device != lengths.len() || !array.mapping.is_sound() {
            return Err(format!("array {} cannot be laid out as it says", array.device));
        }
        for area in array.mapping.areas() {
            check_inside("a member", area.device, area.range, &lengths)?;
            if taken.iter().any(|(device, range)| *device == area.device && range.overlaps(area.range)) {
                return Err(format!("{} of device {} belong to two arrays", area.range, area.device));
            }
            let is_kept = |node: &Node| {
                let kept = matches!(node.content, Content::Kept { .. });
                kept && node.device == area.device && node.range.contains(area.range)
            };
            if !stack.nodes.iter().any(is_kept) {
                return Err(format!("{} of device {} are not set aside for their array", area.range, area.device));
            }
        }
        taken.extend(array.mapping.areas().map(|area| (area.device, area.range)));
        lengths.push(array.mapping.len());
    }
    Ok(lengths)
}

fn check_inside(what: &str, device: usize, range: ByteRange, lengths: &[u64]) -> Result<(), String> {
    let length = lengths.get(device).ok_or_else(|| format!("{what} is on device {device}, which was not asked for"))?;
    if range.end() > *length {
        return Err(format!("{what} at {range} passes the end of a device of {length} bytes"));
    }
    Ok(())
}

fn check_node(node: &Node, lengths: &[u64]) -> Result<(), String> {
    let usable = matches!(&node.content, Content::Volume { volume, .. } if volume.is_usable());
    if usable {
        check_inside("a volume", node.device, node.range, lengths)?;
    } else if node.device >= lengths.len() {
        return Err(format!("a refused area is on device {}, which was not asked for", node.device));
    }
    let volume = match &node.content {
        Content::Volume { volume, .. } => volume,
        Content::Kept { spare, .. } => return check_spare(node.range, spare),
        Content::Refused { .. } => return Ok(()),
    };
    if volume.free.warning().is_some_and(|words| words != printable(words)) {
        return Err("a remark holds control characters".to_owned());
    }
    let end = volume.free.grid().end().max(volume.free.ranges().last().map_or(0, |last| last.end()));
    if usable && end > node.range.len() {
        return Err(format!(
            "the free map of the volume at {} reaches to byte {end} of only {} bytes",
            node.range,
            node.range.len()
        ));
    }
    Ok(())
}

/// What nobody needs of an area lies inside it, in order and apart.
fn check_spare(area: ByteRange, spare: &[ByteRange]) -> Result<(), String> {
    let mut end = 0;
    for range in spare {
        if range.start() < end || range.end() > area.len() {
            return Err(format!("{range} of the area at {area} cannot be spare: they lie outside or overlap"));
        }
        end = range.end();
    }
    Ok(())
}

fn check_table(table: &FoundTable, lengths: &[u64]) -> Result<(), String> {
    for gap in &table.gaps {
        check_inside("a gap", table.device, *gap, lengths)?;
    }
    Ok(())
}

/// Free space may have one owner. Everything named on a device is sorted; a volume whose map will be used and a gap
/// may share no byte with anything else.
fn check_disjoint(stack: &Stack) -> Result<(), String> {
    let nodes = stack.nodes.iter().map(|node| {
        let usable = match &node.content {
            Content::Volume { volume, .. } => volume.is_usable(),
            Content::Kept { spare, .. } => !spare.is_empty(),
            Content::Refused { .. } => false,
        };
        (node.device, node.range, usable)
    });
    let gaps = stack.tables.iter().flat_map(|table| table.gaps.iter().map(|gap| (table.device, *gap, true)));
    let mut areas: Vec<(usize, ByteRange, bool)> = nodes.chain(gaps).collect();
    areas.sort_unstable();
    let mut furthest: Option<(usize, ByteRange, bool)> = None;
    for area in areas {
        if let Some((device, range, usable)) = furthest
            && device == area.0
            && range.end() > area.1.start()
            && (usable || area.2)
        {
            return Err(format!("{range} and {} on device {device} overlap", area.1));
        }
        if furthest.is_none_or(|(device, range, _)| device != area.0 || range.end() < area.1.end()) {
            furthest = Some(area);
        }
    }
    Ok(())
}

fn clean_text(text: &mut String) {
    *text = printable(text);
}

fn clean(stack: &mut Stack) {
    for array in &mut stack.arrays {
        [&mut array.format, &mut array.uuid].into_iter().chain(&mut array.name).for_each(clean_text);
        array.members.iter_mut().for_each(|member| clean_text(&mut member.role));
        array.findings.iter_mut().for_each(clean_finding);
    }
    stack.remarks.iter_mut().for_each(|remark| clean_finding(&mut remark.finding));
    for table in &mut stack.tables {
        clean_text(&mut table.format);
        table.parts.iter_mut().for_each(clean_part);
        table.warnings.iter_mut().for_each(clean_text);
    }
    for node in &mut stack.nodes {
        if let Some(part) = &mut node.part {
            clean_part(part);
        }
        match &mut node.content {
            Content::Volume { volume, testimony } => {
                clean_volume(volume);
                testimony.iter_mut().for_each(clean_testimony);
            }
            Content::Refused { format, finding, .. } => {
                format.iter_mut().for_each(clean_text);
                clean_finding(finding);
            }
            Content::Kept { format, reason, .. } => {
                format.iter_mut().for_each(clean_text);
                clean_text(reason);
            }
        }
    }
}

fn clean_part(part: &mut Part) {
    clean_text(&mut part.kind);
    [&mut part.name, &mut part.kept, &mut part.refused].into_iter().flatten().for_each(clean_text);
}

fn clean_volume(volume: &mut Volume) {
    clean_text(&mut volume.format);
    [&mut volume.label, &mut volume.uuid].into_iter().flatten().for_each(clean_text);
    volume.findings.iter_mut().for_each(clean_finding);
}

fn clean_finding(finding: &mut Finding) {
    clean_text(&mut finding.message);
    clean_text(&mut finding.remedy);
}

fn clean_testimony(testimony: &mut Testimony) {
    match testimony {
        Testimony::Agrees { witness, .. } => clean_text(witness),
        Testimony::Clash { witness, owner, .. } => [witness, owner].into_iter().for_each(clean_text),
        Testimony::Absent { witness, reason } => [witness, reason].into_iter().for_each(clean_text),
    }
}
