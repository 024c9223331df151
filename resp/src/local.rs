//! Commands of Redis that need no state: the server answers them itself.

use super::admission::Password;
use super::time_of_day::as_stored;
use obol_smr::{Access, PAYLOAD_BYTES_MAX, Transaction};
use std::cell::Cell;

/// Ends a transaction. The server answers it where there is none, or nothing to execute.
const EXEC: &[u8] = b"EXEC";

/// The commands between MULTI and EXEC.
#[derive(Default)]
struct Queued {
    transaction: Transaction,
    /// One of them was refused, so none will take effect.
    is_aborted: bool,
    /// EXEC is in a batch.
    is_sent: bool,
}

/// What a connection has agreed on with its client.
pub(super) struct Session {
    /// Its number, from 1.
    id: u64,
    /// The client understands RESP3.
    pub(super) is_resp3: bool,
    /// How the client calls itself; empty for nothing.
    name: Vec<u8>,
    /// It has sent the password, or needs none.
    pub(super) is_admitted: bool,
    /// The commands since MULTI.
    queued: Option<Queued>,
    /// What the operator should know of its client.
    pub(super) event: Option<&'static str>,
}

impl Session {
    pub(super) const fn new(id: u64, is_admitted: bool) -> Self {
        Self { id, is_resp3: false, name: Vec::new(), is_admitted, queued: None, event: None }
    }

    /// What a command needs of the store, which it gets now; `None` if the server answers it.
    pub(super) fn access<'a>(&self, mut args: impl ExactSizeIterator<Item = &'a [u8]>) -> Option<Access> {
        let (count, name) = (args.len(), args.next()?);
        let is_exec = name.eq_ignore_ascii_case(EXEC);
        let has_transaction = || {
            self.queued.as_ref().is_some_and(|queued| !queued.is_aborted && !queued.transaction.is_empty())
        };
        if is_exec && !(count == 1 && has_transaction()) || !is_exec && self.queued.is_some() {
            return None;
        }
        obol_smr::access(name).filter(|_| self.is_admitted)
    }

    /// The arguments that EXEC has in a batch, if it is the next command.
    pub(super) fn transaction(&self) -> Option<&[Vec<u8>]> {
        self.queued.as_ref().map(|queued| queued.transaction.args())
    }

    /// EXEC is in a batch, or is not any more: nothing after it is taken meanwhile.
    pub(super) const fn send_transaction(&mut self, is_sent: bool) {
        if let Some(queued) = &mut self.queued {
            queued.is_sent = is_sent;
        }
    }

    /// Whether EXEC is in a batch.
    pub(super) fn has_sent_transaction(&self) -> bool {
        self.queued.as_ref().is_some_and(|queued| queued.is_sent)
    }

    /// EXEC has its reply.
    pub(super) fn end_transaction(&mut self) {
        self.queued = None;
    }

    /// As CLIENT LIST shows it.
    pub(super) fn shown(&self, address: &str, age_s: u64) -> String {
        let (id, name, resp) = (self.id, String::from_utf8_lossy(&self.name), 2 + u8::from(self.is_resp3));
        format!("id={id} addr={address} name={name} age={age_s} db=0 user=default resp={resp}\n")
    }
}

/// What the server knows of itself.
pub(super) struct Setting<'a> {
    pub(super) password: Option<&'a Password>,
    pub(super) info: &'a dyn Fn() -> String,
    /// Why the store cannot serve, if so.
    pub(super) down: Option<&'a str>,
    /// Somebody has asked whether it does.
    pub(super) asked: &'a Cell<bool>,
    /// No long command is taken, because too many bytes of others wait.
    pub(super) is_crowded: bool,
}

/// An answer without the store.
pub(super) enum Local {
    Reply(Vec<u8>),
    /// The connection ends after it.
    Quit,
    /// What CLIENT LIST or INFO shows of this connection, or of all.
    List {
        /// Of this one alone.
        own: bool,
    },
}

