//! Small filled and fragmented images, made without root by the usual tools. Every byte is written before a
//! filesystem is made, and files consist of blocks that name themselves, so that whatever is lost is missed.
#![allow(dead_code, clippy::as_conversions)] // each test file uses its part

#[path = "lab/backing.rs"]
#[allow(dead_code)]
pub mod backing;

use crate::common::tool_ok;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

/// Bytes of one named block.
pub const STAMP: usize = 512;
/// Bytes of each file but the last: no multiple of any block size.
pub const FILE: usize = 40_111;
/// Files that are written; every second one is deleted again.
pub const FILES: usize = 40;

/// What a command of ours said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("not exactly one JSON object ({e}): {self:#?}"))
    }

    /// Asserts the exit code and that each of `words` is somewhere in the output.
    #[track_caller]
    pub fn expect(&self, code: i32, words: &[&str]) -> &Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        let all = format!("{}{}", self.out, self.err);
        for word in words {
            assert!(all.contains(word), "'{word}' is missing: {self:#?}");
        }
        assert!(!all.contains("panicked"), "{self:#?}");
        self
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs coldtrim without a terminal.
pub fn said(args: &[&str]) -> Said {
    crate::common::coldtrim(args).into()
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

/// `len` bytes in blocks of [`STAMP`], each of which names `owner` and its own number.
pub fn stamped(owner: &str, len: usize) -> Vec<u8> {
    let blocks = (0..len.div_ceil(STAMP)).flat_map(|k| {
        let name = format!("<{owner} block {k}>");
        name.bytes().cycle().take(STAMP).collect::<Vec<_>>()
    });
    blocks.take(len).collect()
}

/// Name and content of every file that is written.
fn files() -> Vec<(String, Vec<u8>)> {
    (0..FILES)
        .map(|k| format!("file{k:02}"))
        .map(|name| (name.clone(), stamped(&name, FILE + 97 * name.len())))
        .collect()
}

/// Name and content of the files that stay.
pub fn kept_files() -> Vec<(String, Vec<u8>)> {
    files().into_iter().skip(1).step_by(2).collect()
}

fn deleted_files() -> Vec<String> {
    files().into_iter().step_by(2).map(|(name, _)| name).collect()
}

/// A folder with all files, to be copied from.
fn source() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, content) in files() {
        std::fs::write(folder.path().join(name), content).expect("room for a file");
    }
    folder
}

/// A new file of `size` bytes, none of them zero.
fn filled(path: &Path, size: u64) {
    backing::create(path, size).expect("a new image");
    backing::fill(path, size);
}

/// An ext4 volume of 8 MiB with holes in it.
pub fn ext4(folder: &Path, name: &str) -> PathBuf {
    ext4_of(folder, name, 8)
}

/// The same of any number of mebibytes.
pub fn ext4_of(folder: &Path, name: &str, mebibytes: u64) -> PathBuf {
    let path = folder.join(name);
    filled(&path, mebibytes << 20);
    let source = source();
    let from = text(source.path());
    let options = ["-q", "-F", "-t", "ext4", "-b", "1024", "-E", "nodiscard", "-L", "hello", "-d", from, text(&path)];
    tool_ok("mke2fs", &options);
    let commands: String = deleted_files().iter().map(|name| format!("rm {name}\n")).collect();
    let script = source.path().join("commands");
    std::fs::write(&script, commands).expect("room for a script");
    tool_ok("debugfs", &["-w", "-f", text(&script), text(&path)]);
    tool_ok("e2fsck", &["-fn", text(&path)]);
    path
}

/// A FAT16 volume of 6 MiB with holes in it.
pub fn fat(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    filled(&path, 6 << 20);
    tool_ok("mkfs.fat", &["-F", "16", "-s", "1", "-n", "FATVOL", text(&path)]);
    let source = source();
    let image = text(&path);
    let sources: Vec<PathBuf> = files().iter().map(|(name, _)| source.path().join(name)).collect();
    let copy: Vec<&str> =
        ["-i", image].into_iter().chain(sources.iter().map(|path| text(path))).chain(["::"]).collect();
    tool_ok("mcopy", &copy);
    let names: Vec<String> = deleted_files().iter().map(|name| format!("::{name}")).collect();
    let delete: Vec<&str> = ["-i", image].into_iter().chain(names.iter().map(String::as_str)).collect();
    tool_ok("mdel", &delete);
    tool_ok("fsck.fat", &["-n", image]);
    path
}

/// The same volume with the dirty bit of its boot sector set (fatgen103, BS_Reserved1).
pub fn dirty_fat(folder: &Path, name: &str) -> PathBuf {
    let path = fat(folder, name);
    put(&path, 37, &[1]);
    path
}

pub fn put(path: &Path, at: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("the image can be written");
    file.write_all_at(bytes, at).expect("room");
}

/// The kinds of partition table.
#[derive(Clone, Copy)]
pub enum Table {
    Gpt,
    Mbr,
}

