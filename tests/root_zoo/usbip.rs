//! A bridge as a USB mass-storage device (bulk-only transport) over USB/IP: the guest's own vhci-hcd and usb-storage
//! drivers speak to it. The kernel takes one end of a socket pair; this process serves the other.
//!
//! USB/IP, all numbers big-endian (Linux Documentation/usb/usbip_protocol.rst), 48 bytes of header:
//! ```text
//! 0 command (1 submit, 2 unlink; 3 and 4 their answers)   4 number   8 device   12 direction (1 in)   16 endpoint
//! 20 flags | status   24 length | actual length   28 .. 40   40 setup packet
//! ```

use super::bridge::{Unit, be};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SUBMIT: u64 = 1;
const STALL: i32 = -32;
const UNLINKED: i32 = -104;
const VHCI: &str = "/sys/devices/platform/vhci_hcd.0";

/// Attaches a unit under a serial number and serves it until it leaves. The number is its port.
pub fn attach(unit: Arc<Mutex<Unit>>, serial: &str) -> u32 {
    let (kernel, ours) = UnixStream::pair().expect("a socket pair");
    let port = free_port();
    // 3 is high speed; the device number only has to be unique.
    let line = format!("{port} {} {} 3", kernel.as_raw_fd(), 0x10000 + port + 1);
    std::fs::write(format!("{VHCI}/attach"), &line).unwrap_or_else(|e| panic!("attach {line}: {e}"));
    let name = serial.to_owned();
    std::thread::spawn(move || Device { unit, serial: name, stream: ours, bulk: Bulk::default() }.serve());
    port
}

/// Takes a unit off the bus.
pub fn detach(port: u32) {
    std::fs::write(format!("{VHCI}/detach"), port.to_string()).unwrap_or_else(|e| panic!("detach {port}: {e}"));
}

/// The first port of a high-speed hub that nothing is attached to (status 4).
fn free_port() -> u32 {
    let mut files: Vec<PathBuf> = std::fs::read_dir(VHCI)
        .expect("vhci_hcd is loaded")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("status")))
        .collect();
    files.sort();
    let text: String = files.iter().map(|file| std::fs::read_to_string(file).expect("a status")).collect();
    let port = |line: &str| {
        let mut words = line.split_whitespace();
        let is_free = words.next() == Some("hs");
        let number = words.next()?.parse().ok()?;
        (is_free && words.next() == Some("004")).then_some(number)
    };
    text.lines().find_map(port).unwrap_or_else(|| panic!("no free port:\n{text}"))
}

