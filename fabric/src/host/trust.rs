//! Whether a directory belongs to this user alone, in a place where no other user can exchange it.
//! Root is trusted.

use crate::host::error::HostError;
use crate::host::peer::user;
use nix::errno::Errno;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The limit of symbolic links on a path, as in the kernel.
const LINKS_MAX: u32 = 40;
/// The user id by which the kernel represents users outside a user namespace.
const OVERFLOW_USER: u32 = 65534;
/// The map of a process that is in no user namespace.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];

/// Refuses a directory that another user may have created, or can access.
pub(crate) fn check_private(dir: &Path) -> Result<(), HostError> {
    let meta = fs::symlink_metadata(dir).map_err(HostError::io("inspect", dir))?;
    let fault = if meta.is_symlink() {
        "is a symbolic link".to_owned()
    } else if !meta.is_dir() {
        "is not a directory".to_owned()
    } else if meta.uid() != user() {
        format!("belongs to user {}, not to {}", meta.uid(), user())
    } else if meta.mode() & 0o077 != 0 {
        format!("is open to other users (mode {:o}, not 700)", meta.mode() & 0o777)
    } else {
        return Ok(());
    };
    Err(HostError::Unsafe { path: dir.into(), fault })
}

/// Refuses a root that others can exchange, because they own or may write a parent directory, or a
/// symbolic link in the path. A sticky directory of root's, such as `/dev/shm`, prevents that.
pub(crate) fn check_way(root: &Path) -> Result<(), HostError> {
    let parent = match root.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    match walk(parent) {
        Ok(None) => Ok(()),
        Ok(Some(fault)) => Err(HostError::Unsafe { path: root.into(), fault }),
        // A missing directory is reported by its user.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        Err(error) => Err(HostError::io("inspect the path to", root)(error)),
    }
}

/// Walks from `/` to a directory as the kernel does; returns the first fault.
fn walk(to: &Path) -> io::Result<Option<String>> {
    let trust = Trust::here();
    let mut at = PathBuf::from("/");
    let mut left = steps(&std::path::absolute(to)?);
    let mut links = 0;
    if let Some(fault) = trust.fault_of(&at, &fs::symlink_metadata(&at)?) {
        return Ok(Some(fault));
    }
    while let Some(step) = left.pop() {
        if step == ".." {
            // The path walked so far contains no link.
            at.pop();
            continue;
        }
        let next = at.join(&step);
        let meta = fs::symlink_metadata(&next)?;
        if let Some(fault) = trust.fault_of(&next, &meta) {
            return Ok(Some(fault));
        }
        if !meta.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Errno::ELOOP.into());
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        left.extend(steps(&target));
    }
    Ok(None)
}

/// The components of a path, the first one last.
fn steps(path: &Path) -> Vec<OsString> {
    let step = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(step).collect()
}

/// The users that the calling process trusts.
struct Trust {
    user: u32,
    /// Root, as seen in a user namespace without root. Other users look the same there.
    foreign_root: Option<u32>,
}

impl Trust {
    fn here() -> Self {
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let has_all = map.split_whitespace().eq(ALL_USERS);
        Self { user: user(), foreign_root: (!has_all).then_some(OVERFLOW_USER) }
    }

    fn trusts(&self, owner: u32) -> bool {
        owner == 0 || owner == self.user || Some(owner) == self.foreign_root
    }

