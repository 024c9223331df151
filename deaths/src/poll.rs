//! Waits for descriptors, to the nanosecond.

use core::time::Duration;
use nix::poll::{PollFd, PollTimeout, ppoll};
use nix::sys::time::TimeSpec;

/// Waits until one of them is ready, a signal arrives, or `span` has passed; without a span, or with
/// one too long for the kernel, without an end.
pub fn poll(fds: &mut [PollFd<'_>], span: Option<Duration>) -> nix::Result<()> {
    let span = span.filter(|span| i64::try_from(span.as_secs()).is_ok());
    ppoll(fds, span.map(TimeSpec::from_duration), None).map(drop)
}

/// The milliseconds of epoll_wait(2). Rounded up, so that a wait does not end before what is due.
pub fn timeout(span: Duration) -> PollTimeout {
    PollTimeout::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(PollTimeout::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_rounded_up_to_milliseconds_and_has_a_longest() {
        let millis = |span| timeout(span).as_millis();
        assert_eq!(millis(Duration::ZERO), Some(0));
        assert_eq!(millis(Duration::from_nanos(1)), Some(1));
        assert_eq!(millis(Duration::from_millis(7)), Some(7));
        assert_eq!(millis(Duration::MAX), Some(i32::MAX as u32));
    }
}
