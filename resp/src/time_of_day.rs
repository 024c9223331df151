//! Times of day in commands: the store knows spans only.

use obol_smr::from_now;
use std::time::{SystemTime, UNIX_EPOCH};

/// The time of day of this host, in ms since 1970. A client that gives a time of day means that of its
/// own host; this one is nearer than those of replicas.
#[expect(
    clippy::disallowed_methods,
    reason = "a time of day in a command means this clock, and becomes a span before the store sees it"
)]
fn unix_ms() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(unix.as_millis()).unwrap_or(u64::MAX)
}

/// Times of day in commands, and spans in the place of those.
const SPANS: &[(&[u8], &[u8])] =
    &[(b"EXPIREAT", b"EXPIRE"), (b"PEXPIREAT", b"PEXPIRE"), (b"EXAT", b"EX"), (b"PXAT", b"PX")];

/// A command as the store takes it, with a time from now instead of a time of day; `None` if it has none.
pub(super) fn as_stored<'a>(args: impl ExactSizeIterator<Item = &'a [u8]> + Clone) -> Option<Vec<Vec<u8>>> {
    from_now(args.clone(), unix_ms).or_else(|| with_wrong_span(args))
}

/// A command with a span in the place of a time of day that is not a number, or too far away. The span is as
/// wrong, so the store refuses it in its turn, and in the words of Redis.
fn with_wrong_span<'a>(args: impl ExactSizeIterator<Item = &'a [u8]> + Clone) -> Option<Vec<Vec<u8>>> {
    let (name, last) = (args.clone().next()?, args.len() - 1);
    let is = |one: &[u8]| name.eq_ignore_ascii_case(one);
    // Where what says that a time of day follows may be.
    let places = if is(b"SET") {
        3..last
    } else if is(b"GETEX") {
        2..last
    } else if (is(b"EXPIREAT") || is(b"PEXPIREAT")) && last >= 2 {
        0..1
    } else {
        return None;
    };
    let span = |n: usize, arg: &[u8]| -> Option<&'static [u8]> {
        let found = SPANS.iter().find(|(time, _)| places.contains(&n) && arg.eq_ignore_ascii_case(time));
        found.map(|(_, span)| *span)
    };
    if !args.clone().enumerate().any(|(n, arg)| span(n, arg).is_some()) {
        return None;
    }
    Some(args.enumerate().map(|(n, arg)| span(n, arg).unwrap_or(arg).to_vec()).collect())
}
