//! Unreliable datagrams: one queue pair for all peers and both groups, permanently posted receives,
//! and a header with cluster and sender. Where the hosts have keys, datagrams are sealed
//! ([`super::sealing`]); otherwise they are as follows.
//!
//! ```text
//! 0   cluster's nonce
//! 8   sender's host, 16 bytes
//! 24  sender's region
//! 28  sender's generation
//! 32  sender's port, then the length of the payload, 16 bits each
//! 36  magic
//! 40  payload
//! ```

use super::buffers::{Block, BufferPlacement, Buffers};
use super::error::VerbsError;
use super::introduction::Count;
use super::nic::Nic;
use super::pair::{Kind, QueuePair, Size};
use super::post::To;
use super::queue::{CompletionQueue, Status, WorkCompletion};
use super::sealing::{DatagramKey, FRONT_BYTES, Opened, PeerKey, Seal, TAG_BYTES};
use super::sys::IBV_GRH_BYTES;
use obol_fabric::endpoint::Received;
use obol_fabric::layout::DATAGRAM_BYTES_MAX;
use obol_fabric::metrics::FabricCounter;
use obol_fabric::types::Address;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Posted receives. That many datagrams can arrive between two polls; more are lost.
const RECEIVES: u32 = 512;
/// The maximum number of datagrams in sending.
const SENDS: u32 = 128;
/// The maximum size of inline datagrams, where the device supports it.
const INLINE_BYTES: u32 = 256;
/// The maximum number of datagrams per polling round.
const ROUND: u32 = 64;
/// Completions per poll.
const BATCH: usize = 16;
const MAGIC: u32 = u32::from_le_bytes(*b"obdg");

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    nonce: u64,
    host: [u8; 16],
    region: u32,
    generation: u32,
    port: u16,
    bytes: u16,
    magic: u32,
}

/// Bytes before a payload.
pub(crate) const HEAD_BYTES: usize = size_of::<Head>();
const _: () = assert!(HEAD_BYTES == 40 && HEAD_BYTES.is_multiple_of(8));
// So that the longest payload does not depend on sealing.
const _: () = assert!(FRONT_BYTES + TAG_BYTES == HEAD_BYTES);

/// A datagram's header on the wire.
pub(crate) fn frame(nonce: u64, from: Address, payload: &[u8], out: &mut Vec<u8>) {
    let head = Head {
        nonce,
        host: from.host.to_le_bytes(),
        region: from.region,
        generation: from.generation,
        port: from.port,
        bytes: payload.len() as u16,
        magic: MAGIC,
    };
    out.clear();
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(payload);
}

/// The sender and the payload length of a datagram with this header. `None` if it is not of this
/// cluster.
fn parse(head: &[u8], nonce: u64) -> Option<(Address, usize)> {
    let (head, _) = Head::read_from_prefix(head).ok()?;
    let from = Address {
        host: u128::from_le_bytes(head.host),
        port: head.port,
        seat: 0,
        region: head.region,
        generation: head.generation,
    };
    (head.magic == MAGIC && head.nonce == nonce).then_some((from, usize::from(head.bytes)))
}

/// The local end.
pub(crate) struct Datagrams {
    pub(crate) pair: Arc<QueuePair>,
    received: Arc<CompletionQueue>,
    sent: Arc<CompletionQueue>,
    incoming: Buffers,
    blocks: Vec<Block>,
    outgoing: Buffers,
    /// Polled but not handed out yet: block and length, including the routing header.
    waiting: std::collections::VecDeque<(u32, u32)>,
    /// The results of the last poll.
    batch: Box<[WorkCompletion]>,
    nonce: u64,
    own: Address,
    /// Where the hosts have keys, with what counts datagrams that cannot be opened.
    seal: Option<(Seal, Count)>,
    frame: Vec<u8>,
    round: u32,
    payload_max: usize,
    /// Whether nothing has arrived since the queue was armed.
    is_armed: bool,
}

