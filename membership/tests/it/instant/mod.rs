//! A cluster whose fabric acts instantly: no latency, and no loss unless requested. Time moves only
//! from one deadline to the next. For statements that do not depend on interleavings.

#![allow(dead_code, reason = "each test crate uses a part")]
#![expect(unreachable_pub, reason = "shared by test crates")]

use obol_fabric::metrics::{CounterSlot, HistogramSlot};
use obol_fabric::recorder::{EventCode, Record as FabricRecord};
use obol_fabric::*;
use obol_membership::consensus::{SlotState, SlotWord};
use obol_membership::metrics::{Counter, Histogram};
use obol_membership::recorder::{EventKind, Record};
use obol_membership::{ActiveMutant, Config, Coordinator, Kind, Member, Start, Timing, View, poll};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub const TIMING: Timing = Timing {
    lease: Nanos(1_000_000),
    lease_max: Nanos(1_000_000),
    lease_calm: Nanos(10_000_000),
    renew_every: Nanos(300_000),
    renew_timeout: Nanos(300_000),
    cache_lease: Nanos(1_200_000),
    cache_timeout: Nanos(100_000),
    fan_out_from: 3,
    drift_ppm: 200,
    fencing: true,
    heartbeat_every: Nanos(100_000),
    heartbeat_period: Nanos(500_000),
    heartbeat_confirm: 3,
    link_watch: false,
    link_every: Nanos(1_000_000),
    link_timeout: Nanos(4_000_000),
    notice_after: Nanos(50_000),
    notice_every: Nanos(200_000),
    join_every: Nanos(500_000),
    join_burst: 1,
    join_window: Nanos::ZERO,
    join_hold: Nanos::ZERO,
    join_hold_max: Nanos::ZERO,
    join_pause: Nanos::ZERO,
    standby: Nanos(5_000_000),
    poll_every: Nanos(1_000_000),
    backoff_max: Nanos(100_000),
    announce_hold: Nanos::ZERO,
    resync_after: Nanos(100_000_000),
    replace: false,
    replace_after: Nanos::ZERO,
    replace_pause: Nanos::ZERO,
};

pub const LIMITS: Limits = Limits {
    seats: 4,
    proposers: 3,
    value_bytes: 4096,
    datagram_bytes: 4096,
    recorder_events: 64,
    ..Limits::LEAST
};

#[derive(Clone)]
pub enum Role {
    Coordinator(Box<Coordinator>),
    Member(Box<Member>),
}

/// The same expression of a machine of either role.
macro_rules! of_either {
    ($role:expr, $machine:ident => $of:expr) => {
        match $role {
            Role::Coordinator($machine) => $of,
            Role::Member($machine) => $of,
        }
    };
}

pub enum Happening {
    Completion(Token, Result<Vec<u8>, LinkError>, Done),
    Datagram(Address, Vec<u8>),
    Death(Address, Evidence),
    Seat(u16, SeatRequest),
}

#[derive(Clone, Copy)]
pub enum Done {
    Read,
    Written,
    Swapped(u64),
}

pub struct Node {
    pub address: Address,
    pub role: Role,
    pub memory: Arc<[AtomicU64]>,
    pub alive: bool,
    pub frozen: bool,
    pub inbox: VecDeque<Happening>,
    watches: Vec<Address>,
    pub records: Vec<Record>,
    pub counters: Vec<(Counter, u64)>,
    pub spans: Vec<(Histogram, Nanos)>,
    pub seats: Vec<(u16, SeatStatus)>,
}

pub struct Cluster {
    pub config: Config,
    pub genesis: Arc<View>,
    pub now: Instant,
    pub nodes: Vec<Node>,
    pub lose_multicast: bool,
    /// Cut directions, from and to.
    pub cuts: Vec<(usize, usize)>,
    /// The nodes at which the CASes of a node fail, from and to.
    pub lost_swaps: Vec<(usize, usize)>,
    /// CASes whose answers are on the way for ever, from and to, with their number so far.
    pub slow_swaps: Vec<(usize, usize, usize)>,
    /// Nodes that the others cannot reach, though these reach them: over IP, their gateway is gone.
    pub closed: Vec<usize>,
    /// Connections that cannot be made, from and to: operations and datagrams fail in this direction,
    /// while those of the other one, and their answers, pass.
    pub refused: Vec<(usize, usize)>,
    /// Seats with running programs: agent's region and seat. As over shared memory, the region of a dead
    /// agent is reached through them.
    pub programs: Vec<Address>,
    seed: u64,
}

