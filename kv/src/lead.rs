//! The primary: executes requests as they come, replicates what changes something, and holds answers back until they may be
//! given.
//!
//! Every record of the log is numbered, and a backup applies them in order. A backup that joined later gets the keys as
//! they are as records among the others: whatever it has of a key, the newest record of it comes last.

use crate::answer::{Answer, Status};
use crate::area::{Area, RING, WINDOW};
use crate::entry::{Entry, Kind};
use crate::flaw::{Flaw, Planted};
use crate::server::{Part, token};
use crate::store::Store;
use obol_fabric::{Address, Fabric, Incarnation, Instant, Nanos, Remote, ViewId};
use std::collections::{BTreeMap, VecDeque};

/// After so long the primary tries a WRITE to its backup again that has failed, as long as the view names that backup.
const AGAIN_AFTER: Nanos = Nanos::from_micros(100);
/// So much of the ring is left to PUTs while a new backup gets the keys.
const COPY_SHARE: usize = RING as usize / 2;

/// An answer that is not given yet.
struct Held {
    to: Address,
    bytes: Vec<u8>,
}

/// What the primary knows of a client.
#[derive(Default)]
struct Conversation {
    /// Drawn by the client at random.
    id: u64,
    /// The next request that is executed.
    next: u64,
    /// The newest that the client has written.
    last: u64,
    /// How often it asked again.
    again: u64,
    /// A READ of the next request is on the way.
    reading: bool,
}

/// A record that the backup may not have.
struct Record {
    /// Counts the records of this backup from 1.
    number: u64,
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
    next: u64,
    /// What it says it has applied.
    applied: u64,
    /// Set while WRITEs fail: nothing is posted before it.
    again_at: Option<Instant>,
    /// What is still to be copied.
    keys: Vec<u64>,
    clients: Vec<u64>,
    synced: bool,
}

/// The primary's state.
pub(crate) struct Lead {
    area: Area,
    planted: Planted,
    /// With the bug [`Flaw::ServeEarly`]: it took over, and its view has not been active yet.
    is_early: bool,
    /// PUTs executed.
    number: u64,
    /// All PUTs up to this one are where they have to be.
    durable: u64,
    backup: Option<Backup>,
    /// Answers by the PUT that they wait for.
    waiting: BTreeMap<u64, Vec<Held>>,
    ready: Vec<Held>,
    /// By region.
    clients: BTreeMap<u32, Conversation>,
    /// READs of the own memory that have not come back.
    reading: u32,
}

