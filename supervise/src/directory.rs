//! The directory of a cluster while commands make or remove it. An `up` holds a kernel lock on it
//! for as long as it runs, so two of them never share a cluster, and none removes what another has
//! made. The lock ends with its process.

use crate::control::{self, Request};
use crate::saved;
use obol_fabric::Name;
use obol_fabric::host::{Cluster, Held, HostError, RegionInfo, is_made};
use obol_membership::Kind;
use obol_node::{Deployment, Site, SiteError};
use obol_term::output::{self, Failure};
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Retries when another process removes the directory while it is being created.
const TRIES_MAX: u32 = 100;

/// A file that can always be opened.
const NULL: &str = "/dev/null";

/// A killed `up` and its processes have this long to die. The processes get their SIGKILL when it
/// is gone.
const DYING_TIMEOUT: Duration = Duration::from_secs(5);
/// Processes that are not the supervisor's have this long to end before they are killed. They have no
/// cluster any more that they could leave.
const STRANGERS_TIMEOUT: Duration = Duration::from_secs(1);
/// Poll interval while processes of the directory are awaited.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A cluster's directory, identified by its inode.
pub(crate) struct Directory {
    root: PathBuf,
    cluster: Name,
    file: File,
    inode: u64,
    /// Whether this program has made it, so that it goes with its cluster.
    made: bool,
}

impl Directory {
    /// The directory that is there.
    pub(crate) fn open(root: &Path, cluster: Name) -> io::Result<Self> {
        let file = File::open(root.join(cluster.as_str()))?;
        let meta = file.metadata()?;
        let (inode, made) = (meta.ino(), is_made(&meta));
        Ok(Self { root: root.to_owned(), cluster, file, inode, made })
    }

    fn make(root: &Path, cluster: Name) -> io::Result<Self> {
        // Before anything is made or locked in it: another user may have made it first.
        Cluster::make_directory(root, cluster).map_err(|error| match error {
            HostError::Io { error, .. } => error,
            refused => io::Error::other(refused),
        })?;
        Self::open(root, cluster)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.root.join(self.cluster.as_str())
    }

    /// Whether it still is the one of its name.
    pub(crate) fn is_there(&self) -> bool {
        fs::symlink_metadata(self.path()).is_ok_and(|meta| meta.ino() == self.inode)
    }

    /// Whether its cluster still lies in it.
    pub(crate) fn holds_cluster(&self) -> bool {
        self.is_there() && (self.made || self.path().join("table").exists())
    }

    /// Takes the lock; `false` if an `up` has it.
    fn lock(&self) -> io::Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Whether an `up` works in it.
    pub(crate) fn is_held(&self) -> bool {
        let free = matches!(self.lock(), Ok(true));
        if free {
            // Only the look was wanted; if this fails, the lock ends with this process.
            let _ = self.file.unlock();
        }
        !free
    }

    /// Removes it, unless it is gone or another one has its name.
    pub(crate) fn remove(&self) -> Result<(), HostError> {
        if !self.is_there() {
            return Ok(());
        }
        match Cluster::remove(&self.root, self.cluster) {
            // Others may remove it at the same time.
            Err(error) if self.holds_cluster() || !self.made && self.is_there() => Err(error),
            _ => Ok(()),
        }
    }
}

/// A cluster's directory that this process has made and holds; removed at the end whatever happens.
pub(crate) struct Made {
    directory: Directory,
    /// Descriptors that are given up before the directory is removed: listing it takes one, and a
    /// thread that waits in accept takes the first that becomes free.
    spare: Option<[File; 2]>,
}

