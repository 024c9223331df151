//! What each command does, with the replies and errors of Redis.

use super::{Access, Keys};

/// Bytes of the longest reply to a command, with its length, besides values.
const REPLY_BYTES: usize = 160;

/// Bytes of the longest name of a command.
const NAME_BYTES_MAX: usize = 8;

/// A command that the store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Get,
    Exists,
    Ttl,
    Pttl,
    Mget,
    Dbsize,
    Strlen,
    Set,
    Del,
    Incr,
    Incrby,
    Decr,
    Decrby,
    Expire,
    Pexpire,
    Persist,
    Mset,
    Flush,
}

impl Command {
    /// By its name, in any case.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        let mut upper = [0; NAME_BYTES_MAX];
        let upper = upper.get_mut(..name.len())?;
        upper.copy_from_slice(name);
        upper.make_ascii_uppercase();
        Some(match &*upper {
            b"GET" => Self::Get,
            b"EXISTS" => Self::Exists,
            b"TTL" => Self::Ttl,
            b"PTTL" => Self::Pttl,
            b"MGET" => Self::Mget,
            b"DBSIZE" => Self::Dbsize,
            b"STRLEN" => Self::Strlen,
            b"SET" => Self::Set,
            b"DEL" => Self::Del,
            b"INCR" => Self::Incr,
            b"INCRBY" => Self::Incrby,
            b"DECR" => Self::Decr,
            b"DECRBY" => Self::Decrby,
            b"EXPIRE" => Self::Expire,
            b"PEXPIRE" => Self::Pexpire,
            b"PERSIST" => Self::Persist,
            b"MSET" => Self::Mset,
            b"FLUSHALL" | b"FLUSHDB" => Self::Flush,
            _ => return None,
        })
    }

    pub(super) const fn access(self) -> Access {
        match self {
            Self::Get | Self::Exists | Self::Ttl | Self::Pttl | Self::Mget | Self::Dbsize | Self::Strlen => {
                Access::Read
            }
            _ => Access::Write,
        }
    }
}

/// An error as Redis words it.
pub(super) type Refusal = String;

fn wrong_arity(name: &[u8]) -> Refusal {
    let name = String::from_utf8_lossy(name).to_lowercase();
    format!("ERR wrong number of arguments for '{name}' command")
}

fn syntax() -> Refusal {
    "ERR syntax error".to_owned()
}

fn integer(text: &[u8]) -> Result<i64, Refusal> {
    // As in Redis: no plus sign, no leading zeros, no spaces.
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_plain = text == b"0" || digits.first().is_some_and(|first| matches!(first, b'1'..=b'9'));
    let number = core::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.filter(|_| is_plain).ok_or_else(|| "ERR value is not an integer or out of range".to_owned())
}

/// A number in decimal digits.
struct Decimal {
    bytes: [u8; 20],
    begin: usize,
}

