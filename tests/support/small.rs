//! A file system that is soon full.

use obol_checks::skipped;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of limited size at a place that it hides; unmounted at the end.
pub(crate) struct Small(PathBuf);

impl Small {
    /// `None` where nothing can be mounted.
    pub(crate) fn mount(at: &Path, size: &str) -> Option<Self> {
        super::private(at);
        let options = format!("size={size},mode=700");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at).output();
        match mount {
            Ok(ran) if ran.status.success() => Some(Self(at.to_owned())),
            Ok(ran) => {
                skipped("full-file-system", String::from_utf8_lossy(&ran.stderr));
                None
            }
            Err(error) => {
                skipped("full-file-system", format_args!("mount does not run: {error}"));
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // The drop of the root fails if something is left.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
