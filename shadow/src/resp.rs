//! As much of the protocol of Redis as a watcher needs: commands as arrays, and their answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Limits of an answer, which comes from a server that is not ours.
const LINE_BYTES_MAX: u64 = 64 << 10;
const TEXT_BYTES_MAX: usize = 1 << 20;
const ITEMS_MAX: usize = 1024;
const DEPTH_MAX: usize = 4;
/// Timeout for connecting, and for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Text(String),
    Number(i64),
    Items(Vec<Self>),
    Nothing,
    /// The server refuses.
    Refused(String),
}

impl Reply {
    pub(crate) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The texts of an array.
    pub(crate) fn texts(&self) -> Vec<&str> {
        match self {
            Self::Items(items) => items.iter().filter_map(Self::text).collect(),
            _ => Vec::new(),
        }
    }
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not an answer of Redis: {why}"))
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let text = bytes.strip_suffix(b"\r\n").ok_or_else(|| wrong("a line without an end"))?;
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Reads one answer.
pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Reply> {
    read_within(from, DEPTH_MAX)
}

fn read_within(from: &mut impl BufRead, depth: usize) -> io::Result<Reply> {
    let line = line(from)?;
    let mut letters = line.chars();
    let kind = letters.next();
    let rest = letters.as_str();
    let number = || rest.parse::<i64>().map_err(|_| wrong("a number is none"));
    let length = |most: usize| match number()? {
        -1 => Ok(None),
        n => usize::try_from(n).ok().filter(|n| *n <= most).map(Some).ok_or_else(|| wrong("too long")),
    };
    match kind {
        Some('+') => Ok(Reply::Text(rest.to_owned())),
        Some('-') => Ok(Reply::Refused(rest.to_owned())),
        Some(':') => Ok(Reply::Number(number()?)),
        Some('$') => {
            let Some(length) = length(TEXT_BYTES_MAX)? else { return Ok(Reply::Nothing) };
            let mut bytes = vec![0; length + 2];
            from.read_exact(&mut bytes)?;
            let text = bytes.strip_suffix(b"\r\n").ok_or_else(|| wrong("a text without an end"))?;
            Ok(Reply::Text(String::from_utf8_lossy(text).into_owned()))
        }
        Some('*') => {
            let Some(count) = length(ITEMS_MAX)? else { return Ok(Reply::Nothing) };
            let depth = depth.checked_sub(1).ok_or_else(|| wrong("too deep"))?;
            let items = (0..count).map(|_| read_within(from, depth)).collect::<io::Result<_>>()?;
            Ok(Reply::Items(items))
        }
        other => Err(wrong(&match other {
            Some(letter) => format!("it begins with {letter:?}: something else than Redis listens there"),
            None => "an empty line: something else than Redis may listen there".to_owned(),
        })),
    }
}

/// A connection to a server.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// Connects, and authenticates if a password is given.
    pub(crate) fn open(at: (&str, u16), password: Option<&str>) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in std::net::ToSocketAddrs::to_socket_addrs(&at)? {
            match TcpStream::connect_timeout(&address, ANSWER_TIMEOUT) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                    let mut connection = Self { stream: BufReader::new(stream) };
                    if let Some(password) = password {
                        connection.ask(&["AUTH", password])?;
                    }
                    return Ok(connection);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Sends a command and waits for its answer; a refusal is an error.
    pub(crate) fn ask(&mut self, words: &[&str]) -> io::Result<Reply> {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(text.as_bytes())?;
        match read(&mut self.stream).map_err(unanswered)? {
            Reply::Refused(why) => Err(io::Error::other(why)),
            reply => Ok(reply),
        }
    }

    /// Waits for what the server sends by itself, for as long as it takes.
    pub(crate) fn listen(&mut self) -> io::Result<Reply> {
        self.stream.get_ref().set_read_timeout(None)?;
        read(&mut self.stream)
    }

    /// Ends [`Connection::listen`] of another thread.
    pub(crate) fn closer(&self) -> io::Result<TcpStream> {
        self.stream.get_ref().try_clone()
    }
}

/// A server that is stopped accepts connections all the same, and its silence is an error without a
/// cause.
fn unanswered(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(
            io::ErrorKind::TimedOut,
            format!(
                "no answer within {ANSWER_TIMEOUT:?}: it is frozen, or the address is that of another program"
            ),
        ),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_named_as_such() {
        let deaf = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = TcpStream::connect(deaf.local_addr().expect("bound")).expect("accepted by the kernel");
        stream.set_read_timeout(Some(Duration::from_millis(10))).expect("set");
        let error = Connection { stream: BufReader::new(stream) }.ask(&["PING"]).expect_err("silence");
        assert!(error.to_string().contains("no answer within"), "{error}");
    }
    use obol_fuzz::{Shape, Target, outcome};

    const ANSWERS: &[u8] = b"*3\r\n$8\r\npmessage\r\n:5\r\n*1\r\n$-1\r\n+OK\r\n-ERR no\r\n$4\r\na\r\nb\r\n";

    #[test]
    fn answers_are_read_one_after_the_other() {
        let mut from = ANSWERS;
        let text = |text: &str| Reply::Text(text.to_owned());
        let items = vec![text("pmessage"), Reply::Number(5), Reply::Items(vec![Reply::Nothing])];
        assert_eq!(read(&mut from).expect("read"), Reply::Items(items));
        assert_eq!(read(&mut from).expect("read"), text("OK"));
        assert_eq!(read(&mut from).expect("read"), Reply::Refused("ERR no".to_owned()));
        assert_eq!(read(&mut from).expect("read"), text("a\r\nb"));
        assert_eq!(read(&mut from).expect_err("the end").kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn arbitrary_answers_are_read_within_bounds_or_refused() {
        Target::new("redis-answers", Shape::Bytes, 100_000).with(ANSWERS).run(|input| {
            let mut from = input;
            match read(&mut from) {
                Ok(reply) => outcome((0, std::mem::discriminant(&reply), input.len() - from.len())),
                Err(error) => outcome((1, error.kind() as u64, error.to_string())),
            }
        });
        for long in ["$1048577\r\n", "*1025\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "+no end"] {
            assert!(read(&mut long.as_bytes()).is_err(), "{long}");
        }
    }
}
