//! NVMe Dataset Management (deallocate) on a native namespace.

mod encode;
mod identify;
pub mod port;
mod sys;

#[cfg(test)]
mod tests;

pub use identify::{CommandLimits, Controller, Namespace};
pub use port::{Command, NvmePort, Queue};
pub use sys::NvmeNode;

use super::access::{BlockRead, pieces};
use super::carrier::Data;
use super::quirks::{self, Names};
use super::{Applies, DeviceFacts, Done, ErrorKind, NodeKind, ReadAfterDiscard, Route, Transport, TransportError};
use crate::plan::Batch;
use crate::plan::units::{BlockSize, ByteRange, Claims, Limits};
use encode::{MOST_RANGES, PAGE, Page};
use std::fs::File;
use std::time::{Duration, Instant};

const NAME: &str = "nvme";
const TIMEOUT: Duration = Duration::from_secs(120);
/// Most bytes in one range, as the kernel keeps it.
const MOST_RANGE_BYTES: u64 = 1 << 32;
/// A granule above this is not worth the space that rounding to it loses.
const MOST_GRANULE: u64 = 64 << 20;

/// The row of the table.
pub const ROUTE: Route = Route {
    name: NAME,
    about: "NVMe Dataset Management, sent to the drive directly",
    applies: |facts| match facts.kind {
        NodeKind::Nvme if facts.partition.is_some() => Applies::No("raw commands address the whole disk"),
        NodeKind::Nvme => Applies::Auto("a native NVMe drive"),
        _ => Applies::No("not a native NVMe drive"),
    },
    open: |file, facts| Ok(Box::new(Nvme::open(port(file)?, facts)?)),
    own_path: |file, facts| Ok(Some(Box::new(Nvme::open(port(file)?, facts)?))),
};

fn port(file: &File) -> Result<Box<dyn NvmePort>, TransportError> {
    match NvmeNode::new(file) {
        Ok(port) => Ok(Box::new(port)),
        Err(cause) => Err(TransportError::os(NAME, "cannot duplicate the descriptor", cause)),
    }
}

/// A namespace whose controller knows Dataset Management.
pub struct Nvme {
    unit: Unit,
    block: BlockSize,
    bytes: u64,
    limits: Limits,
    reads: ReadAfterDiscard,
    notes: Vec<String>,
}

/// A namespace and its carrier.
struct Unit {
    port: Box<dyn NvmePort>,
    id: u32,
}

impl Unit {
    fn run(&mut self, what: &str, queue: Queue, command: &Command, data: Data<'_>) -> Result<(), TransportError> {
        match self.port.execute(queue, command, data, TIMEOUT) {
            Ok(0) => Ok(()),
            Ok(status) => {
                let (kind, words) = meaning(status);
                // Bits 10:8 are the type, 7:0 the code; above are hints about repeating.
                let what = format!("{what}: {words} (NVMe status {:03x}h)", status & 0x7FF);
                Err(TransportError::new(kind, NAME, what))
            }
            Err(cause) => Err(TransportError::os(NAME, format!("cannot send {what} to the drive"), cause)),
        }
    }

    fn identify(&mut self, what: &str, cns: u8, id: u32) -> Result<Box<Page>, TransportError> {
        let mut page = Box::new(Page([0; PAGE]));
        self.run(what, Queue::Admin, &encode::identify(cns, id), Data::In(&mut page.0))?;
        Ok(page)
    }

