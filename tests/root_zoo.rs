//! The bridge zoo: enclosures that lie, as USB devices under the kernel's own drivers in the lab. This program is both
//! sides: called with `serve`, inside the guest, it is the bridges; else it is the tests.

#[path = "root_zoo/bridge.rs"]
mod bridge;
mod common;
#[path = "root_zoo/drive.rs"]
mod drive;
#[allow(clippy::duplicate_mod)] // the lab and the images each bring the module that compares files
#[path = "common/images.rs"]
mod images;
#[path = "common/lab/mod.rs"]
mod lab;
#[path = "root_zoo/sequel.rs"]
mod sequel;
#[path = "root_zoo/server.rs"]
mod server;
#[path = "root_zoo/table.rs"]
mod table;
#[path = "root_zoo/usbip.rs"]
mod usbip;

use lab::{Lab, Running, Status};
use libtest_mimic::{Arguments, Failed, Trial};
use sequel::{after_power, ended_as_it_must};
use std::path::Path;
use std::time::{Duration, Instant};
use table::{Case, LEAVERS, ROWS, Row, TUNNELS};

const COLDTRIM: &str = env!("CARGO_BIN_EXE_coldtrim");

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let [_, verb, image, folder, names @ ..] = &words[..]
        && verb == "serve"
    {
        return server::serve(image, Path::new(folder), names);
    }
    let trial = Trial::test("root_zoo_of_bridges", || zoo().map_err(Failed::from)).with_ignored_flag(true);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
}

/// More than all bridges take on a busy machine: so long they are served.
const LONGEST: Duration = Duration::from_secs(5000);

/// Bridges that are tried at the same time: more of them fill the guest's memory.
const AT_ONCE: usize = 4;

/// One of every kind of behaviour, which every run tries.
const ALWAYS: &[&str] = &["good-unmap", "forgets", "ignores", "rejects", "sat-shifted", "resets", "4096-over-512"];

/// All bridges in a full run; those that COLDTRIM_ZOO names; else one of every kind and two others, one of them harmful.
fn rows() -> Vec<&'static Row> {
    let only = std::env::var("COLDTRIM_ZOO").unwrap_or_default();
    let named = |row: &&Row| only.split_whitespace().any(|name| name == row.name);
    if common::full() || !only.is_empty() {
        return ROWS.iter().filter(|row| only.is_empty() || named(row)).collect();
    }
    let mut rng = common::Rng(common::seed("root_zoo"));
    let mut any = |harmful: bool| {
        let others: Vec<&Row> =
            ROWS.iter().filter(|row| !ALWAYS.contains(&row.name) && (row.verdict == "harmful") == harmful).collect();
        rng.pick(&others).name
    };
    let chosen = [any(true), any(false)];
    ROWS.iter().filter(|row| ALWAYS.contains(&row.name) || chosen.contains(&row.name)).collect()
}

/// A row of a published table, or what is not as expected.
type Line = Result<String, String>;

