//! What each command does, with the replies and errors of Redis.

use super::staging::{self, VALUE_BYTES_MAX};
use super::{Access, Keys};

/// Bytes of the longest reply to a command that returns no value: an error that repeats what was sent.
const REPLY_BYTES: usize = 160;

/// Bytes of the longest name of a command.
const NAME_BYTES_MAX: usize = 9;
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
    Type,
    Scan,
    Set,
    Setnx,
    Setex,
    Psetex,
    Getset,
    Getdel,
    Getex,
    Append,
    Del,
    Incr,
    Incrby,
    Decr,
    Decrby,
    Expire,
    Pexpire,
    /// Of a time of day, which the front replaces by one from now.
    Expireat,
    Persist,
    Mset,
    Flush,
    /// The commands of a transaction.
    Exec,
    /// Of the front: see [`staging`].
    Stage,
    Run,
    ReadKept,
    Forget,
}

/// The commands with their names and what may follow them.
pub(super) const TABLE: &[(&str, Command, &str)] = &[
    ("APPEND", Command::Append, "key value"),
    ("DBSIZE", Command::Dbsize, ""),
    ("DECR", Command::Decr, "key"),
    ("DECRBY", Command::Decrby, "key by"),
    ("DEL", Command::Del, "key [key ...]"),
    ("EXEC", Command::Exec, ": the commands since MULTI take effect as one"),
    ("EXISTS", Command::Exists, "key [key ...]"),
    ("EXPIRE", Command::Expire, "key seconds [NX|XX] [GT|LT]"),
    ("EXPIREAT", Command::Expireat, "key unix-time [NX|XX] [GT|LT]"),
    ("FLUSHALL", Command::Flush, "[ASYNC|SYNC]"),
    ("FLUSHDB", Command::Flush, "[ASYNC|SYNC]"),
    ("GET", Command::Get, "key"),
    ("GETDEL", Command::Getdel, "key"),
    ("GETEX", Command::Getex, "key [EX s|PX ms|EXAT t|PXAT ms|PERSIST]"),
    ("GETSET", Command::Getset, "key value"),
    ("INCR", Command::Incr, "key"),
    ("INCRBY", Command::Incrby, "key by"),
    ("MGET", Command::Mget, "key [key ...]"),
    ("MSET", Command::Mset, "key value [key value ...]"),
    ("PERSIST", Command::Persist, "key"),
    ("PEXPIRE", Command::Pexpire, "key ms [NX|XX] [GT|LT]"),
    ("PEXPIREAT", Command::Expireat, "key unix-time-ms [NX|XX] [GT|LT]"),
    ("PSETEX", Command::Psetex, "key ms value"),
    ("PTTL", Command::Pttl, "key"),
    ("SCAN", Command::Scan, "cursor [MATCH pattern] [COUNT n] [TYPE type]"),
    ("SET", Command::Set, "key value [NX|XX] [GET] [EX s|PX ms|EXAT t|PXAT ms|KEEPTTL]"),
    ("SETEX", Command::Setex, "key seconds value"),
    ("SETNX", Command::Setnx, "key value"),
    ("STRLEN", Command::Strlen, "key"),
    ("TTL", Command::Ttl, "key"),
    ("TYPE", Command::Type, "key"),
    ("UNLINK", Command::Del, "key [key ...]"),
];

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
            b"TYPE" => Self::Type,
            b"SCAN" => Self::Scan,
            b"SET" => Self::Set,
            b"SETNX" => Self::Setnx,
            b"SETEX" => Self::Setex,
            b"PSETEX" => Self::Psetex,
            b"GETSET" => Self::Getset,
            b"GETDEL" => Self::Getdel,
            b"GETEX" => Self::Getex,
            b"APPEND" => Self::Append,
            b"DEL" | b"UNLINK" => Self::Del,
            b"INCR" => Self::Incr,
            b"INCRBY" => Self::Incrby,
            b"DECR" => Self::Decr,
            b"DECRBY" => Self::Decrby,
            b"EXPIRE" => Self::Expire,
            b"PEXPIRE" => Self::Pexpire,
            b"EXPIREAT" | b"PEXPIREAT" => Self::Expireat,
            b"PERSIST" => Self::Persist,
            b"MSET" => Self::Mset,
            b"FLUSHALL" | b"FLUSHDB" => Self::Flush,
            b"EXEC" => Self::Exec,
            staging::STAGE => Self::Stage,
            staging::RUN => Self::Run,
            staging::READ => Self::ReadKept,
            staging::DROP => Self::Forget,
            _ => return None,
        })
    }

    pub(super) const fn access(self) -> Access {
        match self {
            Self::Get
            | Self::Exists
            | Self::Ttl
            | Self::Pttl
            | Self::Mget
            | Self::Dbsize
            | Self::Strlen
            | Self::Type
            | Self::Scan
            | Self::ReadKept => Access::Read,
            _ => Access::Write,
        }
    }
}

