//! What the claims of several layers are worth together: where they contradict each other, and why the kernel sends no
//! discard. Pure functions; nothing is asked here.

use crate::target::facts::{Attachment, DiskFacts};
use crate::transport::claims::ScsiClaims;
use crate::transport::scsi::pages::Capacity;

/// Two layers that cannot both be right, a sentence each.
pub fn contradictions(disk: &DiskFacts, claims: &ScsiClaims) -> Vec<String> {
    let mut found = sizes(disk, claims);
    found.extend(unmap(claims));
    found.extend(zeros(claims));
    found.extend(kernel_limit(disk, claims));
    found.extend(drive(claims));
    found
}

fn sizes(disk: &DiskFacts, claims: &ScsiClaims) -> Vec<String> {
    let stated = |capacity: &Option<Capacity>| {
        capacity.filter(|stated| !stated.is_saturated() || stated.details.is_some()).and_then(|stated| stated.bytes())
    };
    let ata = claims.ata.as_ref().and_then(|drive| drive.bytes());
    let others = [
        ("READ CAPACITY(10)", stated(&claims.capacity_10)),
        ("READ CAPACITY(16)", stated(&claims.capacity_16)),
        ("the drive's IDENTIFY data", ata),
    ];
    let differs = |(name, bytes): (&str, Option<u64>)| {
        let bytes = bytes.filter(|bytes| *bytes != disk.size)?;
        Some(format!("the kernel knows {} bytes, {name} says {bytes}", disk.size))
    };
    others.into_iter().filter_map(differs).collect()
}

fn unmap(claims: &ScsiClaims) -> Option<String> {
    let limits = claims.limits.is_some_and(|page| page.max_unmap_blocks > 0 && page.max_unmap_descriptors > 0);
    let says = claims.provisioning.map(|page| page.unmap);
    let provisioned = claims.capacity_16.and_then(|capacity| capacity.details).map(|details| details.provisioned);
    match (says, limits, provisioned) {
        (Some(true), false, _) => {
            Some("VPD page B2h claims UNMAP (LBPU 1), and page B0h states no limits for it".to_owned())
        }
        (Some(false), true, _) => {
            Some("VPD page B2h denies UNMAP (LBPU 0), and page B0h states limits for it".to_owned())
        }
        (_, true, Some(false)) => Some(
            "VPD page B0h states limits for UNMAP, and READ CAPACITY(16) says that there is no provisioning (LBPME 0)"
                .to_owned(),
        ),
        (None, false, Some(true)) => Some(
            "READ CAPACITY(16) says that blocks can be unmapped (LBPME 1), and no page says by which command"
                .to_owned(),
        ),
        _ => None,
    }
}

fn zeros(claims: &ScsiClaims) -> Option<String> {
    let page = claims.provisioning?.reads_zeros;
    let capacity = claims.capacity_16?.details?.reads_zeros;
    (page != capacity).then(|| {
        format!(
            "LBPRZ (unmapped blocks read as zeros) is {} in VPD page B2h and {} in READ CAPACITY(16)",
            u8::from(page),
            u8::from(capacity)
        )
    })
}

fn kernel_limit(disk: &DiskFacts, claims: &ScsiClaims) -> Option<String> {
    let most = claims.limits.filter(|page| page.max_unmap_blocks > 0)?.max_unmap_blocks;
    let most = u64::from(most).saturating_mul(disk.logical_sector);
    let by_unmap = disk.discard.provisioning_mode.as_deref() == Some("unmap");
    (by_unmap && disk.discard.max_bytes > most).then(|| {
        format!(
            "the kernel would send UNMAP commands of up to {} bytes, the device takes {most}",
            disk.discard.max_bytes
        )
    })
}

fn drive(claims: &ScsiClaims) -> Vec<String> {
    let mut found = Vec::new();
    let claims_unmap = claims.provisioning.is_some_and(|page| page.unmap);
    if let Some(drive) = &claims.ata {
        if claims_unmap && !drive.trim {
            found.push(format!("the bridge claims UNMAP, and the drive {} behind it knows no TRIM", drive.model));
        }
        if let (Some(page), Some(turns)) = (claims.rotation.and_then(rotates), drive.rotates)
            && page != turns
        {
            found.push("VPD page B1h and the drive's IDENTIFY data do not agree whether it rotates".to_owned());
        }
    }
    if let (Some(page), Some(drive)) = (&claims.ata_page, &claims.ata)
        && (page.model != drive.model || page.sectors != drive.sectors)
    {
        found.push(format!(
            "VPD page 89h describes {} with {} sectors, the drive itself says {} with {}",
            page.model, page.sectors, drive.model, drive.sectors
        ));
    }
    found
}

fn rotates(rate: u16) -> Option<bool> {
    crate::transport::scsi::pages::rotates(rate)
}

