//! Seals frames (AES-128-GCM) with a key of the TLS session between two gateways, which have verified
//! each other's certificates. Each direction has a session of its own.
//!
//! | bytes | of a datagram |
//! |---|---|
//! | 4 | `oblp` |
//! | 1, 1 | the sender's host, the path |
//! | 1, 1 | 1 of a notice, else 0, by which the receiving kernel sorts; zero |
//! | 8 | the session |
//! | 8 | the frame's sequence |
//! | 34 and more | the sealed frame |
//! | 16 | its tag, which covers all before it |

use crate::pulse::{Frame, FrameKind, PLAIN_BYTES_MAX, PLAIN_BYTES_MIN};
use obol_identity::Stream;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

pub(super) const MAGIC: [u8; 4] = *b"oblp";
const HEADER_BYTES: usize = 24;
const KEY_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
/// Where a datagram names the sender's host, and the path.
pub(super) const HOST_AT: usize = 4;
pub(super) const PATH_AT: usize = 5;
/// Where a datagram says that it is a notice, and by which byte.
pub(super) const KIND_AT: usize = 6;
/// Where it has a zero, and the session.
pub(super) const ZERO_AT: usize = 7;
pub(super) const SESSION_AT: usize = 8;
pub(super) const NOTICE: u8 = 1;
/// Names the use of the exported key (RFC 8446, 7.5).
const LABEL: &[u8] = b"EXPORTER-obol-pulse";
/// The longest datagram, and the shortest one.
pub(super) const DATAGRAM_BYTES_MAX: usize = HEADER_BYTES + PLAIN_BYTES_MAX + TAG_BYTES;
pub(super) const DATAGRAM_BYTES_MIN: usize = HEADER_BYTES + PLAIN_BYTES_MIN + TAG_BYTES;

/// The key of a session, in the direction from the gateway that made the connection.
pub(crate) struct SessionKey {
    session: u64,
    key: LessSafeKey,
}

impl SessionKey {
    /// The key of a connection whose handshake is complete; the same at both ends.
    pub(crate) fn of(stream: &Stream) -> Option<Self> {
        Self::new(stream.export::<{ KEY_BYTES + 8 }>(LABEL)?)
    }

    /// From the bytes of the exported key.
    pub(crate) fn new(bytes: [u8; KEY_BYTES + 8]) -> Option<Self> {
        let (key, rest) = bytes.split_first_chunk::<KEY_BYTES>()?;
        let session = u64::from_le_bytes(*rest.first_chunk()?);
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).ok()?);
        Some(Self { session, key })
    }

    /// The number of the session.
    pub(super) const fn session(&self) -> u64 {
        self.session
    }

    /// Makes the datagram of a frame for a path. No number is sealed twice with a key: a sender uses
    /// each once in its life, and paths are a part of the nonce.
    pub(crate) fn seal(&self, host: u8, path: u8, frame: &Frame, out: &mut Vec<u8>) -> bool {
        out.clear();
        out.extend_from_slice(&MAGIC);
        let kind = if matches!(frame.kind, FrameKind::Notice { .. }) { NOTICE } else { 0 };
        out.extend_from_slice(&[host, path, kind, 0]);
        out.extend_from_slice(&self.session.to_le_bytes());
        out.extend_from_slice(&frame.sequence.to_le_bytes());
        frame.encode(out);
        let Some((head, body)) = out.split_first_chunk_mut::<HEADER_BYTES>() else { return false };
        let nonce = nonce(path, frame.sequence);
        let Ok(tag) = self.key.seal_in_place_separate_tag(nonce, Aad::from(*head), body) else {
            return false;
        };
        out.extend_from_slice(tag.as_ref());
        true
    }

    /// Opens a datagram that has come by a path. `None` if it is not authentic, or of an earlier
    /// session.
    pub(crate) fn open(&self, path: u8, datagram: &mut [u8]) -> Option<Frame> {
        let (head, body) = datagram.split_first_chunk_mut::<HEADER_BYTES>()?;
        let (session, number) = (word(head, SESSION_AT)?, word(head, SESSION_AT + 8)?);
        if session != self.session || head[PATH_AT] != path {
            return None;
        }
        let plain = self.key.open_in_place(nonce(path, number), Aad::from(*head), body).ok()?;
        Frame::decode(plain).filter(|frame| frame.sequence == number)
    }
}

fn word(head: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*head.get(at..)?.first_chunk()?))
}

fn nonce(path: u8, number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[0] = path;
    bytes[NONCE_LEN - 8..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// The host that a datagram claims to be of.
pub(super) fn claimed_host(datagram: &[u8]) -> Option<u8> {
    let head = datagram.first_chunk::<HEADER_BYTES>()?;
    (head.starts_with(&MAGIC)).then_some(head[HOST_AT])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pulse::FrameKind;
    use obol_fabric::types::Instant;

    #[test]
    fn a_datagram_opens_with_its_key_on_its_path_and_unchanged_only() {
        let key = SessionKey::new([7; 24]).expect("a key");
        let frame =
            Frame { sequence: 5, sent: Instant(9), alive: 3, kind: FrameKind::Pulse, deaths: Vec::new() };
        let mut sealed = Vec::new();
        assert!(key.seal(2, 1, &frame, &mut sealed));
        assert_eq!((sealed.len(), claimed_host(&sealed)), (74, Some(2)));
        assert_eq!(key.open(1, &mut sealed.clone()).as_ref(), Some(&frame));
        assert_eq!((sealed[KIND_AT], key.open(0, &mut sealed.clone())), (0, None), "another path");
        for other in [[8; 24], [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 7, 7, 7, 7, 7, 7, 7]] {
            assert_eq!(SessionKey::new(other).expect("a key").open(1, &mut sealed.clone()), None);
        }
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.open(1, &mut changed), None, "bit {bit}");
        }
        for len in 0..sealed.len() {
            assert_eq!(key.open(1, &mut sealed[..len].to_vec()), None, "{len} bytes");
        }
        let notice = Frame { kind: FrameKind::Notice { after: 4 }, ..frame };
        assert!(key.seal(2, 1, &notice, &mut sealed));
        assert_eq!((sealed[KIND_AT], key.open(1, &mut sealed)), (NOTICE, Some(notice)));
    }
}
