//! What earlier tests found, kept on this machine: one small file for every unit that was tested.
//!
//! ```text
//! /var/lib/coldtrim/usb-152d-0583-0214-0f3c…9a.json     bridge and firmware, then a digest of everything else that names it
//! ```
//!
//! Nothing here is ever a reason to trust a route: firmware, cable and port may have changed, and the file may be wrong.
//! It can only make a run more careful, and it is shown.

mod files;
pub mod time;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// The version of the files.
const SCHEMA: &str = "coldtrim-memory/1";
/// Where the files are, unless [`VARIABLE`] names another folder.
const FOLDER: &str = "/var/lib/coldtrim";
/// Names another folder.
pub const VARIABLE: &str = "COLDTRIM_STATE";

/// A USB bridge with its firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bridge {
    /// idVendor.
    pub vendor: u16,
    /// idProduct.
    pub product: u16,
    /// bcdDevice.
    pub release: u16,
}

/// One unit: what is behind a name, with all that a test of it depends on. Serial numbers alone are not unique.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    /// The bridge; none for a disk on a port of the machine.
    pub bridge: Option<Bridge>,
    /// The bridge's own serial number.
    pub bridge_serial: Option<String>,
    /// `uas` or `usb-storage`.
    pub driver: Option<String>,
    /// As the disk names itself.
    pub vendor: Option<String>,
    /// As the disk names itself.
    pub model: Option<String>,
    /// Its firmware.
    pub revision: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// Bytes.
    pub size: u64,
}

impl Unit {
    /// How the names of the files of all units with this bridge and firmware begin.
    fn kind(&self) -> String {
        match self.bridge {
            Some(Bridge { vendor, product, release }) => format!("usb-{vendor:04x}-{product:04x}-{release:04x}-"),
            None => "disk-".to_owned(),
        }
    }

    /// In what it is not the `other` one, in words.
    pub fn differs_from(&self, other: &Self) -> String {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        let names = |unit: &Self| {
            [
                ("the bridge's serial number", text(&unit.bridge_serial)),
                ("driver", text(&unit.driver)),
                ("vendor", text(&unit.vendor)),
                ("model", text(&unit.model)),
                ("firmware", text(&unit.revision)),
                ("serial number", text(&unit.serial)),
                ("size", format!("{} bytes", unit.size)),
            ]
        };
        let pairs = names(self).into_iter().zip(names(other)).filter(|((_, here), (_, there))| here != there);
        let words = pairs.map(|((what, here), (_, there))| format!("{what} is {here}, and was {there}"));
        words.collect::<Vec<_>>().join("; ")
    }

    fn file_name(&self) -> Result<String, serde_json::Error> {
        let digest = Sha256::digest(serde_json::to_vec(self)?);
        let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("{}{hex}.json", self.kind()))
    }
}

/// What a test found of one route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PastRoute {
    /// As in `--via`.
    pub name: String,
    /// When, in seconds since 1970.
    pub when: u64,
    /// The verdict's word.
    pub verdict: String,
    /// Why, where the word does not say it.
    pub reason: Option<String>,
    /// Bytes of the largest command that worked.
    pub largest: Option<u64>,
    /// Bytes of the smallest command that was rejected although smaller ones worked.
    pub rejected: Option<u64>,
    /// What the device did after the test that it should not have done.
    pub late: Option<String>,
}

impl PastRoute {
    /// Why the route must not be chosen without being named; none where nothing speaks against it.
    pub fn objection(&self) -> Option<String> {
        let words = match (self.verdict.as_str(), &self.late) {
            ("harmful" | "unstable", _) => match &self.reason {
                Some(reason) => format!("{}: {reason}", self.verdict),
                None => self.verdict.clone(),
            },
            (_, Some(late)) => format!("not to be left alone: {late}"),
            _ => return None,
        };
        Some(format!("an earlier test on {} found it {words}", time::date(self.when)))
    }
}

/// A test that waits for the device to have been without power: a pattern lies in free space, a part of it discarded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pending {
    /// When it began, in seconds since 1970.
    pub when: u64,
    /// Which boot of this machine that was.
    pub boot: String,
    /// The kernel's number of the disk then: another one after it was away.
    pub sequence: Option<u64>,
    /// A digest of what was free: who has used the volume since may have written anywhere in it.
    pub free: String,
    /// By which route, as in `--via`.
    pub route: String,
    /// The pattern's first byte.
    pub ground: u64,
    /// Bytes of the pattern.
    pub length: u64,
    /// The first discarded byte.
    pub target: u64,
    /// Bytes that were discarded.
    pub discarded: u64,
    /// Bytes of one block of the pattern.
    pub block: u64,
    /// What makes the pattern.
    pub nonce: u64,
    /// Whether the discarded part was seen changed then.
    pub worked: bool,
}

