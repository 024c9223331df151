//! A recovery after a disaster, in a simulated cluster whose machines start like those of the
//! daemons. Coordinators are lost while agents hold leases, some of them long, and some on views
//! unknown to the operator. The operator recovers at once, and the retired coordinators come back
//! with their old memory.

use obol_fabric::sim::{Clock, Delay, Network, Rng, State, World};
use obol_fabric::{
    Address, Event, Fabric, Group, Instant, Layout, Limits, Machine, Name, Nanos, ViewId, page,
};
use obol_membership::timing::Timing;
use obol_membership::view::{Acceptor, coordinator_name};
use obol_membership::wire::Message;
use obol_membership::{ActiveMutant, Config, Coordinator, Kind, Member, Start, View};
use std::sync::Arc;

const SEEDS: u64 = 800;
const COORDINATORS: u32 = 3;
const AGENTS: u32 = 3;
/// The coordinator that is added after the disaster: its node, and its number.
const NEW: (u32, u16) = (COORDINATORS + AGENTS, 4);
/// A run that has not reached its goal after this true time never will.
const HANG: u64 = 400_000_000;
/// Another life's memory must not be taken for the first one's.
const LEASE: u64 = 200_000;
/// What an operator may set with `--beyond-max`.
const LONG_LEASE: u64 = 12 * LEASE;

enum Role {
    Coordinator(Box<Coordinator>),
    Member(Box<Member>),
}

impl Role {
    fn view(&self) -> &Arc<View> {
        match self {
            Self::Coordinator(machine) => machine.view(),
            Self::Member(machine) => machine.view(),
        }
    }

    fn is_retired(&self) -> bool {
        matches!(self, Self::Coordinator(machine) if machine.is_retired())
    }
}

macro_rules! each {
    ($role:expr, $machine:ident => $what:expr) => {
        match $role {
            Role::Coordinator($machine) => $what,
            Role::Member($machine) => $what,
        }
    };
}

impl Machine for Role {
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        each!(self, machine => machine.start(now, fabric));
    }

    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        each!(self, machine => machine.handle(now, event, fabric));
    }

    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        each!(self, machine => machine.tick(now, fabric));
    }

    fn deadline(&self) -> Instant {
        each!(self, machine => machine.deadline())
    }
}

fn config() -> Config {
    let timing = Timing {
        lease: Nanos(LEASE),
        lease_max: Nanos(LEASE),
        lease_calm: Nanos(8 * LEASE),
        renew_every: Nanos(LEASE / 3),
        renew_timeout: Nanos(LEASE / 4),
        cache_lease: Nanos(LEASE),
        cache_timeout: Nanos(LEASE / 4),
        fan_out_from: u32::MAX,
        drift_ppm: 200,
        fencing: true,
        heartbeat_every: Nanos(2_000),
        heartbeat_period: Nanos(LEASE / 4),
        heartbeat_confirm: 3,
        link_every: Nanos(LEASE),
        link_timeout: Nanos(4 * LEASE),
        notice_after: Nanos(5_000),
        notice_every: Nanos(LEASE / 2),
        join_every: Nanos(LEASE / 2),
        join_burst: 1,
        standby: Nanos(LEASE / 2),
        poll_every: Nanos(LEASE / 2),
        backoff_max: Nanos(5_000),
        announce_hold: Nanos(LEASE / 8),
        resync_after: Nanos(4 * LEASE),
        ..Timing::default()
    };
    let limits = Limits {
        seats: 2,
        slots: 16,
        proposers: 7,
        value_bytes: 2048,
        lanes: 8,
        lane_slots: 4,
        datagram_bytes: 2048,
        recorder_events: 16,
    };
    Config {
        release: obol_fabric::Release::THIS,
        timing,
        layout: Layout::new(limits).expect("these limits are in bounds"),
        mutant: ActiveMutant::NONE,
    }
}

