//! From what the user typed to an opened, and for a discard claimed, target.

use super::claim::{self, Claim, Reach};
use super::error::TargetError;
use super::resolve::{self, Identify};
use super::sysfs::{DeviceNumber, Roots};
use super::usage::{self, Use, User};
use super::{Intent, Target, Thing, facts, sys, virtual_disk};
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

/// Opens targets, and shares one claim among those that lie on the same disk.
#[derive(Debug, Default)]
pub struct Opener {
    roots: Roots,
    claims: BTreeMap<DeviceNumber, Arc<Claim>>,
}

impl Opener {
    /// An opener that sees the given trees.
    pub fn new(roots: Roots) -> Self {
        Self { roots, claims: BTreeMap::new() }
    }

    /// Opens what `spec` names: a path, or `LABEL=`, `UUID=`, `PARTLABEL=`, `PARTUUID=`.
    pub fn open(&mut self, spec: &str, intent: Intent, identify: Identify<'_>) -> Result<Target, TargetError> {
        let path = resolve::resolve(&self.roots, spec, identify)?;
        let metadata = std::fs::metadata(&path).map_err(|cause| match cause.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => TargetError::NotFound(path.clone()),
            std::io::ErrorKind::PermissionDenied => TargetError::Permission { path: path.clone() },
            _ => TargetError::Io { path: path.clone(), step: "looking at it", cause },
        })?;
        if let Some(error) = resolve::unsuitable(&self.roots, &path, &metadata) {
            return Err(error);
        }
        if metadata.file_type().is_block_device() {
            self.open_device(path, &metadata, intent)
        } else {
            self.open_image(path, &metadata, intent)
        }
    }

    fn open_device(&mut self, path: PathBuf, metadata: &Metadata, intent: Intent) -> Result<Target, TargetError> {
        let number = DeviceNumber::from_raw(metadata.rdev());
        let file = claim::open_node(&path, number, false, false)?;
        let (disk, partition) =
            facts::lookup(&self.roots, number).ok_or_else(|| TargetError::NotFound(path.clone()))?;
        let mut target = Target::of_device(&self.roots, path, file, disk, partition)?;
        virtual_disk::refuse(&target.path, &target.file, target.size, false)?;
        match intent {
            Intent::Read => target.users = target.settled_users(self.is_ours(&target)),
            Intent::Discard => {
                target.claim = Some(self.claim(&target)?);
                target.users = target.settled_users(true);
                target.must_be_unused()?;
            }
        }
        target.must_be_unchanged()?;
        Ok(target)
    }

    /// True when a claim of our own explains that the node cannot be claimed again.
    fn is_ours(&self, target: &Target) -> bool {
        let Thing::Device { disk, partition } = &target.thing else { return false };
        let numbers = [Some(disk.number), partition.as_ref().map(|partition| partition.number)];
        numbers.into_iter().flatten().any(|number| self.claims.contains_key(&number))
    }

    fn claim(&mut self, target: &Target) -> Result<Arc<Claim>, TargetError> {
        let Thing::Device { disk, partition } = &target.thing else {
            return Err(TargetError::NotFound(target.path.clone()));
        };
        let part_number = partition.as_ref().map(|partition| partition.number);
        let held = [Some(disk.number), part_number].into_iter().flatten().find_map(|number| self.claims.get(&number));
        if let Some(claim) = held {
            return Ok(Arc::clone(claim));
        }
        let parts = facts::partitions(&self.roots, disk);
        let held = parts.iter().find_map(|part| self.claims.get(&part.number)?.quiet().cloned());
        let claim = claim::claim_device(&self.roots, disk, partition.as_deref(), held)
            .map_err(|error| target.explain(error))?;
        let number = match (claim.reach(), partition) {
            (Reach::PartitionOnly { .. }, Some(partition)) => partition.number,
            _ => disk.number,
        };
        let claim = Arc::new(claim);
        self.claims.insert(number, Arc::clone(&claim));
        Ok(claim)
    }

    fn open_image(&self, path: PathBuf, metadata: &Metadata, intent: Intent) -> Result<Target, TargetError> {
        // To open it would end the run of whoever trims it now.
        if let Some(owner) = usage::leased(&self.roots, metadata) {
            let users = vec![User { node: path.clone(), by: Use::Locked(owner) }];
            return Err(TargetError::InUse { path, users });
        }
        let file = claim::open(&path, false, false)?;
        let mut target = Target::of_image(&self.roots, path, file)?;
        virtual_disk::refuse(&target.path, &target.file, target.size, true)?;
        match intent {
            Intent::Read => {
                target.users = target.settled_users(false);
                target.users.extend(claim::foreign_lock(&self.roots, &target.path, &target.file));
                if target.users.is_empty() && sys::has_writers(&target.file) {
                    target.users.push(User { node: target.path.clone(), by: Use::Unseen });
                }
            }
            Intent::Discard => {
                let writable = claim::open(&target.path, true, false)?;
                let found = writable.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
                if found.ok() != Some(target.inode) {
                    return Err(target.changed("the name leads to another file"));
                }
                target.users = target.settled_users(false);
                target.must_be_unused()?;
                target.claim = Some(Arc::new(claim::claim_image(&self.roots, &target.path, writable)?));
            }
        }
        target.must_be_unchanged()?;
        Ok(target)
    }
}