/// All that is kept of one unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    schema: String,
    /// Which unit.
    pub unit: Unit,
    /// The newest result of every route that was tested.
    pub routes: Vec<PastRoute>,
    /// A test that is not finished.
    pub pending: Option<Pending>,
}

impl Record {
    /// Nothing is known.
    pub fn new(unit: Unit) -> Self {
        Self { schema: SCHEMA.to_owned(), unit, routes: Vec::new(), pending: None }
    }

    /// Takes a newer result in the place of an older one.
    pub fn learn(&mut self, result: PastRoute) {
        self.routes.retain(|known| known.name != result.name);
        self.routes.push(result);
    }
}

/// What is remembered when a device is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Past {
    /// Of this very unit.
    pub this: Vec<PastRoute>,
    /// Of other units with this bridge and firmware.
    pub others: Vec<PastRoute>,
}

impl Past {
    /// Why `auto` must not choose a route here. What another unit did is told, but decides nothing.
    pub fn objection(&self, route: &str) -> Option<String> {
        self.this.iter().find(|known| known.name == route).and_then(PastRoute::objection)
    }
}

/// The folder of the files.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

/// Why something could not be remembered.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The folder or a file in it.
    #[error("{0}: {1}")]
    Io(PathBuf, #[source] std::io::Error),
    /// Others may write there.
    #[error("{0} belongs to another user, others may write to it, or it is no folder: nothing in it is believed")]
    NotOurs(PathBuf),
    /// What is in a file.
    #[error("{0} is not a file that this version understands ({1}); it is left alone")]
    Strange(PathBuf, String),
}

impl Store {
    /// The folder that the environment names, else the usual one.
    pub fn open() -> Self {
        let folder = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
        Self { folder: folder.map_or_else(|| FOLDER.into(), PathBuf::from) }
    }

    /// In this folder.
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The record of a unit, when there is one.
    pub fn record(&self, unit: &Unit) -> Result<Option<Record>, MemoryError> {
        let name = self.name(unit)?;
        let found = files::read(&self.folder, &name)?.map(|text| self.parse(&name, &text)).transpose()?;
        Ok(found.filter(|record| record.unit == *unit))
    }

    /// What is known of a unit and of its like. Files that cannot be understood are named, too.
    pub fn past(&self, unit: &Unit) -> Result<(Past, Vec<MemoryError>), MemoryError> {
        let (mut past, mut strange) = (Past::default(), Vec::new());
        for name in files::list(&self.folder, &unit.kind())? {
            let record = match files::read(&self.folder, &name).and_then(|text| match text {
                Some(text) => self.parse(&name, &text).map(Some),
                None => Ok(None),
            }) {
                Ok(Some(record)) => record,
                Ok(None) => continue,
                Err(error) => {
                    strange.push(error);
                    continue;
                }
            };
            if record.unit == *unit {
                past.this = record.routes;
            } else if unit.bridge.is_some() && record.unit.bridge == unit.bridge {
                past.others.extend(record.routes);
            }
        }
        Ok((past, strange))
    }

    /// Units with this bridge, whatever else is different, for which a test waits.
    pub fn waiting_like(&self, unit: &Unit) -> Result<Vec<Unit>, MemoryError> {
        let records = files::list(&self.folder, &unit.kind())?
            .into_iter()
            .filter_map(|name| self.parse(&name, &files::read(&self.folder, &name).ok()??).ok());
        Ok(records.filter(|record| record.pending.is_some()).map(|record| record.unit).collect())
    }

    /// Keeps a record in the place of an older one of the same unit.
    pub fn keep(&self, record: &Record) -> Result<(), MemoryError> {
        let name = self.name(&record.unit)?;
        let text = serde_json::to_vec_pretty(record).map_err(|error| self.strange(&name, &error))?;
        files::write(&self.folder, &name, &text)
    }

    fn name(&self, unit: &Unit) -> Result<String, MemoryError> {
        unit.file_name().map_err(|error| self.strange("", &error))
    }

    fn parse(&self, name: &str, text: &[u8]) -> Result<Record, MemoryError> {
        let record: Record = serde_json::from_slice(text).map_err(|error| self.strange(name, &error))?;
        if record.schema == SCHEMA {
            return Ok(record);
        }
        Err(MemoryError::Strange(self.folder.join(name), format!("it is of kind {}", record.schema)))
    }

    fn strange(&self, name: &str, error: &serde_json::Error) -> MemoryError {
        MemoryError::Strange(self.folder.join(name), error.to_string())
    }
}
