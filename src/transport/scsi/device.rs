//! A SCSI logical unit: sends commands through a port and judges how they ended.

use super::super::carrier::Data;
use super::super::error::{ErrorKind, TransportError};
use super::encode;
use super::pages::{self, Capacity, Inquiry};
use super::port::{Completion, ScsiPort};
use super::sense::Sense;
use std::time::Duration;

/// For commands that only ask.
const ASK: Duration = Duration::from_secs(20);
/// For commands that move data or wait for the medium.
pub const WORK: Duration = Duration::from_secs(60);
/// For discards: a slow device must not be reset in the middle of one.
pub const DISCARD: Duration = Duration::from_secs(120);

/// How often TEST UNIT READY may meet a unit attention before the device counts as unstable.
const ATTENTIONS: u8 = 3;

const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;

/// A logical unit, spoken to on behalf of a route.
pub struct ScsiDevice {
    port: Box<dyn ScsiPort>,
    route: &'static str,
}

impl ScsiDevice {
    /// `route` is the name that errors carry.
    pub fn new(route: &'static str, port: Box<dyn ScsiPort>) -> Self {
        Self { port, route }
    }

    /// Name of the route.
    pub fn route(&self) -> &'static str {
        self.route
    }

    /// Clears what the unit wants to say before anything else (power on, reset), so that it does not fail the first
    /// real command.
    pub fn wake(&mut self) -> Result<(), TransportError> {
        let mut last = Ok(());
        for _ in 0..=ATTENTIONS {
            let completion = self.carry("TEST UNIT READY", &encode::TEST_UNIT_READY, Data::None, ASK)?;
            let attention = Sense::parse(&completion.sense).filter(Sense::is_unit_attention);
            last = self.judge("TEST UNIT READY", &completion);
            if attention.is_none() {
                return last;
            }
        }
        last
    }

    /// Asks once whether the unit is ready. A reset that happened since the last command is an error here.
    pub fn look(&mut self) -> Result<(), TransportError> {
        let completion = self.carry("TEST UNIT READY", &encode::TEST_UNIT_READY, Data::None, ASK)?;
        self.judge("TEST UNIT READY", &completion)
    }

    /// Sends a command whose data must be transferred in full.
    pub fn run(
        &mut self,
        what: &str,
        cdb: &[u8],
        data: Data<'_>,
        timeout: Duration,
    ) -> Result<Duration, TransportError> {
        let completion = self.checked(what, cdb, data, timeout)?;
        if completion.residue != 0 {
            let what =
                format!("{what}: {} bytes were not transferred, yet the device reports success", completion.residue);
            return Err(TransportError::new(ErrorKind::Incomplete, self.route, what));
        }
        Ok(completion.took)
    }

    /// Asks for up to `length` bytes; gives what came.
    pub fn ask(&mut self, what: &str, cdb: &[u8], length: u16) -> Result<Vec<u8>, TransportError> {
        let mut answer = vec![0; usize::from(length)];
        let completion = self.checked(what, cdb, Data::In(&mut answer), ASK)?;
        let missing = usize::try_from(completion.residue).unwrap_or(usize::MAX);
        answer.truncate(answer.len().saturating_sub(missing));
        Ok(answer)
    }

    fn carry(
        &mut self,
        what: &str,
        cdb: &[u8],
        data: Data<'_>,
        timeout: Duration,
    ) -> Result<Completion, TransportError> {
        let completion = self.port.execute(cdb, data, timeout);
        completion.map_err(|cause| TransportError::os(self.route, format!("cannot send {what} to the device"), cause))
    }

    fn checked(
        &mut self,
        what: &str,
        cdb: &[u8],
        data: Data<'_>,
        timeout: Duration,
    ) -> Result<Completion, TransportError> {
        let completion = self.carry(what, cdb, data, timeout)?;
        let verdict = self.judge(what, &completion);
        if completion.status == CHECK_CONDITION {
            self.settle(verdict)?;
        } else {
            verdict?;
        }
        Ok(completion)
    }

    /// After a failed command many bridges are slow until they get a TEST UNIT READY. If that one tells of a reset,
    /// the reset is the news that counts.
    fn settle(&mut self, verdict: Result<(), TransportError>) -> Result<(), TransportError> {
        let completion = self.carry("TEST UNIT READY", &encode::TEST_UNIT_READY, Data::None, ASK)?;
        match (verdict, Sense::parse(&completion.sense)) {
            (Err(error), Some(sense)) if sense.is_unit_attention() => {
                let what = format!("{error}; directly afterwards: {sense}");
                Err(TransportError::new(ErrorKind::Changed, self.route, what).with_sense(sense))
            }
            (verdict, _) => verdict,
        }
    }

    /// Success is GOOD from the device, from the host and from the driver, and no sense data that tells otherwise.
    fn judge(&self, what: &str, completion: &Completion) -> Result<(), TransportError> {
        if let Some((kind, words)) = host_trouble(completion.host) {
            return Err(TransportError::new(kind, self.route, format!("{what}: {words}")));
        }
        if let Some(sense) = Sense::parse(&completion.sense) {
            if sense.is_success() && matches!(completion.status, GOOD | CHECK_CONDITION) {
                return Ok(());
            }
            let error = TransportError::new(sense.kind(), self.route, format!("{what}: {sense}"));
            return Err(error.with_sense(sense));
        }
        match (completion.status, completion.driver & 0x0F) {
            (GOOD, 0 | 8) => Ok(()),
            (GOOD, driver) => {
                let what = format!("{what}: the driver reports status {driver:02x}h");
                Err(TransportError::new(ErrorKind::Io, self.route, what))
            }
            (status, _) => {
                let (kind, words) = status_trouble(status);
                Err(TransportError::new(kind, self.route, format!("{what}: {words} (SCSI status {status:02x}h)")))
            }
        }
    }

    /// Standard INQUIRY; anything but a disk is refused before any other command.
    pub fn inquiry(&mut self) -> Result<Inquiry, TransportError> {
        let answer = self.ask("INQUIRY", &encode::INQUIRY, 36)?;
        let inquiry = Inquiry::parse(&answer).ok_or_else(|| {
            let what = format!("INQUIRY: expected 36 bytes, the device sent {}", answer.len());
            TransportError::new(ErrorKind::Contradiction, self.route, what)
        })?;
        match inquiry.not_a_disk() {
            Some(kind) => {
                let what = format!(
                    "INQUIRY: the device is {kind} (type {:02x}h), commands mean other things there",
                    inquiry.kind
                );
                Err(TransportError::new(ErrorKind::Unsuitable, self.route, what))
            }
            None => Ok(inquiry),
        }
    }

    /// A VPD page: first its header, then exactly as much as it says. None when the device has none.
    pub fn page(&mut self, code: u8) -> Result<Option<Vec<u8>>, TransportError> {
        let what = format!("INQUIRY for VPD page {code:02x}h");
        let header = self.ask(&what, &encode::vital_product_data(code, 4), 4);
        let Some(length) = absent_or(header)?.and_then(|header| pages::page_length(&header, code)) else {
            return Ok(None);
        };
        let page = self.ask(&what, &encode::vital_product_data(code, length), length);
        Ok(absent_or(page)?.filter(|page| pages::page_length(page, code) == Some(length)))
    }

    /// A VPD page that the device lists on page 00h. Others are not asked for: some bridges hang on surprises.
    pub fn listed_page(&mut self, list: &[u8], code: u8) -> Result<Option<Vec<u8>>, TransportError> {
        let listed = list.get(4..).is_some_and(|codes| codes.contains(&code));
        if listed { self.page(code) } else { Ok(None) }
    }

    /// READ CAPACITY in the short form and, where the device is new or large enough, in the long one. Both must agree.
    pub fn capacity(&mut self, version: u8) -> Result<Capacity, TransportError> {
        let short = self.ask("READ CAPACITY(10)", &encode::READ_CAPACITY_10, 8)?;
        let short = Capacity::parse_10(&short).ok_or_else(|| self.cut_short("READ CAPACITY(10)"))?;
        if version < 5 && !short.is_saturated() {
            return Ok(short);
        }
        let long = self.ask("READ CAPACITY(16)", &encode::READ_CAPACITY_16, 32);
        let Some(long) = (if short.is_saturated() { long.map(Some) } else { absent_or(long) })? else {
            return Ok(short);
        };
        let long = Capacity::parse_16(&long).ok_or_else(|| self.cut_short("READ CAPACITY(16)"))?;
        if (long.blocks == short.blocks || short.is_saturated()) && long.block_size == short.block_size {
            return Ok(long);
        }
        let what = format!(
            "READ CAPACITY(10) says {} blocks of {} bytes, READ CAPACITY(16) says {} blocks of {} bytes",
            short.blocks, short.block_size, long.blocks, long.block_size
        );
        Err(TransportError::new(ErrorKind::Contradiction, self.route, what))
    }

    fn cut_short(&self, what: &str) -> TransportError {
        TransportError::new(ErrorKind::Contradiction, self.route, format!("{what}: the answer is too short"))
    }

    /// The write-protect bit of MODE SENSE(6): byte 2 bit 7 of the header; false when the device does not tell.
    pub fn is_write_protected(&mut self) -> Result<bool, TransportError> {
        let answer = absent_or(self.ask("MODE SENSE(6)", &encode::MODE_SENSE, 192))?;
        Ok(answer.and_then(|header| header.get(2).copied()).is_some_and(|byte| byte & 0x80 != 0))
    }

    /// Makes the device write its cache to the medium; a device without the command has no cache to speak of.
    pub fn flush(&mut self) -> Result<(), TransportError> {
        let done = self.run("SYNCHRONIZE CACHE", &encode::SYNCHRONIZE_CACHE, Data::None, WORK);
        match done {
            Err(error) if error.kind() != ErrorKind::Rejected => Err(error),
            _ => Ok(()),
        }
    }
}

