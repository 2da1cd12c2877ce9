//! F2FS as the kernel's driver writes it: three readings of fragmented volumes, what the kernel itself discards, volumes
//! copied while mounted, and a trim after which every file is as it was.

use crate::common::{Rng, coldtrim, full, map_ranges, parse_ranges, rounded, seed, tool_ok};
use crate::f2fs_images::{dumped, u32_at};
use crate::lab::{Drive, Lab, Status};
use crate::trim::COLDTRIM;
use std::path::Path;

/// One image, three readings.
fn compare_image(image: &Path, what: &str) -> Vec<(u64, u64)> {
    let ours = map_ranges(image);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/f2fs_free.py");
    let python = parse_ranges(&tool_ok("python3", &[script, image.to_str().expect("a UTF-8 path")]));
    assert_eq!(ours, dumped(image), "{what}: coldtrim (left) and dump.f2fs (right)");
    assert_eq!(ours, python, "{what}: coldtrim (left) and f2fs_free.py (right)");
    ours
}

/// Fills and thins out a mounted volume in the guest: the arguments are the place and a seed.
const FILLER: &str = r#"
import os, random, sys
place, r = sys.argv[1], random.Random(int(sys.argv[2]))
os.makedirs(place + "/a/b")
text = r.randbytes(1 << 20)
names = []
def write(name, size):
    try:
        with open(place + name, "wb") as file:
            file.write(text[:size])
        names.append(name)
    except OSError:
        pass  # full: so much the better
for k in range(250):
    write("/a/%sfile number %d" % ("b/" if k % 2 else "", k), int(min(r.lognormvariate(9, 2), 1 << 20)))
    if k % 50 == 49:
        os.sync()
