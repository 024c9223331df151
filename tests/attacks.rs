//! A gateway of a running cluster is attacked, by processes that it has let in and by strangers, and no other
//! member notices. Hosts and the stranger are network namespaces. The attackers are processes of their own,
//! which speak TLS and the protocol by themselves: what the fabric's client never does is what they do.

use crate::hosts::{HOSTS, Hosts};
use crate::support::bridges::Bridges;
use crate::support::{Ran, Status, signal};
use obol_fabric::host::{Cluster, PER_HOST};
use obol_fabric::{Name, Nanos, Release};
use obol_profiles::Profile;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The arguments of an attacker, which is this test program: what it does, its keys, and what it needs to
/// introduce itself.
const ARGUMENTS: &str = "OBOL_TEST_ATTACK";
/// The host that is attacked, which is that of the leader; the one whose processes attack it; one that the
/// file of hosts does not name.
const VICTIM: u8 = 1;
const INSIDER: u8 = 3;
const STRANGER: u8 = HOSTS + 1;
const PORT: u16 = 7471;
const PATHS: u8 = 2;
/// As the file of hosts says.
const NONCE: u64 = 0xaa;

/// Nobody is suspected for a pause of a busy machine, only for what lasts.
const PATIENCE: Nanos = Nanos::from_secs(5);
const PULSE: &str =
    "\n[pulse]\nmode = \"on\"\nperiod = \"10ms\"\ntimeout = \"3s\"\npaths = 2\npriority = \"none\"\n";
/// Renewals of each member that an attack has to last for.
const RENEWALS: u64 = 50;
/// Of these, as many more may be late than without an attack.
const NOISE: u64 = RENEWALS / 5;

fn profile() -> String {
    let mut profile = Profile::builtin("lan").expect("it is built in");
    profile.ip.detection = PATIENCE;
    let timing = &mut profile.timing;
    timing.link_timeout = PATIENCE;
    timing.heartbeat_confirm = u32::try_from(PATIENCE.0 / timing.heartbeat_period.0).expect("a few");
    // Leases that grow are views of their own.
    timing.lease = Nanos::from_secs(2);
    timing.lease_max = timing.lease;
    profile.to_toml() + PULSE
}

/// What the victim's host shows of the cluster.
#[derive(Debug)]
struct Figures {
    view: u64,
    /// Who is a member, and in which life.
    members: Vec<(String, u64)>,
    /// The least that an agent of the other hosts has renewed in time, and how often both were late.
    renewed: u64,
    late: u64,
    /// Members that others took for dead, unreachable or silent.
    suspected: u64,
    /// Leases that ended by a proof of the holder's death.
    proved: u64,
    /// What the gateway has counted.
    counters: BTreeMap<String, u64>,
}

impl Figures {
    /// `None` while a process cannot be read.
    fn of(status: &Status) -> Option<Self> {
        let all = status.processes();
        // Those that are not zero are shown.
        let counted = |name: &str, counter: &str| -> Option<u64> {
            let counters = all.get(name)?["counters"].as_object()?;
            counters.get(counter).map_or(Some(0), Value::as_u64)
        };
        let lives = all.keys().map(|name| ((*name).to_owned(), status.incarnation(name)));
        let members: Vec<(String, u64)> = lives.filter(|(_, life)| *life != 0).collect();
        let sum = |names: &[&str], counters: &[&str]| {
            let each = names.iter().flat_map(|name| counters.iter().map(|counter| counted(name, counter)));
            each.sum::<Option<u64>>()
        };
        let [one, other] = ["node-1", "node-2"];
        let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
        let doubts = ["heartbeat_suspicions", "false_suspicions", "links_lost", "failures"];
        let counters = serde_json::from_value(status.json["gateway"]["counters"].clone()).ok()?;
        Some(Self {
            view: status.view(),
            renewed: counted(one, "renewals_on_time")?.min(counted(other, "renewals_on_time")?),
            late: sum(&[one, other], &["renewals_late"])?,
            proved: sum(&["coord-1", "coord-2", "coord-3"], &["cleared_by_proof"])?,
            suspected: sum(&names, &doubts)?,
            members,
            counters,
        })
    }

    fn counted(&self, counter: &str) -> u64 {
        *self.counters.get(counter).unwrap_or_else(|| panic!("no {counter}: {self:?}"))
    }
}

/// An attacker, which ends with this.
struct Attacker(Child);

