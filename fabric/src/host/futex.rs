//! The kernel's futexes on words of shared memory. All are shared between processes, never private.
#![allow(unsafe_code)]

use crate::host::clock;
use crate::types::Nanos;
use core::sync::atomic::AtomicU32;
use std::io;

/// Set by the kernel when a robust futex's owner died.
pub const OWNER_DIED: u32 = libc::FUTEX_OWNER_DIED;
/// Asks the kernel to wake a waiter when the owner dies.
pub const WAITERS: u32 = libc::FUTEX_WAITERS;
/// The owner's thread id; zero once it died.
pub(crate) const TID_MASK: u32 = libc::FUTEX_TID_MASK;
/// Words that one `futex_waitv` can wait on.
pub(crate) const WAITV_MAX: usize = 128;

/// Blocks while `word` holds `expected`, at most for `timeout`. May return early: look again.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Nanos>) {
    let span = timeout.map(clock::timespec);
    let span = span.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: `word` outlives the call; `span` is null or points to a timespec that does.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, span) };
}

/// Wakes up to `n` waiters of a word.
pub fn wake(word: &AtomicU32, n: u32) {
    let n = n.min(i32::MAX as u32);
    // SAFETY: the kernel takes the address as a key and does not access the word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, n) };
}

/// One word that [`waitv`] waits on; the kernel's `struct futex_waitv`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Waiter {
    expected: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

impl Waiter {
    /// Waits as long as `word` holds `expected`.
    #[must_use]
    pub(crate) fn new(word: &AtomicU32, expected: u32) -> Self {
        const FUTEX_32: u32 = 2;
        Self { expected: u64::from(expected), address: word.as_ptr() as u64, flags: FUTEX_32, reserved: 0 }
    }
}

/// Blocks while every word holds what is expected of it, at most for `timeout`. At most
/// [`WAITV_MAX`] words; the rest is left out. May return early, also for a signal: look again. A
/// word that is not mapped any more ends the wait at once; the kernel never writes to it.
pub(crate) fn waitv(waiters: &[Waiter], timeout: Nanos) {
    let waiters = &waiters[..waiters.len().min(WAITV_MAX)];
    let until = clock::futex_deadline(timeout);
    // SAFETY: both pointers are valid during the call. The kernel only reads the words that the
    // waiters name, and answers EFAULT for an address that is not mapped.
    unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            waiters.as_ptr(),
            waiters.len(),
            0,
            &raw const until,
            libc::CLOCK_MONOTONIC,
        )
    };
}

/// Whether this kernel has `futex_waitv` (Linux 5.16).
pub(crate) fn probe() -> io::Result<()> {
    // SAFETY: a null array of no entries is refused with EINVAL by a kernel that knows the call.
    unsafe {
        libc::syscall(libc::SYS_futex_waitv, core::ptr::null::<Waiter>(), 0, 0, core::ptr::null::<u8>(), 0)
    };
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENOSYS) { Err(error) } else { Ok(()) }
}
