//! Whether the process of a pidfd has ended.

use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;

/// Whether it has, without blocking.
pub fn ended(pidfd: &impl AsFd) -> bool {
    ended_within(pidfd, Duration::ZERO)
}

/// Waits for its end, for at most `timeout`. Returns whether it has ended.
pub fn ended_within(pidfd: &impl AsFd, timeout: Duration) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    // A span too long for the kernel is infinite.
    let timeout = Timespec::try_from(timeout).ok();
    poll(&mut fds, timeout.as_ref()).is_ok() && fds[0].revents().contains(PollFlags::IN)
}
