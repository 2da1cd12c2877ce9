//! How a bridge translates SCSI commands to its drive, and all the ways in which it may do that wrong.

use super::drive::{Drive, SECTOR};
use std::time::{Duration, Instant};

/// What became of a command.
pub struct Answer {
    /// Data for the host.
    pub data: Vec<u8>,
    /// Sense key, code and qualifier; none for GOOD.
    pub sense: Option<(u8, u8, u8)>,
    /// Bytes that the bridge says it did not transfer.
    pub residue: u32,
}

impl Answer {
    fn good(data: Vec<u8>) -> Self {
        Self { data, sense: None, residue: 0 }
    }

    fn fails(key: u8, code: u8) -> Self {
        Self { data: Vec::new(), sense: Some((key, code, 0)), residue: 0 }
    }
}

/// A range of drive sectors becomes the range that is really discarded.
pub type Aim = fn(u64, u64) -> (u64, u64);

/// One bridge. The default is a good one without UNMAP, SAT or WRITE SAME.
#[derive(Clone, Copy)]
pub struct Bridge {
    /// Sectors in a logical block.
    pub block: u64,
    pub provisioned: bool,
    /// Bits of VPD page B2h byte 5.
    pub claims: u8,
    /// VPD page B0h: most blocks and descriptors; none: no VPD pages at all.
    pub limits: Option<(u32, u32)>,
    pub rotation: u16,
    pub unmap: bool,
    pub write_same: bool,
    pub sat_16: bool,
    pub sat_12: bool,
    /// IDENTIFY has names and nothing else.
    pub invents_identity: bool,
    /// What the drive really does with a discard.
    pub aim: Aim,
    /// Added to every address that comes through SAT.
    pub sat_shift: u64,
    pub sat_other_disk: bool,
    /// The host sees everything through a key.
    pub encrypts: bool,
    /// A discard shows after so many milliseconds.
    pub lazy: Option<u64>,
    /// Larger commands are rejected (bytes), or those with more descriptors.
    pub most_bytes: u64,
    pub most_descriptors: usize,
    /// So many bytes of what goes with a discard arrive.
    pub payload: usize,
    /// UNMAP and SAT are rejected although claimed.
    pub rejects: bool,
    /// A residue with GOOD.
    pub residue: bool,
    pub swaps_count: bool,
    /// Tells of a reset at the command after so many discards.
    pub resets_after: Option<u32>,
    /// What it tells then: sense code and qualifier.
    pub attention: (u8, u8),
    /// Tells of it so many milliseconds after a discard instead.
    pub late: Option<u64>,
    /// Leaves the bus after so many discards; and whether it comes back.
    pub leaves_after: Option<(u32, Return)>,
    /// Discards are only remembered, until the power goes.
    pub forgets: bool,
    /// idVendor, idProduct and bcdDevice.
    pub usb: (u16, u16, u16),
    /// INQUIRY vendor, eight characters.
    pub vendor: &'static str,
    /// An NVMe drive behind JMicron's own commands.
    pub tunnel: bool,
}

/// What a bridge does that has left the bus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Return {
    Never,
    AsItWas,
    /// With a mebibyte less.
    Smaller,
}

pub const PLAIN: Bridge = Bridge {
    block: 1,
    provisioned: false,
    claims: 0,
    limits: Some((0, 0)),
    rotation: 1,
    unmap: false,
    write_same: false,
    sat_16: false,
    sat_12: false,
    invents_identity: false,
    aim: |first, count| (first, count),
    sat_shift: 0,
    sat_other_disk: false,
    encrypts: false,
    lazy: None,
    most_bytes: u64::MAX,
    most_descriptors: usize::MAX,
    payload: usize::MAX,
    rejects: false,
    residue: false,
    swaps_count: false,
    resets_after: None,
    attention: (0x29, 0),
    late: None,
    leaves_after: None,
    forgets: false,
    usb: (0x1209, 0x0001, 0x0120),
    vendor: "Zoo     ",
    tunnel: false,
};

/// Knows UNMAP and says so.
pub const UNMAP: Bridge =
    Bridge { provisioned: true, claims: 0x80, limits: Some((4_194_240, 63)), unmap: true, ..PLAIN };
/// An ATA drive behind ATA PASS-THROUGH.
pub const SAT: Bridge = Bridge { sat_16: true, ..PLAIN };

/// A bridge at work.
pub struct Unit {
    pub bridge: Bridge,
    pub drive: Drive,
    waiting: Vec<(Instant, u64, u64)>,
    discards: u32,
    attention: bool,
    restless: Option<Instant>,
    /// The command block that JMicron's commands wait with.
    tunnelled: Option<Vec<u8>>,
    /// How it has left the bus, until somebody looks.
    pub left: Option<Return>,
    /// Every command that was not a read, with its outcome.
    pub log: Vec<String>,
}

