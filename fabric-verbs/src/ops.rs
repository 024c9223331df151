//! Posted operations: their kinds, their buffers, and their identification in completions.
//! Everything is allocated when an endpoint opens; nothing here allocates in the steady state.

use super::buffers::{Block, BufferPlacement, Buffers};
use super::context::ProtectionDomain;
use super::error::VerbsError;
use super::registration::Local;
use obol_fabric::contract::{LinkError, Token};
use obol_fabric::endpoint::Done;
use std::collections::VecDeque;
use std::sync::Arc;

/// The maximum of pending operations on all links together.
pub(crate) const OPS_MAX: u32 = 2048;
/// The maximum of pending READs and WRITEs longer than a word.
const LONG_MAX: u32 = 512;
/// The memory limit of longer ones together; at least [`LONG_MIN`] blocks are allocated, whatever
/// their size.
const LONG_BYTES_MAX: usize = 16 << 20;
const LONG_MIN: u32 = 32;
/// The maximum of pending operations that are longer than these, and their memory limit together.
const BULK_MAX: u32 = 8;
const BULK_BYTES_MAX: usize = 16 << 20;
/// Bytes of a CAS's result and of most READs.
const WORD_BYTES: usize = 8;
/// READ buffers that are kept for reuse.
const SPARE_MAX: usize = 64;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// READ this many bytes.
    Read(u32),
    /// WRITE this many bytes.
    Write(u32),
    /// CAS from the first to the second.
    Cas(u64, u64),
    /// READ a word to make the device detect lost packets; its result is not reported.
    Probe,
}

/// An index in [`Ops`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

#[derive(Clone, Copy, Debug)]
struct Op {
    /// Counts uses, to recognise a completion of an earlier one.
    epoch: u32,
    /// Its link.
    region: u32,
    token: Token,
    what: What,
    offset: u32,
    block: Block,
    /// Whether its result is awaited; otherwise it was abandoned and its memory belongs to the
    /// device until its link is released.
    awaited: bool,
}

/// All posted operations, and the results to be delivered.
#[derive(Debug)]
pub(crate) struct Ops {
    all: Vec<Op>,
    free: Vec<u32>,
    words: Buffers,
    long: Buffers,
    /// For longer ones, if this process has any.
    bulk: Option<Buffers>,
    done: VecDeque<(Token, Done)>,
    spare: Vec<Vec<u8>>,
}

