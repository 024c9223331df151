//! Who may use the front: at a loopback address the processes of the host, elsewhere those that know the
//! password. And what looks like a request of HTTP ends its connection, because web pages can send those
//! to a loopback address.

use obol_term::output::Failure;
use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of the shortest password. A client may try as many as it can send, so it must not be guessable.
const PASSWORD_BYTES_MIN: usize = 16;
/// Bytes of the longest one.
const PASSWORD_BYTES_MAX: usize = 512;
/// The user that has the password, as in Redis. There are no others.
const USER: &[u8] = b"default";
/// Events of clients that are logged: one in this time, with the number of those that were left out.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// What clients have to send first. It is never printed.
pub(super) struct Password(Vec<u8>);

impl Password {
    /// Reads the first line of a file that not everybody may read.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let refused =
            |why: String| Failure::Refused(format!("--resp-password-file {}: {why}", path.display()));
        let file = fs::File::open(path).map_err(|error| refused(error.to_string()))?;
        let mode = file.metadata().map_err(|error| refused(error.to_string()))?.permissions().mode() & 0o777;
        if mode & 0o007 != 0 {
            let how = format!("chmod o= {}", path.display());
            return Err(refused(format!("the file is open to all users (mode {mode:o}): {how}")));
        }
        let mut text = Vec::new();
        let most = PASSWORD_BYTES_MAX as u64 + 2;
        file.take(most).read_to_end(&mut text).map_err(|error| refused(error.to_string()))?;
        let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !(PASSWORD_BYTES_MIN..=PASSWORD_BYTES_MAX).contains(&line.len()) {
            return Err(refused(format!(
                "a password has {PASSWORD_BYTES_MIN} to {PASSWORD_BYTES_MAX} bytes, and is the first line of the file; \
                 `openssl rand -hex 16` makes one"
            )));
        }
        Ok(Self(line.to_vec()))
    }

    #[cfg(test)]
    pub(super) fn new(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }

    /// Whether a client has sent it, and as the right user. How long that takes depends on what was sent
    /// alone.
    pub(super) fn fits(&self, user: &[u8], given: &[u8]) -> bool {
        let mut differs = given.len() ^ self.0.len();
        for (n, byte) in given.iter().enumerate() {
            differs |= usize::from(byte ^ self.0[n % self.0.len()]);
        }
        user == USER && differs == 0
    }

    /// The user of a client that names none.
    pub(super) const fn user() -> &'static [u8] {
        USER
    }
}

/// Refuses an address that others than this host can reach, unless there is a password, and the operator
/// says that nobody reads or changes what passes on the way.
pub(super) fn check_address(
    address: SocketAddr,
    has_password: bool,
    unencrypted: bool,
) -> Result<(), Failure> {
    let is_open = !address.ip().to_canonical().is_loopback();
    let lacks = match (has_password, unencrypted) {
        _ if !is_open => return Ok(()),
        (true, true) => return Ok(()),
        (false, _) => "anyone who reaches it could read and delete all keys: give a --resp-password-file",
        (true, false) => {
            "passwords and values are not encrypted on the way: listen at a loopback address behind a proxy that \
             speaks TLS, or add --resp-unencrypted if the network between is trusted, or encrypts by itself"
        }
    };
    Err(Failure::Refused(format!("--resp {address} can be reached from other hosts. {lacks}")))
}

/// Whether a request is, in truth, the beginning or a header of one of HTTP. `is_line`: it was a line, and
/// no array. The body that follows could have commands in it.
pub(super) fn is_http<'a>(mut args: impl ExactSizeIterator<Item = &'a [u8]>, is_line: bool) -> bool {
    const HOST: &[u8] = b"HOST:";
    const VERSION: &[u8] = b"HTTP/";
    let begins = |text: &[u8], with: &[u8]| {
        text.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with))
    };
    let words = args.len();
    let Some(name) = args.next() else { return false };
    name.eq_ignore_ascii_case(b"POST")
        || begins(name, HOST)
        // A line of HTTP: a method, a path and the version. Commands of three words may end as that line does.
        || is_line
            && words == 3
            && (name.eq_ignore_ascii_case(b"GET") || obol_smr::access(name).is_none())
            && args.last().is_some_and(|last| begins(last, VERSION))
}

