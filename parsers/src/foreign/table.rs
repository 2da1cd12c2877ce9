//! The rows: every format that is recognised and left alone.

use super::Place::{End, Start};
use super::{Foreign, Meaning, arrays, volumes};

/// What helps with the records of a firmware RAID.
const BIOS_RAID: &str = "trim the RAID volume in the system that runs it; if no RAID uses this disk any more, erase the \
                         stale record: wipefs DEVICE lists it, wipefs -o OFFSET DEVICE erases it";
const MD: &str = "name the array or all its members: mdadm --examine DEVICE shows what it belongs to; if the record is \
                  stale: mdadm --zero-superblock DEVICE";
const CLUSTER: &str = "other machines may have it mounted: trim it there, mounted, with fstrim";
const READ_ONLY: &str = "it is a read-only image without free space";
const OLD: &str = "no tool can trim it; copy the files, make a new filesystem, and trim that";
const WINDOWS: &str = "trim it in Windows, as administrator: Optimize-Volume -DriveLetter X -ReTrim";
const MACOS: &str =
    "trim it in macOS (it trims on mounting and deleting; Disk Utility shows whether TRIM is supported)";
const BSD: &str = "trim it in the BSD system that made it: fsck_ffs -E, or tunefs -t enable";
const SLICES: &str = "its table is not read here: name each slice as seen by the system that made it, or trim it there";

const fn raid(row: Foreign) -> Foreign {
    row.means(Meaning::RaidRecords)
}

const fn member(kind: &'static str, row: Foreign) -> Foreign {
    row.means(Meaning::Member(kind))
}

