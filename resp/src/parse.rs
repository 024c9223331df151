//! Requests in RESP2: arrays of bulk strings, and lines that a person types (inline commands).

use core::ops::Range;

/// Longest line.
const LINE_BYTES_MAX: usize = 32 * 1024;
/// Longest bulk string. What the store cannot take, more than a MB, is refused with its reason; more
/// than this ends the connection, as 512 MB do at Redis.
const BULK_BYTES_MAX: i64 = 2 << 20;
/// Most arguments.
const ARGS_MAX: i64 = obol_smr::STAGED_ARGS_MAX as i64;
/// Longest request.
const REQUEST_BYTES_MAX: usize = 3 << 20;

/// Parses the requests of a turn, one after the other.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// The arguments of the newest one: in the bytes that were parsed, or in the words of a line.
    args: Vec<Range<usize>>,
    /// The words of a line, without quotes and escapes.
    words: Vec<u8>,
    is_line: bool,
    /// How many more may be parsed in this turn.
    left: usize,
}

impl Requests {
    /// Begins a turn.
    pub(super) const fn begin(&mut self, most: usize) {
        self.left = most;
    }

    /// Whether no more may be parsed in this turn.
    pub(super) const fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// Whether the newest one was a line, and no array.
    pub(super) const fn is_line(&self) -> bool {
        self.is_line
    }

    /// Looks for a request at the beginning of some bytes; returns its length, or `None` if it is not
    /// complete. One without arguments is to be ignored. The error is for the client, in the words of
    /// Redis; nothing after it can be understood.
    pub(super) fn parse(&mut self, bytes: &[u8]) -> Result<Option<usize>, String> {
        self.args.clear();
        self.words.clear();
        self.is_line = bytes.first().is_some_and(|first| *first != b'*');
        if bytes.is_empty() || self.is_spent() {
            return Ok(None);
        }
        let found = if self.is_line { self.line(bytes)? } else { array(bytes, &mut self.args)? };
        if found.is_none() && bytes.len() >= REQUEST_BYTES_MAX {
            return Err("ERR Protocol error: too big request".to_owned());
        }
        self.left -= usize::from(found.is_some());
        Ok(found)
    }

    /// The length of a complete line, which has its arguments as words.
    fn line(&mut self, bytes: &[u8]) -> Result<Option<usize>, String> {
        let Some((text, end)) = line(bytes, 0, "inline request")? else { return Ok(None) };
        let words = words(text).ok_or("ERR Protocol error: unbalanced quotes in request")?;
        if words.len() as i64 > ARGS_MAX {
            return Err("ERR Protocol error: invalid multibulk length".to_owned());
        }
        for word in words {
            let begin = self.words.len();
            self.words.extend_from_slice(&word);
            self.args.push(begin..self.words.len());
        }
        Ok(Some(end))
    }

    /// The arguments of the newest request, which is at the beginning of these bytes.
    pub(super) fn texts<'a>(
        &'a self,
        bytes: &'a [u8],
    ) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let from = if self.is_line { &self.words[..] } else { bytes };
        self.args.iter().map(move |arg| &from[arg.clone()])
    }

    /// The lengths of its arguments.
    pub(super) fn lens(&self) -> impl ExactSizeIterator<Item = usize> {
        self.args.iter().map(ExactSizeIterator::len)
    }
}

/// The line at a position without its end, and where the next one begins.
fn line<'a>(bytes: &'a [u8], at: usize, what: &str) -> Result<Option<(&'a [u8], usize)>, String> {
    let rest = bytes.get(at..).unwrap_or_default();
    match rest.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n') {
        Some(end) => {
            let text = &rest[..end];
            Ok(Some((text.strip_suffix(b"\r").unwrap_or(text), at + end + 1)))
        }
        None if rest.len() >= LINE_BYTES_MAX => Err(format!("ERR Protocol error: too big {what}")),
        None => Ok(None),
    }
}

