//! Records which of a cluster's own processes ended on request, as files in the cluster's
//! directory. They must not be reported as failed, and their memory may have another owner by then.

use obol_fabric::Name;
use obol_fabric::host::remove_if_present;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The prefix of the process's name.
const PREFIX: &str = "ended-";

fn path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{PREFIX}{name}"))
}

/// Records that a process ended on request.
pub fn note(dir: &Path, name: Name) -> io::Result<()> {
    File::create(path(dir, name.as_str())).map(drop)
}

/// Removes the record: a process of this name runs again.
pub fn forget(dir: &Path, name: Name) -> io::Result<()> {
    remove_if_present(&path(dir, name.as_str()))
}

/// Whether the last process of this name ended on request.
pub fn is_noted(dir: &Path, name: &str) -> bool {
    path(dir, name).exists()
}
