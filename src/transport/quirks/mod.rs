//! Models and bridges with known faults. The kernel keeps such a table (drivers/ata/libata-core.c), but commands sent
//! through SG_IO pass it by, and behind a bridge the kernel never sees the model.

mod glob;

#[cfg(test)]
mod tests;

use super::facts::{DeviceFacts, UsbId};

/// What is known about a device. The default is: nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quirks {
    /// Why it must never be trimmed.
    pub never: Option<&'static str>,
    /// Most bytes in one command that it survives.
    pub max_command_bytes: Option<u64>,
    /// The model's promise of zeros after TRIM has been found true.
    pub zeros_trusted: bool,
    /// What others have seen with this bridge, and where they wrote it.
    pub known: Option<&'static str>,
    /// ATA PASS-THROUGH(12) shares its first byte with other commands and does harm here.
    pub no_sat12: bool,
}

/// A fact about a model: glob over the model, glob over the firmware.
struct Model(&'static str, &'static str, Fact);

#[derive(Clone, Copy)]
enum Fact {
    Never(&'static str),
    MaxCommandBytes(u64),
    ZerosTrusted,
    ZerosNotTrusted,
}

const BROKEN: Fact = Fact::Never("the kernel's list of faulty drives says that TRIM damages data on this model");
const LARGE_TRIM_LOCKS: Fact = Fact::MaxCommandBytes(128 << 20);

/// For each kind of fact the first row that matches counts.
const MODELS: &[Model] = &[
    Model("SuperSSpeed S238*", "*", BROKEN),
    Model("M88V29*", "*", BROKEN),
    Model("SanDisk SD7*", "*", LARGE_TRIM_LOCKS),
    Model("SanDisk SD8*", "*", LARGE_TRIM_LOCKS),
    Model("SanDisk SD9*", "*", LARGE_TRIM_LOCKS),
    Model("INTEL*SSDSC2MH*", "*", Fact::ZerosNotTrusted),
    Model("Micron*", "*", Fact::ZerosTrusted),
    Model("Crucial*", "*", Fact::ZerosTrusted),
    Model("FCCT*M500*", "*", Fact::ZerosTrusted),
    Model("INTEL*SSD*", "*", Fact::ZerosTrusted),
    Model("SSD*INTEL*", "*", Fact::ZerosTrusted),
    Model("Samsung*SSD*", "*", Fact::ZerosTrusted),
    Model("SAMSUNG*SSD*", "*", Fact::ZerosTrusted),
    Model("SAMSUNG*MZ7KM*", "*", Fact::ZerosTrusted),
    Model("SAMSUNG*MZ7LH*", "*", Fact::ZerosTrusted),
    Model("ST[1248][0248]0[FH]*", "*", Fact::ZerosTrusted),
];

/// A fact about a USB bridge, whatever drive is behind it: its numbers, and the releases of its firmware (bcdDevice).
struct Bridge(u16, u16, Releases, BridgeFact);

/// Which releases of a bridge's firmware are meant.
#[derive(Clone, Copy)]
enum Releases {
    /// All, or it is not known which.
    All,
    /// Up to this one.
    UpTo(u16),
    /// These.
    Only(&'static [u16]),
    /// All but these.
    Not(&'static [u16]),
}

impl Releases {
    fn hold(self, release: u16) -> bool {
        match self {
            Self::All => true,
            Self::UpTo(last) => release <= last,
            Self::Only(some) => some.contains(&release),
            Self::Not(some) => !some.contains(&release),
        }
    }
}

/// Releases of SATA adapters that carry the numbers of a JMS583 (smartmontools, drive database).
pub const SATA_AS_JMS583: &[u16] = &[0x0414, 0x3202, 0x9128];

#[derive(Clone, Copy)]
enum BridgeFact {
    MaxCommandBytes(u64),
    NoSat12,
    /// What was published about it: a word of warning, never a reason to trust.
    Known(&'static str),
}

/// Large UNMAPs were reported to run into the 30 second limit (ASM2464PD in USB 3 mode).
const SLOW_UNMAP: BridgeFact = BridgeFact::MaxCommandBytes(64 << 20);

const JMS583: &str = "JMS583: TRIM hit the right range on a tested unit (linux-usb, 2023-10-24), and one left the bus half a \
                      minute after a command that succeeded (smartmontools, issue 256)";
const SATA_583: &str = "a SATA adapter under the numbers of the JMS583, by its firmware release: what is known of the JMS583 does \
                        not hold for it (smartmontools, drive database)";
const INITIO: &str =
    "Initio 13fd:3940 with old firmware: the kernel keeps ATA PASS-THROUGH away from it (Linux, unusual_uas.h)";
const ASM1153: &str = "ASM1053/1153: UNMAP was seen working, older firmware not (morfikov.github.io, TRIM through USB-SATA \
                       adapters)";
const RTL9210: &str = "RTL9210: UNMAP works for some; on one RTL9210B it hung disk and host until the power was cut \
                       (github.com/WayneKennedy/wk-hexapod, docs/decisions.md)";
const VL817: &str = "VL715/VL817: UNMAP was seen working with some enclosures and not with others (spod.cx, TRIM support via \
                     VL817)";
const JETFLASH: &str =
    "Transcend JetFlash: accepts UNMAP and was seen to change nothing (github.com/brlin-tw/trim-over-usb-howto)";

const ALL: Releases = Releases::All;

/// A1h is the entry of the vendor's own NVMe tunnel (JMicron) or was seen to crash the bridge (ASMedia): these are
/// USB-to-NVMe bridges, on which an ATA command has no meaning anyway.
const BRIDGES: &[Bridge] = &[
    Bridge(0x152d, 0x0562, ALL, BridgeFact::Known(JMS583)),
    Bridge(0x152d, 0x0583, Releases::Not(SATA_AS_JMS583), BridgeFact::Known(JMS583)),
    Bridge(0x152d, 0x0583, Releases::Only(SATA_AS_JMS583), BridgeFact::Known(SATA_583)),
    Bridge(0x152d, 0xa583, ALL, BridgeFact::Known(JMS583)),
    Bridge(0x174c, 0x1156, ALL, BridgeFact::Known(ASM1153)),
    Bridge(0x174c, 0x55aa, ALL, BridgeFact::Known(ASM1153)),
    Bridge(0x0bda, 0x9210, ALL, BridgeFact::Known(RTL9210)),
    // A hang that needs the power cut is worse than many commands.
    Bridge(0x0bda, 0x9210, ALL, SLOW_UNMAP),
    Bridge(0x2109, 0x0715, ALL, BridgeFact::Known(VL817)),
    Bridge(0x8564, 0x1000, ALL, BridgeFact::Known(JETFLASH)),
    Bridge(0x174c, 0x2463, ALL, SLOW_UNMAP),
    Bridge(0x1e91, 0xde79, ALL, SLOW_UNMAP),
    Bridge(0x13fd, 0x3940, Releases::UpTo(0x0309), BridgeFact::Known(INITIO)),
    Bridge(0x13fd, 0x3940, Releases::UpTo(0x0309), BridgeFact::NoSat12),
    Bridge(0x152d, 0x0562, ALL, BridgeFact::NoSat12),
    Bridge(0x152d, 0x0581, ALL, BridgeFact::NoSat12),
    Bridge(0x152d, 0x0583, ALL, BridgeFact::NoSat12),
    Bridge(0x152d, 0x0586, ALL, BridgeFact::NoSat12),
    Bridge(0x152d, 0xa580, ALL, BridgeFact::NoSat12),
    Bridge(0x152d, 0xa581, ALL, BridgeFact::NoSat12),
    Bridge(0x152d, 0xa583, ALL, BridgeFact::NoSat12),
    Bridge(0x152d, 0xb581, ALL, BridgeFact::NoSat12),
    Bridge(0x174c, 0x2362, ALL, BridgeFact::NoSat12),
    Bridge(0x174c, 0x2364, ALL, BridgeFact::NoSat12),
    Bridge(0x174c, 0x2463, ALL, BridgeFact::NoSat12),
    Bridge(0x1e91, 0xde79, ALL, BridgeFact::NoSat12),
    Bridge(0x0bda, 0x9210, ALL, BridgeFact::NoSat12),
    Bridge(0x0bda, 0x9220, ALL, BridgeFact::NoSat12),
];

/// The names by which a device may be known.
#[derive(Debug, Clone, Default)]
pub struct Names {
    models: Vec<String>,
    firmware: String,
    usb: Option<UsbId>,
}

impl Names {
    /// Names as INQUIRY gives them. Bridges spread the model over vendor (8 characters) and product (16), so it is
    /// also put together again, with and without the padding.
    pub fn of(facts: &DeviceFacts, vendor: &str, product: &str, revision: &str) -> Self {
        let models = vec![
            product.to_owned(),
            format!("{vendor} {product}"),
            format!("{vendor:8}{product}"),
            facts.model.clone(),
        ];
        Self { models, firmware: revision.to_owned(), usb: facts.usb }
    }

    /// Adds the drive's own words from IDENTIFY.
    #[must_use]
    pub fn with_drive(mut self, model: &str, firmware: &str) -> Self {
        self.models.insert(0, model.to_owned());
        self.firmware = firmware.to_owned();
        self
    }
}

/// All that is known about a device.
pub fn find(names: &Names) -> Quirks {
    let mut quirks = Quirks::default();
    let mut zeros = None;
    let limit = |known: Option<u64>, bytes: u64| Some(known.map_or(bytes, |known| known.min(bytes)));
    for Model(model, firmware, fact) in MODELS {
        if !glob::matches(firmware, &names.firmware) || !names.models.iter().any(|name| glob::matches(model, name)) {
            continue;
        }
        match *fact {
            Fact::Never(reason) => quirks.never = Some(reason),
            Fact::MaxCommandBytes(bytes) => quirks.max_command_bytes = limit(quirks.max_command_bytes, bytes),
            Fact::ZerosTrusted => zeros = zeros.or(Some(true)),
            Fact::ZerosNotTrusted => zeros = zeros.or(Some(false)),
        }
    }
    let is_meant = |Bridge(vendor, product, releases, _): &&Bridge| {
        names.usb.is_some_and(|usb| (usb.vendor, usb.product) == (*vendor, *product) && releases.hold(usb.release))
    };
    for Bridge(_, _, _, fact) in BRIDGES.iter().filter(is_meant) {
        match fact {
            BridgeFact::MaxCommandBytes(bytes) => quirks.max_command_bytes = limit(quirks.max_command_bytes, *bytes),
            BridgeFact::NoSat12 => quirks.no_sat12 = true,
            BridgeFact::Known(words) => quirks.known = Some(words),
        }
    }
    quirks.zeros_trusted = zeros == Some(true);
    quirks
}