impl Attacker {
    fn start(hosts: &Hosts, from: u8, attack: &str) -> Self {
        let root = hosts.file(&format!("host-{VICTIM}/root"));
        let cluster = Cluster::open(&root, Name::new("default").expect("a name")).expect("it runs");
        let keys = hosts.file(&format!("host-{INSIDER}/keys"));
        // It has a machine of its own: what it computes is not taken from the victim.
        let mut command = hosts.bridges().command(from, "nice");
        command.args(["-n", "19"]).arg(std::env::current_exe().expect("this program"));
        command.args(["--exact", "attacks::the_attacker", "--ignored", "--nocapture"]);
        command.env(ARGUMENTS, format!("{attack}\n{}\n{}", keys.display(), cluster.layout().digest()));
        // It ends with what it reads from.
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Self(child.expect("started"))
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A cluster under attack.
struct Besieged {
    hosts: Hosts,
    /// Late renewals without an attack.
    usual: u64,
}

impl Besieged {
    fn new(bridges: Bridges) -> Self {
        let mut this = Self { hosts: Hosts::booted_within(bridges, &profile()), usual: 0 };
        this.usual = this.late_of_some();
        this
    }

    fn until(&self, what: &str, holds: impl Fn(&Figures) -> bool) -> Figures {
        let of = |status: &Status| Figures::of(status).filter(&holds);
        let found = self.hosts.until(VICTIM, what, |status| of(status).is_some());
        of(&found).expect("just seen")
    }

    /// Renewals go on; returns how many were late.
    fn late_of_some(&self) -> u64 {
        let before = self.until("all can be read", |_| true);
        let after = self.until("leases are renewed", |now| now.renewed >= before.renewed + RENEWALS);
        after.late - before.late
    }

    /// While an attack lasts, and this counter shows by at least so much that its bound is reached, the view
    /// stays, renewals are in time, and a process of another host joins, which connects to the victim for it.
    fn attack(&mut self, from: u8, attack: &str, counter: &str, least: u64) -> Attacker {
        const NEWCOMER: &str = "agent --name late";
        self.hosts.healthy(VICTIM);
        let before = self.until(attack, |_| true);
        let attacker = Attacker::start(&self.hosts, from, attack);
        let reached = |now: &Figures, of: u64| now.counted(counter) >= before.counted(counter) + of;
        self.until(attack, |now| reached(now, 1));
        let late = self.late_of_some();
        assert!(late <= self.usual + NOISE, "{attack}: {late} late renewals, {} without it", self.usual);

        self.hosts.start(2, NEWCOMER);
        for host in [VICTIM, 2] {
            self.hosts.until(host, attack, |status| status.is_active("late"));
        }
        let during = self.until(attack, |now| reached(now, least));
        assert_eq!(during.view, before.view + 1, "{attack}: {during:#?}");
        signal("TERM", &[self.hosts.pid(2, NEWCOMER)]);
        let is_in = |now: &Figures| now.members.iter().any(|(name, _)| name == "late");
        let after = self.until(attack, |now| !is_in(now));
        assert_eq!(after.view, before.view + 2, "{attack}: {after:#?}");
        assert_eq!(after.members, before.members, "{attack}");
        assert_eq!(after.suspected, before.suspected, "{attack}: {before:#?}\n{after:#?}");
        assert_eq!(after.counted("pulse_silences"), before.counted("pulse_silences"), "{attack}");
        self.hosts.kill(2, NEWCOMER);
        attacker
    }
}

/// Nobody but the gateway of its host can know that it has ended: others hear it no more for a while.
fn a_gateway_proves_the_death_of_a_process_of_its_host(besieged: &mut Besieged) {
    let before = besieged.until("all can be read", |_| true);
    besieged.hosts.kill(2, "agent --name node-2");
    besieged.hosts.until(VICTIM, "it is excluded", |status| status.incarnation("node-2") == 0);
    let view = Ran::of(&mut besieged.hosts.on(VICTIM, &["watch", "--once", "--json"])).ends(0).json();
    let failed = json!([{ "change": "failed", "name": "node-2", "level": "deadbeat" }]);
    let of = |change: &Value| json!({ "change": change["change"], "name": change["name"], "level": change["level"] });
    let changes: Vec<Value> = view["changes"].as_array().expect("a list").iter().map(of).collect();
    assert_eq!(json!(changes), failed, "{view}");
    besieged.hosts.start(2, "agent --name node-2");
    (1..=HOSTS).for_each(|host| drop(besieged.hosts.healthy(host)));
    let after = besieged.until("all can be read", |_| true);
    assert_eq!(after.proved, before.proved + 1, "{after:#?}");
}

#[test]
fn no_attack_on_a_gateway_changes_a_view_delays_renewals_or_keeps_a_member_out() {
    let Some(bridges) = Bridges::new(STRANGER, PATHS) else { return };
    let mut besieged = Besieged::new(bridges);
    // It is ended for this after ten seconds, in which others attack.
    let unread = besieged.attack(INSIDER, "take no answers", "admitted", 4);
    drop(besieged.attack(INSIDER, "watch everybody", "watches_refused", 100_000));
    drop(besieged.attack(INSIDER, "send without a pause", "throttled", 100));
    drop(besieged.attack(INSIDER, "open sessions", "evicted", 20));
    drop(besieged.attack(STRANGER, "connect", "crowded", 1_000));
    drop(besieged.attack(STRANGER, "send datagrams", "pulses_refused", 20_000));
    besieged.until("who takes no answers is ended", |now| now.counted("stalled") > 0);
    drop(unread);
    a_gateway_proves_the_death_of_a_process_of_its_host(&mut besieged);
}

/// The roles and the kinds of messages as they are sent.
const READER: u8 = 0;
const MEMBER: u8 = 1;
const READ: u8 = 1;
const WATCH: u8 = 6;
const UNWATCH: u8 = 7;
const PING: u8 = 8;
const WELCOME: u8 = 32;
const PONG: u8 = 40;
/// The region of the victim's coordinator.
const PEER: u32 = VICTIM as u32;

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Messages as they are sent, each after its length.
fn framed(messages: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let one = |message: Vec<u8>| [&(message.len() as u32).to_le_bytes()[..], &message].concat();
    messages.into_iter().flat_map(one).collect()
}

fn next(stream: &mut Tls) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut message = vec![0; u32::from_le_bytes(len) as usize];
    stream.read_exact(&mut message)?;
    Ok(message)
}

/// A message that names a seat of the victim's coordinator, in one of its lives.
fn of_seat(kind: u8, generation: u32) -> Vec<u8> {
    [&[kind][..], &PEER.to_le_bytes(), &generation.to_le_bytes(), &[0; 2]].concat()
}

/// Who has the keys of a host.
struct Insider {
    tls: Arc<ClientConfig>,
    layout: u64,
}

impl Insider {
    fn new(keys: &Path, layout: u64) -> Self {
        let file = |name: &str| keys.join(name);
        let mut roots = RootCertStore::empty();
        for one in CertificateDer::pem_file_iter(file("ca.pem")).expect("a file") {
            roots.add(one.expect("a certificate")).expect("usable");
        }
        let chain = CertificateDer::pem_file_iter(file("host.pem")).expect("a file");
        let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
        let key = PrivateKeyDer::from_pem_file(file("host.key")).expect("a key");
        let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("some")
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .expect("they belong together");
        Self { tls: Arc::new(tls), layout }
    }

