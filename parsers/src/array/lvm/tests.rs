//! The text, the records, and what becomes of a group when a bit of them is turned.

use super::config::{Value, parse};
use super::label::SUM_START;
use super::*;
use crate::container::crc32;
use proptest::prelude::*;

fn numbers(list: &[i64]) -> Value {
    Value::List(list.iter().copied().map(Value::Number).collect())
}

#[test]
fn a_text_is_read_as_lvm_writes_it() {
    let text = b"# said by lvm\nvg {\n\tid = \"a\\\"b\\\\\" # }\n\tn = -7\n\tlist=[1, 2,3]\n\tempty = []\n\tpv-0.1+x { a = 1 }\n}\nv=1\n\0";
    let root = parse(text).unwrap();
    let group = root.section("vg").unwrap();
    assert_eq!(group.text("id"), Some("a\"b\\"));
    assert_eq!(group.value("n"), Some(&Value::Number(-7)));
    assert_eq!(group.number("n"), None);
    assert_eq!(group.value("list"), Some(&numbers(&[1, 2, 3])));
    assert_eq!(group.list("empty"), Some(&[][..]));
    assert_eq!(group.section("pv-0.1+x").and_then(|inner| inner.number("a")), Some(1));
    assert_eq!((root.number("v"), root.number("none"), root.text("v")), (Some(1), None, None));
}

#[test]
fn a_fault_is_told_with_its_line() {
    let cases: &[(&str, &str)] = &[
        ("a {\n", "line 2 of the metadata: expected '}'"),
        ("a = 1\n}", "line 2 of the metadata: a brace is closed that was never opened"),
        ("a = 1\na = 2", "line 2 of the metadata: a is there twice"),
        ("a = \"", "line 1 of the metadata: a string has no end"),
        ("a = x", "line 1 of the metadata: expected a number, a string or a list"),
        ("a = 1-", "line 1 of the metadata: expected a number, a string or a list"),
        ("a = 99999999999999999999", "line 1 of the metadata: expected a number, a string or a list"),
        ("a = [1 2]", "line 1 of the metadata: expected ']'"),
        ("a", "line 1 of the metadata: expected '='"),
        ("= 1", "line 1 of the metadata: expected a name"),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text.as_bytes()).unwrap_err().to_string(), *expected, "{text}");
    }
    assert!(parse("a{".repeat(100_000).as_bytes()).unwrap_err().to_string().contains("too deep"));
    assert!(parse(format!("a={}", "[".repeat(100_000)).as_bytes()).unwrap_err().to_string().contains("too deep"));
}

const UUID: &str = "AAAAAABBBBCCCCDDDDEEEEFFFFGGGGGG";
const EXTENT: usize = 4096;
/// Where the text lies.
const TEXT: usize = 4096 + 512;

const DESCRIPTION: &str = "vg {\nid = \"vgid\"\nseqno = 3\nstatus = [\"RESIZEABLE\", \"READ\", \"WRITE\"]\nextent_size = 8\n\
    physical_volumes {\npv0 {\nid = \"AAAAAA-BBBB-CCCC-DDDD-EEEE-FFFF-GGGGGG\"\nstatus = [\"ALLOCATABLE\"]\npe_start = 32\n\
    pe_count = 8\n}\n}\nlogical_volumes {\nlv {\nid = \"lvid\"\nstatus = [\"READ\", \"WRITE\", \"VISIBLE\"]\nsegment_count = 2\n\
    segment1 {\nstart_extent = 0\nextent_count = 2\ntype = \"striped\"\nstripe_count = 1\nstripes = [\"pv0\", 5]\n}\n\
    segment2 {\nstart_extent = 2\nextent_count = 1\ntype = \"striped\"\nstripe_count = 1\nstripes = [\"pv0\", 1]\n}\n}\n}\n}\n\
    contents = \"Text Format Volume Group\"\nversion = 1\n";

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

