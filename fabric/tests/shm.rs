//! Real processes over shared memory: the effects of kills, freezes, restarts and full lanes. The
//! victims are this test binary, started again with a role in its environment.

mod support;

use obol_fabric::host::{Attachment, Cluster, HostError, Impairment, Region, clock};
use obol_fabric::layout::DEATH_WORDS;
use obol_fabric::metrics::{CounterSlot, FabricCounter};
use obol_fabric::recorder::{EventCode, Record};
use obol_fabric::{
    Address, Completion, Endpoint, Event, Evidence, Fabric, Group, Incarnation, Instant, LinkError, Machine,
    Nanos, Page, Remote, SeatRequest, SeatStatus, Token, ViewId, Wait, page,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use support::{
    Child, HANG, LIMITS, Probe, Root, coordinator, cpu_time, kill, live, name, process, root::made, until,
};

/// The same with a process in it.
fn opened(who: &str) -> (Root, Cluster, Endpoint) {
    let (root, cluster) = made();
    let endpoint = Endpoint::open(&cluster, process(who), Wait::Block).expect("opened");
    (root, cluster, endpoint)
}

/// Where every process of these tests starts if it has a role.
#[test]
fn child() {
    support::play();
}

#[test]
fn two_processes_exchange_datagrams() {
    let (root, cluster) = made();
    let _echo = Child::start(&root, "echo", "peer", None);
    let peer = live(&cluster, "peer");
    for wait in [Wait::Block, Wait::Hybrid { yield_for: Nanos::from_micros(30) }, Wait::Spin] {
        exchange(&cluster, peer, wait);
    }
}

fn exchange(cluster: &Cluster, peer: Address, wait: Wait) {
    let mut endpoint = Endpoint::open(cluster, process("me"), wait).expect("opened");
    let mut probe = Probe::default();
    endpoint.send(peer, b"0");
    let stop = AtomicBool::new(false);
    endpoint.run(&mut probe, &stop, |probe, endpoint| {
        if let Some((from, bytes)) = probe.datagrams.pop() {
            assert_eq!(from, peer, "the full address of the sender");
            let n: u32 = String::from_utf8(bytes).expect("text").parse().expect("a number");
            endpoint.send(peer, (n + 1).to_string().as_bytes());
            stop.store(n >= 1000, Ordering::Relaxed);
        }
    });
    endpoint.multicast(Group::Everyone, b"all");
    until(&mut endpoint, &mut probe, |p| p.datagrams.iter().any(|(_, b)| b == b"all"));
    endpoint.multicast(Group::Coordinators, b"none");
    let counters = endpoint.region().reader().counters(0);
    assert_eq!(counters[FabricCounter::DatagramsLost as usize], 0);
}

#[test]
fn processes_that_sleep_are_all_woken_by_each_multicast() {
    // Members, which one call wakes, and a coordinator, which is woken later.
    const PROCESSES: usize = 4;
    const ROUNDS: u32 = 2000;
    // Longer than `until` waits: a beat does not make up for a lost wake-up.
    const BEAT: Nanos = Nanos::from_secs(2 * HANG.as_secs());
    /// Ends the others also if the sender fails.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (_root, cluster, mut sender) = opened("sender");
    let stop = AtomicBool::new(false);
    let me = sender.address();
    thread::scope(|scope| {
        for number in 0..PROCESSES {
            let (cluster, stop) = (&cluster, &stop);
            scope.spawn(move || {
                let who = if number == 0 {
                    coordinator("coord-1", 1)
                } else {
                    process(&format!("member-{number}"))
                };
                let mut endpoint = Endpoint::open(cluster, who, Wait::Block).expect("opened");
                endpoint.beat_every(BEAT);
                endpoint.send(me, b"ready");
                let mut probe = Probe::default();
                endpoint.run(&mut probe, stop, |probe, endpoint| {
                    for (from, bytes) in probe.datagrams.drain(..) {
                        endpoint.send(from, &bytes);
                    }
                });
            });
        }
        let end = End(&stop);
        let mut probe = Probe::default();
        until(&mut sender, &mut probe, |p| p.datagrams.len() == PROCESSES);
        for round in 0..ROUNDS {
            probe.datagrams.clear();
            sender.multicast(Group::Everyone, round.to_string().as_bytes());
            sender.flush();
            until(&mut sender, &mut probe, |p| p.datagrams.len() == PROCESSES);
        }
        drop(end);
        probe.datagrams.drain(..).for_each(|(from, _)| sender.send(from, b"end"));
        sender.flush();
    });
}

#[test]
fn over_a_link_that_is_cut_nothing_gets_there_and_no_answer_comes_back() {
    let (root, cluster) = made();
    let _peer = Child::start(&root, "echo", "peer", None);
    let peer = live(&cluster, "peer");
    let mut endpoint = Endpoint::open(&cluster, process("me"), Wait::Block).expect("opened");
    let me = endpoint.address();
    let mut probe = Probe::default();
    let word = Remote { at: peer, offset: cluster.layout().fence() };
    for (from, to) in [(me, peer), (peer, me)] {
        let unheard_at = u16::try_from(to.region).expect("a region");
        let one_way = Impairment { unheard_at, ..Impairment::default() };
        assert!(cluster.impair(from.region, from.generation, one_way));
        let before = probe.failures().len();
        endpoint.read(word, 8, Token(1));
        endpoint.write(word, &[7; 8], Token(2));
        endpoint.cas(word, 0, 1, Token(3));
        endpoint.poll_once(&mut probe);
        assert_eq!(probe.failures()[before..], [LinkError::PeerDead; 3]);
        endpoint.send(peer, b"0");
        assert!(cluster.impair(from.region, from.generation, Impairment::default()));
    }
    // One question got there, but its answer came while the way back was cut; or it was sent when
    // the link was whole again.
    endpoint.send(peer, b"last");
    until(&mut endpoint, &mut probe, |p| p.datagrams.iter().any(|(_, b)| b == b"last"));
    endpoint.read(word, 8, Token(4));
    endpoint.poll_once(&mut probe);
    assert_eq!(probe.read(Token(4)), Some(vec![0; 8]), "nothing was executed");
    let counters = endpoint.region().reader().counters(0);
    assert_eq!(counters[FabricCounter::DatagramsLost as usize], 1, "what was sent while nothing got there");
}

#[test]
fn over_a_slow_link_all_takes_so_long_and_stays_in_order() {
    const DELAY: Nanos = Nanos::from_millis(20);
    let (root, cluster) = made();
    let _peer = Child::start(&root, "echo", "peer", None);
    let peer = live(&cluster, "peer");
    let mut endpoint = Endpoint::open(&cluster, process("me"), Wait::Block).expect("opened");
    let mut probe = Probe::default();
    let word = |at| Remote { at, offset: cluster.layout().fence() };
    let slow = Impairment { delay: DELAY, ..Impairment::default() };
    assert!(cluster.impair(peer.region, peer.generation, slow));
    let posted = clock::now();
    endpoint.cas(word(peer), 0, 5, Token(1));
    endpoint.read(word(endpoint.address()), 8, Token(2));
    endpoint.send(peer, b"0");
    assert!(cluster.impair(peer.region, peer.generation, Impairment::default()));
    endpoint.read(word(peer), 8, Token(3));
    until(&mut endpoint, &mut probe, |p| p.read(Token(3)).is_some() && !p.datagrams.is_empty());
    assert!(clock::now().since(posted) >= DELAY);
    let tokens: Vec<u64> = probe.completions.iter().map(|(token, _)| token.0).collect();
    assert_eq!(tokens, [2, 1, 3], "the own memory does not belong to a peer, and the link's order stands");
    assert_eq!(
        (probe.swapped(Token(1)), probe.read(Token(3))),
        (Some(0), Some(vec![5, 0, 0, 0, 0, 0, 0, 0]))
    );
    assert_eq!(probe.datagrams, [(peer, b"0".to_vec())]);
    // A link that breaks takes with it what was on its way.
    assert!(cluster.impair(peer.region, peer.generation, slow));
    for token in [Token(4), Token(5)] {
        endpoint.cas(word(peer), 5, 6, token);
    }
    assert!(cluster.impair(peer.region, peer.generation, Impairment { island: 1, ..slow }));
    until(&mut endpoint, &mut probe, |p| p.failures().len() == 2);
    assert!(cluster.impair(peer.region, peer.generation, Impairment::default()));
    endpoint.read(word(peer), 8, Token(6));
    until(&mut endpoint, &mut probe, |p| p.read(Token(6)).is_some());
    assert_eq!(probe.read(Token(6)), Some(vec![5, 0, 0, 0, 0, 0, 0, 0]), "nothing was executed");
}

#[test]
fn a_region_has_one_owner_and_no_other_address() {
    let (root, cluster) = made();
    let _first = Child::start(&root, "echo", "first", Some(1));
    let at = live(&cluster, "first");
    assert_eq!(at, Address { generation: 1, ..Address::region(1) });
    let refused = Endpoint::open(&cluster, coordinator("second", 1), Wait::Block).map(drop);
    assert!(matches!(refused, Err(HostError::RegionTaken { region: 1, .. })), "{refused:?}");
    let mut endpoint = Endpoint::open(&cluster, process("me"), Wait::Block).expect("opened");
    let mut probe = Probe::default();
    for (at, error) in [
        (Address { host: 1, ..at }, LinkError::PeerReplaced),
        (Address { seat: 999, ..at }, LinkError::OutOfBounds),
    ] {
        probe.completions.clear();
        endpoint.read(Remote { at, offset: 0 }, 16, Token(6));
        endpoint.poll_once(&mut probe);
        assert_eq!(probe.failures(), [error], "{at}");
    }
}

#[test]
fn impaired_links_lose_fail_or_are_cut_until_they_are_mended() {
    let (root, cluster) = made();
    let _echo = Child::start(&root, "echo", "peer", None);
    let peer = live(&cluster, "peer");
    let mut endpoint = Endpoint::open(&cluster, process("me"), Wait::Block).expect("opened");
    let mut probe = Probe::default();
    let me = endpoint.address();
    let whole = Impairment::default();
    let word = |at| Remote { at, offset: cluster.layout().fence() };
    let read = |endpoint: &mut Endpoint, probe: &mut Probe, at| {
        probe.completions.clear();
        endpoint.read(word(at), 8, Token(1));
        endpoint.poll_once(probe);
        probe.failures()
    };
    let lost =
        |endpoint: &Endpoint| endpoint.region().reader().counters(0)[FabricCounter::DatagramsLost as usize];
    endpoint.watch(peer);
    assert_eq!(read(&mut endpoint, &mut probe, peer), []);
    // Either end's impairment is the link's.
    for at in [peer, me] {
        let cut = Impairment { island: 1, ..whole };
        assert!(cluster.impair(at.region, at.generation, cut));
        assert!(!cluster.impair(at.region, at.generation + 1, cut), "another owner");
        assert_eq!(read(&mut endpoint, &mut probe, peer), [LinkError::PeerDead]);
        assert_eq!(read(&mut endpoint, &mut probe, me), [], "the own memory does not belong to a peer");
        endpoint.send(peer, b"cut");
        endpoint.multicast(Group::Everyone, b"cut");
        assert!(cluster.impair(at.region, at.generation, Impairment { operations_fail: true, ..whole }));
        assert_eq!(read(&mut endpoint, &mut probe, peer), [LinkError::PeerDead]);
        assert!(cluster.impair(at.region, at.generation, Impairment { multicast_lost: true, ..whole }));
        assert_eq!(read(&mut endpoint, &mut probe, peer), []);
        endpoint.multicast(Group::Everyone, b"lost");
        let before = lost(&endpoint);
        assert!(cluster.impair(at.region, at.generation, Impairment { loss_percent: 100, ..whole }));
        endpoint.send(peer, b"lost");
        assert_eq!(lost(&endpoint), before + 1);
        assert!(cluster.impair(at.region, at.generation, whole));
    }
    endpoint.multicast(Group::Everyone, b"whole");
    until(&mut endpoint, &mut probe, |p| !p.datagrams.is_empty());
    assert_eq!(probe.datagrams, [(peer, b"whole".to_vec())]);
    // Two on one island reach each other, and no death was reported.
    for at in [peer, me] {
        assert!(cluster.impair(at.region, at.generation, Impairment { island: 7, ..whole }));
    }
    assert_eq!(read(&mut endpoint, &mut probe, peer), []);
    assert_eq!(probe.deaths, []);
}

#[test]
fn an_endpoint_that_closed_is_gone_but_only_its_process_is_proved() {
    let (_root, cluster, mut endpoint) = opened("me");
    let mut probe = Probe::default();
    let (closed, page) = std::thread::scope(|s| {
        let short = s.spawn(|| {
            let mut other = Endpoint::open(&cluster, coordinator("other", 3), Wait::Block).expect("opened");
            let end = clock::now() + Nanos::from_secs(1000);
            other.publish_page(&Page {
                view: ViewId(1),
                base: ViewId(1),
                start: Instant(0),
                end,
                ..Page::default()
            });
            (other.address(), other.region().clone())
        });
        short.join().expect("no panic")
    });
    endpoint.watch(closed);
    until(&mut endpoint, &mut probe, |p| !p.deaths.is_empty());
    assert_eq!(probe.deaths, [(closed, Evidence::Suspicion)], "its process, this one, runs");
    assert_eq!(page.reader().page(), Some(Page::default()), "its lease went with it");
    let again = std::thread::scope(|s| {
        let open = || Endpoint::open(&cluster, coordinator("again", 3), Wait::Block).map(|e| e.address());
        s.spawn(open).join().expect("no panic")
    });
    assert_eq!(again.expect("opened").generation, closed.generation + 1);
    until(&mut endpoint, &mut probe, |p| p.deaths.len() == 2);
    assert_eq!(probe.deaths[1], (closed, Evidence::Proof), "a successor came");
}

#[test]
fn a_reader_that_does_not_read_loses_datagrams_and_lanes_of_the_dead_are_reused() {
    let (_root, cluster, mut endpoint) = opened("me");
    let mut probe = Probe::default();
    let me = endpoint.address();
    // More senders, one after the other, than there are lanes.
    for round in 0..LIMITS.lanes * 2 {
        let before = probe.datagrams.len();
        std::thread::scope(|s| {
            let send = s.spawn(|| {
                let mut sender = Endpoint::open(&cluster, process("sender"), Wait::Block).expect("opened");
                for n in 0..LIMITS.lane_slots + 3 {
                    sender.send(me, &[n as u8]);
                }
                let lost = sender.region().reader().counters(0)[FabricCounter::DatagramsLost as usize];
                assert_eq!(lost, 3, "round {round}");
            });
            send.join().expect("no panic");
        });
        // Freed by the housekeeping of the loop, which is due after a while.
        let lanes = || (0..LIMITS.lanes).map(|n| cluster.layout().lane(n));
        let free = || {
            let region = Region::open(&cluster, me.region).expect("mapped");
            lanes().all(|at| region[at as usize / 8].load(Ordering::Relaxed) == 0)
        };
        until(&mut endpoint, &mut probe, |_| free());
        let texts: Vec<u8> = probe.datagrams[before..].iter().map(|(_, b)| b[0]).collect();
        assert_eq!(texts, (0..LIMITS.lane_slots as u8).collect::<Vec<_>>());
    }
}

/// An agent that admits everybody as incarnation 5, or publishes another status, and excludes the dead.
#[derive(Default)]
struct Agent {
    asked: Vec<(u16, SeatRequest)>,
    publishes: Option<SeatStatus>,
    excluded: bool,
}

impl Machine for Agent {
    fn handle<F: Fabric>(&mut self, _: Instant, event: Event<'_>, fabric: &mut F) {
        match event {
            Event::Seat { seat, request } => {
                self.asked.push((seat, request));
                match request {
                    SeatRequest::Join { address, .. } => {
                        fabric.watch(address);
                        fabric
                            .publish_seat(seat, self.publishes.unwrap_or(SeatStatus::Member(Incarnation(5))));
                    }
                    SeatRequest::Leave => fabric.publish_seat(seat, SeatStatus::Left),
                    SeatRequest::Promise(_) => {}
                }
            }
            Event::Death { who, evidence: Evidence::Proof } => {
                fabric.publish_seat(who.seat, SeatStatus::Excluded);
                self.excluded = true;
            }
            _ => {}
        }
    }
}

#[test]
fn a_program_in_a_seat_joins_is_active_is_excluded_and_joins_again() {
    let (_root, cluster, mut endpoint) = opened("agent");
    let mut agent = Agent::default();
    let beat = Nanos::from_millis(1);
    let program = Attachment::open_named(&cluster, (1, name("agent")), name("app"), beat).expect("seated");
    assert_eq!((program.address().seat, program.status()), (1, None));
    let status = |endpoint: &mut Endpoint, agent: &mut Agent, wanted| {
        until(endpoint, agent, |_| program.status() == Some(wanted));
    };
    program.join(1);
    assert_eq!(program.status(), None);
    status(&mut endpoint, &mut agent, SeatStatus::Member(Incarnation(5)));
    let joined = SeatRequest::Join {
        name: name("app"),
        token: 1,
        address: program.address(),
        progress_within: Nanos::ZERO,
        release: obol_fabric::Release::THIS,
    };
    assert_eq!(agent.asked, [(1, joined)]);

    let seen = program.region().changes();
    endpoint.publish_view(ViewId(7), b"the view");
    let end = clock::now() + Nanos::from_secs(1000);
    endpoint.publish_page(&Page {
        view: ViewId(7),
        base: ViewId(7),
        start: Instant(0),
        end,
        ..Page::default()
    });
    assert_eq!(program.region().changes(), seen, "programs are notified at the end of a turn");
    endpoint.flush();
    assert_eq!(program.region().wait_changed(seen, Nanos::from_secs(20)), seen + 1);
    let active = |view| page::active(program.region().page(), ViewId(view), clock::now);
    assert!(active(7) && !active(6));
    assert_eq!(program.region().reader().view(), Some((ViewId(7), b"the view".to_vec())));

    // A coordinator fences the page through the program's address; then it is over at once.
    let fence = Remote { at: program.address(), offset: cluster.layout().fence() };
    endpoint.cas(fence, 0, 8, Token(1));
    assert!(!active(7));

    endpoint.publish_seat(1, SeatStatus::Excluded);
    let seen = Some(SeatStatus::Member(Incarnation(5)));
    assert_eq!(program.wait_status(seen, Nanos::from_secs(20)), Some(SeatStatus::Excluded));
    program.join(2);
    assert_eq!(program.status(), None, "not answered yet");
    endpoint.publish_seat(1, SeatStatus::Excluded);
    assert_eq!(program.status(), None, "an exclusion that crosses the join does not answer it");
    status(&mut endpoint, &mut agent, SeatStatus::Member(Incarnation(5)));
    program.leave();
    status(&mut endpoint, &mut agent, SeatStatus::Left);
    program.count(CounterSlot::new(30), 2);
    let address = program.address();
    drop(program);
    // Its seat is free for the next one, who has another address.
    until(&mut endpoint, &mut agent, |_| seat_is_free(&cluster, address));
    let next = Attachment::open(&cluster, address.region, name("next"), beat).expect("seated");
    assert_eq!((next.address().seat, next.address().generation), (1, address.generation + 1));
    let _third = Attachment::open(&cluster, address.region, name("third"), beat).expect("seated");
    let full = Attachment::open(&cluster, address.region, name("more"), beat);
    assert!(matches!(full, Err(HostError::NoSeat { seats: 2, .. })));
    let nobody =
        Attachment::open_named(&cluster, (1, name("x")), name("app"), beat).map(drop).expect_err("no x");
    assert!(nobody.to_string().ends_with("there are: agent"), "{nobody}");
    next.join(3);
    endpoint.publish_seat(1, SeatStatus::Member(Incarnation(5)));
    assert_eq!(next.status(), None, "the status was of the seat's former occupant");
}

/// What a CAS of a fence word brings.
fn raise(endpoint: &mut Endpoint, at: Address, fence: u32, view: u64) -> Result<support::Seen, LinkError> {
    let mut probe = Probe::default();
    endpoint.cas(Remote { at, offset: fence }, 0, view, Token(1));
    until(endpoint, &mut probe, |probe| !probe.completions.is_empty());
    probe.completions.remove(0).1
}

#[test]
fn the_page_of_a_dead_agent_is_fenced_through_a_program_that_lives() {
    let (root, cluster) = made();
    let agent = Child::start(&root, "echo", "agent", None);
    let at = live(&cluster, "agent");
    let mut gone = Child::start(&root, "program", "gone", None);
    let seat = |seat| Region::open(&cluster, at.region).expect("mapped").reader().seat(seat);
    support::wait_for(|| seat(1).is_some());
    let dead = Address { seat: 1, generation: seat(1).expect("occupied").generation, ..at };
    let beat = Nanos::from_millis(1);
    let program = Attachment::open(&cluster, at.region, name("lives"), beat).expect("seated");
    gone.0.kill().expect("killed");
    gone.0.wait().expect("a child");
    // A coordinator that has never reached the agent.
    let mut me = Endpoint::open(&cluster, coordinator("me", 1), Wait::Block).expect("opened");
    drop(agent);
    let fence = cluster.layout().fence();
    for at in [at, dead] {
        assert_eq!(raise(&mut me, at, fence, 6), Err(LinkError::PeerDead), "{at:?}");
    }
    assert_eq!(raise(&mut me, program.address(), fence, 7), Ok(support::Seen::Swapped(0)));
    let word = || program.region()[fence as usize / 8].load(Ordering::Relaxed);
    assert_eq!(word(), 7, "the program sees it");
    // Nobody is left in whose name it could be raised.
    let (address, _) = (program.address(), drop(program));
    assert!(raise(&mut me, address, fence, 8).is_err());
}

#[test]
fn a_refusal_answers_the_join_that_it_refuses_and_a_lack_of_room_does_not() {
    let (_root, cluster, mut endpoint) = opened("agent");
    let mut agent = Agent { publishes: Some(SeatStatus::Excluded), ..Agent::default() };
    // It does not beat again, so it repeats no request.
    let beat = Nanos::from_secs(1000);
    let program = Attachment::open_named(&cluster, (1, name("agent")), name("app"), beat).expect("seated");
    for token in [1, 2] {
        program.join(token);
        until(&mut endpoint, &mut agent, |_| program.status() == Some(SeatStatus::Excluded));
    }
    agent.publishes = Some(SeatStatus::Full);
    program.join(3);
    until(&mut endpoint, &mut agent, |_| program.finds_no_room() && program.status().is_none());
    let member = SeatStatus::Member(Incarnation(5));
    endpoint.publish_seat(1, member);
    assert_eq!((program.status(), program.finds_no_room()), (Some(member), false));
}

#[test]
fn who_sees_a_new_program_in_a_seat_sees_no_event_of_the_one_before() {
    const PROGRAMS: u32 = 100;
    let (_root, cluster, mut endpoint) = opened("agent");
    let mut agent = Agent::default();
    let number = endpoint.address().region;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let region = Region::open(&cluster, number).expect("mapped");
            while !done.load(Ordering::Relaxed) {
                let Some(seat) = region.reader().seat(1) else { continue };
                let events = region.reader().events::<EventCode>(1, 0).expect("there is a seat");
                let older = events.iter().find(|event| event.record.a < u64::from(seat.generation));
                assert_eq!(older, None, "generation {}", seat.generation);
            }
        });
        for _ in 0..PROGRAMS {
            let beat = Nanos::from_millis(1);
            let program = Attachment::open(&cluster, number, name("app"), beat).expect("seated");
            let address = program.address();
            for _ in 0..20 {
                program.record(Record::new(EventCode::new(15), u64::from(address.generation), 0));
            }
            drop(program);
            until(&mut endpoint, &mut agent, |_| seat_is_free(&cluster, address));
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_seat_that_was_closed_is_free_for_the_next_program() {
    let (_root, cluster, mut endpoint) = opened("agent");
    let mut agent = Agent::default();
    let number = endpoint.address().region;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let programs = scope.spawn(|| {
            let seat = || Attachment::open(&cluster, number, name("app"), Nanos::from_millis(1)).map(drop);
            let ended = (0..500).try_for_each(|_| seat());
            stop.store(true, Ordering::Relaxed);
            ended
        });
        endpoint.run(&mut agent, &stop, |_, _| ());
        programs.join().expect("no panic").expect("a seat for each");
    });
}

