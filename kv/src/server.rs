//! A server: its role in the newest view, and takeover.

use crate::area::{Area, BACKUPS_MAX, RINGS};
use crate::backup::Origin;
use crate::completeness::{Copy, Provenance, departure};
use crate::follow::{Follow, Report, State};
use crate::limits::POLLS_PER_TICK;
use crate::members;
use crate::mutants::{ActiveMutant, Mutant};
use crate::primary::Primary;
use crate::shard::Shard;
use crate::tokens::{Part, token};
use obol_fabric::{Address, Completion, Fabric, Incarnation, Instant, LinkError, Nanos, Remote};
use obol_membership::View;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerState {
    /// It is not a member.
    Out,
    /// It has no task yet.
    Spare,
    /// It follows the primary.
    Backup {
        /// It has everything that the primary has answered.
        synced: bool,
    },
    /// It is the primary, but may not serve yet.
    TakingOver,
    /// It serves.
    Primary {
        /// Its backup has everything.
        redundant: bool,
    },
    /// It is the oldest and lacks the complete state: the shard is not served until a server with the
    /// state returns.
    Stopped,
    /// It is stopped, and another server has the state: it has to leave, so that the other becomes
    /// the oldest.
    Yields,
    /// The oldest server has another number of shards: this one cannot serve.
    Misfit {
        /// The oldest server's number of shards.
        shards: u32,
    },
}

/// Interval at which a waiting server that may have the only copy of the state reports so.
const CLAIM_EVERY: Nanos = Nanos::from_millis(20);

/// Longest poll interval of a server with work that no wakeup announces.
const POLL_INTERVAL_MAX: Nanos = Nanos::from_micros(20);

enum Role {
    Out,
    Spare,
    Backup(Follow),
    TakingOver(Follow),
    Primary(Box<Primary>),
    Stopped {
        /// A WRITE to the server that has the state is outstanding.
        yielding: bool,
    },
    Yields,
    Misfit(u32),
}

/// A server of the cache.
pub struct Server {
    area: Area,
    shard: Shard,
    poll_every: Nanos,
    mutant: ActiveMutant,
    view: Arc<View>,
    own: Option<Incarnation>,
    /// How many servers are older, and the incarnation and address of the oldest.
    place: u32,
    primary: Option<(Incarnation, Address)>,
    state: State,
    /// The state of an earlier life.
    carried: Option<Box<Copy>>,
    /// It may start with an empty state.
    may_begin: bool,
    /// Rings of its memory that primaries have written into.
    rings: u32,
    /// When a waiting server reports its state again.
    claim_at: Instant,
    role: Role,
    poll_at: Instant,
    answered: u64,
}

impl Server {
    /// A server of a shard with this poll interval. The name of its member has to contain the
    /// shard.
    pub fn new(area: Area, shard: Shard, poll_every: Nanos, view: Arc<View>) -> Self {
        Self {
            area: area.of_shard(shard),
            shard,
            poll_every,
            mutant: ActiveMutant::default(),
            view,
            own: None,
            place: 0,
            primary: None,
            state: State::default(),
            carried: None,
            may_begin: false,
            rings: 0,
            claim_at: Instant::ZERO,
            role: Role::Out,
            poll_at: Instant::ZERO,
            answered: 0,
        }
    }

    /// The same, but starts with an empty state if it is the first. Any other server that is the
    /// oldest without a complete state waits for one that has it: lost keys must not look as if they
    /// had never existed.
    #[must_use]
    pub fn beginning(self) -> Self {
        Self { may_begin: true, ..self }
    }

    /// The same with the state of a server that was excluded, which it serves if no other can have
    /// a newer one.
    #[must_use]
    pub fn carrying(self, copy: Option<Box<Copy>>) -> Self {
        Self { carried: copy, ..self }
    }

    /// The complete state that this server had when it was excluded, if any.
    pub const fn take_copy(&mut self) -> Option<Box<Copy>> {
        self.carried.take()
    }

