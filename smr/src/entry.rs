//! One entry of a ring, as a leader WRITEs it. A reader may see it torn or of an earlier lap; both
//! are detected, so places are reused without zeroing.
//!
//! ```text
//! 0   index      of the entry
//! 8   term       of the leader that wrote it last (6 bytes), check of the term (2 bytes)
//! 16  at         offset in the log: the lap and the place
//! 24  head       kind (1 byte), spare (1 byte), bytes of the payload (2 bytes), checksum (4 bytes)
//! 32  commit     the newest index that was committed when it was written
//! 40  client     whose request it is
//! 48  number     of that request
//! 56  payload    filled up with zeros to a multiple of 8
//! ```
//!
//! The checksum covers the log's identity and all of the above, with zeros in its own place and in
//! the term's. The term has a check of its own, which covers it with index and offset: so a later
//! leader that writes an entry again into the same place replaces this word alone, which no reader
//! sees torn, and never damages the copy that is there.

use crate::limits::PAYLOAD_BYTES_MAX;
use crate::mutants::{ActiveMutant, Mutant};
use crate::position::{Index, Offset, Term};
use core::sync::atomic::{AtomicU64, Ordering, fence};
use obol_fabric::memory;
use obol_fabric::sealed::{sum_of, word};
use strum::FromRepr;

/// Bytes before the payload.
const HEAD_BYTES: usize = 56;
/// Bytes of the longest entry.
pub(crate) const ENTRY_BYTES_MAX: usize = HEAD_BYTES + PAYLOAD_BYTES_MAX;
/// Position of the checksum.
const CHECKSUM_AT: core::ops::Range<usize> = 28..32;
/// Position of the term's word.
pub(crate) const TERM_AT: u32 = 8;
const TERM_BITS: u32 = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromRepr)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Nothing: the first entry of a leader's own. It has adopted all before it.
    Blank = 1,
    /// A command of the service.
    Command = 2,
    /// Begins the session of a client.
    Open = 3,
    Config = 4,
    /// A query, where the guard needs an entry to answer one: it changes nothing.
    Read = 5,
    /// How many voters there should be from now on.
    Resize = 6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry<'a> {
    pub(crate) index: Index,
    pub(crate) term: Term,
    pub(crate) at: Offset,
    pub(crate) kind: Kind,
    pub(crate) commit: Index,
    pub(crate) client: u64,
    pub(crate) number: u64,
    pub(crate) payload: &'a [u8],
}

/// What a reader expects of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Expected {
    /// The log's identity.
    pub(crate) log: u64,
    pub(crate) index: Index,
    pub(crate) at: Offset,
    pub(crate) mutant: ActiveMutant,
}

/// The checksum of an encoded entry.
fn sum(log: u64, bytes: &[u8]) -> u32 {
    // What is not side by side is put so first: few passes over it cost less.
    const BEFORE: usize = TERM_AT as usize;
    const AFTER: usize = CHECKSUM_AT.start - BEFORE - 8;
    let mut head = [0; 8 + BEFORE + AFTER];
    head[..8].copy_from_slice(&log.to_le_bytes());
    head[8..8 + BEFORE].copy_from_slice(&bytes[..BEFORE]);
    head[8 + BEFORE..].copy_from_slice(&bytes[BEFORE + 8..CHECKSUM_AT.start]);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head);
    hasher.update(&bytes[CHECKSUM_AT.end..]);
    hasher.finalize()
}

/// The word of a term in the entry of this index at this offset.
pub(crate) fn term_word(log: u64, index: Index, at: Offset, term: Term) -> u64 {
    debug_assert!(term.0 < 1 << TERM_BITS, "views are not that many");
    term.0 | u64::from(sum_of(&[log, index.0, at.0, term.0])) << TERM_BITS
}

impl<'a> Entry<'a> {
    /// Its length in bytes with a payload of this length.
    pub(crate) const fn bytes_of(payload: usize) -> usize {
        HEAD_BYTES + payload.next_multiple_of(8)
    }