fn seat_is_free(cluster: &Cluster, at: Address) -> bool {
    let region = Region::open(cluster, at.region).expect("mapped");
    region[cluster.layout().seat(at.seat) as usize / 8].load(Ordering::Relaxed) == 0
}

#[test]
fn a_request_is_repeated_until_it_is_answered() {
    let (_root, cluster, mut endpoint) = opened("agent");
    let mut probe = Probe::default();
    let program = Attachment::open(&cluster, endpoint.address().region, name("app"), Nanos::from_millis(1))
        .expect("seated");
    program.join(1);
    until(&mut endpoint, &mut probe, |p| p.seats >= 3);
    endpoint.publish_seat(1, SeatStatus::Member(Incarnation(1)));
    assert_eq!(program.status(), Some(SeatStatus::Member(Incarnation(1))));
}

#[test]
fn a_killed_program_is_reported_and_its_seat_is_freed_once_it_is_no_member() {
    let (root, cluster, mut endpoint) = opened("agent");
    let mut agent = Agent::default();
    let mut program = Child::start(&root, "program", "app", None);
    until(&mut endpoint, &mut agent, |a| !a.asked.is_empty());
    let Some((1, SeatRequest::Join { address, .. })) = agent.asked.pop() else { panic!("a join") };
    let region = endpoint.region().reader().seat(1).expect("occupied");
    assert_eq!((region.name, region.generation, region.dead), (name("app"), address.generation, false));

    // Its heartbeat stands still exactly as long as it is stopped.
    let reader = endpoint.region().clone();
    let beats = || reader.reader().seat(1).expect("occupied").heartbeat;
    kill(&program, "STOP");
    let stopped = beats();
    for _ in 0..1000 {
        endpoint.poll_once(&mut agent);
    }
    assert_eq!(beats(), stopped);
    kill(&program, "CONT");
    until(&mut endpoint, &mut agent, |_| beats() > stopped + 1);
    assert!(!agent.excluded);
    program.0.kill().expect("killed");
    until(&mut endpoint, &mut agent, |a| a.excluded);
    until(&mut endpoint, &mut agent, |_| seat_is_free(&cluster, address));
    let mut probe = Probe::default();
    endpoint.read(Remote { at: address, offset: 0 }, 8, Token(1));
    endpoint.poll_once(&mut probe);
    assert_eq!(probe.failures(), [LinkError::PeerDead]);
}

