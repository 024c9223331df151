//! The primary: executes requests as they come, replicates what changes something, and holds answers back until they may be
//! given.
//!
//! Every record of the log is numbered, and a backup applies them in order. A backup that joined later gets the keys as
//! they are as records among the others: whatever it has of a key, the newest record of it comes last.

use crate::answer::{Answer, Status};
use crate::area::{Area, Block, CLIENT_HEAD_WORDS, LogAt, WINDOW};
use crate::entry::{ENTRY_BYTES, Entry, Kind};
use crate::flaw::{Flaw, Planted};
use crate::node::RING;
use crate::server::{Part, token};
use crate::store::Store;
use crate::words;
use core::sync::atomic::Ordering;
use obol_fabric::{Address, Fabric, Incarnation, Instant, Nanos, Remote, ViewId};
use std::collections::VecDeque;

/// After so long the primary tries a WRITE to its backup again that has failed, as long as the view names that backup.
const AGAIN_AFTER: Nanos = Nanos::from_micros(100);
/// So many records are on the way while a new backup gets the keys: the rest of the ring is left to PUTs.
const COPY_SHARE: usize = 32;
/// So many requests are executed before their answers are given. Fewer keep client and primary at work at the same time, more
/// have one look at the lease serve more answers; uKharon's batches are of six.
const BATCH: usize = 6;
/// Buffers of answers that are kept for the next ones.
const SPARE_MAX: usize = 64;

/// The number of the first record of a backup's log. A region keeps what was written into it in an earlier life of its process,
/// and each life gets one log at most: so logs have numbers far from each other, by some 10^12 records between any of a million.
pub(crate) fn first_record(backup: Incarnation, planted: Planted) -> u64 {
    if planted.has(Flaw::LogsAlike) {
        return 1;
    }
    // Of the golden ratio: its multiples lie as far apart as multiples can. Half of them, so that counting never overflows.
    (backup.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1) | 1
}

/// An answer that is not given yet.
struct Held {
    to: Remote,
    bytes: Vec<u8>,
}

/// What the primary knows of a client.
struct Conversation {
    /// Where the client is, and its answers go.
    at: Address,
    /// Where it writes its requests.
    block: Block,
    /// Drawn by the client at random; zero until it has begun.
    id: u64,
    /// How often it began.
    again: u64,
    /// The next request that is executed.
    next: u64,
    /// It sleeps while it waits.
    rings: bool,
}

/// A record that the backup may not have.
struct Record {
    at: LogAt,
    /// The PUT that it stands for, or the one before it.
    put: u64,
    bytes: Vec<u8>,
}

/// What the primary knows of its backup.
struct Backup {
    who: Incarnation,
    at: Address,
    /// Records that it is to get, oldest first; the first `posted` of them are on the way.
    records: VecDeque<Record>,
    posted: usize,
    /// The next record, counted from [`first_record`].
    next: u64,
    /// Where the log ends.
    end: LogAt,
    /// What it says it has applied.
    applied: LogAt,
    /// Set while WRITEs fail: nothing is posted before it.
    again_at: Option<Instant>,
    /// What is still to be copied.
    keys: Vec<u64>,
    clients: Vec<u64>,
    synced: bool,
}

impl Backup {
    /// Looks what the backup says it has applied. An earlier one may have said it.
    fn hear<F: Fabric>(&mut self, area: Area, fabric: &F) {
        if let Some([who, applied]) = fabric.own(area.applied(), 24).and_then(words::unseal::<2>)
            && who == self.who.0
            && applied <= self.end.0
        {
            self.applied = LogAt(applied).max(self.applied);
        }
    }
}

/// The primary's state.
pub(crate) struct Lead {
    area: Area,
    planted: Planted,
    /// With the bug [`Flaw::ServeEarly`]: it took over, and its view has not been active yet.
    is_early: bool,
    /// The newest look at the lease found the view active.
    was_active: bool,
    /// PUTs executed.
    number: u64,
    /// All PUTs up to this one are where they have to be.
    durable: u64,
    backup: Option<Backup>,
    /// Answers, each after the PUT that it waits for, in the order of those.
    waiting: VecDeque<(u64, Held)>,
    ready: Vec<Held>,
    spare: Vec<Vec<u8>>,
    clients: Vec<Conversation>,
    /// Who is looked at first.
    turn: usize,
    /// The request that is being executed.
    request: Vec<u8>,
}