    /// Appends the encoded entry to `out`: a multiple of 8 bytes.
    pub(crate) fn encode(&self, log: u64, out: &mut Vec<u8>) {
        assert!(self.payload.len() <= PAYLOAD_BYTES_MAX, "checked by the caller");
        let begin = out.len();
        let term = term_word(log, self.index, self.at, self.term);
        for word in [self.index.0, term, self.at.0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&[self.kind as u8, 0]);
        out.extend_from_slice(&(self.payload.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for word in [self.commit.0, self.client, self.number] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(self.payload);
        out.resize(begin + Self::bytes_of(self.payload.len()), 0);
        let sum = sum(log, &out[begin..]);
        out[begin..][CHECKSUM_AT].copy_from_slice(&sum.to_le_bytes());
    }

    /// The length of the entry whose first words these are; `None` if it is not the expected one.
    fn length(index: u64, at: u64, head: u64, expected: &Expected) -> Option<usize> {
        let [_, _, low, high, ..] = head.to_le_bytes();
        let payload = usize::from(u16::from_le_bytes([low, high]));
        let is_of_lap = index == expected.index.0 && at == expected.at.0;
        let is_here = is_of_lap || expected.mutant.has(Mutant::StaleLap) && index != 0;
        (is_here && payload <= PAYLOAD_BYTES_MAX).then(|| Self::bytes_of(payload))
    }

    /// The expected entry at the beginning of bytes that were READ, if it is whole.
    pub(crate) fn decode(bytes: &'a [u8], expected: &Expected) -> Option<Self> {
        let whole = Self::length(word(bytes, 0)?, word(bytes, 2)?, word(bytes, 3)?, expected)?;
        let bytes = bytes.get(..whole)?;
        let found = u32::from_le_bytes(bytes.get(CHECKSUM_AT)?.try_into().ok()?);
        let term = Term(word(bytes, 1)? & ((1 << TERM_BITS) - 1));
        let (index, at) = (Index(word(bytes, 0)?), Offset(word(bytes, 2)?));
        if found != sum(expected.log, bytes) || word(bytes, 1)? != term_word(expected.log, index, at, term) {
            return None;
        }
        let payload = usize::from(u16::from_le_bytes([bytes[26], bytes[27]]));
        Some(Self {
            index: expected.index,
            term,
            at: expected.at,
            kind: Kind::from_repr(bytes[24])?,
            commit: Index(word(bytes, 4)?),
            client: word(bytes, 5)?,
            number: word(bytes, 6)?,
            payload: bytes.get(HEAD_BYTES..HEAD_BYTES + payload)?,
        })
    }

    /// The expected entry in own memory, copied into `buffer` first, because it may be overwritten
    /// meanwhile.
    pub(crate) fn read(from: &[AtomicU64], expected: &Expected, buffer: &'a mut Vec<u8>) -> Option<Self> {
        let load = |n: usize| from.get(n).map(|word| word.load(Ordering::Relaxed));
        let whole = Self::length(load(0)?, load(2)?, load(3)?, expected)?;
        buffer.resize(whole, 0);
        memory::copy_out(from.get(..whole / 8)?, buffer);
        fence(Ordering::Acquire);
        Self::decode(buffer, expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: Expected =
        Expected { log: 77, index: Index(7), at: Offset(4096), mutant: ActiveMutant::NONE };

    fn entry(payload: &[u8]) -> Entry<'_> {
        Entry {
            index: Index(7),
            term: Term(3),
            at: Offset(4096),
            kind: Kind::Command,
            commit: Index(5),
            client: 11,
            number: 13,
            payload,
        }
    }

    fn encoded(entry: &Entry<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        entry.encode(77, &mut bytes);
        bytes
    }

    #[test]
    fn an_encoded_entry_is_decoded() {
        for len in [0, 1, 7, 8, 9, PAYLOAD_BYTES_MAX] {
            let payload = vec![0xa5; len];
            let mut bytes = encoded(&entry(&payload));
            assert_eq!(bytes.len(), Entry::bytes_of(len));
            bytes.resize(ENTRY_BYTES_MAX, 0xff);
            assert_eq!(Entry::decode(&bytes, &EXPECTED), Some(entry(&payload)));
            let words = memory::zeroed(ENTRY_BYTES_MAX);
            memory::copy_in(&words, &bytes);
            let mut buffer = Vec::new();
            assert_eq!(Entry::read(&words, &EXPECTED, &mut buffer), Some(entry(&payload)), "{len} bytes");
        }
    }

    #[test]
    fn an_entry_of_another_lap_index_or_log_is_none() {
        let bytes = encoded(&entry(b"x"));
        for other in [
            Expected { log: 78, ..EXPECTED },
            Expected { index: Index(8), ..EXPECTED },
            Expected { at: Offset(8192), ..EXPECTED },
        ] {
            assert_eq!(Entry::decode(&bytes, &other), None, "{other:?}");
        }
    }

    #[test]
    fn a_term_is_replaced_in_place() {
        let mut bytes = encoded(&entry(b"x"));
        let word = term_word(77, Index(7), Offset(4096), Term(9));
        bytes[TERM_AT as usize..][..8].copy_from_slice(&word.to_le_bytes());
        assert_eq!(Entry::decode(&bytes, &EXPECTED), Some(Entry { term: Term(9), ..entry(b"x") }));
        let other = term_word(77, Index(7), Offset(8192), Term(9));
        bytes[TERM_AT as usize..][..8].copy_from_slice(&other.to_le_bytes());
        assert_eq!(Entry::decode(&bytes, &EXPECTED), None, "the term of another lap");
    }

    #[test]
    fn a_torn_entry_is_none() {
        let older = encoded(&Entry { index: Index(2), at: Offset(0), term: Term(1), ..entry(&[1; 64]) });
        let newer = encoded(&entry(&[2; 64]));
        for cut in (8..newer.len()).step_by(8) {
            for (one, other) in [(&newer, &older), (&older, &newer)] {
                let torn = [&one[..cut], &other[cut..]].concat();
                assert_eq!(Entry::decode(&torn, &EXPECTED), None, "{cut} bytes of it");
            }
        }
        assert_eq!(Entry::decode(&[0; ENTRY_BYTES_MAX], &EXPECTED), None, "empty memory");
        assert_eq!(Entry::decode(&newer[..40], &EXPECTED), None, "the end of a ring");
    }

    #[test]
    fn fuzz_entries() {
        let mut target = obol_fuzz::Target::new("smr-entries", obol_fuzz::Shape::Bytes, 100_000);
        for payload in [&b""[..], &[1; 32], &[2; 64]] {
            target = target.with(encoded(&entry(payload)));
        }
        target.run(|input| {
            let mut bytes = input.to_vec();
            bytes.resize(ENTRY_BYTES_MAX, 0);
            // Fix the checksum, so that it does not reject every input.
            let payload = usize::from(u16::from_le_bytes([bytes[26], bytes[27]]));
            let whole = Entry::bytes_of(payload).min(ENTRY_BYTES_MAX);
            let sum = sum(77, &bytes[..whole]);
            bytes[CHECKSUM_AT].copy_from_slice(&sum.to_le_bytes());
            let term = term_word(77, Index(7), Offset(4096), Term(u64::from(bytes[8])));
            bytes[8..16].copy_from_slice(&term.to_le_bytes());
            let Some(entry) = Entry::decode(&bytes, &EXPECTED) else { return 0 };
            assert_eq!(Entry::decode(&encoded(&entry), &EXPECTED), Some(entry));
            obol_fuzz::outcome((entry.kind, entry.payload.len()))
        });
    }
}