for name in r.sample(names, len(names) // 2):
    os.remove(place + name)
    names.remove(name)
os.sync()
for name in r.sample(names, 20):
    with open(place + name, "r+b") as file:
        file.write(text[:3000])
for k in range(20):
    write("/later %d" % k, r.randrange(60000))
fd = os.open(place + "/promised", os.O_CREAT | os.O_RDWR)
os.posix_fallocate(fd, 0, 300000)
os.close(fd)
for k in range(9):
    os.symlink("x" * 90 * (k + 1), place + "/link %d" % k)
    try:
        os.setxattr(place + "/later %d" % k, "user.long", text[:2500])
    except OSError:
        pass
"#;

/// Makes a volume on a drive of the lab and lets the kernel fill it.
fn made_by_the_kernel(disk: &Drive<'_>, options: &str, seed: u64) {
    disk.fill();
    let script = disk.lab.share.join(format!("{}.py", disk.spec.name));
    std::fs::write(&script, FILLER).expect("the guest's folder");
    let place = format!("/run/f2fs-{}", disk.spec.name);
    let _ = disk.lab.run_ok(&format!(
        "set -e; mkfs.f2fs -q -f -t 0 {options} {node} >/dev/null; mkdir -p {place}; \
         mount -t f2fs -o nodiscard {node} {place}; python3 /lab/{name}.py {place} {seed}; umount {place}",
        node = disk.node,
        name = disk.spec.name
    ));
    let _ = disk.snapshot();
}

/// The holes and written zeros of `image` that are whole blocks.
fn zeros(image: &Path, from: u64) -> Vec<(u64, u64)> {
    let bytes = std::fs::read(image).expect("the image");
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (at, block) in (0_u64..).step_by(4096).zip(bytes.chunks_exact(4096)) {
        if at < from || block.iter().any(|byte| *byte != 0) {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.0 + last.1 == at => last.1 += 4096,
            _ => ranges.push((at, 4096)),
        }
    }
    ranges
}

fn main_area(image: &Path) -> u64 {
    let bytes = std::fs::read(image).expect("the image");
    u64::from(u32_at(&bytes, 1024 + 92)) * 4096
}

/// Fragmented by the kernel: three readings, then what the kernel itself discards.
#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_f2fs_kernel_discards_the_same_bytes() {
    let mut rng = Rng(seed("root_lab_f2fs_kernel_discards_the_same_bytes"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("image");
    let disk = Lab::get().drive("vbig0");
    let kinds = ["", "-i", "-O extra_attr,flexible_inline_xattr", "-O extra_attr,compression", "-s 2", "-O quota"];
    for options in &kinds[..if full() { kinds.len() } else { 1 }] {
        made_by_the_kernel(&disk, options, rng.next() % 1_000_000);
        std::fs::copy(&disk.backing, &image).expect("a copy");
        let ours = compare_image(&image, options);
        assert!(ours.len() > 40, "{options}: {} extents", ours.len());
        // Nothing in a free block is zero yet; what the kernel discards is.
        let place = "/run/f2fs-trim";
        let _ = disk.lab.run_ok(&format!(
            "mkdir -p {place} && mount -t f2fs -o nodiscard {0} {place} && fstrim {place} && umount {place}",
            disk.node
        ));
        let main = main_area(&image);
        let before = zeros(&image, main);
        let _ = disk.snapshot();
        std::fs::copy(&disk.backing, &image).expect("a copy");
        let after = zeros(&image, main);
        let discarded: Vec<(u64, u64)> = after.into_iter().filter(|range| !before.contains(range)).collect();
        assert_eq!(ours, discarded, "{options}: coldtrim (left) and the kernel (right)");
    }
}

/// Copied while it is mounted, with files synced since the last checkpoint and without.
#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_f2fs_copied_while_mounted_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("image");
    let disk = Lab::get().drive("uas0");
    made_by_the_kernel(&disk, "", 7);
    let script = disk.lab.share.join("synced.py");
    std::fs::write(
        &script,
        "import os, sys\nwith open(sys.argv[1], 'wb') as file:\n    file.write(b'x' * 50000)\n    os.fsync(file.fileno())\n",
    )
    .expect("the guest's folder");
    let refused = |words: &str| {
        let _ = disk.snapshot();
        std::fs::copy(&disk.backing, &image).expect("a copy");
        let output = coldtrim(&["map", image.to_str().expect("a UTF-8 path")]);
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains(words), "expected {words:?} in {text}");
    };
    // A synced file, and no checkpoint since the one of the last unmount: its flag still says "unmounted".
    let _ = disk.lab.run_ok(&format!(
        "mkdir -p /run/crash && mount -t f2fs -o nodiscard,fsync_mode=posix {} /run/crash && python3 /lab/synced.py /run/crash/new",
        disk.node
    ));
    refused("refused");
    let _ = disk.lab.run_ok("sync -f /run/crash && python3 /lab/synced.py /run/crash/newer");
    refused("not unmounted");
    let _ = disk.lab.run_ok("umount /run/crash");
    let _ = disk.snapshot();
    std::fs::copy(&disk.backing, &image).expect("a copy");
    let _ = compare_image(&image, "unmounted again");
}

/// The main job by SCSI UNMAP; then the kernel mounts the volume afresh, every file is as written, and fsck is content.
#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_f2fs_files_survive_a_trim() {
    let disk = Lab::get().drive("vbig0");
    let volume = disk.make("f2fs", "gpt", 11);
    let before = disk.snapshot();
    let map = disk.lab.run_ok(&format!("{COLDTRIM} map --format ranges {}", volume.node));
    before.assert_untouched();
    let free: Vec<(u64, u64)> = parse_ranges(&map).iter().map(|(start, len)| (start + volume.start, *len)).collect();
    let planned = rounded(&free, 4096);
    assert!(planned.len() > 20, "{} extents", planned.len());
    let output = disk.lab.run(&format!("{COLDTRIM} trim --yes --via unmap {}", volume.node));
    assert!(output.status == Status::Exited(0), "{output}");
    let _ = disk.lab.run_ok("sync");
    before.assert_only_discarded(&planned);
    disk.check(&volume);
}
