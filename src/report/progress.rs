//! Progress on standard error: a bar, plain lines, JSON lines, or nothing.

use super::human;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;
use std::time::{Duration, Instant};

/// How to show progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A bar that redraws itself.
    Bar,
    /// A line every few seconds.
    Plain,
    /// A JSON object a line.
    Json,
    /// Nothing.
    Silent,
}

/// How often plain and JSON lines come.
const INTERVAL: Duration = Duration::from_secs(2);

/// The progress of one run over a known number of bytes.
pub struct Progress {
    mode: Mode,
    bar: ProgressBar,
    total: u64,
    bytes: u64,
    commands: u64,
    started: Instant,
    last_line: Instant,
}

impl Progress {
    /// Starts to show a run of `total` bytes.
    pub fn start(mode: Mode, what: &str, total: u64) -> Self {
        let bar = match mode {
            Mode::Bar => ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr()),
            _ => ProgressBar::hidden(),
        };
        let template = "{msg} [{bar:30}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} ETA {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_owned());
        let now = Instant::now();
        Self { mode, bar, total, bytes: 0, commands: 0, started: now, last_line: now }
    }

    /// One more command was taken, for `bytes` bytes.
    pub fn advance(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.commands += 1;
        self.bar.set_position(self.bytes);
        if self.last_line.elapsed() >= INTERVAL {
            self.last_line = Instant::now();
            self.line();
        }
    }

    /// The run has ended, whether all was done or not.
    pub fn finish(mut self) {
        self.bar.finish_and_clear();
        if self.bytes > 0 {
            self.line();
        }
        self.mode = Mode::Silent;
    }

    fn line(&self) {
        let rate = rate(self.bytes, self.started.elapsed());
        let eta = self.total.saturating_sub(self.bytes).checked_div(rate);
        let text = match self.mode {
            Mode::Plain => format!(
                "{} of {} in {}, {}/s{}",
                human::bytes(self.bytes),
                human::bytes(self.total),
                human::count(self.commands, "command"),
                human::bytes(rate),
                eta.map_or(String::new(), |eta| format!(", {} left", human::duration(eta)))
            ),
            Mode::Json => serde_json::json!({
                "bytes": self.bytes, "total_bytes": self.total, "commands": self.commands,
                "bytes_per_second": rate, "seconds_left": eta,
            })
            .to_string(),
            Mode::Bar | Mode::Silent => return,
        };
        // Progress is a courtesy: when nobody listens any more the run goes on.
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

/// Bytes a second; a run shorter than the clock's step counts as one millisecond.
fn rate(bytes: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(bytes) * 1000 / time.as_millis().max(1)).unwrap_or(u64::MAX)
}