    /// A session, as the process with this region: 0 of an observer.
    fn session(&self, region: u32) -> io::Result<Tls> {
        let at = Bridges::address(VICTIM, 1);
        let socket = TcpStream::connect((at, PORT))?;
        let name = ServerName::IpAddress(std::net::IpAddr::from(at).into());
        let tls = ClientConnection::new(Arc::clone(&self.tls), name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(tls, socket);
        let mut hello = b"obol-ip1".to_vec();
        hello.extend(NONCE.to_le_bytes());
        hello.extend(self.layout.to_le_bytes());
        hello.extend(Release::own().number().to_le_bytes());
        hello.extend(region.to_le_bytes());
        hello.extend(7u32.to_le_bytes());
        hello.push(if region == 0 { READER } else { MEMBER });
        stream.write_all(&framed([hello]))?;
        match next(&mut stream)?[0] {
            WELCOME => Ok(stream),
            other => Err(io::Error::other(format!("refused with {other}"))),
        }
    }

    /// The region with this number of its host, from the last one down: processes have the first ones.
    fn region(number: u32) -> u32 {
        (u32::from(INSIDER) + 1) * PER_HOST - 1 - number
    }

    /// An observer asks for nothing else, and waits for nothing; a member waits each time.
    fn watch_everybody(&self) -> io::Result<()> {
        const BATCH: u32 = 10_000;
        let (mut observer, mut member) = (self.session(0)?, self.session(Self::region(0))?);
        for first in (1..).step_by(BATCH as usize) {
            let batch = framed((first..first + BATCH).map(|generation| of_seat(WATCH, generation)));
            observer.write_all(&batch)?;
            member.write_all(&batch)?;
            member.write_all(&framed([vec![PING]]))?;
            while next(&mut member)?[0] != PONG {}
        }
        Ok(())
    }

    /// Requests that have no answer, as fast as they are taken.
    fn send_without_a_pause(&self, region: u32) -> io::Result<()> {
        let mut stream = self.session(region)?;
        let batch = framed((0..10_000).map(|generation| of_seat(UNWATCH, generation)));
        loop {
            stream.write_all(&batch)?;
        }
    }

    /// Large READs until no more are taken.
    fn take_no_answers(&self, region: u32) -> io::Result<()> {
        let mut stream = self.session(region)?;
        let target = [&PEER.to_le_bytes()[..], &[0; 14]].concat();
        let read = framed([[&[READ][..], &target, &(64u32 << 10).to_le_bytes()].concat()]);
        stream.sock.set_write_timeout(Some(Duration::from_millis(200)))?;
        while stream.write_all(&read).is_ok() {}
        // It is ended for this.
        std::thread::sleep(Duration::from_secs(15));
        Ok(())
    }

    /// One after the other, and hundreds are kept.
    fn open_sessions(&self) -> io::Result<()> {
        const KEPT: usize = 300;
        let mut kept = VecDeque::new();
        loop {
            kept.push_back(self.session(0)?);
            if kept.len() > KEPT {
                kept.pop_front();
            }
        }
    }
}

/// Does something so often a second, unless it takes longer.
fn paced(per_second: u32, mut what: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let begun = Instant::now();
    for done in 0.. {
        if done % (per_second / 100) == 0 {
            let due = Duration::from_secs(1) * done / per_second;
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
        }
        what()?;
    }
    Ok(())
}

/// Connections that say nothing. Hundreds are kept.
fn connect() -> io::Result<()> {
    const KEPT: usize = 500;
    let mut kept = VecDeque::new();
    paced(3_000, || {
        kept.push_back(TcpStream::connect((Bridges::address(VICTIM, 1), PORT))?);
        if kept.len() > KEPT {
            kept.pop_front();
        }
        Ok(())
    })
}

/// Of two lengths, to all addresses: that of a pulse, and one of which few find room.
fn send_datagrams() -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let bytes = [7; 1400];
    let mut turn = 0;
    paced(20_000, || {
        turn += 1;
        let to = SocketAddr::from((Bridges::address(VICTIM, 1 + turn % PATHS), PORT));
        let len = if turn % 4 < 2 { 74 } else { bytes.len() };
        // The kernel may have no room for one.
        let _ = socket.send_to(&bytes[..len], to);
        turn %= 128;
        Ok(())
    })
}

/// Again and again: a session that is ended is followed by another one.
fn forever(what: impl Fn() -> io::Result<()>) -> ! {
    loop {
        // What fails shows in the gateway's counters, on which the test waits.
        if what().is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
#[ignore = "a program that another test runs"]
fn the_attacker() {
    let arguments = std::env::var(ARGUMENTS).expect("its arguments");
    let [attack, keys, layout] = arguments.lines().collect::<Vec<_>>()[..] else { panic!("{arguments:?}") };
    std::thread::spawn(|| {
        let _ended = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let insider = &Insider::new(Path::new(keys), layout.parse().expect("a number"));
    match attack {
        "watch everybody" => forever(|| insider.watch_everybody()),
        "send without a pause" => std::thread::scope(|scope| {
            for number in 0..2 {
                scope.spawn(move || forever(|| insider.send_without_a_pause(Insider::region(number))));
            }
        }),
        "take no answers" => std::thread::scope(|scope| {
            // Observers, too.
            for region in [0, 0, Insider::region(8), Insider::region(9)] {
                scope.spawn(move || forever(|| insider.take_no_answers(region)));
            }
        }),
        "open sessions" => forever(|| insider.open_sessions()),
        "connect" => forever(connect),
        "send datagrams" => forever(send_datagrams),
        _ => panic!("{attack:?}"),
    }
}
