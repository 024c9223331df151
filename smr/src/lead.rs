//! The leader: appends requests to the log, sends it to its peers, commits what a majority of the
//! voters has in memory, and answers.

use crate::REPLICAS_MAX;
use crate::area::{Area, Caller};
use crate::clients::{Basis, Clients, Query, Request, Status};
use crate::config::Config;
use crate::departure::Departure;
use crate::direct::committed;
use crate::entry::{ENTRY_BYTES_MAX, Kind};
use crate::feed::{Peer, Source};
use crate::follow::{Header, Report};
use crate::log::{Log, Record};
use crate::message::Message;
use crate::mutants::{ActiveMutant, Mutant};
use crate::position::{Index, Offset, Point, Term};
use crate::preset::{Guard, Look, Reads};
use crate::replicated::Replicated;
use crate::service::Service;
use crate::session::Seen;
use crate::state::Effect;
use crate::takeover::Adopted;
use crate::time::{LogTime, stamp_of};
use crate::tokens::WAKEUP;
use obol_fabric::{Address, Fabric, Incarnation, Instant, LinkError, Nanos};
use std::collections::BTreeSet;

/// Requests that are taken before they are sent to peers.
const BATCH: usize = 16;
/// Interval at which the fabric is asked again whether a voter that is not in the view is dead:
/// a notice may be lost. It doubles.
const WATCH_EVERY: Nanos = Nanos::from_millis(1);
const WATCH_EVERY_MAX: Nanos = Nanos::from_millis(64);

/// A leader's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lead {
    own: (Incarnation, Address),
    source: Source,
    peers: Vec<Peer>,
    /// The replicas of the newest view, by their places in it.
    replicas: Vec<(Incarnation, Address)>,
    /// The newest configuration in the log, committed or not, and its entry.
    config: Config,
    config_index: Index,
    /// Its first entry of its own.
    blank: Option<Index>,
    /// Voters that are not in the view: they are removed when it is proved that their memory is
    /// gone.
    watched: Vec<Address>,
    watch_at: Instant,
    watch_in: Nanos,
    clients: Clients,
    ids: u32,
    buffer: Vec<u8>,
    /// It sends nothing, and answers at once.
    unreplicated: bool,
    /// It is to leave: first it takes itself out of the voters.
    retires: bool,
    reads: Reads,
    /// What the guard has to confirm before a query that is taken now is answered.
    ticket: u64,
    time: LogTime,
    /// The newest time that a command of the log or a query was given, in ms.
    stamped: u64,
    /// The last poll took requests: others may follow, and with them the commit index.
    is_busy: bool,
    mutant: ActiveMutant,
}

/// How a leader begins its term.
#[derive(Clone, Copy)]
pub(crate) struct LeadStart {
    pub(crate) area: Area,
    pub(crate) term: Term,
    /// Whose ring it writes.
    pub(crate) place: u8,
    /// It replicates as DARE does.
    pub(crate) is_direct: bool,
    /// The last number that it has given to an operation.
    pub(crate) ids: u32,
}