impl Command {
    /// Whether only the front sends it.
    pub(super) const fn is_staging(self) -> bool {
        matches!(self, Self::Stage | Self::Run | Self::ReadKept | Self::Forget)
    }

    /// Whether it may need memory.
    pub(super) const fn grows(self) -> bool {
        let frees = matches!(
            self,
            Self::Del
                | Self::Expire
                | Self::Pexpire
                | Self::Persist
                | Self::Flush
                | Self::Getdel
                | Self::Getex
                // That of the command which it executes is asked for there.
                | Self::Run
                | Self::Forget
        );
        matches!(self.access(), Access::Write) && !frees
    }
}

/// An error as Redis words it.
pub(super) type Refusal = String;

fn wrong_arity(name: &[u8]) -> Refusal {
    let name = String::from_utf8_lossy(name).to_lowercase();
    format!("ERR wrong number of arguments for '{name}' command")
}

/// How many arguments a command has, by what may follow its name: at least, and at most.
fn arity(usage: &str) -> (usize, usize) {
    let needed = usage.split_whitespace().take_while(|word| !word.starts_with('[')).count();
    (needed, if usage.contains('[') { usize::MAX } else { needed })
}

/// Why a command cannot be part of a transaction; `None` if it can. One that removes all keys could not be
/// undone when there is no room for a reply.
pub(super) fn refused_in_transaction(args: &[&[u8]]) -> Option<Refusal> {
    let (name, rest) = args.split_first()?;
    let Some(command) = Command::of(name).filter(|command| !command.is_staging()) else {
        let name = short(&name.to_ascii_uppercase());
        return Some(format!("ERR unknown command '{name}', or one that cannot be part of a transaction"));
    };
    if matches!(command, Command::Flush | Command::Exec) {
        let name = String::from_utf8_lossy(name).to_uppercase();
        return Some(format!("ERR {name} cannot be part of a transaction"));
    }
    let usage = TABLE.iter().find(|(known, ..)| name.eq_ignore_ascii_case(known.as_bytes())).map(|row| row.2);
    let (least, most) = arity(usage.unwrap_or_default());
    (!(least..=most).contains(&rest.len())).then(|| wrong_arity(name))
}

pub(super) fn syntax() -> Refusal {
    "ERR syntax error".to_owned()
}