fn number(text: &[u8], most: i64, what: &str) -> Result<i64, String> {
    let number = match *text {
        // By far the most frequent ones.
        [ones @ b'0'..=b'9'] => Some(i64::from(ones - b'0')),
        [tens @ b'1'..=b'9', ones @ b'0'..=b'9'] => {
            Some(i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
        }
        // Other than Rust, Redis takes no plus.
        [b'+', ..] => None,
        _ => core::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok()),
    };
    number
        .filter(|number| *number <= most)
        .ok_or_else(|| format!("ERR Protocol error: invalid {what} length"))
}

/// The length of a complete array.
fn array(bytes: &[u8], args: &mut Vec<Range<usize>>) -> Result<Option<usize>, String> {
    let Some((text, mut at)) = line(bytes, 1, "mbulk count string")? else { return Ok(None) };
    let count = number(text, ARGS_MAX, "multibulk")?;
    for _ in 0..count {
        match bytes.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(other) => {
                return Err(format!("ERR Protocol error: expected '$', got '{}'", other.escape_ascii()));
            }
        }
        let Some((text, begin)) = line(bytes, at + 1, "bulk count string")? else { return Ok(None) };
        let len = number(text, BULK_BYTES_MAX, "bulk")?;
        let len = usize::try_from(len).map_err(|_| "ERR Protocol error: invalid bulk length".to_owned())?;
        // Redis looks at no more than the length of what ends it.
        if bytes.len() < begin + len + 2 {
            return Ok(None);
        }
        args.push(begin..begin + len);
        at = begin + len + 2;
    }
    Ok(Some(at))
}

/// Words of a line, which may be quoted; `None` if a quote is not closed or not followed by a space.
fn words(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = text.trim_ascii_start();
    while let Some(&first) = rest.first() {
        let (word, after) = match first {
            b'"' => quoted(&rest[1..])?,
            b'\'' => single_quoted(&rest[1..])?,
            _ => {
                let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                (rest[..end].to_vec(), &rest[end..])
            }
        };
        if after.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return None;
        }
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Some(words)
}

fn quoted(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return Some((word, rest)),
            b'\\' => {
                let (&escaped, after) = rest.split_first()?;
                rest = after;
                let hex = after.first_chunk::<2>().and_then(|digits| core::str::from_utf8(digits).ok());
                let hex = hex.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
                match (escaped, hex.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
                    (b'x', Some(value)) => {
                        word.push(value);
                        rest = &after[2..];
                    }
                    (b'n', _) => word.push(b'\n'),
                    (b'r', _) => word.push(b'\r'),
                    (b't', _) => word.push(b'\t'),
                    (b'b', _) => word.push(8),
                    (b'a', _) => word.push(7),
                    (other, _) => word.push(other),
                }
            }
            other => word.push(other),
        }
    }
}

