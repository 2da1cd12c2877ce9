//! Progress on standard error: a bar, plain lines, JSON lines, or nothing.

use super::human;
use crate::measure::Observer;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::VecDeque;
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

/// A measurement while it runs: what it does, how far it is, how fast the drive is, and how fast it was.
pub struct Live {
    mode: Mode,
    bar: ProgressBar,
    total: u64,
    bytes: u64,
    doing: String,
    /// Since when, and how many bytes ago, the last speed was taken.
    since: (Instant, u64),
    speeds: VecDeque<u64>,
    last_line: Instant,
}

/// How often a speed is taken.
const TAKE: Duration = Duration::from_millis(500);
/// Speeds that are shown.
const SPEEDS: usize = 24;
/// From slow to fast.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

impl Live {
    /// Starts to show a measurement that writes at most `total` bytes.
    pub fn start(mode: Mode, total: u64) -> Self {
        let bar = match mode {
            Mode::Bar => ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr()),
            _ => ProgressBar::hidden(),
        };
        if let Ok(style) =
            ProgressStyle::with_template("{prefix:20} {binary_bytes} of at most {binary_total_bytes} {msg}")
        {
            bar.set_style(style);
        }
        let now = Instant::now();
        Self {
            mode,
            bar,
            total,
            bytes: 0,
            doing: String::new(),
            since: (now, 0),
            speeds: VecDeque::new(),
            last_line: now,
        }
    }

    /// The measurement has ended.
    pub fn finish(self) {
        self.bar.finish_and_clear();
    }

    fn begin(&mut self, doing: &str) {
        self.doing = doing.to_owned();
        self.since = (Instant::now(), self.bytes);
        self.speeds.clear();
        self.bar.set_prefix(doing.to_owned());
        self.line(0);
    }

    fn take(&mut self) {
        let (begin, bytes) = self.since;
        if begin.elapsed() < TAKE {
            return;
        }
        let speed = rate(self.bytes.saturating_sub(bytes), begin.elapsed());
        self.since = (Instant::now(), self.bytes);
        self.speeds.push_back(speed);
        if self.speeds.len() > SPEEDS {
            self.speeds.pop_front();
        }
        self.bar.set_position(self.bytes);
        self.bar.set_message(format!("{} {}/s", sparkline(&self.speeds), human::bytes(speed)));
        if self.last_line.elapsed() >= INTERVAL {
            self.line(speed);
        }
    }

    fn line(&mut self, speed: u64) {
        self.last_line = Instant::now();
        let (bytes, total, doing) = (self.bytes, self.total, &self.doing);
        let text = match self.mode {
            Mode::Plain if speed == 0 => doing.clone(),
            Mode::Plain => format!("{doing}: {} written, {}/s", human::bytes(bytes), human::bytes(speed)),
            Mode::Json => {
                serde_json::json!({ "doing": doing, "bytes": bytes, "most_bytes": total, "bytes_per_second": speed })
                    .to_string()
            }
            Mode::Bar | Mode::Silent => return,
        };
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

impl Observer for Live {
    fn begins(&mut self, what: &str, _most: u64) {
        self.begin(what);
    }

    fn wrote(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.take();
    }

    fn rests(&mut self, _most: f64) {
        self.begin("the drive rests");
    }
}

/// The speeds as a line of bars, the fastest as high as can be.
fn sparkline(speeds: &VecDeque<u64>) -> String {
    let highest = speeds.iter().copied().max().unwrap_or(1).max(1);
    let height = |speed: &u64| {
        let step = u128::from(*speed) * 7 / u128::from(highest);
        usize::try_from(step).ok().and_then(|step| HEIGHTS.get(step)).copied().unwrap_or('█')
    };
    speeds.iter().map(height).collect()
}

/// Bytes a second; a run shorter than the clock's step counts as one millisecond.
fn rate(bytes: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(bytes) * 1000 / time.as_millis().max(1)).unwrap_or(u64::MAX)
}
