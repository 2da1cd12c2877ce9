use super::*;
use crate::transport::facts::test_facts;

#[test]
fn what_was_written_is_read_back_and_the_rest_is_untouched() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(4 << 20).unwrap();
    let mut access = Direct::open(&file, &test_facts(NodeKind::Image, 4 << 20)).unwrap();
    let pattern: Vec<u8> = (0..(3 << 20) / 4).flat_map(|n: u32| n.to_le_bytes()).collect();
    access.write(512, &pattern).unwrap();
    access.flush().unwrap();
    assert_eq!(access.read(ByteRange::with_len(512, 3 << 20).unwrap()).unwrap(), pattern);
    assert_eq!(access.read(ByteRange::new(0, 512).unwrap()).unwrap(), [0; 512]);
    let mut all = vec![0; 4 << 20];
    file.read_exact_at(&mut all, 0).unwrap();
    assert!(all[..512].iter().chain(&all[512 + (3 << 20)..]).all(|byte| *byte == 0));
}

#[test]
fn nothing_but_whole_blocks_inside_the_device() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    let mut access = Direct::open(&file, &test_facts(NodeKind::Image, 4096)).unwrap();
    for range in [(0, 100), (100, 512), (3584, 4608), (4096, 4608)] {
        let error = access.read(ByteRange::new(range.0, range.1).unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
    }
    assert!(access.write(4096, &[0; 512]).is_err() && access.write(0, &[0; 100]).is_err());
    assert_eq!(file.metadata().unwrap().len(), 4096);
}

#[test]
fn buffers_start_on_a_page() {
    for length in [1, 512, 4096, 1 << 20] {
        let mut buffer = Aligned::new(length);
        assert_eq!(buffer.bytes().len(), length);
        assert_eq!(buffer.bytes().as_ptr().align_offset(ALIGN), 0);
    }
}
