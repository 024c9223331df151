//! The kernel's futexes on words of shared memory. All are shared between processes, never private. nix has none of
//! these calls.
#![allow(unsafe_code)]

use crate::host::clock;
use crate::types::Nanos;
use core::ptr;
use core::sync::atomic::AtomicU32;
use std::io;

/// Set by the kernel when a robust futex's owner died.
pub const OWNER_DIED: u32 = libc::FUTEX_OWNER_DIED;
/// Asks the kernel to wake a waiter when the owner dies.
pub const WAITERS: u32 = libc::FUTEX_WAITERS;
/// The owner's thread id; zero once it died.
pub(crate) const TID_MASK: u32 = libc::FUTEX_TID_MASK;
/// The maximum number of words for `futex_waitv`.
pub(crate) const WAITV_MAX: usize = 128;
/// `FUTEX2_SIZE_U32` of linux/futex.h; libc does not have it yet.
const SIZE_U32: u32 = 2;

/// Blocks while `word` holds `expected`, for at most `timeout`. May return early: check again.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Nanos>) {
    let timeout = timeout.map(clock::timespec);
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the word and the timeout are borrowed until the call returns; the kernel reads them.
    // Every error is an early return.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, timeout) };
}

/// Wakes up to `n` waiters of a word.
pub fn wake(word: &AtomicU32, n: u32) {
    // SAFETY: the kernel takes the address for a name, and reads nothing.
    // A word that is no longer mapped has no waiter.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, n.min(i32::MAX as u32)) };
}

/// An entry for [`waitv`]: the kernel's `struct futex_waitv`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Waiter {
    expected: u64,
    word: u64,
    flags: u32,
    reserved: u32,
}

/// Waits as long as `word` holds `expected`.
pub(crate) fn waiter(word: &AtomicU32, expected: u32) -> Waiter {
    Waiter { expected: expected.into(), word: word.as_ptr() as u64, flags: SIZE_U32, reserved: 0 }
}

/// Blocks while every word holds its expected value, for at most `timeout`. Uses at most
/// [`WAITV_MAX`] words and ignores the rest. May return early, also for a signal: check again. A
/// word that is no longer mapped ends the wait at once; the kernel never writes to it. False if this
/// process has not got the call.
pub(crate) fn waitv(waiters: &[Waiter], timeout: Nanos) -> bool {
    let waiters = &waiters[..waiters.len().min(WAITV_MAX)];
    let until = clock::futex_deadline(timeout);
    // Every other error is an early return.
    !call_waitv(waiters, Some(&until)).is_err_and(|error| is_missing(&error))
}

/// Whether the kernel has no such call, or a filter refuses it.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

/// Whether this kernel has `futex_waitv` (Linux 5.16).
pub(crate) fn probe() -> io::Result<()> {
    // A kernel that supports the call rejects an empty array with EINVAL.
    match call_waitv(&[], None) {
        Err(error) if is_missing(&error) => Err(error),
        _ => Ok(()),
    }
}

fn call_waitv(waiters: &[Waiter], until: Option<&libc::timespec>) -> io::Result<()> {
    let (count, until) = (waiters.len() as u32, until.map_or(ptr::null(), ptr::from_ref));
    // SAFETY: the kernel reads `count` entries and the time, and looks at each word as a futex does,
    // which fails if it is not mapped.
    let woken = unsafe {
        libc::syscall(libc::SYS_futex_waitv, waiters.as_ptr(), count, 0, until, libc::CLOCK_MONOTONIC)
    };
    if woken < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
pub(crate) mod test {
    /// Makes the kernel refuse `futex_waitv` to this thread, as the filter of a container may.
    pub(crate) fn refuse_waitv() {
        let step = |code: u32, otherwise, k| libc::sock_filter { code: code as u16, jt: 0, jf: otherwise, k };
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        let mut filter = [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_futex_waitv as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, refused),
            step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the kernel copies the filter, which is borrowed until the call returns. It applies to
        // this thread.
        let set = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        assert!(set, "{}", std::io::Error::last_os_error());
    }
}
