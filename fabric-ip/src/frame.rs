//! The messages on a connection between a process and a gateway. Each is preceded by its length;
//! all numbers are little-endian.
//!
//! The process starts with [`Hello`] and gets [`Reply::Welcome`] or [`Reply::Refused`]. Operations
//! are answered in the order of their requests, so an answer names none. A question is answered when
//! the gateway's program has the answer, so nothing else is sent until then.

use obol_fabric::contract::{Evidence, LinkError};
use obol_fabric::layout::SENDER_BYTES;
use obol_fabric::rights::Role;
use obol_fabric::types::{Address, Instant};
use obol_fabric::version::Release;
use obol_identity::LENGTH_BYTES;

/// Identifies the protocol and its version.
const MAGIC: u64 = u64::from_le_bytes(*b"obol-ip1");
/// The longest READ or WRITE.
pub(super) const OPERATION_BYTES_MAX: usize = 1 << 20;
/// The longest message.
pub(super) const FRAME_BYTES_MAX: usize = OPERATION_BYTES_MAX + 64;

/// Where an operation acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) seat: Seat,
    pub(super) offset: u32,
    /// Counts the failures of this process's operations on the region that it has taken: after a
    /// failure, the gateway executes no operation of the same epoch.
    pub(super) epoch: u32,
}

/// An address within the gateway's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seat {
    pub(super) region: u32,
    pub(super) generation: u32,
    pub(super) seat: u16,
}

impl Seat {
    pub(super) const fn of(at: Address) -> Self {
        Self { region: at.region, generation: at.generation, seat: at.seat }
    }

    pub(super) const fn within_host(self) -> Address {
        Address { host: 0, port: 0, seat: self.seat, region: self.region, generation: self.generation }
    }
}

/// How a process introduces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// The cluster's identity.
    pub(super) nonce: u64,
    /// [`obol_fabric::Layout::digest`] of its regions.
    pub(super) layout: u64,
    /// The release that the process is of.
    pub(super) release: Release,
    /// The region of the process; 0 for an observer.
    pub(super) region: u32,
    pub(super) generation: u32,
    pub(super) role: Role,
}

/// Why a gateway refuses a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub(super) enum Refusal {
    /// Another cluster.
    #[error("it serves another cluster; compare `id` in the files of hosts")]
    Cluster,
    /// Other limits, or another version.
    #[error("its regions have other limits or another version; all hosts need the same profile and obol")]
    Layout,
    /// The certificate does not allow the role or the region.
    #[error("the certificate of this host does not allow this; `obol host keys` makes new ones")]
    Certificate,
    /// The gateway is of this release, which does not work with that of the process.
    #[error("{}", Release::own().advice(*.0))]
    Release(Release),
}

impl Refusal {
    /// As a number, and one that goes with it.
    const fn code(self) -> (u8, u16) {
        match self {
            Self::Cluster => (0, 0),
            Self::Layout => (1, 0),
            Self::Certificate => (2, 0),
            Self::Release(release) => (3, release.number()),
        }
    }

    const fn of((code, number): (u8, u16)) -> Option<Self> {
        Some(match code {
            0 => Self::Cluster,
            1 => Self::Layout,
            2 => Self::Certificate,
            3 => Self::Release(Release::of(number)),
            _ => return None,
        })
    }
}

/// What a process asks of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    Read {
        at: Target,
        len: u32,
    },
    Write {
        at: Target,
        bytes: &'a [u8],
    },
    Cas {
        at: Target,
        expected: u64,
        desired: u64,
    },
    Datagram {
        to: Seat,
        bytes: &'a [u8],
    },
    Multicast {
        groups: u32,
        bytes: &'a [u8],
    },
    Watch(Seat),
    Unwatch(Seat),
    Ping,
    /// An annotation for the operators of the gateway's host.
    Note(&'a [u8]),
    /// Of a gateway: pulses of its host come from now on, sealed with a key of this connection.
    Pulse,
    /// A question to the gateway's program, answered by [`Reply::Read`].
    Ask(&'a [u8]),
}

/// What a gateway sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply<'a> {
    Welcome {
        clock: Instant,
    },
    Refused(Refusal),
    Read(&'a [u8]),
    Written,
    Swapped(u64),
    Failed(LinkError),
    Death(Seat, Evidence),
    /// This number of datagrams of this process were lost.
    Lost(u64),
    Pong {
        clock: Instant,
    },
}

const READ: u8 = 1;
const WRITE: u8 = 2;
const CAS: u8 = 3;
const DATAGRAM: u8 = 4;
const MULTICAST: u8 = 5;
const WATCH: u8 = 6;
const UNWATCH: u8 = 7;
const PING: u8 = 8;
const NOTE: u8 = 9;
const PULSE: u8 = 10;
const ASK: u8 = 11;
const WELCOME: u8 = 32;
const REFUSED: u8 = 33;
const DATA: u8 = 34;
const WRITTEN: u8 = 35;
const SWAPPED: u8 = 36;
const FAILED: u8 = 37;
const DEATH: u8 = 38;
const LOST: u8 = 39;
const PONG: u8 = 40;

const ERRORS: [LinkError; 6] = [
    LinkError::PeerDead,
    LinkError::PeerReplaced,
    LinkError::OutOfBounds,
    LinkError::Denied,
    LinkError::Unmapped,
    LinkError::Unsupported,
];
const ROLES: [Role; 4] = [Role::Reader, Role::Member, Role::Fencer, Role::Proposer];
/// A gateway reports no silence: that is what its peers notice when it does not answer.
const EVIDENCE: [Evidence; 2] = [Evidence::Suspicion, Evidence::Proof];

/// The code of an element of a list.
fn code<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|each| each == one).unwrap_or(usize::MAX) as u8
}

