//! Holders with shipped leases, leaders with shipped logs and clearings, a chain of views computed
//! by the shipped rules, and time: what an exploration of leases and fencing moves.
//!
//! Agreement is given here (the other model shows it): a slot has one value, which acceptors accept
//! one by one. Each process has a clock, which runs at its own rate all the time: most models have
//! right ones, some the rates at the two ends of what the drift bound allows.
//!
//! Reductions, all exact. A state is distinguished from others by its instants relative to the present of
//! the clock that they are of, cut off at the longest lease or wait on any clock: a machine
//! compares an instant with now, or adds one lease or wait to it before that, so an instant that
//! lies further back is over for every rule, and none lies further ahead. Acceptors are alike and
//! kept sorted. That a third acceptor accepts, that a READ finds a slot full, or that a renewal is
//! given up only takes steps away, so it is left out. CLEAR goes out as soon as a leader may send
//! it, as in the machine that ships; that a holder hears it late, twice or never is a step of its
//! own. A leader that learns of a view clears for it, though it may not have decided it: so every
//! one of several leaders may be the stale one, or the one that took over.

mod act;
mod choose;
mod program;

use crate::common::{LIMITS, Noted, Post, Relative};
use obol_fabric::{Address, Completion, Incarnation, Instant, Layout, LinkError, Name, Nanos, Page, ViewId};
use obol_membership::clearing::{Clearing, Known};
use obol_membership::lease::{Lease, lengthened};
use obol_membership::log::Log;
use obol_membership::mutants::{ActiveMutant, Mutant};
use obol_membership::poll::{Found, Poll};
use obol_membership::tokens::{self, Labelled, Part};
use obol_membership::view::{Acceptor, Change, Edit, Kind, Newcomer, View};
use obol_membership::{Config, Timing};
pub(crate) use program::{Program, Source};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

const ACCEPTORS: usize = 3;
const MAJORITY: u32 = 2;
const ANY_MAJORITY: u8 = 0b011;
/// The clock starts here, so that instants and all other numbers can be distinguished.
pub(crate) const EPOCH: u64 = 1 << 40;
/// One step of the clock; a lease lasts one or two.
pub(crate) const TICK: u64 = 20;
/// The first view of the chain; genesis lies before it.
const FIRST: u64 = 1;

/// How a view differs from its predecessor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn {
    Join(usize),
    Leave(usize),
    Replace {
        gone: usize,
        new: usize,
    },
    /// The process joins again, after it has learned that it was removed.
    Rejoin(usize),
    Lease(u64),
    /// A holder leaves, and the lease cache with it.
    LeaveWithCache(usize),
    /// An operator's recovery after which all acceptors are others.
    Recover,
}

/// What is explored, and how far.
#[derive(Clone, Debug)]
pub(crate) struct Leases {
    pub(crate) config: Config,
    pub(crate) turns: Vec<Turn>,
    /// Whether each holder is in the first view.
    pub(crate) first_members: Vec<bool>,
    /// Whether an app of the first view is attached to holder 0 and reads its page.
    pub(crate) attached: bool,
    /// Whether that app computes by itself whether the next view is active.
    pub(crate) programs: bool,
    /// Whether each read of that program is a step of its own.
    pub(crate) stepwise: bool,
    /// The holder that is a lease cache.
    pub(crate) cache: Option<usize>,
    /// What a coordinator shows that a recovery has given up.
    pub(crate) given_up: Option<Arc<View>>,
    /// How far one step moves the clock: any of these.
    pub(crate) ticks: Vec<u64>,
    /// Leaders at once: each learns, fences and clears by itself, so any of them is the stale one.
    pub(crate) leaders: usize,
    pub(crate) deaths: u8,
    /// How many fences may come back failed.
    pub(crate) failures: u8,
    /// Whether a majority accepts, and is read, in one step, and a fence's completion comes with
    /// its execution: for longer chains, whose every step is taken apart in shorter ones.
    pub(crate) coarse: bool,
    /// Whether a call of `active` takes two steps.
    pub(crate) split: bool,
    /// Where the fences of the first view's holders stand.
    pub(crate) fence: ViewId,
    /// How fast each holder's clock runs, and the leaders', in thousandths of true time.
    pub(crate) rates: Vec<u64>,
    pub(crate) leader_rate: u64,
    pub(crate) first: Arc<View>,
}