    /// The same with a bug.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_mutant(self, mutant: Mutant) -> Self {
        Self { mutant: ActiveMutant::new(mutant), ..self }
    }

    pub fn state(&self) -> ServerState {
        match &self.role {
            Role::Out => ServerState::Out,
            Role::Spare => ServerState::Spare,
            Role::Backup(_) => ServerState::Backup { synced: self.state.is_certainly_complete() },
            Role::TakingOver(_) => ServerState::TakingOver,
            Role::Primary(primary) => ServerState::Primary { redundant: primary.is_redundant() },
            Role::Stopped { .. } => ServerState::Stopped,
            Role::Yields => ServerState::Yields,
            Role::Misfit(shards) => ServerState::Misfit { shards: *shards },
        }
    }

    /// Its incarnation in the newest view; `None` if it is not a member.
    pub const fn incarnation(&self) -> Option<Incarnation> {
        self.own
    }

    /// Whether it is a primary whose backups have what existed when they joined. Later PUTs may be
    /// outstanding.
    pub fn has_synced_backups(&self) -> bool {
        matches!(&self.role, Role::Primary(primary) if primary.has_synced_backups())
    }

    pub(crate) const fn shard(&self) -> Shard {
        self.shard
    }

    /// Requests answered so far.
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// When [`Server::tick`] is due next.
    pub(crate) const fn deadline(&self) -> Instant {
        self.poll_at
    }

    /// Installs the newest view with this server's incarnation in it.
    pub(crate) fn install<F: Fabric>(&mut self, view: &Arc<View>, own: Option<Incarnation>, fabric: &F) {
        let servers: Vec<(Incarnation, Address)> =
            members::servers(view, self.shard).map(|member| (member.incarnation, member.address)).collect();
        let place = servers.iter().position(|(who, _)| Some(*who) == own);
        if place.is_none() || self.own != own {
            // A member that was removed rejoins as another; its state may be of use then.
            self.set_aside(fabric);
            self.state.replace(State::default());
            (self.role, self.rings) = (Role::Out, 0);
        }
        let before = std::mem::replace(&mut self.view, Arc::clone(view));
        self.own = own.filter(|_| place.is_some());
        self.primary = servers.first().copied();
        self.poll_at = Instant::ZERO;
        let Some((place, own)) = place.zip(own) else { return };
        self.place = u32::try_from(place).unwrap_or(u32::MAX);
        // Once in its life: later it may be the oldest because all others are gone.
        let may_begin = std::mem::take(&mut self.may_begin);
        if matches!(self.role, Role::Out) {
            self.bring_back(view, own);
        }
        let shards = members::shards(view).unwrap_or(self.shard.count());
        let role = std::mem::replace(&mut self.role, Role::Out);
        self.role = match (self.place, role) {
            // In every later view, too: a server that was refused once never has a state.
            (_, Role::Misfit(shards)) => Role::Misfit(shards),
            _ if shards != self.shard.count() => Role::Misfit(shards),
            (_, role @ (Role::Yields | Role::Stopped { .. })) => role,
            (0, Role::Out) => self.take_first(may_begin),
            (0, Role::Spare) => {
                self.on_yield(&before, fabric);
                self.take_over()
            }
            (0, Role::Backup(_)) if self.mutant.has(Mutant::LogNotDrained) => self.take_over(),
            (0, Role::Backup(follow)) => {
                self.on_yield(&before, fabric);
                Role::TakingOver(follow)
            }
            (1..=BACKUPS_MAX, Role::Out | Role::Spare) => Role::Backup(self.follow()),
            (_, Role::Out) => Role::Spare,
            (_, mut role) => {
                if let Role::Backup(follow) = &mut role {
                    follow.reset_report();
                }
                role
            }
        };
        self.configure_primary();
    }

    /// Keeps its state at exclusion, if that is complete.
    fn set_aside<F: Fabric>(&mut self, fabric: &F) {
        let Some(own) = self.own else { return };
        let next_incarnation = self.view.next_incarnation;
        let (position, others) = match &mut self.role {
            Role::Primary(primary) => (Some(primary.position()), primary.others()),
            Role::Backup(follow) | Role::TakingOver(follow) => {
                while follow.apply(self.area, &mut self.state, fabric) {}
                let all = members::servers(&self.view, self.shard).take(1 + BACKUPS_MAX as usize);
                let others = all.map(|member| member.incarnation).filter(|other| *other != own);
                (self.state.position, others.collect())
            }
            _ => (self.state.position, Vec::new()),
        };
        let State { store, tail, carried, .. } = std::mem::take(&mut self.state);
        let Some(position) = position else { return self.state.store.discard(store) };
        // A carried state not known to be the newest keeps its provenance.
        let provenance = carried.unwrap_or(Provenance { own, others, next_incarnation });
        self.carried = Some(Box::new(Copy { store, position, tail, provenance }));
    }

    /// Restores the state of an earlier life, unless another server may have a newer one.
    fn bring_back(&mut self, view: &View, own: Incarnation) {
        let Some(copy) = self.carried.take() else { return };
        let is_stale = self.mutant.has(Mutant::StaleCopy);
        let is_of_use = is_stale || copy.provenance.may_be_newest(view, own);
        let Copy { store, position, tail, provenance } = *copy;
        if is_of_use {
            let carried = Some(provenance).filter(|_| !is_stale);
            self.state.replace(State { store, position: Some(position), tail, carried });
        } else {
            self.state.store.discard(store);
        }
    }

    /// The role of the oldest server when it joins.
    fn take_first(&mut self, may_begin: bool) -> Role {
        // No older server could have a newer state.
        self.state.carried = None;
        if may_begin && self.state.position.is_none() { self.serve() } else { self.take_over() }
    }

    /// Handles the yield of an older server, which had no state. No other can have served after it:
    /// of those that were older than this server in its view before, it departed last.
    fn on_yield<F: Fabric>(&mut self, before: &View, fabric: &F) {
        let Some(own) = self.own else { return };
        let Some(said) = Report::read(self.area.yielded(), own, fabric).filter(|said| said.yields) else {
            return;
        };
        let departed = |who| departure(&self.view, who);
        let older = members::servers(before, self.shard).map(|member| member.incarnation);
        let yielded = departed(said.who);
        if older.take_while(|who| *who != own).all(|who| departed(who).is_some_and(|at| Some(at) <= yielded))
        {
            self.state.carried = None;
        }
    }

    /// Begins a log with the primary.
    fn follow(&mut self) -> Follow {
        let (own, (primary, _)) = (self.own.unwrap_or_default(), self.primary.unwrap_or_default());
        let ring = self.rings;
        self.rings += 1;
        Follow::of(own, primary, ring, self.mutant)
    }

    /// Configures the primary with its backups and clients.
    fn configure_primary(&mut self) {
        let Role::Primary(primary) = &mut self.role else { return };
        let others = members::servers(&self.view, self.shard).skip(1).take(BACKUPS_MAX as usize);
        let backups: Vec<(Incarnation, Address)> =
            others.map(|member| (member.incarnation, member.address)).collect();
        primary.install(&backups, &self.area.clients(&self.view), &mut self.state.store);
    }

    /// The role of the oldest server when its log, if any, is applied.
    fn take_over(&mut self) -> Role {
        if self.state.is_usable(self.mutant) { self.serve() } else { Role::Stopped { yielding: false } }
    }

    fn serve(&mut self) -> Role {
        let origin = Origin { position: self.state.position, tail: std::mem::take(&mut self.state.tail) };
        let own = self.own.unwrap_or_default();
        Role::Primary(Box::new(Primary::new(self.area, self.mutant, own, origin)))
    }

    /// Polls own memory: once, or [`POLLS_PER_TICK`] times if it is busy polling.
    pub(crate) fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.poll_at = now + self.poll_every;
        let view = self.view.id;
        match &mut self.role {
            Role::Primary(primary) => {
                let polls = if self.poll_every == Nanos::ZERO { POLLS_PER_TICK } else { 1 };
                for _ in 0..polls {
                    if primary.poll(now, view, &mut self.state.store, fabric) {
                        self.answered += primary.send_answers(view, fabric);
                        // There may be more.
                        self.poll_at = now;
                    } else {
                        core::hint::spin_loop();
                    }
                    if primary.is_waiting() {
                        break;
                    }
                }
                if primary.is_behind() {
                    self.poll_at = self.poll_at.min(now + POLL_INTERVAL_MAX);
                }
            }
            Role::Backup(follow) => {
                if follow.apply(self.area, &mut self.state, fabric) {
                    self.poll_at = now;
                }
                if let (Some((primary, at)), Some(own)) = (self.primary, self.own) {
                    if follow.primary == primary {
                        let slot = self.area.report(self.place);
                        follow.report(now, own, &self.state, at, slot, fabric);
                        self.poll_at = self.poll_at.min(follow.report_at());
                    } else {
                        // Another server is the primary: first drain what the previous one has
                        // answered.
                        self.poll_at = self.poll_at.min(now + POLL_INTERVAL_MAX);
                        drain(follow, fabric.is_active(view), self.area, fabric);
                    }
                }
            }
            Role::TakingOver(follow) => {
                self.poll_at = self.poll_at.min(now + POLL_INTERVAL_MAX);
                // Once this view is active, no earlier one is: a previous primary can no longer
                // answer for a record that is not in the log by now.
                let may_drain = fabric.is_active(view) || self.mutant.has(Mutant::ServeEarly);
                drain(follow, may_drain, self.area, fabric);
            }
            // The primary has two backups already; but if it is stopped, it has to know who has the
            // state.
            Role::Spare if self.state.position.is_some() && now >= self.claim_at => {
                self.claim_at = now + CLAIM_EVERY;
                if let Some(((primary, at), own)) = self.primary.zip(self.own) {
                    let mut claim = Follow::of(own, primary, 0, self.mutant);
                    claim.report(now, own, &self.state, at, self.area.report(self.place), fabric);
                }
            }
            Role::Stopped { yielding } if !*yielding => {
                if let Some(own) = self.own {
                    *yielding = yield_to_whole(own, &self.view, self.shard, self.area, fabric);
                }
            }
            _ => {}
        }
        if self.state.store.tidy() {
            self.poll_at = now;
        }
        self.send_answers(fabric);
    }

    /// A wakeup: there are requests.
    pub(crate) fn on_wakeup(&mut self) {
        self.poll_at = Instant::ZERO;
    }

    fn send_answers<F: Fabric>(&mut self, fabric: &mut F) {
        if let Role::Primary(primary) = &mut self.role {
            self.answered += primary.send_answers(self.view.id, fabric);
        }
    }

    pub(crate) fn on_completion<F: Fabric>(
        &mut self,
        now: Instant,
        part: Part,
        argument: u32,
        result: Result<Completion<'_>, LinkError>,
        fabric: &mut F,
    ) {
        match (&mut self.role, part) {
            (Role::Primary(primary), Part::Record) => {
                primary.on_written(now, argument, result.is_ok(), fabric);
                self.send_answers(fabric);
            }
            (Role::TakingOver(follow), Part::Drain) => {
                follow.draining = false;
                if result.is_ok() {
                    while follow.apply(self.area, &mut self.state, fabric) {}
                    self.role = self.take_over();
                    self.configure_primary();
                }
            }
            (Role::Backup(follow), Part::Drain) => {
                let is_of_before = std::mem::take(&mut follow.draining)
                    && self.primary.is_some_and(|(primary, _)| primary != follow.primary);
                if result.is_ok() && is_of_before {
                    while follow.apply(self.area, &mut self.state, fabric) {}
                    // There is a ring for each primary that a server can have before it is the
                    // oldest.
                    self.role = if self.rings < RINGS { Role::Backup(self.follow()) } else { Role::Yields };
                    self.poll_at = Instant::ZERO;
                }
            }
            (Role::Stopped { yielding }, Part::Yield) => {
                if result.is_ok() {
                    self.role = Role::Yields;
                } else {
                    *yielding = false;
                }
            }
            // Lost messages are sent again.
            _ => {}
        }
    }
}