/// Appends a message and its length.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    fn new(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; LENGTH_BYTES]);
        Self { out, start }
    }

    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    fn seat(&mut self, seat: Seat) -> &mut Self {
        self.put(&seat.region.to_le_bytes()).put(&seat.generation.to_le_bytes()).put(&seat.seat.to_le_bytes())
    }

    fn target(&mut self, at: Target) -> &mut Self {
        self.seat(at.seat).put(&at.offset.to_le_bytes()).put(&at.epoch.to_le_bytes())
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        let len = (self.out.len() - self.start - LENGTH_BYTES) as u32;
        if let Some(head) = self.out.get_mut(self.start..self.start + LENGTH_BYTES) {
            head.copy_from_slice(&len.to_le_bytes());
        }
    }
}

/// The unread rest of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(usize::from(self.u8()?)).copied()
    }

    fn seat(&mut self) -> Option<Seat> {
        let (region, generation) = (self.u32()?, self.u32()?);
        Some(Seat { region, generation, seat: self.take().map(u16::from_le_bytes)? })
    }

    fn target(&mut self) -> Option<Target> {
        Some(Target { seat: self.seat()?, offset: self.u32()?, epoch: self.u32()? })
    }

    fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }

    /// The message, if nothing is left over.
    fn ended<T>(self, message: T) -> Option<T> {
        self.0.is_empty().then_some(message)
    }
}

impl Hello {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let Self { nonce, layout, release, region, generation, role } = self;
        let mut to = Writer::new(out);
        to.put(&MAGIC.to_le_bytes()).put(&nonce.to_le_bytes()).put(&layout.to_le_bytes());
        to.put(&release.number().to_le_bytes());
        to.put(&region.to_le_bytes()).put(&generation.to_le_bytes()).put(&[code(&ROLES, role)]);
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Fields(bytes);
        if from.u64()? != MAGIC {
            return None;
        }
        let (nonce, layout, release) = (from.u64()?, from.u64()?, Release::of(from.u16()?));
        let (region, generation, role) = (from.u32()?, from.u32()?, from.one_of(&ROLES)?);
        let hello = Self { nonce, layout, release, region, generation, role };
        from.ended(hello)
    }
}

impl<'a> Request<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut to = Writer::new(out);
        match *self {
            Self::Read { at, len } => to.put(&[READ]).target(at).put(&len.to_le_bytes()),
            Self::Write { at, bytes } => to.put(&[WRITE]).target(at).put(bytes),
            Self::Cas { at, expected, desired } => {
                to.put(&[CAS]).target(at).put(&expected.to_le_bytes()).put(&desired.to_le_bytes())
            }
            Self::Datagram { to: seat, bytes } => to.put(&[DATAGRAM]).seat(seat).put(bytes),
            Self::Multicast { groups, bytes } => to.put(&[MULTICAST]).put(&groups.to_le_bytes()).put(bytes),
            Self::Watch(seat) => to.put(&[WATCH]).seat(seat),
            Self::Unwatch(seat) => to.put(&[UNWATCH]).seat(seat),
            Self::Ping => to.put(&[PING]),
            Self::Note(bytes) => to.put(&[NOTE]).put(bytes),
            Self::Pulse => to.put(&[PULSE]),
            Self::Ask(bytes) => to.put(&[ASK]).put(bytes),
        };
    }

    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut from = Fields(bytes);
        let request = match from.u8()? {
            READ => Self::Read { at: from.target()?, len: from.u32()? },
            WRITE => Self::Write { at: from.target()?, bytes: from.rest() },
            CAS => Self::Cas { at: from.target()?, expected: from.u64()?, desired: from.u64()? },
            DATAGRAM => Self::Datagram { to: from.seat()?, bytes: from.rest() },
            MULTICAST => Self::Multicast { groups: from.u32()?, bytes: from.rest() },
            WATCH => Self::Watch(from.seat()?),
            UNWATCH => Self::Unwatch(from.seat()?),
            PING => Self::Ping,
            NOTE => Self::Note(from.rest()),
            PULSE => Self::Pulse,
            ASK => Self::Ask(from.rest()),
            _ => return None,
        };
        from.ended(request)
    }
}

