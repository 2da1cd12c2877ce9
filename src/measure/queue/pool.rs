//! Threads that each carry out one transfer at a time. A slot's memory travels to the thread and back.

use super::{Completion, Direction, Queue, Request};
use crate::transport::access::Aligned;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

struct Task {
    request: Request,
    memory: Aligned,
}

struct Finished {
    task: Task,
    moved: io::Result<()>,
    at: Instant,
}

/// As many threads as slots.
pub struct Pool {
    /// None while in flight.
    slots: Vec<Option<Aligned>>,
    tasks: Sender<Task>,
    finished: Receiver<Finished>,
    in_flight: usize,
}

impl Pool {
    pub fn new(file: &File, slots: usize, slot_bytes: usize) -> io::Result<Self> {
        let (tasks, waiting) = channel();
        let (done, finished) = channel();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..slots {
            let (file, waiting, done) = (file.try_clone()?, Arc::clone(&waiting), done.clone());
            std::thread::Builder::new().name("transfer".to_owned()).spawn(move || work(&file, &waiting, &done))?;
        }
        let slots = (0..slots).map(|_| Some(Aligned::new(slot_bytes))).collect();
        Ok(Self { slots, tasks, finished, in_flight: 0 })
    }
}

/// Takes tasks until the queue is dropped.
fn work(file: &File, waiting: &Mutex<Receiver<Task>>, done: &Sender<Finished>) {
    loop {
        let next = waiting.lock().map_or(None, |tasks| tasks.recv().ok());
        let Some(mut task) = next else { return };
        let moved = transfer(file, &mut task);
        if done.send(Finished { task, moved, at: Instant::now() }).is_err() {
            return;
        }
    }
}

fn transfer(file: &File, task: &mut Task) -> io::Result<()> {
    let Request { direction, from, length, at, .. } = task.request;
    let part = part(task.memory.bytes(), from, length).ok_or_else(super::not_idle)?;
    match direction {
        Direction::Write => file.write_all_at(part, at),
        Direction::Read => file.read_exact_at(part, at),
    }
}

fn part(memory: &mut [u8], from: usize, length: usize) -> Option<&mut [u8]> {
    memory.get_mut(from..from.checked_add(length)?)
}

impl Queue for Pool {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn memory(&mut self, slot: usize) -> Option<&mut [u8]> {
        self.slots.get_mut(slot)?.as_mut().map(Aligned::bytes)
    }

    fn submit(&mut self, request: &Request) -> io::Result<()> {
        let slot = self.slots.get_mut(request.slot).ok_or_else(super::not_idle)?;
        let memory = slot.take().ok_or_else(super::not_idle)?;
        let task = Task { request: *request, memory };
        self.tasks.send(task).map_err(|_| io::Error::other("the threads have ended"))?;
        self.in_flight = self.in_flight.saturating_add(1);
        Ok(())
    }

    fn complete(&mut self) -> io::Result<Completion> {
        if self.in_flight == 0 {
            return Err(super::nothing_in_flight());
        }
        let finished = self.finished.recv().map_err(|_| io::Error::other("the threads have ended"))?;
        self.in_flight = self.in_flight.saturating_sub(1);
        let Finished { task: Task { request, memory }, moved, at } = finished;
        if let Some(slot) = self.slots.get_mut(request.slot) {
            *slot = Some(memory);
        }
        moved.map(|()| Completion { slot: request.slot, length: request.length, at })
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for Pool {
    /// Nothing is written any more once the queue is gone: what follows is a discard of the same places.
    fn drop(&mut self) {
        while self.in_flight > 0 {
            let _ = self.complete();
        }
    }
}