impl Datagrams {
    /// Opens it: from now on it receives datagrams to it and to its groups.
    pub(crate) fn new(
        nic: &Nic,
        channel: &Arc<super::queue::CompletionChannel>,
        qkey: u32,
        nonce: u64,
        payload_bytes: usize,
        placement: BufferPlacement,
    ) -> Result<Self, VerbsError> {
        let payload_max =
            (nic.choice().port_facts.mtu as usize).saturating_sub(HEAD_BYTES).min(DATAGRAM_BYTES_MAX);
        if payload_bytes > payload_max {
            return Err(VerbsError::OutOfBounds {
                what: "limits.datagram_bytes, on a port of this MTU,",
                value: payload_bytes as u64,
                max: payload_max as u64 / 64 * 64,
            });
        }
        let received = CompletionQueue::new(nic.context(), RECEIVES, Some(channel))?;
        let sent = CompletionQueue::new(nic.context(), SENDS, None)?;
        let size = Size { sends: SENDS, receives: RECEIVES, inline_bytes: INLINE_BYTES };
        let pair = Arc::new(QueuePair::new(nic.domain(), Kind::Datagram, &sent, &received, size)?);
        pair.open(nic.choice().port, qkey)?;
        let mut incoming =
            Buffers::new(nic.domain(), RECEIVES, IBV_GRH_BYTES + HEAD_BYTES + payload_bytes, placement)?;
        let outgoing = Buffers::new(nic.domain(), SENDS, HEAD_BYTES + payload_bytes, placement)?;
        let blocks: Vec<Block> = (0..RECEIVES).filter_map(|_| incoming.take()).collect();
        let this = Self {
            pair,
            received,
            sent,
            incoming,
            blocks,
            outgoing,
            waiting: std::collections::VecDeque::with_capacity(RECEIVES as usize),
            batch: vec![WorkCompletion::default(); BATCH].into(),
            nonce,
            own: Address::default(),
            seal: None,
            frame: Vec::with_capacity(HEAD_BYTES + payload_bytes),
            round: 0,
            payload_max: payload_bytes,
            is_armed: false,
        };
        for index in 0..RECEIVES {
            this.post(index)
                .map_err(|error| VerbsError::failed("ibv_post_recv", nic.context().device(), error.0))?;
        }
        Ok(this)
    }

    /// Sets the source address of later datagrams.
    pub(crate) fn set_own(&mut self, own: Address) {
        self.own = own;
    }

    /// Seals later datagrams, and takes no others. After [`Self::set_own`].
    pub(crate) fn seal_with(&mut self, datagram_key: DatagramKey, count: Count) {
        self.seal = Some((Seal::new(datagram_key, self.own.region), count));
    }

    /// The datagram key of the process at an address, whose datagrams can be opened from now on.
    pub(crate) fn learn(&mut self, at: Address, datagram_key: PeerKey) {
        if let Some((seal, _)) = &mut self.seal {
            seal.learn(at, datagram_key);
        }
    }

    /// The encoded death notice of this process, for the kernel to send. `None` if it cannot be sealed.
    pub(crate) fn framed(&self, notice: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(HEAD_BYTES + notice.len());
        match &self.seal {
            Some((seal, _)) => return seal.seal_notice(notice, &mut out).then_some(out),
            None => frame(self.nonce, self.own, notice, &mut out),
        }
        Some(out)
    }

    fn post(&self, index: u32) -> Result<(), super::queue::PostError> {
        let Some(&block) = self.blocks.get(index as usize) else { return Ok(()) };
        let bytes = self.incoming.block_bytes as u32;
        self.pair.receive(u64::from(index), self.incoming.local(block, bytes))
    }

    /// `false` if it is lost: too long, or too many are being sent.
    pub(crate) fn send(&mut self, to: &To<'_>, payload: &[u8]) -> bool {
        if payload.len() > self.payload_max {
            return false;
        }
        self.reclaim();
        let Some(block) = self.outgoing.take() else { return false };
        let mut bytes = core::mem::take(&mut self.frame);
        let framed = match &self.seal {
            Some((seal, _)) => seal.seal(payload, &mut bytes),
            None => {
                frame(self.nonce, self.own, payload, &mut bytes);
                true
            }
        };
        if !framed {
            self.frame = bytes;
            self.outgoing.give(block);
            return false;
        }
        let (len, id) = (bytes.len() as u32, u64::from(block.number()));
        let posted = if len <= self.pair.inline_bytes() {
            self.pair.send_inline(id, &bytes, to)
        } else {
            self.outgoing.fill(block, &bytes);
            self.pair.send(id, self.outgoing.local(block, len), to)
        };
        self.frame = bytes;
        if posted.is_err() {
            self.outgoing.give(block);
        }
        posted.is_ok()
    }

