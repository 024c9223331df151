//! Accepts connections: TLS with certificates on both sides, then the process introduces itself. What
//! it says is judged by a [`Gate`], by the certificate of its host.

use super::stream::{Stream, StreamError};
use super::{Claims, ServerKeys};
use core::fmt::Display;
use core::sync::atomic::AtomicU64;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{Backlog, listen};
use obol_fabric::host::Wake;
use obol_fabric::host::poll::poll;
use obol_fabric::host::sched::be_nice;
use rustls::ServerConnection;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Time};

/// Handshakes at a time of addresses that the gate does not know. For a further one, the oldest is given
/// up of the address that has the most: who opens many connections loses its own.
pub const STRANGERS_MAX: usize = 64;
/// Handshakes at a time of each address that the gate knows: as many as a host has processes, and some
/// observers. Others cannot take this room.
pub const KNOWN_HANDSHAKES_MAX: usize = 48;
/// Connections that are accepted before handshakes go on.
const ACCEPTED_MAX: usize = 64;
/// A process that has not introduced itself after this long is given up.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections that wait to be accepted: the kernel lets further ones try again after a second.
const BACKLOG: i32 = 4096;
/// How long no connection is accepted while there are no descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often a stranger is named in the log at most: connecting must not fill the log.
const NAMED_EVERY: Duration = Duration::from_secs(10);
/// The thread turns at least twice a second. After a longer pause it was stopped, or got no time.
const LATE_AFTER: Duration = Duration::from_secs(1);

/// A message that introduces no process.
pub struct Unintelligible;

/// Judges processes whose certificate is valid.
pub trait Gate {
    /// The longest message that a process may send.
    const MESSAGE_BYTES_MAX: usize;
    /// The niceness of the thread that checks certificates.
    const NICENESS: i32;

    /// A process introduces itself. `claims` is what its certificate says about the cluster.
    fn introduced(
        &self,
        stream: Stream,
        from: SocketAddr,
        message: &[u8],
        claims: Option<Claims>,
    ) -> Result<(), Unintelligible>;

    /// Whether a host of the cluster has this address. Nobody else connects from it without taking part
    /// in the exchange of packets with it.
    fn knows(&self, address: IpAddr) -> bool;

    /// A handshake was given up for a later one; [`Gate::ended`] follows.
    fn crowded(&self);

    /// A connection ended, or was given up, before the process had introduced itself. If it
    /// `waited` for this process, which was stopped or got no time, that says nothing about it.
    fn ended(&self, waited: bool);
}

/// A first message, and what the certificate says about the cluster.
type Introduction = (Vec<u8>, Option<Claims>);

struct Handshake {
    stream: Stream,
    /// It waited for this process, so that its end says nothing about who it is.
    waited: bool,
    from: SocketAddr,
    origin: Origin,
    until: Time,
}

/// Whose connection it is, as far as a stranger can be told from others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// An address that the gate knows.
    Known(IpAddr),
    /// Any other one; of IPv6 the network, in which a host has as many addresses as it likes.
    Unknown(IpAddr),
}

impl Origin {
    fn of(address: IpAddr, gate: &impl Gate) -> Self {
        let address = address.to_canonical();
        if gate.knows(address) {
            return Self::Known(address);
        }
        Self::Unknown(match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
        })
    }
}

/// Which of the handshakes has to be given up for a further one, if there is no room for it. They are
/// in the order of their ages.
fn in_excess(pending: &[Origin], further: Origin) -> Option<usize> {
    let count = |origin: Origin| pending.iter().filter(|one| **one == origin).count();
    let oldest_of = |origin: Origin| pending.iter().position(|one| *one == origin);
    if let Origin::Known(_) = further {
        return oldest_of(further).filter(|_| count(further) >= KNOWN_HANDSHAKES_MAX);
    }
    let strangers = pending.iter().filter(|one| matches!(one, Origin::Unknown(_)));
    if strangers.clone().count() < STRANGERS_MAX {
        return None;
    }
    let most = strangers.clone().map(|one| count(*one)).max().unwrap_or(0);
    if count(further) == most {
        return oldest_of(further);
    }
    strangers.copied().find(|one| count(*one) == most).and_then(oldest_of)
}