/// The posts of one step, executed at its end.
pub struct Posts<'a> {
    now: Instant,
    address: Address,
    layout: Layout,
    memory: &'a [AtomicU64],
    posts: Vec<Post>,
    watches: &'a mut Vec<Address>,
    records: &'a mut Vec<Record>,
    counters: &'a mut Vec<(Counter, u64)>,
    spans: &'a mut Vec<(Histogram, Nanos)>,
    seats: &'a mut Vec<(u16, SeatStatus)>,
}

enum Post {
    Read(Remote, u32, Token),
    Write(Remote, Vec<u8>, Token),
    Cas(Remote, u64, u64, Token),
    Send(Address, Vec<u8>),
    Multicast(Group, Vec<u8>),
    Watch(Address),
}

impl Fabric for Posts<'_> {
    fn address(&self) -> Address {
        self.address
    }
    fn read(&mut self, from: Remote, len: u32, token: Token) {
        self.posts.push(Post::Read(from, len, token));
    }
    fn write(&mut self, to: Remote, bytes: &[u8], token: Token) {
        self.posts.push(Post::Write(to, bytes.to_vec(), token));
    }
    fn cas(&mut self, at: Remote, expected: u64, desired: u64, token: Token) {
        self.posts.push(Post::Cas(at, expected, desired, token));
    }
    fn permit(&mut self, _: Writers, _: Range<u32>, _: Permission, _: Token) {
        unreachable!("the membership changes no permissions");
    }
    fn send(&mut self, to: Address, bytes: &[u8]) {
        self.posts.push(Post::Send(to, bytes.to_vec()));
    }
    fn multicast(&mut self, group: Group, bytes: &[u8]) {
        self.posts.push(Post::Multicast(group, bytes.to_vec()));
    }
    fn watch(&mut self, whom: Address) {
        self.watches.push(whom);
        self.posts.push(Post::Watch(whom));
    }
    fn unwatch(&mut self, whom: Address) {
        self.watches.retain(|w| *w != whom);
    }
    fn publish_page(&mut self, page: &Page) {
        let words = memory::span(self.memory, self.layout.page(), page::WORDS * 8).expect("a page");
        page::publish(words.try_into().expect("a page"), page);
    }
    fn publish_view(&mut self, id: ViewId, bytes: &[u8]) {
        let head = self.layout.view();
        let at = head + size_of::<layout::ViewHead>() as u32;
        memory::copy_in(memory::span(self.memory, at, bytes.len()).expect("room for a view"), bytes);
        let at = head + std::mem::offset_of!(layout::ViewHead, id_plus_one) as u32;
        word(self.memory, at).store(id.0 + 1, Ordering::Relaxed);
    }
    fn publish_cleared(&mut self, base: ViewId) {
        let at = self.layout.view() + std::mem::offset_of!(layout::ViewHead, cleared) as u32;
        word(self.memory, at).fetch_max(base.0, Ordering::Relaxed);
    }
    fn publish_incarnation(&mut self, _: Incarnation) {}
    fn publish_unreachable(&mut self, coordinators: u64) {
        word(self.memory, self.layout.unreachable()).store(coordinators, Ordering::Relaxed);
    }
    fn publish_seat(&mut self, seat: u16, status: SeatStatus) {
        self.seats.push((seat, status));
    }
    fn record(&mut self, record: FabricRecord<impl Into<EventCode>>) {
        let kind = EventKind::try_from(record.kind.into()).expect("a kind of the protocol's");
        self.records.push(Record { kind, reason: record.reason, a: record.a, b: record.b });
    }
    fn count(&mut self, counter: impl Into<CounterSlot>, by: u64) {
        let counter = Counter::try_from(counter.into()).expect("a counter of the protocol's");
        self.counters.push((counter, by));
    }
    fn observe(&mut self, histogram: impl Into<HistogramSlot>, span: Nanos) {
        let histogram = Histogram::try_from(histogram.into()).expect("a histogram of the protocol's");
        self.spans.push((histogram, span));
    }
    /// Posts take no time.
    fn observe_since(&mut self, histogram: impl Into<HistogramSlot>, begin: Instant) {
        self.observe(histogram, self.now.since(begin));
    }
}