impl Decimal {
    fn of(number: i64) -> Self {
        let (mut bytes, mut begin) = ([0; 20], 20);
        let mut rest = number.unsigned_abs();
        loop {
            begin -= 1;
            bytes[begin] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        // A number of 64 bits has at most 19 digits.
        if number < 0 {
            begin -= 1;
            bytes[begin] = b'-';
        }
        Self { bytes, begin }
    }

    fn text(&self) -> &[u8] {
        &self.bytes[self.begin..]
    }
}

fn put_integer(number: i64, out: &mut Vec<u8>) {
    put_number(b':', number, out);
}

fn put_number(kind: u8, number: i64, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(Decimal::of(number).text());
    out.extend_from_slice(b"\r\n");
}

fn put_bulk(value: Option<&[u8]>, out: &mut Vec<u8>) {
    match value {
        None => out.extend_from_slice(b"$-1\r\n"),
        Some(value) => {
            put_number(b'$', value.len() as i64, out);
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Options of SET.
#[derive(Default)]
struct SetOptions {
    if_absent: bool,
    if_present: bool,
    get: bool,
    keep: bool,
    /// When it expires.
    until: Option<u64>,
}

/// The time after a span that a client gave, in units of so many milliseconds.
fn deadline(now: u64, span: &[u8], unit: i64, name: &str) -> Result<u64, Refusal> {
    let invalid = || format!("ERR invalid expire time in '{name}' command");
    let span = integer(span)?;
    if span <= 0 {
        return Err(invalid());
    }
    let until = span.checked_mul(unit).and_then(|span| span.checked_add(i64::try_from(now).ok()?));
    until.and_then(|until| u64::try_from(until).ok()).ok_or_else(invalid)
}

impl SetOptions {
    fn parse(now: u64, mut args: &[&[u8]]) -> Result<Self, Refusal> {
        let mut options = Self::default();
        while let [first, rest @ ..] = args {
            args = rest;
            match &first.to_ascii_uppercase()[..] {
                b"NX" => options.if_absent = true,
                b"XX" => options.if_present = true,
                b"GET" => options.get = true,
                b"KEEPTTL" => options.keep = true,
                name @ (b"EX" | b"PX") => {
                    let (span, rest) = args.split_first().ok_or_else(syntax)?;
                    let unit = if name == b"EX" { 1000 } else { 1 };
                    if options.until.replace(deadline(now, span, unit, "set")?).is_some() {
                        return Err(syntax());
                    }
                    args = rest;
                }
                _ => return Err(syntax()),
            }
        }
        let is_clear = !(options.if_absent && options.if_present || options.keep && options.until.is_some());
        if is_clear { Ok(options) } else { Err(syntax()) }
    }
}

impl Keys {
    /// The longest reply to a command.
    pub(super) fn reply_bytes(&self, command: Option<Command>, args: &[&[u8]]) -> usize {
        let returned = |key: &&[u8]| self.get(key).map_or(0, <[u8]>::len) + 16;
        let values = match command {
            Some(Command::Get) => args.get(1).map_or(0, returned),
            // Only with options does it return a value.
            Some(Command::Set) if args.len() > 3 => args.get(1).map_or(0, returned),
            Some(Command::Mget) => args.iter().skip(1).map(returned).sum(),
            _ => 0,
        };
        values + if values == 0 { REPLY_BYTES } else { 16 }
    }

    pub(super) fn execute(
        &mut self,
        command: Option<Command>,
        args: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let Some((name, rest)) = args.split_first() else { return Err(syntax()) };
        let Some(command) = command else {
            return Err(format!("ERR unknown command '{}'", short(&name.to_ascii_uppercase())));
        };
        match (command, rest) {
            (Command::Set, [key, value, options @ ..]) => return self.execute_set(key, value, options, out),
            (Command::Mset, pairs) if !pairs.is_empty() && pairs.len().is_multiple_of(2) => {
                for pair in pairs.chunks_exact(2) {
                    self.set(pair[0], pair[1], 0);
                }
                out.extend_from_slice(b"+OK\r\n");
            }
            (Command::Del, keys) if !keys.is_empty() => {
                let count = keys.iter().filter(|key| self.remove(key)).count();
                put_integer(count as i64, out);
            }
            (Command::Incr, [key]) => self.add(key, 1, out)?,
            (Command::Decr, [key]) => self.add(key, -1, out)?,
            (Command::Incrby, [key, by]) => self.add(key, integer(by)?, out)?,
            (Command::Decrby, [key, by]) => {
                let by = integer(by)?.checked_neg().ok_or("ERR decrement would overflow")?;
                self.add(key, by, out)?;
            }
            (Command::Expire, [key, span]) => self.expire(key, span, 1000, out)?,
            (Command::Pexpire, [key, span]) => self.expire(key, span, 1, out)?,
            (Command::Persist, [key]) => {
                let value = self.stored.get(key).filter(|stored| stored.until != 0);
                let value = value.map(|stored| stored.value.clone());
                if let Some(value) = &value {
                    self.set(key, value, 0);
                }
                put_integer(i64::from(value.is_some()), out);
            }
            (Command::Flush, [] | [_]) => {
                self.stored.clear();
                self.deadlines.clear();
                out.extend_from_slice(b"+OK\r\n");
            }
            _ if command.access() == Access::Read => return self.query(self.now, command, args, out),
            _ => return Err(wrong_arity(name)),
        }
        Ok(())
    }

    fn execute_set(
        &mut self,
        key: &[u8],
        value: &[u8],
        options: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let options = SetOptions::parse(self.now, options)?;
        // A SET without options needs no look at what is there.
        let needs_before = options.if_absent || options.if_present || options.keep;
        let before = if needs_before { self.until(key) } else { None };
        if options.get {
            put_bulk(self.get(key), out);
        }
        let is_allowed = before.is_some() && !options.if_absent || before.is_none() && !options.if_present;
        if is_allowed {
            let kept = before.filter(|_| options.keep).unwrap_or(0);
            self.set(key, value, options.until.unwrap_or(kept));
        }
        if !options.get && is_allowed {
            out.extend_from_slice(b"+OK\r\n");
        } else if !options.get {
            put_bulk(None, out);
        }
        Ok(())
    }

    fn add(&mut self, key: &[u8], by: i64, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let sum = |before: i64| before.checked_add(by).ok_or("ERR increment or decrement would overflow");
        let sum = match self.stored.get_mut(key) {
            Some(stored) => {
                let sum = sum(integer(&stored.value)?)?;
                stored.replace(Decimal::of(sum).text());
                sum
            }
            None => {
                self.set(key, Decimal::of(by).text(), 0);
                by
            }
        };
        put_integer(sum, out);
        Ok(())
    }

    fn expire(&mut self, key: &[u8], span: &[u8], unit: i64, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let name = if unit == 1 { "pexpire" } else { "expire" };
        let is_past = integer(span)? <= 0;
        let Some(value) = self.stored.get(key).map(|stored| stored.value.clone()) else {
            put_integer(0, out);
            return Ok(());
        };
        if is_past {
            self.remove(key);
        } else {
            self.set(key, &value, deadline(self.now, span, unit, name)?);
        }
        put_integer(1, out);
        Ok(())
    }

    /// A command that only reads, at this time.
    pub(super) fn query(
        &self,
        now: u64,
        command: Command,
        args: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let Some((name, rest)) = args.split_first() else { return Err(syntax()) };
        match (command, rest) {
            (Command::Get, [key]) => put_bulk(self.get(key), out),
            (Command::Strlen, [key]) => put_integer(self.get(key).map_or(0, <[u8]>::len) as i64, out),
            (Command::Mget, keys) if !keys.is_empty() => {
                put_number(b'*', keys.len() as i64, out);
                for key in keys {
                    put_bulk(self.get(key), out);
                }
            }
            (Command::Exists, keys) if !keys.is_empty() => {
                let count = keys.iter().filter(|key| self.stored.get(key).is_some()).count();
                put_integer(count as i64, out);
            }
            (Command::Ttl | Command::Pttl, [key]) => {
                let left = |until: u64| i64::try_from(until.saturating_sub(now)).unwrap_or(i64::MAX);
                let left = match self.until(key) {
                    None => -2,
                    Some(0) => -1,
                    Some(until) if command == Command::Pttl => left(until),
                    Some(until) => left(until).saturating_add(500) / 1000,
                };
                put_integer(left, out);
            }
            (Command::Dbsize, []) => put_integer(self.len() as i64, out),
            _ => return Err(wrong_arity(name)),
        }
        Ok(())
    }
}

/// At most so much of what a client sent is repeated in an error.
fn short(name: &[u8]) -> String {
    let name = name.escape_ascii().to_string();
    name.chars().take(64).collect()
}