/// Waits until the kernel has forgotten the disk of this serial number.
pub fn wait_until_gone(serial: &str) {
    for _ in 0..600 {
        if find_node(serial).is_none() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{serial}: the disk does not go away");
}

/// The node that the kernel made for the device of this serial number.
pub fn wait_for_node(serial: &str) -> PathBuf {
    for _ in 0..600 {
        if let Some(node) = find_node(serial) {
            return node;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{serial}: no disk appeared");
}

fn find_node(serial: &str) -> Option<PathBuf> {
    let is_ours = |folder: &Path| std::fs::read_to_string(folder.join("serial")).is_ok_and(|s| s.trim() == serial);
    let entries = std::fs::read_dir("/sys/block").expect("sysfs").flatten();
    let of = |entry: std::fs::DirEntry| Some((entry.path().canonicalize().ok()?, entry.file_name()));
    let (_, name) = entries.filter_map(of).find(|(path, _)| path.ancestors().any(is_ours))?;
    Some(Path::new("/dev").join(name))
}

/// The bulk-only transport between two commands.
#[derive(Default)]
struct Bulk {
    /// The command whose data is still coming.
    command: Option<Command>,
    arrived: Vec<u8>,
    /// What is to be sent: bytes, and how many the host expects.
    phases: VecDeque<(Vec<u8>, usize)>,
    /// Requests of the host that wait for data: number and length.
    waiting: VecDeque<(u32, usize)>,
    sense: [u8; 18],
}

struct Command {
    tag: [u8; 4],
    length: usize,
    cdb: [u8; 16],
}

struct Device {
    unit: Arc<Mutex<Unit>>,
    serial: String,
    stream: UnixStream,
    bulk: Bulk,
}

impl Device {
    /// Ends when the kernel closes its end, or when the unit leaves the bus after the last answer.
    fn serve(mut self) {
        let mut header = [0; 48];
        while !self.has_left() && self.stream.read_exact(&mut header).is_ok() {
            let number = u32::try_from(be(&header[4..8])).expect("32 bits");
            if be(&header[0..4]) == SUBMIT {
                self.submitted(number, &header);
            } else {
                let unlinked = u32::try_from(be(&header[20..24])).expect("32 bits");
                let there = self.bulk.waiting.iter().any(|(waiting, _)| *waiting == unlinked);
                self.bulk.waiting.retain(|(waiting, _)| *waiting != unlinked);
                self.reply(4, number, if there { UNLINKED } else { 0 }, 0, &[]);
            }
        }
        if self.has_left() {
            self.unit.lock().expect("no panic").log.push("left the bus".to_owned());
        }
    }

    fn has_left(&self) -> bool {
        self.bulk.phases.is_empty() && self.unit.lock().expect("no panic").left.is_some()
    }

    fn submitted(&mut self, number: u32, header: &[u8; 48]) {
        let length = usize::try_from(be(&header[24..28])).expect("32 bits");
        let (inwards, endpoint) = (header[15] == 1, header[19]);
        let mut out = vec![0; if inwards { 0 } else { length }];
        self.stream.read_exact(&mut out).expect("the data of a request");
        match (endpoint, inwards) {
            (0, _) => match self.control(&header[40..48]) {
                Some(mut data) => {
                    data.truncate(length);
                    let sent = if inwards { data.len() } else { length };
                    self.reply(3, number, 0, sent, &data);
                }
                None => self.reply(3, number, STALL, 0, &[]),
            },
            (_, true) => self.bulk.waiting.push_back((number, length)),
            (_, false) => {
                self.reply(3, number, 0, length, &[]);
                self.received(&out);
            }
        }
        self.pump();
    }

    fn reply(&mut self, command: u32, number: u32, status: i32, length: usize, data: &[u8]) {
        let mut header = [0; 48];
        header[0..4].copy_from_slice(&command.to_be_bytes());
        header[4..8].copy_from_slice(&number.to_be_bytes());
        header[20..24].copy_from_slice(&status.to_be_bytes());
        header[24..28].copy_from_slice(&u32::try_from(length).expect("32 bits").to_be_bytes());
        // The kernel closing its end shows at the next read.
        let _ = self.stream.write_all(&[&header[..], data].concat());
    }

    /// Answers to control requests; none stalls.
    fn control(&self, setup: &[u8]) -> Option<Vec<u8>> {
        match (setup[0], setup[1], setup[3]) {
            (0x80, 6, 1) => {
                let (vendor, product, release) = self.unit.lock().expect("no panic").bridge.usb;
                let numbers = [vendor.to_le_bytes(), product.to_le_bytes(), release.to_le_bytes()].concat();
                Some([&[18, 1, 0, 2, 0, 0, 0, 64][..], &numbers, &[1, 2, 3, 1]].concat())
            }
            (0x80, 6, 2) => Some(vec![
                9, 2, 32, 0, 1, 1, 0, 0x80, 50, // configuration
                9, 4, 0, 0, 2, 8, 6, 0x50, 0, // mass storage, SCSI, bulk only
                7, 5, 0x81, 2, 0, 2, 0, // in, 512 bytes
                7, 5, 0x02, 2, 0, 2, 0, // out
            ]),
            (0x80, 6, 3) => Some(self.string(setup[2])),
            (0x80, 0, _) => Some(vec![0, 0]),
            (0xA1, 0xFE, _) => Some(vec![0]),
            (0x00..=0x02, 1 | 9 | 11, _) | (0x21, 0xFF, _) => Some(Vec::new()),
            _ => None,
        }
    }

    fn string(&self, index: u8) -> Vec<u8> {
        let text = match index {
            0 => return vec![4, 3, 9, 4],
            1 => "coldtrim",
            2 => "zoo",
            _ => &self.serial,
        };
        let mut descriptor = vec![u8::try_from(2 + 2 * text.len()).expect("a short name"), 3];
        descriptor.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
        descriptor
    }

    /// A command block wrapper, or the data that belongs to the last one.
    fn received(&mut self, bytes: &[u8]) {
        if self.bulk.command.is_some() {
            self.bulk.arrived.extend(bytes);
        } else if bytes.len() == 31 && bytes.starts_with(b"USBC") {
            let length = u32::from_le_bytes(bytes[8..12].try_into().expect("4 bytes"));
            let command = Command {
                tag: bytes[4..8].try_into().expect("4 bytes"),
                length: usize::try_from(length).expect("32 bits"),
                cdb: bytes[15..31].try_into().expect("16 bytes"),
            };
            if bytes[12] & 0x80 != 0 || length == 0 {
                return self.execute(&command, &[]);
            }
            self.bulk.command = Some(command);
        }
        if self.bulk.command.as_ref().is_some_and(|command| self.bulk.arrived.len() >= command.length) {
            let command = self.bulk.command.take().expect("just seen");
            let data = std::mem::take(&mut self.bulk.arrived);
            self.execute(&command, &data);
        }
    }

    fn execute(&mut self, command: &Command, out: &[u8]) {
        let (mut data, mut residue, mut failed) = (self.bulk.sense.to_vec(), 0, false);
        if command.cdb[0] != 0x03 {
            let answer = self.unit.lock().expect("no panic").execute(&command.cdb, out);
            self.bulk.sense = [0; 18];
            (self.bulk.sense[0], self.bulk.sense[7]) = (0x70, 10);
            if let Some((key, code, qualifier)) = answer.sense {
                (self.bulk.sense[2], self.bulk.sense[12], self.bulk.sense[13]) = (key, code, qualifier);
                failed = true;
            }
            (data, residue) = (answer.data, answer.residue);
        }
        let is_in = out.is_empty() && command.length > 0;
        if is_in {
            data.truncate(command.length);
            residue = u32::try_from(command.length - data.len()).expect("32 bits");
            self.bulk.phases.push_back((data, command.length));
        }
        let mut status = b"USBS".to_vec();
        status.extend(command.tag);
        status.extend(residue.to_le_bytes());
        status.push(u8::from(failed));
        self.bulk.phases.push_back((status, 13));
    }

    /// Sends what is there to whoever waits for it. A phase that is shorter than expected ends with a short packet.
    fn pump(&mut self) {
        while let (Some((number, room)), Some((data, expected))) =
            (self.bulk.waiting.front().copied(), self.bulk.phases.front_mut())
        {
            let part: Vec<u8> = data.drain(..room.min(data.len())).collect();
            *expected -= part.len();
            if part.len() < room || *expected == 0 {
                self.bulk.phases.pop_front();
            }
            self.bulk.waiting.pop_front();
            self.reply(3, number, 0, part.len(), &part);
        }
    }
}
