//! The filesystems. Adding one is a folder here and a row in [`FORMATS`].

mod apfs;
mod btrfs;
mod cluster_walk;
mod exfat;
mod ext4;
mod f2fs;
mod fat;
mod features;
mod hfsplus;
mod ntfs;
mod xfs;

use crate::error::ParseError;
use crate::source::Source;
use crate::volume::Volume;
use crate::witness::Witness;

/// One filesystem format.
pub trait Format: Sync {
    /// Name of the family (`ext`, `fat`); also what `--fs` takes, beside the exact name in [`Volume::format`].
    fn name(&self) -> &'static str;

    /// The exact names that [`Volume::format`] can have.
    fn variants(&self) -> &'static [&'static str];

    /// True when other volumes of the same disk say something about one of this format: a hibernated system has all of
    /// them mounted.
    fn minds_neighbours(&self) -> bool {
        false
    }

    /// True when the source carries this format's signature. Cheap, and never an opinion about health.
    fn probe(&self, source: &dyn Source) -> Result<bool, ParseError>;

    /// Reads the volume. Everything is in bytes from the start of `source`. `companions` are the other volumes of
    /// the same run: an external journal or further devices of the filesystem may be among them.
    fn read(&self, source: &dyn Source, companions: &[&dyn Source]) -> Result<Volume, ParseError>;

    /// The command that checks and repairs a volume of this format; `DEVICE` stands for its node.
    fn checker(&self) -> &'static str;

    /// Independent readings, the best first.
    fn witnesses(&self) -> &'static [&'static dyn Witness] {
        &[]
    }
}

/// Every format that can be trimmed, in the order shown to the user.
#[rustfmt::skip] // a row a line
pub static FORMATS: &[&dyn Format] = &[
    &ext4::Ext4,
    &fat::Fat,
    &exfat::Exfat,
    &ntfs::Ntfs,
    &apfs::Apfs,
    &hfsplus::HfsPlus,
    &xfs::Xfs,
    &f2fs::F2fs,
    &btrfs::Btrfs,
];

/// The row with this name.
pub fn by_name(name: &str) -> Option<&'static dyn Format> {
    FORMATS.iter().copied().find(|format| format.name() == name)
}

/// A UUID in the usual groups; all zeros is none.
fn uuid_text(uuid: &[u8; 16]) -> Option<String> {
    (*uuid != [0; 16]).then(|| grouped(uuid))
}

/// A UUID in the usual groups.
fn grouped(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&index) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