impl<'a> Reply<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut to = Writer::new(out);
        match self {
            Self::Welcome { clock } => to.put(&[WELCOME]).put(&clock.0.to_le_bytes()),
            Self::Refused(refusal) => {
                let (code, number) = refusal.code();
                to.put(&[REFUSED, code]).put(&number.to_le_bytes())
            }
            Self::Read(bytes) => to.put(&[DATA]).put(bytes),
            Self::Written => to.put(&[WRITTEN]),
            Self::Swapped(found) => to.put(&[SWAPPED]).put(&found.to_le_bytes()),
            Self::Failed(error) => to.put(&[FAILED, code(&ERRORS, error)]),
            Self::Death(seat, evidence) => to.put(&[DEATH, code(&EVIDENCE, evidence)]).seat(*seat),
            Self::Lost(n) => to.put(&[LOST]).put(&n.to_le_bytes()),
            Self::Pong { clock } => to.put(&[PONG]).put(&clock.0.to_le_bytes()),
        };
    }

    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut from = Fields(bytes);
        let reply = match from.u8()? {
            WELCOME => Self::Welcome { clock: Instant(from.u64()?) },
            REFUSED => Self::Refused(Refusal::of((from.u8()?, from.u16()?))?),
            DATA => Self::Read(from.rest()),
            WRITTEN => Self::Written,
            SWAPPED => Self::Swapped(from.u64()?),
            FAILED => Self::Failed(from.one_of(&ERRORS)?),
            DEATH => {
                let evidence = from.one_of(&EVIDENCE)?;
                Self::Death(from.seat()?, evidence)
            }
            LOST => Self::Lost(from.u64()?),
            PONG => Self::Pong { clock: Instant(from.u64()?) },
            _ => return None,
        };
        from.ended(reply)
    }
}

