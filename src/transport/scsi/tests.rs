use super::device::WORK;
use super::encode;
use super::pages::*;
use super::script::{Script, check_condition};
use super::sense::{AtaRegisters, Sense};
use super::*;
use crate::plan::units::{BlockSize, ByteRange, LbaRange};
use crate::transport::{Data, ErrorKind, TransportError};

fn blocks(start: u64, count: u64) -> LbaRange {
    LbaRange::exactly(ByteRange::with_len(start, count).unwrap(), BlockSize::new(1).unwrap()).unwrap()
}

#[test]
fn commands_have_the_bytes_of_the_standard() {
    assert_eq!(encode::vital_product_data(0xB0, 64), [0x12, 1, 0xB0, 0, 64, 0]);
    assert_eq!(encode::read_10(blocks(0x0102_0304, 0x0506)), Some([0x28, 0, 1, 2, 3, 4, 0, 5, 6, 0]));
    assert_eq!(encode::read_10(blocks(1 << 32, 1)), None);
    assert_eq!(encode::read_10(blocks(0, 65536)), None);
    assert_eq!(
        encode::read_16(blocks(0x0102_0304_0506_0708, 0x0A0B_0C0D)),
        Some([0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x0A, 0x0B, 0x0C, 0x0D, 0, 0])
    );
    assert_eq!(encode::get_lba_status(0x1234), [0x9E, 0x12, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 24, 0, 0]);
    assert_eq!(
        encode::write_same_16(blocks(0x0102_0304_0506_0708, 0xFFFF)),
        Some([0x93, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0xFF, 0xFF, 0, 0])
    );
    assert_eq!(encode::write_same_16(blocks(0, 0x1_0000)), None, "its low 16 bits would be 0: the rest of the disk");
    assert_eq!(encode::write_same_10(blocks(0x0102_0304, 0x0506)), Some([0x41, 8, 1, 2, 3, 4, 0, 5, 6, 0]));
}

#[test]
fn unmap_of_one_range_is_what_the_kernel_sends() {
    let (cdb, list) = encode::unmap(&[blocks(0x0102_0304_0506_0708, 0x0A0B_0C0D)]).unwrap();
    assert_eq!(cdb, [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0]);
    let descriptor = [1, 2, 3, 4, 5, 6, 7, 8, 0x0A, 0x0B, 0x0C, 0x0D, 0, 0, 0, 0];
    assert_eq!(list, [&[0, 0x16, 0, 0x10, 0, 0, 0, 0][..], &descriptor].concat());
}

#[test]
fn unmap_of_many_ranges_states_every_length() {
    let ranges: Vec<LbaRange> = (0..255).map(|k| blocks(k * 10, 5)).collect();
    let (cdb, list) = encode::unmap(&ranges).unwrap();
    assert_eq!(list.len(), 8 + 255 * 16);
    assert_eq!(&cdb[7..9], u16::try_from(list.len()).unwrap().to_be_bytes());
    assert_eq!(&list[..4], [0x0F, 0xF6, 0x0F, 0xF0]);
    assert_eq!(&list[list.len() - 16..], [0, 0, 0, 0, 0, 0, 0x09, 0xEC, 0, 0, 0, 5, 0, 0, 0, 0]);
    assert!(encode::unmap(&[blocks(0, 1 << 32)]).is_none());
    assert!(encode::unmap(&vec![blocks(0, 1); 4096]).is_none());
}

#[test]
fn sense_is_understood_in_both_formats() {
    let mut fixed = [0_u8; 18];
    (fixed[0], fixed[2], fixed[6], fixed[12]) = (0xF0, 5, 9, 0x21);
    let sense = Sense::parse(&fixed).unwrap();
    assert_eq!(sense.to_string(), "sense 5/21/00: illegal request, block address out of range, at block 9");
    assert_eq!(sense.kind(), ErrorKind::OutOfRange);

    let mut information = vec![0x72, 5, 0x21, 0, 0, 0, 0, 12, 0, 10, 0x80, 0];
    information.extend(9_u64.to_be_bytes());
    let descriptor = Sense::parse(&information).unwrap();
    assert_eq!((descriptor.code(), descriptor.information), (sense.code(), Some(9)));

    let deferred = Sense::parse(&[0x71, 0, 0]).unwrap();
    assert!(deferred.deferred && !deferred.is_success() && deferred.kind() == ErrorKind::Io);
    assert_eq!(Sense::parse(&[0x70, 0]), None);
    assert_eq!(Sense::parse(&[0; 18]), None);
    assert_eq!(Sense::parse(&[]), None);
}

