//! Where `obol up` has its coordinators keep the newest view: in a folder of the user's, because
//! the cluster's directory is memory and does not outlive a boot.
//! `$XDG_STATE_HOME/obol/views/ROOT/CLUSTER/coord-N.view`, else below `~/.local/state`; ROOT is the
//! clusters' directory with `%` for `/`, because clusters of two of them may share a name.
//!
//! What is there when a cluster begins is of one that was not ended, but crashed or went down with
//! the host. It is kept beside the new one's, as `coord-N.view.old`.

use obol_fabric::Name;
use obol_fabric::host::remove_if_present;
use obol_node::user;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// How saved views end.
const SAVED: &str = "view";
/// What is added to the name of an earlier cluster's.
const OLD: &str = ".old";

/// The folder of a cluster's saved views; none if the user has no home.
fn folder(root: &Path, cluster: Name) -> Option<PathBuf> {
    Some(user::state_home()?.join("obol/views").join(user::folded(root)).join(cluster.as_str()))
}

/// The saved views in a folder.
fn views(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == SAVED)).collect())
}

/// Makes the folder of a cluster that begins; none if the user has no home. What an earlier one has
/// left there is put aside.
pub(crate) fn begin(root: &Path, cluster: Name) -> Result<Option<PathBuf>, (PathBuf, io::Error)> {
    let Some(folder) = folder(root, cluster) else { return Ok(None) };
    let make = || {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        for view in views(&folder)? {
            let mut old = view.clone().into_os_string();
            old.push(OLD);
            fs::rename(view, old)?;
        }
        Ok(())
    };
    match make() {
        Ok(()) => Ok(Some(folder)),
        Err(error) => Err((folder, error)),
    }
}

/// Removes the saved views of a cluster that was ended. Those of an earlier one stay.
pub(crate) fn end(root: &Path, cluster: Name) -> io::Result<()> {
    let Some(folder) = folder(root, cluster) else { return Ok(()) };
    for view in views(&folder)? {
        remove_if_present(&view)?;
    }
    // The folders that are empty now go, too; in others something is kept.
    let _ = fs::remove_dir(&folder).and_then(|()| folder.parent().map_or(Ok(()), fs::remove_dir));
    Ok(())
}
