//! Whether the process of a pidfd has ended.
#![allow(unsafe_code)]

use crate::types::Nanos;
use std::os::fd::AsRawFd;

/// Whether it has, without blocking.
pub(crate) fn ended(pidfd: &impl AsRawFd) -> bool {
    ended_within(pidfd, Nanos::ZERO)
}

/// Waits for its end, at most for so long. Says whether it has come.
pub(crate) fn ended_within(pidfd: &impl AsRawFd, timeout: Nanos) -> bool {
    let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let Nanos(n) = timeout;
    let timeout = libc::timespec { tv_sec: (n / 1_000_000_000) as i64, tv_nsec: (n % 1_000_000_000) as i64 };
    // SAFETY: `poll` is one valid entry, `timeout` a valid timespec; a null mask leaves the signals
    // as they are.
    let n = unsafe { libc::ppoll(&raw mut poll, 1, &raw const timeout, core::ptr::null()) };
    n == 1 && poll.revents & libc::POLLIN != 0
}
