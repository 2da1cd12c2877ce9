//! Why a target cannot be opened, and what to type instead.

use super::usage::User;
use coldtrim_parsers::text::quoted;
use std::path::PathBuf;

/// A target that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// No such path.
    #[error("{} does not exist; `coldtrim list` shows what there is", .0.display())]
    NotFound(PathBuf),
    /// Not allowed.
    #[error("no permission to open {}; {}", path.display(), permission_hint(.path))]
    Permission {
        /// What.
        path: PathBuf,
    },
    /// A mount point.
    #[error(
        "{at} is mounted; use fstrim: `fstrim -v {0}`, or unmount it and name the device: `umount {0}` / `udisksctl unmount -b {source_node}`, then {source_node}",
        quoted(.at)
    )]
    MountPoint {
        /// Where.
        at: String,
        /// What is mounted there.
        source_node: String,
    },
    /// A directory.
    #[error("{} is a directory{hint}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// What else is known.
        hint: String,
    },
    /// A character device.
    #[error("{} is a character device{hint}", path.display())]
    CharacterDevice {
        /// Which.
        path: PathBuf,
        /// The block devices that belong to it.
        hint: String,
    },
    /// A pipe or socket.
    #[error("{} is {what}, not a disk or an image", path.display())]
    NotADisk {
        /// Which.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// A file whose bytes are not those of a disk.
    #[error("{} is a {format} file: its bytes are not those of the disk inside. {advice}", path.display())]
    VirtualDisk {
        /// Which.
        path: PathBuf,
        /// Name of the format.
        format: &'static str,
        /// The commands that attach or convert it.
        advice: String,
    },
    /// In use.
    #[error("{} is in use: {}", path.display(), list(.users))]
    InUse {
        /// What was to be opened.
        path: PathBuf,
        /// By whom.
        users: Vec<User>,
    },
    /// No device has this label or identity.
    #[error("no device has {0}; `coldtrim list` shows the labels that are known")]
    NoSuchTag(String),
    /// Several have it.
    #[error("several devices have {tag}: {}; name one of them by its path", paths(.candidates))]
    Ambiguous {
        /// The label or identity.
        tag: String,
        /// The devices.
        candidates: Vec<PathBuf>,
    },
    /// It is in a partition without a node.
    #[error(
        "{tag} is partition {number} of {0}, which the kernel does not know; name it with: --partition {number} {0}, or let \
         the kernel read the table: partx --add {0}",
        quoted(&.disk.to_string_lossy())
    )]
    Within {
        /// The label or identity.
        tag: String,
        /// The whole disk.
        disk: PathBuf,
        /// The partition in its table.
        number: u32,
    },
    /// No medium.
    #[error("{} is of no size: an empty file, or a device without a medium", .0.display())]
    Empty(PathBuf),
    /// Nobody can tell whether it is in use.
    #[error(
        "{} may be in use, and nobody can tell: the kernel gives no lease on it, and the open files of other users' processes \
         cannot be seen. Run it as the owner of the file, or as root",
        .0.display()
    )]
    Unknowable(PathBuf),
    /// Not the device that it was.
    #[error("{} is not the device any more that it was a moment ago ({what}); nothing more is sent to it", path.display())]
    Changed {
        /// Which.
        path: PathBuf,
        /// What differs.
        what: String,
    },
    /// Anything else that the kernel says.
    #[error("{}: {step} failed", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Which step.
        step: &'static str,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
}

impl TargetError {
    /// True when this is a refusal for safety; false for a failure or a wrong name.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::MountPoint { .. }
                | Self::VirtualDisk { .. }
                | Self::InUse { .. }
                | Self::Unknowable(_)
                | Self::Changed { .. }
        )
    }

    /// True when the name itself is wrong: it names nothing, several things or no disk.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Directory { .. }
                | Self::CharacterDevice { .. }
                | Self::NotADisk { .. }
                | Self::NoSuchTag(_)
                | Self::Ambiguous { .. }
                | Self::Within { .. }
        )
    }
}

fn permission_hint(path: &std::path::Path) -> String {
    if nix::unistd::geteuid().is_root() {
        format!(
            "even root may not: look at its attributes and mount options: lsattr {}",
            quoted(&path.to_string_lossy())
        )
    } else {
        "disks belong to root: run it with sudo".to_owned()
    }
}

fn list(users: &[User]) -> String {
    let words: Vec<String> = users.iter().map(|user| format!("{user}; end that with: {}", user.remedy())).collect();
    let mounted = users.iter().any(|user| matches!(user.by, super::usage::Use::Mount { seen_by: None, .. }));
    let hint = if mounted { ". A mounted filesystem is trimmed by fstrim" } else { "" };
    format!("{}{hint}", words.join(". Also, "))
}

fn paths(candidates: &[PathBuf]) -> String {
    candidates.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
