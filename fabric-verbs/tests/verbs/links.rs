//! The obligations of an endpoint to the protocol: order, errors, deaths and rights on the links to
//! its peers. The peers are this test binary, started again with a role in its environment.

use crate::cluster::{Plan, play};
use crate::support::{Child, Probe, Root, Seen, coordinator, kill, process, until};
use obol_fabric::host::Cluster;
use obol_fabric::{
    Address, Endpoint, Evidence, Fabric, LinkError, Page, Permission, Remote, Token, ViewId, Wait, Writers,
};
use obol_fabric_verbs::{Config, Observer, Rdma};
use std::sync::atomic::Ordering;

/// The start of every child process of these tests.
#[test]
fn child() {
    play();
}

/// Two hosts, coordinator 1 here on the first, coordinator 2 as a process of its own on the second.
pub(crate) struct Two {
    plan: Plan,
    roots: [Root; 2],
    clusters: [Cluster; 2],
    pub(crate) me: Endpoint,
    pub(crate) probe: Probe,
    pub(crate) peer: Option<Child>,
}

pub(crate) const TWO: Address = Address::region(2);

impl Two {
    pub(crate) fn new() -> Option<Self> {
        Plan::new().map(Self::of)
    }

    pub(crate) fn of(plan: Plan) -> Self {
        let roots = [Root::new(), Root::new()];
        let clusters = [plan.host(&roots[0], 1), plan.host(&roots[1], 2)];
        let me = plan.open(&clusters[0], coordinator("me", 1));
        let mut this = Self { plan, roots, clusters, me, probe: Probe::default(), peer: None };
        this.start("echo");
        this
    }

    /// Starts coordinator 2, and waits until it answers.
    fn start(&mut self, role: &str) {
        self.peer = Some(self.plan.child(&self.roots[1], role, "peer", Some(2)));
        self.reach(TWO);
    }

    /// Waits until a READ succeeds.
    fn reach(&mut self, at: Address) {
        let start = std::time::Instant::now();
        loop {
            self.me.read(Remote { at, offset: 0 }, 8, Token(u64::MAX));
            self.settle();
            let answered = self.probe.read(Token(u64::MAX)).is_some();
            self.probe.completions.clear();
            if answered {
                return;
            }
            assert!(
                start.elapsed() < crate::devices::HANG,
                "not reached: {:?}",
                self.me.transport::<Rdma>().expect("its transport").link_status()
            );
            std::thread::yield_now();
        }
    }

    /// Turns until all posts have completed.
    fn settle(&mut self) {
        let before = self.probe.completions.len();
        until(&mut self.me, &mut self.probe, |p| p.completions.len() > before);
    }

    fn await_completions(&mut self, n: usize) {
        until(&mut self.me, &mut self.probe, |p| p.completions.len() >= n);
        assert_eq!(self.probe.completions.len(), n);
    }

    fn at(&self, offset: u32) -> Remote {
        Remote { at: TWO, offset }
    }

    fn value(&self, id: u64) -> Remote {
        self.at(self.clusters[0].layout().value(id, 1))
    }

    fn tokens(&self) -> Vec<u64> {
        self.probe.completions.iter().map(|(token, _)| token.0).collect()
    }
}

