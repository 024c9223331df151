//! Which replicas of this host have had the store: a file of the cluster for each. A replica that
//! leaves takes its own away; one that dies does not. So a first replica knows whether keys would
//! be lost if it began a new log.

use obol_console::output::Failure;
use obol_fabric::Name;
use obol_node::Site;
use std::fs;
use std::path::PathBuf;

/// The names of these files begin so.
const PREFIX: &str = "smr-state.";

fn path(site: &Site, member: &str) -> PathBuf {
    site.cluster.dir().join(format!("{PREFIX}{member}"))
}

/// The replicas of this host that have had the store and did not leave.
pub(super) fn left(site: &Site) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    for entry in fs::read_dir(site.cluster.dir()).map_err(Failure::failed)? {
        let name = entry.map_err(Failure::failed)?.file_name();
        if let Some(member) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) {
            found.push(member.to_owned());
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// This member has the store.
pub(super) fn set(site: &Site, member: Name) -> Result<(), Failure> {
    let path = path(site, member.as_str());
    fs::write(&path, "").map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))
}

/// It has left, and its memory is not needed.
pub(super) fn clear(site: &Site, member: &str) {
    // It may never have had the store.
    let _ = fs::remove_file(path(site, member));
}
