//! From evidence to a verdict and a sentence that would survive a sceptic.

use super::experiment::{Effect, Findings, Yardstick};
use super::pass::{Pass, Stage};
use crate::verify::Verdict;

/// Everything that was seen.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// What the canary showed: does the right place change, and only that?
    pub canary: Option<&'a Verdict>,
    /// What was measured.
    pub findings: Option<&'a Findings>,
    /// What was found changed that nothing should have changed.
    pub harm: Option<&'a str>,
}

/// A verdict with what it rests upon.
#[derive(Debug, Clone, PartialEq)]
pub struct Conclusion {
    /// The verdict.
    pub verdict: Verdict,
    /// The rung of the ladder of evidence that it stands on: 0 nothing, 1 the command was taken, 2 the right place
    /// changed, 3 reads got faster, 4 speed or cache came back.
    pub rung: u8,
    /// The whole in a sentence or two.
    pub sentence: String,
}

/// What follows from the evidence. `works` is never said of a drive that only took the command: something must have
/// changed where it should, reads must have become faster, or speed must have come back beyond the control.
pub fn conclude(evidence: &Evidence<'_>) -> Conclusion {
    let speed = evidence.findings.map_or_else(String::new, speed_sentence);
    let with = |verdict, rung, what: &str| {
        let sentence = [what, &speed].iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(" ");
        Conclusion { verdict, rung, sentence }
    };
    if let Some(harm) = evidence.harm {
        let verdict = Verdict::Harmful(harm.to_owned());
        return with(verdict, 2, "Something changed that must not change; do not use this way of discarding.");
    }
    if let Some(bad @ (Verdict::Harmful(_) | Verdict::Rejected(_) | Verdict::Unstable(_))) = evidence.canary {
        let rung = if matches!(bad, Verdict::Rejected(_)) { 0 } else { 2 };
        return with(bad.clone(), rung, "The trial in free space failed, so nothing was measured.");
    }
    let seen = evidence.canary.filter(|verdict| matches!(verdict, Verdict::Works { .. }));
    let effect = evidence.findings.map(|findings| findings.effect);
    let faster_reads = evidence.findings.and_then(|findings| findings.latency).is_some_and(|latency| latency.effect);
    match (seen, effect) {
        (seen, Some(effect)) if effect.is_gain() => {
            let verdict = seen.cloned().unwrap_or(Verdict::Works { zeroes: false });
            with(verdict, 4, "TRIM works here, and it was worth it.")
        }
        (Some(verdict), _) => {
            let rung = if faster_reads { 3 } else { 2 };
            with(verdict.clone(), rung, "TRIM works here: what was discarded changed, and nothing else did.")
        }
        (None, _) if faster_reads => with(
            Verdict::Works { zeroes: false },
            3,
            "TRIM works here: discarded blocks are read faster, although they still hold the old data.",
        ),
        (None, Some(Effect::NoEffect | Effect::Slower)) => {
            with(Verdict::NoEvidence, 1, "The command is taken, and nothing at all was seen to come of it.")
        }
        (None, effect) => {
            let why = match effect {
                None => "nothing was measured",
                Some(Effect::NothingToGain) => {
                    "the drive shows no sign of having been slowed down, so nothing could come back"
                }
                Some(Effect::SelfRepair) => {
                    "the drive repaired itself while it was measured, which hides what TRIM does"
                }
                Some(_) => "not measurable within the budget",
            };
            with(Verdict::Inconclusive(why.to_owned()), 1, "Whether TRIM works here is not known.")
        }
    }
}

