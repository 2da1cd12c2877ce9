//! Volumes copied while the kernel has them mounted: what a crash leaves behind. (ext4 and XFS are done on the host,
//! F2FS beside its other tests; ntfs-3g leaves no mark, so there the files themselves are asked: `oracle_ntfs.rs`.)

use crate::common::{coldtrim, map_ranges};
use crate::lab::Lab;

/// Format, what mount calls it, the drive, and what is said of the copy.
const CASES: &[(&str, &str, &str, &str)] = &[
    ("fat16", "vfat", "vscsi0", "dirty bit"),
    ("fat32", "vfat", "vscsi0", "dirty bit"),
    ("exfat", "exfat", "vscsi0", "VolumeDirty"),
    ("hfsplus", "hfsplus", "vscsi0", "not unmounted cleanly"),
    ("btrfs", "btrfs", "uas0", "log of an fsync"),
];

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_volumes_copied_while_mounted_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("image");
    for (seed, (format, kind, drive, words)) in (31..).zip(CASES) {
        let disk = Lab::get().drive(drive);
        let volume = disk.make(format, "none", seed);
        let copy = || std::fs::copy(&disk.backing, &image).expect("a copy");
        let _ = disk.snapshot();
        copy();
        map_ranges(&image);
        let _ = disk.lab.run_ok(&format!(
            "mkdir -p /run/crash && mount -t {kind} {node} /run/crash && \
             dd if=/dev/urandom of=/run/crash/new bs=50000 count=1 conv=fsync",
            node = volume.node
        ));
        // No flush of the node, with which the kernel would sync the volume, and call it clean for the time being.
        copy();
        let output = coldtrim(&["map", image.to_str().expect("a UTF-8 path")]);
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let _ = disk.lab.run_ok("umount /run/crash");
        assert_eq!(output.status.code(), Some(3), "{format}: {said}");
        assert!(said.contains(words), "{format}: expected {words:?} in {said}");
        let _ = disk.snapshot();
        copy();
        map_ranges(&image);
    }
}