impl Lead {
    pub(crate) fn new(area: Area, planted: Planted, number: u64) -> Self {
        Self {
            area,
            planted,
            is_early: planted.has(Flaw::ServeEarly) && number > 0,
            was_active: false,
            number,
            durable: number,
            backup: None,
            waiting: VecDeque::new(),
            ready: Vec::new(),
            spare: Vec::new(),
            clients: Vec::new(),
            turn: 0,
            request: Vec::new(),
        }
    }

    /// Whether the backup of the view has everything.
    pub(crate) fn is_redundant(&self) -> bool {
        self.backup.as_ref().is_some_and(|backup| backup.synced && backup.records.is_empty())
    }

    /// Whether the backup was given everything that there was when it came.
    pub(crate) fn has_synced_backup(&self) -> bool {
        self.backup.as_ref().is_some_and(|backup| backup.synced)
    }

    /// Takes note of a view in which this server is the primary. What an earlier backup did not get needs no replication
    /// any more: it is answered as soon as this view is active, and a new backup gets it with the copy.
    pub(crate) fn install(
        &mut self,
        backup: Option<(Incarnation, Address)>,
        clients: &[(Incarnation, Address, Block)],
        store: &Store,
    ) {
        self.was_active = false;
        // One that goes to another block begins anew there.
        let is_of = |client: &Conversation, at, block| (client.at, client.block) == (at, block);
        self.clients.retain(|client| clients.iter().any(|&(_, at, block)| is_of(client, at, block)));
        for &(_, at, block) in clients {
            if !self.clients.iter().any(|client| is_of(client, at, block)) {
                self.clients.push(Conversation { at, block, id: 0, again: 0, next: 1, rings: false });
            }
        }
        if self.backup.as_ref().map(|known| known.who) == backup.map(|(who, _)| who) {
            return;
        }
        self.durable = self.number;
        self.backup = backup.map(|(who, at)| Backup {
            who,
            at,
            records: VecDeque::new(),
            posted: 0,
            next: first_record(who, self.planted),
            end: LogAt::default(),
            applied: LogAt::default(),
            again_at: None,
            keys: store.keys(),
            clients: store.clients(),
            synced: false,
        });
    }

    /// Executes what clients have written into the own memory, [`BATCH`] requests at most, and brings the backup further. Tells
    /// whether there was a request.
    pub(crate) fn poll<F: Fabric>(
        &mut self,
        now: Instant,
        view: ViewId,
        store: &mut Store,
        fabric: &mut F,
    ) -> bool {
        if self.is_behind() {
            if !self.may_begin(view, fabric) {
                return false;
            }
            self.copy(store);
            self.replicate(now, fabric);
        }
        let mut executed = 0;
        let count = self.clients.len();
        for n in 0..count {
            let at = (self.turn + n) % count;
            self.greet(at, fabric);
            while executed < BATCH && self.is_asked(at, fabric) {
                if executed == 0 && !self.may_begin(view, fabric) {
                    return false;
                }
                if !self.take_request(at, store, fabric) {
                    break;
                }
                executed += 1;
            }
        }
        if executed == 0 {
            return false;
        }
        self.turn = self.turn.wrapping_add(1) % count.max(1);
        self.replicate(now, fabric);
        true
    }

    /// Looks whether a client has begun a conversation, for the first time or anew.
    fn greet<F: Fabric>(&mut self, at: usize, fabric: &F) {
        let Some(client) = self.clients.get_mut(at) else { return };
        let head = self.area.head(client.block);
        let Some(head) = fabric.own(head, 8 * (CLIENT_HEAD_WORDS + 1)) else { return };
        let is_known = [(0, client.id), (2, client.again)]
            .iter()
            .all(|(n, known)| head.get(*n).is_some_and(|word| word.load(Ordering::Relaxed) == *known));
        if is_known {
            return;
        }
        if let Some([id, first, again, rings]) = words::unseal::<CLIENT_HEAD_WORDS>(head)
            && id != 0
        {
            (client.id, client.again, client.next, client.rings) = (id, again, first, rings != 0);
        }
    }