/// Why the kernel sends no discard to this disk by itself; none when it does.
pub fn why_the_kernel_does_not(disk: &DiskFacts, claims: Option<&ScsiClaims>) -> Option<String> {
    if disk.discard.max_bytes > 0 {
        return None;
    }
    let mode = disk.discard.provisioning_mode.as_deref();
    let driver = match &disk.attachment {
        Attachment::Usb(usb) => usb.driver.as_deref(),
        _ => None,
    };
    let provisioned = claims.and_then(|claims| Some(claims.capacity_16?.details?.provisioned));
    Some(match (mode, driver, provisioned) {
        (Some("disabled"), _, _) => {
            "it has switched discard off: the device rejected one, or claims no command for it".to_owned()
        }
        (Some("full"), Some("usb-storage"), _) => {
            "its usb-storage driver asks a disk of up to 2 TiB neither whether it can unmap (LBPME) nor within which limits"
                .to_owned()
        }
        (Some("full"), _, Some(false)) => {
            "the device says in READ CAPACITY(16) that it cannot unmap (LBPME 0), and then the kernel asks no further".to_owned()
        }
        (Some("full"), _, _) => "nothing that the kernel asked tells it that the device can unmap".to_owned(),
        _ => "it knows no command for it on this device (discard_max_bytes is 0)".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Roots;
    use crate::transport::scsi::pages::{BlockLimits, CapacityDetails, Inquiry, Provisioning};

    fn disk(folder: &std::path::Path) -> DiskFacts {
        let write = |name: &str, text: &str| {
            let path = folder.join("block/sdz").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("dev", "8:400\n");
        write("size", "2048\n");
        write("queue/logical_block_size", "512\n");
        write("queue/physical_block_size", "512\n");
        let roots = Roots { sys: folder.to_owned(), ..Roots::default() };
        crate::target::facts::disk(&roots, &folder.join("block/sdz")).unwrap()
    }

    fn claims() -> ScsiClaims {
        let text = String::new;
        let inquiry =
            Inquiry { kind: 0, removable: false, version: 6, vendor: text(), product: text(), revision: text() };
        let details = CapacityDetails {
            protected: false,
            physical_exponent: 0,
            provisioned: true,
            reads_zeros: true,
            lowest_aligned: 0,
        };
        let short = Capacity { blocks: 2048, block_size: 512, details: None };
        ScsiClaims {
            inquiry,
            pages: vec![0, 0xB0, 0xB2],
            serial: None,
            identifiers: Vec::new(),
            ata_page: None,
            limits: Some(BlockLimits {
                max_unmap_blocks: 100,
                max_unmap_descriptors: 1,
                unmap_granularity: 1,
                unmap_alignment: None,
                max_write_same_blocks: 0,
            }),
            rotation: Some(1),
            provisioning: Some(Provisioning {
                unmap: true,
                write_same_16: false,
                write_same_10: false,
                reads_zeros: true,
            }),
            capacity_10: Some(short),
            capacity_16: Some(Capacity { details: Some(details), ..short }),
            ata: None,
            unanswered: Vec::new(),
        }
    }

    /// What is said after `change` was done to claims that agree.
    fn said(change: impl Fn(&mut DiskFacts, &mut ScsiClaims)) -> String {
        let folder = tempfile::tempdir().unwrap();
        let (mut disk, mut claims) = (disk(folder.path()), claims());
        change(&mut disk, &mut claims);
        contradictions(&disk, &claims).join("; ")
    }

    #[test]
    fn only_what_cannot_be_true_together_is_a_contradiction() {
        assert_eq!(said(|_, _| ()), "");
        assert!(said(|disk, _| disk.size = 512).contains("READ CAPACITY(16) says 1048576"));
        assert!(said(|_, claims| claims.limits = None).contains("states no limits"));
        assert!(said(|_, claims| claims.provisioning.as_mut().unwrap().unmap = false).contains("denies UNMAP"));
        assert!(said(|_, claims| claims.provisioning.as_mut().unwrap().reads_zeros = false).contains("LBPRZ"));
        let without = |_: &mut DiskFacts, claims: &mut ScsiClaims| {
            let long = claims.capacity_16.as_mut().unwrap();
            long.details = long.details.map(|details| CapacityDetails { provisioned: false, ..details });
        };
        assert!(said(without).contains("LBPME 0"));
        let forced = |disk: &mut DiskFacts, _: &mut ScsiClaims| {
            disk.discard.provisioning_mode = Some("unmap".to_owned());
            disk.discard.max_bytes = 1 << 20;
        };
        assert!(said(forced).contains("the device takes 51200"));
    }

    #[test]
    fn the_kernel_s_silence_has_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = disk(folder.path());
        assert!(why_the_kernel_does_not(&disk, None).unwrap().contains("discard_max_bytes is 0"));
        disk.discard.provisioning_mode = Some("full".to_owned());
        let mut claims = claims();
        let long = claims.capacity_16.as_mut().unwrap();
        long.details = long.details.map(|details| CapacityDetails { provisioned: false, ..details });
        assert!(why_the_kernel_does_not(&disk, Some(&claims)).unwrap().contains("LBPME 0"));
        disk.discard.max_bytes = 4096;
        assert_eq!(why_the_kernel_does_not(&disk, Some(&claims)), None);
    }
}
