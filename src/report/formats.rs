//! The map for other programs. Positions are bytes of the target (`ranges`), or sectors of the whole disk.

use super::{Report, State, TargetReport};
use coldtrim_parsers::text::{printable, quoted};
use coldtrim_parsers::units::ByteRange;
use std::io::{self, Write};

/// Why a map cannot be printed in a format.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// These formats speak of one device.
    #[error("this format is for one target, and {0} were given; name one at a time")]
    SeveralTargets(usize),
    /// The other tool works on devices.
    #[error(
        "{0} is an image file, and {1} works on devices only; holes in it are made by: coldtrim trim {word}, or attach it \
         with: losetup --find --show -P {word}", word = quoted(.0)
    )]
    Image(String, &'static str),
    /// The other tool counts sectors, and nobody said how long one is.
    #[error(
        "{0}: the sector size and place of the disk are not known for an image, and this format counts sectors of a \
         disk; use --format ranges, or attach it with: losetup --find --show -P {word}", word = quoted(.0)
    )]
    UnknownSectors(String),
    /// A free extent that is not made of whole sectors.
    #[error("{0} are not made of whole sectors of {1} bytes; use --format ranges")]
    Unaligned(ByteRange, u64),
    /// Writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A format that lists sectors of a disk for a tool that discards them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SectorFormat {
    /// `START COUNT`.
    Lba,
    /// `START:COUNT`, at most 65,535 sectors each.
    Hdparm,
    /// `START,COUNT`.
    SgUnmap,
    /// Command lines of blkdiscard, in bytes.
    Blkdiscard,
    /// Command lines of nvme-cli, at most 256 ranges each.
    Nvme,
}

impl SectorFormat {
    /// The program, where the format is one of command lines.
    fn tool(self) -> Option<&'static str> {
        match self {
            Self::Blkdiscard => Some("blkdiscard"),
            Self::Nvme => Some("nvme"),
            Self::Lba | Self::Hdparm | Self::SgUnmap => None,
        }
    }
}

/// Most sectors that one ATA range entry holds (16 bits).
const ATA_RANGE: u64 = 65_535;
/// Most blocks that one NVMe range and one SCSI descriptor hold (32 bits).
const WIDE_RANGE: u64 = 0xFFFF_FFFF;
/// Most ranges of one NVMe Dataset Management command.
const NVME_RANGES: usize = 256;

/// The free extents of everything that may be trimmed, from the start of the target, sorted and merged.
pub fn free_ranges(report: &Report) -> Vec<ByteRange> {
    let usable = report.volumes.iter().filter(|volume| volume.state == State::Clean);
    merged(usable.flat_map(|volume| volume.free.iter().copied()))
}

/// The same in bytes of one target, where a volume may lie on an array with a member there.
pub(super) fn free_on(report: &Report, target: usize) -> Vec<ByteRange> {
    let usable = report.volumes.iter().filter(|volume| volume.state == State::Clean);
    merged(usable.flat_map(|volume| {
        let pieces =
            volume.grounds.iter().flat_map(|ground| &ground.pieces).filter(move |piece| piece.target == target);
        let own = volume.free.iter().filter(move |_| volume.array.is_none() && volume.target == target);
        own.chain(pieces.flat_map(|piece| &piece.free)).copied()
    }))
}

/// Sorted and disjoint.
pub(super) fn merged(ranges: impl Iterator<Item = ByteRange>) -> Vec<ByteRange> {
    let mut ranges: Vec<ByteRange> = ranges.collect();
    coldtrim_parsers::array::merge(&mut ranges);
    ranges
}

fn single(report: &Report) -> Result<&TargetReport, FormatError> {
    match report.targets.as_slice() {
        [target] => Ok(target),
        several => Err(FormatError::SeveralTargets(several.len())),
    }
}

/// A free extent a line, `START LENGTH`, and nothing else: bytes of the target, or of the array that all targets make.
pub fn ranges(out: &mut dyn Write, report: &Report) -> Result<(), FormatError> {
    let free = match (report.arrays.len(), report.targets.len()) {
        (1, 2..) if report.volumes.iter().all(|volume| volume.array.is_some() || volume.state == State::Kept) => {
            free_ranges(report)
        }
        _ => {
            single(report)?;
            free_on(report, 0)
        }
    };
    for range in free {
        writeln!(out, "{} {}", range.start(), range.len())?;
    }
    Ok(())
}

