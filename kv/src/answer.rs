//! The answer to a request, written by the server into the client's own memory, into the place of
//! the request's number.
//!
//! ```text
//! 0   number     of the request
//! 8   head       status + 1 (1 byte), spare (1 byte), bytes of the value (2 bytes), checksum (4 bytes)
//! 16  client     that sent the request
//! 24  value      filled up with zeros to a multiple of 8
//! ```

use crate::limits::VALUE_BYTES_MAX;
use core::sync::atomic::AtomicU64;
use obol_fabric::sealed;

/// Words before the value.
const HEAD_WORDS: usize = 3;
/// Bytes of the longest answer.
pub(crate) const ANSWER_BYTES: usize = HEAD_WORDS * 8 + VALUE_BYTES_MAX;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// A GET found the key, or a PUT is done.
    Done = 0,
    /// A GET did not find the key.
    Missing = 1,
    /// The cache has no room for another key.
    Full = 2,
}

/// An answer to a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Answer<'a> {
    /// The client that asked.
    pub(crate) client: u64,
    /// The number of its request.
    pub(crate) request: u64,
    /// How the request ended.
    pub(crate) status: Status,
    /// The value that a GET found.
    pub(crate) value: &'a [u8],
}

impl<'a> Answer<'a> {
    /// Encodes the answer into `out`: a multiple of 8 bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.value.len() <= VALUE_BYTES_MAX, "checked by the caller");
        let head = sealed::Head { kind: self.status as u8 + 1, more: 0 };
        sealed::encode(self.request, head, &[self.client], &[], self.value, out);
    }

    /// The answer to this request, copied into `buffer`, if it is complete.
    pub(crate) fn decode(from: &[AtomicU64], request: u64, buffer: &'a mut Vec<u8>) -> Option<Self> {
        let head = sealed::copy(from, request, HEAD_WORDS, VALUE_BYTES_MAX, buffer)?;
        let buffer: &'a [u8] = buffer;
        let status = match head.kind {
            1 => Status::Done,
            2 => Status::Missing,
            3 => Status::Full,
            _ => return None,
        };
        let value = buffer.get(8 * (HEAD_WORDS + usize::from(head.more))..)?;
        Some(Self { client: sealed::word(buffer, 2)?, request, status, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::memory;

    #[test]
    fn only_a_complete_answer_is_decoded() {
        let answer = Answer { client: 5, request: 9, status: Status::Missing, value: b"abc" };
        let (mut bytes, mut buffer) = (Vec::new(), Vec::new());
        answer.encode(&mut bytes);
        let words = memory::zeroed(ANSWER_BYTES);
        assert_eq!(Answer::decode(&words, 0, &mut buffer), None);
        memory::copy_in(&words, &bytes);
        assert_eq!(Answer::decode(&words, 9, &mut buffer), Some(answer));
        assert_eq!(Answer::decode(&words, 8, &mut buffer), None);
        assert_eq!(Answer::decode(&words[..3], 9, &mut buffer), None);
        memory::copy_in(&words[2..], &[6]);
        assert_eq!(Answer::decode(&words, 9, &mut buffer), None);
    }
}
