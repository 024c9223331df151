//! A control group for a program, where the system lets this process make one: the kernel then
//! kills all of it at once (`cgroup.kill`), whichever user the processes belong to.

use obol_fabric::host::supervise::is_delegated;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A group is empty very soon after its last process has ended.
const EMPTY_WITHIN: Duration = Duration::from_millis(200);

/// A control group of version 2 that this process made.
#[derive(Debug)]
pub(super) struct Group(PathBuf);

impl Group {
    /// Makes one below the own group; `None` where that is not delegated, or too old to kill.
    pub(super) fn make() -> Option<Self> {
        let own = own()?;
        // At the root of what a container sees there is no manager.
        if !own.is_root && !is_delegated(&own.path) {
            return None;
        }
        let path = path_of(&own, std::process::id());
        fs::create_dir(&path).ok()?;
        let group = Self(path);
        // Dropped, it is removed.
        (group.0.join("cgroup.kill").exists() && group.entry().is_ok()).then_some(group)
    }

    /// What a process in this process's group made, which is gone and has not removed it.
    pub(super) fn left_by(pid: u32) -> Option<Self> {
        let path = path_of(&own()?, pid);
        path.exists().then_some(Self(path))
    }

    /// Where a process that is to be in it writes its number.
    pub(super) fn entry(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.0.join("cgroup.procs"))
    }

    /// Kills all that is in it. What is left is seen by [`Group::is_empty`].
    pub(super) fn kill(&self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
    }

    /// Whether no process is in it. One that cannot be read is taken for empty: the children are
    /// looked at, too.
    pub(super) fn is_empty(&self) -> bool {
        let events = fs::read_to_string(self.0.join("cgroup.events")).unwrap_or_default();
        !events.lines().any(|line| line == "populated 1")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let end = Instant::now() + EMPTY_WITHIN;
        // A program may have divided the group further.
        while remove(&self.0).is_err() && self.0.exists() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}

/// The control group of this process.
#[derive(Debug, PartialEq, Eq)]
struct Own {
    path: PathBuf,
    is_root: bool,
}

fn own() -> Option<Own> {
    own_group(
        &fs::read_to_string("/proc/self/cgroup").ok()?,
        &fs::read_to_string("/proc/self/mountinfo").ok()?,
    )
}

/// The group that this process makes.
fn path_of(own: &Own, pid: u32) -> PathBuf {
    own.path.join(format!("obol-run-{pid}"))
}

/// Finds it by `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn own_group(cgroup: &str, mounts: &str) -> Option<Own> {
    let own = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    if own.split('/').any(|part| part == "..") {
        return None;
    }
    let at = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, at) = (fields.next()?, fields.next()?);
        (after.split(' ').next() == Some("cgroup2") && root == "/").then_some(at)
    })?;
    Some(Own { path: Path::new(at).join(own), is_root: own.is_empty() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "25 1 0:22 / /proc rw,relatime - proc proc rw\n\
        35 24 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        36 24 0:32 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_own_group_is_found_where_the_second_version_is_mounted() {
        let own = |path: &str, is_root| Some(Own { path: path.into(), is_root });
        assert_eq!(own_group("3:cpu:/a\n0::/b/c\n", MOUNTS), own("/sys/fs/cgroup/unified/b/c", false));
        assert_eq!(own_group("0::/\n", MOUNTS), own("/sys/fs/cgroup/unified/", true));
        assert_eq!(own_group("0::/../x\n", MOUNTS), None, "outside of what is mounted here");
        assert_eq!(own_group("3:cpu:/a\n", MOUNTS), None);
        assert_eq!(own_group("0::/b\n", ""), None);
    }
}
