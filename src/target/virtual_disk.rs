//! Files that hold a disk in a wrapping: a byte of the file is not a byte of the disk, so punching would destroy it.

use super::error::TargetError;
use coldtrim_parsers::text::quoted;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How a wrapping is opened.
#[derive(Debug, Clone, Copy)]
enum Opener {
    /// By qemu-nbd, with the format's name there.
    Qemu(&'static str),
    /// Disk images of macOS.
    MacOs,
    /// Forensic images.
    Ewf,
    /// Nothing but a conversion.
    Convert(&'static str),
}

/// Where a signature lies.
#[derive(Debug, Clone, Copy)]
enum Place {
    Start(u64),
    /// Bytes before the end.
    End(u64),
}

struct Row {
    name: &'static str,
    place: Place,
    magic: &'static [u8],
    opener: Opener,
}

/// Signatures from the formats' documents: QEMU docs/interop/qcow2.txt, qed_spec.txt, parallels.txt; VMware "Virtual
/// Disk Format 1.1"; Microsoft "VHD Image Format Specification" and MS-VHDX; VirtualBox VDICore.h; the `koly` trailer
/// of UDIF; libewf "EWF file format" and "EWF version 2".
static WRAPPINGS: &[Row] = &[
    row("qcow or qcow2", Place::Start(0), b"QFI\xfb", Opener::Qemu("qcow2")),
    row("QED", Place::Start(0), b"QED\0", Opener::Qemu("qed")),
    row("VMDK", Place::Start(0), b"KDMV", Opener::Qemu("vmdk")),
    row("VMDK (ESX sparse)", Place::Start(0), b"COWD", Opener::Qemu("vmdk")),
    row("VMDK descriptor", Place::Start(0), b"# Disk DescriptorFile", Opener::Qemu("vmdk")),
    row("VHD", Place::Start(0), b"conectix", Opener::Qemu("vpc")),
    row("VHD", Place::End(512), b"conectix", Opener::Qemu("vpc")),
    row("VHDX", Place::Start(0), b"vhdxfile", Opener::Qemu("vhdx")),
    row("VDI", Place::Start(0x40), b"\x7f\x10\xda\xbe", Opener::Qemu("vdi")),
    row("Parallels", Place::Start(0), b"WithoutFreeSpace", Opener::Qemu("parallels")),
    row("Parallels", Place::Start(0), b"WithouFreSpacExt", Opener::Qemu("parallels")),
    row("DMG", Place::End(512), b"koly", Opener::MacOs),
    row("encrypted DMG", Place::Start(0), b"encrcdsa", Opener::MacOs),
    row("sparse DMG", Place::Start(0), b"sprs", Opener::MacOs),
    row("EWF (E01)", Place::Start(0), b"EVF\x09\x0d\x0a\xff\x00", Opener::Ewf),
    row("EWF logical (L01)", Place::Start(0), b"LVF\x09\x0d\x0a\xff\x00", Opener::Ewf),
    row("EWF 2 (Ex01)", Place::Start(0), b"EVF2\x0d\x0a\x81\x00", Opener::Ewf),
    row("AFF", Place::Start(0), b"AFF10\r\n\0", Opener::Convert("affconvert -r")),
    row("gzip", Place::Start(0), b"\x1f\x8b\x08", Opener::Convert("gunzip -k")),
    row("xz", Place::Start(0), b"\xfd7zXZ\0", Opener::Convert("unxz -k")),
    row("Zstandard", Place::Start(0), b"\x28\xb5\x2f\xfd", Opener::Convert("unzstd")),
    row("bzip2", Place::Start(0), b"BZh91AY&SY", Opener::Convert("bunzip2 -k")),
];

const fn row(name: &'static str, place: Place, magic: &'static [u8], opener: Opener) -> Row {
    Row { name, place, magic, opener }
}

/// An error if the bytes are those of a wrapping. `len` is the length of the file in bytes. Block devices may carry
/// one too, but always from their start: their end belongs to whatever was there before.
pub(super) fn refuse(path: &Path, file: &File, len: u64, is_image: bool) -> Result<(), TargetError> {
    for row in WRAPPINGS.iter().filter(|row| is_image || matches!(row.place, Place::Start(_))) {
        let there =
            has(file, len, row).map_err(|cause| TargetError::Io { path: path.into(), step: "reading", cause })?;
        if there {
            let advice = advice(path, row.opener);
            return Err(TargetError::VirtualDisk { path: path.into(), format: row.name, advice });
        }
    }
    Ok(())
}

fn has(file: &File, len: u64, row: &Row) -> io::Result<bool> {
    let at = match row.place {
        Place::Start(at) => Some(at),
        Place::End(back) => len.checked_sub(back),
    };
    let Some(at) = at else { return Ok(false) };
    let mut found = vec![0; row.magic.len()];
    match file.read_exact_at(&mut found, at) {
        Ok(()) => Ok(found == row.magic),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn advice(path: &Path, opener: Opener) -> String {
    let path = path.to_string_lossy();
    let (raw, path) = (quoted(&format!("{path}.raw")), quoted(&path));
    match opener {
        Opener::Qemu(format) => format!(
            "Attach it as a disk: `modprobe nbd; qemu-nbd --discard=unmap -f {format} -c /dev/nbd0 {path}` and trim \
             /dev/nbd0, or convert it: `qemu-img convert -O raw {path} {raw}`"
        ),
        Opener::MacOs => format!(
            "Attach it on macOS: `hdiutil attach -nomount {path}`, or convert a read-only one: `dmg2img {path} {raw}`"
        ),
        Opener::Ewf => format!(
            "It is evidence and is never changed; to look at it: `ewfmount {path} /mnt` and `coldtrim map /mnt/ewf1`"
        ),
        Opener::Convert(command) => format!("Unpack it first: `{command} {path}`"),
    }
}
