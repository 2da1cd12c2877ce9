//! The running kernel as a second opinion: loop devices, mounts, and the holes that its FITRIM leaves.
#![allow(dead_code, clippy::as_conversions)] // each test file uses its part

use crate::common::{Rng, tool, tool_ok};
use std::path::{Path, PathBuf};

/// The image's holes in bytes: what is not allocated in the file below.
pub fn holes(image: &Path) -> Vec<(u64, u64)> {
    let file = std::fs::File::open(image).expect("the image");
    let end = file.metadata().expect("its length").len() as i64;
    let (mut holes, mut at) = (Vec::new(), 0);
    while at < end {
        let seek = |from, whence| nix::unistd::lseek(&file, from, whence);
        let hole = seek(at, nix::unistd::Whence::SeekHole).expect("a hole or the end");
        let data = seek(hole, nix::unistd::Whence::SeekData).unwrap_or(end);
        if hole < end {
            holes.push((hole as u64, (data - hole) as u64));
        }
        at = data;
    }
    holes
}

/// A loop device that is given back when it goes: its node, and the image behind it.
pub struct Loop(pub String, PathBuf);

impl Loop {
    pub fn new(image: &Path) -> Self {
        let node = tool_ok("losetup", &["-f", "--show", image.to_str().expect("a UTF-8 path")]).trim().to_owned();
        Self(node, image.to_owned())
    }
}

impl Drop for Loop {
    /// The kernel lets go of a device that was mounted a moment ago only when that is all over; until then coldtrim rightly
    /// refuses the image.
    fn drop(&mut self) {
        let name = self.0.trim_start_matches("/dev/");
        let behind = || std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).unwrap_or_default();
        wait_until(|| {
            // Asked again each time, for who had it open the last time (a scan for new disks) may be gone; and only while
            // it is ours, for the next test may have it by now.
            let is_ours = behind().starts_with(self.1.to_str().expect("a UTF-8 path"));
            let _ = is_ours && tool("losetup", &["-d", &self.0]).status.success();
            !is_ours
        });
    }
}

/// At most a minute.
fn wait_until(happened: impl Fn() -> bool) {
    for _ in 0..1200 {
        if happened() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// A mount that ends when it goes: its place, and the device or, with the option `loop`, the image.
pub struct Mount(PathBuf, String);

impl Mount {
    pub fn new(kind: &str, device: &str, place: &Path, options: &str) -> Self {
        tool_ok("mount", &["-t", kind, "-o", options, device, place.to_str().expect("a UTF-8 path")]);
        Self(place.to_owned(), device.to_owned())
    }

    /// Where.
    pub fn place(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let place = self.0.to_str().expect("a UTF-8 path");
        wait_until(|| {
            tool("umount", &[place]);
            !tool("mountpoint", &["-q", place]).status.success()
        });
        if !self.1.starts_with("/dev/loop") {
            wait_until(|| tool("losetup", &["-j", &self.1]).stdout.is_empty());
        }
    }
}

/// A copy without holes.
pub fn copy_of(image: &Path, copy: &Path) {
    tool_ok("cp", &["--sparse=never", image.to_str().expect("UTF-8"), copy.to_str().expect("UTF-8")]);
}

/// Names and SHA-256 sums of all files below a folder.
pub fn hashes(place: &Path) -> String {
    let command = "cd \"$1\" && find . -type f -print0 | sort -z | xargs -0 sha256sum";
    tool_ok("sh", &["-c", command, "sh", place.to_str().expect("a UTF-8 path")])
}

/// Fills a mounted volume of about `bytes` bytes through the kernel's driver and deletes a part again: many small files,
/// some large ones, attributes, holes, and shared extents where the filesystem has them.
pub fn live(place: &Path, bytes: u64, rng: &mut Rng) {
    let most = (bytes / 2 / 40).max(2);
    let file = |name: String| place.join(name);
    for number in 0..40 {
        let size = rng.between(0, most) as usize;
        // A tiny volume may be full: so much the better.
        let _ = std::fs::write(file(format!("large{number}")), vec![number as u8; size]);
    }
    std::fs::create_dir_all(file("many/below".into())).expect("a folder");
    for number in 0..600 {
        let folder = if number % 3 == 0 { "many" } else { "many/below" };
        let size = rng.between(0, 9000) as usize;
        let _ = std::fs::write(file(format!("{folder}/small file number {number}")), vec![number as u8; size]);
    }
    let text = |name: &str| file(name.into()).to_str().expect("a UTF-8 path").to_owned();
    for number in 0..8 {
        tool("cp", &["--reflink=always", &text(&format!("large{number}")), &text(&format!("shared{number}"))]);
        // Too long for an inode; where attributes are not possible there are none.
        let attribute = "import os, sys; os.setxattr(sys.argv[1], 'user.long', b'x' * 3000)";
        tool("python3", &["-c", attribute, &text(&format!("large{number}"))]);
    }
    tool("sync", &["-f", place.to_str().expect("a UTF-8 path")]);
    for number in (0..40).filter(|_| rng.next().is_multiple_of(2)) {
        let _ = std::fs::remove_file(file(format!("large{number}")));
    }
    for number in (0..600).filter(|_| rng.next().is_multiple_of(2)) {
        let folder = if number % 3 == 0 { "many" } else { "many/below" };
        let _ = std::fs::remove_file(file(format!("{folder}/small file number {number}")));
    }
    for number in 0..10 {
        let size = rng.between(0, most / 4 + 1) as usize;
        let _ = std::fs::write(file(format!("later{number}")), vec![number as u8; size]);
    }
}
