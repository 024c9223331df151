//! Seals datagrams (AES-128-GCM), where the hosts have keys. A process draws a key for the datagrams
//! that it sends, its *datagram key*, and gives it to its peers in the handshake, whose parts are sealed.
//!
//! | bytes | of a datagram |
//! |---|---|
//! | 4 | `obds` |
//! | 2, 1, 1 | the sender's region, whether it is a notice of its death, zero |
//! | 8 | the session, which changes with the datagram key |
//! | 8 | a number that is used once |
//! | n | the sealed payload |
//! | 16 | its tag, which covers all before it |
//!
//! Who sends and where it listens is not in the datagram: it is known from the handshake.

use obol_fabric::notice::Notice;
use obol_fabric::types::Address;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: [u8; 4] = *b"obds";
/// Bytes before the payload.
pub(crate) const FRONT_BYTES: usize = 24;
pub(crate) const TAG_BYTES: usize = 16;
const KEY_BYTES: usize = 16;
/// The bytes of a datagram key in a handshake: session, key, and the number of the next datagram.
pub(crate) const DATAGRAM_KEY_BYTES: usize = 8 + KEY_BYTES + 8;

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ordinary = 0,
    /// Sealed in advance, for the kernel to send. It is sent at most once, when its repetition can do
    /// no harm any more, so its number is not compared with those of others.
    Notice = 1,
}

/// The own datagram key, of all threads.
#[derive(Clone)]
pub(crate) struct DatagramKey(Arc<Own>);

struct Own {
    session: u64,
    secret: [u8; KEY_BYTES],
    key: LessSafeKey,
    next: [AtomicU64; 2],
}

impl core::fmt::Debug for DatagramKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("DatagramKey")
    }
}

fn key(secret: &[u8]) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_128_GCM, secret).ok().map(LessSafeKey::new)
}

fn nonce(kind: Kind, number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[0] = kind as u8;
    bytes[NONCE_LEN - 8..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl DatagramKey {
    /// A new one; `None` if the system has no random bytes.
    pub(crate) fn draw() -> Option<Self> {
        let mut bytes = [0; 8 + KEY_BYTES];
        SystemRandom::new().fill(&mut bytes).ok()?;
        let (session, secret) = bytes.split_first_chunk::<8>()?;
        // 0 stands for no datagram key.
        let session = u64::from_le_bytes(*session) | 1;
        let secret = *secret.first_chunk()?;
        let next = [AtomicU64::new(1), AtomicU64::new(1)];
        Some(Self(Arc::new(Own { session, secret, key: key(&secret)?, next })))
    }

    /// For a peer. Datagrams that were sent before are none for it, so they cannot be repeated to it.
    pub(crate) fn encode(&self) -> [u8; DATAGRAM_KEY_BYTES] {
        let next = self.0.next[Kind::Ordinary as usize].load(Ordering::Acquire);
        let mut out = [0; DATAGRAM_KEY_BYTES];
        let (session, rest) = out.split_at_mut(8);
        let (secret, number) = rest.split_at_mut(KEY_BYTES);
        session.copy_from_slice(&self.0.session.to_le_bytes());
        secret.copy_from_slice(&self.0.secret);
        number.copy_from_slice(&next.to_le_bytes());
        out
    }

    fn seal(&self, kind: Kind, region: u32, payload: &[u8], out: &mut Vec<u8>) -> bool {
        // Each number is used once, also by several threads.
        let number = self.0.next[kind as usize].fetch_add(1, Ordering::AcqRel);
        out.clear();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&(region as u16).to_le_bytes());
        out.extend_from_slice(&[kind as u8, 0]);
        out.extend_from_slice(&self.0.session.to_le_bytes());
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(payload);
        let Some((front, body)) = out.split_first_chunk_mut::<FRONT_BYTES>() else { return false };
        let sealed = self.0.key.seal_in_place_separate_tag(nonce(kind, number), Aad::from(*front), body);
        let Ok(tag) = sealed else { return false };
        out.extend_from_slice(tag.as_ref());
        true
    }
}

/// A peer's datagram key, as it was given in a handshake.
#[derive(Debug)]
pub(crate) struct PeerKey {
    session: u64,
    key: LessSafeKey,
    next: u64,
}

impl PeerKey {
    /// `None` if the peer has none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Box<Self>> {
        let bytes = bytes.get(..DATAGRAM_KEY_BYTES)?;
        let (session, next) = (word(bytes, 0)?, word(bytes, 8 + KEY_BYTES)?);
        let key = key(bytes.get(8..8 + KEY_BYTES)?)?;
        (session != 0).then(|| Box::new(Self { session, key, next }))
    }
}

/// How far datagrams may overtake each other.
const WINDOW: u64 = 1024;
const WINDOW_WORDS: usize = (WINDOW / 64) as usize;