/// Situations reached by a run.
#[derive(Default)]
struct Marks {
    /// An agent held a lease when the new coordinator started.
    held: u32,
    /// One held a lease on a view unknown to the operator.
    held_unknown: u32,
    /// One held a lease beyond the maximum of the profile.
    held_long: u32,
    /// A retired coordinator came back with its memory.
    came_back: u32,
    /// An agent on an abandoned host is alive, and stays out.
    shut_out: u32,
}

struct Run {
    config: Config,
    genesis: Arc<View>,
    world: World<Role>,
    rng: Rng,
    seed: u64,
    lives: u64,
    /// Whether the new coordinator was added.
    has_new: bool,
    overlap: Option<String>,
}

/// The new coordinator as an acceptor.
fn acceptor() -> Acceptor {
    Acceptor { proposer: NEW.1, address: Address::region(NEW.0) }
}

impl Run {
    fn new(seed: u64) -> Self {
        let config = config();
        let seats: Vec<(Name, Address)> = (0..COORDINATORS)
            .map(|n| (coordinator_name(n as u16 + 1), Address { generation: 1, ..Address::region(n) }))
            .collect();
        let genesis = View::genesis(&seats, config.timing.lease, config.timing.cache_lease);
        let mut rng = Rng::new(seed ^ 0x0d15_a57e_0000_0000);
        let network = Network {
            one_way: Delay::new(500 + rng.below(1_500), 400),
            multicast: Delay::new(600 + rng.below(1_500), 400),
            link_timeout: Delay::new(10_000, 5_000),
            loss_permille: rng.below(30) as u32,
            multicast_loss_permille: rng.below(30) as u32,
            ..Network::default()
        };
        let world = World::new(config.layout, network, seed);
        let mut run = Self {
            config,
            genesis: Arc::new(genesis),
            world,
            rng,
            seed,
            lives: 0,
            has_new: false,
            overlap: None,
        };
        for node in 0..COORDINATORS + AGENTS {
            let machine = run.machine(node, None);
            run.add(node, machine);
        }
        run
    }

    fn add(&mut self, node: u32, machine: Role) {
        let is_coordinator = matches!(machine, Role::Coordinator(_));
        let groups = Group::Everyone.bit() | if is_coordinator { Group::Coordinators.bit() } else { 0 };
        // Within the assumed drift.
        let rate = self.rng.below(200_000) as i64 - 100_000;
        let clock = Clock::new(Instant(1 + self.rng.below(1 << 40)), rate);
        assert_eq!(self.world.add(machine, clock, groups), node);
        self.has_new |= node == NEW.0;
    }

    /// Created like a daemon's: from the views of its own host.
    fn machine(&mut self, node: u32, found: Option<View>) -> Role {
        self.lives += 1;
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.lives;
        let start = Start::new(self.config, &self.genesis, found, seed);
        if node < COORDINATORS {
            Role::Coordinator(Box::new(start.coordinator(node as u16 + 1)))
        } else if node == NEW.0 {
            Role::Coordinator(Box::new(start.coordinator(NEW.1)))
        } else {
            let name = Name::new(&format!("node-{node}")).expect("a name");
            Role::Member(Box::new(start.member(Kind::Agent, name)))
        }
    }

    fn agents() -> std::ops::Range<u32> {
        COORDINATORS..COORDINATORS + AGENTS
    }

    /// When, in true time, an agent may act, and under which base.
    fn lease(&self, node: u32) -> Option<(u64, u64, ViewId, ViewId)> {
        let words = self.world.page(node);
        let page = page::load(words).filter(|page| page::fenced(words) <= page.view)?;
        let clock = self.world.clock(node);
        let (from, until) = (clock.to_true(page.start), clock.to_true(page.end));
        let lives = self.world.state(node) == State::Running && from < until;
        lives.then_some((from, until, page.base, page.view))
    }

