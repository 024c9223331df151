//! One entry of a server's memory: a client's request, or a record of the primary's log. Both are
//! written by one-sided WRITEs of more than 8 bytes, so a reader may see a torn entry, which the
//! checksum detects. A GET, and a PUT of 32 bytes, take one cache line.
//!
//! ```text
//! 0   number     of the client's request, or of the log's record, from 1
//! 8   head       kind (1 byte), whether the request's number is included (1 byte), bytes of the value (2 bytes), checksum (4 bytes)
//! 16  key
//! 24  client     that sent the request
//! 32  request    the number of its request; left out if it is the number of the entry
//! ..  value      filled up with zeros to a multiple of 8
//! ```

use crate::limits::VALUE_BYTES_MAX;
use crate::mutants::{ActiveMutant, Mutant};
use core::sync::atomic::AtomicU64;
use obol_fabric::Incarnation;
use obol_fabric::sealed;
use strum::FromRepr;

/// Words before the value, without the request's number.
const HEAD_WORDS: usize = 4;
/// Bytes of the longest entry.
pub(crate) const ENTRY_BYTES: usize = (HEAD_WORDS + 1) * 8 + VALUE_BYTES_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromRepr)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Client: read a key.
    Get = 1,
    /// Client and log: write a key.
    Put = 2,
    /// Log: a key's current value, for a backup that joined later.
    Copy = 3,
    /// Log: the newest PUT of a client, for such a backup.
    ClientSeq = 4,
    /// Log: a backup that has this record has everything. Its key is the number of the newest PUT
    /// before it.
    Synced = 5,
    /// Log, first record: the backup has to discard its state.
    Reset = 6,
    /// Log, first record: the backup keeps its state.
    Resume = 7,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry<'a> {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    pub(crate) key: u64,
    pub(crate) client: u64,
    pub(crate) request: u64,
    pub(crate) value: &'a [u8],
}

impl<'a> Entry<'a> {
    /// An entry of this kind without contents.
    pub(crate) const fn bare(kind: Kind) -> Self {
        Self { number: 0, kind, key: 0, client: 0, request: 0, value: &[] }
    }

    pub(crate) const fn put(key: u64, client: u64, request: u64, value: &'a [u8]) -> Self {
        Self { number: 0, kind: Kind::Put, key, client, request, value }
    }

    /// Encodes the entry into `out`: a multiple of 8 bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.value.len() <= VALUE_BYTES_MAX, "checked by the caller");
        let request = [self.request];
        let more = if self.request == self.number { &[][..] } else { &request[..] };
        let head = sealed::Head { kind: self.kind as u8, more: more.len() as u8 };
        sealed::encode(self.number, head, &[self.key, self.client], more, self.value, out);
    }

    /// Its length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let more = usize::from(self.request != self.number);
        8 * (HEAD_WORDS + more) + self.value.len().next_multiple_of(8)
    }

    /// The entry with this number, if it is complete. It is copied into `buffer` first, because it
    /// may be overwritten meanwhile.
    pub(crate) fn decode(from: &[AtomicU64], number: u64, buffer: &'a mut Vec<u8>) -> Option<Self> {
        let head = sealed::copy(from, number, HEAD_WORDS, VALUE_BYTES_MAX, buffer)?;
        let buffer: &'a [u8] = buffer;
        let kind = Kind::from_repr(head.kind)?;
        let request = if head.more == 0 { number } else { sealed::word(buffer, HEAD_WORDS)? };
        let value = buffer.get(8 * (HEAD_WORDS + usize::from(head.more))..)?;
        let [key, client] = [sealed::word(buffer, 2)?, sealed::word(buffer, 3)?];
        Some(Self { number, kind, key, client, request, value })
    }
}