/// What the passes say, with numbers.
fn speed_sentence(findings: &Findings) -> String {
    let pass = |stage| findings.pass(stage);
    let (Some(before), Some(sham), Some(after)) =
        (pass(Stage::Before), pass(Stage::Sham), pass(Stage::Later).or(pass(Stage::Treatment)))
    else {
        return String::new();
    };
    if findings.effect == Effect::NotMeasurable {
        let why = match findings.doubts.as_slice() {
            [] if !sham.steady && !sham.sequential => "the speed never became steady within the budget",
            [] => "the passes do not tell within the budget",
            [first, ..] => first,
        };
        return format!("What it does to the speed could not be measured: {why}.");
    }
    let (name, value): (&str, fn(&Pass) -> String) = match findings.yardstick {
        Yardstick::FastBytes => ("Bytes that can be written fast", fast),
        Yardstick::Scattered => ("Small scattered writes", |pass| format!("{}/s", size(pass.speed()))),
    };
    format!(
        "{name}: {} before, {} after a pause of {:.0} s without TRIM, {} after TRIM and the same pause{}.",
        value(before),
        value(sham),
        findings.pause,
        value(after),
        factor(findings)
    )
}

fn factor(findings: &Findings) -> String {
    match findings.gain {
        None => String::new(),
        Some(gain) if findings.at_least => format!(" (at least x{:.1})", gain.low),
        Some(gain) => format!(" (x{:.2}, 95 % between {:.2} and {:.2})", gain.value, gain.low, gain.high),
    }
}

fn fast(pass: &Pass) -> String {
    match pass.cache() {
        Some(knee) => size(knee.bytes),
        None => format!("all of {}", size(super::stats::real(pass.bytes))),
    }
}

/// Bytes in decimal units, as drives are sold.
fn size(bytes: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes / unit),
        None => format!("{bytes:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(effect: Effect) -> Findings {
        Findings {
            yardstick: Yardstick::Scattered,
            passes: Vec::new(),
            pause: 15.0,
            pause_after: 15.0,
            gain: None,
            at_least: false,
            by_itself: None,
            latency: None,
            effect,
            doubts: Vec::new(),
            written: 0,
        }
    }

    fn word(canary: Option<Verdict>, effect: Option<Effect>) -> (String, u8) {
        let findings = effect.map(findings);
        let said = conclude(&Evidence { canary: canary.as_ref(), findings: findings.as_ref(), harm: None });
        (said.verdict.to_string(), said.rung)
    }

    #[test]
    fn works_is_said_only_where_something_changed() {
        let works = || Some(Verdict::Works { zeroes: true });
        let silent = || Some(Verdict::NoEvidence);
        let said = |canary, effect| word(canary, Some(effect));
        assert_eq!(said(works(), Effect::Gain), ("works (zeroes)".to_owned(), 4));
        assert_eq!(said(works(), Effect::NotMeasurable), ("works (zeroes)".to_owned(), 2));
        assert_eq!(said(works(), Effect::NoEffect), ("works (zeroes)".to_owned(), 2));
        assert_eq!(said(silent(), Effect::PartGain), ("works (content undefined)".to_owned(), 4));
        assert_eq!(said(None, Effect::Gain), ("works (content undefined)".to_owned(), 4));
        for effect in [Effect::NoEffect, Effect::Slower] {
            assert_eq!(said(silent(), effect), ("no evidence".to_owned(), 1));
        }
        for effect in [Effect::SelfRepair, Effect::NothingToGain, Effect::NotMeasurable] {
            assert_eq!(said(silent(), effect), ("inconclusive".to_owned(), 1), "{effect:?}");
        }
        assert_eq!(word(silent(), None), ("inconclusive".to_owned(), 1));
    }

    #[test]
    fn harm_comes_before_everything() {
        let (canary, findings) = (Verdict::Works { zeroes: true }, findings(Effect::Gain));
        let evidence = Evidence { canary: Some(&canary), findings: Some(&findings), harm: Some("block 7 changed") };
        assert_eq!(conclude(&evidence).verdict, Verdict::Harmful("block 7 changed".to_owned()));
        let harmful = Verdict::Harmful("a guard changed".to_owned());
        let evidence = Evidence { canary: Some(&harmful), findings: Some(&findings), harm: None };
        assert_eq!(conclude(&evidence).verdict, harmful);
        assert_eq!(word(Some(Verdict::Rejected("5/20".to_owned())), None), ("rejected".to_owned(), 0));
    }
}