#[test]
fn ata_registers_are_found_in_both_formats() {
    let descriptor = [0x72, 1, 0, 0x1D, 0, 0, 0, 14, 9, 12, 0, 0x04, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x51];
    let sense = Sense::parse(&descriptor).unwrap();
    assert_eq!(sense.ata, Some(AtaRegisters { status: 0x51, error: 4 }));
    assert!(!sense.is_success());
    assert_eq!(sense.kind(), ErrorKind::Aborted);
    assert!(sense.to_string().ends_with("ATA status 51h, error 04h (aborted)"), "{sense}");

    let mut fixed = [0_u8; 18];
    (fixed[0], fixed[2], fixed[3], fixed[4], fixed[13]) = (0x70, 1, 0, 0x50, 0x1D);
    let sense = Sense::parse(&fixed).unwrap();
    assert!(sense.is_success() && sense.ata.is_some_and(AtaRegisters::is_success));
    // A descriptor that claims to be longer than the data is not read past its end.
    assert_eq!(Sense::parse(&[0x72, 1, 0, 0x1D, 0, 0, 0, 14, 9, 12, 0]).unwrap().ata, None);
}

#[test]
fn pages_that_are_too_short_or_another_page_are_not_believed() {
    let mut page = vec![0; 64];
    (page[1], page[3]) = (0xB0, 0x3C);
    page[20..24].copy_from_slice(&4_194_240_u32.to_be_bytes());
    page[27] = 1;
    page[31] = 8;
    page[32..36].copy_from_slice(&0x8000_0003_u32.to_be_bytes());
    let limits = BlockLimits::parse(&page).unwrap();
    assert_eq!((limits.max_unmap_blocks, limits.max_unmap_descriptors), (4_194_240, 1));
    assert_eq!((limits.unmap_granularity, limits.unmap_alignment), (8, Some(3)));
    page[32] = 0;
    assert_eq!(BlockLimits::parse(&page).unwrap().unmap_alignment, None, "UGAVALID is 0");
    assert_eq!(BlockLimits::parse(&page[..63]), None);
    page[1] = 0;
    assert_eq!(BlockLimits::parse(&page), None, "standard INQUIRY data instead of the page");

    let provisioning = |bits| Provisioning::parse(&[0, 0xB2, 0, 4, 0, bits, 0, 0]).unwrap();
    assert!(provisioning(0x80).unmap && !provisioning(0x7F).unmap);
    assert!(provisioning(0x40).write_same_16 && provisioning(0x20).write_same_10);
    assert!(provisioning(0x04).reads_zeros && !provisioning(0x08).reads_zeros);
}

#[test]
fn lba_status_counts_only_when_it_covers_the_range() {
    let answer = |start: u64, count: u32, status| {
        [&[0; 8][..], &start.to_be_bytes(), &count.to_be_bytes(), &[status, 0, 0, 0]].concat()
    };
    assert_eq!(is_deallocated(&answer(100, 50, 1), 110, 40), Some(true));
    assert_eq!(is_deallocated(&answer(100, 50, 1), 110, 41), None);
    assert_eq!(is_deallocated(&answer(100, 50, 3), 110, 40), Some(false));
    assert_eq!(is_deallocated(&answer(100, 50, 0), 110, 40), None, "mapped or unknown");
    assert_eq!(is_deallocated(&[0; 8], 0, 1), None);
}

fn device(script: &Script) -> ScsiDevice {
    ScsiDevice::new("unmap", script.port())
}

