//! What the processes of a cluster notice of a gateway that dies, freezes or comes back.

use crate::hosts::Plan;
use crate::keys::Authority;
use crate::support::{Child, FLOOD, FLOOD_WORDS, Probe, Root, Seen, coordinator, kill, live, name, until};
use obol_fabric::host::{Attachment, Cluster, clock};
use obol_fabric::{
    Address, Endpoint, Event, Evidence, Fabric, Instant, LinkError, Machine, Nanos, Permission, Remote,
    Token, Wait, Writers,
};
use obol_fabric_ip::{Config, Ip};
use std::sync::atomic::Ordering;

pub(crate) const PEER: u32 = 2;
/// Turns of the loop until the peer is asked again to WRITE.
const ASK_EVERY: u32 = 200;

/// Two hosts: a driven coordinator on the first, a peer on the second.
pub(crate) struct Bed {
    pub(crate) me: Endpoint,
    pub(crate) probe: Probe,
    peer: Child,
    gateways: [Option<Child>; 2],
    plan: Plan,
    pub(crate) clusters: [Cluster; 2],
    roots: [Root; 2],
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self::with(Plan::new())
    }

    pub(crate) fn with(plan: Plan) -> Self {
        let authority = Authority::new();
        let roots = [Root::new(), Root::new()];
        let clusters = [1, 2].map(|host| plan.host(&authority, &roots[usize::from(host) - 1], host));
        let gateways = [0, 1].map(|n| Some(plan.gateway(&clusters[n], &roots[n])));
        let me = plan.open(&clusters[0], &roots[0], coordinator("me", 1));
        let peer = plan.child(&roots[1], "echo", "peer", Some(PEER));
        live(&clusters[1], "peer");
        let mut bed = Self { me, probe: Probe::default(), peer, gateways, plan, clusters, roots };
        bed.reach();
        bed
    }

    fn read(&mut self) -> Result<Seen, LinkError> {
        self.probe.completions.clear();
        self.me.read(Remote { at: Address::region(PEER), offset: 0 }, 8, Token(1));
        self.me.flush();
        until(&mut self.me, &mut self.probe, |probe| !probe.completions.is_empty());
        self.probe.completions[0].1.clone()
    }

    /// READs until there is an answer.
    pub(crate) fn reach(&mut self) {
        let start = std::time::Instant::now();
        while self.read().is_err() {
            assert!(
                start.elapsed() < crate::support::HANG,
                "{:?}",
                self.me.transport::<Ip>().expect("its transport").link_status()
            );
            self.me.poll_once(&mut self.probe);
        }
    }

    pub(crate) fn gateway(&self, host: usize) -> &Child {
        self.gateways[host - 1].as_ref().expect("it runs")
    }

    pub(crate) fn address(&self, host: u8) -> std::net::IpAddr {
        self.plan.address(host)
    }

    pub(crate) fn kill_peer(&mut self) {
        self.peer.0.kill().expect("killed");
    }

    /// A process of the first host that greets the driven one.
    pub(crate) fn neighbour(&self) -> Child {
        self.plan.child(&self.roots[0], "greet", "neighbour", None)
    }

    /// Waits until both gateways have heard each other's pulses.
    pub(crate) fn until_heard(&mut self) {
        let heard = [0, 1].map(|n| self.roots[n].join(crate::hosts::HEARD));
        until(&mut self.me, &mut self.probe, |_| heard.iter().all(|file| file.exists()));
    }

    fn restart_gateway(&mut self) {
        self.start_gateway(2);
    }

    fn start_gateway(&mut self, host: usize) {
        self.gateways[host - 1] = Some(self.plan.gateway(&self.clusters[host - 1], &self.roots[host - 1]));
    }

    /// Turns the loop of the driven process until something holds.
    fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let start = std::time::Instant::now();
        while !done(self) {
            assert!(start.elapsed() < crate::support::HANG, "this hangs");
            self.me.poll_once(&mut self.probe);
        }
    }

    /// Where the peer WRITEs into the region of the driven process, and what is there.
    fn flooded(&self) -> (u32, Vec<u64>) {
        let at = self.clusters[0].layout().value(0, 1);
        let words = self.me.own(at, FLOOD_WORDS * 8).expect("words of the own region");
        (at, words.iter().map(|word| word.load(Ordering::Relaxed)).collect())
    }

    /// Asks the peer to WRITE there again and again, until something holds.
    fn flood_until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        let flood = [FLOOD, &self.flooded().0.to_le_bytes()].concat();
        let mut turns = 0_u32;
        self.until(|bed| {
            if turns.is_multiple_of(ASK_EVERY) {
                bed.me.send(Address::region(PEER), &flood);
                bed.me.flush();
            }
            turns += 1;
            done(bed)
        });
    }

    /// Returns when the peer's WRITEs are executed.
    fn until_flooded(&mut self) {
        let before = self.flooded().1;
        self.flood_until(|bed| bed.flooded().1 != before);
    }

    /// Returns when the peer has WRITten again, whether or not that was executed: it answers before it
    /// WRITEs, and on one connection, so what it wrote before its last answer has been handled.
    fn until_tried(&mut self) {
        self.probe.datagrams.clear();
        self.flood_until(|bed| bed.probe.datagrams.len() > 3);
    }

    /// Changes the peer's permission. Returns what it had written when that was in force.
    fn permit(&mut self, permission: Permission) -> Vec<u64> {
        self.post_permit(permission);
        self.until(|bed| bed.probe.at_permit.is_some());
        self.probe.at_permit.take().expect("it is in force").to_vec()
    }

    fn post_permit(&mut self, permission: Permission) {
        self.probe.completions.clear();
        (self.probe.watched, self.probe.at_permit) = (self.flooded().0, None);
        let peer = Writers::Process(Address::region(PEER));
        self.me.permit(peer, 0..u32::MAX, permission, Token(9));
        self.me.flush();
    }
}

