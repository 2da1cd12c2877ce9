//! SG_IO: SCSI commands through the kernel (scsi/sg.h, interface version 3).
#![allow(unsafe_code)]

use super::super::carrier::Data;
use super::port::{Completion, ScsiPort};
use std::ffi::{c_int, c_short, c_uchar, c_uint, c_ushort, c_void};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// struct sg_io_hdr of scsi/sg.h.
#[repr(C)]
struct SgIoHeader {
    interface_id: c_int,
    dxfer_direction: c_int,
    cmd_len: c_uchar,
    mx_sb_len: c_uchar,
    iovec_count: c_ushort,
    dxfer_len: c_uint,
    dxferp: *mut c_void,
    cmdp: *const c_uchar,
    sbp: *mut c_uchar,
    timeout: c_uint,
    flags: c_uint,
    pack_id: c_int,
    usr_ptr: *mut c_void,
    status: c_uchar,
    masked_status: c_uchar,
    msg_status: c_uchar,
    sb_len_wr: c_uchar,
    host_status: c_ushort,
    driver_status: c_short,
    resid: c_int,
    duration: c_uint,
    info: c_uint,
}

const _: () = assert!(size_of::<SgIoHeader>() == if cfg!(target_pointer_width = "64") { 88 } else { 64 });

const SG_DXFER_NONE: c_int = -1;
const SG_DXFER_TO_DEV: c_int = -2;
const SG_DXFER_FROM_DEV: c_int = -3;
const SENSE_LEN: u8 = 96;
/// The longest command that every transport carries.
const MOST_CDB: usize = 16;

nix::ioctl_readwrite_bad!(sg_io, 0x2285, SgIoHeader);

/// A SCSI disk, opened as a block device.
pub struct SgIo(File);

impl SgIo {
    /// Sends commands through another descriptor of the same open file, so a claim on it holds.
    pub fn new(file: &File) -> io::Result<Self> {
        file.try_clone().map(Self)
    }
}

impl ScsiPort for SgIo {
    fn execute(&mut self, cdb: &[u8], data: Data<'_>, timeout: Duration) -> io::Result<Completion> {
        if !(6..=MOST_CDB).contains(&cdb.len()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut sense = [0_u8; 96];
        let (dxfer_direction, dxferp, length) = match data {
            Data::None => (SG_DXFER_NONE, std::ptr::null_mut(), 0),
            Data::In(buffer) => (SG_DXFER_FROM_DEV, buffer.as_mut_ptr().cast(), buffer.len()),
            Data::Out(buffer) => (SG_DXFER_TO_DEV, buffer.as_ptr().cast_mut().cast(), buffer.len()),
        };
        let mut header = SgIoHeader {
            interface_id: c_int::from(b'S'),
            dxfer_direction,
            cmd_len: c_uchar::try_from(cdb.len()).map_err(io::Error::other)?,
            mx_sb_len: SENSE_LEN,
            iovec_count: 0,
            dxfer_len: c_uint::try_from(length).map_err(io::Error::other)?,
            dxferp,
            cmdp: cdb.as_ptr(),
            sbp: sense.as_mut_ptr(),
            timeout: c_uint::try_from(timeout.as_millis()).map_err(io::Error::other)?,
            flags: 0,
            pack_id: 0,
            usr_ptr: std::ptr::null_mut(),
            status: 0,
            masked_status: 0,
            msg_status: 0,
            sb_len_wr: 0,
            host_status: 0,
            driver_status: 0,
            resid: 0,
            duration: 0,
            info: 0,
        };
        // SAFETY: the header describes buffers that outlive the call, with their true lengths; the kernel writes at
        // most dxfer_len bytes to dxferp (only for FROM_DEV, where it came from a `&mut`) and mx_sb_len bytes to sbp.
        unsafe { sg_io(self.0.as_raw_fd(), &mut header) }.map_err(io::Error::from)?;
        Ok(Completion {
            status: header.status,
            host: header.host_status,
            driver: u16::try_from(header.driver_status).unwrap_or(u16::MAX),
            sense: sense.get(..usize::from(header.sb_len_wr)).unwrap_or(&sense).to_vec(),
            residue: i64::from(header.resid),
            took: Duration::from_millis(u64::from(header.duration)),
        })
    }
}
