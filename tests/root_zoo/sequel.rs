//! What comes after the two runs on every bridge: a loss of power, and bridges on which one command must end in one way.

use super::common::full;
use super::lab::{Lab, Output, Status};
use super::table::{Case, Row, TUNNELS};
use super::{COLDTRIM, drive, node, tail, valid};
use std::time::Duration;

/// A run ends by itself with these words, and sends nothing that it must not.
pub fn ended_as_it_must(case: &Case, output: &Output, state: &str) -> Result<String, String> {
    let wrong = |what: &str| Err(format!("{}: {what}\n{output}\n{}\n", case.name, tail(state)));
    let told = case.words.iter().find(|words| output.stdout.contains(**words));
    let Some(told) = told.filter(|_| output.status == Status::Exited(case.exit)) else {
        return wrong(&format!("expected exit code {} and {:?}", case.exit, case.words));
    };
    if output.stdout.contains("may be damaged") {
        return wrong("harm is told where there was none");
    }
    valid(case.name, &output.stdout)?;
    let events: Vec<&str> = state.lines().filter_map(|line| line.strip_prefix("log ")).collect();
    let has = |events: &[&str], opcode: &str| events.iter().any(|line| line.starts_with(opcode));
    let is_tunnel = TUNNELS.iter().any(|tunnel| tunnel.name == case.name);
    let event = events.iter().position(|line| line.starts_with("left") || line.starts_with("told"));
    match event {
        // Behind a SATA bridge the first byte of JMicron's commands is an ATA command, and their second byte a reset.
        None if is_tunnel && has(&events, "a1") != case.bridge.tunnel => {
            wrong("the maker's own command was sent, or not")
        }
        None if is_tunnel => Ok(format!("| {} | {} | {} |", case.about, told, case.exit)),
        None => wrong("nothing happened to the bridge"),
        Some(at) if has(&events[at..], "42") || !has(&events[..at], "42") => {
            wrong("a discard was sent afterwards, or none before")
        }
        Some(_) => Ok(format!("| {} | {} | {} |", case.about, told, case.exit)),
    }
}

/// The second half of a test, after the power was off: refused before that and on a disk of another size.
pub fn after_power(lab: &Lab, row: &Row, bytes: usize) -> Result<Option<String>, String> {
    let Some(expected) = row.after_power else { return Ok(None) };
    let sectors = u64::try_from(bytes).map_err(|e| e.to_string())? / drive::SECTOR;
    let unit = Plugged { lab, name: row.name };
    unit.leave_a_pattern()?;
    // What is refused is refused before anything is asked of the bridge, so one shows it for all.
    let is_good = row.name == "good-unmap";
    if is_good {
        unit.is_refused("has not been away")?;
        unit.plug(sectors - 2048)?;
        unit.is_refused("size is")?;
    }
    unit.plug(sectors)?;
    let code = if expected == "unstable" { 3 } else { 0 };
    unit.resumes(expected, code)?;
    if is_good {
        unit.is_refused("no test of this device waits")?;
    }
    if is_good && full() {
        unit.leave_a_pattern()?;
        unit.plug(sectors)?;
        let _ = lab.run_ok(&format!(
            "mkdir -p /run/between && mount {} /run/between && cp /bin/sh /run/between/new && umount /run/between",
            node(lab, row.name)
        ));
        unit.resumes("inconclusive", 3)?;
    }
    Ok(Some(format!("| {}, looked at after a loss of power | {expected} | {code} |", row.about)))
}

/// A bridge that can be plugged in again.
struct Plugged<'a> {
    lab: &'a Lab,
    name: &'a str,
}

impl Plugged<'_> {
    fn probe(&self, what: &str) -> Result<(Output, serde_json::Value), String> {
        let node = node(self.lab, self.name);
        let output = self.lab.run(&format!("{COLDTRIM} probe --test {what} --yes --json --settle 0 {node}"));
        let answer = valid(self.name, &output.stdout)?;
        Ok((output, answer))
    }

    fn wrong(&self, what: &str, output: &Output) -> Result<(), String> {
        Err(format!("{}: {what}\n{output}\n", self.name))
    }

    fn leave_a_pattern(&self) -> Result<(), String> {
        let (output, answer) = self.probe("--power-cycle --via unmap --budget 4M")?;
        if output.status == Status::Exited(0) && answer["test"]["waiting"].is_object() {
            return Ok(());
        }
        self.wrong("--power-cycle left nothing", &output)
    }

    fn is_refused(&self, words: &str) -> Result<(), String> {
        let (output, _) = self.probe("--resume")?;
        if output.status == Status::Exited(3) && format!("{}{}", output.stdout, output.stderr).contains(words) {
            return Ok(());
        }
        self.wrong(&format!("--resume should have been refused because '{words}'"), &output)
    }

    fn resumes(&self, verdict: &str, code: i32) -> Result<(), String> {
        let (output, answer) = self.probe("--resume")?;
        if answer["test"]["routes"][0]["verdict"] == verdict && output.status == Status::Exited(code) {
            return Ok(());
        }
        self.wrong(&format!("expected '{verdict}' of --resume and exit code {code}"), &output)
    }

    /// Plugs it in again, with so many sectors behind it.
    fn plug(&self, sectors: u64) -> Result<(), String> {
        let file = |kind: &str| self.lab.share.join(format!("{}.{kind}", self.name));
        let written = std::fs::write(file("plug-part"), sectors.to_string());
        written.and_then(|()| std::fs::rename(file("plug-part"), file("plug"))).map_err(|e| e.to_string())?;
        for _ in 0..1200 {
            if !file("plug").exists() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(format!("{} was not plugged in again", self.name))
    }
}
