use super::encode::{asmedia, jmicron, jmicron_command, jmicron_status, realtek};
use super::*;
use crate::transport::facts::{NodeKind, test_facts};
use crate::transport::scsi::encode as scsi;
use crate::transport::scsi::script::Script;

const SIZE: u64 = 1 << 30;
const JMS583: UsbId = UsbId { vendor: 0x152d, product: 0x0583, release: 0x0214 };
const ASM2362: UsbId = UsbId { vendor: 0x174c, product: 0x2362, release: 0x0100 };
const RTL9210: UsbId = UsbId { vendor: 0x0bda, product: 0x9210, release: 0xf000 };

fn inquiry(vendor: &str, product: &str) -> Vec<u8> {
    let mut data = vec![0, 0, 6, 2, 31, 0, 0, 0];
    data.extend(format!("{vendor:8}{product:16}0214").bytes());
    data
}

fn controller(model: &str) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    page[4..72].copy_from_slice(format!("{:20}{model:40}{:8}", "S1", "1.0").as_bytes());
    page[520] = 4;
    page
}

fn namespace(blocks: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    page[..8].copy_from_slice(&blocks.to_le_bytes());
    (page[33], page[130]) = (1, 9);
    page
}

fn result(status: u16) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block[..4].copy_from_slice(b"NVME");
    block[22..24].copy_from_slice(&status.to_le_bytes());
    block
}

/// Everything before the first command of the maker.
fn begin(vendor: &str, product: &str) -> Script {
    Script::default().answers(&scsi::INQUIRY, &inquiry(vendor, product)).ok(&scsi::TEST_UNIT_READY)
}

fn without_ata(script: Script) -> Script {
    let list = [0, 0, 0, 2, 0x00, 0xB0];
    script.answers(&scsi::vital_product_data(0, 4), &list[..4]).answers(&scsi::vital_product_data(0, 6), &list).fails(
        &sat::identify_command(),
        &[],
        (5, 0x20, 0),
    )
}

fn jmicron_page(script: Script, page: Page, data: &[u8], status: u16) -> Script {
    script
        .takes(&jmicron(Step::Command), &jmicron_command(page))
        .answers(&jmicron(Step::Data), data)
        .answers(&jmicron(Step::Result), &result(status))
}

fn asked(script: &Script, usb: UsbId) -> Result<VendorIdentity, TransportError> {
    let facts = DeviceFacts { usb: Some(usb), ..test_facts(NodeKind::Scsi, SIZE) };
    let answer = ask(script.port(), &facts);
    script.assert_done();
    answer
}

fn closes(script: &Script, usb: UsbId, word: &str) {
    let error = asked(script, usb).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsuitable && error.to_string().contains(word), "{error}");
}

