use super::*;
use crate::plan::units::LbaRange;
use crate::plan::{Cap, Disk as PlanDisk, Plan, Policy, Region};
use crate::transport::facts::test_facts;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

const BLOCKS: u64 = 1 << 20;
const BYTES: u64 = BLOCKS * 512;
const ID: u32 = 3;

/// A line of a script: queue and command expected, data expected or answered, status.
struct Line(Queue, Command, Vec<u8>, io::Result<u16>);

#[derive(Clone, Default)]
struct Script(Rc<RefCell<VecDeque<Line>>>);

impl Script {
    fn line(self, queue: Queue, command: Command, data: &[u8], status: io::Result<u16>) -> Self {
        self.0.borrow_mut().push_back(Line(queue, command, data.to_vec(), status));
        self
    }

    fn identify(self, cns: u8, id: u32, data: &[u8], status: u16) -> Self {
        self.line(Queue::Admin, encode::identify(cns, id), data, Ok(status))
    }

    fn assert_done(&self) {
        assert_eq!(self.0.borrow().len(), 0, "commands that were expected and not sent");
    }
}

impl NvmePort for Script {
    fn namespace(&mut self) -> io::Result<u32> {
        Ok(ID)
    }

    fn execute(&mut self, queue: Queue, command: &Command, data: Data<'_>, _: Duration) -> io::Result<u16> {
        let Line(expected_queue, expected, bytes, status) =
            self.0.borrow_mut().pop_front().expect("the script is over");
        assert_eq!((queue, *command), (expected_queue, expected));
        match data {
            Data::None => assert!(bytes.is_empty()),
            Data::Out(out) => assert_eq!(out, bytes),
            Data::In(buffer) => buffer[..bytes.len()].copy_from_slice(&bytes),
        }
        status
    }
}

fn controller() -> Vec<u8> {
    let mut data = vec![0; 4096];
    data[24..34].copy_from_slice(b"Test Drive");
    data[520] = 0x04;
    data
}

fn namespace() -> Vec<u8> {
    let mut data = vec![0; 4096];
    data[..8].copy_from_slice(&BLOCKS.to_le_bytes());
    data[24] = 0x10;
    data[33] = 1;
    data[68] = 7;
    data[70] = 7;
    data[130] = 9;
    data
}

fn edited(mut data: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    data[at] = value;
    data
}

fn facts() -> DeviceFacts {
    test_facts(NodeKind::Nvme, BYTES)
}

/// A controller that is asked for everything and has these limits.
fn script(limits: &[u8]) -> Script {
    Script::default().identify(1, 0, &controller(), 0).identify(0, ID, &namespace(), 0).identify(6, 0, limits, 0)
}

fn open(script: &Script) -> Result<Nvme, TransportError> {
    Nvme::open(Box::new(script.clone()), &facts())
}

fn refusal(controller: &[u8], namespace: &[u8], facts: &DeviceFacts) -> ErrorKind {
    let script = Script::default().identify(1, 0, controller, 0).identify(0, ID, namespace, 0);
    let kind = Nvme::open(Box::new(script.clone()), facts).err().unwrap().kind();
    script.assert_done();
    kind
}

#[test]
fn limits_are_those_of_the_controller() {
    let mut limits = vec![0; 4096];
    limits[3] = 16;
    limits[4..8].copy_from_slice(&1000_u32.to_le_bytes());
    limits[8..16].copy_from_slice(&5000_u64.to_le_bytes());
    let nvme = open(&script(&limits)).unwrap();
    let limits = nvme.limits();
    assert_eq!((limits.granularity(), limits.max_ranges()), (4096, 16));
    assert_eq!((limits.max_range_bytes(), limits.max_command_bytes()), (1000 * 512, 5000 * 512));
    assert_eq!(nvme.read_after_discard(), ReadAfterDiscard::Zeros);
}

#[test]
fn an_older_controller_states_no_limits() {
    let script = Script::default()
        .identify(1, 0, &controller(), 0)
        .identify(0, ID, &edited(edited(namespace(), 24, 0), 33, 0), 0)
        .identify(6, 0, &[], 0x4002);
    let nvme = open(&script).unwrap();
    assert_eq!((nvme.limits().granularity(), nvme.limits().max_ranges()), (512, 256));
    assert_eq!(nvme.limits().max_range_bytes(), 1 << 32);
    assert_eq!(nvme.read_after_discard(), ReadAfterDiscard::Undefined);
    script.assert_done();
}

#[test]
fn large_granules_are_read_where_announced_and_left_when_absurd() {
    let large = |blocks: u32| {
        let mut page = vec![0; 4096];
        page[268..272].copy_from_slice(&blocks.to_le_bytes());
        page[284..288].copy_from_slice(&blocks.to_le_bytes());
        let script = Script::default()
            .identify(1, 0, &controller(), 0)
            .identify(0, ID, &edited(namespace(), 24, 0x30), 0)
            .identify(6, 0, &[], 0)
            .identify(5, ID, &page, 0);
        open(&script).unwrap()
    };
    assert_eq!(large(64).limits().granularity(), 64 * 512);
    assert_eq!(large(0).limits().granularity(), 4096, "not stated: the small form counts");
    let absurd = large(1 << 30);
    assert_eq!(absurd.limits().granularity(), 512);
    assert!(absurd.notes()[0].contains("too large to round to"));
}

