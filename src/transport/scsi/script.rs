//! A port that plays a script: expected command bytes in, canned answers out. Dropping it with lines unplayed fails
//! the test.

use super::super::carrier::Data;
use super::port::{Completion, ScsiPort};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

struct Line {
    cdb: Vec<u8>,
    out: Vec<u8>,
    answer: Vec<u8>,
    completion: Completion,
}

/// Collects lines; clones share them, so a test can look at the rest after giving a port away.
#[derive(Clone, Default)]
pub struct Script(Rc<RefCell<VecDeque<Line>>>);

impl Script {
    /// Adds a command without data that succeeds.
    pub fn ok(self, cdb: &[u8]) -> Self {
        self.line(cdb, &[], &[], Completion::default())
    }

    /// Adds a command that is answered with data.
    pub fn answers(self, cdb: &[u8], answer: &[u8]) -> Self {
        self.line(cdb, &[], answer, Completion::default())
    }

    /// Adds a command with this exact data that succeeds.
    pub fn takes(self, cdb: &[u8], out: &[u8]) -> Self {
        self.line(cdb, out, &[], Completion::default())
    }

    /// Adds a command that ends in CHECK CONDITION, and the TEST UNIT READY that must follow.
    pub fn fails(self, cdb: &[u8], out: &[u8], (key, asc, ascq): (u8, u8, u8)) -> Self {
        self.line(cdb, out, &[], check_condition(key, asc, ascq)).ok(&[0; 6])
    }

    /// Adds any line.
    pub fn line(self, cdb: &[u8], out: &[u8], answer: &[u8], completion: Completion) -> Self {
        let line = Line { cdb: cdb.to_vec(), out: out.to_vec(), answer: answer.to_vec(), completion };
        self.0.borrow_mut().push_back(line);
        self
    }

    /// A port that plays these lines.
    pub fn port(&self) -> Box<dyn ScsiPort> {
        Box::new(self.clone())
    }

    /// All lines must have been played.
    pub fn assert_done(&self) {
        let rest = self.0.borrow();
        assert!(
            rest.is_empty(),
            "{} commands were expected and not sent, the next one {:02x?}",
            rest.len(),
            rest[0].cdb
        );
    }
}

/// CHECK CONDITION with fixed sense data.
pub fn check_condition(key: u8, asc: u8, ascq: u8) -> Completion {
    let mut sense = vec![0; 18];
    (sense[0], sense[2], sense[7], sense[12], sense[13]) = (0x70, key, 10, asc, ascq);
    Completion { status: 2, driver: 8, sense, ..Completion::default() }
}

impl ScsiPort for Script {
    fn execute(&mut self, cdb: &[u8], data: Data<'_>, _timeout: Duration) -> std::io::Result<Completion> {
        let Some(line) = self.0.borrow_mut().pop_front() else {
            panic!("the script is over, but {cdb:02x?} was sent");
        };
        assert_eq!(cdb, line.cdb, "command sent {cdb:02x?}, expected {:02x?}", line.cdb);
        let mut completion = line.completion;
        match data {
            Data::None => assert!(line.out.is_empty() && line.answer.is_empty(), "data expected for {cdb:02x?}"),
            Data::Out(out) => assert_eq!(out, line.out, "data sent with {cdb:02x?}"),
            Data::In(buffer) => {
                assert!(line.out.is_empty());
                let count = buffer.len().min(line.answer.len());
                buffer[..count].copy_from_slice(&line.answer[..count]);
                if completion.status == 0 && completion.residue == 0 {
                    completion.residue = i64::try_from(buffer.len() - count).unwrap();
                }
            }
        }
        Ok(completion)
    }
}
