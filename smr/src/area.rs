//! Layout of the replicas' and clients' memory in their regions. It occupies the space of the
//! slots' values, which only acceptors use. `docs/design/smr.md` has the table with all bytes.
//!
//! ```text
//!          of a replica
//! 0        header     by itself: how much of which log it has applied; a counter
//! ..       heads      one per ring, by its writer: term, commit, low, begin
//! ..       reports    by each replica at its place in the view, to the leader
//! ..       asks       by each replica at its place in the view: for a chunk of a snapshot
//! ..       permissions  by each replica at its place in the view: what it asks and grants
//! ..       chunk      by itself: the chunk that was asked for last
//! ..       rings      one per replica that may lead: entries of the log, as it sent them
//! ..       blocks     one per client, as assigned by the view: its head and its newest requests
//! ..       large chunk  by itself, instead of the one before the rings, where what is left has room
//!          of a client
//! 0        answers    to its newest requests
//! ```

use crate::entry::ENTRY_BYTES_MAX;
use crate::members;
use crate::message::MESSAGE_BYTES_MAX;
use crate::position::Offset;
use core::ops::Range;
use obol_fabric::{Address, Incarnation, Layout};
use obol_membership::View;
use obol_membership::view::Member;

/// A client's outstanding requests, at most.
pub const WINDOW: u64 = 8;
/// Rings of a replica: as many replicas may have a place in configurations at once.
pub const PLACES: u8 = 8;
/// Replicas in a view that can report to a leader.
pub const REPLICAS_MAX: usize = 16;
/// Bytes of a snapshot's chunk, if there is no room for a larger one.
const CHUNK_BYTES: usize = 1024;
/// The same at most.
const CHUNK_BYTES_MAX: u32 = 64 * 1024;

/// Bytes of a cache line.
const LINE: u32 = 64;
const RING_BYTES_MIN: u32 = 4 * (ENTRY_BYTES_MAX as u32).next_multiple_of(LINE);
const RING_BYTES_MAX: u32 = 256 * 1024;
const HEADS_AT: u32 = LINE;
/// Bytes of the header with the counter.
pub(crate) const HEADER_BYTES: u32 = LINE;
const REPORTS_AT: u32 = HEADS_AT + PLACES as u32 * LINE;
const ASKS_AT: u32 = REPORTS_AT + REPLICAS_MAX as u32 * LINE;
const PERMISSIONS_AT: u32 = ASKS_AT + REPLICAS_MAX as u32 * LINE;
const CHUNK_AT: u32 = PERMISSIONS_AT + REPLICAS_MAX as u32 * LINE;
const RINGS_AT: u32 = CHUNK_AT + LINE + CHUNK_BYTES as u32;
const MESSAGE_PLACE: u32 = (MESSAGE_BYTES_MAX as u32).next_multiple_of(LINE);
const BLOCK_BYTES: u32 = LINE + WINDOW as u32 * MESSAGE_PLACE;
/// Bytes of the header and all heads, which a successor READs together.
pub(crate) const HEADS_BYTES: u32 = REPORTS_AT;

/// A client's block in the replicas of a view: see [`Area::clients`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Block(u32);

/// Who may send requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) who: Incarnation,
    pub(crate) at: Address,
    /// Where its requests are, at the leader.
    pub(crate) block: Block,
    /// It is a replica with a client beside it: answers go into the block in its own region, which has
    /// no other place for them.
    pub(crate) is_replica: bool,
}

/// Offsets in the regions of replicas and clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Area {
    begin: u32,
    ring: u32,
    blocks: u32,
    /// Where the chunk is that was asked for last, with its bytes.
    chunk: u32,
    chunk_bytes: u32,
}

