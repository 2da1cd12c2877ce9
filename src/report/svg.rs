//! The map as a picture: a bar for every target and every array, as wide as the page, in colours that colour-blind
//! readers can tell apart (Okabe and Ito's palette). No script, no font or image from elsewhere.

use super::arrays::ArrayReport;
use super::{Report, State, VolumeReport, human};
use coldtrim_parsers::units::ByteRange;
use std::io::{self, Write};
use svg::Document;
use svg::node::element::{Group, Rectangle, Text, Title};

/// Columns of a bar, and its width in units of the picture.
const COLUMNS: u64 = 1000;
/// Height of a bar.
const BAR: u64 = 36;
/// From the top of one bar to the top of the next.
const ROW: u64 = 84;
/// Space on every side.
const MARGIN: u64 = 20;
/// Steps between used and free that are told apart.
const SHADES: u64 = 8;

/// What an area of a disk is, and its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Used,
    Kept,
    Refused,
    Gap,
}

const FREE_COLOUR: &str = "#f0e442";

impl Kind {
    const fn colour(self) -> &'static str {
        match self {
            Self::Used => "#0072b2",
            Self::Kept => "#999999",
            Self::Refused => "#d55e00",
            Self::Gap => "#ffffff",
        }
    }
}

/// What each colour means, in words.
const LEGEND: [(&str, &str); 5] = [
    ("used", Kind::Used.colour()),
    ("free", FREE_COLOUR),
    ("kept: no filesystem, left alone", Kind::Kept.colour()),
    ("refused", Kind::Refused.colour()),
    ("outside of every volume", Kind::Gap.colour()),
];

/// A coloured part of a bar.
struct Area {
    range: ByteRange,
    kind: Kind,
    words: String,
}

/// A disk, image or array.
struct Bar {
    title: String,
    size: u64,
    areas: Vec<Area>,
    /// Sorted and disjoint.
    free: Vec<ByteRange>,
}

/// Writes the picture of `report`.
pub fn print(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let bars = bars(report);
    let rows = u64::try_from(bars.len()).unwrap_or(0);
    let (width, height) = (COLUMNS + 2 * MARGIN, 2 * MARGIN + rows * ROW + 20);
    let mut picture = Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("font-family", "sans-serif")
        .set("font-size", 13)
        .add(rectangle(0, 0, width, height, "#ffffff"));
    let mut top = MARGIN;
    for bar in &bars {
        picture = picture.add(draw(bar, top));
        top += ROW;
    }
    svg::write(out, &picture.add(legend(top)))
}

fn bars(report: &Report) -> Vec<Bar> {
    let targets = report.targets.iter().enumerate().map(|(index, target)| {
        let volumes = report.volumes.iter().filter(move |volume| volume.array.is_none() && volume.target == index);
        let title = format!("{}  {}", target.name, human::bytes(target.size));
        bar(title, target.size, volumes, super::formats::free_on(report, index))
    });
    let arrays = report.arrays.iter().enumerate().map(|(index, array)| {
        let volumes = || report.volumes.iter().filter(move |volume| volume.array == Some(index));
        let clean = volumes().filter(|volume| volume.state == State::Clean);
        let free = super::formats::merged(clean.flat_map(|volume| volume.free.iter().copied()));
        bar(title_of(array), array.size, volumes(), free)
    });
    targets.chain(arrays).collect()
}

fn title_of(array: &ArrayReport) -> String {
    format!("{}  {}, {}", array.title(), array.format, human::bytes(array.size))
}

fn bar<'a>(title: String, size: u64, volumes: impl Iterator<Item = &'a VolumeReport>, free: Vec<ByteRange>) -> Bar {
    let mut areas: Vec<Area> = volumes.filter_map(|volume| area(volume, &free)).collect();
    areas.sort_by_key(|area| area.range.start());
    Bar { title, size, areas, free }
}

fn area(volume: &VolumeReport, free: &[ByteRange]) -> Option<Area> {
    let range = ByteRange::new(volume.offset, volume.offset.checked_add(volume.size)?)?;
    let kind = match volume.state {
        State::Clean => Kind::Used,
        State::Refused => Kind::Refused,
        // A member of an array holds no filesystem itself, but what is free in the array is free on it.
        State::Kept if free.iter().any(|free| free.overlaps(range)) => Kind::Used,
        State::Kept => Kind::Kept,
    };
    let number = volume.partition.map_or(String::new(), |number| format!("{number}: "));
    let label = volume.label.as_ref().map_or(String::new(), |label| format!(" \"{label}\""));
    let state = if volume.state == State::Clean {
        format!("{} free", human::bytes(volume.free_bytes))
    } else {
        volume.state.word().to_owned()
    };
    let format = volume.format.as_deref().unwrap_or("unknown");
    Some(Area { range, kind, words: format!("{number}{format}{label}, {}, {state}", human::bytes(volume.size)) })
}

