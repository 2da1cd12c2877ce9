//! Claims and uses on real block devices: loop devices of this machine.

mod common;

use coldtrim::target::usage::Use;
use coldtrim::target::{Claim, Intent, Opener, Reach, Roots, Target, TargetError};
use coldtrim_parsers::volume::Weight;
use common::{tool, tool_ok};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const MIB: u64 = 1 << 20;

/// A loop device over an image with two partitions, `p1` with ext4. Detached when dropped.
struct Disk {
    folder: tempfile::TempDir,
    node: String,
}

impl Disk {
    fn new(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let image = folder.path().join("disk.img");
        File::create(&image).and_then(|file| file.set_len(64 * MIB)).expect("an image");
        let image = image.to_str().expect("a UTF-8 path");
        let attach = [&["--find", "--show", "--partscan"], options, &[image]].concat();
        let node = tool_ok("losetup", &attach).trim().to_owned();
        // Not every kernel that tests run on can read partition tables; all can be told about partitions.
        for (number, start) in [("1", "2048"), ("2", "65536")] {
            tool_ok("addpart", &[&node, number, start, "49152"]);
        }
        Self { folder, node }
    }

    fn formatted() -> Self {
        let disk = Self::new(&[]);
        tool_ok("mkfs.ext4", &["-q", &disk.part(1)]);
        disk
    }

    fn part(&self, number: u32) -> String {
        format!("{}p{number}", self.node)
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("disk.img")
    }

    fn mount(&self) -> Mounted {
        let at = self.folder.path().join("mnt");
        std::fs::create_dir_all(&at).expect("a mount point");
        tool_ok("mount", &[&self.part(1), at.to_str().expect("a UTF-8 path")]);
        Mounted(at)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        tool("losetup", &["-d", &self.node]);
    }
}

struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        tool("umount", &[self.0.to_str().unwrap_or_default()]);
    }
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open_as(opener: &mut Opener, spec: &str, intent: Intent) -> Result<Target, TargetError> {
    opener.open(spec, intent, &|_: &Path| None)
}

fn open(spec: &str, intent: Intent) -> Result<Target, TargetError> {
    open_as(&mut Opener::new(Roots::default()), spec, intent)
}

fn uses(result: Result<Target, TargetError>) -> Vec<Use> {
    match result {
        Err(TargetError::InUse { users, .. }) => users.into_iter().map(|user| user.by).collect(),
        other => panic!("expected a refusal because of use, got {other:?}"),
    }
}

fn refusals(target: &Target) -> Vec<String> {
    let found = target.findings().into_iter().filter(|finding| finding.weight == Weight::Refusal);
    found.map(|finding| format!("{} | {}", finding.message, finding.remedy)).collect()
}

