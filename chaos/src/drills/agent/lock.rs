//! The lock of a host's drills: one at a time.

use obol_node::FileLock;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The lock file of drills.
const LOCK: &str = "drill.lock";

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another drill runs.
    #[error("another drill runs on this cluster: it holds {0}")]
    Held(PathBuf),
    /// The file of the lock cannot be used.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}

/// Takes the lock of a cluster's drills.
pub(crate) fn lock(dir: &Path) -> Result<FileLock, LockError> {
    let path = dir.join(LOCK);
    let io = |error| LockError::Io(path.clone(), error);
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(io)?;
    FileLock::try_new(file).map_err(io)?.ok_or_else(|| LockError::Held(path.clone()))
}