fn zoo() -> Result<(), String> {
    let rows = rows();
    let cases = cases();
    let names: Vec<&str> = rows.iter().map(|row| row.name).chain(cases.iter().map(|case| case.name)).collect();
    let lab = Lab::boot(&[])?;
    let image = images::ext4_of(&lab.share, "zoo.raw", 64);
    let free = common::map_ranges(&image);
    let bytes = std::fs::read(&image).map_err(|e| e.to_string())?;
    let _ = lab.run_ok("modprobe vhci_hcd");
    let size = bytes.len();
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let serve = format!("exec {} serve /lab/zoo.raw /lab {}", program.display(), names.join(" "));
    let server = lab.start_within(&serve, LONGEST);
    wait_for(&lab.share.join("ready"), &server)?;
    let since = Instant::now();
    let (mut results, mut sequels): (Vec<Line>, Vec<Line>) = Default::default();
    for group in rows.chunks(AT_ONCE) {
        let runs: Vec<Running<'_>> = group.iter().map(|row| lab.start(&commands(&lab, row))).collect();
        for (row, run) in group.iter().zip(runs) {
            let output = run.wait();
            let judged = state(&lab, row.name, &server).and_then(|state| {
                probe_is_valid(&lab, row)?;
                let tested = tested(&lab, row)?;
                remembered(&lab, row)?;
                judge(row, &output, &state, &free, &bytes).map(|line| line.replacen('|', &format!("| {tested} |"), 1))
            });
            results.push(judged);
        }
        std::thread::scope(|scope| {
            let lab = &lab;
            let all: Vec<_> = group.iter().map(|row| scope.spawn(move || after_power(lab, row, size))).collect();
            sequels.extend(all.into_iter().filter_map(|one| one.join().expect("no panic").transpose()));
        });
    }
    let left = run_cases(&lab, &cases, &server, &free);
    println!("{} bridges in {:.0?}", rows.len() + cases.len(), since.elapsed());
    println!("| `probe --test` | bridge | verdict of `trim` | evidence | exit |\n| --- | --- | --- | --- | --- |");
    let mut wrong = String::new();
    for result in results
        .into_iter()
        .chain([Ok("\n| bridge | what was told | exit |\n| --- | --- | --- |".to_owned())])
        .chain(sequels)
        .chain(left)
    {
        match result {
            Ok(line) => println!("{line}"),
            Err(why) => wrong += &why,
        }
    }
    server.signal(9);
    let _ = server.wait();
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// Bridges with one command each, side by side.
fn run_cases(lab: &Lab, cases: &[&Case], server: &Running<'_>, free: &[(u64, u64)]) -> Vec<Line> {
    let runs: Vec<Running<'_>> = cases
        .iter()
        .map(|case| lab.start(&format!("exec {COLDTRIM} {} {}", case.command, node(lab, case.name))))
        .collect();
    cases
        .iter()
        .zip(runs)
        .map(|(case, run)| {
            let output = run.wait();
            let state = state(lab, case.name, server)?;
            used_is_kept(case.name, &state, free)?;
            ended_as_it_must(case, &output, &state)
        })
        .collect()
}

/// Those with one command each: all in a full run, else one of every kind.
fn cases() -> Vec<&'static Case> {
    let only = std::env::var("COLDTRIM_ZOO").unwrap_or_default();
    let named = |name: &str| only.split_whitespace().any(|wanted| wanted == name);
    let sample = |name: &str| ["renamed", "shrinks", "late", "jmicron", "jmicron-sata"].contains(&name);
    let is_chosen = |name: &str| if only.is_empty() { common::full() || sample(name) } else { named(name) };
    LEAVERS.iter().chain(TUNNELS).filter(|case| is_chosen(case.name)).collect()
}

fn node(lab: &Lab, name: &str) -> String {
    std::fs::read_to_string(lab.share.join(format!("{name}.node"))).expect("a note from the server")
}

fn commands(lab: &Lab, row: &Row) -> String {
    let (node, name) = (node(lab, row.name), row.name);
    let again = if is_asked_again(row) {
        format!("{COLDTRIM} probe --json {node} >/lab/{name}.again 2>&1;")
    } else {
        String::new()
    };
    format!(
        "{COLDTRIM} probe --json --anonymous {node} >/lab/{name}.probe 2>&1; \
         {COLDTRIM} probe --test --yes --json --settle 0 --budget 24M {} {node} >/lab/{name}.test 2>/lab/{name}.errors; \
         echo $? >/lab/{name}.code; \
         {COLDTRIM} trim -n --json --no-witness {} {node} >/lab/{name}.later 2>&1; echo $? >/lab/{name}.later-code; \
         {again} COLDTRIM_STATE=/run/nothing-{name} exec {COLDTRIM} trim --yes --json --no-witness {} {node}",
        row.arguments, row.arguments, row.arguments
    )
}

