//! Runs: dry, planned, logged, slow, interrupted, killed.

use crate::PROGRAM;
use crate::images::backing::Snapshot;
use crate::images::{Said, check_fat, ext4, fat, plan_of, said, text};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn bytes(plan: &[(u64, u64)]) -> u64 {
    plan.iter().map(|(_, len)| len).sum()
}

#[test]
fn a_dry_run_shows_the_plan_and_sends_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for image in [ext4(folder.path(), "a.img"), fat(folder.path(), "b.img")] {
        let plan = plan_of(&image, &[]);
        let before = Snapshot::take(&image);
        for args in [&["trim", "-n"][..], &["trim", "--dry-run", "--yes"], &["trim", "-n", "--via", "punch"]] {
            said(&[args, &[text(&image)]].concat()).expect(0, &["plan:", "by punch"]);
        }
        let report = said(&["trim", "-n", "--json", text(&image)]).json();
        assert_eq!(report["plan"]["bytes"], bytes(&plan));
        assert_eq!(report["plan"]["extents"], plan.len());
        assert!(report.get("outcome").is_none(), "nothing was done");
        before.assert_untouched();
    }
}

#[test]
fn the_planned_bytes_are_discarded_and_no_other() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for image in [ext4(folder.path(), "a.img"), fat(folder.path(), "b.img")] {
        let plan = plan_of(&image, &[]);
        let before = Snapshot::take(&image);
        let run = said(&["trim", "--yes", "--json", text(&image)]);
        let report = run.expect(0, &[]).json();
        assert_eq!(report["outcome"]["bytes"], bytes(&plan));
        assert_eq!(report["volumes"][0]["route"], "punch");
        before.assert_only_discarded(&plan);
        said(&["trim", "--yes", text(&image)]).expect(0, &["discarded:"]);
        before.assert_only_discarded(&plan);
    }
}

#[test]
fn small_extents_are_left_out_by_sizes_in_both_systems() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = fat(folder.path(), "a.img");
    let all = plan_of(&image, &[]);
    for (word, least) in [("40KB", 40_000), ("40K", 40_960), ("41000", 41_000), ("1M", 1 << 20), ("1G", 1 << 30)] {
        let expected: Vec<_> = all.iter().copied().filter(|(_, len)| *len >= least).collect();
        assert_eq!(plan_of(&image, &["--min-extent", word]), expected, "{word}");
        let report = said(&["trim", "-n", "--json", "--min-extent", word, text(&image)]);
        let report = report.expect(0, &[]).json();
        assert_eq!(report["plan"]["skipped_bytes"], bytes(&all) - bytes(&expected), "{word}");
    }
    let (short, long) =
        (plan_of(&image, &["--min-extent", "41K"]).len(), plan_of(&image, &["--min-extent", "40KB"]).len());
    assert!(short < long && long > 10, "the sizes tell the extents apart: {short} {long}");
    let before = Snapshot::take(&image);
    said(&["trim", "--yes", "--min-extent", "1G", text(&image)]).expect(0, &[]);
    before.assert_untouched();
}

#[test]
fn a_route_that_cannot_be_is_said_to_have_been_tried() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let before = Snapshot::take(&image);
    for route in ["unmap", "sat16", "nvme", "blkdiscard"] {
        for way in ["-n", "--yes"] {
            said(&["trim", way, "--via", route, text(&image)]).expect(4, &["Tried:", route]);
        }
    }
    before.assert_untouched();
}

