//! A server: who it is in the newest view, and the backup's part.

use crate::area::{Area, BACKUPS_MAX, RINGS};
use crate::backup::Origin;
use crate::follow::{Follow, Report, State};
use crate::mutants::{ActiveMutant, Mutant};
use crate::primary::Primary;
use crate::whole::{Copy, Provenance};
use crate::{LOOKS, Shard};
use obol_fabric::{Address, Completion, Fabric, Incarnation, Instant, LinkError, Nanos, Remote, Token};
use obol_membership::View;
use std::sync::Arc;

/// The part of a service that posted an operation; with its argument in the low half of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Part {
    /// A WRITE of a record to the backup.
    Record = 0xf4,
    /// A READ of the own memory, which brings what is written there and not seen yet.
    Drain = 0xf5,
    /// A READ for nothing but the link that it makes.
    Meet = 0xf6,
    /// What is written again if need be: requests, answers, reports.
    Send = 0xf7,
    /// A WRITE that says that this server has nothing and yields.
    Yield = 0xf8,
}

impl Part {
    const ALL: [Self; 5] = [Self::Record, Self::Drain, Self::Meet, Self::Send, Self::Yield];
}

pub(crate) const fn token(part: Part, argument: u32) -> Token {
    Token((part as u64) << 56 | argument as u64)
}

/// The reverse of [`token`]; `None` for the membership protocol's.
pub(crate) fn part_of(token: Token) -> Option<(Part, u32)> {
    let part = Part::ALL.into_iter().find(|part| *part as u64 == token.0 >> 56)?;
    Some((part, token.0 as u32))
}

/// Where a server stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerState {
    /// It is no member.
    Out,
    /// It has no task yet.
    Spare,
    /// It follows the primary.
    Backup {
        /// It has everything that the primary has answered for.
        synced: bool,
    },
    /// It is the primary, but may not serve yet.
    TakingOver,
    /// It serves.
    Primary {
        /// Its backup has everything.
        redundant: bool,
    },
    /// It is the oldest and has not got the whole state: nobody is served until a server comes back
    /// that has.
    Stopped,
    /// It is stopped, and another one has the state: it has to leave, so that the other one is the
    /// oldest.
    Yields,
    /// The oldest server splits the keys into another number of shards: this one can not serve.
    Misfit {
        /// Into how many.
        shards: u32,
    },
}

/// A server that waits, and has what may be the only copy of the state, says so often that it has.
const CLAIM_EVERY: Nanos = Nanos::from_millis(20);

/// A server with something to do that nobody rings for looks so often at least, however rarely it
/// looks otherwise.
const POLL_INTERVAL_MAX: Nanos = Nanos::from_micros(20);

enum Role {
    Out,
    Spare,
    Backup(Follow),
    TakingOver(Follow),
    Primary(Box<Primary>),
    Stopped {
        /// A WRITE to the server that has the state is on the way.
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
    /// How many servers are older, and who and where the oldest is.
    place: u32,
    primary: Option<(Incarnation, Address)>,
    state: State,
    /// What an earlier life had.
    carried: Option<Box<Copy>>,
    /// It may begin with nothing.
    may_begin: bool,
    /// Rings of its memory that primaries have written into.
    rings: u32,
    /// When a server that waits says again that it has a state.
    claim_at: Instant,
    role: Role,
    poll_at: Instant,
    answered: u64,
}

impl Server {
    /// A server of a shard that looks into its memory so often. The name of its member has to tell
    /// the shard.
    #[must_use]
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

    /// The same, which begins with nothing where it is the first. Any other server that is the
    /// oldest without a whole state waits for one that has it: keys that are lost must not look as
    /// if they had never been there.
    #[must_use]
    pub fn beginning(self) -> Self {
        Self { may_begin: true, ..self }
    }

    /// The same with what a server had that was excluded: it serves that if nobody can have
    /// anything newer.
    #[must_use]
    pub fn carrying(self, copy: Option<Box<Copy>>) -> Self {
        Self { carried: copy, ..self }
    }

    /// What this server had when it was excluded, if it had the whole state.
    pub const fn take_copy(&mut self) -> Option<Box<Copy>> {
        self.carried.take()
    }

    /// The same with a bug.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_mutant(self, mutant: Mutant) -> Self {
        Self { mutant: ActiveMutant::new(mutant), ..self }
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> ServerState {
        match &self.role {
            Role::Out => ServerState::Out,
            Role::Spare => ServerState::Spare,
            Role::Backup(_) => ServerState::Backup { synced: self.state.is_surely_whole() },
            Role::TakingOver(_) => ServerState::TakingOver,
            Role::Primary(primary) => ServerState::Primary { redundant: primary.is_redundant() },
            Role::Stopped { .. } => ServerState::Stopped,
            Role::Yields => ServerState::Yields,
            Role::Misfit(shards) => ServerState::Misfit { shards: *shards },
        }
    }