impl Queued {
    /// The reply to a command after MULTI, and whether the transaction is over without EXEC.
    fn take(&mut self, name: &[u8], args: &[&[u8]]) -> (Vec<u8>, bool) {
        match (name, args) {
            (b"DISCARD", [_]) => (ok(), true),
            (EXEC, [_]) if self.is_aborted => {
                (error("EXECABORT Transaction discarded because of previous errors."), true)
            }
            (EXEC, [_]) => (b"*0\r\n".to_vec(), true),
            (b"MULTI", [_]) => (error("ERR MULTI calls can not be nested"), false),
            (b"WATCH", _) => (error("ERR WATCH inside MULTI is not allowed"), false),
            _ => (self.push(args).map_or_else(|why| error(&why), |()| b"+QUEUED\r\n".to_vec()), false),
        }
    }

    fn push(&mut self, args: &[&[u8]]) -> Result<(), String> {
        let refused = obol_smr::refused_in_transaction(args);
        let is_pushed = refused.is_none()
            && match as_stored(args.iter().copied()) {
                Some(args) => self.transaction.push(args.iter().map(Vec::as_slice)),
                None => self.transaction.push(args.iter().copied()),
            };
        self.is_aborted |= !is_pushed;
        match refused {
            Some(why) => Err(why),
            None if is_pushed => Ok(()),
            None => Err(format!(
                "ERR the commands of a transaction have at most {PAYLOAD_BYTES_MAX} bytes here, with lengths"
            )),
        }
    }
}

fn bulk(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("${}\r\n", text.len()).as_bytes());
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// An error for the client, without line ends from what it sent.
pub(super) fn error(text: &str) -> Vec<u8> {
    format!("-{}\r\n", text.replace(['\r', '\n'], " ")).into_bytes()
}

/// Bytes of the longest name of a client.
const NAME_BYTES_MAX: usize = 128;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Nothing, in the client's version of the protocol.
const fn nil(session: &Session) -> &'static [u8] {
    if session.is_resp3 { b"_\r\n" } else { b"$-1\r\n" }
}

/// Names with values.
fn map(pairs: &[(&str, Vec<u8>)], session: &Session) -> Vec<u8> {
    let (kind, count) = if session.is_resp3 { ('%', pairs.len()) } else { ('*', 2 * pairs.len()) };
    let mut out = format!("{kind}{count}\r\n").into_bytes();
    for (name, value) in pairs {
        bulk(name.as_bytes(), &mut out);
        out.extend_from_slice(value);
    }
    out
}

fn text(of: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    bulk(of, &mut out);
    out
}

/// Appends a reply of the store, which is in RESP2, in the client's version of the protocol: they differ
/// in what stands for nothing.
pub(super) fn put_reply(reply: &[u8], session: &Session, out: &mut Vec<u8>) {
    if !session.is_resp3 {
        return out.extend_from_slice(reply);
    }
    let mut rest = reply;
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let (line, after) = rest.split_at(end + 2);
        // The value after its length has any bytes.
        let len = match line {
            b"$-1\r\n" => None,
            [b'$', len @ .., b'\r', b'\n'] => core::str::from_utf8(len).ok().and_then(|len| len.parse().ok()),
            _ => Some(0),
        };
        let value = len.map_or(0, |len: usize| if line[0] == b'$' { len + 2 } else { 0 });
        let value = value.min(after.len());
        out.extend_from_slice(if len.is_none() { b"_\r\n" } else { line });
        out.extend_from_slice(&after[..value]);
        rest = &after[value..];
    }
}

fn ok() -> Vec<u8> {
    b"+OK\r\n".to_vec()
}