fn word(memory: &[AtomicU64], offset: u32) -> &AtomicU64 {
    &memory::span(memory, offset, 8).expect("in bounds")[0]
}

/// A program's request to join.
pub fn join(called: &str, token: u64, address: Address) -> SeatRequest {
    SeatRequest::Join {
        name: Name::new(called).expect("a name"),
        token,
        address,
        progress_within: Nanos::ZERO,
        release: Release::THIS,
    }
}

impl Cluster {
    pub fn new(coordinators: u32, mutant: ActiveMutant) -> Self {
        Self::with_room(coordinators, coordinators.max(3), mutant)
    }

    /// A cluster in which coordinators can be added, up to `proposers`.
    pub fn with_room(coordinators: u32, proposers: u32, mutant: ActiveMutant) -> Self {
        Self::with_timing(coordinators, proposers, TIMING, mutant)
    }

    /// The same with other durations.
    pub fn with_timing(coordinators: u32, proposers: u32, timing: Timing, mutant: ActiveMutant) -> Self {
        let layout = Layout::new(Limits { proposers, ..LIMITS }).expect("in bounds");
        let config = Config { release: Release::THIS, timing, layout, mutant };
        let of = |n: u32| {
            (
                Name::new(&format!("coord-{n}")).expect("a name"),
                Address { generation: 1, ..Address::region(n) },
            )
        };
        let seats: Vec<(Name, Address)> = (1..=coordinators).map(of).collect();
        let genesis = Arc::new(View::genesis(&seats, TIMING.lease, TIMING.cache_lease));
        let mut cluster = Self {
            config,
            genesis,
            now: Instant(1_000),
            nodes: Vec::new(),
            lose_multicast: false,
            cuts: Vec::new(),
            lost_swaps: Vec::new(),
            slow_swaps: Vec::new(),
            closed: Vec::new(),
            refused: Vec::new(),
            programs: Vec::new(),
            seed: 1,
        };
        for n in 1..=coordinators {
            let genesis = Arc::clone(&cluster.genesis);
            let machine = Start::new(config, &genesis, [], u64::from(n)).coordinator(n as u16);
            cluster.add(of(n).1, Role::Coordinator(Box::new(machine)), None);
        }
        cluster
    }

    /// With the agents `node-1` and so on, and all of them members.
    pub fn with_agents(mut self, agents: usize) -> Self {
        for n in 1..=agents {
            self.add_member(Kind::Agent, &format!("node-{n}"));
        }
        self.run(Nanos::from_millis(5));
        self
    }