/// A clock that is right.
const RIGHT: u64 = 1_000;

/// READs of a renewal: of which view, since when, and which acceptors were found empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Reading {
    view: ViewId,
    posted: Instant,
    empty: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    rate: u64,
    pub(crate) lease: Lease,
    /// When it learned the newest view.
    learned: Instant,
    /// The newest view that it knows, 0 for none.
    known: ViewId,
    reading: Option<Reading>,
    pub(crate) fence: ViewId,
    alive: bool,
    /// Whether it was removed, knows it, and will not come back.
    gone: bool,
    /// A call of `active` that has read the page, and the latest run that was active when it began.
    call: Option<(Page, u8)>,
}

impl Holder {
    /// What the lease does from now on depends on its page, its CLEAR, and the newest view with the
    /// moment at which it was learned; the last only as long as the page is not on that view. A
    /// start or end that is over is over.
    ///
    /// A page that has run out and is not of the known view's run gives nothing to anybody, and a
    /// CLEAR of an earlier run applies to no page that comes.
    fn hash_at(&self, now: Instant, base: ViewId, reach: u64, state: &mut impl Hasher) {
        let held = self.lease.page();
        let carries = now < held.verified + Nanos(reach);
        let page = if held.end <= now && held.base != base && !carries { Page::default() } else { *held };
        let clear = self.lease.clear_known().filter(|&clear| clear >= base);
        let ahead = |page: &Page| (page.view, page.base, page.start.max(now), page.end.max(now));
        let call = self.call.as_ref().map(|(page, latest)| (ahead(page), latest));
        (ahead(&page), page.verified, page.end == Instant::ZERO, clear, call).hash(state);
        (self.known, self.reading, self.fence, self.alive).hash(state);
        self.gone.hash(state);
        (page.view != self.known).then_some(self.learned).hash(state);
    }
}

/// A fence on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Fence {
    leader: u8,
    peer: u16,
    round: u32,
    holder: u8,
    /// `None`: a WRITE.
    expected: Option<u64>,
    desired: u64,
    /// What a CAS found, once executed.
    executed: Option<u64>,
    /// Whether a completion is still to come.
    awaited: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leader {
    log: Log,
    pub(crate) cleared: ViewId,
    clearing: Option<Clearing>,
    /// The fences of its proposal.
    early: Option<Clearing>,
    round: u32,
    proofs: BTreeSet<Incarnation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// True time.
    pub(crate) now: Instant,
    reach: u64,
    leader_rate: u64,
    /// `views[i]` is the value of slot `FIRST + i`, and who accepted it.
    views: Vec<(Arc<View>, u8)>,
    pub(crate) holders: Vec<Holder>,
    app_alive: bool,
    pub(crate) program: Program,
    pub(crate) leaders: Vec<Leader>,
    fences: Vec<Fence>,
    /// Bases whose CLEAR was sent.
    pub(crate) sent: BTreeSet<ViewId>,
    deaths: u8,
    failures: u8,
    /// The latest run of compatible views that was ever active, see [`State::run`].
    pub(crate) latest: u8,
    pub(crate) broken: bool,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (view, accepted) in &self.views {
            (view.cleared, view.wait, accepted).hash(state);
        }
        for holder in &self.holders {
            let now = local(self.now, holder.rate);
            let known = self.views.iter().find(|(view, _)| view.id == holder.known);
            let state = &mut Relative { inner: &mut *state, now, epoch: EPOCH / 2, reach: self.reach };
            holder.hash_at(now, known.map_or(ViewId::GENESIS, |(view, _)| view.base), self.reach, state);
        }
        let now = local(self.now, self.holders[0].rate);
        let of_program = &mut Relative { inner: &mut *state, now, epoch: EPOCH / 2, reach: self.reach };
        self.program.hash_at(of_program);
        for leader in &self.leaders {
            let now = local(self.now, self.leader_rate);
            let state = &mut Relative { inner: &mut *state, now, epoch: EPOCH / 2, reach: self.reach };
            for (view, _) in &self.views {
                // When a view was learned from which on all is cleared makes no difference any
                // more.
                let entry = leader.log.get(view.id);
                (entry.is_some(), entry.map(|e| e.learned).filter(|_| view.id > leader.cleared)).hash(state);
            }
            (leader.cleared, &leader.clearing, &leader.early, &leader.proofs).hash(state);
        }
        (self.app_alive, self.leaders.len(), &self.fences, &self.sent).hash(state);
        (self.deaths, self.failures, self.latest, self.broken).hash(state);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Tick(u64),
    Propose {
        leader: usize,
    },
    Accept {
        acceptor: usize,
    },
    Learn {
        holder: usize,
        view: ViewId,
    },
    Post(usize),
    Read {
        holder: usize,
        acceptor: usize,
    },
    Install(usize),
    Hear {
        holder: usize,
        base: ViewId,
    },
    Die(usize),
    AppDies,
    LeaderLearns {
        leader: usize,
        view: ViewId,
    },
    LeaderHears {
        leader: usize,
        base: ViewId,
    },
    Prove {
        leader: usize,
        who: Incarnation,
    },
    Fence(usize),
    Fenced(usize),
    FenceFails(usize),
    Call(usize),
    Return(usize),
    /// The cache vouches for a holder's view.
    Vouch(usize),
    /// The program reads the newest view in a region.
    Look(Source),
    /// It reads of which CLEAR the region knows.
    LookCleared,
    /// It asks whether that view is active: it reads the page.
    UsePage,
    /// It reads the fence.
    UseFence,
    /// It reads the clock.
    Use,
}

