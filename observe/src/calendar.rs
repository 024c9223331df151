//! Moments in UTC.

use jiff::Timestamp;

/// A moment in nanoseconds since 1970, written as strftime(3) would by this format.
pub fn utc(unix: u64, format: &str) -> String {
    // Every such moment is before the year 2555, and so one that the library has.
    Timestamp::from_nanosecond(unix.into()).unwrap_or_default().strftime(format).to_string()
}
