//! Commands of Redis that need no state: the server answers them itself.

/// An answer without the store.
pub(super) enum Local {
    /// This one.
    Reply(Vec<u8>),
    /// The connection ends after it.
    Quit,
}

fn bulk(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("${}\r\n", text.len()).as_bytes());
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn bulks(texts: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", texts.len()).into_bytes();
    for text in texts {
        bulk(text, &mut out);
    }
    out
}

/// An error for the client, without line ends from what it sent.
pub(super) fn error(text: &str) -> Vec<u8> {
    format!("-{}\r\n", text.replace(['\r', '\n'], " ")).into_bytes()
}

fn ok() -> Vec<u8> {
    b"+OK\r\n".to_vec()
}

fn hello(rest: &[&[u8]]) -> Vec<u8> {
    match rest.first() {
        None | Some(&b"2") => {
            let mut out = b"*14\r\n".to_vec();
            for (name, value) in [
                ("server", "$4\r\nobol\r\n".to_owned()),
                ("version", format!("${}\r\n{VERSION}\r\n", VERSION.len())),
                ("proto", ":2\r\n".to_owned()),
                ("id", ":1\r\n".to_owned()),
                ("mode", "$10\r\nstandalone\r\n".to_owned()),
                ("role", "$6\r\nmaster\r\n".to_owned()),
                ("modules", "*0\r\n".to_owned()),
            ] {
                bulk(name.as_bytes(), &mut out);
                out.extend_from_slice(value.as_bytes());
            }
            out
        }
        Some(_) => error("NOPROTO unsupported protocol version"),
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn config(rest: &[&[u8]]) -> Vec<u8> {
    match rest {
        [what, names @ ..] if what.eq_ignore_ascii_case(b"GET") && !names.is_empty() => {
            let mut found: Vec<&[u8]> = Vec::new();
            for name in names {
                match &name.to_ascii_lowercase()[..] {
                    b"save" => found.extend([&b"save"[..], b""]),
                    b"appendonly" => found.extend([&b"appendonly"[..], b"no"]),
                    b"databases" => found.extend([&b"databases"[..], b"1"]),
                    _ => {}
                }
            }
            bulks(&found)
        }
        _ => error("ERR only CONFIG GET is supported: options are those of `obol smr server`"),
    }
}

fn client(rest: &[&[u8]]) -> Vec<u8> {
    match rest {
        [what, _] if what.eq_ignore_ascii_case(b"SETNAME") => ok(),
        [what, _, _] if what.eq_ignore_ascii_case(b"SETINFO") => ok(),
        [what] if what.eq_ignore_ascii_case(b"GETNAME") => b"$-1\r\n".to_vec(),
        _ => error("ERR only CLIENT SETNAME, SETINFO and GETNAME are supported"),
    }
}

/// What the server answers itself; `None` if the store has to.
pub(super) fn answer(args: &[&[u8]], info: impl FnOnce() -> String) -> Option<Local> {
    let (name, rest) = args.split_first()?;
    if obol_smr::access(name).is_some() {
        return None;
    }
    let arity = || {
        let name = name.escape_ascii().to_string().to_lowercase();
        error(&format!("ERR wrong number of arguments for '{name}' command"))
    };
    let reply = match (&name.to_ascii_uppercase()[..], rest) {
        (b"PING", []) => b"+PONG\r\n".to_vec(),
        (b"PING" | b"ECHO", [text]) => {
            let mut out = Vec::new();
            bulk(text, &mut out);
            out
        }
        (b"PING" | b"ECHO", _) => arity(),
        (b"SELECT", [b"0"]) => ok(),
        (b"SELECT", [_]) => error("ERR DB index is out of range"),
        (b"SELECT", _) => arity(),
        (b"HELLO", rest) => hello(rest),
        (b"COMMAND", _) => b"*0\r\n".to_vec(),
        (b"CONFIG", rest) => config(rest),
        (b"CLIENT", rest) => client(rest),
        (b"INFO", _) => {
            let mut out = Vec::new();
            bulk(info().as_bytes(), &mut out);
            out
        }
        (b"AUTH", _) => error("ERR Client sent AUTH, but no password is set"),
        (b"QUIT", _) => return Some(Local::Quit),
        _ => {
            let shown: String = name.escape_ascii().to_string().chars().take(128).collect();
            error(&format!("ERR unknown command '{shown}'"))
        }
    };
    Some(Local::Reply(reply))
}
