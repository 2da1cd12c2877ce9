//! Measurements on images: where they write, what they leave behind, and what they say. How fast an image is says nothing
//! of a drive; what is said of drives is held against simulated ones elsewhere.

use crate::PROGRAM;
use crate::images::backing::Snapshot;
use crate::images::{check_ext4, check_fat, ext4_of, fat, on_a_terminal, plan_of, said, text};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A short one.
const SHORT: [&str; 5] = ["verify", "--length", "smoke", "--budget", "24M"];

fn verify(image: &Path, more: &[&str]) -> crate::images::Said {
    let settle: &[&str] = if more.contains(&"--settle") { &[] } else { &["--settle", "1"] };
    said(&[&SHORT, settle, more, &[text(image)]].concat())
}

#[test]
fn test_data_comes_and_goes_in_free_space_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let checks: [fn(&Path, u64); 2] = [check_ext4, check_fat];
    let images = [ext4_of(folder.path(), "a.img", 48), fat(folder.path(), "b.img")];
    for (image, check) in images.into_iter().zip(checks) {
        let plan = plan_of(&image, &[]);
        let before = Snapshot::take(&image);
        let run = verify(&image, &["--yes", "--json"]);
        let report = run.expect(0, &[]).json();
        before.assert_only_discarded(&plan);
        check(&image, 0);
        let found = &report["verify"];
        assert_eq!(
            (&found["verdict"], &found["trial"]["verdict"]),
            (&"works (zeroes)".into(), &"works (zeroes)".into())
        );
        assert!(found["rung"].as_u64() >= Some(2), "{found}");
        let written = found["sent"]["written"].as_u64().expect("a number");
        assert!(written > 0 && written <= 24 << 20, "{written}");
        let passes = found["passes"].as_array().expect("passes");
        let sum: u64 = passes.iter().filter_map(|pass| pass["bytes"].as_u64()).sum();
        assert_eq!(sum, written, "what is reported is what was written");
        let stages: Vec<&str> = passes.iter().filter_map(|pass| pass["stage"].as_str()).collect();
        assert!(stages.contains(&"sham") && stages.contains(&"treatment"), "{stages:?}");
        assert!(found["compared_places"].as_u64() > Some(20), "{found}");
        assert_eq!((&found["left_bytes"], &found["left_by_earlier_run"]), (&0.into(), &0.into()));
        assert_eq!(report["volumes"][0]["verdict"], "works (zeroes)");
    }
}

#[test]
fn the_page_and_the_table_need_nothing_else() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4_of(folder.path(), "<b>&.img", 48);
    let (page, table) = (folder.path().join("page.html"), folder.path().join("table.csv"));
    let files = ["--html", text(&page), "--csv", text(&table)];
    let run = verify(&image, &[&["--yes"], &files[..]].concat());
    run.expect(0, &["verdict: works (zeroes)", "rung", "trial in free space", "after TRIM", "written:"]);
    let html = std::fs::read_to_string(&page).expect("a page");
    for word in ["<!DOCTYPE html>", "viewport", "<svg", "after TRIM", "works (zeroes)", "&lt;b&gt;&amp;.img"] {
        assert!(html.contains(word), "'{word}' is missing");
    }
    for bad in ["<script", "<b>&.img", "src=", "href=", "@import", "url("] {
        assert!(!html.contains(bad), "'{bad}' is in the page");
    }
    assert!(html.matches("<svg").count() >= 3, "two plots at least, and the map");
    let csv = std::fs::read_to_string(&table).expect("a table");
    let mut lines = csv.lines();
    let columns = lines.next().expect("a heading").split(',').count();
    assert!(lines.clone().count() > 100 && lines.all(|line| line.split(',').count() == columns));
    // Neither is ever written over.
    let before = Snapshot::take(&image);
    verify(&image, &["--yes", "--html", text(&page)]).expect(1, &["a file that exists is never overwritten"]);
    before.assert_untouched();
}

#[test]
fn nothing_is_written_unasked_or_where_nothing_may_be() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4_of(folder.path(), "a.img", 48);
    let before = Snapshot::take(&image);
    verify(&image, &[]).expect(2, &["standard input is no terminal"]);
    verify(&image, &["--yes", text(&image)]).expect(2, &["name one target"]);
    said(&["verify", "--yes", "--budget", "0", text(&image)]).expect(2, &["--budget 0"]);
    let asked = on_a_terminal(&format!("{PROGRAM} {} {}", SHORT.join(" "), text(&image)), "no\n");
    asked.expect(130, &["This writes up to", "24.0 MiB", "no longer be recovered"]);
    verify(&image, &["--yes", "--via", "unmap"]).expect(4, &["no route works here"]);
    before.assert_untouched();
    let unknown = folder.path().join("unknown.img");
    std::fs::write(&unknown, vec![0x5A; 4 << 20]).expect("room");
    let before = Snapshot::take(&unknown);
    verify(&unknown, &["--yes"]).expect(3, &["nothing was written"]);
    before.assert_untouched();
}

