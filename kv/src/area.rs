//! Where the service's memory lies in a server's region. A member that is no acceptor has no use for the slots' values that
//! every region has room for; a server's peers write there.
//!
//! ```text
//! 0        applied    the newest record of this server's log that its backup has applied; written by the backup
//! 64       ring       the primary's log as this server, its backup, gets it: RING entries
//! ..       blocks     one for each region number but the coordinators': a client's head and its WINDOW newest requests
//! ```

use crate::entry::ENTRY_BYTES;
use obol_fabric::Layout;
use obol_fabric::layout::PROPOSERS_MAX;

/// Requests of a client that can be on the way at once.
pub const WINDOW: u64 = 8;
/// Records that can be on the way to the backup at once.
pub(crate) const RING: u64 = 64;
/// A client's head: its id, its first and last request that it wants an answer to, and how often it asked again.
pub(crate) const CLIENT_HEAD_BYTES: u32 = 32;

/// The first region number that can be a client's.
const FIRST: u32 = PROPOSERS_MAX as u32 + 1;
const RING_AT: u32 = 64;
const BLOCKS_AT: u32 = RING_AT + RING as u32 * ENTRY_BYTES as u32;
const BLOCK_BYTES: u32 = CLIENT_HEAD_BYTES + WINDOW as u32 * ENTRY_BYTES as u32;

/// Offsets in a server's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Area {
    begin: u32,
    blocks: u32,
}

impl Area {
    /// The area of the regions of a cluster; `None` if its limits leave no room for a single client.
    #[must_use]
    pub fn of(layout: &Layout) -> Option<Self> {
        let values = layout.values();
        let blocks = (values.end - values.start).checked_sub(BLOCKS_AT)? / BLOCK_BYTES;
        (blocks > 0).then_some(Self { begin: values.start, blocks })
    }

    /// Whether a client with this region number has a block.
    #[must_use]
    pub const fn has_room_for(&self, region: u32) -> bool {
        region >= FIRST && region - FIRST < self.blocks
    }

    pub(crate) const fn applied(&self) -> u32 {
        self.begin
    }

    pub(crate) const fn record(&self, number: u64) -> u32 {
        self.begin + RING_AT + (number % RING) as u32 * ENTRY_BYTES as u32
    }

    pub(crate) const fn client(&self, region: u32) -> u32 {
        self.begin + BLOCKS_AT + region.saturating_sub(FIRST) * BLOCK_BYTES
    }

    pub(crate) const fn request(&self, region: u32, number: u64) -> u32 {
        self.client(region) + CLIENT_HEAD_BYTES + (number % WINDOW) as u32 * ENTRY_BYTES as u32
    }
}