#[test]
fn a_saved_plan_runs_later_and_only_as_it_was() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = fat(folder.path(), "a.img");
    let file = folder.path().join("plan.json");
    let before = Snapshot::take(&image);
    said(&["trim", "--save-plan", text(&file), "--yes", text(&image)])
        .expect(0, &["plan:", "The plan is in", text(&file), "--plan"]);
    before.assert_untouched();
    let run_plan = |more: &[&str]| said(&[&["trim", "--yes", "--plan", text(&file)], more, &[text(&image)]].concat());
    run_plan(&["-n"]).expect(0, &[]);
    run_plan(&["--min-extent", "1M"]).expect(3, &["the plan is not the one in", text(&file)]);
    before.assert_untouched();

    // Another file on the volume, one less, another length of the image: each is another plan.
    let good = std::fs::read(&image).expect("the image");
    for change in ["mcopy -i \"$1\" /proc/self/status ::new", "mdel -i \"$1\" ::file01", "truncate -s +1M \"$1\""] {
        crate::common::tool_ok("sh", &["-c", change, "sh", text(&image)]);
        let changed = Snapshot::take(&image);
        run_plan(&[]).expect(3, &["the plan is not the one in"]);
        changed.assert_untouched();
        std::fs::write(&image, &good).expect("room");
    }
    let plan = plan_of(&image, &[]);
    let before = Snapshot::take(&image);
    run_plan(&[]).expect(0, &["discarded:"]);
    before.assert_only_discarded(&plan);
}

#[test]
fn a_file_that_is_no_plan_is_no_plan() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = fat(folder.path(), "a.img");
    let before = Snapshot::take(&image);
    let file = folder.path().join("plan.json");
    std::fs::write(&file, "{}").expect("room");
    said(&["trim", "--yes", "--plan", text(&file), text(&image)]).expect(3, &["no plan of coldtrim"]);
    said(&["trim", "--yes", "--plan", "/nonexistent/plan", text(&image)]).expect(1, &["/nonexistent/plan"]);
    said(&["trim", "--yes", "--save-plan", "/nonexistent/plan", text(&image)]).expect(1, &["/nonexistent/plan"]);
    said(&["trim", "--yes", "--log", "/nonexistent/log", text(&image)]).expect(1, &["/nonexistent/log"]);
    before.assert_untouched();
}

/// Ranges that a log says were taken.
fn logged(log: &Path) -> Vec<(u64, u64)> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    // A line that a killed program left half written says nothing.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let ranges = whole.lines().flat_map(|line| {
        let (answer, ranges) = line.split_once('\t').expect("an answer and its ranges");
        assert!(answer.starts_with("taken"), "{line}");
        ranges.split(' ')
    });
    let number = |text: &str| text.parse::<u64>().expect("a number");
    ranges.map(|range| range.split_once('+').expect("start and length")).map(|(s, l)| (number(s), number(l))).collect()
}

#[test]
fn the_log_has_every_command() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let plan = plan_of(&image, &[]);
    let log = folder.path().join("log");
    let run = said(&["trim", "--yes", "--json", "--log", text(&log), text(&image)]);
    let report = run.expect(0, &[]).json();
    assert_eq!(logged(&log), plan);
    assert_eq!(report["outcome"]["commands"], std::fs::read_to_string(&log).expect("a log").lines().count());
}

#[test]
fn the_rate_is_kept() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = fat(folder.path(), "a.img");
    let total = bytes(&plan_of(&image, &[]));
    let rate = total / 2;
    let started = Instant::now();
    let run = said(&["trim", "--yes", "--progress", "json", "--max-rate", &rate.to_string(), text(&image)]);
    run.expect(0, &["discarded:"]);
    assert!(started.elapsed() >= Duration::from_millis(1800), "{:?}", started.elapsed());
    let last = run.err.lines().last().expect("a line of progress");
    let last: serde_json::Value = serde_json::from_str(last).expect("each line is JSON");
    assert_eq!((last["bytes"].as_u64(), last["total_bytes"].as_u64()), (Some(total), Some(total)));
    assert!(last["commands"].as_u64() >= Some(10), "no command is larger than a tenth of a second's worth: {last}");
}

/// A trim of a FAT volume that takes minutes, after its first commands.
struct Slow {
    folder: tempfile::TempDir,
    image: PathBuf,
    plan: Vec<(u64, u64)>,
    before: Snapshot,
    child: Child,
}

