//! What processes that were let in, and strangers, may cost a gateway.

use crate::hosts::{ALL, Plan, UNANSWERED};
use crate::strangers::{
    ASK, Bed, DATA, DENIED, FAILED, HERE, MEMBER, PEER, PING, READ, READER, THERE, Tls, WELCOME, is_closed,
    next, operation, send,
};
use crate::support::{HANG, cpu_time, kill, wait_for};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, socket};
use obol_fabric::Release;
use obol_fabric_ip::GatewayCounter;
use obol_identity::Duty;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const WATCH: u8 = 6;
const UNWATCH: u8 = 7;
const PULSE: u8 = 10;
const WRITTEN: u8 = 35;
const PONG: u8 = 40;
const DATAGRAM: u8 = 4;
/// As in the gateway.
const WATCHES_MAX: u32 = 1024;
const READERS_MAX: u64 = 64;
const QUESTIONS_MAX: usize = 4;

/// An admitted session.
fn admitted(bed: &Bed, keys: &Path, region: u32, role: u8) -> Tls {
    let mut stream = bed.greet(keys, region, role).expect("connected");
    assert_eq!(next(&mut stream).expect("a reply")[0], WELCOME);
    stream
}

/// A message that names a seat.
fn of_seat(kind: u8, region: u32, generation: u32, seat: u16) -> Vec<u8> {
    [&[kind][..], &region.to_le_bytes(), &generation.to_le_bytes(), &seat.to_le_bytes()].concat()
}

/// Messages as they are sent.
fn framed(messages: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let one = |message: Vec<u8>| [&(message.len() as u32).to_le_bytes()[..], &message].concat();
    messages.into_iter().flat_map(one).collect()
}

/// The answer to a ping, after whatever else was said.
fn pinged(stream: &mut Tls) {
    send(stream, &[PING]).expect("sent");
    while next(stream).expect("an answer")[0] != PONG {}
}

/// A connection from an address of this machine.
fn connect_from(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("made");
    let fd = socket.as_raw_fd();
    bind(fd, &SockaddrStorage::from(SocketAddr::new(from, 0))).expect("an address of this machine");
    connect(fd, &SockaddrStorage::from(to)).expect("it listens");
    TcpStream::from(socket)
}

#[test]
fn an_observer_watches_nobody() {
    const WATCHES: u32 = 100_000;
    let bed = Bed::new();
    let mut observer = admitted(&bed, &bed.keys(&bed.authority, &[Duty::Observer]), 0, READER);
    observer.write_all(&framed((0..WATCHES).map(|n| of_seat(WATCH, PEER, n, 0)))).expect("sent");
    pinged(&mut observer);
    assert_eq!(bed.counted(GatewayCounter::WatchesRefused), u64::from(WATCHES));
    bed.serves();
}

#[test]
fn a_member_watches_processes_of_the_gateway_s_host_and_no_more_than_there_can_be() {
    let bed = Bed::new();
    let mut member = admitted(&bed, &bed.keys(&bed.authority, &ALL), HERE, MEMBER);
    // Its own host, coordinator 1 there, no region, and no seat.
    let elsewhere = [(HERE, 0), (1, 0), (0, 0), (1024, 0), (u32::MAX, 0), (THERE, u16::MAX)];
    member.write_all(&framed(elsewhere.map(|(region, seat)| of_seat(WATCH, region, 1, seat)))).expect("sent");
    pinged(&mut member);
    assert_eq!(bed.counted(GatewayCounter::WatchesRefused), elsewhere.len() as u64);
    let watches = |count: u32| framed((0..count).map(|n| of_seat(WATCH, THERE, n + 1, 0)));
    // Again and again: one that there is already is not another one.
    for _ in 0..3 {
        member.write_all(&watches(WATCHES_MAX)).expect("sent");
    }
    pinged(&mut member);
    assert_eq!(bed.counted(GatewayCounter::WatchesRefused), elsewhere.len() as u64);
    member.write_all(&watches(WATCHES_MAX + 5)).expect("sent");
    pinged(&mut member);
    assert_eq!(bed.counted(GatewayCounter::WatchesRefused), elsewhere.len() as u64 + 5);
    // Room is made by those that end.
    let ended = framed((0..5).map(|n| of_seat(UNWATCH, THERE, n + 1, 0)));
    member.write_all(&ended).expect("sent");
    member.write_all(&watches(WATCHES_MAX)).expect("sent");
    pinged(&mut member);
    assert_eq!(bed.counted(GatewayCounter::WatchesRefused), elsewhere.len() as u64 + 5);
    bed.serves();
}