impl Leases {
    /// The chain of views that these turns make, with leases of `lease` nanoseconds.
    pub(crate) fn new(
        first_members: &[bool],
        attached: bool,
        lease: u64,
        turns: &[Turn],
        mutant: ActiveMutant,
    ) -> Self {
        const NEVER: Nanos = Nanos(u64::MAX);
        let timing = Timing {
            lease: Nanos(lease),
            lease_max: Nanos(lease),
            renew_timeout: NEVER,
            cache_lease: Nanos(lease),
            cache_timeout: NEVER,
            fan_out_from: u32::MAX,
            fencing: true,
            ..Timing::default()
        };
        let config = Config {
            release: obol_fabric::Release::THIS,
            timing,
            layout: Layout::new(LIMITS).expect("in bounds"),
            mutant,
        };
        let name = Name::new("c").expect("a name");
        let coordinators: Vec<_> = (0..ACCEPTORS as u32).map(|n| (name, Address::region(n))).collect();
        let genesis = View::genesis(&coordinators, Nanos(lease), Nanos(lease));
        let admit = (0..first_members.len()).filter(|&h| first_members[h]).map(|h| newcomer(h, 0)).collect();
        let mut first =
            genesis.successor(&Edit { admit, ..Edit::default() }, ViewId::GENESIS, ActiveMutant::NONE);
        if attached {
            // The app is in the first view, too; its view is built in two steps and counts as one.
            let host = first.by_token(token(0, 0)).expect("holder 0 is in the first view").incarnation;
            let app = Newcomer {
                kind: Kind::App,
                name: Name::new("a").expect("a name"),
                address: Address { seat: 1, ..page(0) },
                host,
                token: APP,
                ..newcomer(0, 0)
            };
            let next = first.successor(
                &Edit { admit: vec![app], ..Edit::default() },
                ViewId::GENESIS,
                ActiveMutant::NONE,
            );
            first = View { id: ViewId(FIRST), base: ViewId(FIRST), ..next };
        }
        Self {
            config,
            turns: turns.to_vec(),
            first_members: first_members.to_vec(),
            attached,
            programs: false,
            stepwise: false,
            cache: None,
            given_up: None,
            ticks: vec![TICK],
            leaders: 1,
            deaths: 0,
            failures: 0,
            coarse: false,
            split: false,
            fence: ViewId::GENESIS,
            rates: vec![RIGHT; first_members.len()],
            leader_rate: RIGHT,
            first: Arc::new(first),
        }
    }

