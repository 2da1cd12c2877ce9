//! `coldtrim demo`: the main job on carried images, and one table at the end.

use super::job::{Output, TrimJob};
use super::{Ending, new_file, trim};
use crate::demo::{Check, DEMOS, Demo, check, first_nonzero};
use crate::report::{Report, human};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// What one image showed.
#[derive(Debug, Serialize)]
struct Row {
    filesystem: String,
    files: usize,
    files_unchanged: usize,
    free_bytes: u64,
    free_extents: u64,
    discarded_bytes: u64,
    freed_space_reads_zero: bool,
    stored_before: u64,
    stored_after: u64,
    exit_code: u8,
}

impl Row {
    /// All files as the driver wrote them, all planned space zero and given back to the host.
    fn passed(&self) -> bool {
        self.exit_code == 0
            && self.files_unchanged == self.files
            && self.freed_space_reads_zero
            && self.discarded_bytes > 0
            && self.stored_after < self.stored_before
    }
}

/// Runs the verb.
pub fn run(keep: Option<&Path>, only: Option<&str>, output: &Output) -> Result<Ending> {
    let demos: Vec<&Demo> = DEMOS.iter().filter(|demo| only.is_none_or(|name| name == demo.name)).collect();
    if demos.is_empty() {
        let names: Vec<&str> = DEMOS.iter().map(|demo| demo.name).collect();
        bail!("the program carries no image of that name; it carries: {}", names.join(", "));
    }
    let temporary = tempfile::Builder::new().prefix("coldtrim-demo-").tempdir().context("no temporary folder")?;
    let folder = keep.unwrap_or(temporary.path());
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut rows = Vec::new();
    for demo in demos {
        rows.push(show(demo, &folder.join(format!("{}.img", demo.name)), output)?);
    }
    let passed = rows.iter().all(Row::passed);
    print_end(&rows, keep, output)?;
    Ok(if passed { Ending::Done } else { Ending::Failed })
}

/// Unpacks one image, trims it, and compares it with its manifest.
fn show(demo: &Demo, image: &Path, output: &Output) -> Result<Row> {
    let manifest = demo.manifest()?;
    // Not kept open: a trim refuses an image that somebody could write to.
    demo.unpack(&mut new_file(image)?)?;
    let before = check(image, &manifest)?;
    let (report, planned, ending) = trim::run_quietly(&job(image))?;
    let after = check(image, &manifest)?;
    let row = Row {
        filesystem: report.volumes.first().and_then(|v| v.format.clone()).unwrap_or_else(|| demo.name.to_owned()),
        files: after.files,
        files_unchanged: after.files_right,
        free_bytes: report.free_bytes,
        free_extents: report.free_extents,
        discarded_bytes: report.outcome.as_ref().map_or(0, |outcome| outcome.bytes),
        freed_space_reads_zero: first_nonzero(image, &planned)?.is_none(),
        stored_before: before.stored_bytes,
        stored_after: after.stored_bytes,
        exit_code: ending.code(),
    };
    if !output.json && !output.quiet {
        tell(&row, &report, before, image)?;
    }
    Ok(row)
}

fn job(image: &Path) -> TrimJob {
    TrimJob { via: Some("punch".to_owned()), ..TrimJob::of(image.display().to_string()) }
}

fn tell(row: &Row, report: &Report, before: Check, image: &Path) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}: {}", row.filesystem, image.display())?;
    writeln!(
        out,
        "  map:    {} free in {} of {}",
        human::bytes(row.free_bytes),
        human::count(row.free_extents, "extent"),
        human::bytes(report.targets.first().map_or(0, |target| target.size))
    )?;
    if let Some(plan) = &report.plan {
        writeln!(
            out,
            "  plan:   {} in {}, {}",
            human::bytes(plan.bytes),
            human::count(plan.extents, "extent"),
            human::count(plan.commands, "command")
        )?;
    }
    writeln!(
        out,
        "  before: {} of {} files as the driver wrote them, {} on disk",
        before.files_right,
        before.files,
        human::bytes(before.stored_bytes)
    )?;
    writeln!(
        out,
        "  after:  {} of {} files as the driver wrote them, {} on disk",
        row.files_unchanged,
        row.files,
        human::bytes(row.stored_after)
    )?;
    for error in &report.errors {
        writeln!(out, "  error:  {error}")?;
    }
    Ok(())
}

fn print_end(rows: &[Row], keep: Option<&Path>, output: &Output) -> Result<()> {
    if output.json {
        let all = serde_json::json!({ "schema": crate::report::SCHEMA, "command": "demo", "demos": rows });
        return Ok(super::print_json(&all)?);
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{:<10} {:>12} {:>12} {:>12} {:>22}  result", "filesystem", "files", "free", "discarded", "on disk")?;
    for row in rows {
        writeln!(
            out,
            "{:<10} {:>12} {:>12} {:>12} {:>22}  {}",
            row.filesystem,
            format!("{} of {}", row.files_unchanged, row.files),
            human::bytes(row.free_bytes),
            human::bytes(row.discarded_bytes),
            format!("{} -> {}", human::bytes(row.stored_before), human::bytes(row.stored_after)),
            if row.passed() { output.paint.good("ok") } else { output.paint.bad("FAILED") }
        )?;
    }
    if let Some(folder) = keep {
        writeln!(out, "The images are in {}", folder.display())?;
    }
    Ok(())
}
