//! Where the service's memory lies in a member's region. A member that is no acceptor has no use for the slots' values that
//! every region has room for; there a server's peers write to it, and a client's server its answers. Each entry begins with a
//! cache line of its own.
//!
//! ```text
//!          of a server
//! 0        applied    the newest record of this server's log that its backup has applied; written by the backup
//! 64       ring       the primary's log as this server, its backup, gets it, one entry after the other
//! ..       blocks     one for each region number but the coordinators': a client's head and its WINDOW newest requests
//!          of a client
//! ..       answers    for each shard: to the WINDOW newest requests to its server
//! ```

use crate::answer::ANSWER_BYTES;
use crate::entry::ENTRY_BYTES;
use crate::{SHARDS_MAX, Shard};
use obol_fabric::Layout;
use obol_fabric::shm::first_member;

/// Requests of a client that can be on the way at once.
pub const WINDOW: u64 = 8;
/// Bytes of records that can be on the way to the backup at once: some 850 of PUTs of 32 bytes, 64 of the longest.
pub(crate) const RING_BYTES: u64 = 64 * PLACE_BYTES as u64;
/// Words of a client's head, which begins a conversation: its id, its first request that it wants an answer to, how
/// often it began, and whether it is to be rung for. Their sum follows.
pub(crate) const CLIENT_HEAD_WORDS: usize = 4;

/// Bytes of a cache line.
const LINE_BYTES: u32 = 64;
const PLACE_BYTES: u32 = (ENTRY_BYTES as u32).next_multiple_of(LINE_BYTES);
const _: () = assert!(ANSWER_BYTES <= PLACE_BYTES as usize);

const RING_AT: u32 = LINE_BYTES;
const BLOCKS_AT: u32 = RING_AT + RING_BYTES as u32;
/// Of a shard.
const ANSWERS_BYTES: u32 = WINDOW as u32 * PLACE_BYTES;
const BLOCK_BYTES: u32 = LINE_BYTES + WINDOW as u32 * PLACE_BYTES;

/// Bytes of the log before a record, the gaps included that the end of the ring makes: no record is broken in two there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LogAt(pub(crate) u64);

impl LogAt {
    /// Where a record after this place begins, whatever its length: both sides know that before they know the record.
    pub(crate) const fn begin(self) -> Self {
        let left = RING_BYTES - self.0 % RING_BYTES;
        if left < ENTRY_BYTES as u64 { Self(self.0 + left) } else { self }
    }

    /// After a record of so many bytes that begins here.
    pub(crate) const fn after(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }

    /// Whether what ends here overwrites nothing, if everything before `applied` was applied.
    pub(crate) const fn fits(self, applied: Self) -> bool {
        self.0 <= applied.0 + RING_BYTES
    }
}

const _: () = assert!(SHARDS_MAX * ANSWERS_BYTES <= BLOCKS_AT, "where servers have room, clients have");

/// Offsets in the regions of a server of one shard, and of those that talk to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Area {
    begin: u32,
    /// The first region number that can be a client's, which has the first block.
    first: u32,
    blocks: u32,
    answers: u32,
}

impl Area {
    /// The area of the regions of a cluster, of which this host has this number; `None` if its limits leave no room for a
    /// single client.
    #[must_use]
    pub fn of(layout: &Layout, host: u8) -> Option<Self> {
        let values = layout.values();
        let begin = values.start.next_multiple_of(LINE_BYTES);
        let blocks = values.end.checked_sub(begin)?.checked_sub(BLOCKS_AT)? / BLOCK_BYTES;
        (blocks > 0).then_some(Self { begin, first: first_member(host), blocks, answers: begin })
    }

    /// The same for another shard.
    #[must_use]
    pub(crate) const fn of_shard(self, shard: Shard) -> Self {
        Self { answers: self.begin + shard.index() * ANSWERS_BYTES, ..self }
    }

    /// Whether a client with this region number has a block.
    #[must_use]
    pub const fn has_room_for(&self, region: u32) -> bool {
        region >= self.first && region - self.first < self.blocks
    }

    pub(crate) const fn applied(&self) -> u32 {
        self.begin
    }

    /// Of a record at this place of the log.
    pub(crate) const fn record(&self, at: LogAt) -> u32 {
        self.begin + RING_AT + (at.0 % RING_BYTES) as u32
    }

    pub(crate) const fn client(&self, region: u32) -> u32 {
        self.begin + BLOCKS_AT + region.saturating_sub(self.first) * BLOCK_BYTES
    }

    pub(crate) const fn request(&self, region: u32, number: u64) -> u32 {
        self.client(region) + LINE_BYTES + (number % WINDOW) as u32 * PLACE_BYTES
    }

    /// In the client's own region.
    pub(crate) const fn answer(&self, number: u64) -> u32 {
        self.answers + (number % WINDOW) as u32 * PLACE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_a_cluster_has_a_block_of_its_own_as_far_as_there_are_blocks() {
        let limits = obol_fabric::Limits {
            seats: 1,
            slots: 8,
            proposers: 7,
            value_bytes: 4096,
            lanes: 4,
            lane_slots: 2,
            datagram_bytes: 512,
            recorder_events: 16,
        };
        let layout = Layout::new(limits).expect("in bounds");
        // One host, and any of several, whose numbers follow each other.
        for (host, first) in [(0, 8), (1, 32), (2, 32)] {
            let area = Area::of(&layout, host).expect("there is room");
            assert!(!area.has_room_for(first - 1) && area.has_room_for(first));
            let end = (first..).find(|region| !area.has_room_for(*region)).expect("an end");
            assert_eq!(end - first, area.blocks);
            let places = (first..end).map(|region| area.client(region));
            assert!(places.is_sorted_by(|a, b| b - a == BLOCK_BYTES));
            assert!(area.client(end - 1) + BLOCK_BYTES <= layout.values().end);
        }
        let small = Layout::new(obol_fabric::Limits { slots: 4, proposers: 1, ..limits }).expect("in bounds");
        assert_eq!(Area::of(&small, 1), None);
    }

    #[test]
    fn records_follow_each_other_and_none_is_broken_in_two() {
        let mut at = LogAt::default();
        for n in 0..10_000_usize {
            let begin = at.begin();
            assert!(begin >= at && begin.0 - at.0 < ENTRY_BYTES as u64);
            assert!(begin.0 % RING_BYTES + ENTRY_BYTES as u64 <= RING_BYTES);
            at = begin.after(40 + 8 * (n % 129));
        }
        assert!(at.fits(LogAt(at.0 - RING_BYTES)) && !at.fits(LogAt(at.0 - RING_BYTES - 1)));
    }
}
