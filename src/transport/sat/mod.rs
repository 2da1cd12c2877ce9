//! ATA DATA SET MANAGEMENT (TRIM) through ATA PASS-THROUGH, the command inside a SCSI command that bridges and the
//! kernel's own ATA layer understand.
//!
//! Addresses are sectors of the drive itself: a bridge that shows other blocks, hides a part of the drive or puts
//! several drives together does not translate them. So this route is used only when drive and bridge agree about the
//! size in bytes, and [`own_path`](super::Route::own_path) reads through the drive's addresses for comparison.

mod encode;
mod identify;

#[cfg(test)]
mod tests;

pub use encode::Width;
pub use identify::{Identity, NotIdentity};

use super::access::{BlockRead, pieces};
use super::carrier::Data;
use super::quirks::{self, Names, Quirks};
use super::scsi::device::{DISCARD, WORK};
use super::scsi::disk::Disk;
use super::scsi::{ScsiDevice, ScsiPort, SgIo};
use super::{Applies, DeviceFacts, Done, ErrorKind, NodeKind, ReadAfterDiscard, Route, Transport, TransportError};
use crate::plan::Batch;
use crate::plan::units::{BlockSize, ByteRange, Claims, Limits};
use encode::{Length, MOST_SECTORS, PAYLOAD_BLOCK, Protocol, RANGES_PER_BLOCK};
use std::fs::File;

/// Most payload blocks on native ports, whatever the drive allows: 4096 bytes. Bridges get one.
const MOST_BLOCKS: u16 = 8;
/// Most bytes of one read: what the most limited bridges pass through.
const MOST_READ: u64 = 4096;

/// The rows of the table.
pub const ROUTE_16: Route = Route {
    name: "sat16",
    about: "ATA TRIM inside ATA PASS-THROUGH(16)",
    applies: |facts| match facts.kind {
        NodeKind::Scsi if facts.partition.is_some() => Applies::No("raw commands address the whole disk"),
        NodeKind::Scsi if facts.vendor == "ATA" => Applies::Auto("an ATA drive"),
        NodeKind::Scsi if facts.is_usb() => Applies::Auto("there may be an ATA drive behind the bridge"),
        NodeKind::Scsi => Applies::WhenNamed("nothing says that this is an ATA drive"),
        _ => Applies::No("not a SCSI or ATA disk"),
    },
    open: |file, facts| Ok(Box::new(Sat::open(Width::Sixteen, port(Width::Sixteen, file)?, facts)?)),
    own_path: |file, facts| Ok(Some(Box::new(Sat::open(Width::Sixteen, port(Width::Sixteen, file)?, facts)?))),
};

/// See [`ROUTE_16`].
pub const ROUTE_12: Route = Route {
    name: "sat12",
    about: "ATA TRIM inside ATA PASS-THROUGH(12)",
    applies: |facts| match facts.kind {
        NodeKind::Scsi if facts.partition.is_some() => Applies::No("raw commands address the whole disk"),
        NodeKind::Scsi => Applies::WhenNamed("its first byte means other things on other devices"),
        _ => Applies::No("not a SCSI or ATA disk"),
    },
    open: |file, facts| Ok(Box::new(Sat::open(Width::Twelve, port(Width::Twelve, file)?, facts)?)),
    own_path: |file, facts| Ok(Some(Box::new(Sat::open(Width::Twelve, port(Width::Twelve, file)?, facts)?))),
};

fn name(width: Width) -> &'static str {
    match width {
        Width::Sixteen => "sat16",
        Width::Twelve => "sat12",
    }
}

fn port(width: Width, file: &File) -> Result<Box<dyn ScsiPort>, TransportError> {
    match SgIo::new(file) {
        Ok(port) => Ok(Box::new(port)),
        Err(cause) => Err(TransportError::os(name(width), "cannot duplicate the descriptor", cause)),
    }
}

/// An ATA drive that knows TRIM, and the way to it.
pub struct Sat {
    width: Width,
    length: Length,
    protocol: Protocol,
    proven: bool,
    disk: Disk,
    identity: Identity,
    sector: BlockSize,
    limits: Limits,
    reads: ReadAfterDiscard,
    notes: Vec<String>,
}

