//! The authenticated half of the handshake, where the hosts have keys ([`obol_identity`]).
//!
//! The private data of `rdma_cm` has no room for certificates and crosses the network in clear. So
//! a process first connects by TLS to the TCP port of the same number, and sends its [`Hello`] and
//! its datagram key there. If its certificate allows what that says, it gets a ticket, which is good for one
//! connection and some seconds. The request of `rdma_cm` carries the ticket and nothing else; the
//! [`Welcome`] and the datagram key of the other process are sealed with a key that both ends derive from
//! the TLS handshake. Keys of memory, datagram keys, tokens of death notices and the role are therefore
//! never in clear on the network.

use super::cm::{ACCEPT_BYTES_MAX, REQUEST_BYTES_MAX};
use super::handshake::{Hello, Identity, Refusal, Welcome};
use super::sealing::{DATAGRAM_KEY_BYTES, DatagramKey, PeerKey};
use obol_fabric::host::FIRST_FREE;
use obol_fabric::metrics::FabricCounter;
use obol_fabric::rights::Role;
use obol_fabric::types::{Address, ip_of};
use obol_identity::{
    Claims, ConnectError, Duty, Gate, LENGTH_BYTES, Route, Stream, Unintelligible, introduce,
};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant as Time};

/// For which purpose a secret is derived.
const LABEL: &[u8] = b"EXPORTER-obol-rdma-welcome";
/// Longer than any message of an introduction.
pub(crate) const MESSAGE_BYTES_MAX: usize = 256;
/// Tickets that are not used yet. For a further one, the oldest is forgotten.
const TICKETS_MAX: usize = 1024;
/// How long a ticket is good: longer than any attempt to connect.
const TICKET_LIFE: Duration = Duration::from_secs(10);
const TICKET_BYTES: usize = 16;
/// Marks a request that carries a ticket.
const TICKET_MAGIC: [u8; 8] = *b"oboltckt";
/// The last bytes of what is sealed.
const TAG_BYTES: usize = 16;

const GRANTED: u8 = 0;
const REFUSED: u8 = 1;

const _: () = assert!(TICKET_MAGIC.len() + TICKET_BYTES <= REQUEST_BYTES_MAX);
/// The bytes of a sealed answer.
const ANSWER_BYTES: usize = Welcome::BYTES + DATAGRAM_KEY_BYTES + TAG_BYTES;
const _: () = assert!(ANSWER_BYTES <= ACCEPT_BYTES_MAX);
const SECRET_BYTES: usize = 32;

/// A secret of both ends of a TLS connection. Not shown in logs.
struct Secret([u8; SECRET_BYTES]);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

/// Counts what is refused.
pub(crate) type Count = Arc<dyn Fn(FabricCounter) + Send + Sync>;

/// Names an introduction; random.
type TicketId = [u8; TICKET_BYTES];

/// The right to one connection to a process.
#[derive(Debug)]
pub(crate) struct Ticket {
    id: TicketId,
    secret: Secret,
}

/// Why there is no ticket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TicketError {
    #[error("{0}")]
    Connect(#[from] ConnectError),
    #[error("{0}")]
    Refused(Refusal),
    #[error("another service listens there")]
    Foreign,
}

impl Ticket {
    /// Connects by TLS to a process, which has to be of the host in `route`, and gets a ticket for it.
    /// It learns the datagram key, if there is one.
    pub(crate) fn get(
        route: &Route<'_>,
        hello: &Hello,
        datagram_key: Option<&DatagramKey>,
    ) -> Result<Self, TicketError> {
        let serves_as: &[Duty] =
            if hello.region < FIRST_FREE { &[Duty::Coordinator] } else { &[Duty::Agent, Duty::Cache] };
        let may_serve = |claims: &Claims| serves_as.iter().any(|duty| claims.allow(*duty));
        let (stream, answer) =
            introduce(route, may_serve, &framed(&with_datagram_key(hello.encode(), datagram_key)))?;
        match answer.split_first() {
            Some((&GRANTED, ticket)) => {
                let id = ticket.try_into().map_err(|_| TicketError::Foreign)?;
                let secret = stream.export(LABEL).map(Secret).ok_or(TicketError::Foreign)?;
                Ok(Self { id, secret })
            }
            Some((&REFUSED, refusal)) => {
                Err(Refusal::decode(refusal).map_or(TicketError::Foreign, TicketError::Refused))
            }
            _ => Err(TicketError::Foreign),
        }
    }