#[test]
fn namespaces_that_must_not_be_discarded_on_are_refused() {
    let (good, drive) = (namespace(), controller());
    assert_eq!(refusal(&edited(drive.clone(), 520, 0xFB), &good, &facts()), ErrorKind::Rejected);
    assert_eq!(refusal(&drive, &edited(good.clone(), 128, 8), &facts()), ErrorKind::Unsuitable);
    assert_eq!(refusal(&drive, &edited(good.clone(), 99, 1), &facts()), ErrorKind::WriteProtected);
    assert_eq!(refusal(&drive, &edited(good.clone(), 130, 12), &facts()), ErrorKind::Contradiction);
    assert_eq!(refusal(&drive, &good, &DeviceFacts { disk_size: BYTES - 512, ..facts() }), ErrorKind::Contradiction);
    // The other format index (bits 6:5 and 3:0 of FLBAS) points at a format with metadata.
    let other = edited(edited(edited(good, 26, 0x21), 128 + 17 * 4, 8), 130 + 17 * 4, 9);
    assert_eq!(refusal(&drive, &other, &facts()), ErrorKind::Unsuitable);
}

fn blocks(start: u64, count: u64) -> LbaRange {
    LbaRange::exactly(ByteRange::with_len(start, count).unwrap(), BlockSize::new(1).unwrap()).unwrap()
}

#[test]
fn deallocate_fills_a_whole_page_in_little_endian() {
    let (command, page) = encode::deallocate(ID, &[blocks(0x0807_0605_0403_0201, 0x0D0C_0B0A), blocks(9, 1)]).unwrap();
    assert_eq!(command, Command { opcode: 9, namespace: ID, words: [1, 4, 0, 0, 0, 0] });
    assert_eq!(page.0[..16], [0, 0, 0, 0, 0x0A, 0x0B, 0x0C, 0x0D, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(page.0[16..32], [0, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    assert!(page.0[32..].iter().all(|byte| *byte == 0));
    assert_eq!(page.0.as_ptr().align_offset(4096), 0, "starts on a page");
    assert_eq!(encode::deallocate(ID, &vec![blocks(0, 1); 256]).unwrap().0.words[0], 255);
    assert!(encode::deallocate(ID, &vec![blocks(0, 1); 257]).is_none());
    assert!(encode::deallocate(ID, &[]).is_none());
    assert!(encode::deallocate(ID, &[blocks(0, 1 << 32)]).is_none());
    let read = encode::read(ID, blocks(0x1122_3344_5566_7788, 8)).unwrap();
    assert_eq!(read, Command { opcode: 2, namespace: ID, words: [0x5566_7788, 0x1122_3344, 7, 0, 0, 0] });
}

#[test]
fn a_batch_becomes_one_command_and_a_status_becomes_words() {
    let script = script(&[]);
    let mut nvme = open(&script).unwrap();
    let whole = ByteRange::new(0, BYTES).unwrap();
    let free = [ByteRange::new(4096, 8192).unwrap(), ByteRange::new(40960, 81920).unwrap()];
    let region = Region { device: 0, origin: "test", ranges: &free, within: whole, partition: whole };
    let disk = PlanDisk { device: 0, size: BYTES, capacity: nvme.capacity() };
    let plan = Plan::build(&disk, &[region], &nvme.limits(), &Policy::default()).unwrap();
    let batch = plan.cursor().next_batch(Cap::NONE).unwrap();
    let (command, page) = encode::deallocate(ID, &[blocks(8, 8), blocks(80, 80)]).unwrap();
    let script = script.line(Queue::Io, command, &page.0, Ok(0));
    nvme.discard(&batch).unwrap();
    let statuses = [
        (0x4080, ErrorKind::OutOfRange),
        (0x0183, ErrorKind::LimitExceeded),
        (0x6286, ErrorKind::WriteProtected),
        (0x0371, ErrorKind::TimedOut),
        (0x0281, ErrorKind::Failing),
    ];
    let script = statuses.iter().fold(script, |s, (status, _)| s.line(Queue::Io, command, &page.0, Ok(*status)));
    for (status, kind) in statuses {
        let error = nvme.discard(&batch).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(&format!("{:03x}h", status & 0x7FF)), "{error}");
    }
    let script = script.line(Queue::Io, command, &page.0, Err(io::Error::from_raw_os_error(19)));
    assert_eq!(nvme.discard(&batch).unwrap_err().kind(), ErrorKind::Gone);
    script.assert_done();
}