/// Which numbers have come: each is taken once.
#[derive(Debug)]
struct Window {
    newest: u64,
    /// A bit for each of the last [`WINDOW`] numbers, at its remainder.
    taken: [u64; WINDOW_WORDS],
}

impl Window {
    /// Nothing before `next` is taken.
    const fn from(next: u64) -> Self {
        Self { newest: next.saturating_sub(1), taken: [u64::MAX; WINDOW_WORDS] }
    }

    fn bit(&mut self, number: u64) -> Option<(&mut u64, u64)> {
        let at = number % WINDOW;
        Some((self.taken.get_mut((at / 64) as usize)?, 1 << (at % 64)))
    }

    fn take(&mut self, number: u64) -> bool {
        if number > self.newest {
            for skipped in self.newest.max(number.saturating_sub(WINDOW)) + 1..=number {
                if let Some((word, bit)) = self.bit(skipped) {
                    *word &= !bit;
                }
            }
            self.newest = number;
        } else if self.newest - number >= WINDOW {
            return false;
        }
        let Some((word, bit)) = self.bit(number) else { return false };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

#[derive(Debug)]
struct Peer {
    at: Address,
    session: u64,
    key: LessSafeKey,
    window: Window,
}

/// What a received datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// It is of this process, and its payload is in the buffer.
    From(Address),
    /// The own one, which a group gives back.
    Own,
    /// Of a process whose datagram key is not known: there is no connection to it, or from it.
    Unknown,
    /// Not authentic, or a repetition.
    Refused,
}

/// Seals what is sent, and opens what has arrived.
#[derive(Debug)]
pub(crate) struct Seal {
    own: DatagramKey,
    region: u32,
    /// By region.
    peers: HashMap<u32, Peer>,
}

impl Seal {
    pub(crate) fn new(own: DatagramKey, region: u32) -> Self {
        Self { own, region, peers: HashMap::new() }
    }

    /// The datagram key of the process at an address.
    pub(crate) fn learn(&mut self, at: Address, datagram_key: PeerKey) {
        let PeerKey { session, key, next } = datagram_key;
        match self.peers.get_mut(&at.region) {
            // What it has sent must not be taken a second time.
            Some(peer) if peer.session == session => peer.at = at,
            _ => {
                self.peers.insert(at.region, Peer { at, session, key, window: Window::from(next) });
            }
        }
    }

    /// The datagram with a payload. `false` if it cannot be sealed.
    pub(crate) fn seal(&self, payload: &[u8], out: &mut Vec<u8>) -> bool {
        self.own.seal(Kind::Ordinary, self.region, payload, out)
    }

    /// The datagram with a death notice, for the kernel to send.
    pub(crate) fn seal_notice(&self, notice: &[u8], out: &mut Vec<u8>) -> bool {
        self.own.seal(Kind::Notice, self.region, notice, out)
    }

    /// Opens a datagram, and leaves its payload in the buffer.
    pub(crate) fn open(&mut self, datagram: &mut Vec<u8>) -> Opened {
        self.opened(datagram).unwrap_or(Opened::Refused)
    }

