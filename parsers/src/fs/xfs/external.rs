//! The log on a device of its own. It has no superblock: its first block is a record that names the volume, until the
//! log has been written round once.

use super::end_of;
use super::log::{self, State};
use super::lsn::Lsn;
use super::superblock::SuperBlock;
use crate::error::ParseError;
use crate::free_map::{FreeMap, Grid};
use crate::fs::grouped;
use crate::source::{Source, Window};
use crate::units::{BlockSize, ByteRange};
use crate::volume::{Finding, Volume};

/// Looks for the volume's log among the companions: where it ends, or what speaks against it.
pub fn log_end(superblock: &SuperBlock, companions: &[&dyn Source]) -> Result<Lsn, Finding> {
    let mut states = Vec::new();
    for companion in companions {
        states.extend(state_of(superblock, *companion));
    }
    match states.as_slice() {
        [] => Err(Finding::refusal(
            "the log of this volume is on another device, whose state was not seen",
            "name both: DEVICE and the device that mount is given as logdev=",
        )),
        [state] => end_of(state, 0, "the log on the other device"),
        several => Err(Finding::refusal(
            format!("{} devices look like this volume's log", several.len()),
            "name the right one only",
        )),
    }
}

/// The state of a companion that is this volume's log. What cannot be read is no log.
fn state_of(superblock: &SuperBlock, companion: &dyn Source) -> Option<State> {
    let len = superblock.block.to_bytes(superblock.log_blocks).ok()?;
    let window = Window::new(companion, ByteRange::with_len(0, len)?)?;
    let state = log::state(&window, &superblock.uuid, superblock.features.is_v5).ok()?;
    let is_ours = match &state {
        State::Clean { .. } => true,
        // Only a record that names the volume makes an unclean log this one's.
        State::Unclean { .. } => log::owner(companion).ok()? == Some(superblock.uuid),
        State::Foreign => false,
    };
    is_ours.then_some(state)
}

/// A log device as a volume of its own: wholly used.
pub fn volume(source: &dyn Source) -> Result<Volume, ParseError> {
    let block = BlockSize::new(512).ok_or_else(|| ParseError::inconsistent("512 is a power of two"))?;
    let owner = log::owner(source)?.map(|uuid| grouped(&uuid)).unwrap_or_default();
    Ok(Volume {
        format: "xfs_external_log".to_owned(),
        label: None,
        uuid: None,
        size: source.len(),
        block_size: block.bytes(),
        free: FreeMap::nothing(Grid::new(0, block, block.whole_blocks(source.len()))?),
        needs_witness: false,
        findings: vec![Finding::warning(format!(
            "this is the external log of the XFS volume with UUID {owner}: nothing on it is free"
        ))],
    })
}
