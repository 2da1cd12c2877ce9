//! A measurement as one page that needs nothing else: no script, no font, no image from elsewhere.

use super::plot::{Curve, Frame, draw};
use super::{NamedPass, RUNGS, VerifyReport, megabytes};
use crate::measure::stats::{real, whole};
use crate::report::{Report, human, svg};
use coldtrim_parsers::text::printable;
use std::io::{self, Write};

const STYLE: &str = "body{font:16px/1.5 sans-serif;max-width:60rem;margin:0 auto;padding:1rem;color:#111;background:#fff}\
svg{width:100%;height:auto;border:1px solid #ddd;margin:.5rem 0}\
table{border-collapse:collapse;display:block;overflow-x:auto}\
th,td{border:1px solid #bbb;padding:.25rem .6rem;text-align:left}td.n{text-align:right;white-space:nowrap}\
.verdict{border-left:.5rem solid #0072b2;padding:.5rem 1rem;background:#f3f7fb;font-size:1.1rem}\
.yes{font-weight:bold}";

/// Points of a curve; more would only make the page large.
const POINTS: usize = 400;

/// Writes the page: `report` is what was found on the target, `verify` what was measured.
pub fn print(out: &mut dyn Write, report: &Report, verify: &VerifyReport) -> io::Result<()> {
    let name = report.targets.first().map_or("", |target| target.name.as_str());
    writeln!(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">")?;
    writeln!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    writeln!(out, "<title>coldtrim verify {}</title><style>{STYLE}</style></head><body>", escaped(name))?;
    writeln!(out, "<h1>What TRIM does to {}</h1>", escaped(name))?;
    print_verdict(out, verify)?;
    print_target(out, report, verify)?;
    for what in kinds(&verify.passes) {
        print_plots(out, what, &verify.passes)?;
    }
    print_passes(out, &verify.passes)?;
    print_rungs(out, verify)?;
    writeln!(out, "<h2>The map</h2>")?;
    svg::print(out, report)?;
    print_method(out, verify)?;
    writeln!(out, "</body></html>")
}

/// Text for a page.
fn escaped(text: &str) -> String {
    printable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn print_verdict(out: &mut dyn Write, verify: &VerifyReport) -> io::Result<()> {
    writeln!(
        out,
        "<p class=\"verdict\"><strong>{}</strong><br>{}</p>",
        escaped(&verify.verdict),
        escaped(&verify.sentence)
    )?;
    let reason =
        verify.reason.as_deref().into_iter().chain(verify.harm.as_deref()).chain(verify.ended_early.as_deref());
    for note in reason.chain(verify.notes()) {
        writeln!(out, "<p>Note: {}</p>", escaped(note))?;
    }
    Ok(())
}

fn print_target(out: &mut dyn Write, report: &Report, verify: &VerifyReport) -> io::Result<()> {
    let mut rows = Vec::new();
    for target in &report.targets {
        let facts = [target.model.as_deref(), target.attachment.as_deref()];
        let facts: Vec<&str> = facts.into_iter().flatten().collect();
        rows.push(("Device", format!("{} {}", human::bytes(target.size), facts.join(", "))));
    }
    rows.extend(verify.bench.link.iter().map(|link| ("Way", link.clone())));
    let (written, slots) = (verify.sent.written, verify.bench.slots);
    rows.push(("Free space used", format!("{} in {} extents", human::bytes(slots.bytes), slots.extents)));
    rows.push(("Written", human::exact(written)));
    rows.push(("Discarded", human::exact(verify.sent.discarded)));
    rows.push(("Left behind", human::bytes(verify.left_bytes)));
    rows.push(("Compared before and after", format!("{} places", verify.compared_places)));
    writeln!(out, "<table>")?;
    rows.iter().try_for_each(|(name, value)| writeln!(out, "<tr><th>{name}</th><td>{}</td></tr>", escaped(value)))?;
    writeln!(out, "</table>")
}

/// The kinds of passes, in the order of their first one.
fn kinds(passes: &[NamedPass]) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    for pass in passes {
        if !kinds.contains(&pass.what) {
            kinds.push(pass.what);
        }
    }
    kinds
}

