//! Waits for a descriptor, or for another thread of this process.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Ends a wait from another thread (`eventfd`).
#[derive(Debug)]
pub(crate) struct Wake(OwnedFd);

impl Wake {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call takes integers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Ends the wait that is under way, or the next one.
    pub(crate) fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the bytes are valid for reads. It fails only when the count is full, and then the
        // wait ends anyway.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Waits until `fd` can be read, [`Wake::wake`] is called, or `span` has passed. May return
    /// early.
    pub(crate) fn wait(&self, fd: &impl AsFd, span: Option<Duration>) {
        let entry = |fd: i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut both = [entry(fd.as_fd().as_raw_fd()), entry(self.0.as_raw_fd())];
        // Rounded up, so that a wait for a deadline does not end just before it, again and again.
        let span = span.map_or(-1, |s| i32::try_from(s.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
        // SAFETY: both entries are valid for reads and writes.
        unsafe { libc::poll(both.as_mut_ptr(), 2, span) };
        if both[1].revents != 0 {
            let mut count = [0u8; 8];
            // SAFETY: the bytes are valid for writes.
            unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        }
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
