use super::encode::{self, Length, Protocol, Width};
use super::*;
use crate::plan::units::LbaRange;
use crate::plan::{Cap, Disk as PlanDisk, Plan, Policy, Region};
use crate::transport::facts::{UsbId, test_facts};
use crate::transport::scsi::encode as scsi;
use crate::transport::scsi::script::Script;

const SECTORS: u64 = 1 << 20;
const BYTES: u64 = SECTORS * 512;
const IDENTIFY_16: [u8; 16] = [0x85, 0x08, 0x0E, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xEC, 0];
const IDENTIFY_12: [u8; 12] = [0xA1, 0x08, 0x0E, 0, 1, 0, 0, 0, 0, 0xEC, 0, 0];
const TRIM_16: [u8; 16] = [0x85, 0x0D, 0x06, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0x40, 0x06, 0];

fn blocks(start: u64, count: u64) -> LbaRange {
    LbaRange::exactly(ByteRange::with_len(start, count).unwrap(), BlockSize::new(1).unwrap()).unwrap()
}

/// IDENTIFY data as words, with a checksum.
struct Drive([u16; 256]);

impl Drive {
    fn good() -> Self {
        let mut words = [0; 256];
        for (at, pair) in (27..47).zip(b"Samsung SSD 860 EVO 1TB                 ".as_chunks::<2>().0) {
            words[at] = u16::from_be_bytes(*pair);
        }
        words[69] = 1 << 14 | 1 << 5;
        words[80] = 0x0FF0;
        words[83] = 0x4000 | 1 << 10;
        (words[100], words[101]) = (0, 0x10);
        words[105] = 8;
        words[106] = 0x6003;
        words[169] = 1;
        Self(words).set(255, 0xA5).set(106, 0x6003)
    }

    fn set(mut self, word: usize, value: u16) -> Self {
        self.0[word] = value;
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        let sum = bytes[..511].iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        bytes[511] = if bytes[510] == 0xA5 { sum.wrapping_neg() } else { bytes[511] };
        bytes
    }
}

/// The commands by which a SCSI disk of `blocks` blocks of `size` bytes is identified.
fn bridge(vendor: &[u8; 8], blocks: u64, size: u32) -> Script {
    let inquiry = [&[0, 0, 6, 2, 31, 0, 0, 0][..], vendor, b"SSD 860 EVO 1TB 2B6Q"].concat();
    let last = blocks - 1;
    let short = [u32::try_from(last).unwrap().to_be_bytes(), size.to_be_bytes()].concat();
    let long = [&last.to_be_bytes()[..], &size.to_be_bytes(), &[0; 20]].concat();
    Script::default()
        .answers(&scsi::INQUIRY, &inquiry)
        .ok(&scsi::TEST_UNIT_READY)
        .answers(&scsi::READ_CAPACITY_10, &short)
        .answers(&scsi::READ_CAPACITY_16, &long)
        .answers(&scsi::MODE_SENSE, &[0; 4])
}

fn native() -> Script {
    bridge(b"ATA     ", SECTORS, 512)
}

fn facts() -> DeviceFacts {
    DeviceFacts { vendor: "ATA".into(), ..test_facts(NodeKind::Scsi, BYTES) }
}

fn usb(vendor: u16, product: u16) -> DeviceFacts {
    DeviceFacts { usb: Some(UsbId { vendor, product, release: 0 }), vendor: "ASMT".into(), ..facts() }
}

fn open(drive: &Drive, facts: &DeviceFacts) -> Result<Sat, TransportError> {
    let script = native().answers(&IDENTIFY_16, &drive.bytes());
    let sat = Sat::open(Width::Sixteen, script.port(), facts);
    script.assert_done();
    sat
}

fn plan(route: &Sat, free: &[ByteRange]) -> Plan {
    let whole = ByteRange::new(0, BYTES).unwrap();
    let region = Region { device: 0, origin: "test", ranges: free, within: whole, partition: whole };
    let disk = PlanDisk { device: 0, size: BYTES, capacity: route.capacity() };
    Plan::build(&disk, &[region], &route.limits(), &Policy::default()).unwrap()
}

