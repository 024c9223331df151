//! Persistent records that a coordinator has voted on this host. Its memory does not survive a
//! reboot, and with an empty one it could vote twice. A new identity is a new cluster.

use crate::network::print_id;
use obol_fabric::Name;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The record of one coordinator.
#[derive(Debug)]
pub struct Voted {
    path: PathBuf,
}

impl Voted {
    /// `state` is a directory of the host that survives a reboot.
    pub fn new(state: &Path, cluster: Name, id: u64, number: u16) -> Self {
        Self { path: state.join(format!("{cluster}-{}-{number}.voted", print_id(id))) }
    }

    /// The path of the record.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it has voted, or may have.
    pub fn is_noted(&self) -> bool {
        // Errors other than absence count as a record: an unnecessary confirmation is the safer
        // choice.
        !matches!(fs::metadata(&self.path), Err(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// Writes the record, before the first vote. A host that crashes in between has lost nothing
    /// but requires a confirmation.
    pub fn note(&self) -> io::Result<()> {
        let Some(dir) = self.path.parent() else { return Ok(()) };
        fs::create_dir_all(dir)?;
        fs::File::create(&self.path)?.sync_all()?;
        // The directory entry has to survive a loss of power as well.
        fs::File::open(dir)?.sync_all()
    }
}