    /// The fault of a directory or link in the path.
    fn fault_of(&self, path: &Path, meta: &Metadata) -> Option<String> {
        let (path, owner, mode) = (path.display(), meta.uid(), meta.mode() & 0o7777);
        if !self.trusts(owner) {
            return Some(if meta.is_symlink() {
                format!("lies behind the symbolic link {path}, which user {owner} can exchange")
            } else {
                format!("lies in {path}, where user {owner} can exchange it")
            });
        }
        // The mode of a link is meaningless, and in a sticky directory no user can
        // exchange the files of another.
        if meta.is_symlink() || mode & 0o1000 != 0 {
            return None;
        }
        // Many systems give each user a group of the same number, with write permission.
        let group_is_own = meta.gid() == 0 || meta.gid() == self.user;
        if mode & 0o002 != 0 {
            Some(format!("lies in {path}, where every user can exchange it (mode {mode:o})"))
        } else if mode & 0o020 != 0 && !group_is_own {
            let group = meta.gid();
            Some(format!("lies in {path}, where group {group} can exchange it (mode {mode:o})"))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::test::Root;
    use obol_checks::skipped;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    /// Another user and group, neither this process's nor root's.
    const OTHER: u32 = 4711;

    fn fault(root: &Path) -> Option<String> {
        match check_way(root) {
            Ok(()) => None,
            Err(HostError::Unsafe { fault, .. }) => Some(fault),
            Err(error) => panic!("{error}"),
        }
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("changed");
    }

    #[test]
    fn every_directory_on_the_way_counts_and_sticky_ones_are_fine() {
        let root = Root::new();
        let deep = root.join("open/closed/deeper");
        fs::create_dir_all(&deep).expect("made");
        assert_eq!(fault(&deep), None);
        let open = root.join("open");
        mode(&open, 0o777);
        let said = fault(&deep).expect("an ancestor is open");
        assert!(said.ends_with("open, where every user can exchange it (mode 777)"), "{said}");
        assert_eq!(fault(&root.join("closed-as-well")), None, "not on the way");
        mode(&open, 0o1777);
        assert_eq!(fault(&deep), None, "as /tmp is");
        assert_eq!((fault(Path::new("/dev/shm/obol-x")), fault(Path::new("/"))), (None, None));
        assert_eq!(fault(&root.join("missing/deeper/still")), None, "an error shows when it is made");
    }

    #[test]
    fn links_are_followed_as_the_kernel_does() {
        let root = Root::new();
        fs::create_dir_all(root.join("open/closed")).expect("made");
        fs::create_dir(root.join("links")).expect("made");
        symlink("../open/./closed/../closed", root.join("links/relative")).expect("linked");
        symlink(root.join("links/relative"), root.join("links/absolute")).expect("linked");
        let through = root.join("links/absolute/mine");
        assert_eq!(fault(&through), None);
        mode(&root.join("open"), 0o777);
        assert!(fault(&through).is_some_and(|said| said.contains("open, where every user")));
        symlink("circle", root.join("circle")).expect("linked");
        assert!(matches!(check_way(&root.join("circle/mine")), Err(HostError::Io { .. })));
    }

    #[test]
    fn what_other_users_own_on_the_way_is_refused() {
        if user() != 0 {
            return skipped("change-owner", "only root may give files away");
        }
        let root = Root::new();
        let (theirs, mine) = (root.join("theirs"), root.join("theirs/sub/mine"));
        fs::create_dir_all(&mine).expect("made");
        chown(&theirs, Some(OTHER), Some(OTHER)).expect("given");
        for bits in [0o700, 0o755, 0o1777] {
            mode(&theirs, bits);
            let said = fault(&mine).expect("its owner can exchange what lies in it");
            assert!(said.ends_with("theirs, where user 4711 can exchange it"), "{said}");
        }
        chown(&theirs, Some(0), Some(OTHER)).expect("given");
        mode(&theirs, 0o775);
        let said = fault(&mine).expect("a group of others can write there");
        assert!(said.ends_with("theirs, where group 4711 can exchange it (mode 775)"), "{said}");
        mode(&theirs, 0o1775);
        assert_eq!(fault(&mine), None);
        chown(&theirs, Some(0), Some(0)).expect("taken back");
        mode(&theirs, 0o775);
        assert_eq!(fault(&mine), None, "root's own group");
        symlink("theirs/sub", root.join("link")).expect("linked");
        assert_eq!(fault(&root.join("link/mine")), None);
        lchown(root.join("link"), Some(OTHER), None).expect("given");
        let said = fault(&root.join("link/mine")).expect("its owner can exchange the link");
        assert!(said.ends_with("link, which user 4711 can exchange"), "{said}");
    }
}
