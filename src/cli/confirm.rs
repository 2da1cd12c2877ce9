//! The question before anything is discarded.

use super::Ending;
use std::io::{BufRead, IsTerminal, Write};

/// Asks on a terminal. `Ok` to go on; an ending when the answer was no, or when nobody can answer.
pub fn ask(question: &str, yes: bool) -> Result<(), Ending> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        eprintln!("coldtrim: this needs an answer, and standard input is no terminal; to go on without asking: --yes");
        return Err(Ending::Usage);
    }
    eprint!("{question} Type yes to go on: ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    if read.is_ok() && answer.trim().eq_ignore_ascii_case("yes") {
        return Ok(());
    }
    eprintln!("Nothing was sent to any device.");
    Err(Ending::Stopped)
}
