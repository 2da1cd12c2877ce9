//! How many of their cases the tests take: a sample, or all with `COLDTRIM_TESTS=full`.

/// The step through a list of cases: `step` in an ordinary run.
#[expect(clippy::disallowed_methods, reason = "tests take their measure from it, parsers never")]
pub fn every(step: u64) -> u64 {
    if std::env::var("COLDTRIM_TESTS").is_ok_and(|value| value == "full") { 1 } else { step }
}
