use super::*;
use crate::plan::units::ByteRange;
use crate::plan::{Disk as PlanDisk, Plan, Policy, Region};
use crate::transport::facts::test_facts;
use crate::transport::scsi::script::Script;

const BLOCKS: u64 = 1 << 20;
const BYTES: u64 = BLOCKS * 512;

/// A disk whose VPD page B2h has these bits, and whose page B0h allows so many blocks in a WRITE SAME.
fn disk(bits: u8, most: u64) -> Script {
    let inquiry = [&[0, 0, 6, 2, 31, 0, 0, 0][..], b"MEMORY  WRITE SAME DISK 1.0 "].concat();
    let last = BLOCKS - 1;
    let short = [u32::try_from(last).unwrap().to_be_bytes(), 512_u32.to_be_bytes()].concat();
    let long = [&last.to_be_bytes()[..], &512_u32.to_be_bytes(), &[0; 20]].concat();
    let (list, provisioning) = ([0, 0, 0, 3, 0, 0xB0, 0xB2], [0, 0xB2, 0, 4, 0, bits, 0, 0]);
    let mut limits = vec![0; 64];
    (limits[1], limits[3]) = (0xB0, 0x3C);
    limits[36..44].copy_from_slice(&most.to_be_bytes());
    let page = |script: Script, code, length, page: &[u8]| {
        script
            .answers(&encode::vital_product_data(code, 4), page)
            .answers(&encode::vital_product_data(code, length), page)
    };
    let script = Script::default()
        .answers(&encode::INQUIRY, &inquiry)
        .ok(&encode::TEST_UNIT_READY)
        .answers(&encode::READ_CAPACITY_10, &short)
        .answers(&encode::READ_CAPACITY_16, &long)
        .answers(&encode::MODE_SENSE, &[0; 4]);
    page(page(page(script, 0x00, 7, &list), 0xB0, 64, &limits), 0xB2, 8, &provisioning)
}

fn facts() -> DeviceFacts {
    test_facts(NodeKind::Scsi, BYTES)
}

#[test]
fn the_claim_for_the_very_form_is_needed() {
    let open = |form, bits| WriteSame::open(form, disk(bits, 0).port(), &facts()).map(|_| ()).map_err(|e| e.kind());
    assert_eq!(open(Form::Sixteen, 0x40), Ok(()));
    assert_eq!(open(Form::Sixteen, 0xA0), Err(ErrorKind::Rejected));
    assert_eq!(open(Form::Ten, 0x20), Ok(()));
    assert_eq!(open(Form::Ten, 0xC0), Err(ErrorKind::Rejected));
}

#[test]
fn counts_stay_within_16_bits_whatever_the_device_allows() {
    for (stated, expected) in [(0, 0xFFFF), (1 << 40, 0xFFFF), (1000, 1000)] {
        let route = WriteSame::open(Form::Sixteen, disk(0x44, stated).port(), &facts()).unwrap();
        assert_eq!(route.limits().max_command_bytes(), expected * 512);
        assert_eq!(route.read_after_discard(), ReadAfterDiscard::Zeros);
    }
}

#[test]
fn each_range_is_one_command_with_one_block_of_zeros() {
    let script = disk(0x40, 0);
    let mut route = WriteSame::open(Form::Sixteen, script.port(), &facts()).unwrap();
    let whole = ByteRange::new(0, BYTES).unwrap();
    let free = [ByteRange::new(512, 512 * 65541).unwrap()];
    let region = Region { device: 0, origin: "test", ranges: &free, within: whole, partition: whole };
    let on = PlanDisk { device: 0, size: BYTES, capacity: route.capacity() };
    let plan = Plan::build(&on, &[region], &route.limits(), &Policy::default()).unwrap();
    let script = script
        .takes(&[0x93, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0xFF, 0xFF, 0, 0], &[0; 512])
        .takes(&[0x93, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 5, 0, 0], &[0; 512]);
    for batch in plan.batches() {
        route.discard(&batch).unwrap();
    }
    script.assert_done();
}
