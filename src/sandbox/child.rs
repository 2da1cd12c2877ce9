//! The reader process: takes the request, locks itself in, reads, answers, ends.

use super::protocol::{Answer, CHILD_ARGUMENT, MAX_LAYERS, MAX_REQUEST, Place, Request};
use super::{confine, sys};
use coldtrim_parsers::source::Source;
use coldtrim_parsers::stack::{Layer, Options, Stack};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::fs::File;
use std::io::{self, IoSliceMut, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::mpsc;

/// Stack of the thread that parses. Readers of trees may go deep; they are bounded, but not by two megabytes.
const STACK: usize = 64 << 20;

/// The function that the child runs: `coldtrim_parsers::stack::read`, or a test's.
pub type ReadFunction = fn(&[Layer<'_>], &Options) -> Stack;

/// True when this process was started to be a reader.
pub fn is_asked() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == CHILD_ARGUMENT)
}

/// Becomes the reader and never returns, if this process was started to be one. Call it first of all in `main`.
pub fn child_main_if_asked() {
    if is_asked() {
        serve(coldtrim_parsers::stack::read);
    }
}

/// Serves one request from standard input with `read`, and exits.
pub fn serve(read: ReadFunction) -> ! {
    // The default hook would look for a backtrace in files that are out of reach by then.
    std::panic::set_hook(Box::new(|panic| {
        let _ = writeln!(io::stderr(), "{panic}");
    }));
    let code = match answer(read) {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            1
        }
    };
    std::process::exit(code)
}

fn answer(read: ReadFunction) -> io::Result<()> {
    sys::close_from(3)?;
    let (request, descriptors) = receive()?;
    let files = descriptors.into_iter().map(read_only).collect::<io::Result<Vec<File>>>()?;
    if files.len() != request.places.len() {
        return Err(io::Error::other("the request does not fit its descriptors"));
    }
    let mut shortfalls = Vec::new();
    confine::drop_privileges(&mut shortfalls)?;
    follow_parent(request.parent)?;
    confine::limit(&request.limits)?;
    confine::forbid_files(&mut shortfalls)?;
    let (nonce, places, options) = (request.nonce, request.places, request.options);
    // The thread is made, and has finished starting, before the doors close: both are forbidden behind them.
    let (ready, started) = mpsc::channel::<()>();
    let (go, wait) = mpsc::channel::<()>();
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(move || {
        ready.send(()).ok()?;
        wait.recv().ok()?;
        Some(run(read, files, &places, &options))
    })?;
    started.recv().map_err(io::Error::other)?;
    confine::forbid_more()?;
    confine::forbid_system_calls(&mut shortfalls)?;
    go.send(()).map_err(io::Error::other)?;
    let Ok(Some(stack)) = thread.join() else {
        return Err(io::Error::other("the reader panicked"));
    };
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    postcard::to_io(&Answer { nonce, shortfalls, stack }, &mut out).map_err(io::Error::other)?;
    out.flush()
}

/// Dies with the parent, even if that is killed outright. Set after the change of user, which clears it.
fn follow_parent(parent: u32) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    if std::os::unix::process::parent_id() == parent {
        Ok(())
    } else {
        Err(io::Error::other("the program that asked is gone"))
    }
}

fn receive() -> io::Result<(Request, Vec<OwnedFd>)> {
    let mut buffer = vec![0; MAX_REQUEST];
    let mut control = nix::cmsg_space!([RawFd; MAX_LAYERS]);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let stdin = io::stdin();
    let message = recvmsg::<()>(stdin.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = part {
            descriptors.extend(sys::adopt(numbers));
        }
    }
    let cut = message.flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC);
    let length = message.bytes;
    let request = buffer.get(..length).filter(|_| !cut).ok_or_else(|| io::Error::other("the request was cut"))?;
    let request = postcard::from_bytes(request).map_err(io::Error::other)?;
    Ok((request, descriptors))
}

fn read_only(descriptor: OwnedFd) -> io::Result<File> {
    let flags = OFlag::from_bits_retain(fcntl(&descriptor, FcntlArg::F_GETFL)?);
    if flags & OFlag::O_ACCMODE == OFlag::O_RDONLY {
        Ok(File::from(descriptor))
    } else {
        Err(io::Error::other("a descriptor that can write was handed to the reader"))
    }
}

/// A part of a descriptor as the parsers see it.
struct FileSource {
    file: File,
    offset: u64,
    len: u64,
}

impl Source for FileSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let length = u64::try_from(buf.len()).map_err(io::Error::other)?;
        let inside = at.checked_add(length).is_some_and(|end| end <= self.len);
        let start = at.checked_add(self.offset).filter(|_| inside).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.file.read_exact_at(buf, start)
    }
}

fn run(read: ReadFunction, files: Vec<File>, places: &[Place], options: &Options) -> Stack {
    let sources: Vec<FileSource> = files
        .into_iter()
        .zip(places)
        .map(|(file, place)| FileSource { file, offset: place.offset, len: place.len })
        .collect();
    let layers: Vec<Layer<'_>> =
        sources.iter().zip(places).map(|(source, place)| Layer { source, sector_size: place.sector_size }).collect();
    read(&layers, options)
}
