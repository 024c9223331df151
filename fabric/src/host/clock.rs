//! The clock of this fabric: `CLOCK_MONOTONIC_RAW`, the same for all processes of a host and never
//! adjusted.

#![allow(unsafe_code)]

use crate::types::{Instant, Nanos};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};
use std::io;

/// Raw, because it is part of every check of a lease, and nix's is one more call that is not inlined.
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes. It cannot fail: these clocks are on every kernel that has
    // the rest of what this crate needs.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[inline]
pub fn now() -> Instant {
    Instant(read(libc::CLOCK_MONOTONIC_RAW))
}

/// `CLOCK_REALTIME`, by which the kernel notes arrivals.
pub fn realtime() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// The offset of `CLOCK_REALTIME` from the time since boot, in nanoseconds. It changes only when
/// the clock is set.
pub fn realtime_offset() -> i64 {
    (read(libc::CLOCK_REALTIME) as i64).wrapping_sub(read(libc::CLOCK_BOOTTIME) as i64)
}

/// Sets `CLOCK_REALTIME` to this offset from the time since boot. Needs CAP_SYS_TIME.
pub fn set_realtime_offset(offset: i64) -> io::Result<()> {
    let at = (read(libc::CLOCK_BOOTTIME) as i64).wrapping_add(offset);
    let time = timespec(Nanos(u64::try_from(at).map_err(io::Error::other)?));
    Ok(clock_settime(ClockId::CLOCK_REALTIME, TimeSpec::from_timespec(time))?)
}

/// The time on `CLOCK_MONOTONIC`, which futexes use, after `span` from now.
pub(crate) fn futex_deadline(span: Nanos) -> libc::timespec {
    let at = read(libc::CLOCK_MONOTONIC).saturating_add(span.0);
    timespec(Nanos(at.min(i64::MAX as u64)))
}

pub(crate) const fn timespec(span: Nanos) -> libc::timespec {
    libc::timespec { tv_sec: (span.0 / 1_000_000_000) as i64, tv_nsec: (span.0 % 1_000_000_000) as i64 }
}