/// Stops threads that flood, also when the test fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The memory that a process has, in bytes.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn who_sends_without_a_pause_keeps_nobody_waiting_and_takes_no_memory() {
    const MORE_MEMORY_MAX: u64 = 32 << 20;
    let bed = Bed::new();
    let keys = bed.keys(&bed.authority, &ALL);
    let before = memory(bed.children[0].0.id());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = Stops(&stop);
        for region in [HERE, HERE + 1] {
            let mut member = admitted(&bed, &keys, region, MEMBER);
            member.sock.set_write_timeout(Some(HANG)).expect("set");
            let stop = &stop;
            scope.spawn(move || {
                // Of nobody, so there are no answers.
                let batch = framed((0..10_000).map(|n| of_seat(UNWATCH, THERE, n, 0)));
                while !stop.load(Ordering::Relaxed) && member.write_all(&batch).is_ok() {}
            });
        }
        wait_for(|| bed.counted(GatewayCounter::Throttled) > 100);
        for _ in 0..10 {
            bed.serves();
        }
        let more = memory(bed.children[0].0.id()).saturating_sub(before);
        drop(stops);
        assert!(more < MORE_MEMORY_MAX, "{more} bytes");
    });
}

#[test]
fn who_takes_no_answers_costs_nothing_and_is_ended() {
    let bed = Bed::new();
    let mut stream = admitted(&bed, &bed.keys(&bed.authority, &ALL), 0, READER);
    let bytes = bed.cluster.layout().bytes() as u32 / 8 * 8;
    let read = operation(READ, PEER, 0, &bytes.to_le_bytes());
    stream.sock.set_write_timeout(Some(Duration::from_millis(200))).expect("set");
    while send(&mut stream, &read).is_ok() {}
    let (started, before) = (Instant::now(), cpu_time(&bed.children[0]));
    bed.serves();
    wait_for(|| bed.counted(GatewayCounter::Stalled) == 1);
    let (span, busy) = (started.elapsed(), cpu_time(&bed.children[0]).0 - before.0);
    // It was waited for all that time: a thread that looks again and again takes all of it.
    assert!(u128::from(busy) < span.as_nanos() / 4, "{busy} ns of {span:?}");
    // What was on its way arrives, and then the end.
    while next(&mut stream).is_ok() {}
    bed.serves();
}

#[test]
fn a_host_has_a_bounded_number_of_observers_and_the_one_unused_longest_is_ended() {
    const MORE: u64 = 6;
    let bed = Bed::new();
    let all = bed.keys(&bed.authority, &ALL);
    let mut member = admitted(&bed, &all, HERE, MEMBER);
    let observer = bed.keys(&bed.authority, &[Duty::Observer]);
    let mut first = admitted(&bed, &observer, 0, READER);
    let mut others = Vec::new();
    for _ in 0..READERS_MAX - 1 {
        others.push(admitted(&bed, &observer, 0, READER));
    }
    assert_eq!(bed.counted(GatewayCounter::Evicted), 0);
    for _ in 0..MORE {
        pinged(&mut first);
        others.push(admitted(&bed, &observer, 0, READER));
    }
    assert_eq!(bed.counted(GatewayCounter::Evicted), MORE);
    for (index, stream) in others.iter_mut().enumerate() {
        if index < MORE as usize {
            assert!(is_closed(next(stream)), "{index}");
        } else {
            pinged(stream);
        }
    }
    pinged(&mut first);
    pinged(&mut member);
    bed.serves();
}

