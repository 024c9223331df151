//! The clock of this fabric: `CLOCK_MONOTONIC_RAW`, the same for all processes of a host and
//! steered by nobody.
#![allow(unsafe_code)]

use crate::types::{Instant, Nanos};
use std::io;

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes. The call can not fail for a clock that every Linux has.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Now.
#[inline]
#[must_use]
pub fn now() -> Instant {
    Instant(read(libc::CLOCK_MONOTONIC_RAW))
}

/// How far `CLOCK_REALTIME` is ahead of the time since boot, in nanoseconds. Only whoever sets the
/// clock changes it.
#[must_use]
pub fn realtime_offset() -> i64 {
    (read(libc::CLOCK_REALTIME) as i64).wrapping_sub(read(libc::CLOCK_BOOTTIME) as i64)
}

/// Sets `CLOCK_REALTIME`, so that it is so far ahead of the time since boot. Needs CAP_SYS_TIME.
pub fn set_realtime_offset(offset: i64) -> io::Result<()> {
    let at = (read(libc::CLOCK_BOOTTIME) as i64).wrapping_add(offset);
    let time = timespec(Nanos(u64::try_from(at).map_err(io::Error::other)?));
    // SAFETY: `time` is a valid structure that the kernel only reads.
    let done = unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &raw const time) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The time on `CLOCK_MONOTONIC`, which futexes know, when `span` will have passed.
pub(crate) fn futex_deadline(span: Nanos) -> libc::timespec {
    let at = read(libc::CLOCK_MONOTONIC).saturating_add(span.0);
    timespec(Nanos(at.min(i64::MAX as u64)))
}

pub(crate) const fn timespec(span: Nanos) -> libc::timespec {
    libc::timespec { tv_sec: (span.0 / 1_000_000_000) as i64, tv_nsec: (span.0 % 1_000_000_000) as i64 }
}
