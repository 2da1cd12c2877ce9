//! Why a plan was not made.

use super::units::ByteRange;

/// A reason to send nothing. Nothing is ever clamped into bounds: a range that lies outside means that something
/// before the plan was wrong, and then nothing it said can be believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Something lies outside of what should hold it.
    #[error("{origin}: {inner} ({range}) is not inside {outer} ({bounds}); nothing was planned for this device")]
    Outside {
        /// Which volume or gap.
        origin: String,
        /// What lies outside.
        inner: &'static str,
        /// Where it lies, in bytes of the device.
        range: ByteRange,
        /// What should hold it.
        outer: &'static str,
        /// Where that lies, in bytes of the device.
        bounds: ByteRange,
    },
    /// The kernel and the device disagree about the size.
    #[error(
        "the kernel says that the disk has {size} bytes, the device itself reports {capacity}; addresses cannot be trusted. \
         Unplug the device, plug it in again and compare with `lsblk -b`"
    )]
    Capacity {
        /// Bytes according to the kernel.
        size: u64,
        /// Bytes according to the device.
        capacity: u64,
    },
    /// Free ranges overlap or are not in order.
    #[error(
        "{origin}: the free {second} comes after {first}: free ranges must be sorted and disjoint; this is a fault in coldtrim, please report it"
    )]
    Disorder {
        /// Which volume or gap.
        origin: String,
        /// Bytes of the device.
        first: ByteRange,
        /// Bytes of the device.
        second: ByteRange,
    },
    /// Ranges of one device in the plan for another.
    #[error(
        "{origin}: lies on device {found}, but this plan is for device {expected}; this is a fault in coldtrim, please report it"
    )]
    WrongDevice {
        /// Which volume or gap.
        origin: String,
        /// Index of the device that the plan is for.
        expected: usize,
        /// Index of the device that the ranges belong to.
        found: usize,
    },
    /// The wished granule and that of the device have no common multiple that fits.
    #[error("a granule of {wished} bytes cannot be combined with the device's granule of {device} bytes")]
    Granule {
        /// Granule of the policy, in bytes.
        wished: u64,
        /// Granule of the device, in bytes.
        device: u64,
    },
}
