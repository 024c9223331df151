//! Where the hosts have keys: who does not have those of a host of the cluster can neither connect nor
//! send, though it knows everything else.

use crate::cluster::{DUTIES, Plan};
use crate::connect::event;
use crate::devices::{HANG, arena, next, register};
use crate::keys::Authority;
use crate::support::{Probe, Root, coordinator, process, until};
use obol_fabric::metrics::FabricCounter;
use obol_fabric::{Address, Endpoint, Fabric, Group, LinkError, Remote, Token, Wait};
use obol_fabric_verbs::cm::{EventChannel, Id, Joined, Space, What};
use obol_fabric_verbs::nic::Nic;
use obol_fabric_verbs::pair::{AddressHandle, Kind, QueuePair, Size};
use obol_fabric_verbs::post::To;
use obol_fabric_verbs::queue::CompletionQueue;
use obol_fabric_verbs::registration::{Registration, Rights};
use obol_fabric_verbs::{Config, HostKeys, LinkStatus, Observer, OpenError, Rdma};
use obol_identity::Duty;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

const ONE: Address = Address::region(1);

/// Coordinator 1 of a cluster with keys, on host 1.
struct Guarded {
    plan: Plan,
    authority: Authority,
    me: Endpoint,
    _root: Root,
}

impl Guarded {
    fn new() -> Option<Self> {
        let (plan, authority) = Plan::with_keys()?;
        let root = Root::new();
        let cluster = plan.host(&root, 1);
        let me = plan.open(&cluster, coordinator("me", 1));
        Some(Self { plan, authority, me, _root: root })
    }

    fn count(&self, counter: FabricCounter) -> u64 {
        self.me.region().reader().counters(0)[counter as usize]
    }

    fn until_counted(&self, counter: FabricCounter, before: u64) {
        let begun = std::time::Instant::now();
        while self.count(counter) == before {
            assert!(begun.elapsed() < HANG, "{} stays {before}", counter.name());
            std::thread::yield_now();
        }
    }

    /// A process on host 2 that tries to READ from coordinator 1. Before that its keys are `changed`.
    /// Returns its failures, and why.
    fn try_to_read(&self, keys: bool, changed: impl FnOnce() + Send) -> (Vec<LinkError>, String) {
        let root = Root::new();
        let cluster = self.plan.host(&root, 2);
        let config = if keys { self.plan.config_of(2, None) } else { self.plan.config(None) };
        std::thread::scope(|scope| {
            let tried = scope.spawn(|| {
                let mut probe = Probe::default();
                let mut endpoint =
                    obol_fabric_verbs::open(&cluster, process("stranger"), Wait::Block, &config)
                        .expect("opened");
                changed();
                endpoint.read(Remote { at: ONE, offset: 0 }, 8, Token(0));
                until(&mut endpoint, &mut probe, |p| !p.completions.is_empty());
                let links = endpoint.transport::<Rdma>().expect("its transport").link_status();
                let trouble = links.first().and_then(|link| link.trouble.clone());
                (probe.failures(), trouble.unwrap_or_default())
            });
            tried.join().expect("no panic")
        })
    }
}

#[test]
fn who_knows_everything_but_has_no_keys_cannot_connect() {
    let Some(guarded) = Guarded::new() else { return };
    let before = guarded.count(FabricCounter::Unintroduced);
    // Nonce, layout, release, address and region are right.
    let (failures, trouble) = guarded.try_to_read(false, || {});
    assert_eq!(failures, [LinkError::Denied], "{trouble}");
    assert!(trouble.contains("certificate"), "{trouble}");
    guarded.until_counted(FabricCounter::Unintroduced, before);
}

#[test]
fn a_certificate_of_another_authority_or_an_expired_one_is_refused_and_counted() {
    let Some(guarded) = Guarded::new() else { return };
    let (plan, at) = (&guarded.plan, guarded.plan.keys_of(2));
    let foreign = || Authority::new().issue(&at, plan.ip(), plan.nonce, 2, &DUTIES);
    let expired = || {
        guarded.authority.issue_with(&at, plan.ip(), plan.nonce, 2, &DUTIES, |params| {
            params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        });
    };
    for (spoil, what) in [(&foreign as &(dyn Fn() + Sync), "foreign"), (&expired, "expired")] {
        // It has opened its endpoint with good keys.
        guarded.authority.issue(&at, plan.ip(), plan.nonce, 2, &DUTIES);
        let before = guarded.count(FabricCounter::Strangers);
        let (failures, trouble) = guarded.try_to_read(true, spoil);
        assert_eq!(failures, [LinkError::PeerDead], "{what}: {trouble}");
        guarded.until_counted(FabricCounter::Strangers, before);
    }
}

