//! What can go wrong on the way to a drive, in kinds that decide what happens next, in words, and with what to do.

use super::scsi::sense::Sense;
use crate::plan::units::LimitsError;

/// The kinds of failure. They decide whether a run may go on and by which exit code it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The route does not exist here: the device, a bridge or the kernel says that it has no such command.
    Rejected,
    /// The command held more than the device takes; smaller ones may work.
    LimitExceeded,
    /// The command was aborted; it may have been too large.
    Aborted,
    /// The device says that an address lies behind its end: units or offsets are wrong. Nothing more may be sent.
    OutOfRange,
    /// What the device says about itself contradicts itself or the kernel: the route must not be used.
    Contradiction,
    /// A drive that must not be trimmed at all: known to damage data, or made so that discards are unsafe.
    Unsuitable,
    /// No answer in time. The device may still be at work, so nothing is sent again.
    TimedOut,
    /// The device was reset, replaced or changed its size.
    Changed,
    /// The device is not there any more.
    Gone,
    /// The device is write protected, locked or reserved for another host.
    WriteProtected,
    /// No medium, not ready, or being sanitised.
    NotReady,
    /// The device reports that its medium or its electronics fail.
    Failing,
    /// The command "succeeded", but not all of its data was transferred.
    Incomplete,
    /// The operating system did not carry the command.
    Io,
    /// The operating system does not permit it.
    Permission,
}

impl ErrorKind {
    /// What to do about it.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Rejected => {
                "try another route: `coldtrim trim --via unmap|sat16|blkdiscard|nvme DEVICE`, or attach the drive another way"
            }
            Self::LimitExceeded => "try smaller commands",
            Self::Aborted => "look at `dmesg`; try another route or cable before trying again",
            Self::OutOfRange | Self::Contradiction => {
                "do not use this route on this device; attach the drive directly, or try another route with `--via`"
            }
            Self::Unsuitable => "leave this drive untrimmed",
            Self::TimedOut => "leave the device alone for a minute, unplug it, plug it in again, and look at `dmesg`",
            Self::Changed | Self::Gone => {
                "unplug the device, plug it in again, check the volume (`fsck -n`), then start coldtrim anew"
            }
            Self::WriteProtected => "remove the write protection or unlock the drive, then start coldtrim anew",
            Self::NotReady => "wait until the device is ready, then start coldtrim anew",
            Self::Failing => "copy your data to another drive first: `smartctl -a DEVICE` shows what the drive knows",
            Self::Incomplete => "do not use this route on this device: commands reach it only in part",
            Self::Io => "look at `dmesg` for what the kernel saw",
            Self::Permission => "start coldtrim with the rights to write to the device: `sudo coldtrim ...`",
        }
    }

    /// True when the same bytes may be sent once more in smaller commands.
    pub fn may_shrink(self) -> bool {
        matches!(self, Self::LimitExceeded | Self::Aborted)
    }

    /// True when the next route of the list may be tried, because this one was turned away without a trace.
    pub fn may_try_another_route(self) -> bool {
        matches!(self, Self::Rejected)
    }
}

/// Why a command, or the opening of a route, failed.
#[derive(Debug, thiserror::Error)]
#[error("{route}: {what}")]
pub struct TransportError {
    kind: ErrorKind,
    route: &'static str,
    what: String,
    sense: Option<Box<Sense>>,
    #[source]
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl TransportError {
    /// A failure on `route`; `what` says what happened, where, what was expected and what was found.
    pub fn new(kind: ErrorKind, route: &'static str, what: impl Into<String>) -> Self {
        Self { kind, route, what: what.into(), sense: None, cause: None }
    }

    /// The route has no usable command here.
    pub fn rejected(route: &'static str, what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Rejected, route, what)
    }

    /// The operating system's own error while doing `what`; the kind follows from its number.
    pub fn os(route: &'static str, what: impl Into<String>, cause: std::io::Error) -> Self {
        let error = Self::new(kind_of(&cause), route, what);
        Self { cause: Some(Box::new(cause)), ..error }
    }

    /// The same error with the sense data that the device gave.
    #[must_use]
    pub fn with_sense(mut self, sense: Sense) -> Self {
        self.sense = Some(Box::new(sense));
        self
    }

    /// The same error under another kind.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// Which kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Name of the route.
    pub fn route(&self) -> &'static str {
        self.route
    }

    /// Sense data of the device, kept for the report.
    pub fn sense(&self) -> Option<&Sense> {
        self.sense.as_deref()
    }

    /// What to do next.
    pub fn advice(&self) -> &'static str {
        self.kind.advice()
    }

    /// The error and everything that caused it, in one line.
    pub fn with_causes(&self) -> String {
        let causes = std::iter::successors(std::error::Error::source(self), |cause| cause.source());
        std::iter::once(self.to_string()).chain(causes.map(ToString::to_string)).collect::<Vec<_>>().join(": ")
    }
}

impl From<(&'static str, LimitsError)> for TransportError {
    fn from((route, cause): (&'static str, LimitsError)) -> Self {
        let what = "the limits that the device states contradict each other";
        let error = Self::new(ErrorKind::Contradiction, route, what);
        Self { cause: Some(Box::new(cause)), ..error }
    }
}

/// Linux error numbers (asm-generic/errno.h), named here so that only `sys.rs` files need the C library.
mod errno {
    pub const EPERM: i32 = 1;
    pub const ENXIO: i32 = 6;
    pub const EACCES: i32 = 13;
    pub const ENODEV: i32 = 19;
    pub const EINVAL: i32 = 22;
    pub const ENOTTY: i32 = 25;
    pub const EROFS: i32 = 30;
    pub const EOPNOTSUPP: i32 = 95;
    pub const ESHUTDOWN: i32 = 108;
    pub const ETIMEDOUT: i32 = 110;
    pub const EREMOTEIO: i32 = 121;
    pub const ENOMEDIUM: i32 = 123;
}

fn kind_of(cause: &std::io::Error) -> ErrorKind {
    match cause.raw_os_error() {
        Some(errno::EPERM | errno::EACCES) => ErrorKind::Permission,
        Some(errno::EROFS) => ErrorKind::WriteProtected,
        Some(errno::ENXIO | errno::ENODEV | errno::ESHUTDOWN) => ErrorKind::Gone,
        Some(errno::ENOTTY | errno::EOPNOTSUPP | errno::EREMOTEIO) => ErrorKind::Rejected,
        // A range that the kernel calls invalid is misaligned or passes the end: units or sizes are wrong.
        Some(errno::EINVAL) => ErrorKind::OutOfRange,
        Some(errno::ETIMEDOUT) => ErrorKind::TimedOut,
        Some(errno::ENOMEDIUM) => ErrorKind::NotReady,
        _ => ErrorKind::Io,
    }
}
