//! Small private files in one folder. A file is there as a whole or not at all.

use super::MemoryError;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// No file of ours is larger.
const MOST_BYTES: u64 = 1 << 20;
/// No more files of one kind of unit are looked at.
const MOST_FILES: usize = 256;
/// Who else may write: the group and all others.
const OTHERS_WRITE: u32 = 0o022;

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> MemoryError {
    let path = path.to_owned();
    move |cause| MemoryError::Io(path, cause)
}

/// False when there is no folder yet.
///
/// # Errors
/// It is somebody else's.
fn is_ours(folder: &Path) -> Result<bool, MemoryError> {
    let found = match std::fs::symlink_metadata(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        found => found.map_err(failed(folder))?,
    };
    // The owner of our own folder there is the user that this process acts as.
    let ourselves = std::fs::metadata("/proc/self").map_err(failed(Path::new("/proc/self")))?.uid();
    if found.is_dir() && found.mode() & OTHERS_WRITE == 0 && [0, ourselves].contains(&found.uid()) {
        return Ok(true);
    }
    Err(MemoryError::NotOurs(folder.to_owned()))
}

/// The names of files that begin with `kind`, in order.
pub(super) fn list(folder: &Path, kind: &str) -> Result<Vec<String>, MemoryError> {
    if !is_ours(folder)? {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(folder).map_err(failed(folder))?;
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    let mut names: Vec<String> =
        entries.filter_map(name).filter(|name| name.starts_with(kind) && name.ends_with(".json")).collect();
    names.sort_unstable();
    names.truncate(MOST_FILES);
    Ok(names)
}

/// The contents of a file; none when it is not there.
pub(super) fn read(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, MemoryError> {
    if !is_ours(folder)? {
        return Ok(None);
    }
    let path = folder.join(name);
    let file = match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed(&path))?,
    };
    let mut bytes = Vec::new();
    let read = file.take(MOST_BYTES).read_to_end(&mut bytes);
    read.map_err(failed(&path))?;
    Ok(Some(bytes))
}

/// Writes a file beside the old one, then puts it in its place.
pub(super) fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), MemoryError> {
    if !is_ours(folder)? {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed(folder))?;
        is_ours(folder)?;
    }
    let draft = Draft(folder.join(format!(".{name}.{}", std::process::id())));
    let path = folder.join(name);
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft.0).map_err(failed(&draft.0))?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.and_then(|()| std::fs::rename(&draft.0, &path)).map_err(failed(&path))?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(folder))
}

/// Removes what is left of a file that did not become whole.
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        // After the rename there is none.
        let _ = std::fs::remove_file(&self.0);
    }
}