/// An answer, or none when the device said that it has no such command or page. Anything worse stays an error.
fn absent_or<T>(answer: Result<T, TransportError>) -> Result<Option<T>, TransportError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if matches!(error.kind(), ErrorKind::Rejected | ErrorKind::Aborted) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `DID_*` of the kernel's scsi/scsi_status.h.
fn host_trouble(host: u16) -> Option<(ErrorKind, String)> {
    let (kind, words) = match host {
        0x00 => return None,
        0x01 | 0x04 => (ErrorKind::Gone, "the device is not there any more"),
        0x03 => (ErrorKind::TimedOut, "the device did not answer in time and was reset by the kernel"),
        0x05 | 0x08 => (ErrorKind::Changed, "the device was reset while the command ran"),
        0x0E => (ErrorKind::Gone, "the connection to the device was interrupted"),
        _ => (ErrorKind::Io, "the host adapter failed"),
    };
    Some((kind, format!("{words} (host status {host:02x}h)")))
}

fn status_trouble(status: u8) -> (ErrorKind, &'static str) {
    match status {
        0x02 => (ErrorKind::Io, "the device reports a failure without saying which"),
        0x08 | 0x28 => (ErrorKind::NotReady, "the device is busy"),
        0x18 => (ErrorKind::WriteProtected, "the device is reserved by another host"),
        0x40 => (ErrorKind::Aborted, "the command was aborted"),
        _ => (ErrorKind::Io, "unknown status"),
    }
}