impl Sat {
    /// Identifies bridge and drive; both must agree about the size.
    pub fn open(width: Width, port: Box<dyn ScsiPort>, facts: &DeviceFacts) -> Result<Self, TransportError> {
        let mut disk = Disk::identify(name(width), port, facts)?;
        if width == Width::Twelve && disk.quirks.no_sat12 {
            let what = "this is a USB-to-NVMe bridge, on which the command's first byte (A1h) does other things";
            return Err(TransportError::new(ErrorKind::Unsuitable, name(width), what));
        }
        let (length, identity) = identify(width, &mut disk.device)?;
        let sector = check(width, &disk, &identity)?;
        let names = Names::of(facts, &disk.inquiry.vendor, &disk.inquiry.product, &disk.inquiry.revision);
        let quirks = quirks::find(&names.with_drive(&identity.model, &identity.firmware));
        if let Some(reason) = quirks.never {
            let what = format!("{}: {reason}", identity.model);
            return Err(TransportError::new(ErrorKind::Unsuitable, name(width), what));
        }
        let limits = limits(width, &identity, sector, &quirks, facts.is_usb())?;
        let reads = match identity.promises_zeros && quirks.zeros_trusted {
            true => ReadAfterDiscard::Zeros,
            false => ReadAfterDiscard::Undefined,
        };
        let notes = notes(&disk, &identity, &quirks, sector);
        Ok(Self { width, length, protocol: Protocol::Dma, proven: false, disk, identity, sector, limits, reads, notes })
    }

    /// What the drive says about itself.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// What the drive says about itself through ATA PASS-THROUGH(16), the one form that only means ATA.
pub fn ask_identity(device: &mut ScsiDevice) -> Result<Identity, TransportError> {
    identify(Width::Sixteen, device).map(|(_, identity)| identity)
}

/// The command with which [`ask_identity`] begins.
pub(crate) fn identify_command() -> Vec<u8> {
    encode::identify(Width::Sixteen, Length::Count)
}

/// The command that it tries next.
#[cfg(test)]
pub(crate) fn identify_by_transport() -> Vec<u8> {
    encode::identify(Width::Sixteen, Length::Transport)
}

/// IDENTIFY with the length in COUNT, else, for bridges that want it so, in the transport's header.
fn identify(width: Width, device: &mut ScsiDevice) -> Result<(Length, Identity), TransportError> {
    let mut attempt = |length| {
        let mut data = [0; 512];
        let cdb = encode::identify(width, length);
        device.run("ATA IDENTIFY DEVICE", &cdb, Data::In(&mut data), WORK).map(|_| (length, data))
    };
    let answer = attempt(Length::Count).or_else(|error| match error.kind() {
        ErrorKind::Rejected | ErrorKind::Aborted | ErrorKind::Incomplete => {
            attempt(Length::Transport).map_err(|_| error)
        }
        _ => Err(error),
    });
    let (length, data) = answer.map_err(|error| match error.kind() {
        ErrorKind::Aborted | ErrorKind::Incomplete => error.with_kind(ErrorKind::Rejected),
        _ => error,
    })?;
    match Identity::parse(&data) {
        Ok(identity) => Ok((length, identity)),
        Err(reason) => {
            let what = format!("no ATA drive answers behind this device: {reason}");
            Err(TransportError::rejected(name(width), what))
        }
    }
}

fn check(width: Width, disk: &Disk, identity: &Identity) -> Result<BlockSize, TransportError> {
    let fault = |kind, what: String| Err(TransportError::new(kind, name(width), what));
    if !identity.trim {
        return fault(
            ErrorKind::Rejected,
            format!("the drive {} does not know TRIM (IDENTIFY word 169)", identity.model),
        );
    }
    if identity.locked {
        return fault(ErrorKind::WriteProtected, format!("the drive {} is locked by a password", identity.model));
    }
    let sector = BlockSize::new(u64::from(identity.sector_size)).filter(|sector| sector.bytes() >= 512);
    match sector.filter(|_| identity.bytes() == Some(disk.bytes)) {
        Some(sector) => Ok(sector),
        None => fault(
            ErrorKind::Contradiction,
            format!(
                "the drive {} says {} sectors of {} bytes, the device in front of it {} bytes: it hides a part of the \
                 drive, shows several as one, or shortens addresses, and sectors cannot be named through it",
                identity.model, identity.sectors, identity.sector_size, disk.bytes
            ),
        ),
    }
}

fn limits(
    width: Width,
    identity: &Identity,
    sector: BlockSize,
    quirks: &Quirks,
    usb: bool,
) -> Result<Limits, TransportError> {
    let blocks = if usb { 1 } else { identity.max_payload_blocks.unwrap_or(1).min(MOST_BLOCKS) };
    let max_ranges = u64::from(blocks).saturating_mul(u64::try_from(RANGES_PER_BLOCK).unwrap_or(1));
    let max_range_bytes = MOST_SECTORS.saturating_mul(sector.bytes());
    let most = max_range_bytes.saturating_mul(max_ranges).min(quirks.max_command_bytes.unwrap_or(u64::MAX));
    let claims = Claims {
        lba_size: sector,
        granularity: sector.bytes() << identity.physical_exponent,
        alignment: identity.lowest_aligned.saturating_mul(sector.bytes()),
        max_ranges,
        max_range_bytes,
        max_command_bytes: most,
    };
    Limits::new(claims).map_err(|cause| TransportError::from((name(width), cause)))
}

fn notes(disk: &Disk, identity: &Identity, quirks: &Quirks, sector: BlockSize) -> Vec<String> {
    let mut notes = Vec::new();
    if sector != disk.block {
        notes.push(format!(
            "the bridge shows blocks of {} bytes, the drive has sectors of {}; addresses are those of the drive",
            disk.block.bytes(),
            sector.bytes()
        ));
    }
    if identity.promises_zeros && !quirks.zeros_trusted {
        notes.push("the drive promises zeros after TRIM, but is not on the list of those known to keep it".to_owned());
    }
    if let Some(bytes) = quirks.max_command_bytes {
        notes.push(format!("known to fail on large commands: at most {bytes} bytes in one"));
    }
    if identity.rotates == Some(true) {
        notes.push("the drive rotates: TRIM may take long".to_owned());
    }
    notes.extend(disk.quirks.known.map(str::to_owned));
    notes
}

impl Transport for Sat {
    fn name(&self) -> &'static str {
        name(self.width)
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn capacity(&self) -> u64 {
        self.disk.bytes
    }

