//! Wrong words, help, completions, questions.

use crate::PROGRAM;
use crate::common::{tool, tool_ok};
use crate::images::backing::Snapshot;
use crate::images::{ext4, on_a_terminal, plan_of, said, text};
use std::process::{Command, Stdio};

#[test]
fn a_test_of_a_route_needs_its_words() {
    said(&["probe", "--udev", "/dev/null"]).expect(2, &["--test"]);
    said(&["probe", "--test", "--udev", "--json", "/dev/null"]).expect(2, &["--udev", "--json"]);
    said(&["probe", "--test", "--via", "nothing", "/dev/null"]).expect(2, &["no route 'nothing'"]);
    said(&["probe", "--test", "--scratch", "1M", "/dev/null"]).expect(2, &["START:LENGTH"]);
    said(&["probe", "--resume", "/dev/null"]).expect(2, &["--test"]);
    for other in ["--power-cycle", "--udev", "--via=unmap"] {
        said(&["probe", "--test", "--resume", other, "/dev/null"]).expect(2, &["cannot be used with"]);
    }
}

#[test]
fn nothing_asked_for_is_help_and_a_mistake_without_a_terminal() {
    said(&[]).expect(2, &["Usage: coldtrim", "list", "map", "trim", "demo"]);
    on_a_terminal(PROGRAM, "").expect(0, &["Usage:", "Exit codes:", "Examples:"]);
}

#[test]
fn help_is_enough_to_work_from() {
    said(&["--help"]).expect(0, &["Exit codes:", "coldtrim trim -n /dev/sdb1", "3 refused for safety"]);
    said(&["trim", "--help"]).expect(0, &["--dry-run", "--via", "--yes", "can then no longer be recovered"]);
    said(&["--version"]).expect(0, &["coldtrim 0."]);
}

#[test]
fn wrong_words_are_named_and_what_is_right_is_listed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let image = text(&image);
    let cases: &[(&[&str], &[&str])] = &[
        (&["trim", "--via", "pigeon", image], &["no route 'pigeon'", "punch", "blkdiscard", "unmap", "sat16", "nvme"]),
        (&["map", "--fs", "ext5", image], &["no filesystem 'ext5'", "ext4", "fat32"]),
        (&["trim", "--accept", "anything", image], &["no consent 'anything'", "rotating", "removable-flash"]),
        (&["map", "--format", "xml", image], &["xml", "ranges"]),
        (&["map", "--size", "0", image], &["--size 0"]),
        (&["trim", "--max-rate", "0", image], &["--max-rate 0"]),
        (&["map", "--offset", "1X", image], &["'X' is no unit", "KB"]),
        (&["map", "--offset", "-1", image], &[]),
        (&["map", "--json", "--format", "ranges", image], &["--json", "--format ranges"]),
        (&["trim", "--plan", "a", "--save-plan", "b", image], &["--save-plan", "--plan"]),
        (&["map"], &["TARGET"]),
        (&["shred", image], &["shred"]),
        (&[image], &["unrecognized subcommand", "is there", "coldtrim map", image]),
        (&["completions", "tcsh"], &["tcsh"]),
        (&["completions"], &["SHELL"]),
    ];
    for (args, words) in cases {
        let run = said(args);
        run.expect(2, words);
        let object = args.contains(&"--json");
        assert_eq!(
            !run.out.is_empty(),
            object,
            "{args:?}: a mistake is an object where one was asked for, else nothing"
        );
    }
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = said(&["completions", shell]);
        run.expect(0, &["coldtrim", "min-extent", "save-plan"]);
        assert_eq!(run.err, "");
    }
    tool_ok("bash", &["-c", &format!("source <({PROGRAM} completions bash) && complete -p coldtrim")]);
}

#[test]
fn a_question_without_anybody_to_answer_is_a_wrong_usage() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let before = Snapshot::take(&image);
    said(&["trim", text(&image)]).expect(2, &["--yes", "no terminal"]);
    before.assert_untouched();
}

#[test]
fn the_question_names_the_loss_and_only_yes_means_yes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let plan = plan_of(&image, &[]);
    let before = Snapshot::take(&image);
    let command = format!("{PROGRAM} trim {}", text(&image));
    // The last one is Ctrl-C.
    for answer in ["no\n", "\n", "y\n", "\x03"] {
        let words = ["\"hello\"", "can then no longer be recovered", "Nothing was sent"];
        on_a_terminal(&command, answer).expect(130, &words);
        before.assert_untouched();
    }
    on_a_terminal(&command, "yes\n").expect(0, &["discarded:"]);
    before.assert_only_discarded(&plan);
}

/// Runs with a standard output that nobody reads.
fn without_a_reader(args: &[&str]) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let run = Command::new(PROGRAM).args(args).stdin(Stdio::null()).stdout(writer).output().expect("coldtrim runs");
    (run.status.code(), String::from_utf8_lossy(&run.stderr).into_owned())
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let image = text(&image);
    let cases: &[&[&str]] = &[
        &["map", image],
        &["map", "--format", "ranges", image],
        &["map", "--format", "ddrescue", image],
        &["map", "--json", image],
        &["trim", "-n", image],
        &["trim", "-n", "--json", image],
        &["list"],
        &["list", "--json"],
        &["demo"],
        &["demo", "--json"],
        &["completions", "bash"],
    ];
    for args in cases {
        let (code, error) = without_a_reader(args);
        assert_eq!((code, error.as_str()), (Some(0), ""), "{args:?}");
    }
    let (_, error) = without_a_reader(&["--help"]);
    assert_eq!(error, "");
}

#[test]
fn quiet_says_nothing_but_what_went_wrong() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let run = said(&["trim", "--quiet", "--yes", text(&image)]);
    run.expect(0, &[]);
    assert_eq!((run.out.as_str(), run.err.as_str()), ("", ""));
    std::fs::write(&image, vec![0x5A; 1 << 20]).expect("room");
    let run = said(&["trim", "-q", "--yes", text(&image)]);
    run.expect(3, &["refused"]);
    assert_eq!(run.out, "");
}

#[test]
fn colours_come_only_when_wanted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let command = format!("{PROGRAM} map {}", text(&image));
    assert!(on_a_terminal(&command, "").out.contains("\x1b[32m"), "colours on a terminal");
    assert!(!on_a_terminal(&format!("NO_COLOR=1 {command}"), "").out.contains("\x1b["), "NO_COLOR");
    assert!(!said(&["map", text(&image)]).out.contains("\x1b["), "none in a file");
    assert!(said(&["--color", "always", "map", text(&image)]).out.contains("\x1b["));
    assert!(tool("sh", &["-c", &format!("{command} --color never")]).status.success());
}
