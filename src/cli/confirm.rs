//! The question before anything is discarded.

use crate::target::wait_for_input;
use std::io::{BufRead, IsTerminal, Write};
use std::sync::atomic::AtomicBool;

/// Why a run does not begin.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// There is nobody to ask.
    #[error("this needs an answer, and standard input is no terminal; to go on without asking: --yes")]
    NoTerminal,
    /// The answer was not yes.
    #[error("Nothing was sent to any device: the answer was not yes")]
    No,
}

/// Asks on a terminal, unless the answer was given beforehand.
pub fn ask(question: &str, yes: bool, stop: &AtomicBool) -> Result<(), Unanswered> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Unanswered::NoTerminal);
    }
    let question = coldtrim_parsers::text::printable(question);
    let _ = write!(std::io::stderr(), "{question} Type yes to go on: ");
    let _ = std::io::stderr().flush();
    if !wait_for_input(stop) {
        return Err(Unanswered::No);
    }
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    if read.is_ok() && answer.trim().eq_ignore_ascii_case("yes") { Ok(()) } else { Err(Unanswered::No) }
}