/// The number of the first record of a backup's log. A region keeps what was written into it in an
/// earlier life of its process, and each life has at most one log of each primary. So the numbers
/// of logs are far apart.
pub(crate) fn first_record(backup: Incarnation, primary: Incarnation, mutant: ActiveMutant) -> u64 {
    if mutant.has(Mutant::LogsAlike) {
        return 1;
    }
    // The finalizer of SplitMix64, which spreads neighbours over all numbers. Half of them, so that
    // counting never overflows.
    let mut mixed = backup.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(primary.0);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 1) | 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::memory;

    fn entry(value: &[u8]) -> Entry<'_> {
        Entry { number: 7, kind: Kind::Put, key: 9, client: 11, request: 13, value }
    }

    fn written(bytes: &[u8]) -> Box<[AtomicU64]> {
        let words = memory::zeroed(ENTRY_BYTES);
        memory::copy_in(&words, bytes);
        words
    }

    #[test]
    fn an_encoded_entry_is_decoded() {
        for len in [0, 1, 7, 8, 9, VALUE_BYTES_MAX] {
            for request in [7, 13] {
                let value = vec![0xa5; len];
                let entry = Entry { request, ..entry(&value) };
                let (mut bytes, mut buffer) = (Vec::new(), Vec::new());
                entry.encode(&mut bytes);
                assert!(bytes.len().is_multiple_of(8) && bytes.len() <= ENTRY_BYTES);
                assert_eq!(bytes.len(), entry.bytes());
                bytes.resize(ENTRY_BYTES, 0xff);
                assert_eq!(Entry::decode(&written(&bytes), 8, &mut buffer), None);
                assert_eq!(Entry::decode(&written(&bytes), 7, &mut buffer), Some(entry), "{len} bytes");
            }
        }
    }

    #[test]
    fn a_short_put_takes_a_cache_line() {
        let mut bytes = Vec::new();
        Entry { request: 7, ..entry(&[1; 32]) }.encode(&mut bytes);
        assert_eq!(bytes.len(), 64);
    }

    #[test]
    fn a_torn_entry_is_rejected() {
        let (mut older, mut newer, mut buffer) = (Vec::new(), Vec::new(), Vec::new());
        entry(&[1; 64]).encode(&mut older);
        Entry { number: 8, ..entry(&[2; 64]) }.encode(&mut newer);
        for cut in (8..newer.len()).step_by(8) {
            let mut torn = newer[..cut].to_vec();
            torn.extend_from_slice(&older[cut..]);
            assert_eq!(Entry::decode(&written(&torn), 8, &mut buffer), None, "{cut} bytes of it");
        }
        assert_eq!(Entry::decode(&written(&[0; ENTRY_BYTES]), 0, &mut buffer), None, "empty memory");
        assert_eq!(Entry::decode(&written(&newer)[..2], 8, &mut buffer), None);
    }

    #[test]
    fn fuzz_entries() {
        let mut target = obol_fuzz::Target::new("kv-entries", obol_fuzz::Shape::Bytes, 200_000);
        for (request, value) in [(7, &b""[..]), (13, &[1; 32]), (7, &[2; 64])] {
            let mut bytes = Vec::new();
            Entry { request, ..entry(value) }.encode(&mut bytes);
            target = target.with(bytes);
        }
        target.run(|input| {
            let mut memory = input.to_vec();
            memory.resize(ENTRY_BYTES, 0);
            // Fix the checksum, so that it does not reject every input.
            let [more, low, high] = [9, 10, 11].map(|at| usize::from(memory[at]));
            let whole = (8 * (HEAD_WORDS + more) + (low | high << 8)).next_multiple_of(8).min(ENTRY_BYTES);
            memory[12..16].fill(0);
            let sum = crc32fast::hash(&memory[..whole]);
            memory[12..16].copy_from_slice(&sum.to_le_bytes());
            let number = memory.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
            let mut buffer = Vec::new();
            let Some(entry) = Entry::decode(&written(&memory), number, &mut buffer) else { return 0 };
            let mut again = Vec::new();
            entry.encode(&mut again);
            assert_eq!(again.len(), entry.bytes());
            let mut buffer = Vec::new();
            assert_eq!(Entry::decode(&written(&again), number, &mut buffer), Some(entry.clone()));
            obol_fuzz::outcome((entry.kind, entry.value.len(), entry.request == entry.number))
        });
    }
}
