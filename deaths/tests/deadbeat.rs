//! Death notices of the kernel module, through the API that an agent uses. Needs `/dev/deadbeat`,
//! so it is run in a VM (`tests/vm`), where `OBOL_DEADBEAT=require` makes its absence a failure.
//! `OBOL_DEADBEAT_INTERFACE` names an interface with multicast.

use obol_checks::skipped;
use obol_deaths::deadbeat::{Deadbeat, DeadbeatError, Destinations, Registration, UdpGroup, VerbsGroup};
use obol_deaths::pidfd;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 77, 9, 1);
/// Bounds a hang, nothing else.
const HANG_TIMEOUT: Duration = Duration::from_secs(30);

fn interface() -> String {
    std::env::var("OBOL_DEADBEAT_INTERFACE").unwrap_or_else(|_| "lo".to_owned())
}

/// Whether the module is loaded. Otherwise a test is skipped.
fn is_here() -> bool {
    match Deadbeat::open() {
        Ok(_) => true,
        Err(error) if std::env::var("OBOL_DEADBEAT").is_ok_and(|v| v == "require") => panic!("{error}"),
        Err(error) => {
            skipped("module-here", error);
            false
        }
    }
}

/// A receiver of the group, on a port of its own.
fn receiver() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("bound");
    let address =
        Command::new("ip").args(["-4", "-o", "addr", "show", "dev", &interface()]).output().expect("ip runs");
    let text = String::from_utf8(address.stdout).expect("text");
    let own = text.split_whitespace().skip_while(|w| *w != "inet").nth(1).and_then(|a| a.split('/').next());
    let own: Ipv4Addr = own.expect("an address").parse().expect("an IPv4 address");
    socket.join_multicast_v4(&GROUP, &own).expect("joined");
    socket.set_read_timeout(Some(HANG_TIMEOUT)).expect("set");
    socket
}

fn opened(socket: &UdpSocket) -> Deadbeat {
    let deadbeat = Deadbeat::open().expect("opened");
    deadbeat.configure(&destinations(socket.local_addr().expect("bound"))).expect("configured");
    deadbeat
}

fn destinations(at: SocketAddr) -> Destinations {
    let udp =
        UdpGroup { group: GROUP.to_ipv6_mapped(), port: at.port(), interface: Some(interface()), hops: 1 };
    Destinations { udp: Some(udp), verbs: None }
}

/// A process that waits for its standard input to end.
fn victim() -> Child {
    let mut child = Command::new("/bin/sh")
        .args(["-c", "echo; read never"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it is up");
    child
}

fn pidfd(child: &Child) -> OwnedFd {
    pidfd::open(child.id()).expect("held")
}

fn registered(deadbeat: &Deadbeat, child: &Child, dying: &[u8], dead: &[u8]) -> Registration {
    let held = pidfd(child);
    deadbeat.register(held.as_fd(), dying, dead).expect("registered")
}

fn next(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 512];
    let n = socket.recv(&mut buffer).expect("a notice");
    buffer[..n].to_vec()
}

fn end(mut child: Child) {
    child.kill().expect("killed");
    child.wait().expect("reaped");
}

#[test]
fn a_killed_process_is_dying_and_then_dead() {
    if !is_here() {
        return;
    }
    let socket = receiver();
    let deadbeat = opened(&socket);
    let child = victim();
    let longest = [7; 256];
    let _registration = registered(&deadbeat, &child, b"dying", &longest);
    end(child);
    assert_eq!(next(&socket), b"dying");
    assert_eq!(next(&socket), longest);
}

#[test]
fn a_process_that_exits_is_dead_only() {
    if !is_here() {
        return;
    }
    let socket = receiver();
    let deadbeat = opened(&socket);
    let mut child = victim();
    let _registration = registered(&deadbeat, &child, b"dying", b"dead");
    drop(child.stdin.take());
    assert_eq!(next(&socket), b"dead");
    child.wait().expect("reaped");
}

#[test]
fn a_dropped_registration_sends_nothing() {
    if !is_here() {
        return;
    }
    let socket = receiver();
    let deadbeat = opened(&socket);
    let (one, other) = (victim(), victim());
    drop(registered(&deadbeat, &one, b"", b"one"));
    let registration = registered(&deadbeat, &other, b"", b"other");
    // The registration keeps the device open.
    drop(deadbeat);
    end(one);
    end(other);
    assert_eq!(next(&socket), b"other");
    drop(registration);
}

#[test]
fn what_can_not_be_is_refused() {
    if !is_here() {
        return;
    }
    let socket = receiver();
    let at = socket.local_addr().expect("bound");
    let fresh = Deadbeat::open().expect("opened");
    let mut child = victim();
    let held = pidfd(&child);

    let early = fresh.register(held.as_fd(), b"", b"x");
    assert!(matches!(early, Err(DeadbeatError::Destination { .. })), "{early:?}");
    let verbs = VerbsGroup {
        device: "none0".to_owned(),
        port: 1,
        gid_index: 1,
        group: GROUP.to_ipv6_mapped(),
        qkey: 7,
        lid: 0,
        pkey_index: 0,
        flow_label: 0,
        service_level: 0,
        static_rate: 0,
        traffic_class: 0,
        hop_limit: 1,
    };
    let nowhere = fresh.configure(&Destinations { udp: None, verbs: Some(verbs) });
    assert!(
        matches!(&nowhere, Err(DeadbeatError::NoDevice { what, .. }) if what.contains("none0")),
        "{nowhere:?}"
    );
    fresh.configure(&destinations(at)).expect("configured");
    let again = fresh.configure(&destinations(at));
    assert!(matches!(again, Err(DeadbeatError::Destination { .. })), "{again:?}");

    let empty = fresh.register(held.as_fd(), b"", b"");
    assert!(matches!(empty, Err(DeadbeatError::NoticeLength { bytes: 0 })), "{empty:?}");
    let long = fresh.register(held.as_fd(), &[0; 257], b"x");
    assert!(matches!(long, Err(DeadbeatError::NoticeLength { bytes: 257 })), "{long:?}");
    child.kill().expect("killed");
    child.wait().expect("reaped");
    let dead = fresh.register(held.as_fd(), b"", b"x");
    assert!(matches!(dead, Err(DeadbeatError::Dead)), "{dead:?}");
}