    /// Who it is in the newest view; `None` if it is no member.
    #[must_use]
    pub const fn incarnation(&self) -> Option<Incarnation> {
        self.own
    }

    /// Of a primary: whether its backups were given everything that there was when they came. Later
    /// PUTs may be on the way.
    #[must_use]
    pub fn has_synced_backups(&self) -> bool {
        matches!(&self.role, Role::Primary(primary) if primary.has_synced_backups())
    }

    /// What it serves.
    pub(crate) const fn shard(&self) -> Shard {
        self.shard
    }

    /// How many requests it has answered.
    #[must_use]
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// When [`Server::tick`] is wanted next.
    #[must_use]
    pub(crate) const fn deadline(&self) -> Instant {
        self.poll_at
    }

    /// Takes note of the newest view and of who this server is in it.
    pub(crate) fn install<F: Fabric>(&mut self, view: &Arc<View>, own: Option<Incarnation>, fabric: &F) {
        let servers: Vec<(Incarnation, Address)> =
            crate::servers(view, self.shard).map(|member| (member.incarnation, member.address)).collect();
        let place = servers.iter().position(|(who, _)| Some(*who) == own);
        if place.is_none() || self.own != own {
            // A member that was removed and comes back is another; what it has now may be of use
            // later.
            self.set_aside(fabric);
            (self.role, self.state, self.rings) = (Role::Out, State::default(), 0);
        }
        self.view = Arc::clone(view);
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
        let shards = crate::shards(view).unwrap_or(self.shard.count());
        let role = std::mem::replace(&mut self.role, Role::Out);
        self.role = match (self.place, role) {
            // Whatever later views say: one that was refused once never has a state.
            (_, Role::Misfit(shards)) => Role::Misfit(shards),
            _ if shards != self.shard.count() => Role::Misfit(shards),
            (_, role @ (Role::Yields | Role::Stopped { .. })) => role,
            (0, Role::Out) => self.take_first(may_begin),
            (0, Role::Spare) => {
                self.hear_yield(fabric);
                self.take_over()
            }
            (0, Role::Backup(_)) if self.mutant.has(Mutant::LogNotDrained) => self.take_over(),
            (0, Role::Backup(follow)) => {
                self.hear_yield(fabric);
                Role::TakingOver(follow)
            }
            (1..=BACKUPS_MAX, Role::Out | Role::Spare) => Role::Backup(self.follow()),
            (_, Role::Out) => Role::Spare,
            (_, mut role) => {
                if let Role::Backup(follow) = &mut role {
                    follow.report_anew();
                }
                role
            }
        };
        self.configure_primary();
    }

    /// Keeps what it has when it was excluded, if that is whole.
    fn set_aside<F: Fabric>(&mut self, fabric: &F) {
        let Some(own) = self.own else { return };
        let next_incarnation = self.view.next_incarnation;
        let (position, others) = match &mut self.role {
            Role::Primary(primary) => (Some(primary.position()), primary.others()),
            Role::Backup(follow) | Role::TakingOver(follow) => {
                while follow.apply(self.area, &mut self.state, fabric) {}
                let all = crate::servers(&self.view, self.shard).take(1 + BACKUPS_MAX as usize);
                let others = all.map(|member| member.incarnation).filter(|other| *other != own);
                (self.state.whole, others.collect())
            }
            _ => (self.state.whole, Vec::new()),
        };
        let State { store, tail, carried, .. } = std::mem::take(&mut self.state);
        let Some(position) = position else { return };
        // What was carried and is not known to be the newest is as old as it was.
        let provenance = carried.unwrap_or(Provenance { own, others, next_incarnation });
        self.carried = Some(Box::new(Copy { store, position, tail, provenance }));
    }

    /// Has what an earlier life had, unless somebody may have something newer.
    fn bring_back(&mut self, view: &View, own: Incarnation) {
        let is_stale = self.mutant.has(Mutant::StaleCopy);
        let copy = self.carried.take().filter(|copy| is_stale || copy.provenance.may_be_newest(view, own));
        if let Some(copy) = copy {
            let Copy { store, position, tail, provenance } = *copy;
            let carried = Some(provenance).filter(|_| !is_stale);
            self.state = State { store, whole: Some(position), tail, carried };
        }
    }