impl Ops {
    /// Allocates for operations of at most `bytes` bytes, and for a few of `bulk` bytes.
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        bytes: usize,
        bulk: Option<usize>,
        placement: BufferPlacement,
    ) -> Result<Self, VerbsError> {
        let long = u32::try_from(LONG_BYTES_MAX / bytes.max(1)).unwrap_or(LONG_MAX).clamp(LONG_MIN, LONG_MAX);
        let bulk = bulk.filter(|bulk| *bulk > bytes).map(|bulk| {
            let blocks = u32::try_from(BULK_BYTES_MAX / bulk).unwrap_or(BULK_MAX).clamp(1, BULK_MAX);
            Buffers::new(domain, blocks, bulk, placement)
        });
        let nothing = Op {
            epoch: 0,
            region: 0,
            token: Token(0),
            what: What::Read(0),
            offset: 0,
            block: Block::of(0),
            awaited: false,
        };
        Ok(Self {
            all: vec![nothing; OPS_MAX as usize],
            free: (0..OPS_MAX).rev().collect(),
            words: Buffers::new(domain, OPS_MAX, WORD_BYTES, placement)?,
            long: Buffers::new(domain, long, bytes, placement)?,
            bulk: bulk.transpose()?,
            done: VecDeque::with_capacity(OPS_MAX as usize),
            spare: (0..SPARE_MAX).map(|_| Vec::with_capacity(bytes)).collect(),
        })
    }

    /// The maximum length of an operation.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bulk.as_ref().unwrap_or(&self.long).block_bytes
    }

    const fn bytes(what: What) -> usize {
        match what {
            What::Read(bytes) | What::Write(bytes) => bytes as usize,
            What::Cas(..) | What::Probe => WORD_BYTES,
        }
    }

    fn buffers(&self, what: What) -> &Buffers {
        match (Self::bytes(what), &self.bulk) {
            (..=WORD_BYTES, _) => &self.words,
            (bytes, Some(bulk)) if bytes > self.long.block_bytes => bulk,
            _ => &self.long,
        }
    }

    fn buffers_mut(&mut self, what: What) -> &mut Buffers {
        match (Self::bytes(what), &mut self.bulk) {
            (..=WORD_BYTES, _) => &mut self.words,
            (bytes, Some(bulk)) if bytes > self.long.block_bytes => bulk,
            _ => &mut self.long,
        }
    }

    /// Registers an operation; `payload` is the data of a WRITE. `None` if too many are pending.
    pub(crate) fn start(
        &mut self,
        region: u32,
        token: Token,
        what: What,
        offset: u32,
        payload: &[u8],
    ) -> Option<Slot> {
        let block = self.buffers_mut(what).take()?;
        let Some(index) = self.free.pop() else {
            self.buffers_mut(what).give(block);
            return None;
        };
        let buffers = self.buffers(what);
        assert!(payload.len() <= buffers.block_bytes, "a WRITE fits its buffer");
        buffers.fill(block, payload);
        let op = self.all.get_mut(index as usize)?;
        assert!(!op.awaited, "a free entry is not awaited");
        *op = Op { epoch: op.epoch, region, token, what, offset, block, awaited: true };
        Some(Slot(index))
    }

    fn op(&self, slot: Slot) -> &Op {
        // A slot is only created by `start` and `find`, both of which have checked it.
        &self.all[slot.0 as usize]
    }

    /// The work request number for it.
    pub(crate) fn id(&self, slot: Slot) -> u64 {
        u64::from(self.op(slot).epoch) << 32 | u64::from(slot.0)
    }

    /// The operation with this number, if it is awaited, and its link.
    pub(crate) fn find(&self, id: u64) -> Option<(Slot, u32)> {
        let (epoch, index) = ((id >> 32) as u32, id as u32);
        let op = self.all.get(index as usize).filter(|op| op.epoch == epoch && op.awaited)?;
        Some((Slot(index), op.region))
    }

    pub(crate) fn what(&self, slot: Slot) -> What {
        self.op(slot).what
    }

    pub(crate) fn offset(&self, slot: Slot) -> u32 {
        self.op(slot).offset
    }

    /// Its buffer.
    pub(crate) fn local(&self, slot: Slot) -> Local {
        let op = self.op(slot);
        self.buffers(op.what).local(op.block, Self::bytes(op.what) as u32)
    }

    /// It succeeded: delivers its result and frees its memory.
    pub(crate) fn finish(&mut self, slot: Slot) {
        let Op { token, what, block, awaited, .. } = *self.op(slot);
        assert!(awaited, "an operation has one result");
        let done = match what {
            What::Probe => return self.release(slot),
            What::Read(bytes) if bytes as usize <= WORD_BYTES => {
                let mut raw = [0; WORD_BYTES];
                self.words.copy(block, 0, &mut raw);
                Done::Word(raw, bytes as usize)
            }
            What::Read(bytes) => {
                let mut out = self.spare.pop().unwrap_or_default();
                out.resize(bytes as usize, 0);
                self.buffers(what).copy(block, 0, &mut out);
                Done::Bytes(out)
            }
            What::Write(_) => Done::Written,
            What::Cas(..) => {
                let mut raw = [0; WORD_BYTES];
                self.words.copy(block, 0, &mut raw);
                Done::Swapped(u64::from_le_bytes(raw))
            }
        };
        self.done.push_back((token, done));
        self.release(slot);
    }

    /// It failed: delivers that; its memory belongs to the device until [`Ops::release`].
    pub(crate) fn give_up(&mut self, slot: Slot, error: LinkError) {
        let Op { token, what, awaited, .. } = *self.op(slot);
        assert!(awaited, "an operation has one result");
        if what != What::Probe {
            self.done.push_back((token, Done::Failed(error)));
        }
        if let Some(op) = self.all.get_mut(slot.0 as usize) {
            op.awaited = false;
        }
    }

    /// The device no longer uses it.
    pub(crate) fn release(&mut self, slot: Slot) {
        let Op { what, block, .. } = *self.op(slot);
        self.buffers_mut(what).give(block);
        if let Some(op) = self.all.get_mut(slot.0 as usize) {
            op.awaited = false;
            op.epoch = op.epoch.wrapping_add(1);
        }
        self.free.push(slot.0);
        assert!(self.free.len() <= self.all.len(), "an entry is freed once");
    }

    /// Delivers a failure of an operation that was never posted.
    pub(crate) fn refuse(&mut self, token: Token, error: LinkError) {
        self.done.push_back((token, Done::Failed(error)));
    }

    /// Delivers the result of a change of permissions.
    pub(crate) fn permitted(&mut self, token: Token, result: Result<(), LinkError>) {
        self.done.push_back((token, result.map_or_else(Done::Failed, |()| Done::Permitted)));
    }

    /// The next result.
    pub(crate) fn next(&mut self) -> Option<(Token, Done)> {
        self.done.pop_front()
    }

    /// Whether the device may still complete one.
    pub(crate) fn are_under_way(&self) -> bool {
        self.free.len() < self.all.len()
    }

    /// The number of pending results.
    pub(crate) fn results(&self) -> usize {
        self.done.len()
    }

    /// Keeps a delivered READ's buffer for reuse.
    pub(crate) fn recycle(&mut self, done: Done) {
        if let Done::Bytes(bytes) = done
            && self.spare.len() < SPARE_MAX
            && bytes.len() <= self.long.block_bytes
        {
            self.spare.push(bytes);
        }
    }
}