/// Accepts connections for a gate.
pub struct Admit<G> {
    listener: TcpListener,
    keys: ServerKeys,
    nonce: u64,
    gate: G,
    pending: VecDeque<Handshake>,
    /// When a stranger may be named in the log again.
    name_at: Time,
}

impl<G: Gate> Admit<G> {
    /// Listens, and takes whom `gate` lets in.
    pub fn new(listener: TcpListener, keys: ServerKeys, nonce: u64, gate: G) -> Self {
        // It is listening already, with fewer.
        let _ = Backlog::new(BACKLOG).and_then(|backlog| listen(&listener, backlog));
        let pending = VecDeque::with_capacity(STRANGERS_MAX);
        Self { listener, keys, nonce, gate, pending, name_at: Time::now() }
    }

    /// Runs until `ended` is set and it is woken. Counts its turns in `turns`.
    pub fn run(&mut self, ended: &AtomicBool, wake: &Wake, turns: &AtomicU64) {
        be_nice(G::NICENESS);
        if self.listener.set_nonblocking(true).is_err() {
            return;
        }
        let (mut accept_at, mut turned) = (Time::now(), Time::now());
        while !ended.load(Ordering::Acquire) {
            turns.fetch_add(1, Ordering::Relaxed);
            self.wait(wake, accept_at);
            let late = turned.elapsed() > LATE_AFTER;
            turned = Time::now();
            if late {
                self.pending.iter_mut().for_each(|handshake| handshake.waited = true);
            }
            if Time::now() >= accept_at && !self.accept(late) {
                accept_at = Time::now() + ACCEPT_PAUSE;
            }
            self.advance();
        }
    }

    /// Waits until something can be done.
    fn wait(&self, wake: &Wake, accept_at: Time) {
        let now = Time::now();
        let mut fds = Vec::with_capacity(2 + self.pending.len());
        let input = |fd| PollFd::new(fd, PollFlags::POLLIN);
        fds.push(input(wake.as_fd()));
        let mut until = self.pending.front().map(|handshake| handshake.until);
        if now >= accept_at {
            fds.push(input(self.listener.as_fd()));
        } else {
            until = Some(until.map_or(accept_at, |until| until.min(accept_at)));
        }
        fds.extend(self.pending.iter().map(|handshake| input(handshake.stream.as_fd())));
        let span = until.map(|until| until.saturating_duration_since(now));
        // An error is an early return.
        let _ = poll(&mut fds, span);
        wake.clear();
    }

    /// Accepts what has come, after a pause if it is `late`. `false` if there are no descriptors.
    fn accept(&mut self, late: bool) -> bool {
        for _ in 0..ACCEPTED_MAX {
            match self.listener.accept() {
                Ok((socket, from)) => self.start(socket, from, late),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return true,
                // The peer has given up.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(_) => return false,
            }
        }
        true
    }

    fn start(&mut self, socket: TcpStream, from: SocketAddr, waited: bool) {
        let origin = Origin::of(from.ip(), &self.gate);
        let pending: Vec<_> = self.pending.iter().map(|handshake| handshake.origin).collect();
        if let Some(index) = in_excess(&pending, origin)
            && let Some(oldest) = self.pending.remove(index)
        {
            self.gate.crowded();
            self.ended(oldest.from, oldest.waited, "it was given up for a later connection");
        }
        let tls = ServerConnection::new(Arc::clone(self.keys.get())).map_err(StreamError::from);
        match tls.and_then(|tls| Ok(Stream::new(socket, tls.into(), G::MESSAGE_BYTES_MAX)?)) {
            Ok(stream) => {
                let until = Time::now() + HANDSHAKE_TIMEOUT;
                self.pending.push_back(Handshake { stream, waited, from, origin, until });
            }
            Err(error) => self.ended(from, waited, error),
        }
    }

    /// A connection ends before the process has introduced itself. One with wrong keys is found by
    /// its address and this reason only: its own log is on its host.
    fn ended(&mut self, from: SocketAddr, waited: bool, why: impl Display) {
        self.gate.ended(waited);
        let now = Time::now();
        if !waited && now >= self.name_at {
            self.name_at = now + NAMED_EVERY;
            tracing::warn!(target: "gateway", %from, "no process of {from} was let in: {why}");
        }
    }

