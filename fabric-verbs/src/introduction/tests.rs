use super::*;
use crate::context::Gid;
use crate::exposed::{Keys, Plane};
use keys::Authority;
use obol_fabric::host::Wake;
use obol_fabric::types::Instant;
use obol_fabric::version::Release;
use obol_identity::{Admit, Identity, Need, ServerKeys};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

#[path = "../../../identity/tests/support/keys.rs"]
mod keys;

const NONCE: u64 = 77;
/// Regions of the first host (which serves) and of the second.
const HERE: u32 = 40;
const THERE: u32 = 70;
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Generous: only a hang takes that long.
const HANG: Duration = Duration::from_secs(20);
const MEMBERS: [Duty; 2] = [Duty::Agent, Duty::Observer];

fn identity() -> super::Identity {
    super::Identity { nonce: NONCE, layout: 5, release: Release::own() }
}

fn member(region: u32) -> Hello {
    let from =
        Address { host: obol_fabric::types::mapped(LOCAL).into(), port: 9, seat: 0, region, generation: 3 };
    let plane = Plane::Common;
    Hello { cluster: identity(), region: HERE, generation: 0, from, role: Role::Member, plane }
}

fn welcome() -> Welcome {
    let (behind, log) = (None, None);
    let keys = Keys { base: 2, read: Some(3), fence: Some(0), slots: None, values: Some(4), behind, log };
    let (tokens, clock) = ([8, 9], Instant(10));
    Welcome { generation: 1, keys, gid: Gid([3; 16]), lid: 5, queue_pair: 6, qkey: 7, tokens, clock }
}

/// A process that admits others, on host 1.
struct Served {
    at: SocketAddr,
    tickets: Arc<Tickets>,
    counted: Arc<Mutex<Vec<FabricCounter>>>,
    stop: Arc<(AtomicBool, Wake)>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn start(directory: &Path) -> Self {
        let listener = TcpListener::bind((LOCAL, 0)).expect("bound");
        let at = listener.local_addr().expect("bound");
        let counted = Arc::new(Mutex::new(Vec::new()));
        let counts = Arc::clone(&counted);
        let tickets = Arc::new(Tickets::new(Arc::new(move |counter| {
            counts.lock().expect("no panic").push(counter);
        })));
        let own = Address { generation: 1, ..Address::region(HERE) };
        let gate = TicketGate {
            tickets: Arc::clone(&tickets),
            cluster: identity(),
            own,
            coordinators: vec![1, 2, 3],
            hosts: vec![LOCAL; 3],
        };
        let host = Identity::load(directory).expect("keys").claims(NONCE).expect("of this cluster").host;
        let duty = [Duty::Agent, Duty::Observer]
            .into_iter()
            .find_map(|duty| ServerKeys::load(directory, Need { nonce: NONCE, host, duty }).ok());
        let keys = duty.expect("keys");
        let stop = Arc::new((AtomicBool::new(false), Wake::new().expect("made")));
        let ended = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let turns = core::sync::atomic::AtomicU64::new(0);
            Admit::new(listener, keys, NONCE, gate).run(&ended.0, &ended.1, &turns);
        });
        Self { at, tickets, counted, stop, thread: Some(thread) }
    }

    fn get(&self, directory: &Path, hello: &Hello) -> Result<Ticket, TicketError> {
        let route = Route {
            from: Some(LOCAL),
            to: self.at,
            who: "a process",
            host: 1,
            nonce: NONCE,
            identity: directory,
            patience: HANG,
            message_bytes_max: MESSAGE_BYTES_MAX,
        };
        Ticket::get(&route, hello, Some(&DatagramKey::draw().expect("drawn")))
    }

    fn count(&self, counter: FabricCounter) -> usize {
        self.counted.lock().expect("no panic").iter().filter(|one| **one == counter).count()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Release);
        self.stop.1.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Hosts {
    directory: tempfile::TempDir,
    authority: Authority,
}

impl Hosts {
    fn new() -> Self {
        let this = Self { directory: tempfile::tempdir().expect("made"), authority: Authority::new() };
        this.authority.issue(&this.at("1"), LOCAL, NONCE, 1, &MEMBERS);
        this.authority.issue(&this.at("2"), LOCAL, NONCE, 2, &MEMBERS);
        this
    }

    fn at(&self, host: &str) -> PathBuf {
        self.directory.path().join(host)
    }
}

fn until(mut holds: impl FnMut() -> bool) {
    let begun = Time::now();
    while !holds() {
        assert!(begun.elapsed() < HANG, "this hangs");
        std::thread::yield_now();
    }
}

#[test]
fn a_ticket_is_good_for_one_connection_whose_answer_only_its_holder_reads() {
    let hosts = Hosts::new();
    let served = Served::start(&hosts.at("1"));
    let ticket = served.get(&hosts.at("2"), &member(THERE)).expect("admitted");
    let other = served.get(&hosts.at("2"), &member(THERE)).expect("admitted");
    let mut request = ticket.request();
    request.resize(REQUEST_BYTES_MAX, 0);
    let introduced = served.tickets.redeem(&request, Time::now()).expect("a good ticket");
    assert_eq!(introduced.hello, member(THERE));
    assert!(served.tickets.redeem(&request, Time::now()).is_none(), "repeated");

    assert!(introduced.datagram_key.is_some());

    let datagram_key = DatagramKey::draw().expect("drawn");
    let mut answer = introduced.seal(&welcome(), &datagram_key).expect("sealed");
    let clear = with_datagram_key(welcome().encode(), Some(&datagram_key));
    assert!(!answer.windows(16).any(|part| clear.windows(16).any(|secret| part == secret)));
    answer.resize(ACCEPT_BYTES_MAX, 0);
    let (opened, heard) = ticket.open(&answer).expect("its own");
    assert!(opened == welcome() && heard.is_some());
    assert!(other.open(&answer).is_none(), "another's key");
    for at in 0..ANSWER_BYTES {
        let mut mutated = answer.clone();
        mutated[at] ^= 1;
        assert!(ticket.open(&mutated).is_none(), "byte {at}");
    }
    assert!(ticket.open(&clear).is_none(), "not sealed");
    assert_eq!(served.count(FabricCounter::Unintroduced), 1);
}