fn reach(target: &Target) -> Reach {
    target.claim().map(Claim::reach).cloned().expect("a claim")
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_mounted_partition_is_refused_and_its_neighbour_gets_the_weak_claim() {
    let disk = Disk::formatted();
    let mounted = disk.mount();
    let at = mounted.0.canonicalize().expect("a mount point").display().to_string();
    let mount = Use::Mount { at: at.clone(), seen_by: None };
    for spec in [disk.part(1), disk.node.clone()] {
        let found = uses(open(&spec, Intent::Discard));
        assert!(found.len() == 1 && found[0] == mount, "{spec}: {found:?}");
    }
    let words = refusals(&open(&disk.part(1), Intent::Read).expect("it can be read"));
    assert!(words.len() == 1 && words[0].contains(&at) && words[0].contains("| umount"), "{words:?}");

    let neighbour = open(&disk.part(2), Intent::Discard).expect("the other partition is free");
    assert!(matches!(reach(&neighbour), Reach::PartitionOnly { because } if because.len() == 1));
    assert!(neighbour.findings().iter().any(|f| f.weight == Weight::Warning && f.message.contains("only blkdiscard")));
    assert!(!tool("mkfs.ext4", &["-q", "-F", &disk.part(2)]).status.success(), "the claim keeps mkfs away");

    let error = open(&at, Intent::Read).expect_err("a mount point is no target").to_string();
    assert!(error.contains("fstrim") && error.contains(&disk.part(1)), "{error}");
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_mount_in_another_namespace_is_named() {
    let disk = Disk::formatted();
    let at = disk.folder.path().join("elsewhere");
    std::fs::create_dir(&at).expect("a mount point");
    let script = format!("mount {} {} && echo done && exec sleep 100", disk.part(1), at.display());
    let child = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare");
    let mut other = Running(child);
    let mut line = String::new();
    let output = other.0.stdout.take().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("a line");
    assert_eq!(line, "done\n");
    let found = uses(open(&disk.part(1), Intent::Discard));
    assert!(
        matches!(&found[..], [Use::Mount { seen_by: Some(process), .. }] if process.id == other.0.id()),
        "{found:?}"
    );
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_swap_is_refused() {
    let disk = Disk::new(&[]);
    tool_ok("mkswap", &[&disk.part(2)]);
    tool_ok("swapon", &[&disk.part(2)]);
    let found = open(&disk.part(2), Intent::Discard);
    let whole = open(&disk.node, Intent::Discard);
    tool_ok("swapoff", &[&disk.part(2)]);
    assert_eq!(uses(found), [Use::Swap]);
    assert_eq!(uses(whole), [Use::Swap]);
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_an_image_behind_a_loop_device_is_refused_even_under_another_name() {
    let disk = Disk::new(&[]);
    let by_loop = [Use::Loop(disk.node.trim_start_matches("/dev/").to_owned())];
    assert_eq!(uses(open(disk.image().to_str().expect("a UTF-8 path"), Intent::Discard)), by_loop);
    let link = disk.folder.path().join("hard-link.img");
    std::fs::hard_link(disk.image(), &link).expect("a hard link");
    std::fs::remove_file(disk.image()).expect("the first name goes");
    assert_eq!(uses(open(link.to_str().expect("a UTF-8 path"), Intent::Discard)), by_loop);
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_loop_device_over_a_partition_is_named() {
    let disk = Disk::formatted();
    let upper = tool_ok("losetup", &["--find", "--show", &disk.part(1)]).trim().to_owned();
    let found = open(&disk.part(1), Intent::Discard);
    let whole = open(&disk.node, Intent::Discard);
    tool_ok("losetup", &["-d", &upper]);
    let by = Use::Loop(upper.trim_start_matches("/dev/").to_owned());
    assert!(uses(found).contains(&by));
    assert!(uses(whole).contains(&by));
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_the_claim_covers_the_whole_disk_for_as_long_as_it_is_held() {
    let disk = Disk::formatted();
    let mut opener = Opener::new(Roots::default());
    let first = open_as(&mut opener, &disk.part(1), Intent::Discard).expect("nobody uses it");
    let second = open_as(&mut opener, &disk.part(2), Intent::Discard).expect("one run may name both");
    let whole = open_as(&mut opener, &disk.node, Intent::Discard).expect("and the disk");
    for target in [&first, &second, &whole] {
        assert_eq!(reach(target), Reach::WholeDisk);
        assert_eq!(refusals(target), Vec::<String>::new());
    }
    let at = disk.folder.path().to_str().expect("a UTF-8 path");
    assert!(!tool("mount", &[&disk.part(1), at]).status.success(), "the kernel must refuse to mount it");
    let exclusive = OpenOptions::new().read(true).custom_flags(nix::libc::O_EXCL).open(disk.part(2));
    assert_eq!(exclusive.err().and_then(|error| error.raw_os_error()), Some(nix::libc::EBUSY));
    assert!(!tool("flock", &["--nonblock", &disk.node, "true"]).status.success(), "udev must stay away");
    assert_eq!(uses(open(&disk.part(2), Intent::Discard)), [Use::Claimed]);
    assert_eq!(refusals(&open(&disk.part(2), Intent::Read).expect("reading is allowed")).len(), 1);
    // A descriptor for commands that the kernel keeps inside the partition exists beside the claim.
    let writer = first.writer().expect("a writable descriptor");
    let mut before = [0; 512];
    writer.read_exact_at(&mut before, 0).expect("a read");
    writer.write_all_at(&before, 0).expect("a write");
    drop((opener, first, second, whole, writer));
    drop(disk.mount());
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_program_that_can_write_is_a_refusal_and_one_that_reads_a_remark() {
    let disk = Disk::new(&[]);
    let holder = |write: bool| {
        let file = OpenOptions::new().read(true).write(write).open(disk.part(1)).expect("the node");
        Running(Command::new("sleep").arg("100").stdin(Stdio::from(file)).spawn().expect("sleep"))
    };
    let reader = holder(false);
    let target = open(&disk.part(1), Intent::Discard).expect("a reader does no harm");
    let expected = format!("open in process {} (sleep)", reader.0.id());
    assert!(target.findings().iter().any(|f| f.weight == Weight::Warning && f.message.contains(&expected)));
    drop((target, reader));
    let writer = holder(true);
    let found = uses(open(&disk.part(1), Intent::Discard));
    assert!(matches!(&found[..], [Use::Open { process, writes: true }] if process.id == writer.0.id()), "{found:?}");
    let neighbour = open(&disk.part(2), Intent::Discard).expect("the neighbour is free");
    assert!(matches!(reach(&neighbour), Reach::PartitionOnly { .. }));
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_an_image_that_a_virtual_machine_has_open_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("vm.img");
    File::create(&image).and_then(|file| file.set_len(MIB)).expect("an image");
    let drive = format!("if=none,id=d,format=raw,file={}", image.display());
    let start = || {
        let options =
            ["-machine", "none", "-nodefaults", "-display", "none", "-monitor", "none", "-S", "-drive", &drive];
        Command::new("qemu-system-x86_64").args(options).stderr(Stdio::null()).spawn().expect("qemu")
    };
    let name = image.to_str().expect("a UTF-8 path");
    let vm = Running(start());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while refusals(&open(name, Intent::Read).expect("reading is allowed")).is_empty() {
        assert!(std::time::Instant::now() < deadline, "qemu does not open its image");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let found = uses(open(name, Intent::Discard));
    let is_vm = |by: &Use| matches!(by, Use::Open { process, .. } if process.id == vm.0.id() && process.name.starts_with("qemu"));
    assert!(found.iter().any(is_vm), "{found:?}");
    drop(vm);
    let target = open(name, Intent::Discard).expect("the machine is gone");
    let refused = start().wait().expect("qemu ends");
    assert!(!refused.success(), "our lock keeps a virtual machine away");
    drop(target);
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_no_answer_comes_from_a_stale_cache() {
    let disk = Disk::new(&[]);
    let target = open(&disk.node, Intent::Discard).expect("nobody uses it");
    let reader = target.reader().expect("a descriptor");
    let read = || {
        let mut bytes = [0; 4096];
        reader.read_exact_at(&mut bytes, 40 * MIB).expect("a read");
        bytes[0]
    };
    assert_eq!(read(), 0);
    let image = OpenOptions::new().write(true).open(disk.image()).expect("the image");
    image.write_all_at(&[7; 4096], 40 * MIB).expect("a write");
    image.sync_all().expect("a flush");
    assert_eq!(read(), 0, "the node's own cache answers; without it this test shows nothing");
    target.drop_caches().expect("root may");
    assert_eq!(read(), 7);
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_device_that_changes_its_size_is_noticed() {
    let disk = Disk::new(&[]);
    let target = open(&disk.node, Intent::Discard).expect("nobody uses it");
    target.must_be_unchanged().expect("nothing has changed");
    let image = OpenOptions::new().write(true).open(disk.image()).expect("the image");
    image.set_len(32 * MIB).expect("it shrinks");
    tool_ok("losetup", &["-c", &disk.node]);
    assert!(matches!(target.must_be_unchanged(), Err(TargetError::Changed { .. })));
}

#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_write_protected_device_is_refused_by_name() {
    let disk = Disk::new(&["--read-only"]);
    let target = open(&disk.part(1), Intent::Discard).expect("it can be claimed for reading");
    assert!(refusals(&target).iter().any(|words| words.contains("write-protected")), "{:?}", target.findings());
}

/// Loop devices ask nobody: attaching one to a claimed image works, so the run has to look again.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_loop_device_that_comes_during_the_run_is_noticed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("late.img");
    File::create(&image).and_then(|file| file.set_len(MIB)).expect("an image");
    let name = image.to_str().expect("a UTF-8 path");
    let target = open(name, Intent::Discard).expect("nobody uses it");
    target.must_be_still_unused().expect("still nobody");
    let node = tool_ok("losetup", &["--find", "--show", name]).trim().to_owned();
    let found = target.must_be_still_unused();
    tool_ok("losetup", &["-d", &node]);
    assert!(matches!(found, Err(TargetError::InUse { .. })), "{found:?}");
}

/// The bytes of a loop device are those of the file behind it, so who uses that uses the device.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_users_of_the_file_behind_a_loop_device_are_named() {
    let disk = Disk::formatted();
    let (image, name) = (disk.image(), disk.image().to_str().expect("a UTF-8 path").to_owned());
    drop(open(&disk.node, Intent::Discard).expect("nobody uses it"));
    let second = tool_ok("losetup", &["--find", "--show", &name]).trim().to_owned();
    let (found, part) = (open(&disk.node, Intent::Discard), open(&disk.part(1), Intent::Discard));
    let upper = tool_ok("losetup", &["--find", "--show", &second]).trim().to_owned();
    let stacked = open(&upper, Intent::Discard);
    tool_ok("losetup", &["-d", &upper]);
    tool_ok("losetup", &["-d", &second]);
    let by = Use::Loop(second.trim_start_matches("/dev/").to_owned());
    for found in [found, part] {
        assert_eq!(uses(found), std::slice::from_ref(&by));
    }
    let by = Use::Loop(disk.node.trim_start_matches("/dev/").to_owned());
    assert!(uses(stacked).contains(&by), "two storeys down");
    let file = OpenOptions::new().read(true).write(true).open(image).expect("the image");
    let writer = Running(Command::new("sleep").arg("100").stdin(Stdio::from(file)).spawn().expect("sleep"));
    let found = uses(open(&disk.node, Intent::Discard));
    assert!(matches!(&found[..], [Use::Open { process, writes: true }] if process.id == writer.0.id()), "{found:?}");
    drop(writer);
    // A lock of an open file description, as virtual machines take it; its holder has the file open only for reading.
    let script = "import fcntl, os, struct, sys, time\nfd = os.open(sys.argv[1], os.O_RDONLY)\n\
                  fcntl.fcntl(fd, 37, struct.pack('hhqqi4x', fcntl.F_RDLCK, 0, 100, 1, 0))\nprint(flush=True)\ntime.sleep(100)";
    let child = Command::new("python3").args(["-c", script, &name]).stdout(Stdio::piped()).spawn().expect("python3");
    let mut locker = Running(child);
    let mut line = String::new();
    let output = locker.0.stdout.take().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("a line");
    assert!(uses(open(&disk.node, Intent::Discard)).contains(&Use::Locked(None)));
}

/// A node is what its number says, wherever it lies and whatever it is called.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_program_that_opened_a_node_made_elsewhere_is_named() {
    let disk = Disk::new(&[]);
    let number = std::fs::metadata(disk.part(1)).expect("the node").rdev();
    let (major, minor) = (nix::sys::stat::major(number).to_string(), nix::sys::stat::minor(number).to_string());
    let node = disk.folder.path().join("elsewhere");
    tool_ok("mknod", &[node.to_str().expect("a UTF-8 path"), "b", &major, &minor]);
    let file = OpenOptions::new().read(true).write(true).open(&node).expect("the node");
    let writer = Running(Command::new("sleep").arg("100").stdin(Stdio::from(file)).spawn().expect("sleep"));
    let found = uses(open(&disk.part(1), Intent::Discard));
    assert!(matches!(&found[..], [Use::Open { process, writes: true }] if process.id == writer.0.id()), "{found:?}");
}

/// Written between the reading and the first command, by somebody who has closed it again.
#[test]
#[ignore = "needs root; tests/run includes it"]
fn root_a_target_that_was_written_to_since_it_was_read_is_not_sealed() {
    let disk = Disk::new(&[]);
    let mut target = open(&disk.part(1), Intent::Discard).expect("nobody uses it");
    target.note_writes();
    target.seal().expect("nobody has written");
    let neighbour = OpenOptions::new().write(true).open(disk.part(2)).expect("the other partition");
    neighbour.write_all_at(&[7; 4096], 0).and_then(|()| neighbour.sync_all()).expect("a write");
    drop(neighbour);
    target.seal().expect("another partition is no part of it");
    let visitor = OpenOptions::new().write(true).open(disk.part(1)).expect("the partition");
    visitor.write_all_at(&[7; 4096], MIB).and_then(|()| visitor.sync_all()).expect("a write");
    drop(visitor);
    let found = target.seal();
    assert!(matches!(&found, Err(TargetError::Changed { what, .. }) if what.contains("written to it")), "{found:?}");
}