    /// Continues all handshakes.
    fn advance(&mut self) {
        let now = Time::now();
        for _ in 0..self.pending.len() {
            let Some(mut handshake) = self.pending.pop_front() else { return };
            match self.step(&mut handshake.stream) {
                Ok(None) if now < handshake.until => self.pending.push_back(handshake),
                Ok(Some((message, claims))) => {
                    let Handshake { stream, waited, from, .. } = handshake;
                    if self.gate.introduced(stream, from, &message, claims).is_err() {
                        self.ended(from, waited, "its first message introduces no process");
                    }
                }
                Ok(None) => {
                    self.ended(handshake.from, handshake.waited, "it has not introduced itself in time");
                }
                Err(error) => self.ended(handshake.from, handshake.waited, error),
            }
        }
    }

    /// One step of a handshake. `None` if it is not complete.
    fn step(&self, stream: &mut Stream) -> Result<Option<Introduction>, StreamError> {
        let received = stream.receive();
        // An alert says to the peer why it is not let in.
        let sent = stream.send();
        received?;
        sent?;
        let Some(claims) = stream.peer().map(|certificate| Claims::of(certificate, self.nonce)) else {
            return Ok(None);
        };
        Ok(stream.next_message()?.map(|message| (message.to_vec(), claims)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn unknown(n: u8) -> Origin {
        Origin::Unknown(Ipv4Addr::new(192, 0, 2, n).into())
    }

    fn known(n: u8) -> Origin {
        Origin::Known(Ipv4Addr::new(10, 0, 0, n).into())
    }

    #[test]
    fn a_flood_of_one_address_gives_up_its_own_handshakes() {
        // A single one of another stranger is the oldest.
        let mut pending = vec![unknown(1)];
        pending.resize(STRANGERS_MAX, unknown(2));
        assert_eq!(in_excess(&pending, unknown(2)), Some(1));
        assert_eq!(in_excess(&pending, unknown(3)), Some(1));
        assert_eq!(in_excess(&pending[1..], unknown(2)), None);
    }

    #[test]
    fn an_address_of_the_cluster_has_room_that_strangers_cannot_take() {
        let mut pending = vec![known(1); KNOWN_HANDSHAKES_MAX - 1];
        pending.extend((0..STRANGERS_MAX as u8).map(unknown));
        assert_eq!(in_excess(&pending, known(1)), None);
        assert_eq!(in_excess(&pending, known(2)), None);
        // Of strangers with one each, the oldest.
        assert_eq!(in_excess(&pending, unknown(200)), Some(KNOWN_HANDSHAKES_MAX - 1));
        pending.insert(0, known(1));
        assert_eq!(in_excess(&pending, known(1)), Some(0));
        assert_eq!(in_excess(&pending, known(2)), None);
    }

    #[test]
    fn a_host_with_a_network_of_addresses_is_one_stranger() {
        struct Nobody;
        impl Gate for Nobody {
            const MESSAGE_BYTES_MAX: usize = 0;
            const NICENESS: i32 = 0;

            fn introduced(
                &self,
                _: Stream,
                _: SocketAddr,
                _: &[u8],
                _: Option<Claims>,
            ) -> Result<(), Unintelligible> {
                Err(Unintelligible)
            }

            fn knows(&self, address: IpAddr) -> bool {
                address == IpAddr::from(Ipv4Addr::new(10, 0, 0, 1))
            }

            fn crowded(&self) {}

            fn ended(&self, _: bool) {}
        }
        let origin = |text: &str| Origin::of(text.parse().expect("an address"), &Nobody);
        assert!(origin("2001:db8::1") == origin("2001:db8::ffff:2"));
        assert!(origin("2001:db8::1") != origin("2001:db8:0:1::1"));
        assert!(origin("::ffff:10.0.0.1") == known(1), "an address of IPv4 in a socket of IPv6");
        assert!(origin("10.0.0.2") != origin("10.0.0.3"));
    }
}
