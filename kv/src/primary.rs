//! The primary: executes requests as they arrive, replicates PUTs, and holds answers back until
//! they may be sent.
//!
//! The records of the log are numbered, and a backup applies them in order. A backup that joined
//! later receives the current keys as records in between: whatever it has of a key, the newest
//! record of that key comes last.

use crate::answer::{Answer, Status};
use crate::area::{Area, BACKUPS_MAX, Block, CLIENT_HEAD_WORDS, Served, WINDOW};
use crate::backup::{Backup, Origin};
use crate::completeness::Position;
use crate::entry::{ENTRY_BYTES, Entry, Kind, first_record};
use crate::follow::Report;
use crate::limits::AHEAD_MAX;
use crate::mutants::{ActiveMutant, Mutant};
use crate::store::Store;
use crate::tokens::{Part, WAKEUP, token};
use core::sync::atomic::Ordering;
use obol_fabric::sealed;
use obol_fabric::{Address, Fabric, Incarnation, Instant, Remote, ViewId};
use std::collections::VecDeque;

/// Requests executed before their answers are sent. Fewer let client and primary work in parallel,
/// more let one lease check cover more answers; uKharon's batches have six.
const BATCH: usize = 6;
/// Answer buffers kept for reuse.
const SPARE_MAX: usize = 64;

/// An answer that is not sent yet.
struct Held {
    to: Remote,
    bytes: Vec<u8>,
}

/// The primary's state of a client.
struct Conversation {
    /// The client's address, to which answers go.
    at: Address,
    /// The block of its requests.
    block: Block,
    /// Random id of the client; zero until it has opened a session.
    id: u64,
    session: u64,
    /// The next request to execute.
    next: u64,
    /// It sleeps while it waits.
    wakes: bool,
}

/// The primary's state.
pub(crate) struct Primary {
    area: Area,
    mutant: ActiveMutant,
    /// With the bug [`Mutant::ServeEarly`]: it took over, and its view has not been active yet.
    is_early: bool,
    /// The last lease check found the view active.
    was_active: bool,
    /// PUTs executed.
    number: u64,
    /// All PUTs up to this one are durable.
    durable: u64,
    own: Incarnation,
    /// The state that it took over.
    origin: Origin,
    /// It has installed a view: backups that join from now on have no state.
    is_settled: bool,
    /// Oldest first, which is the order of takeover: none is ever ahead of one before it.
    backups: Vec<Backup>,
    /// Answers, each with the PUT that it waits for, by PUT.
    waiting: VecDeque<(u64, Held)>,
    ready: Vec<Held>,
    spare: Vec<Vec<u8>>,
    clients: Vec<Conversation>,
    /// The client to poll first.
    turn: usize,
    /// The request that is being executed.
    request: Vec<u8>,
}

impl Primary {
    /// A primary that continues from another's PUTs, or starts empty.
    pub(crate) fn new(area: Area, mutant: ActiveMutant, own: Incarnation, origin: Origin) -> Self {
        let number = origin.position.map_or(0, |position| position.number);
        Self {
            area,
            mutant,
            is_early: mutant.has(Mutant::ServeEarly) && number > 0,
            was_active: false,
            number,
            durable: number,
            own,
            origin,
            is_settled: false,
            backups: Vec::new(),
            waiting: VecDeque::new(),
            ready: Vec::new(),
            spare: Vec::new(),
            clients: Vec::new(),
            turn: 0,
            request: Vec::new(),
        }
    }

    /// Whether there are backups, and all of them have everything.
    pub(crate) fn is_redundant(&self) -> bool {
        !self.backups.is_empty() && self.backups.iter().all(Backup::is_redundant)
    }

    /// Whether there are backups, and all of them have what existed when they joined.
    pub(crate) fn has_synced_backups(&self) -> bool {
        !self.backups.is_empty() && self.backups.iter().all(Backup::is_complete)
    }

    pub(crate) const fn position(&self) -> Position {
        Position { of: self.own, number: self.number }
    }

    /// The backups that may have a complete state.
    pub(crate) fn others(&self) -> Vec<Incarnation> {
        self.backups.iter().filter(|backup| backup.counts()).map(|backup| backup.who).collect()
    }

    /// Installs a view in which this server is the primary. PUTs that only wait for a removed
    /// backup are answered as soon as this view is active.
    pub(crate) fn install(
        &mut self,
        backups: &[(Incarnation, Address)],
        clients: &[Served],
        store: &mut Store,
    ) {
        self.was_active = false;
        // A client that moves to another block starts a new session there.
        let is_of = |known: &Conversation, one: &Served| (known.at, known.block) == (one.at, one.block);
        self.clients.retain(|known| clients.iter().any(|one| is_of(known, one)));
        for one in clients {
            if !self.clients.iter().any(|known| is_of(known, one)) {
                let Served { at, block, .. } = *one;
                self.clients.push(Conversation { at, block, id: 0, session: 0, next: 1, wakes: false });
            }
        }
        self.backups.retain(|known| backups.iter().any(|(who, _)| *who == known.who));
        let is_first = !std::mem::replace(&mut self.is_settled, true);
        let surely = self.number - self.origin.tail.len().min(self.number);
        for &(who, at) in backups {
            if !self.backups.iter().any(|known| known.who == who) {
                let next = first_record(who, self.own, self.mutant);
                self.backups.push(Backup::new(who, at, next, is_first, surely));
            }
        }
        if is_first && !self.backups.is_empty() {
            // The newest PUTs may be here only: they are returned when the others have them, too.
            for (put, of) in (surely + 1..).zip(self.origin.tail.newest(u64::MAX)) {
                store.mark(of.key, put);
            }
        }
        self.advance();
    }