pub(super) fn integer(text: &[u8]) -> Result<i64, Refusal> {
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

/// The head of an array.
pub(super) fn put_count(count: usize, out: &mut Vec<u8>) {
    put_number(b'*', count as i64, out);
}

fn put_number(kind: u8, number: i64, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(Decimal::of(number).text());
    out.extend_from_slice(b"\r\n");
}

/// Bytes of a length or count with its kind and its end.
const fn head_bytes(count: usize) -> usize {
    let digits = match count.checked_ilog10() {
        Some(tens) => tens as usize + 1,
        None => 1,
    };
    1 + digits + 2
}

/// Bytes that [`put_bulk`] writes for a value of this length, and at least those for none.
pub(super) const fn bulk_bytes(len: usize) -> usize {
    head_bytes(len) + len + 2
}

pub(super) fn put_bulk(value: Option<&[u8]>, out: &mut Vec<u8>) {
    match value {
        None => out.extend_from_slice(b"$-1\r\n"),
        Some(value) => {
            put_number(b'$', value.len() as i64, out);
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[derive(Default)]
struct SetOptions {
    if_absent: bool,
    if_present: bool,
    get: bool,
    keep: bool,
    /// When it expires; one that has passed is not later than the time of the entry.
    until: Option<u64>,
}

/// The time after a span that a client gave; `unit` is its unit in milliseconds.
fn deadline(now: u64, span: &[u8], unit: i64, name: &str) -> Result<u64, Refusal> {
    let invalid = || format!("ERR invalid expire time in '{name}' command");
    let span = integer(span)?;
    if span <= 0 {
        return Err(invalid());
    }
    let until = span.checked_mul(unit).and_then(|span| span.checked_add(i64::try_from(now).ok()?));
    until.and_then(|until| u64::try_from(until).ok()).ok_or_else(invalid)
}

/// In the place of every time of day that has passed, which clients cannot send: see [`from_now`].
const PASSED: [&[u8]; 2] = [b"PXAT", b"0"];

/// Which deadlines EXPIRE may replace: all conditions have to hold.
#[derive(Clone, Copy, Default)]
struct Replaces {
    /// Only that of a key which has none.
    none: bool,
    /// Only one that is there.
    some: bool,
    earlier: bool,
    later: bool,
}

impl Replaces {
    fn parse(options: &[&[u8]]) -> Result<Self, Refusal> {
        let mut all = Self::default();
        for one in options {
            match &one.to_ascii_uppercase()[..] {
                b"NX" => all.none = true,
                b"XX" => all.some = true,
                b"GT" => all.earlier = true,
                b"LT" => all.later = true,
                _ => return Err(format!("ERR Unsupported option {}", short(one))),
            }
        }
        if all.none && (all.some || all.earlier || all.later) {
            return Err("ERR NX and XX, GT or LT options at the same time are not compatible".to_owned());
        }
        if all.earlier && all.later {
            return Err("ERR GT and LT options at the same time are not compatible".to_owned());
        }
        Ok(all)
    }

    /// Whether a deadline may take the place of this one, 0 for never. `None` has already passed.
    fn allow(self, before: u64, next: Option<u64>) -> bool {
        let next = next.unwrap_or(0);
        (!self.none || before == 0)
            && (!self.some || before != 0)
            && (!self.earlier || before != 0 && next > before)
            && (!self.later || before == 0 || next < before)
    }
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
                name if name == PASSED[0] && args.first() == Some(&PASSED[1]) => {
                    if options.until.replace(0).is_some() {
                        return Err(syntax());
                    }
                    args = &args[1..];
                }
                _ => return Err(syntax()),
            }
        }
        let is_clear = !(options.if_absent && options.if_present || options.keep && options.until.is_some());
        if is_clear { Ok(options) } else { Err(syntax()) }
    }
}

impl Keys {
    /// Bytes of the longest reply to a command. For one that returns a value it is exact: whatever one
    /// command can store, another one can return.
    pub(super) fn reply_bytes(&self, command: Option<Command>, args: &[&[u8]]) -> usize {
        let returned = |key: &&[u8]| bulk_bytes(self.get(key).map_or(0, <[u8]>::len));
        let values = match command {
            Some(Command::Get | Command::Getset | Command::Getdel | Command::Getex) => {
                args.get(1).map_or(0, returned)
            }
            // Only with options does it return a value.
            Some(Command::Set) if args.len() > 3 => args.get(1).map_or(0, returned),
            Some(Command::Mget) => head_bytes(args.len()) + args.iter().skip(1).map(returned).sum::<usize>(),
            Some(Command::ReadKept) => self.staging.read(&args[1..]).map_or(0, <[u8]>::len),
            Some(Command::Scan) => self.scan(&args[1..]).map_or(0, |found| found.reply_bytes),
            _ => 0,
        };
        // With the right number of arguments these fail never.
        let is_exact = match command {
            Some(Command::Get | Command::Getdel) => args.len() == 2,
            Some(Command::Mget) => args.len() > 1,
            Some(Command::ReadKept) => self.staging.read(&args[1..]).is_ok(),
            Some(Command::Scan) => values > 0,
            _ => false,
        };
        if is_exact { values } else { values.max(REPLY_BYTES) }
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
            (Command::Expire, [key, span, options @ ..]) => self.expire(key, span, 1000, options, out)?,
            (Command::Pexpire, [key, span, options @ ..]) => self.expire(key, span, 1, options, out)?,
            // What the front understands arrives as one of those.
            (Command::Expireat, [_, time, ..]) => {
                integer(time)?;
                return Err("ERR a time of day needs the server that the client is connected to".to_owned());
            }
            (Command::Persist, [key]) => {
                let had = self.until(key).is_some_and(|until| until != 0);
                self.expires(key, 0);
                put_integer(i64::from(had), out);
            }
            (Command::Setnx, [key, value]) => {
                let is_new = self.get(key).is_none();
                if is_new {
                    self.set(key, value, 0);
                }
                put_integer(i64::from(is_new), out);
            }
            (Command::Setex, [key, span, value]) => {
                let until = deadline(self.now, span, 1000, "setex")?;
                self.set(key, value, until);
                out.extend_from_slice(b"+OK\r\n");
            }
            (Command::Psetex, [key, span, value]) => {
                let until = deadline(self.now, span, 1, "psetex")?;
                self.set(key, value, until);
                out.extend_from_slice(b"+OK\r\n");
            }
            (Command::Getset, [key, value]) => {
                put_bulk(self.get(key), out);
                self.set(key, value, 0);
            }
            (Command::Getdel, [key]) => {
                put_bulk(self.get(key), out);
                self.remove(key);
            }
            (Command::Getex, [key, passed @ ..]) if *passed == PASSED => {
                put_bulk(self.get(key), out);
                self.remove(key);
            }
            (Command::Getex, [key, options @ ..]) => {
                let until = match options {
                    [] => None,
                    [one] if one.eq_ignore_ascii_case(b"PERSIST") => Some(0),
                    [one, span] if one.eq_ignore_ascii_case(b"EX") => {
                        Some(deadline(self.now, span, 1000, "getex")?)
                    }
                    [one, span] if one.eq_ignore_ascii_case(b"PX") => {
                        Some(deadline(self.now, span, 1, "getex")?)
                    }
                    _ => return Err(syntax()),
                };
                put_bulk(self.get(key), out);
                if let Some(until) = until {
                    self.expires(key, until);
                }
            }
            (Command::Append, [key, more]) => {
                let before = self.get(key).unwrap_or_default();
                let len = before.len() + more.len();
                if len > VALUE_BYTES_MAX {
                    return Err(format!(
                        "ERR a value has at most {VALUE_BYTES_MAX} bytes here, this one {len}"
                    ));
                }
                let value = [before, more].concat();
                let until = self.until(key).unwrap_or(0);
                self.set(key, &value, until);
                put_integer(len as i64, out);
            }
            (Command::Stage, piece) => {
                self.staging.stage(self.now, piece)?;
                out.extend_from_slice(b"+OK\r\n");
            }
            (Command::Forget, id) => {
                self.staging.forget(id)?;
                out.extend_from_slice(b"+OK\r\n");
            }
            (Command::Flush, [how]) if !is_how_to_flush(how) => return Err(syntax()),
            (Command::Flush, [] | [_]) => {
                self.clear();
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
        if is_allowed && options.until.is_some_and(|until| until <= self.now) {
            self.remove(key);
        } else if is_allowed {
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
                self.bytes -= stored.value.len() as u64;
                stored.replace(Decimal::of(sum).text());
                self.bytes += stored.value.len() as u64;
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

    fn expire(
        &mut self,
        key: &[u8],
        span: &[u8],
        unit: i64,
        options: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let name = if unit == 1 { "pexpire" } else { "expire" };
        let is_past = integer(span)? <= 0;
        let replaces = Replaces::parse(options)?;
        let until = if is_past { None } else { Some(deadline(self.now, span, unit, name)?) };
        let before = self.until(key).filter(|before| replaces.allow(*before, until));
        match (before, until) {
            (None, _) => {}
            (Some(_), None) => drop(self.remove(key)),
            (Some(_), Some(until)) => self.expires(key, until),
        }
        put_integer(i64::from(before.is_some()), out);
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
                put_count(keys.len(), out);
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
            (Command::Type, [key]) => {
                let kind: &[u8] = if self.get(key).is_some() { b"+string\r\n" } else { b"+none\r\n" };
                out.extend_from_slice(kind);
            }
            (Command::Scan, what) => self.scan(what)?.put(out),
            (Command::ReadKept, what) => out.extend_from_slice(self.staging.read(what)?),
            (Command::Dbsize, []) => put_integer(self.len() as i64, out),
            _ => return Err(wrong_arity(name)),
        }
        Ok(())
    }
}

/// The same command with a time from now instead of a time of day, if it has one. Replicas know no time
/// of day: that of the host which is asked counts, once.
pub(super) fn from_now<'a>(
    args: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    unix_ms: impl FnOnce() -> u64,
) -> Option<Vec<Vec<u8>>> {
    let command = args.clone().next().and_then(Command::of)?;
    let is_optional = matches!(command, Command::Set | Command::Getex) && args.len() > 3;
    if command != Command::Expireat && !is_optional {
        return None;
    }
    let mut all: Vec<Vec<u8>> = args.map(<[u8]>::to_vec).collect();
    let unix_ms = i64::try_from(unix_ms()).ok()?;
    let left = |time: &[u8], unit: i64| integer(time).ok()?.checked_mul(unit)?.checked_sub(unix_ms);
    if command == Command::Expireat {
        let unit = if all[0].len() == b"EXPIREAT".len() { 1000 } else { 1 };
        let span = left(all.get(2)?, unit)?;
        (all[0], all[2]) = (b"PEXPIRE".to_vec(), span.to_string().into_bytes());
        return Some(all);
    }
    let first = if command == Command::Set { 3 } else { 2 };
    let mut any = false;
    for n in first..all.len() - 1 {
        let unit = match &all[n].to_ascii_uppercase()[..] {
            b"EXAT" => 1000,
            b"PXAT" => 1,
            _ => continue,
        };
        // What can be no time is refused as such.
        let is_time = integer(&all[n + 1]).ok()? > 0;
        let span = if is_time { left(&all[n + 1], unit)? } else { 0 };
        let by = if is_time && span <= 0 {
            PASSED.map(<[u8]>::to_vec)
        } else {
            [b"PX".to_vec(), span.to_string().into_bytes()]
        };
        ([all[n], all[n + 1]], any) = (by, true);
    }
    any.then_some(all)
}

/// Whether FLUSHALL may have this argument. What it says makes no difference here.
fn is_how_to_flush(text: &[u8]) -> bool {
    text.eq_ignore_ascii_case(b"ASYNC") || text.eq_ignore_ascii_case(b"SYNC")
}

/// At most so much of what a client sent is repeated in an error.
fn short(name: &[u8]) -> String {
    let name = name.escape_ascii().to_string();
    name.chars().take(64).collect()
}
