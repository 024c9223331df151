//! Encodings of data that one-sided WRITEs may tear: a few words with their checksum, and numbered
//! contents behind a head with one.
//!
//! ```text
//! 0   number
//! 8   head       kind (1 byte), optional words (1 byte), bytes of the value (2 bytes), checksum (4 bytes)
//! 16  words      those that are always there, and the optional ones
//!     value      filled up with zeros to a multiple of 8
//! ```

use crate::memory;
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// Fields of a head beside length and checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: u8,
    /// Optional words before the value.
    pub more: u8,
}

/// Position of the checksum, which covers all else, with zeros in its own place.
const CHECKSUM_AT: core::ops::Range<usize> = 12..16;

/// The n-th word of some bytes.
pub fn word(bytes: &[u8], n: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(8 * n..8 * n + 8)?.try_into().ok()?))
}

/// Encodes these words and this value into `out`, padded with zeros to a multiple of 8. `head.more`
/// counts the words of `more`.
pub fn encode(number: u64, head: Head, always: &[u64], more: &[u64], value: &[u8], out: &mut Vec<u8>) {
    assert!(value.len() <= usize::from(u16::MAX), "checked by the caller");
    assert_eq!(usize::from(head.more), more.len(), "as the reader expects");
    out.clear();
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&[head.kind, head.more]);
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    for word in always.iter().chain(more) {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(8), 0);
    let sum = crc32fast::hash(out);
    out[CHECKSUM_AT].copy_from_slice(&sum.to_le_bytes());
}

/// Copies the entry of this number into `buffer`, which ends with the value; `None` if it is
/// missing, torn or invalid. `before`: mandatory words before the value.
pub fn copy(
    from: &[AtomicU64],
    number: u64,
    before: usize,
    value_max: usize,
    buffer: &mut Vec<u8>,
) -> Option<Head> {
    if number == 0 || from.first()?.load(Ordering::Acquire) != number {
        return None;
    }
    let [kind, more, low, high, ..] = from.get(1)?.load(Ordering::Relaxed).to_le_bytes();
    let len = usize::from(u16::from_le_bytes([low, high]));
    if len > value_max || more > 1 {
        return None;
    }
    let before = 8 * (before + usize::from(more));
    let whole = (before + len).next_multiple_of(8);
    buffer.resize(whole, 0);
    memory::copy_out(from.get(..whole / 8)?, buffer);
    fence(Ordering::Acquire);
    let place = buffer.get_mut(CHECKSUM_AT)?;
    let sum = u32::from_le_bytes(place.try_into().ok()?);
    place.fill(0);
    // The words that were read before may have changed.
    let is_whole = word(buffer, 0) == Some(number)
        && buffer.get(8..12) == Some(&[kind, more, low, high][..])
        && sum == crc32fast::hash(buffer);
    buffer.truncate(before + len);
    is_whole.then_some(Head { kind, more })
}

/// The most words that [`sum_of`] takes.
const SUMMED_MAX: usize = 8;

/// The checksum of a few words, in one pass: one for each word costs several times as much.
pub fn sum_of<const N: usize>(words: &[u64; N]) -> u32 {
    const { assert!(N <= SUMMED_MAX) };
    let mut bytes = [[0; 8]; SUMMED_MAX];
    for (to, word) in bytes.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    crc32fast::hash(&bytes.as_flattened()[..8 * N])
}

/// A few words and their checksum, as bytes.
pub fn seal<const N: usize>(words: [u64; N], out: &mut Vec<u8>) {
    out.clear();
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
    let sum = crc32fast::hash(out);
    out.extend_from_slice(&u64::from(sum).to_le_bytes());
}

/// The words of [`seal`] at the beginning of some bytes, if they are complete.
pub fn unseal<const N: usize>(from: &[u8]) -> Option<[u64; N]> {
    let (sealed, sum) = (from.get(..8 * N)?, word(from, N)?);
    let mut words = [0; N];
    for (n, to) in words.iter_mut().enumerate() {
        *to = word(sealed, n)?;
    }
    (sum == u64::from(crc32fast::hash(sealed))).then_some(words)
}

/// The words of [`seal`] in memory that peers write.
pub fn unseal_own<const N: usize>(from: Option<&[AtomicU64]>) -> Option<[u64; N]> {
    let (words, rest) = from?.split_first_chunk::<N>()?;
    let words = words.each_ref().map(|word| word.load(Ordering::Relaxed));
    let sealed = rest.first()?.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    (sealed == u64::from(sum_of(&words))).then_some(words)
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
}