impl Lead {
    /// Continues from what a takeover has adopted, in a ring.
    pub(crate) fn begin<S: Service>(
        own: (Incarnation, Address),
        start: LeadStart,
        adopted: Adopted,
        replicated: &mut Replicated<S>,
    ) -> Self {
        let LeadStart { area, term, place, is_direct, ids } = start;
        let mutant = replicated.state.mutant;
        let place = if mutant.has(Mutant::SharedRing) { 0 } else { place };
        replicated.assert_whole();
        assert!(
            !replicated.gap && replicated.log.end().index == replicated.state.applied.index,
            "what is not applied is adopted"
        );
        assert!(adopted.low <= replicated.state.applied.index, "nothing is given up that this state lacks");
        let mut low = replicated
            .log
            .point(adopted.low.max(replicated.log.base().index))
            .unwrap_or(replicated.state.applied);
        for record in adopted.records {
            replicated.log.push(record);
        }
        let mut source = Source::new(area, replicated.state.log, term, place, mutant);
        if is_direct {
            source = source.direct();
            low = shortened(low, area, replicated);
        }
        (source.commit, source.low) = (replicated.state.applied.index, low);
        assert!(low.index <= source.commit && source.commit <= replicated.log.end().index);
        for record in replicated.log.after(low.index) {
            source.encode(record);
        }
        let mut lead = Self {
            own,
            source,
            peers: Vec::new(),
            replicas: Vec::new(),
            config: Config { target: replicated.state.config.target, ..adopted.config },
            config_index: adopted.config_index,
            blank: None,
            watched: Vec::new(),
            watch_at: Instant::ZERO,
            watch_in: WATCH_EVERY,
            clients: Clients::new(area),
            ids,
            buffer: Vec::new(),
            unreplicated: false,
            retires: false,
            reads: Reads::Leased,
            ticket: 0,
            time: LogTime::default(),
            stamped: 0,
            is_busy: false,
            mutant,
        };
        let adopted_times = replicated.log.after(replicated.state.applied.index).filter_map(stamp_of::<S>);
        lead.stamped = adopted_times.max().unwrap_or(0).max(replicated.state.service.time());
        for voter in adopted.memories {
            let Some(header) = voter.header.filter(|header| header.log == replicated.state.log) else {
                continue;
            };
            let gap = header.gap && voter.at != own.1;
            let applied =
                if voter.at == own.1 { replicated.state.applied.index } else { header.applied.index };
            let (from, whole) = Peer::plan(applied, gap, lead.source.low, &replicated.log);
            let ring = voter.ring(area, place);
            let id = lead.id();
            let mut peer = Peer::new(voter.at, id);
            peer.feed(from, whole, ring, &lead.source, &replicated.log);
            lead.peers.push(peer);
        }
        lead
    }

    /// Begins to feed the own log, which has all that the leader has.
    pub(crate) fn feed_itself<S: Service, F: Fabric>(&mut self, replicated: &Replicated<S>, fabric: &mut F) {
        let id = self.id();
        let mut peer = Peer::new(self.own.1, id);
        peer.begin_at(replicated.state.applied, replicated.log.end(), true, &self.source, fabric);
        self.peers.push(peer);
    }

    /// The same without copies: what is answered is lost with this process.
    pub(crate) const fn without_copies(mut self) -> Self {
        self.unreplicated = true;
        self
    }

    /// The same with what its guard needs to answer a query.
    pub(crate) const fn with_reads(mut self, reads: Reads) -> Self {
        self.reads = reads;
        self
    }

    /// The same with what this replica knows of the log's time.
    pub(crate) fn with_time(mut self, now: Instant, time: &mut LogTime) -> Self {
        time.begin(now, self.stamped);
        self.time = *time;
        if self.mutant.has(Mutant::TimeStandsStill) {
            self.time = self.time.frozen(now);
        } else if self.mutant.has(Mutant::StampsOfOneClock) {
            (self.time, self.stamped) = (LogTime::of_own_clock(), 0);
        }
        self
    }

    /// The log's time, in ms: none before one that was given.
    fn time(&mut self, now: Instant) -> u64 {
        self.stamped = self.stamped.max(self.time.ms(now));
        self.stamped
    }

    /// Gives a command or a query its time.
    fn stamp<S: Service>(&mut self, now: Instant, command: &[u8]) -> Box<[u8]> {
        let mut command: Box<[u8]> = command.into();
        let time = self.time(now);
        if !self.mutant.has(Mutant::StampsOfClients) {
            S::stamp(&mut command, time);
        }
        command
    }

    fn id(&mut self) -> u32 {
        self.ids = self.ids.wrapping_add(1);
        self.ids
    }

    /// The newest of the numbers that its WRITEs are known by.
    pub(crate) const fn ids(&self) -> u32 {
        self.ids
    }

