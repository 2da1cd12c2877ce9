//! SCSI: commands as bytes ([`encode`]), their carrier ([`ScsiPort`], [`SgIo`]), their answers ([`pages`],
//! [`sense`]), and a logical unit that puts them together ([`ScsiDevice`]).
//!
//! SG_IO passes by everything with which the kernel guards a disk: partition bounds, claims, read-only flags, limits.
//! What [`disk::Disk`] checks before the first command replaces that.

pub mod device;
pub mod disk;
pub mod encode;
pub mod pages;
pub mod port;
pub mod sense;
mod sys;

#[cfg(test)]
pub(crate) mod script;
#[cfg(test)]
mod tests;

use super::error::TransportError;
pub use device::ScsiDevice;
pub use port::{Completion, ScsiPort};
pub use sys::SgIo;

/// Asks a disk once whether it is ready; a reset since the last command is an error. Must come before any other command:
/// the kernel's own reads take the news of a reset and keep it to themselves.
pub fn look(file: &std::fs::File) -> Result<(), TransportError> {
    let port = SgIo::new(file).map_err(|cause| TransportError::os("scsi", "cannot duplicate the descriptor", cause))?;
    ScsiDevice::new("scsi", Box::new(port)).look()
}