impl Lead {
    pub(crate) fn new(area: Area, planted: Planted, number: u64) -> Self {
        Self {
            area,
            planted,
            is_early: planted.has(Flaw::ServeEarly) && number > 0,
            number,
            durable: number,
            backup: None,
            waiting: BTreeMap::new(),
            ready: Vec::new(),
            clients: BTreeMap::new(),
            reading: 0,
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
    pub(crate) fn install(&mut self, backup: Option<(Incarnation, Address)>, clients: &[u32], store: &Store) {
        self.clients.retain(|region, _| clients.contains(region));
        for &region in clients {
            self.clients.entry(region).or_default();
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
            next: 1,
            applied: 0,
            again_at: None,
            keys: store.keys(),
            clients: store.clients(),
            synced: false,
        });
    }

    /// Looks into the own memory: what clients have written, and what the backup has applied.
    pub(crate) fn poll<F: Fabric>(&mut self, now: Instant, view: ViewId, store: &Store, fabric: &mut F) {
        // A look before the work, so that it is not in vain; what counts is the look after it.
        if !self.may_serve(view, fabric) {
            return;
        }
        self.copy(store);
        self.replicate(now, fabric);
        if self.reading > 0 {
            return;
        }
        let at = fabric.address();
        for &region in self.clients.keys() {
            self.reading += 1;
            let head = Remote { at, offset: self.area.client(region) };
            fabric.read(head, crate::area::CLIENT_HEAD_BYTES, token(Part::ClientHead, region));
        }
        if self.backup.is_some() {
            self.reading += 1;
            fabric.read(Remote { at, offset: self.area.applied() }, 8, token(Part::Applied, 0));
        }
    }

    /// A client's head was read.
    pub(crate) fn on_head<F: Fabric>(&mut self, region: u32, bytes: &[u8], fabric: &mut F) {
        self.reading = self.reading.saturating_sub(1);
        let Some(client) = self.clients.get_mut(&region) else { return };
        let word = |at: usize| {
            let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
            word.map_or(0, u64::from_le_bytes)
        };
        let [id, first, last, again] = [0, 8, 16, 24].map(word);
        if id == 0 || first == 0 {
            return;
        }
        if (client.id, client.again) != (id, again) && !client.reading {
            *client = Conversation { id, next: first, last, again, reading: false };
        }
        // The four words may be of different heads; a last request that can not be is not believed.
        client.last = if last < client.next + WINDOW { client.last.max(last) } else { client.last };
        self.read_next(region, fabric);
    }

    /// Reads a client's next request if there is one.
    fn read_next<F: Fabric>(&mut self, region: u32, fabric: &mut F) {
        let Some(client) = self.clients.get_mut(&region) else { return };
        if client.reading || client.next > client.last {
            return;
        }
        client.reading = true;
        self.reading += 1;
        let from = Remote { at: fabric.address(), offset: self.area.request(region, client.next) };
        fabric.read(from, crate::entry::ENTRY_BYTES as u32, token(Part::Request, region));
    }

    /// A client's request was read; it may be an older one, or half of one.
    pub(crate) fn on_request<F: Fabric>(
        &mut self,
        region: u32,
        bytes: &[u8],
        store: &mut Store,
        fabric: &mut F,
    ) {
        self.reading = self.reading.saturating_sub(1);
        let Some(client) = self.clients.get_mut(&region) else { return };
        client.reading = false;
        let Some(entry) = Entry::decode(bytes).filter(|entry| entry.client == client.id) else { return };
        if entry.number < client.next {
            return;
        }
        let is_next = entry.number == client.next;
        // One that is missing was answered: the client has used its place again.
        client.next += 1;
        if is_next {
            self.execute(Address::region(region), &entry, store);
        }
        self.read_next(region, fabric);
    }

    /// A READ of the own memory did not succeed.
    pub(crate) fn on_unread(&mut self, part: Part, region: u32) {
        self.reading = self.reading.saturating_sub(1);
        if part == Part::Request
            && let Some(client) = self.clients.get_mut(&region)
        {
            client.reading = false;
        }
    }

    pub(crate) fn on_applied(&mut self, bytes: &[u8]) {
        self.reading = self.reading.saturating_sub(1);
        let Ok(word) = bytes.try_into().map(u64::from_le_bytes) else { return };
        if let Some(backup) = &mut self.backup
            && word < backup.next
        {
            backup.applied = word.max(backup.applied);
        }
    }

    /// Executes a request, before it is replicated. (uKharon, section 7.3: speculatively.)
    fn execute(&mut self, to: Address, entry: &Entry<'_>, store: &mut Store) {
        let (client, request) = (entry.client, entry.number);
        let answer =
            |status, value: &[u8]| Held { to, bytes: Answer { client, request, status, value }.encode() };
        match entry.kind {
            Kind::Get => {
                let (held, written) = match store.get(entry.key) {
                    Some(cell) => (answer(Status::Done, &cell.value), cell.written),
                    None => (answer(Status::Missing, &[]), 0),
                };
                let speculative = written > self.durable && !self.planted.has(Flaw::ShowSpeculative);
                self.hold(if speculative { written } else { 0 }, held);
            }
            // It is answered when everything that was executed until now is durable, so is this.
            Kind::Put if store.has_seen(client, request) => self.hold(self.number, answer(Status::Done, &[])),
            Kind::Put => {
                if !store.put(entry.key, entry.value, self.number + 1) {
                    return self.hold(0, answer(Status::Full, &[]));
                }
                self.number += 1;
                store.see(client, request);
                self.push(&Entry { number: 0, request, ..entry.clone() });
                if self.backup.is_none() {
                    self.durable = self.number;
                }
                self.hold(self.number, answer(Status::Done, &[]));
            }
            // What no client writes.
            Kind::Copy | Kind::Seen | Kind::Synced => {}
        }
    }

    /// Holds an answer back until this PUT is durable.
    fn hold(&mut self, put: u64, held: Held) {
        if put <= self.durable || self.planted.has(Flaw::AnswerFirst) {
            self.ready.push(held);
        } else {
            self.waiting.entry(put).or_default().push(held);
        }
    }

    /// Appends a record to the log of the backup.
    fn push(&mut self, entry: &Entry<'_>) {
        let put = self.number;
        let Some(backup) = &mut self.backup else { return };
        let number = backup.next;
        backup.next += 1;
        let mut bytes = Vec::new();
        Entry { number, ..entry.clone() }.encode(&mut bytes);
        backup.records.push_back(Record { number, put, bytes });
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
        while let Some(record) = backup.records.get(backup.posted) {
            if record.number > backup.applied + RING {
                return;
            }
            let to = Remote { at: backup.at, offset: area.record(record.number) };
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
        }
    }

    /// Whether this server is the primary of a view that is active now.
    fn may_serve<F: Fabric>(&mut self, view: ViewId, fabric: &F) -> bool {
        let is_active = fabric.is_active(view);
        self.is_early &= !is_active;
        is_active || self.is_early || self.planted.has(Flaw::NoSecondCheck)
    }

    /// Gives the answers that may be given: all of a round after one look at the lease. Tells how many.
    pub(crate) fn settle<F: Fabric>(&mut self, view: ViewId, fabric: &mut F) -> u64 {
        while let Some(entry) = self.waiting.first_entry().filter(|entry| *entry.key() <= self.durable) {
            self.ready.extend(entry.remove());
        }
        if self.reading > 0 || self.ready.is_empty() {
            return 0;
        }
        // What a GET has read, and that a PUT is replicated, was so before this look: if the view is active now, no later
        // primary has served anybody before that. (uKharon, Algorithm 2.)
        if !self.may_serve(view, fabric) {
            return 0;
        }
        for held in &self.ready {
            fabric.send(held.to, &held.bytes);
        }
        let given = self.ready.len() as u64;
        self.ready.clear();
        given
    }
}