    pub(crate) const fn config(&self) -> &Config {
        &self.config
    }

    /// The entry of the newest configuration; 0 for one of before its log.
    pub(crate) const fn config_index(&self) -> Index {
        self.config_index
    }

    pub(crate) const fn commit(&self) -> Index {
        self.source.commit
    }

    pub(crate) const fn term(&self) -> Term {
        self.source.term
    }

    /// How far it is, if something that it has begun is not committed or answered, or it waits for room
    /// in its ring.
    pub(crate) fn pending(&self, log: &Log) -> Option<u64> {
        let is_done = log.end().index <= self.source.commit && self.is_ready() && self.has_room(log);
        (!is_done).then_some(self.source.commit.0 + self.source.low.index.0)
    }

    pub(crate) const fn answered(&self) -> u64 {
        self.clients.answered
    }

    /// It is to leave.
    pub(crate) const fn retire(&mut self) {
        self.retires = true;
    }

    /// What becomes of the store when it leaves now.
    pub(crate) fn departure(&self) -> Departure {
        if self.unreplicated {
            return Departure::Left;
        }
        let hurries = self.mutant.has(Mutant::LeavesAtOnce) && self.config.voter(self.own.1).is_none();
        let others = || self.peers.iter().any(|peer| peer.in_view && peer.at != self.own.1);
        if self.config.voter(self.own.1).is_some() {
            let is_alone = self.config.voters.len() == 1 && !others();
            return if is_alone { Departure::Last } else { Departure::Pending };
        }
        let is_settled = self.config_index <= self.source.commit || hurries;
        if is_settled { Departure::Left } else { Departure::Pending }
    }

    /// Whether its first own entry is committed: from then on it serves.
    pub(crate) fn is_ready(&self) -> bool {
        self.blank.is_some_and(|blank| self.source.commit >= blank)
    }

    /// How many voters have in memory all that is committed, and the newest configuration.
    pub(crate) fn redundancy(&self) -> usize {
        if self.unreplicated {
            return 1;
        }
        let all = self.commit().max(self.config_index);
        let has = |at: Address| self.peers.iter().any(|peer| peer.at == at && peer.counted() >= all);
        self.config.voters.iter().filter(|voter| has(voter.address)).count()
    }

    /// The replicas that count, each with the offset up to which places in its ring have been used
    /// again: for an oracle.
    pub(crate) fn overwritten(&self) -> Vec<(Address, u64)> {
        let counts = self.peers.iter().filter(|peer| peer.is_fed() && peer.whole);
        counts.map(|peer| (peer.at, peer.overwritten(&self.source).0)).collect()
    }

    /// Installs a view in which this replica leads.
    pub(crate) fn install(&mut self, replicas: &[(Incarnation, Address)], clients: &[Caller]) {
        self.clients.install(clients);
        self.replicas = replicas.to_vec();
        let is_in = |at: Address| replicas.iter().any(|(_, address)| *address == at);
        for peer in &mut self.peers {
            peer.in_view = is_in(peer.at);
        }
        let votes = |at: Address| self.config.voter(at).is_some();
        self.peers.retain(|peer| peer.in_view || votes(peer.at));
        (self.watch_at, self.watch_in) = (Instant::ZERO, WATCH_EVERY);
        for &(_, at) in replicas {
            if !self.peers.iter().any(|peer| peer.at == at) {
                let id = self.id();
                let mut peer = Peer::new(at, id);
                peer.in_view = true;
                self.peers.push(peer);
            }
        }
    }

