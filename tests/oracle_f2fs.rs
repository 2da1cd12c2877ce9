//! What coldtrim calls free on F2FS against dump.f2fs, against a short reader in Python that looks only at owners, and, in
//! the lab, against the kernel's own FITRIM.
#![allow(clippy::as_conversions)]

mod common;
#[path = "common/lab/mod.rs"]
mod lab;
#[path = "common/f2fs.rs"]
mod images;

use common::{Rng, coldtrim, full, map_ranges, parse_ranges, seed, tool_ok};
use images::{Fill, KINDS, Kind, dumped, make};
use lab::{Drive, Lab};
use std::path::Path;

fn python(image: &Path) -> Vec<(u64, u64)> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/f2fs_free.py");
    parse_ranges(&tool_ok("python3", &[script, image.to_str().expect("a UTF-8 path")]))
}

fn bytes(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(_, len)| len).sum()
}

/// One image, three readings.
fn compare_image(image: &Path, what: &str) -> Vec<(u64, u64)> {
    let ours = map_ranges(image);
    assert_eq!(ours, dumped(image), "{what}: coldtrim (left) and dump.f2fs (right)");
    assert_eq!(ours, python(image), "{what}: coldtrim (left) and f2fs_free.py (right)");
    ours
}

fn compare(kind: &Kind, kib: u64, fill: Fill, rng: &mut Rng) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = make(folder.path(), kind, kib, fill, rng);
    let ours = compare_image(&image, &format!("{} {kib} KiB {fill:?}", kind.name));
    assert!(bytes(&ours) > 1 << 20 && bytes(&ours) < kib * 1024);
}

/// Every kind of volume; empty, with files and full by turns, all three when everything is asked for.
#[test]
fn every_kind_equals_dump_f2fs_and_python() {
    let mut rng = Rng(seed("every_kind_equals_dump_f2fs_and_python"));
    for (index, kind) in KINDS.iter().enumerate() {
        let fills = [Fill::Files, Fill::Empty, Fill::Full];
        if full() {
            fills.iter().for_each(|fill| compare(kind, kind.kib, *fill, &mut rng));
        } else {
            compare(kind, kind.kib, fills[index % 3], &mut rng);
        }
    }
}

/// Sizes that are no multiple of anything.
#[test]
fn random_sizes_equal_dump_f2fs_and_python() {
    let mut rng = Rng(seed("random_sizes_equal_dump_f2fs_and_python"));
    for _ in 0..if full() { 40 } else { 3 } {
        let kind = rng.pick(KINDS);
        let kib = kind.kib + rng.between(0, kind.kib / 2);
        let fill = *rng.pick(&[Fill::Empty, Fill::Files, Fill::Full]);
        compare(kind, kib, fill, &mut rng);
    }
}

/// A volume so large that the bitmap of the segment table fills blocks of its own behind each checkpoint.
#[test]
fn a_bitmap_in_a_payload_equals_dump_f2fs_and_python() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kind = Kind { name: "payload", options: "-t 0", kib: 0 };
    let kib = 3_700_000_003;
    let image = {
        let path = folder.path().join("image");
        let file = std::fs::File::create(&path).expect("an image file");
        file.set_len(kib * 1024).expect("a sparse file");
        let mut args = vec!["-q", "-f"];
        args.extend(kind.options.split_whitespace());
        args.push(path.to_str().expect("a UTF-8 path"));
        tool_ok("mkfs.f2fs", &args);
        path
    };
    let mut raw = [0; 4];
    std::os::unix::fs::FileExt::read_exact_at(&std::fs::File::open(&image).expect("the image"), &mut raw, 1024 + 1664)
        .expect("a superblock");
    assert_ne!(raw, [0; 4], "the volume has a payload");
    let ours = map_ranges(&image);
    assert_eq!(ours, dumped(&image), "coldtrim (left) and dump.f2fs (right)");
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
if len(sys.argv) > 3:
    with open(place + "/synced", "wb") as file:
        file.write(text[:50000])
        os.fsync(file.fileno())
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
    for (index, block) in bytes.chunks_exact(4096).enumerate() {
        let at = index as u64 * 4096;
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
    u64::from(images::u32_at(&bytes, 1024 + 92)) * 4096
}

/// Fragmented by the kernel: three readings, then what the kernel itself discards.
#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_lab_kernel_discards_the_same_bytes() {
    let mut rng = Rng(seed("root_lab_kernel_discards_the_same_bytes"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("image");
    let disk = Lab::get().drive("vbig0");
    let kinds = ["", "-i", "-O extra_attr,flexible_inline_xattr", "-O extra_attr,compression", "-s 2", "-O quota"];
    for (round, options) in kinds.iter().enumerate() {
        if !full() && round > 1 {
            break;
        }
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
fn root_lab_a_volume_copied_while_mounted_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("image");
    let disk = Lab::get().drive("vscsi1");
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
