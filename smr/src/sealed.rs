//! Encodings of data that one-sided WRITEs may tear: a few words with their checksum, and messages
//! between a client and the leader.
//!
//! ```text
//!          a message
//! 0   number     of the request
//! 8   head       kind (1 byte), spare (1 byte), bytes of the payload (2 bytes), checksum (4 bytes)
//! 16  client     that sent the request
//! 24  payload    filled up with zeros to a multiple of 8
//! ```

use crate::limits::PAYLOAD_BYTES_MAX;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use obol_fabric::memory;

/// Bytes before a message's payload.
const HEAD_BYTES: usize = 24;
/// Bytes of the longest message.
pub(crate) const MESSAGE_BYTES_MAX: usize = HEAD_BYTES + PAYLOAD_BYTES_MAX;
/// Position of a message's checksum, which covers all else, with zeros in its own place.
const CHECKSUM_AT: core::ops::Range<usize> = 12..16;

/// The n-th word of some bytes.
pub(crate) fn word(bytes: &[u8], n: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(8 * n..8 * n + 8)?.try_into().ok()?))
}

/// The most words that [`sum_of`] takes.
const SUMMED_MAX: usize = 8;

/// The checksum of a few words, in one pass: one for each word costs several times as much.
pub(crate) fn sum_of<const N: usize>(words: &[u64; N]) -> u32 {
    const { assert!(N <= SUMMED_MAX) };
    let mut bytes = [[0; 8]; SUMMED_MAX];
    for (to, word) in bytes.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    crc32fast::hash(&bytes.as_flattened()[..8 * N])
}

/// A few words and their checksum, as bytes.
pub(crate) fn seal<const N: usize>(words: [u64; N], out: &mut Vec<u8>) {
    out.clear();
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
    let sum = crc32fast::hash(out);
    out.extend_from_slice(&u64::from(sum).to_le_bytes());
}

/// The words of [`seal`] at the beginning of some bytes, if they are complete.
pub(crate) fn unseal<const N: usize>(from: &[u8]) -> Option<[u64; N]> {
    let (sealed, sum) = (from.get(..8 * N)?, word(from, N)?);
    let mut words = [0; N];
    for (n, to) in words.iter_mut().enumerate() {
        *to = word(sealed, n)?;
    }
    (sum == u64::from(crc32fast::hash(sealed))).then_some(words)
}

/// The words of [`seal`] in memory that peers write.
pub(crate) fn unseal_own<const N: usize>(from: Option<&[AtomicU64]>) -> Option<[u64; N]> {
    let (words, rest) = from?.split_first_chunk::<N>()?;
    let words = words.each_ref().map(|word| word.load(Ordering::Relaxed));
    let sealed = rest.first()?.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    (sealed == u64::from(sum_of(&words))).then_some(words)
}

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
        out.clear();
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&[self.kind, 0]);
        out.extend_from_slice(&(self.payload.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.client.to_le_bytes());
        out.extend_from_slice(self.payload);
        out.resize(out.len().next_multiple_of(8), 0);
        let sum = crc32fast::hash(out);
        out[CHECKSUM_AT].copy_from_slice(&sum.to_le_bytes());
    }

    /// The message at the beginning of this memory, copied into `buffer`; `None` if it is missing,
    /// torn or invalid.
    pub(crate) fn read(from: &[AtomicU64], buffer: &'a mut Vec<u8>) -> Option<Self> {
        let number = from.first()?.load(Ordering::Acquire);
        let [_, _, low, high, ..] = from.get(1)?.load(Ordering::Relaxed).to_le_bytes();
        let len = usize::from(u16::from_le_bytes([low, high]));
        if number == 0 || len > PAYLOAD_BYTES_MAX {
            return None;
        }
        let whole = (HEAD_BYTES + len).next_multiple_of(8);
        buffer.resize(whole, 0);
        memory::copy_out(from.get(..whole / 8)?, buffer);
        fence(Ordering::Acquire);
        let place = buffer.get_mut(CHECKSUM_AT)?;
        let sum = u32::from_le_bytes(place.try_into().ok()?);
        place.fill(0);
        if sum != crc32fast::hash(buffer) || word(buffer, 0)? != number {
            return None;
        }
        let (kind, client) = (*buffer.get(8)?, word(buffer, 2)?);
        Some(Self { number, kind, client, payload: buffer.get(HEAD_BYTES..HEAD_BYTES + len)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_words_are_rejected() {
        let mut bytes = Vec::new();
        seal([5, 6, 7], &mut bytes);
        let memory = memory::zeroed(64);
        assert_eq!(unseal_own::<3>(Some(&memory)), None, "nothing was written");
        memory::copy_in(&memory, &bytes);
        assert_eq!(unseal_own(Some(&memory)), Some([5, 6, 7]));
        assert_eq!(unseal(&bytes), Some([5, 6, 7]));
        memory[1].store(8, Ordering::Relaxed);
        assert_eq!(unseal_own::<3>(Some(&memory)), None);
        assert_eq!(unseal::<3>(&bytes[..24]), None);
    }

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
