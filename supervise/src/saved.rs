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
use obol_term::file::DRAFT_END;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// How saved views end.
const SAVED: &str = ".view";
/// What is added to the name of an earlier cluster's.
const OLD: &str = ".old";

/// The folder of a cluster's saved views; none if the user has no home.
fn folder(root: &Path, cluster: Name) -> Option<PathBuf> {
    Some(user::state_home()?.join("obol/views").join(user::folded(root)).join(cluster.as_str()))
}

/// The files in a folder whose names end so.
fn files(folder: &Path, end: &str) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.to_string_lossy().ends_with(end)).collect())
}

/// Makes the folder of a cluster that begins; none if the user has no home. What an earlier one has
/// left there is put aside.
pub(crate) fn begin(root: &Path, cluster: Name) -> Result<Option<PathBuf>, (PathBuf, io::Error)> {
    let Some(folder) = folder(root, cluster) else { return Ok(None) };
    let make = || {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        for view in files(&folder, SAVED)? {
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
    end_in(&folder)
}

fn end_in(folder: &Path) -> io::Result<()> {
    // A coordinator that was killed may have left a draft.
    for end in [SAVED.to_owned(), format!("{SAVED}{DRAFT_END}")] {
        for file in files(folder, &end)? {
            remove_if_present(&file)?;
        }
    }
    // The folders that are empty now go, too; in others something is kept.
    let _ = fs::remove_dir(folder).and_then(|()| folder.parent().map_or(Ok(()), fs::remove_dir));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drafts_of_coordinators_that_were_killed_go_with_the_saved_views() {
        let root = tempfile::tempdir().expect("made");
        let (views, folder) = (root.path().join("views"), root.path().join("views/cluster"));
        fs::create_dir_all(&folder).expect("made");
        for draft in ["coord-0.view.new", "coord-1.view.new"] {
            fs::write(folder.join(draft), "half of a view").expect("written");
        }
        let saved = folder.join("coord-0.view");
        obol_coordinator::save(&saved, b"a view").expect("saved");
        assert_eq!(fs::read(&saved).expect("there"), b"a view");
        end_in(&folder).expect("ended");
        assert!(!views.exists(), "the folders are empty, and go");
        // What was put aside stays.
        fs::create_dir_all(&folder).expect("made");
        fs::write(folder.join("coord-0.view.old"), "a view").expect("written");
        end_in(&folder).expect("ended");
        assert!(folder.join("coord-0.view.old").exists());
    }
}