#[test]
fn more_watchers_than_death_words_all_get_the_notice() {
    let (root, cluster) = made();
    let mut victim = Child::start(&root, "echo", "victim", None);
    let at = live(&cluster, "victim");
    let watching = std::sync::Barrier::new(DEATH_WORDS + 1);
    std::thread::scope(|s| {
        for _ in 0..DEATH_WORDS {
            s.spawn(|| {
                let mut endpoint = Endpoint::open(&cluster, process("me"), Wait::Block).expect("opened");
                let mut probe = Probe::default();
                endpoint.watch(at);
                watching.wait();
                let stop = AtomicBool::new(false);
                endpoint.run(&mut probe, &stop, |p, _| stop.store(p.deaths.len() == 2, Ordering::Relaxed));
                assert_eq!(probe.deaths, [(at, Evidence::Suspicion), (at, Evidence::Proof)]);
            });
        }
        watching.wait();
        victim.0.kill().expect("killed");
    });
}

#[test]
fn a_region_that_nobody_holds_is_suspected_a_process_that_may_be_starting_is_not() {
    let (_root, _cluster, mut endpoint) = opened("me");
    let mut probe = Probe::default();
    let nobody = [Address::region(1), Address::region(9999)];
    for whom in nobody {
        endpoint.watch(whom);
        endpoint.watch(whom);
    }
    endpoint.watch(Address { generation: 4, ..Address::region(1) });
    for _ in 0..10 {
        endpoint.poll_once(&mut probe);
    }
    assert_eq!(probe.deaths, nobody.map(|whom| (whom, Evidence::Suspicion)));
}