/// The sender before the bytes of a delivered datagram.
pub(super) fn encode_sender(from: Address, out: &mut Vec<u8>) {
    out.extend_from_slice(&from.host.to_le_bytes());
    out.extend_from_slice(&from.port.to_le_bytes());
    out.extend_from_slice(&from.seat.to_le_bytes());
    out.extend_from_slice(&from.region.to_le_bytes());
    out.extend_from_slice(&from.generation.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
}

/// Takes the sender off a delivered datagram.
pub(super) fn take_sender(bytes: &mut Vec<u8>) -> Option<Address> {
    let mut from = Fields(bytes.get(..SENDER_BYTES)?);
    let sender = Address {
        host: from.take().map(u128::from_le_bytes)?,
        port: from.take().map(u16::from_le_bytes)?,
        seat: from.take().map(u16::from_le_bytes)?,
        region: from.u32()?,
        generation: from.u32()?,
    };
    bytes.drain(..SENDER_BYTES);
    Some(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEAT: Seat = Seat { region: 70, generation: 3, seat: 2 };
    const AT: Target = Target { seat: SEAT, offset: 640, epoch: 9 };

    fn payload(out: &[u8]) -> &[u8] {
        let (head, rest) = out.split_first_chunk::<LENGTH_BYTES>().expect("a length");
        assert_eq!(u32::from_le_bytes(*head) as usize, rest.len());
        rest
    }

    #[test]
    fn requests_survive_the_way() {
        for request in [
            Request::Read { at: AT, len: 64 },
            Request::Write { at: AT, bytes: &[1; 16] },
            Request::Cas { at: AT, expected: 5, desired: u64::MAX },
            Request::Datagram { to: SEAT, bytes: b"hello" },
            Request::Multicast { groups: 3, bytes: b"all" },
            Request::Watch(SEAT),
            Request::Unwatch(SEAT),
            Request::Ping,
            Request::Note(b"deploy"),
            Request::Ask(b"what"),
        ] {
            let mut out = Vec::new();
            request.encode(&mut out);
            assert_eq!(Request::decode(payload(&out)), Some(request));
        }
    }

    #[test]
    fn replies_survive_the_way() {
        let errors = ERRORS.map(Reply::Failed);
        let deaths = EVIDENCE.map(|evidence| Reply::Death(SEAT, evidence));
        let release = Refusal::Release(Release::of(2));
        let refusals = [Refusal::Cluster, Refusal::Layout, Refusal::Certificate, release].map(Reply::Refused);
        let others = [
            Reply::Welcome { clock: Instant(7) },
            Reply::Read(b"bytes"),
            Reply::Written,
            Reply::Swapped(77),
            Reply::Lost(2),
            Reply::Pong { clock: Instant(8) },
        ];
        for reply in errors.iter().chain(&deaths).chain(&refusals).chain(&others) {
            let mut out = Vec::new();
            reply.encode(&mut out);
            assert_eq!(Reply::decode(payload(&out)), Some(*reply));
        }
    }

    #[test]
    fn all_releases_are_understood() {
        let first: Release = "0.1".parse().expect("a release");
        let hello =
            Hello { nonce: 1, layout: 2, release: first, region: 3, generation: 4, role: Role::Proposer };
        let requests = [
            Request::Read { at: AT, len: 64 },
            Request::Write { at: AT, bytes: b"value" },
            Request::Cas { at: AT, expected: 1, desired: 2 },
            Request::Datagram { to: SEAT, bytes: b"text" },
            Request::Multicast { groups: 3, bytes: b"text" },
            Request::Watch(SEAT),
            Request::Unwatch(SEAT),
            Request::Ping,
        ];
        let replies = [
            Reply::Welcome { clock: Instant(7) },
            Reply::Refused(Refusal::Release(Release::of(2))),
            Reply::Read(b"bytes"),
            Reply::Written,
            Reply::Swapped(77),
            Reply::Failed(LinkError::PeerReplaced),
            Reply::Death(SEAT, Evidence::Proof),
            Reply::Lost(2),
            Reply::Pong { clock: Instant(8) },
        ];
        let written = |encode: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            encode(&mut out);
            payload(&out).to_vec()
        };
        let mut now = vec![("hello".to_owned(), written(&|out| hello.encode(out)))];
        now.extend(requests.iter().map(|one| ("request".to_owned(), written(&|out| one.encode(out)))));
        now.extend(replies.iter().map(|one| ("reply".to_owned(), written(&|out| one.encode(out)))));
        let folder = [env!("CARGO_MANIFEST_DIR"), "testdata/frames"].iter().collect::<std::path::PathBuf>();
        for old in obol_fuzz::recorded::check(&folder, env!("CARGO_PKG_VERSION"), &now) {
            let read = match old.name.as_str() {
                "hello" => Hello::decode(&old.bytes) == Some(hello),
                "request" => Request::decode(&old.bytes).is_some_and(|one| requests.contains(&one)),
                _ => Reply::decode(&old.bytes).is_some_and(|one| replies.contains(&one)),
            };
            assert!(read, "{old:?}");
        }
    }

    #[test]
    fn a_hello_survives_the_way_and_a_stranger_is_none() {
        for role in ROLES {
            let hello = Hello { nonce: 1, layout: 2, release: Release::THIS, region: 3, generation: 4, role };
            let mut out = Vec::new();
            hello.encode(&mut out);
            assert_eq!(Hello::decode(payload(&out)), Some(hello));
            assert_eq!(Hello::decode(&payload(&out)[1..]), None);
        }
        assert_eq!(Hello::decode(b"GET / HTTP/1.1\r\n\r\n"), None);
    }

    #[test]
    fn what_is_cut_off_or_too_long_is_refused() {
        for request in [Request::Read { at: AT, len: 8 }, Request::Watch(SEAT), Request::Ping] {
            let mut out = Vec::new();
            request.encode(&mut out);
            let whole = payload(&out).to_vec();
            for len in 0..whole.len() {
                assert_eq!(Request::decode(&whole[..len]), None);
            }
            assert_eq!(Request::decode(&[&whole[..], &[0]].concat()), None);
        }
    }

    #[test]
    fn a_datagram_carries_its_sender() {
        let from = Address { host: u128::MAX - 3, port: 7400, seat: 0, region: 70, generation: 12 };
        let mut bytes = Vec::new();
        encode_sender(from, &mut bytes);
        assert_eq!(bytes.len(), SENDER_BYTES);
        bytes.extend_from_slice(b"text");
        assert_eq!(take_sender(&mut bytes), Some(from));
        assert_eq!(bytes, b"text");
        assert_eq!(take_sender(&mut bytes), None);
    }
}
