//! Who is not let in, and that they cost the others nothing.

use crate::hosts::{ALL, NOTE, PORT, Plan, UNANSWERED};
use crate::keys::Authority;
use crate::support::{Child, HANG, Probe, Root, coordinator, kill, live, until, wait_for};
use nix::sys::resource::{Resource, getrlimit};
use obol_fabric::host::Cluster;
use obol_fabric::{Address, Endpoint, Fabric, Layout, Release, Remote, Token};
use obol_fabric_ip::{GatewayCounter, Ip, counted};
use obol_identity::{self as identity, Duty, Identity};
use obol_rng::Rng;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The roles as they are sent.
pub(crate) const READER: u8 = 0;
pub(crate) const MEMBER: u8 = 1;
pub(crate) const PROPOSER: u8 = 3;
/// The kinds of messages.
pub(crate) const READ: u8 = 1;
pub(crate) const WRITE: u8 = 2;
pub(crate) const CAS: u8 = 3;
const DATAGRAM: u8 = 4;
pub(crate) const PING: u8 = 8;
const NOTE_KIND: u8 = 9;
pub(crate) const ASK: u8 = 11;
pub(crate) const WELCOME: u8 = 32;
const REFUSED: u8 = 33;
const RELEASE: u8 = 3;
pub(crate) const DATA: u8 = 34;
const WRITTEN: u8 = 35;
pub(crate) const FAILED: u8 = 37;
pub(crate) const DENIED: u8 = 3;
const CERTIFICATE: u8 = 2;
/// A region of the first host, and of the second.
pub(crate) const HERE: u32 = 40;
pub(crate) const THERE: u32 = 70;
pub(crate) const PEER: u32 = 2;

pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

/// The second host of a cluster, with a gateway and a coordinator, and an authority.
pub(crate) struct Bed {
    pub(crate) children: [Child; 2],
    pub(crate) plan: Plan,
    pub(crate) authority: Authority,
    pub(crate) cluster: Cluster,
    pub(crate) root: Root,
    here: Root,
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self::with(Plan::new())
    }

    pub(crate) fn with(plan: Plan) -> Self {
        let authority = Authority::new();
        let (here, root) = (Root::new(), Root::new());
        let cluster = plan.host(&authority, &root, 2);
        let gateway = plan.gateway(&cluster, &root);
        let peer = plan.child(&root, "echo", "peer", Some(PEER));
        live(&cluster, "peer");
        Self { children: [gateway, peer], plan, authority, cluster, root, here }
    }

    pub(crate) fn at(&self) -> SocketAddr {
        SocketAddr::new(self.plan.address(2), PORT)
    }

    /// Keys of the first host for these duties.
    pub(crate) fn keys(&self, authority: &Authority, duties: &[Duty]) -> PathBuf {
        let directory = self.here.join(format!("keys-{duties:?}"));
        authority.issue(&directory, self.plan.address(1), self.plan.nonce, 1, duties);
        directory
    }

    /// Connects with keys, and says hello.
    pub(crate) fn greet(&self, keys: &Path, region: u32, role: u8) -> Result<Tls, std::io::Error> {
        self.greet_as(keys, region, role, Release::own())
    }

    /// The same as a process of a release.
    fn greet_as(&self, keys: &Path, region: u32, role: u8, release: Release) -> Result<Tls, std::io::Error> {
        let mut stream = self.wrap(keys, TcpStream::connect(self.at())?)?;
        self.introduce(&mut stream, region, role, release)?;
        Ok(stream)
    }

    /// A connection on which nothing is said yet.
    pub(crate) fn wrap(&self, keys: &Path, socket: TcpStream) -> Result<Tls, std::io::Error> {
        let config = Identity::load(keys).expect("keys").client().expect("usable");
        socket.set_read_timeout(Some(HANG))?;
        let tls =
            ClientConnection::new(config, ServerName::IpAddress(self.at().ip().into())).expect("a name");
        Ok(StreamOwned::new(tls, socket))
    }

    /// Says hello.
    pub(crate) fn introduce(
        &self,
        stream: &mut Tls,
        region: u32,
        role: u8,
        release: Release,
    ) -> Result<(), std::io::Error> {
        let mut hello = b"obol-ip1".to_vec();
        hello.extend(self.plan.nonce.to_le_bytes());
        hello.extend(self.cluster.layout().digest().to_le_bytes());
        hello.extend(release.number().to_le_bytes());
        hello.extend(region.to_le_bytes());
        hello.extend(7u32.to_le_bytes());
        hello.push(role);
        send(stream, &hello)
    }

    /// What the gateway has counted.
    pub(crate) fn counted(&self, counter: GatewayCounter) -> u64 {
        let at = GatewayCounter::ALL.iter().position(|one| *one == counter).expect("listed");
        counted(&self.cluster).expect("it runs")[at]
    }

    /// Whether a process of the first host is served as ever.
    pub(crate) fn serves(&self) {
        let here = Root::new();
        let cluster = self.plan.host(&self.authority, &here, 1);
        let mut me: Endpoint = self.plan.open(&cluster, &here, coordinator("me", 1));
        let mut probe = Probe::default();
        me.read(Remote { at: Address::region(PEER), offset: 0 }, 8, Token(1));
        me.flush();
        until(&mut me, &mut probe, |probe| !probe.completions.is_empty());
        assert!(
            probe.completions[0].1.is_ok(),
            "{:?}",
            me.transport::<Ip>().expect("its transport").link_status()
        );
    }
}

