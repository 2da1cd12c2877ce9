//! `coldtrim demo`: the main job on images that the program carries, checked against what the real filesystem driver
//! wrote when the image was made. Needs no root and no drive.
//!
//! A row in [`DEMOS`] is a folder under `fixtures/`: `image.gz`, and `manifest.json` with path, extents and SHA-256 of
//! every file as the driver reported them. The manifest shares nothing with coldtrim's own reading of the image.

use anyhow::{Context, Result, ensure};
use coldtrim_parsers::units::ByteRange;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// One carried image.
pub struct Demo {
    /// Name of the folder under `fixtures/`, for messages and file names.
    pub name: &'static str,
    image: &'static [u8],
    manifest: &'static str,
}

macro_rules! demo {
    ($format:literal) => {
        Demo {
            name: $format,
            image: include_bytes!(concat!("../../fixtures/", $format, "/01-demo/image.gz")),
            manifest: include_str!(concat!("../../fixtures/", $format, "/01-demo/manifest.json")),
        }
    };
}

/// The carried images, in the order shown.
#[rustfmt::skip] // a row a line
pub static DEMOS: &[Demo] = &[
    demo!("ext4"),
    demo!("fat16"),
    demo!("fat32"),
    demo!("exfat"),
    demo!("ntfs"),
    demo!("hfsplus"),
    demo!("apfs"),
    demo!("xfs"),
    demo!("f2fs"),
    demo!("btrfs"),
];

/// What the driver said when the image was made.
#[derive(Debug, Deserialize)]
pub struct Manifest {
    /// The filesystem.
    pub format: String,
    /// Every file on the volume.
    pub files: Vec<ManifestFile>,
}

/// One file of a [`Manifest`].
#[derive(Debug, Deserialize)]
pub struct ManifestFile {
    /// Path inside the volume.
    pub path: String,
    /// Length in bytes.
    pub size: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
    /// Where its data lies: start and length in bytes from the start of the volume, in the order of the file.
    pub extents: Vec<(u64, u64)>,
}

/// What the files and the free space look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// Files whose content has the SHA-256 of the manifest.
    pub files_right: usize,
    /// Files in the manifest.
    pub files: usize,
    /// Bytes that the image takes on its host's disk.
    pub stored_bytes: u64,
}

impl Demo {
    /// The manifest.
    pub fn manifest(&self) -> Result<Manifest> {
        serde_json::from_str(self.manifest).with_context(|| format!("the manifest of {}", self.name))
    }

    /// Writes the image into a new file, every byte of it: no holes, so that what trim frees can be seen.
    pub fn unpack(&self, file: &mut File) -> Result<()> {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(self.image).read_to_end(&mut bytes)?;
        let written = file.write_all(&bytes).and_then(|()| file.sync_all());
        written.with_context(|| format!("cannot write the image of {}", self.name))
    }
}

/// Reads every file of the manifest straight from the image, by the extents that the driver reported.
pub fn check(image: &Path, manifest: &Manifest) -> Result<Check> {
    let file = File::open(image).with_context(|| format!("cannot open {}", image.display()))?;
    let mut files_right = 0;
    for entry in &manifest.files {
        files_right += usize::from(sha256_of(&file, entry)? == entry.sha256);
    }
    let stored_bytes = file.metadata()?.blocks() * 512;
    Ok(Check { files_right, files: manifest.files.len(), stored_bytes })
}

fn sha256_of(image: &File, entry: &ManifestFile) -> Result<String> {
    let mut hash = Sha256::new();
    let mut left = entry.size;
    for (start, length) in &entry.extents {
        let mut part = vec![0; usize::try_from((*length).min(left))?];
        image.read_exact_at(&mut part, *start).with_context(|| format!("cannot read {}", entry.path))?;
        hash.update(&part);
        left -= (*length).min(left);
    }
    ensure!(left == 0, "the manifest's extents of {} are shorter than the file", entry.path);
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The first byte of `ranges` that is not zero, if there is one.
pub fn first_nonzero(image: &Path, ranges: &[ByteRange]) -> Result<Option<u64>> {
    let file = File::open(image)?;
    for range in ranges {
        let mut bytes = vec![0; usize::try_from(range.len())?];
        file.read_exact_at(&mut bytes, range.start())?;
        if let Some(position) = bytes.iter().position(|byte| *byte != 0) {
            return Ok(Some(range.start() + u64::try_from(position)?));
        }
    }
    Ok(None)
}
