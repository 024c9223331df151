//! Registered memory for pending operations: the targets of READs and CASes, and the sources of
//! WRITEs and datagrams. It is allocated when an endpoint opens; taking and returning a block costs
//! a push and a pop.
use super::arena::{Arena, HugePages};
use super::context::ProtectionDomain;
use super::error::VerbsError;
use super::registration::{Local, Registration, Rights};
use core::sync::atomic::AtomicU64;
use obol_fabric::memory;
use std::sync::Arc;

/// The page size and the NUMA node.
pub(crate) type BufferPlacement = (HugePages, Option<u32>);

/// Blocks of one size.
#[derive(Debug)]
pub(crate) struct Buffers {
    registration: Registration,
    /// The bytes of a block.
    pub(crate) block_bytes: usize,
    free: Vec<u32>,
}

/// An allocated block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block(u32);

impl Block {
    /// Its number among the blocks of its size.
    pub(crate) const fn number(self) -> u32 {
        self.0
    }

    /// The block for a number from [`Block::number`].
    pub(crate) const fn of(number: u32) -> Self {
        Self(number)
    }
}

impl Buffers {
    /// Registers `blocks` blocks of at least `bytes` bytes each.
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        blocks: u32,
        bytes: usize,
        (pages, node): BufferPlacement,
    ) -> Result<Self, VerbsError> {
        // Whole cache lines, to avoid false sharing between the device and this process.
        let block_bytes = bytes.next_multiple_of(64);
        let all = blocks as usize * block_bytes;
        let arena = Arena::new(all, pages, node)?;
        let registration = Registration::new(domain, arena, 0..all, Rights::NONE)?;
        Ok(Self { registration, block_bytes, free: (0..blocks).rev().collect() })
    }

    pub(crate) fn take(&mut self) -> Option<Block> {
        self.free.pop().map(Block)
    }

    pub(crate) fn give(&mut self, block: Block) {
        self.free.push(block.0);
    }

    fn words(&self, block: Block) -> &[AtomicU64] {
        let words = self.block_bytes / 8;
        let all = self.registration.memory().words();
        all.get(block.0 as usize * words..).and_then(|rest| rest.get(..words)).unwrap_or_default()
    }

    /// Copies bytes to the start of a block. Excess bytes are dropped: check against
    /// [`Buffers::block_bytes`].
    pub(crate) fn fill(&self, block: Block, bytes: &[u8]) {
        memory::copy_in(self.words(block), bytes);
    }

    /// Copies bytes from a block, from byte `from` on, a multiple of 8.
    pub(crate) fn copy(&self, block: Block, from: usize, out: &mut [u8]) {
        memory::copy_out(self.words(block).get(from / 8..).unwrap_or_default(), out);
    }

    /// The first `bytes` bytes of a block, as addressed by the own device.
    pub(crate) fn local(&self, block: Block, bytes: u32) -> Local {
        self.registration.local(block.0 as usize * self.block_bytes, bytes)
    }
}