    fn read_after_discard(&self) -> ReadAfterDiscard {
        self.reads
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn rotates(&self) -> Option<bool> {
        self.identity.rotates
    }

    fn discard(&mut self, batch: &Batch<'_>) -> Result<Done, TransportError> {
        super::check_batch(self.name(), batch, &self.limits, self.disk.bytes)?;
        let payload = encode::payload(batch.ranges());
        let sized = payload.and_then(|p| Some((u8::try_from(p.len() / PAYLOAD_BLOCK).ok()?, p)));
        let (blocks, payload) = sized.ok_or_else(|| {
            TransportError::new(
                ErrorKind::LimitExceeded,
                self.name(),
                "the ranges do not fit into one ATA TRIM command",
            )
        })?;
        let what = format!("ATA TRIM of {} bytes in {} ranges", batch.bytes(), batch.ranges().len());
        let mut sent = self.send(&what, blocks, &payload);
        let turned_away = |error: &TransportError| matches!(error.kind(), ErrorKind::Rejected | ErrorKind::Aborted);
        if !self.proven && self.protocol == Protocol::Dma && sent.as_ref().is_err_and(turned_away) {
            self.protocol = Protocol::UdmaOut;
            sent = self.send(&what, blocks, &payload);
        }
        self.proven |= sent.is_ok();
        sent
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        self.disk.device.flush()
    }
}

impl Sat {
    fn send(&mut self, what: &str, blocks: u8, payload: &[u8]) -> Result<Done, TransportError> {
        let cdb = encode::trim(self.width, self.length, self.protocol, blocks);
        let took = self.disk.device.run(what, &cdb, Data::Out(payload), DISCARD)?;
        Ok(Done { took })
    }
}

impl BlockRead for Sat {
    fn path(&self) -> &'static str {
        "ATA READ DMA"
    }

    fn read(&mut self, range: ByteRange) -> Result<Vec<u8>, TransportError> {
        let route = name(self.width);
        let mut bytes = Vec::new();
        for (sectors, mut part) in pieces(route, range, self.sector, self.disk.bytes, MOST_READ)? {
            let what = format!("ATA READ of {} sectors at sector {}", sectors.count(), sectors.start());
            let cdb = encode::read(self.width, self.length, sectors).ok_or_else(|| {
                TransportError::new(ErrorKind::OutOfRange, route, format!("{what}: does not fit into the command"))
            })?;
            self.disk.device.run(&what, &cdb, Data::In(&mut part), WORK)?;
            bytes.extend(part);
        }
        Ok(bytes)
    }
}
