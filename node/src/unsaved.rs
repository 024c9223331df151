//! Records which coordinators cannot save views, as files in the cluster's directory, for status
//! displays.

use obol_fabric::host::remove_if_present;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The maximum length of a reason.
const REASON_BYTES_MAX: u64 = 512;

fn path(dir: &Path, number: u16) -> PathBuf {
    dir.join(format!("unsaved-{number}"))
}

/// Records why coordinator `number` cannot save views.
pub fn note(dir: &Path, number: u16, why: &str) -> io::Result<()> {
    // With a full disk, at least the empty file exists.
    fs::write(path(dir, number), why)
}

/// Removes the record.
pub fn forget(dir: &Path, number: u16) -> io::Result<()> {
    remove_if_present(&path(dir, number))
}

/// Why coordinator `number` cannot save views, if so.
pub fn reason(dir: &Path, number: u16) -> Option<String> {
    let file = fs::File::open(path(dir, number)).ok()?;
    let mut text = String::new();
    // A reason that is not text is dropped.
    let _ = file.take(REASON_BYTES_MAX).read_to_string(&mut text);
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    Some(if text.is_empty() { format!("no space is left in {}", dir.display()) } else { text })
}
