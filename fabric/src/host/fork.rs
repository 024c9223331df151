//! Whether this process created a mapping, or is a forked child. A `fork` copies every handle of
//! its parent, but the kernel counts parent and child separately: a child that acted under the
//! parent's lease would continue after the parent's death was proved. So a membership stays with
//! the process that created it, and the child's copies refer to empty memory.
//!
//! The kernel zeroes one marked page in every child, whatever call created it, so the check costs a
//! load. Threads, and children that run in the parent's memory until they call `exec` (`vfork`,
//! `posix_spawn`), are the same process.
#![allow(unsafe_code)]

use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;

const PAGE_BYTES: usize = 4096;

/// The marked page: its first word is this process's number among its ancestors, and 0 in a child
/// that has no number yet.
static MARK: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// The last number given. A child continues from its parent's.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The process that created something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnerProcess {
    mark: &'static AtomicU64,
    /// The number of this process among its ancestors.
    pub(crate) turn: u64,
}

impl OwnerProcess {
    /// The calling process.
    pub(crate) fn here() -> io::Result<Self> {
        let mark = mark()?;
        let found = mark.load(Ordering::Relaxed);
        if found != 0 {
            return Ok(Self { mark, turn: found });
        }
        let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let turn = match mark.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => next,
            // Another thread was faster.
            Err(found) => found,
        };
        Ok(Self { mark, turn })
    }

    /// Whether the calling process is still that one.
    #[inline]
    pub(crate) fn is_here(self) -> bool {
        self.mark.load(Ordering::Relaxed) == self.turn
    }
}

fn mark() -> io::Result<&'static AtomicU64> {
    let mut found = MARK.load(Ordering::Acquire);
    if found.is_null() {
        let made = empty(PAGE_BYTES)?;
        // SAFETY: the range is the mapping that was just made.
        if let Err(error) = unsafe { madvise(made.cast(), PAGE_BYTES, MmapAdvise::MADV_WIPEONFORK) } {
            // SAFETY: nothing else refers to the mapping.
            unsafe { munmap(made.cast(), PAGE_BYTES) }?;
            return Err(error.into());
        }
        found = match MARK.compare_exchange(
            ptr::null_mut(),
            made.as_ptr(),
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => made.as_ptr(),
            Err(other) => {
                // SAFETY: another thread was first, so nothing refers to this one.
                unsafe { munmap(made.cast(), PAGE_BYTES) }?;
                other
            }
        };
    }
    // SAFETY: the page is never unmapped, is large and aligned enough, and any bits are an atomic
    // word.
    Ok(unsafe { &*found })
}