#[test]
fn a_process_that_dies_at_any_moment_of_its_start_blocks_nobody() {
    let (root, cluster) = made();
    for round in 0..40u64 {
        let region = if round % 2 == 0 { Some(1) } else { None };
        let mut child = Child::start(&root, "echo", "short", region);
        // From before it opens the cluster until after it lives.
        for _ in 0..round * 100 {
            std::thread::yield_now();
        }
        child.0.kill().expect("killed");
    }
    let _one = Child::start(&root, "echo", "one", Some(1));
    let _other = Child::start(&root, "echo", "other", Some(8));
    let peers = [live(&cluster, "one"), live(&cluster, "other")];
    let mut endpoint = Endpoint::open(&cluster, process("me"), Wait::Block).expect("opened");
    let mut probe = Probe::default();
    for at in peers {
        endpoint.send(at, b"hello");
    }
    until(&mut endpoint, &mut probe, |p| p.datagrams.len() == 2);
}

#[test]
fn another_threads_waker_ends_a_wait() {
    let (_root, _cluster, mut endpoint) = opened("me");
    endpoint.beat_every(Nanos::from_secs(1000));
    let stop = AtomicBool::new(false);
    let (stop, waker) = (&stop, endpoint.waker());
    std::thread::scope(|s| {
        s.spawn(move || {
            stop.store(true, Ordering::Release);
            waker.wake();
        });
        endpoint.run(&mut Probe::default(), stop, |_, _| {});
    });
}