/// A ddrescue map file of the target: `+` used, `?` free.
pub fn ddrescue(out: &mut dyn Write, report: &Report) -> Result<(), FormatError> {
    let target = single(report)?;
    writeln!(out, "# Domain of {} by coldtrim: + used, ? free", printable(&target.name))?;
    writeln!(out, "# current_pos  current_status  current_pass\n0x00000000     +               1")?;
    writeln!(out, "#      pos        size  status")?;
    let mut end = 0;
    let mut line = |start: u64, len: u64, status: char| match len {
        0 => Ok(()),
        _ => writeln!(out, "0x{start:08X}  0x{len:08X}  {status}"),
    };
    for range in free_on(report, 0) {
        line(end, range.start() - end, '+')?;
        line(range.start(), range.len(), '?')?;
        end = range.end();
    }
    line(end, target.size.saturating_sub(end), '+')?;
    Ok(())
}

/// The free extents as sectors of the whole disk, for a tool that sends them.
pub fn sectors(out: &mut dyn Write, report: &Report, format: SectorFormat) -> Result<(), FormatError> {
    let target = single(report)?;
    if !target.sector_size_known {
        return Err(FormatError::UnknownSectors(target.name.clone()));
    }
    if let (None, Some(tool)) = (&target.disk, format.tool()) {
        return Err(FormatError::Image(target.name.clone(), tool));
    }
    let disk = target.disk.as_deref().unwrap_or(&target.path);
    let on_disk = free_on(report, 0)
        .into_iter()
        .map(|range| to_sectors(range, target.disk_offset, target.sector_size))
        .collect::<Result<Vec<_>, _>>()?;
    writeln!(
        out,
        "# Free sectors of {} ({} bytes each). The tool that takes these lines checks nothing:\n# not that the \
         volume is still the same, not that it is unmounted, not that the bridge discards the right place.",
        printable(disk),
        target.sector_size
    )?;
    let disk = &quoted(disk);
    match format {
        SectorFormat::Lba => on_disk.iter().try_for_each(|(start, count)| writeln!(out, "{start} {count}"))?,
        SectorFormat::Hdparm => pieces(&on_disk, ATA_RANGE).try_for_each(|(start, n)| writeln!(out, "{start}:{n}"))?,
        SectorFormat::SgUnmap => {
            pieces(&on_disk, WIDE_RANGE).try_for_each(|(start, n)| writeln!(out, "{start},{n}"))?
        }
        SectorFormat::Blkdiscard => on_disk.iter().try_for_each(|(start, count)| {
            let (start, len) = (start * target.sector_size, count * target.sector_size);
            writeln!(out, "blkdiscard --offset {start} --length {len} {disk}")
        })?,
        SectorFormat::Nvme => nvme(out, disk, &pieces(&on_disk, WIDE_RANGE).collect::<Vec<_>>())?,
    }
    Ok(())
}

fn to_sectors(range: ByteRange, disk_offset: u64, sector: u64) -> Result<(u64, u64), FormatError> {
    let unaligned = FormatError::Unaligned(range, sector);
    match range.shift_up(disk_offset) {
        Some(on_disk) if on_disk.round_inwards(sector, 0) == Some(on_disk) => {
            Ok((on_disk.start() / sector, on_disk.len() / sector))
        }
        _ => Err(unaligned),
    }
}

/// The same sectors in pieces of at most `most`.
fn pieces(extents: &[(u64, u64)], most: u64) -> impl Iterator<Item = (u64, u64)> {
    extents.iter().flat_map(move |(start, count)| {
        (0..count.div_ceil(most)).map(move |k| (start + k * most, most.min(count - k * most)))
    })
}