#[test]
fn commands_have_the_bytes_of_the_standard() {
    let (sixteen, twelve, count) = (Width::Sixteen, Width::Twelve, Length::Count);
    assert_eq!(encode::identify(sixteen, count), IDENTIFY_16);
    assert_eq!(encode::identify(twelve, count), IDENTIFY_12);
    assert_eq!(encode::identify(sixteen, Length::Transport)[2], 0x0F);
    assert_eq!(encode::trim(sixteen, count, Protocol::Dma, 1), TRIM_16);
    assert_eq!(encode::trim(sixteen, count, Protocol::UdmaOut, 1)[1], 0x17);
    assert_eq!(encode::trim(twelve, count, Protocol::Dma, 1), [0xA1, 0x0C, 0x06, 1, 1, 0, 0, 0, 0x40, 0x06, 0, 0]);
    assert_eq!(
        encode::read(sixteen, count, blocks(0x0605_0403_0201, 0x0807)).unwrap(),
        [0x85, 0x0D, 0x0E, 0, 0, 8, 7, 4, 1, 5, 2, 6, 3, 0x40, 0x25, 0]
    );
    assert_eq!(
        encode::read(twelve, count, blocks(0x0403_0201, 7)).unwrap(),
        [0xA1, 0x0C, 0x0E, 0, 7, 1, 2, 3, 0x44, 0xC8, 0, 0]
    );
    assert_eq!(encode::read(twelve, count, blocks((1 << 28) - 1, 1)), None);
    assert_eq!(encode::read(twelve, count, blocks(0, 256)), None);
}

#[test]
fn the_payload_holds_64_ranges_a_block_and_ends_in_zeros() {
    let one = encode::payload(&[blocks(0x0605_0403_0201, 0x0807)]).unwrap();
    assert_eq!((one.len(), &one[..8]), (512, &[1, 2, 3, 4, 5, 6, 7, 8][..]));
    assert!(one[8..].iter().all(|byte| *byte == 0));
    assert_eq!(encode::payload(&vec![blocks(1, 1); 64]).unwrap().len(), 512);
    assert_eq!(encode::payload(&vec![blocks(1, 1); 65]).unwrap().len(), 1024);
    assert!(encode::payload(&[blocks(0, 65535)]).is_some());
    assert!(encode::payload(&[blocks(0, 65536)]).is_none());
    assert!(encode::payload(&[blocks((1 << 48) - 1, 2)]).is_none());
}

#[test]
fn identity_is_decoded_and_checked() {
    let identity = Identity::parse(&Drive::good().bytes()).unwrap();
    assert_eq!((identity.model.as_str(), identity.bytes()), ("Samsung SSD 860 EVO 1TB", Some(BYTES)));
    assert_eq!((identity.sector_size, identity.physical_exponent, identity.lowest_aligned), (512, 3, 0));
    assert!(identity.trim && identity.promises_zeros && identity.rotates != Some(true) && !identity.locked);
    let parse = |drive: Drive| Identity::parse(&drive.bytes());
    let large = parse(Drive::good().set(106, 0x5000).set(117, 2048)).unwrap();
    assert_eq!((large.sector_size, large.physical_exponent), (4096, 0));
    assert_eq!(parse(Drive::good().set(209, 0x4001)).unwrap().lowest_aligned, 7);
    assert_eq!(parse(Drive::good().set(105, 0)).unwrap().max_payload_blocks, None);
    assert!(!parse(Drive::good().set(80, 0x0070)).unwrap().trim, "older than ATA-7");
    assert!(!parse(Drive::good().set(80, 0xFFFF)).unwrap().trim, "states no version");
    let more = Drive::good().set(69, 1 << 3).set(231, 0x20);
    assert_eq!(parse(more).unwrap().sectors, 0x20_0000);

    assert_eq!(parse(Drive::good().set(0, 0x8000)), Err(NotIdentity::NotAta));
    assert_eq!(parse(Drive::good().set(83, 1 << 10)), Err(NotIdentity::Invented));
    assert_eq!(parse(Drive::good().set(83, 0x4000)), Err(NotIdentity::NoCapacity));
    assert_eq!(parse(Drive::good().set(101, 0)), Err(NotIdentity::NoCapacity));
    assert_eq!(parse((27..47).fold(Drive::good(), |d, word| d.set(word, 0x2020))), Err(NotIdentity::NoModel));
    let mut damaged = Drive::good().bytes();
    damaged[200] ^= 1;
    assert_eq!(Identity::parse(&damaged), Err(NotIdentity::Checksum));
    assert_eq!(Identity::parse(&damaged[..500]), Err(NotIdentity::Short(500)));
}

