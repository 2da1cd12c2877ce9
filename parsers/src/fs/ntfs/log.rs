//! $LogFile, MFT record 2: was the volume left in order?
//!
//! Two restart pages, at byte 0 and at the system page size, say so; the one with the greater log sequence number is
//! the current one. Log records themselves are never read: what is not replayed is a reason to stop.

use super::mft::{Mft, len_of};
use super::ondisk::{RawRestartArea, RawRestartPage};
use super::record::{fix_up, part};
use super::system::{LOG, data_of};
use crate::error::ParseError;
use crate::units::to_usize;
use crate::volume::Finding;
use zerocopy::FromBytes;

/// What is read of the log: both restart pages whatever the page size (at most 64 KiB), and a good part of what
/// follows to tell an erased log from one whose head alone is erased.
const HEAD: u64 = 1 << 20;

/// Page sizes at which the second restart page may lie when the first one does not tell.
const PAGE_SIZES: [usize; 8] = [4096, 512, 1024, 2048, 8192, 16384, 32768, 65536];

/// No client: the end of a list.
const NO_CLIENT: u16 = 0xFFFF;

/// Flag of the restart area.
const CLEAN: u16 = 2;

const REPLAY: &str =
    "attach the drive to Windows, which replays the log, and eject it there; or in Windows: chkdsk DEVICE /f";

const SHUT_DOWN: &str = "in Windows eject the drive, or end Windows without fast startup (shutdown /s /t 0, \
                         or powercfg /h off before), then name DEVICE again";

/// A restart page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Page {
    Valid(Restart),
    /// It has the signature and contradicts itself: the write of it was cut.
    Torn,
    Absent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Restart {
    system_page_size: usize,
    lsn: u64,
    version: (i16, i16),
    clean: bool,
}

/// What the log says.
pub(super) struct Log {
    /// What speaks against using the map; nothing when the volume was left clean.
    pub finding: Option<Finding>,
    /// Nothing is in it. ntfs-3g erases it when it mounts and does not use it, so a volume that its driver was torn from,
    /// `$Bitmap` not yet written, looks the same as one in order.
    pub erased: bool,
}

/// Reads the log.
pub(super) fn read(mft: &Mft<'_>) -> Result<Log, ParseError> {
    let (record, stream) = data_of(mft, LOG)?;
    stream.check_plain(&record, &mft.geometry)?;
    let head = stream.read(mft.source, &mft.geometry, 0, HEAD.min(stream.data))?;
    Ok(Log { finding: judge(&head, stream.data), erased: is_erased(&head) })
}

/// The judgement on the first bytes of a log of `len` bytes.
fn judge(head: &[u8], len: u64) -> Option<Finding> {
    if is_erased(head) {
        return None; // erased on purpose: ntfs-3g and chkdsk leave it so, and only when there is nothing to replay
    }
    let (first, second) = restart_pages(head);
    let restart = match (first, second) {
        (Page::Valid(a), Page::Valid(b)) if a.lsn == b.lsn => Restart { clean: a.clean && b.clean, ..a },
        (Page::Valid(a), Page::Valid(b)) => {
            if a.lsn > b.lsn {
                a
            } else {
                b
            }
        }
        _ => {
            let message = format!(
                "$LogFile ({len} bytes) does not have its two restart pages (the first is {}, the second {}), so \
                 nobody can tell whether changes wait in it",
                describe(first),
                describe(second)
            );
            return Some(Finding::refusal(message, REPLAY));
        }
    };
    verdict(restart)
}

fn is_erased(head: &[u8]) -> bool {
    len_of(head) >= 8192 && head.chunks(512).all(|chunk| [0xFF; 512].starts_with(chunk))
}

fn verdict(restart: Restart) -> Option<Finding> {
    let (major, minor) = restart.version;
    match restart.version {
        (1, 1) if restart.clean => None,
        (1, 1) => Some(Finding::refusal(
            "$LogFile holds changes that were not written to the volume yet: it was not unmounted cleanly",
            REPLAY,
        )),
        (2, 0) => Some(Finding::refusal(
            "$LogFile has version 2.0: Windows still keeps parts of this volume in a cache (fast startup, \
             hibernation, or the drive was pulled without ejecting it)",
            SHUT_DOWN,
        )),
        _ => Some(Finding::refusal(
            format!("$LogFile has version {major}.{minor}, expected 1.1: its state cannot be judged"),
            SHUT_DOWN,
        )),
    }
}

fn describe(page: Page) -> &'static str {
    match page {
        Page::Valid(_) => "valid",
        Page::Torn => "damaged",
        Page::Absent => "absent",
    }
}

fn restart_pages(head: &[u8]) -> (Page, Page) {
    let first = page(head, 0);
    let second = match first {
        Page::Valid(restart) => page(head, restart.system_page_size),
        _ => PAGE_SIZES.iter().map(|at| page(head, *at)).find(|page| *page != Page::Absent).unwrap_or(Page::Absent),
    };
    (first, second)
}

fn page(head: &[u8], at: usize) -> Page {
    let rest = head.get(at..).unwrap_or_default();
    match RawRestartPage::read_from_prefix(rest) {
        Ok((raw, _)) if matches!(&raw.magic, b"RSTR" | b"CHKD") => restart(&raw, rest).map_or(Page::Torn, Page::Valid),
        _ => Page::Absent,
    }
}

fn restart(raw: &RawRestartPage, rest: &[u8]) -> Option<Restart> {
    let size = to_usize(u64::from(raw.system_page_size.get()), "a page size").ok()?;
    if !PAGE_SIZES.contains(&size) || !PAGE_SIZES.contains(&usize::try_from(raw.log_page_size.get()).ok()?) {
        return None;
    }
    let mut bytes = rest.get(..size)?.to_vec();
    fix_up(&mut bytes, raw.usa_ofs.get(), raw.usa_count.get()).ok()?;
    let area = usize::from(raw.restart_area_offset.get());
    if area & 7 != 0 || area < size_of::<RawRestartPage>() {
        return None;
    }
    let (area, _) = RawRestartArea::read_from_prefix(part(&bytes, area, size_of::<RawRestartArea>())?).ok()?;
    let in_use = area.client_in_use_list.get();
    if in_use != NO_CLIENT && in_use >= area.log_clients.get() {
        return None;
    }
    Some(Restart {
        system_page_size: size,
        lsn: area.current_lsn.get(),
        version: (raw.major_ver.get(), raw.minor_ver.get()),
        clean: in_use == NO_CLIENT || area.flags.get() & CLEAN != 0,
    })
}