impl Unit {
    pub fn new(bridge: Bridge, drive: Drive) -> Self {
        let drive = if bridge.encrypts { drive.changed_by(encrypted) } else { drive };
        Self {
            bridge,
            drive,
            waiting: Vec::new(),
            discards: 0,
            attention: false,
            restless: None,
            tunnelled: None,
            left: None,
            log: Vec::new(),
        }
    }

    /// Carries out a command.
    pub fn execute(&mut self, cdb: &[u8; 16], out: &[u8]) -> Answer {
        self.settle();
        let due = self.restless.is_some_and(|at| at <= Instant::now());
        if (due || self.attention) && !matches!(cdb[0], 0x12 | 0x03) {
            (self.attention, self.restless) = (false, None);
            let (code, qualifier) = self.bridge.attention;
            self.log.push("told of an attention".to_owned());
            return Answer { sense: Some((6, code, qualifier)), ..Answer::good(Vec::new()) };
        }
        let answer = match cdb[0] {
            0x00 | 0x1B | 0x1E | 0x35 | 0x91 => Answer::good(Vec::new()),
            0x12 => self.inquiry(cdb),
            0x1A => Answer::good(vec![3, 0, 0, 0]),
            0x25 => Answer::good([self.last_block_32().to_be_bytes(), self.block_bytes().to_be_bytes()].concat()),
            0x9E if cdb[1] & 0x1F == 0x10 => Answer::good(self.capacity_16()),
            0x28 => self.read(be(&cdb[2..6]), be(&cdb[7..9])),
            0x88 => self.read(be(&cdb[2..10]), be(&cdb[10..14])),
            0x2A => self.write(be(&cdb[2..6]), out),
            0x8A => self.write(be(&cdb[2..10]), out),
            0x42 if self.bridge.unmap => self.unmap(out),
            0x93 if self.bridge.write_same && cdb[1] & 8 != 0 => {
                self.discard_blocks(&[(be(&cdb[2..10]), be(&cdb[10..14]))])
            }
            0x85 if self.bridge.sat_16 => self.ata(&Registers::of_16(cdb), out),
            0xA1 if self.bridge.tunnel => self.jmicron(cdb, out),
            0xA1 if self.bridge.sat_12 => self.ata(&Registers::of_12(cdb), out),
            _ => Answer::fails(5, 0x20),
        };
        if !matches!(cdb[0], 0x28 | 0x88 | 0x00) {
            let first: String = cdb.iter().map(|byte| format!("{byte:02x}")).collect();
            self.log.push(format!("{first} {:?}", answer.sense));
        }
        answer
    }

    /// Discards whose time has come.
    fn settle(&mut self) {
        let (drive, now) = (&mut self.drive, Instant::now());
        self.waiting.retain(|(due, first, count)| {
            if *due <= now {
                drive.discard(*first, *count);
            }
            *due > now
        });
    }

    /// The power was off: what waited is done, or what was only remembered is gone.
    pub fn lost_power(&mut self) {
        for (_, first, count) in std::mem::take(&mut self.waiting) {
            self.drive.discard(first, count);
        }
        if self.bridge.forgets {
            self.drive.bring_back();
        }
    }

    fn block_bytes(&self) -> u32 {
        u32::try_from(self.bridge.block * SECTOR).expect("a small block")
    }

    fn blocks(&self) -> u64 {
        self.drive.sectors / self.bridge.block
    }

    fn last_block_32(&self) -> u32 {
        u32::try_from(self.blocks() - 1).unwrap_or(u32::MAX)
    }

    fn inquiry(&self, cdb: &[u8; 16]) -> Answer {
        let length = usize::try_from(be(&cdb[3..5])).expect("16 bits");
        let mut data = if cdb[1] & 1 == 0 {
            let mut data = vec![0, 0, 6, 2, 31, 0, 0, 0];
            data.extend(self.bridge.vendor.bytes().chain(*b"Bridge          0001"));
            data
        } else {
            let Some((blocks, descriptors)) = self.bridge.limits else { return Answer::fails(5, 0x24) };
            let body = match cdb[2] {
                0x00 => vec![0x00, 0xB0, 0xB1, 0xB2],
                0xB0 => {
                    let mut body = vec![0; 60];
                    body[16..20].copy_from_slice(&blocks.to_be_bytes());
                    body[20..24].copy_from_slice(&descriptors.to_be_bytes());
                    body[24..28].copy_from_slice(&1_u32.to_be_bytes());
                    body
                }
                0xB1 => [&self.bridge.rotation.to_be_bytes()[..], &[0; 58]].concat(),
                0xB2 => vec![0, self.bridge.claims, 0, 0],
                _ => return Answer::fails(5, 0x24),
            };
            let mut page = vec![0, cdb[2], 0, u8::try_from(body.len()).expect("a short page")];
            page.extend(body);
            page
        };
        data.truncate(length);
        Answer::good(data)
    }

