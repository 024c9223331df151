//! Posted operations: what each was, where its bytes lie, and how its completion is found again.
//! All of it is made when an endpoint opens; nothing here allocates in the steady state.

use super::buffers::{Block, Buffers, Place};
use super::context::ProtectionDomain;
use super::error::VerbsError;
use super::registration::Local;
use crate::contract::{LinkError, Token};
use crate::endpoint::transport::Done;
use std::collections::VecDeque;
use std::sync::Arc;

/// Operations under way on all links together.
pub(crate) const OPS_MAX: u32 = 2048;
/// Of these, so many can carry more than a word: READs and WRITEs.
const LONG_MAX: u32 = 512;
/// Memory that longer ones may take together; at least [`LONG_MIN`] blocks are made, whatever their
/// size.
const LONG_BYTES_MAX: usize = 16 << 20;
const LONG_MIN: u32 = 32;
/// Bytes of a CAS's result and of most READs.
const WORD_BYTES: usize = 8;
/// READ buffers that are kept for reuse.
const SPARE_MAX: usize = 64;

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// READ so many bytes.
    Read(u32),
    /// WRITE so many bytes.
    Write(u32),
    /// CAS from the first to the second.
    Cas(u64, u64),
    /// READ a word for nothing but what the device learns by it; nobody is told how it ends.
    Probe,
}

/// A place in [`Ops`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

#[derive(Clone, Copy, Debug)]
struct Op {
    /// Counts uses, so that a completion of an earlier one is known.
    epoch: u32,
    /// Whose it is.
    region: u32,
    token: Token,
    what: What,
    offset: u32,
    block: Block,
    /// Its result is awaited; otherwise it was given up and its memory is the device's until its
    /// link is buried.
    awaited: bool,
}

/// All posted operations, and the results that wait to be delivered.
#[derive(Debug)]
pub(crate) struct Ops {
    all: Vec<Op>,
    free: Vec<u32>,
    words: Buffers,
    long: Buffers,
    done: VecDeque<(Token, Done)>,
    spare: Vec<Vec<u8>>,
}

impl Ops {
    /// Room for operations of at most `bytes` bytes.
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        bytes: usize,
        place: Place,
    ) -> Result<Self, VerbsError> {
        let long = u32::try_from(LONG_BYTES_MAX / bytes.max(1)).unwrap_or(LONG_MAX).clamp(LONG_MIN, LONG_MAX);
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
            words: Buffers::new(domain, OPS_MAX, WORD_BYTES, place)?,
            long: Buffers::new(domain, long, bytes, place)?,
            done: VecDeque::with_capacity(OPS_MAX as usize),
            spare: (0..SPARE_MAX).map(|_| Vec::with_capacity(bytes)).collect(),
        })
    }

    /// The longest operation.
    pub(crate) const fn bytes_max(&self) -> usize {
        self.long.block_bytes()
    }

    const fn bytes(what: What) -> usize {
        match what {
            What::Read(bytes) | What::Write(bytes) => bytes as usize,
            What::Cas(..) | What::Probe => WORD_BYTES,
        }
    }

    fn buffers(&mut self, what: What) -> &mut Buffers {
        if Self::bytes(what) <= WORD_BYTES { &mut self.words } else { &mut self.long }
    }

    /// Makes room for an operation; `payload` is what a WRITE writes. `None` if too many are under
    /// way.
    pub(crate) fn start(
        &mut self,
        region: u32,
        token: Token,
        what: What,
        offset: u32,
        payload: &[u8],
    ) -> Option<Slot> {
        let buffers = self.buffers(what);
        let block = buffers.take()?;
        let Some(index) = self.free.pop() else {
            self.buffers(what).give(block);
            return None;
        };
        self.buffers(what).fill(block, payload);
        let op = self.all.get_mut(index as usize)?;
        *op = Op { epoch: op.epoch, region, token, what, offset, block, awaited: true };
        Some(Slot(index))
    }

    fn op(&self, slot: Slot) -> &Op {
        // A slot is only made by `start` and `find`, both of which have seen it.
        &self.all[slot.0 as usize]
    }

    /// The number to post it with.
    pub(crate) fn id(&self, slot: Slot) -> u64 {
        u64::from(self.op(slot).epoch) << 32 | u64::from(slot.0)
    }

    /// The operation that was posted with a number, if it is awaited, and its link.
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

    /// Where its bytes lie.
    pub(crate) fn local(&self, slot: Slot) -> Local {
        let op = self.op(slot);
        let bytes = Self::bytes(op.what);
        let buffers = if bytes <= WORD_BYTES { &self.words } else { &self.long };
        buffers.local(op.block, bytes as u32)
    }

    /// It ended well: its result is delivered, its memory free again.
    pub(crate) fn finish(&mut self, slot: Slot) {
        let Op { token, what, block, .. } = *self.op(slot);
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
                self.long.copy(block, 0, &mut out);
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

    /// It failed: that is delivered; its memory is the device's until [`Ops::release`].
    pub(crate) fn give_up(&mut self, slot: Slot, error: LinkError) {
        let Op { token, what, .. } = *self.op(slot);
        if what != What::Probe {
            self.done.push_back((token, Done::Failed(error)));
        }
        if let Some(op) = self.all.get_mut(slot.0 as usize) {
            op.awaited = false;
        }
    }

    /// The device has forgotten it.
    pub(crate) fn release(&mut self, slot: Slot) {
        let Op { what, block, .. } = *self.op(slot);
        self.buffers(what).give(block);
        if let Some(op) = self.all.get_mut(slot.0 as usize) {
            op.awaited = false;
            op.epoch = op.epoch.wrapping_add(1);
        }
        self.free.push(slot.0);
    }

    /// Delivers a failure of what was never posted.
    pub(crate) fn refuse(&mut self, token: Token, error: LinkError) {
        self.done.push_back((token, Done::Failed(error)));
    }

    /// The next result.
    pub(crate) fn next(&mut self) -> Option<(Token, Done)> {
        self.done.pop_front()
    }

    /// Whether the device may still complete one.
    pub(crate) fn are_under_way(&self) -> bool {
        self.free.len() < self.all.len()
    }

    /// How many results wait.
    pub(crate) fn results(&self) -> usize {
        self.done.len()
    }

    /// Keeps a delivered READ's buffer.
    pub(crate) fn recycle(&mut self, done: Done) {
        if let Done::Bytes(bytes) = done
            && self.spare.len() < SPARE_MAX
        {
            self.spare.push(bytes);
        }
    }
}
