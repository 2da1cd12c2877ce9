//! Curves over an axis, as SVG. Colours are Okabe and Ito's, which colour-blind readers can tell apart, and every curve has
//! its own dashes, so that a print without colours can be read, too.

use svg::Document;
use svg::node::element::{Group, Line, Path, Rectangle, Text, Title};

/// A curve: its points, and places on its x axis that are marked.
#[derive(Debug, Clone)]
pub struct Curve {
    /// For the legend.
    pub name: String,
    /// In order of x.
    pub points: Vec<(f64, f64)>,
    /// Marked on the x axis (knees).
    pub marks: Vec<f64>,
}

/// What stands around the curves.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Above.
    pub title: &'a str,
    /// Below.
    pub x: &'a str,
    /// At the left.
    pub y: &'a str,
}

/// Colour and dashes of each curve in turn.
const STYLES: [(&str, &str); 8] = [
    ("#0072b2", "none"),
    ("#d55e00", "7 3"),
    ("#009e73", "none"),
    ("#cc79a7", "2 3"),
    ("#56b4e9", "9 3 2 3"),
    ("#e69f00", "4 2"),
    ("#000000", "none"),
    ("#999999", "1 2"),
];

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 48.0;
/// Height of a line of the legend.
const LINE: f64 = 20.0;
/// Steps of an axis, at most.
const STEPS: f64 = 6.0;

/// Draws the curves over common axes that begin at 0.
pub fn draw(frame: Frame<'_>, curves: &[Curve]) -> Document {
    let highest = |value: fn(&(f64, f64)) -> f64| {
        curves.iter().flat_map(|curve| curve.points.iter().map(value)).fold(f64::MIN_POSITIVE, f64::max)
    };
    let scale = Scale { x: highest(|point| point.0), y: highest(|point| point.1) * 1.05 };
    let height = HEIGHT + LINE * super::count_of(curves.len());
    let mut picture = Document::new()
        .set("viewBox", format!("0 0 {WIDTH} {height:.0}"))
        .set("role", "img")
        .set("font-family", "sans-serif")
        .set("font-size", 13)
        .add(Title::new(frame.title))
        .add(Rectangle::new().set("width", WIDTH).set("height", height).set("fill", "#ffffff"))
        .add(text(WIDTH / 2.0, 20.0, "middle", frame.title).set("font-weight", "bold"))
        .add(text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 8.0, "middle", frame.x))
        .add(text(8.0, TOP - 10.0, "start", frame.y))
        .add(axes(&scale));
    for (curve, (colour, dashes)) in curves.iter().zip(STYLES.iter().cycle()) {
        picture = picture.add(line(curve, &scale, colour, dashes)).add(marks(curve, &scale, colour));
    }
    let mut top = HEIGHT + 8.0;
    for (curve, (colour, dashes)) in curves.iter().zip(STYLES.iter().cycle()) {
        let sample = stroke(LEFT, top, LEFT + 40.0, top, colour).set("stroke-width", 2.5);
        picture = picture.add(sample.set("stroke-dasharray", *dashes)).add(text(
            LEFT + 50.0,
            top + 4.0,
            "start",
            &curve.name,
        ));
        top += LINE;
    }
    picture
}

/// The largest values of both axes.
struct Scale {
    x: f64,
    y: f64,
}

impl Scale {
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let across = LEFT + x / self.x * (WIDTH - LEFT - RIGHT);
        let up = HEIGHT - BOTTOM - (y / self.y).min(1.0) * (HEIGHT - TOP - BOTTOM);
        (across, up)
    }
}

fn axes(scale: &Scale) -> Group {
    let mut group = Group::new();
    for value in steps(scale.y) {
        let (_, y) = scale.at((0.0, value));
        group = group.add(stroke(LEFT, y, WIDTH - RIGHT, y, "#dddddd")).add(text(
            LEFT - 6.0,
            y + 4.0,
            "end",
            &number(value),
        ));
    }
    for value in steps(scale.x) {
        let (x, y) = scale.at((value, 0.0));
        group = group.add(stroke(x, y, x, y + 5.0, "#555555")).add(text(x, y + 19.0, "middle", &number(value)));
    }
    let (left, bottom) = scale.at((0.0, 0.0));
    group.add(stroke(left, bottom, WIDTH - RIGHT, bottom, "#555555")).add(stroke(left, TOP, left, bottom, "#555555"))
}

fn line(curve: &Curve, scale: &Scale, colour: &str, dashes: &str) -> Path {
    let mut data = String::new();
    for (index, point) in curve.points.iter().enumerate() {
        let (x, y) = scale.at(*point);
        data.push_str(&format!("{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" }));
    }
    Path::new()
        .set("d", data)
        .set("fill", "none")
        .set("stroke", colour)
        .set("stroke-width", 1.6)
        .set("stroke-dasharray", dashes)
        .add(Title::new(&curve.name))
}

fn marks(curve: &Curve, scale: &Scale, colour: &str) -> Group {
    let mark = |at: &f64| {
        let (x, bottom) = scale.at((*at, 0.0));
        let title = Title::new(format!("{}: falls at {}", curve.name, number(*at)));
        stroke(x, TOP, x, bottom, colour).set("stroke-dasharray", "1 4").set("stroke-width", 1.5).add(title)
    };
    curve.marks.iter().map(mark).fold(Group::new(), Group::add)
}

/// Round numbers from 0 up to `most`.
fn steps(most: f64) -> Vec<f64> {
    let rough = most / STEPS;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    (0..=10_u32).map(|k| f64::from(k) * step).take_while(|value| *value <= most).collect()
}

fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 || value == 0.0 => format!("{value:.0}"),
        middle if middle >= 1.0 => format!("{value:.1}"),
        small if small >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn stroke(x1: f64, y1: f64, x2: f64, y2: f64, colour: &str) -> Line {
    let round = |value: f64| format!("{value:.1}");
    let line = Line::new().set("x1", round(x1)).set("y1", round(y1)).set("x2", round(x2)).set("y2", round(y2));
    line.set("stroke", colour)
}

fn text(x: f64, y: f64, anchor: &str, words: &str) -> Text {
    Text::new(words).set("x", format!("{x:.1}")).set("y", format!("{y:.1}")).set("text-anchor", anchor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_few() {
        assert_eq!(steps(10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(steps(0.7), [0.0, 0.2, 0.4, 0.6000000000000001]);
        for most in [1e-9, 0.3, 7.0, 123.0, 1e9, 3.7e12] {
            assert!((3..=11).contains(&steps(most).len()), "{most}");
        }
    }

    #[test]
    fn curves_and_marks_lie_inside_of_the_frame() {
        let curve = Curve { name: "a<b".to_owned(), points: vec![(0.0, 5.0), (3.0, 100.0)], marks: vec![1.5] };
        let picture = draw(Frame { title: "t", x: "GB", y: "MB/s" }, &[curve]).to_string();
        assert!(picture.contains("M64.0 ") && picture.contains("L704.0 "), "{picture}");
        assert!(picture.contains("a&lt;b") && !picture.contains("a<b") && picture.contains("falls at 1.5"));
        let nothing = draw(Frame { title: "t", x: "GB", y: "MB/s" }, &[]).to_string();
        assert!(nothing.contains("</svg>") && !nothing.contains("NaN") && !nothing.contains("inf"));
    }
}