pub(crate) fn send(stream: &mut Tls, message: &[u8]) -> Result<(), std::io::Error> {
    stream.write_all(&(message.len() as u32).to_le_bytes())?;
    stream.write_all(message)?;
    stream.flush()
}

/// The next message.
pub(crate) fn next(stream: &mut Tls) -> Result<Vec<u8>, std::io::Error> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut message = vec![0; u32::from_le_bytes(len) as usize];
    stream.read_exact(&mut message)?;
    Ok(message)
}

/// Whether the other end has closed the connection, politely or not.
pub(crate) fn is_closed(result: Result<Vec<u8>, std::io::Error>) -> bool {
    match result {
        Ok(_) => false,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

/// An operation on a region: kind, target, and the rest.
pub(crate) fn operation(kind: u8, region: u32, offset: u32, rest: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend(region.to_le_bytes());
    message.extend([0; 6]);
    message.extend(offset.to_le_bytes());
    message.extend([0; 4]);
    message.extend(rest);
    message
}

#[test]
fn who_has_no_certificate_of_the_authority_gets_nothing() {
    let bed = Bed::new();
    let stranger = Authority::new();
    let keys = bed.keys(&stranger, &ALL);
    // Either end refuses the other: the stranger's roots do not have the gateway's authority.
    assert!(bed.greet(&keys, HERE, MEMBER).and_then(|mut stream| next(&mut stream)).is_err());
    // With our authority among its roots, it is the gateway that refuses.
    std::fs::copy(bed.root.join("keys/ca.pem"), keys.join("ca.pem")).expect("copied");
    assert!(is_closed(bed.greet(&keys, HERE, MEMBER).and_then(|mut stream| next(&mut stream))));
    // No TLS at all.
    let mut plain = TcpStream::connect(bed.at()).expect("it listens");
    plain.set_read_timeout(Some(HANG)).expect("set");
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    let mut rest = Vec::new();
    let _reset_or_alert = plain.read_to_end(&mut rest);
    assert!(rest.len() < 16, "{rest:?}");
    bed.serves();
    assert_eq!((bed.counted(GatewayCounter::Strangers), bed.counted(GatewayCounter::Refused)), (3, 0));
}

#[test]
fn an_expired_certificate_is_refused() {
    let bed = Bed::new();
    let keys = bed.here.join("expired");
    bed.authority.issue_with(&keys, bed.plan.address(1), bed.plan.nonce, 1, &ALL, |params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    });
    assert!(is_closed(bed.greet(&keys, HERE, MEMBER).and_then(|mut stream| next(&mut stream))));
    bed.serves();
}

#[test]
fn who_asks_whether_a_gateway_lets_it_in_learns_so_before_a_process_needs_it() {
    let bed = Bed::new();
    let greet = |keys: &Path| identity::greet(keys, bed.at(), HANG);
    greet(&bed.keys(&bed.authority, &ALL)).expect("let in");
    let other = bed.here.join("other");
    Authority::new().issue(&other, bed.plan.address(1), bed.plan.nonce, 1, &ALL);
    greet(&other).expect_err("the gateway's certificate is of no authority here");
    // Trusting the gateway is not enough.
    std::fs::copy(bed.root.join("keys/ca.pem"), other.join("ca.pem")).expect("copied");
    let said = greet(&other).expect_err("this one is of no authority there").to_string();
    assert!(said.contains("alert"), "{said}");
    // The kernel accepts for one that does not look, such as a frozen gateway.
    let deaf = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = deaf.local_addr().expect("bound");
    let silent = identity::greet(&other, at, Duration::from_millis(50)).expect_err("nobody answers");
    assert_eq!(silent.kind(), ErrorKind::TimedOut, "{silent}");
}

#[test]
fn a_role_or_region_that_the_certificate_does_not_allow_is_refused() {
    let bed = Bed::new();
    let (agent, observer) =
        (bed.keys(&bed.authority, &[Duty::Agent]), bed.keys(&bed.authority, &[Duty::Observer]));
    let all = bed.keys(&bed.authority, &ALL);
    for (keys, region, role) in [
        (&agent, 1, PROPOSER),
        (&agent, 0, READER),
        (&observer, HERE, MEMBER),
        // A region of the other host, and a coordinator of it.
        (&all, THERE, MEMBER),
        (&all, PEER, PROPOSER),
        // No region of a member, and no number of a coordinator.
        (&all, 0, MEMBER),
        (&all, HERE, PROPOSER),
        (&all, 1, MEMBER),
        (&all, HERE, READER),
    ] {
        let mut stream = bed.greet(keys, region, role).expect("connected");
        assert_eq!(next(&mut stream).expect("a reply"), [REFUSED, CERTIFICATE, 0, 0], "{region} {role}");
        assert!(is_closed(next(&mut stream)));
    }
    for (keys, region, role) in [(&agent, HERE, MEMBER), (&observer, 0, READER), (&all, 1, PROPOSER)] {
        let mut stream = bed.greet(keys, region, role).expect("connected");
        assert_eq!(next(&mut stream).expect("a reply")[0], WELCOME, "{region} {role}");
    }
    bed.serves();
    // With the process that was served.
    assert_eq!((bed.counted(GatewayCounter::Refused), bed.counted(GatewayCounter::Admitted)), (9, 4));
}

#[test]
fn a_host_that_the_file_does_not_have_is_refused() {
    let bed = Bed::new();
    // The file has two, and the authority has certified more: they were taken out, or never in.
    for (host, region) in [(3, 3 * 32), (31, 31 * 32)] {
        let keys = bed.here.join(host.to_string());
        bed.authority.issue(&keys, bed.plan.address(1), bed.plan.nonce, host, &ALL);
        for (region, role) in [(0, READER), (region, MEMBER)] {
            let mut stream = bed.greet(&keys, region, role).expect("connected");
            assert_eq!(next(&mut stream).expect("a reply"), [REFUSED, CERTIFICATE, 0, 0], "{host} {role}");
        }
    }
    // Host 0 says nothing about the cluster.
    let keys = bed.here.join("0");
    bed.authority.issue(&keys, bed.plan.address(1), bed.plan.nonce, 0, &ALL);
    let mut stream = bed.greet(&keys, 0, READER).expect("connected");
    assert_eq!(next(&mut stream).expect("a reply"), [REFUSED, CERTIFICATE, 0, 0]);
    assert_eq!(bed.counted(GatewayCounter::Refused), 5);
    bed.serves();
}

#[test]
fn what_is_no_annotation_is_refused() {
    let bed = Bed::new();
    let mut stream = bed.greet(&bed.keys(&bed.authority, &ALL), 0, READER).expect("connected");
    assert_eq!(next(&mut stream).expect("a reply")[0], WELCOME);
    let mut note = |bytes: &[u8]| {
        send(&mut stream, &[&[NOTE_KIND], bytes].concat()).expect("sent");
        next(&mut stream).expect("a reply")
    };
    assert_eq!(note(NOTE), [WRITTEN]);
    for bytes in [&b""[..], b"not one", &[255; 4096], &[NOTE, &[0; 4096]].concat()] {
        assert_eq!(note(bytes), [FAILED, DENIED], "{bytes:?}");
    }
    assert_eq!(bed.counted(GatewayCounter::Denied), 4);
}

#[test]
fn a_process_of_a_neighbouring_release_is_let_in_and_of_another_one_learns_which_is_here() {
    let bed = Bed::new();
    let all = bed.keys(&bed.authority, &ALL);
    let own = Release::own().number();
    for (release, welcome) in [(own - 1, true), (own, true), (own + 1, true), (own + 2, false)] {
        let mut stream = bed.greet_as(&all, HERE, MEMBER, Release::of(release)).expect("connected");
        let reply = next(&mut stream).expect("a reply");
        if welcome {
            assert_eq!(reply[0], WELCOME, "{release}");
        } else {
            assert_eq!(reply, [&[REFUSED, RELEASE], &own.to_le_bytes()[..]].concat());
        }
    }
    bed.serves();
}

#[test]
fn an_observer_reads_and_changes_nothing() {
    let bed = Bed::new();
    let mut stream = bed.greet(&bed.keys(&bed.authority, &ALL), 0, READER).expect("connected");
    assert_eq!(next(&mut stream).expect("a reply")[0], WELCOME);
    let layout = *bed.cluster.layout();
    let word = 77u64.to_le_bytes();
    let swap = [[0; 8], word].concat();
    for message in [
        operation(WRITE, PEER, layout.value(0, 1), &word),
        operation(CAS, PEER, layout.slot(0), &swap),
        operation(CAS, PEER, layout.fence(), &swap),
    ] {
        send(&mut stream, &message).expect("sent");
        assert_eq!(next(&mut stream).expect("a reply"), [FAILED, DENIED], "{message:?}");
    }
    for offset in [layout.value(0, 1), layout.slot(0), layout.fence()] {
        send(&mut stream, &operation(READ, PEER, offset, &8u32.to_le_bytes())).expect("sent");
        assert_eq!(next(&mut stream).expect("a reply"), [&[DATA][..], &[0; 8]].concat());
    }
    assert_eq!(bed.counted(GatewayCounter::Denied), 3);
    // A datagram of it is lost.
    let mut datagram = vec![DATAGRAM];
    datagram.extend(PEER.to_le_bytes());
    datagram.extend([0; 6]);
    datagram.extend(b"hello");
    send(&mut stream, &datagram).expect("sent");
    assert_eq!(next(&mut stream).expect("a reply")[0], 39);
}

#[test]
fn a_question_is_answered_by_the_program_and_whoever_sends_more_before_that_is_dismissed() {
    let bed = Bed::new();
    let keys = bed.keys(&bed.authority, &ALL);
    let ask = |bytes: &[u8]| [&[ASK], bytes].concat();
    let mut stream = bed.greet(&keys, 0, READER).expect("connected");
    assert_eq!(next(&mut stream).expect("a reply")[0], WELCOME);
    for bytes in [&b"first"[..], b"", &[7; 4096]] {
        send(&mut stream, &ask(bytes)).expect("sent");
        assert_eq!(next(&mut stream).expect("an answer"), [&[DATA], bytes].concat());
    }
    send(&mut stream, &ask(&[7; 4097])).expect("sent");
    assert_eq!(next(&mut stream).expect("a reply"), [FAILED, DENIED], "it is too long");
    send(&mut stream, &ask(UNANSWERED)).expect("sent");
    send(&mut stream, &[PING]).expect("sent");
    assert!(is_closed(next(&mut stream)));
    // A gateway is admitted for its pulses alone.
    let mut stream = bed.greet(&bed.keys(&bed.authority, &[Duty::Gateway]), 0, READER).expect("connected");
    assert_eq!(next(&mut stream).expect("a reply")[0], WELCOME);
    send(&mut stream, &ask(b"may I")).expect("sent");
    assert_eq!(next(&mut stream).expect("a reply"), [FAILED, DENIED]);
    assert_eq!((bed.counted(GatewayCounter::Invalid), bed.counted(GatewayCounter::Denied)), (1, 2));
    bed.serves();
}

#[test]
fn an_invalid_message_ends_its_session_alone() {
    let bed = Bed::new();
    let keys = bed.keys(&bed.authority, &ALL);
    for message in [&[][..], &[0], &[255, 1, 2, 3], &[READ, 0], &operation(CAS, PEER, 0, &[0; 15])] {
        let mut stream = bed.greet(&keys, HERE, MEMBER).expect("connected");
        assert_eq!(next(&mut stream).expect("a reply")[0], WELCOME);
        send(&mut stream, message).expect("sent");
        assert!(is_closed(next(&mut stream)), "{message:?}");
    }
    // A length beyond all limits.
    let mut stream = bed.greet(&keys, HERE, MEMBER).expect("connected");
    assert_eq!(next(&mut stream).expect("a reply")[0], WELCOME);
    stream.write_all(&u32::MAX.to_le_bytes()).expect("sent");
    stream.flush().expect("sent");
    assert!(is_closed(next(&mut stream)));
    assert_eq!(bed.counted(GatewayCounter::Invalid), 6);
    bed.serves();
}

/// Messages that a member of another host sends until the gateway ends its session: mostly with valid
/// kinds, and numbers at and beyond all limits.
fn mutated(rng: &mut Rng, layout: &Layout) -> Vec<u8> {
    let bytes = layout.bytes() as u32;
    let offsets = [0, 8, 7, layout.fence(), layout.slot(0), layout.value(0, 1), bytes - 8, bytes, u32::MAX];
    let regions = [0, 1, PEER, HERE, THERE, THERE + 1, 1 << 20, u32::MAX];
    let lengths = [0, 1, 7, 8, 16, 64, 1 << 20, u32::MAX];
    let mut one_of = |all: &[u32]| all[rng.below(all.len() as u64) as usize];
    let (kind, region, offset, len) = (
        one_of(&[1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8]) as u8,
        one_of(&regions),
        one_of(&offsets),
        one_of(&lengths),
    );
    let mut message = vec![kind];
    match kind {
        READ | WRITE | CAS => {
            // A long READ is answered at length, so there are few of them.
            let len = if len == 1 << 20 && !rng.permille(1) { 8 } else { len };
            let rest = match kind {
                READ => len.to_le_bytes().to_vec(),
                WRITE => vec![rng.next_u64() as u8; len.min(4096) as usize],
                _ => [rng.next_u64().to_le_bytes(), rng.next_u64().to_le_bytes()].concat(),
            };
            message = operation(kind, region, offset, &rest);
        }
        5 => {
            message.extend(region.to_le_bytes());
            message.extend(vec![0; len.min(2048) as usize]);
        }
        8 => {}
        _ => {
            message.extend(region.to_le_bytes());
            message.extend([0; 6]);
            if kind == DATAGRAM {
                message.extend(vec![0; len.min(2048) as usize]);
            }
        }
    }
    // Some are not messages at all.
    if rng.below(2000) == 0 {
        match rng.below(3) {
            0 => message.truncate(message.len() / 2),
            1 => message[0] = rng.next_u64() as u8,
            _ => message.extend([0; 3]),
        }
    }
    message
}

#[test]
fn a_million_mutated_messages_change_nothing_that_a_member_may_not_change() {
    const MESSAGES: u32 = 1_000_000;
    const BATCH: u32 = 500;
    let bed = Bed::new();
    let keys = bed.keys(&bed.authority, &ALL);
    let layout = *bed.cluster.layout();
    let mut rng = Rng::new(1);
    let mut sessions = 0;
    let mut stream = None;
    let mut sent = 0;
    while sent < MESSAGES {
        let open: &mut Tls = stream.get_or_insert_with(|| {
            sessions += 1;
            let mut stream = bed.greet(&keys, HERE, MEMBER).expect("connected");
            assert_eq!(next(&mut stream).expect("a reply")[0], WELCOME);
            stream
        });
        let mut batch = Vec::new();
        for _ in 0..BATCH {
            let message = mutated(&mut rng, &layout);
            batch.extend((message.len() as u32).to_le_bytes());
            batch.extend(message);
        }
        // The answer to this is the last one, if the session lives on.
        let mark = operation(READ, PEER, layout.slot(1), &24u32.to_le_bytes());
        batch.extend((mark.len() as u32).to_le_bytes());
        batch.extend(mark);
        sent += BATCH;
        let ended = open.write_all(&batch).and_then(|()| open.flush()).is_err()
            || loop {
                match next(open) {
                    Ok(reply) if reply.len() == 25 => break false,
                    Ok(_) => {}
                    Err(error) => {
                        assert!(is_closed(Err(error)), "no answer");
                        break true;
                    }
                }
            };
        if ended {
            stream = None;
        }
    }
    assert!(sessions > 100, "{sessions} sessions: hardly any message was invalid");
    assert!(bed.counted(GatewayCounter::Invalid) >= sessions - 1, "{sessions} sessions");
    assert!(bed.counted(GatewayCounter::Denied) > u64::from(MESSAGES / 100));
    // A member swaps no acceptor's word, writes no value of an acceptor and raises no fence.
    let mut observer = bed.greet(&keys, 0, READER).expect("connected");
    assert_eq!(next(&mut observer).expect("a reply")[0], WELCOME);
    for offset in [layout.slot(0), layout.value(0, 1), layout.fence()] {
        send(&mut observer, &operation(READ, PEER, offset, &8u32.to_le_bytes())).expect("sent");
        assert_eq!(next(&mut observer).expect("a reply"), [&[DATA][..], &[0; 8]].concat());
    }
    bed.serves();
}

#[test]
fn who_stops_in_the_middle_stops_nobody_else() {
    let bed = Bed::new();
    let keys = bed.keys(&bed.authority, &ALL);
    // In the middle of a message, and of the handshake.
    let mut half = bed.greet(&keys, HERE, MEMBER).expect("connected");
    assert_eq!(next(&mut half).expect("a reply")[0], WELCOME);
    half.write_all(&100u32.to_le_bytes()).expect("sent");
    half.write_all(&[READ]).expect("sent");
    half.flush().expect("sent");
    let mut silent = TcpStream::connect(bed.at()).expect("it listens");
    silent.write_all(&[22, 3, 1, 0, 200]).expect("sent");
    bed.serves();
    drop(half);
}

#[test]
fn who_takes_no_answers_keeps_nobody_waiting() {
    let bed = Bed::new();
    let mut stream = bed.greet(&bed.keys(&bed.authority, &ALL), HERE, MEMBER).expect("connected");
    assert_eq!(next(&mut stream).expect("a reply")[0], WELCOME);
    let bytes = bed.cluster.layout().bytes() as u32 / 8 * 8;
    let read = operation(READ, PEER, 0, &bytes.to_le_bytes());
    stream.sock.set_write_timeout(Some(std::time::Duration::from_millis(200))).expect("set");
    // Until the gateway reads no more of them.
    for _ in 0..200_000 {
        if send(&mut stream, &read).is_err() {
            break;
        }
    }
    bed.serves();
}

#[test]
fn many_connections_keep_nobody_out() {
    let bed = Bed::new();
    // As many at once as this process may have; the gateway has given up most of them.
    let most = usize::try_from(getrlimit(Resource::RLIMIT_NOFILE).expect("known").0).unwrap_or(usize::MAX);
    let mut idle = VecDeque::new();
    for n in 0..10_000 {
        if idle.len() + 100 > most {
            idle.pop_front();
        }
        idle.extend(TcpStream::connect(bed.at()).ok());
        if n % 2_500 == 0 {
            bed.serves();
        }
    }
    bed.serves();
    let given_up = bed.counted(GatewayCounter::Strangers);
    assert!(given_up > 9_000, "{given_up} connections were given up");
}

#[test]
fn new_keys_are_used_without_a_restart() {
    let bed = Bed::new();
    let later = Authority::new();
    let keys = bed.here.join("later");
    later.issue(&keys, bed.plan.address(1), bed.plan.nonce, 1, &ALL);
    assert!(bed.greet(&keys, HERE, MEMBER).and_then(|mut stream| next(&mut stream)).is_err());
    later.issue(&bed.root.join("keys"), bed.plan.address(2), bed.plan.nonce, 2, &ALL);
    let mut stream = bed.greet(&keys, HERE, MEMBER).expect("connected");
    assert_eq!(next(&mut stream).expect("a reply")[0], WELCOME);
    // The former authority is trusted no longer.
    let former = bed.keys(&bed.authority, &ALL);
    std::fs::copy(keys.join("ca.pem"), former.join("ca.pem")).expect("copied");
    assert!(is_closed(bed.greet(&former, HERE, MEMBER).and_then(|mut stream| next(&mut stream))));
}

#[test]
fn keys_of_another_host_are_not_taken_into_use() {
    let bed = Bed::new();
    let keys = bed.keys(&bed.authority, &ALL);
    bed.authority.issue(&bed.root.join("keys"), bed.plan.address(2), bed.plan.nonce, 1, &ALL);
    let mut stream = bed.greet(&keys, HERE, MEMBER).expect("connected");
    assert_eq!(next(&mut stream).expect("a reply")[0], WELCOME);
    // Its former certificate, which names host 2.
    bed.serves();
}

#[test]
fn who_waited_for_a_frozen_gateway_is_no_stranger() {
    let bed = Bed::new();
    let connect = || TcpStream::connect(bed.at()).expect("the kernel accepts");
    kill(&bed.children[0], "STOP");
    // They give up before it runs again.
    (0..3).for_each(|_| drop(connect()));
    std::thread::sleep(Duration::from_millis(2500));
    kill(&bed.children[0], "CONT");
    wait_for(|| bed.counted(GatewayCounter::Missed) == 3);
    assert_eq!(bed.counted(GatewayCounter::Strangers), 0);
    drop(connect());
    wait_for(|| bed.counted(GatewayCounter::Strangers) == 1);
    bed.serves();
}

#[test]
fn a_gateway_of_another_host_is_not_believed() {
    // Keys for the address of host 2, signed by the authority, that name host 3. An honest gateway
    // does not use them.
    let (plan, authority) = (Plan::new(), Authority::new());
    let here = Root::new();
    let mine = plan.host(&authority, &here, 1);
    let keys = here.join("impostor");
    authority.issue(&keys, plan.address(2), plan.nonce, 3, &ALL);
    let config = Identity::load(&keys).expect("keys").server().expect("usable");
    let listener = TcpListener::bind((plan.address(2), PORT)).expect("free");
    // It ends with this process.
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let tls = ServerConnection::new(config.clone()).expect("made");
            let _until_it_is_closed = StreamOwned::new(tls, socket).read(&mut [0]);
        }
    });
    let mut me = plan.open(&mine, &here, coordinator("me", 1));
    let mut probe = Probe::default();
    me.read(Remote { at: Address::region(PEER), offset: 0 }, 8, Token(1));
    me.flush();
    until(&mut me, &mut probe, |probe| !probe.completions.is_empty());
    assert!(probe.completions[0].1.is_err());
    let trouble =
        me.transport::<Ip>().expect("its transport").link_status()[0].trouble.clone().expect("a reason");
    assert!(trouble.contains("not that of the gateway of host 2"), "{trouble}");
}
