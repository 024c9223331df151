//! Waits for a descriptor, or for another thread of this process.

use super::poll::poll;
use nix::poll::{PollFd, PollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Ends a wait from another thread (`eventfd`).
#[derive(Debug)]
pub struct Wake(EventFd);

impl Wake {
    /// Opens its descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
    }

    /// Ends the current wait, or the next one.
    pub fn wake(&self) {
        // It fails only when the counter is full, and then the wait ends anyway.
        let _ = self.0.write(1);
    }

    /// Waits until `fd` is readable, [`Wake::wake`] is called, or `span` has passed. May return
    /// early.
    pub fn wait(&self, fd: &impl AsFd, span: Option<Duration>) {
        let mut both = [fd.as_fd(), self.0.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        // An error is an early return.
        let _ = poll(&mut both, span);
        if both[1].any() != Some(false) {
            self.clear();
        }
    }

    /// Takes back all wake-ups so far.
    pub fn clear(&self) {
        // It fails only when another wait has reset the counter.
        let _ = self.0.read();
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
