//! A SCSI disk that may be discarded on: identified, of the size that the kernel knows, and not write protected.

use super::super::access::BlockRead;
use super::super::carrier::Data;
use super::super::error::{ErrorKind, TransportError};
use super::super::facts::DeviceFacts;
use super::super::quirks::{self, Quirks};
use super::super::sysfs;
use super::device::ScsiDevice;
use super::device::WORK;
use super::encode;
use super::pages::{self, BlockLimits, Capacity, Inquiry, Provisioning};
use super::port::ScsiPort;
use crate::plan::units::{BlockSize, ByteRange, LbaRange};

/// Most bytes of one READ: what the most limited USB devices take.
const MOST_READ: u64 = 32 << 10;

/// An identified disk.
pub struct Disk {
    /// Carries the commands.
    pub device: ScsiDevice,
    /// Standard INQUIRY.
    pub inquiry: Inquiry,
    /// READ CAPACITY.
    pub capacity: Capacity,
    /// Unit of all addresses.
    pub block: BlockSize,
    /// Size in bytes, equal to the kernel's.
    pub bytes: u64,
    /// What is known to be wrong with this model or bridge.
    pub quirks: Quirks,
    /// Whether it turns, once [`Disk::claims`] has asked and if it says so (VPD page B1h).
    pub rotates: Option<bool>,
}

impl Disk {
    /// Asks only; sends nothing that could change the disk.
    pub fn identify(route: &'static str, port: Box<dyn ScsiPort>, facts: &DeviceFacts) -> Result<Self, TransportError> {
        if facts.partition.is_some() {
            let what = "raw commands address the whole disk, but only a partition was opened";
            return Err(TransportError::new(ErrorKind::Contradiction, route, what));
        }
        sysfs::refuse_zones(route, facts)?;
        let mut device = ScsiDevice::new(route, port);
        let inquiry = device.inquiry()?;
        device.wake()?;
        let capacity = device.capacity(inquiry.version)?;
        let (block, bytes) = check_capacity(route, &capacity, facts)?;
        if device.is_write_protected()? {
            return Err(TransportError::new(
                ErrorKind::WriteProtected,
                route,
                "the device says that it is write protected",
            ));
        }
        let quirks = quirks::find(&quirks::Names::of(facts, &inquiry.vendor, &inquiry.product, &inquiry.revision));
        if let Some(reason) = quirks.never {
            return Err(TransportError::new(ErrorKind::Unsuitable, route, reason));
        }
        Ok(Self { device, inquiry, capacity, block, bytes, quirks, rotates: None })
    }

    /// VPD pages B0h and B2h, where the device lists them; B1h goes into `rotates`.
    pub fn claims(&mut self) -> Result<(Option<BlockLimits>, Option<Provisioning>), TransportError> {
        let list = self.device.page(0x00)?.unwrap_or_default();
        let limits = self.device.listed_page(&list, 0xB0)?.as_deref().and_then(BlockLimits::parse);
        let rotation = self.device.listed_page(&list, 0xB1)?;
        self.rotates = rotation.as_deref().and_then(pages::rotation).and_then(pages::rotates);
        let provisioning = self.device.listed_page(&list, 0xB2)?.as_deref().and_then(Provisioning::parse);
        Ok((limits, provisioning))
    }

    /// Granule and its start in bytes: what the device states for UNMAP, else its physical blocks.
    pub fn granule(&self, limits: Option<&BlockLimits>) -> (u64, u64) {
        let block = self.block.bytes();
        let in_bytes = |blocks: u32| u64::from(blocks).saturating_mul(block);
        match (limits, self.capacity.details) {
            (Some(limits), _) if limits.unmap_granularity > 1 => {
                (in_bytes(limits.unmap_granularity), in_bytes(limits.unmap_alignment.unwrap_or(0)))
            }
            (_, Some(details)) => (block << details.physical_exponent, in_bytes(u32::from(details.lowest_aligned))),
            _ => (block, 0),
        }
    }
}

/// The kernel, which gave the addresses of all partitions, and the device must mean the same by an address.
fn check_capacity(
    route: &'static str,
    capacity: &Capacity,
    facts: &DeviceFacts,
) -> Result<(BlockSize, u64), TransportError> {
    let block = BlockSize::new(u64::from(capacity.block_size)).filter(|block| block.bytes() >= 512);
    let agreed = block.zip(capacity.bytes());
    match agreed.filter(|(block, bytes)| *block == facts.logical_block && *bytes == facts.disk_size) {
        Some(agreed) if !capacity.details.is_some_and(|details| details.protected) => Ok(agreed),
        Some(_) => {
            let what = "the device's blocks carry protection information, which a discard would destroy";
            Err(TransportError::new(ErrorKind::Unsuitable, route, what))
        }
        None => {
            let what = format!(
                "the kernel knows {} bytes in blocks of {}, the device now says {} blocks of {} bytes",
                facts.disk_size,
                facts.logical_block.bytes(),
                capacity.blocks,
                capacity.block_size
            );
            Err(TransportError::new(ErrorKind::Contradiction, route, what))
        }
    }
}

impl BlockRead for Disk {
    fn path(&self) -> &'static str {
        "SCSI READ"
    }

    fn read(&mut self, range: ByteRange) -> Result<Vec<u8>, TransportError> {
        let route = self.device.route();
        let mut bytes = Vec::new();
        for (blocks, mut part) in super::super::access::pieces(route, range, self.block, self.bytes, MOST_READ)? {
            read_blocks(&mut self.device, blocks, &mut part)?;
            bytes.extend(part);
        }
        Ok(bytes)
    }
}

/// The short form wherever it fits: small bridges know no other.
fn read_blocks(device: &mut ScsiDevice, blocks: LbaRange, part: &mut [u8]) -> Result<(), TransportError> {
    let what = format!("READ of {} blocks at block {}", blocks.count(), blocks.start());
    let short = encode::read_10(blocks);
    let long = encode::read_16(blocks);
    let cdb = short.as_ref().map(<[u8; 10]>::as_slice).or(long.as_ref().map(<[u8; 16]>::as_slice));
    let cdb = cdb.ok_or_else(|| TransportError::new(ErrorKind::OutOfRange, device.route(), what.clone()))?;
    device.run(&what, cdb, Data::In(part), WORK).map(|_| ())
}
