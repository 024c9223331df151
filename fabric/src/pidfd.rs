//! Whether the process of a pidfd has ended.

use crate::host::clock::timespec;
use crate::types::Nanos;
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::AsFd;

/// Whether it has, without blocking.
pub(crate) fn ended(pidfd: &impl AsFd) -> bool {
    ended_within(pidfd, Nanos::ZERO)
}

/// Waits for its end, for at most `timeout`. Returns whether it has ended.
pub(crate) fn ended_within(pidfd: &impl AsFd, timeout: Nanos) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut fds, Some(&timespec(timeout))).is_ok() && fds[0].revents().contains(PollFlags::IN)
}
