//! The command channel to `tests/lab/guest/agent.py`: requests and replies carry a number, so that commands overlap.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long the guest may take to boot: 25 s on an idle machine.
const BOOT: Duration = Duration::from_secs(600);
/// How much longer than its own limit a reply may take before the guest counts as hung.
const GRACE: Duration = Duration::from_secs(60);

/// How a command in the guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// Killed because its time was over.
    TimedOut,
}

/// What a command in the guest left.
#[derive(Debug, Clone)]
pub struct Output {
    pub status: Status,
    pub stdout: String,
    pub stderr: String,
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}\n--- stdout\n{}--- stderr\n{}", self.status, self.stdout, self.stderr)
    }
}

/// A command that runs in the guest.
pub struct Running<'a> {
    channel: &'a Channel,
    command: String,
    since: Instant,
    number: u64,
    limit: Duration,
    reply: Receiver<Output>,
}

impl Running<'_> {
    /// Waits for its end.
    pub fn wait(self) -> Output {
        let output = receive(&self.reply, self.limit).unwrap_or_else(|e| panic!("{e}"));
        trace(self.since, &output, &self.command);
        output
    }

    /// Sends a signal to the command and all it started, as Ctrl-C on a terminal does.
    pub fn signal(&self, signal: i32) {
        let answer = self
            .channel
            .ask("signal", signal.into(), &self.number.to_string(), Duration::ZERO)
            .expect("a guest that answers");
        assert!(answer.status == Status::Exited(0), "signal {signal} could not be sent: {answer}");
    }

    /// What it has printed so far, or `None` when it has ended.
    pub fn so_far(&self) -> Option<Output> {
        let answer =
            self.channel.ask("peek", 0, &self.number.to_string(), Duration::ZERO).expect("a guest that answers");
        Some(answer).filter(|answer| answer.status == Status::Exited(0))
    }
}

type Waiting = Arc<Mutex<HashMap<u64, Sender<Output>>>>;

pub struct Channel {
    writer: Mutex<UnixStream>,
    waiting: Waiting,
    next: AtomicU64,
}

impl Channel {
    /// Returns when the agent is ready, which it says with a reply numbered 0.
    pub fn open(stream: UnixStream) -> Result<Channel, String> {
        let waiting = Waiting::default();
        let (ready, is_ready) = channel();
        lock(&waiting).insert(0, ready);
        let reader = stream.try_clone().map_err(|e| e.to_string())?;
        let replies = Arc::clone(&waiting);
        std::thread::spawn(move || {
            let mut reader = BufReader::new(reader);
            while let Ok((number, output)) = read_reply(&mut reader) {
                if let Some(sender) = lock(&replies).remove(&number) {
                    let _ = sender.send(output); // nobody waits any more
                }
            }
            lock(&replies).clear(); // the guest is gone: wakes all that wait
        });
        receive(&is_ready, BOOT)?;
        Ok(Channel { writer: Mutex::new(stream), waiting, next: AtomicU64::new(1) })
    }

    pub fn start(&self, command: &str, limit: Duration) -> Result<Running<'_>, String> {
        let (number, reply) = self.send("run", limit.as_secs(), command)?;
        Ok(Running { channel: self, command: command.to_owned(), since: Instant::now(), number, limit, reply })
    }

    /// A request that the agent answers itself.
    pub fn ask(&self, verb: &str, argument: i64, body: &str, limit: Duration) -> Result<Output, String> {
        let since = Instant::now();
        let (_, reply) = self.send(verb, argument, body)?;
        let output = receive(&reply, limit)?;
        trace(since, &output, &format!("{verb} {body}"));
        Ok(output)
    }

    fn send(&self, verb: &str, argument: impl fmt::Display, body: &str) -> Result<(u64, Receiver<Output>), String> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = channel();
        lock(&self.waiting).insert(number, sender);
        let request = format!("{number} {verb} {argument} {}\n{body}", body.len());
        lock(&self.writer).write_all(request.as_bytes()).map_err(|e| format!("the guest is gone: {e}"))?;
        Ok((number, receiver))
    }
}

impl Drop for Channel {
    /// The reader holds the stream too, so it must be closed by name for the guest to see it.
    fn drop(&mut self) {
        let _ = lock(&self.writer).shutdown(std::net::Shutdown::Both);
    }
}

fn trace(since: Instant, output: &Output, what: &str) {
    if std::env::var_os("COLDTRIM_LAB_TRACE").is_some() {
        eprintln!("lab: {:.2?} {:?} {what}", since.elapsed(), output.status);
    }
}

fn receive(reply: &Receiver<Output>, limit: Duration) -> Result<Output, String> {
    reply.recv_timeout(limit + GRACE).map_err(|e| match e {
        RecvTimeoutError::Timeout => format!("the guest gave no answer in {:?}", limit + GRACE),
        RecvTimeoutError::Disconnected => "the guest is gone".to_owned(),
    })
}

/// `NUMBER STATUS LENGTH LENGTH\n`, then both outputs.
fn read_reply(reader: &mut impl BufRead) -> io::Result<(u64, Output)> {
    let bad = |line: &str| io::Error::new(io::ErrorKind::InvalidData, line.to_owned());
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let fields: Vec<_> = line.split_whitespace().collect();
    let [number, status, stdout, stderr] = fields[..] else { return Err(bad(&line)) };
    let status = match status.parse::<i32>() {
        Ok(signal) if signal < 0 => Status::Signalled(-signal),
        Ok(code) => Status::Exited(code),
        Err(_) => Status::TimedOut,
    };
    let mut text = |length: &str| -> io::Result<String> {
        let mut bytes = vec![0; length.parse().map_err(|_| bad(&line))?];
        reader.read_exact(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (stdout, stderr) = (text(stdout)?, text(stderr)?);
    Ok((number.parse().map_err(|_| bad(&line))?, Output { status, stdout, stderr }))
}

/// A test that panicked while it held the lock has not broken what it guards.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