    /// The private data of a request.
    pub(crate) fn request(&self) -> Vec<u8> {
        [&TICKET_MAGIC[..], &self.id].concat()
    }

    /// Opens the private data of an answer, padded by the library. `None` if it is not that of the
    /// process that gave the ticket.
    pub(crate) fn open(&self, data: &[u8]) -> Option<(Welcome, Option<Box<PeerKey>>)> {
        let mut sealed = data.get(..ANSWER_BYTES)?.to_vec();
        let opened = key(&self.secret)?.open_in_place(nonce(), Aad::from(self.id), &mut sealed).ok()?;
        Some((Welcome::decode(opened)?, PeerKey::decode(opened.get(Welcome::BYTES..)?)))
    }
}

/// What a redeemed ticket stands for.
#[derive(Debug)]
pub(crate) struct Introduced {
    /// As its certificate allows it.
    pub(crate) hello: Hello,
    /// `None` of an observer, which sends no datagrams.
    pub(crate) datagram_key: Option<Box<PeerKey>>,
    id: TicketId,
    secret: Secret,
}

impl Introduced {
    /// Seals the private data of an answer. Consumes the introduction: its key seals once. Who only
    /// reads gets neither the datagram key nor the tokens, by which it could speak for this process.
    pub(crate) fn seal(self, welcome: &Welcome, datagram_key: &DatagramKey) -> Option<Vec<u8>> {
        let reads_only = self.hello.role == Role::Reader;
        let tokens = if reads_only { [0; 2] } else { welcome.tokens };
        let welcome = Welcome { tokens, ..*welcome };
        let mut sealed = with_datagram_key(welcome.encode(), (!reads_only).then_some(datagram_key));
        key(&self.secret)?
            .seal_in_place_append_tag(nonce(), Aad::from(self.id), &mut sealed)
            .ok()
            .map(|()| sealed)
    }
}

fn key(secret: &Secret) -> Option<LessSafeKey> {
    UnboundKey::new(&CHACHA20_POLY1305, &secret.0).ok().map(LessSafeKey::new)
}

/// Always the same, because each key seals one message.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

fn with_datagram_key(mut message: Vec<u8>, datagram_key: Option<&DatagramKey>) -> Vec<u8> {
    message.extend_from_slice(&datagram_key.map_or([0; DATAGRAM_KEY_BYTES], DatagramKey::encode));
    message
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(LENGTH_BYTES + message.len());
    out.extend_from_slice(&(message.len() as u32).to_le_bytes());
    out.extend_from_slice(message);
    out
}

#[derive(Debug)]
struct Issued {
    introduced: Introduced,
    until: Time,
}

/// The tickets that a process has given.
pub(crate) struct Tickets {
    issued: Mutex<VecDeque<Issued>>,
    count: Count,
}

impl Tickets {
    pub(crate) fn new(count: Count) -> Self {
        Self { issued: Mutex::default(), count }
    }

    fn issued(&self) -> MutexGuard<'_, VecDeque<Issued>> {
        // Each change of the queue is one call, so a panic leaves it whole.
        self.issued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if the system has no random bytes.
    fn issue(
        &self,
        hello: Hello,
        datagram_key: Option<Box<PeerKey>>,
        secret: Secret,
        now: Time,
    ) -> Option<TicketId> {
        let mut ticket = [0; TICKET_BYTES];
        SystemRandom::new().fill(&mut ticket).ok()?;
        let mut issued = self.issued();
        issued.retain(|one| one.until > now);
        if issued.len() == TICKETS_MAX {
            issued.pop_front();
        }
        let introduced = Introduced { hello, datagram_key, id: ticket, secret };
        issued.push_back(Issued { introduced, until: now + TICKET_LIFE });
        Some(ticket)
    }