    /// Pages that older controllers do not have.
    fn identify_newer(&mut self, what: &str, cns: u8, id: u32) -> Result<Option<Box<Page>>, TransportError> {
        match self.identify(what, cns, id) {
            Ok(page) => Ok(Some(page)),
            Err(error) if error.kind() == ErrorKind::Rejected => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn meaning(status: u16) -> (ErrorKind, &'static str) {
    match status & 0x7FF {
        0x001 => (ErrorKind::Rejected, "the controller does not know this command"),
        0x002 => (ErrorKind::Rejected, "a field of the command is not accepted"),
        0x00B => (ErrorKind::Gone, "there is no such namespace"),
        0x007 | 0x008 => (ErrorKind::Aborted, "the command was aborted"),
        0x020 => (ErrorKind::WriteProtected, "the namespace is write protected"),
        0x080 => (ErrorKind::OutOfRange, "block address out of range"),
        0x081 => (ErrorKind::OutOfRange, "the capacity is exceeded"),
        0x082 => (ErrorKind::NotReady, "the namespace is not ready"),
        0x083 => (ErrorKind::WriteProtected, "the namespace is reserved by another host"),
        0x084 => (ErrorKind::NotReady, "a format is in progress"),
        0x01D => (ErrorKind::NotReady, "a sanitize is in progress"),
        0x180 => (ErrorKind::Rejected, "attributes conflict"),
        0x182 => (ErrorKind::WriteProtected, "a part of the range is read-only"),
        0x183 => (ErrorKind::LimitExceeded, "the command is larger than the controller allows"),
        0x286 => (ErrorKind::WriteProtected, "access denied: the range is locked"),
        0x287 => (ErrorKind::Io, "the drive does not read deallocated blocks"),
        0x370 => (ErrorKind::Gone, "the path to the drive failed"),
        0x371 => (ErrorKind::TimedOut, "the drive did not answer in time and the kernel gave the command up"),
        code if code >> 8 == 2 => (ErrorKind::Failing, "medium error"),
        _ => (ErrorKind::Io, "the command failed"),
    }
}

impl Nvme {
    /// Identifies controller and namespace and reads their limits.
    pub fn open(mut port: Box<dyn NvmePort>, facts: &DeviceFacts) -> Result<Self, TransportError> {
        if facts.partition.is_some() {
            let what = "raw commands address the whole namespace, but only a partition was opened";
            return Err(TransportError::new(ErrorKind::Contradiction, NAME, what));
        }
        super::sysfs::refuse_zones(NAME, facts)?;
        let id =
            port.namespace().map_err(|cause| TransportError::os(NAME, "cannot read the namespace's number", cause))?;
        let mut unit = Unit { port, id };
        let controller = Controller::parse(&unit.identify("Identify Controller", 0x01, 0)?.0).ok_or_else(cut_short)?;
        let namespace = Namespace::parse(&unit.identify("Identify Namespace", 0x00, id)?.0).ok_or_else(cut_short)?;
        check(&controller, &namespace, facts)?;
        let (block, bytes) = check_capacity(&namespace, facts)?;
        let stated = unit.identify_newer("Identify Controller for the NVM command set", 0x06, 0)?;
        let stated = stated.and_then(|page| CommandLimits::parse(&page.0)).unwrap_or_default();
        let granule = granule(&mut unit, &namespace, block)?;
        let (limits, notes) = limits(&stated, block, granule)?;
        let reads = if namespace.reads_zeros { ReadAfterDiscard::Zeros } else { ReadAfterDiscard::Undefined };
        Ok(Self { unit, block, bytes, limits, reads, notes })
    }
}

fn cut_short() -> TransportError {
    TransportError::new(ErrorKind::Contradiction, NAME, "Identify: the answer is too short")
}

fn check(controller: &Controller, namespace: &Namespace, facts: &DeviceFacts) -> Result<(), TransportError> {
    let fault = |kind, what: String| Err(TransportError::new(kind, NAME, what));
    let names = Names::of(facts, "", &controller.model, &controller.firmware);
    if let Some(reason) = quirks::find(&names).never {
        return fault(ErrorKind::Unsuitable, format!("{}: {reason}", controller.model));
    }
    if !controller.dataset_management {
        return fault(
            ErrorKind::Rejected,
            format!("the drive {} does not know Dataset Management (ONCS bit 2)", controller.model),
        );
    }
    if namespace.metadata > 0 {
        let what =
            format!("each block carries {} bytes of metadata, which a discard would destroy", namespace.metadata);
        return fault(ErrorKind::Unsuitable, what);
    }
    if namespace.write_protected {
        return fault(ErrorKind::WriteProtected, "the namespace is write protected".to_owned());
    }
    Ok(())
}

fn check_capacity(namespace: &Namespace, facts: &DeviceFacts) -> Result<(BlockSize, u64), TransportError> {
    let block = 1_u64.checked_shl(u32::from(namespace.block_log2)).and_then(BlockSize::new);
    let agreed = block.and_then(|block| Some((block, block.to_bytes(namespace.blocks).ok()?)));
    agreed.filter(|(block, bytes)| *block == facts.logical_block && *bytes == facts.disk_size).ok_or_else(|| {
        let what = format!(
            "the kernel knows {} bytes in blocks of {}, the drive says {} blocks of 2^{} bytes",
            facts.disk_size,
            facts.logical_block.bytes(),
            namespace.blocks,
            namespace.block_log2
        );
        TransportError::new(ErrorKind::Contradiction, NAME, what)
    })
}

/// Preferred granule in bytes: a common multiple of granule and alignment, so that both hold.
fn granule(unit: &mut Unit, namespace: &Namespace, block: BlockSize) -> Result<u64, TransportError> {
    let mut preferred = namespace.preferred;
    if namespace.has_large_preferred {
        let page = unit.identify_newer("Identify Namespace for the NVM command set", 0x05, unit.id)?;
        preferred = page.and_then(|page| identify::large_preferred(&page.0)).or(preferred);
    }
    let (granule, alignment) = preferred.unwrap_or((1, 1));
    let blocks = if granule % alignment == 0 { u64::from(granule) } else { u64::from(granule) * u64::from(alignment) };
    Ok(blocks.saturating_mul(block.bytes()))
}

fn limits(stated: &CommandLimits, block: BlockSize, granule: u64) -> Result<(Limits, Vec<String>), TransportError> {
    let in_bytes = |blocks: u64| blocks.saturating_mul(block.bytes());
    let most_range = in_bytes(u64::from(stated.range_blocks.unwrap_or(u32::MAX))).min(MOST_RANGE_BYTES);
    let max_ranges = stated.ranges.map_or(MOST_RANGES, u64::from);
    let most = in_bytes(stated.command_blocks.unwrap_or(u64::MAX)).min(most_range.saturating_mul(max_ranges));
    let mut notes = Vec::new();
    let fits = granule <= MOST_GRANULE.min(most_range).min(most);
    if !fits {
        notes.push(format!(
            "the drive prefers granules of {granule} bytes, too large to round to; blocks are used instead"
        ));
    }
    let claims = Claims {
        lba_size: block,
        granularity: if fits { granule } else { block.bytes() },
        alignment: 0,
        max_ranges,
        max_range_bytes: most_range,
        max_command_bytes: most,
    };
    let limits = Limits::new(claims).map_err(|cause| TransportError::from((NAME, cause)))?;
    Ok((limits, notes))
}

impl Transport for Nvme {
    fn name(&self) -> &'static str {
        NAME
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn capacity(&self) -> u64 {
        self.bytes
    }

    fn read_after_discard(&self) -> ReadAfterDiscard {
        self.reads
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn discard(&mut self, batch: &Batch<'_>) -> Result<Done, TransportError> {
        super::check_batch(NAME, batch, &self.limits, self.bytes)?;
        let (command, page) = encode::deallocate(self.unit.id, batch.ranges()).ok_or_else(|| {
            TransportError::new(
                ErrorKind::LimitExceeded,
                NAME,
                "the ranges do not fit into one Dataset Management command",
            )
        })?;
        let what = format!("Dataset Management of {} bytes in {} ranges", batch.bytes(), batch.ranges().len());
        let started = Instant::now();
        self.unit.run(&what, Queue::Io, &command, Data::Out(&page.0))?;
        Ok(Done { took: started.elapsed() })
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        let flush = Command { opcode: 0x00, namespace: self.unit.id, words: [0; 6] };
        self.unit.run("Flush", Queue::Io, &flush, Data::None)
    }
}

impl BlockRead for Nvme {
    fn path(&self) -> &'static str {
        "NVMe Read"
    }

    fn read(&mut self, range: ByteRange) -> Result<Vec<u8>, TransportError> {
        let mut bytes = Vec::new();
        let most = self.block.bytes().max(u64::try_from(PAGE).unwrap_or(0));
        for (blocks, mut part) in pieces(NAME, range, self.block, self.bytes, most)? {
            let what = format!("Read of {} blocks at block {}", blocks.count(), blocks.start());
            let command = encode::read(self.unit.id, blocks);
            let command = command.ok_or_else(|| TransportError::new(ErrorKind::OutOfRange, NAME, what.clone()))?;
            self.unit.run(&what, Queue::Io, &command, Data::In(&mut part))?;
            bytes.extend(part);
        }
        Ok(bytes)
    }
}
