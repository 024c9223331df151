//! The memory in which processes meet: its file system, its room and its rights.

use crate::{Finding, Subject};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::sys::statvfs::statvfs;
use obol_fabric::Layout;
use obol_fabric::host::Cluster;
use std::io;
use std::path::Path;

/// Processes with a region that a host usually has at most: a coordinator, its successor, a cache,
/// and some agents.
const REGIONS: u64 = 16;

pub(crate) fn check(subject: &Subject<'_>) -> Vec<Finding> {
    let mut all = vec![rights(subject.root)];
    // The root may not exist yet: then what it would be made in.
    let there = subject.root.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    all.push(kind(there));
    all.extend(room(there, subject));
    all.push(locked());
    all
}

fn rights(root: &Path) -> Finding {
    const CHECK: &str = "root directory";
    match Cluster::list(root) {
        Ok(clusters) if clusters.is_empty() => {
            Finding::good(CHECK, format_args!("{}: no cluster", root.display()))
        }
        Ok(clusters) => {
            let names: Vec<String> = clusters.iter().map(ToString::to_string).collect();
            Finding::good(CHECK, format_args!("{}: {}", root.display(), names.join(", ")))
        }
        Err(error) => Finding::problem(
            CHECK,
            error,
            (
                "no process of this user can use it",
                "choose another with --root or OBOL_ROOT, or have root make one for this user (docs/deploy.md)",
            ),
        ),
    }
}

fn kind(there: &Path) -> Finding {
    const CHECK: &str = "memory";
    match statfs(there).map_err(io::Error::from) {
        Ok(found) if found.filesystem_type() == TMPFS_MAGIC => {
            Finding::good(CHECK, format_args!("{} is in memory (tmpfs)", there.display()))
        }
        Ok(_) => Finding::problem(
            CHECK,
            format_args!("{} is on a disk", there.display()),
            (
                "every page that is written goes to the disk in time, and processes wait for that",
                "choose a directory below /dev/shm or /run with --root or OBOL_ROOT",
            ),
        ),
        Err(error) => Finding::problem(
            CHECK,
            format_args!("{}: {error}", there.display()),
            ("it cannot be checked", "choose another directory with --root or OBOL_ROOT"),
        ),
    }
}

fn room(there: &Path, subject: &Subject<'_>) -> Option<Finding> {
    const CHECK: &str = "room for regions";
    let one = Layout::new(subject.profile.limits).ok()?.bytes() as u64;
    let found = statvfs(there).ok()?;
    let free = found.blocks_available().saturating_mul(found.fragment_size());
    let mib = |bytes: u64| bytes >> 20;
    let text = format!(
        "{} MiB free; a region of the profile {} has {} KiB",
        mib(free),
        subject.profile.name,
        one >> 10
    );
    if free >= one.saturating_mul(REGIONS) {
        return Some(Finding::good(CHECK, text));
    }
    Some(Finding::problem(
        CHECK,
        format_args!("{text}: less than {REGIONS} regions"),
        (
            "processes of the cluster cannot start",
            format!(
                "`mount -o remount,size={}M {}`, or `--shm-size` of the container",
                mib(one.saturating_mul(REGIONS * 2)).max(64),
                there.display()
            ),
        ),
    ))
}

/// RDMA pins the memory that it registers.
fn locked() -> Finding {
    let memory = obol_fabric_verbs::arena::host_memory();
    match memory.lockable {
        None => Finding::good("locked memory", "no limit (RLIMIT_MEMLOCK)"),
        Some(bytes) => Finding::note(
            "locked memory",
            format_args!("{} KiB (RLIMIT_MEMLOCK)", bytes >> 10),
            (
                "an RDMA device cannot register more than that; other fabrics do not need it",
                "`LimitMEMLOCK=infinity` in the unit, `ulimit -l unlimited` in a shell",
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;

    #[test]
    fn a_root_that_is_not_in_memory_or_cannot_be_read_is_not_good() {
        // No kernel has this as a tmpfs.
        let disk = kind(Path::new("/proc"));
        assert!(disk.severity == Severity::Problem && disk.found.contains("on a disk"), "{disk:?}");
        assert_eq!(kind(Path::new("/proc/none-of-that-name")).severity, Severity::Problem);
        let file = tempfile::NamedTempFile::new().expect("made");
        assert_eq!(rights(file.path()).severity, Severity::Problem);
    }
}