#[test]
fn a_certificate_without_the_duty_is_refused_and_counted() {
    let Some(guarded) = Guarded::new() else { return };
    let (plan, at) = (&guarded.plan, guarded.plan.keys_of(2));
    let reads_only = || guarded.authority.issue(&at, plan.ip(), plan.nonce, 2, &[Duty::Observer]);
    let before = guarded.count(FabricCounter::ConnectionsRefused);
    let (failures, trouble) = guarded.try_to_read(true, reads_only);
    assert_eq!(failures, [LinkError::Denied], "{trouble}");
    assert!(trouble.contains("certificate"), "{trouble}");
    guarded.until_counted(FabricCounter::ConnectionsRefused, before);

    // The process itself does not start with them, and says so.
    let root = Root::new();
    let cluster = plan.host(&root, 2);
    let config = plan.config_of(2, None);
    // A thread represents one endpoint.
    let start = || obol_fabric_verbs::open(&cluster, process("late"), Wait::Block, &config).err();
    let refused = std::thread::scope(|scope| scope.spawn(start).join().expect("no panic"));
    let Some(OpenError::Config { field: "keys", fault }) = refused else { panic!("{refused:?}") };
    assert!(fault.contains("does not allow an agent of host 2"), "{fault}");
    // An observer reads.
    let mut observer = Observer::open(&config, plan.nonce, cluster.layout()).expect("opened");
    observer.read(ONE).expect("it may");
    let stranger = Observer::open(&plan.config(None), plan.nonce, cluster.layout());
    assert_eq!(stranger.expect("opened").read(ONE).err(), Some(LinkError::Denied));
}

#[test]
fn a_process_of_another_host_is_not_taken_for_a_coordinator() {
    let Some(guarded) = Guarded::new() else { return };
    let (plan, root) = (&guarded.plan, Root::new());
    let cluster = plan.host(&root, 2);
    // The client believes coordinator 1 to be on host 3: the process that answers must have its keys.
    let keys =
        HostKeys { directory: plan.keys_of(2), coordinators: vec![3, 2, 2], hosts: vec![plan.ip(); 4] };
    let config = Config { keys: Some(keys), ..plan.config(None) };
    let tried = std::thread::spawn(move || {
        let mut probe = Probe::default();
        let mut endpoint =
            obol_fabric_verbs::open(&cluster, process("asks"), Wait::Block, &config).expect("opened");
        endpoint.read(Remote { at: ONE, offset: 0 }, 8, Token(0));
        until(&mut endpoint, &mut probe, |p| !p.completions.is_empty());
        (probe.failures(), endpoint.transport::<Rdma>().expect("its transport").link_status())
    });
    let (failures, links) = tried.join().expect("no panic");
    assert_eq!(failures, [LinkError::PeerDead]);
    let trouble = links[0].trouble.as_deref().expect("the reason");
    assert!(trouble.contains("not that of a process of host 3"), "{trouble}");
}

/// Someone in the group of all processes who sends what it likes, and keeps what it receives.
struct Eavesdropper {
    pair: QueuePair,
    heard: Arc<CompletionQueue>,
    sent: Arc<CompletionQueue>,
    memory: Registration,
    handle: AddressHandle,
    joined: Joined,
    _member: Id,
}

/// The longest packet, with the routing header.
const PACKET_BYTES: u32 = 1024;
/// Of the routing header.
const ROUTE_BYTES: usize = 40;

impl Eavesdropper {
    fn new(nic: &Nic, plan: &Plan) -> Self {
        let channel = EventChannel::new().expect("a channel");
        let [heard, sent] = [(); 2].map(|()| CompletionQueue::new(nic.context(), 64, None).expect("a queue"));
        let size = Size { sends: 32, receives: 32, inline_bytes: 128 };
        let pair = QueuePair::new(nic.domain(), Kind::Datagram, &sent, &heard, size).expect("a pair");
        let member = Id::new(&channel, Space::Datagrams).expect("an id");
        member.bind(SocketAddr::new(plan.ip(), 0)).expect("bound");
        member.join(plan.config(None).groups[1]).expect("asked");
        let What::Joined(joined) = event(&channel).what else { panic!("not joined") };
        pair.open(nic.choice().port, joined.qkey).expect("RTS");
        pair.attach(joined.group, joined.lid).expect("attached");
        let handle = joined.handle(nic.domain()).expect("a handle");
        let memory = register(nic, &arena(PACKET_BYTES as usize), Rights::NONE);
        let this = Self { pair, heard, sent, memory, handle, joined, _member: member };
        this.listen();
        this
    }

    fn listen(&self) {
        self.pair.receive(0, self.memory.local(0, PACKET_BYTES)).expect("posted");
    }

    /// The next datagram, without the routing header.
    fn hear(&self) -> Vec<u8> {
        let got = next(&self.heard);
        let words = self.memory.memory().words();
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        let packet = bytes[ROUTE_BYTES..got.bytes() as usize].to_vec();
        self.listen();
        packet
    }

    fn say(&self, bytes: &[u8]) {
        let to = To { handle: &self.handle, number: self.joined.number, qkey: self.joined.qkey };
        self.pair.send_inline(1, bytes, &to).expect("posted");
        next(&self.sent);
    }
}

type Heard = Arc<Mutex<Vec<(Address, Vec<u8>)>>>;

/// Counters, links, and what is wrong with its groups.
type State = Arc<Mutex<(Vec<u64>, Vec<LinkStatus>, Vec<String>)>>;