    /// Watches the voters that are not in the view, and asks again from time to time.
    fn watch<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if now < self.watch_at {
            return;
        }
        self.watch_at = now + self.watch_in;
        self.watch_in = self.watch_in.saturating_mul(2).min(WATCH_EVERY_MAX);
        self.end(fabric);
        let is_in = |at: Address| self.replicas.iter().any(|(_, address)| *address == at);
        let voters = self.config.voters.iter().map(|voter| voter.address);
        self.watched = voters.filter(|at| !is_in(*at)).collect();
        for at in &self.watched {
            fabric.watch(*at);
        }
    }

    /// Ends what the fabric does for it.
    pub(crate) fn end<F: Fabric>(&mut self, fabric: &mut F) {
        for at in self.watched.drain(..) {
            fabric.unwatch(at);
        }
    }

    /// Does all that can be done now. Returns whether there may be more.
    pub(crate) fn poll<S: Service, G: Guard, F: Fabric>(
        &mut self,
        now: Instant,
        replicated: &mut Replicated<S>,
        guard: &mut G,
        dead: &BTreeSet<Address>,
        fabric: &mut F,
    ) -> bool {
        if !self.unreplicated {
            self.poll_reports(now, replicated, guard, fabric);
        }
        self.recycle(replicated);
        if self.blank.is_none() && self.has_room(&replicated.log) {
            let term = self.source.term.0;
            self.blank = Some(self.append(Kind::Blank, 0, term, Box::default(), &mut replicated.log));
        }
        self.watch(now, fabric);
        self.adjust(now, dead, &mut replicated.log);
        self.ticket = guard.ticket();
        let taken = self.take_requests(now, replicated, fabric);
        if self.reads == Reads::Confirmed && !self.clients.queries.is_empty() {
            let voters: Vec<Address> = self.config.voters.iter().map(|voter| voter.address).collect();
            guard.confirm(now, &voters, self.source.area, fabric);
        }
        let was_busy = core::mem::replace(&mut self.is_busy, taken > 0);
        self.send(now, &replicated.log, !was_busy && taken == 0, fabric);
        self.commit_and_answer(replicated, guard, fabric);
        taken > 0
    }

    /// Whether nothing has to be polled for soon: all is committed and sent, and clients send a
    /// wakeup with their requests.
    pub(crate) fn is_idle(&self, log: &Log) -> bool {
        let end = log.end();
        let is_done = self.is_ready() && self.source.commit == end.index && !self.is_waiting();
        let has_all = |peer: &Peer| peer.is_fed() && peer.has_been_sent(end);
        let is_sent = self.unreplicated || self.peers.iter().all(|peer| !peer.in_view || has_all(peer));
        is_done && is_sent && self.has_room(log) && self.clients.all_wake()
    }

    /// Handles the reports in own memory.
    fn poll_reports<S: Service, G: Guard, F: Fabric>(
        &mut self,
        now: Instant,
        replicated: &Replicated<S>,
        guard: &G,
        fabric: &mut F,
    ) {
        for replica in 0..self.replicas.len().min(REPLICAS_MAX) {
            let (who, at) = self.replicas[replica];
            if at == self.own.1 {
                continue;
            }
            let report = Report::own(self.source.area, replica, self.own.0, fabric);
            let other = self.report_of_neighbour(replica, fabric);
            let id = self.ids.wrapping_add(1);
            let Some(peer) = self.peers.iter_mut().find(|peer| peer.at == at) else { continue };
            if G::DIRECT && peer.is_unfed() && guard.may_feed(at) {
                peer.read_log(now, &self.source, id, fabric);
                self.ids = id;
            }
            let Some(report) = report.filter(|report| report.who == who) else { continue };
            peer.leaves |= report.leaves;
            if peer.is_fed() && report.term == self.source.term {
                peer.on_report(&report, &self.source);
                peer.freed = other.map_or(peer.freed, |other| peer.freed.max(other.freed));
            } else if !G::DIRECT
                && peer.is_unfed()
                && guard.may_feed(at)
                && (report.log == replicated.state.log || report.log == 0)
            {
                let applied = Point { index: report.applied, at: Offset(0) };
                let gap = report.gap || report.log == 0;
                let header = Header { log: report.log, applied, gap, ..Header::default() };
                peer.survey(&header, &self.source, &replicated.log, id, fabric);
                self.ids = id;
            }
        }
    }

    /// The report that the bug takes for that of the replica before.
    fn report_of_neighbour<F: Fabric>(&self, replica: usize, fabric: &F) -> Option<Report> {
        if !self.mutant.has(Mutant::PruneWrongIndex) {
            return None;
        }
        let next = (replica + 1) % self.replicas.len().min(REPLICAS_MAX);
        let report = Report::own(self.source.area, next, self.own.0, fabric)?;
        (report.term == self.source.term && !report.gap).then_some(report)
    }

    /// Gives up places that no peer needs.
    fn recycle<S: Service>(&mut self, replicated: &mut Replicated<S>) {
        // A log that is not adjusted yet may be behind by a few entries, and should not need a snapshot
        // because of them.
        let is_early = |peer: &Peer| peer.in_view && !peer.is_fed() && self.config.voter(peer.at).is_some();
        if self.source.is_direct() && self.has_room(&replicated.log) && self.peers.iter().any(is_early) {
            return;
        }
        let own = self.own.1;
        for peer in self.peers.iter_mut().filter(|peer| peer.at == own) {
            peer.freed = replicated.state.applied;
        }
        if self.mutant.has(Mutant::HeadUncommitted) {
            for peer in self.peers.iter_mut().filter(|peer| peer.is_fed()) {
                peer.freed = replicated.log.point(peer.acked).unwrap_or(peer.freed).max(peer.freed);
            }
        }
        let in_haste = self.mutant.has(Mutant::RecycleByMajority);
        let holds = self.peers.iter().filter(|peer| peer.in_view && peer.is_fed());
        let holds = holds.filter(|peer| !in_haste || !peer.whole);
        let low = holds
            .map(|peer| peer.freed)
            .min()
            .unwrap_or(replicated.state.applied)
            .min(replicated.state.applied);
        if low.index > self.source.low.index {
            self.source.low = low;
            replicated.log.prune(low.index);
            assert!(
                replicated.log.base().index <= replicated.state.applied.index,
                "only what is applied is given up"
            );
        }
    }

    /// Whether the ring has room for any entry.
    fn has_room(&self, log: &Log) -> bool {
        let Source { area, low, .. } = self.source;
        let end = Offset(area.begin(log.end().at).0 + ENTRY_BYTES_MAX as u64);
        area.fits(end, low.at)
    }

    /// Appends an entry.
    fn append(&mut self, kind: Kind, client: u64, number: u64, payload: Box<[u8]>, log: &mut Log) -> Index {
        assert!(self.has_room(log), "an entry takes no place that a peer still needs");
        assert!(payload.len() <= crate::PAYLOAD_BYTES_MAX);
        let Point { index, at } = log.end();
        let (index, at) = (index.next(), self.source.area.begin(at));
        let term = self.source.term;
        let record = Record { index, term, at, kind, client, number, payload };
        if !self.unreplicated {
            self.source.encode(&record);
        }
        log.push(record);
        index
    }

    /// Removes a voter whose memory is gone, or adds a replica that has everything: one at a time.
    fn adjust(&mut self, now: Instant, dead: &BTreeSet<Address>, log: &mut Log) {
        let early = self.mutant.has(Mutant::JoinerCountsEarly);
        let is_settled =
            self.config_index <= self.source.commit || self.mutant.has(Mutant::OneMajorityInTransition);
        if !self.is_ready() || !is_settled || !self.has_room(log) {
            return;
        }
        let own = self.own.1;
        if self.retires && self.config.voter(own).is_none() {
            // A voter that it adds could get its place, while it may still write into its ring.
            return;
        }
        let gone = self.config.voters.iter().find(|voter| dead.contains(&voter.address));
        // Before the leader itself: the replica that it hands over to stays.
        let leaver = || {
            let leaves = |at: Address| self.peers.iter().any(|peer| peer.at == at && peer.leaves);
            let mut leavers = self.config.voters.iter().filter(|voter| leaves(voter.address));
            let without = leavers.find_map(|voter| self.config.without(voter.address))?;
            self.can_commit(&without, true).then_some(without)
        };
        // It hands over to another one, whether or not one more is to vote.
        let is_alone = self.retires && self.config.voters.len() == 1;
        let gone = gone.and_then(|voter| self.config.without(voter.address));
        let next = match gone.or_else(leaver) {
            Some(without) => Some(without),
            None if self.retires && !is_alone => {
                self.config.without(own).filter(|next| self.can_commit(next, false)).map(
                    // Places are assigned in turn, so its own one is assigned last.
                    |next| match self.config.voter(own) {
                        Some(voter) => Config { newest_place: voter.place, ..next },
                        None => next,
                    },
                )
            }
            None if is_alone || (self.config.voters.len() as u32) < self.config.target => {
                let may_vote = |peer: &&mut Peer| {
                    let is_whole = peer.is_fed() && peer.whole && peer.acked >= self.source.commit;
                    let may_stay = peer.in_view && !peer.leaves;
                    may_stay && (is_whole || early) && self.config.voter(peer.at).is_none()
                };
                self.peers.iter_mut().find(may_vote).and_then(|peer| {
                    peer.whole |= early;
                    self.config.with(peer.at)
                })
            }
            None => None,
        };
        let Some(next) = next else { return };
        let mut bytes = Vec::new();
        next.encode(&mut bytes);
        let time = if self.mutant.has(Mutant::ConfigsWithoutTime) { 0 } else { self.time(now) };
        assert!(
            next.follows(&self.config) && next.intersects(&self.config),
            "majorities of neighbouring configurations intersect"
        );
        self.config_index = self.append(Kind::Config, 0, time, bytes.into(), log);
        assert!(self.config_index > self.source.commit, "a new configuration is not committed yet");
        self.config = next;
    }

    /// Whether a majority of a configuration runs and has all that is committed. `with_leavers`: those that
    /// are to leave count, because they stay until they do not vote.
    fn can_commit(&self, config: &Config, with_leavers: bool) -> bool {
        let has_all = |at: Address| {
            let peer = self.peers.iter().find(|peer| peer.at == at);
            let is_there = |peer: &Peer| peer.in_view && (with_leavers || !peer.leaves);
            peer.is_some_and(|peer| is_there(peer) && peer.counted() >= self.source.commit)
        };
        config.voters.iter().filter(|voter| has_all(voter.address)).count() >= config.majority()
    }

    /// Whether the state has all that was committed under earlier leaders.
    fn has_applied<S>(&self, replicated: &Replicated<S>) -> bool {
        self.blank.is_some_and(|blank| replicated.state.applied.index >= blank)
    }

    /// Takes requests of clients. Returns how many.
    fn take_requests<S: Service, F: Fabric>(
        &mut self,
        now: Instant,
        replicated: &mut Replicated<S>,
        fabric: &F,
    ) -> usize {
        let mut taken = 0;
        if self.blank.is_none() {
            return taken;
        }
        let mut buffer = core::mem::take(&mut self.buffer);
        for _ in 0..self.clients.len() {
            let at = self.clients.turn();
            while taken < BATCH && self.has_room(&replicated.log) {
                let Some((request, message)) = self.clients.take(at, &mut buffer, fabric) else { break };
                taken += 1;
                self.on_request(now, at, request, &message, replicated);
            }
        }
        self.buffer = buffer;
        taken
    }

    fn on_request<S: Service>(
        &mut self,
        now: Instant,
        at: usize,
        request: Request,
        message: &Message<'_>,
        replicated: &mut Replicated<S>,
    ) {
        let &Message { number, client, payload, .. } = message;
        let kind = match request {
            Request::Query => {
                let query = self.stamp::<S>(now, payload);
                if self.is_logged() {
                    self.append(Kind::Read, client, number, query.clone(), &mut replicated.log);
                }
                // After all that the client has sent before.
                let is_early = self.mutant.has(Mutant::ReadBeforeBlank);
                let after = if is_early { Index(0) } else { replicated.log.end().index };
                self.clients.queries.push_back(Query { after, ticket: self.ticket, client, number, query });
                return;
            }
            Request::Open => Kind::Open,
            Request::Propose => Kind::Command,
            Request::Resize => Kind::Resize,
        };
        match replicated.state.sessions.seen(client, number) {
            Seen::Done(reply) if !self.mutant.has(Mutant::SessionsForgotten) => {
                // It was committed, perhaps by an earlier leader.
                let basis = self.basis();
                self.clients.answer(basis, client, number, Status::Done, reply);
            }
            Seen::Old => {}
            // Before the blank entry is applied, the session may be in an adopted entry that is not.
            Seen::NoSession
                if kind != Kind::Open && self.reads == Reads::Leased && self.has_applied(replicated) =>
            {
                self.clients.answer(Basis::State, client, number, Status::NoSession, &[]);
            }
            Seen::NoSession | Seen::New | Seen::Done(_) => {
                if !self.clients.append(at, number) {
                    let is_command = kind == Kind::Command;
                    let mut payload = if is_command { self.stamp::<S>(now, payload) } else { payload.into() };
                    if is_command {
                        replicated.state.service.admit(&mut payload);
                    }
                    self.append(kind, client, number, payload, &mut replicated.log);
                }
            }
        }
    }

    /// `announces`: the commit index is sent to peers that have everything.
    fn send<F: Fabric>(&mut self, now: Instant, log: &Log, announces: bool, fabric: &mut F) {
        if self.unreplicated {
            return;
        }
        for peer in &mut self.peers {
            peer.send(now, &self.source, log, announces, fabric);
            if peer.in_view && peer.at != self.own.1 && peer.is_to_free(&self.source) {
                fabric.send(peer.at.owner(), WAKEUP);
            }
        }
    }

    /// The newest entry that a majority of the voters has in memory.
    fn replicated_up_to(&self) -> Index {
        let has = |at: Address| self.peers.iter().find(|peer| peer.at == at).map_or(Index(0), Peer::counted);
        let in_view = |at: Address| self.replicas.iter().any(|(_, address)| *address == at);
        let counts = |at: &Address| !self.mutant.has(Mutant::ViewsAsQuorum) || in_view(*at);
        let voters = self.config.voters.iter().map(|voter| voter.address).filter(counts);
        let mut all: Vec<Index> = voters.map(has).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let majority = all.len() / 2 + 1;
        let replicated = all.get(majority - 1).copied().unwrap_or_default();
        if self.source.is_direct() {
            return committed(replicated, self.blank, self.mutant);
        }
        replicated
    }

    /// Commits, applies, and sends answers, all after one look.
    pub(crate) fn commit_and_answer<S: Service, G: Guard, F: Fabric>(
        &mut self,
        replicated: &mut Replicated<S>,
        guard: &mut G,
        fabric: &mut F,
    ) {
        let end = if self.unreplicated { replicated.log.end().index } else { self.replicated_up_to() };
        let may_read = self.may_read() && !self.clients.queries.is_empty();
        if end <= self.source.commit && !self.clients.has_answers() && !may_read {
            return;
        }
        self.serve_queries(replicated, guard.confirmed());
        // All WRITEs whose completions were taken, and all that the queries have read, precede this
        // look: if no later leader has read the logs by now, it will find the entries there.
        let look = match guard.look(self.clients.has_reads(), fabric) {
            _ if self.mutant.has(Mutant::AnswerWithoutLook) => Look::all(true),
            look => look,
        };
        if !look.commit {
            return;
        }
        self.source.commit = self.source.commit.max(end);
        assert!(self.source.commit <= replicated.log.end().index, "only what was written is committed");
        while replicated.state.applied.index < self.source.commit {
            let Some(record) = replicated.log.get(replicated.state.applied.index.next()) else { break };
            let effect = replicated.state.apply(record);
            self.config.target = replicated.state.config.target;
            let (client, number) = (record.client, record.number);
            match effect {
                Effect::None => {}
                Effect::NoSession => {
                    self.clients.answer(Basis::Log, client, number, Status::NoSession, &[]);
                }
                Effect::Reply => {
                    if let Seen::Done(reply) = replicated.state.sessions.seen(client, number) {
                        self.clients.answer(Basis::Log, client, number, Status::Done, reply);
                    }
                }
            }
        }
        replicated.assert_whole();
        assert!(replicated.state.applied.index <= self.source.commit, "only what is committed is applied");
        if self.reads == Reads::Logged {
            self.serve_queries(replicated, guard.confirmed());
        }
        self.clients.send(look, fabric);
    }

    /// Whether a query needs an entry.
    fn is_logged(&self) -> bool {
        self.reads == Reads::Logged && !self.mutant.has(Mutant::ReadsUnreplicated)
    }

    /// What an answer without a new entry is based on.
    const fn basis(&self) -> Basis {
        if matches!(self.reads, Reads::Logged) { Basis::Log } else { Basis::State }
    }

    /// Whether its state has all that was answered before it led.
    fn may_read(&self) -> bool {
        self.is_ready() || self.mutant.has(Mutant::ReadBeforeBlank)
    }

    /// Answers the queries whose predecessors are applied, and that the guard has confirmed.
    fn serve_queries<S: Service>(&mut self, replicated: &Replicated<S>, confirmed: u64) {
        if !self.may_read() {
            return;
        }
        let may = |query: &Query| query.after <= replicated.state.applied.index && query.ticket <= confirmed;
        while self.clients.queries.front().is_some_and(may) {
            let Some(query) = self.clients.queries.pop_front() else { break };
            let mut reply = Vec::new();
            replicated.state.service.read(&query.query, &mut reply);
            reply.truncate(crate::limits::PAYLOAD_BYTES_MAX);
            let basis = self.basis();
            self.clients.answer(basis, query.client, query.number, Status::Done, &reply);
        }
    }

    /// A WRITE to a peer completed.
    pub(crate) fn on_written(&mut self, now: Instant, id: u32, well: bool, log: &Log) {
        let next = self.id();
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.id == id) {
            peer.on_written(now, well, next, self.source.is_direct(), log);
        }
    }

    /// A peer's ring was READ.
    pub(crate) fn on_surveyed<F: Fabric>(
        &mut self,
        now: Instant,
        id: u32,
        ring: Result<&[u8], LinkError>,
        log: &Log,
        fabric: &mut F,
    ) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.id == id) {
            if self.source.is_direct() {
                peer.adjust(now, ring, &self.source, log, fabric);
            } else {
                peer.on_surveyed(ring, &self.source, log);
            }
        }
    }

    /// Sends what became possible by a completion.
    pub(crate) fn continue_sending<F: Fabric>(&mut self, now: Instant, log: &Log, fabric: &mut F) {
        self.send(now, log, false, fabric);
    }

    /// Whether it waits for something that is not in own memory.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.clients.queries.is_empty() || self.clients.has_answers()
    }
}

/// Where a log of DARE begins that is to fit into a ring: what was taken from the own one may reach
/// back further.
fn shortened<S>(mut low: Point, area: Area, replicated: &Replicated<S>) -> Point {
    let end = replicated.log.end().at;
    for record in replicated.log.after(low.index) {
        if area.fits(end, low.at) || low.index >= replicated.state.applied.index {
            break;
        }
        low = record.end();
    }
    low
}
