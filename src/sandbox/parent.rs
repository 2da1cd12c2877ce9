//! The parent's half: starts the reader, feeds it, listens with a limit on everything, and believes nothing.

use super::protocol::{Answer, CHILD_ARGUMENT, Limits, MAX_LAYERS, MAX_REQUEST, Place, Request};
use super::{Reading, SandboxError, SandboxLayer, check};
use coldtrim_parsers::stack::Options;
use coldtrim_parsers::text::printable;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair};
use std::io::{self, IoSlice, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the interrupt flag is looked at while the reader works, in milliseconds.
const TICK: u16 = 100;

/// How much of the reader's last words is kept, in bytes.
const MAX_WORDS: usize = 2000;

/// Reads everything on `layers` in a confined child. `interrupted` is looked at ten times a second.
pub fn read_stack(
    layers: Vec<SandboxLayer>,
    options: &Options,
    interrupted: &AtomicBool,
) -> Result<Reading, SandboxError> {
    let bytes = layers.iter().fold(0_u64, |sum, layer| sum.saturating_add(layer.len));
    read_stack_within(layers, options, interrupted, &Limits::for_bytes(bytes))
}

/// The same with limits of the caller's choice.
pub fn read_stack_within(
    layers: Vec<SandboxLayer>,
    options: &Options,
    interrupted: &AtomicBool,
    limits: &Limits,
) -> Result<Reading, SandboxError> {
    check_layers(&layers)?;
    let places: Vec<Place> = layers
        .iter()
        .map(|layer| Place { offset: layer.offset, len: layer.len, sector_size: layer.sector_size })
        .collect();
    let request = Request {
        nonce: nonce(),
        parent: std::process::id(),
        places: places.clone(),
        options: options.clone(),
        limits: *limits,
    };
    let mut reader = Reader::start()?;
    reader.send(&request, &layers)?;
    let bytes = reader.listen(limits, interrupted)?;
    let answer = decode(&bytes, request.nonce)?;
    let lengths: Vec<u64> = places.iter().map(|place| place.len).collect();
    let stack = check::checked(answer.stack, &lengths).map_err(SandboxError::Nonsense)?;
    Ok(Reading { stack, shortfalls: answer.shortfalls.iter().map(|words| printable(words)).collect() })
}

/// A number that no other run has: bytes that an earlier or a confused child wrote are no answer.
fn nonce() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

fn check_layers(layers: &[SandboxLayer]) -> Result<(), SandboxError> {
    let refuse = |index, reason: String| Err(SandboxError::Layer { index, reason });
    if layers.len() > MAX_LAYERS {
        return refuse(MAX_LAYERS, format!("at most {MAX_LAYERS} devices can be read together"));
    }
    for (index, layer) in layers.iter().enumerate() {
        let flags = fcntl(&layer.file, FcntlArg::F_GETFL)
            .map_err(|errno| SandboxError::Start { step: "given its files", cause: errno.into() })?;
        if OFlag::from_bits_retain(flags) & OFlag::O_ACCMODE != OFlag::O_RDONLY {
            return refuse(index, "it was not opened read-only".to_owned());
        }
        if layer.offset.checked_add(layer.len).is_none() {
            return refuse(index, format!("{} bytes from byte {} pass every end", layer.len, layer.offset));
        }
    }
    Ok(())
}

fn decode(bytes: &[u8], nonce: u64) -> Result<Answer, SandboxError> {
    let (answer, rest) = postcard::take_from_bytes::<Answer>(bytes)
        .map_err(|error| SandboxError::Nonsense(format!("{} bytes do not decode: {error}", bytes.len())))?;
    if !rest.is_empty() {
        return Err(SandboxError::Nonsense(format!("{} bytes are left over", rest.len())));
    }
    if answer.nonce != nonce {
        return Err(SandboxError::Nonsense("it answers another question".to_owned()));
    }
    Ok(answer)
}

/// A running reader. Dropping it kills it.
struct Reader {
    child: Child,
    socket: Option<OwnedFd>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Reader {
    fn start() -> Result<Self, SandboxError> {
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(|errno| SandboxError::Start { step: "given a socket", cause: errno.into() })?;
        let child = Command::new("/proc/self/exe")
            .arg0("coldtrim")
            .arg(CHILD_ARGUMENT)
            .env_clear()
            // One heap for all threads: before glibc gives memory of a second heap back it opens a file of /proc
            // (malloc/arena.c, shrink_heap), and opening files is death in there.
            .env("GLIBC_TUNABLES", "glibc.malloc.arena_max=1")
            .current_dir("/")
            // Its own process group: Ctrl-C reaches the parent alone, which then decides.
            .process_group(0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|cause| SandboxError::Start { step: "started from /proc/self/exe", cause })?;
        Ok(Self { child, socket: Some(ours) })
    }

    fn send(&mut self, request: &Request, layers: &[SandboxLayer]) -> Result<(), SandboxError> {
        let failed = |cause| SandboxError::Start { step: "given its request", cause };
        let bytes = postcard::to_stdvec(request).map_err(|error| failed(io::Error::other(error)))?;
        if bytes.len() > MAX_REQUEST {
            return Err(failed(io::Error::other("it is too long")));
        }
        let descriptors: Vec<RawFd> = layers.iter().map(|layer| layer.file.as_raw_fd()).collect();
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let control = if descriptors.is_empty() { &[][..] } else { &rights[..] };
        if let Some(socket) = self.socket.take() {
            sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(&bytes)], control, MsgFlags::MSG_NOSIGNAL, None)
                .map_err(|errno| failed(errno.into()))?;
        }
        Ok(())
    }

    /// The whole answer of a reader that ended well.
    fn listen(&mut self, limits: &Limits, interrupted: &AtomicBool) -> Result<Vec<u8>, SandboxError> {
        let failed = |cause| SandboxError::Start { step: "listened to", cause };
        let missing = || failed(io::ErrorKind::BrokenPipe.into());
        let mut answer = Pipe::new(self.child.stdout.take().ok_or_else(missing)?, limits.answer);
        let mut words = Pipe::new(self.child.stderr.take().ok_or_else(missing)?, 1 << 20);
        let started = Instant::now();
        while answer.is_open() || words.is_open() {
            if interrupted.load(Ordering::Relaxed) {
                return Err(SandboxError::Interrupted);
            }
            if started.elapsed() > limits.wall {
                return Err(SandboxError::TimedOut(limits.wall));
            }
            wait_for(&answer, &words).map_err(failed)?;
            answer.read().map_err(failed)?;
            words.read().map_err(failed)?;
            if answer.overflowed() {
                return Err(SandboxError::Nonsense(format!("it is longer than {} bytes", limits.answer)));
            }
            if words.overflowed() {
                return Err(SandboxError::Nonsense("the reader complains without end".to_owned()));
            }
        }
        let status = self.reap(limits, started)?;
        if status.success() { Ok(answer.bytes) } else { Err(verdict(status, &words.bytes)) }
    }

    /// Its status; a reader that has closed its pipes and does not end is killed like one that never answers.
    fn reap(&mut self, limits: &Limits, started: Instant) -> Result<ExitStatus, SandboxError> {
        let failed = |cause| SandboxError::Start { step: "waited for", cause };
        loop {
            match self.child.try_wait().map_err(failed)? {
                Some(status) => return Ok(status),
                None if started.elapsed() > limits.wall => return Err(SandboxError::TimedOut(limits.wall)),
                None => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }
}

/// One of the reader's output pipes with an upper bound.
struct Pipe<R> {
    pipe: Option<R>,
    bytes: Vec<u8>,
    limit: u64,
}

impl<R: Read + AsFd> Pipe<R> {
    fn new(pipe: R, limit: u64) -> Self {
        Self { pipe: Some(pipe), bytes: Vec::new(), limit }
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    fn overflowed(&self) -> bool {
        u64::try_from(self.bytes.len()).is_ok_and(|length| length > self.limit)
    }

    /// Reads once if there is something to read; notes the end.
    fn read(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        let mut ready = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ready, PollTimeout::ZERO)? == 0 {
            return Ok(());
        }
        let mut buffer = [0; 1 << 16];
        match pipe.read(&mut buffer)? {
            0 => self.pipe = None,
            count => self.bytes.extend_from_slice(buffer.get(..count).unwrap_or_default()),
        }
        Ok(())
    }
}

/// Sleeps until one of the pipes has something to say, a tick at most.
fn wait_for<A: Read + AsFd, B: Read + AsFd>(first: &Pipe<A>, second: &Pipe<B>) -> io::Result<()> {
    let pipes = [first.pipe.as_ref().map(AsFd::as_fd), second.pipe.as_ref().map(AsFd::as_fd)];
    let mut ready: Vec<PollFd<'_>> = pipes.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    match poll(&mut ready, PollTimeout::from(TICK)) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Why a reader that did not end well died.
fn verdict(status: ExitStatus, words: &[u8]) -> SandboxError {
    let start = words.len().saturating_sub(MAX_WORDS);
    let words = String::from_utf8_lossy(words.get(start..).unwrap_or_default());
    let words = printable(words.trim());
    match status.signal() {
        Some(number) => SandboxError::Killed {
            signal: Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |s| s.as_str().to_owned()),
            meaning: meaning(number),
            words,
        },
        None => SandboxError::Failed { status: status.to_string(), words },
    }
}

fn meaning(signal: i32) -> &'static str {
    use nix::libc::{SIGABRT, SIGBUS, SIGKILL, SIGSEGV, SIGSYS, SIGXCPU};
    match signal {
        SIGSYS => "it asked the kernel for something that reading a disk does not need",
        SIGXCPU => "it used more processor time than reading such a disk can need",
        SIGABRT => "it gave up, most likely because the structures on the disk ask for too much memory",
        SIGSEGV | SIGBUS => "it left its memory",
        SIGKILL => "from outside: another process, or the kernel for lack of memory",
        _ => "from outside",
    }
}
