//! SCSI.
pub mod sense;
