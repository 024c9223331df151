//! What sends frames to the gateways of all other hosts. Two threads have one each: that of the
//! pulses, and the one that watches processes, which sends notices itself. They share the sockets and
//! the numbers, and no lock.

use super::seal::{self, SessionKey};
use super::socket::{self, PathSockets};
use super::{Command, Pulses, bit};
use crate::pulse::{Death, Frame, Numbers};
use nix::sys::socket::SockaddrStorage;
use obol_fabric::contract::Evidence;
use obol_fabric::host::clock;
use obol_fabric::types::Address;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// The sockets of this host's paths, as far as they are open.
pub(super) type Sockets = Arc<[OnceLock<PathSockets>]>;

/// Another host.
#[derive(Clone)]
struct Peer {
    host: u8,
    /// By path.
    addresses: Vec<SockaddrStorage>,
    key: Option<Arc<SessionKey>>,
}

/// Seals frames and sends them.
pub(super) struct Outgoing {
    host: u8,
    peers: Vec<Peer>,
    sockets: Sockets,
    numbers: Arc<Numbers>,
    /// Buffers for the datagrams of a path.
    buffers: Vec<Vec<u8>>,
}

impl Outgoing {
    /// From a host, to these hosts with these addresses.
    pub(super) fn new(
        host: u8,
        peers: impl IntoIterator<Item = (u8, Vec<SocketAddr>)>,
        sockets: Sockets,
        numbers: Arc<Numbers>,
    ) -> Self {
        let peer = |(host, addresses): (u8, Vec<SocketAddr>)| Peer {
            host,
            addresses: addresses.into_iter().map(SockaddrStorage::from).collect(),
            key: None,
        };
        Self { host, peers: peers.into_iter().map(peer).collect(), sockets, numbers, buffers: Vec::new() }
    }

    /// The same for another thread.
    pub(super) fn for_thread(&self) -> Self {
        let (peers, sockets, numbers) =
            (self.peers.clone(), Arc::clone(&self.sockets), Arc::clone(&self.numbers));
        Self { host: self.host, peers, sockets, numbers, buffers: Vec::new() }
    }

    pub(super) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    pub(super) fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Seals frames to a host with this key.
    pub(super) fn seal_for(&mut self, host: u8, key: Arc<SessionKey>) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.host == host) {
            peer.key = Some(key);
        }
    }

    /// Sends a frame to all peers with a session, on all paths. A datagram that the kernel does not
    /// take is a lost one: the other end notices.
    pub(super) fn send(&mut self, frame: &Frame) {
        for (path, sockets) in self.sockets.iter().enumerate() {
            let Some(sockets) = sockets.get() else { continue };
            let mut datagrams = Vec::with_capacity(self.peers.len());
            for peer in &self.peers {
                let (Some(key), Some(to)) = (&peer.key, peer.addresses.get(path)) else { continue };
                let mut bytes =
                    self.buffers.pop().unwrap_or_else(|| Vec::with_capacity(seal::DATAGRAM_BYTES_MAX));
                if key.seal(self.host, path as u8, frame, &mut bytes) {
                    datagrams.push((bytes, to));
                }
            }
            socket::send(&sockets.pulses, &datagrams);
            self.buffers.extend(datagrams.into_iter().map(|(bytes, _)| bytes));
        }
    }
}

/// The side of the watching thread: it knows which processes are alive, and sends notices of deaths at
/// once. Pulses repeat them.
pub(in crate::gateway) struct Notices {
    outgoing: Outgoing,
    pulses: Pulses,
    alive: u64,
}

impl Notices {
    pub(super) const fn new(outgoing: Outgoing, pulses: Pulses) -> Self {
        Self { outgoing, pulses, alive: 0 }
    }

    /// Seals notices to a host with this key.
    pub(in crate::gateway) fn seal_for(&mut self, host: u8, key: Arc<SessionKey>) {
        self.outgoing.seal_for(host, key);
    }

    /// The owner of a region is alive, or no longer.
    pub(in crate::gateway) fn set_alive(&mut self, region: u32, alive: bool) {
        self.alive = if alive { self.alive | bit(region) } else { self.alive & !bit(region) };
        self.outgoing.numbers().set_alive(self.alive);
    }

    /// The kernel has reported a death.
    pub(in crate::gateway) fn died(&mut self, who: Address, evidence: Evidence) {
        let Address { region, generation, seat, .. } = who;
        let death = Death { region, generation, seat, evidence };
        for frame in self.outgoing.numbers().notices(&[death], clock::now()) {
            self.outgoing.send(&frame);
        }
        self.pulses.send(Command::Died(death));
    }
}
