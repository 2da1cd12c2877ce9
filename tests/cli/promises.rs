//! What a script relies on where something goes wrong.

use crate::PROGRAM;
use crate::common::tool_ok;
use crate::images::backing::Snapshot;
use crate::images::{Table, dirty_fat, disk, ext4, fat, plan_of, said, text};
use std::process::{Command, Stdio};

#[test]
fn a_partition_that_is_not_there_is_a_mistake() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Gpt, &first, &second);
    for args in [&["map"][..], &["trim", "-n"], &["trim", "--yes"]] {
        said(&[args, &["--partition", "9", text(&image)]].concat()).expect(2, &["partition 9"]);
    }
    said(&["map", "--partition", "1", text(&first)]).expect(2, &["partition 1"]);
    // Not a partition of that target: all of it, or another one, was not meant.
    let other = disk(folder.path(), "other.img", Table::Mbr, &first, &second);
    tool_ok("sfdisk", &["--delete", text(&other), "2"]);
    for (target, number) in [(&first, "1"), (&other, "2")] {
        let before = Snapshot::take(target);
        for args in [&["map"][..], &["trim", "-n"], &["trim", "--yes"]] {
            let words = format!("partition {number} on {}", text(target));
            said(&[args, &["--partition", number, text(&image), text(target)]].concat()).expect(2, &[&words]);
        }
        before.assert_untouched();
    }
    said(&["trim", "--yes", "--partition", "1", text(&image), text(&other)]).expect(0, &["discarded in all:"]);
}

#[test]
fn a_place_outside_of_the_target_is_a_mistake() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    for args in [&["--offset", "99G"][..], &["--size", "9M"], &["--offset", "8M"], &["--offset", "1M", "--size", "8M"]]
    {
        said(&[&["map"], args, &[text(&image)]].concat()).expect(2, &["--offset", "8388608"]);
    }
}

#[test]
fn a_dry_run_ends_like_the_run_when_a_target_is_named_twice() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let link = folder.path().join("link.img");
    std::fs::hard_link(&image, &link).expect("a second name");
    for second in [&image, &link] {
        let dry = said(&["trim", "-n", text(&image), text(second)]);
        let real = said(&["trim", "--yes", text(&image), text(second)]);
        assert_eq!(dry.code, real.code, "{dry:#?}{real:#?}");
        assert!(!real.err.contains("another program"), "it is locked by coldtrim itself: {real:#?}");
    }
}

#[test]
fn an_error_is_an_object_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let nothing = folder.path().join("nothing.img");
    let cases: &[(&[&str], i32)] = &[
        (&["map", "--json", text(&nothing)], 1),
        (&["map", "--json", "/"], 3),
        (&["trim", "--json", text(&image)], 2),
        (&["trim", "--json", "--yes", "--plan", text(&nothing), text(&image)], 1),
    ];
    for (args, code) in cases {
        let object = said(args).expect(*code, &[]).json();
        assert_eq!(object["schema"], "coldtrim/1");
        assert_eq!(object["exit_code"], *code);
        assert!(object["errors"].as_array().is_some_and(|errors| !errors.is_empty()), "{object}");
    }
}

#[test]
fn the_command_to_type_does_not_repair_a_whole_disk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), dirty_fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Gpt, &first, &second);
    let run = said(&["map", text(&image)]);
    let whole = format!("fsck.fat -a {}", text(&image));
    let found = run.out.lines().find(|line| line.ends_with(&whole));
    assert_eq!(found, None, "the volume lies at an offset: {run:#?}");
}

#[test]
fn a_list_for_programs_says_which_routes_there_are() {
    let list = said(&["list", "--json"]).json();
    assert_eq!(list["exit_code"], 0);
    let disks = list["disks"].as_array().expect("a list");
    assert!(disks.iter().all(|disk| disk["routes"].is_array()), "{list}");
}

/// Zero means "done, all of it": a run whose output nobody reads must not say so and do nothing.
#[test]
fn a_run_that_nobody_reads_is_done_or_says_that_it_is_not() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for more in [&[][..], &["--json"]] {
        let image = ext4(folder.path(), "a.img");
        let plan = plan_of(&image, &[]);
        let before = Snapshot::take(&image);
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let run = Command::new(PROGRAM)
            .args(["trim", "--yes", text(&image)])
            .args(more)
            .stdin(Stdio::null())
            .stdout(writer)
            .output()
            .expect("coldtrim runs");
        let (done, nothing) = (before.compare(&plan), before.compare(&[]));
        assert!(done.is_ok() == (run.status.code() == Some(0)), "{more:?} {run:?}: {done:?}");
        assert!(done.is_ok() || nothing.is_ok(), "{more:?}: all or nothing: {done:?}");
    }
}