    /// Takes the introduction that a request names. `None`, and counted, if there is none: the
    /// ticket is forged, too old, or was used before.
    pub(crate) fn redeem(&self, request: &[u8], now: Time) -> Option<Introduced> {
        let ticket = request.strip_prefix(&TICKET_MAGIC).and_then(|rest| rest.get(..TICKET_BYTES));
        let found = ticket.and_then(|ticket| {
            let mut issued = self.issued();
            issued.retain(|one| one.until > now);
            let at = issued.iter().position(|one| one.introduced.id == *ticket)?;
            issued.remove(at)
        });
        if found.is_none() {
            (self.count)(FabricCounter::Unintroduced);
        }
        found.map(|issued| issued.introduced)
    }
}

/// The gate of a process with a region.
pub(crate) struct TicketGate {
    pub(crate) tickets: Arc<Tickets>,
    pub(crate) cluster: Identity,
    pub(crate) own: Address,
    /// The host of coordinator `n`, at index `n - 1`.
    pub(crate) coordinators: Vec<u8>,
    /// The addresses of the hosts, that of `n` at index `n - 1`.
    pub(crate) hosts: Vec<IpAddr>,
}

impl TicketGate {
    fn check(&self, hello: &Hello, from: SocketAddr, claims: Option<Claims>) -> Result<(), Refusal> {
        hello.fits(&self.cluster, self.own)?;
        // A coordinator is known by its number, and an observer serves no one.
        let at_home = hello.from.host == 0 || ip_of(hello.from.host) == from.ip().to_canonical();
        let claims = claims.filter(|claims| claims.is_of(self.hosts.len())).ok_or(Refusal::Certificate)?;
        let fits = claims.fit(hello.role, hello.from.region, &self.coordinators);
        if at_home && fits { Ok(()) } else { Err(Refusal::Certificate) }
    }
}

impl Gate for TicketGate {
    const MESSAGE_BYTES_MAX: usize = MESSAGE_BYTES_MAX;
    /// A peer that waits for its introduction suspects this process.
    const NICENESS: i32 = 0;

    fn introduced(
        &self,
        mut stream: Stream,
        from: SocketAddr,
        message: &[u8],
        claims: Option<Claims>,
    ) -> Result<(), Unintelligible> {
        let hello = Hello::decode(message).ok_or(Unintelligible)?;
        let checked = hello.and_then(|hello| self.check(&hello, from, claims).map(|()| hello));
        let answer = match checked {
            Ok(hello) => {
                let secret = stream.export(LABEL).map(Secret).ok_or(Unintelligible)?;
                let datagram_key = message.get(Hello::BYTES..).and_then(PeerKey::decode);
                let ticket =
                    self.tickets.issue(hello, datagram_key, secret, Time::now()).ok_or(Unintelligible)?;
                [&[GRANTED][..], &ticket].concat()
            }
            Err(refusal) => {
                (self.tickets.count)(FabricCounter::ConnectionsRefused);
                tracing::warn!(target: "fabric", %from, "refused a process of {from}: {refusal}");
                [&[REFUSED][..], &refusal.encode()].concat()
            }
        };
        stream.output.extend_from_slice(&framed(&answer));
        // If it does not take this, it learns of it by the end of the connection.
        let _ = stream.send();
        Ok(())
    }

    fn knows(&self, address: IpAddr) -> bool {
        self.hosts.iter().any(|host| host.to_canonical() == address)
    }

    /// It is among the strangers.
    fn crowded(&self) {}

    fn ended(&self, waited: bool) {
        if !waited {
            (self.tickets.count)(FabricCounter::Strangers);
        }
    }
}

#[cfg(test)]
mod tests;