#[test]
fn limits_follow_word_105_on_native_ports_and_are_one_block_behind_bridges() {
    let native = open(&Drive::good(), &facts()).unwrap();
    assert_eq!(native.read_after_discard(), ReadAfterDiscard::Zeros);
    let limits = native.limits();
    assert_eq!((limits.max_ranges(), limits.granularity()), (8 * 64, 4096));
    assert_eq!(limits.max_range_bytes(), 65528 * 512, "whole physical blocks");
    assert_eq!(open(&Drive::good(), &usb(0x174c, 0x55aa)).unwrap().limits().max_ranges(), 64);
    assert_eq!(open(&Drive::good().set(105, 0xFFFF), &facts()).unwrap().limits().max_ranges(), 64);
    let sandisk = |drive: Drive| {
        (27..47)
            .zip(*b"SanDisk SD8SBAT256G                     ".as_chunks::<2>().0.first_chunk::<20>().unwrap())
            .fold(drive, |d, (word, pair)| d.set(word, u16::from_be_bytes(pair)))
    };
    let slow = open(&sandisk(Drive::good()), &facts()).unwrap();
    assert_eq!(slow.limits().max_command_bytes(), 128 << 20);
    assert_eq!(slow.read_after_discard(), ReadAfterDiscard::Undefined, "not on the list of the trusted");
}

#[test]
fn drives_that_must_not_or_cannot_be_trimmed_are_refused() {
    let kind = |drive: Drive| open(&drive, &facts()).err().unwrap().kind();
    assert_eq!(kind(Drive::good().set(169, 0)), ErrorKind::Rejected);
    assert_eq!(kind(Drive::good().set(128, 1 << 2)), ErrorKind::WriteProtected);
    assert_eq!(kind(Drive::good().set(83, 0)), ErrorKind::Rejected, "invented by a bridge");
    assert_eq!(kind(Drive::good().set(101, 0x11)), ErrorKind::Contradiction, "larger than the bridge shows");
    // 4096-byte sectors behind 512-byte blocks, eight times the size.
    assert_eq!(kind(Drive::good().set(106, 0x5000).set(117, 2048)), ErrorKind::Contradiction);
    let broken = (27..47).zip(b"SuperSSpeed S238 128GB                  ".as_chunks::<2>().0);
    let broken = broken.fold(Drive::good(), |d, (word, pair)| d.set(word, u16::from_be_bytes(*pair)));
    assert_eq!(kind(broken), ErrorKind::Unsuitable);
}

#[test]
fn addresses_are_those_of_the_drive_behind_a_bridge_with_larger_blocks() {
    let script = bridge(b"ASMT    ", SECTORS / 8, 4096).answers(&IDENTIFY_16, &Drive::good().bytes());
    let facts = DeviceFacts { logical_block: BlockSize::new(4096).unwrap(), ..usb(0x174c, 0x55aa) };
    let mut sat = Sat::open(Width::Sixteen, script.port(), &facts).unwrap();
    assert!(sat.notes()[0].contains("blocks of 4096 bytes, the drive has sectors of 512"));
    let plan = plan(&sat, &[ByteRange::new(4096, 12288).unwrap()]);
    let mut payload = vec![0; 512];
    payload[..8].copy_from_slice(&[8, 0, 0, 0, 0, 0, 16, 0]);
    let script = script.takes(&TRIM_16, &payload);
    sat.discard(&plan.cursor().next_batch(Cap::NONE).unwrap()).unwrap();
    script.assert_done();
}