/// Our own words never go over a file that is there: it could be the target under another name.
#[test]
fn a_file_that_exists_is_never_overwritten() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let link = folder.path().join("link.img");
    std::fs::hard_link(&image, &link).expect("a second name");
    let before = Snapshot::take(&image);
    for name in [&image, &link] {
        said(&["trim", "-n", "--save-plan", text(name), text(&image)]).expect(1, &["never overwritten"]);
        said(&["trim", "--yes", "--log", text(name), text(&image)]).expect(1, &["never overwritten"]);
    }
    before.assert_untouched();
}

/// Both outputs full: the exit code still says what happened.
#[test]
fn a_demo_overwrites_nothing_and_follows_no_link() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let keep = folder.path().join("keep");
    std::fs::create_dir(&keep).expect("a folder");
    let (mine, elsewhere) = (keep.join("ext4.img"), folder.path().join("elsewhere"));
    std::fs::write(&mine, "precious").expect("room");
    std::fs::write(&elsewhere, "precious").expect("room");
    std::os::unix::fs::symlink(&elsewhere, keep.join("xfs.img")).expect("a link");
    std::os::unix::fs::symlink(folder.path().join("nothing"), keep.join("fat16.img")).expect("a link");
    for name in ["ext4", "xfs", "fat16"] {
        said(&["demo", "--keep", text(&keep), "--fs", name]).expect(1, &["cannot create", "never overwritten"]);
    }
    for path in [&mine, &elsewhere] {
        assert_eq!(std::fs::read(path).expect("a file"), b"precious");
    }
    assert!(!folder.path().join("nothing").exists());
    said(&["demo", "--keep", text(&keep), "--fs", "fat32"]).expect(0, &["fat32", "ok"]);
    assert!(keep.join("fat32.img").exists());
}

#[test]
fn nobody_to_tell_is_no_panic() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    for args in [&["map"][..], &["map", "--json"], &["list"], &["trim", "-n", "--json"], &["trim", "--yes"]] {
        let mut command = Command::new(PROGRAM);
        command.args(args).stdin(Stdio::null()).stdout(full()).stderr(full());
        if args[0] != "list" {
            command.arg(&image);
        }
        let status = command.status().expect("coldtrim runs");
        assert!(matches!(status.code(), Some(0 | 1)), "{args:?}: {status}");
    }
}

/// Zero means "done, and told".
#[test]
fn a_report_that_cannot_be_written_is_a_failure() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let cases: &[&[&str]] = &[
        &["trim", "-n", "--json"],
        &["trim", "-n"],
        &["map"],
        &["map", "--json"],
        &["map", "--format", "ranges"],
        &["trim", "--yes", "--json"],
    ];
    for args in cases {
        let run = Command::new(PROGRAM).args(*args).arg(&image).stdout(full()).output().expect("coldtrim runs");
        let words = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(1), "{args:?}: {words}");
        assert!(words.contains("No space left"), "{args:?}: {words}");
    }
}

/// The volume is done, the log is not whole: not "done, all of it".
#[test]
fn a_log_on_a_full_disk_is_told_by_the_exit_code() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let log = folder.path().join("log");
    // A limit on the size of files is as good as a full disk; the signal that comes with it is not wanted.
    let command =
        format!("trap '' XFSZ; ulimit -f 0; exec {PROGRAM} trim --yes --json --log {} {}", text(&log), text(&image));
    let run = Command::new("bash").args(["-c", &command]).output().expect("bash runs");
    let words = String::from_utf8_lossy(&run.stdout).into_owned();
    assert_eq!(run.status.code(), Some(5), "{words}");
    assert!(words.contains("the log is not complete"), "{words}");
}

#[test]
fn a_name_is_shown_without_what_a_terminal_would_obey() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("a\u{1b}[31m\n0 4096\u{202e}.img");
    std::fs::copy(ext4(folder.path(), "a.img"), &image).expect("a copy");
    let nothing = format!("{}\u{1b}]0;", text(&image));
    for args in [
        &["map", text(&image)][..],
        &["map", "--format", "ddrescue", text(&image)],
        &["trim", "--yes", text(&image)],
        &["map", &nothing],
    ] {
        let run = said(args);
        let all = format!("{}{}", run.out, run.err);
        assert!(
            !all.contains('\u{1b}') && !all.contains('\u{202e}') && !all.contains("\n0 4096"),
            "{args:?}: {run:#?}"
        );
    }
}