/// Where the partitions of [`disk`] begin, in bytes.
pub const FIRST: u64 = 1 << 20;
pub const SECOND: u64 = 12 << 20;

/// A disk of 24 MiB: `first` in partition 1, `second` in partition 2, and with GPT a BIOS boot partition 3.
pub fn disk(folder: &Path, name: &str, table: Table, first: &Path, second: &Path) -> PathBuf {
    let path = folder.join(name);
    filled(&path, 24 << 20);
    // A new table does not care what was there; the place of its backup must not look like anything.
    put(&path, 0, &[0; 34 * 512]);
    put(&path, (24 << 20) - 34 * 512, &[0; 34 * 512]);
    let label = match table {
        Table::Gpt => {
            "label: gpt\nstart=2048, size=20480, type=linux\nstart=24576, size=16384, type=EBD0A0A2-B9E5-4433-87C0-68B6B72699C7\n\
             start=43008, size=2048, type=21686148-6449-6E6F-744E-656564454649\n"
        }
        Table::Mbr => "label: dos\nstart=2048, size=20480, type=83\nstart=24576, size=16384, type=6\n",
    };
    let script = folder.join(format!("{name}.sfdisk"));
    std::fs::write(&script, label).expect("room for a script");
    tool_ok("sh", &["-c", "sfdisk -q \"$1\" < \"$2\"", "sh", text(&path), text(&script)]);
    put(&path, FIRST, &std::fs::read(first).expect("the first volume"));
    put(&path, SECOND, &std::fs::read(second).expect("the second volume"));
    path
}

/// What `trim` would discard on an image, by its own saved plan: start and length in bytes.
pub fn plan_of(image: &Path, more: &[&str]) -> Vec<(u64, u64)> {
    let file = image.with_extension("plan");
    let mut args = vec!["trim", "--save-plan", text(&file), text(image)];
    args.extend(more);
    let run = said(&args);
    assert!(matches!(run.code, Some(0 | 5)), "{run:#?}");
    let plan: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).expect("a plan was written")).expect("the plan is JSON");
    std::fs::remove_file(&file).expect("the plan can go");
    let extents = plan["devices"][0]["extents"].as_array().expect("a list of extents").clone();
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    extents.iter().map(|extent| (number(&extent[0]), number(&extent[1]) - number(&extent[0]))).collect()
}

/// Reads every file that must still be there with the tools of its filesystem; `at` is where the volume begins.
pub fn check_ext4(image: &Path, at: u64) {
    let place = format!("{}?offset={at}", text(image));
    tool_ok("e2fsck", &["-fn", &place]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dumps: String =
        kept_files().iter().map(|(name, _)| format!("dump {name} {}\n", text(&folder.path().join(name)))).collect();
    let script = folder.path().join("commands");
    std::fs::write(&script, dumps).expect("room for a script");
    tool_ok("debugfs", &["-f", text(&script), &place]);
    compare_files(folder.path());
}

fn compare_files(folder: &Path) {
    for (name, content) in kept_files() {
        let copy = std::fs::read(folder.join(&name)).unwrap_or_else(|e| panic!("{name} was not copied out: {e}"));
        assert!(copy == content, "{name} has changed");
    }
}

/// The same for FAT.
pub fn check_fat(image: &Path, at: u64) {
    let place = format!("{}@@{at}", text(image));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let names: Vec<String> = kept_files().iter().map(|(name, _)| format!("::{name}")).collect();
    let copy = ["-i", &place].into_iter().chain(names.iter().map(String::as_str)).chain([text(folder.path())]);
    tool_ok("mcopy", &copy.collect::<Vec<_>>());
    compare_files(folder.path());
}

/// What a shell would do on a terminal of its own: `keys` are pressed when the question has been asked (none: nothing is
/// asked), and the answer is everything that was shown.
pub fn on_a_terminal(command: &str, keys: &str) -> Said {
    while_asked(command, keys, || ())
}

/// The same, with something that happens when the question has been asked, and lasts until the end.
pub fn while_asked<T>(command: &str, keys: &str, happens: impl FnOnce() -> T) -> Said {
    let mut script = std::process::Command::new("script");
    let mut running = script
        .args(["-qefc", command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script, of util-linux");
    let mut terminal = running.stdout.take().expect("a pipe");
    let mut shown = Vec::new();
    let mut byte = [0];
    while !keys.is_empty() && !shown.ends_with(b"Type yes to go on: ") {
        assert_eq!(
            terminal.read(&mut byte).expect("what it shows"),
            1,
            "no question: {}",
            String::from_utf8_lossy(&shown)
        );
        shown.push(byte[0]);
    }
    let _lasts = happens();
    running.stdin.take().expect("a pipe").write_all(keys.as_bytes()).expect("somebody who reads");
    terminal.read_to_end(&mut shown).expect("what it shows");
    let status = running.wait().expect("an end");
    Output { status, stdout: shown, stderr: Vec::new() }.into()
}