fn hello(rest: &[&[u8]], session: &mut Session, setting: &Setting<'_>) -> Vec<u8> {
    let (is_resp3, mut options) = match rest {
        [] => (session.is_resp3, rest),
        [b"2", options @ ..] => (false, options),
        [b"3", options @ ..] => (true, options),
        [version, ..] if version.iter().all(u8::is_ascii_digit) => {
            return error("NOPROTO unsupported protocol version");
        }
        _ => return error("ERR Protocol version is not an integer or out of range"),
    };
    while let [option, more @ ..] = options {
        options = match (&option.to_ascii_uppercase()[..], more) {
            (b"AUTH", [user, password, more @ ..]) => {
                if let Err(why) = admit(user, password, session, setting) {
                    return error(why);
                }
                more
            }
            (b"SETNAME", [name, more @ ..]) => {
                if let Err(why) = set_name(name, session) {
                    return error(why);
                }
                more
            }
            _ => return error(&format!("ERR Syntax error in HELLO option '{}'", shown(option))),
        };
    }
    if !session.is_admitted {
        return error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
             <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        );
    }
    session.is_resp3 = is_resp3;
    let number = |number: u64| format!(":{number}\r\n").into_bytes();
    map(
        &[
            ("server", text(b"obol")),
            ("version", text(VERSION.as_bytes())),
            ("proto", number(2 + u64::from(is_resp3))),
            ("id", number(session.id)),
            ("mode", text(b"standalone")),
            ("role", text(b"master")),
            ("modules", b"*0\r\n".to_vec()),
        ],
        session,
    )
}

/// Keeps the name that a client gives itself.
fn set_name(name: &[u8], session: &mut Session) -> Result<(), &'static str> {
    if name.len() > NAME_BYTES_MAX || name.iter().any(|byte| !(b'!'..=b'~').contains(byte)) {
        return Err("ERR Client names cannot contain spaces, newlines or special characters.");
    }
    session.name = name.to_vec();
    Ok(())
}

/// Compares what a client has sent with the password.
fn admit(
    user: &[u8],
    given: &[u8],
    session: &mut Session,
    setting: &Setting<'_>,
) -> Result<(), &'static str> {
    let Some(password) = setting.password else {
        return Err("ERR Client sent AUTH, but no password is set");
    };
    // A wrong one ends what a right one had allowed, so that no program relies on it by accident.
    session.is_admitted = password.fits(user, given);
    if session.is_admitted {
        return Ok(());
    }
    session.event = Some("it has sent a wrong password");
    Err("WRONGPASS invalid username-password pair or user is disabled.")
}

fn auth(rest: &[&[u8]], session: &mut Session, setting: &Setting<'_>) -> Vec<u8> {
    let admitted = match rest {
        [password] => admit(Password::user(), password, session, setting),
        [user, password] => admit(user, password, session, setting),
        _ => Err("ERR wrong number of arguments for 'auth' command"),
    };
    admitted.map_or_else(error, |()| ok())
}

/// At most so much of what a client sent is repeated in an error.
fn shown(text: &[u8]) -> String {
    text.escape_ascii().to_string().chars().take(128).collect()
}

fn config(rest: &[&[u8]], session: &Session) -> Vec<u8> {
    match rest {
        [what, names @ ..] if what.eq_ignore_ascii_case(b"GET") && !names.is_empty() => {
            let value = |name: &&[u8]| match &name.to_ascii_lowercase()[..] {
                b"save" => Some(("save", text(b""))),
                b"appendonly" => Some(("appendonly", text(b"no"))),
                b"databases" => Some(("databases", text(b"1"))),
                _ => None,
            };
            map(&names.iter().filter_map(value).collect::<Vec<_>>(), session)
        }
        _ => error("ERR only CONFIG GET is supported: options are those of `obol smr server`"),
    }
}