    /// Frees the blocks of sent datagrams.
    fn reclaim(&mut self) {
        while let Ok(n @ 1..) = self.sent.poll(&mut self.batch) {
            for completion in &self.batch[..n] {
                self.outgoing.give(Block::of(completion.id() as u32));
            }
            if n < BATCH {
                return;
            }
        }
    }

    /// Polls the completion queue. Returns whether any datagram is pending.
    pub(crate) fn poll(&mut self) -> bool {
        if !self.waiting.is_empty() {
            return true;
        }
        let Ok(n) = self.received.poll(&mut self.batch) else { return false };
        self.is_armed &= n == 0;
        for completion in &self.batch[..n] {
            let index = completion.id() as u32;
            if completion.status() == Status::SUCCESS {
                self.waiting.push_back((index, completion.bytes()));
            }
            // A receive fails only when the queue pair is stopped; reposting it would fail, too.
        }
        n > 0
    }

    /// Returns the next datagram.
    pub(crate) fn receive(&mut self, out: &mut Vec<u8>) -> Received {
        loop {
            if self.round == ROUND || !self.poll() {
                self.round = 0;
                return Received::Nothing;
            }
            let Some((index, bytes)) = self.waiting.pop_front() else { continue };
            self.round += 1;
            let received = self.open(index, bytes as usize, out);
            // The data is copied here, so the block is reposted at once. If the device refuses, one
            // receive is missing; the queue pair is broken then, anyway.
            let _ = self.post(index);
            match received {
                Opened::Own | Opened::Unknown => {}
                Opened::From(from) if from == self.own => {}
                Opened::From(from) => return Received::Datagram(from),
                Opened::Refused => return Received::Refused,
            }
        }
    }

    fn open(&mut self, index: u32, bytes: usize, out: &mut Vec<u8>) -> Opened {
        let Some(block) = self.blocks.get(index as usize).copied() else { return Opened::Refused };
        let Some(len) = bytes.checked_sub(IBV_GRH_BYTES) else { return Opened::Refused };
        if len > HEAD_BYTES + self.payload_max {
            return Opened::Refused;
        }
        if let Some((seal, count)) = &mut self.seal {
            out.resize(len, 0);
            self.incoming.copy(block, IBV_GRH_BYTES, out);
            let opened = seal.open(out);
            if opened == Opened::Unknown {
                count(FabricCounter::DatagramsUnknown);
            }
            return opened;
        }
        let mut head = [0; HEAD_BYTES];
        self.incoming.copy(block, IBV_GRH_BYTES, &mut head);
        let Some((from, payload)) = parse(&head, self.nonce) else { return Opened::Refused };
        if len != HEAD_BYTES + payload {
            return Opened::Refused;
        }
        out.resize(payload, 0);
        self.incoming.copy(block, IBV_GRH_BYTES + HEAD_BYTES, out);
        Opened::From(from)
    }

    /// Makes the channel readable on the next datagram. `false` if one is already pending.
    pub(crate) fn arm(&mut self) -> bool {
        self.is_armed = self.is_armed || self.received.arm().is_ok();
        // A queue that cannot be armed is polled continuously.
        self.is_armed && !self.poll()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_names_its_sender_and_only_within_its_cluster() {
        let from = Address { host: 3 << 90, port: 7, seat: 0, region: 40, generation: 2 };
        let mut bytes = vec![1; 9];
        frame(77, from, b"payload", &mut bytes);
        assert_eq!(bytes.len(), HEAD_BYTES + 7);
        assert_eq!(parse(&bytes, 77), Some((from, 7)));
        assert_eq!(parse(&bytes, 78), None, "another cluster's");
        bytes[36] ^= 1;
        assert_eq!(parse(&bytes, 77), None, "something else");
        assert_eq!(parse(&[], 77), None);
    }
}
