//! Which replicas of this host have had the store: a file of the cluster for each. A replica that
//! leaves takes its own away if it had the store and others have it; one that dies does not, nor does
//! one that leaves with the last copy, or without having had it. So a first replica knows whether keys
//! would be lost if it began a new log.
//!
//! And the word of an operator that a replica is to continue alone: another file.

use crate::ReplicaError;
use obol_fabric::Name;
use obol_node::Site;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The names of these files begin so.
const PREFIX: &str = "smr-state.";

fn at(path: &Path) -> impl Fn(io::Error) -> ReplicaError {
    move |error| ReplicaError::File { at: path.to_owned(), error }
}

fn path(site: &Site, member: &str) -> PathBuf {
    site.cluster.dir().join(format!("{PREFIX}{member}"))
}

/// The replicas of this host that have had the store and did not leave.
pub fn left(site: &Site) -> Result<Vec<String>, ReplicaError> {
    let (mut found, dir) = (Vec::new(), site.cluster.dir());
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let name = entry.map_err(at(dir))?.file_name();
        if let Some(member) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) {
            found.push(member.to_owned());
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// This member has the store.
pub(crate) fn set(site: &Site, member: Name) -> Result<(), ReplicaError> {
    let path = path(site, member.as_str());
    fs::write(&path, "").map_err(at(&path))
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

/// It has left, and its memory is not needed.
pub fn clear(site: &Site, member: &str) {
    // It may not have been written.
    let _ = fs::remove_file(path(site, member));
}