impl Area {
    /// The area in the regions of a cluster; `None` if its limits leave no room for rings and a
    /// client. Rings get half of the space.
    pub fn of(layout: &Layout) -> Option<Self> {
        let values = layout.values();
        let begin = values.start.next_multiple_of(LINE);
        let space = values.end.checked_sub(begin)?.checked_sub(RINGS_AT)?;
        let share = space / 2 / u32::from(PLACES) / LINE * LINE;
        let ring = share.clamp(RING_BYTES_MIN, RING_BYTES_MAX);
        let blocks = space.checked_sub(ring * u32::from(PLACES))? / BLOCK_BYTES;
        let rest = space - ring * u32::from(PLACES) - blocks * BLOCK_BYTES;
        let large = rest.saturating_sub(LINE).min(CHUNK_BYTES_MAX) / LINE * LINE;
        let (chunk, chunk_bytes) = if large > CHUNK_BYTES as u32 {
            (begin + RINGS_AT + ring * u32::from(PLACES) + blocks * BLOCK_BYTES, large)
        } else {
            (begin + CHUNK_AT, CHUNK_BYTES as u32)
        };
        (blocks > 0).then_some(Self { begin, ring, blocks, chunk, chunk_bytes })
    }

    pub const fn ring_bytes(&self) -> u32 {
        self.ring
    }

    /// Clients at once, at most.
    pub const fn clients_max(&self) -> u32 {
        self.blocks
    }

    /// Where the entry after this offset begins: no entry wraps around. It does not depend on the
    /// entry's length, so all know it in advance.
    pub(crate) const fn begin(&self, at: Offset) -> Offset {
        let left = self.ring as u64 - at.0 % self.ring as u64;
        if left < ENTRY_BYTES_MAX as u64 { Offset(at.0 + left) } else { at }
    }

    /// Whether an entry that ends here overwrites nothing after `low`.
    pub(crate) const fn fits(&self, end: Offset, low: Offset) -> bool {
        end.0 <= low.0 + self.ring as u64
    }

    /// The place of an offset in a ring.
    pub(crate) const fn in_ring(&self, at: Offset) -> usize {
        (at.0 % self.ring as u64) as usize
    }

    pub(crate) const fn header(&self) -> u32 {
        self.begin
    }

    /// The word that a replica counts up while it runs ([`crate::PullScore`]): in the header's line, so
    /// that one READ has both.
    pub(crate) const fn counter(&self) -> u32 {
        self.begin + HEADER_BYTES - 8
    }

    pub(crate) const fn head(&self, place: u8) -> u32 {
        self.begin + HEADS_AT + place as u32 * LINE
    }

    /// Offset of a head in the bytes of [`Area::header`] and all heads.
    pub(crate) const fn head_in_heads(place: u8) -> usize {
        (HEADS_AT + place as u32 * LINE) as usize
    }

    /// Of the replica at this place in the view.
    pub(crate) const fn report(&self, replica: usize) -> u32 {
        self.begin + REPORTS_AT + replica as u32 * LINE
    }

    /// Of the replica at this place in the view.
    pub(crate) const fn ask(&self, replica: usize) -> u32 {
        self.begin + ASKS_AT + replica as u32 * LINE
    }

    /// Of the replica at this place in the view: see [`crate::Grants`].
    pub(crate) const fn permission(&self, replica: usize) -> u32 {
        self.begin + PERMISSIONS_AT + replica as u32 * LINE
    }

    /// The head of the chunk that was asked for last, and the chunk after it.
    pub(crate) const fn chunk(&self) -> u32 {
        self.chunk
    }

    pub(crate) const fn chunk_bytes(&self) -> usize {
        self.chunk_bytes as usize
    }

    /// A copy of the chunk's head, for observers.
    pub(crate) const fn chunk_head(&self) -> u32 {
        self.begin + CHUNK_AT
    }

    /// Where a chunk's data begins.
    pub(crate) const CHUNK_DATA: u32 = LINE;

    /// Where a log is direct, the first ring is the log, and the pointers are at the beginning of the
    /// second one: see [`crate::direct`].
    pub(crate) const fn pointers(&self) -> u32 {
        self.rings() + self.ring
    }

    pub(crate) const fn rings(&self) -> u32 {
        self.begin + RINGS_AT
    }

    pub(crate) const fn rings_bytes(&self) -> u32 {
        PLACES as u32 * self.ring
    }

    /// The part of a replica's region that its guard lets one leader write to, if it gives permissions
    /// ([`crate::Guard::REVOKES`]): all rings.
    pub const fn permitted(&self) -> Range<u32> {
        self.rings()..self.rings() + self.rings_bytes()
    }