fn wait_for(path: &Path, server: &Running<'_>) -> Result<(), String> {
    for _ in 0..4000 {
        if path.exists() {
            return Ok(());
        }
        if server.so_far().is_none() {
            return Err("the bridges' server has ended".to_owned());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(format!("{} did not come; {}", path.display(), server.so_far().expect("it runs")))
}

fn state(lab: &Lab, name: &str, server: &Running<'_>) -> Result<String, String> {
    std::fs::write(lab.share.join(format!("{name}.ask")), "").map_err(|e| e.to_string())?;
    let file = lab.share.join(format!("{name}.state"));
    wait_for(&file, server)?;
    std::fs::read_to_string(file).map_err(|e| e.to_string())
}

/// The one object that a command printed, as the published schema has it.
fn valid(name: &str, text: &str) -> Result<serde_json::Value, String> {
    let wrong = |what: &str| format!("{name}: {what}\n{text}\n");
    let schema = serde_json::from_str(include_str!("../schema/coldtrim-1.schema.json")).map_err(|e| e.to_string())?;
    let validator = jsonschema::validator_for(&schema).map_err(|e| e.to_string())?;
    let answer = serde_json::from_str(text).map_err(|_| wrong("not one JSON object"))?;
    let problem = validator.iter_errors(&answer).next().map(|error| format!("{error} at {}", error.instance_path()));
    problem.map_or(Ok(answer), |problem| Err(wrong(&problem)))
}

/// `probe` answered, by the published schema, and kept what it was asked to keep.
fn probe_is_valid(lab: &Lab, row: &Row) -> Result<(), String> {
    let text = std::fs::read_to_string(lab.share.join(format!("{}.probe", row.name))).map_err(|e| e.to_string())?;
    let answer = valid(row.name, &text)?;
    if answer.get("disk").is_none() || text.contains("ZOO-SERIAL") || text.contains(&format!("\"{}\"", row.name)) {
        return Err(format!("{}: no answer, or serial numbers in an anonymous one\n{text}\n", row.name));
    }
    Ok(())
}

/// The verdict of `probe --test` on the route that `trim` takes; it must be the same, and the exit code that of its word.
fn tested(lab: &Lab, row: &Row) -> Result<String, String> {
    let read = |what: &str| std::fs::read_to_string(lab.share.join(format!("{}.{what}", row.name)));
    let (text, code) = (read("test").map_err(|e| e.to_string())?, read("code").map_err(|e| e.to_string())?);
    let wrong = |what: &str| {
        Err(format!("{}: probe --test: {what}: exit {code}{text}{}\n", row.name, read("errors").unwrap_or_default()))
    };
    let Ok(answer) = serde_json::from_str::<serde_json::Value>(&text) else { return wrong("not one JSON object") };
    let routes = answer["test"]["routes"].as_array().cloned().unwrap_or_default();
    let Some(found) = routes.iter().find(|found| found["name"] == row.route) else {
        return if row.route == "-" { Ok("-".to_owned()) } else { wrong("the route was not tested") };
    };
    let expected = match row.verdict {
        "harmful" => "6",
        "rejected" => "4",
        "unstable" => "3",
        _ => "0",
    };
    if found["verdict"] != row.verdict || code.trim() != expected {
        return wrong(&format!("expected '{}' and exit code {expected}", row.verdict));
    }
    Ok(row.verdict.to_owned())
}

/// Whether `probe` must show what was found: on one bridge, or on all in a full run.
fn is_asked_again(row: &Row) -> bool {
    common::full() || row.name == "good-unmap"
}

/// A run after the test knows what the test found, and chooses no route that did harm.
fn remembered(lab: &Lab, row: &Row) -> Result<(), String> {
    let read = |what: &str| {
        let file = lab.share.join(format!("{}.{what}", row.name));
        std::fs::read_to_string(file).map_err(|e| format!("{}.{what}: {e}", row.name))
    };
    let (later, code) = (read("later")?, read("later-code")?);
    let wrong = |what: &str, seen: &str| Err(format!("{}: remembered: {what}\n{seen}\nexit {code}{later}\n", row.name));
    if row.route == "-" {
        return Ok(());
    }
    if is_asked_again(row) {
        let again = read("again")?;
        let answer = valid(row.name, &again)?;
        let known = answer["remembered"].as_array().cloned().unwrap_or_default();
        let ours = known.iter().find(|known| known["this_unit"] == true && known["name"] == row.route);
        if ours.is_none_or(|ours| ours["verdict"] != row.verdict) {
            return wrong("probe does not show the verdict", &again);
        }
    }
    let is_bad = ["harmful", "unstable"].contains(&row.verdict);
    let is_refused = code.trim() == "3" && later.contains("an earlier test on 20");
    let is_told = later.contains(&format!("an earlier test of this unit found {} {}", row.route, row.verdict));
    if is_bad != is_refused || !is_told {
        return wrong("what was found is not heeded, or not told", "");
    }
    Ok(())
}

/// The row of the published table, or what is not as expected.
fn judge(row: &Row, output: &lab::Output, state: &str, free: &[(u64, u64)], image: &[u8]) -> Result<String, String> {
    let wrong = |what: &str| Err(format!("{}: {what}\n{output}\n{}\n", row.name, tail(state)));
    let changed = used_is_kept(row.name, state, free)?;
    if output.status != Status::Exited(row.exit) {
        return wrong(&format!("expected exit code {}", row.exit));
    }
    let report: serde_json::Value = serde_json::from_str(&output.stdout).map_err(|e| format!("{}: {e}", row.name))?;
    let text = |key: &str| report["volumes"][0][key].as_str().unwrap_or("-").to_owned();
    if text("verdict") != row.verdict || text("route") != row.route {
        return wrong(&format!("expected verdict '{}' of route '{}'", row.verdict, row.route));
    }
    // Free sectors that read zero before show nothing, so only the others are looked for.
    let is_changed = |at: u64| changed.iter().any(|(start, length)| (*start..start + length).contains(&at));
    let whole_blocks = common::rounded(free, row.bridge.block * drive::SECTOR);
    let kept = || {
        whole_blocks.iter().flat_map(|(start, length)| (*start..start + length).step_by(512)).find(|at| {
            let at_index = usize::try_from(*at).expect("a 64-bit machine");
            image[at_index..at_index + 512].iter().any(|byte| *byte != 0) && !is_changed(*at)
        })
    };
    if row.all_discarded
        && let Some(at) = kept()
    {
        return wrong(&format!("byte {at} is free and was not discarded"));
    }
    Ok(format!("| {} | {} ({}) | {} | {} |", row.about, text("verdict"), text("route"), text("evidence"), row.exit))
}

/// What changed on the drive, all of which must be free.
fn used_is_kept(name: &str, state: &str, free: &[(u64, u64)]) -> Result<Vec<(u64, u64)>, String> {
    let changed: Vec<(u64, u64)> = state
        .lines()
        .filter_map(|line| line.strip_prefix("changed "))
        .filter_map(|line| line.split_once(' '))
        .map(|(first, count)| (number(first) * drive::SECTOR, number(count) * drive::SECTOR))
        .collect();
    let is_free =
        |(start, length): &(u64, u64)| free.iter().any(|(from, len)| from <= start && start + length <= from + len);
    match changed.iter().find(|range| !is_free(range)) {
        Some((start, length)) => {
            Err(format!("{name}: {length} bytes at byte {start} are in use, and changed\n{}\n", tail(state)))
        }
        None => Ok(changed),
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The last lines of what a bridge has seen.
fn tail(state: &str) -> String {
    let lines: Vec<&str> = state.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}