impl Made {
    /// Makes the memory of a cluster, in place of what a crashed one left behind.
    pub(crate) fn new(root: &Path, cluster: Name, deployment: &Deployment) -> Result<Self, Failure> {
        let path = root.join(cluster.as_str());
        let failed =
            |error: io::Error| Failure::Refused(format!("cannot create {}: {error}", path.display()));
        let open = || File::open(NULL).map_err(failed);
        let spare = Some([open()?, open()?]);
        let end = Instant::now() + DYING_TIMEOUT;
        let mut tries = 0;
        while tries < TRIES_MAX {
            tries += 1;
            let directory = match Directory::make(root, cluster) {
                // The last cluster that goes takes the root with it.
                Err(error)
                    if error.kind() == ErrorKind::NotFound && root.parent().is_some_and(Path::exists) =>
                {
                    continue;
                }
                made => made.map_err(failed)?,
            };
            if !directory.lock().map_err(failed)? {
                // The holder runs, hangs, has just begun, or was killed and is still dying:
                // only the first answers.
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() || control::request_within(&path, &Request::Hello, left).is_ok() {
                    return Err(runs(&path, cluster, true));
                }
                tries = 0;
                std::thread::sleep(POLL_INTERVAL);
                continue;
            }
            if !directory.is_there() {
                continue;
            }
            // A table that is there already is not ours to remove, unless it is proved stale.
            let ours = !path.join("table").exists();
            match Site::create(root, cluster, deployment.clone()) {
                Ok(_) => return Ok(Self { directory, spare }),
                Err(SiteError::Fabric(HostError::Stale { .. })) => {
                    output::remark(format_args!(
                        "obol: {} is what a crashed cluster left behind; none of its processes lives, removing it",
                        path.display()
                    ))?;
                    directory.remove().map_err(Failure::refused)?;
                }
                Err(SiteError::Fabric(HostError::AlreadyExists { .. })) if Instant::now() < end => {
                    tries = 0;
                    std::thread::sleep(POLL_INTERVAL);
                }
                Err(SiteError::Fabric(HostError::AlreadyExists { .. })) => {
                    return Err(runs(&path, cluster, false));
                }
                Err(error) if ours => {
                    // A cluster that is made in part cannot be used.
                    drop(spare);
                    let _ = directory.remove();
                    return Err(Failure::refused(error));
                }
                Err(error) => {
                    return Err(Failure::Refused(format!(
                        "{error}.\nIf that cluster is not needed, `obol down --cluster {cluster}` removes it; or start another with `obol up --cluster NAME`"
                    )));
                }
            }
        }
        Err(Failure::Refused(format!("{} was removed repeatedly during its creation", path.display())))
    }
}

impl Made {
    pub(crate) fn cluster(&self) -> Name {
        self.directory.cluster
    }

    /// Whether it still exists.
    pub(crate) fn is_there(&self) -> bool {
        self.directory.is_there()
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.spare = None;
        // Only of this cluster: when its directory is gone, another one may have the name.
        if self.directory.is_there()
            && let Ok(cluster) = Cluster::open(&self.directory.root, self.directory.cluster)
        {
            end_strangers(&cluster);
        }
        // There is no one left to report to if this fails, too.
        if let Err(error) = self.directory.remove() {
            let _ = output::remark(format_args!("obol: {error}"));
        }
        if let Err(error) = saved::end(&self.directory.root, self.directory.cluster) {
            let _ = output::remark(format_args!("obol: cannot remove saved views: {error}"));
        }
    }
}

/// Ends processes that have memory of their own in a cluster and that its supervisor did not start, such
/// as servers started by hand: they would run on in memory that nobody can open any more. Programs in the
/// seats of agents are left to themselves; their agents are gone. The process that started the
/// supervisor is left alone, too: a command may be a member of the temporary cluster that it ends.
fn end_strangers(cluster: &Cluster) {
    let is_own = |info: &RegionInfo| Kind::from_number(info.kind).is_some() || info.is_gateway();
    let live = || -> Vec<Held> {
        let all = cluster.regions().into_iter().filter(is_own);
        let spared = [std::process::id(), parent_id()];
        let others = all.filter(|info| !spared.contains(&info.process.pid));
        others.filter_map(|info| info.process.hold().ok()).filter(|held| !held.has_ended()).collect()
    };
    let ended_within = |timeout: Duration| {
        let end = Instant::now() + timeout;
        loop {
            let all = live().is_empty();
            if all || Instant::now() > end {
                return all;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    };
    // Whom this user may not signal runs on.
    for held in live() {
        let _ = held.terminate();
    }
    if !ended_within(STRANGERS_TIMEOUT) {
        for held in live() {
            let _ = held.kill();
        }
        ended_within(DYING_TIMEOUT);
    }
}

fn runs(path: &Path, cluster: Name, supervised: bool) -> Failure {
    if !supervised {
        return Failure::Refused(format!(
            "cluster {cluster} in {} has lost its `obol up`, and processes of it still run: see them with `obol status \
             --cluster {cluster}`. A process of it that is down cannot be started again; end what is left with \
             `obol down --cluster {cluster}`, and then start it anew",
            path.display()
        ));
    }
    Failure::Refused(format!(
        "cluster {cluster} runs already in {}.\nSee it with `obol status --cluster {cluster}`, end it with `obol down --cluster {cluster}`, or start another with `obol up --cluster NAME`",
        path.display()
    ))
}