/// Posts an operation on the own host when the first completion of a round comes, some time after it.
#[derive(Default)]
struct PostsLate {
    completed: u32,
    posted: Option<Instant>,
    dated: Option<Instant>,
}

impl PostsLate {
    /// READs of the peer in a round, so that several completions are pending at once.
    const READS: u32 = 8;
    const LOCAL: Token = Token(7);
    const LATER: Nanos = Nanos::from_micros(200);
}

impl Machine for PostsLate {
    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        match event {
            Event::Completion { token: Self::LOCAL, .. } => self.dated = Some(now),
            Event::Completion { .. } => {
                self.completed += 1;
                if self.posted.is_none() {
                    while clock::now() < now + Self::LATER {
                        std::hint::spin_loop();
                    }
                    self.posted = Some(clock::now());
                    fabric.read(Remote { at: fabric.address(), offset: 0 }, 8, Self::LOCAL);
                }
            }
            _ => {}
        }
    }
}

/// A coordinator counts leases from when it learns of a decision, which must not be before the decision:
/// completions that share a reading of the clock are those that were pending then.
#[test]
fn no_completion_is_dated_before_its_operation_was_posted() {
    let mut bed = Bed::new();
    for _ in 0..20 {
        let mut late = PostsLate::default();
        for n in 0..PostsLate::READS {
            bed.me.read(Remote { at: Address::region(PEER), offset: 0 }, 8, Token(100 + u64::from(n)));
        }
        bed.me.flush();
        let start = std::time::Instant::now();
        while late.completed < PostsLate::READS || late.dated.is_none() {
            assert!(start.elapsed() < crate::support::HANG, "this hangs");
            bed.me.poll_once(&mut late);
        }
        assert!(late.dated >= late.posted, "{:?}, posted at {:?}", late.dated, late.posted);
    }
}

#[test]
fn who_starts_before_the_gateway_of_another_host_waits_for_it() {
    let (plan, authority) = (Plan::new(), Authority::new());
    let roots = [Root::new(), Root::new()];
    let clusters = [1, 2].map(|host| plan.host(&authority, &roots[usize::from(host) - 1], host));
    // It waits for as long as the bound of detection, which is longer than any start takes.
    let config = Config { detection: Nanos::from_secs(60), ..plan.config(&roots[0]) };
    let mut me =
        obol_fabric_ip::open(&clusters[0], coordinator("me", 1), Wait::Block, &config).expect("opened");
    let _peer = plan.child(&roots[1], "echo", "peer", Some(PEER));
    let peer = live(&clusters[1], "peer");
    let mut probe = Probe::default();
    me.watch(peer);
    me.read(Remote { at: Address::region(PEER), offset: 0 }, 8, Token(1));
    me.flush();
    // Attempts fail meanwhile.
    while me.transport::<Ip>().expect("its transport").link_status()[0].trouble.is_none() {
        me.poll_once(&mut probe);
    }
    let _gateway = plan.gateway(&clusters[1], &roots[1]);
    until(&mut me, &mut probe, |probe| !probe.completions.is_empty());
    assert!(probe.completions[0].1.is_ok(), "{:?}", probe.completions);
    assert_eq!(probe.deaths, [], "nobody is suspected");
}