#[test]
fn a_trim_can_be_measured() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4_of(folder.path(), "a.img", 48);
    let plan = plan_of(&image, &[]);
    let before = Snapshot::take(&image);
    let run = said(&["trim", "--verify", "--yes", "--json", text(&image)]);
    let report = run.expect(0, &[]).json();
    before.assert_only_discarded(&plan);
    assert_eq!(
        (&report["verify"]["length"], &report["verify"]["verdict"]),
        (&"short".into(), &"works (zeroes)".into())
    );
    assert!(report["verify"]["sent"]["written"].as_u64() <= Some(48 << 20));
    let planned: u64 = plan.iter().map(|(_, length)| length).sum();
    assert_eq!(report["outcome"]["bytes"], planned, "the trim itself came behind it");
    said(&["trim", "--verify", "-n", text(&image)]).expect(2, &["--verify"]);
}

#[test]
fn every_protocol_from_the_field_runs_in_free_space() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4_of(folder.path(), "a.img", 48);
    let plan = plan_of(&image, &[]);
    let before = Snapshot::take(&image);
    for preset in coldtrim::measure::preset::PRESETS {
        let run = verify(&image, &["--yes", "--json", "--settle", "0", "--preset", preset.name]);
        let found = &run.expect(0, &[]).json()["verify"];
        assert_eq!((&found["preset"], &found["rung"]), (&preset.name.into(), &2.into()));
        assert!(found["passes"].as_array().is_some_and(|passes| !passes.is_empty()));
        assert!(found["sent"]["written"].as_u64() <= Some(26 << 20), "{found}");
        assert!(found["sentence"].as_str().is_some_and(|text| text.contains("prove nothing about TRIM")));
        before.assert_only_discarded(&plan);
    }
    verify(&image, &["--yes", "--preset", "none"]).expect(2, &["there is no preset 'none'", "vertex"]);
}

/// A measurement of minutes that has begun to write.
struct Running {
    folder: tempfile::TempDir,
    image: PathBuf,
    plan: Vec<(u64, u64)>,
    before: Snapshot,
    child: Child,
}

/// What every block of test data begins with.
const MAGIC: &[u8] = b"coldtrim";

/// How many planned blocks hold test data.
fn test_blocks(image: &Path, plan: &[(u64, u64)]) -> usize {
    let bytes = std::fs::read(image).expect("the image");
    let at = |at: u64| usize::try_from(at).expect("a small image");
    let blocks = plan.iter().flat_map(|(start, length)| {
        let first = at(start.next_multiple_of(4096));
        bytes.get(first..at(start + length)).unwrap_or_default().chunks(4096)
    });
    blocks.filter(|block| block.starts_with(MAGIC)).count()
}

impl Running {
    fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let image = ext4_of(folder.path(), "a.img", 48);
        let plan = plan_of(&image, &[]);
        let before = Snapshot::take(&image);
        let child = Command::new("env")
            .args([
                "--default-signal",
                PROGRAM,
                "verify",
                "--yes",
                "--progress",
                "json",
                "--budget",
                "100G",
                "--settle",
                "1",
            ])
            .args(more)
            .arg(&image)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("coldtrim runs");
        let mut running = Self { folder, image, plan, before, child };
        // The image itself must be left alone: whoever opens it ends the measurement.
        let stderr = running.child.stderr.take().expect("a pipe");
        let told = BufReader::new(stderr).lines().map_while(Result::ok).find(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            line["bytes"].as_u64() > Some(1 << 20)
        });
        assert!(told.is_some(), "it began: {:?}", running.child.try_wait());
        running
    }

    fn end(mut self, signal: Signal) -> (Self, crate::images::Said) {
        let id = i32::try_from(self.child.id()).expect("a process number");
        kill(Pid::from_raw(id), signal).expect("it is there");
        let nothing = Command::new("true").stdout(Stdio::null()).spawn().expect("true runs");
        let child = std::mem::replace(&mut self.child, nothing);
        let said = child.wait_with_output().expect("its output").into();
        let _ = self.child.wait();
        (self, said)
    }
}

#[test]
fn an_interrupted_measurement_takes_back_what_it_wrote() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let (ended, run) = Running::start(&["--json"]).end(signal);
        let report = run.expect(130, &[]).json();
        assert_eq!(report["verify"]["ended_early"], "interrupted");
        assert_eq!(report["verify"]["left_bytes"], 0);
        ended.before.assert_only_discarded(&ended.plan);
        check_ext4(&ended.image, 0);
    }
}

#[test]
fn a_killed_measurement_has_lost_nothing_and_the_next_one_finds_what_it_left() {
    let (ended, run) = Running::start(&[]).end(Signal::SIGKILL);
    assert_eq!(run.code, None, "it was killed: {run:#?}");
    ended.before.assert_kept_outside(&ended.plan);
    check_ext4(&ended.image, 0);
    assert!(test_blocks(&ended.image, &ended.plan) >= 100);
    let next = verify(&ended.image, &["--yes"]);
    next.expect(0, &["test data of an earlier run"]);
    ended.before.assert_only_discarded(&ended.plan);
    assert!(ended.folder.path().exists());
}
