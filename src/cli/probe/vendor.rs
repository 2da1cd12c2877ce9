//! `--vendor-id`: the drive behind a USB-to-NVMe bridge.

use super::test::refused;
use crate::cli::Ending;
use crate::cli::device::Device;
use crate::cli::survey::identify;
use crate::target::{Intent, Opener};
use crate::transport::ErrorKind;
use crate::transport::vendor::{self, VendorIdentity};
use anyhow::Result;
use serde::Serialize;
use std::io::Write;

/// What came of asking.
#[derive(Serialize)]
pub(super) struct VendorAnswer {
    /// What the drive says; null where it was not asked or not believed.
    identity: Option<VendorIdentity>,
    /// Why.
    reason: Option<String>,
}

/// Claims the disk and asks. The exit code is that of a refusal where a gate is closed.
pub(super) fn ask(spec: &str) -> Result<(VendorAnswer, Ending)> {
    let target = Opener::default().open(spec, Intent::Discard, &identify)?;
    let device = Device::of(&target)?;
    if device.only_route.is_some() {
        return Err(refused(
            "another part of the disk is in use, and --vendor-id needs all of it for itself".to_owned(),
        ));
    }
    let (answer, ending) = match vendor::identify(&device.file, &device.facts) {
        Ok(identity) => (VendorAnswer { identity: Some(identity), reason: None }, Ending::Done),
        Err(error) => {
            let ending = match error.kind() {
                ErrorKind::Unsuitable | ErrorKind::Contradiction => Ending::Refused,
                _ => Ending::Failed,
            };
            (VendorAnswer { identity: None, reason: Some(error.with_causes()) }, ending)
        }
    };
    target.must_be_unchanged()?;
    Ok((answer, ending))
}

impl VendorAnswer {
    pub(super) fn make_anonymous(&mut self) {
        if let Some(identity) = &mut self.identity {
            identity.controller.serial.clear();
        }
    }

    pub(super) fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        if let Some(VendorIdentity { controller, namespace, .. }) = &self.identity {
            let knows = if controller.dataset_management { "knows" } else { "does not know" };
            let reads = if namespace.reads_zeros { "zeros" } else { "nothing that is promised" };
            writeln!(
                out,
                "  NVMe drive: {}, firmware {}, {knows} Dataset Management; discarded blocks read as {reads}",
                controller.model, controller.firmware
            )?;
        }
        self.reason.iter().try_for_each(|reason| writeln!(out, "  the drive did not tell: {reason}"))
    }
}
