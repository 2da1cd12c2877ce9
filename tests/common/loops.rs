//! Loop devices of this machine, over images whose bytes the test can see.
#![allow(dead_code)] // each test file uses its part

use crate::common::{tool, tool_ok};
use crate::images::text;
use std::path::Path;
use std::time::{Duration, Instant};

/// A loop device, detached when dropped.
pub struct Loop(pub String);

impl Loop {
    pub fn new(over: &Path) -> Self {
        Self(tool_ok("losetup", &["--find", "--show", text(over)]).trim().to_owned())
    }

    /// With partitions. Not every kernel that tests run on can read their table; all can be told about them.
    pub fn partitioned(over: &Path) -> Self {
        let this = Self(tool_ok("losetup", &["--find", "--show", "--partscan", text(over)]).trim().to_owned());
        for (number, start, count) in [(1, "2048", "20480"), (2, "24576", "16384")] {
            if !Path::new(&format!("/sys/class/block/{}p{number}", this.name())).exists() {
                tool_ok("addpart", &[&this.0, &number.to_string(), start, count]);
            }
        }
        this
    }

    pub fn name(&self) -> &str {
        self.0.trim_start_matches("/dev/")
    }

    pub fn part(&self, number: u32) -> String {
        format!("{}p{number}", self.0)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // udev may still look at it for a moment.
        let started = Instant::now();
        while !tool("losetup", &["-d", &self.0]).status.success() && started.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// What the kernel says about the granularity of a loop device.
pub fn granule(device: &Loop) -> u64 {
    let path = format!("/sys/block/{}/queue/discard_granularity", device.name());
    std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok()).expect("a granularity")
}