/// Every format that is recognised and left alone.
#[rustfmt::skip] // one row a line
pub static FOREIGN: &[Foreign] = &[
    // Arrays with records at the end, so that the start may look like something else.
    member("md", Foreign::refused("Linux RAID (md 1.0)", &[], MD).or(arrays::md_1_0)),
    member("md", Foreign::refused("Linux RAID (md 0.90)", &[], MD).or(arrays::md_0_90)),
    raid(Foreign::refused("Intel RAID (IMSM)", &[(End(1024), b"Intel Raid ISM Cfg Sig. "), (End(8192), b"Intel Raid ISM Cfg Sig. ")], BIOS_RAID)),
    raid(Foreign::refused("DDF RAID", &[(End(512), b"\xDE\x11\xDE\x11"), (End(4096), b"\xDE\x11\xDE\x11"), (End(257 * 512), b"\xDE\x11\xDE\x11"), (End(512), b"\x11\xDE\x11\xDE"), (End(257 * 512), b"\x11\xDE\x11\xDE")], BIOS_RAID)),
    raid(Foreign::refused("Promise FastTrak RAID", PROMISE, BIOS_RAID)),
    raid(Foreign::refused("Silicon Image RAID", &[(End(512 - 0x60), b"\x00\x00\x00\x2F")], BIOS_RAID)),
    raid(Foreign::refused("NVIDIA RAID", &[(End(1024), b"NVIDIA")], BIOS_RAID)),
    raid(Foreign::refused("LSI MegaRAID", &[(End(512), b"$XIDE$")], BIOS_RAID)),
    raid(Foreign::refused("VIA RAID", &[], BIOS_RAID).or(arrays::via)),
    raid(Foreign::refused("Adaptec HostRAID", &[], BIOS_RAID).or(arrays::adaptec)),
    raid(Foreign::refused("JMicron RAID", &[], BIOS_RAID).or(arrays::jmicron)),
    raid(Foreign::refused("HighPoint RAID", &[(End(11 * 512), b"\xF3\x16\x78\x5A"), (End(11 * 512), b"\xFD\x16\x78\x5A"), (Start(4640), b"\xF0\x16\x78\x5A"), (Start(4640), b"\xFD\x16\x78\x5A")], BIOS_RAID)),
    Foreign::refused("DRBD", &[(End(4096 - 60), b"\x83\x74\x02\x6B"), (End(4096 - 60), b"\x83\x74\x02\x6C"), (End(4096 - 60), b"\x83\x74\x02\x6D")], "name the DRBD device instead, on the primary node"),
    Foreign::refused("Apple RAID", &[], MACOS).or(arrays::apple_raid),
    Foreign::refused("FreeBSD GEOM member", &[(End(512), b"GEOM::"), (End(4096), b"GEOM::")], "trim it in FreeBSD through its GEOM device: trim /dev/NAME only when unused, or newfs -E"),
    Foreign::refused("ZFS", &[], "trim it with ZFS itself: zpool trim POOL").or(arrays::zfs),
    Foreign::refused("Android verified boot image", &[(End(64), b"AVBf")], "its hashes cover free blocks too: trimming would break verified boot"),

    // Arrays and volume managers with records at the start.
    member("md", Foreign::refused("Linux RAID (md 1.1)", &[(Start(0), b"\xFC\x4E\x2B\xA9\x01\0\0\0")], MD)),
    member("md", Foreign::refused("Linux RAID (md 1.2)", &[(Start(4096), b"\xFC\x4E\x2B\xA9\x01\0\0\0")], MD)),
    member("lvm", Foreign::refused("LVM2 physical volume", &[(Start(24), b"LVM2 001"), (Start(512 + 24), b"LVM2 001"), (Start(1024 + 24), b"LVM2 001"), (Start(1536 + 24), b"LVM2 001")], "name every physical volume of its group: pvs shows them")),
    Foreign::refused("LVM1 physical volume", &[(Start(0), b"HM\x01\0"), (Start(0), b"HM\x02\0")], OLD),
    Foreign::refused("bcache", &[(Start(4096 + 24), b"\xC6\x85\x73\xF6\x4E\x1A\x45\xCA\x82\x65\xF5\x7F\x48\xBA\x6D\x81")], "newer data may lie on the cache device: name /dev/bcacheN instead, or trim it there with fstrim"),
    Foreign::refused("Stratis", &[(Start(516), b"!Stra0tis\x86\xFF\x02^Arh"), (Start(4612), b"!Stra0tis\x86\xFF\x02^Arh")], "trim its filesystems mounted, with fstrim"),
    Foreign::refused("VDO", &[(Start(0), b"dmvdo001")], "its blocks are deduplicated: trim the volume on top, mounted, with fstrim"),
    Foreign::refused("dm-integrity", &[(Start(0), b"integrt\0")], "tags and data are interleaved: discards must go through the opened device"),
    Foreign::refused("dm-verity", &[(Start(0), b"verity\0\0")], "hashes of a read-only device: nothing in it is free").means(Meaning::Kept),
    Foreign::refused("LVM snapshot store", &[(Start(0), b"SnAp")], "it holds old blocks of another volume: remove the snapshot with lvremove when it is no longer wanted"),
    Foreign::refused("device-mapper thin pool records", &[(Start(32), b"\xBA\x52\x9C\x01\0\0\0\0")], "trim the thin volumes mounted, with fstrim"),
    Foreign::refused("device-mapper cache records", &[(Start(32), b"\x33\xB8\x5D\0\0\0\0\0")], "trim the cached volume mounted, with fstrim"),
    Foreign::refused("Ceph", &[(Start(0), b"bluestore block device")], "Ceph discards by itself: ceph config set osd bdev_enable_discard true"),
    Foreign::refused("Android super partition", &[(Start(4096), b"gDla")], "its partitions are verified block by block: trimming would break them"),
    Foreign::refused("Windows dynamic disk (LDM)", &[(Start(6 * 512), b"PRIVHEAD"), (End(512), b"PRIVHEAD"), (End(1856 * 512), b"PRIVHEAD")], WINDOWS),
    Foreign::refused("Windows Storage Spaces", &[(Start(0), b"SPACEDB "), (Start(4096), b"SPACEDB ")], WINDOWS),
    Foreign::refused("OpenBSD softraid", &[(Start(8192), b"marcCRAM")], BSD),
    Foreign::refused("Core Storage", &[], MACOS).or(volumes::core_storage),
    Foreign::refused("Novell NSS pool", &[(Start(4096), b"SPB5")], OLD),

    // Encryption.
    Foreign::refused("LUKS", &[(Start(0), b"LUKS\xBA\xBE"), (Start(0), b"SKUL\xBA\xBE")], "open it and name the opened mapping: cryptsetup open DEVICE NAME"),
    Foreign::refused("BitLocker", BITLOCKER, "open it and name the opened mapping: cryptsetup open --type bitlk DEVICE NAME; or trim it in Windows"),
    Foreign::refused("PGP disk encryption", &[(Start(3), b"PGPGUARD")], WINDOWS),

    // Filesystems.
    Foreign::refused("ReFS", &[(Start(3), b"ReFS\0\0\0\0\0")], WINDOWS),
    Foreign::refused("bcachefs", &[(Start(4096 + 24), b"\xC6\x85\x73\xF6\x66\xCE\x90\xA9\xD9\x6A\x60\xCF\x80\x3D\xF7\xEF")], "trim it mounted, with fstrim"),
    Foreign::refused("HFS (before HFS+)", &[], OLD).or(volumes::classic_hfs),
    Foreign::refused("UFS", &[], BSD).or(volumes::ufs),
    Foreign::refused("UDF", &[], "copy the files and use exFAT, or trim it in Windows if it is mounted there as a hard disk").or(volumes::udf),
    Foreign::refused("ISO 9660", &[], READ_ONLY).or(volumes::iso9660),
    Foreign::refused("JFS", &[(Start(0x8000), b"JFS1")], "trim it mounted, with fstrim (Linux before 6.17)"),
    Foreign::refused("ReiserFS", &[(Start(0x1_0000 + 52), b"ReIsEr"), (Start(0x2000 + 52), b"ReIsEr"), (Start(0x1_0000), b"ReIsEr4")], OLD),
    Foreign::refused("NILFS2", &[(Start(1024), b"\x02\0\0\0\0\0\x34\x34")], "trim it mounted, with fstrim"),
    Foreign::refused("squashfs", &[(Start(0), b"hsqs"), (Start(0), b"sqsh")], READ_ONLY),
    Foreign::refused("EROFS", &[(Start(1024), b"\xE2\xE1\xF5\xE0")], READ_ONLY),
    Foreign::refused("cramfs", &[(Start(0), b"\x45\x3D\xCD\x28"), (Start(0), b"\x28\xCD\x3D\x45"), (Start(512), b"\x45\x3D\xCD\x28"), (Start(512), b"\x28\xCD\x3D\x45")], READ_ONLY),
    Foreign::refused("romfs", &[(Start(0), b"-rom1fs-")], READ_ONLY),
    Foreign::refused("VMFS", &[(Start(0x10_0000), b"\x0D\xD0\x01\xC0"), (Start(0x20_0000), b"\x5E\xF1\xAB\x2F")], "reclaim its space in ESXi: esxcli storage vmfs unmap -l LABEL"),
    Foreign::refused("OCFS2", &[(Start(1024), b"OCFSV2"), (Start(2048), b"OCFSV2"), (Start(4096), b"OCFSV2"), (Start(8192), b"OCFSV2")], CLUSTER),
    Foreign::refused("GFS2", &[(Start(0x1_0000), b"\x01\x16\x19\x70")], CLUSTER),
    Foreign::refused("Minix", &[], OLD).or(volumes::minix),
    Foreign::refused("HPFS", &[(Start(0x2000), b"\x49\xE8\x95\xF9\xC5\xE9\x53\xFA")], OLD),
    Foreign::refused("BeOS BFS", &[(Start(544), b"1SFB"), (Start(544), b"BFS1"), (Start(32), b"1SFB")], "trim it in Haiku: fstrim"),
    Foreign::refused("SCO BFS", &[(Start(0), b"\xCE\xFA\xAD\x1B")], OLD),
    Foreign::refused("VxFS", &[(Start(1024), b"\xF5\xFC\x01\xA5"), (Start(8192), b"\xA5\x01\xFC\xF5")], "trim it with Veritas: fsadm -R"),
    Foreign::refused("HAMMER", &[(Start(0), b"\x31\x30\x52\xC5\x4D\x4D\x41\xC8"), (Start(0), b"\x11\x20\x17\x05\x32\x4D\x41\x48")], "trim it in DragonFly BSD"),
    Foreign::refused("UBI or UBIFS", &[(Start(0), b"UBI#"), (Start(0), b"\x31\x18\x10\x06")], "it is made for raw flash and needs no trim"),
    Foreign::refused("zonefs", &[(Start(0), b"SFOZ")], "its zones are reset as a whole when a file is truncated"),

    // Tables of other systems.
    Foreign::refused("Sun disk label", &[], SLICES).or(volumes::sun_label),
    Foreign::refused("SGI disk label", &[(Start(0), b"\x0B\xE5\xA9\x41")], SLICES),
    Foreign::refused("BSD disk label", &[(Start(512), b"\x57\x45\x56\x82"), (Start(64), b"\x57\x45\x56\x82")], SLICES),
    Foreign::refused("Amiga partition table", &[(Start(0), b"RDSK"), (Start(512), b"RDSK"), (Start(1024), b"RDSK")], SLICES),

    // Swap holds no files, but may hold the memory of a sleeping system.
    Foreign::refused("Linux swap", &[], "swap holds no files; --unallocated trims it too, and so does swapon --discard").or(volumes::swap).with(volumes::swap_body).means(Meaning::Kept),
    Foreign::refused("suspend image", &[], "start the sleeping system and shut it down; until then trim nothing on this disk").or(volumes::suspend_image).means(Meaning::SleepingSystem),
];

