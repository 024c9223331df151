//! Names of live processes: on one host, and in one cluster, a name belongs to one process at a time.
//! Commands, drills, hooks, logs and metrics go by names and could not distinguish two.
//!
//! A name is one byte of a file that all processes of a cluster share, at an offset that follows from
//! the name, and its holder has a lock of the kernel on that byte (`fcntl`, `F_SETLK`). So a name is
//! free as soon as the kernel has closed the files of a process that ended, however it ended; nothing
//! has to be cleared up, nothing grows with the names, and a claim blocks nobody. Such a lock belongs
//! to the process: a forked child does not have it, and a successor need not wait for the child.
//!
//! The kernel drops all such locks of a process when that closes *any* descriptor of the file. So
//! there is one descriptor per process and cluster, below, open until the last claim has ended.
#![allow(unsafe_code)]

use crate::host::clock;
use crate::host::cluster::Cluster;
use crate::host::error::HostError;
use crate::host::fork::OwnerProcess;
use crate::host::process::is_dying;
use crate::types::{Name, Nanos};
use core::sync::atomic::{AtomicPtr, Ordering};
use core::{fmt, ptr};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The file, in the cluster's directory. It stays empty.
const FILE: &str = "claims";
/// A holder that is dying is waited for this long: right after a kill the kernel may not have taken
/// it away yet.
const DYING_TIMEOUT: Nanos = Nanos::from_secs(5);
/// Poll interval meanwhile.
const DYING_POLL: Duration = Duration::from_millis(1);

/// A name that this process has in a cluster, until this is dropped or the process ends.
pub struct NameClaim {
    file: FileKey,
    name: Name,
    is_user: bool,
    registry: &'static Registry,
}

/// A file of this host, whatever its path.
type FileKey = (u64, u64);

/// What this process has of one cluster's names.
struct Opened {
    file: File,
    names: BTreeMap<Name, Uses>,
}

/// What this process does with a name that it has.
#[derive(Clone, Copy, Default)]
struct Uses {
    claims: u32,
    is_used: bool,
}

/// All that one process has. A forked child begins with nothing, in a registry of its own: a thread
/// of its parent may have had the lock of the parent's.
struct Registry {
    process: OwnerProcess,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files(BTreeMap<FileKey, Opened>);

/// The newest registry. None is ever freed.
static REGISTRY: AtomicPtr<Registry> = AtomicPtr::new(ptr::null_mut());

impl NameClaim {
    /// Keeps a name for this process, before it has a region or a seat and between two of them. It
    /// may be kept several times.
    pub fn reserve(cluster: &Cluster, name: Name) -> Result<Self, HostError> {
        Self::claim(cluster, name, false)
    }

    /// Takes a name for a region or a seat: once at a time, also within this process.
    pub fn take(cluster: &Cluster, name: Name) -> Result<Self, HostError> {
        Self::claim(cluster, name, true)
    }

    fn claim(cluster: &Cluster, name: Name, is_user: bool) -> Result<Self, HostError> {
        cluster.require_here()?;
        let path = cluster.dir().join(FILE);
        let end = clock::now() + DYING_TIMEOUT;
        loop {
            let pid = match Self::try_claim(&path, name, is_user) {
                Ok(Ok(claim)) => return Ok(claim),
                Ok(Err(pid)) => pid,
                Err(error) => return Err(HostError::io("claim a name in", path)(error)),
            };
            if !is_dying(pid) || clock::now() >= end {
                return Err(HostError::NameTaken { name, pid });
            }
            std::thread::sleep(DYING_POLL);
        }
    }

    /// The claim, or the pid of the live holder.
    fn try_claim(path: &Path, name: Name, is_user: bool) -> io::Result<Result<Self, u32>> {
        let registry = Registry::here()?;
        let mut files = registry.files();
        let key = files.open(path)?;
        let opened = files.0.get_mut(&key).ok_or(ErrorKind::NotFound)?;
        let held = opened.names.get(&name).copied();
        if held.is_some_and(|uses| is_user && uses.is_used) {
            return Ok(Err(std::process::id()));
        }
        let taken = if held.is_some() { None } else { lock(&opened.file, name)? };
        if let Some(pid) = taken {
            files.close_unused(key);
            return Ok(Err(pid));
        }
        let uses = opened.names.entry(name).or_default();
        uses.claims += 1;
        uses.is_used |= is_user;
        Ok(Ok(Self { file: key, name, is_user, registry }))
    }
}

impl Drop for NameClaim {
    fn drop(&mut self) {
        if !self.registry.process.is_here() {
            // A copy in a forked child, which does not have the name.
            return;
        }
        let mut files = self.registry.files();
        let Some(opened) = files.0.get_mut(&self.file) else { return };
        let Some(uses) = opened.names.get_mut(&self.name) else { return };
        uses.claims -= 1;
        uses.is_used &= !self.is_user;
        if uses.claims == 0 {
            opened.names.remove(&self.name);
            // If this fails, the name is free when the process ends.
            let _ = set(&opened.file, self.name, libc::F_UNLCK);
            files.close_unused(self.file);
        }
    }
}

impl fmt::Debug for NameClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NameClaim").field(&self.name).finish()
    }
}