    /// Whether there may be a request of a client that was not executed.
    fn is_asked<F: Fabric>(&self, at: usize, fabric: &F) -> bool {
        let Some(client) = self.clients.get(at).filter(|client| client.id != 0) else { return false };
        let place = fabric.own(self.area.request(client.block, client.next), 8);
        let number = place.and_then(<[_]>::first).map_or(0, |word| word.load(Ordering::Relaxed));
        number >= client.next
    }

    /// Executes the next request of a client, or skips what needs no answer any more. `false` if half of it is there, or what
    /// no client writes.
    fn take_request<F: Fabric>(&mut self, at: usize, store: &mut Store, fabric: &F) -> bool {
        let Some(client) = self.clients.get_mut(at) else { return false };
        let place = self.area.request(client.block, client.next);
        let Some(words) = fabric.own(place, ENTRY_BYTES) else { return false };
        let Some(number) = words.first().map(|word| word.load(Ordering::Relaxed)) else { return false };
        let mut bytes = std::mem::take(&mut self.request);
        let entry = Entry::decode(words, number, &mut bytes).filter(|entry| entry.client == client.id);
        let is_taken = if let Some(entry) = entry.filter(|_| number >= client.next) {
            let to = client.at;
            // A client uses a place again when everything before has an answer.
            let is_next = number == client.next;
            client.next = if is_next {
                number.saturating_add(1)
            } else {
                client.next.saturating_add(1).max(number.saturating_sub(WINDOW - 1))
            };
            if is_next {
                self.execute(to, &entry, store);
            }
            true
        } else {
            false
        };
        self.request = bytes;
        is_taken
    }

    /// Executes a request, before it is replicated. (uKharon, section 7.3: speculatively.)
    fn execute(&mut self, to: Address, entry: &Entry<'_>, store: &mut Store) {
        match entry.kind {
            Kind::Get => {
                let (status, value, written) = match store.get(entry.key) {
                    Some(cell) => (Status::Done, &cell.value[..], cell.written),
                    None => (Status::Missing, &[][..], 0),
                };
                let speculative = written > self.durable && !self.planted.has(Flaw::ShowSpeculative);
                self.hold(if speculative { self.number } else { 0 }, to, entry, status, value);
            }
            // It is answered when everything that was executed until now is durable, so is this.
            Kind::Put if store.has_seen(entry.client, entry.number) => {
                self.hold(self.number, to, entry, Status::Done, &[]);
            }
            Kind::Put => {
                if !store.put(entry.key, entry.value, self.number + 1) {
                    return self.hold(0, to, entry, Status::Full, &[]);
                }
                self.number += 1;
                store.see(entry.client, entry.number);
                self.push(entry);
                if self.backup.is_none() {
                    self.durable = self.number;
                }
                self.hold(self.number, to, entry, Status::Done, &[]);
            }
            // What no client writes.
            Kind::Copy | Kind::Seen | Kind::Synced => {}
        }
    }

    /// Holds the answer to a request back until this PUT is durable.
    fn hold(&mut self, put: u64, to: Address, asked: &Entry<'_>, status: Status, value: &[u8]) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        Answer { client: asked.client, request: asked.number, status, value }.encode(&mut bytes);
        let held = Held { to: Remote { at: to, offset: self.area.answer(asked.number) }, bytes };
        if put <= self.durable || self.planted.has(Flaw::AnswerFirst) {
            self.ready.push(held);
        } else {
            debug_assert_eq!(put, self.number, "so they wait in order");
            self.waiting.push_back((put, held));
        }
    }

    /// Appends a record to the log of the backup.
    fn push(&mut self, entry: &Entry<'_>) {
        let put = self.number;
        let Some(backup) = &mut self.backup else { return };
        let number = backup.next;
        backup.next += 1;
        let mut bytes = self.spare.pop().unwrap_or_default();
        Entry { number, ..entry.clone() }.encode(&mut bytes);
        let at = backup.end.begin();
        backup.end = at.after(bytes.len());
        backup.records.push_back(Record { at, put, bytes });
    }