#[test]
fn what_lies_outside_or_is_misaligned_fails_alone() {
    let Some(mut two) = Two::new() else { return };
    let end = two.clusters[0].layout().bytes() as u32;
    two.me.read(two.at(end - 8), 16, Token(0));
    two.me.read(two.at(4), 8, Token(1));
    two.me.cas(two.at(two.clusters[0].layout().slot(0) + 4), 0, 1, Token(2));
    two.me.write(two.value(0), &[1; 12], Token(3));
    two.me.read(two.at(0), u32::MAX, Token(4));
    two.me.read(two.at(0), 8, Token(5));
    two.await_completions(6);
    assert_eq!(two.tokens(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(two.probe.failures(), [LinkError::OutOfBounds; 5]);
}

#[test]
fn a_program_of_a_wrong_cluster_is_refused_with_the_reason() {
    let Some(two) = Two::new() else { return };
    let root = Root::new();
    let mut stranger = two.plan.clone();
    stranger.nonce += 1;
    let cluster = stranger.host(&root, 3);
    // A thread represents one endpoint.
    let joined = std::thread::spawn(move || {
        let mut probe = Probe::default();
        let mut endpoint = stranger.open(&cluster, process("stranger"));
        endpoint.read(Remote { at: TWO, offset: 0 }, 8, Token(0));
        until(&mut endpoint, &mut probe, |p| !p.completions.is_empty());
        (probe.failures(), endpoint.transport::<Rdma>().expect("its transport").link_status())
    });
    let (failures, links) = joined.join().expect("no panic");
    assert_eq!(failures, [LinkError::Denied]);
    let trouble = links[0].trouble.as_deref().expect("the reason");
    assert!(trouble.contains("another cluster"), "{trouble}");
}

#[test]
fn members_only_read_and_who_raises_fences_reaches_nothing_else() {
    let Some(mut two) = Two::new() else { return };
    let (plan, layout) = (two.plan.clone(), *two.clusters[0].layout());
    let _member = plan.child(&two.roots[1], "greet", "member", None);
    until(&mut two.me, &mut two.probe, |p| !p.datagrams.is_empty());
    let member = two.probe.datagrams[0].0;
    assert_ne!((member.host, member.port), (0, 0), "a member is known by where it listens");
    for fences in [false, true] {
        let root = Root::new();
        let cluster = plan.host(&root, 4);
        let mut config = plan.config(None);
        config.raises_fences = fences;
        let tried = std::thread::spawn(move || {
            let mut probe = Probe::default();
            let mut me =
                obol_fabric_verbs::open(&cluster, process("cache"), Wait::Block, &config).expect("opened");
            let at = |offset| Remote { at: member, offset };
            me.read(at(layout.page()), 128, Token(0));
            me.cas(at(layout.fence()), 0, 4, Token(1));
            me.cas(at(layout.slot(0)), 0, 1, Token(2));
            me.write(at(layout.value(0, 1)), &[1; 8], Token(3));
            me.cas(Remote { at: TWO, offset: layout.slot(0) }, 0, 1, Token(4));
            until(&mut me, &mut probe, |p| p.completions.len() == 5);
            (probe.read(Token(0)).is_some(), probe.swapped(Token(1)), probe.failures())
        });
        let (read, fence, failures) = tried.join().expect("no panic");
        assert!(read);
        assert_eq!(fence, fences.then_some(0));
        assert!(failures.len() == if fences { 3 } else { 4 });
        assert!(failures.iter().all(|error| *error == LinkError::Denied), "{failures:?}");
    }
    // A coordinator raises the fence, and reads it back; it has no other rights on a member.
    let at = |offset| Remote { at: member, offset };
    two.me.cas(at(layout.fence()), 4, 9, Token(0));
    two.me.read(at(layout.fence()), 8, Token(1));
    two.me.cas(at(layout.heartbeat(0)), 0, 1, Token(2));
    two.await_completions(3);
    assert_eq!(two.probe.swapped(Token(0)), Some(4));
    assert_eq!(two.probe.read(Token(1)), Some(9u64.to_le_bytes().to_vec()));
    assert_eq!(two.probe.failures(), [LinkError::Denied]);
    assert_eq!(two.me.region().reader().fence(), ViewId(0));
}

#[test]
fn members_write_a_mailbox_its_owner_sees_it_in_place_and_nothing_else_is_theirs() {
    let Some(two) = Two::new() else { return };
    let (plan, layout) = (two.plan.clone(), *two.clusters[0].layout());
    let (first, last) = (layout.values().start, layout.values().end - 8);
    let root = Root::new();
    let (cluster, config) = (plan.host(&root, 4), Config { keeps_mailbox: true, ..plan.config(None) });
    let (tx, rx) = std::sync::mpsc::channel();
    // The owner stays until the member has checked its links.
    let (release, released) = std::sync::mpsc::channel::<()>();
    let owner = std::thread::spawn(move || {
        let mut probe = Probe::default();
        let mut me =
            obol_fabric_verbs::open(&cluster, process("owner"), Wait::Block, &config).expect("opened");
        tx.send(me.address()).expect("the test waits");
        let words = |me: &Endpoint, at, len| -> Vec<u64> {
            me.own(at, len).expect("inside").iter().map(|word| word.load(Ordering::Relaxed)).collect()
        };
        // It is not involved: the data is there when it polls. The last WRITE may be visible before
        // the others.
        until_looked(&mut me, &mut probe, |me| {
            words(me, first, 4096).iter().all(|word| *word == u64::MAX) && words(me, last, 8) == [9]
        });
        me.read(Remote { at: me.address(), offset: first }, 4096, Token(0));
        until(&mut me, &mut probe, |p| !p.completions.is_empty());
        assert_eq!(probe.read(Token(0)), Some(vec![0xff; 4096]), "the device finds it, too");
        assert!(me.own(layout.values().end, 8).is_some_and(|word| word[0].load(Ordering::Relaxed) == 0));
        assert!(me.own(first + 4, 8).is_none() && me.own(layout.bytes() as u32, 8).is_none());
        // Ends with an error when the other end is dropped.
        let _ = released.recv();
    });
    let mailbox = rx.recv().expect("it opens");
    let root = Root::new();
    let cluster = plan.host(&root, 5);
    let member = std::thread::spawn(move || {
        let mut probe = Probe::default();
        let mut me = plan.open(&cluster, process("member"));
        let at = |offset| Remote { at: mailbox, offset };
        for offset in [first - 8, layout.values().end, layout.page(), layout.fence(), 0] {
            me.write(at(offset), &[1; 8], Token(0));
        }
        me.write(at(last), &[1; 16], Token(0));
        me.cas(at(first), 0, 1, Token(0));
        me.cas(at(layout.fence()), 0, 1, Token(0));
        until(&mut me, &mut probe, |p| p.completions.len() == 8);
        assert_eq!(probe.failures(), [LinkError::Denied; 8]);
        probe.completions.clear();
        me.write(Remote { at: mailbox, offset: first }, &[0xff; 4096], Token(1));
        me.write(Remote { at: mailbox, offset: last }, &9u64.to_le_bytes(), Token(2));
        until(&mut me, &mut probe, |p| p.completions.len() == 2);
        (
            probe.failures(),
            me.transport::<Rdma>().expect("its transport").link_status().iter().all(|link| link.connected),
        )
    });
    assert_eq!(member.join().expect("no panic"), (vec![], true), "what is refused does not break the link");
    drop(release);
    owner.join().expect("no panic");
}

#[test]
fn a_coordinator_keeps_no_mailbox() {
    let Some(plan) = Plan::new() else { return };
    let root = Root::new();
    let cluster = plan.host(&root, 1);
    let config = Config { keeps_mailbox: true, ..plan.config(Some(1)) };
    let refused = obol_fabric_verbs::open(&cluster, coordinator("one", 1), Wait::Block, &config).map(drop);
    let said = refused.expect_err("views are decided there").to_string();
    assert!(said.starts_with("keeps_mailbox: coordinator 1"), "{said}");
}

/// Turns the loop until something appears in the own memory.
fn until_looked(me: &mut Endpoint, probe: &mut Probe, mut seen: impl FnMut(&Endpoint) -> bool) {
    let start = std::time::Instant::now();
    while !seen(me) {
        me.poll_once(probe);
        assert!(start.elapsed() < crate::devices::HANG, "it never comes");
        std::thread::yield_now();
    }
}

/// Permits or forbids everybody to WRITE into a log each time the test says so, and says when that is in
/// force; and READs the log in the end.
fn keep_log(
    mut me: Endpoint,
    log: &std::ops::Range<u32>,
    orders: &std::sync::mpsc::Receiver<Permission>,
    done: &std::sync::mpsc::Sender<Address>,
) -> Vec<u8> {
    let mut probe = Probe::default();
    while let Ok(permission) = orders.recv() {
        me.permit(Writers::Everyone, log.clone(), permission, Token(0));
        until(&mut me, &mut probe, |p| !p.completions.is_empty());
        assert_eq!(probe.completions, [(Token(0), Ok(Seen::Permitted))]);
        probe.completions.clear();
        done.send(me.address()).expect("the test waits");
    }
    me.read(Remote { at: me.address(), offset: log.start }, 8, Token(0));
    until(&mut me, &mut probe, |p| !p.completions.is_empty());
    probe.read(Token(0)).expect("the own memory is read")
}

#[test]
fn a_refused_write_into_a_log_leaves_the_rest_of_the_link_alone() {
    let Some(plan) = Plan::new() else { return };
    let roots = [Root::new(), Root::new()];
    let (there, here) = (plan.host(&roots[0], 4), plan.host(&roots[1], 5));
    let values = there.layout().values();
    let log = values.start + 64..values.end - 64;
    let config = Config { keeps_mailbox: true, log: Some(log.clone()), ..plan.config(None) };
    let ((order, orders), (tx, done)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let part = log.clone();
    let owner = std::thread::spawn(move || {
        let me = obol_fabric_verbs::open(&there, process("owner"), Wait::Block, &config).expect("opened");
        keep_log(me, &part, &orders, &tx)
    });
    let switch = |permission| {
        order.send(permission).expect("it runs");
        done.recv().expect("it is in force")
    };
    let owner_at = switch(Permission::Revoked);
    let mut probe = Probe::default();
    let mut me = plan.open(&here, process("member"));
    let at = |offset| Remote { at: owner_at, offset };
    let mut write_around = |me: &mut Endpoint, word: u64| {
        let bytes = word.to_le_bytes();
        me.write(at(values.start), &bytes, Token(0));
        me.write(at(log.start), &bytes, Token(1));
        me.write(at(log.end), &bytes, Token(2));
        me.read(at(values.start), 8, Token(3));
        me.read(at(log.end), 8, Token(4));
        until(me, &mut probe, |p| p.completions.len() >= 5);
        let seen = std::mem::take(&mut probe.completions);
        assert!(probe.deaths.is_empty(), "{:?}", probe.deaths);
        seen.into_iter().map(|(token, result)| (token.0, result)).collect::<Vec<_>>()
    };
    let seen = |word: u64, in_log| {
        let read = || Ok(Seen::Read(word.to_le_bytes().to_vec()));
        vec![(0, Ok(Seen::Written)), (1, in_log), (2, Ok(Seen::Written)), (3, read()), (4, read())]
    };
    me.watch(owner_at);
    assert_eq!(write_around(&mut me, 1), seen(1, Err(LinkError::Denied)));
    assert_eq!(write_around(&mut me, 2), seen(2, Err(LinkError::Denied)));
    assert_eq!(switch(Permission::Granted), owner_at);
    assert_eq!(write_around(&mut me, 3), seen(3, Ok(Seen::Written)));
    assert_eq!(switch(Permission::Revoked), owner_at);
    // It may learn first that the connection has ended, with what was posted behind the WRITE.
    let mut word = 4;
    while write_around(&mut me, word) != seen(word, Err(LinkError::Denied)) {
        word += 1;
    }
    assert!(
        me.transport::<Rdma>().expect("its transport").link_status().iter().all(|link| link.connected),
        "{:?}",
        me.transport::<Rdma>().expect("its transport").link_status()
    );
    drop(order);
    assert_eq!(owner.join().expect("no panic"), 3u64.to_le_bytes(), "what was refused is not there");
}

#[test]
fn a_log_lies_in_the_value_areas_of_who_keeps_a_mailbox() {
    let Some(plan) = Plan::new() else { return };
    let root = Root::new();
    let cluster = plan.host(&root, 1);
    let values = cluster.layout().values();
    for (mailbox, log, said) in [
        (false, values.clone(), "set keeps_mailbox"),
        (true, values.start - 8..values.end, "are not words of the value areas"),
        (true, values.start..values.end + 8, "are not words of the value areas"),
        (true, values.start + 4..values.end, "are not words of the value areas"),
        (true, values.start..values.start, "are not words of the value areas"),
    ] {
        let config = Config { keeps_mailbox: mailbox, log: Some(log.clone()), ..plan.config(None) };
        let refused = obol_fabric_verbs::open(&cluster, process("one"), Wait::Block, &config).map(drop);
        let fault = refused.expect_err("it cannot have such a log").to_string();
        assert!(fault.starts_with("log: ") && fault.contains(said), "{log:?}: {fault}");
    }
}

#[test]
fn an_observer_reads_every_process_without_its_help_and_names_the_owner() {
    let Some(mut two) = Two::new() else { return };
    let _member = two.plan.child(&two.roots[1], "greet", "member", None);
    until(&mut two.me, &mut two.probe, |p| !p.datagrams.is_empty());
    let member = two.probe.datagrams[0].0;
    let layout = two.clusters[0].layout();
    let mut observer = Observer::open(&two.plan.config(None), two.plan.nonce, layout).expect("opened");
    two.me.publish_view(ViewId(7), b"seven");
    two.me.publish_page(&Page { view: ViewId(7), base: ViewId(6), ..Page::default() });
    // This thread is the owner of region 1: it cannot answer while it observes.
    let copy = observer.read(Address::region(1)).expect("read");
    assert_eq!(copy.generation(), two.me.address().generation);
    let reader = copy.reader();
    assert_eq!(reader.view(), Some((ViewId(7), b"seven".to_vec())));
    assert_eq!(reader.page().map(|page| (page.view, page.base)), Some((ViewId(7), ViewId(6))));
    assert_eq!(reader.seat(0).map(|seat| seat.process.pid), Some(std::process::id()));
    for at in [TWO, member, TWO, member] {
        if at == member {
            // Frozen after it was connected; it answers nevertheless.
            kill(two.peer.as_ref().expect("started"), "STOP");
        }
        let name = observer.read(at).expect("read").reader().seat(0).expect("an owner").name;
        assert_eq!(name.as_str(), if at == TWO { "peer" } else { "member" });
    }
    assert_eq!(observer.read(Address::region(3)).map(drop), Err(LinkError::PeerDead), "nobody is there");
    let other = Address { generation: member.generation + 1, ..member };
    assert_eq!(observer.read(other).map(drop), Err(LinkError::PeerReplaced));
    assert!(observer.read(member).is_ok());
    // More than one READ takes at once.
    let values = layout.values();
    let read = observer.read_values(member, values.clone()).map(|bytes| bytes.len());
    assert_eq!(read, Ok(values.len()));
    drop(two.peer.take());
    while observer.read(TWO).is_ok() {
        std::thread::yield_now();
    }
    assert!(observer.read(Address::region(1)).is_ok(), "one that died hinders no other");
}

#[test]
fn a_process_of_the_same_host_is_proved_dead_by_its_kernel() {
    let Some(mut two) = Two::new() else { return };
    let mut victim = two.plan.child(&two.roots[0], "greet", "victim", None);
    until(&mut two.me, &mut two.probe, |p| !p.datagrams.is_empty());
    let at = two.probe.datagrams[0].0;
    two.me.watch(at);
    two.me.read(Remote { at, offset: 0 }, 8, Token(0));
    two.await_completions(1);
    victim.0.kill().expect("killed");
    until(&mut two.me, &mut two.probe, |p| p.deaths.len() == 2);
    assert_eq!(two.probe.deaths, [(at, Evidence::Suspicion), (at, Evidence::Proof)]);
    two.probe.completions.clear();
    two.me.read(Remote { at, offset: 0 }, 8, Token(1));
    two.await_completions(1);
    assert_eq!(two.probe.failures(), [LinkError::PeerDead]);
}

#[test]
fn datagrams_reach_a_peer_and_come_back_with_every_way_to_wait() {
    let Some(two) = Two::new() else { return };
    let plan = two.plan.clone();
    for wait in [Wait::Block, Wait::Hybrid { yield_for: obol_fabric::Nanos::from_micros(30) }, Wait::Spin] {
        let root = Root::new();
        let (plan, cluster) = (plan.clone(), plan.host(&root, 5));
        let exchanged = std::thread::spawn(move || {
            let mut me =
                obol_fabric_verbs::open(&cluster, process("me"), wait, &plan.config(None)).expect("opened");
            let mut probe = Probe::default();
            let stop = std::sync::atomic::AtomicBool::new(false);
            let mut next = 0u32;
            me.send(TWO, b"0");
            me.run(&mut probe, &stop, |probe, me| {
                for (from, bytes) in probe.datagrams.drain(..) {
                    assert_eq!(from.owner(), TWO);
                    let n: u32 = String::from_utf8(bytes).expect("text").parse().expect("a number");
                    // Repeated by the network at most.
                    if n == next {
                        next += 1;
                        me.send(TWO, next.to_string().as_bytes());
                    }
                }
                stop.store(next >= 200, std::sync::atomic::Ordering::Relaxed);
            });
        });
        exchanged.join().expect("no panic");
    }
}
