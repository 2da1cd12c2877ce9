//! NVMe pass-through ioctls (linux/nvme_ioctl.h).
#![allow(unsafe_code)]

use super::super::carrier::Data;
use super::port::{Command, NvmePort, Queue};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// struct nvme_passthru_cmd.
#[repr(C)]
#[derive(Default)]
struct Passthru {
    opcode: u8,
    flags: u8,
    rsvd1: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<Passthru>() == 72);

nix::ioctl_none_bad!(nvme_id, nix::request_code_none!(b'N', 0x40));
nix::ioctl_readwrite!(nvme_admin_cmd, b'N', 0x41, Passthru);
nix::ioctl_readwrite!(nvme_io_cmd, b'N', 0x43, Passthru);

/// A native NVMe namespace, opened as a block device.
pub struct NvmeNode(File);

impl NvmeNode {
    /// Sends commands through another descriptor of the same open file, so a claim on it holds.
    pub fn new(file: &File) -> io::Result<Self> {
        file.try_clone().map(Self)
    }
}

impl NvmePort for NvmeNode {
    fn namespace(&mut self) -> io::Result<u32> {
        // SAFETY: the request takes no argument; the descriptor is open for the whole call.
        let id = unsafe { nvme_id(self.0.as_raw_fd()) }.map_err(io::Error::from)?;
        u32::try_from(id).map_err(io::Error::other)
    }

    fn execute(&mut self, queue: Queue, command: &Command, data: Data<'_>, timeout: Duration) -> io::Result<u16> {
        // The kernel takes the direction from bit 0 of the opcode.
        let to_device = command.opcode & 1 == 1;
        let (address, length) = match data {
            Data::In(_) if to_device => return Err(io::ErrorKind::InvalidInput.into()),
            Data::Out(_) if !to_device => return Err(io::ErrorKind::InvalidInput.into()),
            Data::None => (0, 0),
            Data::In(buffer) => (buffer.as_mut_ptr().expose_provenance(), buffer.len()),
            Data::Out(buffer) => (buffer.as_ptr().expose_provenance(), buffer.len()),
        };
        let mut passthru = Passthru {
            opcode: command.opcode,
            nsid: command.namespace,
            addr: u64::try_from(address).map_err(io::Error::other)?,
            data_len: u32::try_from(length).map_err(io::Error::other)?,
            cdw10_15: command.words,
            timeout_ms: u32::try_from(timeout.as_millis()).map_err(io::Error::other)?,
            ..Passthru::default()
        };
        let fd = self.0.as_raw_fd();
        // SAFETY: the address and length describe a buffer that outlives the call, and the direction was checked above,
        // so the kernel writes only to a buffer that came as `&mut`.
        let status = unsafe {
            match queue {
                Queue::Admin => nvme_admin_cmd(fd, &mut passthru),
                Queue::Io => nvme_io_cmd(fd, &mut passthru),
            }
        };
        status.map_err(io::Error::from).and_then(|status| u16::try_from(status).map_err(io::Error::other))
    }
}
