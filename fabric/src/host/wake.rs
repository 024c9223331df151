//! Waits for a descriptor, or for another thread of this process.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Ends a wait from another thread (`eventfd`).
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    /// Opens its descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Ends the current wait, or the next one.
    pub fn wake(&self) {
        // It fails only when the counter is full, and then the wait ends anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Waits until `fd` is readable, [`Wake::wake`] is called, or `span` has passed. May return
    /// early.
    pub fn wait(&self, fd: &impl AsFd, span: Option<Duration>) {
        let mut both = [PollFd::new(fd, PollFlags::IN), PollFd::new(&self.0, PollFlags::IN)];
        // A span too long for the kernel is infinite.
        let span = span.and_then(|span| Timespec::try_from(span).ok());
        // An error is an early return.
        let _ = poll(&mut both, span.as_ref());
        if !both[1].revents().is_empty() {
            self.clear();
        }
    }

    /// Takes back all wake-ups so far.
    pub fn clear(&self) {
        // It fails only when another wait has reset the counter.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_a_wait_is_not_lost_and_ends_one_wait_only() {
        let (wake, quiet) = (Wake::new().expect("made"), Wake::new().expect("made"));
        wake.wake();
        wake.wake();
        wake.wait(&quiet.0, None);
        let start = std::time::Instant::now();
        let span = Duration::from_millis(5);
        wake.wait(&quiet.0, Some(span));
        assert!(start.elapsed() >= span);
    }
}