fn client(rest: &[&[u8]], session: &mut Session) -> Local {
    let Some((what, rest)) = rest.split_first() else {
        return Local::Reply(error("ERR wrong number of arguments for 'client' command"));
    };
    Local::Reply(match (&what.to_ascii_uppercase()[..], rest) {
        (b"SETNAME", [name]) => set_name(name, session).map_or_else(error, |()| ok()),
        (b"SETINFO", [_, _]) => ok(),
        (b"GETNAME", []) if session.name.is_empty() => nil(session).to_vec(),
        (b"GETNAME", []) => text(&session.name),
        (b"ID", []) => format!(":{}\r\n", session.id).into_bytes(),
        (b"INFO", []) => return Local::List { own: true },
        (b"LIST", []) => return Local::List { own: false },
        _ => error("ERR only CLIENT SETNAME, GETNAME, SETINFO, ID, INFO and LIST are supported"),
    })
}

/// What the server answers itself, and what may follow each.
#[cfg(test)]
pub(super) const TABLE: &[(&str, &str)] = &[
    ("AUTH", "[user] password"),
    ("CLIENT", "SETNAME name | GETNAME | SETINFO attribute value | ID | INFO | LIST"),
    ("COMMAND", "[...]: always an empty list"),
    ("CONFIG", "GET name [name ...]: save, appendonly and databases"),
    ("DISCARD", ""),
    ("ECHO", "text"),
    ("HELLO", "[2|3 [AUTH user password] [SETNAME name]]"),
    ("INFO", "[section ...]: always all"),
    ("MULTI", ""),
    ("PING", "[text]"),
    ("QUIT", ""),
    ("SELECT", "0"),
    ("UNWATCH", ""),
    ("WATCH", "refused"),
];

/// What the server answers itself; `None` if the store has to.
pub(super) fn answer(args: &[&[u8]], session: &mut Session, setting: &Setting<'_>) -> Option<Local> {
    let (name, rest) = args.split_first()?;
    let name = &name.to_ascii_uppercase()[..];
    if !session.is_admitted && !matches!(name, b"AUTH" | b"HELLO" | b"QUIT") {
        return Some(Local::Reply(error("NOAUTH Authentication required.")));
    }
    if let Some(queued) = session.queued.as_mut().filter(|_| name != b"QUIT") {
        let (reply, is_over) = queued.take(name, args);
        if is_over {
            session.queued = None;
        }
        return Some(Local::Reply(reply));
    }
    if name != EXEC && obol_smr::access(name).is_some() {
        return None;
    }
    let arity = || {
        let name = name.escape_ascii().to_string().to_lowercase();
        error(&format!("ERR wrong number of arguments for '{name}' command"))
    };
    setting.asked.set(setting.asked.get() || name == b"PING");
    let reply = match (name, rest) {
        (b"PING", _) if setting.down.is_some() => error(setting.down.unwrap_or_default()),
        (b"PING", []) => b"+PONG\r\n".to_vec(),
        (b"PING" | b"ECHO", [said]) => text(said),
        (b"PING" | b"ECHO", _) => arity(),
        (b"SELECT", [b"0"]) => ok(),
        (b"SELECT", [_]) => error("ERR DB index is out of range"),
        (b"SELECT", _) => arity(),
        (b"HELLO", rest) => hello(rest, session, setting),
        (b"AUTH", rest) => auth(rest, session, setting),
        (b"COMMAND", _) => b"*0\r\n".to_vec(),
        (b"CONFIG", rest) => config(rest, session),
        (b"CLIENT", rest) => return Some(client(rest, session)),
        (b"INFO", _) => text((setting.info)().as_bytes()),
        (b"MULTI", []) => {
            session.queued = Some(Queued::default());
            ok()
        }
        (b"MULTI", _) => arity(),
        (b"UNWATCH", []) => ok(),
        (b"WATCH", _) => error("ERR WATCH is not supported: SET with NX, XX or GET, or INCR, may do"),
        (EXEC | b"DISCARD", _) => {
            let name = String::from_utf8_lossy(name);
            error(&format!("ERR {name} without MULTI"))
        }
        (b"QUIT", _) => return Some(Local::Quit),
        _ => error(&format!("ERR unknown command '{}'", shown(args[0]))),
    };
    Some(Local::Reply(reply))
}