    fn capacity_16(&self) -> Vec<u8> {
        let mut data = vec![0; 32];
        data[0..8].copy_from_slice(&(self.blocks() - 1).to_be_bytes());
        data[8..12].copy_from_slice(&self.block_bytes().to_be_bytes());
        data[14] = if self.bridge.provisioned { 0x80 } else { 0 };
        data
    }

    /// What the host sees of sectors, or the drive of what the host sends.
    fn crypt(&self, first: u64, mut bytes: Vec<u8>) -> Vec<u8> {
        if self.bridge.encrypts {
            (first..).zip(bytes.chunks_exact_mut(512)).for_each(|(sector, chunk)| encrypted(sector, chunk));
        }
        bytes
    }

    fn read(&self, block: u64, count: u64) -> Answer {
        let (first, count) = (block * self.bridge.block, count * self.bridge.block);
        if first + count > self.drive.sectors {
            return Answer::fails(5, 0x21);
        }
        Answer::good(self.crypt(first, self.drive.read(first, count)))
    }

    fn write(&mut self, block: u64, out: &[u8]) -> Answer {
        let first = block * self.bridge.block;
        let bytes = self.crypt(first, out.to_vec());
        let end = first + u64::try_from(bytes.len()).expect("a 64-bit machine") / SECTOR;
        // What is written anew is not discarded any more.
        self.waiting = std::mem::take(&mut self.waiting)
            .into_iter()
            .flat_map(|(due, from, count)| {
                let (before, behind) = ((from, first.min(from + count)), (end.max(from), from + count));
                [before, behind].into_iter().filter(|(a, b)| a < b).map(move |(a, b)| (due, a, b - a))
            })
            .collect();
        self.drive.write(first, &bytes);
        Answer::good(Vec::new())
    }

    fn unmap(&mut self, out: &[u8]) -> Answer {
        let mut list = out.to_vec();
        list.iter_mut().skip(self.bridge.payload).for_each(|byte| *byte = 0);
        let ranges: Vec<(u64, u64)> = list[8..]
            .chunks_exact(16)
            .map(|d| (be(&d[0..8]), if self.bridge.swaps_count { swapped(&d[8..12]) } else { be(&d[8..12]) }))
            .collect();
        self.discard_blocks(&ranges)
    }

    fn discard_blocks(&mut self, ranges: &[(u64, u64)]) -> Answer {
        let block = self.bridge.block;
        let ranges: Vec<(u64, u64)> = ranges.iter().map(|(first, count)| (first * block, count * block)).collect();
        self.discard(&ranges)
    }

    /// Ranges in drive sectors.
    fn discard(&mut self, ranges: &[(u64, u64)]) -> Answer {
        let bytes: u64 = ranges.iter().map(|(_, count)| count * SECTOR).sum();
        if self.bridge.rejects {
            return Answer::fails(5, 0x24);
        }
        if bytes > self.bridge.most_bytes || ranges.len() > self.bridge.most_descriptors {
            return Answer::fails(5, 0x26);
        }
        if ranges.iter().any(|(first, count)| first + count > self.drive.sectors) {
            return Answer::fails(5, 0x21);
        }
        for (first, count) in ranges.iter().filter(|(_, count)| *count > 0) {
            let (first, count) = (self.bridge.aim)(*first, *count);
            match self.bridge.lazy {
                Some(millis) => self.waiting.push((Instant::now() + Duration::from_millis(millis), first, count)),
                None => self.drive.discard(first, count),
            }
        }
        self.discards += 1;
        self.attention = self.bridge.resets_after.is_some_and(|after| self.discards.is_multiple_of(after));
        self.restless = self.bridge.late.map(|millis| Instant::now() + Duration::from_millis(millis));
        if let Some((_, how)) = self.bridge.leaves_after.filter(|(after, _)| self.discards == *after) {
            self.left = Some(how);
        }
        Answer { residue: if self.bridge.residue { 8 } else { 0 }, ..Answer::good(Vec::new()) }
    }

