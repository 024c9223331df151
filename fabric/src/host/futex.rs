//! The kernel's futexes on words of shared memory. All are shared between processes, never private.

use crate::host::clock;
use crate::types::Nanos;
use core::sync::atomic::AtomicU32;
use rustix::io::Errno;
pub(crate) use rustix::thread::futex::Wait as Waiter;
use rustix::thread::futex::{self, Flags, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::ClockId;
use std::io;

/// Set by the kernel when a robust futex's owner died.
pub const OWNER_DIED: u32 = libc::FUTEX_OWNER_DIED;
/// Asks the kernel to wake a waiter when the owner dies.
pub const WAITERS: u32 = libc::FUTEX_WAITERS;
/// The owner's thread id; zero once it died.
pub(crate) const TID_MASK: u32 = libc::FUTEX_TID_MASK;
/// The maximum number of words for `futex_waitv`.
pub(crate) const WAITV_MAX: usize = 128;

/// Blocks while `word` holds `expected`, for at most `timeout`. May return early: check again.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Nanos>) {
    // Every error is an early return.
    let _ = futex::wait(word, Flags::empty(), expected, timeout.map(clock::timespec).as_ref());
}

/// Wakes up to `n` waiters of a word.
pub fn wake(word: &AtomicU32, n: u32) {
    // A word that is no longer mapped has no waiter.
    let _ = futex::wake(word, Flags::empty(), n.min(i32::MAX as u32));
}

/// An entry for [`waitv`]: wait as long as `word` holds `expected`.
pub(crate) fn waiter(word: &AtomicU32, expected: u32) -> Waiter {
    let mut waiter = Waiter::new();
    waiter.val = expected.into();
    waiter.uaddr = WaitPtr::new(word.as_ptr().cast());
    waiter.flags = WaitFlags::SIZE_U32;
    waiter
}

/// Blocks while every word holds its expected value, for at most `timeout`. Uses at most
/// [`WAITV_MAX`] words and ignores the rest. May return early, also for a signal: check again. A
/// word that is no longer mapped ends the wait at once; the kernel never writes to it.
pub(crate) fn waitv(waiters: &[Waiter], timeout: Nanos) {
    let waiters = &waiters[..waiters.len().min(WAITV_MAX)];
    let until = clock::futex_deadline(timeout);
    // Every error is an early return.
    let _ = futex::waitv(waiters, WaitvFlags::empty(), Some(&until), ClockId::Monotonic);
}

/// Whether this kernel has `futex_waitv` (Linux 5.16).
pub(crate) fn probe() -> io::Result<()> {
    // A kernel that supports the call rejects an empty array with EINVAL.
    match futex::waitv(&[], WaitvFlags::empty(), None, ClockId::Monotonic) {
        Err(Errno::NOSYS) => Err(Errno::NOSYS.into()),
        _ => Ok(()),
    }
}