/// A member on host 2, on a thread, and what it has received.
struct Hearer {
    heard: Heard,
    state: State,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
    _root: Root,
}

impl Hearer {
    fn new(plan: &Plan) -> Self {
        let root = Root::new();
        let cluster = plan.host(&root, 2);
        let (heard, state) = (Heard::default(), State::default());
        let stop = Arc::new(AtomicBool::new(false));
        let (hears, shown, ended, plan) =
            (Arc::clone(&heard), Arc::clone(&state), Arc::clone(&stop), plan.clone());
        let thread = std::thread::spawn(move || {
            let mut probe = Probe::default();
            let mut endpoint = plan.open(&cluster, process("hearer"));
            endpoint.watch(ONE);
            while !ended.load(Ordering::Relaxed) {
                endpoint.poll_once(&mut probe);
                hears.lock().expect("no panic").append(&mut probe.datagrams);
                let troubles = endpoint
                    .transport::<Rdma>()
                    .expect("its transport")
                    .group_errors()
                    .map(|(_, error)| error.to_owned())
                    .collect();
                *shown.lock().expect("no panic") = (
                    endpoint.region().reader().counters(0).to_vec(),
                    endpoint.transport::<Rdma>().expect("its transport").link_status(),
                    troubles,
                );
                std::thread::yield_now();
            }
            probe.deaths.len()
        });
        Self { heard, state, stop, thread: Some(thread), _root: root }
    }

    fn count(&self, counter: FabricCounter) -> u64 {
        self.state.lock().expect("no panic").0.get(counter as usize).copied().unwrap_or_default()
    }

    fn heard(&self, text: &[u8]) -> usize {
        self.heard.lock().expect("no panic").iter().filter(|(_, bytes)| bytes == text).count()
    }

    /// The deaths that were reported to it.
    fn end(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it runs").join().expect("no panic")
    }
}

/// A datagram without a seal, as processes without keys send it.
fn unsealed(nonce: u64, from: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = nonce.to_le_bytes().to_vec();
    bytes.extend_from_slice(&[0; 16]);
    bytes.extend_from_slice(&from.to_le_bytes());
    bytes.extend_from_slice(&1u32.to_le_bytes());
    bytes.extend_from_slice(&0u16.to_le_bytes());
    bytes.extend_from_slice(&(payload.len() as u16).to_le_bytes());
    bytes.extend_from_slice(b"obdg");
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn forged_and_repeated_datagrams_are_ignored_and_counted() {
    let Some(mut guarded) = Guarded::new() else { return };
    let nic = crate::devices::nic().expect("it was there");
    let eavesdropper = Eavesdropper::new(&nic, &guarded.plan);
    let hearer = Hearer::new(&guarded.plan);
    let mut probe = Probe::default();
    let begun = std::time::Instant::now();
    // Until the hearer knows who speaks, it understands nothing.
    while hearer.heard(b"view 7") == 0 {
        guarded.me.multicast(Group::Everyone, b"view 7");
        guarded.me.flush();
        guarded.me.poll_once(&mut probe);
        std::thread::sleep(std::time::Duration::from_millis(20));
        let troubles: Vec<_> =
            guarded.me.transport::<Rdma>().expect("its transport").group_errors().collect();
        let state = hearer.state.lock().expect("no panic").clone();
        assert!(begun.elapsed() < HANG, "nothing arrives: {troubles:?} {state:?}");
    }
    guarded.me.multicast(Group::Everyone, b"view 8");
    guarded.me.flush();
    until(&mut guarded.me, &mut probe, |_| hearer.heard(b"view 8") == 1);
    // One of the first, which was taken, or was sent before the hearer could open it.
    let mut packet = eavesdropper.hear();
    assert!(packet.starts_with(b"obds") && !packet.windows(4).any(|part| part == b"view"), "{packet:?}");
    let refused = || hearer.count(FabricCounter::DatagramsRefused);
    let say = |bytes: &[u8]| {
        let before = refused();
        let begun = std::time::Instant::now();
        while refused() == before {
            eavesdropper.say(bytes);
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert!(begun.elapsed() < HANG, "neither taken nor refused");
        }
    };
    let before = (hearer.heard(b"view 7"), hearer.heard(b"view 8"));
    say(&packet);
    // The number of a datagram that was never sent.
    packet[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
    say(&packet);
    say(&unsealed(guarded.plan.nonce, 1, b"view 9"));
    guarded.me.multicast(Group::Everyone, b"end");
    guarded.me.flush();
    until(&mut guarded.me, &mut probe, |_| hearer.heard(b"end") == 1);
    assert_eq!((hearer.heard(b"view 7"), hearer.heard(b"view 8")), before);
    assert_eq!(hearer.heard(b"view 9"), 0);
    let all_of_one = |(from, _): &(Address, Vec<u8>)| from.region == 1;
    assert!(hearer.heard.lock().expect("no panic").iter().all(all_of_one));
    assert_eq!(hearer.end(), 0, "no death");
}
