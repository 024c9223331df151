//! One entry of a server's memory: a client's request, or a record of the primary's log. Both are written by one-sided
//! WRITEs of more than 8 bytes, so a reader may see half of one; the checksum tells.
//!
//! ```text
//! 0   number     counts a client's requests, or a log's records, from 1
//! 8   head       kind (1 byte), spare (1 byte), bytes of the value (2 bytes), CRC-32 of all the rest (4 bytes)
//! 16  key
//! 24  client     who asked
//! 32  request    the number of its request
//! 40  value      filled up with zeros to a multiple of 8
//! ```

use crate::VALUE_BYTES_MAX;

/// Bytes before the value.
pub(crate) const HEAD_BYTES: usize = 40;
/// Bytes of the longest entry.
pub(crate) const ENTRY_BYTES: usize = HEAD_BYTES + VALUE_BYTES_MAX;
const _: () = assert!(ENTRY_BYTES.is_multiple_of(8));

/// What an entry asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A client's: read a key.
    Get = 1,
    /// A client's, and the log's: write a key.
    Put = 2,
    /// The log's: a key as it is, for a backup that joined later.
    Copy = 3,
    /// The log's: the newest PUT of a client, for such a backup.
    Seen = 4,
    /// The log's: a backup that has this record has everything.
    Synced = 5,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Get, Self::Put, Self::Copy, Self::Seen, Self::Synced];
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry<'a> {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    pub(crate) key: u64,
    pub(crate) client: u64,
    pub(crate) request: u64,
    pub(crate) value: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The checksum of an entry whose own place holds zero.
fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..12]);
    hasher.update(&bytes[16..]);
    hasher.finalize()
}

impl<'a> Entry<'a> {
    /// Appends the entry's bytes: a multiple of 8.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(self.value.len() <= VALUE_BYTES_MAX, "checked where it was taken");
        let begin = out.len();
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&[self.kind as u8, 0]);
        out.extend_from_slice(&(self.value.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for word in [self.key, self.client, self.request] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(self.value);
        out.resize(begin + HEAD_BYTES + self.value.len().next_multiple_of(8), 0);
        let sum = checksum(&out[begin..]);
        out[begin + 12..begin + 16].copy_from_slice(&sum.to_le_bytes());
    }

    /// The entry at the beginning of these bytes; `None` if there is none, or only a part of one.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let head = word(bytes, 8)?.to_le_bytes();
        let kind = *Kind::ALL.get(usize::from(head[0]).wrapping_sub(1))?;
        let len = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let whole = bytes.get(..HEAD_BYTES + len.next_multiple_of(8))?;
        let sum = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        if len > VALUE_BYTES_MAX || checksum(whole) != sum {
            return None;
        }
        Some(Self {
            number: word(bytes, 0)?,
            kind,
            key: word(bytes, 16)?,
            client: word(bytes, 24)?,
            request: word(bytes, 32)?,
            value: whole.get(HEAD_BYTES..HEAD_BYTES + len)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(value: &[u8]) -> Entry<'_> {
        Entry { number: 7, kind: Kind::Put, key: 9, client: 11, request: 13, value }
    }

    #[test]
    fn an_entry_comes_back_as_it_went_in_whatever_follows_it() {
        for len in [0, 1, 7, 8, 9, VALUE_BYTES_MAX] {
            let value = vec![0xa5; len];
            let mut bytes = Vec::new();
            entry(&value).encode(&mut bytes);
            assert!(bytes.len().is_multiple_of(8) && bytes.len() <= ENTRY_BYTES);
            bytes.resize(ENTRY_BYTES, 0xff);
            assert_eq!(Entry::decode(&bytes), Some(entry(&value)), "{len} bytes");
        }
    }

    #[test]
    fn half_an_entry_is_none() {
        let mut older = Vec::new();
        entry(&[1; 64]).encode(&mut older);
        let mut newer = Vec::new();
        Entry { number: 8, ..entry(&[2; 64]) }.encode(&mut newer);
        for cut in (8..newer.len()).step_by(8) {
            let mut torn = newer[..cut].to_vec();
            torn.extend_from_slice(&older[cut..]);
            assert_eq!(Entry::decode(&torn), None, "{cut} bytes of it");
        }
        assert_eq!(Entry::decode(&[0; ENTRY_BYTES]), None, "empty memory");
        assert_eq!(Entry::decode(&newer[..16]), None);
    }
}