fn print_plots(out: &mut dyn Write, what: &str, passes: &[NamedPass]) -> io::Result<()> {
    writeln!(out, "<h2>Speed of {what}</h2>")?;
    let curves = |over: fn(u64, f64) -> f64| -> Vec<Curve> {
        passes.iter().filter(|pass| pass.what == what).map(|pass| curve(pass, over)).collect()
    };
    let title = format!("{what}: speed over bytes written");
    let bytes = draw(Frame { title: &title, x: "GB", y: "MB/s" }, &curves(|bytes, _| real(bytes) / 1e9));
    let title = format!("{what}: speed over time");
    let time = draw(Frame { title: &title, x: "s", y: "MB/s" }, &curves(|_, seconds| seconds));
    ::svg::write(&mut *out, &bytes)?;
    ::svg::write(&mut *out, &time)
}

/// The curve of a pass, of which every point is the speed over as many chunks.
fn curve(named: &NamedPass, over: fn(u64, f64) -> f64) -> Curve {
    let chunks = &named.pass.chunks;
    let step = chunks.len().div_ceil(POINTS).max(1);
    let (mut bytes, mut seconds) = (0_u64, 0.0);
    let mut points = Vec::new();
    let mut marks = Vec::new();
    let knee = named.pass.cache().map(|knee| whole(knee.bytes));
    for part in chunks.chunks(step) {
        let written: u64 = part.iter().map(|chunk| chunk.bytes).sum();
        let took: f64 = part.iter().map(|chunk| chunk.seconds).sum();
        let before = bytes;
        bytes = bytes.saturating_add(written);
        seconds += took;
        points.push((over(bytes, seconds), real(written) / took / 1e6));
        if knee.is_some_and(|knee| before <= knee && knee < bytes) {
            marks.push(over(bytes, seconds));
        }
    }
    Curve { name: named.name.clone(), points, marks }
}

fn print_passes(out: &mut dyn Write, passes: &[NamedPass]) -> io::Result<()> {
    writeln!(out, "<h2>The passes</h2><table><tr><th>pass</th><th>what</th><th>bytes</th><th>time</th>")?;
    writeln!(out, "<th>speed that counts</th><th>steady</th><th>fast bytes</th></tr>")?;
    for named in passes {
        let pass = &named.pass;
        let cache = pass.cache().map_or(String::new(), |knee| human::bytes(whole(knee.bytes)));
        writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{:.1} s</td><td class=\"n\">{}</td><td>{}</td>\
             <td class=\"n\">{cache}</td></tr>",
            escaped(&named.name),
            named.what,
            human::bytes(pass.bytes),
            pass.seconds_flushed,
            megabytes(pass.speed()),
            if pass.steady { "yes" } else { "no" },
        )?;
    }
    writeln!(out, "</table>")
}

fn print_rungs(out: &mut dyn Write, verify: &VerifyReport) -> io::Result<()> {
    writeln!(out, "<h2>The evidence</h2><table><tr><th>rung</th><th>what was to be seen</th><th>reached</th></tr>")?;
    for (number, rung) in (0_u8..).zip(RUNGS) {
        let reached = match number.cmp(&verify.rung) {
            std::cmp::Ordering::Equal => "<span class=\"yes\">the verdict stands here</span>",
            std::cmp::Ordering::Less => "below it",
            std::cmp::Ordering::Greater => "no",
        };
        writeln!(out, "<tr><td>{number}</td><td>{rung}</td><td>{reached}</td></tr>")?;
    }
    writeln!(out, "</table>")?;
    if let Some(trial) = &verify.trial {
        writeln!(out, "<p>Trial in free space: {}; {}</p>", escaped(&trial.verdict), escaped(&trial.evidence))?;
    }
    Ok(())
}

fn print_method(out: &mut dyn Write, verify: &VerifyReport) -> io::Result<()> {
    writeln!(
        out,
        "<h2>The method</h2><p>Written was only to free space of a volume that nobody used, with blocks that cannot be \
         compressed and are never twice the same. A drive heals while it is written to and while it rests, so that \
         \"write, trim, write again\" proves nothing: what counts is the pass after TRIM against the one after a pause of \
         the same length without TRIM. Chunks are of equal bytes; an interval is the middle 95 % of a block bootstrap; \
         steady is what SNIA's specification calls so. Protocol {}, random numbers from {}.</p>",
        verify.preset, verify.design.seed
    )
}
