//! SCAN: the keys, some at a time, in an order that all replicas of the store have.
//!
//! ```text
//! cursor     check of the order (16 bits), place from which to go on (36 bits); 0 for the beginning and the end
//! ```
//!
//! The order is that of [`Table`](super::table::Table), where a key's place follows from the key alone. So
//! nothing is kept for a scan, and a key that is there from its first call to its last one is returned
//! once, whatever else changes and whichever replica leads. A cursor has 52 bits, because some clients keep it
//! as a floating-point number.

use super::Keys;
use super::commands::{Refusal, bulk_bytes, integer, put_bulk, put_count, syntax};
use super::staging::SHORT_BYTES_MAX;
use super::table::PLACE_BITS;

/// Keys that a call looks at, unless it says how many, and at most.
const COUNT: usize = 10;
const COUNT_MAX: usize = 1000;
/// A call ends after it has looked at keys of this number of bytes.
const KEY_BYTES: usize = 64 << 10;
/// Bytes of a reply before its keys, at most: two counts, and a cursor with its length.
const HEAD_BYTES: usize = 4 + 5 + 16 + 2 + 7;

/// What one call has found.
pub(super) struct Found<'a> {
    cursor: u64,
    keys: Vec<&'a [u8]>,
    /// Bytes of the reply, at most.
    pub(super) reply_bytes: usize,
}

impl Found<'_> {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_count(2, out);
        put_bulk(Some(self.cursor.to_string().as_bytes()), out);
        put_count(self.keys.len(), out);
        self.keys.iter().for_each(|key| put_bulk(Some(key), out));
    }
}

/// What a call asks for.
struct Scan {
    /// The place of the order from which to go on.
    from: u64,
    pattern: Option<Pattern>,
    count: usize,
    /// It wants keys of a type that the store has.
    of_strings: bool,
}

impl Scan {
    fn parse(check: u64, args: &[&[u8]]) -> Result<Self, Refusal> {
        let Some((cursor, mut options)) = args.split_first() else {
            return Err("ERR wrong number of arguments for 'scan' command".to_owned());
        };
        let mut scan = Self { from: place(cursor, check)?, pattern: None, count: COUNT, of_strings: true };
        while let [option, value, rest @ ..] = options {
            options = rest;
            match &option.to_ascii_uppercase()[..] {
                b"MATCH" => scan.pattern = Some(Pattern::parse(value)?),
                b"COUNT" => {
                    let count = usize::try_from(integer(value)?).ok().filter(|count| *count > 0);
                    scan.count = count.ok_or_else(syntax)?.min(COUNT_MAX);
                }
                b"TYPE" => scan.of_strings = value.eq_ignore_ascii_case(b"string"),
                _ => return Err(syntax()),
            }
        }
        if options.is_empty() { Ok(scan) } else { Err(syntax()) }
    }

    fn wants(&self, key: &[u8]) -> bool {
        self.of_strings && self.pattern.as_ref().is_none_or(|pattern| pattern.matches(key))
    }
}

/// The place that a cursor stands for.
fn place(cursor: &[u8], check: u64) -> Result<u64, Refusal> {
    let number: u64 = core::str::from_utf8(cursor)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| "ERR invalid cursor".to_owned())?;
    match number {
        0 => Ok(0),
        _ if number >> PLACE_BITS == check => Ok(number & ((1 << PLACE_BITS) - 1)),
        _ => Err("ERR invalid cursor: it is of another store, or of none; begin again with 0".to_owned()),
    }
}