    fn holds(&self, node: u32) -> Option<ViewId> {
        let now = self.world.now();
        self.lease(node).filter(|(from, until, ..)| *from <= now && now < *until).map(|lease| lease.3)
    }

    /// One step; records two agents that may act under incompatible views before the next one.
    fn step(&mut self) {
        assert!(self.world.step().is_some(), "something always is to come");
        let (now, next) = (self.world.now(), self.world.next_time().unwrap_or(u64::MAX));
        let leases: Vec<_> = Self::agents().filter_map(|node| Some((node, self.lease(node)?))).collect();
        for (n, (one, a)) in leases.iter().enumerate() {
            for (other, b) in &leases[n + 1..] {
                let (from, until) = (a.0.max(b.0).max(now), a.1.min(b.1).min(next));
                if a.2 != b.2 && from < until {
                    let text = format!("seed {}: nodes {one} and {other} at {from}: {a:?} {b:?}", self.seed);
                    self.overlap.get_or_insert(text);
                }
            }
        }
    }

    /// Runs for less than a span, drawn.
    fn run_below(&mut self, most: u64) {
        let span = self.rng.below(most);
        self.run_for(span);
    }

    fn run_for(&mut self, span: u64) {
        let end = self.world.now() + span;
        while self.world.next_time().is_some_and(|next| next <= end) {
            self.step();
        }
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = self.world.now() + HANG;
        while !done(self) {
            assert!(self.world.now() < end, "seed {}: {what}", self.seed);
            self.step();
        }
    }

    fn cut(&mut self, node: u32) {
        let nodes = NEW.0 + u32::from(self.has_new);
        for other in (0..nodes).filter(|other| *other != node) {
            self.world.partition(node, other);
            self.world.partition(other, node);
        }
    }

    fn heal(&mut self) {
        for (node, other) in (0..NEW.0).flat_map(|node| (0..NEW.0).map(move |other| (node, other))) {
            self.world.heal(node, other);
        }
    }

    /// The new coordinator decides alone, and the retired ones stay out.
    fn ends_well(&self, old: u32, seed: u64) {
        let newest = Arc::clone(self.world.machine(NEW.0).view());
        assert_eq!(newest.acceptors, [acceptor()], "seed {seed}: the new coordinator decides alone");
        assert!(newest.retired.iter().eq(1..=COORDINATORS as u16), "seed {seed}");
        assert!(newest.of_kind(Kind::Coordinator).all(|m| m.proposer == NEW.1), "seed {seed}: {newest:?}");
        // It would not start again, even without any message.
        let again =
            Start::new(self.config, &self.genesis, [self.world.machine(old).view().as_ref().clone()], seed);
        assert!(again.coordinator(old as u16 + 1).is_retired(), "seed {seed}");
    }
}

/// A wrong wait of the recovered view, if any: a bug that the test must find.
type Planted = Option<Nanos>;

