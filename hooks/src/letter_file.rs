//! The file of dead letters on the disk: its locks, and whether it can be written.

use nix::unistd::{AccessFlags, access};
use obol_node::FileLock;
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

pub(crate) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(end);
    name.into()
}

pub(crate) fn open_lock(path: &Path, end: &str) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    File::options().create(true).append(true).mode(0o600).open(beside(path, end))
}

/// Holds others off the file.
pub(crate) fn lock(path: &Path) -> io::Result<FileLock> {
    FileLock::wait(open_lock(path, ".lock")?)
}

/// Why letters cannot be kept in this file, if so.
pub(crate) fn unwritable(path: &Path) -> Option<String> {
    let unusable = |why: String| Some(format!("dead letters cannot be written to {}: {why}", path.display()));
    match path.metadata() {
        Ok(found) if !found.is_file() => return unusable("it is not a file".to_owned()),
        Ok(_) => {
            if let Err(error) = access(path, AccessFlags::R_OK | AccessFlags::W_OK) {
                return unusable(io::Error::from(error).to_string());
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return unusable(error.to_string()),
    }
    // Folders that are missing are made.
    let folder = path.ancestors().skip(1).find(|folder| folder.exists())?;
    // The file of the lock is made there, too.
    let error = access(folder, AccessFlags::W_OK | AccessFlags::X_OK).err()?;
    unusable(format!("{}: {}", folder.display(), io::Error::from(error)))
}