fn run(completion: Completion) -> TransportError {
    let script = Script::default().line(&encode::SYNCHRONIZE_CACHE, &[], &[], completion.clone());
    let script = if completion.status == 2 { script.ok(&encode::TEST_UNIT_READY) } else { script };
    let error = device(&script).run("X", &encode::SYNCHRONIZE_CACHE, Data::None, WORK).unwrap_err();
    script.assert_done();
    error
}

#[test]
fn success_needs_everything_to_say_so() {
    let kind = |completion| run(completion).kind();
    assert_eq!(kind(Completion { host: 3, ..Completion::default() }), ErrorKind::TimedOut);
    assert_eq!(kind(Completion { host: 1, ..Completion::default() }), ErrorKind::Gone);
    assert_eq!(kind(Completion { host: 8, ..Completion::default() }), ErrorKind::Changed);
    assert_eq!(kind(Completion { host: 7, ..Completion::default() }), ErrorKind::Io);
    assert_eq!(kind(Completion { driver: 6, ..Completion::default() }), ErrorKind::Io);
    assert_eq!(kind(Completion { residue: 4, ..Completion::default() }), ErrorKind::Incomplete);
    assert_eq!(kind(Completion { status: 0x18, ..Completion::default() }), ErrorKind::WriteProtected);
    assert_eq!(kind(Completion { status: 0x02, ..Completion::default() }), ErrorKind::Io);
    assert_eq!(kind(Completion { status: 0, ..check_condition(3, 0x11, 0) }), ErrorKind::Failing);
    let table = [
        ((2, 4, 1), ErrorKind::NotReady),
        ((4, 0x44, 0), ErrorKind::Failing),
        ((5, 0x20, 0), ErrorKind::Rejected),
        ((5, 0x24, 0), ErrorKind::Rejected),
        ((5, 0x26, 0), ErrorKind::LimitExceeded),
        ((5, 0x1A, 0), ErrorKind::LimitExceeded),
        ((5, 0x21, 0), ErrorKind::OutOfRange),
        ((6, 0x29, 0), ErrorKind::Changed),
        ((6, 0x2A, 9), ErrorKind::Changed),
        ((7, 0x27, 0), ErrorKind::WriteProtected),
        ((0xB, 0, 0), ErrorKind::Aborted),
    ];
    for ((key, asc, ascq), expected) in table {
        let error = run(check_condition(key, asc, ascq));
        assert_eq!(error.kind(), expected, "{error}");
        assert_eq!(error.sense().unwrap().code(), (key, asc, ascq));
    }
}

#[test]
fn recovered_errors_are_successes() {
    let script = Script::default()
        .line(&encode::SYNCHRONIZE_CACHE, &[], &[], check_condition(1, 0x17, 0))
        .ok(&encode::TEST_UNIT_READY);
    device(&script).run("X", &encode::SYNCHRONIZE_CACHE, Data::None, WORK).unwrap();
    script.assert_done();
}

#[test]
fn a_reset_right_after_a_failure_is_the_news_that_counts() {
    let script = Script::default().line(&encode::SYNCHRONIZE_CACHE, &[], &[], check_condition(0xB, 0, 0)).line(
        &encode::TEST_UNIT_READY,
        &[],
        &[],
        check_condition(6, 0x29, 0),
    );
    let error = device(&script).run("X", &encode::SYNCHRONIZE_CACHE, Data::None, WORK).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed);
    assert!(error.to_string().contains("sense B/00/00") && error.to_string().contains("sense 6/29/00"), "{error}");
}

#[test]
fn unit_attentions_are_cleared_three_times_and_no_more() {
    let attention = || check_condition(6, 0x29, 0);
    let script = Script::default()
        .line(&encode::TEST_UNIT_READY, &[], &[], attention())
        .line(&encode::TEST_UNIT_READY, &[], &[], attention())
        .ok(&encode::TEST_UNIT_READY);
    device(&script).wake().unwrap();
    script.assert_done();
    let stubborn = (0..4).fold(Script::default(), |s, _| s.line(&encode::TEST_UNIT_READY, &[], &[], attention()));
    assert_eq!(device(&stubborn).wake().unwrap_err().kind(), ErrorKind::Changed);
    stubborn.assert_done();
}

