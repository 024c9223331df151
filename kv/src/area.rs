//! Layout of the service's memory in a member's region. It occupies the space of the slots' values,
//! which only acceptors use. Peers write to a server there, and servers write their answers to a
//! client. Each entry begins on a cache line of its own.
//!
//! ```text
//!          of a server
//! 0        reports    by each backup: how much of its log it has applied, and its state
//! ..       rings      one per primary: its log, as sent to this server, entry after entry
//! ..       blocks     one per client, as assigned by the view: its head and its WINDOW newest requests
//!          of a client
//! ..       answers    for each shard: to the WINDOW newest requests to its server
//! ```

use crate::answer::ANSWER_BYTES;
use crate::entry::ENTRY_BYTES;
use crate::members;
use crate::shard::{SHARDS_MAX, Shard};
use obol_fabric::{Address, Incarnation, Layout};
use obol_membership::View;
use obol_membership::view::Member;

/// A client's outstanding requests to a shard, at most.
pub const WINDOW: u64 = 8;
/// Backups of a primary at most. Further servers wait.
pub(crate) const BACKUPS_MAX: u32 = 2;
/// Rings of a server: one for each primary that writes to its log. Primaries are older, and a
/// server with a log has at most this many older ones.
pub(crate) const RINGS: u32 = BACKUPS_MAX;
/// Bytes of records outstanding to the backup, at most: some 540 PUTs of 32 bytes, 32 of the
/// longest.
pub(crate) const RING_BYTES: u64 = 32 * PLACE_BYTES as u64;
/// Words of a client's head, which opens a session: client id, first request that needs an answer,
/// number of the session, whether the client needs wakeups. A checksum follows.
pub(crate) const CLIENT_HEAD_WORDS: usize = 4;

/// Bytes of a cache line.
const LINE_BYTES: u32 = 64;
const PLACE_BYTES: u32 = (ENTRY_BYTES as u32).next_multiple_of(LINE_BYTES);
const _: () = assert!(ANSWER_BYTES <= PLACE_BYTES as usize);

const YIELDED_AT: u32 = BACKUPS_MAX * LINE_BYTES;
const RINGS_AT: u32 = YIELDED_AT + LINE_BYTES;
const BLOCKS_AT: u32 = RINGS_AT + RINGS * RING_BYTES as u32;
/// Of one shard.
const ANSWERS_BYTES: u32 = WINDOW as u32 * PLACE_BYTES;
const BLOCK_BYTES: u32 = LINE_BYTES + WINDOW as u32 * PLACE_BYTES;

/// Offset of a record in the log, including the gaps at the end of the ring: no record wraps
/// around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LogAt(pub(crate) u64);

impl LogAt {
    /// Where the record after this offset begins. It does not depend on the record's length, so
    /// both sides know it in advance.
    pub(crate) const fn begin(self) -> Self {
        let left = RING_BYTES - self.0 % RING_BYTES;
        if left < ENTRY_BYTES as u64 { Self(self.0 + left) } else { self }
    }

    /// The offset after a record of this length that begins here.
    pub(crate) const fn after(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }

    /// Whether a record that ends here overwrites nothing, given what the backup has applied.
    pub(crate) const fn fits(self, applied: Self) -> bool {
        self.0 <= applied.0 + RING_BYTES
    }
}

const _: () = assert!(SHARDS_MAX * ANSWERS_BYTES <= BLOCKS_AT, "where servers have room, clients have");

/// A client of a view that has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) who: Incarnation,
    pub(crate) at: Address,
    pub(crate) block: Block,
}

/// A client's block in the servers of a view: see [`Area::clients`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Block(u32);

/// Offsets in the regions of the servers of one shard and their clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Area {
    begin: u32,
    blocks: u32,
    answers: u32,
}

impl Area {
    /// The area in the regions of a cluster; `None` if its limits leave no room for a single
    /// client.
    pub fn of(layout: &Layout) -> Option<Self> {
        let values = layout.values();
        let begin = values.start.next_multiple_of(LINE_BYTES);
        let blocks = values.end.checked_sub(begin)?.checked_sub(BLOCKS_AT)? / BLOCK_BYTES;
        (blocks > 0).then_some(Self { begin, blocks, answers: begin })
    }

    /// The same for another shard.
    pub(crate) const fn of_shard(self, shard: Shard) -> Self {
        Self { answers: self.begin + shard.index() * ANSWERS_BYTES, ..self }
    }

    /// Clients at once, at most.
    pub const fn clients_max(&self) -> u32 {
        self.blocks
    }

    /// The clients of a view that have a block. Each client takes the first
    /// block, from its incarnation modulo their number on, that no older client has. So all who
    /// know the view agree. A client moves to another block only if an older client that had
    /// displaced it leaves, which is rare because incarnations are consecutive.
    pub(crate) fn clients(&self, view: &View) -> Vec<Served> {
        let mut taken = vec![false; self.blocks as usize];
        let find = |client: &Member| {
            let first = (client.incarnation.0 % u64::from(self.blocks)) as u32;
            let block = (first..self.blocks).chain(0..first).find(|block| !taken[*block as usize])?;
            taken[block as usize] = true;
            Some(Served { who: client.incarnation, at: client.address, block: Block(block) })
        };
        members::clients(view).map_while(find).collect()
    }