    /// The part of the oldest server that has just come.
    fn take_first(&mut self, may_begin: bool) -> Role {
        // Nobody is older who could have anything newer.
        self.state.carried = None;
        if may_begin && self.state.whole.is_none() { self.serve() } else { self.take_over() }
    }

    /// Whether a server that was the oldest had nothing, and said so to this one.
    fn hear_yield<F: Fabric>(&mut self, fabric: &F) {
        let said = self.own.and_then(|own| Report::read(self.area.report(1), own, fabric));
        if said.is_some_and(|said| said.yields) {
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

    /// Tells the primary's part who its backups and its clients are.
    fn configure_primary(&mut self) {
        let Role::Primary(primary) = &mut self.role else { return };
        let others = crate::servers(&self.view, self.shard).skip(1).take(BACKUPS_MAX as usize);
        let backups: Vec<(Incarnation, Address)> =
            others.map(|member| (member.incarnation, member.address)).collect();
        primary.install(&backups, &self.area.clients(&self.view), &mut self.state.store);
    }

    /// The role of the oldest server when its log, if it has one, is applied to the end.
    fn take_over(&mut self) -> Role {
        if self.state.is_usable(self.mutant) { self.serve() } else { Role::Stopped { yielding: false } }
    }

    fn serve(&mut self) -> Role {
        let origin = Origin { position: self.state.whole, tail: std::mem::take(&mut self.state.tail) };
        let own = self.own.unwrap_or_default();
        Role::Primary(Box::new(Primary::new(self.area, self.mutant, own, origin)))
    }

    /// Looks into the own memory: once, or [`LOOKS`] times if it does nothing else.
    pub(crate) fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.poll_at = now + self.poll_every;
        let view = self.view.id;
        match &mut self.role {
            Role::Primary(primary) => {
                let looks = if self.poll_every == Nanos::ZERO { LOOKS } else { 1 };
                for _ in 0..looks {
                    if primary.poll(now, view, &mut self.state.store, fabric) {
                        self.answered += primary.settle(view, fabric);
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
                        // Another one is the primary: what the one before has answered for is to be
                        // here first.
                        self.poll_at = self.poll_at.min(now + POLL_INTERVAL_MAX);
                        drain(follow, fabric.is_active(view), self.area, fabric);
                    }
                }
            }
            Role::TakingOver(follow) => {
                self.poll_at = self.poll_at.min(now + POLL_INTERVAL_MAX);
                // Once this view is active no earlier one is: whoever was the primary before can
                // not answer for a record that is not in the log by now.
                let may_drain = fabric.is_active(view) || self.mutant.has(Mutant::ServeEarly);
                drain(follow, may_drain, self.area, fabric);
            }
            // The primary has two backups already; but if it is no primary, it is to know who has
            // the state.
            Role::Spare if self.state.whole.is_some() && now >= self.claim_at => {
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
        self.settle(fabric);
    }

    /// Somebody rang: there are requests.
    pub(crate) fn on_ring(&mut self) {
        self.poll_at = Instant::ZERO;
    }

    fn settle<F: Fabric>(&mut self, fabric: &mut F) {
        if let Role::Primary(primary) = &mut self.role {
            self.answered += primary.settle(self.view.id, fabric);
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
                self.settle(fabric);
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
                    // There are rings for all primaries that a server can have before it is the
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
            // What was sent and is lost is sent again.
            _ => {}
        }
    }
}

/// Brings what is left in a log whose primary can not answer for anything any more.
fn drain<F: Fabric>(follow: &mut Follow, may_drain: bool, area: Area, fabric: &mut F) {
    if may_drain && !follow.draining {
        follow.draining = true;
        let from = Remote { at: fabric.address(), offset: follow.place(area) };
        fabric.read(from, 8, token(Part::Drain, 0));
    }
}

/// Tells a server that says that it has the whole state that this one, the oldest, has nothing and
/// has answered nobody. Tells whether there is one.
fn yield_to_whole<F: Fabric>(
    own: Incarnation,
    view: &View,
    shard: Shard,
    area: Area,
    fabric: &mut F,
) -> bool {
    let said = (1..=BACKUPS_MAX).filter_map(|place| Report::read(area.report(place), own, fabric));
    let whole = said.into_iter().find_map(|said| {
        let member = crate::servers(view, shard).find(|member| member.incarnation == said.who)?;
        said.whole.map(|_| (said.who, member.address))
    });
    let Some((who, at)) = whole else { return false };
    let mut bytes = Vec::new();
    let nothing =
        Report { who: own, to: who, ring: 0, applied: Default::default(), whole: None, yields: true };
    nothing.encode(&mut bytes);
    fabric.write(Remote { at, offset: area.report(1) }, &bytes, token(Part::Yield, 0));
    true
}
