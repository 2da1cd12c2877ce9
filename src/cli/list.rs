//! `coldtrim list`: drives, how they are attached, what is on them, and which routes could trim them.

use super::job::Output;
use super::survey::identify;
use super::{Ending, device};
use crate::report::text::print_tree;
use crate::report::{SCHEMA, human};
use crate::target::facts::DiskFacts;
use crate::target::list::{ListedDisk, list};
use crate::target::{DeviceNumber, Roots};
use anyhow::Result;
use coldtrim_parsers::text::printable;
use coldtrim_parsers::units::from_usize;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Runs the verb for `only`, or for every disk.
pub fn run(only: &[PathBuf], output: &Output) -> Result<Ending> {
    let mut disks = list(&Roots::default(), &identify);
    let mut errors = Vec::new();
    if !only.is_empty() {
        let numbers: Vec<Option<DeviceNumber>> = only.iter().map(|path| number_of(path)).collect();
        for (path, number) in only.iter().zip(&numbers) {
            if !number.is_some_and(|number| disks.iter().any(|disk| disk.has(number))) {
                let name = path.display();
                errors.push(format!("{name} is no disk that the kernel knows; `coldtrim list` shows all of them"));
            }
        }
        disks.retain(|disk| numbers.iter().flatten().any(|number| disk.has(*number)));
    }
    errors.iter().for_each(|error| say!("coldtrim: {error}"));
    let ending = if errors.is_empty() { Ending::Done } else { Ending::Failed };
    if output.json {
        super::print_json(&as_json(&disks, &errors, ending)?)?;
        return Ok(ending);
    }
    let mut out = std::io::stdout().lock();
    if disks.is_empty() && errors.is_empty() && !output.quiet {
        writeln!(out, "The kernel knows no disk here.")?;
    }
    disks.iter().try_for_each(|disk| print(&mut out, disk, output))?;
    let unread = |disk: &ListedDisk| std::fs::File::open(&disk.disk.node).is_err_and(is_denied);
    if !output.quiet && disks.iter().any(unread) {
        writeln!(out, "What is on disks can be seen by root only: sudo coldtrim list")?;
    }
    Ok(ending)
}

fn is_denied(error: std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::PermissionDenied
}

/// What the name leads to, however it is written: a link, a relative path, a node of somebody's own.
fn number_of(path: &Path) -> Option<DeviceNumber> {
    let metadata = std::fs::metadata(path).ok()?;
    metadata.file_type().is_block_device().then(|| DeviceNumber::from_raw(metadata.rdev()))
}

/// Every fact, with the routes that could be tried. No map is read, so there are no volumes.
fn as_json(disks: &[ListedDisk], errors: &[String], ending: Ending) -> Result<serde_json::Value> {
    let targets = disks.iter().map(|listed| {
        let (disk, name) = (&listed.disk, listed.disk.node.display().to_string());
        serde_json::json!({ "name": name, "path": name, "kind": "disk", "size": disk.size })
    });
    let targets: Vec<_> = targets.collect();
    let mut described = Vec::new();
    for listed in disks {
        let mut disk = serde_json::to_value(listed)?;
        disk["routes"] = routes(&listed.disk).into();
        described.push(disk);
    }
    Ok(serde_json::json!({
        "schema": SCHEMA, "command": "list", "targets": targets, "volumes": [], "disks": described, "errors": errors,
        "exit_code": ending.code(),
    }))
}

fn print(out: &mut dyn Write, listed: &ListedDisk, output: &Output) -> Result<()> {
    let disk = &listed.disk;
    let facts = [Some(human::bytes(disk.size)), device::model(disk), device::attachment(disk)];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    let mut heading =
        vec![format!("{}  {}", output.paint.bold(&disk.node.display().to_string()), printable(&facts.join(", ")))];
    let names = routes(disk);
    heading.push(format!("  routes: {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") }));
    heading.extend(
        listed.findings.iter().map(|found| format!("  {} {}", output.paint.warn("note:"), printable(&found.message))),
    );
    let whole = listed.content.as_ref();
    let of_whole = (whole.is_some() || !listed.users.is_empty()).then(|| vec![what(whole, &listed.users)]);
    let partitions = listed.partitions.iter().map(|partition| {
        let (node, size) = (partition.partition.node.display(), human::bytes(partition.partition.range.len()));
        vec![format!("{node}  {size}  {}", what(partition.content.as_ref(), &partition.users))]
    });
    Ok(print_tree(out, &heading, &of_whole.into_iter().chain(partitions).collect::<Vec<_>>())?)
}

fn what(content: Option<&crate::target::Identity>, users: &[crate::target::usage::User]) -> String {
    let mut words = Vec::new();
    if let Some(content) = content {
        let format = content.format.as_deref().unwrap_or("unknown");
        words.push(match content.within.len() {
            0 => format.to_owned(),
            count => format!("{format} table with {}", human::count(from_usize(count), "partition")),
        });
        words.extend(content.label.as_ref().map(|label| format!("\"{label}\"")));
    }
    match users {
        [] => words.push("not in use".to_owned()),
        users => words.extend(users.iter().map(ToString::to_string)),
    }
    // Labels and mount points are what somebody made them.
    printable(&words.join(", "))
}

/// The routes that could be tried, by facts alone; those that have to be named with the option that names them.
fn routes(disk: &DiskFacts) -> Vec<String> {
    use crate::transport::{Applies, TRANSPORTS};
    let facts = device::facts_of_disk(disk);
    let word = |route: &crate::transport::Route| match (route.applies)(&facts) {
        Applies::Auto(_) => Some(route.name.to_owned()),
        Applies::WhenNamed(_) => Some(format!("--via {}", route.name)),
        Applies::No(_) => None,
    };
    TRANSPORTS.iter().filter_map(word).collect()
}