    fn opened(&mut self, datagram: &mut Vec<u8>) -> Option<Opened> {
        let (front, body) = datagram.split_first_chunk_mut::<FRONT_BYTES>()?;
        let region = u32::from(u16::from_le_bytes(*front.get(4..)?.first_chunk()?));
        let kind = match front[6] {
            0 => Kind::Ordinary,
            1 => Kind::Notice,
            _ => return None,
        };
        let (session, number) = (word(front, 8)?, word(front, 16)?);
        if !front.starts_with(&MAGIC) {
            return None;
        }
        if (region, session) == (self.region, self.own.0.session) {
            return Some(Opened::Own);
        }
        let Some(peer) = self.peers.get_mut(&region).filter(|peer| peer.session == session) else {
            return Some(Opened::Unknown);
        };
        let plain = peer.key.open_in_place(nonce(kind, number), Aad::from(*front), body).ok()?;
        let bytes = plain.len();
        let is_new = match kind {
            Kind::Ordinary => peer.window.take(number),
            Kind::Notice => Notice::decode(plain).is_some_and(|notice| notice.who.region == region),
        };
        let at = peer.at;
        datagram.copy_within(FRONT_BYTES..FRONT_BYTES + bytes, 0);
        datagram.truncate(bytes);
        is_new.then_some(Opened::From(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_deaths::Stage;

    /// Two processes; the first knows the datagram key of the second.
    fn two() -> (Seal, Seal, Address) {
        let keys = [DatagramKey::draw().expect("drawn"), DatagramKey::draw().expect("drawn")];
        let at = Address { generation: 3, ..Address::region(70) };
        let sender = Seal::new(keys[1].clone(), 70);
        let mut receiver = Seal::new(keys[0].clone(), 40);
        receiver.learn(at, *PeerKey::decode(&keys[1].encode()).expect("a key"));
        (receiver, sender, at)
    }

    fn sealed(sender: &Seal, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        assert!(sender.seal(payload, &mut out));
        out
    }

    #[test]
    fn a_datagram_is_taken_once_from_who_has_sent_it_and_unchanged() {
        let (mut receiver, sender, at) = two();
        let sent = sealed(&sender, b"CLEAR 7");
        assert_eq!(sent.len(), b"CLEAR 7".len() + FRONT_BYTES + TAG_BYTES);
        assert!(!sent.windows(5).any(|part| part == b"CLEAR"));
        for bit in 0..sent.len() * 8 {
            let mut changed = sent.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let opened = receiver.open(&mut changed);
            assert!(matches!(opened, Opened::Refused | Opened::Unknown), "bit {bit}: {opened:?}");
        }
        for len in 0..sent.len() {
            assert_eq!(receiver.open(&mut sent[..len].to_vec()), Opened::Refused, "{len} bytes");
        }
        let mut received = sent.clone();
        assert_eq!(receiver.open(&mut received), Opened::From(at));
        assert_eq!(received, b"CLEAR 7");
        assert_eq!(receiver.open(&mut sent.clone()), Opened::Refused, "repeated");
        // Nor after another handshake with the same process.
        receiver.learn(at, *PeerKey::decode(&sender.own.encode()).expect("a key"));
        assert_eq!(receiver.open(&mut sent.clone()), Opened::Refused);
    }

    #[test]
    fn what_was_sent_before_the_handshake_is_not_repeated_to_a_new_peer() {
        let (_, sender, at) = two();
        let before = sealed(&sender, b"old");
        let mut joins = Seal::new(DatagramKey::draw().expect("drawn"), 41);
        assert_eq!(joins.open(&mut before.clone()), Opened::Unknown);
        joins.learn(at, *PeerKey::decode(&sender.own.encode()).expect("a key"));
        assert_eq!(joins.open(&mut before.clone()), Opened::Refused);
        assert_eq!(joins.open(&mut sealed(&sender, b"new")), Opened::From(at));
    }

    #[test]
    fn a_datagram_that_is_sealed_with_another_key_is_refused() {
        let (mut receiver, _, at) = two();
        // It knows region and session, which are in clear, and everything else that is not secret.
        let stranger = Seal::new(DatagramKey::draw().expect("drawn"), at.region);
        let mut forged = sealed(&stranger, b"CLEAR 9");
        let session = receiver.peers[&at.region].session;
        assert_eq!(receiver.open(&mut forged.clone()), Opened::Unknown);
        forged[8..16].copy_from_slice(&session.to_le_bytes());
        assert_eq!(receiver.open(&mut forged), Opened::Refused);
        let mut clear = Vec::new();
        super::super::datagrams::frame(1, at, b"CLEAR 9", &mut clear);
        assert_eq!(receiver.open(&mut clear), Opened::Refused, "not sealed");
    }

    #[test]
    fn datagrams_may_overtake_each_other_and_are_taken_once_each() {
        let mut window = Window::from(10);
        assert!(!window.take(9) && !window.take(0), "before the handshake");
        assert!(window.take(12) && window.take(10) && window.take(11));
        for number in 10..=12 {
            assert!(!window.take(number), "{number} again");
        }
        assert!(window.take(12 + WINDOW) && !window.take(12) && window.take(13));
        assert!(window.take(u64::MAX) && !window.take(14) && window.take(u64::MAX - WINDOW + 1));
    }

    #[test]
    fn a_notice_that_was_sealed_long_before_is_taken_and_nothing_else_in_its_place() {
        let (mut receiver, sender, at) = two();
        let notice = Notice { cluster: 1, who: at, stage: Stage::Dead, token: 5 }.encode();
        let other = Notice { cluster: 1, who: Address { region: 71, ..at }, stage: Stage::Dead, token: 5 };
        let seal = |payload: &[u8]| {
            let mut out = Vec::new();
            assert!(sender.seal_notice(payload, &mut out));
            out
        };
        let [mut early, mut elsewhere, mut message] =
            [seal(&notice), seal(&other.encode()), seal(b"CLEAR 9")];
        for _ in 0..2 * WINDOW {
            assert_eq!(receiver.open(&mut sealed(&sender, b"beat")), Opened::From(at));
        }
        assert_eq!(receiver.open(&mut early), Opened::From(at));
        assert_eq!(early, notice);
        assert_eq!(receiver.open(&mut elsewhere), Opened::Refused, "of another process");
        assert_eq!(receiver.open(&mut message), Opened::Refused, "no notice");
    }

    #[test]
    fn a_process_does_not_hear_itself() {
        let (mut receiver, ..) = two();
        let mut own = sealed(&receiver, b"beat");
        assert_eq!(receiver.open(&mut own), Opened::Own);
    }
}