fn draw(bar: &Bar, top: u64) -> Group {
    let across = |byte: u64| MARGIN + scaled(byte, bar.size);
    let mut group = Group::new()
        .add(Text::new(&bar.title).set("x", MARGIN).set("y", top).set("font-weight", "bold"))
        .add(rectangle(MARGIN, top + 8, COLUMNS, BAR, Kind::Gap.colour()).set("stroke", "#555555"));
    let over = |area: &Area, colour| {
        let (left, right) = (across(area.range.start()), across(area.range.end()));
        // What is too small to be seen is still drawn.
        rectangle(left, top + 8, right.saturating_sub(left).max(1), BAR, colour)
    };
    for area in &bar.areas {
        group = group.add(over(area, area.kind.colour()));
    }
    for (start, end, shade) in shades(bar) {
        let opacity = format!("0.{}", shade * 1000 / SHADES);
        let opacity = if shade == SHADES { "1" } else { opacity.as_str() };
        group =
            group.add(rectangle(MARGIN + start, top + 8, end - start, BAR, FREE_COLOUR).set("fill-opacity", opacity));
    }
    // An outline tells neighbours apart, and says on every point of an area what it is.
    for area in &bar.areas {
        let outline = over(area, "#ffffff").set("fill-opacity", 0).set("stroke", "#ffffff");
        group = group.add(outline.add(Title::new(&area.words)));
    }
    group.add(Text::new(words_of(bar)).set("x", MARGIN).set("y", top + BAR + 24).set("font-size", 12))
}

/// All areas in one line, which a page's width holds for the first few.
fn words_of(bar: &Bar) -> String {
    const SHOWN: usize = 4;
    let mut words: Vec<&str> = bar.areas.iter().take(SHOWN).map(|area| area.words.as_str()).collect();
    let more = format!("and {} more", bar.areas.len().saturating_sub(SHOWN));
    if bar.areas.len() > SHOWN {
        words.push(&more);
    }
    words.join("  ·  ")
}

/// Where the bar is how free: columns `start..end` and a shade of 1 (a little) to [`SHADES`] (all of it). Anything free
/// at all shows, and only what is free as a whole has the full colour.
fn shades(bar: &Bar) -> Vec<(u64, u64, u64)> {
    let mut runs: Vec<(u64, u64, u64)> = Vec::new();
    for column in 0..COLUMNS {
        let (start, end) = (byte_of(column, bar.size), byte_of(column + 1, bar.size));
        let Some(cell) = ByteRange::new(start, end).filter(|cell| cell.len() > 0) else { continue };
        let shade = shade(free_in(&bar.free, cell), cell.len());
        match runs.last_mut() {
            Some((_, reach, same)) if *reach == column && *same == shade => *reach += 1,
            _ => runs.push((column, column + 1, shade)),
        }
    }
    runs.retain(|(_, _, shade)| *shade > 0);
    runs
}

fn shade(free: u64, len: u64) -> u64 {
    match free {
        0 => 0,
        free if free >= len => SHADES,
        free => (u128::from(free) * u128::from(SHADES) / u128::from(len)).try_into().unwrap_or(1_u64).max(1),
    }
}

/// Bytes of `cell` that are free.
fn free_in(free: &[ByteRange], cell: ByteRange) -> u64 {
    let first = free.partition_point(|range| range.end() <= cell.start());
    let inside = free.iter().skip(first).take_while(|range| range.start() < cell.end());
    inside.filter_map(|range| range.intersect(cell)).map(ByteRange::len).sum()
}

fn byte_of(column: u64, size: u64) -> u64 {
    u64::try_from(u128::from(size) * u128::from(column) / u128::from(COLUMNS)).unwrap_or(size)
}

fn scaled(byte: u64, size: u64) -> u64 {
    u64::try_from(u128::from(byte.min(size)) * u128::from(COLUMNS) / u128::from(size.max(1))).unwrap_or(COLUMNS)
}

fn rectangle(x: u64, y: u64, width: u64, height: u64, colour: &str) -> Rectangle {
    Rectangle::new().set("x", x).set("y", y).set("width", width).set("height", height).set("fill", colour)
}

fn legend(top: u64) -> Group {
    let mut group = Group::new();
    let mut left = MARGIN;
    for (words, colour) in LEGEND {
        group = group
            .add(rectangle(left, top, 14, 14, colour).set("stroke", "#555555"))
            .add(Text::new(words).set("x", left + 20).set("y", top + 12));
        left += 50 + 7 * u64::try_from(words.len()).unwrap_or(0);
    }
    group
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end).unwrap()
    }

    fn bar_with(size: u64, free: &[(u64, u64)]) -> Bar {
        let free = free.iter().map(|(start, end)| range(*start, *end)).collect();
        Bar { title: String::new(), size, areas: Vec::new(), free }
    }

    #[test]
    fn a_column_is_as_bright_as_it_is_free() {
        let bar = bar_with(100 * COLUMNS, &[(0, 200), (250, 251), (300, 399)]);
        assert_eq!(shades(&bar), [(0, 2, SHADES), (2, 3, 1), (3, 4, SHADES - 1)]);
    }

    #[test]
    fn disks_of_any_size_can_be_drawn() {
        assert_eq!(shades(&bar_with(0, &[])), []);
        assert_eq!(shades(&bar_with(3, &[(0, 3)])).iter().map(|run| run.1 - run.0).sum::<u64>(), 3);
        assert_eq!(shades(&bar_with(u64::MAX, &[(0, u64::MAX)])), [(0, COLUMNS, SHADES)]);
    }

    #[test]
    fn names_from_a_disk_are_no_markup() {
        let mut report = Report::new("map");
        let mut volume = VolumeReport::unknown(0, 0, 10);
        volume.label = Some("<script>&".to_owned());
        report.volumes = vec![volume];
        report.targets = vec![super::super::tests::target("a<b", 10)];
        let mut out = Vec::new();
        print(&mut out, &report).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("a&lt;b") && text.contains("&lt;script&gt;&amp;") && !text.contains("<script>"),
            "{text}"
        );
    }
}