#[test]
fn forged_and_late_tickets_are_refused_and_counted() {
    let hosts = Hosts::new();
    let served = Served::start(&hosts.at("1"));
    let request = served.get(&hosts.at("2"), &member(THERE)).expect("admitted").request();
    let now = Time::now();
    for at in 0..request.len() {
        let mut mutated = request.clone();
        mutated[at] ^= 1;
        assert!(served.tickets.redeem(&mutated, now).is_none(), "byte {at}");
    }
    // As a process without keys introduces itself: all that was secret once.
    assert!(served.tickets.redeem(&member(THERE).encode(), now).is_none());
    assert!(served.tickets.redeem(&[], now).is_none());
    assert!(served.tickets.redeem(&request, now + TICKET_LIFE * 2).is_none(), "late");
    assert_eq!(served.count(FabricCounter::Unintroduced), request.len() + 3);
}

#[test]
fn a_certificate_must_allow_role_and_region() {
    let hosts = Hosts::new();
    let served = Served::start(&hosts.at("1"));
    let elsewhere = Address { host: 1 << 100, ..member(THERE).from };
    let coordinator = |region| Hello { from: Address::region(region), role: Role::Proposer, ..member(THERE) };
    for (wrong, why) in [
        (Hello { role: Role::Fencer, ..member(THERE) }, "no cache"),
        (coordinator(2), "no coordinator, though the number is its host's"),
        (member(HERE), "a region of another host"),
        (member(2), "a coordinator's region"),
        (Hello { role: Role::Reader, ..member(THERE) }, "an observer has no region"),
        (Hello { from: elsewhere, ..member(THERE) }, "another address"),
    ] {
        let refused = served.get(&hosts.at("2"), &wrong).expect_err(why);
        assert!(matches!(refused, TicketError::Refused(Refusal::Certificate)), "{why}: {refused}");
    }
    let observer = Hello { from: Address::default(), role: Role::Reader, ..member(THERE) };
    let ticket = served.get(&hosts.at("2"), &observer).expect("admitted");
    let introduced = served.tickets.redeem(&ticket.request(), Time::now()).expect("a good ticket");
    let answer = introduced.seal(&welcome(), &DatagramKey::draw().expect("drawn")).expect("sealed");
    let (opened, heard) = ticket.open(&answer).expect("its own");
    assert_eq!(opened, Welcome { tokens: [0; 2], ..welcome() }, "it can forge no notice");
    assert!(heard.is_none(), "it can forge no datagram");
    hosts.authority.issue(&hosts.at("2"), LOCAL, NONCE, 2, &[Duty::Coordinator]);
    served.get(&hosts.at("2"), &coordinator(2)).expect("admitted");
    let refused = served.get(&hosts.at("2"), &coordinator(3)).expect_err("host 3's number");
    assert!(matches!(refused, TicketError::Refused(Refusal::Certificate)), "{refused}");
    assert_eq!(served.count(FabricCounter::ConnectionsRefused), 7);
}

#[test]
fn strangers_are_not_let_in_and_do_not_serve() {
    let hosts = Hosts::new();
    let served = Served::start(&hosts.at("1"));
    let foreign = Authority::new();
    foreign.issue(&hosts.at("foreign"), LOCAL, NONCE, 2, &MEMBERS);
    hosts.authority.issue_with(&hosts.at("expired"), LOCAL, NONCE, 2, &MEMBERS, |params| {
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    });
    for stranger in ["foreign", "expired"] {
        let refused = served.get(&hosts.at(stranger), &member(THERE)).expect_err(stranger);
        assert!(matches!(refused, TicketError::Connect(_)), "{stranger}: {refused}");
    }
    until(|| served.count(FabricCounter::Strangers) == 2);
    hosts.authority.issue(&hosts.at("other"), LOCAL, NONCE + 1, 2, &MEMBERS);
    let refused = served.get(&hosts.at("other"), &member(THERE)).expect_err("another cluster's");
    assert!(matches!(refused, TicketError::Refused(Refusal::Certificate)), "{refused}");

    // With a valid certificate, but of another host, or without a duty to serve.
    hosts.authority.issue(&hosts.at("reads"), LOCAL, NONCE, 1, &[Duty::Observer, Duty::Gateway]);
    for wrong in ["2", "reads"] {
        let posing = Served::start(&hosts.at(wrong));
        let refused = posing.get(&hosts.at("2"), &member(THERE)).expect_err(wrong);
        assert!(matches!(refused, TicketError::Connect(ConnectError::Stranger(..))), "{wrong}: {refused}");
        assert!(posing.tickets.issued().is_empty());
    }
}

#[test]
fn replaced_keys_are_used_for_the_next_introduction() {
    let mut hosts = Hosts::new();
    let served = Served::start(&hosts.at("1"));
    served.get(&hosts.at("2"), &member(THERE)).expect("admitted");
    hosts.authority = Authority::new();
    hosts.authority.issue(&hosts.at("2"), LOCAL, NONCE, 2, &MEMBERS);
    served.get(&hosts.at("2"), &member(THERE)).expect_err("of another authority");
    hosts.authority.issue(&hosts.at("1"), LOCAL, NONCE, 1, &MEMBERS);
    served.get(&hosts.at("2"), &member(THERE)).expect("admitted with the new keys");
}