fn nvme(out: &mut dyn Write, disk: &str, extents: &[(u64, u64)]) -> io::Result<()> {
    for chunk in extents.chunks(NVME_RANGES) {
        let list = |pick: fn(&(u64, u64)) -> u64| {
            chunk.iter().map(|extent| pick(extent).to_string()).collect::<Vec<_>>().join(",")
        };
        writeln!(out, "nvme dsm {disk} --ad --slbs={} --blocks={}", list(|e| e.0), list(|e| e.1))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(free: &[(u64, u64)], known: bool) -> Report {
        let mut target = super::super::tests::target("/dev/sdz1", 1 << 40);
        (target.sector_size_known, target.disk, target.disk_offset) = (known, Some("/dev/sdz".to_owned()), 1 << 20);
        let mut volume = super::super::VolumeReport::unknown(0, 0, 1 << 40);
        volume.state = State::Clean;
        volume.free = free.iter().map(|(start, len)| ByteRange::with_len(*start, *len).unwrap()).collect();
        let mut report = Report::new("map");
        report.targets.push(target);
        report.volumes.push(volume);
        report
    }

    fn printed(format: SectorFormat, free: &[(u64, u64)]) -> Vec<String> {
        let mut out = Vec::new();
        sectors(&mut out, &report(free, true), format).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("# "), "a warning comes first");
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn sectors_count_from_the_start_of_the_disk() {
        assert_eq!(printed(SectorFormat::Lba, &[(512, 1024)]), ["2049 2"]);
        assert_eq!(printed(SectorFormat::SgUnmap, &[(512, 1024)]), ["2049,2"]);
        assert_eq!(
            printed(SectorFormat::Blkdiscard, &[(512, 1024)]),
            ["blkdiscard --offset 1049088 --length 1024 /dev/sdz"]
        );
    }

    #[test]
    fn ata_ranges_hold_at_most_65535_sectors() {
        assert_eq!(printed(SectorFormat::Hdparm, &[(0, 65_536 * 512)]), ["2048:65535", "67583:1"]);
    }

    #[test]
    fn nvme_commands_hold_at_most_256_ranges() {
        let free: Vec<(u64, u64)> = (0..257).map(|k| (k * 1024, 512)).collect();
        let lines = printed(SectorFormat::Nvme, &free);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1], "nvme dsm /dev/sdz --ad --slbs=2560 --blocks=1");
    }

    #[test]
    fn an_image_has_no_sectors() {
        let refused = sectors(&mut Vec::new(), &report(&[(0, 512)], false), SectorFormat::Lba);
        assert!(matches!(refused, Err(FormatError::UnknownSectors(_))));
    }

    #[test]
    fn commands_are_for_devices_and_for_a_shell() {
        let mut odd = report(&[(0, 512)], true);
        odd.targets[0].disk = Some("/dev/a\n1 99;\u{202E}b".to_owned());
        for (format, line) in [
            (SectorFormat::Lba, "2048 1"),
            (SectorFormat::Blkdiscard, "blkdiscard --offset 1048576 --length 512 $'/dev/a\\x0a1 99;\\xe2\\x80\\xaeb'"),
            (SectorFormat::Nvme, "nvme dsm $'/dev/a\\x0a1 99;\\xe2\\x80\\xaeb' --ad --slbs=2048 --blocks=1"),
        ] {
            let mut out = Vec::new();
            sectors(&mut out, &odd, format).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert_eq!(text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>(), [line]);
            assert!(!text.contains('\u{202E}'));
        }
        odd.targets[0].disk = None;
        for (format, tool) in [(SectorFormat::Blkdiscard, "blkdiscard"), (SectorFormat::Nvme, "nvme")] {
            let refused = sectors(&mut Vec::new(), &odd, format);
            assert!(matches!(refused, Err(FormatError::Image(_, found)) if found == tool));
        }
    }

    #[test]
    fn a_ddrescue_domain_covers_the_target() {
        let mut out = Vec::new();
        ddrescue(&mut out, &report(&[(512, 512), (4096, 512)], false)).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| line.ends_with(['+', '?'])).collect();
        assert_eq!(lines[0], "0x00000000  0x00000200  +");
        assert_eq!(lines[1], "0x00000200  0x00000200  ?");
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn ranges_of_several_volumes_are_one_sorted_list() {
        let mut both = report(&[(4096, 512)], false);
        let mut other = both.volumes[0].clone();
        other.free = vec![ByteRange::with_len(0, 512).unwrap(), ByteRange::with_len(4608, 512).unwrap()];
        both.volumes.push(other);
        let mut out = Vec::new();
        ranges(&mut out, &both).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "0 512\n4096 1024\n");
    }
}