impl Registry {
    /// That of the calling process.
    fn here() -> io::Result<&'static Self> {
        let mut found = REGISTRY.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or from a box that is never freed.
            if let Some(registry) = unsafe { found.as_ref() }
                && registry.process.is_here()
            {
                return Ok(registry);
            }
            let process = OwnerProcess::here()?;
            let new = Box::into_raw(Box::new(Self { process, files: Mutex::default() }));
            let swapped = REGISTRY.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire);
            found = match swapped {
                Ok(_) => new,
                Err(other) => {
                    // SAFETY: made above, and nobody else has seen it.
                    drop(unsafe { Box::from_raw(new) });
                    other
                }
            };
        }
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    /// Opens the file, unless this process has it open.
    fn open(&mut self, path: &Path) -> io::Result<FileKey> {
        // Looked at, not opened: closing another descriptor would drop the claims of this process.
        if let Ok(meta) = std::fs::symlink_metadata(path)
            && self.0.contains_key(&(meta.dev(), meta.ino()))
        {
            return Ok((meta.dev(), meta.ino()));
        }
        let flags = OFlag::O_NOFOLLOW.bits();
        let file = File::options()
            .create(true)
            .append(true)
            .read(true)
            .mode(0o600)
            .custom_flags(flags)
            .open(path)?;
        let meta = file.metadata()?;
        let key = (meta.dev(), meta.ino());
        self.0.entry(key).or_insert(Opened { file, names: BTreeMap::new() });
        Ok(key)
    }

    /// Closes the file if this process has no name in it.
    fn close_unused(&mut self, key: FileKey) {
        if self.0.get(&key).is_some_and(|opened| opened.names.is_empty()) {
            self.0.remove(&key);
        }
    }
}

/// Locks the byte of a name, or gives the pid of the process that has it.
fn lock(file: &File, name: Name) -> io::Result<Option<u32>> {
    loop {
        match set(file, name, libc::F_WRLCK) {
            Ok(()) => return Ok(None),
            Err(Errno::EAGAIN | Errno::EACCES) => {}
            Err(error) => return Err(error.into()),
        }
        let mut found = range(name, libc::F_WRLCK);
        fcntl(file, FcntlArg::F_GETLK(&mut found))?;
        // Unlocked: its holder has ended in between.
        if i32::from(found.l_type) != libc::F_UNLCK {
            return Ok(Some(u32::try_from(found.l_pid).unwrap_or_default()));
        }
    }
}

fn set(file: &File, name: Name, kind: libc::c_int) -> nix::Result<()> {
    fcntl(file, FcntlArg::F_SETLK(&range(name, kind))).map(drop)
}

fn range(name: Name, kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: offset(name).cast_signed(),
        l_len: 1,
        l_pid: 0,
    }
}