    /// Offset of the report of the server at this place of the view, after the primary. Waiting
    /// servers share the last one's.
    pub(crate) const fn report(&self, place: u32) -> u32 {
        let place = if place > BACKUPS_MAX { BACKUPS_MAX } else { place };
        self.begin + place.saturating_sub(1) * LINE_BYTES
    }

    /// Offset of the report by which an older server without a state yields. No other report
    /// overwrites it: that server may be back, as a backup, before this one reads it.
    pub(crate) const fn yielded(&self) -> u32 {
        self.begin + YIELDED_AT
    }

    /// Offset of a record in a ring.
    pub(crate) const fn record(&self, ring: u32, at: LogAt) -> u32 {
        self.begin + RINGS_AT + ring * RING_BYTES as u32 + (at.0 % RING_BYTES) as u32
    }

    /// Offset of a client's head.
    pub(crate) const fn head(&self, of: Block) -> u32 {
        self.begin + BLOCKS_AT + of.0 * BLOCK_BYTES
    }

    pub(crate) const fn request(&self, of: Block, number: u64) -> u32 {
        self.head(of) + LINE_BYTES + (number % WINDOW) as u32 * PLACE_BYTES
    }

    /// In the client's own region.
    pub(crate) const fn answer(&self, number: u64) -> u32 {
        self.answers + (number % WINDOW) as u32 * PLACE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::{Limits, Name, Nanos};
    use obol_membership::Kind;
    use std::collections::{BTreeMap, BTreeSet};

    const LIMITS: Limits = Limits { slots: 8, proposers: 7, value_bytes: 4096, ..Limits::LEAST };

    fn area() -> Area {
        Area::of(&Layout::new(LIMITS).expect("in bounds")).expect("there is room")
    }

    /// A view of these clients.
    fn view(clients: impl IntoIterator<Item = u64>) -> View {
        let mut view = View::genesis(&[], Nanos(1), Nanos(1));
        view.members.extend(clients.into_iter().map(|incarnation| Member {
            incarnation: Incarnation(incarnation),
            kind: Kind::App,
            name: Name::new("client").expect("a name"),
            // Addresses do not matter.
            address: Address::region(900),
            host: Incarnation::NONE,
            token: incarnation,
            proposer: 0,
            release: obol_fabric::Release::THIS,
        }));
        view
    }

    fn blocks(clients: impl IntoIterator<Item = u64>) -> BTreeMap<u64, u32> {
        area().clients(&view(clients)).into_iter().map(|one| (one.who.0, one.block.0)).collect()
    }

    #[test]
    fn blocks_do_not_overlap_and_lie_in_the_area() {
        let layout = Layout::new(LIMITS).expect("in bounds");
        let area = area();
        let heads: Vec<u32> = (0..area.clients_max()).map(|block| area.head(Block(block))).collect();
        assert!(heads.is_sorted_by(|a, b| b - a == BLOCK_BYTES));
        assert!(heads.last().is_some_and(|last| last + BLOCK_BYTES <= layout.values().end));
        let small = Layout::new(Limits { slots: 4, proposers: 1, ..LIMITS }).expect("in bounds");
        assert_eq!(Area::of(&small), None);
    }

    /// With the slots, proposers and `value_bytes` of the profiles, as stated in
    /// `docs/design/applications.md`.
    #[test]
    fn the_number_of_blocks_is_as_documented() {
        assert_eq!(area().clients_max(), 18);
    }

    #[test]
    fn older_clients_get_blocks_first() {
        let count = u64::from(area().clients_max());
        // All of them prefer the first.
        for step in [1, count, 3 * count] {
            let all: Vec<u64> = (1..=count + 2).map(|n| n * step).collect();
            let blocks = blocks(all.iter().copied());
            assert!(blocks.keys().eq(&all[..count as usize]), "{blocks:?}");
            assert_eq!(blocks.values().collect::<BTreeSet<_>>().len() as u64, count, "{blocks:?}");
        }
    }

    #[test]
    fn a_client_moves_only_if_an_older_one_that_displaced_it_leaves() {
        let count = u64::from(area().clients_max());
        let before = blocks([2, 3, 2 + count]);
        assert_eq!(before, BTreeMap::from([(2, 2), (3, 3), (2 + count, 4)]));
        assert!(before.iter().all(|of| blocks([2, 3, 2 + count, 4 + count]).get(of.0) == Some(of.1)));
        assert_eq!(blocks([2, 2 + count]), BTreeMap::from([(2, 2), (2 + count, 3)]));
        assert_eq!(blocks([3, 2 + count]), BTreeMap::from([(3, 3), (2 + count, 2)]));
    }

    #[test]
    fn records_are_contiguous_and_do_not_wrap() {
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
