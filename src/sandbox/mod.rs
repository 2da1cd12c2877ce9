//! Where disks are read: a child process that can do nothing else.
//!
//! The parsers are fed whatever a disk holds, so they run in a second copy of this program that was given its
//! descriptors read-only and has then locked every door behind itself:
//!
//! ```text
//! coldtrim (root) ── request + read-only descriptors ──> coldtrim __read   no root, no capabilities, no files,
//!          <──────── answer: the Stack, serialised ─────  (confine.rs)     no ioctl, no socket, limits on all
//! ```
//!
//! Nothing that comes back is believed: the free maps are rebuilt from nothing and checked against the devices
//! (`check.rs`). A reader that dies, hangs, panics or talks nonsense is a refusal with words.

mod check;
mod child;
pub mod confine;
mod parent;
mod protocol;
mod sys;

pub use child::{child_main_if_asked, is_asked, serve};
pub use parent::{read_stack, read_stack_within};
pub use protocol::Limits;

use coldtrim_parsers::stack::Stack;
use std::fs::File;
use std::time::Duration;

/// A device or image, or a part of one, to be read.
#[derive(Debug)]
pub struct SandboxLayer {
    /// The node or image, opened read-only; anything else is an error.
    pub file: File,
    /// First byte of the layer in the file.
    pub offset: u64,
    /// Bytes of the layer.
    pub len: u64,
    /// Logical sector size of the device in bytes.
    pub sector_size: u64,
}

/// What the reader found, and how well it was locked in.
#[derive(Debug)]
pub struct Reading {
    /// What lies where. Positions are bytes from the start of each layer.
    pub stack: Stack,
    /// Locks that this kernel or container does not have, in words.
    pub shortfalls: Vec<String>,
}

/// Why there is no map. None of these is a fault that may be ignored: without a map nothing is free.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The reader could not be started.
    #[error("the reader process could not be {step}")]
    Start {
        /// Which step failed.
        step: &'static str,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// A layer was handed over in a way that could do harm or that cannot be right.
    #[error("layer {index} cannot be given to the reader: {reason}")]
    Layer {
        /// Index in the list of layers.
        index: usize,
        /// Why.
        reason: String,
    },
    /// The user interrupted.
    #[error("interrupted while the disk was being read; nothing was sent to it")]
    Interrupted,
    /// It took too long.
    #[error(
        "the reader was stopped because it had not finished after {} seconds; the disk is very slow, or its \
         filesystem leads in circles. Nothing was sent to it", .0.as_secs()
    )]
    TimedOut(Duration),
    /// A signal ended the reader.
    #[error("the reader was killed by {signal} ({meaning}); nothing was sent to the disk{}", said(.words))]
    Killed {
        /// Name of the signal.
        signal: String,
        /// What this signal means here.
        meaning: &'static str,
        /// What the reader wrote before it died.
        words: String,
    },
    /// The reader gave up.
    #[error("the reader failed ({status}); nothing was sent to the disk{}", said(.words))]
    Failed {
        /// Its exit status in words.
        status: String,
        /// What the reader wrote.
        words: String,
    },
    /// The answer cannot be true.
    #[error("the reader's answer is not usable: {0}; nothing was sent to the disk")]
    Nonsense(String),
}

impl SandboxError {
    /// True when this is a refusal for safety, false for a failure of the machine or the user's wish to stop.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Start { .. } | Self::Layer { .. } | Self::Interrupted)
    }
}

fn said(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(". Its last words: {words}") }
}