fn single_quoted(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                rest = after;
            }
            [b'\'', after @ ..] => return Some((word, after)),
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_rng::Rng;

    /// A request's arguments, and the bytes that it takes.
    type Parsed = Option<(Vec<Vec<u8>>, usize)>;

    /// The request at the beginning of these bytes; `None` if it is not complete.
    fn parsed(bytes: &[u8]) -> Result<Parsed, String> {
        let mut requests = Requests::default();
        requests.begin(1);
        let found = requests.parse(bytes)?;
        Ok(found.map(|len| (requests.texts(bytes).map(<[u8]>::to_vec).collect(), len)))
    }

    #[test]
    fn no_more_requests_are_parsed_than_a_turn_may() {
        let bytes = b"PING\r\nPING\r\nPING\r\n";
        let mut requests = Requests::default();
        requests.begin(2);
        assert_eq!((requests.parse(bytes), requests.is_spent()), (Ok(Some(6)), false));
        assert_eq!(requests.parse(&bytes[..3]), Ok(None), "what is not complete does not count");
        assert_eq!((requests.parse(&bytes[6..]), requests.is_spent()), (Ok(Some(6)), true));
        assert_eq!(requests.parse(&bytes[12..]), Ok(None));
    }

    fn args(words: &[&[u8]]) -> Vec<Vec<u8>> {
        words.iter().map(|word| word.to_vec()).collect()
    }

    #[test]
    fn a_request_is_complete_only_with_its_last_byte() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\nPING\r\n";
        for len in 0..23 {
            assert_eq!(parsed(&bytes[..len]), Ok(None), "{len} bytes");
        }
        assert_eq!(parsed(bytes), Ok(Some((args(&[b"GET", b"a\r\nb"]), 23))));
        assert_eq!(parsed(&bytes[23..]), Ok(Some((args(&[b"PING"]), 6))));
        assert_eq!(parsed(b"*0\r\n"), Ok(Some((args(&[]), 4))));
        assert_eq!(parsed(b"\r\n"), Ok(Some((args(&[]), 2))));
        let long = [&b"*1\r\n$0123\r\n"[..], &[b'x'; 123], b"\r\n"].concat();
        assert_eq!(parsed(&long), Ok(Some((vec![vec![b'x'; 123]], long.len()))));
    }

    #[test]
    fn a_line_is_split_into_words_with_quotes() {
        let line = b"set \"a b\\x41\\n\" 'it\\'s' c\r\n";
        let expected = args(&[b"set", b"a bA\n", b"it's", b"c"]);
        assert_eq!(parsed(line), Ok(Some((expected, line.len()))));
        for unbalanced in [&b"get \"a\n"[..], b"get 'a\n", b"get \"a\"b\n"] {
            assert_eq!(
                parsed(unbalanced),
                Err("ERR Protocol error: unbalanced quotes in request".to_owned())
            );
        }
    }

    #[test]
    fn what_is_no_request_is_refused_in_the_words_of_redis() {
        for (bytes, why) in [
            (&b"*x\r\n"[..], "ERR Protocol error: invalid multibulk length"),
            (b"*1025\r\n", "ERR Protocol error: invalid multibulk length"),
            (b"*1\r\n:1\r\n", "ERR Protocol error: expected '$', got ':'"),
            (b"*1\r\n$-1\r\n", "ERR Protocol error: invalid bulk length"),
            (b"*1\r\n$+4\r\nPING\r\n", "ERR Protocol error: invalid bulk length"),
            (b"*+1\r\n$4\r\nPING\r\n", "ERR Protocol error: invalid multibulk length"),
            (b"*1\r\n$2097153\r\n", "ERR Protocol error: invalid bulk length"),
        ] {
            assert_eq!(parsed(bytes), Err(why.to_owned()));
        }
        let long = vec![b'a'; LINE_BYTES_MAX];
        assert_eq!(parsed(&long), Err("ERR Protocol error: too big inline request".to_owned()));
        let value = [&b"$2000000\r\n"[..], &vec![0; 2_000_000], b"\r\n"].concat();
        let many = [&b"*3\r\n"[..], &value, &value, b"$2000000\r\n"].concat();
        assert!(parsed(&many).is_err(), "a request has a bound");
    }

    /// Arbitrary bytes, and requests with a few bytes changed: no panic, and a request that is
    /// complete lies within the bytes.
    #[test]
    fn fuzz_requests() {
        let mut rng = Rng::new(11);
        let pieces: [&[u8]; 12] = [
            b"*",
            b"2",
            b"$",
            b"3",
            b"\r\n",
            b"GET",
            b"\"",
            b"'",
            b"\\x4",
            b"-1",
            b" ",
            b"99999999999999999999",
        ];
        for _ in 0..200_000 {
            let mut bytes: Vec<u8> = Vec::new();
            for _ in 0..rng.below(12) {
                match rng.below(4) {
                    0 => bytes.push(rng.below(256) as u8),
                    _ => bytes.extend_from_slice(pieces[rng.below(12) as usize]),
                }
            }
            if let Ok(Some((args, len))) = parsed(&bytes) {
                let total: usize = args.iter().map(Vec::len).sum();
                assert!(len > 0 && len <= bytes.len() && total <= len, "{bytes:?}");
            }
        }
    }
}
