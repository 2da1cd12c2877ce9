//! The command line: words become a checked `Job`, each verb is one file, and one place maps endings to exit codes.

/// A line on standard error, safe for a terminal. That nobody can hear it any more is no reason to stop.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let line = coldtrim_parsers::text::printable(&format!($($words)*));
        let _ = writeln!(std::io::stderr(), "{line}");
    }};
}

mod args;
mod arrays;
mod below;
mod confirm;
mod demo;
mod device;
mod interrupt;
mod job;
mod layout;
mod list;
mod map;
mod past;
mod probe;
mod routes;
mod saved_plan;
mod settle;
mod size;
mod survey;
mod trial;
mod trim;
mod verify;

use crate::report::Report;
use anyhow::Context;
use args::Cli;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use coldtrim_parsers::text::quoted;
use job::{Job, Output};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// How a run ended, as the exit code says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Done, all of it, or nothing to do.
    Done = 0,
    /// I/O error, no permission, internal error.
    Failed = 1,
    /// Wrong usage, or a question and nobody to answer it.
    Usage = 2,
    /// Refused for safety.
    Refused = 3,
    /// The device has no working way to discard.
    NoRoute = 4,
    /// Some volumes or ranges refused or failed, the rest done.
    Partly = 5,
    /// The verdict of a test: harmful, or no evidence in spite of a promise.
    Disproved = 6,
    /// The user said no, or interrupted.
    Stopped = 130,
}

impl Ending {
    /// The exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::NoRoute => 4,
            Self::Partly => 5,
            Self::Disproved => 6,
            Self::Stopped => 130,
        }
    }

    /// A run that is done but could not say so has failed.
    fn unless_untold(self, told: bool) -> Self {
        if self == Self::Done && !told { Self::Failed } else { self }
    }
}

/// The command as clap knows it, for completions and the man page.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses, runs, prints the error chain once.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(misunderstood(&error).code()),
    };
    let output = Output::new(&cli.output);
    let ending = match cli.command {
        None => no_command(),
        Some(command) => {
            let verb = command.name();
            let done = Job::new(command, &output).map_err(anyhow::Error::from).and_then(|job| run(job, &output));
            done.unwrap_or_else(|error| report_error(verb, &error, &output))
        }
    };
    ExitCode::from(ending.code())
}

fn run(job: Job, output: &Output) -> anyhow::Result<Ending> {
    match job {
        Job::List(devices) => list::run(&devices, output),
        Job::Map(scope, format, picture) => map::run(&scope, format, picture.as_deref(), output),
        Job::Trim(job) => trim::run(&job, output),
        Job::Verify(job) => verify::run(&job, output),
        Job::Probe { device, anonymous, vendor_id, test } => {
            probe::run(&device, anonymous, vendor_id, test.as_ref(), output)
        }
        Job::Demo { keep, fs } => demo::run(keep.as_deref(), fs.as_deref(), output),
        Job::Completions(shell) => completions(shell),
    }
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<Ending> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "coldtrim", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(Ending::Done)
}

/// Words that are no command line, or that ask for help: what clap has to say, and an object where one was asked for.
fn misunderstood(error: &clap::Error) -> Ending {
    let _ = error.print();
    if !error.use_stderr() {
        return Ending::Done;
    }
    if let Some(path) = stray_target(error) {
        say!("{path} is there, but it is no command. What is free on it: coldtrim map {path}");
    }
    let words: Vec<_> = std::env::args_os().skip(1).take_while(|word| word != "--").collect();
    if words.iter().any(|word| word == "--json") {
        let verb = words.iter().find_map(|word| args::VERBS.iter().find(|verb| word == **verb));
        let text = error.render().to_string();
        let text = text.trim().strip_prefix("error: ").unwrap_or(&text).to_owned();
        print_failure(verb.unwrap_or(&"coldtrim"), text, Ending::Usage);
    }
    Ending::Usage
}

/// A word in place of a verb that names something to look at.
fn stray_target(error: &clap::Error) -> Option<String> {
    let word = match error.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(word) if error.kind() == ErrorKind::InvalidSubcommand => word,
        _ => return None,
    };
    std::path::Path::new(word).exists().then(|| quoted(word))
}

/// The object for programs about a run that never came to its report.
fn print_failure(verb: &'static str, error: String, ending: Ending) {
    let mut report = Report::new(verb);
    report.errors.push(error);
    report.exit_code = ending.code();
    let _ = print_json(&report);
}

/// Nothing was asked for: help on a terminal; elsewhere that is a mistake.
fn no_command() -> Ending {
    let mut command = command();
    if std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        let _ = command.print_long_help();
        return Ending::Done;
    }
    let _ = write!(std::io::stderr(), "{}", command.render_help());
    Ending::Usage
}

/// Prints an error with its causes. A reader that closed our output (`| head`) has seen what it wanted to see.
fn report_error(verb: &'static str, error: &anyhow::Error, output: &Output) -> Ending {
    let closed_pipe = error.chain().any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
            || cause
                .downcast_ref::<serde_json::Error>()
                .is_some_and(|json| json.io_error_kind() == Some(std::io::ErrorKind::BrokenPipe))
    });
    if closed_pipe {
        return Ending::Done;
    }
    let ending = survey::ending_of(error);
    say!("coldtrim: {error:#}");
    if output.json {
        print_failure(verb, format!("{error:#}"), ending);
    }
    ending
}

/// A file for our own words. Never one that is there: it could be the very disk that is being looked at.
fn new_file(path: &std::path::Path) -> anyhow::Result<std::fs::File> {
    std::fs::File::create_new(path)
        .with_context(|| format!("cannot create {} (a file that exists is never overwritten)", path.display()))
}

/// One JSON object on standard output.
fn print_json(value: &impl serde::Serialize) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)
}
