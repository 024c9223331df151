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
    if let Ok(layout) = Layout::new(subject.profile.limits) {
        let found = statvfs(there).map(|found| Room {
            total: found.blocks(),
            free: found.blocks_available(),
            block_bytes: found.fragment_size(),
        });
        let found = found.map_err(io::Error::from);
        all.push(room(there, subject.profile.name.as_str(), layout.bytes() as u64, found));
    }
    all.push(locked(obol_fabric_verbs::arena::host_memory().lockable));
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
                "choose another with `--root DIR` or OBOL_ROOT, or have root make this one: `install -d -o USER DIR`",
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
                "choose a directory in memory: `--root /dev/shm/DIR`, or OBOL_ROOT",
            ),
        ),
        Err(error) => Finding::problem(
            CHECK,
            format_args!("{}: {error}", there.display()),
            ("it cannot be checked", "choose another directory with `--root DIR` or OBOL_ROOT"),
        ),
    }
}

/// What a file system says of its room, in blocks.
struct Room {
    total: u64,
    /// For this user.
    free: u64,
    block_bytes: u64,
}

impl Room {
    /// The free bytes; `None` if the numbers make no sense. A file system without a limit has no blocks.
    fn free_bytes(&self) -> Option<u64> {
        let Self { total, free, block_bytes } = *self;
        total.checked_mul(block_bytes).filter(|bytes| *bytes > 0 && free <= total)?;
        free.checked_mul(block_bytes)
    }
}

/// Of the room `there`, and the bytes of one region.
fn room(there: &Path, profile: &str, one: u64, found: io::Result<Room>) -> Finding {
    const CHECK: &str = "room for regions";
    let unknown = |why: String| {
        Finding::note(
            CHECK,
            format_args!("how much is free in {} is not known: {why}", there.display()),
            ("if it is too little, processes of the cluster cannot start", "`df` shows it"),
        )
    };
    let free = match found {
        Err(error) => return unknown(error.to_string()),
        Ok(room) => match room.free_bytes() {
            Some(free) => free,
            None => {
                let Room { total, free, block_bytes } = room;
                return unknown(format!("{free} of {total} blocks of {block_bytes} bytes"));
            }
        },
    };
    let mib = |bytes: u64| bytes >> 20;
    let text = format!("{} MiB free; a region of the profile {profile} has {} KiB", mib(free), one >> 10);
    if free >= one.saturating_mul(REGIONS) {
        return Finding::good(CHECK, text);
    }
    Finding::problem(
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
    )
}

/// RDMA pins the memory that it registers, up to a limit if there is one.
fn locked(lockable: Option<u64>) -> Finding {
    match lockable {
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

    #[test]
    fn too_little_room_and_a_room_that_makes_no_sense_are_not_good() {
        const REGION: u64 = 1 << 20;
        let of = |total, free, block_bytes| {
            room(Path::new("/dev/shm"), "laptop", REGION, Ok(Room { total, free, block_bytes }))
        };
        let enough = REGIONS * REGION / 4096;
        assert_eq!(of(enough, enough, 4096).severity, Severity::Good);
        assert_eq!(of(enough, enough - 1, 4096).severity, Severity::Problem);
        for (total, free, block_bytes) in
            [(0, 0, 4096), (enough, enough, 0), (enough, enough + 1, 4096), (u64::MAX, u64::MAX, 4096)]
        {
            let absurd = of(total, free, block_bytes);
            assert!(absurd.severity == Severity::Note && absurd.found.contains("is not known"), "{absurd:?}");
        }
        let unreadable =
            room(Path::new("/dev/shm"), "laptop", REGION, Err(io::ErrorKind::PermissionDenied.into()));
        assert!(
            unreadable.severity == Severity::Note && unreadable.found.contains("permission denied"),
            "{unreadable:?}"
        );
        // A region that no host has room for.
        let all = room(
            Path::new("/dev/shm"),
            "laptop",
            u64::MAX,
            Ok(Room { total: enough, free: enough, block_bytes: 4096 }),
        );
        assert_eq!(all.severity, Severity::Problem);
    }

    #[test]
    fn locked_memory_is_good_only_without_a_limit() {
        assert_eq!(locked(None).severity, Severity::Good);
        for bytes in [0, 65_536, u64::MAX] {
            assert_eq!(locked(Some(bytes)).severity, Severity::Note, "{bytes}");
        }
    }
}
