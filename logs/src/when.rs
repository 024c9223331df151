//! Moments on the command line, in UTC: `02:10`, `2026-11-25 02:10`, `2026-11-25T02:10:07Z`, `10m` ago.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use obol_config::duration;

/// A text that is not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a time; write 02:10, 2026-11-25 02:10:30 or 2026-11-25T02:10:30Z (all in UTC), or how long ago: 90s, 10m, 2h, 1d"
)]
pub struct WhenError(String);

/// A moment that a user means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In nanoseconds since 1970.
    At(u64),
    /// A time of day without a date.
    OfDay(Time),
    /// This many nanoseconds ago.
    Ago(u64),
}

/// Nanoseconds of a day.
const DAY: u64 = 24 * 3600 * 1_000_000_000;

fn nanos(timestamp: Timestamp) -> Option<u64> {
    u64::try_from(timestamp.as_nanosecond()).ok()
}

fn of_civil(civil: DateTime) -> Option<u64> {
    nanos(civil.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

fn ago(text: &str) -> Option<u64> {
    u64::try_from(duration::parse(text).ok()?.as_nanos()).ok()
}

impl std::str::FromStr for When {
    type Err = WhenError;

    fn from_str(text: &str) -> Result<Self, WhenError> {
        let text = text.trim();
        let wrong = || WhenError(text.chars().take(40).collect());
        if text == "now" {
            return Ok(Self::Ago(0));
        }
        if let Some(ago) = ago(text) {
            return Ok(Self::Ago(ago));
        }
        if let Ok(timestamp) = text.parse::<Timestamp>() {
            return nanos(timestamp).map(Self::At).ok_or_else(wrong);
        }
        // Of a full moment the library would take the time of day alone.
        if !text.contains(['-', 'T', ' '])
            && text.contains(':')
            && let Ok(time) = text.parse::<Time>()
        {
            return Ok(Self::OfDay(time));
        }
        let civil =
            text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(|date| date.at(0, 0, 0, 0)));
        civil.ok().and_then(of_civil).map(Self::At).ok_or_else(wrong)
    }
}

impl When {
    /// The moment, in nanoseconds since 1970. A time of day is the last one before now.
    pub fn before(self, now: u64) -> u64 {
        match self {
            Self::At(unix) => unix,
            Self::Ago(span) => now.saturating_sub(span),
            Self::OfDay(time) => {
                let today = on_day_of(time, now);
                if today > now { today.saturating_sub(DAY) } else { today }
            }
        }
    }

    /// The end of a span that begins at `since`: a time of day is the first one after it.
    pub fn after(self, since: Option<u64>, now: u64) -> u64 {
        let (Self::OfDay(time), Some(since)) = (self, since) else { return self.before(now) };
        let same_day = on_day_of(time, since);
        if same_day < since { same_day.saturating_add(DAY) } else { same_day }
    }
}

/// A time of day on the day of a moment.
fn on_day_of(time: Time, moment: u64) -> u64 {
    let midnight = moment - moment % DAY;
    let since_midnight = time.duration_since(Time::midnight());
    midnight.saturating_add(u64::try_from(since_midnight.as_nanos()).unwrap_or_default())
}

/// The last second of a day is not cut: a date alone as an end means its end.
#[must_use]
pub fn end_of(text: &str) -> Option<When> {
    let date = text.trim().parse::<Date>().ok().filter(|_| !text.contains([':', 'T']))?;
    of_civil(date.checked_add(1.day()).ok()?.at(0, 0, 0, 0)).map(When::At)
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_observe::calendar;

    /// 2026-11-25T02:30:00Z.
    const NOW: u64 = 1_795_573_800_000_000_000;

    fn before(text: &str) -> String {
        calendar::utc(text.parse::<When>().expect("a time").before(NOW), "%F %T")
    }

    #[test]
    fn times_are_understood_as_people_mean_them() {
        assert_eq!(calendar::utc(NOW, "%F %T"), "2026-11-25 02:30:00");
        for (text, then) in [
            ("02:10", "2026-11-25 02:10:00"),
            ("02:10:07", "2026-11-25 02:10:07"),
            ("23:50", "2026-11-24 23:50:00"),
            ("2026-11-20", "2026-11-20 00:00:00"),
            ("2026-11-20 01:02", "2026-11-20 01:02:00"),
            ("2026-11-20T01:02:03", "2026-11-20 01:02:03"),
            ("2026-11-20T01:02:03Z", "2026-11-20 01:02:03"),
            ("2026-11-20T01:02:03+01:00", "2026-11-20 00:02:03"),
            ("10m", "2026-11-25 02:20:00"),
            ("90s", "2026-11-25 02:28:30"),
            ("2h", "2026-11-25 00:30:00"),
            ("1d", "2026-11-24 02:30:00"),
            ("now", "2026-11-25 02:30:00"),
        ] {
            assert_eq!(before(text), then, "{text}");
        }
    }

    #[test]
    fn an_end_is_after_its_beginning_also_over_midnight() {
        let span = |since: &str, until: &str| {
            let since = since.parse::<When>().expect("a time").before(NOW);
            let until = until.parse::<When>().expect("a time").after(Some(since), NOW);
            [since, until].map(|at| calendar::utc(at, "%d %H:%M"))
        };
        assert_eq!(span("02:10", "02:20"), ["25 02:10", "25 02:20"]);
        assert_eq!(span("23:50", "00:10"), ["24 23:50", "25 00:10"]);
        assert_eq!(span("22:00", "23:00"), ["24 22:00", "24 23:00"]);
        assert_eq!(span("2026-11-20 02:10", "02:20"), ["20 02:10", "20 02:20"]);
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "soon", "25:00", "2026-13-01", "10", "10x", "-5m", "1:2:3:4"] {
            assert!(text.parse::<When>().is_err(), "{text}");
        }
    }
}
