//! Moments in UTC.

use jiff::Timestamp;
use obol_fabric::Nanos;
use std::time::{SystemTime, UNIX_EPOCH};

/// A moment in nanoseconds since 1970, written as strftime(3) would by this format.
pub fn utc(unix: u64, format: &str) -> String {
    // Every such moment is before the year 2555, and so one that the library has.
    Timestamp::from_nanosecond(unix.into()).unwrap_or_default().strftime(format).to_string()
}

/// Nanoseconds since 1970, UTC.
pub fn unix_now() -> u64 {
    Nanos::from_std(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()).0
}
