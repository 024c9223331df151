//! Which coordinators can not save the views that they know, as files in the cluster's directory,
//! for whoever looks at the cluster.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Bytes of a reason that are read.
const REASON_BYTES_MAX: u64 = 512;

fn path(dir: &Path, number: u16) -> PathBuf {
    dir.join(format!("unsaved-{number}"))
}

/// Notes why coordinator `number` can not save views.
pub fn note(dir: &Path, number: u16, why: &str) -> io::Result<()> {
    // Where nothing can be written, the empty file is there all the same.
    fs::write(path(dir, number), why)
}

/// Notes that it can.
pub fn forget(dir: &Path, number: u16) -> io::Result<()> {
    match fs::remove_file(path(dir, number)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Why coordinator `number` can not save views, if it can not.
#[must_use]
pub fn reason(dir: &Path, number: u16) -> Option<String> {
    let file = fs::File::open(path(dir, number)).ok()?;
    let mut text = String::new();
    // What is not text tells no reason.
    let _ = file.take(REASON_BYTES_MAX).read_to_string(&mut text);
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    Some(if text.is_empty() { format!("no space is left in {}", dir.display()) } else { text })
}
