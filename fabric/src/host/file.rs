//! Files of this host.

use std::io::{self, ErrorKind};
use std::path::Path;

/// Removes a file. That it is not there is no error.
pub fn remove_if_present(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
