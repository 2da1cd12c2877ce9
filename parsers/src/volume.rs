//! What is known about one filesystem: facts, for others to decide upon.

use crate::free_map::FreeMap;
use serde::{Deserialize, Serialize};

/// One filesystem on one source.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Volume {
    /// The format as its users call it (`ext4`, `fat32`).
    pub format: String,
    /// The volume label, where the format has one and it is set.
    pub label: Option<String>,
    /// The volume's identity as blkid prints it.
    pub uuid: Option<String>,
    /// Bytes that the filesystem says it spans, from the start of the source.
    pub size: u64,
    /// Size of the allocation unit in bytes.
    pub block_size: u64,
    /// What the filesystem's own allocation structure calls free. Empty when a finding made it pointless to look.
    pub free: FreeMap,
    /// True where neither a journal nor a checksum protects the map, so that a complete witness is heard by default and
    /// its absence is a refusal.
    pub needs_witness: bool,
    /// Everything that speaks against using the map, or is worth saying about it.
    pub findings: Vec<Finding>,
}

impl Volume {
    /// True when nothing was found that forbids using the map outright (consents may still be needed).
    pub fn is_usable(&self) -> bool {
        !self.findings.iter().any(|finding| finding.weight == Weight::Refusal)
    }
}

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// The map must not be used; nothing lifts this but a repair of the volume.
    Refusal,
    /// The map must not be used unless the user consents to a named loss.
    Consent(Consent),
    /// Worth saying, changes nothing.
    Warning,
}

/// A loss that a user can accept by name (`--accept NAME`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // the names are the users' own words, each explained where it is demanded
pub enum Consent {
    ShadowCopies,
    EncryptionPattern,
    HiddenVolume,
    MirrorMismatch,
    StaleRaidMetadata,
    Rotating,
    RemovableFlash,
}

impl Consent {
    /// Every consent that there is.
    pub const ALL: [Self; 7] = [
        Self::ShadowCopies,
        Self::EncryptionPattern,
        Self::HiddenVolume,
        Self::MirrorMismatch,
        Self::StaleRaidMetadata,
        Self::Rotating,
        Self::RemovableFlash,
    ];

    /// The name that the user types.
    pub fn name(self) -> &'static str {
        match self {
            Self::ShadowCopies => "shadow-copies",
            Self::EncryptionPattern => "encryption-pattern",
            Self::HiddenVolume => "hidden-volume",
            Self::MirrorMismatch => "mirror-mismatch",
            Self::StaleRaidMetadata => "stale-raid-metadata",
            Self::Rotating => "rotating",
            Self::RemovableFlash => "removable-flash",
        }
    }
}

/// One fact that speaks against trimming, or a warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How much it weighs.
    pub weight: Weight,
    /// What was found, where, and what was expected.
    pub message: String,
    /// The next command to type, or what else helps; `DEVICE` stands for the volume's node.
    pub remedy: String,
}

impl Finding {
    /// A finding that forbids using the map.
    pub fn refusal(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { weight: Weight::Refusal, message: message.into(), remedy: remedy.into() }
    }

    /// A finding that the user can accept; the message says what may be lost.
    pub fn consent(consent: Consent, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { weight: Weight::Consent(consent), message: message.into(), remedy: remedy.into() }
    }

    /// A remark.
    pub fn warning(message: impl Into<String>) -> Self {
        Self { weight: Weight::Warning, message: message.into(), remedy: String::new() }
    }
}
