//! Which replicas of this host have had the store: a file of the cluster for each. A replica that
//! leaves takes its own away; one that dies does not. So a first replica knows whether keys would
//! be lost if it began a new log.

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

/// It has left, and its memory is not needed.
pub fn clear(site: &Site, member: &str) {
    // It may never have had the store.
    let _ = fs::remove_file(path(site, member));
}
