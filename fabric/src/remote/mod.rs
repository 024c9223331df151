//! Regions of other hosts as an observer reads them, whatever the network.

mod relation;

pub use relation::ClockRelation;

use crate::host::Reader;
use crate::layout::Layout;
use crate::memory;
use crate::types::Instant;
use core::sync::atomic::{AtomicU64, Ordering};

/// The maximum number of reads of a page during its publication before it counts as torn.
pub const TORN_READS_MAX: u32 = 16;

/// What a copy of a region says nothing about itself.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// The generation of the region's owner.
    pub generation: u32,
    /// The relation of the owner's clock to this host's.
    pub clock: ClockRelation,
    /// When the READ was started, by the own clock.
    pub read_at: Instant,
}

/// A region at about one moment: header, lease page, seats, histograms, view and slots.
#[derive(Debug)]
pub struct RegionCopy {
    words: Box<[AtomicU64]>,
    layout: Layout,
    taken: Taken,
}

impl RegionCopy {
    /// Whether two consecutive READs of the lease page have the same result: no publication in
    /// between, so each is whole.
    pub fn is_whole(raw: &[u8], page_again: &[u8], layout: &Layout) -> bool {
        let start = layout.page() as usize;
        raw.get(start..start + page_again.len()) == Some(page_again)
    }

    /// From the bytes of a region; one that is not whole is as if its owner had stopped while it
    /// published the lease page.
    pub fn new(raw: &[u8], whole: bool, layout: Layout, taken: Taken) -> Self {
        let words = memory::zeroed(raw.len());
        memory::copy_in(&words, raw);
        if let Some(sequence) = words.get(layout.page() as usize / 8).filter(|_| !whole) {
            sequence.fetch_or(1, Ordering::Relaxed);
        }
        Self { words, layout, taken }
    }

    /// A reader of its contents, without value areas and lanes.
    pub fn reader(&self) -> Reader<'_> {
        Reader::new(&self.words, &self.layout)
    }

    /// The generation of the region's owner.
    pub const fn generation(&self) -> u32 {
        self.taken.generation
    }

    /// The relation of the owner's clock to this host's. Stamps in the copy are the owner's.
    pub const fn clock(&self) -> ClockRelation {
        self.taken.clock
    }

    /// When the READ was started, by the own clock.
    pub const fn read_at(&self) -> Instant {
        self.taken.read_at
    }
}