fn words(list: &[u64]) -> Vec<u8> {
    list.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A physical volume of eight extents behind 16 KiB.
fn physical(text: &str) -> Vec<u8> {
    let mut bytes = vec![0; 16_384 + 8 * EXTENT];
    put(&mut bytes, 512, b"LABELONE\x01\0\0\0\0\0\0\0");
    put(&mut bytes, 512 + 20, &32_u32.to_le_bytes());
    put(&mut bytes, 512 + 24, b"LVM2 001");
    put(&mut bytes, 512 + 32, UUID.as_bytes());
    put(&mut bytes, 512 + 64, &words(&[49_152, 16_384, 0, 0, 0, 4096, 12_288, 0, 0, 1 << 32 | 2]));
    let sum = crc32::continued(SUM_START, &bytes[512 + 20..1024]);
    put(&mut bytes, 512 + 16, &sum.to_le_bytes());
    put(&mut bytes, 4096 + 4, b" LVM2 x[5A%r0N*>\x01\0\0\0");
    put(&mut bytes, 4096 + 24, &words(&[4096, 12_288, 512, text.len() as u64]));
    put(&mut bytes, 4096 + 56, &crc32::continued(SUM_START, text.as_bytes()).to_le_bytes());
    let sum = crc32::continued(SUM_START, &bytes[4100..4608]);
    put(&mut bytes, 4096, &sum.to_le_bytes());
    put(&mut bytes, TEXT, text.as_bytes());
    bytes
}

fn groups(bytes: &Vec<u8>) -> Vec<Group> {
    Lvm.assemble(&[Candidate { leaf: 4, source: bytes, device: 2, start: 1_000_000 }])
}

fn areas(group: &Group) -> Option<Vec<(u64, u64)>> {
    let [array] = group.outcome.as_ref().ok()?.mapped.as_slice() else { return None };
    Some(array.mapping.areas().map(|area| (area.range.start() - 1_000_000, area.range.len())).collect())
}

#[test]
fn a_linear_volume_lies_where_its_extents_are_and_the_rest_is_spare() {
    let bytes = physical(DESCRIPTION);
    let [group] = groups(&bytes).try_into().map_err(drop).unwrap();
    assert_eq!(areas(&group), Some(vec![(16_384 + 5 * 4096, 8192), (16_384 + 4096, 4096)]));
    let spare: Vec<(u64, u64)> = group.members[0].spare.iter().map(|range| (range.start(), range.len())).collect();
    assert_eq!(spare, [(16_384, 4096), (16_384 + 2 * 4096, 3 * 4096), (16_384 + 7 * 4096, 4096)]);
    let array = &group.outcome.as_ref().unwrap().mapped[0];
    assert_eq!(
        (array.format.as_str(), array.name.as_deref(), array.uuid.as_str()),
        ("lvm linear", Some("vg/lv"), "lvid")
    );
    assert_eq!((group.title.as_str(), group.members[0].leaf), ("the volume group vg", 4));
}

/// The sums, and the fixed words before them, see to it that what is read is what was written.
#[test]
fn no_single_bit_of_the_records_changes_where_a_volume_lies() {
    let good = physical(DESCRIPTION);
    for at in (512..1024).chain(4096..TEXT + DESCRIPTION.len()) {
        for bit in 0..8 {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            let mapped = groups(&bytes).iter().find_map(areas);
            assert_eq!(mapped, None, "byte {at} bit {bit}");
        }
    }
}

proptest! {
    /// Texts with right sums and wrong contents: refused or laid out without overlaps, and never a panic.
    #[test]
    fn any_text_is_refused_or_makes_sense(at in 0..DESCRIPTION.len(), with in "[ -~\\n]{0,12}", cut in 0..40_usize) {
        let mut text = DESCRIPTION.to_owned();
        text.replace_range(at..(at + cut).min(DESCRIPTION.len()), &with);
        let bytes = physical(&text);
        for group in groups(&bytes) {
            let mut all: Vec<(u64, u64)> = areas(&group).unwrap_or_default();
            all.extend(group.members[0].spare.iter().map(|range| (range.start(), range.len())));
            all.sort_unstable();
            prop_assert!(all.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{:?}", all);
            prop_assert!(all.iter().all(|(start, len)| *start >= 16_384 && start + len <= bytes.len() as u64), "{:?}", all);
        }
    }

    #[test]
    fn any_bytes_are_a_text_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&bytes);
    }
}