    /// A ring in the bytes of all rings.
    pub(crate) const fn ring_in_rings(&self, place: u8) -> Range<usize> {
        let begin = place as usize * self.ring as usize;
        begin..begin + self.ring as usize
    }

    /// The part of a replica's region that says what it does: see [`crate::Brief`].
    pub const fn brief(&self) -> Range<u32> {
        self.begin..self.begin + HEADER_BYTES
    }

    /// The part of a replica's region that an observer reads: all but the clients' requests.
    pub const fn shared(&self) -> Range<u32> {
        self.begin..self.rings() + self.rings_bytes()
    }

    /// Offset of the copy of the chunk's head in the bytes of [`Area::shared`].
    pub(crate) const fn chunk_in_shared(&self) -> usize {
        CHUNK_AT as usize
    }

    /// Offset of the pointers in the bytes of [`Area::shared`].
    pub(crate) const fn pointers_in_shared(&self) -> usize {
        (self.pointers() - self.begin) as usize
    }

    /// Offset of an entry in the bytes of [`Area::shared`].
    pub(crate) const fn entry_in_shared(&self, place: u8, at: Offset) -> usize {
        (self.entry(place, at) - self.begin) as usize
    }

    /// Offset of an entry in a ring.
    pub(crate) const fn entry(&self, place: u8, at: Offset) -> u32 {
        self.rings() + place as u32 * self.ring + self.in_ring(at) as u32
    }

    /// The clients and replicas of a view that have a block. Each takes the first one, from its
    /// incarnation modulo their number on, that none older than it has, so all who know the view agree,
    /// and nobody takes the block of one that was there before.
    pub(crate) fn clients(&self, view: &View) -> Vec<Caller> {
        let mut taken = vec![false; self.blocks as usize];
        let find = |(client, is_replica): (&Member, bool)| {
            let first = (client.incarnation.0 % u64::from(self.blocks)) as u32;
            let block = (first..self.blocks).chain(0..first).find(|block| !taken[*block as usize])?;
            taken[block as usize] = true;
            let (who, at, block) = (client.incarnation, client.address, Block(block));
            Some(Caller { who, at, block, is_replica })
        };
        let clients = members::clients(view).map(|client| (client, false));
        let mut all: Vec<_> = clients.chain(members::replicas(view).map(|replica| (replica, true))).collect();
        all.sort_by_key(|(member, _)| member.incarnation);
        all.into_iter().map_while(find).collect()
    }

    /// Offset of a client's head.
    pub(crate) const fn client_head(&self, of: Block) -> u32 {
        self.rings() + self.rings_bytes() + of.0 * BLOCK_BYTES
    }

    pub(crate) const fn request(&self, of: Block, number: u64) -> u32 {
        self.client_head(of) + LINE + (number % WINDOW) as u32 * MESSAGE_PLACE
    }

    /// In the client's own region.
    pub(crate) const fn answer(&self, number: u64) -> u32 {
        self.begin + (number % WINDOW) as u32 * MESSAGE_PLACE
    }

    /// In the region of a replica with a client beside it: where its request is at the leader, which may
    /// be this replica, so an answer replaces the request.
    pub(crate) const fn answer_beside(&self, of: Block, number: u64) -> u32 {
        self.request(of, number)
    }
}