#[test]
fn only_a_disk_gets_further_than_inquiry() {
    for (kind, word) in [
        (0x05, "optical"),
        (0x01, "tape"),
        (0x14, "zoned"),
        (0x0E, "RBC"),
        (0x20, "not connected"),
        (0x1F, "not a disk"),
    ] {
        let mut answer = [0; 36];
        answer[0] = kind;
        let script = Script::default().answers(&encode::INQUIRY, &answer);
        let error = device(&script).inquiry().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsuitable);
        assert!(error.to_string().contains(word), "{error}");
    }
    let short = Script::default().answers(&encode::INQUIRY, &[0; 35]);
    assert_eq!(device(&short).inquiry().unwrap_err().kind(), ErrorKind::Contradiction);
}

#[test]
fn both_forms_of_read_capacity_must_agree() {
    let short = |last: u32| [last.to_be_bytes(), 512_u32.to_be_bytes()].concat();
    let long = |last: u64| [&last.to_be_bytes()[..], &512_u32.to_be_bytes(), &[0, 3, 0x80, 7], &[0; 16]].concat();
    let capacity = |short: &[u8], long: &[u8]| {
        let script =
            Script::default().answers(&encode::READ_CAPACITY_10, short).answers(&encode::READ_CAPACITY_16, long);
        device(&script).capacity(6)
    };
    let agreed = capacity(&short(99), &long(99)).unwrap();
    assert_eq!(agreed.bytes(), Some(51_200));
    let details = agreed.details.unwrap();
    assert!(details.provisioned && !details.reads_zeros);
    assert_eq!((details.physical_exponent, details.lowest_aligned), (3, 7));
    assert_eq!(capacity(&short(99), &long(100)).unwrap_err().kind(), ErrorKind::Contradiction);
    assert_eq!(capacity(&short(u32::MAX), &long(1 << 33)).unwrap().blocks, (1 << 33) + 1);
    // An old device is asked in the short form only, unless that has no room.
    let old = Script::default().answers(&encode::READ_CAPACITY_10, &short(99));
    assert_eq!(device(&old).capacity(4).unwrap().details, None);
    let large = Script::default().answers(&encode::READ_CAPACITY_10, &short(u32::MAX)).fails(
        &encode::READ_CAPACITY_16,
        &[],
        (5, 0x20, 0),
    );
    assert_eq!(device(&large).capacity(4).unwrap_err().kind(), ErrorKind::Rejected, "the size cannot be known");
}

#[test]
fn a_page_is_asked_for_by_its_header_first() {
    let page = [0, 0xB2, 0, 4, 0, 0x80, 0, 0];
    let script = Script::default()
        .answers(&encode::vital_product_data(0xB2, 4), &page[..4])
        .answers(&encode::vital_product_data(0xB2, 8), &page);
    assert_eq!(device(&script).page(0xB2).unwrap(), Some(page.to_vec()));
    script.assert_done();
    let absent = Script::default().fails(&encode::vital_product_data(0xB0, 4), &[], (5, 0x24, 0));
    assert_eq!(device(&absent).page(0xB0).unwrap(), None);
    let unlisted = Script::default();
    assert_eq!(device(&unlisted).listed_page(&[0, 0, 0, 1, 0], 0xB0).unwrap(), None);
}

#[test]
fn a_device_without_a_cache_command_counts_as_flushed() {
    let absent = Script::default().fails(&encode::SYNCHRONIZE_CACHE, &[], (5, 0x20, 0));
    device(&absent).flush().unwrap();
    let failing = Script::default().fails(&encode::SYNCHRONIZE_CACHE, &[], (0xB, 0, 0));
    assert_eq!(device(&failing).flush().unwrap_err().kind(), ErrorKind::Aborted);
}