/// Prints what this host can do; run it alone: `--ignored --nocapture measure`.
#[test]
#[ignore = "a measurement"]
fn measure() {
    let (root, cluster) = made();
    let _peers = [1, 2, 3].map(|n| Child::start(&root, "echo", &format!("c{n}"), Some(n)));
    let peers = [1, 2, 3].map(|n| live(&cluster, &format!("c{n}")));
    let mut endpoint = Endpoint::open(&cluster, process("me"), Wait::Block).expect("opened");
    let mut probe = Probe::default();
    let mut spans = Vec::new();
    for n in 0..100_000u64 {
        probe.completions.clear();
        let before = clock::now();
        for at in peers {
            endpoint.write(Remote { at, offset: cluster.layout().value(n, 1) }, &[1; 256], Token(n));
            let slot = Remote { at, offset: cluster.layout().slot(1) };
            endpoint.cas(slot, n, n + 1, Token(n));
        }
        endpoint.poll_once(&mut probe);
        spans.push(clock::now().since(before).0);
        assert_eq!(probe.completions.len(), 6);
    }
    show("WRITE 256 B + CAS at 3 regions, and a turn", spans);
    for at in peers {
        let mut spans = Vec::new();
        let stop = AtomicBool::new(false);
        let mut sent = clock::now();
        probe.datagrams.clear();
        endpoint.send(at, b"ping");
        endpoint.run(&mut probe, &stop, |probe, endpoint| {
            if probe.datagrams.pop().is_some() {
                spans.push(clock::now().since(sent).0);
                stop.store(spans.len() == 5000, Ordering::Relaxed);
                sent = clock::now();
                endpoint.send(at, b"ping");
            }
        });
        show("round trip of a datagram, both sides block", spans);
    }
    let mut spans = Vec::new();
    for round in 0..100 {
        let mut victim = Child::start(&root, "echo", "victim", None);
        let at = live(&cluster, "victim");
        probe.deaths.clear();
        endpoint.watch(at);
        let before = clock::now();
        victim.0.kill().expect("killed");
        let stop = AtomicBool::new(false);
        endpoint.run(&mut probe, &stop, |p, _| {
            while spans.len() < 2 * round + p.deaths.len() {
                spans.push(clock::now().since(before).0);
            }
            stop.store(p.deaths.len() == 2, Ordering::Relaxed);
        });
        endpoint.unwatch(at);
    }
    let (suspected, proved): (Vec<_>, Vec<_>) = spans.chunks_exact(2).map(|c| (c[0], c[1])).unzip();
    show("kill to suspicion", suspected);
    show("kill to proof", proved);
    for role in ["echo", "tick"] {
        let idle: Vec<Child> =
            (0..9).map(|n| Child::start(&root, role, &format!("{role}{n}"), None)).collect();
        for n in 0..9 {
            live(&cluster, &format!("{role}{n}"));
        }
        let spent = || idle.iter().map(|child| cpu_time(child).0).sum::<u64>();
        let before = spent();
        std::thread::sleep(std::time::Duration::from_secs(4));
        let share = (spent() - before) as f64 / 4e9;
        eprintln!("nine idle processes, role {role}: {:.2} % of a core", share * 100.0);
    }
}