/// What clients did that the operator should know of. They could do it all the time.
#[derive(Default)]
pub(super) struct Journal {
    newest: Option<Instant>,
    left_out: u64,
}

impl Journal {
    /// The line to log for an event, if it is time for one.
    pub(super) fn note(&mut self, now: Instant, what: &str) -> Option<String> {
        if self.newest.is_some_and(|newest| now.duration_since(newest) < LOG_EVERY) {
            self.left_out += 1;
            return None;
        }
        self.newest = Some(now);
        Some(match core::mem::take(&mut self.left_out) {
            0 => what.to_owned(),
            count => format!("{what} ({count} such events before it were not logged)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(refused: Result<impl Sized, Failure>) -> String {
        refused.err().map(|failure| failure.to_string()).unwrap_or_default()
    }

    #[test]
    fn an_address_that_others_reach_needs_a_password_and_a_word_about_the_network() {
        for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            let address = address.parse().expect("an address");
            assert!(check_address(address, false, false).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "[::ffff:10.0.0.1]:1", "[fe80::1]:1"] {
            let address: SocketAddr = address.parse().expect("an address");
            assert!(why(check_address(address, false, false)).contains("give a --resp-password-file"));
            assert!(why(check_address(address, false, true)).contains("give a --resp-password-file"));
            assert!(why(check_address(address, true, false)).contains("add --resp-unencrypted"));
            assert!(check_address(address, true, true).is_ok(), "{address}");
        }
    }

    #[test]
    fn a_password_is_read_from_a_file_that_not_everybody_may_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("password");
        let write = |text: &str, mode: u32| {
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its owner");
            Password::read(&path)
        };
        for (text, mode) in [("0123456789abcdef", 0o600), ("0123456789abcdef\r\nrest\n", 0o640)] {
            let read = write(text, mode).expect("a password");
            assert!(read.fits(b"default", b"0123456789abcdef"));
            for wrong in
                [&b"0123456789abcde"[..], b"0123456789abcdeg", b"", b"0123456789abcdef0123456789abcdef"]
            {
                assert!(!read.fits(b"default", wrong), "{wrong:?}");
            }
            assert!(!read.fits(b"other", b"0123456789abcdef"));
        }
        assert!(why(write("0123456789abcdef", 0o644)).contains("open to all users (mode 644): chmod o="));
        assert!(why(write("short\n", 0o600)).contains("16 to 512 bytes"));
        assert!(why(write(&"x".repeat(513), 0o600)).contains("16 to 512 bytes"));
        assert!(why(Password::read(&dir.path().join("none"))).contains("No such file"));
    }

    #[test]
    fn lines_of_http_are_none_of_redis() {
        let is =
            |line: &str| is_http(line.split(' ').map(str::as_bytes).collect::<Vec<_>>().into_iter(), true);
        for line in [
            "POST / HTTP/1.1",
            "post x",
            "Host: a",
            "hOST:a",
            "GET / HTTP/1.0",
            "PRI * HTTP/2.0",
            "options * http/1.1",
        ] {
            assert!(is(line), "{line}");
        }
        for line in ["GET a", "SET a HTTP/1.1", "GET", "Hosts: a", "DELETE a b", "Accept: */*", ""] {
            assert!(!is(line), "{line}");
        }
        let array = [&b"GET"[..], b"/", b"HTTP/1.1"];
        assert!(!is_http(array.into_iter(), false), "no browser sends arrays");
    }

    #[test]
    fn events_are_logged_one_in_ten_seconds() {
        let (mut journal, start) = (Journal::default(), Instant::now());
        assert_eq!(journal.note(start, "a").as_deref(), Some("a"));
        assert_eq!(journal.note(start + Duration::from_secs(9), "b"), None);
        let later = journal.note(start + Duration::from_secs(10), "c").expect("logged");
        assert_eq!(later, "c (1 such events before it were not logged)");
    }
}
