//! Moments in UTC, and ages.

use jiff::Timestamp;
use obol_fabric::host::clock;
use obol_fabric::{Instant, Nanos};
use std::time::{SystemTime, UNIX_EPOCH};

/// A moment in nanoseconds since 1970, written as strftime(3) would by this format.
pub fn utc(unix: u64, format: &str) -> String {
    // Every such moment is before the year 2555, and so one that the library has.
    Timestamp::from_nanosecond(unix.into()).unwrap_or_default().strftime(format).to_string()
}

/// The seconds since 1970 of a moment in UTC as ISO 8601.
pub fn seconds_of(text: &str) -> Option<u64> {
    text.parse::<Timestamp>().ok()?.as_second().try_into().ok()
}

/// A moment in nanoseconds since 1970 as ISO 8601 in UTC, to the microsecond.
pub fn iso(unix: u64) -> String {
    utc(unix, "%FT%T.%6fZ")
}

/// An age in few columns: `250ms`, `3.2s`, `4m12s`, `2h05m`.
pub fn age(span: Nanos) -> String {
    let ms = span.0 / 1_000_000;
    match ms {
        0..=999 => format!("{ms}ms"),
        1_000..=59_999 => format!("{}.{}s", ms / 1000, ms % 1000 / 100),
        60_000..=3_599_999 => format!("{}m{:02}s", ms / 60_000, ms % 60_000 / 1000),
        _ => format!("{}h{:02}m", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// The same of seconds.
pub fn age_of_seconds(seconds: f64) -> String {
    age(Nanos((seconds * 1e9) as u64))
}

/// Seconds since 1970, UTC.
pub fn unix_seconds() -> u64 {
    unix_now() / 1_000_000_000
}

/// Nanoseconds since 1970, UTC.
pub fn unix_now() -> u64 {
    Nanos::from_std(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()).0
}

/// The monotonic clock of this host and the time of day at one moment. By them, times of flight recorders
/// are shown in UTC.
#[derive(Clone, Copy, Debug)]
pub struct TwoClocks {
    unix: u64,
    now: Instant,
}

/// How often both clocks are read.
const READINGS: u32 = 5;

impl TwoClocks {
    /// Reads both, as close together as in the best of a few attempts: a thread may be stopped in between.
    pub fn read() -> Self {
        let once = || {
            let (before, unix, after) = (clock::now(), unix_now(), clock::now());
            let apart = after.since(before);
            (apart, Self { unix, now: before + Nanos(apart.0 / 2) })
        };
        let further = (1..READINGS).map(|_| once());
        further.fold(once(), |best, next| if next.0 < best.0 { next } else { best }).1
    }

    /// A moment in nanoseconds since 1970, by the time of day as it is set now.
    pub const fn unix(self, at: Instant) -> u64 {
        // Another host's stamp may seem to lie ahead.
        if at.0 > self.now.0 {
            self.unix.saturating_add(at.0 - self.now.0)
        } else {
            self.unix.saturating_sub(self.now.0 - at.0)
        }
    }

    /// The reverse of [`TwoClocks::unix`].
    pub const fn instant(self, unix: u64) -> Instant {
        if unix > self.unix {
            Instant(self.now.0.saturating_add(unix - self.unix))
        } else {
            Instant(self.now.0.saturating_sub(self.unix - unix))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_iso_8601() {
        assert_eq!(iso(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(iso(1_700_000_000_123_456_789), "2023-11-14T22:13:20.123456Z");
        assert_eq!(iso(951_782_400_000_000_000), "2000-02-29T00:00:00.000000Z");
        assert_eq!(iso(4_102_444_799_999_999_999), "2099-12-31T23:59:59.999999Z");
    }

    #[test]
    fn an_age_takes_few_columns() {
        let ages = [0, 250, 3_249, 252_000, 7_500_000].map(|ms| age(Nanos::from_millis(ms)));
        assert_eq!(ages, ["0ms", "250ms", "3.2s", "4m12s", "2h05m"]);
    }

    #[test]
    fn a_moment_has_one_time_of_day_whether_it_lies_ahead_or_behind() {
        let clocks = TwoClocks { unix: 1000, now: Instant(100) };
        for (at, unix) in [(100, 1000), (40, 940), (170, 1070)] {
            assert_eq!(clocks.unix(Instant(at)), unix);
            assert_eq!(clocks.instant(unix), Instant(at));
        }
        assert_eq!(clocks.instant(0), Instant(0), "before this host was started");
    }
}
