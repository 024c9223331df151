//! Messages between a client and the leader, which one-sided WRITEs may tear: [`sealed::encode`] of the
//! number of the request, its kind, the client that sent it, and the payload.

use crate::limits::PAYLOAD_BYTES_MAX;
use core::sync::atomic::{AtomicU64, Ordering};
use obol_fabric::sealed::{self, Head, word};

/// Words before a message's payload: number, head, client.
const HEAD_WORDS: usize = 3;
/// Bytes of the longest message.
pub(crate) const MESSAGE_BYTES_MAX: usize = 8 * HEAD_WORDS + PAYLOAD_BYTES_MAX;

/// A request or an answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Message<'a> {
    pub(crate) number: u64,
    pub(crate) kind: u8,
    pub(crate) client: u64,
    pub(crate) payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// Encodes the message into `out`: a multiple of 8 bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.payload.len() <= PAYLOAD_BYTES_MAX, "checked by the caller");
        let head = Head { kind: self.kind, more: 0 };
        sealed::encode(self.number, head, &[self.client], &[], self.payload, out);
    }

    /// The message at the beginning of this memory, copied into `buffer`; `None` if it is missing,
    /// torn or invalid.
    pub(crate) fn read(from: &[AtomicU64], buffer: &'a mut Vec<u8>) -> Option<Self> {
        let number = from.first()?.load(Ordering::Acquire);
        let head = sealed::copy(from, number, HEAD_WORDS, PAYLOAD_BYTES_MAX, buffer)?;
        let buffer: &'a [u8] = buffer;
        let (client, payload) = (word(buffer, 2)?, buffer.get(8 * HEAD_WORDS..)?);
        (head.more == 0).then_some(Self { number, kind: head.kind, client, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::memory;

    #[test]
    fn only_a_complete_message_is_read() {
        for len in [0, 1, 8, PAYLOAD_BYTES_MAX] {
            let payload = vec![0xa5; len];
            let message = Message { number: 9, kind: 2, client: 5, payload: &payload };
            let (mut bytes, mut buffer) = (Vec::new(), Vec::new());
            message.encode(&mut bytes);
            let words = memory::zeroed(MESSAGE_BYTES_MAX);
            assert_eq!(Message::read(&words, &mut buffer), None);
            memory::copy_in(&words, &bytes);
            assert_eq!(Message::read(&words, &mut buffer), Some(message));
            words[2].store(6, Ordering::Relaxed);
            assert_eq!(Message::read(&words, &mut buffer), None);
        }
    }
}