impl Slow {
    fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let image = fat(folder.path(), "a.img");
        let plan = plan_of(&image, &[]);
        let before = Snapshot::take(&image);
        let log = folder.path().join("log");
        // Under nohup and the like this test itself may have been told to ignore signals.
        let child = Command::new("env")
            .args([
                "--default-signal",
                PROGRAM,
                "trim",
                "--yes",
                "--max-rate",
                "100K",
                "--log",
                text(&log),
                text(&image),
            ])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("coldtrim runs");
        let mut slow = Self { folder, image, plan, before, child };
        let started = Instant::now();
        while slow.logged().len() < 3 {
            let ended = slow.child.try_wait().expect("its state");
            assert!(ended.is_none() && started.elapsed() < Duration::from_secs(60), "it began: {ended:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        slow
    }

    fn logged(&self) -> Vec<(u64, u64)> {
        logged(&self.folder.path().join("log"))
    }

    /// Sends a signal and waits for the end.
    fn end(mut self, signal: Signal) -> (Ended, Said) {
        let id = i32::try_from(self.child.id()).expect("a process number");
        kill(Pid::from_raw(id), signal).expect("it is there");
        let sent = Instant::now();
        while self.child.try_wait().expect("its state").is_none() {
            if sent.elapsed() > Duration::from_secs(30) {
                let _ = self.child.kill();
                panic!("it did not end within 30 s of {signal}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let done = self.logged();
        let Self { folder, image, plan, before, child } = self;
        let said = child.wait_with_output().expect("its output").into();
        (Ended { folder, image, plan, before, done }, said)
    }
}

struct Ended {
    #[allow(dead_code)] // removed when dropped
    folder: tempfile::TempDir,
    image: PathBuf,
    plan: Vec<(u64, u64)>,
    before: Snapshot,
    done: Vec<(u64, u64)>,
}

impl Ended {
    /// Runs again, to the end.
    fn complete(&self) {
        said(&["trim", "--yes", text(&self.image)]).expect(0, &["discarded:"]);
        self.before.assert_only_discarded(&self.plan);
        check_fat(&self.image, 0);
    }
}

#[test]
fn an_interrupted_run_says_what_is_done_and_a_second_one_completes_it() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let (ended, run) = Slow::start(&[]).end(signal);
        let done = bytes(&ended.done);
        run.expect(130, &["discarded:", "interrupted", "run the same command again"]);
        assert!(run.out.replace(',', "").contains(&format!("({done} bytes)")), "{done}: {run:#?}");
        assert!(done < bytes(&ended.plan));
        ended.before.assert_only_discarded(&ended.done);
        ended.complete();
    }
}

/// A look at an image does not end the run of another coldtrim on it.
#[test]
fn a_second_run_on_the_same_image_is_refused_and_disturbs_nobody() {
    let run = Slow::start(&[]);
    for args in [&["map"][..], &["trim", "--yes"]] {
        said(&[args, &[text(&run.image)]].concat()).expect(3, &["locked by process"]);
    }
    let so_far = run.logged().len();
    while run.logged().len() <= so_far {
        std::thread::sleep(Duration::from_millis(50));
    }
    let (ended, run) = run.end(Signal::SIGINT);
    run.expect(130, &["interrupted"]);
    ended.complete();
}

#[test]
fn an_interrupted_run_leaves_a_whole_json_object() {
    let (ended, run) = Slow::start(&["--json"]).end(Signal::SIGINT);
    let report = run.expect(130, &[]).json();
    assert_eq!(report["exit_code"], 130);
    assert_eq!(report["outcome"]["bytes"], bytes(&ended.done));
    assert_eq!(report["outcome"]["commands"], ended.done.len());
    ended.complete();
}

#[test]
fn a_killed_run_has_lost_nothing_and_a_second_one_completes_it() {
    let (ended, run) = Slow::start(&[]).end(Signal::SIGKILL);
    assert_eq!(run.code, None, "it was killed: {run:#?}");
    // The command that was under way may be done without having been logged.
    let next = ended.plan[..=ended.done.len()].to_vec();
    let either = ended.before.compare(&ended.done).or_else(|_| ended.before.compare(&next));
    assert_eq!(either, Ok(()));
    check_fat(&ended.image, 0);
    ended.complete();
}