#[test]
fn a_gateway_that_dies_is_a_silence_and_no_death_and_its_host_is_reached_after_its_restart() {
    let mut bed = Bed::new();
    let peer = live(&bed.clusters[1], "peer");
    bed.me.watch(peer);
    bed.gateways[1] = None;
    until(&mut bed.me, &mut bed.probe, |probe| !probe.deaths.is_empty());
    assert_eq!(bed.probe.deaths, [(peer, Evidence::Silence)]);
    assert_eq!(bed.read(), Err(LinkError::PeerDead));
    bed.restart_gateway();
    bed.reach();
    // The peer lives: only its death is reported now, and again from the start.
    assert_eq!(bed.probe.deaths.len(), 1);
    bed.probe.deaths.clear();
    bed.peer.0.kill().expect("killed");
    until(&mut bed.me, &mut bed.probe, |probe| probe.deaths.len() == 2);
    assert_eq!(bed.probe.deaths, [(peer, Evidence::Suspicion), (peer, Evidence::Proof)]);
}

#[test]
fn a_process_that_dies_while_its_gateway_is_away_is_proved_dead_by_the_next_one() {
    let mut bed = Bed::new();
    let peer = live(&bed.clusters[1], "peer");
    bed.me.watch(peer);
    bed.gateways[1] = None;
    until(&mut bed.me, &mut bed.probe, |probe| !probe.deaths.is_empty());
    bed.peer.0.kill().expect("killed");
    bed.peer.0.wait().expect("waited for");
    bed.restart_gateway();
    until(&mut bed.me, &mut bed.probe, |probe| probe.deaths.last() == Some(&(peer, Evidence::Proof)));
}

#[test]
fn a_frozen_gateway_is_a_silent_host_until_it_runs_again() {
    let mut bed = Bed::new();
    let peer = live(&bed.clusters[1], "peer");
    bed.me.watch(peer);
    bed.me.flush();
    kill(bed.gateways[1].as_ref().expect("it runs"), "STOP");
    // Nothing is posted: that it is silent is noticed nevertheless.
    until(&mut bed.me, &mut bed.probe, |probe| !probe.deaths.is_empty());
    assert_eq!(bed.probe.deaths, [(peer, Evidence::Silence)]);
    assert_eq!(bed.read(), Err(LinkError::PeerDead));
    kill(bed.gateways[1].as_ref().expect("it runs"), "CONT");
    bed.reach();
    assert_eq!(bed.probe.deaths.len(), 1);
}

#[test]
fn operations_without_an_answer_fail_with_their_gateway() {
    let mut bed = Bed::new();
    kill(bed.gateways[1].as_ref().expect("it runs"), "STOP");
    bed.probe.completions.clear();
    for n in 0..100 {
        bed.me.read(Remote { at: Address::region(PEER), offset: 0 }, 8, Token(n));
    }
    bed.me.flush();
    bed.gateways[1] = None;
    until(&mut bed.me, &mut bed.probe, |probe| probe.completions.len() == 100);
    let failed = (0..100).map(|n| (Token(n), Err(LinkError::PeerDead))).collect::<Vec<_>>();
    assert_eq!(bed.probe.completions, failed);
}

#[test]
fn a_revocation_waits_for_no_dead_gateway_and_binds_the_next_one() {
    let mut bed = Bed::new();
    for _ in 0..3 {
        bed.until_flooded();
        // Whatever it was about to WRITE, it is dead.
        bed.gateways[0] = None;
        let found = bed.permit(Permission::Revoked);
        assert_eq!(bed.flooded().1, found);
        bed.start_gateway(1);
        bed.until_tried();
        assert_eq!(bed.flooded().1, found, "a revoked WRITE was executed");
        bed.permit(Permission::Granted);
    }
    bed.until_flooded();
}

