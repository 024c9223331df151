//! Which of a cluster's own processes have ended because they were asked to, as files in the
//! cluster's directory: a look at the cluster must not take them for failed, and their memory may
//! have another owner by then.

use obol_fabric::Name;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Before the name of the process.
const PREFIX: &str = "ended-";

fn path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{PREFIX}{name}"))
}

/// Notes that a process has ended as it was asked to.
pub fn note(dir: &Path, name: Name) -> io::Result<()> {
    File::create(path(dir, name.as_str())).map(drop)
}

/// Notes that a process of this name runs again.
pub fn forget(dir: &Path, name: Name) -> io::Result<()> {
    match fs::remove_file(path(dir, name.as_str())) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether the last process of this name ended as it was asked to.
#[must_use]
pub fn is_noted(dir: &Path, name: &str) -> bool {
    path(dir, name).exists()
}