    /// The app attached to holder 0 is a program that decides by itself.
    pub(crate) fn with_program(self) -> Self {
        assert!(self.attached, "a program is attached to its agent");
        Self { programs: true, ..self }
    }

    /// A holder of the first view is a lease cache.
    pub(crate) fn with_cache(self, holder: usize) -> Self {
        let mut first = View::clone(&self.first);
        let caches = first.members.iter_mut().filter(|m| m.token == token(holder, 0));
        caches.for_each(|m| m.kind = Kind::LeaseCache);
        first.run_reach = first.reach();
        Self { cache: Some(holder), first: Arc::new(first), ..self }
    }

    /// Before a recovery that knows the first view only, two more were decided, and cleared. A
    /// coordinator still shows the last of them.
    pub(crate) fn with_given_up(self) -> Self {
        let next = |view: &View| view.successor(&Edit::default(), view.id, ActiveMutant::NONE);
        Self { given_up: Some(Arc::new(next(&next(&self.first)))), ..self }
    }

    pub(crate) fn init(&self) -> State {
        let now = Instant(EPOCH);
        let first = ViewId(FIRST);
        let holders = self.first_members.iter().zip(&self.rates).enumerate().map(|(h, (&member, &rate))| {
            let mut lease = Lease::new(&self.config.timing, self.kind(h), self.config.mutant);
            if member {
                lease.clear(first, now);
                lease.learn(&self.first, now);
            }
            Holder {
                rate,
                lease,
                learned: now,
                known: if member { first } else { ViewId::GENESIS },
                reading: None,
                fence: if member { self.fence } else { ViewId::GENESIS },
                alive: true,
                gone: false,
                call: None,
            }
        });
        let longest = self.turns.iter().map(|turn| if let Turn::Lease(lease) = turn { *lease } else { 0 });
        State {
            now,
            reach: lengthened(
                Nanos(longest.max().unwrap_or(0).max(self.first.reach().0)),
                self.config.timing.drift_ppm,
            )
            .0,
            leader_rate: self.leader_rate,
            views: vec![(Arc::clone(&self.first), 0b111)],
            holders: holders.collect(),
            app_alive: self.attached,
            program: Program::default(),
            leaders: vec![self.leader(now); self.leaders],
            fences: Vec::new(),
            sent: BTreeSet::new(),
            deaths: self.deaths,
            failures: self.failures,
            latest: 0,
            broken: false,
        }
    }

    pub(super) fn leader(&self, now: Instant) -> Leader {
        Leader {
            log: Log::new(Arc::clone(&self.first), now),
            cleared: ViewId(FIRST),
            clearing: None,
            early: None,
            round: 0,
            proofs: BTreeSet::new(),
        }
    }

    fn kind(&self, holder: usize) -> Kind {
        if self.cache == Some(holder) { Kind::LeaseCache } else { Kind::Agent }
    }

    /// The view after `view`. A recovery skips no number here, so that those of the two sides meet.
    pub(super) fn successor(&self, view: &View, cleared: ViewId, turn: Turn) -> View {
        if !matches!(turn, Turn::Recover) {
            return view.successor(&self.edit(view, turn), cleared, self.config.mutant);
        }
        let others =
            view.acceptors.iter().map(|a| Acceptor { proposer: a.proposer + ACCEPTORS as u16, ..*a });
        let (id, next_incarnation) = (view.id.next(), view.next_incarnation);
        let recovered = view.recovered(others.collect(), self.config.timing.lease_max);
        View { id, base: id, next_incarnation, departed: Vec::new(), ..recovered }
    }

