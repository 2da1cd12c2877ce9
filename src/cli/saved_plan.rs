//! `--save-plan` and `--plan`: review now, run later. The map is always computed afresh; a plan that differs from the
//! reviewed one is a refusal.

use super::routes::Prepared;
use super::survey::Survey;
use crate::plan::units::ByteRange;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;

/// The version of the file.
const SCHEMA: &str = "coldtrim-plan/1";

/// A plan as it lies in a file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedPlan {
    schema: String,
    devices: Vec<SavedDevice>,
}

/// What is planned for one device.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedDevice {
    /// Bytes; with the serial number it tells one device from another of another name.
    size: u64,
    serial: Option<String>,
    route: String,
    /// Start and end in bytes, as the route addresses them.
    extents: Vec<ByteRange>,
}

/// The plan is not the one that was agreed to.
#[derive(Debug, thiserror::Error)]
pub enum Differs {
    /// Not the one in the file.
    #[error("the plan is not the one in {0}: {1}. Look at it again with --save-plan and --dry-run")]
    FromFile(String, String),
    /// Not the one that was shown.
    #[error("the volume changed while the question was open, so nothing was sent; run the command again")]
    WhileAsking,
}

impl SavedPlan {
    fn new(survey: &Survey, prepared: &[Prepared]) -> Self {
        let devices = prepared.iter().map(|device| {
            let target = &survey.targets[device.target];
            SavedDevice {
                size: target.size(),
                serial: target.disk().and_then(|disk| disk.serial.clone()),
                route: device.route.name.to_owned(),
                extents: device.parts.iter().flat_map(|part| part.plan.extents().iter().copied()).collect(),
            }
        });
        Self { schema: SCHEMA.to_owned(), devices: devices.collect() }
    }

    /// The first difference, in words.
    fn difference(&self, now: &Self) -> Option<String> {
        if self.schema != now.schema {
            return Some(format!("it is a plan of version {}, not {SCHEMA}", self.schema));
        }
        if self.devices.len() != now.devices.len() {
            return Some(format!(
                "{} devices were planned, and now there are {}",
                self.devices.len(),
                now.devices.len()
            ));
        }
        let mut pairs = self.devices.iter().zip(&now.devices);
        pairs.find(|(then, now)| then != now).map(|(then, now)| {
            if (then.size, &then.serial) != (now.size, &now.serial) {
                return "it was made for another device".to_owned();
            }
            if then.route != now.route {
                return format!("it goes by {}, and now the route is {}", then.route, now.route);
            }
            let changed = then.extents.iter().zip(&now.extents).find(|(a, b)| a != b).map(|(a, _)| *a);
            match changed.or(then.extents.get(now.extents.len()).copied()) {
                Some(range) => format!("the planned {range} are not planned any more"),
                None => "more is free now than was planned".to_owned(),
            }
        })
    }
}

/// Writes the plan to `path`.
pub fn save(path: &Path, survey: &Survey, prepared: &[Prepared]) -> Result<()> {
    let text = serde_json::to_string_pretty(&SavedPlan::new(survey, prepared))?;
    let written = super::new_file(path)?.write_all(text.as_bytes());
    written.with_context(|| format!("cannot write the plan to {}", path.display()))
}

/// Compares the plan with the one in `path`, if there is one.
pub fn compare(path: Option<&Path>, survey: &Survey, prepared: &[Prepared]) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the plan {name}"))?;
    let then: SavedPlan = serde_json::from_str(&text)
        .map_err(|error| Differs::FromFile(name.clone(), format!("the file is no plan of coldtrim ({error})")))?;
    match then.difference(&SavedPlan::new(survey, prepared)) {
        None => Ok(()),
        Some(difference) => Err(Differs::FromFile(name, difference).into()),
    }
}