#[test]
fn a_gateway_that_is_frozen_executes_no_revoked_write_afterwards() {
    let mut bed = Bed::new();
    for _ in 0..5 {
        bed.until_flooded();
        kill(bed.gateway(1), "STOP");
        // In the middle of a WRITE it holds up the revocation until it goes on.
        bed.post_permit(Permission::Revoked);
        for _ in 0..100 {
            bed.me.poll_once(&mut bed.probe);
        }
        kill(bed.gateway(1), "CONT");
        bed.until(|bed| bed.probe.at_permit.is_some());
        let found = bed.probe.at_permit.take().expect("it is in force").to_vec();
        bed.until_tried();
        assert_eq!(bed.flooded().1, found, "a revoked WRITE was executed");
        bed.permit(Permission::Granted);
    }
}

#[test]
fn processes_of_one_host_need_no_gateway() {
    let mut bed = Bed::new();
    bed.gateways = [None, None];
    let _neighbour = bed.plan.child(&bed.roots[0], "echo", "neighbour", None);
    let at = live(&bed.clusters[0], "neighbour");
    bed.me.watch(at);
    bed.me.send(at, b"hello");
    bed.me.flush();
    until(&mut bed.me, &mut bed.probe, |probe| !probe.datagrams.is_empty());
    let (from, bytes) = &bed.probe.datagrams[0];
    assert_eq!((from.region, from.port, &bytes[..]), (at.region, crate::hosts::PORT, &b"hello"[..]));
}

#[test]
fn a_member_is_known_to_other_hosts_by_the_address_of_its_gateway() {
    let mut bed = Bed::new();
    let child = bed.plan.child(&bed.roots[1], "greet", "member", None);
    until(&mut bed.me, &mut bed.probe, |probe| !probe.datagrams.is_empty());
    let (member, hello) = bed.probe.datagrams[0].clone();
    assert_eq!((member.port, &hello[..]), (crate::hosts::PORT, &b"hello"[..]));
    assert_eq!(member, Address { host: member.host, port: member.port, ..live(&bed.clusters[1], "member") });
    assert_ne!(member.host, 0);
    drop(child);
    // It is gone; what is sent to it is lost, and counted.
    bed.me.send(member, b"hello");
    bed.me.flush();
    let lost = |me: &Endpoint| {
        me.region().reader().counters(0)[obol_fabric::metrics::FabricCounter::DatagramsLost as usize]
    };
    let start = std::time::Instant::now();
    while lost(&bed.me) == 0 {
        assert!(start.elapsed() < crate::support::HANG);
        bed.me.poll_once(&mut bed.probe);
    }
}

#[test]
fn the_page_of_a_dead_agent_of_another_host_is_fenced_through_a_program_that_lives() {
    let mut bed = Bed::new();
    let child = bed.plan.child(&bed.roots[1], "greet", "agent", None);
    until(&mut bed.me, &mut bed.probe, |probe| !probe.datagrams.is_empty());
    let agent = bed.probe.datagrams[0].0;
    let program = Attachment::open(&bed.clusters[1], agent.region, name("lives"), Nanos::from_millis(1));
    let program = program.expect("seated");
    drop(child);
    let fence = bed.clusters[1].layout().fence();
    let mut raise = |at, view| {
        bed.probe.completions.clear();
        bed.me.cas(Remote { at, offset: fence }, 0, view, Token(1));
        bed.me.flush();
        until(&mut bed.me, &mut bed.probe, |probe| !probe.completions.is_empty());
        bed.probe.completions[0].1.clone()
    };
    assert!(raise(agent, 6).is_err(), "nobody is left at its own address");
    let Address { seat, generation, .. } = program.address();
    let lives = Address { seat, generation, ..agent };
    assert_eq!(raise(lives, 7), Ok(Seen::Swapped(0)));
    assert_eq!(program.region()[fence as usize / 8].load(Ordering::Relaxed), 7, "the program sees it");
    // Nobody is left in whose name it could be raised.
    drop(program);
    assert!(raise(lives, 8).is_err());
}
