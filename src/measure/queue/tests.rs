//! Both queues do the same.

use super::pool::Pool;
use super::ring::Ring;
use super::stamp::{BLOCK, Signature, fill, sign, signature};
use super::*;
use std::os::unix::fs::FileExt;

const SLOTS: usize = 5;
const SLOT: usize = 4 * BLOCK;

fn scratch() -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    file
}

/// Writes 200 blocks with the queue always full, reads some back through it, and looks at the file itself.
fn works(file: &File, queue: &mut dyn Queue) {
    let mut idle: Vec<usize> = (0..SLOTS).collect();
    let (mut number, mut done) = (0, 0);
    for block in 0..200_u64 {
        let slot = match idle.pop() {
            Some(slot) => slot,
            None => {
                done += 1;
                queue.complete().unwrap().slot
            }
        };
        let from = usize::try_from(block % 4).unwrap() * BLOCK;
        let memory = queue.memory(slot).expect("an idle slot");
        fill(&mut memory[from..from + BLOCK], block);
        sign(&mut memory[from..from + BLOCK], block * 4096, 77, &mut number);
        let request = Request { direction: Direction::Write, slot, from, length: BLOCK, at: block * 4096 };
        queue.submit(&request).unwrap();
        assert!(queue.memory(slot).is_none(), "a slot in flight is out of reach");
        assert!(queue.submit(&request).is_err(), "and takes no second transfer");
    }
    while queue.in_flight() > 0 {
        assert_eq!(queue.complete().unwrap().length, BLOCK);
        done += 1;
    }
    assert_eq!((done, number), (200, 200));
    assert!(queue.complete().is_err(), "nothing is in flight");
    let mut bytes = vec![0; 200 * BLOCK];
    file.read_exact_at(&mut bytes, 0).unwrap();
    for (block, bytes) in (0_u64..).zip(bytes.chunks(BLOCK)) {
        assert_eq!(signature(bytes), Some(Signature { run: 77, at: block * 4096 }));
    }
    queue.submit(&Request { direction: Direction::Read, slot: 3, from: 0, length: SLOT, at: 8192 }).unwrap();
    assert_eq!(queue.complete().unwrap().slot, 3);
    assert_eq!(queue.memory(3).unwrap(), &bytes[8192..8192 + SLOT]);
    // The file ends here, and so does what can be read; the queue is as good as before.
    queue
        .submit(&Request { direction: Direction::Read, slot: 1, from: 0, length: SLOT, at: (1 << 20) - 4096 })
        .unwrap();
    assert!(queue.complete().is_err());
    assert!(queue.memory(1).is_some() && queue.in_flight() == 0);
    let outside = Request { direction: Direction::Write, slot: 1, from: BLOCK, length: SLOT, at: 0 };
    assert!(queue.submit(&outside).and_then(|()| queue.complete()).is_err(), "a transfer beyond its slot");
}

#[test]
fn threads_carry_out_transfers() {
    let file = scratch();
    works(&file, &mut Pool::new(&file, SLOTS, SLOT).unwrap());
}

/// Where the kernel has no io_uring there is nothing to test but that it is said.
#[test]
fn a_ring_carries_out_transfers() {
    let file = scratch();
    match Ring::new(&file, SLOTS, SLOT) {
        Ok(mut ring) => works(&file, &mut ring),
        Err(error) => assert!(
            [nix::libc::ENOSYS, nix::libc::EPERM, nix::libc::ENOMEM].map(Some).contains(&error.raw_os_error()),
            "{error}"
        ),
    }
}

#[test]
fn a_dropped_queue_has_written_everything() {
    let file = scratch();
    let queues: [Box<dyn Queue>; 2] =
        [Box::new(Pool::new(&file, SLOTS, SLOT).unwrap()), super::open(&file, SLOTS, SLOT).unwrap()];
    for mut queue in queues {
        file.write_all_at(&vec![0; SLOTS * SLOT], 0).unwrap();
        for slot in 0..SLOTS {
            queue.memory(slot).unwrap().fill(7);
            let at = u64::try_from(slot * SLOT).unwrap();
            queue.submit(&Request { direction: Direction::Write, slot, from: 0, length: SLOT, at }).unwrap();
        }
        drop(queue);
        let mut bytes = vec![0; SLOTS * SLOT];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
}

#[test]
fn blocks_are_unique_and_do_not_compress() {
    let mut memory = vec![0; 64 * BLOCK];
    fill(&mut memory, 3);
    let mut number = 9;
    sign(&mut memory, 1 << 20, 5, &mut number);
    assert_eq!(number, 9 + 64);
    let mut blocks: Vec<&[u8]> = memory.chunks(BLOCK).collect();
    blocks.sort_unstable();
    blocks.dedup();
    assert_eq!(blocks.len(), 64);
    assert_eq!(signature(&memory[BLOCK..]), Some(Signature { run: 5, at: (1 << 20) + 4096 }));
    assert_eq!(signature(&[0; BLOCK]), None);
    let mut squeezed = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut squeezed, &memory).unwrap();
    assert!(squeezed.finish().unwrap().len() * 100 > memory.len() * 98);
    // The same memory again is other blocks.
    let before = memory.clone();
    sign(&mut memory, 1 << 20, 5, &mut number);
    assert!(before.chunks(BLOCK).zip(memory.chunks(BLOCK)).all(|(before, after)| before != after));
}
