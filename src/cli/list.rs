//! `coldtrim list`: drives, how they are attached, what is on them, and which routes could trim them.

use super::job::Output;
use super::survey::identify;
use super::{Ending, device};
use crate::report::text::print_tree;
use crate::report::{SCHEMA, human};
use crate::target::Roots;
use crate::target::facts::DiskFacts;
use crate::target::list::{ListedDisk, list};
use anyhow::{Result, bail};
use std::io::Write;
use std::path::PathBuf;

/// Runs the verb for `only`, or for every disk.
pub fn run(only: &[PathBuf], output: &Output) -> Result<Ending> {
    let mut disks = list(&Roots::default(), &identify);
    if !only.is_empty() {
        let wanted = |disk: &ListedDisk| {
            only.iter().any(|path| *path == disk.disk.node || disk.partitions.iter().any(|p| *path == p.partition.node))
        };
        disks.retain(wanted);
        if disks.is_empty() {
            bail!("none of these is a disk that the kernel knows; `coldtrim list` shows all of them");
        }
    }
    if output.json {
        super::print_json(&as_json(&disks)?)?;
        return Ok(Ending::Done);
    }
    let mut out = std::io::stdout().lock();
    if disks.is_empty() && !output.quiet {
        writeln!(out, "The kernel knows no disk here.")?;
    }
    disks.iter().try_for_each(|disk| print(&mut out, disk, output))?;
    Ok(Ending::Done)
}

/// Every fact, with the routes that could be tried. No map is read, so there are no volumes.
fn as_json(disks: &[ListedDisk]) -> Result<serde_json::Value> {
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
        "schema": SCHEMA, "command": "list", "targets": targets, "volumes": [], "disks": described, "errors": [],
        "exit_code": 0,
    }))
}

fn print(out: &mut dyn Write, listed: &ListedDisk, output: &Output) -> Result<()> {
    let disk = &listed.disk;
    let facts = [Some(human::bytes(disk.size)), device::model(disk), device::attachment(disk)];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    let mut heading = vec![format!("{}  {}", output.paint.bold(&disk.node.display().to_string()), facts.join(", "))];
    let names = routes(disk);
    heading.push(format!("  routes: {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") }));
    heading.extend(listed.findings.iter().map(|found| format!("  {} {}", output.paint.warn("note:"), found.message)));
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
        words.push(content.format.clone().unwrap_or_else(|| "unknown".to_owned()));
        words.extend(content.label.as_ref().map(|label| format!("\"{label}\"")));
    }
    match users {
        [] => words.push("not in use".to_owned()),
        users => words.extend(users.iter().map(ToString::to_string)),
    }
    words.join(", ")
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
