//! Where log files lie: `$XDG_STATE_HOME/obol/logs/ROOT/CLUSTER/IDENTITY/NAME.log`. ROOT is the
//! clusters' directory with `%` for `/`, as for saved views; IDENTITY distinguishes successive
//! clusters of one name.
//!
//! Logs outlive their cluster: for [`KEPT_FOR`], and all together up to [`KEPT_BYTES_MAX`]. The
//! oldest are removed first, when a cluster begins or ends.

use obol_fabric::Name;
use obol_fabric::host::Cluster;
use obol_node::network::print_id;
use obol_node::user;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{env, fs};

/// Logs of ended clusters are kept for this long after their last line.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// Logs of ended clusters have at most this many bytes together.
pub const KEPT_BYTES_MAX: u64 = 64 << 20;

/// The directory of all logs: `OBOL_LOG_DIR`, systemd's `LOGS_DIRECTORY`, or a folder of the user's
/// state; `None` if the user has no home.
pub fn base() -> Option<PathBuf> {
    let absolute = |path: PathBuf| Some(path).filter(|path| path.is_absolute());
    let given = env::var_os("OBOL_LOG_DIR").map(PathBuf::from).and_then(absolute);
    let by_systemd = || {
        let all = env::var_os("LOGS_DIRECTORY")?;
        env::split_paths(&all).next().and_then(absolute)
    };
    given.or_else(by_systemd).or_else(|| Some(user::state_home()?.join("obol/logs")))
}

/// The logs of the clusters of one name.
#[derive(Clone, Debug)]
pub struct Place {
    folder: PathBuf,
}

/// The log files of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Where they lie.
    pub path: PathBuf,
    /// The identity of the cluster, as it is printed.
    pub identity: String,
    /// When the last line was written.
    pub written: SystemTime,
}

impl Place {
    /// Of a name in a clusters' directory.
    pub fn new(base: &Path, root: &Path, cluster: Name) -> Self {
        Self { folder: base.join(user::folded(root)).join(cluster.as_str()) }
    }

    /// The folder of a cluster.
    pub fn of(&self, cluster: &Cluster) -> PathBuf {
        self.folder.join(print_id(cluster.nonce()))
    }

    /// Makes the folder of a cluster, for this user alone.
    pub fn make(&self, cluster: &Cluster) -> io::Result<PathBuf> {
        let folder = self.of(cluster);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(folder)
    }

    /// The logs of all clusters of this name, the latest first.
    pub fn folders(&self) -> io::Result<Vec<Folder>> {
        let mut folders = Vec::new();
        for path in entries(&self.folder)? {
            let Some(identity) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let (_, written) = extent(&path)?;
            folders.push(Folder { identity: identity.to_owned(), written, path: path.clone() });
        }
        folders.sort_by_key(|folder| std::cmp::Reverse(folder.written));
        Ok(folders)
    }
}

/// What a folder holds; nothing if there is none.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// The bytes of all files in a folder, and when the last of them was written.
fn extent(folder: &Path) -> io::Result<(u64, SystemTime)> {
    let mut all = (0, SystemTime::UNIX_EPOCH);
    for file in entries(folder)? {
        match fs::symlink_metadata(&file) {
            Ok(meta) => all = (all.0 + meta.len(), all.1.max(meta.modified()?)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Removes the logs of ended clusters that are too old, or too many, in all directories of clusters.
pub fn retire(base: &Path, now: SystemTime) -> io::Result<()> {
    retire_beyond(base, now, KEPT_FOR, KEPT_BYTES_MAX)
}

fn retire_beyond(base: &Path, now: SystemTime, age: Duration, bytes_max: u64) -> io::Result<()> {
    let mut ended = Vec::new();
    for root in entries(base)? {
        for cluster in entries(&root)? {
            for folder in entries(&cluster)? {
                if !runs(&root, &cluster, &folder) {
                    let (bytes, written) = extent(&folder)?;
                    ended.push((written, bytes, folder));
                }
            }
        }
    }
    // The newest first: they are kept while there is room.
    ended.sort_by_key(|(written, ..)| std::cmp::Reverse(*written));
    let mut kept = 0u64;
    for (written, bytes, folder) in ended {
        let is_old = now.duration_since(written).is_ok_and(|since| since > age);
        kept = kept.saturating_add(bytes);
        if is_old || kept > bytes_max {
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            // The folders that are empty now go, too.
            for parent in folder.ancestors().skip(1).take(2) {
                let _ = fs::remove_dir(parent);
            }
        }
    }
    Ok(())
}

/// Whether the cluster of a folder runs on this host.
fn runs(root: &Path, cluster: &Path, folder: &Path) -> bool {
    let text = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let found = || {
        let root = user::unfolded(&text(root)?);
        let opened = Cluster::open(&root, Name::new(&text(cluster)?).ok()?).ok()?;
        Some(print_id(opened.nonce()) == text(folder)?)
    };
    found().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(base: &Path, name: &str, bytes: usize, age: u64) -> PathBuf {
        let folder = base.join("%nowhere/default").join(name);
        fs::create_dir_all(&folder).expect("made");
        let file = fs::File::create(folder.join("node-1.log")).expect("made");
        file.set_len(bytes as u64).expect("filled");
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).expect("dated");
        folder
    }

    #[test]
    fn the_oldest_logs_of_ended_clusters_go_first() {
        let base = tempfile::tempdir().expect("made");
        let base = base.path();
        let [newest, middle, oldest] =
            [("a", 10), ("b", 20), ("c", 30)].map(|(name, age)| folder(base, name, 40, age));
        let retire = |age, bytes| {
            retire_beyond(base, SystemTime::now(), Duration::from_secs(age), bytes).expect("retired");
            [&newest, &middle, &oldest].map(|folder| folder.exists())
        };
        assert_eq!(retire(100, 120), [true, true, true]);
        assert_eq!(retire(100, 100), [true, true, false]);
        assert_eq!(retire(15, 100), [true, false, false]);
        assert_eq!(retire(5, 100), [false, false, false]);
        assert!(!base.join("%nowhere").exists(), "empty folders go, too");
    }

    #[test]
    fn folders_are_listed_latest_first() {
        let base = tempfile::tempdir().expect("made");
        folder(base.path(), "old", 1, 50);
        folder(base.path(), "new", 1, 5);
        let place = Place::new(base.path(), Path::new("/nowhere"), Name::new("default").expect("a name"));
        let names: Vec<String> = place.folders().expect("listed").into_iter().map(|f| f.identity).collect();
        assert_eq!(names, ["new", "old"]);
    }
}