#[test]
fn questions_of_a_host_s_observers_leave_room_for_those_of_its_members() {
    let bed = Bed::new();
    let keys = bed.keys(&bed.authority, &ALL);
    let ask = |stream: &mut Tls, bytes: &[u8]| send(stream, &[&[ASK], bytes].concat()).expect("sent");
    let mut waiting: Vec<_> = (0..QUESTIONS_MAX).map(|_| admitted(&bed, &keys, 0, READER)).collect();
    for stream in &mut waiting {
        ask(stream, UNANSWERED);
        stream.sock.set_read_timeout(Some(Duration::from_millis(1))).expect("set");
    }
    let mut further = admitted(&bed, &keys, 0, READER);
    wait_for(|| {
        ask(&mut further, b"one more");
        if next(&mut further).expect("a reply") == [FAILED, DENIED] {
            return true;
        }
        // It may have taken the place of one of the others, which is refused then.
        for stream in &mut waiting {
            if next(stream).is_ok() {
                ask(stream, UNANSWERED);
            }
        }
        false
    });
    let mut member = admitted(&bed, &keys, HERE, MEMBER);
    ask(&mut member, b"first");
    assert_eq!(next(&mut member).expect("an answer"), [&[DATA][..], b"first"].concat());
    // Who does not wait any longer leaves its place to another one.
    drop(waiting.pop());
    wait_for(|| {
        ask(&mut further, b"again");
        next(&mut further).expect("a reply")[0] == DATA
    });
}

#[test]
fn datagrams_of_one_host_leave_room_for_those_of_another_one() {
    const FLOOD: usize = 100;
    let bed = Bed::new();
    let flood = admitted(&bed, &bed.keys(&bed.authority, &ALL), HERE, MEMBER);
    // A process with a certificate of another host. It needs no gateway, but may use it.
    let keys = bed.root.join("other");
    bed.authority.issue(&keys, bed.plan.address(2), bed.plan.nonce, 2, &ALL);
    let other = admitted(&bed, &keys, THERE, MEMBER);
    kill(&bed.children[1], "STOP");
    let send_to_peer = |mut stream: Tls, times: usize| {
        let datagram = [of_seat(DATAGRAM, PEER, 0, 0), b"hello".to_vec()].concat();
        stream.write_all(&framed(std::iter::repeat_n(datagram, times))).expect("sent");
        pinged(&mut stream);
        bed.counted(GatewayCounter::LanesFull)
    };
    let lost = send_to_peer(flood, FLOOD);
    assert!(lost > 0, "the frozen process takes none, and its lane is full");
    assert_eq!(send_to_peer(other, 1), lost, "that of the other host is not lost");
    kill(&bed.children[1], "CONT");
}

#[test]
fn a_gateway_has_one_session_for_its_pulses() {
    let bed = Bed::with(Plan::pulsed());
    let keys = bed.keys(&bed.authority, &[Duty::Gateway]);
    let mut first = admitted(&bed, &keys, 0, READER);
    send(&mut first, &[PULSE]).expect("sent");
    assert_eq!(next(&mut first).expect("a reply"), [WRITTEN]);
    send(&mut first, &[PULSE]).expect("sent");
    assert_eq!(next(&mut first).expect("a reply"), [FAILED, DENIED], "it has a key already");
    let mut second = admitted(&bed, &keys, 0, READER);
    send(&mut second, &[PULSE]).expect("sent");
    assert_eq!(next(&mut second).expect("a reply"), [WRITTEN]);
    assert!(is_closed(next(&mut first)), "its key was forgotten");
    pinged(&mut second);
}

#[test]
fn strangers_of_one_address_push_no_member_s_handshake_out() {
    const STRANGERS: usize = 500;
    let bed = Bed::new();
    let keys = bed.keys(&bed.authority, &ALL);
    let hello = |stream: &mut Tls| {
        bed.introduce(stream, HERE, MEMBER, Release::own()).expect("sent");
        assert_eq!(next(stream).expect("a reply")[0], WELCOME);
    };
    // A host of the file, and an address that no host has: its handshake is one of few from there.
    for from in [bed.plan.address(1), Ipv4Addr::new(127, 0, 0, 2).into()] {
        let crowded = bed.counted(GatewayCounter::Crowded);
        let mut member = bed.wrap(&keys, connect_from(from, bed.at())).expect("connected");
        let strangers: Vec<_> =
            (0..STRANGERS).map(|_| connect_from(Ipv4Addr::new(127, 0, 0, 3).into(), bed.at())).collect();
        wait_for(|| bed.counted(GatewayCounter::Crowded) > crowded + 100);
        hello(&mut member);
        drop(strangers);
    }
}
