//! Images that somebody else uses.

use crate::PROGRAM;
use crate::images::backing::Snapshot;
use crate::images::{Said, ext4, plan_of, said, text};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A program that holds an image in some way until it is dropped.
struct Holder(Child);

impl Holder {
    /// Runs Python statements with `image` as the opened file's path, `flags` of open(2), then waits.
    fn new(image: &Path, flags: &str, statements: &str) -> Self {
        let script = format!(
            "import fcntl, mmap, os, struct, sys, time\nfd = os.open(sys.argv[1], os.{flags})\n{statements}\n\
             print('held', flush=True)\ntime.sleep(600)\n"
        );
        let child = Command::new("python3").args(["-c", &script, text(image)]).stdout(Stdio::piped()).spawn();
        let mut holder = Self(child.expect("python3 runs; tests/run installs it"));
        let mut line = String::new();
        let output = holder.0.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line, "held\n");
        holder
    }

    /// As messages name it.
    fn name(&self) -> String {
        format!("process {} (python3)", self.0.id())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Every verb refuses, names the holder, and leaves the image alone.
fn refused_while(flags: &str, statements: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let before = Snapshot::take(&image);
    let holder = Holder::new(&image, flags, statements);
    let name = holder.name();
    for args in [&["map"][..], &["trim", "-n"], &["trim", "--yes"]] {
        let run: Said = said(&[args, &[text(&image)]].concat());
        run.expect(3, &[&name]);
    }
    before.assert_untouched();
    drop(holder);
    said(&["trim", "--yes", text(&image)]).expect(0, &["discarded:"]);
}

#[test]
fn an_image_that_is_open_elsewhere_is_refused_with_the_name_of_who_has_it() {
    refused_while("O_RDWR", "");
}

#[test]
fn an_image_that_is_only_read_elsewhere_is_refused_too() {
    // It may be a virtual machine that reopens it for writing.
    refused_while("O_RDONLY", "");
}

#[test]
fn a_flock_is_refused() {
    refused_while("O_RDWR", "fcntl.flock(fd, fcntl.LOCK_EX)");
    refused_while("O_RDONLY", "fcntl.flock(fd, fcntl.LOCK_SH)");
}

#[test]
fn locks_on_the_open_file_are_refused() {
    // QEMU takes such locks on single bytes (block/file-posix.c); F_OFD_SETLK is 37 in asm-generic/fcntl.h.
    let lock =
        |kind: &str, at: u64| format!("fcntl.fcntl(fd, 37, struct.pack('hhqqi4x', fcntl.{kind}, 0, {at}, 1, 0))");
    refused_while("O_RDWR", &lock("F_WRLCK", 0));
    refused_while("O_RDWR", &lock("F_RDLCK", 100));
}

/// A mapping outlives the descriptor that it was made from.
#[test]
fn an_image_that_is_only_mapped_is_refused() {
    refused_while(
        "O_RDWR",
        "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.mmap.restype = ctypes.c_void_p\n\
         libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]\n\
         place = libc.mmap(None, 4096, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)\n\
         assert place != ctypes.c_void_p(-1).value\nos.close(fd)",
    );
}

/// Starts a slow run, does something to the image once its first command is in the log, and gives the run's end.
fn disturbed(image: &Path, disturb: impl FnOnce()) -> (Said, Vec<(u64, u64)>) {
    let plan = plan_of(image, &[]);
    let log = image.with_extension("log");
    let args = ["trim", "--yes", "--max-rate", "2M", "--log", text(&log), text(image)];
    let run = Command::new(PROGRAM).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let run = run.expect("coldtrim runs");
    let started = Instant::now();
    while !std::fs::read(&log).is_ok_and(|lines| lines.contains(&b'\n')) {
        assert!(started.elapsed() < Duration::from_secs(60), "no command was sent");
        std::thread::sleep(Duration::from_millis(10));
    }
    disturb();
    (Said::from(run.wait_with_output().expect("an end")), plan)
}

/// Nothing keeps others from opening an image, but it is noticed before they can read a byte of it.
#[test]
fn an_image_that_is_opened_during_the_run_ends_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let before = Snapshot::take(&image);
    let (run, plan) = disturbed(&image, || {
        drop(std::fs::OpenOptions::new().read(true).write(true).open(&image).expect("it can be opened"));
        let now = Snapshot::take(&image);
        // Whoever has it open finds nothing going on any more.
        std::thread::sleep(Duration::from_millis(300));
        now.assert_untouched();
    });
    run.expect(5, &["in use", "open in", "discarded:"]);
    before.assert_kept_outside(&plan);
}

#[test]
fn an_image_of_another_size_during_the_run_ends_it_with_true_words() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let (run, _) = disturbed(&image, || nix::unistd::truncate(&image, 4 << 20).expect("it can be cut"));
    run.expect(5, &["in use", "not shown"]);
    assert!(!run.out.contains("nothing was sent"), "{run:#?}");
}