#[test]
fn commands_are_those_of_the_sheets() {
    assert_eq!(jmicron(Step::Command), [0xA1, 0x80, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(jmicron(Step::Data), [0xA1, 0x82, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(jmicron(Step::Result), [0xA1, 0x8F, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    for (page, space, selector) in [(Page::Controller, 0, 1), (Page::Namespace, 1, 0)] {
        let block = jmicron_command(page);
        let expected = [(0, b'N'), (1, b'V'), (2, b'M'), (3, b'E'), (8, 6), (12, space), (48, selector)];
        for (at, byte) in block.iter().enumerate() {
            let wanted = expected.iter().find(|(place, _)| *place == at).map_or(0, |(_, byte)| *byte);
            assert_eq!(*byte, wanted, "byte {at}; byte 72 switches power");
        }
        assert_eq!(asmedia(page)[..4], [0xE6, 6, 0, selector]);
        assert_eq!(realtek(page)[..5], [0xE4, 0x00, 0x10, 6, selector]);
        assert!(asmedia(page)[4..].iter().chain(&realtek(page)[5..]).all(|byte| *byte == 0));
    }
    let block = |status| result(status).try_into().unwrap();
    assert_eq!(jmicron_status(&block(0)), Some(0));
    assert_eq!(jmicron_status(&block(1)), Some(1));
    assert_eq!(jmicron_status(&[0; BLOCK]), None, "a clone that answers nothing but zeros");
}

#[test]
fn a_jmicron_bridge_tells_its_drive() {
    let script = without_ata(begin("JMicron", "Tech"));
    let script = jmicron_page(script, Page::Controller, &controller("ZOO NVME"), 0);
    let script = jmicron_page(script, Page::Namespace, &namespace(SIZE / 512), 0);
    let found = asked(&script, JMS583).unwrap();
    assert_eq!((found.maker, found.controller.model.as_str()), (Maker::JMicron, "ZOO NVME"));
    assert!(found.controller.dataset_management && found.namespace.reads_zeros);
}

#[test]
fn others_tell_theirs_by_one_command_each() {
    let mark = [inquiry("ASMT", "2362"), encode::ASMEDIA_MARK.to_vec()].concat();
    let script = begin("ASMT", "2362")
        .answers(&encode::ASMEDIA_INQUIRY, &mark)
        .answers(&asmedia(Page::Controller), &controller("ZOO NVME"))
        .answers(&asmedia(Page::Namespace), &namespace(SIZE / 512));
    assert_eq!(asked(&script, ASM2362).unwrap().maker, Maker::AsMedia);
    let script = begin("Realtek", "RTL9210B NVME")
        .answers(&realtek(Page::Controller), &controller("ZOO NVME"))
        .answers(&realtek(Page::Namespace), &namespace(SIZE / 512));
    assert_eq!(asked(&script, RTL9210).unwrap().maker, Maker::Realtek);
}

/// The scripts end before the first byte of a maker's own command.
#[test]
fn a_bridge_that_could_be_another_gets_no_command_of_the_maker() {
    let nothing = Script::default;
    closes(&nothing(), UsbId { vendor: 0x174c, product: 0x55aa, release: 0 }, "174c:55aa");
    // The same numbers are on a SATA bridge with two disks.
    closes(&nothing(), UsbId { vendor: 0x152d, product: 0x0562, release: 0 }, "152d:0562");
    for release in SATA_AS_JMS583 {
        closes(&nothing(), UsbId { release: *release, ..JMS583 }, "SATA adapters");
    }
    closes(&begin("Generic", "Disk"), JMS583, "INQUIRY");
    closes(&begin("ASMT", "2362"), JMS583, "INQUIRY");
    closes(&begin("JMicron", "Tech"), RTL9210, "INQUIRY");
    let plain = begin("Realtek", "RTL9210").answers(&encode::ASMEDIA_INQUIRY, &inquiry("Realtek", "RTL9210"));
    closes(&plain, ASM2362, "INQUIRY");
}

#[test]
fn jmicrons_command_never_reaches_what_could_be_a_sata_bridge() {
    let list = [0, 0, 0, 2, 0x00, ATA_PAGE];
    let pages = |list: &[u8; 6]| {
        begin("JMicron", "Tech")
            .answers(&scsi::vital_product_data(0, 4), &list[..4])
            .answers(&scsi::vital_product_data(0, 6), list)
    };
    closes(&pages(&list), JMS583, "ATA information");
    let none = [0, 0, 0, 2, 0x00, 0xB0];
    // Real identity data, data that means nothing, a drive that aborts, and a field that is wrong: all of them know the opcode.
    closes(&pages(&none).answers(&sat::identify_command(), &[0; 512]), JMS583, "SATA bridge");
    for sense in [(0xB, 0, 0), (5, 0x24, 0), (5, 0x26, 0)] {
        closes(&pages(&none).fails(&sat::identify_command(), &[], sense), JMS583, "SATA bridge");
    }
    let broken = pages(&none).fails(&sat::identify_command(), &[], (4, 0x44, 0));
    assert_eq!(
        asked(&broken, JMS583).unwrap_err().kind(),
        ErrorKind::Failing,
        "nothing more is asked of a failing one"
    );
}

#[test]
fn what_does_not_fit_is_not_believed() {
    let begun = || without_ata(begin("JMicron", "Tech"));
    let contradicts = |script: &Script| {
        let error = asked(script, JMS583).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Contradiction, "{error}");
    };
    contradicts(&jmicron_page(begun(), Page::Controller, &[0; PAGE], 0));
    contradicts(&jmicron_page(begun(), Page::Controller, &[0xFF; PAGE], 0));
    contradicts(&jmicron_page(begun(), Page::Controller, &controller("ZOO NVME"), 1));
    let script = jmicron_page(begun(), Page::Controller, &controller("ZOO NVME"), 0);
    contradicts(&jmicron_page(script, Page::Namespace, &namespace(SIZE / 512 - 1), 0));
    let script = begun().takes(&jmicron(Step::Command), &jmicron_command(Page::Controller));
    let script = script.answers(&jmicron(Step::Data), &controller("ZOO NVME"));
    contradicts(&script.answers(&jmicron(Step::Result), &[0; BLOCK]));
}
