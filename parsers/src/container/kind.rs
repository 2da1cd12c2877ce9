//! What a partition's type says about its content. Types are hints: most leave the judgement to the content.

/// What follows from a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The content decides.
    Content,
    /// No filesystem is to be expected: the reason why it is left alone.
    Kept(&'static str),
    /// A look inside could only mislead: the reason.
    Refused(&'static str),
}

impl Fate {
    /// The reason for [`Part::kept`](super::Part::kept).
    pub(super) fn kept(self) -> Option<String> {
        match self {
            Self::Kept(reason) => Some(reason.to_owned()),
            Self::Content | Self::Refused(_) => None,
        }
    }

    /// The reason for [`Part::refused`](super::Part::refused).
    pub(super) fn refused(self) -> Option<String> {
        match self {
            Self::Refused(reason) => Some(reason.to_owned()),
            Self::Content | Self::Kept(_) => None,
        }
    }
}

pub(super) const BOOT_CODE: Fate = Fate::Kept("it holds boot code, not a filesystem");
pub(super) const SLEEP: Fate = Fate::Kept("firmware keeps a memory image of a sleeping system there");
pub(super) const LDM: Fate = Fate::Refused(
    "it belongs to a Windows dynamic disk (LDM), whose volumes may span disks: trim it in Windows with Optimize-Volume -ReTrim",
);
pub(super) const STORAGE_SPACES: Fate = Fate::Refused(
    "it belongs to a Windows storage pool (Storage Spaces), whose volumes may span disks: trim it in Windows with \
     Optimize-Volume -ReTrim",
);
pub(super) const SLICES: Fate = Fate::Refused(
    "its type says that it is divided further by a BSD, Solaris or Minix table that coldtrim does not read: trim it with \
     the system that made it",
);
pub(super) const VMFS: Fate =
    Fate::Refused("it belongs to VMware ESXi: reclaim its space there with esxcli storage vmfs unmap");
pub(super) const CORE_STORAGE: Fate = Fate::Refused(
    "it belongs to Apple Core Storage (FileVault 2, Fusion Drive), which hides the filesystem: trim it in macOS",
);
pub(super) const APPLE_RAID: Fate =
    Fate::Refused("it is a member of an Apple software RAID, whose volumes span disks: trim it in macOS");