    /// Recomputes which PUTs are durable.
    fn advance(&mut self) {
        let has = self.backups.iter().filter(|backup| backup.counts()).map(Backup::has);
        let least = if self.mutant.has(Mutant::OneCopyIsEnough) { has.max() } else { has.min() };
        self.durable = least.unwrap_or(self.number);
        assert!(self.durable <= self.number, "only what was executed is durable");
    }

    /// Polls the backups' reports.
    fn poll_reports<F: Fabric>(&mut self, store: &Store, fabric: &F) {
        if !self.backups.iter().any(Backup::is_full) {
            return;
        }
        for place in 1..=BACKUPS_MAX {
            let Some(report) = Report::read(self.area.report(place), self.own, fabric) else { continue };
            if let Some(backup) = self.backups.iter_mut().find(|backup| backup.who == report.who) {
                backup.on_report(&report, self.number, &self.origin, store, self.mutant);
            }
        }
        if self.backups.iter().all(Backup::is_begun) {
            // Backups that join later receive the current keys.
            self.origin.tail.clear();
        }
        self.advance();
    }

    /// Executes requests in own memory, at most [`BATCH`], and continues replication. Returns
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
            self.poll_reports(store, fabric);
            self.copy(store);
            self.replicate(now, fabric);
        }
        let mut executed = 0;
        let count = self.clients.len();
        for n in 0..count {
            let at = (self.turn + n) % count;
            self.poll_head(at, fabric);
            while executed < BATCH && self.has_request(at, fabric) {
                if executed == 0 && !self.may_begin(view, fabric) {
                    return false;
                }
                if self.number - self.durable >= AHEAD_MAX as u64 || !self.take_request(at, store, fabric) {
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

    /// Checks whether a client has opened a new session.
    fn poll_head<F: Fabric>(&mut self, at: usize, fabric: &F) {
        let Some(client) = self.clients.get_mut(at) else { return };
        let head = self.area.head(client.block);
        let Some(head) = fabric.own(head, 8 * (CLIENT_HEAD_WORDS + 1)) else { return };
        let is_known = [(0, client.id), (2, client.session)]
            .iter()
            .all(|(n, known)| head.get(*n).is_some_and(|word| word.load(Ordering::Relaxed) == *known));
        if is_known {
            return;
        }
        if let Some([id, first, session, wakes]) = sealed::unseal_own::<CLIENT_HEAD_WORDS>(Some(head))
            && id != 0
        {
            (client.id, client.session, client.next, client.wakes) = (id, session, first, wakes != 0);
        }
    }

    /// Whether there may be a new request of a client.
    fn has_request<F: Fabric>(&self, at: usize, fabric: &F) -> bool {
        let Some(client) = self.clients.get(at).filter(|client| client.id != 0) else { return false };
        let place = fabric.own(self.area.request(client.block, client.next), 8);
        let number = place.and_then(<[_]>::first).map_or(0, |word| word.load(Ordering::Relaxed));
        number >= client.next
    }

    /// Executes the next request of a client, or skips one that needs no answer any more. `false`
    /// if it is torn or invalid.
    fn take_request<F: Fabric>(&mut self, at: usize, store: &mut Store, fabric: &F) -> bool {
        let Some(client) = self.clients.get_mut(at) else { return false };
        let place = self.area.request(client.block, client.next);
        let Some(words) = fabric.own(place, ENTRY_BYTES) else { return false };
        let Some(number) = words.first().map(|word| word.load(Ordering::Relaxed)) else { return false };
        let mut bytes = std::mem::take(&mut self.request);
        let entry = Entry::decode(words, number, &mut bytes).filter(|entry| entry.client == client.id);
        let is_taken = if let Some(entry) = entry.filter(|_| number >= client.next) {
            let to = client.at;
            // A client reuses a place when everything before it has an answer.
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

    /// Executes a request before it is replicated. (uKharon, section 7.3: speculatively.)
    fn execute(&mut self, to: Address, entry: &Entry<'_>, store: &mut Store) {
        match entry.kind {
            Kind::Get => {
                let (status, value, written) = match store.get(entry.key) {
                    Some(cell) => (Status::Done, &cell.value[..], cell.written),
                    None => (Status::Missing, &[][..], 0),
                };
                let speculative = written > self.durable && !self.mutant.has(Mutant::ShowSpeculative);
                self.hold(if speculative { self.number } else { 0 }, to, entry, status, value);
            }
            // It is answered when all that was executed so far is durable, so this value is, too.
            Kind::Put if store.is_executed(entry.client, entry.number) => {
                self.hold(self.number, to, entry, Status::Done, &[]);
            }
            Kind::Put => {
                if !store.put(entry.key, entry.value, self.number + 1) {
                    return self.hold(0, to, entry, Status::Full, &[]);
                }
                self.number += 1;
                store.record_put(entry.client, entry.number);
                self.push(entry);
                self.advance();
                self.hold(self.number, to, entry, Status::Done, &[]);
            }
            // Not a client's request.
            Kind::Copy | Kind::ClientSeq | Kind::Synced | Kind::Reset | Kind::Resume => {}
        }
    }

    /// Holds the answer to a request back until this PUT is durable.
    fn hold(&mut self, put: u64, to: Address, request: &Entry<'_>, status: Status, value: &[u8]) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        Answer { client: request.client, request: request.number, status, value }.encode(&mut bytes);
        let held = Held { to: Remote { at: to, offset: self.area.answer(request.number) }, bytes };
        if put <= self.durable || self.mutant.has(Mutant::AnswerFirst) {
            self.ready.push(held);
        } else {
            assert_eq!(put, self.number, "an answer waits for the newest PUT");
            assert!(self.waiting.back().is_none_or(|(last, _)| *last <= put), "so they wait in order");
            self.waiting.push_back((put, held));
        }
    }

    /// Appends a PUT to the logs of the backups. A backup without a log that may keep its state
    /// gets it from the tail; any other gets the keys later.
    fn push(&mut self, entry: &Entry<'_>) {
        let put = self.number;
        assert!(put > self.durable, "a PUT is durable after it is replicated");
        let mut is_missing = false;
        for backup in &mut self.backups {
            if backup.is_begun() {
                backup.push_into(put, entry, self.spare.pop().unwrap_or_default());
            } else {
                is_missing |= backup.counts();
            }
        }
        if is_missing || self.origin.tail.len() > 0 {
            self.origin.tail.push(entry.key, entry.client, entry.request, entry.value);
            if let Some(position) = &mut self.origin.position {
                position.number = put;
            }
        }
    }

    /// Continues the copy for the oldest backup that is not complete.
    fn copy(&mut self, store: &Store) {
        if let Some(backup) = self.backups.iter_mut().find(|backup| !backup.is_complete()) {
            backup.copy(self.number, store);
        }
    }

    /// Writes as many records to the backups as their rings have room for.
    fn replicate<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let mut limit = u64::MAX;
        for backup in &mut self.backups {
            backup.replicate(now, limit, self.area, fabric);
            if backup.counts() {
                limit = limit.min(backup.has());
            }
        }
    }

    /// A WRITE to a backup completed.
    pub(crate) fn on_written<F: Fabric>(&mut self, now: Instant, who: u32, well: bool, fabric: &mut F) {
        let Some(backup) = self.backups.iter_mut().find(|backup| backup.who.0 as u32 == who) else { return };
        self.spare.extend(backup.on_written(now, well));
        self.advance();
        if self.backups.len() > 1 {
            // Records that waited for it go to the next backup.
            self.replicate(now, fabric);
        }
    }

    /// Whether a backup needs records, or has to report.
    pub(crate) fn is_behind(&self) -> bool {
        self.backups.iter().any(Backup::is_behind)
    }

    /// Whether an answer waits for the backup.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether this server is the primary of a view that is active now.
    fn may_serve<F: Fabric>(&mut self, view: ViewId, fabric: &F) -> bool {
        self.was_active = fabric.is_active(view);
        self.is_early &= !self.was_active;
        self.was_active || self.is_early || self.mutant.has(Mutant::NoSecondCheck)
    }

    /// Whether to execute requests at all, as far as is known. The lease check after the round
    /// decides; the previous round's result serves here, so after the loss of the lease one round
    /// is wasted.
    fn may_begin<F: Fabric>(&mut self, view: ViewId, fabric: &F) -> bool {
        self.was_active || self.may_serve(view, fabric)
    }

    /// Sends the answers that may be sent: all of a round after one lease check. Returns how many.
    pub(crate) fn send_answers<F: Fabric>(&mut self, view: ViewId, fabric: &mut F) -> u64 {
        let durable = self.durable;
        let count = self.waiting.iter().take_while(|(put, _)| *put <= durable).count();
        self.ready.extend(self.waiting.drain(..count).map(|(_, held)| held));
        // All that a GET has read, and all replication, precedes this check: if the view is active
        // now, no later primary has served before. (uKharon, Algorithm 2.)
        if self.ready.is_empty() || !self.may_serve(view, fabric) {
            return 0;
        }
        let given = self.ready.len() as u64;
        for held in self.ready.drain(..) {
            // If it is lost, the client resends its request.
            fabric.write_unsignaled(held.to, &held.bytes, token(Part::Send, 0));
            self.spare.push(held.bytes);
            let wakes = |client: &&Conversation| client.wakes && client.at == held.to.at;
            if self.clients.iter().any(|client| wakes(&client)) {
                fabric.send(held.to.at.owner(), WAKEUP);
            }
        }
        self.spare.truncate(SPARE_MAX);
        given
    }
}
