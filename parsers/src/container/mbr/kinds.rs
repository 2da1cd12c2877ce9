//! The type bytes of the MBR. Source: the list that `sfdisk --label dos --list-types` prints, and Linux
//! `include/linux/msdos_partition.h`.

use super::Fate;
use crate::container::kind::{APPLE_RAID, BOOT_CODE, SLEEP, SLICES, VMFS};

/// The type in words (empty when unknown) and what follows from it.
pub(super) fn meaning(kind: u8) -> (&'static str, Fate) {
    match kind {
        0x01 | 0x11 | 0xC1 => ("FAT12", Fate::Content),
        0x04 | 0x06 | 0x0E | 0x14 | 0x16 | 0x1E | 0xC4 | 0xC6 => ("FAT16", Fate::Content),
        0x0B | 0x0C | 0x1B | 0x1C | 0xBC => ("FAT32", Fate::Content),
        0x07 | 0x17 => ("NTFS or exFAT", Fate::Content),
        0x12 => ("Compaq diagnostics", Fate::Content),
        0x18 | 0x84 | 0xA0 => ("hibernation area", SLEEP),
        0x27 => ("Windows recovery", Fate::Content),
        0x41 => ("PowerPC PReP boot", BOOT_CODE),
        0x63 => ("UnixWare or Hurd", SLICES),
        0x81 => ("Minix", SLICES),
        0x82 => ("Linux swap", Fate::Content),
        0x83 => ("Linux", Fate::Content),
        0x88 => ("Linux plaintext table", BOOT_CODE),
        0x8E => ("Linux LVM", Fate::Content),
        0xA5 => ("FreeBSD", SLICES),
        0xA6 => ("OpenBSD", SLICES),
        0xA7 => ("NeXTSTEP", SLICES),
        0xA9 => ("NetBSD", SLICES),
        0xA8 => ("Apple UFS", Fate::Content),
        0xAB => ("Apple boot", Fate::Content),
        0xAC => ("Apple RAID", APPLE_RAID),
        0xAF => ("Apple HFS+", Fate::Content),
        0xB7 | 0xB8 | 0x9F => ("BSD/OS", SLICES),
        0xBE => ("Solaris boot", Fate::Content),
        0xBF => ("Solaris", SLICES),
        0xDA => ("data without filesystem", Fate::Content),
        0xDE => ("Dell utility", Fate::Content),
        0xEA => ("Linux extended boot", Fate::Content),
        0xEB => ("BeOS", Fate::Content),
        0xEF => ("EFI system", Fate::Content),
        0xF0 => ("PA-RISC boot", BOOT_CODE),
        0xF8 => ("protective area for board firmware", BOOT_CODE),
        0xFB => ("VMware VMFS", VMFS),
        0xFC => ("VMware core dump", VMFS),
        0xFD => ("Linux RAID", Fate::Content),
        _ => ("", Fate::Content),
    }
}

/// What the type is, where it means that the table tells nothing about the place of the data: LDM keeps its own database,
/// the old disk managers move everything by 63 sectors.
pub(super) fn hides_the_layout(kind: u8) -> Option<&'static str> {
    match kind {
        0x42 => Some("a Windows dynamic disk, LDM: trim it in Windows with Optimize-Volume -ReTrim"),
        0x50 | 0x51 | 0x53 | 0x54 => Some("OnTrack Disk Manager, which moves the whole disk"),
        0x55 => Some("EZ-Drive, which moves the whole disk"),
        0x56 => Some("Golden Bow, which moves the whole disk"),
        0x86 | 0x87 => Some("a Windows NT volume set, whose volumes span disks"),
        _ => None,
    }
}