/// Reads the rest of a log whose primary can no longer answer.
fn drain<F: Fabric>(follow: &mut Follow, may_drain: bool, area: Area, fabric: &mut F) {
    if may_drain && !follow.draining {
        follow.draining = true;
        let from = Remote { at: fabric.address(), offset: follow.place(area) };
        fabric.read(from, 8, token(Part::Drain, 0));
    }
}

/// Notifies a server that reports the complete state that this one, the oldest, has none and has sent
/// no answer. Returns whether there is such a server.
fn yield_to_whole<F: Fabric>(
    own: Incarnation,
    view: &View,
    shard: Shard,
    area: Area,
    fabric: &mut F,
) -> bool {
    let said = (1..=BACKUPS_MAX).filter_map(|place| Report::read(area.report(place), own, fabric));
    let complete = said.into_iter().find_map(|said| {
        let member = members::servers(view, shard).find(|member| member.incarnation == said.who)?;
        said.position.map(|_| (said.who, member.address))
    });
    let Some((who, at)) = complete else { return false };
    let mut bytes = Vec::new();
    let nothing =
        Report { who: own, to: who, ring: 0, applied: Default::default(), position: None, yields: true };
    nothing.encode(&mut bytes);
    fabric.write(Remote { at, offset: area.yielded() }, &bytes, token(Part::Yield, 0));
    true
}