#[test]
fn the_other_dma_protocol_is_tried_once_and_only_before_the_first_success() {
    let script = native().answers(&IDENTIFY_16, &Drive::good().bytes());
    let mut sat = Sat::open(Width::Sixteen, script.port(), &facts()).unwrap();
    let plan = plan(&sat, &[ByteRange::new(0, 4096).unwrap()]);
    let batch = plan.cursor().next_batch(Cap::NONE).unwrap();
    let mut payload = vec![0; 512];
    payload[6] = 8;
    let udma = encode::trim(Width::Sixteen, Length::Count, Protocol::UdmaOut, 1);
    let script = script.fails(&TRIM_16, &payload, (5, 0x24, 0)).takes(&udma, &payload).takes(&udma, &payload);
    sat.discard(&batch).unwrap();
    sat.discard(&batch).unwrap();
    let script = script.fails(&udma, &payload, (0xB, 0, 0));
    assert_eq!(sat.discard(&batch).unwrap_err().kind(), ErrorKind::Aborted);
    script.assert_done();
}

#[test]
fn a_bridge_that_wants_the_length_in_its_own_header_gets_it() {
    let other = encode::identify(Width::Sixteen, Length::Transport);
    let script = native().fails(&IDENTIFY_16, &[], (5, 0x24, 0)).answers(&other, &Drive::good().bytes());
    let mut sat = Sat::open(Width::Sixteen, script.port(), &facts()).unwrap();
    let plan = plan(&sat, &[ByteRange::new(0, 4096).unwrap()]);
    let mut payload = vec![0; 512];
    payload[6] = 8;
    let script = script.takes(&encode::trim(Width::Sixteen, Length::Transport, Protocol::Dma, 1), &payload);
    sat.discard(&plan.cursor().next_batch(Cap::NONE).unwrap()).unwrap();
    script.assert_done();
    let deaf = native().fails(&IDENTIFY_16, &[], (5, 0x20, 0)).fails(&other, &[], (5, 0x20, 0));
    assert_eq!(Sat::open(Width::Sixteen, deaf.port(), &facts()).err().unwrap().kind(), ErrorKind::Rejected);
    deaf.assert_done();
}

#[test]
fn an_identify_that_moves_no_data_is_not_an_answer() {
    let other = encode::identify(Width::Sixteen, Length::Transport);
    let script = native().answers(&IDENTIFY_16, &[]).answers(&other, &[]);
    let error = Sat::open(Width::Sixteen, script.port(), &facts()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(error.to_string().contains("512 bytes were not transferred"), "{error}");
}

#[test]
fn sat12_is_never_sent_to_a_bridge_of_an_nvme_drive() {
    let script = bridge(b"JMicron ", SECTORS, 512);
    let error = Sat::open(Width::Twelve, script.port(), &usb(0x152d, 0x0583)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsuitable);
    script.assert_done();
    let script = bridge(b"VIA     ", SECTORS, 512).answers(&IDENTIFY_12, &Drive::good().bytes());
    assert_eq!(Sat::open(Width::Twelve, script.port(), &usb(0x2109, 0x0700)).unwrap().name(), "sat12");
}

#[test]
fn reads_use_the_addresses_of_the_drive() {
    let script = native().answers(&IDENTIFY_16, &Drive::good().bytes());
    let mut sat = Sat::open(Width::Sixteen, script.port(), &facts()).unwrap();
    let command = |start, count| encode::read(Width::Sixteen, Length::Count, blocks(start, count)).unwrap();
    let script = script.answers(&command(8, 8), &[1; 4096]).answers(&command(16, 1), &[2; 512]);
    let bytes = sat.read(ByteRange::new(4096, 8704).unwrap()).unwrap();
    assert_eq!(bytes, [vec![1; 4096], vec![2; 512]].concat());
    script.assert_done();
}
