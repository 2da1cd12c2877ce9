//! The drive as a network block device on a Unix socket, so that a virtual machine can have it behind any of its front ends.
//! Every command is answered when the wall clock reaches the time that the model gives.
//!
//! Fixed newstyle negotiation and simple replies (NBD's doc/proto.md).

use crate::flash::PAGE;
use crate::ssd::{Content, Ssd};
use std::collections::BinaryHeap;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
/// Fixed newstyle, and no zeros behind the export.
const HANDSHAKE: u16 = 3;
/// Flags are given; flush, FUA and trim are known.
const EXPORT: u16 = 1 | 4 | 8 | 32;
const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const GO: u32 = 7;
const ACKNOWLEDGED: u32 = 1;
const INFORMATION: u32 = 3;
const UNSUPPORTED: u32 = (1 << 31) + 1;
const INVALID: u32 = 22;

/// A drive that is served.
#[derive(Clone)]
pub struct Served {
    ssd: Arc<Mutex<Ssd>>,
    start: Instant,
}

impl Served {
    /// Serves the drive on `listener` until the process ends.
    pub fn new(ssd: Ssd, listener: UnixListener) -> Self {
        let served = Self { ssd: Arc::new(Mutex::new(ssd)), start: Instant::now() };
        let each = served.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let one = each.clone();
                // A client that goes away ends its own thread only.
                std::thread::spawn(move || one.serve(stream));
            }
        });
        served
    }

    /// The drive itself, with all that it knows.
    pub fn ssd(&self) -> MutexGuard<'_, Ssd> {
        self.ssd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        // A minute after whatever filled it.
        60_000_000_000 + u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn size(&self) -> u64 {
        u64::from(self.ssd().config().pages) * PAGE
    }

    fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        if !negotiate(&mut stream, self.size())? {
            return Ok(());
        }
        let (answers, due) = channel();
        let writer = stream.try_clone()?;
        let start = self.start;
        std::thread::spawn(move || answer(writer, &due, start));
        self.requests(&mut stream, &answers)
    }

    fn requests(&self, stream: &mut UnixStream, answers: &Sender<Answer>) -> io::Result<()> {
        loop {
            let mut header = [0; 28];
            stream.read_exact(&mut header)?;
            let number = |at: usize, length: usize| {
                header[at..at + length].iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte))
            };
            if number(0, 4) != u64::from(REQUEST) {
                return Err(io::Error::other("no request"));
            }
            let (kind, handle, from, length) = (number(6, 2), number(8, 8), number(16, 8), number(24, 4));
            let mut data = vec![0; if kind == 1 { length as usize } else { 0 }];
            stream.read_exact(&mut data)?;
            if kind == 2 {
                return Ok(());
            }
            let (at, error, read) = match from.checked_add(length).filter(|end| *end <= self.size()) {
                Some(_) => self.carry_out(kind, from, length, &data),
                None => (self.now(), INVALID, Vec::new()),
            };
            let mut bytes = [REPLY.to_be_bytes(), error.to_be_bytes()].concat();
            bytes.extend(handle.to_be_bytes());
            bytes.extend(read);
            answers.send(Answer { at, bytes }).map_err(io::Error::other)?;
        }
    }

    /// When it is done, an error number, and what was read.
    fn carry_out(&self, kind: u64, from: u64, length: u64, data: &[u8]) -> (u64, u32, Vec<u8>) {
        let now = self.now();
        let mut ssd = self.ssd();
        let touched = (from / PAGE) as u32..(from + length).div_ceil(PAGE) as u32;
        match kind {
            0 => {
                let end = ssd.read(now, touched.clone());
                (end, 0, part(&bytes_of(&ssd, touched), from, length))
            }
            1 => {
                let mut bytes = bytes_of(&ssd, touched.clone());
                let first = (from % PAGE) as usize;
                bytes[first..first + data.len()].copy_from_slice(data);
                (ssd.write_bytes(now, touched.start, &bytes), 0, Vec::new())
            }
            3 => (ssd.flush(now), 0, Vec::new()),
            4 => {
                // Whole pages only.
                let inner = from.div_ceil(PAGE) as u32..((from + length) / PAGE) as u32;
                let end = if inner.start < inner.end { ssd.trim(now, inner) } else { now };
                (end, 0, Vec::new())
            }
            _ => (now, INVALID, Vec::new()),
        }
    }
}

fn part(bytes: &[u8], from: u64, length: u64) -> Vec<u8> {
    let first = (from % PAGE) as usize;
    bytes[first..first + length as usize].to_vec()
}

/// What pages hold. Those that were filled without real bytes hold something that names them.
fn bytes_of(ssd: &Ssd, pages: Range<u32>) -> Vec<u8> {
    let of = |page| match ssd.content(page) {
        Content::Zeros => vec![0; PAGE as usize],
        Content::Bytes(bytes) => bytes,
        Content::Written(write) => (u64::from(page) << 32 | write).to_le_bytes().repeat(PAGE as usize / 8),
    };
    pages.flat_map(of).collect()
}

/// An answer and when it is due, in model time.
#[derive(PartialEq, Eq)]
struct Answer {
    at: u64,
    bytes: Vec<u8>,
}

impl Ord for Answer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Answer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Sends answers when they are due. Deadlines are of the clock, so that what one sleep is late does not add up.
fn answer(mut stream: UnixStream, due: &Receiver<Answer>, start: Instant) -> io::Result<()> {
    let mut waiting: BinaryHeap<Answer> = BinaryHeap::new();
    loop {
        let deadline = waiting.peek().map(|answer| start + Duration::from_nanos(answer.at - 60_000_000_000));
        let left = deadline.map_or(Duration::from_secs(3600), |at| at.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            if let Some(answer) = waiting.pop() {
                stream.write_all(&answer.bytes)?;
            }
            continue;
        }
        match due.recv_timeout(left) {
            Ok(answer) => waiting.push(answer),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// True when the client wants the drive.
fn negotiate(stream: &mut UnixStream, size: u64) -> io::Result<bool> {
    let mut hello = [MAGIC.to_be_bytes(), OPTION.to_be_bytes()].concat();
    hello.extend(HANDSHAKE.to_be_bytes());
    stream.write_all(&hello)?;
    let mut flags = [0; 4];
    stream.read_exact(&mut flags)?;
    let no_zeros = u32::from_be_bytes(flags) & 2 != 0;
    loop {
        let mut header = [0; 16];
        stream.read_exact(&mut header)?;
        let [.., a, b, c, d] = header;
        let [_, _, _, _, _, _, _, _, e, f, g, h, ..] = header;
        let (option, length) = (u32::from_be_bytes([e, f, g, h]), u32::from_be_bytes([a, b, c, d]));
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data)?;
        let mut reply = |kind: u32, data: &[u8]| {
            let mut bytes = OPTION_REPLY.to_be_bytes().to_vec();
            [option, kind, data.len() as u32].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
            bytes.extend(data);
            stream.write_all(&bytes)
        };
        let export = [&size.to_be_bytes()[..], &EXPORT.to_be_bytes()].concat();
        match option {
            EXPORT_NAME => {
                let zeros = vec![0; if no_zeros { 0 } else { 124 }];
                stream.write_all(&[export, zeros].concat())?;
                return Ok(true);
            }
            GO => {
                reply(INFORMATION, &[&[0, 0], &export[..]].concat())?;
                reply(ACKNOWLEDGED, &[])?;
                return Ok(true);
            }
            ABORT => {
                reply(ACKNOWLEDGED, &[])?;
                return Ok(false);
            }
            _ => reply(UNSUPPORTED, &[])?,
        }
    }
}