    fn ata(&mut self, registers: &Registers, out: &[u8]) -> Answer {
        match registers.command {
            0xEC => Answer::good(self.identity()),
            0x20 | 0x24 | 0x25 | 0xC8 => {
                let first = registers.address + self.bridge.sat_shift;
                let mut data = self.drive.read(first.min(self.drive.sectors - registers.count), registers.count);
                if self.bridge.sat_other_disk {
                    data.iter_mut().for_each(|byte| *byte = !*byte);
                }
                Answer::good(data)
            }
            0x06 if self.bridge.sat_other_disk => Answer::good(Vec::new()),
            0x06 if registers.features == 1 => {
                let mut payload = out.to_vec();
                payload.iter_mut().skip(self.bridge.payload).for_each(|byte| *byte = 0);
                let ranges: Vec<(u64, u64)> = payload
                    .chunks_exact(8)
                    .map(|entry| u64::from_le_bytes(entry.try_into().expect("8 bytes")))
                    .map(|entry| ((entry & 0xFFFF_FFFF_FFFF) + self.bridge.sat_shift, entry >> 48))
                    .filter(|(_, count)| *count > 0)
                    .collect();
                self.discard(&ranges)
            }
            0xEA | 0xE5 => Answer::good(Vec::new()),
            _ => Answer::fails(0xB, 0),
        }
    }

    /// The three steps of JMicron's own commands; anything but Identify is an error.
    fn jmicron(&mut self, cdb: &[u8; 16], out: &[u8]) -> Answer {
        match (cdb[1], self.tunnelled.take()) {
            (0x80, _) if out.len() == 512 && out.starts_with(b"NVME") && out[8] == 6 && out[72] == 0 => {
                self.tunnelled = Some(out.to_vec());
                Answer::good(Vec::new())
            }
            (0x82, Some(command)) => {
                let page = if command[48] == 1 { self.controller() } else { self.namespace() };
                self.tunnelled = Some(command);
                Answer::good(page)
            }
            (0x8F, Some(_)) => {
                let mut result = vec![0; 512];
                result[..4].copy_from_slice(b"NVME");
                Answer::good(result)
            }
            _ => Answer::fails(5, 0x24),
        }
    }

    fn controller(&self) -> Vec<u8> {
        let mut page = vec![0; 4096];
        page[4..72].copy_from_slice(format!("{:20}{:40}{:8}", "ZOO-SERIAL", "ZOO NVME", "1.0").as_bytes());
        page[520] = 4;
        page
    }

    fn namespace(&self) -> Vec<u8> {
        let mut page = vec![0; 4096];
        page[..8].copy_from_slice(&self.drive.sectors.to_le_bytes());
        (page[33], page[130]) = (1, 9);
        page
    }

    fn identity(&self) -> Vec<u8> {
        let mut words = [0_u16; 256];
        let mut text = |at: usize, text: &str| {
            for (word, pair) in words[at..].iter_mut().zip(text.as_bytes().chunks_exact(2)) {
                *word = u16::from_be_bytes([pair[0], pair[1]]);
            }
        };
        text(10, "ZOO-SERIAL          ");
        text(23, "1.0     ");
        text(27, "ZOO DRIVE                               ");
        if !self.bridge.invents_identity {
            (words[49], words[80], words[83], words[86]) = (0x0300, 0x01F0, 0x4400, 0x0400);
            for (index, word) in words[100..104].iter_mut().enumerate() {
                *word = u16::try_from(self.drive.sectors >> (16 * index) & 0xFFFF).expect("16 bits");
            }
            (words[105], words[106], words[169], words[217]) = (1, 0x4000, 1, self.bridge.rotation);
        }
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// Encrypts and decrypts. A sector of zeros must not look like another one, nor like zeros.
fn encrypted(sector: u64, bytes: &mut [u8]) {
    let key = (sector ^ 0x5DEE_CE66).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    bytes.iter_mut().zip(key.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
}

/// The registers of an ATA command.
struct Registers {
    features: u8,
    count: u64,
    address: u64,
    command: u8,
}

impl Registers {
    fn of_16(cdb: &[u8; 16]) -> Self {
        let address = [cdb[11], cdb[9], cdb[7], cdb[12], cdb[10], cdb[8]];
        Self { features: cdb[4], count: be(&cdb[5..7]), address: be(&address), command: cdb[14] }
    }

    fn of_12(cdb: &[u8; 16]) -> Self {
        let address = [cdb[8] & 0x0F, cdb[7], cdb[6], cdb[5]];
        Self { features: cdb[3], count: be(&cdb[4..5]), address: be(&address), command: cdb[9] }
    }
}

pub fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn swapped(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
