//! `coldtrim map`: what is free, and why anything is refused. Reads only.

use super::args::MapFormatArg;
use super::job::{Output, Scope};
use super::survey::{Survey, complain, print_notes};
use super::{Ending, interrupt};
use crate::report::formats::{self, SectorFormat};
use crate::report::{Extent, Report, svg, text};
use crate::target::Intent;
use anyhow::{Context, Result};
use std::io::Write;
use std::path::Path;

/// Runs the verb, and draws the map into `picture`.
pub fn run(scope: &Scope, format: MapFormatArg, picture: Option<&Path>, output: &Output) -> Result<Ending> {
    let mut survey = Survey::new("map", scope, Intent::Read, interrupt::flag()?)?;
    print_notes(&survey.notes, output);
    let ending = survey.ending();
    survey.report.exit_code = ending.code();
    if let Some(path) = picture {
        draw(path, &survey.report).with_context(|| format!("cannot draw into {}", path.display()))?;
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    print(&mut out, &mut survey.report, format, output)?;
    out.flush()?;
    Ok(ending)
}

fn print(out: &mut dyn Write, report: &mut Report, format: MapFormatArg, output: &Output) -> Result<()> {
    match format {
        MapFormatArg::Text => text::print(out, report, output.paint)?,
        MapFormatArg::Json => json(out, report)?,
        other => {
            complain(report);
            match other {
                MapFormatArg::Ddrescue => formats::ddrescue(out, report)?,
                MapFormatArg::Lba => formats::sectors(out, report, SectorFormat::Lba)?,
                MapFormatArg::Hdparm => formats::sectors(out, report, SectorFormat::Hdparm)?,
                MapFormatArg::SgUnmap => formats::sectors(out, report, SectorFormat::SgUnmap)?,
                MapFormatArg::Blkdiscard => formats::sectors(out, report, SectorFormat::Blkdiscard)?,
                MapFormatArg::Nvme => formats::sectors(out, report, SectorFormat::Nvme)?,
                MapFormatArg::Ranges | MapFormatArg::Text | MapFormatArg::Json => formats::ranges(out, report)?,
            }
        }
    }
    Ok(())
}

fn draw(path: &Path, report: &Report) -> Result<()> {
    let mut file = std::io::BufWriter::new(super::new_file(path)?);
    svg::print(&mut file, report)?;
    Ok(file.flush()?)
}

fn json(out: &mut dyn Write, report: &mut Report) -> Result<()> {
    for volume in &mut report.volumes {
        volume.ranges = Some(volume.free.iter().copied().map(Extent::from).collect());
    }
    serde_json::to_writer_pretty(&mut *out, report)?;
    Ok(writeln!(out)?)
}