impl Keys {
    /// Looks at some keys. It ends before one that a short reply has no room for, unless that is its first.
    pub(super) fn scan(&self, args: &[&[u8]]) -> Result<Found<'_>, Refusal> {
        let check = self.stored.check();
        let scan = Scan::parse(check, args)?;
        let mut found = Found { cursor: 0, keys: Vec::new(), reply_bytes: HEAD_BYTES };
        let (mut seen, mut bytes) = (0, 0);
        // All keys of one place at once: the next call begins with the next place.
        let next = self.stored.scan(scan.from, |group| {
            if seen >= scan.count || bytes >= KEY_BYTES {
                return false;
            }
            let before = found.keys.len();
            let wanted = group.iter().filter(|(key, stored)| stored.is_valid(self.now) && scan.wants(key));
            found.keys.extend(wanted.map(|(key, _)| key));
            let more: usize = found.keys[before..].iter().map(|key| bulk_bytes(key.len())).sum();
            if before > 0 && found.reply_bytes + more > SHORT_BYTES_MAX {
                found.keys.truncate(before);
                return false;
            }
            found.reply_bytes += more;
            seen += group.len();
            bytes += group.iter().map(|(key, _)| key.len()).sum::<usize>();
            true
        });
        // The place is not 0: something precedes it.
        found.cursor = next.map_or(0, |next| check << PLACE_BITS | next);
        Ok(found)
    }
}

/// Characters of a pattern at most, a set of them counted as one: as many as states fit into a word.
const PATTERN_MAX: usize = 127;

/// A pattern as those of Redis: `*`, `?`, `[a-c]`, `[^a]`, and `\` before a character that stands for itself.
///
/// It is matched in one pass over a key, whatever both are: bit n of the state says that the first n
/// characters of the pattern match what was read.
struct Pattern {
    /// For each byte, the characters of the pattern that it fits.
    fits: Box<[u128; 256]>,
    /// The states in which any byte may follow, because there is a `*`.
    stays: u128,
    len: usize,
}

impl Pattern {
    fn parse(mut text: &[u8]) -> Result<Self, Refusal> {
        let mut pattern = Self { fits: Box::new([0; 256]), stays: 0, len: 0 };
        while let Some((&first, rest)) = text.split_first() {
            text = rest;
            if first == b'*' {
                pattern.stays |= 1 << pattern.len;
                continue;
            }
            if pattern.len >= PATTERN_MAX {
                return Err(format!("ERR a pattern has at most {PATTERN_MAX} characters here"));
            }
            match first {
                b'?' => pattern.add(|_| true),
                b'[' => {
                    let (set, after) = set_of(text);
                    text = after;
                    pattern.add(|byte| set[usize::from(byte)]);
                }
                b'\\' if !rest.is_empty() => {
                    pattern.add(|byte| byte == rest[0]);
                    text = &rest[1..];
                }
                _ => pattern.add(|byte| byte == first),
            }
        }
        Ok(pattern)
    }

    /// Adds a character that some bytes fit.
    fn add(&mut self, fits: impl Fn(u8) -> bool) {
        for byte in (0..=u8::MAX).filter(|byte| fits(*byte)) {
            self.fits[usize::from(byte)] |= 1 << self.len;
        }
        self.len += 1;
    }

    fn matches(&self, text: &[u8]) -> bool {
        let mut state = 1;
        for &byte in text {
            state = (state & self.fits[usize::from(byte)]) << 1 | state & self.stays;
            if state == 0 {
                return false;
            }
        }
        state >> self.len & 1 == 1
    }
}

/// The bytes of a set, after its `[`, and what follows it.
fn set_of(mut text: &[u8]) -> ([bool; 256], &[u8]) {
    let mut set = [false; 256];
    let is_negated = text.first() == Some(&b'^');
    if is_negated {
        text = &text[1..];
    }
    loop {
        match text {
            [b'\\', one, rest @ ..] => {
                set[usize::from(*one)] = true;
                text = rest;
            }
            [b']', rest @ ..] => {
                text = rest;
                break;
            }
            [] => break,
            [first, b'-', last, rest @ ..] => {
                let (first, last) = (usize::from(*first), usize::from(*last));
                set[first.min(last)..=first.max(last)].fill(true);
                text = rest;
            }
            [one, rest @ ..] => {
                set[usize::from(*one)] = true;
                text = rest;
            }
        }
    }
    if is_negated {
        set = set.map(|is_in| !is_in);
    }
    (set, text)
}

#[cfg(test)]
mod tests;
