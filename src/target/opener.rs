//! From what the user typed to an opened, and for a discard claimed, target.

use super::claim::{self, Claim, Reach};
use super::error::TargetError;
use super::facts::{DiskFacts, PartitionFacts};
use super::resolve::{self, Identify};
use super::sysfs::{DeviceNumber, Roots};
use super::usage::{self, Use, User};
use super::{Intent, Target, Thing, dm, facts, sys, virtual_disk};
use nix::fcntl::Flock;
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
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

    /// Opens what lies below targets of ours, which lead there by `stacks`: their hold on it is ours, and nobody else's is
    /// allowed. An error in words when somebody else uses it.
    pub fn open_below(
        &mut self,
        number: DeviceNumber,
        stacks: &[dm::Stack],
        intent: Intent,
    ) -> Result<Result<Target, Vec<User>>, TargetError> {
        let gone = || TargetError::NotFound(PathBuf::from(format!("/dev/block/{number}")));
        let (disk, partition) = facts::lookup(&self.roots, number).ok_or_else(gone)?;
        let path = partition.as_ref().map_or(&disk.node, |partition| &partition.node).clone();
        let file = claim::open_node(&path, number, false, false)?;
        let mut target = Target::of_device(&self.roots, path, file, disk, partition)?;
        target.mappings = stacks.to_vec();
        target.users = target.settled_users(true);
        if target.users.iter().any(|user| user.forbids(false)) {
            return Ok(Err(target.users));
        }
        if intent == Intent::Discard {
            target.claim = Some(self.claim_below(&target)?);
        }
        target.must_be_unchanged()?;
        Ok(Ok(target))
    }

    fn claim_below(&mut self, target: &Target) -> Result<Arc<Claim>, TargetError> {
        let Thing::Device { disk, partition } = &target.thing else { return Err(target.changed("it is no device")) };
        let (held, quiet) = self.held(disk, partition.as_deref());
        if let Some(claim) = held {
            return Ok(claim);
        }
        let spared: Vec<DeviceNumber> = target.mappings.iter().flat_map(dm::Stack::bottom).collect();
        let others = (target.neighbours(), spared.as_slice());
        let claim = claim::claim_below(&self.roots, disk, partition.as_deref(), others, quiet)?;
        Ok(self.keep(claim, disk, partition.as_deref()))
    }

    /// A claim of ours that covers the device, and else the lock against udev of one beside it.
    fn held(
        &self,
        disk: &DiskFacts,
        partition: Option<&PartitionFacts>,
    ) -> (Option<Arc<Claim>>, Option<Arc<Flock<File>>>) {
        let numbers = [Some(disk.number), partition.map(|partition| partition.number)];
        let held = numbers.into_iter().flatten().find_map(|number| self.claims.get(&number));
        let parts = facts::partitions(&self.roots, disk);
        (held.cloned(), parts.iter().find_map(|part| self.claims.get(&part.number)?.quiet().cloned()))
    }

    fn keep(&mut self, claim: Claim, disk: &DiskFacts, partition: Option<&PartitionFacts>) -> Arc<Claim> {
        let number = match (claim.reach(), partition) {
            (Reach::PartitionOnly { .. }, Some(partition)) => partition.number,
            _ => disk.number,
        };
        let claim = Arc::new(claim);
        self.claims.insert(number, Arc::clone(&claim));
        claim
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
        let (held, quiet) = self.held(disk, partition.as_deref());
        if let Some(claim) = held {
            return Ok(claim);
        }
        let claim = claim::claim_device(&self.roots, disk, partition.as_deref(), quiet)
            .map_err(|error| target.explain(error))?;
        Ok(self.keep(claim, disk, partition.as_deref()))
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