/// Promise writes its record at one of many distances from the end.
#[rustfmt::skip]
const PROMISE: &[(super::Place, &[u8])] = &[
    (End(63 * 512), b"Promise Technology, Inc."), (End(255 * 512), b"Promise Technology, Inc."),
    (End(256 * 512), b"Promise Technology, Inc."), (End(16 * 512), b"Promise Technology, Inc."),
    (End(399 * 512), b"Promise Technology, Inc."), (End(591 * 512), b"Promise Technology, Inc."),
    (End(675 * 512), b"Promise Technology, Inc."), (End(735 * 512), b"Promise Technology, Inc."),
    (End(911 * 512), b"Promise Technology, Inc."), (End(951 * 512), b"Promise Technology, Inc."),
    (End(974 * 512), b"Promise Technology, Inc."), (End(991 * 512), b"Promise Technology, Inc."),
    (End(3087 * 512), b"Promise Technology, Inc."),
];

/// The name of its boot sector, and its two GUIDs where Windows 7 and later (at 160) and BitLocker To Go (at 424, in what
/// looks like a FAT boot sector) keep them. Source: cryptsetup `lib/bitlk/bitlk.c`.
#[rustfmt::skip]
const BITLOCKER: &[(super::Place, &[u8])] = &[
    (Start(3), b"-FVE-FS-"),
    (Start(160), b"\x3B\xD6\x67\x49\x29\x2E\xD8\x4A\x83\x99\xF6\xA3\x39\xE3\xD0\x01"),
    (Start(424), b"\x3B\xD6\x67\x49\x29\x2E\xD8\x4A\x83\x99\xF6\xA3\x39\xE3\xD0\x01"),
    (Start(160), b"\x3B\x4D\xA8\x92\x80\xDD\x0E\x4D\x9E\x4E\xB1\xE3\x28\x4E\xAE\xD8"),
    (Start(424), b"\x3B\x4D\xA8\x92\x80\xDD\x0E\x4D\x9E\x4E\xB1\xE3\x28\x4E\xAE\xD8"),
];