    fn edit(&self, view: &View, turn: Turn) -> Edit {
        let gone = |h: usize| -> Vec<_> { incarnation(view, h).map(Change::Left).into_iter().collect() };
        match turn {
            Turn::Join(h) => Edit { admit: vec![newcomer(h, 0)], ..Edit::default() },
            Turn::Leave(h) => Edit { remove: gone(h), ..Edit::default() },
            Turn::Replace { gone: old, new } => {
                Edit { remove: gone(old), admit: vec![newcomer(new, 0)], lease: None, acceptor: None }
            }
            Turn::Rejoin(h) => Edit { admit: vec![newcomer(h, 1)], ..Edit::default() },
            Turn::Lease(lease) => Edit { lease: Some(Nanos(lease)), ..Edit::default() },
            Turn::LeaveWithCache(h) => {
                let cache = self.cache.map(gone).unwrap_or_default();
                Edit { remove: gone(h).into_iter().chain(cache).collect(), ..Edit::default() }
            }
            Turn::Recover => Edit::default(),
        }
    }
}

/// What a clock of this rate shows. All show the same at first.
fn local(now: Instant, rate: u64) -> Instant {
    Instant(EPOCH + (now.0 - EPOCH) * rate / RIGHT)
}

impl State {
    fn newest(&self) -> ViewId {
        self.views[self.views.len() - 1].0.id
    }

    fn view(&self, id: ViewId) -> &Arc<View> {
        &self.views[(id.0 - FIRST) as usize].0
    }

    /// Counts the changes of apps and holders up to a view, from the members alone: the oracle
    /// believes no `base`.
    fn run(&self, id: ViewId) -> u8 {
        let protected = |view: &View| -> Vec<Incarnation> {
            let acts = |kind| matches!(kind, Kind::Agent | Kind::App);
            view.members.iter().filter(|m| acts(m.kind)).map(|m| m.incarnation).collect()
        };
        let views = &self.views[..=(id.0 - FIRST) as usize];
        1 + views.windows(2).filter(|pair| protected(&pair[0].0) != protected(&pair[1].0)).count() as u8
    }

    /// Whether the acceptors after this view have not been given up.
    fn answer(&self, id: ViewId) -> bool {
        self.view(id).retired == self.view(self.newest()).retired
    }

    /// Who accepted this slot's value.
    fn accepted(&self, id: ViewId) -> u8 {
        self.views.get((id.0 - FIRST) as usize).map_or(0, |(_, accepted)| *accepted)
    }

    pub(crate) fn decided(&self) -> ViewId {
        let (newest, accepted) = &self.views[self.views.len() - 1];
        if accepted.count_ones() >= MAJORITY { newest.id } else { ViewId(newest.id.0 - 1) }
    }

    /// Acceptors are alike: keep what they accepted and who read them as sorted columns.
    fn sort_acceptors(&mut self) {
        let mut columns: Vec<Vec<bool>> = (0..ACCEPTORS)
            .map(|a| {
                let accepted = self.views.iter().map(|(_, mask)| mask);
                let read = self.holders.iter().filter_map(|h| h.reading.as_ref()).map(|r| &r.empty);
                accepted.chain(read).map(|mask| mask & 1 << a != 0).collect()
            })
            .collect();
        columns.sort_unstable();
        let accepted = self.views.iter_mut().map(|(_, mask)| mask);
        let read = self.holders.iter_mut().filter_map(|h| h.reading.as_mut()).map(|r| &mut r.empty);
        for (row, mask) in accepted.chain(read).enumerate() {
            *mask = (0..ACCEPTORS).map(|a| u8::from(columns[a][row]) << a).sum();
        }
    }
}

/// Regions of the holders' pages start here; the coordinators' lie below.
const PAGES: u32 = 10;
const APP: u64 = 999;

fn page(holder: usize) -> Address {
    Address { generation: 1, ..Address::region(PAGES + holder as u32) }
}

fn token(holder: usize, life: u64) -> u64 {
    100 + holder as u64 + 50 * life
}

fn newcomer(holder: usize, life: u64) -> Newcomer {
    let name = Name::new(&format!("h-{holder}")).expect("a name");
    Newcomer::new(Kind::Agent, name, page(holder), token(holder, life))
}

/// The incarnation of a holder in a view, whichever life it is.
fn incarnation(view: &View, holder: usize) -> Option<Incarnation> {
    (0..2).find_map(|life| view.by_token(token(holder, life))).map(|m| m.incarnation)
}