/// Zeroed memory private to this process, allocated on the first write.
pub(crate) fn empty(bytes: usize) -> io::Result<NonNull<AtomicU64>> {
    let bytes = NonZeroUsize::new(bytes).ok_or(Errno::EINVAL)?;
    let (access, kind) =
        (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE);
    // SAFETY: a new anonymous mapping at an address that the kernel chooses.
    let at = unsafe { mmap_anonymous(None, bytes, access, kind) }?;
    Ok(at.cast())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Endpoint;
    use crate::endpoint::{Owner, Wait};
    use crate::host::test::{made, name};
    use crate::host::{Cluster, HostError, Observed, Process, Region};
    use crate::{Fabric as _, Instant, Page, ViewId, page};
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, Pid, fork};
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    /// Runs `child` in a forked child and returns its result; false after a signal or a panic.
    pub(crate) fn forked(child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls nothing that waits for a thread that it has not, and ends without
        // running the test's own end.
        let ForkResult::Parent { child: pid } = (unsafe { fork() }).expect("forked") else {
            let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
            // SAFETY: it takes an integer and does not return.
            unsafe { libc::_exit(i32::from(!good)) };
        };
        waitpid(pid, None) == Ok(WaitStatus::Exited(pid, 0))
    }

    #[test]
    fn a_child_and_its_child_are_other_processes_and_have_homes_of_their_own() {
        let home = OwnerProcess::here().expect("a page");
        assert!(home.is_here() && OwnerProcess::here().expect("a page").turn == home.turn);
        assert!(forked(|| {
            let before = home.is_here();
            let own = OwnerProcess::here().expect("a page");
            let inner = forked(|| !own.is_here() && !home.is_here());
            !before && own.is_here() && !home.is_here() && own.turn > home.turn && inner
        }));
        assert!(home.is_here(), "nothing has changed here");
    }

    #[test]
    fn a_process_that_executes_another_program_lives_and_is_dead_as_an_owner() {
        let (_root, cluster) = made();
        let (input, output) = io::pipe().expect("a pipe");
        let child = crate::host::fork().expect("forked");
        let Some(pid) = child else {
            let owner = Owner { kind: 3, name: name("a"), region: None, groups: 2 };
            let anew = Cluster::open(cluster.dir().parent().expect("a root"), name("c")).expect("opened");
            core::mem::forget(Endpoint::open(&anew, owner, Wait::Block).expect("opened"));
            // It runs until its input ends.
            let error = Command::new("/bin/cat").stdin(input).exec();
            // SAFETY: it takes an integer and does not return.
            unsafe { libc::_exit(error.raw_os_error().unwrap_or(1)) };
        };
        drop(input);
        let process = Process::of(pid).expect("a child");
        let own = || cluster.regions_of(process).into_iter().find(|info| info.alive);
        let owned = || own().map(|info| info.number);
        let is_marked = || owned().and_then(|n| Region::open(&cluster, n).ok()).is_some_and(|r| r.is_dead(0));
        while !is_marked() {
            assert!(process.is_alive(), "it could not become cat");
            std::thread::yield_now();
        }
        assert!(
            process.is_alive() && cluster.region_info(owned().expect("its region")).is_some_and(|r| r.alive)
        );
        drop(output);
        let pid = Pid::from_raw(pid.cast_signed());
        assert_eq!(waitpid(pid, None), Ok(WaitStatus::Exited(pid, 0)));
    }

    #[test]
    fn what_was_mapped_is_empty_in_a_child_which_can_map_it_anew() {
        let (_root, cluster) = made();
        let owner = Owner { kind: 3, name: name("a"), region: None, groups: 2 };
        let endpoint = Endpoint::open(&cluster, owner, Wait::Block).expect("opened");
        let region = endpoint.region().clone();
        let observed = Observed::open(&cluster, 8).expect("mapped");
        let mut copies = Some((region.clone(), observed, endpoint, cluster));
        assert!(forked(|| {
            let (words, observed, mut endpoint, cluster) = copies.take().expect("they are copied");
            let empty = !words.is_here()
                && words.is_dead(0)
                && !page::active(words.page(), ViewId::GENESIS, crate::host::clock::now)
                && observed.reader().seat(0).is_none()
                && cluster.regions().is_empty();
            // Goes nowhere.
            endpoint.publish_page(&Page { end: Instant::NEVER, ..Page::default() });
            words.word(0).store(1, Ordering::Relaxed);
            let owner = Owner { name: name("b"), ..owner };
            let refused =
                matches!(Endpoint::open(&cluster, owner, Wait::Block), Err(HostError::Forked { .. }));
            let anew = Cluster::open(cluster.dir().parent().expect("a root"), name("c")).expect("opened");
            let seen = Region::open(&anew, 8).expect("mapped anew");
            let found = seen.is_here() && !seen.is_dead(0) && anew.alive() == 1;
            // The thread represented its parent's endpoint; it may represent one of its own.
            let own = Endpoint::open(&anew, owner, Wait::Block).expect("opened");
            drop((words, observed, endpoint, cluster));
            let stands = !own.region().is_dead(0);
            drop(own);
            empty && refused && found && stands && !seen.is_dead(0) && anew.alive() == 1
        }));
        assert!(region.is_here() && !region.is_dead(0));
    }
}
