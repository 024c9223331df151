//! Notes on disk that a coordinator has voted on this host: its memory does not outlive a boot, and
//! with an empty one it could vote twice. A new identity is a new cluster.

use crate::network::print_id;
use obol_fabric::Name;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The note of one coordinator.
#[derive(Debug)]
pub struct Voted {
    path: PathBuf,
}

impl Voted {
    /// Where it is noted. `state` is a directory of the host that outlives a boot.
    #[must_use]
    pub fn new(state: &Path, cluster: Name, id: u64, number: u16) -> Self {
        Self { path: state.join(format!("{cluster}-{}-{number}.voted", print_id(id))) }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it has voted, or may have.
    #[must_use]
    pub fn is_noted(&self) -> bool {
        // An error other than absence is taken for a note: rather ask once too often.
        !matches!(fs::metadata(&self.path), Err(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// Notes it, before the first vote: a host that goes down in between has lost nothing but must
    /// ask.
    pub fn note(&self) -> io::Result<()> {
        let Some(dir) = self.path.parent() else { return Ok(()) };
        fs::create_dir_all(dir)?;
        fs::File::create(&self.path)?.sync_all()?;
        // The name, too, has to outlive a loss of power.
        fs::File::open(dir)?.sync_all()
    }
}