const _: () = assert!(WINDOW as u32 * MESSAGE_PLACE <= RINGS_AT + RING_BYTES_MIN * PLACES as u32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Entry;
    use obol_fabric::Limits;

    const LIMITS: Limits = Limits { slots: 8, proposers: 7, value_bytes: 4096, ..Limits::LEAST };

    fn area(limits: Limits) -> Option<Area> {
        Area::of(&Layout::new(limits).expect("in bounds"))
    }

    #[test]
    fn all_parts_lie_in_the_area_one_after_the_other() {
        let values = Layout::new(LIMITS).expect("in bounds").values();
        let area = area(LIMITS).expect("there is room");
        let parts = [
            area.header(),
            area.head(0),
            area.head(PLACES - 1),
            area.report(0),
            area.report(REPLICAS_MAX - 1),
            area.ask(0),
            area.ask(REPLICAS_MAX - 1),
            area.permission(0),
            area.permission(REPLICAS_MAX - 1),
            area.chunk_head(),
            area.rings(),
            area.entry(PLACES - 1, Offset(u64::from(area.ring - 8))),
            area.client_head(Block(0)),
            area.request(Block(area.blocks - 1), WINDOW - 1),
            values.end - MESSAGE_PLACE + 1,
        ];
        assert!(parts.is_sorted_by(|a, b| a < b), "{parts:?}");
        assert!(parts[0] >= values.start);
        let permitted = area.permitted();
        let blocks_end = area.client_head(Block(area.blocks));
        let chunk_end = area.chunk() + Area::CHUNK_DATA + area.chunk_bytes;
        assert!(area.chunk() >= blocks_end && chunk_end <= values.end);
        assert!(area.chunk_head() < permitted.start && permitted.contains(&area.pointers()));
        assert_eq!((permitted.start, permitted.end), (area.entry(0, Offset(0)), area.client_head(Block(0))));
    }

    /// With the limits of the profiles, as stated in `docs/design/smr.md`.
    #[test]
    fn rings_and_clients_are_as_documented() {
        let area = area(LIMITS).expect("there is room");
        assert_eq!((area.ring_bytes(), area.clients_max(), area.chunk_bytes()), (14_016, 12, 7_232));
    }

    #[test]
    fn a_region_without_room_has_no_area() {
        assert_eq!(area(Limits { slots: 4, proposers: 1, ..LIMITS }), None);
    }

    /// A view with one member for each of these name prefixes, the oldest first.
    fn view(names: impl IntoIterator<Item = &'static str>) -> View {
        let mut view = View::genesis(&[], obol_fabric::Nanos(1), obol_fabric::Nanos(1));
        view.members.extend((1..).zip(names).map(|(n, prefix)| Member {
            incarnation: Incarnation(n),
            kind: obol_membership::Kind::App,
            name: obol_fabric::Name::new(&format!("{prefix}{n}")).expect("a name"),
            address: Address::region(n as u32),
            host: Incarnation::NONE,
            token: n,
            proposer: 0,
            release: obol_fabric::Release::THIS,
        }));
        view
    }

    #[test]
    fn blocks_are_given_by_age_to_clients_and_replicas() {
        let area = area(LIMITS).expect("there is room");
        let (replicas, clients) = ([members::REPLICA_PREFIX; 3], [members::CLIENT_PREFIX; 20]);
        let most = area.clients_max() as usize;
        for count in [0, 1, 8, 9, 10, 12, 20] {
            let clients = &clients[..count];
            let last_replica = [&replicas[..2], clients, &replicas[2..]].concat();
            for names in [[&replicas[..], clients].concat(), [clients, &replicas[..]].concat(), last_replica]
            {
                let all = area.clients(&view(names.clone()));
                let blocks: std::collections::BTreeSet<Block> = all.iter().map(|one| one.block).collect();
                assert_eq!(blocks.len(), all.len(), "{count} clients: no block has two of them");
                let with: Vec<(u64, bool)> = all.iter().map(|one| (one.who.0, one.is_replica)).collect();
                let is_replica = |name: &&str| **name == *members::REPLICA_PREFIX;
                let eldest = (1..).zip(names.iter().map(is_replica)).take(most).collect::<Vec<_>>();
                assert_eq!(with, eldest, "{count} clients");
            }
        }
    }

    #[test]
    fn entries_are_contiguous_and_do_not_wrap() {
        let area = area(LIMITS).expect("there is room");
        let ring = u64::from(area.ring);
        let mut at = Offset(0);
        for n in 0..10_000_usize {
            let begin = area.begin(at);
            assert!(begin >= at && begin.0 - at.0 < ENTRY_BYTES_MAX as u64);
            assert!(begin.0 % ring + ENTRY_BYTES_MAX as u64 <= ring);
            at = Offset(begin.0 + Entry::bytes_of(n % 1025) as u64);
        }
        assert!(area.fits(at, Offset(at.0 - ring)) && !area.fits(at, Offset(at.0 - ring - 1)));
    }
}