    /// Goes on with the copy for a backup that joined later.
    fn copy(&mut self, store: &Store) {
        loop {
            let Some(backup) = self.backup.as_mut().filter(|b| !b.synced && b.records.len() < COPY_SHARE)
            else {
                return;
            };
            let none = Entry { number: 0, kind: Kind::Synced, key: 0, client: 0, request: 0, value: &[] };
            if let Some(key) = backup.keys.pop() {
                let Some(cell) = store.get(key) else { continue };
                self.push(&Entry { kind: Kind::Copy, key, value: &cell.value, ..none });
            } else if let Some(client) = backup.clients.pop() {
                let Some(request) = store.newest_of(client) else { continue };
                self.push(&Entry { kind: Kind::Seen, client, request, ..none });
            } else {
                backup.synced = true;
                self.push(&none);
            }
        }
    }

    /// Writes as many records to the backup as its ring has room for.
    fn replicate<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let area = self.area;
        let Some(backup) = &mut self.backup else { return };
        if backup.again_at.is_some_and(|at| now < at || backup.posted > 0) {
            return;
        }
        backup.again_at = None;
        if !backup.end.fits(backup.applied) {
            backup.hear(area, fabric);
        }
        while let Some(record) = backup.records.get(backup.posted) {
            if !record.at.after(record.bytes.len()).fits(backup.applied) {
                return;
            }
            let to = Remote { at: backup.at, offset: area.record(record.at) };
            // Tells a completion of this backup's from one of an earlier one's.
            fabric.write(to, &record.bytes, token(Part::Record, backup.who.0 as u32));
            backup.posted += 1;
        }
    }

    /// A WRITE to the backup ended. They end in the order in which they were posted.
    pub(crate) fn on_written(&mut self, now: Instant, who: u32, well: bool) {
        let Some(backup) = self.backup.as_mut().filter(|backup| backup.who.0 as u32 == who) else { return };
        if backup.posted == 0 {
            return;
        }
        backup.posted -= 1;
        if !well {
            // Those that were posted after it fail, too; all are written again.
            backup.again_at = Some(now + AGAIN_AFTER);
        } else if backup.again_at.is_none()
            && let Some(record) = backup.records.pop_front()
        {
            self.durable = self.durable.max(record.put);
            self.spare.push(record.bytes);
        }
    }

    /// Whether there is something that the backup was not sent.
    pub(crate) fn is_behind(&self) -> bool {
        self.backup.as_ref().is_some_and(|b| !b.synced || b.posted < b.records.len())
    }

    /// Whether an answer waits for the backup.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether this server is the primary of a view that is active now.
    fn may_serve<F: Fabric>(&mut self, view: ViewId, fabric: &F) -> bool {
        self.was_active = fabric.is_active(view);
        self.is_early &= !self.was_active;
        self.was_active || self.is_early || self.planted.has(Flaw::NoSecondCheck)
    }

    /// Whether work is not in vain, as far as one can tell before it. What counts is the look after it, and the one after the round
    /// before serves here: who lost its lease meanwhile works one round in vain.
    fn may_begin<F: Fabric>(&mut self, view: ViewId, fabric: &F) -> bool {
        self.was_active || self.may_serve(view, fabric)
    }

    /// Gives the answers that may be given: all of a round after one look at the lease. Tells how many.
    pub(crate) fn settle<F: Fabric>(&mut self, view: ViewId, fabric: &mut F) -> u64 {
        let durable = self.durable;
        let count = self.waiting.iter().take_while(|(put, _)| *put <= durable).count();
        self.ready.extend(self.waiting.drain(..count).map(|(_, held)| held));
        // What a GET has read, and that a PUT is replicated, was so before this look: if the view is active now, no later
        // primary has served anybody before that. (uKharon, Algorithm 2.)
        if self.ready.is_empty() || !self.may_serve(view, fabric) {
            return 0;
        }
        let given = self.ready.len() as u64;
        for held in self.ready.drain(..) {
            // One that is lost is asked for again.
            fabric.write_untold(held.to, &held.bytes, token(Part::Send, 0));
            self.spare.push(held.bytes);
            let rings = |client: &&Conversation| client.rings && client.at == held.to.at;
            if self.clients.iter().any(|client| rings(&client)) {
                fabric.send(held.to.at.owner(), RING);
            }
        }
        self.spare.truncate(SPARE_MAX);
        given
    }
}
