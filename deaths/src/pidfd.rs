//! Processes by descriptor: a pidfd names one process, also after its number was reused.
#![allow(unsafe_code)]

use crate::poll::poll;
use core::time::Duration;
use nix::poll::{PollFd, PollFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// The descriptor of the process with this number (pidfd_open(2), which nix does not have).
pub fn open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made the descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Sends it a signal (pidfd_send_signal(2), which nix does not have).
pub fn send(pidfd: &impl AsFd, signal: i32) -> io::Result<()> {
    let (fd, none) = (pidfd.as_fd().as_raw_fd(), core::ptr::null::<libc::siginfo_t>());
    // SAFETY: without a `siginfo_t` the call takes numbers alone.
    match unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, none, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether it has ended, without blocking.
pub fn ended(pidfd: &impl AsFd) -> bool {
    ended_within(pidfd, Duration::ZERO)
}

/// Waits for its end, for at most `timeout`. Returns whether it has ended.
pub fn ended_within(pidfd: &impl AsFd, timeout: Duration) -> bool {
    let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, Some(timeout)).is_ok()
        && fds[0].revents().is_some_and(|ready| ready.contains(PollFlags::POLLIN))
}
