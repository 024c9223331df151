//! Which replicas of this host have had the store: a file of the cluster for each. A replica that
//! leaves takes its own away if it had the store and others have it; one that dies does not, nor does
//! one that leaves with the last copy, or without having had it. So a first replica knows whether keys
//! would be lost if it began a new log. Replicas that a check or a measurement starts for itself have
//! marks of their own: their keys may be lost with it, and those of the user's are not theirs to end.
//!
//! And the word of an operator that a replica is to continue alone: another file.

use crate::ReplicaError;
use obol_fabric::Name;
use obol_node::Site;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Who owns the mark of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkOwner {
    /// That of replicas whose keys are to be kept.
    User,
    /// Of replicas that end with the command which started them.
    Command,
}

fn at(path: &Path) -> impl Fn(io::Error) -> ReplicaError {
    move |error| ReplicaError::File { at: path.to_owned(), error }
}

impl MarkOwner {
    /// The names of these files begin so.
    const fn prefix(self) -> &'static str {
        match self {
            Self::User => "smr-state.",
            Self::Command => "smr-temporary.",
        }
    }

    fn path(self, site: &Site, member: &str) -> PathBuf {
        site.cluster.dir().join(format!("{}{member}", self.prefix()))
    }

    /// The replicas of this host that have had the store and did not leave.
    pub fn left(self, site: &Site) -> Result<Vec<String>, ReplicaError> {
        let (mut found, dir) = (Vec::new(), site.cluster.dir());
        for entry in fs::read_dir(dir).map_err(at(dir))? {
            let name = entry.map_err(at(dir))?.file_name();
            if let Some(member) = name.to_str().and_then(|name| name.strip_prefix(self.prefix())) {
                found.push(member.to_owned());
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// This member has the store.
    pub(crate) fn set(self, site: &Site, member: Name) -> Result<(), ReplicaError> {
        let path = self.path(site, member.as_str());
        fs::write(&path, "").map_err(at(&path))
    }

    /// It has left, and its memory is not needed.
    pub fn clear(self, site: &Site, member: &str) {
        // It may not have been written.
        let _ = fs::remove_file(self.path(site, member));
    }
}

/// The names of files that say that a replica is to continue alone.
const RECOVER_PREFIX: &str = "smr-recover.";

fn recover_path(site: &Site, member: &str) -> PathBuf {
    site.cluster.dir().join(format!("{RECOVER_PREFIX}{member}"))
}

/// Has a replica of this host continue alone with what it has, as soon as it lacks a majority of its
/// voters: an operator says that none comes back.
pub fn recover(site: &Site, member: &str) -> Result<(), ReplicaError> {
    let path = recover_path(site, member);
    fs::write(&path, "").map_err(at(&path))
}

/// Takes that word back. Returns whether there was one.
pub fn end_recovery(site: &Site, member: &str) -> bool {
    fs::remove_file(recover_path(site, member)).is_ok()
}