fn run(seed: u64, planted: Planted, marks: &mut Marks) -> Option<String> {
    let mut run = Run::new(seed);
    let all_hold = |run: &Run| Run::agents().all(|node| run.holds(node).is_some());
    run.until("all agents join", all_hold);
    // The view known from an earlier observation, or a file.
    let early = run.world.machine(COORDINATORS).view().as_ref().clone();
    // One host may be cut off in the end, and the operator abandons it. The others may miss earlier
    // decisions.
    let given_up = COORDINATORS + run.rng.below(u64::from(AGENTS)) as u32;
    let asks_it = run.rng.coin();
    let deaf = !asks_it && run.rng.coin();
    if deaf {
        Run::agents().filter(|node| *node != given_up).for_each(|node| run.cut(node));
    }
    // An operator lengthens leases; some coordinators may miss the request, and some agents the
    // result.
    let lease = if run.rng.coin() { LONG_LEASE } else { LEASE + 1 };
    run.world.with_machine(given_up, |_, _, port| {
        (0..COORDINATORS)
            .for_each(|n| port.send(Address::region(n), &Message::SetLease(Nanos(lease)).encode()));
    });
    run.run_below(LEASE);
    if !asks_it && !deaf {
        run.cut(given_up);
    }
    run.run_below(LEASE / 2);
    for node in 0..COORDINATORS {
        run.world.kill(node);
        run.run_below(2_000);
    }
    if deaf {
        run.heal();
        run.cut(given_up);
    }
    run.run_below(LEASE / 4);
    // The newest view of the reachable processes, or an older one from a file if none is reachable.
    let asked = Run::agents().filter(|node| asks_it || *node != given_up);
    let known = asked.map(|node| run.world.machine(node).view().as_ref().clone());
    let found = known.chain([early]).max_by_key(|view| view.id).expect("somebody knows a view");
    for node in Run::agents() {
        let Some(holder) = run.holds(node) else { continue };
        marks.held += 1;
        marks.held_unknown += u32::from(holder > found.id);
        let view = run.world.machine(node).view();
        marks.held_long += u32::from(view.id == holder && view.lease == Nanos(LONG_LEASE));
    }
    // The operator states the maximum lease of an abandoned host if it may exceed the profile's.
    let recovered = found.recovered(vec![acceptor()], Nanos(lease));
    let recovered = View { wait: planted.unwrap_or(recovered.wait), ..recovered };
    let machine = run.machine(NEW.0, Some(recovered.clone()));
    run.add(NEW.0, machine);
    if !asks_it {
        run.cut(given_up);
    }
    run.run_below(4 * LEASE);
    // A minority comes back, with its memory and without a message: its host shows the view in its
    // region.
    let old = run.rng.below(u64::from(COORDINATORS)) as u32;
    let own = run.world.machine(old).view().as_ref().clone();
    let machine = run.machine(old, Some(own));
    run.world.restart(old, machine, true);
    marks.came_back += 1;
    run.until("the one that came back hears that it was given up", |run| run.world.machine(old).is_retired());
    let rest: Vec<u32> = Run::agents().filter(|node| asks_it || *node != given_up).collect();
    run.until("agents act again", |run| {
        let view = run.world.machine(NEW.0).view();
        let acts = |node: &u32| run.holds(*node).is_some_and(|held| held > recovered.id);
        rest.iter().all(acts) && rest.iter().all(|node| run.world.machine(*node).view().id == view.id)
    });
    run.run_for(4 * LONG_LEASE);
    if !asks_it {
        assert!(run.world.machine(given_up).view().id < recovered.id, "it is cut off");
        assert_eq!(run.holds(given_up), None, "seed {seed}: nobody renews its lease");
        marks.shut_out += 1;
    }
    run.ends_well(old, seed);
    run.overlap
}

#[test]
fn no_retired_process_acts_beside_the_recovered_cluster() {
    let mut marks = Marks::default();
    for seed in 0..SEEDS {
        let overlap = run(seed, None, &mut marks);
        assert_eq!(overlap, None);
    }
    let Marks { held, held_unknown, held_long, came_back, shut_out } = marks;
    println!(
        "of {SEEDS} runs: {held} leases ran when the new coordinator began, {held_unknown} on views that the operator did \
         not know, {held_long} long ones; {came_back} came back, {shut_out} agents stayed out"
    );
    for (what, count) in [("held", held), ("unknown", held_unknown), ("long", held_long), ("out", shut_out)] {
        assert!(count > 0, "{what}: no run comes there");
    }
}

#[test]
fn a_recovered_view_that_does_not_wait_or_not_for_the_long_leases_is_found_out() {
    for wait in [0, LEASE * 2] {
        let found = (0..SEEDS).find_map(|seed| run(seed, Some(Nanos(wait)), &mut Marks::default()));
        assert!(found.is_some(), "nothing shows that a recovered view waits for {wait} ns only");
    }
}