fn show(what: &str, mut spans: Vec<u64>) {
    spans.sort_unstable();
    let at = |q: usize| Nanos(spans[(spans.len() - 1) * q / 1000]);
    eprintln!("{what}: n={} p50 {} p99 {} p99.9 {}", spans.len(), at(500), at(990), at(999));
}

#[test]
fn a_completion_is_borrowed_from_the_post() {
    let (_root, _cluster, mut endpoint) = opened("me");
    let me = endpoint.address();
    /// Each READ's handler posts the next: a chain that one turn runs to its end.
    struct Chain(u32, Address);
    impl Machine for Chain {
        fn start<F: Fabric>(&mut self, _: Instant, fabric: &mut F) {
            fabric.read(Remote { at: self.1, offset: 0 }, 24, Token(0));
        }
        fn handle<F: Fabric>(&mut self, _: Instant, event: Event<'_>, fabric: &mut F) {
            if let Event::Completion { token, result: Ok(Completion::Read(bytes)) } = event {
                assert_eq!((&bytes[..8], bytes.len()), (&b"obol-mem"[..], 24));
                self.0 += 1;
                if token.0 < 99 {
                    fabric.read(Remote { at: self.1, offset: 0 }, 24, Token(token.0 + 1));
                }
            }
        }
    }
    let mut chain = Chain(0, me);
    endpoint.poll_once(&mut chain);
    assert_eq!(chain.0, 100);
}
