//! What LVM2 calls the kinds of segments, and what helps with those that are not mapped.

use super::group::{Logical, Stretch};
use super::volume::Why;

/// What helps where copies may differ.
pub(super) const SYNC: &str = "activate it and let it synchronise (lvchange -ay VG/LV; lvs -o +sync_percent VG/LV), \
                               deactivate it, and try again";
const MOUNTED: &str = "activate and mount it, and use fstrim: lvchange -ay VG/LV";

/// Kinds by the beginning of their names, what they are, and what helps.
#[rustfmt::skip] // one row a line
const KINDS: &[(&str, &str, &str)] = &[
    ("thin-pool", "is a thin pool: which of its blocks are free, its thin volumes share among them", "trim the thin volumes mounted, with fstrim"),
    ("thin", "is a thin volume: its blocks are given out by a pool, which must hear of a discard", MOUNTED),
    ("cache-pool", "is a pool of cached blocks of another volume", "lvconvert --uncache the volume that uses it"),
    ("cache", "is cached: newer data may lie on the cache", "take the cache off: lvconvert --uncache VG/LV; or mount it and use fstrim"),
    ("writecache", "has a write cache, which may hold newer data", "take the cache off: lvconvert --uncache VG/LV; or mount it and use fstrim"),
    ("vdo-pool", "is a VDO pool: its blocks are deduplicated", "trim the volume on top mounted, with fstrim"),
    ("vdo", "is a VDO volume: its blocks are deduplicated", MOUNTED),
    ("snapshot", "is a snapshot", "lvremove the snapshot when it is no longer wanted"),
    ("integrity", "has checksums beside its blocks (dm-integrity), which a discard below them would make wrong", MOUNTED),
    ("raid", "is laid out in a way that is not mapped", MOUNTED),
    ("error", "has extents that lead nowhere", "lvs -a -o +devices VG/LV"),
    ("zero", "has extents that lead nowhere", "lvs -a -o +devices VG/LV"),
];

fn row(kind: &str) -> Option<&'static (&'static str, &'static str, &'static str)> {
    KINDS.iter().find(|(name, ..)| kind.starts_with(name))
}

/// True for kinds of which it is known that they take extents through other logical volumes alone.
pub(super) fn takes_no_extents(kind: &str) -> bool {
    row(kind).is_some()
}

/// Why a segment of this kind has no mapping.
pub(super) fn not_mapped(kind: &str) -> Why {
    match row(kind) {
        Some((_, what, remedy)) => (format!("{what} ({kind})"), (*remedy).to_owned()),
        None => (format!("is laid out in a way that coldtrim does not know ({kind})"), MOUNTED.to_owned()),
    }
}

/// Why a volume that another one speaks of has no mapping.
pub(super) fn used_by(logical: &Logical, user: &Stretch) -> Why {
    match user.kind.as_str() {
        "snapshot" => (
            "is the origin of a snapshot, or one: a discard beside the snapshot would take from it what it has not copied yet"
                .to_owned(),
            "lvremove the snapshot when it is no longer wanted; lvs -a shows them".to_owned(),
        ),
        "thin" => (
            "is the pool or the origin of thin volumes, which would lose what they share with it".to_owned(),
            "trim the thin volumes mounted, with fstrim".to_owned(),
        ),
        kind => match logical.segments.iter().find(|stretch| takes_no_extents(&stretch.kind)) {
            Some(stretch) => not_mapped(&stretch.kind),
            None => (format!("is a part of another logical volume ({kind})"), "name it no further; lvs -a shows what it is a part of".to_owned()),
        },
    }
}