/// FNV-1a of the name, in the bits of an offset: of a million names the chance that any two have the
/// same offset is below one in a million, and then one of them is refused. All releases compute the
/// same.
fn offset(name: Name) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let hash = name.as_str().bytes().fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    hash >> 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fork::tests::forked;
    use crate::host::process::Process;
    use crate::host::test::{made, name};
    use nix::sys::signal::{Signal, kill as send};
    use nix::sys::wait::waitpid;
    use nix::unistd::{Pid, getppid};

    /// A forked process that runs `start` and then sleeps until it is killed, once it has returned.
    fn child(start: impl FnOnce() -> bool) -> u32 {
        let (mut input, output) = io::pipe().expect("a pipe");
        let Some(child) = crate::host::fork().expect("forked") else {
            drop(input);
            let started = start();
            let _ = io::Write::write_all(&mut &output, &[u8::from(started)]);
            loop {
                std::thread::sleep(Duration::from_secs(60));
            }
        };
        drop(output);
        let mut said = [0];
        io::Read::read_exact(&mut input, &mut said).expect("it says how it started");
        assert_eq!(said, [1], "it did not start");
        child
    }

    fn kill(child: u32) {
        let pid = Pid::from_raw(child.cast_signed());
        send(pid, Signal::SIGKILL).expect("a child");
        waitpid(pid, None).expect("a child");
    }

    fn again(cluster: &Cluster) -> Cluster {
        Cluster::open(cluster.dir().parent().expect("a root"), name("c")).expect("opened")
    }

    fn holder(claimed: Result<NameClaim, HostError>) -> u32 {
        match claimed {
            Err(HostError::NameTaken { pid, .. }) => pid,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_name_belongs_to_one_process_and_the_other_learns_which() {
        let (_root, cluster) = made();
        let _other = NameClaim::take(&cluster, name("other")).expect("free");
        let own = NameClaim::take(&cluster, name("a")).expect("free");
        assert!(forked(|| {
            let cluster = again(&cluster);
            let refused = holder(NameClaim::take(&cluster, name("a")));
            NameClaim::take(&cluster, name("b")).is_ok() && refused == getppid().as_raw().cast_unsigned()
        }));
        assert_eq!(holder(NameClaim::take(&cluster, name("a"))), std::process::id());
        drop(own);
        assert!(forked(|| NameClaim::take(&again(&cluster), name("a")).is_ok()));
        drop(NameClaim::take(&cluster, name("a")).expect("free again"));
    }

    #[test]
    fn the_name_of_a_killed_process_is_free_at_once_also_beside_its_forked_child() {
        let (_root, cluster) = made();
        let mut grandchild = 0;
        let (mut input, output) = io::pipe().expect("a pipe");
        let holding = child(|| {
            let taken = NameClaim::take(&again(&cluster), name("a")).expect("free");
            std::mem::forget(taken);
            let inner = child(|| true);
            io::Write::write_all(&mut &output, &inner.to_le_bytes()).is_ok()
        });
        let mut raw = [0; 4];
        if io::Read::read_exact(&mut input, &mut raw).is_ok() {
            grandchild = u32::from_le_bytes(raw);
        }
        assert_eq!(holder(NameClaim::take(&cluster, name("a"))), holding);
        kill(holding);
        let orphan = Process::of(grandchild).expect("it lives").hold().expect("it lives");
        let taken = NameClaim::take(&cluster, name("a"));
        orphan.kill().expect("it lives");
        drop(taken.expect("free, although a child of its holder lives"));
    }

    #[test]
    fn a_name_that_is_reserved_is_used_once_at_a_time_and_stays_reserved() {
        let (_root, cluster) = made();
        let reserved = NameClaim::reserve(&cluster, name("a")).expect("free");
        let used = NameClaim::take(&cluster, name("a")).expect("reserved by this process");
        assert_eq!(holder(NameClaim::take(&cluster, name("a"))), std::process::id());
        drop(used);
        assert!(forked(|| NameClaim::take(&again(&cluster), name("a")).is_err()), "it stays reserved");
        drop(NameClaim::take(&cluster, name("a")).expect("free for this process"));
        drop(reserved);
        assert!(forked(|| NameClaim::take(&again(&cluster), name("a")).is_ok()));
    }

    #[test]
    fn a_refused_claim_and_the_end_of_one_leave_the_others_of_the_process() {
        let (_root, cluster) = made();
        let kept = NameClaim::take(&cluster, name("kept")).expect("free");
        let holding = child(|| {
            std::mem::forget(NameClaim::take(&again(&cluster), name("a")).expect("free"));
            true
        });
        assert_eq!(holder(NameClaim::take(&cluster, name("a"))), holding);
        drop(NameClaim::take(&cluster, name("b")).expect("free"));
        assert!(forked(|| NameClaim::take(&again(&cluster), name("kept")).is_err()));
        kill(holding);
        drop(kept);
    }

    #[test]
    fn clusters_have_names_of_their_own() {
        let ((_first_root, first), (_second_root, second)) = (made(), made());
        let own = NameClaim::take(&first, name("a")).expect("free");
        drop(NameClaim::take(&second, name("a")).expect("free in another cluster"));
        assert!(forked(|| NameClaim::take(&again(&first), name("a")).is_err()));
        drop(own);
    }
}