    /// The view that all running processes know.
    pub fn newest(&self) -> ViewId {
        let views = self.nodes.iter().enumerate().filter(|(_, n)| n.alive && !n.frozen);
        let ids: Vec<ViewId> = views.map(|(at, _)| self.view(at).id).collect();
        assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "they know different views: {ids:?}");
        ids[0]
    }

    fn add(&mut self, address: Address, role: Role, memory: Option<Arc<[AtomicU64]>>) -> usize {
        let zeroed = || memory::zeroed(self.config.layout.bytes()).into();
        self.nodes.push(Node {
            address,
            role,
            memory: memory.unwrap_or_else(zeroed),
            alive: true,
            frozen: false,
            inbox: VecDeque::new(),
            watches: Vec::new(),
            records: Vec::new(),
            counters: Vec::new(),
            spans: Vec::new(),
            seats: Vec::new(),
        });
        let at = self.nodes.len() - 1;
        self.act(at, |role, now, fabric| of_either!(role, m => m.start(now, fabric)));
        self.settle();
        at
    }

    pub fn add_member(&mut self, kind: Kind, name: &str) -> usize {
        self.seed += 1;
        let address = Address { generation: 1, ..Address::region(100 + self.nodes.len() as u32) };
        let name = Name::new(name).expect("a name");
        let machine = Start::new(self.config, &self.genesis, [], self.seed * 7919).member(kind, name);
        self.add(address, Role::Member(Box::new(machine)), None)
    }

    /// Starts a new coordinator, from the newest view known to any process.
    pub fn add_coordinator(&mut self, number: u16) -> usize {
        self.seed += 1;
        let address = Address { generation: 1, ..Address::region(u32::from(number)) };
        let machine = self.start().coordinator(number);
        self.add(address, Role::Coordinator(Box::new(machine)), None)
    }

    /// Starts the first coordinator of this number from a view: of an operator's recovery, for
    /// example. The nodes of `apart` and this one do not reach each other.
    pub fn add_coordinator_from(&mut self, number: u16, view: &View, apart: &[usize]) -> usize {
        self.seed += 1;
        let at = self.nodes.len();
        self.cut_off(at, apart);
        let address = Address { generation: 1, ..Address::region(u32::from(number)) };
        let machine =
            Start::new(self.config, &self.genesis, [view.clone()], self.seed * 104_729).coordinator(number);
        self.add(address, Role::Coordinator(Box::new(machine)), None)
    }

    /// Cuts a node off from these, in both directions.
    pub fn cut_off(&mut self, at: usize, from: &[usize]) {
        self.cuts.extend(from.iter().flat_map(|&other| [(at, other), (other, at)]));
    }

    /// Ends a coordinator, and starts its next life from this view, which its region shows from
    /// then on.
    pub fn restart_coordinator_from(&mut self, at: usize, view: &View) {
        self.nodes[at].alive = false;
        self.nodes[at].inbox.clear();
        let body = self.config.layout.view() + size_of::<layout::ViewHead>() as u32;
        let id = self.config.layout.view() + std::mem::offset_of!(layout::ViewHead, id_plus_one) as u32;
        self.overwrite(at, body, &view.to_frame());
        self.overwrite(at, id, &(view.id.0 + 1).to_le_bytes());
        self.seed += 1;
        let start = Start::new(self.config, &self.genesis, [view.clone()], self.seed * 104_729);
        self.next_life(at, start);
    }

    /// Sends a datagram from outside the cluster to one process.
    pub fn send_to(&mut self, at: usize, bytes: &[u8]) {
        self.nodes[at].inbox.push_back(Happening::Datagram(Address::region(200), bytes.to_vec()));
    }

    /// Sends a datagram from outside the cluster to every running coordinator.
    pub fn send_to_coordinators(&mut self, bytes: &[u8]) {
        for node in self.nodes.iter_mut().filter(|n| n.alive && matches!(n.role, Role::Coordinator(_))) {
            node.inbox.push_back(Happening::Datagram(Address::region(200), bytes.to_vec()));
        }
    }

    /// Sends a datagram from outside the cluster to every running process.
    pub fn send_to_all(&mut self, bytes: &[u8]) {
        for node in self.nodes.iter_mut().filter(|n| n.alive) {
            node.inbox.push_back(Happening::Datagram(Address::region(200), bytes.to_vec()));
        }
    }

    /// Writes whole words into a process's memory, as far as they are within it.
    pub fn overwrite(&mut self, at: usize, offset: u32, bytes: &[u8]) {
        if let Some(words) = memory::span(&self.nodes[at].memory, offset, bytes.len()) {
            memory::copy_in(words, bytes);
        }
    }

    pub fn restart_coordinator(&mut self, at: usize) {
        assert!(!self.nodes[at].alive);
        self.seed += 1;
        self.next_life(at, self.start());
    }

    fn next_life(&mut self, at: usize, start: Start) {
        let mut address = self.nodes[at].address;
        address.generation += 1;
        let machine = start.coordinator(address.region as u16);
        let old = self.nodes.remove(at);
        let new = self.add(address, Role::Coordinator(Box::new(machine)), Some(old.memory));
        let node = self.nodes.remove(new);
        self.nodes.insert(at, node);
    }

    /// The start of a process that finds all coordinators' regions on its host.
    fn start(&self) -> Start {
        let regions = self.nodes.iter().filter(|n| matches!(n.role, Role::Coordinator(_)));
        let found = regions.filter_map(|node| {
            let layout = self.config.layout;
            let area = memory::span(&node.memory, layout.view(), layout.view_bytes() as usize);
            let mut bytes = vec![0; layout.view_bytes() as usize];
            memory::copy_out(area.expect("a view area"), &mut bytes);
            poll::decode_view_area(&bytes)
        });
        Start::new(self.config, &self.genesis, found, self.seed * 104_729)
    }

    /// Calls a machine, as its driver may.
    pub fn act(&mut self, at: usize, act: impl FnOnce(&mut Role, Instant, &mut Posts<'_>)) {
        let now = self.now;
        let layout = self.config.layout;
        let node = &mut self.nodes[at];
        let memory = Arc::clone(&node.memory);
        let mut posts = Posts {
            now,
            address: node.address,
            layout,
            memory: &memory,
            posts: Vec::new(),
            watches: &mut node.watches,
            records: &mut node.records,
            counters: &mut node.counters,
            spans: &mut node.spans,
            seats: &mut node.seats,
        };
        act(&mut node.role, now, &mut posts);
        let posts = posts.posts;
        for post in posts {
            self.carry_out(at, post);
        }
    }

    fn target(&self, at: Address) -> Result<usize, LinkError> {
        let node = self.nodes.iter().position(|n| n.address.owner() == at.owner());
        let node = node.ok_or(LinkError::PeerDead)?;
        if !self.nodes[node].alive {
            return if self.programs.contains(&at) { Ok(node) } else { Err(LinkError::PeerDead) };
        }
        let same = at.seat != 0 || at.generation == 0 || at.generation == self.nodes[node].address.generation;
        if same { Ok(node) } else { Err(LinkError::PeerReplaced) }
    }

    fn is_blocked(&self, from: usize, to: usize) -> bool {
        let closed = from != to && self.closed.contains(&to);
        closed || self.cuts.contains(&(from, to)) || self.refused.contains(&(from, to))
    }

    /// The target of an operation, which needs both directions.
    fn linked(&self, from: usize, at: Address) -> Result<usize, LinkError> {
        let to = self.target(at)?;
        if self.is_blocked(from, to) || self.cuts.contains(&(to, from)) {
            Err(LinkError::PeerDead)
        } else {
            Ok(to)
        }
    }

    fn carry_out(&mut self, from: usize, post: Post) {
        match post {
            Post::Read(r, len, token) => {
                let read = self.linked(from, r.at).map(|to| {
                    let mut out = vec![0; len as usize];
                    let words = memory::span(&self.nodes[to].memory, r.offset, len as usize);
                    memory::copy_out(words.expect("in bounds"), &mut out);
                    out
                });
                self.nodes[from].inbox.push_back(Happening::Completion(token, read, Done::Read));
            }
            Post::Write(r, bytes, token) => {
                let wrote = self.linked(from, r.at).map(|to| {
                    let words = memory::span(&self.nodes[to].memory, r.offset, bytes.len());
                    memory::copy_in(words.expect("in bounds"), &bytes);
                    Vec::new()
                });
                self.nodes[from].inbox.push_back(Happening::Completion(token, wrote, Done::Written));
            }
            Post::Cas(r, expected, desired, token) => {
                let linked = self.linked(from, r.at);
                let is_slow = |slow: &&mut (usize, usize, usize)| linked == Ok(slow.1) && slow.0 == from;
                if let Some((.., count)) = self.slow_swaps.iter_mut().find(is_slow) {
                    *count += 1;
                    return;
                }
                let linked = linked.and_then(|to| match self.lost_swaps.contains(&(from, to)) {
                    true => Err(LinkError::PeerDead),
                    false => Ok(to),
                });
                let found = linked.map(|to| {
                    let word = word(&self.nodes[to].memory, r.offset);
                    match word.compare_exchange(expected, desired, Ordering::AcqRel, Ordering::Acquire) {
                        Ok(found) | Err(found) => found,
                    }
                });
                let done = Done::Swapped(found.unwrap_or_default());
                let result = found.map(|_| Vec::new());
                self.nodes[from].inbox.push_back(Happening::Completion(token, result, done));
            }
            Post::Send(to, bytes) => {
                if let Ok(to) = self.target(to.owner())
                    && !self.is_blocked(from, to)
                {
                    let from = self.nodes[from].address;
                    self.nodes[to].inbox.push_back(Happening::Datagram(from, bytes));
                }
            }
            Post::Multicast(group, bytes) => {
                if self.lose_multicast {
                    return;
                }
                let sender = self.nodes[from].address;
                let blocked: Vec<bool> = (0..self.nodes.len()).map(|to| self.is_blocked(from, to)).collect();
                for (at, node) in self.nodes.iter_mut().enumerate() {
                    let hears = group == Group::Everyone || matches!(node.role, Role::Coordinator(_));
                    if at != from && node.alive && hears && !blocked[at] {
                        node.inbox.push_back(Happening::Datagram(sender, bytes.clone()));
                    }
                }
            }
            Post::Watch(whom) => {
                let dead = whom.seat == 0 && self.target(whom).is_err();
                if dead && self.nodes.iter().any(|n| n.address.owner() == whom.owner()) {
                    self.nodes[from].inbox.push_back(Happening::Death(whom, Evidence::Suspicion));
                }
            }
        }
    }

    /// Runs until nothing more happens at this instant.
    pub fn settle(&mut self) {
        self.settle_beside(&mut |_| {});
    }

    fn settle_beside(&mut self, beside: &mut impl FnMut(&Self)) {
        for _ in 0..100_000 {
            if !self.deliver() {
                return;
            }
            beside(self);
        }
        panic!("the cluster does not come to rest");
    }

    /// Delivers one event; false if nothing more happens at this instant.
    pub fn deliver(&mut self) -> bool {
        let busy = |n: &Node| n.alive && !n.frozen && !n.inbox.is_empty();
        let Some(at) = self.nodes.iter().position(busy) else { return false };
        let happening = self.nodes[at].inbox.pop_front().expect("not empty");
        self.act(at, |role, now, fabric| {
            let event = match &happening {
                Happening::Completion(token, result, done) => Event::Completion {
                    token: *token,
                    result: match (result, done) {
                        (Err(error), _) => Err(*error),
                        (Ok(bytes), Done::Read) => Ok(Completion::Read(bytes)),
                        (Ok(_), Done::Written) => Ok(Completion::Written),
                        (Ok(_), Done::Swapped(found)) => Ok(Completion::Swapped(*found)),
                    },
                },
                Happening::Datagram(from, bytes) => Event::Datagram { from: *from, bytes },
                Happening::Death(who, evidence) => Event::Death { who: *who, evidence: *evidence },
                Happening::Seat(seat, request) => Event::Seat { seat: *seat, request: *request },
            };
            of_either!(role, m => m.handle(now, event, fabric));
        });
        true
    }

    /// Lets time pass, from deadline to deadline.
    pub fn run(&mut self, span: Nanos) {
        self.run_beside(span, |_| {});
    }

    /// As [`Cluster::run`], with a callback after every event.
    pub fn run_beside(&mut self, span: Nanos, mut beside: impl FnMut(&Self)) {
        let end = self.now + span;
        for _ in 0..1_000_000 {
            self.settle_beside(&mut beside);
            for node in self.nodes.iter().filter(|n| n.alive && !n.frozen) {
                word(&node.memory, self.config.layout.heartbeat(0)).store(self.now.0, Ordering::Relaxed);
            }
            for program in &self.programs {
                let node = self.nodes.iter().find(|n| n.address.region == program.region).expect("its agent");
                let offset = self.config.layout.heartbeat(program.seat);
                word(&node.memory, offset).store(self.now.0, Ordering::Relaxed);
            }
            let live = (0..self.nodes.len()).filter(|&at| self.nodes[at].alive && !self.nodes[at].frozen);
            let deadline = |at: usize| of_either!(&self.nodes[at].role, m => m.deadline());
            let (due, next) = live.map(|at| (deadline(at), at)).min().expect("somebody lives");
            if due > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(due);
            self.act(next, |role, now, fabric| of_either!(role, m => m.tick(now, fabric)));
            beside(self);
        }
        panic!("time does not pass: some deadline stays in the past");
    }

    pub fn kill(&mut self, at: usize) {
        self.nodes[at].alive = false;
        self.nodes[at].inbox.clear();
        let dead = self.nodes[at].address;
        self.report(dead, Evidence::Suspicion);
        self.report(dead, Evidence::Proof);
    }

    pub fn report(&mut self, dead: Address, evidence: Evidence) {
        self.programs.retain(|p| *p != dead);
        for node in self.nodes.iter_mut().filter(|n| n.alive && n.watches.contains(&dead)) {
            node.inbox.push_back(Happening::Death(dead, evidence));
        }
    }

    /// Makes the watchers of these nodes find their host silent.
    pub fn silence(&mut self, hosts: &[usize], watchers: &[usize]) {
        for &host in hosts {
            let who = self.nodes[host].address;
            for &at in watchers {
                let node = &mut self.nodes[at];
                if node.watches.contains(&who) {
                    node.inbox.push_back(Happening::Death(who, Evidence::Silence));
                }
            }
        }
    }

    pub fn seat(&mut self, at: usize, seat: u16, request: SeatRequest) {
        self.nodes[at].inbox.push_back(Happening::Seat(seat, request));
    }

    pub fn view(&self, at: usize) -> &View {
        of_either!(&self.nodes[at].role, m => m.view())
    }

    pub fn incarnation(&self, at: usize) -> Option<Incarnation> {
        of_either!(&self.nodes[at].role, m => m.incarnation())
    }

    pub fn is_leading(&self, at: usize) -> bool {
        matches!(&self.nodes[at].role, Role::Coordinator(c) if c.is_leading())
    }

    fn page(&self, at: usize) -> &[AtomicU64; page::WORDS] {
        let words = memory::span(&self.nodes[at].memory, self.config.layout.page(), page::WORDS * 8);
        words.expect("a page").try_into().expect("a page")
    }

    pub fn fence(&self, at: usize) -> ViewId {
        page::fenced(self.page(at))
    }

    pub fn is_active(&self, at: usize, view: ViewId) -> bool {
        page::active(self.page(at), view, || self.now)
    }

    /// The word of a slot in a coordinator's memory.
    pub fn slot(&self, at: usize, slot: ViewId) -> &AtomicU64 {
        word(&self.nodes[at].memory, self.config.layout.slot(slot.0))
    }

    /// What it says of that slot; `None` if it is of another lap.
    pub fn slot_state(&self, at: usize, slot: ViewId) -> Option<SlotState> {
        SlotWord::from_raw(self.slot(at, slot).load(Ordering::Relaxed)).state(slot)
    }

    pub fn freeze(&mut self, nodes: impl IntoIterator<Item = usize>) {
        nodes.into_iter().for_each(|at| self.nodes[at].frozen = true);
    }

    /// A program takes a seat of an agent, with this generation, and asks to join.
    pub fn ask(&mut self, agent: usize, seat: u16, generation: u32, called: &str, token: u64) -> Address {
        let address = Address { seat, generation, ..self.nodes[agent].address };
        self.programs.push(address);
        self.seat(agent, seat, join(called, token, address));
        address
    }

    /// A program ends, as far as its agent can tell.
    pub fn end_program(&mut self, program: Address) {
        self.programs.retain(|address| *address != program);
        self.report(program, Evidence::Suspicion);
    }

    pub fn counted(&self, at: usize, counter: Counter) -> u64 {
        self.nodes[at].counters.iter().filter(|(c, _)| *c == counter).map(|(_, n)| n).sum()
    }
}
