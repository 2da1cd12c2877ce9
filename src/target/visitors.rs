//! Who comes to a device while a run goes on. A claim keeps mounts away, not programs that open a node and write; a look at
//! all processes takes too long to be taken before every command, and a quick visitor is gone before the next one.

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use std::path::PathBuf;

/// What happened since the last question, by the process with this number (0 where the kernel does not tell it).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// Nobody came.
    Nothing,
    /// Somebody opened it, perhaps only to read.
    Opened,
    /// Somebody who could write has closed it.
    Wrote(i32),
}

/// Hears of everybody who opens one of some nodes (fanotify(7)). Only root may.
#[derive(Debug)]
pub(super) struct Visitors(Fanotify);

impl Visitors {
    /// Listens from now on; an error where the kernel does not allow that.
    pub(super) fn of(nodes: &[PathBuf]) -> nix::Result<Self> {
        // Events that come with an open descriptor are for files and folders only; those with a name are for nodes, too.
        let by_name = InitFlags::from_bits_retain(nix::libc::FAN_REPORT_FID);
        let flags = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_NONBLOCK | InitFlags::FAN_CLOEXEC | by_name;
        let group = Fanotify::init(flags, EventFFlags::O_RDONLY)?;
        let wanted = MaskFlags::FAN_OPEN | MaskFlags::FAN_CLOSE_WRITE;
        nodes.iter().try_for_each(|node| group.mark(MarkFlags::FAN_MARK_ADD, wanted, AT_FDCWD, Some(node)))?;
        Ok(Self(group))
    }

    /// What happened since the last call; what this process did itself is none of it.
    pub(super) fn news(&self) -> News {
        let mut news = News::Nothing;
        loop {
            let events = match self.0.read_events() {
                Ok(events) if events.is_empty() => return news,
                Ok(events) => events,
                Err(Errno::EAGAIN) => return news,
                // An event that cannot be shown is still one.
                Err(_) => return if news == News::Nothing { News::Opened } else { news },
            };
            let own = i32::try_from(std::process::id()).unwrap_or(-1);
            for event in events.iter().filter(|event| event.pid() != own) {
                if event.mask().contains(MaskFlags::FAN_CLOSE_WRITE) {
                    news = News::Wrote(event.pid());
                } else if news == News::Nothing {
                    news = News::Opened;
                }
            }
        }
    }
}
